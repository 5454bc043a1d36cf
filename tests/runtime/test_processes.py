"""Process isolation: what crosses the border, what comes back, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.limits_parts import (
    SLACK,
    Count,
    Text,
    beats,
    beats_for_an_earlier_call,
    call,
    child_of_ours,
    eventually,
    executor_of,
    fails,
    is_alive,
    make,
    ok,
    outcomes,
    stuck_sleep,
    tell,
    tell_async,
    writes_there,
)

from weakincentives.deadlines import Deadline
from weakincentives.errors import (
    DeadlineExceededError,
    LeaseLostError,
    PromptEvaluationError,
    PromptValidationError,
    WinkError,
)
from weakincentives.prompt import ToolResult
from weakincentives.runtime import Heartbeat, RunContext, Session, ToolInvoked
from weakincentives.runtime.processes import POOL, Job, Worker, WorkerDiedError, WorkerPool
from weakincentives.session import replace_latest
from weakincentives.threads import abandoned_count

pytestmark = pytest.mark.slow  # processes


def isolated(handler: Any, name: str = "", **options: Any) -> Any:
    return make(handler, name, isolation="process", **options)


def parts_of(reply: Any) -> list[str]:
    assert reply.success, reply.text
    return reply.result.value.split()


def test_params_deadline_and_run_context_reach_the_handler() -> None:
    """The handler runs in another process and gets its params, the deadline, the run context and no key."""
    run = RunContext(run_id="run-7")
    deadline = Deadline.after(timedelta(seconds=1000))
    with executor_of(isolated(tell), run_context=run, deadline=deadline) as executor:
        text, run_id, left, pid, key = parts_of(executor.execute(call("tell", text="hello")))
    assert (text, run_id, key) == ("hello", "run-7", "None")
    assert 900 < int(left) <= 1000
    assert int(pid) != os.getpid()


def test_beats_are_passed_on() -> None:
    """A handler in a process beats in the parent, from any of its threads; from sync and from async code."""
    heartbeat = Heartbeat()
    with executor_of(isolated(beats), heartbeat=heartbeat) as executor:
        assert executor.execute(call("beats")).success
        assert heartbeat.count == 3
        assert asyncio.run(executor.aexecute(call("beats", "2"))).success
    assert heartbeat.count == 6


def test_a_lost_lease_stops_the_handler_in_its_process() -> None:
    """What a listener of the heartbeat raises in the parent is raised by `beat()` in the worker."""
    heartbeat = Heartbeat()

    def lost() -> None:
        raise LeaseLostError("somebody else has it")

    heartbeat.add_listener(lost)
    with executor_of(isolated(beats), heartbeat=heartbeat) as executor:
        reply = executor.execute(call("beats"))
    assert (reply.outcome, heartbeat.count) == ("crashed", 1)
    assert "somebody else has it" in reply.text


def test_a_call_that_is_over_cannot_beat_for_the_next_one() -> None:
    """A context kept in the worker has no heartbeat any more when its call is over."""
    heartbeat = Heartbeat()
    POOL.close()
    with executor_of(isolated(beats_for_an_earlier_call), heartbeat=heartbeat) as executor:
        assert executor.execute(call("beats_for_an_earlier_call")).text == "OK\nkept"
        reply = executor.execute(call("beats_for_an_earlier_call", "2"))
    assert "This call is over" in reply.text
    assert heartbeat.count == 0


def test_async_handlers_run_there_too() -> None:
    """An async handler is run to its end in its process, from sync and from async code."""
    with executor_of(isolated(tell_async)) as executor:
        assert parts_of(executor.execute(call("tell_async")))[1] != str(os.getpid())

    async def main() -> None:
        async with executor_of(isolated(tell_async)) as executor:
            assert parts_of(await executor.aexecute(call("tell_async")))[1] != str(os.getpid())

    asyncio.run(main())


def test_state_goes_through_the_result() -> None:
    """What a handler writes in its process stays there; its value reaches the reducers here."""
    session = Session()
    session[Count].register(Count, replace_latest)
    with executor_of(isolated(writes_there), session=session) as executor:
        assert executor.execute(call("writes_there")).success
    assert [item.value for item in session[Count].all()] == [2]


def test_workers_are_used_again_also_after_a_handler_raised() -> None:
    """One worker serves call after call; only one that was killed is replaced."""
    with executor_of(isolated(tell), isolated(fails)) as executor:
        first = parts_of(executor.execute(call("tell", "1")))[3]
        for number, way in enumerate(["value", "tool", "odd", "unpicklable", "result", "error"]):
            assert not executor.execute(call("fails", f"fails {number}", text=way)).success
        assert parts_of(executor.execute(call("tell", "2")))[3] == first


@pytest.mark.parametrize(
    ("way", "outcome", "text", "kind"),
    [
        ("value", "crashed", "Internal error: no such value", "ValueError"),
        ("tool", "failed", "say it otherwise", "ToolValidationError"),
        ("error", "failed", "as expected", None),
        ("odd", "crashed", "the handler's exception (OddError: this and that) cannot leave its process", "WinkError"),
        ("unpicklable", "crashed", "the handler's exception (RuntimeError: holds a lock) cannot leave", "WinkError"),
        ("result", "crashed", "the handler's result (ToolResult: ", "WinkError"),
        ("exit", "crashed", "The worker process ended before it answered.", "WorkerDiedError"),
    ],
)
def test_how_a_handler_fails_there_is_told_here(way: str, outcome: str, text: str, kind: str | None) -> None:
    """Exceptions keep their type where they can travel; what cannot leave its process says so."""
    session = Session()
    with executor_of(isolated(fails), session=session) as executor:
        reply = executor.execute(call("fails", text=way))
    assert reply.outcome == outcome
    assert text in reply.text
    event = session[ToolInvoked].latest()
    assert event is not None
    assert (None if event.error is None else event.error.type_name.rpartition(".")[2]) == kind


def test_what_must_propagate_does() -> None:
    """Ctrl-C and the deadline's exception reach the caller from another process as from a thread."""
    session = Session()
    with executor_of(isolated(fails), session=session) as executor:
        with pytest.raises(KeyboardInterrupt):
            executor.execute(call("fails", "1", text="interrupt"))
        with pytest.raises(PromptEvaluationError) as caught:
            executor.execute(call("fails", "2", text="deadline"))
        assert isinstance(caught.value.__cause__, DeadlineExceededError)
    assert outcomes(session) == ["cancelled", "deadline"]


class Local:
    """Cannot be sent: it holds a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_a_job_that_cannot_be_sent_says_so() -> None:
    """What the handler should get must be picklable."""
    with pytest.raises(WinkError, match="cannot be sent to its process"):
        Job(print, (Local(),)).packed()


def test_a_handler_that_cannot_be_imported_is_refused_at_once() -> None:
    """Closures and lambdas are refused when the tool is made."""

    def closure(params: Text) -> ToolResult[str]:
        return ToolResult.ok(params.text)

    with pytest.raises(PromptValidationError, match="module level"):
        isolated(closure)


def test_a_timeout_kills_the_process_and_what_it_started(tmp_path: Path) -> None:
    """At its limit the handler is killed, and so is the process that it started."""
    session, note = Session(), tmp_path / "pid"
    with executor_of(isolated(child_of_ours, timeout=1.0), session=session) as executor:
        started = time.monotonic()
        reply = executor.execute(call("child_of_ours", text=str(note)))
        assert reply.outcome == "timeout"
        assert time.monotonic() - started < 1.0 + SLACK + 10.0, "starting a worker takes a moment"
        assert eventually(note.exists)
        assert eventually(lambda: not is_alive(int(note.read_text())))
    assert eventually(lambda: abandoned_count() == 0)


def test_a_timeout_begins_when_the_worker_has_started() -> None:
    """Starting a process is not the handler's time: a short timeout does not fail the first call."""
    POOL.close()
    with executor_of(isolated(tell, timeout=0.5)) as executor:
        assert executor.execute(call("tell")).success


def test_a_deadline_counts_the_start_of_the_worker() -> None:
    """The run's time is up when it is up, whatever it is spent on."""
    POOL.close()
    with executor_of(isolated(tell), deadline=Deadline.after(timedelta(seconds=0.02))) as executor:
        started = time.monotonic()
        assert executor.execute(call("tell")).outcome == "deadline"
        assert time.monotonic() - started < 0.02 + SLACK + 0.25


def test_cancelling_kills_the_process(tmp_path: Path) -> None:
    """Cancelling the task ends the handler and its children, with one event."""
    session, note = Session(), tmp_path / "pid"

    async def main() -> None:
        async with executor_of(isolated(child_of_ours), session=session) as executor:
            task = asyncio.create_task(executor.aexecute(call("child_of_ours", text=str(note))))
            while not (note.exists() and note.read_text()):  # noqa: ASYNC110 - written by another process
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert eventually(lambda: not is_alive(int(note.read_text())))
    assert outcomes(session) == ["cancelled"]
    assert eventually(lambda: abandoned_count() == 0)


def test_several_calls_at_once_have_several_workers() -> None:
    """Calls on different sessions run side by side, each in a process of its own."""

    async def main() -> set[str]:
        executors = [executor_of(isolated(tell)) for _ in range(3)]
        replies = await asyncio.gather(*(executor.aexecute(call("tell")) for executor in executors))
        return {parts_of(reply)[3] for reply in replies}

    assert len(asyncio.run(main())) == 3


def test_a_pool_keeps_few_and_replaces_the_dead() -> None:
    """A worker that died while idle is not handed out; more than a few are not kept."""
    pool = WorkerPool()
    first = pool.acquire()
    first.ready()
    pool.release(first)
    first.kill()
    second = pool.acquire()
    try:
        assert second is not first
        second.ready()
        assert second.run(Job(os.getpid, ()).packed(), lambda: None).get() != os.getpid()
    finally:
        pool.close()
    assert not second.alive
    second.kill()


def test_a_worker_that_dies_while_starting_says_what_to_look_for() -> None:
    """A worker that cannot start names the usual reason."""
    worker = Worker()
    worker.kill()
    with pytest.raises(WorkerDiedError, match="__main__"):
        worker.ready()


SCRIPT = """
import os, sys, time
from dataclasses import dataclass
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolResult
from weakincentives.runtime import Session, ToolCall

@dataclass(frozen=True)
class Params:
    text: str = ""

def handler(params: Params) -> ToolResult[str]:
    print("worker", os.getpid(), flush=True)
    if params.text == "sleep":
        time.sleep(3600)
    return ToolResult.ok(f"{params.text} from {__name__}")

def main() -> None:
    tool = Tool[Params, str](name="handler", description="A test.", handler=handler, isolation="process")
    section = MarkdownSection(title="Tools", template="", tools=[tool])
    prompt = Prompt(PromptTemplate(ns="tests", key="script", sections=[section]))
    with ToolExecutor(prompt=prompt, session=Session()) as executor:
        print(executor.execute(ToolCall("1", "handler", {"text": "hello"})).text, flush=True)
        LAST

GUARD
"""


def script(path: Path, last: str = "pass", guard: str = 'if __name__ == "__main__":\n    main()') -> Path:
    file = path / "script.py"
    file.write_text(textwrap.dedent(SCRIPT).replace("LAST", last).replace("GUARD", guard))
    return file


def worker_of(line: str) -> int:
    name, _, pid = line.partition(" ")
    assert name == "worker"
    return int(pid)


def test_a_handler_of_a_script_works_and_its_worker_ends_with_it(tmp_path: Path) -> None:
    """A handler in `__main__` is found by the worker, which is gone when the script is."""
    done = subprocess.run(
        [sys.executable, str(script(tmp_path))], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    first, reply = done.stdout.splitlines()[:2]
    assert reply == "OK"
    assert "hello from __mp_main__" in done.stdout
    assert not done.stderr
    assert eventually(lambda: not is_alive(worker_of(first)))


def test_a_script_without_a_main_guard_is_told(tmp_path: Path) -> None:
    """A script that starts its run on import gets an answer that names the reason, and ends."""
    done = subprocess.run(
        [sys.executable, str(script(tmp_path, guard="main()"))],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "if __name__ == '__main__'" in done.stdout


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_workers_end_when_their_parent_is_killed(tmp_path: Path, busy: bool) -> None:
    """After `kill -9` of the program its workers end by themselves, idle or in the middle of a handler."""
    last = 'executor.execute(ToolCall("2", "handler", {"text": "sleep"}))' if busy else "time.sleep(3600)"
    with subprocess.Popen([sys.executable, str(script(tmp_path, last))], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        worker = worker_of(program.stdout.readline())
        assert program.stdout.readline() == "OK\n"
        program.stdout.readline()
        if busy:
            assert worker_of(program.stdout.readline()) == worker
        assert is_alive(worker)
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
        assert eventually(lambda: not is_alive(worker))


def test_a_program_that_ends_does_not_wait_for_a_busy_worker(tmp_path: Path) -> None:
    """A worker that is busy for a daemon thread is killed when the program ends."""
    last = textwrap.indent(
        textwrap.dedent("""
        import threading
        work = lambda: executor.execute(ToolCall("2", "handler", {"text": "sleep"}))
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.5)
        """),
        " " * 8,
    ).strip()
    done = subprocess.run(
        [sys.executable, str(script(tmp_path, last))], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0
    pids = [worker_of(line) for line in done.stdout.splitlines() if line.startswith("worker")]
    assert len(pids) == 2
    assert eventually(lambda: not any(is_alive(pid) for pid in pids))


def test_a_forked_child_does_not_touch_the_workers_of_its_parent() -> None:
    """A forked child starts workers of its own and leaves its parent's alone."""
    with executor_of(isolated(tell)) as executor:
        before = parts_of(executor.execute(call("tell", "1")))[3]
        pid = os.fork()
        if pid == 0:  # pragma: no cover - in the child
            POOL.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert parts_of(executor.execute(call("tell", "2")))[3] == before


def test_a_stuck_handler_is_killed_within_its_limit() -> None:
    """With a warm worker the reply comes soon after the limit."""
    with executor_of(isolated(tell), isolated(stuck_sleep, timeout=0.3), ok) as executor:
        parts_of(executor.execute(call("tell", "1")))
        started = time.monotonic()
        assert executor.execute(call("stuck_sleep", "2")).outcome == "timeout"
        assert time.monotonic() - started < 0.3 + SLACK


def test_a_worker_that_knows_fewer_modules_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler of a module that became importable after a worker had started is found."""
    pool = WorkerPool()
    first = pool.acquire()
    try:
        first.ready()
        pool.release(first)
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        second = pool.acquire()
        assert second is not first
        assert not first.alive
    finally:
        pool.close()
