"""The log on disk: one line for each event, whatever happens to the file, the process or the values."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from weakincentives import Deadline, MarkdownSection, Prompt, Session, Tool, ToolContext, ToolResult
from weakincentives.prompt import CallsUndone, ToolInvoked
from weakincentives.runtime import JsonlLog, RunContext, transaction
from weakincentives.testing import ScriptedAdapter, call, execute_tool, say


@dataclass(frozen=True)
class Pay:
    order: int
    note: str = ""
    password: str = ""
    pin: SecretStr = field(default_factory=lambda: SecretStr(""))


@dataclass(frozen=True)
class Paid:
    order: int


def pay(params: Pay, *, context: ToolContext) -> ToolResult[str]:
    context.session[Paid].append(Paid(params.order))
    if params.order == 13:
        raise ValueError("the bank refused it, password=hunter2")
    return ToolResult.ok(f"R-{params.order}", message="Paid.")


PAY = Tool[Pay, str](name="pay", description="Pay an order.", handler=pay)


def lines(path: Path) -> list[dict[str, Any]]:
    """Every line of one file; each must be whole."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def listening(log: JsonlLog) -> Session:
    session = Session()
    session.dispatcher.subscribe(object, log)
    return session


def test_every_event_of_an_evaluation_is_a_line_with_its_ids(tmp_path: Path) -> None:
    """Rendered, called and executed, each with time, type and the ids of event, run, request and session."""
    path = tmp_path / "agent.jsonl"
    with JsonlLog(path) as log:
        session = listening(log)
        prompt = Prompt[str](name="desk", sections=[MarkdownSection(title="Task", template="Pay.", tools=[PAY])])
        context = RunContext(session_id=session.session_id)
        ScriptedAdapter(call("pay", order=7), say("Done.")).evaluate(prompt, session, run_context=context)
    written = lines(path)
    assert [line["type"] for line in written] == ["PromptRendered", "ToolInvoked", "PromptExecuted"]
    for line in written:
        assert (line["run_id"], line["request_id"]) == (context.run_id, context.request_id)
        assert line["session_id"] == session.session_id
        assert line["time"].endswith("+00:00")
    called = written[1]
    assert called["event_id"] == session[ToolInvoked].all()[0].event_id
    assert called["data"]["params"]["order"] == 7
    assert (called["data"]["outcome"], called["data"]["result"]["value"]) == ("succeeded", "R-7")
    assert called["data"]["rendered_output"].startswith("Paid.")
    assert list(JsonlLog.read(path)) == written


def test_calls_that_fail_or_were_undone_are_lines_too(tmp_path: Path) -> None:
    """A crash has its masked traceback, bad arguments their text, and an undone transaction says what it undid."""
    path = tmp_path / "agent.jsonl"
    with JsonlLog(path) as log:
        session = listening(log)
        execute_tool(PAY, {"order": 13}, session=session)
        execute_tool(PAY, {"order": "seven"}, session=session)
        with suppress(ZeroDivisionError), transaction(session):
            execute_tool(PAY, {"order": 7}, session=session)
            raise ZeroDivisionError
    crashed, invalid, succeeded, undone = lines(path)
    assert "ValueError" in crashed["data"]["error"]["trace"]
    assert (crashed["data"]["outcome"], invalid["data"]["outcome"]) == ("crashed", "invalid")
    assert undone["type"] == "CallsUndone"
    assert undone["data"]["undone_calls"] == [succeeded["event_id"]]
    assert session[CallsUndone].count() == 1
    assert b"hunter2" not in path.read_bytes()


def test_secrets_are_masked_by_type_name_and_shape(tmp_path: Path) -> None:
    """A `SecretStr`, a field called password, and a credential in the middle of a text."""
    path = tmp_path / "agent.jsonl"
    with JsonlLog(path) as log:
        arguments = {
            "order": 1,
            "pin": "4711-4711",
            "password": "correct8horse",
            "note": "see postgres://app:hunter2@db/app",
        }
        execute_tool(PAY, arguments, session=listening(log))
        execute_tool(PAY, {**arguments, "order": "x"}, session=listening(log))
        log({"api_key": "sk-ant-REDACTED"})
    text = path.read_text()
    assert len(lines(path)) == 3
    for secret in ("4711-4711", "correct8horse", "hunter2", "fxRzPpJmcU4Lk9q8"):
        assert secret not in text


def test_the_file_is_the_owners_alone_also_after_it_was_rotated(tmp_path: Path) -> None:
    """Files that are made get the mode 0600 under any umask; one that was there keeps its own."""
    before = os.umask(0)
    try:
        with JsonlLog(tmp_path / "a.jsonl", max_bytes=200) as log:
            for number in range(4):
                log(number)
        (tmp_path / "shared.jsonl").touch(0o640)
        with JsonlLog(tmp_path / "shared.jsonl") as log:
            log(1)
    finally:
        os.umask(before)
    assert {oct(path.stat().st_mode & 0o777) for path in tmp_path.glob("a.jsonl*")} == {"0o600"}
    assert (tmp_path / "shared.jsonl").stat().st_mode & 0o777 == 0o640


def test_a_full_file_is_rotated_and_the_oldest_go(tmp_path: Path) -> None:
    """No file grows above the limit, so many of them are kept, and they are read in order."""
    path = tmp_path / "agent.jsonl"
    with JsonlLog(path, max_bytes=1000, backups=2) as log:
        for number in range(50):
            log(number)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["agent.jsonl", "agent.jsonl.1", "agent.jsonl.2"]
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    read = [line["data"] for line in JsonlLog.read(path)]
    assert read == list(range(50 - len(read), 50))
    assert len(read) > 10


def test_without_backups_a_full_file_begins_anew(tmp_path: Path) -> None:
    """`backups=0` keeps one file."""
    path = tmp_path / "agent.jsonl"
    with JsonlLog(path, max_bytes=400, backups=0) as log:
        for number in range(20):
            log(number)
    assert list(tmp_path.iterdir()) == [path]
    assert lines(path)[-1]["data"] == 19


def test_one_line_above_the_limit_is_written_whole(tmp_path: Path) -> None:
    """A line that is larger than a file has one of its own."""
    path = tmp_path / "agent.jsonl"
    with JsonlLog(path, max_bytes=300) as log:
        for text in ("a", "b" * 5000, "c"):
            log(text)
    assert [len(line["data"]) for line in JsonlLog.read(path)] == [1, 5000, 1]


def test_a_file_that_cannot_be_rotated_grows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A directory stands where the backup would go: nothing is lost, and it is said once."""
    path = tmp_path / "agent.jsonl"
    (tmp_path / "agent.jsonl.1").mkdir()
    (tmp_path / "agent.jsonl.1" / "x").touch()
    with JsonlLog(path, max_bytes=300, backups=1) as log:
        for number in range(20):
            log(number)
    assert [line["data"] for line in lines(path)] == list(range(20))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# What happens to the file.


@pytest.mark.parametrize("how", ["moved", "deleted", "cut", "directory"])
def test_a_file_that_another_program_moves_deletes_or_cuts_is_made_again(how: str, tmp_path: Path) -> None:
    """As logrotate does it, with and without `copytruncate`; no signal is needed."""
    (tmp_path / "logs").mkdir()
    path, moved = tmp_path / "logs" / "agent.jsonl", tmp_path / "moved"
    with JsonlLog(path) as log:
        log("before")
        match how:
            case "moved":
                path.rename(moved)
            case "deleted":
                path.unlink()
            case "cut":
                os.truncate(path, 0)
            case _:
                path.parent.rename(tmp_path / "other")
                path.parent.mkdir()
        log("after")
    assert [line["data"] for line in lines(path)] == ["after"]
    assert log.lost == 0


def test_lines_are_lost_while_the_directory_is_gone_and_the_log_says_how_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No call fails; the first loss is logged, and the next line that can be written tells of them."""
    path = tmp_path / "logs" / "agent.jsonl"
    path.parent.mkdir()
    with JsonlLog(path) as log:
        session = listening(log)
        path.unlink()
        path.parent.rmdir()
        replies = [execute_tool(PAY, {"order": number}, session=session) for number in range(3)]
        assert all(reply.success for reply in replies)
        assert log.lost == 3
        path.parent.mkdir()
        execute_tool(PAY, {"order": 8}, session=session)
        execute_tool(PAY, {"order": 9}, session=session)
    told, *rest = lines(path)
    assert (told["type"], told["data"]) == ("EventsLost", {"count": 3})
    assert [line["data"]["params"]["order"] for line in rest] == [8, 9]
    assert session[Paid].count() == 5
    assert sum("Events are not written" in record.message for record in caplog.records) == 1


def test_a_full_disk_costs_lines_or_with_required_the_call() -> None:
    """/dev/full: without `required` calls stay; with it they are undone, and refused calls are answered as ever."""
    dropping, insisting = JsonlLog("/dev/full"), JsonlLog("/dev/full", required=True)
    kept, undone = listening(dropping), listening(insisting)
    assert execute_tool(PAY, {"order": 7}, session=kept).success
    assert (dropping.lost, kept[Paid].count()) == (1, 1)
    execute_tool(PAY, {"order": 7}, session=undone)
    execute_tool(PAY, {"order": "x"}, session=undone)
    assert [event.outcome for event in undone[ToolInvoked].all()] == ["undone", "invalid"]
    assert undone[Paid].count() == 0


def test_an_evaluation_goes_on_when_its_own_events_cannot_be_written() -> None:
    """Also with `required`: only a call can be undone, a model that was asked was asked."""
    with JsonlLog("/dev/full", required=True) as log:
        prompt = Prompt[str](name="desk", sections=[MarkdownSection(title="Task", template="Pay.")])
        response = ScriptedAdapter(say("Done.")).evaluate(prompt, listening(log))
    assert response.text == "Done."


def test_a_wrong_path_is_an_error_at_once(tmp_path: Path) -> None:
    """A directory that is missing, a directory itself, and limits that make no sense."""
    with pytest.raises(FileNotFoundError):
        JsonlLog(tmp_path / "none" / "agent.jsonl")
    with pytest.raises(IsADirectoryError):
        JsonlLog(tmp_path)
    with pytest.raises(ValueError, match="max_bytes"):
        JsonlLog(tmp_path / "agent.jsonl", max_bytes=0)


def test_a_symlink_is_followed_once_and_one_that_is_planted_later_is_not(tmp_path: Path) -> None:
    """What is rotated is the file behind the link; a link in its place cannot lead the log elsewhere."""
    (tmp_path / "logs").mkdir()
    link, real, victim = tmp_path / "link.jsonl", tmp_path / "logs" / "real.jsonl", tmp_path / "victim"
    link.symlink_to(real)
    victim.write_text("mine\n")
    with JsonlLog(link, max_bytes=300, backups=1) as log:
        for number in range(10):
            log(number)
        assert link.is_symlink()
        real.unlink()
        real.symlink_to(victim)
        log("led astray")
    assert victim.read_text() == "mine\n"
    assert log.lost == 1


def test_a_named_pipe_that_is_not_read_does_not_stop_a_call(tmp_path: Path) -> None:
    """It takes what it can hold; then lines are dropped."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with JsonlLog(pipe) as log:
        for _ in range(200):
            log("x" * 4000)
        assert log.lost > 100


def test_a_descriptor_that_was_closed_by_someone_else_is_left_alone(tmp_path: Path) -> None:
    """A program that closes all descriptors, as daemons do: the next line is in the log, not in what has the number."""
    path, other = tmp_path / "agent.jsonl", tmp_path / "other"
    with JsonlLog(path) as log:
        log(1)
        number = next(int(fd) for fd in os.listdir("/proc/self/fd") if _leads_to(fd, path))
        with other.open("w") as file:
            os.dup2(file.fileno(), number)
        log(2)
        os.write(number, b"mine")
        os.close(number)
    assert [line["data"] for line in lines(path)] == [1, 2]
    assert other.read_text() == "mine"


def _leads_to(fd: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}") == str(path)
    except OSError:
        return False


def test_after_close_the_next_event_opens_it_again(tmp_path: Path) -> None:
    """Closing twice does nothing."""
    path = tmp_path / "agent.jsonl"
    log = JsonlLog(path)
    log(1)
    log.close()
    log.close()
    log(2)
    log.close()
    assert [line["data"] for line in lines(path)] == [1, 2]


# Torn lines.


def test_a_line_that_is_being_written_is_not_taken_for_a_torn_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process's long line is seen in the file while it grows; no empty line comes after it."""
    path = tmp_path / "agent.jsonl"
    log = JsonlLog(path)
    log("first")
    with path.open("ab") as other:
        other.write(b'{"half": ')
        other.flush()

        def write_the_rest(_: float) -> None:
            other.write(b"true}\n")
            other.flush()
            monkeypatch.undo()

        monkeypatch.setattr(time, "sleep", write_the_rest)
        log("second")
    assert [type(json.loads(line)) for line in path.read_bytes().splitlines()] == [dict, dict, dict]
    log.close()


def test_a_torn_line_is_ended_before_the_next_and_left_out_when_read(tmp_path: Path) -> None:
    """As a process leaves it that is killed within a write; also in the middle of a character."""
    path = tmp_path / "agent.jsonl"
    with JsonlLog(path) as log:
        log("one")
        with path.open("ab") as file:
            file.write(b'{"time": "2026-01-01", "type": "To\xc3')
        assert [line["data"] for line in JsonlLog.read(path)] == ["one"]
        log("two")
    with path.open("ab") as file:
        file.write(b'"torn')
    with JsonlLog(path) as log:
        log("three")
    assert [line["data"] for line in JsonlLog.read(path)] == ["one", "two", "three"]


WRITER = """
import os, sys
from weakincentives.runtime import JsonlLog
log = JsonlLog(sys.argv[1], max_bytes=int(sys.argv[2]), backups=3)
log({"pid": os.getpid(), "number": 0})
print("ready", flush=True)
number = 1
while number != int(sys.argv[3]):
    if sys.argv[4:] and number in (1, int(sys.argv[3]) - 1):  # begin together, and end when all are about to
        print("waiting", flush=True)
        sys.stdin.readline()
    log({"pid": os.getpid(), "number": number, "text": "x" * (number % 7 * 5000)})
    number += 1
"""


@pytest.mark.slow
def test_killed_at_any_moment_no_line_but_the_last_is_damaged(tmp_path: Path) -> None:
    """`kill -9` again and again, into one file: of each process all lines are there from the first to the last."""
    path = tmp_path / "agent.jsonl"
    for round_ in range(4):
        arguments = [sys.executable, "-c", WRITER, str(path), "1000000000", "-1"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.01 + round_ * 0.02)
            process.kill()
    numbers: dict[int, list[int]] = {}
    for line in JsonlLog.read(path):
        numbers.setdefault(line["data"]["pid"], []).append(line["data"]["number"])
    assert numbers
    assert all(found == list(range(len(found))) for found in numbers.values())


@pytest.mark.slow
def test_several_processes_share_a_file_and_rotate_it(tmp_path: Path) -> None:
    """Three processes, small files: each line that is kept is whole, and those of a process are in order."""
    path = tmp_path / "agent.jsonl"
    arguments = [sys.executable, "-c", WRITER, str(path), "400000", "120", "together"]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
    for _ in range(2):  # else one may be done, and its lines be rotated away, before another has begun
        for process in processes:
            assert process.stdout is not None
            while (said := process.stdout.readline()) != "waiting\n":
                assert said == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.wait() for process in processes] == [0, 0, 0]
    files = sorted(tmp_path.iterdir())
    assert len(files) == 4
    numbers: dict[int, list[int]] = {}
    for file in reversed(files):
        for line in lines(file):
            numbers.setdefault(line["data"]["pid"], []).append(line["data"]["number"])
    assert len(numbers) == 3
    assert all(len(set(found)) == len(found) and found[-1] == 119 for found in numbers.values())


def test_a_write_that_breaks_off_in_the_middle_leaves_one_torn_line(tmp_path: Path) -> None:
    """The disk fills up within a line (here: the limit of a file's size); once there is room, the log goes on."""
    path = tmp_path / "agent.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with JsonlLog(path) as log:
        log("one")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            log("x" * 5000)
            log("y" * 5000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert path.stat().st_size == 1000
        log("two")
    assert [line["data"] for line in JsonlLog.read(path)] == ["one", {"count": 2}, "two"]


def test_interrupts_tear_no_line_of_another_event(tmp_path: Path) -> None:
    """A signal handler that raises, a few thousand times, in the middle of writing."""
    path = tmp_path / "agent.jsonl"

    def stop(_signum: int, _frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, stop)
    written: set[int] = set()
    log = JsonlLog(path, max_bytes=200_000, backups=100)
    try:
        for number in range(1500):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00002 + number % 40 * 0.00001)
                log(number)
                signal.setitimer(signal.ITIMER_REAL, 0)
                written.add(number)
            except KeyboardInterrupt:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    log("last")
    log.close()
    read = [line["data"] for line in JsonlLog.read(path)]
    assert written <= set(read)
    assert len(written) < 1500
    assert read[-1] == "last"


# Threads and forks.


def test_threads_write_whole_lines_while_the_file_is_rotated(tmp_path: Path) -> None:
    """Eight threads: nothing is missing and nothing comes twice."""
    path = tmp_path / "agent.jsonl"
    log = JsonlLog(path, max_bytes=20_000, backups=1000)

    def write(thread: int) -> None:
        for number in range(200):
            log({"thread": thread, "number": number})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    read = [(line["data"]["thread"], line["data"]["number"]) for line in JsonlLog.read(path)]
    assert sorted(read) == [(thread, number) for thread in range(8) for number in range(200)]


FORKING = """
import os, sys, threading, time
from weakincentives.runtime import JsonlLog
log = JsonlLog(sys.argv[1], max_bytes=5000, backups=400)
stop = threading.Event()
def busy():
    while not stop.is_set():
        log("busy"); time.sleep(0.001)
thread = threading.Thread(target=busy); thread.start()
children = []
for child in range(8):
    pid = os.fork()
    if pid == 0:
        for number in range(20):
            log([child, number])
        os._exit(log.lost)
    children.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
stop.set(); thread.join()
assert codes == [0] * 8, codes
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_children_that_were_forked_in_the_middle_of_a_write_write_on(tmp_path: Path) -> None:
    """The lock that another thread held at the fork is not the child's; its lines are whole and all there."""
    path = tmp_path / "agent.jsonl"
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(path)]
    subprocess.run(command, check=True, timeout=40)
    read = [tuple(line["data"]) for line in JsonlLog.read(path) if line["data"] != "busy"]
    assert sorted(read) == [(child, number) for child in range(8) for number in range(20)]


def test_a_call_with_a_deadline_is_written_from_the_thread_that_serves_it(tmp_path: Path) -> None:
    """Subscribers of calls with a limit run in a thread of their own."""
    path = tmp_path / "agent.jsonl"
    with JsonlLog(path) as log:
        prompt = Prompt[str](name="desk", sections=[MarkdownSection(title="Task", template="Pay.", tools=[PAY])])
        deadline = Deadline.after(timedelta(minutes=1))
        ScriptedAdapter(call("pay", order=7), say("Done.")).evaluate(prompt, listening(log), deadline=deadline)
    assert lines(path)[1]["data"]["outcome"] == "succeeded"


# Hostile values.


class Broken:
    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("no")


@dataclass(frozen=True)
class Odd:
    value: object


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


CYCLE: list[Any] = []
CYCLE.append(CYCLE)

HOSTILE: list[Any] = [
    "two\nlines\r\n\u2028\x00\x1b[2J",
    "half a pair \ud800",
    {"\ud800": "\udfff", "fine": 1},
    b"\xff\xfe",
    float("nan"),
    10**400,
    {1: 2, (1, 2): 3, None: 4},
    object(),
    Odd(object()),
    Odd(Broken()),
    Odd(nested(100_000)),
    nested(500),
    CYCLE,
    int,
]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: type(value).__name__)
def test_values_of_any_kind_are_one_line(value: Any, tmp_path: Path) -> None:
    """Line breaks, half characters, cycles and objects without a JSON form: one line of ASCII, nothing lost."""
    path = tmp_path / "agent.jsonl"
    with JsonlLog(path, required=True) as log:
        log(value)
        log("next")
    first, second = path.read_bytes().splitlines()
    assert json.loads(first)["type"]
    assert json.loads(second)["data"] == "next"


def test_an_event_that_cannot_even_be_asked_is_lost_and_nothing_else(tmp_path: Path) -> None:
    """An object whose every attribute raises."""
    path = tmp_path / "agent.jsonl"
    with JsonlLog(path) as log:
        log(Broken())
        log("next")
    assert [line["type"] for line in lines(path)] == ["EventsLost", "builtins.str"]


def test_huge_values_are_cut_and_still_masked(tmp_path: Path) -> None:
    """A text of two megabytes and a list of many numbers: lines stay short enough to be read."""
    path = tmp_path / "agent.jsonl"
    with JsonlLog(path) as log:
        log({"text": "password=hunter2 " + "x" * 2_000_000})
        log(list(range(200_000)))
        log("x" * 300_000)
    text, numbers, single = path.read_bytes().splitlines()
    assert max(map(len, (text, numbers, single))) < 1024 * 1024
    assert json.loads(numbers)["data"]["cut"].startswith("[0, 1, 2")
    assert b"hunter2" not in text
    assert json.loads(single)["data"].endswith("more characters]")


@pytest.mark.parametrize("when", [float("nan"), float("inf"), 1e300, "yesterday", None])
def test_a_time_that_is_none_does_not_cost_the_line(when: object, tmp_path: Path) -> None:
    """A clock of the user's may say anything."""

    class Event:
        timestamp = when

    path = tmp_path / "agent.jsonl"
    with JsonlLog(path, required=True) as log:
        log(Event())
    assert lines(path)[0]["time"]


def test_the_logger_may_log_into_the_log(tmp_path: Path) -> None:
    """A handler that writes log records as events, called while a line is lost: no deadlock, no endless loop."""
    path = tmp_path / "agent.jsonl"
    log = JsonlLog("/dev/full")
    kept = JsonlLog(path)

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log(record.getMessage())
            kept(record.getMessage())

    logger, handler = logging.getLogger("weakincentives.runtime.jsonl_log"), Handler()
    logger.addHandler(handler)
    try:
        log("x")
    finally:
        logger.removeHandler(handler)
    assert log.lost == 2
    assert "No space left" in lines(path)[0]["data"]
