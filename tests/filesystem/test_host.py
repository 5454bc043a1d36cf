"""`HostFilesystem` passes the contract, by both ways to confine a path."""

from __future__ import annotations

from pathlib import Path

import pytest

from weakincentives.filesystem.host import HostFilesystem
from weakincentives.filesystem.syscalls import Syscalls
from weakincentives.testing.filesystem import FilesystemContract


class _OnDisk(FilesystemContract):
    openat2: bool | None = None
    _places: list[Path]

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._factory = tmp_path_factory

    def make(self) -> HostFilesystem:
        return HostFilesystem(self._factory.mktemp("root"), syscalls=Syscalls(openat2=self.openat2))


class TestByOpenat2(_OnDisk):
    """The kernel confines."""


class TestByDirectoryHandles(_OnDisk):
    """We confine, one directory after the other."""

    openat2 = False
