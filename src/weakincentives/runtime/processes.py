"""Worker processes for handlers that must really be stopped: SIGKILL is the only thing a busy C loop obeys.

Workers are started when first needed, kept for the next call, and killed with everything they started when a handler
is out of time. A handler there gets its params, the deadline, the run context and the idempotency key; state goes
through its result.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, final

from ..errors import WinkError

MAX_IDLE = 4


class WorkerDiedError(WinkError):
    """A worker process ended before it answered."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is asked to do: call an importable function."""

    function: Callable[..., Any]
    args: tuple[Any, ...]


def _serve(connection: Connection) -> None:
    """A worker's life: read a job, run it, answer, until the pipe closes."""
    os.setsid()  # so that a kill takes along what the handler started
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    while True:
        try:
            job: Job = pickle.loads(connection.recv_bytes())  # noqa: S301 - it comes from the parent alone
        except EOFError:
            return
        except BaseException as error:  # noqa: BLE001 - a job that cannot be read is answered too
            connection.send_bytes(_packed(False, error))
            continue
        try:
            answer = _packed(True, job.function(*job.args))
        except BaseException as error:  # noqa: BLE001 - it travels to the parent
            answer = _packed(False, error)
        connection.send_bytes(answer)


def _packed(done: bool, value: Any) -> bytes:
    try:
        return pickle.dumps((done, value))
    except Exception as error:  # noqa: BLE001 - the value is the user's
        kind = "result" if done else "exception"
        text = f"the handler's {kind} ({type(value).__name__}: {value!s:.500}) cannot leave its process: {error}"
        return pickle.dumps((False, WinkError(text)))


@final
class Worker:
    """One process, doing one job at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process: BaseProcess = context.Process(target=_serve, args=(there,), daemon=False, name="wink-worker")
        self._process.start()
        there.close()

    def run(self, job: Job) -> Any:
        """Do the job and wait, as long as it takes; raises what it raises, `WorkerDiedError` if killed meanwhile."""
        try:
            self._here.send_bytes(pickle.dumps(job))
            done, value = pickle.loads(self._here.recv_bytes())  # noqa: S301 - it comes from our child
        except (EOFError, OSError) as error:
            self.kill()
            raise WorkerDiedError("The worker process ended before it answered.") from error
        if done:
            return value
        raise value

    def kill(self) -> None:
        """End the process and everything it started, at once."""
        if self._process.pid is not None:
            for kill in (os.killpg, os.kill):  # the group is missing while the process is starting
                with suppress(ProcessLookupError, PermissionError):
                    kill(self._process.pid, signal.SIGKILL)
        self._process.join()
        self._here.close()

    @property
    def alive(self) -> bool:
        """Whether it can take a job."""
        return self._process.is_alive()


@final
class WorkerPool:
    """Idle workers; at most `MAX_IDLE` are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Worker] = []

    def take(self) -> Worker:
        """An idle worker, or a new one."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                worker.kill()
        return Worker()

    def give_back(self, worker: Worker) -> None:
        """Keep it for the next job."""
        with self._lock:
            if worker.alive and len(self._idle) < MAX_IDLE:
                self._idle.append(worker)
                return
        worker.kill()

    def close(self) -> None:
        """End all idle workers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.kill()


POOL = WorkerPool()
atexit.register(POOL.close)

__all__ = ["POOL", "Job", "Worker", "WorkerDiedError", "WorkerPool"]
