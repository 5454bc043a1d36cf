"""A filesystem that remembers what its files were before they were first changed."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple, final

from ...fence import Guard
from ...filesystem import FileChanges, Filesystem, GuardedFilesystem
from ...filesystem.paths import join, normalise
from ...filesystem.walk import FilesystemTree, walk_files
from .diffs import unified

KEPT_BYTES = 1 << 20
"""Of a bigger file only a fingerprint is kept: that it changed is known, not how."""


class Original(NamedTuple):
    """A file as it was: its bytes, or the fingerprint of a big one."""

    size: int
    content: bytes | None
    digest: bytes | None = None


@final
class _Open:
    """A guard that lets everything pass."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


_OPEN: Guard = _Open()


@final
class TrackedFilesystem(GuardedFilesystem):
    """The same files; what they were before their first change through this object can still be told.

    It holds one original for each file that was touched, and nothing of those that were not. What was taken back is no
    difference: the originals are compared with the files as they are when asked. Changes made past this object, by
    other programs for instance, are seen only in files that it touched as well.
    """

    __slots__ = ("_originals",)

    def __init__(self, fs: Filesystem) -> None:
        super().__init__(fs, _OPEN)
        self._originals: dict[str, Original | None] = {}

    def write(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.write`."""
        self._note(path)
        self._fs.write(path, content)

    def append(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.append`."""
        self._note(path)
        self._fs.append(path, content)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """See `Filesystem.delete`."""
        self._note_tree(path)
        self._fs.delete(path, recursive=recursive)

    def copy(self, source: str, target: str) -> None:
        """See `Filesystem.copy`."""
        self._note_arrivals(source, target)
        self._fs.copy(source, target)

    def move(self, source: str, target: str) -> None:
        """See `Filesystem.move`."""
        self._note_tree(source)
        self._note_arrivals(source, target)
        self._fs.move(source, target)

    # What is needed at each call goes straight to the files.

    def snapshot(self) -> Any:
        """See `Filesystem.snapshot`."""
        return self._fs.snapshot()

    def restore(self, snapshot: Any, /) -> None:
        """See `Filesystem.restore`."""
        self._fs.restore(snapshot)

    def release(self, snapshot: Any, /) -> None:
        """See `Filesystem.release`."""
        self._fs.release(snapshot)

    def close(self) -> None:
        """Close the files underneath, where they are of the kind that is closed."""
        close = getattr(self._fs, "close", None)
        if close is not None:
            close()

    # Looking back

    def differences(self) -> FileChanges:
        """The files that differ from what they were; a file that moved is removed here and added there."""
        added, changed, removed = list[str](), list[str](), list[str]()
        for path, original in sorted(self._originals.items()):
            now = self._now(path)
            if original is None:
                if now is not None:
                    added.append(path)
            elif now is None:
                removed.append(path)
            elif now != original:
                changed.append(path)
        return FileChanges(tuple(added), tuple(changed), tuple(removed))

    def diff(self) -> str:
        """All differences as one unified diff, nothing cut; empty when there are none."""
        found = self.differences()
        texts: list[str] = []
        for path in sorted((*found.added, *found.changed, *found.removed)):
            original, now = self._originals[path], self._now(path)
            if (original and original.content is None) or (now and now.content is None):
                texts.append(f"Big file {path} differs ({_size(original)} -> {_size(now)} bytes)")
            else:
                before, after = original and original.content, now and now.content
                texts.append(unified(path, before, after, max_lines=None, max_chars=None))
        return "".join(f"{text}\n" for text in texts)

    def _note(self, path: str) -> None:
        path = normalise(path)
        if path not in self._originals:
            self._originals[path] = self._now(path)

    def _note_tree(self, path: str) -> None:
        for found in list(walk_files(FilesystemTree(self._fs), normalise(path))):
            self._note(found)

    def _note_arrivals(self, source: str, target: str) -> None:
        source, target = normalise(source), normalise(target)
        for found in list(walk_files(FilesystemTree(self._fs), source)):
            self._note(target if found == source else join(target, found[len(source) + 1 if source != "." else 0 :]))

    def _now(self, path: str) -> Original | None:
        try:
            size = self._fs.stat(path).size
            if size <= KEPT_BYTES:
                content = self._fs.read_bytes(path)
                return Original(len(content), content)
            digest = blake2b(digest_size=16)
            for piece in self._fs.stream(path):
                digest.update(piece)
            return Original(size, None, digest.digest())
        except OSError:  # nothing there, or nothing that can be read as a file
            return None


def _size(version: Original | None) -> str:
    return f"{0 if version is None else version.size:,}"


__all__ = ["TrackedFilesystem"]
