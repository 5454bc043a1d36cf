"""Listing the undo state that is kept for roots: which entries there are, whose, how large, and in what state."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, final

from ...clock import SYSTEM_CLOCK
from ...errors import JournalError
from . import private_dir
from .confine import Handle, is_ours, remove
from .journal import Record, RejectedError, read, read_header
from .locations import locked_root
from .private_dir import ROOTS, NotPrivateError, PrivateDir, check_private
from .state_dir import JOURNAL, LOCK, MARKER, MIRROR, RECORD, TX, Authenticator, holders_of
from .syscalls import DIRECTORY, HANDLE, Syscalls, look, read_all
from .vaults import SAME, RootRecord, StateLocation, Vaults, is_vault, read_record

Status = Literal["in use", "open", "idle"]

_REJECTED: Final = "rejected-"
_entry_name = re.compile(r"[0-9a-f]{32}").fullmatch


@dataclass(frozen=True, slots=True)
class KeptState:
    """What is kept for one root.

    Attributes:
        id: the name of its entry in the private directory.
        root: where the root was when it was last written; empty where the entry does not say, or is not authentic.
        there: whether the root is at that place now.
        status: "in use" while a process holds the root's lock; "open" when a transaction was left; else "idle".
        rejected: the names of what was put aside and not used.
        vault: where old files are kept; empty where there is no vault, or another than the one that was made.
        size: the bytes of all files that are kept.
        changed: when something was last changed (seconds since 1970).
    """

    id: str
    root: str
    there: bool
    status: Status
    rejected: tuple[str, ...]
    vault: str
    size: int
    changed: float


@final
class StateEntry:
    """One entry of the private directory, opened to look at it or to remove it. Holds descriptors until `close`.

    Args:
        sys: the operating system.
        home: the private directory.
        name: the entry's name.
        root: where the root is now, if it is known; else it is looked for where it was.

    Raises `NotPrivateError` for one that others could change, and `OSError`.
    """

    __slots__ = ("fd", "home", "keys", "name", "record", "root", "sys", "vault", "vault_path")

    def __init__(self, sys: Syscalls, home: PrivateDir, name: str, root: str | None = None) -> None:
        self.sys: Syscalls = sys
        self.home: PrivateDir = home
        self.name: str = name
        self.keys: Authenticator = Authenticator(home.root_key(name))
        self.fd: int = sys.open(name, DIRECTORY, dir_fd=home.roots)
        self.vault: int = -1
        self.vault_path: str = ""
        try:
            check_private(sys.fstat(self.fd), f"{home.path}/{ROOTS}/{name}")
            self.record: RootRecord | None = read_record(sys, self.fd, self.keys)
            self.root: str | None = root if root is not None else self._find_root()
            self._open_vault()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> StateEntry:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        """Of the entry."""
        return f"{self.home.path}/{ROOTS}/{self.name}"

    def close(self) -> None:
        """Close the descriptors."""
        for fd in {self.fd, self.vault} - {-1}:
            self.sys.close(fd)
        self.fd = self.vault = -1

    def _find_root(self) -> str | None:
        """Where the root was, if the directory there is the one that this entry is about."""
        if self.record is not None and entry_name(self.sys, self.home, self.record.path) == self.name:
            return self.record.path
        return None

    def _open_vault(self) -> None:
        record = self.record
        if record is None or not record.inode:
            return
        if record.vault == SAME:
            self.vault, self.vault_path = self.fd, self.path
            return
        for root in dict.fromkeys(filter(None, (self.root, record.path))):
            parent = root if record.inside else str(Path(root).parent)
            with suppress(OSError):
                fd = self.sys.open(f"{parent}/{record.vault}", DIRECTORY)
                if is_vault(self.sys, fd, record):
                    self.vault, self.vault_path = fd, f"{parent}/{record.vault}"
                    return
                self.sys.close(fd)

    # --- what is in it

    def is_open(self) -> bool:
        """Whether there is something that opening the root would undo."""
        return self._size(JOURNAL) > 0 or self._size(MARKER) > 0

    def is_watched(self) -> bool:
        """Whether that is what `watch="scan"` keeps."""
        return self._size(MARKER) > 0

    def _size(self, name: str) -> int:
        found = look(self.sys, name, self.fd)
        if found is None:
            return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else 1

    def records(self) -> list[Record]:
        """What the journal would undo, oldest first; empty where it cannot be read."""
        return self._journal()[1]

    def _journal(self) -> tuple[int, list[Record]]:
        """The inode of the root that the journal belongs to, or 0, and its records."""
        with suppress(OSError, RejectedError, ValueError):
            fd = self.sys.open(JOURNAL, os.O_RDONLY | os.O_NONBLOCK, dir_fd=self.fd)
            with Handle(self.sys, fd):
                data = read_all(self.sys, fd)
            found = read_header(self.keys, data)
            if found is not None:
                content = read(self.keys, data, found.body.rstrip())
                return int(json.loads(found.body)[1][0]), [record for _, record in content.records]
        return 0, []

    def rejected(self) -> list[str]:
        """The names of what was put aside."""
        names = {name for fd in self._directories() for name in self.sys.names(fd)}
        return sorted(name for name in names if name.startswith(_REJECTED))

    def copies(self) -> int:
        """How many files there are in the copy of `watch="scan"`."""
        if self.vault < 0:
            return 0
        with suppress(OSError), Handle(self.sys, self.sys.open(MIRROR, DIRECTORY, dir_fd=self.vault)) as fd:
            return sum(name.startswith("c") for name in self.sys.names(fd))
        return 0

    def _directories(self) -> set[int]:
        return {self.fd, self.vault} - {-1}

    def describe(self) -> KeptState:
        """All of that."""
        sizes, times = [0], [self.sys.fstat(self.fd).st_mtime]
        for fd in self._directories():
            for _, _, names, at in os.fwalk(".", dir_fd=fd):
                for name in names:
                    with suppress(OSError):
                        found = self.sys.stat(name, dir_fd=at)
                        sizes.append(found.st_size)
                        times.append(0.0 if name.startswith("image-") else found.st_mtime)
        status: Status = "open" if self.is_open() else "idle"
        return KeptState(
            id=self.name,
            root=self.record.path if self.record is not None else "",
            there=self.root is not None,
            status="in use" if self._is_used() else status,
            rejected=tuple(self.rejected()),
            vault=self.vault_path,
            size=sum(sizes),
            changed=max(times),
        )

    # --- excluding others

    def _is_used(self) -> bool:
        try:
            with self.locked():
                return False
        except JournalError:
            return True

    @contextmanager
    def locked(self) -> Generator[None, None, None]:
        """Hold the root's lock; `JournalError` when another process does, or the entry was made anew meanwhile.

        A root that is not at its place cannot be locked. It may have been renamed while a process works in it; then
        the kernel's list of locks tells.
        """
        if self.root is None:
            inode, _ = self._journal()
            if inode and (holder := self._holder(inode)):
                raise JournalError(f"process {holder} has a transaction open on what is kept as {self.name}.")
            self._check_same()
            yield
            return
        with locked_root(self.sys, self.root, self.home.path, durable=False):
            self._check_same()
            yield

    def _holder(self, inode: int) -> int:
        """The process that works in the root, or 0. Another root may have got its inode number since, and be locked."""
        return next((pid for pid in holders_of(inode) if self._has_open(pid)), 0)

    def _has_open(self, pid: int) -> bool:
        try:
            handles = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            return True  # another user's process cannot be looked into
        for handle in handles:
            with suppress(OSError):
                fd = os.open(handle, os.O_PATH | os.O_CLOEXEC)
                with Handle(self.sys, fd):
                    if self.home.name(self.sys.fstat(fd).st_ino, self.sys.born(fd)) == self.name:
                        return True
        return False

    def _check_same(self) -> None:
        with suppress(FileNotFoundError):
            found = self.sys.stat(self.name, dir_fd=self.home.roots)
            same = found.st_ino == self.sys.fstat(self.fd).st_ino
            if same and read_record(self.sys, self.fd, self.keys) == self.record:
                return
        raise JournalError(f"What is kept as {self.name} has changed just now. Try again.")


def entry_name(sys: Syscalls, home: PrivateDir, root: str) -> str | None:
    """The name of the entry that the directory has or would have; None where there is no directory."""
    try:
        fd = sys.open(root, HANDLE)
    except OSError:
        return None
    with Handle(sys, fd):
        return home.name(sys.fstat(fd).st_ino, sys.born(fd))


def entries(sys: Syscalls, home: PrivateDir) -> Iterator[StateEntry | tuple[str, str]]:
    """All entries, one after the other; the name and the reason for one that cannot be opened. Closes each itself."""
    for name in sorted(sys.names(home.roots)):
        if _entry_name(name):
            try:
                entry = StateEntry(sys, home, name)
            except (OSError, NotPrivateError) as error:
                yield name, str(error)
                continue
            with entry:
                yield entry


# Entries that a killed process left although nothing in them is needed: they go when another root is first written.


# Removing what is kept for a root. Its caller holds the root's lock.


def drop_copies(entry: StateEntry) -> None:
    """Remove what an idle root keeps for the next time, and what a crash left over."""
    sys = entry.sys
    for fd in {entry.fd, entry.vault} - {-1}:
        for name in sys.names(fd):
            if name == MIRROR or is_ours(name):
                remove(sys, fd, name)


def drop_all(entry: StateEntry) -> list[str]:
    """Remove entry and vault. What others put into a vault outside of the private directory stays, and so does it."""
    sys = entry.sys
    for name in (JOURNAL, MARKER):  # first: without these nothing is undone by halves
        with suppress(FileNotFoundError, NotADirectoryError):
            remove(sys, entry.fd, name)
    left: list[str] = []
    record = entry.record
    if entry.vault not in {-1, entry.fd}:
        for name in sys.names(entry.vault):
            if name in {MIRROR, TX} or is_ours(name) or name.startswith("rejected-"):
                remove(sys, entry.vault, name)
        assert record is not None
        if not _remove_vault(entry, record):
            left.append(entry.vault_path)
    elif record is not None and not record.inode:
        _remove_vault(entry, record)  # it was only intended, and may be there
    for name in sorted(sys.names(entry.fd), key=lambda name: name == RECORD):  # the description last
        remove(sys, entry.fd, name)
    sys.rmdir(entry.name, dir_fd=entry.home.roots)
    with suppress(FileNotFoundError):
        sys.unlink(entry.name + LOCK, dir_fd=entry.home.roots)
    return left


def _remove_vault(entry: StateEntry, record: RootRecord) -> bool:
    """Whether it could be removed: it must be empty. The root's own time stays."""
    sys = entry.sys
    root = entry.root or record.path
    at = str(Path(entry.vault_path or f"{root if record.inside else Path(root).parent}/{record.vault}").parent)
    with suppress(OSError), Handle(sys, sys.open(at, DIRECTORY)) as fd:
        Vaults(sys, root, fd, durable=False).remove(StateLocation(at, record.vault, record.inside))
        return True
    return False


_log = logging.getLogger(__name__)

_LOOKED: Final = "looked"
_EVERY: Final = 3600
"""A file whose time says when a process last looked at all entries, and the seconds until the next look: there may be
many of them, and this is called whenever one is added."""


def remove_left_over(location: str) -> None:
    """Now and then, remove the entries in the private directory that nothing needs, with their vaults. Raises nothing.

    Not needed is one without an open transaction and without anything that was put aside, be its root there, deleted or
    moved. A process that has the root open, but no transaction, makes a new one when it writes again. What is kept of
    a root on a disk that is not mounted stays, as its vault is not there either.
    """
    with suppress(OSError, NotPrivateError):
        home = private_dir.find(location)
        if home is None or not _is_due(Path(home.path, _LOOKED)):
            return
        for entry in entries(Syscalls(), home):
            if isinstance(entry, StateEntry):
                with suppress(OSError, JournalError, NotPrivateError):
                    _remove_idle(entry)
        _remove_locks(Syscalls(), home)


def _is_due(looked: Path) -> bool:
    """Whether the last look was long ago; if so, this is the one that looks."""
    now = SYSTEM_CLOCK.time()
    with suppress(FileNotFoundError):
        if abs(now - looked.stat().st_mtime) < _EVERY:  # a clock that was wrong puts it off for an hour, not for years
            return False
    looked.touch(0o600)
    os.utime(looked, (now, now))
    return True


def _remove_idle(entry: StateEntry) -> None:
    if entry.vault < 0 or entry.is_open() or entry.rejected():
        return
    with entry.locked():  # raises when a process is at work there
        if not entry.is_open() and not entry.rejected():
            drop_all(entry)
            _log.info("Removed undo state that nothing needs any more: %s", entry.path)


def _remove_locks(sys: Syscalls, home: PrivateDir) -> None:
    """Remove the files that stood for roots that cannot be locked, where no process holds them."""
    for name in sys.names(home.roots):
        if name.endswith(LOCK):
            with suppress(OSError), Handle(sys, sys.open(name, os.O_RDWR, dir_fd=home.roots)) as fd:
                sys.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                sys.unlink(name, dir_fd=home.roots)
