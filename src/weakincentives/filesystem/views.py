"""Views: the same files with less allowed. They hold no state, cost little and wrap one another freely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, final

from ..errors import PathRefusedError, ReadOnlyError
from ..fence import Guard, Owner, ReadOnlyGuard
from .ownership import open_savepoint
from .paths import ROOT, is_below, join, normalise, root_refused
from .protocol import FileChanges, FileStat, Filesystem, GrepMatch, fingerprint
from .search import search_names
from .search.walk import FilesystemTree, require_directory

# What is said when a view does not have a method of the filesystem behind it.


_MISSING = object()


def hidden_attribute(view: object, fs: Any, name: str) -> AttributeError:
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


# Paths as somebody sees them for whom a directory is the root.


def relative(path: str, base: str) -> str:
    """A canonical path at or below `base`, from there on."""
    if base == ROOT:
        return path
    return ROOT if path == base else path[len(base) + 1 :]


@final
class RelativeErrors:
    """To be entered around what is asked of the filesystem that the directory is in: errors name paths from there on.

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


class GuardedFilesystem:
    """Every write happens inside `with guard:`, which raises when it is not allowed; reads pass through.

    Taking, restoring and releasing snapshots count as writes. One is made for each tool call, with the call's
    `Fence` as the guard: once that is closed, a late write raises `StaleCallError` and changes nothing.
    """

    __slots__ = ("_fs", "_guard")

    def __init__(self, fs: Filesystem, guard: Guard) -> None:
        self._fs = fs
        self._guard = guard

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._fs!r})"

    if not TYPE_CHECKING:  # type checkers are to find what is not there

        def __getattr__(self, name: str) -> Any:
            fs = None if name.startswith("_") else self._fs
            while isinstance(fs, GuardedFilesystem):
                fs = fs._fs
            raise hidden_attribute(self, fs, name)

    def read(self, path: str, *, encoding: str = "utf-8") -> str:
        """See `Filesystem.read`."""
        return self._fs.read(path, encoding=encoding)

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """See `Filesystem.read_bytes`."""
        return self._fs.read_bytes(path, offset=offset, limit=limit)

    def stream(self, path: str, *, chunk_size: int = 65536) -> Iterator[bytes]:
        """See `Filesystem.stream`."""
        return self._fs.stream(path, chunk_size=chunk_size)

    def fingerprint(self, path: str) -> str:
        """See `fingerprints.py`."""
        known: Any = getattr(self._fs, "fingerprint", None)  # as below, one step sooner: it is asked at every call
        return fingerprint(self._fs, path) if known is None else known(path)

    def exists(self, path: str) -> bool:
        """See `Filesystem.exists`."""
        return self._fs.exists(path)

    def stat(self, path: str) -> FileStat:
        """See `Filesystem.stat`."""
        return self._fs.stat(path)

    def list(self, path: str = ROOT) -> Sequence[FileStat]:
        """See `Filesystem.list`."""
        return self._fs.list(path)

    def glob(self, pattern: str, *, path: str = ROOT, gitignore: bool = False) -> Sequence[str]:
        """See `Filesystem.glob`."""
        return self._fs.glob(pattern, path=path, gitignore=gitignore)

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
        return self._fs.grep(
            pattern,
            path=path,
            glob=glob,
            ignore_case=ignore_case,
            max_matches=max_matches,
            max_line_length=max_line_length,
            timeout=timeout,
            gitignore=gitignore,
        )

    def search(self, query: str, *, limit: int | None = None) -> Sequence[str]:
        """See `Filesystem.search`."""
        return self._fs.search(query, limit=limit)

    def is_readonly(self, path: str) -> bool:
        """See `Filesystem.is_readonly`."""
        return self._fs.is_readonly(path)

    def changes(self, since: Any, /) -> FileChanges:
        """See `Filesystem.changes`."""
        return self._fs.changes(since)

    def write(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.write`."""
        with self._guard:
            self._fs.write(path, content)

    def append(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.append`."""
        with self._guard:
            self._fs.append(path, content)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """See `Filesystem.delete`."""
        with self._guard:
            self._fs.delete(path, recursive=recursive)

    def mkdir(self, path: str) -> None:
        """See `Filesystem.mkdir`."""
        with self._guard:
            self._fs.mkdir(path)

    def copy(self, source: str, target: str) -> None:
        """See `Filesystem.copy`."""
        with self._guard:
            self._fs.copy(source, target)

    def move(self, source: str, target: str) -> None:
        """See `Filesystem.move`."""
        with self._guard:
            self._fs.move(source, target)

    def snapshot(self) -> Any:
        """See `Filesystem.snapshot`."""
        with self._guard:
            return self._fs.snapshot()

    def savepoint(self, owner: Owner | None = None, *, for_all: bool = False) -> Any:
        """See `open_savepoint`."""
        with self._guard:
            return open_savepoint(self._fs, owner, for_all=for_all)

    def restore(self, snapshot: Any, /) -> None:
        """See `Filesystem.restore`."""
        with self._guard:
            self._fs.restore(snapshot)

    def release(self, snapshot: Any, /) -> None:
        """See `Filesystem.release`."""
        with self._guard:
            self._fs.release(snapshot)

    def readonly(self) -> Filesystem:
        """See `Filesystem.readonly`."""
        return ReadOnlyFilesystem(self)

    def sub(self, path: str) -> Filesystem:
        """See `Filesystem.sub`; what is written through it passes the guard, too."""
        return SubFilesystem(self, path)


_READ_ONLY = ReadOnlyGuard("This filesystem")


class ReadOnlyFilesystem(GuardedFilesystem):
    """Refuses every write with `ReadOnlyError`. Others may still change the files underneath.

    Snapshots may be taken, so that it can take part in a call's rollback; restoring one is refused unless
    nothing changed since, when there is nothing to do.
    """

    __slots__ = ()

    def __init__(self, fs: Filesystem) -> None:
        super().__init__(fs, _READ_ONLY)

    def stat(self, path: str) -> FileStat:
        """See `Filesystem.stat`; always read-only."""
        return _as_readonly(self._fs.stat(path))

    def list(self, path: str = ROOT) -> Sequence[FileStat]:
        """See `Filesystem.list`; always read-only."""
        return [_as_readonly(stat) for stat in self._fs.list(path)]

    def is_readonly(self, path: str) -> bool:
        """Always True; a path that would be refused raises as everywhere."""
        normalise(path)
        return True

    def snapshot(self) -> Any:
        """See `Filesystem.snapshot`."""
        return self._fs.snapshot()

    def savepoint(self, owner: Owner | None = None, *, for_all: bool = False) -> Any:
        """See `open_savepoint`."""
        return open_savepoint(self._fs, owner, for_all=for_all)

    def restore(self, snapshot: Any, /) -> None:
        """Nothing to do when nothing changed, else `ReadOnlyError`."""
        if self._fs.changes(snapshot):
            raise ReadOnlyError("This filesystem is read-only, so nothing was restored; restore its owner.")

    def release(self, snapshot: Any, /) -> None:
        """See `Filesystem.release`."""
        self._fs.release(snapshot)


class SubFilesystem:
    """One directory as the root. Paths go in and come out relative to it; nothing above it can be named.

    Snapshots are those of the whole; restoring one is refused with `PathRefusedError` when something outside
    the directory changed since, as that would reach above it.

    Errors name paths as the caller knows them. Raises `FileNotFoundError` or `NotADirectoryError` when the directory is
    not there.
    """

    __slots__ = ("_base", "_fs", "_naming")

    def __init__(self, fs: Filesystem, path: str) -> None:
        self._base = normalise(path)
        self._fs = fs
        self._naming = RelativeErrors(self._base)
        require_directory(FilesystemTree(fs), self._base)

    def __repr__(self) -> str:
        return f"SubFilesystem({self._fs!r}, {self._base!r})"

    def _inner(self, path: str) -> str:
        return join(self._base, normalise(path))

    def _below(self, path: str, verb: str) -> str:
        inner = self._inner(path)
        if inner == self._base:
            raise root_refused(verb)
        return inner

    def _outer(self, inner: str) -> str:
        return relative(inner, self._base)

    def _stat(self, stat: FileStat) -> FileStat:
        return FileStat(self._outer(stat.path), stat.kind, stat.size, stat.modified, stat.mode, stat.readonly)

    def read(self, path: str, *, encoding: str = "utf-8") -> str:
        """See `Filesystem.read`."""
        with self._naming:
            return self._fs.read(self._inner(path), encoding=encoding)

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """See `Filesystem.read_bytes`."""
        with self._naming:
            return self._fs.read_bytes(self._inner(path), offset=offset, limit=limit)

    def stream(self, path: str, *, chunk_size: int = 65536) -> Iterator[bytes]:
        """See `Filesystem.stream`."""
        with self._naming:
            return self._fs.stream(self._inner(path), chunk_size=chunk_size)

    def fingerprint(self, path: str) -> str:
        """See `fingerprints.py`."""
        with self._naming:
            return fingerprint(self._fs, self._inner(path))

    def write(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.write`."""
        with self._naming:
            self._fs.write(self._inner(path), content)

    def append(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.append`."""
        with self._naming:
            self._fs.append(self._inner(path), content)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """See `Filesystem.delete`."""
        with self._naming:
            self._fs.delete(self._below(path, "deleted"), recursive=recursive)

    def mkdir(self, path: str) -> None:
        """See `Filesystem.mkdir`."""
        with self._naming:
            self._fs.mkdir(self._inner(path))

    def exists(self, path: str) -> bool:
        """See `Filesystem.exists`."""
        try:
            return self._fs.exists(self._inner(path))
        except PathRefusedError:
            return False

    def stat(self, path: str) -> FileStat:
        """See `Filesystem.stat`."""
        with self._naming:
            return self._stat(self._fs.stat(self._inner(path)))

    def list(self, path: str = ROOT) -> Sequence[FileStat]:
        """See `Filesystem.list`."""
        with self._naming:
            return [self._stat(stat) for stat in self._fs.list(self._inner(path))]

    def glob(self, pattern: str, *, path: str = ROOT, gitignore: bool = False) -> Sequence[str]:
        """See `Filesystem.glob`; `.gitignore` files above the directory count, as they do in git."""
        with self._naming:
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
        with self._naming:
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
        """See `Filesystem.search`; the directory's own name does not count as part of a path."""
        return search_names(FilesystemTree(self), query, limit)

    def copy(self, source: str, target: str) -> None:
        """See `Filesystem.copy`."""
        with self._naming:
            self._fs.copy(self._inner(source), self._inner(target))

    def move(self, source: str, target: str) -> None:
        """See `Filesystem.move`."""
        with self._naming:
            self._fs.move(self._below(source, "moved"), self._inner(target))

    def is_readonly(self, path: str) -> bool:
        """See `Filesystem.is_readonly`."""
        with self._naming:
            return self._fs.is_readonly(self._inner(path))

    def readonly(self) -> Filesystem:
        """See `Filesystem.readonly`."""
        return ReadOnlyFilesystem(self)

    def sub(self, path: str) -> Filesystem:
        """See `Filesystem.sub`."""
        return SubFilesystem(self._fs, self._inner(path))

    def snapshot(self) -> Any:
        """See `Filesystem.snapshot`."""
        return self._fs.snapshot()

    def savepoint(self, owner: Owner | None = None, *, for_all: bool = False) -> Any:
        """See `open_savepoint`."""
        return open_savepoint(self._fs, owner, for_all=for_all)

    def restore(self, snapshot: Any, /) -> None:
        """See `Filesystem.restore`; `PathRefusedError` when something outside the directory changed since."""
        changes = self._fs.changes(snapshot)
        outside = [path for path in _all(changes) if not is_below(path.rstrip("/"), self._base)]
        if outside:
            raise PathRefusedError(
                f"{len(outside)} path(s) outside this directory changed since the snapshot; "
                "restore the filesystem that this is a part of."
            )
        self._fs.restore(snapshot)

    def release(self, snapshot: Any, /) -> None:
        """See `Filesystem.release`."""
        self._fs.release(snapshot)

    def changes(self, since: Any, /) -> FileChanges:
        """See `Filesystem.changes`; only what is in the directory."""
        found = self._fs.changes(since)
        return FileChanges(self._inside(found.added), self._inside(found.changed), self._inside(found.removed))

    def _inside(self, paths: Sequence[str]) -> tuple[str, ...]:
        if self._base == ROOT:
            return tuple(paths)
        prefix = self._base + "/"
        return tuple(path[len(prefix) :] for path in paths if path.startswith(prefix) and path != prefix)


def _as_readonly(stat: FileStat) -> FileStat:
    return FileStat(stat.path, stat.kind, stat.size, stat.modified, stat.mode, readonly=True)


def _all(changes: FileChanges) -> Iterator[str]:
    yield from changes.added
    yield from changes.changed
    yield from changes.removed
