"""Files in memory: the contract, and what is promised beyond it."""

from __future__ import annotations

from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory import InMemoryFilesystem
from weakincentives.testing.filesystem import FilesystemContract


class TestInMemoryFilesystem(FilesystemContract):
    any_order = True

    def make(self) -> Filesystem:
        return InMemoryFilesystem()


class TestSubOfInMemoryFilesystem(FilesystemContract):
    """A sub view is a filesystem like any other."""

    any_order = True

    def make(self) -> Filesystem:
        fs = InMemoryFilesystem()
        fs.mkdir("deep/down")
        return fs.sub("deep/down")
