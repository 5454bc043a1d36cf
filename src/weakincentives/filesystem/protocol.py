"""What a filesystem is, written once; those in memory and on disk, and users' own, implement it."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, final, runtime_checkable

from ..errors import NotTextError
from ..fence import Owner, check_wanted
from ..lazy_modules import hashlib

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
    """Files below one root, readable, writable, and with snapshots that can be restored.

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
        """Restore the remembered state: bytes, modes, empty directories, everything."""
        ...

    def release(self, snapshot: Any, /) -> None:
        """Say that it will not be restored again."""
        ...

    def changes(self, since: Any, /) -> FileChanges:
        """What differs from the snapshot; costs no more than the number of changes."""
        ...


# Abilities that a filesystem may have in addition. They are not part of `Filesystem`, so that one without them is one.


class FingerprintingFilesystem(Filesystem, Protocol):
    """A filesystem that can tell whether a file's content changed without reading it again."""

    def fingerprint(self, path: str) -> str:
        """The SHA-256 of the content, in hexadecimal; raises as `read_bytes` does.

        Equal content has equal fingerprints in every filesystem and after a restart, and a file that was restored has
        the one it had. Of a file with more than `MAX_HASHED` bytes it is made from size and time, which are restored
        as well.
        """
        ...


class FileNode(NamedTuple):
    """What is at a path: `content` is a file's bytes or where a symlink leads; a directory has none."""

    kind: FileKind
    mode: int
    content: bytes = b""


LARGE = 1 << 20
"""Files of more bytes need not be held whole to be recorded."""


@final
class LargeFile:
    """A file of more than `LARGE` bytes, read by pieces as often as needed. Other programs may change it meanwhile."""

    __slots__ = ("_read", "mode", "size")

    def __init__(self, mode: int, size: int, read: Callable[[], Iterator[bytes]]) -> None:
        self.mode: int = mode
        self.size: int = size
        self._read = read

    def pieces(self) -> Iterator[bytes]:
        """Its content from the beginning; raises `OSError` when it cannot be read."""
        return self._read()


class RecordableFilesystem(Filesystem, Protocol):
    """A filesystem whose changes can be recorded with their content, and made again from a record."""

    def node(self, path: str) -> FileNode | None:
        """What is at the path now; None for nothing."""
        ...

    def node_at(self, snapshot: Any, path: str, /) -> FileNode | None:
        """What was at the path when the snapshot was taken."""
        ...

    def put_node(self, path: str, node: FileNode | None) -> None:
        """Have exactly this at the path, whatever was there before; None for nothing. Missing parents are made."""
        ...


class LargeFilesystem(RecordableFilesystem, Protocol):
    """A filesystem whose files may be larger than memory; optional for one that is recorded."""

    def large_file(self, path: str, snapshot: Any = None, /) -> LargeFile | None:
        """The file at the path, now or when the snapshot was taken, if it is a large one; None for anything else.

        It can be read until the snapshot is restored or released.
        """
        ...


def large_file(fs: Any, path: str, snapshot: Any = None) -> LargeFile | None:
    """See `LargeFilesystem`; None also where the filesystem is not one."""
    found = getattr(fs, "large_file", None)
    return None if found is None else found(path, snapshot)


class SavepointFilesystem(Filesystem, Protocol):
    """A filesystem that takes part in transactions: its snapshots can belong to one call, and outlive a crash."""

    def savepoint(self, owner: Owner | None = None, *, for_all: bool = False) -> Any:
        """A snapshot that undoes what its owner wrote and nothing else.

        Args:
            owner: whose writes are its own, those of savepoints nested in it included; None stands for the call around
                this code, and outside of calls for everybody.
            for_all: whether writes outside of any call are its own, too.
        """
        ...

    def changes_before_restore(self, since: Any, /) -> FileChanges:
        """As `changes`, for a caller that restores the snapshot next.

        What is learned here need not be found out again by that `restore`. Changes that other programs make in between
        count as made after it, so no code of the caller's own may run there.
        """
        ...


def open_savepoint(part: Any, owner: Owner | None = None, *, for_all: bool = False) -> Any:
    """A snapshot of the participant for a transaction: a savepoint of a `SavepointFilesystem`, else a `snapshot()`."""
    savepoint = getattr(part, "savepoint", None)  # asked here alone: not every filesystem has it
    return part.snapshot() if savepoint is None else savepoint(owner, for_all=for_all)


def changes_before_restore(part: Any, since: Any) -> Any:
    """What changed in the participant since the snapshot, asked right before that is restored."""
    changes = getattr(part, "changes_before_restore", None)  # the same
    return part.changes(since) if changes is None else changes(since)


MAX_HASHED = 64 << 20
"""Of a larger file nothing is read: a sparse one of 1 TiB takes no room and would take an hour."""
_WHOLE_BYTES = 65536
"""Smaller files are read at once: this is asked at each call that reads or writes."""


def fingerprint(fs: Filesystem, path: str) -> str:
    """The fingerprint of the file, see `FingerprintingFilesystem`; in any other filesystem the file is read."""
    known: Any = getattr(fs, "fingerprint", None)  # the only place that asks: not every filesystem has it
    if known is not None:
        return known(path)
    head = fs.read_bytes(path, limit=_WHOLE_BYTES)
    if len(head) < _WHOLE_BYTES:
        return hashlib.sha256(head).hexdigest()
    found = fs.stat(path)
    if found.size > MAX_HASHED:
        return fingerprint_of_stat(found)
    digest, length = hashlib.sha256(), 0
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


# Between text and the bytes that files hold, with errors that say what to do.


_BOMS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf-8-sig"}


def encode(content: str | bytes) -> bytes:
    """The bytes to store: text as UTF-8, line ends untouched. `NotTextError` for lone surrogates."""
    if type(content) is bytes:
        return content
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError as error:
            raise NotTextError(
                f"The text has a lone surrogate at position {error.start} and cannot be written as UTF-8; "
                "remove it, or pass bytes."
            ) from error
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"A file's content must be str or bytes, not {type(content).__name__}.")


def decode(data: bytes, path: str, encoding: str = "utf-8") -> str:
    """The file's text; `NotTextError` names the offending byte, or says that there is no such encoding."""
    try:
        return data.decode(encoding)
    except UnicodeError as error:
        where = f" (byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""
        hint = next((name for bom, name in _BOMS.items() if data.startswith(bom) and name != encoding), None)
        advice = f"pass encoding={hint!r}" if hint else "pass its real encoding= or use read_bytes"
        raise NotTextError(f"{path!a} is not {encoding} text{where}; {advice}.") from error
    except (LookupError, ValueError) as error:
        raise NotTextError(
            f"There is no text encoding named {encoding!a}; use one such as 'utf-8' or 'latin-1'."
        ) from error


def check_range(offset: int, limit: int | None) -> None:
    """Refuse a negative part of a file."""
    if offset < 0 or (limit is not None and limit < 0):
        raise ValueError(f"offset and limit must not be negative, got offset={offset}, limit={limit}.")


def check_chunk_size(chunk_size: int) -> None:
    """Refuse pieces of nothing."""
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}.")
