"""The calls of one turn: effects in the model's order, overlap only among readers, an answer for every id."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from tests.runtime.interrupt_parts import interrupted_when
from tests.runtime.limits_parts import Count, Text, call, eventually, executor_of, make, outcomes, start

from weakincentives.errors import PromptEvaluationError, VisibilityExpansionRequired
from weakincentives.filesystem import InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import Session, ToolCall, ToolInvoked, ToolReply
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.session import append_all

OnReply = Callable[[ToolReply], object]


def in_threads(executor: ToolExecutor, calls: Sequence[ToolCall], on_reply: OnReply | None = None) -> list[ToolReply]:
    with executor:
        return executor.execute_all(calls, on_reply=on_reply)


def in_tasks(executor: ToolExecutor, calls: Sequence[ToolCall], on_reply: OnReply | None = None) -> list[ToolReply]:
    async def main() -> list[ToolReply]:
        async with executor:
            return await executor.aexecute_all(calls, on_reply=on_reply)

    return asyncio.run(main())


ways = pytest.mark.parametrize("run", [in_threads, in_tasks])


def write(params: Text, *, context: ToolContext) -> ToolResult[str]:
    assert context.filesystem is not None
    context.filesystem.append("log", params.text)
    context.session[Count].append(Count(1))
    if params.text == "x":
        return ToolResult.error("no x")
    return ToolResult.ok(params.text)


def read(params: Text, *, context: ToolContext) -> ToolResult[str]:
    assert context.filesystem is not None
    time.sleep(0.002)
    return ToolResult.ok(context.filesystem.read("log"))


READ = make(read, read_only=True, timeout=10.0)


def log_of() -> InMemoryFilesystem:
    return InMemoryFilesystem({"log": ""})


@ways
def test_effects_and_answers_are_in_the_models_order(run: Any) -> None:
    """Writes happen in order, reads see exactly the writes before them, failures are undone in their place."""
    session, fs = Session(), log_of()
    calls = [
        call("write" if text.islower() else "read", f"{number}", text=text) for number, text in enumerate("aRRbxRcRRRd")
    ]
    replies = run(executor_of(write, READ, session=session, fs=fs), calls)
    assert [reply.call_id for reply in replies] == [item.id for item in calls]
    seen = [reply.result.value for reply in replies]
    assert seen == ["a", "a", "a", "b", None, "ab", "c", "abc", "abc", "abc", "d"]
    assert fs.read("log") == "abcd"
    assert [event.call_id for event in session[ToolInvoked].all()] == [item.id for item in calls]


@ways
def test_read_only_calls_that_follow_one_another_overlap(run: Any) -> None:
    """Four readers in a row are in their handlers at the same time."""
    barrier = threading.Barrier(4)

    def meet(params: Text) -> ToolResult[str]:
        barrier.wait(60)
        return ToolResult.ok(params.text)

    calls = [call("meet", text, text=text) for text in "abcd"]
    replies = run(executor_of(make(meet, read_only=True, timeout=20.0)), calls)
    assert [reply.result.value for reply in replies] == ["a", "b", "c", "d"]


def test_async_readers_overlap_in_one_loop() -> None:
    """Async readers of one turn wait for one another without a thread."""

    async def main() -> list[ToolReply]:
        arrived, everyone = [0], asyncio.Event()

        async def meet(params: Text) -> ToolResult[str]:
            arrived[0] += 1
            if arrived[0] == 3:
                everyone.set()
            await asyncio.wait_for(everyone.wait(), 60)
            return ToolResult.ok("")

        async with executor_of(make(meet, read_only=True)) as executor:
            return await executor.aexecute_all([call("meet", text, text=text) for text in "abc"])

    assert [reply.success for reply in asyncio.run(main())] == [True] * 3


@ways
def test_readers_are_settled_in_the_models_order(run: Any) -> None:
    """The slowest reader comes first in the log and in the state if the model asked for it first."""
    session = Session()
    session[Count].register(Count, append_all)

    def slow(params: Text) -> ToolResult[Count]:
        time.sleep((3 - int(params.text)) * 0.03)
        return ToolResult.ok(Count(int(params.text)))

    calls = [call("slow", text, text=text) for text in "0123"]
    run(executor_of(make(slow, read_only=True, timeout=10.0), session=session), calls)
    assert [event.call_id for event in session[ToolInvoked].all()] == ["0", "1", "2", "3"]
    assert [item.value for item in session[Count].all()] == [0, 1, 2, 3]


@ways
def test_a_reader_never_overlaps_with_a_writer(run: Any) -> None:
    """While a writing call runs no reader does, neither of the same turn nor of another executor."""
    session, fs = Session(), log_of()
    inside: list[str] = []
    mixed: list[list[str]] = []

    def enter(kind: str) -> None:
        inside.append(kind)
        if "w" in inside and len(inside) > 1:
            mixed.append(list(inside))
        time.sleep(0.005)
        inside.remove(kind)

    def reads(params: Text) -> ToolResult[str]:
        enter("r")
        return ToolResult.ok("")

    def writes(params: Text) -> ToolResult[str]:
        enter("w")
        return ToolResult.ok("")

    tools = [make(reads, read_only=True, timeout=20.0), make(writes, timeout=20.0)]
    calls = [call("writes" if kind == "w" else "reads", f"{n}") for n, kind in enumerate("rrwrrrwwrr")]
    others = [executor_of(*tools, session=session, fs=fs) for _ in range(2)]
    threads = [threading.Thread(target=in_threads, args=(other, calls), daemon=True) for other in others]
    for thread in threads:
        thread.start()
    run(executor_of(*tools, session=session, fs=fs), calls)
    for thread in threads:
        thread.join(20)
    assert not mixed
    assert len(outcomes(session)) == 30


@ways
def test_a_read_only_tool_that_writes_fails_and_is_told_so(run: Any) -> None:
    """Read-only tools get read-only handles, alone and among others."""
    session, fs = Session(), log_of()

    def sneaky(params: Text, *, context: ToolContext) -> ToolResult[str]:
        assert context.filesystem is not None
        if params.text == "file":
            context.filesystem.write("log", "mine")
        else:
            context.session[Count].append(Count(1))
        return ToolResult.ok("")

    calls = [call("sneaky", "1", text="file"), call("sneaky", "2", text="slice"), call("read", "3")]
    replies = run(executor_of(make(sneaky, read_only=True), READ, session=session, fs=fs), calls)
    assert [reply.outcome for reply in replies] == ["crashed", "crashed", "succeeded"]
    assert all("read-only" in reply.text for reply in replies[:2])
    assert fs.read("log") == ""
    assert session[Count].count() == 0


def _note(seen: list[str], reply: ToolReply) -> None:
    seen.append(reply.call_id)


@ways
@pytest.mark.parametrize("kind", ["write", "read"])
def test_of_calls_that_share_an_id_only_the_first_runs(run: Any, kind: str) -> None:
    """A duplicate has neither an event nor an answer of its own, and no later turn runs the id again."""
    session, fs, seen = Session(), log_of(), list[str]()
    executor = executor_of(write, READ, session=session, fs=fs)
    calls = [call(kind, "1", text="a"), call(kind, "1", text="b"), call(kind, "2", text="c")]
    replies = run(executor, calls, partial(_note, seen))
    assert [reply.call_id for reply in replies] == ["1", "2"] == seen
    assert outcomes(session) == ["succeeded", "succeeded"]
    (again,) = run(executor, [call(kind, "1", text="a")])
    assert (again.success, again.duplicate, again.text) == (True, True, replies[0].text)
    (other,) = run(executor, [call(kind, "1", text="d")])
    assert (other.outcome, other.duplicate) == ("invalid", True)
    assert outcomes(session) == ["succeeded", "succeeded"]
    assert fs.read("log") == ("ac" if kind == "write" else "")


@ways
def test_broken_calls_among_readers_are_answered_in_place(run: Any) -> None:
    """Unknown tools and bad arguments in the middle of a turn have their answers at their places."""
    session = Session()
    calls = [
        call("read", "1"),
        ToolCall("2", "read", "{"),
        call("read", "3"),
        call("missing", "4"),
        call("read", "5"),
    ]
    replies = run(executor_of(READ, session=session, fs=log_of()), calls)
    assert [reply.call_id for reply in replies] == ["1", "2", "3", "4", "5"]
    assert outcomes(session) == ["succeeded", "invalid", "succeeded", "unknown_tool", "succeeded"]


ENDINGS: list[tuple[type[BaseException], str]] = [
    (PromptEvaluationError, "crashed"),
    (VisibilityExpansionRequired, "expanded"),
    (KeyboardInterrupt, "cancelled"),
    (SystemExit, "cancelled"),
]


@ways
@pytest.mark.parametrize(("kind", "outcome"), ENDINGS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_call_that_ends_the_evaluation_leaves_no_id_unanswered(
    run: Any, kind: type[BaseException], outcome: str
) -> None:
    """It is undone and answered itself, the calls after it are answered as not run, then it raises."""
    if run is in_tasks and kind in {KeyboardInterrupt, SystemExit}:
        pytest.skip("asyncio itself stops its loop for these")
    session, fs, seen = Session(), log_of(), list[ToolReply]()

    def ends(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.session[Count].append(Count(100))
        raise kind("the end")

    calls = [call("write", "1", text="a"), call("ends", "2"), call("write", "3", text="b"), call("read", "4")]
    with pytest.raises(kind):
        run(executor_of(write, ends, READ, session=session, fs=fs), calls, seen.append)
    assert [reply.call_id for reply in seen] == ["1", "2", "3", "4"]
    assert [reply.outcome for reply in seen] == ["succeeded", outcome, "cancelled", "cancelled"]
    assert outcomes(session) == ["succeeded", outcome, "cancelled", "cancelled"]
    assert [event.rendered_output for event in session[ToolInvoked].all()] == [reply.text for reply in seen]
    assert seen[2].text.startswith("This call was not run, because an earlier call of the turn ")
    assert fs.read("log") == "a"
    assert session[Count].count() == 1


@ways
def test_an_end_in_the_middle_of_overlapping_readers_leaves_no_id_unanswered(run: Any) -> None:
    """Readers that overlap with one that ends the evaluation are answered once each, and so is what follows."""
    session, seen = Session(), list[ToolReply]()

    def ends(params: Text) -> ToolResult[str]:
        if params.text == "b":
            raise PromptEvaluationError("the end")
        time.sleep(0.03)
        return ToolResult.ok(params.text)

    calls = [call("ends", text, text=text) for text in "abc"] + [call("write", "d", text="d")]
    tools = [make(ends, read_only=True, timeout=10.0), write]
    with pytest.raises(PromptEvaluationError, match="the end"):
        run(executor_of(*tools, session=session, fs=log_of()), calls, seen.append)
    assert [reply.call_id for reply in seen] == ["a", "b", "c", "d"]
    assert [seen[0].outcome, seen[1].outcome, seen[3].outcome] == ["succeeded", "crashed", "cancelled"]
    assert [event.call_id for event in session[ToolInvoked].all()] == ["a", "b", "c", "d"]
    assert session[Count].count() == 0


@ways
def test_a_listener_that_raises_does_not_cost_an_answer(run: Any) -> None:
    """When `on_reply` raises the rest is answered as not run, `on_reply` sees it, and its exception comes last."""
    session, seen = Session(), list[str]()

    def listen(reply: ToolReply) -> None:
        seen.append(reply.outcome)
        raise ValueError(f"cannot send {reply.call_id}")

    calls = [call("write", "1", text="a"), call("write", "2", text="b"), call("read", "3")]
    with pytest.raises(ValueError, match="cannot send 1"):
        run(executor_of(write, READ, session=session, fs=log_of()), calls, listen)
    assert seen == ["succeeded", "cancelled", "cancelled"] == outcomes(session)


def test_ctrl_c_among_overlapping_readers_leaves_no_id_unanswered() -> None:
    """Ctrl-C while readers overlap: each is answered as it ended, the rest as not run, then it is raised."""
    session, seen = Session(), list[ToolReply]()
    all_run, go = threading.Barrier(4), threading.Event()

    def slow(params: Text) -> ToolResult[str]:
        all_run.wait(60)
        assert go.wait(60)
        return ToolResult.ok(params.text)

    calls = [call("slow", text, text=text) for text in "abc"] + [call("write", "d", text="d")]
    tools = [make(slow, read_only=True), write]
    with (
        interrupted_when(lambda: all_run.wait(60)) as interrupts,
        executor_of(*tools, session=session, fs=log_of()) as executor,
    ):
        start(lambda: eventually(lambda: interrupts.delivered == 1) and go.set())
        executor.execute_all(calls, on_reply=seen.append)
    assert [reply.call_id for reply in seen] == ["a", "b", "c", "d"]
    assert [reply.outcome for reply in seen] == ["succeeded"] * 3 + ["cancelled"]
    assert outcomes(session) == ["succeeded"] * 3 + ["cancelled"]


def test_a_second_ctrl_c_does_not_wait() -> None:
    """Who insists is not kept waiting by a reader that is stuck; it records its end when it returns."""
    session, both_run, go = Session(), threading.Barrier(3), threading.Event()

    def stuck(params: Text) -> ToolResult[str]:
        both_run.wait(60)
        assert go.wait(60)
        return ToolResult.ok("")

    with (
        interrupted_when(lambda: both_run.wait(60), lambda: None),
        executor_of(make(stuck, read_only=True), session=session) as executor,
    ):
        executor.execute_all([call("stuck", "1", text="a"), call("stuck", "2", text="b")])
    go.set()
    assert eventually(lambda: outcomes(session) == ["succeeded"] * 2)


@pytest.mark.parametrize("steps", [1, 2, 3, 20])
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_cancelling_a_turn_cancels_its_overlapping_readers(steps: int, timeout: float | None) -> None:
    """Cancelling ends all readers at once, answers every id once, and leaves nothing running."""
    session, seen, unwound = Session(), list[ToolReply](), list[str]()

    async def slow(params: Text) -> ToolResult[str]:
        try:
            await asyncio.sleep(3600)
        finally:
            unwound.append(params.text)
        return ToolResult.ok("")

    async def main() -> None:
        tools = [make(slow, read_only=True, timeout=timeout), write]
        async with executor_of(*tools, session=session, fs=log_of()) as executor:
            calls = [call("slow", text, text=text) for text in "abc"] + [call("write", "d", text="d")]
            task = asyncio.create_task(executor.aexecute_all(calls, on_reply=seen.append))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 5)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    if steps == 20:
        assert sorted(unwound) == ["a", "b", "c"]
    assert [reply.call_id for reply in seen] == ["a", "b", "c", "d"]
    assert {reply.outcome for reply in seen} == {"cancelled"}
    assert outcomes(session) == ["cancelled"] * 4


def test_cancelling_a_turn_in_a_writing_call_answers_the_rest() -> None:
    """Cancelling in the middle of a writer undoes it; every id of the turn is answered before it is raised."""
    session, seen = Session(), list[ToolReply]()

    async def main() -> None:
        begun = asyncio.Event()

        async def slow(params: Text, *, context: ToolContext) -> ToolResult[str]:
            context.session[Count].append(Count(5))
            begun.set()
            await asyncio.sleep(3600)
            return ToolResult.ok("")

        async with executor_of(slow, write, session=session, fs=log_of()) as executor:
            calls = [call("write", "1", text="a"), call("slow", "2"), call("write", "3", text="b")]
            task = asyncio.create_task(executor.aexecute_all(calls, on_reply=seen.append))
            await asyncio.wait_for(begun.wait(), 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert [reply.outcome for reply in seen] == ["succeeded", "cancelled", "cancelled"] == outcomes(session)
    assert session[Count].count() == 1


def test_a_cancelled_reader_does_not_harm_the_one_before_it() -> None:
    """A reader cancelled while it waits for its turn leaves the call before it as it was."""
    session = Session()

    async def main() -> None:
        go = asyncio.Event()

        async def reads(params: Text) -> ToolResult[str]:
            if params.text == "slow":
                await go.wait()
            return ToolResult.ok(params.text)

        async with executor_of(make(reads, read_only=True), session=session) as executor:
            calls = [call("reads", "1", text="slow"), call("reads", "2", text="quick")]
            before = asyncio.all_tasks()
            turn = asyncio.create_task(executor.aexecute_all(calls))
            await asyncio.sleep(0.02)
            second = max(asyncio.all_tasks() - before - {turn}, key=lambda task: int(task.get_name().split("-")[1]))
            second.cancel()
            await asyncio.sleep(0.02)
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await turn

    asyncio.run(main())
    assert outcomes(session) == ["cancelled", "succeeded"]


@ways
def test_an_empty_turn_has_no_answers(run: Any) -> None:
    """Nothing asked, nothing answered."""
    assert run(executor_of(write, fs=log_of()), []) == []


def test_quick_readers_are_not_handed_over_again() -> None:
    """Handlers that took less than a hand-over run one after another from then on, in the thread of the caller."""
    threads: list[int] = []

    def quick(params: Text, *, context: ToolContext) -> ToolResult[str]:
        threads.append(threading.get_ident())
        return ToolResult.ok(params.text)

    session, tool = Session(), make(quick, read_only=True)
    with executor_of(tool, session=session) as executor:
        for turn in range(200):  # a busy machine may suspend a handler for long, so one turn may not be enough
            threads.clear()
            calls = [call("quick", f"{turn}/{number}", text=str(number)) for number in range(4)]
            replies = executor.execute_all(calls)
            assert [reply.call_id for reply in replies] == [item.id for item in calls]
            assert [event.call_id for event in session[ToolInvoked].all()][-4:] == [item.id for item in calls]
            if set(threads) == {threading.get_ident()}:
                return
    pytest.fail("quick calls were handed over to the end")


def test_quick_async_readers_are_not_given_tasks_again() -> None:
    """The same in an event loop: quick calls run in the task of their turn."""
    tasks: set[asyncio.Task[Any] | None] = set()

    async def quick(params: Text, *, context: ToolContext) -> ToolResult[str]:
        tasks.add(asyncio.current_task())
        return ToolResult.ok(params.text)

    tool = make(quick, read_only=True)

    async def main() -> None:
        async with executor_of(tool) as executor:
            for turn in range(200):
                tasks.clear()
                calls = [call("quick", f"{turn}/{number}", text=str(number)) for number in range(4)]
                assert [reply.call_id for reply in await executor.aexecute_all(calls)] == [item.id for item in calls]
                if tasks == {asyncio.current_task()}:
                    return
        pytest.fail("quick calls had tasks of their own to the end")

    asyncio.run(main())


@ways
def test_readers_that_become_slow_overlap_again(run: Any) -> None:
    """A call that took longer than a hand-over is enough: those after it in the same turn overlap."""
    together = threading.Barrier(3)

    def varies(params: Text, *, context: ToolContext) -> ToolResult[str]:
        if params.text == "slow":
            time.sleep(0.01)
        elif params.text.startswith("meet"):
            together.wait(60)
        return ToolResult.ok(params.text)

    session, tool = Session(), make(varies, read_only=True)
    for turn in range(3):
        run(executor_of(tool, session=session), [call("varies", f"{turn}/{n}", text=f"{turn}/{n}") for n in range(3)])
    texts = ["slow", "meet 1", "meet 2", "meet 3"]
    replies = run(executor_of(tool, session=session), [call("varies", text, text=text) for text in texts])
    assert [reply.result.value for reply in replies] == texts
    assert [event.call_id for event in session[ToolInvoked].all()][-4:] == texts
