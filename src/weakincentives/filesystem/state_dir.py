"""The folder that keeps what is needed to go back: beside the root where possible, else hidden in it.

It holds `lock`, `journal` and files named after what they are for; nothing else in it is ever touched. Its mode
is 0700 and it is on the root's own filesystem, so that moving things in and out is one step.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from ..errors import JournalError
from .syscalls import DIRECTORY, Syscalls

HIDDEN: Final = ".wink"
"""Its name inside a root that has no place beside it."""

MIRROR: Final = "mirror"
MARKER: Final = f"{MIRROR}/open"
"""What `watch="scan"` keeps there."""

_LOCK: Final = "lock"
_ours = re.compile(r"(?:image|stage|trash)-[0-9a-f]{12}-[0-9]+").fullmatch
_UNUSABLE: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


@dataclass(frozen=True, slots=True)
class Spot:
    """A place where the state directory may be: a name in a directory that is given by path."""

    parent: str
    name: str
    inside: bool

    @property
    def path(self) -> str:
        """For messages."""
        return os.path.join(self.parent, self.name)  # noqa: PTH118 - text for messages


def spots(root: str) -> tuple[Spot, ...]:
    """Where to look, the preferred one first."""
    parent, name = os.path.split(root)
    inside = Spot(root, HIDDEN, inside=True)
    if not name or len(os.fsencode(name)) > 240:
        return (inside,)
    return Spot(parent, f".{name}.wink", inside=False), inside


@final
class StateDir:
    """One opened state directory. Holds its descriptors until `close`.

    `lock` and `unlock` exclude every other process and every other object of this one.
    """

    __slots__ = ("_count", "_lock_fd", "_prefix", "_root_fd", "_sys", "fd", "spot")

    def __init__(self, sys: Syscalls, root_fd: int, fd: int, spot: Spot) -> None:
        self._sys = sys
        self._root_fd = root_fd
        self.fd = fd
        self.spot = spot
        self._lock_fd = -1
        self._prefix = os.urandom(6).hex()
        self._count = 0

    def new_name(self, what: str) -> str:
        """A name that nobody uses: "image", "stage" or "trash" and a number."""
        self._count += 1
        return f"{what}-{self._prefix}-{self._count}"

    def watched(self) -> bool:
        """Whether a transaction that watches other programs is open, or was left open."""
        try:
            self._sys.stat(MARKER, dir_fd=self.fd)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    # --- one writer

    def lock(self, patience: float) -> bool:
        """Exclude all others, waiting up to `patience` seconds; False when the directory is gone meanwhile.

        Raises `JournalError` naming the process that has it.
        """
        if self._lock_fd < 0:
            try:
                self._lock_fd = self._sys.open(_LOCK, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self.fd)
            except FileNotFoundError:
                return False
        deadline: float | None = None
        while True:
            try:
                self._sys.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                now = time.monotonic()
                deadline = now + patience if deadline is None else deadline
                if now >= deadline:
                    raise JournalError(self._held()) from None
                time.sleep(0.002)
            except OSError as error:
                raise JournalError(
                    f"{self.spot.path} cannot be locked ({error.strerror}); use a local filesystem."
                ) from error
        if self._sys.fstat(self._lock_fd).st_nlink > 0:
            return True
        self.unlock()
        return False

    def unlock(self) -> None:
        """Let others write; without the lock it does nothing."""
        if self._lock_fd >= 0:
            with suppress(OSError):  # locking again while it is held does no harm
                self._sys.flock(self._lock_fd, fcntl.LOCK_UN)

    def _held(self) -> str:
        holder = _holder(self._sys.fstat(self._lock_fd).st_ino)
        if holder == os.getpid():
            who = "another HostFilesystem of this process"
        else:
            who = f"process {holder}" if holder else "another process"
        return (
            f"{who} has a transaction open on {self.spot.path}; one writer at a time. "
            "Wait until it is over, or give each its own root."
        )

    # --- cleaning

    def purge(self, name: str) -> None:
        """Remove a file or tree of ours; what cannot be removed now goes when the root is next opened."""
        with suppress(OSError):
            self._remove(name)

    def sweep(self, kept: Collection[str] = ()) -> None:
        """Remove all that a crash left; only with the lock held. `kept` are the names that the journal needs."""
        for name in self._sys.names(self.fd):
            if _ours(name) and name not in kept:
                self.purge(name)

    def _remove(self, name: str) -> None:
        """Without recursion, as others may have nested the tree very deeply: directories come up here first."""
        pending = [name]
        while pending:
            name = pending.pop()
            try:
                self._sys.unlink(name, dir_fd=self.fd)
            except FileNotFoundError:
                pass
            except IsADirectoryError:
                pending += self._remove_directory(name)

    def _remove_directory(self, name: str) -> list[str]:
        """Empty and remove it; the new names of the directories that were in it."""
        raised: list[str] = []
        try:
            self._empty(name, raised)
        except PermissionError:
            self._sys.chmod(name, 0o700, dir_fd=self.fd)  # ours alone by now, and it was write-protected
            self._empty(name, raised)
        self._sys.rmdir(name, dir_fd=self.fd)
        return raised

    def _empty(self, name: str, raised: list[str]) -> None:
        fd = self._sys.open(name, DIRECTORY, dir_fd=self.fd)
        try:
            for child in self._sys.names(fd):
                try:
                    self._sys.unlink(child, dir_fd=fd)
                except IsADirectoryError:
                    raised.append(self._raise(child, fd))
        finally:
            self._sys.close(fd)

    def _raise(self, child: str, fd: int) -> str:
        trash = self.new_name("trash")
        try:
            self._sys.rename(child, trash, source_fd=fd, target_fd=self.fd)
        except PermissionError:
            self._sys.chmod(child, 0o700, dir_fd=fd)
            self._sys.rename(child, trash, source_fd=fd, target_fd=self.fd)
        return trash

    # --- the end

    def close(self, *, remove: bool = False) -> None:
        """Give the descriptors back; with `remove` and nobody else in it, the directory goes, too."""
        if remove:
            with suppress(OSError):
                self._remove_self()
        fds, self._lock_fd, self.fd = (self._lock_fd, self.fd), -1, -1
        for fd in fds:
            if fd >= 0:
                self._sys.close(fd)

    def forget(self) -> None:
        """In a forked child: the lock is the parent's, and must not outlive it here."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _remove_self(self) -> None:
        if not self.lock(0.0):
            return
        try:
            if self._sys.stat("journal", dir_fd=self.fd).st_size > 0:
                return
            self._sys.unlink("journal", dir_fd=self.fd)
        except FileNotFoundError:
            pass
        self.sweep()
        if self._sys.names(self.fd) != [_LOCK]:
            return
        self._sys.unlink(_LOCK, dir_fd=self.fd)
        parent = _open_parent(self._sys, self._root_fd, self.spot)
        try:
            before = self._sys.fstat(parent)
            self._sys.rmdir(self.spot.name, dir_fd=parent)
            if self.spot.inside:
                self._sys.utime(".", (before.st_atime_ns, before.st_mtime_ns), dir_fd=parent)
        finally:
            self._sys.close(parent)


def must_hide(sys: Syscalls, root_fd: int, root: str) -> bool:
    """Whether there is no place beside the root, so that it would be inside."""
    spot = spots(root)[0]
    if spot.inside:
        return True
    try:
        parent = _open_parent(sys, root_fd, spot)
    except OSError:
        return True
    try:
        return not sys.access(".", os.W_OK, dir_fd=parent) and not sys.access(spot.name, os.W_OK, dir_fd=parent)
    finally:
        sys.close(parent)


def find(sys: Syscalls, root_fd: int, spot: Spot) -> StateDir | None:
    """The state directory that is there already, or None; never makes anything."""
    try:
        parent = _open_parent(sys, root_fd, spot)
    except OSError:
        return None
    try:
        return _enter(sys, root_fd, parent, spot)
    except OSError:
        return None
    finally:
        sys.close(parent)


def make(sys: Syscalls, root_fd: int, root: str, *, durable: bool = False) -> StateDir:
    """The state directory, made where there is none.

    Raises `PermissionError` when no place can be written.
    """
    for spot in spots(root):
        try:
            return _make(sys, root_fd, spot, durable=durable)
        except OSError as error:
            if error.errno not in _UNUSABLE or spot.inside:
                raise
    raise AssertionError("unreachable: the last spot is inside")


def _make(sys: Syscalls, root_fd: int, spot: Spot, *, durable: bool) -> StateDir:
    parent = _open_parent(sys, root_fd, spot)
    try:
        before = sys.fstat(parent)
        with suppress(FileExistsError):
            sys.mkdir(spot.name, 0o700, dir_fd=parent)
            if spot.inside:  # the root looks as it did
                sys.utime(".", (before.st_atime_ns, before.st_mtime_ns), dir_fd=parent)
        if durable:
            sys.fsync(parent)
        return _enter(sys, root_fd, parent, spot)
    finally:
        sys.close(parent)


def _open_parent(sys: Syscalls, root_fd: int, spot: Spot) -> int:
    """The directory that holds the spot; refused when moving between it and the root would be no single step."""
    if spot.inside:
        return sys.open(".", DIRECTORY, dir_fd=root_fd)
    parent = sys.open(spot.parent, DIRECTORY)
    if sys.fstat(parent).st_dev != sys.fstat(root_fd).st_dev or _mount(parent) != _mount(root_fd):
        sys.close(parent)
        raise OSError(errno.EPERM, "on another filesystem", spot.path)
    return parent


def _enter(sys: Syscalls, root_fd: int, parent: int, spot: Spot) -> StateDir:
    fd = sys.open(spot.name, DIRECTORY, dir_fd=parent)
    found = sys.fstat(fd)
    root = sys.fstat(root_fd)
    if found.st_dev != root.st_dev or found.st_uid not in {os.geteuid(), root.st_uid}:
        sys.close(fd)
        raise OSError(errno.EPERM, "not ours", spot.path)
    if stat.S_IMODE(found.st_mode) != 0o700:
        sys.fchmod(fd, 0o700)
    return StateDir(sys, root_fd, fd, spot)


def _mount(fd: int) -> str:
    """Which mount it is in: bind mounts share a device, yet nothing can be renamed between them."""
    with suppress(OSError):
        for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
            if line.startswith("mnt_id:"):
                return line
    return ""


def _holder(inode: int) -> int:
    """The process that holds the lock, or 0 where the kernel does not tell."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and "->" not in fields and fields[5].endswith(f":{inode}"):
                return int(fields[4])
    return 0


__all__ = ["HIDDEN", "MARKER", "MIRROR", "Spot", "StateDir", "find", "make", "must_hide", "spots"]
