"""Random dependency graphs, compared with a resolver so simple that it can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples

from weakincentives.errors import ProviderError, ResourceCycleError, ResourceScopeError, UnboundResourceError
from weakincentives.resources import Binding, Resolver, ResourceRegistry, Scope


class Node:
    """The base of a random graph's types; it reports when it is built and closed, by number."""

    index = -1

    def __init__(self, log: list[str], number: int) -> None:
        self.log = log
        self.number = number

    def close(self) -> None:
        self.log.append(f"close {self.index} {self.number}")


NODES = [type(f"N{index}", (Node,), {"index": index}) for index in range(7)]


@dataclass(frozen=True)
class Spec:
    """One node: what it needs, in order, how long it lives, and whether its provider fails at the end."""

    needs: tuple[int, ...]
    scope: Scope
    fails: bool
    bound: bool


Step = tuple[str, int]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Spec], list[Step]]:
    size = draw(st.integers(1, len(NODES)))
    index = st.integers(0, size - 1)
    specs = [
        Spec(
            tuple(draw(st.lists(index, max_size=3))),
            draw(st.sampled_from(Scope)),
            draw(st.integers(0, 9)) == 0,
            draw(st.integers(0, 9)) != 0,
        )
        for _ in range(size)
    ]
    verbs = st.sampled_from(["context", "tools", "tools", "next scope", "mark", "discard"])
    return specs, draw(st.lists(st.tuples(verbs, index), min_size=1, max_size=12))


class Stop(Exception):
    """The naive resolver's error: the name of ours, and the path of a circle."""


@dataclass
class Naive:
    """No threads, no sharing of code with the real thing: dictionaries and recursion."""

    specs: list[Spec]
    log: list[str] = field(default_factory=list[str])
    count: int = 0
    shared: dict[int, int] = field(default_factory=dict[int, int])
    shared_owned: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    call: dict[int, int] = field(default_factory=dict[int, int])
    call_owned: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def get(self, index: int, in_call: bool, path: tuple[int, ...] = ()) -> int:
        spec = self.specs[index]
        if index in self.shared:
            return self.shared[index]
        if in_call and index in self.call:
            return self.call[index]
        if not spec.bound:
            raise Stop("UnboundResourceError")
        if index in path:
            circle = (*path[path.index(index) :], index)
            raise Stop("ResourceCycleError " + " -> ".join(f"N{node}" for node in circle))
        if spec.scope is Scope.TOOL_CALL and not in_call:
            raise Stop("ResourceScopeError")
        lives_in_call = in_call and spec.scope is not Scope.SINGLETON
        for need in spec.needs:
            self.get(need, lives_in_call, (*path, index))
        if spec.fails:
            raise Stop("ProviderError")
        self.count += 1
        self.log.append(f"make {index} {self.count}")
        (self.call_owned if lives_in_call else self.shared_owned).append((index, self.count))
        if spec.scope is not Scope.PROTOTYPE:
            (self.call if lives_in_call else self.shared)[index] = self.count
        return self.count

    def end_call(self) -> None:
        self.close(self.call_owned, 0)
        self.call.clear()

    def discard(self, count: int) -> None:
        for index, _ in self.shared_owned[count:]:
            self.shared.pop(index, None)
        self.close(self.shared_owned, count)

    def close(self, owned: list[tuple[int, int]], keep: int) -> None:
        while len(owned) > keep:
            index, number = owned.pop()
            self.log.append(f"close {index} {number}")


@dataclass
class Real:
    """The same interface over the real thing."""

    specs: list[Spec]
    log: list[str] = field(default_factory=list[str])
    count: int = 0

    def binding(self, index: int) -> Binding[Any]:
        spec = self.specs[index]

        def provider(r: Resolver) -> Any:
            for need in spec.needs:
                r.get(NODES[need])
            if spec.fails:
                raise ValueError(index)
            self.count += 1
            self.log.append(f"make {index} {self.count}")
            return NODES[index](self.log, self.count)

        return Binding[Any](NODES[index], provider, spec.scope)

    def registry(self) -> ResourceRegistry:
        return ResourceRegistry.of(*(self.binding(index) for index, spec in enumerate(self.specs) if spec.bound))


def outcome(work: Callable[[], Any]) -> object:
    try:
        return work()
    except Stop as stop:
        return str(stop)
    except ResourceCycleError as error:
        return "ResourceCycleError " + str(error).split(": ")[1].split(". ")[0]
    except (UnboundResourceError, ResourceScopeError, ProviderError) as error:
        return type(error).__name__


@given(worlds())
@settings(max_examples=examples(1000))
def test_any_graph_is_resolved_as_the_naive_resolver_does(world: tuple[list[Spec], list[Step]]) -> None:
    """For any graph and requests: same results, same errors and circles, same order of building and closing."""
    specs, steps = world
    naive, real = Naive(specs), Real(specs)
    ctx = real.registry().open()
    with ctx:
        tools = ctx.tool_scope()
        real_mark, naive_mark = ctx.mark(), 0
        for verb, index in steps:
            if verb == "next scope":
                tools.close()
                tools = ctx.tool_scope()
                naive.end_call()
            elif verb == "mark":
                real_mark, naive_mark = ctx.mark(), len(naive.shared_owned)
            elif verb == "discard":
                assert [node.number for node in ctx.built_since(real_mark) if isinstance(node, Node)] == [
                    number for _, number in naive.shared_owned[naive_mark:]
                ]
                ctx.discard(real_mark)
                naive.discard(naive_mark)
            else:
                source = ctx if verb == "context" else tools
                got = outcome(lambda source=source, index=index: source.get(NODES[index]).number)
                assert got == outcome(lambda index=index, verb=verb: naive.get(index, verb == "tools"))
            assert real.log == naive.log
        tools.close()
        naive.end_call()
    naive.close(naive.shared_owned, 0)
    assert real.log == naive.log
