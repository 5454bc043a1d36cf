"""`HostFilesystem` passes the contract, by both ways to confine a path."""

from __future__ import annotations

from typing import ClassVar, Literal

import pytest

from weakincentives.filesystem.host import HostFilesystem
from weakincentives.filesystem.syscalls import Syscalls
from weakincentives.testing.filesystem import FilesystemContract


class _OnDisk(FilesystemContract):
    openat2: ClassVar[bool | None] = None
    watch: ClassVar[Literal["scan"] | None] = None

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._factory = tmp_path_factory

    def make(self) -> HostFilesystem:
        syscalls = Syscalls(openat2=self.openat2)
        return HostFilesystem(self._factory.mktemp("root"), watch=self.watch, syscalls=syscalls)


class TestByOpenat2(_OnDisk):
    """The kernel confines."""


class TestByDirectoryHandles(_OnDisk):
    """We confine, one directory after the other."""

    openat2 = False


class TestWatchingByScan(_OnDisk):
    """Rollback from a copy instead of the journal."""

    watch = "scan"
