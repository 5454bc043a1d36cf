"""The root on disk and its state directory: opened once, locked while something is written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import final

from ..errors import JournalError, ReadOnlyError
from ..weak_table import WeakTable
from . import state_dir
from .confine import Confined
from .journal import Journal
from .state_dir import StateDir
from .syscalls import DIRECTORY, HANDLE, Syscalls

PATIENCE = 1.0
"""Seconds to wait for another writer of the same root."""


@final
class Disk:
    """What all that works on one root shares. Owns its descriptors until `close`.

    `acquire` and `release` nest; the lock on the state directory is held from the first to the last. Whoever
    gets it first takes back what a crashed process left (`recover`).
    """

    __slots__ = (
        "__weakref__",
        "_depth",
        "_journal",
        "_pid",
        "_state",
        "device",
        "dirs",
        "durable",
        "hides",
        "recover",
        "root",
        "root_fd",
        "sys",
    )

    def __init__(self, sys: Syscalls, root: str, *, durable: bool) -> None:
        self.sys = sys
        self.root = os.path.realpath(root)
        self.root_fd = _open_root(sys, self.root)
        self.device = sys.fstat(self.root_fd).st_dev
        self.dirs = Confined(sys, self.root_fd)
        self.durable = durable
        self.hides = state_dir.must_hide(sys, self.root_fd, self.root)
        self.recover: Callable[[], None] = _nothing
        self._pid = os.getpid()
        self._state: StateDir | None = None
        self._journal: Journal | None = None
        self._depth = 0
        _disks.put(self, None)

    @property
    def state(self) -> StateDir:
        """The state directory; only between `acquire` and `release`."""
        assert self._state is not None
        return self._state

    @property
    def journal(self) -> Journal:
        """Its journal; only between `acquire` and `release`."""
        assert self._journal is not None
        return self._journal

    @property
    def torn(self) -> bool:
        """Whether the journal's file may say more than is known here."""
        return self._journal is not None and self._journal.torn

    @property
    def foreign(self) -> bool:
        """Whether this process is a fork of the one that opened the root."""
        return os.getpid() != self._pid

    def acquire(self) -> None:
        """Be the only writer; `JournalError` when another process stays in the way."""
        self.check()
        if self._depth == 0:
            self._lock()
        self._depth += 1

    def check(self) -> None:
        """Raise `JournalError` in a forked child: the transaction is the parent's."""
        if self.foreign:
            raise JournalError(
                f"{self.root} was opened before this process was forked; open a HostFilesystem in the child."
            )

    def release(self) -> None:
        """Undo one `acquire`."""
        self._depth -= 1
        if self._depth == 0:
            self.state.unlock()

    def reset(self, holds: int) -> None:
        """After an interrupt at any moment: hold the lock as often as is known to be needed, and trust no file."""
        if self._state is None:
            self._depth = 0
            return
        self._depth = holds
        if holds:
            self._state.lock(PATIENCE)  # once more does no harm
        else:
            self._state.unlock()
        if self._journal is not None:
            self._journal.torn = True

    def sweep(self, kept: Collection[str] = ()) -> None:
        """Remove what is left over in the state directory, if there is one, except for these names."""
        if self._state is not None:
            self.acquire()
            try:
                self.state.sweep(kept)
            finally:
                self.release()

    def sync(self, at: int) -> None:
        """Wait until the directory is on the disk."""
        with suppress(PermissionError):  # may be written, not read: no way to ask for it
            fd = self.sys.open(".", DIRECTORY, dir_fd=at)
            try:
                self.sys.fsync(fd)
            finally:
                self.sys.close(fd)

    def inspect(self) -> StateDir | None:
        """Find what an earlier process left, wherever it is, and take it back; the one to use, if any."""
        found: StateDir | None = None
        for spot in state_dir.spots(self.root):
            state = state_dir.find(self.sys, self.root_fd, spot)
            if state is None:
                continue
            self._use(state)
            try:
                self._tidy()
            finally:
                if found is not None:
                    self._drop()
                    self._use(found)
            found = found or state
        return found

    def close(self) -> None:
        """Give everything back. The state directory goes when nothing in it is needed."""
        if self.root_fd < 0:
            return
        self._drop(remove=not self.foreign)
        fd, self.root_fd = self.root_fd, -1
        with suppress(OSError):
            self.sys.close(fd)

    def after_fork(self) -> None:
        """In the child: the lock stays with the parent."""
        if self._state is not None:
            self._state.forget()

    def _lock(self) -> None:
        for _ in range(10):
            if self._state is None:
                self._use(self._make())
            if self.state.lock(PATIENCE):
                break
            self._drop()  # another process closed and removed it just now
        else:
            raise JournalError(f"The state directory of {self.root} keeps vanishing; stop what removes it.")
        self._depth += 1
        try:
            if self.journal.pending() or self.state.watched():
                self.recover()
        except BaseException:
            self.release()
            raise
        self._depth -= 1

    def _make(self) -> StateDir:
        try:
            return state_dir.make(self.sys, self.root_fd, self.root, durable=self.durable)
        except OSError as error:
            if error.errno == errno.EROFS:
                raise ReadOnlyError(
                    f"{self.root} is on a read-only filesystem, so nothing was changed; remount it writable."
                ) from error
            if error.errno in {errno.EACCES, errno.EPERM}:
                text = f"Neither {self.root} nor the directory it is in may be written; change its mode"
                raise PermissionError(error.errno, text, self.root) from error
            raise

    def _tidy(self) -> None:
        """Recover, and remove what is left over, unless another process is at work there right now."""
        try:
            self.acquire()
        except JournalError:
            if self.journal.pending() or self.state.watched():
                raise
            return
        try:
            self.state.sweep()
        finally:
            self.release()

    def _use(self, state: StateDir) -> None:
        self.hides = self.hides or state.spot.inside
        self._journal, self._state = Journal(self.sys, state.fd, durable=self.durable), state

    def _drop(self, *, remove: bool = False) -> None:
        # Forgotten before they are closed: after an interrupt in between, closed ones must not be used again.
        journal, state, self._journal, self._state = self._journal, self._state, None, None
        if journal is not None:
            with suppress(OSError):
                journal.close()
        if state is not None:
            with suppress(OSError, JournalError):
                state.close(remove=remove)


def _nothing() -> None:
    return None


def _open_root(sys: Syscalls, root: str) -> int:
    try:
        return sys.open(root, HANDLE)
    except FileNotFoundError:
        text = "The root of a HostFilesystem must exist; make the directory first"
        raise FileNotFoundError(errno.ENOENT, text, root) from None
    except NotADirectoryError:
        text = "The root of a HostFilesystem must be a directory"
        raise NotADirectoryError(errno.ENOTDIR, text, root) from None


_disks: WeakTable[Disk, None] = WeakTable()


def _after_fork() -> None:
    for disk in _disks.living():
        disk.after_fork()


os.register_at_fork(after_in_child=_after_fork)

__all__ = ["PATIENCE", "Disk"]
