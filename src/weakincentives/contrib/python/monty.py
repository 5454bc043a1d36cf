"""The default backend: Monty, a Python interpreter written for untrusted code, in worker processes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePosixPath
from time import monotonic
from typing import TYPE_CHECKING, Any, final

from ...errors import PathRefusedError
from ...filesystem.paths import normalise
from ...interrupts import Lock
from ..code.files import CodeFiles, PrintedText
from ..code.protocol import EvalBackend, EvalFiles, EvalLimits, EvalResult

if TYPE_CHECKING:
    from pydantic_monty import Monty, OSPolicy, ResourceLimits

GRACE = 0.5
"""Seconds a worker has beyond its limits before it is killed."""

GUIDE = """\
The code runs in a small Python interpreter with no way out: no network, no processes, no environment, and no files but
those you name in `reads` and `writes` (use `open` or `pathlib.Path` with the same paths).

- Importable: asyncio, base64, binascii, bisect, collections, copy, csv, dataclasses, datetime, decimal, functools,
  hashlib, itertools, json, math, os, pathlib, random, re, sys, time, tomllib, typing, unicodedata.
- Missing: every other module (statistics, string, io, enum, uuid, heapq, numpy, pandas, requests, ...), class
  inheritance and `super`, generators and `yield`, `del`, decorators on methods, OrderedDict, bytearray, `open`
  with `+`, `dir`, `globals`, `input`, `__import__`, and methods as values: `key=lambda k: d[k]`, not `key=d.get`.
- Each call starts afresh: nothing is kept from one to the next but the files that were written."""


@final
class MontyBackend(EvalBackend):
    """Evaluates in Monty; each evaluation is a fresh session in a worker process that is killed if it does not end.

    The workers start with the first evaluation and are shared by all of them. `close()` ends them; so does the end of
    the backend or of the process. It can be used again after `close()`. A process that is forked after the first
    evaluation cannot use it: `evaluate` raises `RuntimeError` there.

    Args:
        now: what every clock shows; None for the real time.
        seed: of the `random` module; None for real entropy. With both the same code gives the same result.
        max_workers: evaluations at the same time; more wait for one to end.

    `evaluate` raises `ImportError` naming the extra when Monty is not installed.
    """

    def __init__(self, *, now: datetime | None = None, seed: int | None = None, max_workers: int = 4) -> None:
        self._policy: OSPolicy = {"sleep": "system", "timezone": "utc"}
        if now is not None:
            self._policy["datetime"] = now
        if seed is not None:
            self._policy["random_start"] = {"seed": seed}
        self._max_workers = max_workers
        self._lock = Lock()
        self._pool: _MontyWorkers | None = None

    @property
    def guide(self) -> str:
        """See `EvalBackend.guide`."""
        return GUIDE

    def evaluate(self, code: str, inputs: Mapping[str, Any], files: EvalFiles, limits: EvalLimits) -> EvalResult:
        """See `EvalBackend.evaluate`."""
        monty = _import()
        started = monotonic()
        printed = PrintedText(limits.output)

        def keep(_: str, text: str) -> None:
            printed.write(text)

        seen = CodeFiles(files, limits)
        value, error = None, None
        try:
            with self._workers().checkout(limits=_limits(limits), os_policy=self._policy) as session:
                value = session.feed_run(
                    code,
                    inputs=dict(inputs),
                    os=_Calls(seen, monty, started + limits.seconds + limits.sleep),
                    print_callback=keep,
                    cwd="/",
                )
        except monty.MontyCrashedError as crash:
            error = "Stopped: it took too long" if crash.timed_out else "Stopped: the interpreter crashed"
        except (monty.MontySyntaxError, monty.MontyRuntimeError) as failure:
            error = _explained(failure.display("traceback"))
        except (monty.MontyError, ValueError, TypeError, RecursionError, OverflowError) as failure:
            error = f"The result or an input cannot leave or enter the interpreter: {failure}"
        except TimeoutError:
            error = "All interpreters are busy; try again"
        return EvalResult(
            value if error is None else None,
            printed.text(),
            error,
            printed.truncated,
            monotonic() - started,
            seen.written if error is None else {},
        )

    def close(self) -> None:
        """End the workers; evaluations that run are cut off. Calling it twice is fine."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _workers(self) -> Monty:
        with self._lock:
            if self._pool is None:
                self._pool = _MontyWorkers(self._max_workers)
            return self._pool.monty


_pids: set[int] = set()
"""The processes that have started workers: this one, and those it was forked from."""


@final
class _MontyWorkers:
    """Running workers, ended with this object or with the process."""

    __slots__ = ("__weakref__", "_end", "_monty", "_pid")

    def __init__(self, max_workers: int) -> None:
        self._pid = os.getpid()
        _check_process(self._pid)
        monty = _import().Monty(
            max_processes=max_workers,
            checkout_timeout=30.0,
            max_checkouts_per_worker=1000,
            feed_duration_limit_grace=GRACE,
        )
        self._monty: Monty = monty.__enter__()
        _pids.add(self._pid)
        self._end = weakref.finalize(self, _end, monty, self._pid)

    @property
    def monty(self) -> Monty:
        _check_process(os.getpid())
        return self._monty

    def close(self) -> None:
        self._end()


def _end(monty: Monty, pid: int) -> None:
    if os.getpid() == pid:
        monty.__exit__(None, None, None)
    else:
        _inherited.append(monty)


_inherited: list[Monty] = []
"""Pools of the process this one was forked from: not ours to end, and dropping one would wait for its threads."""


def _check_process(pid: int) -> None:
    """Monty's threads do not survive a fork, and without them it would wait for ever."""
    if _pids and pid not in _pids:
        raise RuntimeError(
            "Monty was used before this process was forked, so it cannot be used here. Start processes with "
            "multiprocessing's 'spawn' or 'forkserver', or evaluate nothing before the fork."
        )


@final
class _Calls:
    """Answers what the interpreter asks of the operating system, from the table of files; all else is refused there."""

    def __init__(self, files: CodeFiles, monty: Any, until: float) -> None:
        self._files = files
        self._monty = monty
        self._until = until

    def __call__(self, *, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], **more: object) -> Any:
        del more
        answer = _ANSWERS.get(name)
        if answer is None:
            return self._monty.NOT_HANDLED
        if monotonic() > self._until:  # the interpreter's own clock stands still while it waits for an answer
            raise TimeoutError("time limit exceeded")
        return answer(self, _path(args[0]), *args[1:], **kwargs)

    def exists(self, path: str) -> bool:
        return self._files.is_file(path) or self._files.is_directory(path)

    def is_file(self, path: str) -> bool:
        return self._files.is_file(path)

    def is_dir(self, path: str) -> bool:
        return self._files.is_directory(path)

    def is_symlink(self, path: str) -> bool:
        del path
        return False

    def open(self, path: str, mode: str) -> Any:
        handle = self._monty.MontyFileHandle(f"/{path}", mode)
        if handle.mode.startswith("w"):
            self._files.write(path, b"")
        elif handle.mode.startswith("a"):
            self._files.append(path, b"")
        else:
            self._files.read(path)
        return handle

    def read_text(self, path: str) -> str:
        return self._files.read(path).decode()

    def read_bytes(self, path: str) -> bytes:
        return self._files.read(path)

    def write_text(self, path: str, data: str) -> int:
        self._files.write(path, data.encode())
        return len(data)

    def write_bytes(self, path: str, data: bytes) -> int:
        self._files.write(path, data)
        return len(data)

    def append_text(self, path: str, data: str) -> int:
        self._files.append(path, data.encode())
        return len(data)

    def append_bytes(self, path: str, data: bytes) -> int:
        self._files.append(path, data)
        return len(data)

    def iterdir(self, path: str) -> list[PurePosixPath]:
        return [PurePosixPath(f"/{child}") for child in self._files.children(path)]

    def stat(self, path: str) -> Any:
        if self._files.is_directory(path):
            return self._monty.StatResult.dir_stat(mtime=0.0)
        return self._monty.StatResult.file_stat(self._files.size(path), mtime=0.0)

    def scan(self, path: str, *, max_depth: int | None = None, **options: object) -> list[Any]:
        del options
        skip = 0 if path == "." else len(path) + 1
        below = [one for one in self._files.below(path) if max_depth is None or one[skip:].count("/") < max_depth]
        return [self._entry("", path), *(self._entry(one[skip:], one) for one in below)]

    def _entry(self, relative: str, path: str) -> Any:
        return self._monty.ScanEntry(relative, self._files.is_directory(path), self._files.is_file(path), False)

    def mkdir(self, path: str, **options: object) -> None:
        del options
        if not self._files.is_directory(path):
            self._files.check_writable(path)

    def resolve(self, path: str) -> str:
        return "/" if path == "." else f"/{path}"


_ANSWERS: Mapping[str, Any] = {
    "Path.exists": _Calls.exists,
    "Path.is_file": _Calls.is_file,
    "Path.is_dir": _Calls.is_dir,
    "Path.is_symlink": _Calls.is_symlink,
    "open": _Calls.open,
    "Path.read_text": _Calls.read_text,
    "Path.read_bytes": _Calls.read_bytes,
    "Path.write_text": _Calls.write_text,
    "Path.write_bytes": _Calls.write_bytes,
    "Path.append_text": _Calls.append_text,
    "Path.append_bytes": _Calls.append_bytes,
    "Path.mkdir": _Calls.mkdir,
    "Path.iterdir": _Calls.iterdir,
    "Path.scan": _Calls.scan,
    "Path.stat": _Calls.stat,
    "Path.resolve": _Calls.resolve,
    "Path.absolute": _Calls.resolve,
}


def _path(named: Any) -> str:
    """The canonical path of what the code named, a path or an open file."""
    try:
        return normalise(str(getattr(named, "path", named)))
    except PathRefusedError as error:
        raise PermissionError(str(error)) from None


def _limits(limits: EvalLimits) -> ResourceLimits:
    return {
        "max_feed_duration_secs": limits.seconds,
        "max_memory": limits.memory,
        "max_recursion_depth": limits.recursion,
        "max_suspensions": limits.host_calls,
        "max_total_sleep_secs": limits.sleep,
    }


def _explained(trace: str, limit: int = 4000) -> str:
    """The traceback without what every one begins with, its end when it is long."""
    text = trace.removeprefix("Traceback (most recent call last):\n").strip("\n")
    return text if len(text) <= limit else f"...\n{text[-limit:]}"


def _import() -> Any:
    try:
        import pydantic_monty  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError("Safe Python needs Monty. Install it: pip install 'weakincentives[python]'") from error
    return pydantic_monty
