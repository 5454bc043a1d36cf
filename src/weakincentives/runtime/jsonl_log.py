"""A log on disk for those who want no more than that: one line of JSON for each event, in files that are rotated.

Every line is one `write` to a file that is opened for appending, so that threads and processes can share it. Nothing is
remembered of the file from one line to the next: whether it was moved, deleted, cut or ends in the middle of a line is
looked up each time, which costs two system calls and leaves no state that could be wrong.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, cast, final
from weakref import WeakSet

from ..clock import SYSTEM_CLOCK
from ..crash_log import log_crash
from ..interrupts import RLock
from ..masking import leaving, leaving_data
from ..prompt.events import RecordedError, new_event_id
from ..run_context import RunContext
from ..serde import dump
from ..session.encoding import masked

logger: logging.Logger = logging.getLogger(__name__)

_MAX_LINE = 1024 * 1024
_KEPT_OF_LONG = 64 * 1024
_MAX_DEPTH = 20
_PAUSES = (0.0005, 0.001, 0.004, 0.0)
"""Seconds to wait for the end of a line: a long one is seen in the file while it is written."""
_HEADER = frozenset({"event_id", "run_context", "session_id", "timestamp"})
"""Fields that stand at the front of a line."""


@final
class JsonlLog:
    """Writes every event that it is told as one line of JSON: `bus.subscribe(object, JsonlLog("agent.jsonl"))`.

    A line has `time`, `type`, `event_id`, `run_id`, `request_id`, `session_id` and `data`, the fields of the event.
    Credentials are masked, and so are fields whose type is a secret. A text above 256 KiB is cut, and so is a line
    above 1 MiB.

    When a line would make the file larger than `max_bytes`, the file becomes `agent.jsonl.1`, the one before it
    `agent.jsonl.2`, and so on; `backups` of them are kept. New files are readable by their owner alone. A file that
    another program moved or deleted is made again at the next event. Threads and processes may write to one file; each
    line stays whole, and a line that was torn, because its process was killed, is ended before the next begins.

    A line that cannot be written is dropped: no call fails because of it. The first one is logged with its reason,
    `lost` counts them, and the next line that can be written is preceded by one of the type `EventsLost`. With
    `required=True` the exception is raised instead, so that the call of a `ToolInvoked` is undone.

    The constructor raises OSError when the file cannot be opened; its directory must exist. After `close`, or the end
    of `with`, the file is opened again when there is another event.

    Attributes:
        path: the file, with symlinks followed.
        lost: how many events were dropped by this process.
    """

    __slots__ = (
        "__weakref__", "_backups", "_fd", "_grows", "_identity", "_lock", "_max_bytes", "_required", "_untold", "lost",
        "path",
    )  # fmt: skip

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = 16 * 1024 * 1024,
        backups: int = 5,
        required: bool = False,
    ) -> None:
        if max_bytes < 1 or backups < 0:
            raise ValueError(f"max_bytes must be above 0 and backups not below, got {max_bytes} and {backups}.")
        named = Path(path)
        is_device = named.exists() and not named.is_file()  # /dev/stdout, say: where that leads has no path
        self.path: Path = named if is_device else Path(os.path.realpath(named))
        self.lost: int = 0
        self._max_bytes = max_bytes
        self._backups = backups
        self._required = required
        self._untold = 0
        self._grows = False
        self._lock = RLock()
        self._fd: int | None = None
        self._identity = (0, 0)
        self._open()
        _line("")  # imports the rules of masking: a child that is forked while a thread does so would wait for ever
        _logs.add(self)

    def __call__(self, event: object) -> None:
        """Write the line of an event. Raises nothing unless `required`; Ctrl-C passes through."""
        try:
            line = _line(event)
            with self._lock:
                if self._untold:
                    self._write(
                        _line_of("EventsLost", SYSTEM_CLOCK.time(), new_event_id(), {}, {"count": self._untold})
                    )
                    self._untold = 0
                self._write(line)
        except Exception as error:  # a full disk, a directory that is gone, or an event of a user's class
            if self._required:
                raise
            with self._lock:
                self.lost += 1
                self._untold += 1
                if self._untold == 1:
                    log_crash(logger, f"Events are not written to {self.path}", error)

    def close(self) -> None:
        """Close the file; it is opened again when there is another event."""
        with self._lock:
            if self._fd is not None and self._is_ours(self._fd):
                os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
        """The lines of a log, from the oldest kept file on. Lines that are not whole are left out.

        It may be read while it is written; when the file is rotated meanwhile, lines may be missing or come twice.
        """
        for file in _all_files(Path(os.path.realpath(path))):
            with suppress(FileNotFoundError), file.open("rb") as lines:
                for line in lines:
                    with suppress(ValueError):  # torn: not JSON, or not text
                        found = json.loads(line)
                        if isinstance(found, dict):
                            yield cast("dict[str, Any]", found)

    # The file.

    def _write(self, line: bytes) -> None:
        fd = self._current()
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_size:
            if found.st_size + len(line) > self._max_bytes:
                fd = self._rotated(fd)
                found = os.fstat(fd)
            if found.st_size and _is_torn(fd, found.st_size):
                line = b"\n" + line
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(fd, rest) :]

    def _current(self) -> int:
        """The open file, opened anew when it is no longer the one at the path."""
        fd = self._fd
        if fd is None:
            return self._open()
        if not self._is_ours(fd):  # closed by someone else, so the number may be another file by now
            return self._open()
        if self._is_at_path():
            return fd
        self.close()
        return self._open()

    def _open(self) -> int:
        # A named pipe without a reader, or one that is full, must not stop a call: O_NONBLOCK makes that an error.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        if not self.path.exists() or self.path.is_file():
            flags |= os.O_NOFOLLOW
        fd = os.open(self.path, flags, 0o600)
        found = os.fstat(fd)
        self._fd, self._identity = fd, (found.st_dev, found.st_ino)
        return fd

    def _is_ours(self, fd: int) -> bool:
        try:
            found = os.fstat(fd)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def _is_at_path(self) -> bool:
        try:
            found = self.path.stat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def _rotated(self, fd: int) -> int:
        """The file to write to once this one is full; the same when it cannot be moved, or another process moves it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return fd
        except OSError:  # a filesystem without locks; there processes may rotate twice
            pass
        try:
            if self._is_at_path():  # else another process was faster
                self._move()
        except OSError as error:
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
            if not self._grows:  # once is enough
                log_crash(logger, f"{self.path} cannot be rotated, so it grows", error, level=logging.WARNING)
            self._grows = True
            return fd
        self.close()
        return self._open()

    def _move(self) -> None:
        if not self._backups:
            self.path.unlink()
            return
        for number in range(self._backups - 1, 0, -1):
            with suppress(FileNotFoundError):
                _numbered(self.path, number).replace(_numbered(self.path, number + 1))
        self.path.replace(_numbered(self.path, 1))

    def forget_parent(self) -> None:
        """In a process that was forked: have a lock and a file of its own."""
        self._lock = RLock()
        self.close()


def _is_torn(fd: int, size: int) -> bool:
    """Whether the file ends in the middle of a line, and not because another process is writing it just now."""
    for pause in _PAUSES:
        if not size or os.pread(fd, 1, size - 1) == b"\n":
            return False
        time.sleep(pause)
        size = os.fstat(fd).st_size
    return True


_logs: WeakSet[JsonlLog] = WeakSet()


def _after_fork() -> None:
    for log in tuple(_logs):
        log.forget_parent()


os.register_at_fork(after_in_child=_after_fork)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _all_files(path: Path) -> list[Path]:
    """The files of a log, the oldest first."""
    numbers = (other.name.removeprefix(f"{path.name}.") for other in path.parent.glob(f"{path.name}.*"))
    kept = sorted((int(number) for number in numbers if number.isdecimal()), reverse=True)
    return [*(_numbered(path, number) for number in kept), path]


# The line of an event.


def _line(event: object) -> bytes:
    kind = type(event)
    own = kind.__module__.startswith("weakincentives.")
    name = kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}"
    context: Any = getattr(event, "run_context", None)
    ids: dict[str, Any] = {}
    if isinstance(context, RunContext):
        ids = {"run_id": context.run_id, "request_id": context.request_id, "session_id": context.session_id}
    ids["session_id"] = getattr(event, "session_id", None) or ids.get("session_id")
    return _line_of(name, getattr(event, "timestamp", None), getattr(event, "event_id", None), ids, _data(event))


def _line_of(name: str, when: object, event_id: object, ids: Mapping[str, Any], data: object) -> bytes:
    head: dict[str, Any] = {
        "time": _time_text(when),
        "type": name,
        "event_id": event_id if isinstance(event_id, str) else new_event_id(),
    }
    for key in ("run_id", "request_id", "session_id"):
        head[key] = _plain(ids.get(key))
    data = _plain(data)
    text = json.dumps(data)
    if len(text) > _MAX_LINE:
        # Cut before it is masked, as all that leaves the process: masking takes time in proportion to the text.
        data = {"cut": text[:_KEPT_OF_LONG], "characters": len(text)}
    return f"{json.dumps({**head, 'data': leaving_data(data)})}\n".encode("ascii")


def _time_text(when: object) -> str:
    seconds = when if isinstance(when, int | float) else SYSTEM_CLOCK.time()
    try:
        return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError, OSError):  # a clock of a user's
        return str(seconds)


def _data(event: object) -> object:
    """The fields of an event without those at the front of the line; of a value that has none, the value."""
    if not is_dataclass(event):
        return event
    data = {field.name: getattr(event, field.name, None) for field in fields(event) if field.name not in _HEADER}
    error = getattr(event, "error", None)
    if isinstance(error, RecordedError):  # no field, since it is not saved with the session
        data["error"] = error
    return data


def _plain(value: object, depth: int = 0) -> Any:
    """Plain data with secrets masked. Where a value has no JSON form, its parts do, and else its class is named."""
    try:
        return dump(masked(value), computed=True)
    except Exception:  # noqa: BLE001 - values are users' code
        if depth == _MAX_DEPTH:
            return "..."
    if isinstance(value, str):  # half of a surrogate pair; JSON can say it with an escape
        return value
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        return {_key(key): _plain(part, depth + 1) for key, part in members.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part, depth + 1) for part in cast("tuple[object, ...]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name, None), depth + 1) for field in fields(value)}
    return f"<{type(value).__qualname__}>"


def _key(key: object) -> str:
    return leaving(key) if isinstance(key, str) else f"<{type(key).__qualname__}>"


__all__ = ["JsonlLog"]
