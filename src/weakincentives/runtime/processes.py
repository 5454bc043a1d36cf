"""Worker processes for handlers that must be stoppable: only SIGKILL stops a busy loop in C.

Workers are started when first needed, kept for the next call, and killed with everything they started when a handler
is out of time. A handler there gets its params, the deadline, the run context and the idempotency key; its beats are
passed on; state goes through its result.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, final
from weakref import WeakSet

from ..errors import StaleCallError, WinkError
from ..interrupts import Lock
from ..run_context import Heartbeat
from .redaction import text_of

MAX_IDLE = 4


class WorkerDiedError(WinkError):
    """A worker process ended before it answered."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is asked to do: call an importable function."""

    function: Callable[..., Any]
    args: tuple[Any, ...]

    def packed(self) -> bytes:
        """As bytes for the pipe; `WinkError` when something in it cannot be pickled."""
        try:
            return pickle.dumps(self)
        except Exception as error:
            raise WinkError(f"what the handler should get cannot be sent to its process: {text_of(error)}") from error


class WorkerReply(NamedTuple):
    """What came back from a worker: the result, or the exception when `done` is false."""

    done: bool
    value: Any

    def get(self) -> Any:
        """The result; raises the exception."""
        if self.done:
            return self.value
        raise self.value


def _serve(connection: Connection) -> None:
    """The main function of a worker: report that it is ready, then read, run and answer jobs until the pipe closes."""
    os.setsid()  # so that a kill also ends what the handler started
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=_follow_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent is gone
        connection.send_bytes(b"")
        while True:
            message = connection.recv_bytes()
            _pipe.begin(connection)
            answer = _answer(message)
            with _pipe.lock:
                _pipe.connection = None
                connection.send_bytes(answer)


@final
class _Pipe:
    """The connection of a worker to its parent while a job runs: an empty message is a beat, and is answered."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.connection: Connection | None = None
        self.job = 0

    def begin(self, connection: Connection) -> None:
        self.job += 1
        self.connection = connection

    def beat(self, job: int) -> None:
        with self.lock:
            if self.connection is None or self.job != job:
                raise StaleCallError("This call is over, so it has no heartbeat any more.")
            self.connection.send_bytes(b"")
            answer = self.connection.recv_bytes()
        _unpacked(answer).get()


_pipe = _Pipe()


def parents_heartbeat() -> Heartbeat:
    """In a worker: a heartbeat for the job that runs, which beats in the parent; what that raises is raised here."""
    heartbeat, job = Heartbeat(), _pipe.job
    heartbeat.add_listener(lambda: _pipe.beat(job))
    return heartbeat


def _follow_parent() -> None:
    """When the parent dies without closing the pool, end too, with everything the handler started."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)


def _answer(message: bytes) -> bytes:
    try:
        job: Job = pickle.loads(message)  # noqa: S301 - it comes from the parent alone
        return _packed(True, job.function(*job.args))
    except BaseException as error:  # noqa: BLE001 - it travels to the parent; so does a job that cannot be read
        return _packed(False, error)


def _packed(done: bool, value: Any) -> bytes:
    """The answer, with a description as text in case the value cannot be pickled."""
    try:
        packed, problem = pickle.dumps(value), ""
    except Exception as error:  # noqa: BLE001 - the value is the user's
        packed, problem = b"", text_of(error)
    try:
        text = f"{value!s:.500}"
    except Exception:  # noqa: BLE001 - so is its text
        text = "no text"
    return pickle.dumps((done, packed, problem, f"{type(value).__name__}: {text}"))


def _unpacked(message: bytes) -> WorkerReply:
    done, packed, problem, text = pickle.loads(message)  # noqa: S301 - it comes from our child
    if packed:
        try:
            return WorkerReply(done, pickle.loads(packed))  # noqa: S301 - as above
        except Exception as error:  # noqa: BLE001 - exceptions with arguments of their own often cannot be rebuilt
            problem = text_of(error)
    kind = "result" if done else "exception"
    return WorkerReply(False, WinkError(f"the handler's {kind} ({text}) cannot leave its process: {problem}"))


def _heard(on_beat: Callable[[], object]) -> bytes:
    try:
        on_beat()
    except Exception as error:  # noqa: BLE001 - a lost lease, say: it is the handler that must know
        return _packed(False, error)
    return _packed(True, None)


@final
class Worker:
    """One process, doing one job at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process: BaseProcess = context.Process(target=_serve, args=(there,), daemon=False, name="wink-worker")
        self._process.start()
        there.close()
        self._path = tuple(sys.path)
        self._lock = Lock()
        self._ready = self._killed = False

    @property
    def usable(self) -> bool:
        """Whether it can take a job: it lives, and finds modules where this process does now."""
        return self._process.is_alive() and self._path == tuple(sys.path)

    def ready(self) -> None:
        """Wait until it has started, which takes a moment; `WorkerDiedError` when it cannot."""
        if not self._ready:
            try:
                self._here.recv_bytes()
            except (EOFError, OSError) as error:
                raise WorkerDiedError(
                    "A worker process could not start; what it printed says why. In a script, start the run under "
                    "`if __name__ == '__main__':`, since workers import the script."
                ) from error
            self._ready = True

    def run(self, packed: bytes, on_beat: Callable[[], object]) -> WorkerReply:
        """Do a packed job and wait, as long as it takes; `WorkerDiedError` when the process ends meanwhile."""
        try:
            self._here.send_bytes(packed)
            while not (answer := self._here.recv_bytes()):
                self._here.send_bytes(_heard(on_beat))
        except (EOFError, OSError) as error:
            raise WorkerDiedError("The worker process ended before it answered.") from error
        return _unpacked(answer)

    def kill(self) -> None:
        """End the process and everything it started, at once; doing it twice does nothing."""
        with self._lock:  # a pid or a file descriptor that was released may belong to another process or file
            if self._killed:
                return
            self._killed = True
            pid = self._process.pid
            assert pid is not None
            for kill in (os.killpg, os.kill):  # the group is missing while the process is starting
                with suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)
            self._process.join()

    @property
    def alive(self) -> bool:
        """Whether it can take a job."""
        return self._process.is_alive()


@final
class WorkerPool:
    """Idle workers; at most `MAX_IDLE` are kept. Knows the busy ones too, to end them with the program."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: list[Worker] = []
        self._all: WeakSet[Worker] = WeakSet()

    def acquire(self) -> Worker:
        """An idle worker, or a new one."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.usable:
                    return worker
                worker.kill()
            worker = Worker()
            self._all.add(worker)
            return worker

    def release(self, worker: Worker) -> None:
        """Keep it for the next job."""
        with self._lock:
            if worker.alive and len(self._idle) < MAX_IDLE:
                self._idle.append(worker)
                return
        worker.kill()

    def close(self) -> None:
        """End all workers, with whatever they are doing."""
        with self._lock:
            everyone = list(self._all)
            self._idle.clear()
        for worker in everyone:
            worker.kill()


POOL = WorkerPool()
atexit.register(POOL.close)
os.register_at_fork(after_in_child=POOL.__init__)  # in a forked child the workers are the parent's
