"""The interface that searching needs from a tree, and the walk through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from ...fence import check_wanted
from ..paths import ROOT, join, not_a_directory, not_found
from ..protocol import FileKind, Filesystem
from .gitignore import Ignore

T = TypeVar("T")

_OFTEN: Final = 256


class WalkTree(Protocol):
    """Read access to a tree by canonical paths. Symlinks are entries of their own kind and never followed."""

    def kind(self, path: str, /) -> FileKind | None:
        """What is there, or None."""
        ...

    def scan(self, path: str, /) -> Iterable[tuple[str, FileKind]]:
        """Name and kind of each child, in any order. An `OSError` counts as an empty directory."""
        ...

    def chunks(self, path: str, /) -> Iterator[bytes]:
        """The file's bytes, piece by piece. An `OSError` makes a search skip the file."""
        ...


class FilesystemTree:
    """A tree over any filesystem's public methods."""

    __slots__ = ("_fs",)

    def __init__(self, fs: Filesystem) -> None:
        self._fs = fs

    def kind(self, path: str, /) -> FileKind | None:
        """What is there, or None."""
        try:
            return self._fs.stat(path).kind
        except OSError:
            return None

    def scan(self, path: str, /) -> Iterable[tuple[str, FileKind]]:
        """Name and kind of each child."""
        return [(stat.path.rpartition("/")[2], stat.kind) for stat in self._fs.list(path)]

    def chunks(self, path: str, /) -> Iterator[bytes]:
        """The file's bytes."""
        return self._fs.stream(path)


def while_wanted(items: Sequence[T], check: Callable[[], None] = check_wanted) -> Iterable[T]:
    """The same items; if they are many, `check` is called now and then, and what it raises ends the loop."""
    return items if len(items) <= _OFTEN else _checked(items, check)


def _checked(items: Sequence[T], check: Callable[[], None]) -> Iterator[T]:
    for index, item in enumerate(items):
        if index % _OFTEN == 0:
            check()
        yield item


def children(
    tree: WalkTree, path: str, ignore: Ignore | None = None, check: Callable[[], None] = check_wanted
) -> list[tuple[str, FileKind]]:
    """Path and kind of each child, so sorted that a depth-first walk gives all file paths in order."""
    found: list[tuple[str, str, FileKind]] = []
    try:
        entries = list(tree.scan(path))
    except OSError:  # deleted or replaced since it was seen, or not readable
        return []
    for name, kind in while_wanted(entries, check):
        # "a-b" comes before "a/x": the slash takes part in the order of whole paths.
        found.append((f"{name}/" if kind == "directory" else name, join(path, name), kind))
    found.sort()
    if ignore is None:
        return [(child, kind) for _, child, kind in found]
    return [(child, kind) for _, child, kind in found if not ignore.ignores(child, kind)]


def walk_files(tree: WalkTree, start: str = ROOT) -> Iterator[str]:
    """Every file at or below `start`, in path order; directories are read as the walk reaches them."""
    kind = tree.kind(start)
    stack: list[tuple[str, FileKind]] = [] if kind is None else [(start, kind)]
    while stack:
        path, kind = stack.pop()
        if kind == "file":
            yield path
        elif kind == "directory":
            check_wanted()
            stack.extend(reversed(children(tree, path)))


def require_directory(tree: WalkTree, path: str) -> None:
    """Raise the error that fits when the path is not a directory."""
    kind = tree.kind(path)
    if kind is None:
        raise not_found(path)
    if kind != "directory":
        raise not_a_directory(path)
