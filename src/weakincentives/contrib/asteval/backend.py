"""A backend for calculations: asteval, in a worker process with nothing in reach."""

from __future__ import annotations

import base64
import binascii
import os
import socket
import threading
from collections.abc import Mapping
from time import monotonic
from typing import Any, Literal, cast, final

from ...errors import PathRefusedError
from ...filesystem.paths import normalise
from ..code.files import CodeFiles
from ..code.protocol import EvalFiles, EvalLimits, EvalResult
from .process import (
    AstevalWorker,
    Confinement,
    WorkerLostError,
    check_installed,
    fork_safe_lock,
    report_unconfined,
)
from .worker.frames import WrongFrameError, pack, receive, send, unpack

Bubblewrap = Literal["required", "available", "never"]
"""Whether workers run in bubblewrap: always (or not at all), where it works, or never."""

Confined = Literal["required", "available"]
"""Whether code runs only where both bubblewrap and the filter of system calls hold it, or with what there is."""

PATIENCE = 30.0
"""Seconds to wait for a worker when all are busy."""

MAX_VALUE = 2 * 1024 * 1024
"""Bytes, roughly, of the value that comes back."""

GUIDE = """\
The code runs in asteval, a calculator with Python's syntax: numbers, text, lists, dicts, sets, loops, functions,
f-strings, comprehensions, `try`. There is no network, no process, no environment, and no file but those you name in
`reads` and `writes`: `read_text(path)`, `write_text(path, text)`, `read_bytes`, `write_bytes`, or `open` with r, w, a,
rb, wb, ab.

- There: abs, all, any, bin, bool, bytes, chr, complex, dict, divmod, enumerate, filter, float, format, frozenset, hex,
  int, isinstance, len, list, map, max, min, oct, ord, print, range, repr, reversed, round, set, slice, sorted, str,
  sum, tuple, type (gives the name), zip; and without a module before them: sqrt, exp, log, log10, pow, sin, cos, tan,
  asin, acos, atan, atan2, sinh, cosh, tanh, degrees, radians, hypot, floor, ceil, trunc, fmod, fsum, factorial, isnan,
  isinf, pi, e.
- Missing: every `import` (no math, json, re, datetime, numpy; call `sqrt`, not `math.sqrt`), classes, decorators,
  `yield`, `global`, `nonlocal`, `match`, `:=`, annotated assignments, `*args` in calls, `*rest` in assignments, `**` in
  a dict, `except (A, B)` (name one), closures (all functions share one set of names), `str.format` (use f-strings),
  `getattr`, `dir`, `eval`, `input`, names with `__`.
- Limits of its own, beyond which it raises RuntimeError: 262,144 characters of text made with `*` or `+` (collect the
  pieces in a list and use `''.join(pieces)`), 10,000 as an exponent of `**`, 1,000 places for `<<`.
- It is slow, a hundred times slower than Python: at most some ten thousand steps.
- Each call starts afresh: nothing is kept from one to the next but the files that were written."""


@final
class AstevalBackend:
    """Evaluates in asteval; each evaluation is a process of its own, forked from a worker and killed in the end.

    asteval by itself is no sandbox. What holds is around it: the worker has an empty environment, the process that runs
    the code may open nothing, start nothing and use no more memory and time than its limits, and where bubblewrap works
    there is nothing to be found. `confinement` says what is in force.

    Workers start with the first evaluation and are kept for the next ones. `close()` ends them; so does the end of the
    backend or of the process, however it ends. It can be used again after `close()`, and in a forked process, which
    starts workers of its own.

    Args:
        bubblewrap: see `Bubblewrap`; where it is required and does not work, `evaluate` raises `RuntimeError`.
        confinement: "required" for all that can hold the code, bubblewrap and the filter of system calls: where one of
            them does not work, no code is run and `evaluate` raises `RuntimeError`. With "available", a missing
            bubblewrap is logged as a warning, once in a process, when a backend is made.
        max_workers: evaluations at the same time; more wait for one to end.

    `evaluate` raises `ImportError` naming the extra when asteval is not installed.
    """

    def __init__(
        self, *, bubblewrap: Bubblewrap = "available", confinement: Confined = "available", max_workers: int = 4
    ) -> None:
        if bubblewrap not in {"required", "available", "never"}:
            raise ValueError(f"bubblewrap must be required, available or never, not {bubblewrap!r}.")
        if confinement not in {"required", "available"}:
            raise ValueError(f"confinement must be required or available, not {confinement!r}.")
        if confinement == "required" and bubblewrap == "never":
            raise ValueError("confinement='required' includes bubblewrap, so bubblewrap cannot be 'never'.")
        if max_workers < 1:
            raise ValueError(f"max_workers must be at least 1, got {max_workers}.")
        self._required = confinement == "required"
        self._bubblewrap: Bubblewrap = "required" if self._required else bubblewrap
        self._max_workers = max_workers
        if self._bubblewrap == "available":
            report_unconfined()
        self._pool = _Pool(self._bubblewrap, max_workers)

    @property
    def guide(self) -> str:
        """See `EvalBackend.guide`."""
        return GUIDE

    @property
    def confinement(self) -> Confinement | None:
        """What the latest worker is held by; None before the first one has started."""
        return self._current().confinement

    def evaluate(self, code: str, inputs: Mapping[str, Any], files: EvalFiles, limits: EvalLimits) -> EvalResult:
        """See `EvalBackend.evaluate`."""
        check_installed()
        pool = self._current()
        try:
            packed = {name: pack(value, limits.memory, show=False) for name, value in inputs.items()}
        except Exception as error:  # noqa: BLE001 - whatever an input does when it is looked at
            return EvalResult(error=f"An input cannot enter the interpreter: {type(error).__name__}: {error}")
        if not pool.seats.acquire(timeout=PATIENCE):
            return EvalResult(error="All interpreters are busy; try again")
        try:
            worker = pool.take()
            started = monotonic()
            evaluation = _Evaluation(worker, CodeFiles(files, limits), limits, started + limits.seconds)
            try:
                result = evaluation.run(code, packed, filter_required=self._required)
            except BaseException:
                worker.close()
                raise
            finally:
                pool.give_back(worker)
        finally:
            pool.seats.release()
        return EvalResult(**result, duration=monotonic() - started)

    def close(self) -> None:
        """End the workers; evaluations that run are cut off. Twice is fine."""
        self._current().close()

    def _current(self) -> _Pool:
        """The pool of this process: one that was inherited through a fork is its parent's."""
        with fork_safe_lock():
            if self._pool.pid != os.getpid():
                self._pool = _Pool(self._bubblewrap, self._max_workers)
            return self._pool


@final
class _Pool:
    """The workers of one backend in one process. Each ends with its `AstevalWorker`, so none outlives the pool."""

    def __init__(self, bubblewrap: Bubblewrap, max_workers: int) -> None:
        self.pid = os.getpid()
        self.seats = threading.BoundedSemaphore(max_workers)
        self.confinement: Confinement | None = None
        self._wanted: Bubblewrap = bubblewrap
        self._bubblewrap: Bubblewrap = bubblewrap
        self._lock = threading.Lock()
        self._idle: list[AstevalWorker] = []
        self._busy: set[AstevalWorker] = set()

    def take(self) -> AstevalWorker:
        """One that is idle and alive, or a new one."""
        worker = None
        with self._lock:
            while self._idle and worker is None:
                candidate = self._idle.pop()
                worker = candidate if candidate.ready() else None
        if worker is None:
            worker, self._bubblewrap = AstevalWorker.start(self._bubblewrap)
        with self._lock:
            self._busy.add(worker)
        return worker

    def give_back(self, worker: AstevalWorker) -> None:
        """Keep it if it lives."""
        with self._lock:
            self.confinement = worker.confinement
            self._busy.discard(worker)
            if not worker.closed:
                self._idle.append(worker)

    def close(self) -> None:
        """End all workers. What was found out of bubblewrap is forgotten: it may work by the next time."""
        with self._lock:
            workers, self._idle = [*self._idle, *self._busy], []
            self._bubblewrap = self._wanted
        for worker in workers:
            worker.close()


@final
class _Evaluation:
    """One evaluation in a worker, which may answer anything at all."""

    def __init__(self, worker: AstevalWorker, files: CodeFiles, limits: EvalLimits, until: float) -> None:
        self._worker = worker
        self._files = files
        self._limits = limits
        self._until = until
        self._frame = 2 * limits.file_bytes + 12 * limits.output + 12 * MAX_VALUE + 100_000
        self._calls = 0

    def run(self, code: str, inputs: Mapping[str, Any], *, filter_required: bool) -> dict[str, Any]:
        """The fields of the result. The child of the worker is dead when this returns; or else the worker is.

        `RuntimeError` when the filter of system calls is required and not in force; the code was not run then.
        """
        limits = self._limits
        request = {"code": code, "inputs": {"dict": [[name, value] for name, value in inputs.items()]}}
        request |= {
            "seconds": limits.seconds,
            "memory": int(limits.memory),
            "output": limits.output,
            "recursion": int(limits.recursion),
            "value": MAX_VALUE,
            "filter_required": filter_required,
        }
        answer: dict[str, Any] | None = None
        error = None
        try:
            with self._worker.begin() as channel:
                channel.settimeout(max(0.01, self._until - monotonic()))
                try:
                    send(channel, request)
                    answer = self._converse(channel)
                except TimeoutError:
                    error = f"TimeoutError: time limit exceeded: at most {limits.seconds:g} seconds"
                except OSError:
                    pass  # the status says more
            status = self._worker.end(answered=answer is not None)
        except WrongFrameError:
            self._worker.close()
            return {"error": "Stopped: the interpreter answered with something that is no answer"}
        except (WorkerLostError, OSError):
            self._worker.close()
            return {"error": error or "Stopped: the interpreter crashed"}
        if answer is None:
            return {"error": error or _ended(status)}
        if filter_required and answer.get("filtered") is not True:
            raise RuntimeError(
                "confinement='required' asks for a filter of system calls, which does not work here, so the code was "
                "not run. Use Linux on x86-64 or arm64, or PythonSection."
            )
        return self._result(answer)

    def _converse(self, channel: socket.socket) -> dict[str, Any] | None:
        while True:
            message = receive(channel, self._frame, self._until)
            if message is None or "result" in message:
                return self._checked(message)
            send(channel, self._do(message))

    def _do(self, message: dict[str, Any]) -> dict[str, Any]:
        """What the code asks of its files; it is told what `open` would tell it."""
        self._calls += 1
        try:
            what, path, data = message["do"], message["path"], base64.b64decode(message["data"], validate=True)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise WrongFrameError(str(error)) from None
        if what not in {"read", "write", "append"} or not isinstance(path, str):
            raise WrongFrameError("no such request")
        if self._calls > self._limits.host_calls:
            return {"error": ["RuntimeError", f"too many uses of files: at most {self._limits.host_calls}"]}
        try:
            return {"data": base64.b64encode(self._file(what, path, data)).decode()}
        except OSError as error:
            return {"error": [type(error).__name__, str(error)]}

    def _file(self, what: str, path: str, data: bytes) -> bytes:
        try:
            canonical = normalise(path)
        except PathRefusedError as error:
            raise PermissionError(str(error)) from None
        if what == "read":
            return self._files.read(canonical)
        (self._files.write if what == "write" else self._files.append)(canonical, data)
        return b""

    def _checked(self, message: dict[str, Any] | None) -> dict[str, Any] | None:
        """A result in which everything has the type it should have."""
        if message is None:
            return None
        error = message.get("error")
        if not isinstance(message.get("stdout"), str) or not (error is None or isinstance(error, str)):
            raise WrongFrameError("no result")
        return {**message, "value": unpack(message.get("value")) if error is None else None}

    def _result(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        self._worker.note(filtered=answer.get("filtered") is True)
        printed, error = _clean(answer["stdout"]), cast(str | None, answer["error"])
        return {
            "value": answer["value"],
            "stdout": printed[: self._limits.output],
            "error": None if error is None else _clean(error)[:5000],
            "truncated": answer.get("truncated") is True or len(printed) > self._limits.output,
            "written": self._files.written if error is None else {},
        }


def _ended(status: int | None) -> str:
    if status == -24:  # SIGXCPU
        return "TimeoutError: time limit exceeded"
    return "Stopped: the interpreter crashed"


def _clean(text: str) -> str:
    """Without halves of characters, which can be neither stored nor sent."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


__all__ = ["AstevalBackend", "Bubblewrap", "Confined", "Confinement"]
