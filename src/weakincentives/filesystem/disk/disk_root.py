"""The root on disk and what is kept to undo changes of it: opened once, locked while something is written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import final

from ...errors import JournalError, ReadOnlyError
from ...interrupts import WeakTable
from ..paths import normalise
from .confine import Confined, explained, sync_directory
from .journal import Journal
from .kept_state import remove_left_over
from .locations import StateFinder, warn_of_old_state
from .state_dir import RootLock, StateDir
from .syscalls import HANDLE, Syscalls

PATIENCE = 1.0
"""Seconds to wait for another writer of the same root."""


@final
class DiskRoot:
    """What all that works on one root shares. Owns its descriptors until `close`.

    `acquire` and `release` nest; the lock on the root is held from the first to the last. Getting it
    first undoes what a crashed process left (`recover`).

    Attributes:
        dirs: opens what is below the root.
        undo_dirs: the same for undoing: refuses other disks as well.
        closed: set when it is to be used no more.
        hides: whether the vault is, or would be, inside the root.
        hidden: the vault's name in the root; empty while there is none.
    """

    __slots__ = (
        "__weakref__",
        "_depth",
        "_journal",
        "_lock",
        "_pid",
        "_places",
        "_state",
        "closed",
        "device",
        "dirs",
        "durable",
        "hidden",
        "hides",
        "recover",
        "root",
        "root_fd",
        "sys",
        "undo_dirs",
    )

    def __init__(
        self, sys: Syscalls, root: str, *, durable: bool, state_dir: str | os.PathLike[str] | None = None
    ) -> None:
        self.sys: Syscalls = sys
        self.root: str = os.path.realpath(root)
        self.root_fd: int = _open_root(sys, self.root)
        self.device: int = sys.fstat(self.root_fd).st_dev
        self.dirs: Confined = Confined(sys, self.root_fd)
        self.undo_dirs: Confined = Confined(sys, self.root_fd, one_disk=True)
        self.durable: bool = durable
        self.closed: bool = True
        try:
            self._places = StateFinder(sys, self.root, self.root_fd, state_dir, durable=durable)
            self.hides: bool = self._places.must_hide()
        except BaseException:
            sys.close(self.root_fd)
            raise
        self.hidden: str = ""
        self._lock = RootLock(sys, self.root, self.root_fd, self._places.substitute_lock)
        self.recover: Callable[[], None] = _nothing
        self._pid = os.getpid()
        self._state: StateDir | None = None
        self._journal: Journal | None = None
        self._depth = 0
        _disks.put(self, None)

    @property
    def state(self) -> StateDir:
        """Entry and vault; only between `acquire` and `release`."""
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

    def canonical(self, path: str) -> str:
        """The canonical form of a path that is to be used; `ValueError` when the root is closed."""
        path = normalise(path)
        if self.closed:
            raise ValueError(f"The filesystem on {self.root} is closed; open it again.")
        return path

    def acquire(self) -> None:
        """Be the only writer; `JournalError` when another process stays in the way."""
        self.check()
        if self._depth == 0:
            self._enter()
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
            self._lock.unlock()

    def reset(self, holds: int) -> None:
        """After an interrupt at any moment: hold the lock as often as is known to be needed, and trust no file."""
        if self._state is None:
            self._depth = 0
            self._lock.unlock()
            return
        self._depth = holds
        if holds:
            self._lock.lock(PATIENCE)  # once more does no harm
        else:
            self._lock.unlock()
        if self._journal is not None:
            self._journal.torn = True

    def sweep(self, kept: Collection[str] = ()) -> None:
        """Remove what is left over in the vault, if there is one, except for these names."""
        if self._state is not None:
            self.acquire()
            try:
                self.state.sweep(kept)
            finally:
                self.release()

    def sync(self, at: int) -> None:
        """Wait until the directory is on the disk, if durable."""
        if self.durable:
            sync_directory(self.sys, at)

    def inspect(self) -> None:
        """Find what an earlier process left, and undo it; unless another process is at work there right now."""
        warn_of_old_state(self.root)
        if not self._places.has_entry():
            return
        try:
            self._lock.lock(PATIENCE)
        except JournalError:
            if self._places.pending():
                raise
            return
        try:
            found = self._places.find()
            if found is not None:
                self._use(found)
                self._recover()
                found.sweep()
        finally:
            self._lock.unlock()

    def left_open(self) -> bool:
        """Whether a transaction is open, or was left open, by whatever process."""
        return self._places.pending()

    def close(self) -> None:
        """Give everything back. Vault and entry go when nothing in them is needed."""
        if self.root_fd < 0:
            return
        self._drop(remove=not self.foreign)
        self._lock.close()
        fd, self.root_fd = self.root_fd, -1
        with suppress(OSError):
            self.sys.close(fd)

    def after_fork(self) -> None:
        """In the child: the lock stays with the parent."""
        self._lock.forget()

    def _enter(self) -> None:
        self._lock.lock(PATIENCE)
        try:
            if self._state is not None and self._state.vanished():
                self._drop()  # another process closed and removed it
            if self._state is None:
                self._use(self._places.find() or self._make())
            self._recover()
        except BaseException:
            self._lock.unlock()
            raise

    def _recover(self) -> None:
        """Undo what is left of a transaction; the lock is held."""
        parts = [name for name, left in (("journal", self.journal.pending()), ("mirror", self.state.watched())) if left]
        if not parts:
            return
        self._depth += 1  # what recovers acquires the lock, and must not give it back
        try:
            self.state.adopt(parts)
            self.recover()
        finally:
            self._depth -= 1

    def _make(self) -> StateDir:
        try:
            made = self._places.make()
        except OSError as error:
            if error.errno == errno.EROFS:
                raise ReadOnlyError(
                    f"{self.root} is on a read-only filesystem, so nothing was changed; remount it writable."
                ) from error
            if error.errno in {errno.EACCES, errno.EPERM}:
                text = f"Neither {self.root} nor the directory it is in may be written; change its mode"
                raise PermissionError(error.errno, text, self.root) from error
            raise
        if made.lasting:
            remove_left_over(self._places.location)
        return made

    def _use(self, state: StateDir) -> None:
        self.hides = self.hides or state.inside
        self.hidden = state.binding.vault if state.inside else ""
        self._journal, self._state = Journal(self.sys, state, durable=self.durable), state

    def _drop(self, *, remove: bool = False) -> None:
        # Forgotten before they are closed: after an interrupt in between, closed ones must not be used again.
        journal, state, self._journal, self._state = self._journal, self._state, None, None
        self.hidden = ""
        if journal is not None:
            with suppress(OSError):
                journal.close()
        if state is not None:
            if remove:
                with suppress(OSError, JournalError):
                    self._lock.lock(0.0)
                    self._places.remove(state)
            state.close()


@final
class PathErrors:
    """Turns the kernel's errors into ones that name the path as the caller knows it."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: DiskRoot, path: str) -> None:
        self._disk = disk
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and (told := explained(error, self._path, self._disk.root)) is not error:
            raise told from error


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


_disks: WeakTable[DiskRoot, None] = WeakTable()


def _after_fork() -> None:
    for disk in _disks.living():
        disk.after_fork()


os.register_at_fork(after_in_child=_after_fork)
