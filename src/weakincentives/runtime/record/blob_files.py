"""Large content in files beside a store: a database is slow with it, and grows by it for good."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, final
from uuid import uuid4

from ...clock import SYSTEM_CLOCK
from ...errors import RecordError
from ...filesystem.protocol import LargeFile
from .rows import Content, pieces_of, size_of

T = TypeVar("T")

_PIECE = 1 << 20
_NAME = re.compile(r"[0-9a-f]{40}")
_UNFINISHED = ".new"
_FORGOTTEN = 24 * 3600.0
"""Seconds after which a file that was not finished belongs to a process that is gone."""
_LONGEST_COMMIT = 3600.0
"""Seconds after which a file without a row is not one that is about to get it."""


@final
class BlobFiles:
    """Content by its digest: `ab/cdef...`, readable by its owner alone. The directory is made when it is needed.

    A file has its name only when all of it is on disk, so it is never seen in part. `RecordError` when a file cannot be
    written or read.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, name: str, content: Content) -> None:
        """Make content last, unless it is there already; it is on disk when this returns."""
        self._explained(lambda: self._put(name, content))

    def has(self, name: str, content: Content) -> bool:
        """Whether the content is there; of a large file that is sealed the size is not known before."""
        try:
            size = self._path(name).stat().st_size
        except OSError:
            return False
        return size == size_of(content) or (isinstance(content, LargeFile) and size > content.size)

    def get(self, name: str) -> bytes | None:
        """The content as it is in the file, or None when there is none."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(error) from error

    def remove_all_but(self, names: Collection[str]) -> None:
        """Remove other content, and what killed processes did not finish; nothing may be added meanwhile."""
        self._explained(lambda: self._remove_all_but(names))

    def unused(self, names: Collection[str]) -> list[Path]:
        """Files of other content that no process is about to name, and of content that was not finished."""
        return self._explained(lambda: list(self._unused(names)))

    def _unused(self, names: Collection[str]) -> Iterator[Path]:
        for file in sorted(self._directory.glob("[0-9a-f][0-9a-f]/*")):
            if file.suffix == _UNFINISHED or f"{file.parent.name}{file.name}" not in names:
                with suppress(FileNotFoundError):  # removed meanwhile
                    if SYSTEM_CLOCK.time() - file.stat().st_mtime > _LONGEST_COMMIT:
                        yield file

    def _remove_all_but(self, names: Collection[str]) -> None:
        for file in self._directory.glob("[0-9a-f][0-9a-f]/*"):
            if file.suffix == _UNFINISHED:
                with suppress(FileNotFoundError):  # another process has just finished it
                    if SYSTEM_CLOCK.time() - file.stat().st_mtime > _FORGOTTEN:
                        file.unlink()
            elif f"{file.parent.name}{file.name}" not in names:
                file.unlink(missing_ok=True)

    def _put(self, name: str, content: Content) -> None:
        path = self._path(name)
        for directory in (self._directory, path.parent):
            if not directory.is_dir():
                with suppress(FileExistsError):
                    directory.mkdir(mode=0o700)
                _sync(directory.parent)
        if not self.has(name, content):
            unfinished = path.with_name(f"{path.name}.{uuid4().hex}{_UNFINISHED}")
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(unfinished, flags, 0o600), "wb", buffering=0) as file:
                    for piece in pieces_of(content):
                        view = memoryview(piece)
                        while view:
                            view = view[file.write(view[:_PIECE]) :]
                    os.fsync(file.fileno())
                unfinished.replace(path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
        _sync(path.parent)  # also for what another process put there just now

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise RecordError(f"{name!r} is not the name of content.")
        return self._directory / name[:2] / name[2:]

    def _explained(self, step: Callable[[], T]) -> T:
        try:
            return step()
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> RecordError:
        return RecordError(
            f"Content in {self._directory}, which belongs to the run store, cannot be used: {error.strerror or error}."
        )


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


__all__ = ["BlobFiles"]
