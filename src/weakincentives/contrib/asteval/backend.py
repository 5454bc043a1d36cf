"""A backend for calculations: asteval, in a worker process with nothing in reach."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import asdict
from time import monotonic
from typing import Any, Literal, cast, final

from ..code.protocol import EvalBackend, EvalFiles, EvalLimits, EvalResult
from ..code.remote import BrokenPipeline, ClosedPipeline, LatePipeline, Pipeline
from ..code.wire import Encoder, clean, decode, framed, pack_bytes, unpack_bytes
from .process import (
    AstevalPool,
    AstevalWorker,
    Bubblewrap,
    Confinement,
    WorkerLostError,
    check_installed,
    fork_safe_lock,
    warn_once,
)

Confined = Literal["required", "available"]
"""Whether code runs only where both bubblewrap and the filter of system calls hold it, or with what there is."""

BUSY_SECONDS = 30.0
"""How long to wait for a worker when all are busy."""

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
class AstevalBackend(EvalBackend):
    """Evaluates in asteval; each evaluation is a process of its own, forked from a worker and killed in the end.

    asteval by itself is not a sandbox. What holds the code is around it: the worker has an empty environment, the
    process that runs the code may open nothing, start nothing and use no more memory and time than its limits, and
    where bubblewrap works there is nothing to be found. `confinement` says what is in force.

    Workers start with the first evaluation and are kept for the next ones. `close()` ends them; so does the end of the
    backend or of the process, however it ends. It can be used again after `close()`, and in a forked process, which
    starts workers of its own.

    Args:
        bubblewrap: see `Bubblewrap`; where it is required and does not work, `evaluate` raises `RuntimeError`.
        confinement: "required" for all that can hold the code, bubblewrap and the filter of system calls: where one of
            them does not work, no code is run and `evaluate` raises `RuntimeError`. With "available", a missing
            bubblewrap is logged as a warning, once per process, when a backend is made.
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
        if self._bubblewrap == "available" and shutil.which("bwrap") is None:
            warn_once(
                "bubblewrap is not installed, so code in asteval is held by resource limits and, where there is one, a "
                "system call filter. Install it (apt-get install bubblewrap), or pass confinement='required' to run "
                "nothing without it."
            )
        self._pool = AstevalPool(self._bubblewrap, max_workers)

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
            encoded = Encoder(int(limits.memory), show=False).encode(dict(inputs))
        except Exception as error:  # noqa: BLE001 - whatever an input does when it is looked at
            return EvalResult(error=f"An input cannot enter the interpreter: {type(error).__name__}: {error}")
        request = {
            "code": code,
            "inputs": encoded,
            "files": {path: pack_bytes(data) for path, data in files.contents.items()},
            "writable": sorted(files.writable),
            "limits": {**asdict(limits), "memory": int(limits.memory), "recursion": int(limits.recursion)},
            "room": MAX_VALUE,
            "filter_required": self._required,
        }
        if not pool.seats.acquire(timeout=BUSY_SECONDS):
            return EvalResult(error="All interpreters are busy; try again")
        try:
            worker = pool.acquire()
            try:
                return self._evaluate(worker, framed(json.dumps(request).encode()), files, limits)
            except BaseException:
                worker.close()
                raise
            finally:
                pool.release(worker)
        finally:
            pool.seats.release()

    def close(self) -> None:
        """End the workers; evaluations that run are cut off. Calling it twice is fine."""
        self._current().close()

    def _current(self) -> AstevalPool:
        """The pool of this process: one that was inherited through a fork is its parent's."""
        with fork_safe_lock():  # two threads that both made one would have twice `max_workers`
            if self._pool.pid != os.getpid():
                self._pool = AstevalPool(self._bubblewrap, self._max_workers)
            return self._pool

    def _evaluate(self, worker: AstevalWorker, request: bytes, files: EvalFiles, limits: EvalLimits) -> EvalResult:
        """The child of the worker is dead when this returns; or else the worker is.

        `RuntimeError` when the filter of system calls is required and not in force; the code was not run then.
        """
        started = monotonic()
        most = 2 * int(limits.file_bytes) + 12 * int(limits.output) + 12 * MAX_VALUE + 100_000
        answer, error, status = None, None, 0
        try:
            with worker.begin() as channel:
                pipeline = Pipeline(channel.fileno(), channel.fileno())
                try:
                    pipeline.send(request, started + limits.seconds)
                    answer = pipeline.receive(most, started + limits.seconds)
                except LatePipeline:
                    error = f"TimeoutError: time limit exceeded: at most {limits.seconds:g} seconds"
                except ClosedPipeline:
                    pass  # how the process ended says more
            status = worker.end()
        except BrokenPipeline:
            worker.close()
            return EvalResult(error=_NONSENSE, duration=monotonic() - started)
        except (WorkerLostError, OSError):
            # An answer that came before counts all the same: on a busy machine the worker may be slow to say the rest.
            worker.close()
        if answer is None:
            timeout = "TimeoutError: time limit exceeded" if status == -signal.SIGXCPU else _CRASHED
            return EvalResult(error=error or timeout, duration=monotonic() - started)
        filtered = answer.get("filtered") is True
        if self._required and not filtered:
            raise RuntimeError(
                "confinement='required' asks for a filter of system calls, which does not work here, so the code was "
                "not run. Use Linux on x86-64 or arm64, or PythonSection."
            )
        worker.confinement = Confinement(worker.confinement.bubblewrap, filtered)
        if not filtered:
            warn_once(
                "System calls cannot be filtered here, so code in asteval is held by resource limits and, where it "
                "works, bubblewrap. Use Linux on x86-64 or arm64, or pass confinement='required' to run nothing then."
            )
        try:
            return _result(answer, files, limits, monotonic() - started)
        except ValueError:
            worker.close()
            return EvalResult(error=_NONSENSE, duration=monotonic() - started)


_CRASHED = "Stopped: the interpreter crashed"
_NONSENSE = "Stopped: the interpreter gave an answer that makes no sense"


def _result(answer: Mapping[str, Any], files: EvalFiles, limits: EvalLimits, duration: float) -> EvalResult:
    """What the code's process answered, which may be anything: `ValueError` unless it is a result within the limits."""
    stdout, error, written = answer.get("stdout"), answer.get("error"), answer.get("written", {})
    if not isinstance(stdout, str) or not isinstance(error, str | None) or not isinstance(written, dict):
        raise ValueError("not a result")  # noqa: TRY004 - the data is wrong, not the program
    printed, truncated = clean(stdout), answer.get("truncated") is True
    kept = printed[: int(limits.output)]
    truncated = truncated or len(printed) > len(kept)
    if error is not None:
        return EvalResult(None, kept, clean(error)[:5000], truncated, duration)
    try:
        contents = {path: unpack_bytes(text) for path, text in cast(dict[str, str], written).items()}
    except TypeError as problem:
        raise ValueError("not a file") from problem
    if not contents.keys() <= files.writable or sum(map(len, contents.values())) > limits.file_bytes:
        raise ValueError("files that were not asked for")
    return EvalResult(decode(answer.get("value")), kept, None, truncated, duration, contents)
