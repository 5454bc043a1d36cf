"""How a root is told from another one that got its inode number later."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.filesystem.crash import Faulty, abandon, build, open_host, picture

from weakincentives.filesystem.disk import syscalls
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.syscalls import Syscalls


@contextmanager
def handle(path: Path) -> Generator[int, None, None]:
    fd = os.open(path, os.O_PATH)
    try:
        yield fd
    finally:
        os.close(fd)


def born(path: Path) -> tuple[int, int]:
    """The inode number, and what tells it from another."""
    with handle(path) as fd:
        return os.fstat(fd).st_ino, Syscalls().born(fd)


@pytest.fixture
def old_disk(tmp_path: Path) -> Generator[Path, None, None]:
    """A disk with inodes so small that there is no room for a birth time, as small or old ones have."""
    image, at = tmp_path / "image", tmp_path / "disk"
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(8 << 20)
    made = (
        shutil.which("mkfs.ext4")
        and not subprocess.run(["mkfs.ext4", "-q", "-I", "128", image], check=False, capture_output=True).returncode
    )
    if not made or subprocess.run(["mount", "-o", "loop", image, at], check=False, capture_output=True).returncode:
        pytest.skip("no disk image can be made and mounted here")
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


def remake(path: Path) -> tuple[int, int]:
    """Remove the directory and make another with its inode number, if the disk gives that out again."""
    path.rmdir()
    path.mkdir()
    return born(path)


def test_a_directory_on_a_disk_without_birth_times_has_a_generation(old_disk: Path, tmp_path: Path) -> None:
    """The next directory with its inode number has another one; a renamed directory keeps it, also when remounted."""
    root = old_disk / "root"
    root.mkdir()
    with handle(root) as fd:
        assert syscalls._born(fd) == 0
    first = born(root)
    assert first[1] > 0
    second = remake(root)
    assert second != first
    root.rename(old_disk / "renamed")
    assert born(old_disk / "renamed") == second
    subprocess.run(["umount", old_disk], check=True)
    subprocess.run(["mount", "-o", "loop", tmp_path / "image", old_disk], check=True)
    assert born(old_disk / "renamed") == second


def test_nothing_is_undone_in_another_root_with_the_same_inode(old_disk: Path, tmp_path: Path) -> None:
    """Without birth times as well: the root is removed, and its number and its path go to another one."""
    root = old_disk / "root"
    build(root)
    faulty = Faulty()
    fs = open_host(root, faulty, state_dir=tmp_path / "state")
    held = fs.savepoint()
    fs.write("a.txt", "changed")
    fs.write("new.txt", "new")
    abandon(fs, faulty)
    was = root.stat().st_ino
    shutil.rmtree(root)
    for _ in range(100):
        root.mkdir()
        if root.stat().st_ino == was:
            break
        root.rmdir()
    else:
        raise AssertionError("ext4 gives a number out again")
    (root / "new.txt").write_text("another's")
    before = picture(root)
    HostFilesystem(root, state_dir=tmp_path / "state").close()
    assert picture(root) == before
    assert held is not None


def test_a_renamed_root_without_a_birth_time_is_found(old_disk: Path, tmp_path: Path) -> None:
    """The generation tells that it is the same, so its path need not be."""
    root = old_disk / "root"
    build(root)
    before = picture(root, exact=False)
    faulty = Faulty()
    fs = open_host(root, faulty, state_dir=tmp_path / "state")
    held = fs.savepoint()
    fs.write("a.txt", "changed")
    abandon(fs, faulty)
    root.rename(old_disk / "renamed")
    HostFilesystem(old_disk / "renamed", state_dir=tmp_path / "state").close()
    assert picture(old_disk / "renamed", exact=False) == before
    assert held is not None


def test_what_has_no_handle_has_no_generation() -> None:
    """A system that gives out none, such as /proc; then the path is compared."""
    with handle(Path("/proc")) as fd:
        assert syscalls._generation(fd) == 0
    assert syscalls._generation(-1) == 0
