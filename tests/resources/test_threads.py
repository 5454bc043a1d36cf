"""Many threads at once: everything is built once, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples
from tests.resources.parts import Client, Config, Quiet, Report, Tracer, boom

from weakincentives.errors import ResourceCycleError, ResourcesClosedError
from weakincentives.resources import Binding, Resolver, ResourceRegistry, Scope

THREADS = 8


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*works: Callable[[], Any]) -> list[Any]:
    """Run all at the same moment; results or exceptions, in order. A hang fails the test."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], Any]) -> Any:
        start.wait()
        try:
            return work()
        except Exception as error:
            return error

    pool = ThreadPoolExecutor(len(works))
    try:
        futures = [pool.submit(run, work) for work in works]
        return [future.result(timeout=20) for future in futures]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class Top: ...


class Left: ...


class Right: ...


class Base: ...


@pytest.mark.parametrize("kind", ["sync", "async", "tool scope"])
def test_a_diamond_is_built_once_by_eight_threads(kind: str) -> None:
    """Eight first `get`s of a diamond at once build each of its four corners exactly once."""
    made: Counter[str] = Counter()
    needs: dict[type[Any], list[type[Any]]] = {Top: [Left, Right], Left: [Base], Right: [Base], Base: []}
    scope = Scope.TOOL_CALL if kind == "tool scope" else Scope.SINGLETON

    def sync(key: type[Any]) -> Binding[Any]:
        def provider(r: Resolver) -> Any:
            for need in needs[key]:
                r.get(need)
            time.sleep(0.001)
            made[key.__name__] += 1
            return key()

        return Binding[Any](key, provider, scope)

    def asynchronous(key: type[Any]) -> Binding[Any]:
        async def provider(r: Resolver) -> Any:
            await asyncio.gather(*(r.aget(need) for need in needs[key]))
            await asyncio.sleep(0.001)
            made[key.__name__] += 1
            return key()

        return Binding[Any](key, provider, scope)

    make = asynchronous if kind == "async" else sync
    registry = ResourceRegistry.of(*(make(key) for key in needs))
    wanted = [Top, Right, Left, Base] * 2
    for _ in range(10):
        made.clear()
        with registry.open() as ctx, ctx.tool_scope() as tools:
            get = tools.get if kind == "tool scope" else ctx.get
            results = together(*(partial(get, key) for key in wanted))
            assert [type(result) for result in results] == wanted
            assert len({id(result) for result in results}) == 4
        assert made == Counter(Top=1, Left=1, Right=1, Base=1)


def test_a_circle_met_by_two_threads_is_seen_by_both() -> None:
    """Two threads that build the two halves of a circle do not wait for each other: both get the real path."""
    begun = {Client: threading.Event(), Report: threading.Event()}

    def meet(mine: type[Any], other: type[Any]) -> None:
        begun[mine].set()
        assert begun[other].wait(10)

    def client(r: Resolver) -> Client:
        meet(Client, Report)
        return r.get(Report)  # type: ignore[return-value]

    def report(r: Resolver) -> Report:
        meet(Report, Client)
        return r.get(Client)  # type: ignore[return-value]

    with ResourceRegistry.of(Binding(Client, client), Binding(Report, report)).open() as ctx:
        pair = together(lambda: ctx.get(Client), lambda: ctx.get(Report))
    assert [type(error) for error in pair] == [ResourceCycleError] * 2
    assert all(
        "Client -> Report -> Client" in str(error) or "Report -> Client -> Report" in str(error) for error in pair
    )


def test_unrelated_resources_do_not_wait_for_one_another() -> None:
    """A slow provider holds up only those who need its resource."""
    go_on, started = threading.Event(), threading.Event()

    def slow(_: Resolver) -> Client:
        started.set()
        assert go_on.wait(10)
        return Client([])

    with ResourceRegistry.of(Binding(Client, slow), Binding(Config, lambda r: Config([]))).open() as ctx:
        thread = threading.Thread(target=ctx.get, args=(Client,))
        thread.start()
        assert started.wait(10)
        assert isinstance(ctx.get(Config), Config)
        with ctx.tool_scope() as scope:
            assert scope.get(Config) is ctx.get(Config)
        go_on.set()
        thread.join(10)


def test_a_provider_may_use_threads_of_its_own() -> None:
    """A provider that has its needs built by other threads, through its resolver, does not deadlock."""

    def report(r: Resolver) -> list[Any]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(r.get, [Config, Client, Config]))

    registry = ResourceRegistry.of(
        Binding(list, report), Binding(Config, lambda r: Config([])), Binding(Client, lambda r: Client([]))
    )
    with registry.open() as ctx:
        assert ctx.get(list) == [ctx.get(Config), ctx.get(Client), ctx.get(Config)]


def test_a_circle_through_a_providers_own_threads_is_seen() -> None:
    """A provider's thread that asks for the very resource being built gets the path, not a deadlock."""

    def config(r: Resolver) -> Config:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(r.get, Config).result(10)

    registry = ResourceRegistry.of(Binding(Config, config))
    with registry.open() as ctx, pytest.raises(ResourceCycleError, match="Config -> Config"):
        ctx.get(Config)


def test_those_who_wait_try_again_after_a_failure() -> None:
    """When a build fails, only its caller gets the error; one that waited builds anew."""
    attempts = Counter[str]()

    def config(_: Resolver) -> Config:
        attempts["all"] += 1
        if attempts["all"] == 1:
            time.sleep(0.05)
            boom()
        return Config([])

    with ResourceRegistry.of(Binding(Config, config)).open() as ctx:
        results = together(*[lambda: ctx.get(Config)] * THREADS)
    assert Counter([type(result).__name__ for result in results]) == Counter(Config=THREADS - 1, ProviderError=1)
    assert attempts["all"] == 2


def test_closing_while_others_build_leaks_nothing() -> None:
    """Whatever is finished after the context closed is closed too, and its caller is told."""
    log: list[str] = []

    def config(_: Resolver) -> Config:
        time.sleep(0.002)
        return Config(log)

    registry = ResourceRegistry.of(
        Binding(Config, config), Binding(Tracer, lambda r: Tracer(log), scope=Scope.TOOL_CALL)
    )
    for pause in (0.0, 0.001, 0.002, 0.003):
        ctx = registry.open().open()
        scope = ctx.tool_scope()

        def close(pause: float = pause, ctx: Any = ctx, scope: Any = scope) -> None:
            time.sleep(pause)
            ctx.close()
            scope.close()

        results = together(close, *[lambda ctx=ctx: ctx.get(Config)] * 3, *[lambda scope=scope: scope.get(Tracer)] * 3)
        assert all(isinstance(result, (Config, Tracer, ResourcesClosedError)) for result in results[1:])
    kinds = Counter(log)
    assert kinds["make Config"] == kinds["close Config"]
    assert kinds["make Tracer"] == kinds["close Tracer"]


def test_threads_and_tasks_share_builds() -> None:
    """A build begun by a thread is awaited by a task, and one begun by a task is waited for by a thread."""
    started = threading.Event()
    made: list[str] = []

    def slow(_: Resolver) -> Client:
        started.set()
        time.sleep(0.02)
        return Client(made)

    async def aslow(_: Resolver) -> Config:
        started.set()
        await asyncio.sleep(0.02)
        return Config(made)

    async def main() -> None:
        async with ResourceRegistry.of(Binding(Client, slow), Binding(Config, aslow)).open() as ctx:
            thread = asyncio.create_task(asyncio.to_thread(ctx.get, Client))
            await asyncio.to_thread(started.wait)
            assert await ctx.aget(Client) is await thread
            started.clear()
            task = asyncio.create_task(ctx.aget(Config))
            await asyncio.sleep(0)
            assert await asyncio.to_thread(ctx.get, Config) is await task

    asyncio.run(asyncio.wait_for(main(), 20))
    assert made[:2] == ["make Client", "make Config"]


def test_entering_from_many_threads_opens_once() -> None:
    """Threads that enter and leave one context at random share its life; the last one out closes it."""
    log: list[str] = []
    ctx = ResourceRegistry.of(Binding(Config, lambda r: Config(log)), Binding(Quiet, lambda r: Quiet())).open()

    def work() -> None:
        for _ in range(50):
            with ctx:
                assert ctx.get(Config) is ctx.get(Config)

    assert together(*[work] * 4) == [None] * 4
    assert not ctx.is_open
    assert log.count("make Config") == log.count("close Config") > 0


class Node:
    """The base of a random graph's types."""


NODES = [type(f"N{index}", (Node,), {}) for index in range(6)]
Edges = list[list[int]]


@st.composite
def graphs(draw: st.DrawFn) -> Edges:
    size = draw(st.integers(2, len(NODES)))
    return [draw(st.lists(st.integers(0, size - 1), max_size=2, unique=True)) for _ in range(size)]


def reaches_a_circle(edges: Edges, node: int, path: tuple[int, ...] = ()) -> bool:
    return node in path or any(reaches_a_circle(edges, need, (*path, node)) for need in edges[node])


@given(graphs(), st.lists(st.integers(0, 5), min_size=4, max_size=4))
@settings(max_examples=examples(150))
def test_random_graphs_from_many_threads(edges: Edges, wanted: list[int]) -> None:
    """In any graph, four threads at once get each buildable node built once, and a real circle for every other."""
    made: Counter[int] = Counter()

    def binding(index: int) -> Binding[Any]:
        def provider(r: Resolver) -> Any:
            for need in edges[index]:
                r.get(NODES[need])
            made[index] += 1
            return NODES[index]()

        return Binding[Any](NODES[index], provider)

    wanted = [index % len(edges) for index in wanted]
    with ResourceRegistry.of(*(binding(index) for index in range(len(edges)))).open() as ctx:
        results = together(*(lambda index=index: ctx.get(NODES[index]) for index in wanted))
    for index, result in zip(wanted, results, strict=True):
        if not reaches_a_circle(edges, index):
            assert type(result) is NODES[index]
            continue
        assert isinstance(result, ResourceCycleError), result
        path = [int(name[1:]) for name in str(result).split(": ")[1].split(". ")[0].split(" -> ")]
        assert path[0] == path[-1]
        assert len(set(path)) == len(path) - 1
        assert all(need in edges[node] for node, need in pairwise(path))
    assert all(count == 1 for count in made.values())
