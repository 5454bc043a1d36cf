"""Starting a process, watching it, and making sure that nothing of it is left."""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ...code.wire import OwnerGoneError

TICK = 0.1
"""Seconds between two looks at the workspace."""

_PR_SET_DUMPABLE = 4
_libc = ctypes.CDLL(None, use_errno=True)
_wakeup = (-1, -1)
_is_init = False


def become_init() -> None:
    """Take the role of init: adopt orphans, and end everything else. Only as process 1 of a container."""
    global _is_init, _wakeup
    if os.getpid() != 1:
        raise RuntimeError("This must be process 1 of a container: it kills all other processes.")
    # Same user as all it runs, so nothing of it may be read or traced.
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, _noted)
    signal.set_wakeup_fd(_wakeup[1], warn_on_full_buffer=False)
    _is_init = True


def scheduling() -> tuple[object, ...]:
    """How this process is given processors: what it starts inherits that, and any process of its user can change it."""
    return os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), os.sched_getaffinity(0)


def _noted(number: int, frame: object) -> None:
    """A child has ended: the wake-up pipe says so."""


def end_all(patience: float) -> bool:
    """Kill every other process and wait until none is left; False when some are left after that time.

    Process 1 is the last parent of all: when it has no children, nothing runs.
    """
    if not _is_init or os.getpid() != 1:
        raise RuntimeError("This must run as process 1 of the container's namespace.")
    until = time.monotonic() + patience
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if time.monotonic() > until:
            return False
        time.sleep(0.0005)


def spawn(work: Callable[[], None], descriptors: dict[int, int]) -> int:
    """Fork a process that has these descriptors, by number, and no others; it ends when the work returns."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        for target, source in descriptors.items():
            os.dup2(source, target)
        os.closerange(max(descriptors) + 1, 4096)
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        _first_to_go()
        work()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(127)
    return 0


def _first_to_go() -> None:
    """When memory runs out, this process goes before process 1."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


class _PipeEnds:
    """Both ends of a new pipe."""

    def __init__(self) -> None:
        self.read_end: int
        self.write_end: int
        self.read_end, self.write_end = os.pipe2(os.O_CLOEXEC)


class Capture(_PipeEnds):
    """The first bytes that come out of a pipe, and how many there were."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        os.set_blocking(self.read_end, False)
        self.kept: bytearray = bytearray()
        self.count: int = 0
        self._limit = limit

    def drain(self) -> bool:
        """Take what is there; False when no more will come."""
        try:
            return self._take()
        except BlockingIOError:
            return True

    def finish(self) -> None:
        """Take the rest. Nothing writes any more, though the other end may be open in a socket out of reach."""
        try:
            while self._take():
                pass
        except BlockingIOError:
            pass

    def _take(self) -> bool:
        data = os.read(self.read_end, 1 << 16)
        self.count += len(data)
        self.kept += data[: max(0, self._limit - len(self.kept))]
        return bool(data)

    def started(self) -> None:
        """The process has its end: this one lets go of it."""
        os.close(self.write_end)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.read_end)


class Feed(_PipeEnds):
    """Bytes for a process to read, as fast as it takes them."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        os.set_blocking(self.write_end, False)
        self._rest = memoryview(data)
        self._open = True

    def push(self) -> bool:
        """Give what it takes; False when that was all, or it takes no more."""
        try:
            self._rest = self._rest[os.write(self.write_end, self._rest[: 1 << 16]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return bool(self._rest)

    def started(self) -> None:
        """The process has its end: this one lets go of it."""
        os.close(self.read_end)

    def close(self) -> None:
        """Signal the end of the input; calling it twice is fine."""
        if self._open:
            self._open = False
            os.close(self.write_end)


class Ended(NamedTuple):
    """How it ended: "exit" with a wait status, "timeout", "flood", or "disk" and why."""

    how: str
    status: int = 0
    why: str = ""


class Watch:
    """Stays with one process until it ends or must be ended.

    Args:
        control: the pipe to the owner; when something happens there, it is gone.
        seconds: how long it may take.
        flood: how many bytes it may say in all.
        look: what is wrong by now, or None; asked now and then, with False: it is still running.
    """

    def __init__(self, control: int, seconds: float, flood: int, look: Callable[[bool], str | None]) -> None:
        self._control = control
        self._deadline = time.monotonic() + seconds
        self._flood = flood
        self._look = look

    def until_end(self, child: int, captures: list[Capture], feed: Feed | None) -> Ended:
        """How it ended; whatever it left running is left running."""
        next_look = time.monotonic() + TICK
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(_wakeup[0], selectors.EVENT_READ)
            for capture in captures:
                selector.register(capture.read_end, selectors.EVENT_READ, capture)
            if feed is not None:
                selector.register(feed.write_end, selectors.EVENT_WRITE, feed)
            while True:
                now = time.monotonic()
                if now >= next_look:
                    why = self._look(False)
                    if why is not None:
                        return Ended("disk", why=why)
                    next_look = time.monotonic() + max(TICK, 4 * (time.monotonic() - now))
                status = _reaped(child)
                if status is not None:
                    return Ended("exit", status)
                if now >= self._deadline:
                    return Ended("timeout")
                if sum(capture.count for capture in captures) > self._flood:
                    return Ended("flood")
                self._wait(selector, min(self._deadline, next_look) - time.monotonic())

    def _wait(self, selector: selectors.BaseSelector, seconds: float) -> None:
        for key, _ in selector.select(max(0.0, seconds)):
            if key.fd == self._control:
                raise OwnerGoneError
            if isinstance(key.data, Capture):
                if not key.data.drain():
                    selector.unregister(key.fd)
            elif isinstance(key.data, Feed):
                if not key.data.push():
                    selector.unregister(key.fd)
                    key.data.close()
            else:
                try:
                    os.read(key.fd, 4096)
                except BlockingIOError:
                    pass


def _reaped(child: int) -> int | None:
    """The child's wait status, if it has ended; orphans that have ended are let go as well."""
    found: int | None = None
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                found = status
            if pid == 0:
                return found
    except ChildProcessError:
        return found


# Semaphores, segments and queues of System V belong to no process, so they would outlive a call.

_REMOVE = 0
"""IPC_RMID."""


def remove_ipc() -> bool:
    """Remove all that there are in here; whether none is left. Nothing else may be running."""
    found = [(kind, number) for kind in _REMOVERS for number in _numbers(kind)]
    if not found:
        return True
    for kind, number in found:
        _REMOVERS[kind](_libc, number)
    return not any(_numbers(kind) for kind in _REMOVERS)


_REMOVERS: dict[str, Callable[[Any, int], object]] = {
    "sem": lambda libc, number: libc.semctl(number, 0, _REMOVE),
    "shm": lambda libc, number: libc.shmctl(number, _REMOVE, None),
    "msg": lambda libc, number: libc.msgctl(number, _REMOVE, None),
}


def _numbers(kind: str) -> list[int]:
    """The number of each object of a kind, from a table whose second column it is."""
    try:
        with open(f"/proc/sysvipc/{kind}") as file:
            return [int(line.split()[1]) for line in file.readlines()[1:]]
    except FileNotFoundError:  # a kernel without them
        return []
