"""A filesystem that remembers what its files were before they were first changed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Self, final

from ...clock import Clock
from ...fence import Guard
from ...filesystem import FileChanges, Filesystem, HostFilesystem, InMemoryFilesystem
from ...filesystem.paths import ROOT, join, normalise
from ...filesystem.protocol import FileNode, fingerprint_of_stat
from ...filesystem.search.walk import FilesystemTree, walk_files
from ...filesystem.views import UNGUARDED, Operation, WrapperFilesystem
from .diffs import unified

KEPT_BYTES = 1 << 20
"""Of a bigger file only a fingerprint is kept: that it changed is known, not how. It is not read for that."""
KEPT_TOTAL = 64 << 20
"""Of further files only fingerprints are kept: a call may delete a tree of any size."""


class OriginalFile(NamedTuple):
    """A file as it was: its bytes, or the fingerprint of a big one."""

    size: int
    content: bytes | None
    fingerprint: str = ""


@final
class OriginalFiles:
    """What files were before they were first changed: one original per file that was touched, nothing of the others."""

    __slots__ = ("_kept", "_room")

    def __init__(self) -> None:
        self._kept: dict[str, OriginalFile | None] = {}
        self._room = KEPT_TOTAL

    def note_before(self, operation: Operation, fs: Filesystem, path: str, target: str = ROOT) -> None:
        """The operation is about to change the files at these paths."""
        if operation in {"write", "append"}:
            self.note(fs, path)
            return
        if operation in {"delete", "move"}:
            self.note_tree(fs, path)
        if operation in {"copy", "move"}:
            self.note_arrivals(fs, path, target)

    def note(self, fs: Filesystem, path: str) -> None:
        """The file is about to change."""
        path = normalise(path)
        if path not in self._kept:
            original = self._kept[path] = _now(fs, path, min(KEPT_BYTES, self._room))
            if original is not None and original.content is not None:
                self._room -= original.size

    def note_tree(self, fs: Filesystem, path: str) -> None:
        """The file, or all in the directory, is about to go."""
        for found in list(walk_files(FilesystemTree(fs), normalise(path))):
            self.note(fs, found)

    def note_arrivals(self, fs: Filesystem, source: str, target: str) -> None:
        """The file, or all in the directory, is about to be at `target` as well."""
        source, target = normalise(source), normalise(target)
        skipped = 0 if source == ROOT else len(source) + 1
        for found in list(walk_files(FilesystemTree(fs), source)):
            self.note(fs, target if found == source else join(target, found[skipped:]))

    def differences(self, fs: Filesystem) -> FileChanges:
        """The files that differ from what they were; a file that moved is removed here and added there."""
        added, changed, removed = list[str](), list[str](), list[str]()
        for path, original in sorted(self._kept.items()):
            now = _now_like(fs, path, original)
            if original is None:
                if now is not None:
                    added.append(path)
            elif now is None:
                removed.append(path)
            elif now != original:
                changed.append(path)
        return FileChanges(tuple(added), tuple(changed), tuple(removed))

    def diff(self, fs: Filesystem) -> str:
        """All differences as one unified diff, nothing cut; empty when there are none."""
        found = self.differences(fs)
        texts: list[str] = []
        for path in sorted((*found.added, *found.changed, *found.removed)):
            original = self._kept[path]
            now = _now_like(fs, path, original)
            if (original and original.content is None) or (now and now.content is None):
                texts.append(f"Big file {path} differs ({_size(original)} -> {_size(now)} bytes)")
            else:
                before, after = original and original.content, now and now.content
                texts.append(unified(path, before, after, max_lines=None, max_chars=None))
        return "".join(f"{text}\n" for text in texts)


@final
class TrackedFilesystem(WrapperFilesystem):
    """The same files; what they were before their first change through this object can still be told.

    A change that was undone is not a difference: the originals are compared with the files as they are when asked.
    Changes made past this object, by other programs for instance, are seen only in files that it touched as well.
    """

    __slots__ = ("_originals",)

    def __init__(self, fs: Filesystem) -> None:
        super().__init__(fs)
        self._originals = OriginalFiles()

    def _writing(self, operation: Operation, path: str = ROOT, target: str = ROOT) -> Guard:
        self._originals.note_before(operation, self._fs, path, target)
        return UNGUARDED

    def close(self) -> None:
        """Close the files underneath, where they are on disk."""
        if isinstance(self._fs, HostFilesystem):
            self._fs.close()

    def differences(self) -> FileChanges:
        """See `OriginalFiles.differences`."""
        return self._originals.differences(self._fs)

    def diff(self) -> str:
        """See `OriginalFiles.diff`."""
        return self._originals.diff(self._fs)


@final
class TrackedMemory(InMemoryFilesystem):
    """As `TrackedFilesystem`, for files in memory: being the filesystem itself, it costs reading nothing.

    What it is filled with before `begin` counts as having been there.
    """

    __slots__ = ("_originals",)

    def __init__(self, files: Mapping[str, str | bytes] = MappingProxyType({}), *, clock: Clock | None = None) -> None:
        self._originals: OriginalFiles | None = None
        super().__init__(files, clock=clock)

    def begin(self) -> Self:
        """Start tracking changes."""
        self._originals = OriginalFiles()
        return self

    def _note(self, operation: Operation, path: str, target: str = ROOT) -> None:
        if self._originals is not None:
            self._originals.note_before(operation, self, path, target)

    def write(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.write`."""
        self._note("write", path)
        super().write(path, content)

    def put_node(self, path: str, node: FileNode | None) -> None:
        """See `RecordableFilesystem.put_node`."""
        self._note("write", path)
        super().put_node(path, node)

    def append(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.append`."""
        self._note("append", path)
        super().append(path, content)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """See `Filesystem.delete`."""
        self._note("delete", path)
        super().delete(path, recursive=recursive)

    def copy(self, source: str, target: str) -> None:
        """See `Filesystem.copy`."""
        self._note("copy", source, target)
        super().copy(source, target)

    def move(self, source: str, target: str) -> None:
        """See `Filesystem.move`."""
        self._note("move", source, target)
        super().move(source, target)

    def close(self) -> None:
        """Does nothing: files in memory hold nothing that must be closed."""

    def differences(self) -> FileChanges:
        """See `OriginalFiles.differences`; nothing before `begin`."""
        return FileChanges() if self._originals is None else self._originals.differences(self)

    def diff(self) -> str:
        """See `OriginalFiles.diff`; nothing before `begin`."""
        return "" if self._originals is None else self._originals.diff(self)


def _now(fs: Filesystem, path: str, kept: int) -> OriginalFile | None:
    """The file as it is: its content if that has at most `kept` bytes."""
    try:
        found = fs.stat(path)
        if found.kind != "file":
            return None
        if found.size <= kept:
            content = fs.read_bytes(path, limit=kept + 1)
            if len(content) <= kept:
                return OriginalFile(len(content), content)
        # In memory a fingerprint costs no reading, and the clock may be a test's that stands still.
        known = fs.fingerprint(path) if isinstance(fs, InMemoryFilesystem) else fingerprint_of_stat(fs.stat(path))
        return OriginalFile(found.size, None, known)
    except OSError:  # nothing there, or nothing that can be read as a file
        return None


def _now_like(fs: Filesystem, path: str, original: OriginalFile | None) -> OriginalFile | None:
    """The file as it is, described in the same way as the original."""
    return _now(fs, path, KEPT_BYTES if original is None or original.content is not None else -1)


def _size(version: OriginalFile | None) -> str:
    return f"{0 if version is None else version.size:,}"
