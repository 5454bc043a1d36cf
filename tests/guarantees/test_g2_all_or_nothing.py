"""G2, all or nothing: a call that does not succeed leaves state, files and resources exactly as they were."""

from __future__ import annotations

import asyncio
import contextlib
import linecache
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import examples
from tests.world import BEFORE, Counter, Go, Note, World, binding, change, make_tool, ok, outcomes

from weakincentives import runtime
from weakincentives.errors import NoEffect, RollbackError
from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolInvoked, ToolResult
from weakincentives.resources import Scope
from weakincentives.runtime import ToolCall, transaction
from weakincentives.session import Session, SlicePolicy
from weakincentives.testing.filesystem_contract import state


def failing(body: Callable[[ToolContext], object]) -> Callable[..., Any]:
    """A handler that does something and then says that it failed."""

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        body(context)
        return ToolResult.error("No.")

    return handler


# Files on disk.


def on_disk(root: Path) -> dict[str, tuple[Any, ...]]:
    """Everything there is to know of a directory: kind, mode, bytes, target, inode; the state directory left out."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(root.rglob("*")):
        if ".wink" in str(path.relative_to(root)):
            continue
        stat = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (stat.st_mode, content, stat.st_ino if path.is_file() else 0)
    return found


def test_files_on_disk_are_as_before(tmp_path: Path) -> None:
    """Bytes, modes, empty directories, ignored files and symlinks on disk are as before a failed call."""
    (tmp_path / "kept.txt").write_text("before")
    (tmp_path / "kept.txt").chmod(0o640)
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "empty").mkdir(mode=0o750)
    (tmp_path / "crlf.txt").write_bytes(b"a\r\nb\r\n")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "debug.log").write_text("ignored")
    (tmp_path / "link").symlink_to("kept.txt")
    (tmp_path / "nested" / ".git").mkdir(parents=True)
    (tmp_path / "nested" / ".git" / "HEAD").write_text("ref: x")
    before = on_disk(tmp_path)

    def body(context: ToolContext) -> None:
        files = context.filesystem
        assert files is not None
        files.write("kept.txt", "during")
        files.delete("run.sh")
        files.delete("empty", recursive=True)
        files.write("crlf.txt", "a\nb\n")
        files.delete("debug.log")
        files.move("nested", "moved")
        files.mkdir("new/deep")
        files.append("new/deep/file.txt", "x")
        files.copy("kept.txt", "copy.txt")

    with HostFilesystem(tmp_path) as files:
        world = World(make_tool(failing(body)), files=files)
        reply = world.call()
    assert reply.outcome == "failed"
    assert "Rolled back: " in reply.text
    assert on_disk(tmp_path) == before


def test_a_success_on_disk_stays(tmp_path: Path) -> None:
    """What a successful call wrote to disk is there afterwards."""

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        change(context)
        return ok()

    with HostFilesystem(tmp_path) as files:
        world = World(make_tool(handler), files=files)
        assert world.call().success
    assert (tmp_path / "new.txt").read_text() == "new"


# Resources.


class Born(Counter):
    """A resource that is built inside a call; its log is shared by all of them."""

    log: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.log.append("make")

    def close(self) -> None:
        self.log.append("close")


def fresh_log() -> type[Born]:
    class Logged(Born):
        log: list[str] = []  # noqa: RUF012 - one for each test

    return Logged


def test_a_singleton_born_in_a_failing_call_is_forgotten() -> None:
    """A SINGLETON first built in a call that fails is closed, and the next call builds a new one."""
    logged = fresh_log()

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        context.resources.get(logged).value += 1
        if params.how == "fail":
            return ToolResult.error("No.")
        return ToolResult.ok(context.resources.get(logged).value)

    world = World(make_tool(handler), resources=binding(logged, logged))
    world.call(arguments={"how": "fail"})
    assert logged.log == ["make", "close"]
    assert world.call().text == "OK\n1"
    world.call(arguments={"how": "fail"})
    assert world.call().text == "OK\n2"
    assert logged.log == ["make", "close", "make"]


def test_a_resource_of_the_call_is_closed_and_fresh() -> None:
    """A TOOL_CALL resource is new in each call and closed at its end, however the call ends."""
    logged = fresh_log()

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        resource = context.resources.get(logged)
        resource.value += 1
        if params.how:
            raise {"ctrl-c": KeyboardInterrupt, "raise": RuntimeError}[params.how]
        return ToolResult.ok(resource.value)

    world = World(make_tool(handler), resources=binding(logged, logged, scope=Scope.TOOL_CALL))
    assert world.call().text == "OK\n1"
    assert world.call().text == "OK\n1"
    assert world.call(arguments={"how": "raise"}).outcome == "crashed"
    with pytest.raises(KeyboardInterrupt):
        world.call(arguments={"how": "ctrl-c"})
    assert logged.log == ["make", "close"] * 4


def test_every_participant_is_restored_even_if_others_fail() -> None:
    """Participants that cannot be restored do not keep the others from it; one error carries all causes."""

    class Stuck(Counter):
        def restore(self, snapshot: int, /) -> NoReturn:
            raise OSError(f"stuck at {self.value}")

    class AlsoStuck(Stuck):
        def restore(self, snapshot: int, /) -> NoReturn:
            raise KeyboardInterrupt

    class Last(Counter): ...

    stuck, also, last = Stuck(), AlsoStuck(), Last()

    def body(context: ToolContext) -> None:
        change(context)
        for resource_type in (Stuck, AlsoStuck, Last):
            context.resources.get(resource_type).value += 1

    world = World(make_tool(failing(body)), resources={Stuck: stuck, AlsoStuck: also, Last: last})
    before = world.picture()
    with pytest.raises(RollbackError, match=r"2 of \d participants") as caught:
        world.call()
    assert sorted(caught.value.causes) == ["AlsoStuck", "Stuck"]
    assert isinstance(caught.value.causes["AlsoStuck"], KeyboardInterrupt)
    assert world.picture() == before
    assert last.value == 0
    assert outcomes(world.events) == ["crashed"]
    assert (stuck.alive, last.alive) == (1, 0), "what could not be undone is not released, since it is not over"


def test_snapshots_are_released_when_one_cannot_be_taken() -> None:
    """When a participant cannot be remembered, the snapshots already taken are released, and the call is refused."""

    class Refusing(Counter):
        def snapshot(self) -> NoReturn:
            raise MemoryError("no room")

    class Unreleasable(Counter):
        def release(self, snapshot: int, /) -> NoReturn:
            raise OSError("cannot release")

    world = World(make_tool(failing(change)), resources={Unreleasable: Unreleasable(), Refusing: Refusing()})
    assert "no room" in world.call().text
    assert world.counter.alive == 0
    assert outcomes(world.events) == ["crashed"]


# Interrupts.


def interrupting(kind: type[BaseException]) -> Callable[..., Any]:
    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        change(context)
        raise kind

    return handler


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_what_must_propagate_is_undone_first(kind: type[BaseException]) -> None:
    """Ctrl-C, exit and cancellation undo the call and record it, then propagate."""
    world = World(make_tool(interrupting(kind)))
    before = world.picture()
    with pytest.raises(kind):
        world.call()
    assert world.picture() == before
    assert outcomes(world.events) == ["cancelled"]


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.005, 0.02])
def test_cancelling_a_task_undoes_its_call(delay: float) -> None:
    """A task that is cancelled while its handler runs leaves everything as it was, and the session free."""

    async def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        while True:
            change(context)
            await asyncio.sleep(0.001)

    world = World(make_tool(handler, max_repeats=None))
    before = world.picture()

    async def main() -> None:
        task = asyncio.create_task(world.acall())
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert world.picture() == before
        waiting = [asyncio.create_task(world.acall()) for _ in range(3)]
        await asyncio.sleep(0.002)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert world.picture() == before

    asyncio.run(main())
    assert set(outcomes(world.events)) <= {"cancelled"}
    assert world.counter.alive == 0


def test_ctrl_c_in_a_restore_is_tried_again() -> None:
    """A restore that Ctrl-C broke off is done once more; the interrupt is raised when everything is undone."""

    class Interrupted(Counter):
        tries = 0

        def restore(self, snapshot: int, /) -> None:
            self.tries += 1
            if self.tries == 1:
                raise KeyboardInterrupt
            super().restore(snapshot)

    interrupted = Interrupted()

    def body(context: ToolContext) -> None:
        change(context)
        interrupted.value += 1

    world = World(make_tool(failing(body)), resources={Interrupted: interrupted})
    before = world.picture()
    with pytest.raises(KeyboardInterrupt):
        world.call()
    assert world.picture() == before
    assert (interrupted.value, interrupted.alive) == (0, 0)
    assert outcomes(world.events) == ["cancelled"]


@pytest.mark.slow
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals need the main thread")
@pytest.mark.parametrize(
    "seed", [*range(0, 40, 4), *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(40) if seed % 4)]
)
def test_ctrl_c_at_random_moments(seed: int) -> None:
    """Ctrl-C at a random moment of a handler leaves everything as it was, and the next call works."""
    running: list[bool] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        # Python itself swallows what is raised while an object dies, so not just anywhere.
        if running and frame is not None and "/tests/" in frame.f_code.co_filename:
            running.clear()
            raise KeyboardInterrupt

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        running.append(True)
        end = time.monotonic() + 120
        while time.monotonic() < end:
            change(context)
            for _ in range(100):  # where an interrupt may be raised
                pass
        return ok()

    def alarm() -> None:
        while not running:
            time.sleep(0.0001)
        while running:
            time.sleep(seed * 0.0002)
            os.kill(os.getpid(), signal.SIGUSR1)

    world = World(make_tool(handler, max_repeats=None))
    before = world.picture()
    old = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=alarm)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            world.call()
    finally:
        running.clear()
        thread.join()
        signal.signal(signal.SIGUSR1, old)
    assert world.picture() == before
    assert outcomes(world.events) == ["cancelled"]
    with transaction(world.session):
        pass


STAGES = {
    "dispatch.py", "admission.py", "invoke.py", "finish.py", "conclude.py", "nesting.py", "contexts.py",
    "transactions.py",
}  # fmt: skip


def interrupted_at(number: int) -> tuple[World, bool, bool]:
    """Run one call with Ctrl-C at the n-th line of engine code; whether it came, and whether it was in the engine."""

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        change(context)
        return ok() if params.how == "" else ToolResult.error("No.")

    world = World(make_tool(handler, max_repeats=None))
    count = number
    came = False

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count, came
        if Path(frame.f_code.co_filename).name not in STAGES or "/runtime/" not in frame.f_code.co_filename:
            return None
        # A signal cannot come between a lock's being released and the end of its block; a trace function can.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not came and not line.startswith("with "):
            count -= 1
            if count == 0:
                came = True
                raise KeyboardInterrupt
        return trace

    interrupted = False
    call = ToolCall("the-call", "act", {"how": "" if number % 2 else "fail"})
    sys.settrace(trace)
    try:
        world.executor.execute(call)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        sys.settrace(None)
    return world, came, interrupted


@pytest.mark.slow
@pytest.mark.skipif(sys.gettrace() is not None, reason="somebody else is tracing")
def test_ctrl_c_on_any_line_of_the_engine() -> None:
    """Ctrl-C on any line of the engine leaves all of a call or nothing of it, and the log never lies."""
    assert {path.name for path in Path(runtime.__file__).parent.glob("*.py")} >= STAGES
    unrecorded = 0
    for line in range(1, 1000):
        world, came, _ = copy_context().run(interrupted_at, line)
        if not came:
            break
        after = world.picture()
        before = ((Note("before"),), {**BEFORE, ".": None, "old": None}, 7)
        events = [event for event in world.events if event.call_id == "the-call"]
        assert len(events) <= 1, f"line {line}"
        unrecorded += not events
        changed = after != before
        if events:
            assert changed is events[0].success, f"line {line}"
        else:
            assert not changed, f"line {line}"
    else:
        pytest.fail("a call has too many lines")
    assert line > 60
    assert unrecorded <= 4  # before anything has begun


# A random program.

PATHS = st.sampled_from(["kept.txt", "new.txt", "old", "old/deep.txt", "a/b/c.txt", "a", "a/b", "x/y"])
TEXTS = st.text(max_size=5)
STEPS = st.one_of(
    st.tuples(st.just("append"), TEXTS),
    st.tuples(st.just("dispatch"), TEXTS),
    st.tuples(st.just("clear"), st.just("")),
    st.tuples(st.just("replace"), TEXTS),
    st.tuples(st.just("reset"), st.just("")),
    st.tuples(st.just("log"), TEXTS),
    st.tuples(st.just("write"), PATHS),
    st.tuples(st.just("write_bytes"), PATHS),
    st.tuples(st.just("extend"), PATHS),
    st.tuples(st.just("delete"), PATHS),
    st.tuples(st.just("delete_all"), PATHS),
    st.tuples(st.just("mkdir"), PATHS),
    st.tuples(st.just("move"), PATHS, PATHS),
    st.tuples(st.just("copy"), PATHS, PATHS),
    st.tuples(st.just("count"), st.just("")),
    st.tuples(st.just("born"), st.just("")),
    st.tuples(st.just("call"), st.sampled_from(["ok", "fail", "raise"])),
    st.tuples(st.just("nested"), st.booleans()),
)
ENDS = st.sampled_from(["error", "raise", "no effect", "ctrl-c", "exit", "cancel", "type", "nothing", "subscriber"])


class Entry:
    """A LOG slice of the test's own."""

    slice_policy = SlicePolicy.LOG


class Lazy(Counter):
    """Born when asked for."""


def step(world: World, context: ToolContext, what: tuple[Any, ...]) -> None:
    files = context.filesystem
    assert files is not None
    kind, argument = what[:2]
    with contextlib.suppress(OSError):
        match kind:
            case "append":
                context.session[Note].append(Note(argument))
            case "dispatch":
                context.session.dispatch(Note(argument))
            case "clear":
                context.session[Note].clear()
            case "replace":
                context.session[Note].seed(Note(argument))
            case "reset":
                context.session.reset()  # pyright: ignore[reportAttributeAccessIssue]
            case "log":
                context.session.dispatch(Entry())
            case "write":
                files.write(argument, "during")
            case "write_bytes":
                files.write(argument, b"\x00\xff")
            case "extend":
                files.append(argument, "more")
            case "delete":
                files.delete(argument)
            case "delete_all":
                files.delete(argument, recursive=True)
            case "mkdir":
                files.mkdir(argument)
            case "move":
                files.move(argument, what[2])
            case "copy":
                files.copy(argument, what[2])
            case "count":
                context.resources.get(Counter).value += 1
            case "born":
                context.resources.get(Lazy).value += 1
            case "call":
                world.call("inner", {"how": argument})
            case _:
                with transaction(world.session, validate=lambda: argument):
                    context.session[Note].append(Note("nested"))


def run_program(
    steps: list[tuple[Any, ...]], end: str, at: int, make: Callable[[], Filesystem], asynchronous: bool
) -> None:
    ran: list[int] = []

    def finish() -> Any:
        match end:
            case "error":
                return ToolResult.error("No.")
            case "raise":
                raise RuntimeError("broken")
            case "no effect":
                raise NoEffect("not done")
            case "ctrl-c":
                raise KeyboardInterrupt
            case "exit":
                raise SystemExit
            case "cancel":
                raise asyncio.CancelledError
            case "type":
                raise TypeError("wrong")
            case "nothing":
                return None
            case _:
                return ok()

    def program(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        for number, what in enumerate(steps):
            if number == at:
                break
            step(world, context, what)
            ran.append(number)
        return finish()

    async def program_later(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        await asyncio.sleep(0)
        return program(params, context=context)

    def inner(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        change(context)
        if params.how == "raise":
            raise RuntimeError("inner")
        return ok() if params.how == "ok" else ToolResult.error("No.")

    world = World(
        make_tool(program_later if asynchronous else program),
        make_tool(inner, "inner", max_repeats=None),
        files=make(),
        resources=binding(Lazy, Lazy),
    )
    world.files.write("kept.txt", "before")
    world.files.write("old/deep.txt", "deep")
    if end == "subscriber":

        def refuse(event: ToolInvoked) -> None:
            if event.tool_name == "act":
                raise RuntimeError("no")

        world.session.dispatcher.subscribe(ToolInvoked, refuse)
    before, exactly = world.picture(), state(world.files)
    call = world.next_call()
    with contextlib.suppress(KeyboardInterrupt, SystemExit, asyncio.CancelledError):
        asyncio.run(world.executor.aexecute(call)) if asynchronous else world.executor.execute(call)
    assert world.picture() == before
    assert state(world.files) == exactly
    assert world.counter.alive == 0
    (event,) = [event for event in world.events if event.tool_name == "act"]
    assert not event.success
    inner_calls = sum(what[0] == "call" for what in steps[: len(ran)])
    assert len(world.events) == 1 + inner_calls
    assert world.session[Entry].count() == sum(what[0] == "log" for what in steps[: len(ran)])


PROGRAM = given(steps=st.lists(STEPS, max_size=12), end=ENDS, at=st.integers(0, 12), asynchronous=st.booleans())


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@PROGRAM
def test_a_program_that_fails_leaves_no_trace(
    steps: list[tuple[Any, ...]], end: str, at: int, asynchronous: bool
) -> None:
    """A random program that fails at a random point in a random way leaves state and files bit-identical."""
    run_program(steps, end, at, InMemoryFilesystem, asynchronous)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@settings(max_examples=5000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@PROGRAM
def test_five_thousand_programs_that_fail(steps: list[tuple[Any, ...]], end: str, at: int, asynchronous: bool) -> None:
    """Five thousand random programs that fail leave state and files bit-identical."""
    run_program(steps, end, at, InMemoryFilesystem, asynchronous)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@PROGRAM
def test_a_program_on_disk_that_fails_leaves_no_trace(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]], end: str, at: int, asynchronous: bool
) -> None:
    """The same on a real directory."""
    with HostFilesystem(tmp_path_factory.mktemp("root")) as files:
        run_program(steps, end, at, lambda: files, asynchronous)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@PROGRAM
def test_a_thousand_programs_on_disk(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]], end: str, at: int, asynchronous: bool
) -> None:
    """A thousand of them on a real directory."""
    with HostFilesystem(tmp_path_factory.mktemp("root")) as files:
        run_program(steps, end, at, lambda: files, asynchronous)


def test_a_call_that_waits_is_not_begun() -> None:
    """While one call of a session runs, another thread's call waits, and sees what the first one left."""
    seen: list[int] = []

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        seen.append(context.session[Note].count())
        change(context)
        time.sleep(0.01)
        return ok() if params.how == "" else ToolResult.error("No.")

    world = World(make_tool(handler, max_repeats=None))
    threads = [threading.Thread(target=world.call, args=("act", {"how": how})) for how in ("", "x", "", "x", "")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.session[Note].count() == 4
    assert world.counter.value == 10
    assert len(seen) == 5


def test_different_sessions_do_not_wait_for_each_other() -> None:
    """Calls on two sessions without shared files run at the same time."""
    meeting = threading.Barrier(2)

    def handler(params: Go) -> ToolResult[Any]:
        meeting.wait(10)
        return ok()

    worlds = [World(make_tool(handler)), World(make_tool(handler))]
    threads = [threading.Thread(target=world.call) for world in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcomes(world.events) for world in worlds] == [["succeeded"]] * 2


def test_two_sessions_on_one_filesystem_take_turns() -> None:
    """Calls of two sessions that share files are serialised, so that an undo takes back only its own writes."""
    files = InMemoryFilesystem(BEFORE)

    def handler(params: Go, *, context: ToolContext) -> ToolResult[Any]:
        assert context.filesystem is not None
        context.filesystem.write(f"{params.how}.txt", "x")
        time.sleep(0.005)
        return ToolResult.error("No.") if params.how.startswith("bad") else ok()

    worlds = [World(make_tool(handler), files=files) for _ in range(2)]
    threads = [
        threading.Thread(target=worlds[number % 2].call, args=("act", {"how": f"{kind}{number}"}))
        for number in range(6)
        for kind in ("good", "bad")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path for path in files.glob("*.txt") if path != "kept.txt") == [f"good{n}.txt" for n in range(6)]


def test_sessions_of_a_family_are_undone_by_their_own_calls() -> None:
    """A call undoes its own session; what a parent session holds stays."""
    parent = Session()
    world = World(make_tool(failing(change)), session=Session(parent=parent))
    parent[Note].append(Note("of the parent"))
    world.call()
    assert parent[Note].all() == (Note("of the parent"),)
