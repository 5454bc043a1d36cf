"""One event loop for all that is async in a run of plain code, and none that a plain handler blocks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, cast

import httpx
import pytest
from tests.own_loop import loop_threads, own_loop
from tests.runtime.limits_parts import Text, call, eventually, executor_of, make, outcomes

from weakincentives.event_loop import KeptLoop, thread_loop
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.resources import Binding, Resolver
from weakincentives.runtime import MainLoop, Session, ToolCall, ToolInvoked
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.testing import ScriptedAdapter, execute_tool, say
from weakincentives.testing import call as calls


class _Pages(BaseHTTPRequestHandler):
    """Answers, and keeps the connection, so that a pool has one to use again."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(url: str) -> Iterator[httpx.AsyncClient]:
    client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=60)
    yield client
    thread_loop().run(client.aclose())


def fetching(client: httpx.AsyncClient, **options: Any) -> Tool[Text, str]:
    async def fetch(params: Text, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok((await client.get(f"/{params.text}")).text)

    return make(fetch, "fetch", **options)


def prompt_of(*tools: Tool[Any, Any]) -> Prompt[str]:
    return Prompt(name="one-loop", sections=[MarkdownSection(title="Task", template="Go.", tools=tools)])


def script() -> ScriptedAdapter:
    return ScriptedAdapter(calls("fetch", text="a"), calls("fetch", text="b"), say("done"))


@pytest.fixture(autouse=True)
def _own_loop() -> Iterator[None]:
    with own_loop():
        yield


# --- a client with a pool of connections


def test_calls_share_a_pooled_client(client: httpx.AsyncClient) -> None:
    """The second call uses the connection of the first, with limits and without, in one executor and in the next."""
    limited = fetching(client, timeout=60.0).replace(name="limited")
    for _ in range(2):
        session = Session()
        with executor_of(fetching(client), limited, session=session) as executor:
            names = ["fetch", "limited", "fetch", "limited"]
            replies = [executor.execute(call(name, f"{n}", text="x")) for n, name in enumerate(names)]
        assert [reply.result.value for reply in replies] == ["ok"] * 4


def test_evaluations_share_a_pooled_client(client: httpx.AsyncClient) -> None:
    """Within an evaluation and from one to the next, as in a chat."""
    prompt = prompt_of(fetching(client))
    for _ in range(2):
        session = Session()
        assert script().evaluate(prompt, session).text == "done"
        assert outcomes(session) == ["succeeded", "succeeded"]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_requests_of_a_loop_share_a_pooled_client(client: httpx.AsyncClient, concurrency: int) -> None:
    """Over all requests of `run`, and from one `run` to the next."""

    class Fetcher(MainLoop[str, str]):
        def prepare(self, request: str) -> tuple[Prompt[str], Session]:
            return prompt_of(fetching(client)), Session()

    class Scripts(ScriptedAdapter):
        def evaluate(self, *args: Any, **options: Any) -> Any:
            return script().evaluate(*args, **options)

        async def aevaluate(self, *args: Any, **options: Any) -> Any:
            return await script().aevaluate(*args, **options)

    loop = Fetcher(Scripts())
    for _ in range(2):
        results = loop.run(["a", "b", "c"], concurrency=concurrency)
        assert [result.error for result in results] == [None] * 3
        for result in results:
            assert result.session is not None
            assert outcomes(result.session) == ["succeeded", "succeeded"]


def test_tools_under_test_share_a_pooled_client(client: httpx.AsyncClient) -> None:
    """`execute_tool`, one call after the other."""
    assert [execute_tool(fetching(client), {"text": "a"}).result.value for _ in range(3)] == ["ok"] * 3


@pytest.mark.slow
def test_threads_of_one_executor_share_a_pooled_client(client: httpx.AsyncClient) -> None:
    """An executor has one loop, whichever thread its calls come from."""
    with executor_of(fetching(client), session=Session()) as executor, ThreadPoolExecutor(4) as pool:
        replies = pool.map(executor.execute, [call("fetch", f"{number}", text="x") for number in range(24)])
        assert [reply.result.value for reply in replies] == ["ok"] * 24
    assert loop_threads() == []


def test_plain_code_inside_a_running_loop_shares_a_pooled_client(client: httpx.AsyncClient) -> None:
    """As in a notebook, where a loop runs in the thread that plain code is called in."""

    async def cell() -> list[Any]:
        with executor_of(fetching(client), session=Session()) as executor:
            return [executor.execute(call("fetch", f"{n}", text="x")).result.value for n in range(3)]

    assert asyncio.run(cell()) == ["ok"] * 3
    assert asyncio.run(cell()) == ["ok"] * 3


# --- one loop with the resources


class Pool:
    """A resource that belongs to the loop it was made on, with work in the background."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.beats = 0
        self.task = self.loop.create_task(self._beat())
        self.closed_on: Any = None

    async def _beat(self) -> None:
        while True:
            self.beats += 1
            await asyncio.sleep(0.001)

    async def aclose(self) -> None:
        self.task.cancel()
        self.closed_on = asyncio.get_running_loop()


async def _pool(_: Resolver) -> Pool:
    return Pool()


def test_handlers_run_where_their_async_resources_live() -> None:
    """A provider, `get` in a plain handler, `aget` in an async one and closing: all on one loop, which runs on."""
    seen: list[tuple[Pool, Any]] = []

    async def awaits(params: Text, *, context: ToolContext) -> ToolResult[str]:
        seen.append((await context.resources.aget(Pool), asyncio.get_running_loop()))
        return ToolResult.ok("")

    def asks(params: Text, *, context: ToolContext) -> ToolResult[str]:
        pool = context.resources.get(Pool)
        beats = pool.beats
        eventually(lambda: pool.beats > beats)
        seen.append((pool, pool.loop))
        return ToolResult.ok("")

    for order in (["awaits", "asks"], ["asks", "awaits"]):
        seen.clear()
        session = Session()
        bindings = {Pool: Binding(Pool, _pool)}
        with executor_of(awaits, asks, session=session, resources=bindings) as executor:
            for number, name in enumerate(order):
                executor.execute(call(name, f"{number}", text="x"))
        assert outcomes(session) == ["succeeded", "succeeded"]
        (first, loop), (second, other) = seen
        assert first is second
        assert loop is other is first.loop is first.closed_on
        assert loop_threads() == []


def test_plain_handlers_of_async_code_use_its_loop() -> None:
    """What they get is built on the loop that awaits them, and a coroutine that they return runs there."""
    seen: list[Any] = []

    async def later() -> ToolResult[str]:
        seen.append(asyncio.get_running_loop())
        return ToolResult.ok("later")

    def asks(params: Text, *, context: ToolContext) -> ToolResult[str]:
        seen.append(context.resources.get(Pool).loop)
        return cast(Any, later())

    async def main() -> None:
        async with executor_of(asks, session=Session(), resources={Pool: Binding(Pool, _pool)}) as executor:
            reply = await executor.aexecute(call("asks", "1", text="x"))
            assert reply.result.value == "later"
        assert seen == [asyncio.get_running_loop()] * 2

    asyncio.run(main())


# --- what is left on the loop


def test_tasks_that_a_handler_leaves_go_on_and_end_with_the_run() -> None:
    """They run while the run is open, also when nothing waits for them, and are cancelled with it."""
    beats: list[int] = []
    ended: list[str] = []

    async def leave(params: Text, *, context: ToolContext) -> ToolResult[str]:
        async def background() -> None:
            try:
                while True:
                    beats.append(1)
                    await asyncio.sleep(0.001)
            finally:
                ended.append("cancelled")

        kept.append(asyncio.create_task(background()))
        return ToolResult.ok("")

    kept: list[Any] = []
    with executor_of(leave, session=Session()) as executor:
        executor.execute(call("leave", "1", text="x"))
        before = len(beats)
        eventually(lambda: len(beats) > before + 3)
        assert ended == []
    assert ended == ["cancelled"]
    assert loop_threads() == []


def test_a_handler_that_blocks_the_loop_is_given_up_with_it() -> None:
    """The run goes on, on a new loop; the old one is closed when the handler has returned."""
    release = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def block(params: Text, *, context: ToolContext) -> ToolResult[str]:
        loops.append(asyncio.get_running_loop())
        release.wait(60)
        return ToolResult.ok("late")

    async def ask(params: Text, *, context: ToolContext) -> ToolResult[str]:
        loops.append(asyncio.get_running_loop())
        return ToolResult.ok("here")

    session = Session()
    with executor_of(make(block, "block", timeout=0.05), ask, session=session) as executor:
        executor.execute(call("block", "1", text="x"))
        assert executor.execute(call("ask", "2", text="x")).result.value == "here"
        assert outcomes(session) == ["timeout", "succeeded"]
        assert loops[0] is not loops[1]
        release.set()
        eventually(loops[0].is_closed)


@pytest.mark.slow
def test_a_handler_that_will_not_be_cancelled_holds_up_nothing() -> None:
    """It is given up at its timeout; the run ends without it, after a moment."""
    release = threading.Event()

    async def stay(params: Text, *, context: ToolContext) -> ToolResult[str]:
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return ToolResult.ok("late")

    session = Session()
    with executor_of(make(stay, "stay", timeout=0.05), session=session) as executor:
        executor.execute(call("stay", "1", text="x"))
    assert outcomes(session) == ["timeout"]
    assert execute_tool(make(_quick, "quick"), {"text": "a"}).result.value == "quick"
    release.set()
    eventually(lambda: not loop_threads())


async def _quick(params: Text, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok("quick")


def test_the_loop_of_a_thread_ends_with_the_thread() -> None:
    """Nothing stays open: no descriptor, no thread, no warning of a loop that was not closed."""
    loops: list[asyncio.AbstractEventLoop] = []

    async def note(params: Text, *, context: ToolContext) -> ToolResult[str]:
        loops.append(asyncio.get_running_loop())
        return ToolResult.ok("")

    thread = threading.Thread(target=lambda: [execute_tool(make(note, "note"), {"text": "a"}) for _ in range(2)])
    thread.start()
    thread.join()
    assert loops[0] is loops[1]
    eventually(loops[0].is_closed)


def test_a_run_that_is_dropped_is_over() -> None:
    """An executor that was not closed does not keep the loop's thread beyond the next run."""

    async def leave(params: Text, *, context: ToolContext) -> ToolResult[str]:
        kept.append(asyncio.create_task(asyncio.sleep(60)))
        return ToolResult.ok("")

    kept: list[asyncio.Task[None]] = []
    executor_of(leave, session=Session()).execute(call("leave", "1", text="x"))
    assert loop_threads() != []
    gc.collect()
    assert execute_tool(make(_quick, "quick"), {"text": "a"}).result.value == "quick"
    assert kept[0].cancelled()
    assert loop_threads() == []


def test_a_forked_process_has_a_loop_of_its_own(client: httpx.AsyncClient) -> None:
    """And its end leaves the parent's alone, which goes on."""
    with executor_of(fetching(client), make(_quick, "quick"), session=Session()) as executor:
        assert executor.execute(call("fetch", "1", text="x")).result.value == "ok"
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if executor.execute(call("quick", "2", text="x")).result.value == "quick" else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert executor.execute(call("fetch", "3", text="x")).result.value == "ok"


def test_a_fork_in_another_thread_leaves_the_loop_alone() -> None:
    """The child loses this thread, and its loop with it, before anything of ours runs there."""
    with own_loop():
        user, codes = KeptLoop(), list[int]()
        thread_loop().enter(user)  # no variable holds it, as in plain code
        assert thread_loop().run(asyncio.sleep(0, "here")) == "here"

        def fork() -> None:
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        assert codes == [0]
        thread_loop().hold()
        time.sleep(0.2)  # now it sleeps, and must be woken
        assert asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "woken"), thread_loop().loop).result(30) == "woken"
        thread_loop().leave(user)


# --- handlers that end the program


async def _exit(params: Text, *, context: ToolContext) -> ToolResult[str]:
    raise KeyboardInterrupt if params.text == "interrupt" else SystemExit(3)


async def _turn(executor: ToolExecutor, calls: list[ToolCall], entered: bool) -> None:
    if not entered:
        await executor.aexecute_all(calls)
        return
    async with executor:
        await executor.aexecute_all(calls)


@pytest.mark.parametrize("how", ["exit", "interrupt"])
@pytest.mark.parametrize("options", [{}, {"timeout": 60.0}, {"read_only": True}], ids=["plain", "limited", "read-only"])
def test_a_handler_that_ends_the_program_leaves_the_loop_in_order(how: str, options: dict[str, Any]) -> None:
    """What it raises passes on, every call is answered, the loop goes on, and so do the signal handlers."""
    expected = KeyboardInterrupt if how == "interrupt" else SystemExit
    tools = [make(_exit, "exit", **options), make(_quick, "quick", **options)]
    turn = [call("quick", "1", text="a"), call("exit", "2", text=how), call("quick", "3", text="b")]
    before = signal.getsignal(signal.SIGINT)
    for entered in (False, True):
        session = Session()
        with pytest.raises(expected):
            asyncio.run(_turn(executor_of(*tools, session=session), turn, entered))
        assert sorted(event.call_id or "" for event in session[ToolInvoked].all()) == ["1", "2", "3"]
        assert signal.getsignal(signal.SIGINT) is before
    loop = thread_loop().loop
    with executor_of(*tools, session=Session()) as executor:
        with pytest.raises(expected):
            executor.execute_all(turn)
        assert executor.execute(call("quick", "4", text="x")).result.value == "quick"
    assert thread_loop().loop is loop
    assert signal.getsignal(signal.SIGINT) is before


def test_a_task_left_behind_that_ends_the_program_does_not_end_the_loop() -> None:
    """Nothing waits for it, so it cannot be raised anywhere; it is logged."""

    async def leave(params: Text, *, context: ToolContext) -> ToolResult[str]:
        async def background() -> None:
            await asyncio.sleep(0.01)
            raise SystemExit(3)

        kept.append(asyncio.create_task(background()))
        return ToolResult.ok("")

    kept: list[asyncio.Task[None]] = []
    with executor_of(leave, make(_quick, "quick"), session=Session()) as executor:
        executor.execute(call("leave", "1", text="x"))
        eventually(kept[0].done)
        assert executor.execute(call("quick", "2", text="x")).result.value == "quick"
    assert isinstance(kept[0].exception(), SystemExit)
    assert loop_threads() == []


# --- plain handlers in async code


def test_plain_handlers_do_not_block_the_event_loop() -> None:
    """Twenty requests, each with a plain handler that waits for all the others: only together they pass."""
    together = threading.Barrier(20)

    def meet(params: Text, *, context: ToolContext) -> ToolResult[str]:
        together.wait(60)
        return ToolResult.ok("met")

    async def one() -> Any:
        async with executor_of(meet, session=Session()) as executor:
            return (await executor.aexecute(call("meet", "1", text="x"))).result.value

    async def main() -> list[Any]:
        return await asyncio.gather(*(one() for _ in range(20)))

    assert asyncio.run(main()) == ["met"] * 20


def test_a_quick_handler_runs_on_the_loop() -> None:
    """`blocking=False` spares it the thread; in plain code both run in the caller's."""
    names: list[str] = []

    def note(params: Text, *, context: ToolContext) -> ToolResult[str]:
        names.append(threading.current_thread().name)
        return ToolResult.ok("")

    tools = [make(note, "note"), make(note, "quick", blocking=False)]
    assert tools[1].replace(name="other").blocking is False
    here = threading.current_thread().name

    async def main() -> None:
        async with executor_of(*tools, session=Session()) as executor:
            await executor.aexecute(call("note", "1", text="x"))
            await executor.aexecute(call("quick", "2", text="x"))

    asyncio.run(main())
    with executor_of(*tools, session=Session()) as executor:
        executor.execute(call("note", "3", text="x"))
        executor.execute(call("quick", "4", text="x"))
    assert names[1:] == [here] * 3
    assert names[0] != here


def test_a_plain_handler_whose_call_is_cancelled_changes_nothing() -> None:
    """The call is undone at once; the handler goes on in its thread, with nothing that it can write to."""
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def write(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Text].append(Text("early"))
        begun.set()
        go_on.wait(60)
        try:
            context.session[Text].append(Text("late"))
        except Exception as error:
            errors.append(error)
        ended.set()
        return ToolResult.ok("")

    session = Session()

    async def main() -> None:
        async with executor_of(write, session=session) as executor:
            task = asyncio.create_task(executor.aexecute(call("write", "1", text="x")))
            assert await asyncio.to_thread(begun.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert session[Text].count() == 0
    go_on.set()
    assert ended.wait(60)
    assert [type(error).__name__ for error in errors] == ["StaleCallError"]
    assert session[Text].count() == 0
    assert outcomes(session) == ["cancelled"]


@pytest.mark.timing
def test_an_async_handler_costs_little_more_than_a_plain_one() -> None:
    """No new loop for each call: that took thirty times as long as a plain call."""

    def plain(params: Text, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok("")

    def seconds(name: str) -> float:
        began = time.thread_time()
        for number in range(300):
            executor.execute(call(name, f"{name}{number}{began}", text=f"{number}"))
        return time.thread_time() - began

    with executor_of(plain, make(_quick, "quick"), session=Session()) as executor:
        ratios = [seconds("quick") / seconds("plain") for _ in range(5)]
    assert min(ratios) < 4, ratios


@pytest.mark.parametrize("seed", range(4))
def test_threads_that_come_and_go_as_they_like(seed: int) -> None:
    """Each gets its own answer, from one loop at a time; nothing hangs, no thread stays, and the loop is closed."""
    kept = KeptLoop()
    started: list[asyncio.Task[None]] = []

    async def answer(number: int) -> int:
        await asyncio.sleep(0)
        return number

    async def leave_task(number: int) -> int:
        started.append(asyncio.create_task(asyncio.sleep(60)))
        return number

    def work(kept: KeptLoop, number: int) -> list[str]:
        random, wrong = Random(f"{seed} {number}"), list[str]()
        for step in range(40):
            user = Random()
            kept.enter(user)
            try:
                for _ in range(random.randrange(3)):
                    kind = random.choice([answer, answer, answer, leave_task])
                    if kept.run(kind(step)) != step:
                        wrong.append(f"{number} {step}")
                if random.random() < 0.2:
                    kept.hold()
            finally:
                kept.leave(user)
        return wrong

    with ThreadPoolExecutor(6) as pool:
        assert [wrong for found in pool.map(partial(work, kept), range(6)) for wrong in found] == []
    eventually(lambda: not loop_threads())
    loop = kept.loop
    assert all(task.done() for task in started)
    del kept
    eventually(loop.is_closed)
