"""Ctrl-C at every place of a call where Python looks for signals: the call happened or it did not, and the log says so.

The interrupts are injected by a tracer, so these tests are deterministic: each place is tried once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.interrupt_parts import Injection, assert_free, events_of, interruptions, python_handler
from tests.runtime.limits_parts import Count, Text, call, executor_of

from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import Session, ToolReply, transaction
from weakincentives.runtime.executor import ToolExecutor

pytestmark = pytest.mark.slow  # an interrupt at every place

STEPS = {"a": 1, "x": 3, "!": 11}
"""Every how many places: a call that fails has more of them, most of them in `logging`."""

Check = Callable[[Injection, bool], None]


@pytest.fixture(autouse=True)
def sigint() -> Iterator[None]:
    with python_handler():
        yield


def write(params: Text, *, context: ToolContext) -> ToolResult[str]:
    """Changes the session and a file; "x" says that it failed, "!" raises."""
    context.session[Count].append(Count(1))
    if context.filesystem is not None:
        context.filesystem.append("log", params.text)
    if params.text == "!":
        raise ValueError("odd")
    return ToolResult.error("no") if params.text == "x" else ToolResult.ok(params.text)


def read(params: Text, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok(str(context.session[Count].count()))


async def awrite(params: Text, *, context: ToolContext) -> ToolResult[str]:
    context.session[Count].append(Count(1))
    await asyncio.sleep(0)
    return ToolResult.ok(params.text)


class Trial:
    """One executor, interrupted once in `action`, and what must be true of it afterwards."""

    def __init__(self, *tools: Any, fs: Filesystem | None = None, inside: bool = True) -> None:
        self.session = Session()
        self.fs = fs
        self.before = self.log()
        self.executor: ToolExecutor = executor_of(*tools, session=self.session, fs=fs)
        self.seen: list[ToolReply] = []
        self.inside = inside
        if inside:
            self.executor.__enter__()
        else:
            self.executor.execute(call("none", "enter"))

    def log(self) -> str:
        return self.fs.read("log") if self.fs is not None and self.fs.exists("log") else ""

    def was_begun(self, injection: Injection) -> bool:
        """Whether the interrupt came after the first store of `execute`, behind which no id is lost."""
        return injection.depth > 0 if self.inside else injection.depth > 0 and "stand_in_front" not in injection.place

    def check(self, injection: Injection, raised: bool) -> None:
        where = f"at {injection.place}, depth {injection.depth}"
        assert raised == injection.done, where
        events = [event for event in events_of(self.session, "1") if event.tool_name != "none"]
        assert len(events) == 1 or (not events and not self.was_begun(injection) and not self.executor.has_seen("1")), (
            where
        )
        kept = bool(events) and events[0].success
        assert self.session[Count].count() == kept, where
        if self.fs is not None:
            assert self.log() == self.before + ("a" if kept else ""), where
        self.check_usable(where)

    def check_usable(self, where: str) -> None:
        """Nothing is locked, and the next call works."""
        assert_free(self.session, *(() if self.fs is None else (self.fs,)))
        count = self.session[Count].count()
        assert self.executor.execute(call("write", "next", text="n")).outcome == "succeeded", where
        assert self.session[Count].count() == count + 1, where
        self.executor.close()
        if isinstance(self.fs, HostFilesystem):
            self.fs.close()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, where


def executed(make_trial: Callable[[], Trial], name: str = "write", text: str = "a") -> Callable[[], tuple[Any, Check]]:
    def made() -> tuple[Any, Check]:
        trial = make_trial()
        return lambda: trial.executor.execute(call(name, "1", text=text)), trial.check

    return made


@pytest.mark.parametrize("inside", [True, False], ids=["with", "alone"])
@pytest.mark.parametrize("text", ["a", "x", "!"])
def test_a_call_in_memory(text: str, inside: bool) -> None:
    """A call that succeeds, fails or crashes has one event, is kept or undone as that says, and locks nothing."""
    places = interruptions(
        executed(lambda: Trial(write, fs=InMemoryFilesystem(), inside=inside), text=text), STEPS[text]
    )
    assert places > 400


@pytest.mark.parametrize("name", ["missing", "refused"])
def test_a_call_that_is_not_admitted(name: str) -> None:
    """A call of an unknown tool, or one with wrong arguments, has its event wherever the interrupt falls."""

    def made() -> tuple[Any, Check]:
        trial = Trial(write)
        arguments: dict[str, Any] = {"text": "a"} if name == "missing" else {"number": 1}
        one = call("missing" if name == "missing" else "write", "1", **arguments)
        return lambda: trial.executor.execute(one), trial.check

    assert interruptions(made) > 150


def test_a_call_made_inside_another() -> None:
    """An inner call that was settled keeps its event; when the interrupt ends the outer call both are undone."""

    def made() -> tuple[Any, Check]:
        def outer(params: Text, *, context: ToolContext) -> ToolResult[str]:
            context.session[Count].append(Count(10))
            return trial.executor.execute(call("write", "inner", text="a")).result

        trial = Trial(write, outer)

        def check(injection: Injection, raised: bool) -> None:
            where = f"at {injection.place}, depth {injection.depth}"
            assert raised == injection.done, where
            outers, inners = events_of(trial.session, "1"), events_of(trial.session, "inner")
            assert len(outers) == 1 or not trial.was_begun(injection), where
            assert len(inners) <= 1, where
            if inners and not inners[0].success:
                assert inners[0].outcome == "cancelled", where
            assert trial.session[Count].count() == (2 if outers and outers[0].success else 0), where
            trial.check_usable(where)

        return lambda: trial.executor.execute(call("outer", "1", text="a")), check

    assert interruptions(made) > 600


def test_an_async_handler_in_synchronous_code() -> None:
    """The event loop that is run for an async handler is interrupted as `asyncio.run` is: the call is cancelled."""
    assert interruptions(executed(lambda: Trial(awrite, write), "awrite"), step=3) > 300


def test_a_turn_of_several_calls() -> None:
    """Every id of an interrupted turn has one event and one answer, in order; what was not run says so."""

    def made() -> tuple[Any, Check]:
        trial = Trial(write)
        calls = [call("write", f"{number}", text="a") for number in (1, 2, 3)]

        def check(injection: Injection, raised: bool) -> None:
            where = f"at {injection.place}, depth {injection.depth}"
            assert raised == injection.done, where
            events = [events_of(trial.session, one.id) for one in calls]
            if trial.was_begun(injection) or any(events):
                assert [len(found) for found in events] == [1, 1, 1], where
                assert [reply.call_id for reply in trial.seen] == ["1", "2", "3"], where
                assert [reply.outcome for reply in trial.seen] == [found[0].outcome for found in events], where
            kept = sum(found[0].success for found in events if found)
            assert trial.session[Count].count() == kept, where
            trial.check_usable(where)

        return lambda: trial.executor.execute_all(calls, on_reply=trial.seen.append), check

    assert interruptions(made, step=3) > 800


def test_a_transaction_by_hand() -> None:
    """`with transaction(...)` outside of a run: all or nothing, and the session is not left locked."""

    def made() -> tuple[Any, Check]:
        session = Session()

        def act() -> None:
            with transaction(session):
                session[Count].append(Count(1))
                session[Count].append(Count(2))

        def check(injection: Injection, raised: bool) -> None:
            assert raised == injection.done, injection.place
            assert session[Count].count() in {0, 2}, injection.place
            assert_free(session)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

        return act, check

    assert interruptions(made) > 150


def on_disk(tmp_path: Path, watch: Any, step: int, text: str) -> int:
    numbers = iter(range(10**6))

    def trial() -> Trial:
        folder = tmp_path / f"{next(numbers)}"
        folder.mkdir()
        (folder / "log").write_text("b")
        fs = HostFilesystem(folder, watch=watch) if watch else HostFilesystem(folder)
        return Trial(write, fs=fs)

    return interruptions(executed(trial, text=text), step)


@pytest.mark.parametrize("text", ["a", "x"])
def test_a_write_to_the_disk(tmp_path: Path, text: str) -> None:
    """One file is written or it is not, as the event says, and the root can be used again."""
    assert on_disk(tmp_path, None, 11, text) > 900


@pytest.mark.torture
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("watch", [None, "scan"])
@pytest.mark.parametrize("text", ["a", "x"])
def test_a_write_to_the_disk_at_every_place(tmp_path: Path, text: str, watch: Any) -> None:
    """As above, at every single place, also with `watch="scan"`."""
    assert on_disk(tmp_path, watch, 1, text) > 900
