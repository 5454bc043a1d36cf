"""Undoing transactions that version 1 left open, on an operator's request.

Version 1 kept its journal beside the root (`.NAME.wink`) or in it (`.wink`), protected by checksums only. Any user who
can make files there could have written one, so it is never read automatically. On request, each step is shown first,
and none leaves the root.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from struct import Struct
from typing import Final, NamedTuple, final
from zlib import crc32

from ...errors import JournalError
from ..reserved import reserved
from .confine import Confined, Handle, is_ours, remove, sync_directory
from .journal import Record, RejectedError, decode
from .locations import locked_root, old_places
from .reversal import Reversal
from .state_dir import JOURNAL, MARKER
from .syscalls import DIRECTORY, Syscalls, look, read_all
from .vaults import StateLocation, Vaults, one_disk

# The journal of version 1, read only on request.
#
# The file is `WNK2 | floor | CRC-32`, then one frame `length | CRC-32 | JSON` for each record; the highest bit of a
# length makes the record void. Nothing in it says who wrote it.


_HEADER: Final = Struct(">4sQI")
_FRAME: Final = Struct(">II")
_MAGIC: Final = b"WNK2"
_VOID: Final = 1 << 31


class OldRecord(NamedTuple):
    """A record, and where it starts in the file."""

    start: int
    record: Record


def decode_old(data: bytes) -> list[OldRecord]:
    """The records to undo, oldest first; all are checked. Raises `RejectedError` for what version 1 never wrote."""
    found: list[OldRecord] = []
    if len(data) < _HEADER.size:
        return found
    magic, floor, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC or checksum != crc32(data[: _HEADER.size - 4]):
        raise RejectedError("it has no header of version 1")
    start, at = 0, _HEADER.size
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        void, length = bool(length & _VOID), length & ~_VOID
        body = data[at + _FRAME.size : at + _FRAME.size + length]
        if not length or len(body) != length or crc32(body) != checksum:
            break  # torn: what it describes has not happened
        record = _record(body)
        if start >= floor and not void:
            found.append(OldRecord(start, record))
        start = at = at + _FRAME.size + length
    return found


def _record(body: bytes) -> Record:
    """Read as a record of today, which has the same rules and two fields more."""
    try:
        row = json.loads(body)
        record = decode(json.dumps([*row, -1, 0]).encode())
    except (ValueError, TypeError) as error:
        raise RejectedError("it has a record of another version") from error
    paths = (record.path, record.target, *(path for path, _ in record.times))
    if any(reserved(part) for path in paths for part in path.split("/")):
        raise RejectedError("it has a record about undo state")
    return record


_LOCK: Final = "lock"
_LARGEST: Final = 1 << 26


@final
class OldTransaction:
    """What version 1 left open in one directory. Holds descriptors and locks until it is closed; see `open_old`.

    Attributes:
        path: of the directory.
        records: what would be undone, oldest first.
    """

    __slots__ = (
        "_count",
        "_journal",
        "_prefix",
        "_vaults",
        "fd",
        "path",
        "records",
        "root",
        "sys",
        "undo_dirs",
    )

    def __init__(self, sys: Syscalls, root: str, root_fd: int, path: str, *, fd: int, journal: int) -> None:
        self.sys: Syscalls = sys
        self.root: str = root
        self.path: str = path
        self.fd: int = fd
        self.undo_dirs: Confined = Confined(sys, root_fd, one_disk=True)
        self._vaults = Vaults(sys, root, root_fd, durable=False)
        self._journal = journal
        self._prefix = os.urandom(6).hex()
        self._count = 0
        self.records: list[OldRecord] = decode_old(read_all(sys, journal))
        for _, record in self.records:
            self._check_image(record)

    def _check_image(self, record: Record) -> None:
        """What was deleted was moved here, so it is the same file still."""
        found = look(self.sys, record.image, self.fd) if record.operation == "delete" else None
        if found is not None and found.st_ino != record.inode:
            raise RejectedError(f"{record.image} is not the file that was deleted")

    # --- what `Reversal` works with

    @property
    def state(self) -> OldTransaction:
        """The directory that holds images and staged files."""
        return self

    def new_name(self, what: str) -> str:
        """A name in it that is not in use."""
        self._count += 1
        return f"{what}-{self._prefix}-{self._count}"

    def sync(self, at: int) -> None:
        """Wait until the directory is on the disk."""
        sync_directory(self.sys, at)

    # --- for people

    def lines(self) -> list[str]:
        """What an undo would do, one step per line, in order."""
        return [self._line(record) for _, record in reversed(self.records)] or ["nothing: no change was recorded"]

    def _line(self, record: Record) -> str:
        if record.staged and look(self.sys, record.staged, self.fd) is not None:
            return f"leave {record.path}: the change had not happened"
        if record.operation == "move":
            return f"move {record.target} back to {record.path}, if it is still what was moved"
        if record.operation == "create":
            return f"remove {record.path}{self._now(record.path)}, which was made"
        image = look(self.sys, record.image, self.fd)
        if image is None:
            return f"leave {record.path}: there is no old version of it"
        return f"restore {record.path} as it was: {_dated(image)}{self._now(record.path)}"

    def _now(self, path: str) -> str:
        """What is there now; a person may have worked on it since."""
        with suppress(OSError):
            parent, name = self.undo_dirs.parent(path)
            with parent as at:
                return f" (now: {_dated(self.sys.stat(name, dir_fd=at))})"
        return ""

    def undo(self) -> None:
        """Undo all, newest first; a record leaves the journal when it is done, so this may be cut off and run again.

        Raises `JournalError` when the disk refuses.
        """
        reversal = Reversal(self)
        try:
            for start, record in reversed(self.records):
                names = reversal.undo(record)
                self.sys.ftruncate(self._journal, start)
                self.sys.fsync(self._journal)
                for name in names:
                    remove(self.sys, self.fd, name, self.new_name)
            self.sys.ftruncate(self._journal, 0)
        except OSError as error:
            raise JournalError(f"The undo in {self.root} failed ({error}). Remove the cause and try again.") from error

    def remove(self) -> bool:
        """Remove the directory, once everything is undone; whether nothing else was in it."""
        for name in self.sys.names(self.fd):
            if is_ours(name):
                remove(self.sys, self.fd, name, self.new_name)
        if not set(self.sys.names(self.fd)) <= {_LOCK, JOURNAL}:
            return False
        for name in (JOURNAL, _LOCK):
            with suppress(FileNotFoundError):
                self.sys.unlink(name, dir_fd=self.fd)
        parent, name = os.path.split(self.path)
        self._vaults.remove(StateLocation(parent, name, parent == self.root))
        return True


@contextmanager
def open_old(
    sys: Syscalls, root: str, path: str, state_dir: str | None = None
) -> Generator[OldTransaction, None, None]:
    """What version 1 left in that directory, with the root and it locked.

    Raises `RejectedError` for anything that version 1 would not have left there, `FileNotFoundError` when there is no
    journal, and `JournalError` while a process is at work or a newer transaction is open.
    """
    with locked_root(sys, root, state_dir, durable=True) as (root_fd, places):
        if places.pending():
            raise JournalError(f"A newer transaction is open in {root}. First: wink state clean {root}")
        with _opened(sys, root_fd, path) as (fd, journal):
            yield OldTransaction(sys, root, root_fd, path, fd=fd, journal=journal)


@contextmanager
def _opened(sys: Syscalls, root_fd: int, path: str) -> Generator[tuple[int, int], None, None]:
    with Handle(sys, _open(sys, path, DIRECTORY)) as fd:
        _check_owned(sys.fstat(fd), path)
        if not one_disk(sys, fd, root_fd):
            raise RejectedError(f"{path} is on another disk than the root")
        if look(sys, MARKER, fd) is not None:
            raise RejectedError(f'{path} belongs to watch="scan"; only version 1 itself can undo that')
        with Handle(sys, _open(sys, JOURNAL, os.O_RDWR | os.O_NONBLOCK, fd)) as journal:
            found = sys.fstat(journal)
            _check_owned(found, f"{path}/{JOURNAL}")
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > _LARGEST:
                raise RejectedError(f"{path}/{JOURNAL} is not a file as version 1 made it")
            with _old_lock(sys, fd, path):
                yield fd, journal


@contextmanager
def _old_lock(sys: Syscalls, at: int, path: str) -> Generator[None, None, None]:
    """Exclude processes of version 1, which locked a file of their own."""
    if look(sys, _LOCK, at) is None:
        yield
        return
    with Handle(sys, _open(sys, _LOCK, os.O_RDWR | os.O_NONBLOCK, at)) as fd:
        try:
            sys.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(f"A process of an older version has a transaction open in {path}.") from None
        yield


def old_transactions(root: str, state_dir: str | None = None) -> Iterator[OldTransaction]:
    """What version 1 left open for the root, one after the other; each is closed when the next is asked for.

    Raises `RejectedError` and `JournalError` as `open_old` does.
    """
    root = os.path.realpath(root)
    for path in old_places(root):
        with suppress(FileNotFoundError):
            found = os.stat(f"{path}/{JOURNAL}", follow_symlinks=False)  # noqa: PTH116
            if stat.S_ISREG(found.st_mode) and not found.st_size:
                continue
            with open_old(Syscalls(), root, path, state_dir) as old:
                yield old


def _dated(found: os.stat_result) -> str:
    when = datetime.fromtimestamp(found.st_mtime, tz=UTC).isoformat(sep=" ", timespec="seconds")
    return f"a folder of {when}" if stat.S_ISDIR(found.st_mode) else f"{found.st_size} bytes of {when}"


def _open(sys: Syscalls, name: str, flags: int, at: int | None = None) -> int:
    try:
        return sys.open(name, flags, dir_fd=at)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO}:
            raise RejectedError(f"{name} is of another kind than version 1 made") from error
        raise


def _check_owned(found: os.stat_result, path: str) -> None:
    if found.st_uid != os.geteuid():
        raise RejectedError(f"{path} belongs to another user")
    if found.st_mode & 0o077:
        raise RejectedError(f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):o})")
