"""What is kept for roots, as a person may look at it: which entries there are, whose, how large, and in what state."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, final

from ...errors import JournalError
from .confine import Handle
from .frames import Authenticator, RejectedError, read_header
from .journal import Record, read
from .locations import Places
from .private_dir import ROOTS, NotPrivateError, PrivateDir, check_private
from .root_lock import RootLock, holders_of
from .state_dir import JOURNAL, MARKER, MIRROR
from .syscalls import DIRECTORY, HANDLE, Syscalls
from .vaults import SAME, RootRecord, read_record

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
class Entry:
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
        self.sys = sys
        self.home = home
        self.name = name
        self.keys = Authenticator(home.root_key(name))
        self.fd = sys.open(name, DIRECTORY, dir_fd=home.roots)
        self.vault, self.vault_path = -1, ""
        try:
            check_private(sys.fstat(self.fd), f"{home.path}/{ROOTS}/{name}")
            self.record = read_record(sys, self.fd, self.keys)
            self.root = root if root is not None else self._find_root()
            self._open_vault()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Entry:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        """Of the entry."""
        return f"{self.home.path}/{ROOTS}/{self.name}"

    def close(self) -> None:
        """Give the descriptors back."""
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
                if self._is_vault(fd, record):
                    self.vault, self.vault_path = fd, f"{parent}/{record.vault}"
                    return
                self.sys.close(fd)

    def _is_vault(self, fd: int, record: RootRecord) -> bool:
        found = self.sys.fstat(fd)
        same = (found.st_ino, self.sys.born(fd)) == (record.inode, record.born)
        return same and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700

    # --- what is in it

    def is_open(self) -> bool:
        """Whether there is something that opening the root would undo."""
        return self._size(JOURNAL) > 0 or self._size(MARKER) > 0

    def is_watched(self) -> bool:
        """Whether that is what `watch="scan"` keeps."""
        return self._size(MARKER) > 0

    def _size(self, name: str) -> int:
        with suppress(FileNotFoundError, NotADirectoryError):
            found = self.sys.stat(name, dir_fd=self.fd)
            return found.st_size if stat.S_ISREG(found.st_mode) else 1
        return 0

    def records(self) -> list[Record]:
        """What the journal would undo, oldest first; empty where it cannot be read."""
        return self._journal()[1]

    def _journal(self) -> tuple[int, list[Record]]:
        """The inode of the root that the journal belongs to, or 0, and its records."""
        with suppress(OSError, RejectedError, ValueError):
            fd = self.sys.open(JOURNAL, os.O_RDONLY | os.O_NONBLOCK, dir_fd=self.fd)
            data = b""
            with Handle(self.sys, fd):
                while piece := self.sys.read(fd, 1 << 20):
                    data += piece
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
        with suppress(OSError):
            fd = self.sys.open(MIRROR, DIRECTORY, dir_fd=self.vault)
            try:
                return sum(name.startswith("c") for name in self.sys.names(fd))
            finally:
                self.sys.close(fd)
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
        root_fd = self.sys.open(self.root, HANDLE)
        try:
            places = Places(self.sys, self.root, root_fd, self.home.path, durable=False)
            lock = RootLock(self.sys, self.root, root_fd, places.substitute_lock)
            try:
                lock.lock(0.0)
                self._check_same()
                yield
            finally:
                lock.close()
        finally:
            self.sys.close(root_fd)

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
    try:
        return home.name(sys.fstat(fd).st_ino, sys.born(fd))
    finally:
        sys.close(fd)


def entries(sys: Syscalls, home: PrivateDir) -> Iterator[Entry | tuple[str, str]]:
    """All entries, one after the other; the name and the reason for one that cannot be opened. Closes each itself."""
    for name in sorted(sys.names(home.roots)):
        if _entry_name(name):
            try:
                entry = Entry(sys, home, name)
            except (OSError, NotPrivateError) as error:
                yield name, str(error)
                continue
            with entry:
                yield entry


__all__ = ["Entry", "KeptState", "Status", "entries", "entry_name"]
