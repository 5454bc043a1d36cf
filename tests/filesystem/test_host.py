"""`HostFilesystem` passes the contract, by both ways to confine a path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.syscalls import Syscalls
from weakincentives.testing.filesystem_contract import FilesystemContract


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
    owned_savepoints = False  # it restores what anybody changed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_owner_is_given_what_is_new(tmp_path: Path) -> None:
    """New files, directories and copies belong to the owner that was named; a file that was there keeps its own."""
    (tmp_path / "old.txt").write_text("x")
    with HostFilesystem(tmp_path, owner=(1000, 1001)) as fs:
        fs.write("new/deep/file.txt", "x")
        fs.mkdir("empty/dir")
        fs.copy("new", "copied")
        fs.write("old.txt", "y")
        before = fs.snapshot()
        fs.delete("new", recursive=True)
        fs.restore(before)
        fs.release(before)
    made = [path for path in tmp_path.rglob("*") if path.name != "old.txt"]
    assert len(made) == 8
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(1000, 1001)}
    assert (tmp_path / "old.txt").stat().st_uid == 0
