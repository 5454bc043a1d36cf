"""What a filesystem is, written once; `memory.py`, `host.py` and users' own implement it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, Protocol, runtime_checkable

from ..fence import check_wanted

FileKind = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True, slots=True)
class FileStat:
    """What is known of a path without reading it. `modified` is in epoch seconds."""

    path: str
    kind: FileKind
    size: int
    modified: float
    mode: int
    readonly: bool = False


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """One matching line; `text` is clipped to the limit the search was given."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Paths that differ from a snapshot, each tuple sorted. Directories end in "/"."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


@runtime_checkable
class Filesystem(Protocol):
    """Files below one root, readable, writable and able to go back.

    Paths are text, relative to the root, with `/` between parts. A leading `/` or `/workspace/` means the root
    too. `..`, NUL and control characters, parts over 255 bytes, and paths that pass a symlink are refused with
    `PathRefusedError`; nothing outside the root is ever read or written. Results are always relative paths
    without a leading slash; the root itself is `"."`.

    Errors are of the `OSError` family: `FileNotFoundError`, `FileExistsError`, `IsADirectoryError`,
    `NotADirectoryError`, `PermissionError`, and those of `weakincentives.errors.FilesystemError`. A write that
    raises has changed nothing.

    Every implementation is `Snapshotable`. Methods are safe to call from any thread.
    """

    def read(self, path: str, *, encoding: str = "utf-8") -> str:
        """The file as text; `NotTextError` when its bytes are not text in that encoding."""
        ...

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """The file's bytes, or the part from `offset` of at most `limit` bytes."""
        ...

    def stream(self, path: str, *, chunk_size: int = 65536) -> Iterator[bytes]:
        """The file's bytes piece by piece, for files that should not be held whole."""
        ...

    def write(self, path: str, content: str | bytes) -> None:
        """Replace or create the file as a whole, atomically; missing parents are made."""
        ...

    def append(self, path: str, content: str | bytes) -> None:
        """Add to the file's end, or create it."""
        ...

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, or an empty directory; `recursive=True` removes a whole tree."""
        ...

    def mkdir(self, path: str) -> None:
        """Make the directory and its parents; one that exists already is fine."""
        ...

    def exists(self, path: str) -> bool:
        """Whether something is there; False also for a path that would be refused."""
        ...

    def stat(self, path: str) -> FileStat:
        """What is there, without following a symlink."""
        ...

    def list(self, path: str = ".") -> Sequence[FileStat]:
        """The directory's children, sorted by name; their cost is all it takes, not the tree's."""
        ...

    def glob(self, pattern: str, *, path: str = ".", gitignore: bool = False) -> Sequence[str]:
        """Files and directories that match, sorted; `**` as in pathlib. `gitignore=True` leaves out ignored ones."""
        ...

    def grep(
        self,
        pattern: str,
        *,
        path: str = ".",
        glob: str | None = None,
        ignore_case: bool = False,
        max_matches: int = 1000,
        max_line_length: int = 1000,
        timeout: float = 5.0,
        gitignore: bool = False,
    ) -> Sequence[GrepMatch]:
        """Lines that match the regular expression, in path order; binary files are skipped.

        `path` may be a file. A `glob` without a slash counts at any depth, one with a slash starts at `path`.
        `PatternError` when the pattern is not valid or the search takes longer than `timeout` seconds.
        """
        ...

    def search(self, query: str, *, limit: int | None = None) -> Sequence[str]:
        """Files whose path contains the text, ignoring case, sorted; never raises, whatever the text."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Copy a file or a whole tree; the target's missing parents are made. A copy of what is read-only is not.

        `FileExistsError` when the target exists, `PathRefusedError` for a directory copied into itself. When the source
        cannot be read or is missing, the error names the source.
        """
        ...

    def move(self, source: str, target: str) -> None:
        """Move a file or a whole tree; the target's missing parents are made.

        `FileExistsError` when the target exists, `PathRefusedError` for the root, or a directory moved into itself.
        When the source is missing, the error names the source.
        """
        ...

    def is_readonly(self, path: str) -> bool:
        """Whether that path is write-protected; a path that would be refused raises.

        False where something else is in the way of a write, such as a file above the path: the write says what it is.
        """
        ...

    def readonly(self) -> Filesystem:
        """The same files, every write refused with `ReadOnlyError`."""
        ...

    def sub(self, path: str) -> Filesystem:
        """The directory as a filesystem of its own; it cannot reach above itself."""
        ...

    def snapshot(self) -> Any:
        """Remember the state as it is now, in constant time."""
        ...

    def restore(self, snapshot: Any, /) -> None:
        """Bring the remembered state back: bytes, modes, empty directories, everything."""
        ...

    def release(self, snapshot: Any, /) -> None:
        """Say that it will not be restored again."""
        ...

    def changes(self, since: Any, /) -> FileChanges:
        """What differs from the snapshot; costs no more than the number of changes."""
        ...


# What changes when a file's content does.
#
# A filesystem that can tell without reading the file again has a method `fingerprint(path)`, which raises as
# `read_bytes` does; of any other the content is read. Either way it is the SHA-256 of the content, so that equal
# content has equal fingerprints in every filesystem and after a restart, and what was rolled back has the one it had. A
# file too large to be read for that (`MAX_HASHED`) is known by its size and time instead, which a rollback restores as
# well.


MAX_HASHED = 64 << 20
"""Of a larger file nothing is read: a sparse one of 1 TiB takes no room and would take an hour."""
_WHOLE_BYTES = 65536
"""Smaller files are read at once: this is asked at each call that reads or writes."""


def fingerprint(fs: Filesystem, path: str) -> str:
    """The fingerprint of the file at `path`; raises what `Filesystem.read_bytes` raises."""
    known: Any = getattr(fs, "fingerprint", None)
    if known is not None:
        return known(path)
    head = fs.read_bytes(path, limit=_WHOLE_BYTES)
    if len(head) < _WHOLE_BYTES:
        return sha256(head).hexdigest()
    found = fs.stat(path)
    if found.size > MAX_HASHED:
        return fingerprint_of_stat(found)
    digest, length = sha256(), 0
    for piece in fs.stream(path):
        digest.update(piece)
        length += len(piece)
        if length > MAX_HASHED:  # it grows while it is read
            return fingerprint_of_stat(fs.stat(path))
        check_wanted()
    return digest.hexdigest()


def fingerprint_of_stat(found: FileStat) -> str:
    """What tells versions of a file apart without reading it; blind to a change that keeps size and time."""
    return f"stat:{found.size}:{found.modified!r}"
