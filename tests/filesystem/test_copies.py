"""Copies of trees: however deep, and writable whatever the original was."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.filesystem.crash import picture

from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.filesystem.disk.syscalls import Syscalls

LEVELS = 1500
"""More than Python recurses, and with two descriptors for each more than a process may have open."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "openat2", "handles"])
def test_very_deep_trees_are_copied(tmp_path: Path, kind: str) -> None:
    """Every level is there with what is in it, and nothing is left in the state directory."""
    # In memory where there is such a disk: thousands of directories take seconds to remove elsewhere.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    root = Path(tempfile.mkdtemp(dir=shared))
    deep = "/".join("d" for _ in range(LEVELS))
    fs: Filesystem = (
        InMemoryFilesystem()
        if kind == "memory"
        else HostFilesystem(root, syscalls=Syscalls(openat2=None if kind == "openat2" else False))
    )
    try:
        fs.write(f"{deep}/leaf.txt", "leaf")
        fs.write("d/d/beside.txt", "beside")
        fs.copy("d", "copy")
        assert fs.read(f"copy{deep[1:]}/leaf.txt") == "leaf"
        assert fs.read("copy/d/beside.txt") == "beside"
    finally:
        if isinstance(fs, HostFilesystem):
            fs.close()
        # Python's own way to remove a tree recurses.
        subprocess.run(["rm", "-rf", str(root)], check=True)


def test_a_tree_with_longer_paths_than_the_system_takes_is_copied(tmp_path: Path) -> None:
    """Other programs make them by going down step by step."""
    name = "n" * 250
    here = os.getcwd()
    (tmp_path / "tree").mkdir()
    try:
        os.chdir(tmp_path / "tree")
        for _ in range(20):
            os.mkdir(name)
            os.chdir(name)
        for beside in ("one", "two"):
            os.mkdir(beside)
            Path(beside, "leaf.txt").write_text("leaf")
        with HostFilesystem(tmp_path) as fs:
            fs.copy("tree", "copy")
        os.chdir(tmp_path / "copy")
        for _ in range(20):
            os.chdir(name)
        assert [Path(beside, "leaf.txt").read_text() for beside in ("one", "two")] == ["leaf", "leaf"]
    finally:
        os.chdir(here)
        subprocess.run(["rm", "-rf", str(tmp_path / "tree"), str(tmp_path / "copy")], check=True)


def test_a_copy_has_modes_and_times_but_may_be_written(tmp_path: Path) -> None:
    """What was read-only for its owner is not any more; all else is as it was, also a directory's time."""
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "script.sh").write_text("x")
    (tree / "read.txt").write_text("x")
    (tree / "link").symlink_to("read.txt")
    for path, mode in ((tree / "inner" / "script.sh", 0o510), (tree / "read.txt", 0o444), (tree / "inner", 0o555)):
        path.chmod(mode)
        os.utime(path, ns=(10**18, 10**18 + 7))
    tree.chmod(0o550)
    os.utime(tree, ns=(10**18, 10**18 + 5))
    with HostFilesystem(tmp_path) as fs:
        fs.copy("tree", "copy")
        fs.copy("tree/read.txt", "read.txt")
    copy = tmp_path / "copy"
    found = {
        path.relative_to(tmp_path).as_posix(): (stat.S_IMODE(path.lstat().st_mode), path.lstat().st_mtime_ns)
        for path in (copy, copy / "inner", copy / "inner" / "script.sh", copy / "read.txt", tmp_path / "read.txt")
    }
    assert found == {
        "copy": (0o750, 10**18 + 5),
        "copy/inner": (0o755, 10**18 + 7),
        "copy/inner/script.sh": (0o710, 10**18 + 7),
        "copy/read.txt": (0o644, 10**18 + 7),
        "read.txt": (0o644, 10**18 + 7),
    }
    assert os.readlink(copy / "link") == "read.txt"
    for path in (tree, tree / "inner"):
        path.chmod(0o755)


@pytest.mark.parametrize("openat2", [None, False], ids=["openat2", "handles"])
def test_a_copy_that_fails_names_what_it_failed_on_and_leaves_nothing(tmp_path: Path, openat2: bool | None) -> None:
    """A FIFO deep in a tree: the error has its path, the root is as it was, the vault is empty."""
    root = tmp_path / "root"
    (root / "tree" / "a" / "b").mkdir(parents=True)
    (root / "tree" / "a" / "file.txt").write_text("x")
    os.mkfifo(root / "tree" / "a" / "b" / "fifo")
    with HostFilesystem(root, state_dir=tmp_path / "state", syscalls=Syscalls(openat2=openat2)) as fs:
        fs.write("first.txt", "x")  # from here on there is a vault
        before = picture(root)
        with pytest.raises(OSError, match="tree/a/b/fifo"):
            fs.copy("tree", "copy")
        assert picture(root) == before
        kept = [path.name for path in (tmp_path / "state").rglob("*")]
        assert not [name for name in kept if name.startswith("stage-")]


_AS_A_USER = """
import os, sys
from weakincentives.filesystem import HostFilesystem
if os.geteuid() == 0:
    os.setgid(65534); os.setgroups([]); os.setuid(65534)
root = sys.argv[1]
with HostFilesystem(root, state_dir=sys.argv[2]) as fs:
    for path in ("secret.txt", "tree/deep/secret.txt"):
        fs.write(path, "x")
        os.chmod(f"{root}/{path}", 0)
    for source in ("secret.txt", "tree"):
        try:
            fs.copy(source, "new/copy")
        except PermissionError as error:
            print(error.filename)
    os.chmod(f"{root}/secret.txt", 0o444)
    print(fs.is_readonly("secret.txt"))
    fs.copy("secret.txt", "copy.txt")
    print(fs.is_readonly("copy.txt"))
    fs.write("copy.txt", "mine")
    print(fs.read("copy.txt"))
"""


def test_an_unreadable_file_is_named_and_the_copy_of_a_read_only_one_is_writable() -> None:
    """As a user without root's rights: the file in the tree is what the error is about."""
    # Not below pytest's folders: every pytest that starts closes them to other users.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        root, state = Path(folder, "root"), Path(folder, "state")
        for place in (root, state):
            place.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(place, 65534, 65534)
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", _AS_A_USER, str(root), str(state)], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["secret.txt", "tree/deep/secret.txt", "True", "False", "mine"]
