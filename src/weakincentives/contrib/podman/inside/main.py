"""The loop: one request, one process, one answer; in between nothing runs and nothing is kept but the workspace."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from .evaluation import RESULT, evaluate
from .facts import facts
from .ipc import remove_ipc
from .processes import Capture, Ended, Feed, Watch, end_all, scheduling, spawn, take_charge
from .scratch import Bounds, collect, lay_out, over, wipe
from .wire import OwnerGoneError, packed, receive, send, unpacked

IN, OUT = 200, 201
"""The owner's pipes, where no program looks for them."""

WORKSPACE = "/workspace"
SCRATCH = ("/tmp", "/dev/shm")
PATIENCE = 2.0
"""Seconds that ending all processes, and emptying the scratch directories, may take."""


def main(paths: list[str]) -> None:
    """Work for the owner until it is gone."""
    os.dup2(0, IN, inheritable=False)
    os.dup2(1, OUT, inheritable=False)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(RESULT + 1):
        os.dup2(null, fd)
    os.umask(0o022)
    try:
        take_charge()
        send(OUT, {"facts": facts(paths)})
        at_first = scheduling()
        while True:
            request = receive(IN)
            answer: dict[str, Any]
            try:
                answer = _ACTS[request["act"]](request)
            except OSError as error:
                answer = {"how": "broken", "why": str(error)}
            ended = end_all(PATIENCE)
            until = time.monotonic() + PATIENCE
            tidied = ended and remove_ipc() and not [path for path in SCRATCH if not wipe(path, until)]
            answer["clean"] = tidied and scheduling() == at_first
            answer["id"] = request["id"]
            send(OUT, answer)
    except (OwnerGoneError, BrokenPipeError):
        os._exit(0)


def _run(request: dict[str, Any]) -> dict[str, Any]:
    """A program, with its input; what it said, and how it ended."""
    cwd = os.path.join(WORKSPACE, request["cwd"])
    if not os.path.isdir(cwd):
        return {"how": "no_directory"}
    look = _looking(request)
    already = look(True)
    if already is not None:
        return {"how": "before", "why": already}
    stdout, stderr = Capture(request["output"]), Capture(request["output"])
    feed = Feed(unpacked(request["stdin"]))

    most = request["bounds"]["disk"]

    def work() -> None:
        os.chdir(cwd)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o022)
        shell = shutil.which("bash") or "/bin/sh"
        os.execve(shell, [shell, "-c", request["command"]], request["env"])

    ended = _supervised(request, work, {1: stdout, 2: stderr}, feed, look)
    if ended.how == "exit":
        why = look(True)
        ended = ended if why is None else Ended("disk", why=why)
    return {
        "how": ended.how,
        "why": ended.why,
        "code": _code(ended.status),
        "stdout": packed(bytes(stdout.kept)),
        "stderr": packed(bytes(stderr.kept)),
        "stdout_bytes": stdout.count,
        "stderr_bytes": stderr.count,
    }


def _evaluate(request: dict[str, Any]) -> dict[str, Any]:
    """Code, in a process forked for it; its result is passed on unread."""
    limits = request["limits"]
    look = _looking(request)
    already = look(True)
    if already is not None:
        return {"how": "before", "why": already}
    directory = os.path.join(SCRATCH[0], "evaluation")
    lay_out(directory, request["contents"], request["writable"])
    said, result = Capture(request["output"]), Capture(request["result"])
    feed = Feed(b"")

    def work() -> None:
        os.environ.clear()
        os.environ.update(request["env"])
        evaluate(request["code"], request["inputs"], directory, limits)

    ended = _supervised(request, work, {1: said, 2: said, RESULT: result}, feed, look)
    answer: dict[str, Any] = {
        "how": ended.how,
        "why": ended.why,
        "code": _code(ended.status),
        "stdout": packed(bytes(said.kept)),
        "stdout_bytes": said.count,
        "result": packed(bytes(result.kept)),
        "written": {},
    }
    if ended.how == "exit":
        why = look(True)
        if why is not None:
            answer.update(how="disk", why=why)
            return answer
        try:
            answer["written"] = collect(directory, request["writable"], limits["file_bytes"])
        except ValueError as error:
            answer.update(how="files", why=str(error))
    return answer


def _code(status: int) -> int:
    """What it returned, or minus the signal that killed it."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def _looking(request: dict[str, Any]) -> Callable[[bool], str | None]:
    bounds = Bounds(**request["bounds"])
    return lambda final: over(WORKSPACE, bounds, final)


def _supervised(
    request: dict[str, Any],
    work: Callable[[], None],
    outputs: dict[int, Capture],
    feed: Feed,
    look: Callable[[bool], str | None],
) -> Ended:
    """Start it, stay with it, end all that is left of it, and take the last it said."""
    captures = list({id(capture): capture for capture in outputs.values()}.values())
    descriptors = {0: feed.read_end, **{number: capture.write_end for number, capture in outputs.items()}}
    watch = Watch(IN, request["seconds"], request["flood"], look)
    child = spawn(work, descriptors)
    for end in (*captures, feed):
        end.started()
    try:
        ended = watch.until_end(child, captures, feed)
        if not end_all(PATIENCE):
            return Ended("stuck")
        for capture in captures:
            capture.finish()
        return ended
    finally:
        feed.close()
        for capture in captures:
            capture.close()


_ACTS = {"run": _run, "evaluate": _evaluate}

if __name__ == "__main__":
    main(sys.argv[1:])
