"""G4: once a call is over, its handles change nothing any more.

Over means returned, failed, raised, timed out, past the deadline, or cancelled. The handles are the session, its
dispatcher, its slices, the files, and views of them, kept from before or first asked for afterwards. What a handler
holds by other ways (its own resources, closures) is beyond reach.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.limits_parts import (
    Count,
    Text,
    call,
    eventually,
    executor_of,
    make,
    outcomes,
    start,
    switching_often,
)

from weakincentives.deadlines import Deadline
from weakincentives.errors import (
    PromptEvaluationError,
    ReadOnlyError,
    ResourcesClosedError,
    StaleCallError,
    ToolValidationError,
)
from weakincentives.fence import Fence
from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.resources import Binding, Scope
from weakincentives.runtime import Session
from weakincentives.session import append_all, reducer
from weakincentives.threads import abandoned_count


@dataclass(frozen=True)
class Total:
    value: int = 0

    @reducer(on=int)
    def add(self, event: int) -> Total:
        return Total(self.value + event)


def files(context: ToolContext) -> Filesystem:
    found = context.filesystem
    assert found is not None
    return found


def _parent(session: Any) -> Any:
    parent = session.parent
    assert parent is not None
    return parent


Take = Callable[[ToolContext], Callable[[], object]]


def late(get: Callable[[Any], Any], use: Callable[[Any], object]) -> Take:
    """Takes a handle from a live context and gives a write to be tried later."""
    return lambda context: partial(use, get(context))


def session_of(context: Any) -> Any:
    return context.session


def slice_of(context: Any) -> Any:
    return context.session[Count]


WRITES: dict[str, Take] = {
    "dispatch": late(session_of, lambda s: s.dispatch(Count(9))),
    "append to a slice": late(session_of, lambda s: s[Count].append(Count(9))),
    "append to a slice kept from before": late(slice_of, lambda s: s.append(Count(9))),
    "seed a slice kept from before": late(slice_of, lambda s: s.seed([Count(9)])),
    "clear a slice kept from before": late(slice_of, lambda s: s.clear()),
    "clear some of a slice": late(slice_of, lambda s: s.clear(lambda item: True)),  # pyright: ignore[reportUnknownLambdaType]
    "register a reducer": late(slice_of, lambda s: s.register(Count, append_all)),
    "install state": late(session_of, lambda s: s.install(Total)),
    "reset": late(session_of, lambda s: s.reset()),
    "restore a snapshot": late(lambda c: (c.session, c.session.snapshot()), lambda pair: pair[0].restore(pair[1])),
    "publish": late(lambda c: c.session.dispatcher, lambda d: d.dispatch(Count(9))),
    "subscribe": late(lambda c: c.session.dispatcher, lambda d: d.subscribe(Count, print)),
    "write to its parent": late(lambda c: c.session.parent, lambda p: p.dispatch(Count(9))),
    "write to its child": late(lambda c: c.session.children[0], lambda p: p.dispatch(Count(9))),
    "write to its parent, asked for later": late(session_of, lambda s: s.parent.dispatch(Count(9))),
    "write a file": late(files, lambda f: f.write("dir/a.txt", "late")),
    "append to a file": late(files, lambda f: f.append("dir/a.txt", "late")),
    "delete a file": late(files, lambda f: f.delete("dir/a.txt")),
    "make a directory": late(files, lambda f: f.mkdir("late")),
    "copy a file": late(files, lambda f: f.copy("dir/a.txt", "late.txt")),
    "move a file": late(files, lambda f: f.move("dir/a.txt", "late.txt")),
    "snapshot the files": late(files, lambda f: f.snapshot()),
    "write through a part": late(lambda c: files(c).sub("dir"), lambda f: f.write("a.txt", "late")),
    "write through a part made later": late(files, lambda f: f.sub("dir").write("a.txt", "late")),
    "snapshot through a read-only view": late(lambda c: files(c).readonly(), lambda f: f.snapshot()),
    "the files, asked for again": late(lambda c: c, lambda c: files(c).write("dir/a.txt", "late")),
}


def look(session: Session, fs: Filesystem) -> tuple[Any, ...]:
    """Everything a late write could change."""
    return (
        session.snapshot().state,
        [session[Count].all()],
        session[Total].count(),
        _parent(session)[Count].count(),
        session.children[0][Count].count(),
        fs.read("dir/a.txt"),
        [(stat.path, stat.kind) for stat in fs.list()],
    )


class Over:
    """A call that ends in some way while a thread of it goes on."""

    def __init__(self, fs: Filesystem, take: Take | None) -> None:
        self.go, self.over = threading.Event(), threading.Event()
        self.parent = Session()
        self.session = Session(parent=self.parent)
        self.child = Session(parent=self.session)
        self.fs = fs
        self.context: Any = None
        self.late: Callable[[], object] | None = None
        self.begun = False
        self._take = take

    def begin(self, context: ToolContext) -> None:
        self.context = context
        if self._take is not None:
            self.late = self._take(context)
        self.begun = True

    def handler(self, params: Text, *, context: ToolContext) -> ToolResult[str]:
        self.begin(context)
        match params.text:
            case "fails":
                return ToolResult.error("no")
            case "refuses":
                raise ToolValidationError("no")
            case "raises":
                raise ValueError("no")
            case "ends":
                raise PromptEvaluationError("no")
            case "interrupts":
                raise KeyboardInterrupt
            case "is stuck":
                self.go.wait(20)
            case _:
                pass
        return ToolResult.ok("done")

    async def ahandler(self, params: Text, *, context: ToolContext) -> ToolResult[str]:
        self.begin(context)
        if params.text == "is stuck":
            await asyncio.sleep(3600)
        return ToolResult.ok("done")

    def run(self, how: str) -> None:
        for seconds in (0.05, 0.5, 5.0):  # on a busy machine the handler may not even begin in the shortest time
            self._run(how, seconds)
            if self.begun:
                return
            self.__init__(self.fs, self._take)
        raise AssertionError("the handler never began")

    def _run(self, how: str, seconds: float) -> None:
        text, _, limit = how.partition(", ")
        text, kind = text.removesuffix(" async"), text.endswith(" async")
        handler = self.ahandler if kind else self.handler
        tool = make(handler, "handler", timeout=seconds if limit == "times out" else None)
        deadline = Deadline.after(timedelta(seconds=seconds)) if limit == "meets the deadline" else None
        if limit == "is cancelled" and not kind:
            tool = make(handler, "handler", timeout=60.0)
        executor = executor_of(tool, session=self.session, fs=self.fs, deadline=deadline)
        with suppress(PromptEvaluationError, KeyboardInterrupt, asyncio.CancelledError):
            if limit == "is cancelled":
                asyncio.run(self._cancel(executor, text))
            elif kind:
                asyncio.run(executor.aexecute(call("handler", text=text)))
            else:
                executor.execute(call("handler", text=text))

    async def _cancel(self, executor: Any, text: str) -> None:
        task = asyncio.create_task(executor.aexecute(call("handler", text=text)))
        while self.context is None:  # noqa: ASYNC110 - it is set in another thread
            await asyncio.sleep(0.001)
        task.cancel()
        await task


ENDINGS = {
    "succeeds": "succeeded",
    "succeeds async": "succeeded",
    "fails": "failed",
    "refuses": "failed",
    "raises": "crashed",
    "ends": "crashed",
    "interrupts": "cancelled",
    "is stuck, times out": "timeout",
    "is stuck async, times out": "timeout",
    "is stuck, meets the deadline": "deadline",
    "is stuck, is cancelled": "cancelled",
    "is stuck async, is cancelled": "cancelled",
}


def files_of() -> InMemoryFilesystem:
    return InMemoryFilesystem({"dir/a.txt": "kept"})


def check(over: Over, how: str, outcome: str) -> None:
    over.run(how)
    assert outcomes(over.session) == [outcome]
    assert over.late is not None
    before = look(over.session, over.fs)
    try:
        with pytest.raises((StaleCallError, ResourcesClosedError)) as caught:
            over.late()
        if isinstance(caught.value, StaleCallError):
            assert "This call is over" in str(caught.value)
        assert look(over.session, over.fs) == before
    finally:
        over.go.set()
        assert eventually(lambda: abandoned_count() == 0)
    assert look(over.session, over.fs) == before


@pytest.mark.parametrize("take", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("how", ["succeeds", "is stuck, times out"])
def test_a_late_write_raises_and_changes_nothing(how: str, take: Take) -> None:
    """After the call each kind of write, through each kind of handle, raises StaleCallError."""
    check(Over(files_of(), take), how, ENDINGS[how])


@pytest.mark.parametrize(("how", "outcome"), ENDINGS.items(), ids=ENDINGS)
def test_however_a_call_ends_its_handles_end_with_it(how: str, outcome: str) -> None:
    """Returned, failed, raised, timed out, past the deadline or cancelled: the handles are revoked."""
    for name in ("append to a slice kept from before", "publish", "write a file", "write through a part"):
        check(Over(files_of(), WRITES[name]), how, outcome)


@pytest.mark.parametrize("how", ["succeeds", "is stuck, times out"])
def test_files_on_disk_are_fenced_too(how: str, tmp_path: Path) -> None:
    """The same holds for a real directory."""
    for name in (name for name in WRITES if "file" in name or "director" in name or "part" in name):
        root = tmp_path / name.replace(" ", "-")
        (root / "dir").mkdir(parents=True)
        (root / "dir" / "a.txt").write_text("kept")
        check(Over(HostFilesystem(root), WRITES[name]), how, ENDINGS[how])
        assert (root / "dir" / "a.txt").read_text() == "kept"


@pytest.mark.parametrize(("how", "outcome"), ENDINGS.items(), ids=ENDINGS)
@pytest.mark.parametrize("what", ["session", "dispatcher", "files"])
def test_a_handle_that_is_first_asked_for_afterwards_is_worthless(how: str, outcome: str, what: str) -> None:
    """A thread that touches its context only after the call gets handles that change nothing."""
    over = Over(files_of(), None)
    over.run(how)
    assert outcomes(over.session) == [outcome]
    before = look(over.session, over.fs)
    caught: list[BaseException] = []

    def late() -> None:
        try:
            match what:
                case "session":
                    over.context.session[Count].append(Count(9))
                case "dispatcher":
                    over.context.session.dispatcher.dispatch(Count(9))
                case _:
                    files(over.context).write("dir/a.txt", "late")
        except BaseException as error:
            caught.append(error)

    start(late).join(60)
    over.go.set()
    assert eventually(lambda: abandoned_count() == 0)
    assert [type(error) for error in caught] == [ResourcesClosedError if what == "files" else StaleCallError]
    assert look(over.session, over.fs) == before


def test_resources_end_with_the_call() -> None:
    """A resource of the call alone is closed when the call ends, and none can be had afterwards."""
    closed: list[str] = []

    class Thing:
        def close(self) -> None:
            closed.append("closed")

    kept: list[ToolContext] = []

    def handler(params: Text, *, context: ToolContext) -> ToolResult[str]:
        context.resources.get(Thing)
        kept.append(context)
        return ToolResult.ok("")

    binding = Binding(Thing, lambda resolver: Thing(), scope=Scope.TOOL_CALL)
    with executor_of(handler, resources={Thing: binding}) as executor:
        executor.execute(call("handler"))
        assert closed == ["closed"]
        with pytest.raises(ResourcesClosedError):
            kept[0].resources.get(Thing)


def test_reading_through_an_old_handle_is_allowed() -> None:
    """Only writes are refused: what is read is what is there now."""
    over = Over(files_of(), WRITES["dispatch"])
    over.run("succeeds")
    over.session[Count].append(Count(1))
    assert over.context.session[Count].count() == 1


def test_the_handles_of_a_read_only_call_never_write() -> None:
    """A read-only call's handles refuse during the call and after it."""
    kept: list[ToolContext] = []

    def handler(params: Text, *, context: ToolContext) -> ToolResult[str]:
        kept.append(context)
        with pytest.raises(ReadOnlyError):
            context.session[Count].append(Count(1))
        return ToolResult.ok("")

    session = Session()
    with executor_of(make(handler, read_only=True), session=session, fs=files_of()) as executor:
        assert executor.execute(call("handler")).success
    with pytest.raises(ReadOnlyError):
        kept[0].session[Count].append(Count(1))
    assert session[Count].count() == 0


def test_a_policys_context_is_worthless_for_writing() -> None:
    """What a policy keeps of its context writes nothing, during the call and after it."""
    from weakincentives.testing import execute_tool

    kept: list[ToolContext] = []

    class Keeps:
        name = "keeps"

        def check(self, tool_name: str, params: object, context: ToolContext) -> None:
            kept.append(context)
            with pytest.raises(ReadOnlyError):
                context.session[Count].append(Count(1))

        def on_result(self, tool_name: str, params: object, result: object, context: ToolContext) -> None:
            kept.append(context)

    def handler(params: Text) -> ToolResult[str]:
        return ToolResult.ok("")

    session = Session()
    assert execute_tool(make(handler), {}, session=session, policies=[Keeps()]).success
    assert len(kept) == 2
    for context in kept:
        with pytest.raises((ReadOnlyError, StaleCallError)):
            context.session[Count].append(Count(1))
    assert session[Count].count() == 0


# Races.


def storm(rounds: int, how: str) -> None:
    """Threads that write as fast as they can while their call ends: after the reply nothing changes any more."""
    fs = files_of()
    session = Session()
    stop = threading.Event()
    refused: list[int] = []

    def hammer(context: ToolContext, number: int) -> None:
        tries = 0
        while not stop.is_set():
            tries += 1
            try:
                if number == 0:
                    context.session[Count].append(Count(tries))
                elif number == 1:
                    files(context).write("dir/a.txt", str(tries))
                else:
                    context.session.dispatch(Count(tries))
            except (StaleCallError, ResourcesClosedError):
                refused.append(number)
                return

    def handler(params: Text, *, context: ToolContext) -> ToolResult[str]:
        threads = [start(lambda n=n: hammer(context, n)) for n in range(3)]
        if how == "times out":
            for thread in threads:
                thread.join(20)
            return ToolResult.ok("")
        time.sleep(0.002)
        return ToolResult.ok("") if how == "succeeds" else ToolResult.error("no")

    tool = make(handler, timeout=0.005 if how == "times out" else None)
    with executor_of(tool, session=session, fs=fs) as executor, switching_often():
        for number in range(rounds):
            before = (session[Count].all(), fs.read("dir/a.txt"))
            reply = executor.execute(call("handler", str(number)))
            after = (session[Count].all(), fs.read("dir/a.txt"))
            if reply.outcome != "succeeded":
                assert [list(after[0]), after[1]] == [list(before[0]), before[1]], "not undone"
            assert eventually(lambda n=number: len(refused) == 3 * (n + 1)), "a writer was not refused"
            now = (session[Count].all(), fs.read("dir/a.txt"))
            assert [list(now[0]), now[1]] == [list(after[0]), after[1]], "changed after the reply"
            if how == "succeeds":
                session[Count].clear()
    stop.set()
    assert eventually(lambda: abandoned_count() == 0)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "rounds"), [("times out", 200), ("fails", 50), ("succeeds", 50)])
def test_writers_that_race_with_the_end_change_nothing_after_it(how: str, rounds: int) -> None:
    """Round after round: whatever is written while the call ends is there, or undone, before the reply."""
    storm(rounds, how)


@pytest.mark.torture
@pytest.mark.parametrize("how", ["times out", "fails", "succeeds"])
def test_writers_race_with_the_end_for_long(how: str) -> None:
    """The same for two thousand rounds."""
    storm(2000, how)


def test_threads_that_ask_for_their_first_handle_at_once_share_one_fence() -> None:
    """Of two threads that touch a context for the first time together, neither keeps a handle that still writes."""
    session, rounds = Session(), 100
    leaks: list[int] = []

    def handler(params: Text, *, context: ToolContext) -> ToolResult[str]:
        barrier = threading.Barrier(4)
        found: list[Any] = []
        threads = [start(lambda: (barrier.wait(60), found.append(context.session[Count]))) for _ in range(4)]
        for thread in threads:
            thread.join(60)
        kept.extend(found)
        return ToolResult.ok("")

    kept: list[Any] = []
    with executor_of(handler, session=session) as executor, switching_often():
        for number in range(rounds):
            kept.clear()
            executor.execute(call("handler", str(number)))
            assert len(kept) == 4
            for item in kept:
                with suppress(StaleCallError):
                    item.append(Count(number))
                    leaks.append(number)
    assert not leaks
    assert session[Count].count() == 0


def test_first_handles_race_with_the_end() -> None:
    """A thread that asks for its first handle at the very end of the call gets one that is over, or is undone."""
    session = Session()
    contexts: list[ToolContext] = []
    started, stop = threading.Event(), threading.Event()

    def chaser() -> None:
        while not stop.is_set():
            if contexts:
                context = contexts.pop()
                started.set()
                with suppress(StaleCallError):
                    context.session[Count].append(Count(1))

    def handler(params: Text, *, context: ToolContext) -> ToolResult[str]:
        contexts.append(context)
        started.wait(60)
        return ToolResult.error("undone")

    thread = start(chaser)
    with executor_of(handler, session=session) as executor, switching_often():
        for number in range(300):
            started.clear()
            executor.execute(call("handler", str(number)))
            assert session[Count].count() == 0
    stop.set()
    thread.join(60)
    assert session[Count].count() == 0


def test_a_first_handle_that_is_made_late_is_closed_before_another_thread_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two threads of a handler that ask for their first handle when the call is over get none that still writes."""
    session, kept = Session(), list[ToolContext]()

    def handler(params: Text, *, context: ToolContext) -> ToolResult[str]:
        kept.append(context)
        return ToolResult.ok("")

    close, closing = Fence.close, threading.Event()

    def slowly(fence: Fence, reason: str) -> None:
        closing.set()
        time.sleep(0.3)
        close(fence, reason)

    with executor_of(handler, session=session) as executor:
        executor.execute(call("handler", "1"))
        monkeypatch.setattr(Fence, "close", slowly)
        first = start(lambda: kept[0].session)
        assert closing.wait(60)
        with pytest.raises(StaleCallError):
            kept[0].session[Count].append(Count(1))
        first.join(60)
    assert session[Count].count() == 0
