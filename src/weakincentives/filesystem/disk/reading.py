"""Reading a real directory, confined to it. No lock is taken: files are replaced as a whole, never changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from sys import maxsize
from typing import Final

from ...fence import check_wanted
from ..paths import ROOT, addressable, is_a_directory, join
from ..protocol import FileKind, FileStat, check_chunk_size, check_range, decode
from ..search import Searching
from ..search.walk import while_wanted
from .confine import Handle, kind_of, refused
from .disk_root import DiskRoot, PathErrors
from .syscalls import CHUNK, DIRECTORY, READ

LONG: Final = 8 << 20
"""More is read by pieces of this length: between them a call that was given up on ends."""


class HostReading(Searching):
    """The reading half of `HostFilesystem`, which owns the disk and closes it."""

    __slots__ = ("_disk", "_read_only")

    _disk: DiskRoot
    _read_only: bool

    def read(self, path: str, *, encoding: str = "utf-8") -> str:
        """See `Filesystem.read`."""
        return decode(self.read_bytes(path), path, encoding)

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """See `Filesystem.read_bytes`."""
        check_range(offset, limit)
        path = self._disk.canonical(path)
        with PathErrors(self._disk, path), self._open_file(path) as fd:
            if limit is not None and limit <= CHUNK:
                return self._pread(fd, limit, offset)
            # Room for what is there, not for what was asked.
            size = max(0, self._disk.sys.fstat(fd).st_size - offset)
            known = size if limit is None else min(size, limit)
            if known > LONG:
                _check_memory(path, known)
            data = self._pread(fd, min(known, LONG), offset)
            left = (maxsize if limit is None else limit) - len(data)
            more = self._disk.sys.pread(fd, min(CHUNK, left), offset + len(data)) if left else b""
            return self._long(fd, data, more, offset, left) if more else data  # long, or it grew, or it tells no size

    def stream(self, path: str, *, chunk_size: int = 65536) -> Iterator[bytes]:
        """See `Filesystem.stream`; the file is held open until the iterator is used up or dropped."""
        check_chunk_size(chunk_size)
        path = self._disk.canonical(path)
        with PathErrors(self._disk, path):
            return self._pieces(self._open_file(path), chunk_size)

    def exists(self, path: str) -> bool:
        """See `Filesystem.exists`."""
        try:
            self.stat(path)
        except OSError:
            return False
        return True

    def stat(self, path: str) -> FileStat:
        """See `Filesystem.stat`."""
        path = self._disk.canonical(path)
        with PathErrors(self._disk, path):
            if path == ROOT:
                return self._stat(ROOT, self._disk.sys.fstat(self._disk.root_fd), readonly=self._read_only)
            parent, name = self._disk.dirs.parent(path)
            with parent as at:
                return self._stat(path, self._disk.sys.stat(name, dir_fd=at), readonly=self._read_only)

    def list(self, path: str = ROOT) -> Sequence[FileStat]:
        """See `Filesystem.list`; names that the API would refuse are left out."""
        path = self._disk.canonical(path)
        found: list[FileStat] = []
        with PathErrors(self._disk, path), self._disk.dirs.directory(path, DIRECTORY) as fd:
            for name in while_wanted(sorted(self._disk.sys.names(fd))):
                if addressable(name):
                    with suppress(FileNotFoundError):  # gone since
                        child = self._disk.sys.stat(name, dir_fd=fd)
                        found.append(self._stat(join(path, name), child, readonly=self._read_only))
        return found

    def is_readonly(self, path: str) -> bool:
        """See `Filesystem.is_readonly`; also True where the user has no right to write."""
        path = self._disk.canonical(path)
        if self._read_only:
            return True
        with PathErrors(self._disk, path):
            try:
                at, name, _ = self._disk.dirs.anchor(path)
            except NotADirectoryError:  # below a file: a write would say so
                return False
            with at as fd:
                if not self._disk.sys.access(".", os.W_OK, dir_fd=fd):
                    return True
                with suppress(FileNotFoundError):
                    return not self._may_replace(self._disk.sys.stat(name, dir_fd=fd), name, fd)
        return False

    def kinds(self, path: str) -> Sequence[tuple[str, FileKind]]:
        """Name and kind of each child, without asking for each."""
        path = self._disk.canonical(path)
        with PathErrors(self._disk, path), self._disk.dirs.directory(path, DIRECTORY) as fd:
            found = self._disk.sys.kinds(fd)
        return [(name, kind_of(mode)) for name, mode in found if addressable(name)]

    def _open_file(self, path: str) -> Handle:
        handle = Handle(self._disk.sys, self._disk.dirs.open(path, READ))
        mode = self._disk.sys.fstat(handle.fd).st_mode
        if not stat.S_ISREG(mode):
            with handle:
                if stat.S_ISDIR(mode):
                    raise is_a_directory(path)
                raise refused(path, "is a socket, FIFO or device")
        return handle

    def _pread(self, fd: int, count: int, offset: int) -> bytes:
        data = self._disk.sys.pread(fd, count, offset) if count else b""
        if len(data) == count:
            return data
        pieces = [data]
        while data and (count := count - len(data)):
            offset += len(data)
            data = self._disk.sys.pread(fd, count, offset)
            pieces.append(data)
        return b"".join(pieces)

    def _long(self, fd: int, first: bytes, piece: bytes, at: int, left: int) -> bytes:
        """What was read from `at` on, and at most `left` bytes from `piece` on, while the call is wanted."""
        whole = BytesIO()  # gives its content without a copy
        whole.write(first)
        while piece:
            check_wanted()
            whole.write(piece)
            left -= len(piece)
            piece = self._disk.sys.pread(fd, min(LONG, left), at + whole.tell()) if left else b""
        return whole.getvalue()

    def _pieces(self, handle: Handle, size: int) -> Iterator[bytes]:
        with handle as fd:
            piece = self._disk.sys.read(fd, size)
            while piece:
                yield piece
                piece = self._disk.sys.read(fd, size)
                if piece:  # not for the many files that are one piece
                    check_wanted()

    def _stat(self, path: str, found: os.stat_result, *, readonly: bool) -> FileStat:
        kind = kind_of(found.st_mode)
        size = 0 if kind == "directory" else found.st_size
        return FileStat(path, kind, size, found.st_mtime, stat.S_IMODE(found.st_mode), readonly)

    def _may_replace(self, old: os.stat_result, name: str, at: int) -> bool:
        """A rename would not ask for the file's own permission, so this does."""
        if not stat.S_ISREG(old.st_mode) or os.geteuid() == 0:
            return True
        if old.st_uid == os.geteuid():
            return bool(old.st_mode & stat.S_IWUSR)
        return self._disk.sys.access(name, os.W_OK, dir_fd=at)


def _check_memory(path: str, size: int) -> None:
    """`MemoryError` now, and not when the machine has none left and ends the process."""
    if size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise MemoryError(
            f"{path!a} has {size:,} bytes to read, more than this machine's memory; "
            "read parts of it with offset= and limit=, or use stream()."
        )
