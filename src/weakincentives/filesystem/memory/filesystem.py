"""Files in memory: a persistent tree whose root is the whole state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import final

from ...clock import SYSTEM_CLOCK, Clock
from ...errors import PathRefusedError, SnapshotError
from ...fence import Owner, current_owner
from ...interrupts import RLock
from ...lazy_modules import hashlib
from ..paths import (
    ROOT,
    file_exists,
    into_itself,
    is_a_directory,
    is_below,
    join,
    normalise,
    not_a_directory,
    not_empty,
    root_refused,
)
from ..protocol import (
    FileChanges,
    FileKind,
    FileNode,
    FileStat,
    Filesystem,
    check_chunk_size,
    check_range,
    decode,
    encode,
)
from ..search import Searching
from ..search.walk import WalkTree
from ..views import ReadOnlyFilesystem, SubFilesystem
from .nodes import EMPTY, NOTHING, Directory, File, Node, compare, find, lookup, put, put_file, take
from .write_log import MemoryMark, MemorySnapshot, TouchedLog, Write, WriteLog, state_of, without


class InMemoryFilesystem(Searching):
    """A `Filesystem` that lives and dies with this object.

    A snapshot takes the same short time whatever the number of files, any number may be alive and be restored in
    any order, and none is kept alive from here: one that is dropped is gone. Reading takes no lock; a search or a
    stream sees the files of the moment it began. While a `savepoint` is open, only what is newer can be restored.

    >>> fs = InMemoryFilesystem({"src/main.py": "print('hi')"})
    >>> before = fs.snapshot()
    >>> fs.delete("src", recursive=True)
    >>> fs.changes(before).removed
    ('src/', 'src/main.py')
    >>> fs.restore(before)
    >>> fs.read("/workspace/src/main.py")
    "print('hi')"
    """

    __slots__ = ("__weakref__", "_clock", "_lock", "_log", "_root", "_writes")

    def __init__(self, files: Mapping[str, str | bytes] = MappingProxyType({}), *, clock: Clock | None = None) -> None:
        self._clock = SYSTEM_CLOCK if clock is None else clock
        self._lock = RLock()
        self._log = TouchedLog()
        self._writes = WriteLog(self._log)
        self._root = Directory(EMPTY, self._clock.time())
        for path, content in files.items():
            self.write(path, content)

    def __repr__(self) -> str:
        return f"<InMemoryFilesystem at {id(self):#x}>"

    def _tree(self) -> WalkTree:
        return _FrozenTree(self._root)

    def _file(self, path: str) -> File:
        path = normalise(path)
        node = lookup(self._root, path)
        if isinstance(node, File):
            return node
        find(self._root, path)
        raise is_a_directory(path)

    # Reading

    def read(self, path: str, *, encoding: str = "utf-8") -> str:
        """See `Filesystem.read`."""
        return decode(self._file(path).content, path, encoding)

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """See `Filesystem.read_bytes`."""
        if not offset and limit is None:
            return self._file(path).content
        check_range(offset, limit)
        file = self._file(path)
        return file.part(offset, file.size if limit is None else offset + limit)

    def stream(self, path: str, *, chunk_size: int = 65536) -> Iterator[bytes]:
        """See `Filesystem.stream`."""
        check_chunk_size(chunk_size)
        return _pieces(self._file(path).content, chunk_size)

    def fingerprint(self, path: str) -> str:
        """What changes when the file's content does; taken once of each content. See `FingerprintingFilesystem`."""
        file = self._file(path)
        found = file.fingerprint
        if not found:
            found = file.fingerprint = hashlib.sha256(file.content).hexdigest()
        return found

    def exists(self, path: str) -> bool:
        """See `Filesystem.exists`."""
        try:
            return lookup(self._root, normalise(path)) is not None
        except PathRefusedError:
            return False

    def stat(self, path: str) -> FileStat:
        """See `Filesystem.stat`."""
        path = normalise(path)
        return _stat(path, find(self._root, path))

    def list(self, path: str = ROOT) -> list[FileStat]:
        """See `Filesystem.list`."""
        path = normalise(path)
        node = find(self._root, path)
        if isinstance(node, File):
            raise not_a_directory(path)
        children = sorted(node.children.items(), key=itemgetter(0))
        return [_stat(join(path, name), child) for name, child in children]

    def is_readonly(self, path: str) -> bool:
        """Always False; a path that would be refused raises as everywhere."""
        normalise(path)
        return False

    # Writing: the new root is made first and then put in place, so that what raises has changed nothing.

    def write(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.write`."""
        self._put_file(path, content, append=False)

    def append(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.append`."""
        self._put_file(path, content, append=True)

    def _put_file(self, path: str, content: str | bytes, *, append: bool) -> None:
        data = encode(content)
        path = normalise(path)
        with self._lock:
            writes = self._writes
            if writes.open:
                writes.claim(path)
            root, topmost = put_file(self._root, path, data, self._clock.time(), append=append)
            if writes.open:
                writes.note(self._root, topmost)
            self._root = root
            self._log.note(topmost)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """See `Filesystem.delete`."""
        path = normalise(path)
        if path == ROOT:
            raise root_refused("deleted")
        with self._lock:
            node = find(self._root, path)
            if isinstance(node, Directory) and node.children and not recursive:
                raise not_empty(path)
            if self._writes.open:
                self._writes.claim(path)
                self._writes.note(self._root, path, True)
            self._root = take(self._root, path, self._clock.time())
            self._log.note(path)

    def mkdir(self, path: str) -> None:
        """See `Filesystem.mkdir`."""
        path = normalise(path)
        with self._lock:
            node = lookup(self._root, path)
            if isinstance(node, File):
                raise file_exists(path)
            if node is None:
                if self._writes.open:
                    self._writes.claim(path)
                now = self._clock.time()
                self._store(*put(self._root, path, Directory(EMPTY, now), now))

    def copy(self, source: str, target: str) -> None:
        """See `Filesystem.copy`; modes and times are kept."""
        source, target = normalise(source), normalise(target)
        with self._lock:
            self._store(*put(self._root, target, self._transferable(source, target), self._clock.time()))

    def move(self, source: str, target: str) -> None:
        """See `Filesystem.move`; modes and times are kept."""
        source, target = normalise(source), normalise(target)
        if source == ROOT:
            raise root_refused("moved")
        with self._lock:
            node = self._transferable(source, target)
            now = self._clock.time()
            taken = take(self._root, source, now)
            moved, topmost = put(taken, target, node, now)
            if self._writes.open:
                self._writes.note(self._root, source, True)
                self._writes.note(taken, topmost, True)
            self._root = moved
            self._log.note(source)
            self._log.note(topmost)

    def _store(self, root: Directory, path: str) -> None:
        """Make it the root, in which something at or below the path is new."""
        if self._writes.open:
            self._writes.note(self._root, path)
        self._root = root
        self._log.note(path)

    def _transferable(self, source: str, target: str) -> Node:
        if self._writes.open:
            self._writes.claim(source, target)
        node = find(self._root, source)
        if lookup(self._root, target) is not None:
            raise file_exists(target)
        if is_below(target, source):
            raise into_itself(source, target) if isinstance(node, Directory) else not_a_directory(source)
        return node

    # Snapshots

    def snapshot(self) -> MemorySnapshot:
        """See `Filesystem.snapshot`."""
        with self._lock:
            mark = self._writes.begin_bare(current_owner()) if self._writes.open else None
            return MemorySnapshot(self._root, self._log, self._log.open(), mark)

    def savepoint(self, owner: Owner | None = None, *, for_all: bool = False) -> MemorySnapshot:
        """A snapshot for a transaction; see `HostFilesystem.savepoint`.

        Restoring it undoes what its owner wrote and nothing else. While it lives, a write of others that overlaps with
        that raises `ConflictError`, and an older bare snapshot cannot be restored.
        """
        with self._lock:
            mark = self._writes.begin(owner or current_owner(), for_all)
            return MemorySnapshot(self._root, self._log, self._log.open(), mark)

    def restore(self, snapshot: MemorySnapshot, /) -> None:
        """See `Filesystem.restore`; `SnapshotError` for one that was released or is another filesystem's.

        The same for a bare one that is older than an open savepoint: that could then not be undone any more.
        """
        with self._lock:
            root, period = state_of(snapshot, self._log)
            writes, mark = self._writes, snapshot.mark
            if mark is None and not writes.open:
                self._root = root
                self._log.rewind(period)
                return
            if writes.open:
                writes.prune()
            own: list[Write] | None = None  # None: all that was written, so that the old root is the answer
            if mark is None or not mark.savepoint:
                own = self._restorable(mark)
                for _, path, _ in own or ():
                    writes.note(self._root, path, True)
            else:
                if mark.owner is None and len(writes.open) > 1:
                    writes.claim(*(path for _, path, _ in writes.own(mark)))
                if mark.shared:
                    own = writes.own(mark)
            if own is None:
                self._root = root
                self._log.rewind(period)
            else:
                self._root = without(self._root, own)
                for _, path, _ in own:
                    self._log.note(path)
            if mark is not None and mark.savepoint:
                writes.forget(mark)

    def _restorable(self, mark: MemoryMark | None) -> list[Write] | None:
        """What a bare snapshot's own changes are, None for all; refuses what an open call must be able to undo."""
        writes = self._writes
        if mark is not None and (not mark.alive or (mark.shared and not writes.open)):
            raise SnapshotError("This snapshot is over: it holds what a call wrote that was undone. Take a new one.")
        if not writes.open:
            return None
        if mark is None or any(newer.opened > mark.opened for newer in writes.open):
            raise SnapshotError(
                "This snapshot is older than a call or transaction that is still open, whose own undo it would take "
                "away. Restore it when that is over, or take a snapshot inside."
            )
        own = writes.own(mark)
        writes.claim(*(path for _, path, _ in own))
        return own

    def release(self, snapshot: MemorySnapshot, /) -> None:
        """See `Filesystem.release`."""
        with self._lock:
            snapshot.release()
            if (mark := snapshot.mark) is not None:
                self._writes.end(mark)

    def changes(self, since: MemorySnapshot, /) -> FileChanges:
        """See `Filesystem.changes`; a file written with the bytes it had is not changed.

        Of a savepoint they are its owner's.
        """
        with self._lock:
            old, period = since.state(self._log) if type(since) is MemorySnapshot else state_of(since, self._log)
            new, mark = self._root, since.mark
            if old is new:
                return NOTHING
            if mark is not None and mark.savepoint and mark.shared:
                own = self._writes.own(mark)
                old, paths = without(new, own), {path for _, path, _ in own}
            else:
                paths = self._log.since(period)
        return compare(old, new, paths)

    # Records

    def node(self, path: str) -> FileNode | None:
        """See `RecordableFilesystem.node`."""
        return _node(lookup(self._root, normalise(path)))

    def node_at(self, snapshot: MemorySnapshot, path: str, /) -> FileNode | None:
        """See `RecordableFilesystem.node_at`."""
        with self._lock:
            return _node(lookup(state_of(snapshot, self._log)[0], normalise(path)))

    def put_node(self, path: str, node: FileNode | None) -> None:
        """See `RecordableFilesystem.put_node`."""
        path = normalise(path)
        with self._lock:
            there = lookup(self._root, path)
            if node is None:
                if there is not None:
                    self.delete(path, recursive=True)
                return
            now = self._clock.time()
            if node.kind == "directory":
                children = there.children if isinstance(there, Directory) else EMPTY
                made: Node = Directory(children, now, node.mode)
            elif node.kind == "file":
                made = File((node.content,), len(node.content), now, node.mode)
            else:
                raise PathRefusedError(f"{path!r} was a {node.kind}, which files in memory cannot be.")
            if self._writes.open:
                self._writes.claim(path)
            self._store(*put(self._root, path, made, now))

    # Views

    def readonly(self) -> Filesystem:
        """See `Filesystem.readonly`."""
        return ReadOnlyFilesystem(self)

    def sub(self, path: str) -> Filesystem:
        """See `Filesystem.sub`."""
        return SubFilesystem(self, path)


@final
class _FrozenTree:
    """One moment's files, for searching."""

    __slots__ = ("_root",)

    def __init__(self, root: Directory) -> None:
        self._root = root

    def kind(self, path: str, /) -> FileKind | None:
        node = lookup(self._root, path)
        return None if node is None else _kind(node)

    def scan(self, path: str, /) -> Iterable[tuple[str, FileKind]]:
        node = find(self._root, path)
        assert isinstance(node, Directory)
        return [(name, _kind(child)) for name, child in node.children.items()]

    def chunks(self, path: str, /) -> Iterator[bytes]:
        node = find(self._root, path)
        if isinstance(node, Directory):
            raise is_a_directory(path)
        return iter((node.content,))


def _node(node: Node | None) -> FileNode | None:
    if isinstance(node, File):
        return FileNode("file", node.mode, node.content)
    return None if node is None else FileNode("directory", node.mode)


def _kind(node: Node) -> FileKind:
    return "file" if isinstance(node, File) else "directory"


def _stat(path: str, node: Node) -> FileStat:
    if isinstance(node, File):
        return FileStat(path, "file", node.size, node.modified, node.mode)
    return FileStat(path, "directory", 0, node.modified, node.mode)


def _pieces(content: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]
