"""Views: the same files with less allowed, or with other paths. They hold no files of their own and may be nested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from inspect import getattr_static
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, final

from ..errors import PathRefusedError, ReadOnlyError
from ..fence import Guard, Owner, ReadOnlyGuard
from .paths import ROOT, is_below, join, normalise, root_refused
from .protocol import (
    FileChanges,
    FileNode,
    FileStat,
    Filesystem,
    GrepMatch,
    LargeFile,
    RecordableFilesystem,
    changes_before_restore,
    fingerprint,
    large_file,
    open_savepoint,
)
from .search import search_names
from .search.walk import FilesystemTree, require_directory

Operation = Literal["write", "append", "delete", "mkdir", "copy", "move", "snapshot", "restore", "release"]
"""What a view is about to do to the files behind it."""

UNGUARDED: Final[Guard] = nullcontext()
"""The guard that lets everything pass."""

_MISSING = object()


class WrapperFilesystem:
    """Every method of `Filesystem`, passed on to the filesystem behind it. The base class of all views.

    A subclass overrides what differs. Most of that is said by four hooks: `_inner` and `_outer` translate paths on
    their way in and out, `_reading` and `_writing` are entered around what is asked of the filesystem behind.
    """

    __slots__ = ("_fs",)

    def __init__(self, fs: Filesystem) -> None:
        self._fs = fs

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._fs!r})"

    if not TYPE_CHECKING:  # type checkers report what is missing

        def __getattr__(self, name: str) -> Any:
            fs = None if name.startswith("_") else self._fs
            while isinstance(fs, WrapperFilesystem):
                fs = fs._fs
            raise _hidden_attribute(self, fs, name)

    def _inner(self, path: str) -> str:
        """The path as the filesystem behind knows it."""
        return path

    def _outer(self, path: str) -> str:
        """A path from the filesystem behind, as the caller knows it."""
        return path

    def _shown(self, stat: FileStat) -> FileStat:
        """What the filesystem behind says of a path, as the caller is told."""
        return stat

    def _reading(self) -> Guard:
        """Entered around every read."""
        return UNGUARDED

    def _writing(self, operation: Operation, path: str = ROOT, target: str = ROOT) -> Guard:  # noqa: ARG002 - for subclasses
        """Entered around everything that changes files, or snapshots of them. Raises when it is not allowed.

        `path` and `target` are what the caller named.
        """
        return UNGUARDED

    # --- reading

    def read(self, path: str, *, encoding: str = "utf-8") -> str:
        """See `Filesystem.read`."""
        with self._reading():
            return self._fs.read(self._inner(path), encoding=encoding)

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """See `Filesystem.read_bytes`."""
        with self._reading():
            return self._fs.read_bytes(self._inner(path), offset=offset, limit=limit)

    def stream(self, path: str, *, chunk_size: int = 65536) -> Iterator[bytes]:
        """See `Filesystem.stream`."""
        with self._reading():
            return self._fs.stream(self._inner(path), chunk_size=chunk_size)

    def fingerprint(self, path: str) -> str:
        """See `FingerprintingFilesystem`."""
        with self._reading():
            return fingerprint(self._fs, self._inner(path))

    def exists(self, path: str) -> bool:
        """See `Filesystem.exists`."""
        try:
            return self._fs.exists(self._inner(path))
        except PathRefusedError:
            return False

    def stat(self, path: str) -> FileStat:
        """See `Filesystem.stat`."""
        with self._reading():
            return self._shown(self._fs.stat(self._inner(path)))

    def list(self, path: str = ROOT) -> Sequence[FileStat]:
        """See `Filesystem.list`."""
        with self._reading():
            return [self._shown(stat) for stat in self._fs.list(self._inner(path))]

    def glob(self, pattern: str, *, path: str = ROOT, gitignore: bool = False) -> Sequence[str]:
        """See `Filesystem.glob`."""
        with self._reading():
            found = self._fs.glob(pattern, path=self._inner(path), gitignore=gitignore)
        return [self._outer(inner) for inner in found]

    def grep(
        self,
        pattern: str,
        *,
        path: str = ROOT,
        glob: str | None = None,
        ignore_case: bool = False,
        max_matches: int = 1000,
        max_line_length: int = 1000,
        timeout: float = 5.0,
        gitignore: bool = False,
    ) -> Sequence[GrepMatch]:
        """See `Filesystem.grep`."""
        with self._reading():
            found = self._fs.grep(
                pattern,
                path=self._inner(path),
                glob=glob,
                ignore_case=ignore_case,
                max_matches=max_matches,
                max_line_length=max_line_length,
                timeout=timeout,
                gitignore=gitignore,
            )
        return [GrepMatch(self._outer(match.path), match.line, match.text) for match in found]

    def search(self, query: str, *, limit: int | None = None) -> Sequence[str]:
        """See `Filesystem.search`."""
        return self._fs.search(query, limit=limit)

    def is_readonly(self, path: str) -> bool:
        """See `Filesystem.is_readonly`."""
        with self._reading():
            return self._fs.is_readonly(self._inner(path))

    def changes(self, since: Any, /) -> FileChanges:
        """See `Filesystem.changes`."""
        return self._fs.changes(since)

    def changes_before_restore(self, since: Any, /) -> FileChanges:
        """See `SavepointFilesystem`; counts as a write, since it may already prepare the files for the restore."""
        with self._writing("restore"):
            return changes_before_restore(self._fs, since)

    # --- writing

    def write(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.write`."""
        with self._writing("write", path):
            self._fs.write(self._inner(path), content)

    def append(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.append`."""
        with self._writing("append", path):
            self._fs.append(self._inner(path), content)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """See `Filesystem.delete`."""
        with self._writing("delete", path):
            self._fs.delete(self._inner(path), recursive=recursive)

    def mkdir(self, path: str) -> None:
        """See `Filesystem.mkdir`."""
        with self._writing("mkdir", path):
            self._fs.mkdir(self._inner(path))

    def copy(self, source: str, target: str) -> None:
        """See `Filesystem.copy`."""
        with self._writing("copy", source, target):
            self._fs.copy(self._inner(source), self._inner(target))

    def move(self, source: str, target: str) -> None:
        """See `Filesystem.move`."""
        with self._writing("move", source, target):
            self._fs.move(self._inner(source), self._inner(target))

    # --- snapshots: those of the filesystem behind

    def snapshot(self) -> Any:
        """See `Filesystem.snapshot`."""
        with self._writing("snapshot"):
            return self._fs.snapshot()

    def savepoint(self, owner: Owner | None = None, *, for_all: bool = False) -> Any:
        """See `SavepointFilesystem`."""
        with self._writing("snapshot"):
            return open_savepoint(self._fs, owner, for_all=for_all)

    def restore(self, snapshot: Any, /) -> None:
        """See `Filesystem.restore`."""
        with self._writing("restore"):
            self._fs.restore(snapshot)

    def release(self, snapshot: Any, /) -> None:
        """See `Filesystem.release`."""
        with self._writing("release"):
            self._fs.release(snapshot)

    # --- records: only where the filesystem behind can be recorded, see `is_recordable`

    def node(self, path: str) -> FileNode | None:
        """See `RecordableFilesystem.node`."""
        with self._reading():
            return _recordable(self._fs).node(self._inner(path))

    def node_at(self, snapshot: Any, path: str, /) -> FileNode | None:
        """See `RecordableFilesystem.node_at`."""
        with self._reading():
            return _recordable(self._fs).node_at(snapshot, self._inner(path))

    def large_file(self, path: str, snapshot: Any = None, /) -> LargeFile | None:
        """See `LargeFilesystem`."""
        with self._reading():
            return large_file(self._fs, self._inner(path), snapshot)

    def put_node(self, path: str, node: FileNode | None) -> None:
        """See `RecordableFilesystem.put_node`."""
        with self._writing("write", path):
            _recordable(self._fs).put_node(self._inner(path), node)

    # --- further views

    def readonly(self) -> Filesystem:
        """See `Filesystem.readonly`."""
        return ReadOnlyFilesystem(self)

    def sub(self, path: str) -> Filesystem:
        """See `Filesystem.sub`; what is written through it passes this view, too."""
        return SubFilesystem(self, path)


def is_recordable(fs: object) -> bool:
    """Whether it is a `RecordableFilesystem`, or a view of one."""
    return hasattr(behind_views(fs), "node_at")


def behind_views(fs: object) -> object:
    """The filesystem itself."""
    while isinstance(fs, WrapperFilesystem):
        fs = fs._fs  # pyright: ignore[reportPrivateUsage]
    return fs


def at_same_paths(fs: object) -> tuple[object, bool]:
    """The filesystem behind those views that do not translate paths, and whether all of them let one write to it."""
    writable = True
    own = WrapperFilesystem._inner  # pyright: ignore[reportPrivateUsage]
    while isinstance(fs, WrapperFilesystem) and type(fs)._inner is own:  # pyright: ignore[reportPrivateUsage]
        writable = writable and not isinstance(fs, ReadOnlyFilesystem)
        fs = fs._fs  # pyright: ignore[reportPrivateUsage]
    return fs, writable


def _recordable(fs: Any) -> RecordableFilesystem:
    return fs


def _hidden_attribute(view: object, fs: Any, name: str) -> AttributeError:
    """The error for a name that a view does not have; one that its filesystem has is explained."""
    kind = type(view).__name__
    if name.startswith("_") or getattr_static(fs, name, _MISSING) is _MISSING:
        return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=view)
    own = type(fs).__name__
    return AttributeError(
        f"{own}.{name} cannot be used here: this view ({kind}) has the methods of Filesystem alone, because it could "
        f"not guard what others write. Make {name} a function that takes a Filesystem, or bind an object of its own "
        "for it, which is then neither fenced nor undone.",
        name=name,
        obj=view,
    )


class GuardedFilesystem(WrapperFilesystem):
    """Every write happens inside `with guard:`, which raises when it is not allowed; reads pass through.

    Taking, restoring and releasing snapshots count as writes. One is made for each tool call, with the call's
    `Fence` as the guard: once that is closed, a late write raises `StaleCallError` and changes nothing.
    """

    __slots__ = ("_guard",)

    def __init__(self, fs: Filesystem, guard: Guard) -> None:
        self._fs = fs  # not by the base class: one is made for every tool call
        self._guard = guard

    def _writing(self, operation: Operation, path: str = ROOT, target: str = ROOT) -> Guard:  # noqa: ARG002 - see the base class
        return self._guard

    # The methods that nearly every tool call uses, without the hooks, which would cost it several percent.

    def read(self, path: str, *, encoding: str = "utf-8") -> str:
        """See `Filesystem.read`."""
        return self._fs.read(path, encoding=encoding)

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """See `Filesystem.read_bytes`."""
        return self._fs.read_bytes(path, offset=offset, limit=limit)

    def fingerprint(self, path: str) -> str:
        """See `FingerprintingFilesystem`."""
        return fingerprint(self._fs, path)

    def stat(self, path: str) -> FileStat:
        """See `Filesystem.stat`."""
        return self._fs.stat(path)

    def write(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.write`."""
        with self._guard:
            self._fs.write(path, content)


FilesView = Callable[[Filesystem, Guard], GuardedFilesystem]
"""Makes what a tool call sees of a filesystem."""

OnRead = Callable[[str], object]
"""Called with the canonical path of what is read."""


@final
class NotingFilesystem(GuardedFilesystem):
    """Says which paths are asked for by name, before they are read; one that is not there counts.

    So do the files in which `grep` found something, and what is below a directory that is copied. What a directory
    holds, and what `glob` and `search` find, is not asked for by name.
    """

    __slots__ = ("_on_read",)

    def __init__(self, fs: Filesystem, guard: Guard, on_read: OnRead) -> None:
        super().__init__(fs, guard)
        self._on_read = on_read

    def _note(self, path: str) -> None:
        with suppress(PathRefusedError):  # what is asked for it says so, too
            self._on_read(normalise(path))

    def read(self, path: str, *, encoding: str = "utf-8") -> str:
        """See `Filesystem.read`."""
        self._note(path)
        return super().read(path, encoding=encoding)

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """See `Filesystem.read_bytes`."""
        self._note(path)
        return super().read_bytes(path, offset=offset, limit=limit)

    def stream(self, path: str, *, chunk_size: int = 65536) -> Iterator[bytes]:
        """See `Filesystem.stream`."""
        self._note(path)
        return super().stream(path, chunk_size=chunk_size)

    def fingerprint(self, path: str) -> str:
        """See `FingerprintingFilesystem`."""
        self._note(path)
        return super().fingerprint(path)

    def exists(self, path: str) -> bool:
        """See `Filesystem.exists`."""
        self._note(path)
        return super().exists(path)

    def stat(self, path: str) -> FileStat:
        """See `Filesystem.stat`."""
        self._note(path)
        return super().stat(path)

    def grep(self, pattern: str, **options: Any) -> Sequence[GrepMatch]:
        """See `Filesystem.grep`."""
        found = super().grep(pattern, **options)
        for path in dict.fromkeys(match.path for match in found):
            self._note(path)
        return found

    def copy(self, source: str, target: str) -> None:
        """See `Filesystem.copy`."""
        self._note(source)
        with suppress(OSError, PathRefusedError):
            for path in self._fs.glob("**/*", path=source):
                self._note(path)
        super().copy(source, target)


_READ_ONLY = ReadOnlyGuard("This filesystem")


class ReadOnlyFilesystem(GuardedFilesystem):
    """Refuses every write with `ReadOnlyError`. Others may still change the files underneath.

    Snapshots may be taken, so that it can take part in a call's rollback; restoring one is refused unless
    nothing changed since, when there is nothing to do.
    """

    __slots__ = ()

    def __init__(self, fs: Filesystem) -> None:
        super().__init__(fs, _READ_ONLY)

    def _shown(self, stat: FileStat) -> FileStat:
        return FileStat(stat.path, stat.kind, stat.size, stat.modified, stat.mode, readonly=True)

    def _writing(self, operation: Operation, path: str = ROOT, target: str = ROOT) -> Guard:  # noqa: ARG002 - see the base class
        return UNGUARDED if operation in {"snapshot", "release"} else _READ_ONLY

    def stat(self, path: str) -> FileStat:
        """See `Filesystem.stat`; always read-only."""
        return self._shown(self._fs.stat(path))

    def is_readonly(self, path: str) -> bool:
        """Always True; a path that would be refused raises as everywhere."""
        normalise(path)
        return True

    def restore(self, snapshot: Any, /) -> None:
        """Nothing to do when nothing changed, else `ReadOnlyError`."""
        if self._fs.changes(snapshot):
            raise ReadOnlyError("This filesystem is read-only, so nothing was restored; restore its owner.")

    def changes_before_restore(self, since: Any, /) -> FileChanges:
        """As `changes`: nothing is restored here."""
        return self._fs.changes(since)


@final
class HeldFilesystem(ReadOnlyFilesystem):
    """Files that a call holds for reading, as an agent inside it has them. They do not change, so no undo needs them.

    It has a lock of its own: what the agent changes elsewhere is not part of a call that only reads.
    """

    __slots__ = ()

    def snapshot(self) -> Any:
        """Nothing."""

    def savepoint(self, owner: Owner | None = None, *, for_all: bool = False) -> Any:
        """Nothing."""
        del owner, for_all

    def restore(self, snapshot: Any, /) -> None:
        """Nothing to do."""

    def release(self, snapshot: Any, /) -> None:
        """Nothing to do."""

    def changes(self, since: Any, /) -> FileChanges:
        """None."""
        del since
        return FileChanges()

    def changes_before_restore(self, since: Any, /) -> FileChanges:
        """None."""
        return self.changes(since)


def relative(path: str, base: str) -> str:
    """A canonical path at or below `base`, from there on."""
    if base == ROOT:
        return path
    return ROOT if path == base else path[len(base) + 1 :]


@final
class RelativeErrors:
    """Entered around what is asked of a whole filesystem: errors name paths relative to the directory `base`.

    Holds nothing else, and may be entered any number of times.
    """

    __slots__ = ("_base",)

    def __init__(self, base: str) -> None:
        self._base = base

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and isinstance(error.filename, str) and is_below(error.filename, self._base):
            error.filename = relative(error.filename, self._base)


_REFUSED_FOR_ROOT: Final = {"delete": "deleted", "move": "moved"}


class SubFilesystem(WrapperFilesystem):
    """One directory as the root. Paths go in and come out relative to it; nothing above it can be named.

    Snapshots are those of the whole; restoring one is refused with `PathRefusedError` when something outside
    the directory changed since, as that would reach above it.

    Errors name paths as the caller knows them. Raises `FileNotFoundError` or `NotADirectoryError` when the directory is
    not there.
    """

    __slots__ = ("_base", "_naming")

    def __init__(self, fs: Filesystem, path: str) -> None:
        super().__init__(fs)
        self._base = normalise(path)
        self._naming = RelativeErrors(self._base)
        require_directory(FilesystemTree(fs), self._base)

    def __repr__(self) -> str:
        return f"SubFilesystem({self._fs!r}, {self._base!r})"

    def _inner(self, path: str) -> str:
        return join(self._base, normalise(path))

    def _outer(self, path: str) -> str:
        return relative(path, self._base)

    def _shown(self, stat: FileStat) -> FileStat:
        return FileStat(self._outer(stat.path), stat.kind, stat.size, stat.modified, stat.mode, stat.readonly)

    def _reading(self) -> Guard:
        return self._naming

    def _writing(self, operation: Operation, path: str = ROOT, target: str = ROOT) -> Guard:  # noqa: ARG002 - see the base class
        # Only this view knows that the directory is a root: the filesystem behind it would remove it.
        if operation in _REFUSED_FOR_ROOT and self._inner(path) == self._base:
            raise root_refused(_REFUSED_FOR_ROOT[operation])
        return self._naming

    def search(self, query: str, *, limit: int | None = None) -> Sequence[str]:
        """See `Filesystem.search`; the directory's own name does not count as part of a path."""
        return search_names(FilesystemTree(self), query, limit)

    def sub(self, path: str) -> Filesystem:
        """See `Filesystem.sub`."""
        return SubFilesystem(self._fs, self._inner(path))

    def restore(self, snapshot: Any, /) -> None:
        """See `Filesystem.restore`; `PathRefusedError` when something outside the directory changed since."""
        found = self._fs.changes(snapshot)
        changed = chain(found.added, found.changed, found.removed)
        outside = [path for path in changed if not is_below(path.rstrip("/"), self._base)]
        if outside:
            raise PathRefusedError(
                f"{len(outside)} path(s) outside this directory changed since the snapshot; "
                "restore the filesystem that this is a part of."
            )
        self._fs.restore(snapshot)

    def changes(self, since: Any, /) -> FileChanges:
        """See `Filesystem.changes`; only what is in the directory."""
        found = self._fs.changes(since)
        return FileChanges(self._inside(found.added), self._inside(found.changed), self._inside(found.removed))

    def changes_before_restore(self, since: Any, /) -> FileChanges:
        """As `changes`: a `restore` here asks for the changes of the whole once more."""
        return self.changes(since)

    def _inside(self, paths: Sequence[str]) -> tuple[str, ...]:
        if self._base == ROOT:
            return tuple(paths)
        prefix = self._base + "/"
        return tuple(path[len(prefix) :] for path in paths if path.startswith(prefix) and path != prefix)
