"""The in-memory tree: immutable nodes, so that a root is a snapshot. Every change makes new nodes along one path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...persistent_map import with_entry, without_entry
from ..paths import ROOT, is_a_directory, join, not_a_directory, not_found
from ..protocol import FileChanges

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755


PIECE = 64 * 1024
"""What is appended goes into the last piece of a file up to this size: few pieces, and little is copied."""


class File:
    """Bytes and what `stat` tells of them. `fingerprint` is that of the bytes, once it was asked for.

    Bytes that were appended stay pieces of their own until the whole file is read, and the file before shares
    the others: appending costs as much as what is appended, however long the file is.
    """

    __slots__ = ("_pieces", "fingerprint", "mode", "modified", "size")

    def __init__(self, pieces: tuple[bytes, ...], size: int, modified: float, mode: int = FILE_MODE) -> None:
        self._pieces = pieces
        self.size: int = size
        self.modified: float = modified
        self.mode: int = mode
        self.fingerprint: str = ""

    @property
    def content(self) -> bytes:
        """All of it, in one piece from now on. Threads that ask at once may each join it; what they find is equal."""
        pieces = self._pieces
        if len(pieces) != 1:
            pieces = self._pieces = (b"".join(pieces),)
        return pieces[0]

    def part(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, or as many as there are; the others are not copied."""
        found: list[bytes] = []
        for piece in self._pieces:
            if stop <= 0:
                break
            if start < len(piece):
                found.append(piece[start:stop])
            start, stop = max(start - len(piece), 0), stop - len(piece)
        return found[0] if len(found) == 1 else b"".join(found)

    def longer(self, content: bytes, modified: float) -> File:
        """A file that goes on where this one ends."""
        *others, last = self._pieces
        pieces = (*others, last + content) if len(last) + len(content) <= PIECE else (*self._pieces, content)
        return File(pieces, self.size + len(content), modified, self.mode)


class Directory:
    """Children by name, in a mapping that is never changed; see `persistent_map.py`."""

    __slots__ = ("children", "mode", "modified")

    def __init__(self, children: Mapping[str, Node], modified: float, mode: int = DIRECTORY_MODE) -> None:
        self.children: Mapping[str, Node] = children
        self.modified: float = modified
        self.mode: int = mode


Node = File | Directory
EMPTY: Mapping[str, Node] = {}
NOTHING = FileChanges()


def lookup(root: Directory, path: str) -> Node | None:
    """What is at the canonical path, or None."""
    node: Any = root
    if path != ROOT:
        try:  # nearly always something is there, and this is asked many times in a call
            for name in path.split("/"):
                node = node.children[name]
        except (KeyError, AttributeError):  # no such name, or a file on the way
            return None
    return node


def find(root: Directory, path: str) -> Node:
    """What is at the canonical path; raises as an operating system would."""
    node = lookup(root, path)
    if node is None:
        parent = path.rpartition("/")[0]
        while parent:
            above = lookup(root, parent)
            if isinstance(above, File):
                raise not_a_directory(path)
            parent = parent.rpartition("/")[0]
        raise not_found(path)
    return node


def put(root: Directory, path: str, node: Node, now: float) -> tuple[Directory, str]:
    """A root that has the node at `path`, and the topmost path that is new or replaced.

    Missing parents are made. Raises `NotADirectoryError` when a file is in the way.
    """
    chain, names = _descend(root, path)
    return _attach(chain, names, path, node, now)


def put_file(root: Directory, path: str, content: bytes, now: float, *, append: bool = False) -> tuple[Directory, str]:
    """As `put`, for a file that keeps the mode of the one it replaces, or goes on where that ended.

    Raises `IsADirectoryError` when a directory is there.
    """
    if path == ROOT:
        raise is_a_directory(path)
    chain, names = _descend(root, path)
    if len(chain) < len(names):
        return _attach(chain, names, path, File((content,), len(content), now), now)
    old = chain[-1].children.get(names[-1])
    if old is None:
        return _rebuild(chain, names, File((content,), len(content), now), now, True), path
    if isinstance(old, Directory):
        raise is_a_directory(path)
    node = old.longer(content, now) if append else File((content,), len(content), now, old.mode)
    return _rebuild(chain, names, node, now, False), path


def _descend(root: Directory, path: str) -> tuple[list[Directory], list[str]]:
    """The directories along the path as far as they exist, the root first, and the path's parts."""
    names = path.split("/")
    chain = [root]
    node: Any = root
    for name in names[:-1]:
        node = node.children.get(name)
        if node.__class__ is Directory:
            chain.append(node)
        elif node is None:
            break
        else:
            raise not_a_directory("/".join(names[: len(chain)]))
    return chain, names


def _attach(chain: list[Directory], names: list[str], path: str, node: Node, now: float) -> tuple[Directory, str]:
    if len(chain) == len(names):
        return _rebuild(chain, names, node, now, names[-1] not in chain[-1].children), path
    for missing in reversed(names[len(chain) :]):
        node = Directory({missing: node}, now)
    return _rebuild(chain, names, node, now, True), "/".join(names[: len(chain)])


def _rebuild(chain: list[Directory], names: list[str], node: Node, now: float, is_new: bool) -> Directory:
    depth = len(chain) - 1
    directory = chain[depth]
    # As on a disk, a directory's own time moves when a name comes or goes in it.
    moved = now if is_new else directory.modified
    above = Directory(with_entry(directory.children, names[depth], node), moved, directory.mode)
    while depth:
        depth -= 1
        directory = chain[depth]
        children = with_entry(directory.children, names[depth], above)
        above = Directory(children, directory.modified, directory.mode)
    return above


def take(root: Directory, path: str, now: float) -> Directory:
    """A root without what is at `path`, which must be there."""
    parent, _, name = path.rpartition("/")
    above = find(root, parent or ROOT)
    assert isinstance(above, Directory)
    emptied = Directory(without_entry(above.children, name), now, above.mode)
    return put(root, parent, emptied, now)[0] if parent else emptied


def restore_node(root: Directory, path: str, node: Node | None, modified: float) -> Directory:
    """A root that has the node at `path` again, or nothing for None, and `modified` as the time of its directory."""
    if node is not None:
        root = put(root, path, node, modified)[0]
    elif lookup(root, path) is not None:
        root = take(root, path, modified)
    parent = path.rpartition("/")[0]
    above = lookup(root, parent or ROOT)
    if not isinstance(above, Directory) or above.modified == modified:
        return root
    dated = Directory(above.children, modified, above.mode)
    return put(root, parent, dated, modified)[0] if parent else dated


def compare(old: Directory, new: Directory, paths: set[str]) -> FileChanges:
    """What differs at or below the paths; what is elsewhere is not looked at."""
    if len(paths) == 1:  # most calls that write anything write one file
        (path,) = paths
        before, after = lookup(old, path), lookup(new, path)
        if isinstance(before, File) and isinstance(after, File):
            return FileChanges((), (path,), ()) if _differ(before, after) else NOTHING
    added: set[str] = set()
    changed: set[str] = set()
    removed: set[str] = set()
    pending = [(path, lookup(old, path), lookup(new, path)) for path in paths]
    while pending:
        path, before, after = pending.pop()
        if before is after:
            continue
        if isinstance(before, Directory) and isinstance(after, Directory):
            if before.mode != after.mode:
                changed.add(f"{path}/")
            pending.extend(_differing(path, before, after))
        elif isinstance(before, File) and isinstance(after, File):
            if _differ(before, after):
                changed.add(path)
        else:
            removed.update(_all_below(path, before))
            added.update(_all_below(path, after))
    return FileChanges(tuple(sorted(added)), tuple(sorted(changed)), tuple(sorted(removed)))


def _differ(before: File, after: File) -> bool:
    return before.mode != after.mode or before.size != after.size or before.content != after.content


def _differing(path: str, before: Directory, after: Directory) -> Iterator[tuple[str, Node | None, Node | None]]:
    for name, node in before.children.items():
        other = after.children.get(name)
        if other is not node:
            yield join(path, name), node, other
    for name, node in after.children.items():
        if name not in before.children:
            yield join(path, name), None, node


def _all_below(path: str, node: Node | None) -> Iterator[str]:
    pending = [] if node is None else [(path, node)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, File):
            yield path
        else:
            yield f"{path}/"
            pending.extend((join(path, name), child) for name, child in node.children.items())
