"""The loop: one request, one process, one answer; in between nothing runs and nothing is kept but the workspace."""

from __future__ import annotations

import ast
import ctypes
import io
import json
import linecache
import os
import resource
import shutil
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from ...code.wire import Encoder, OwnerGoneError, clean, pack_bytes, receive, send, unpack_bytes, write_all
from .processes import Capture, Ended, Feed, Watch, become_init, end_all, remove_ipc, scheduling, spawn
from .scratch import Bounds, collect, lay_out, over, wipe

IN, OUT = 200, 201
"""The owner's pipes, where no program looks for them."""

RESULT = 3
"""The descriptor that takes the result of evaluated code."""

WORKSPACE = "/workspace"
SCRATCH = ("/tmp", "/dev/shm")
TIDY_SECONDS = 2.0
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
        become_init()
        send(OUT, {"facts": facts(paths)})
        at_first = scheduling()
        while True:
            request = receive(IN)
            answer: dict[str, Any]
            try:
                answer = _ACTS[request["act"]](request)
            except OSError as error:
                answer = {"how": "broken", "why": str(error)}
            ended = end_all(TIDY_SECONDS)
            until = time.monotonic() + TIDY_SECONDS
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
    feed = Feed(unpack_bytes(request["stdin"]))

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
        "stdout": pack_bytes(bytes(stdout.kept)),
        "stderr": pack_bytes(bytes(stderr.kept)),
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
        "stdout": pack_bytes(bytes(said.kept)),
        "stdout_bytes": said.count,
        "result": pack_bytes(bytes(result.kept)),
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
        if not end_all(TIDY_SECONDS):
            return Ended("stuck")
        for capture in captures:
            capture.finish()
        return ended
    finally:
        feed.close()
        for capture in captures:
            capture.close()


# What is in force in here, as the kernel says it; the owner decides whether that is enough.

_CGROUP = "/sys/fs/cgroup"
_NEW_USER = 0x10000000
_VSOCK = 40
_KERNEL = ("/proc", "/dev", "/sys/fs/cgroup")
"""Mounted writable in every container; their files have owners."""


def facts(paths: list[str]) -> dict[str, Any]:
    """Limits, privileges, network and which of the paths can be written to."""
    status = _status()
    return {
        "python": list(sys.version_info[:3]),
        "pid": os.getpid(),
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "groups": os.getgroups(),
        "memory": _number("memory.max", "memory/memory.limit_in_bytes"),
        "swap": _swap(),
        "pids": _number("pids.max", "pids/pids.max"),
        "cpus": _cpus(),
        "capabilities": {name: status.get(name) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")},
        "no_new_privileges": status.get("NoNewPrivs"),
        "seccomp": status.get("Seccomp"),
        "opened": _opened(),
        "interfaces": _interfaces(),
        "read_only": {path: bool(os.statvfs(path).f_flag & os.ST_RDONLY) for path in paths},
        "mounts": _writable(),
    }


def _opened() -> list[str]:
    """What a process can get into though it must not; tried in one that is over then."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(_NEW_USER) == 0:
                os.write(write, b"user namespaces\n")
            if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0:
                os.write(write, b"mounts\n")
            if libc.socket(_VSOCK, 1, 0) >= 0:
                os.write(write, b"sockets of virtual machines\n")
            os.write(write, b"done\n")
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as file:
        told = file.read().splitlines()
    os.waitpid(child, 0)
    return told[:-1] if told[-1:] == ["done"] else ["unknown"]


def _writable() -> list[str]:
    """Every place that is mounted to be written, but those of the kernel's that this user cannot write to."""
    found: list[str] = []
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            where, options = line.split(" ")[1], line.split(" ")[3]
            for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                where = where.replace(code, character)
            if "rw" not in options.split(","):
                continue
            of_kernel = any(where == path or where.startswith(path + "/") for path in _KERNEL)
            if of_kernel and (not os.access(where, os.W_OK) or stat.S_ISCHR(os.stat(where).st_mode)):
                continue
            found.append(where)
    return found


def _status() -> dict[str, str]:
    with open("/proc/self/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def _interfaces() -> list[str]:
    with open("/proc/net/dev") as file:
        return sorted(line.partition(":")[0].strip() for line in file if ":" in line)


def _first(*names: str) -> str | None:
    for name in names:
        try:
            with open(os.path.join(_CGROUP, name)) as file:
                return file.read().strip()
        except OSError:
            continue
    return None


def _number(*names: str) -> int | None:
    """The limit, or None when there is none."""
    text = _first(*names)
    return int(text) if text is not None and text.isdigit() else None


def _swap() -> int | None:
    """Bytes of swap it may use, or None when nothing bounds them."""
    own = _number("memory.swap.max")
    if own is not None:
        return own
    both = _number("memory/memory.memsw.limit_in_bytes")
    memory = _number("memory/memory.limit_in_bytes")
    if both is not None and memory is not None:
        return both - memory
    with open("/proc/swaps") as file:
        return None if len(file.readlines()) > 1 else 0


def _cpus() -> float | None:
    text = _first("cpu.max")
    if text is None:
        quota = _first("cpu/cpu.cfs_quota_us", "cpu,cpuacct/cpu.cfs_quota_us")
        period = _first("cpu/cpu.cfs_period_us", "cpu,cpuacct/cpu.cfs_period_us")
        text = f"{quota} {period}"
    quota, _, period = text.partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


# Evaluating code, in a process that was forked for it and is killed afterwards.

NAME = "<code>"


def evaluate(code: str, inputs: dict[str, Any], directory: str, limits: dict[str, Any]) -> None:
    """Run the code and write the result, as JSON, to its descriptor."""
    os.chdir(directory)
    sys.path.insert(0, "")
    sys.stdin = open(0)
    sys.stdout = _stream(1)
    sys.stderr = _stream(2)
    linecache.cache[NAME] = (len(code), None, code.splitlines(True), NAME)
    outcome: dict[str, Any] = {}
    try:
        body = ast.parse(code, NAME)
        final = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
        names: dict[str, Any] = {"__name__": "__main__", **inputs}
        program = compile(body, NAME, "exec")
        _limit(limits)
        exec(program, names)
        value = eval(compile(ast.Expression(final.value), NAME, "eval"), names) if isinstance(final, ast.Expr) else None
        outcome["value"] = Encoder(int(limits["output"]) + 100, cut=True).encode(value)
    except BaseException as error:
        outcome = {"error": _explained(error)}
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    write_all(RESULT, json.dumps(outcome).encode())


def _stream(fd: int) -> io.TextIOWrapper:
    # A line at a time, so that what is written to both comes out in order.
    return io.TextIOWrapper(open(fd, "wb"), encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _limit(limits: dict[str, Any]) -> None:
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()  # of the address space in use
    for what, most in (
        (resource.RLIMIT_AS, size + int(limits["memory"])),
        (resource.RLIMIT_FSIZE, int(limits["file_bytes"])),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    # At the first it is SIGXCPU that ends it, so that it can be told from want of memory.
    seconds = int(limits["seconds"]) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    sys.setrecursionlimit(int(limits["recursion"]) + 20)


def _explained(error: BaseException) -> str:
    """The lines of the code that led there, and the error; the end of it when it is long."""
    # The code may have run into a limit that making this text would run into again.
    sys.setrecursionlimit(1000)
    try:
        if isinstance(error, RecursionError) or error.__traceback__ is None:
            frames: list[str] = []
        else:
            found = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == NAME]
            frames = traceback.format_list(found[-10:])
        text = "".join(frames) + "".join(traceback.format_exception_only(type(error), error))
    except BaseException as second:
        text = f"{type(error).__name__} (it cannot be shown: {type(second).__name__})"
    text = clean(text.strip("\n"))
    return text if len(text) <= 4000 else "...\n" + text[-4000:]


_ACTS = {"run": _run, "evaluate": _evaluate}

if __name__ == "__main__":
    main(sys.argv[1:])
