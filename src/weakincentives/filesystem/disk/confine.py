"""Directories and files below one root, opened so that no symlink is passed and nothing above is reached.

Every operation first gets a handle of the directory, then names one entry in it. A path that
another program swaps meanwhile can make an operation fail, but cannot lead it elsewhere.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, final

from ...errors import FilesystemError, PathRefusedError, ReadOnlyError
from ..paths import MAX_PART_BYTES, ROOT, split
from ..protocol import FileKind
from .syscalls import DIRECTORY, HANDLE, Syscalls


@final
class Handle:
    """A directory that stays open for a `with` block; its value is the descriptor."""

    __slots__ = ("_owned", "_sys", "fd")

    def __init__(self, sys: Syscalls, fd: int, *, owned: bool = True) -> None:
        self._sys = sys
        self.fd: int = fd
        self._owned = owned

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_exc: object) -> None:
        if self._owned:
            self._owned = False
            with suppress(OSError):  # what was done through it is done
                self._sys.close(self.fd)


@final
class Confined:
    """Opens by canonical path, below the root only. Owns nothing but what it hands out.

    Args:
        sys: the operating system.
        root: the root's handle.
        one_disk: refuse what is on another disk than the root, too.
    """

    __slots__ = ("_one_disk", "_root", "_sys")

    def __init__(self, sys: Syscalls, root: int, *, one_disk: bool = False) -> None:
        self._sys = sys
        self._root = root
        self._one_disk = one_disk

    def directory(self, path: str, flags: int = HANDLE) -> Handle:
        """The directory's handle; raises what `open` would, and `PathRefusedError` at a symlink."""
        if path == ROOT and flags == HANDLE:
            return Handle(self._sys, self._root, owned=False)
        return Handle(self._sys, self.open(path, flags))

    def parent(self, path: str) -> tuple[Handle, str]:
        """The handle of the directory that holds the path, and the name in it."""
        parent, name = split(path)
        return self.directory(parent), name

    def anchor(self, path: str) -> tuple[Handle, str, Sequence[str]]:
        """The nearest directory that exists, the name in it, and the parts below that are missing with it."""
        rest: list[str] = []
        while True:
            try:
                parent, name = self.parent(path)
            except FileNotFoundError:
                if "/" not in path:
                    raise
                path, last = split(path)
                rest.insert(0, last)
                continue
            return parent, name, rest

    def open(self, path: str, flags: int) -> int:
        """A descriptor of what is there; a symlink anywhere on the way is refused."""
        try:
            if self._sys.has_openat2:
                if self._one_disk:
                    return self._sys.open_beneath(self._root, path, flags, one_disk=True)
                return self._sys.open_beneath(self._root, path, flags)
            return self._walk(path, flags)
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.EXDEV}:
                raise refused(path, "passes a symlink or leaves the root") from None
            if error.errno == errno.ENAMETOOLONG and len(path) > MAX_PART_BYTES and self._sys.has_openat2:
                return self._walk(path, flags)  # longer than the kernel takes at once; no name in it need be
            raise

    def _walk(self, path: str, flags: int) -> int:
        """The same by one directory handle after the other, for systems without `openat2`."""
        at = self._root
        parts = path.split("/")
        try:
            for part in parts[:-1]:
                following = self._step(at, part, HANDLE)
                if at != self._root:
                    self._sys.close(at)
                at = following
            return self._step(at, parts[-1], flags)
        finally:
            if at != self._root:
                self._sys.close(at)

    def _step(self, at: int, part: str, flags: int) -> int:
        try:
            fd = self._sys.open(part, flags, dir_fd=at)
        except NotADirectoryError:
            if stat.S_ISLNK(self._sys.stat(part, dir_fd=at).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part) from None
            raise
        if self._one_disk and self._sys.fstat(fd).st_dev != self._sys.fstat(self._root).st_dev:
            self._sys.close(fd)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), part)
        return fd


def sync_directory(sys: Syscalls, at: int) -> None:
    """Wait until the directory is on the disk; one that may be written, but not read, cannot be asked for."""
    with suppress(PermissionError), Handle(sys, sys.open(".", DIRECTORY, dir_fd=at)) as fd:
        sys.fsync(fd)


def kind_of(mode: int) -> FileKind:
    """The kind that belongs to an `st_mode`."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def refused(path: str, why: str) -> PathRefusedError:
    """The refusal, in one form."""
    return PathRefusedError(f"The path {path!a} {why}; only ordinary files and directories can be used.")


def explained(error: OSError, path: str, root: str) -> OSError:
    """The kernel's error with the path as the caller wrote it, and what to do where that helps."""
    if isinstance(error, FilesystemError | ReadOnlyError):
        return error
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            text = f"No space left on the disk of {root}; nothing was changed. Free some space and try again"
            return OSError(error.errno, text, path)
        case errno.EROFS:
            return ReadOnlyError(
                f"{root} is on a read-only filesystem, so {path!a} was not changed; remount it writable."
            )
        case errno.EXDEV:
            return refused(path, "is on another filesystem, or on a lower layer of an overlay")
        case errno.ENAMETOOLONG:
            return refused(path, "has a name that is too long for this filesystem")
        case errno.ELOOP:
            return refused(path, "passes a symlink")
        case errno.ENXIO | errno.ENODEV:
            return refused(path, "is a socket, FIFO or device")
        case None:
            return error
        case code:
            named = error.filename  # something in a tree at that path says more than the path
            if named == path or (isinstance(named, str) and named.startswith(f"{path}/")):
                return error
            return OSError(code, os.strerror(code), path)


# Which paths and names a recovery may act on, whatever a journal says: those below the root, and our own.


_image = re.compile(r"image-[0-9a-f]{12}-[0-9]+").fullmatch
_staged = re.compile(r"stage-[0-9a-f]{12}-[0-9]+").fullmatch
_ours = re.compile(r"(?:image|stage|trash)-[0-9a-f]{12}-[0-9]+").fullmatch
_copy = re.compile(r"c[0-9]+(?:[+][0-9]+)?").fullmatch
_copy_file = re.compile(r"c[0-9]+").fullmatch


def is_beneath(path: Any) -> bool:
    """Whether it is a path below the root: text, relative, without empty parts, `.`, `..` and NUL.

    >>> is_beneath("src/a.py"), is_beneath("../a.py"), is_beneath("/etc"), is_beneath("")
    (True, False, False, False)
    """
    return isinstance(path, str) and "\0" not in path and not any(part in {"", ".", ".."} for part in path.split("/"))


def is_image(name: Any) -> bool:
    """Whether an image in the vault may have that name."""
    return isinstance(name, str) and _image(name) is not None


def is_staged(name: Any) -> bool:
    """Whether something that was staged in the vault may have that name."""
    return isinstance(name, str) and _staged(name) is not None


def is_ours(name: str) -> bool:
    """Whether we give such names to what we keep in a vault: images, staged files and what is to be removed."""
    return _ours(name) is not None


def is_copy(name: Any) -> bool:
    """Whether a copy in the mirror may have that name: that of a file, or with `+` a position in a file of many."""
    return isinstance(name, str) and _copy(name) is not None


def is_copy_file(name: str) -> bool:
    """Whether a file of the mirror, with one copy or with many, may have that name."""
    return _copy_file(name) is not None


# Removing what is ours in a vault: files and whole trees, however they are nested and protected.


def _random_name(what: str) -> str:
    return f"{what}-{os.urandom(6).hex()}-0"


def remove(sys: Syscalls, at: int, name: str, new_name: Callable[[str], str] = _random_name) -> None:
    """Remove the name from the directory `at`; what is not there is removed.

    Without recursion, as others may have nested the tree very deeply: directories come up to `at` first, under the
    names that `new_name` makes.
    """
    pending = [name]
    while pending:
        name = pending.pop()
        try:
            removed = unlinked(sys, name, at)
        except FileNotFoundError:
            continue
        if not removed:
            pending += _remove_directory(sys, at, name, new_name)


def _remove_directory(sys: Syscalls, at: int, name: str, new_name: Callable[[str], str]) -> list[str]:
    """Empty and remove it; the new names of the directories that were in it."""
    raised: list[str] = []
    try:
        _empty(sys, at, name, new_name, raised)
    except PermissionError:
        sys.chmod(name, 0o700, dir_fd=at)  # ours alone by now, and it was write-protected
        _empty(sys, at, name, new_name, raised)
    sys.rmdir(name, dir_fd=at)
    return raised


def _empty(sys: Syscalls, at: int, name: str, new_name: Callable[[str], str], raised: list[str]) -> None:
    with Handle(sys, sys.open(name, DIRECTORY, dir_fd=at)) as fd:
        for child in sys.names(fd):
            if not unlinked(sys, child, fd):
                raised += [_raise(sys, at, child, fd, new_name("trash"))]


def unlinked(sys: Syscalls, name: str, at: int) -> bool:
    """Remove the name, unless it is a directory: False. Linux says so, others call it not permitted."""
    try:
        sys.unlink(name, dir_fd=at)
    except IsADirectoryError:
        return False
    except PermissionError as error:
        if error.errno == errno.EPERM and stat.S_ISDIR(sys.stat(name, dir_fd=at).st_mode):
            return False
        raise
    return True


def _raise(sys: Syscalls, at: int, child: str, fd: int, trash: str) -> str:
    try:
        sys.rename(child, trash, source_fd=fd, target_fd=at)
    except PermissionError:
        sys.chmod(child, 0o700, dir_fd=fd)
        sys.rename(child, trash, source_fd=fd, target_fd=at)
    return trash
