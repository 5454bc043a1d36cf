"""`watch="scan"`: what other programs wrote is undone as well."""

from __future__ import annotations

import errno
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.filesystem.crash import Faulty, Picture, abandon, build, everything, open_host, picture, vault_of

from weakincentives.errors import JournalError, SnapshotError
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.syscalls import still_there

SEED = int(os.environ.get("WINK_SEED", "0")) or random.SystemRandom().randrange(1 << 32)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir="/dev/shm", prefix="wink-") as name:
        yield Path(name)


@pytest.fixture
def root(folder: Path) -> Path:
    build(folder / "root")
    return folder / "root"


def looks(root: Path) -> Picture:
    """All but inodes and link counts, which a copy cannot give back."""
    return {
        path: (mode, content, mtime, xattrs)
        for path, (mode, content, mtime, _, _, xattrs) in picture(root, links=False).items()
    }


def vandalise(root: Path) -> None:
    """What a subprocess might do: in place, past every API."""
    with (root / "a.txt").open("r+b") as file:
        file.write(b"!")
    (root / "secret").chmod(0o666)
    (root / "run.sh").write_bytes(b"")
    os.rename(root / "d", root / "renamed")
    (root / "empty").rmdir()
    os.mkfifo(root / "empty")
    (root / "link").unlink()
    (root / "link").symlink_to("/etc/passwd")
    (root / "t" / "x" / "new").mkdir()
    (root / "t" / "x" / "new" / "file").write_text("new")
    (root / "ignored.log").unlink()
    (root / "escape").symlink_to("/")
    os.mkfifo(root / "fifo")
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root)
    try:
        server.bind("socket")
    finally:
        os.chdir(here)
        server.close()
    (root / ".git" / "HEAD").write_text("ref: refs/heads/x\n")
    os.utime(root / ".gitignore", (1, 1))


def test_what_others_changed_is_taken_back(root: Path) -> None:
    """In-place writes, modes, kinds, renames, planted symlinks, FIFOs and sockets: all is as before."""
    before = looks(root)
    with HostFilesystem(root, watch="scan") as fs:
        snapshot = fs.snapshot()
        vandalise(root)
        fs.write("a.txt", "through the API, too")
        fs.restore(snapshot)
        assert looks(root) == before
        vandalise(root)
        fs.restore(snapshot)
        assert looks(root) == before
        fs.release(snapshot)
    assert looks(root) == before


def test_changes_include_those_of_others(root: Path) -> None:
    """`changes` tells what anybody added, changed and removed; a file only touched is not changed."""
    with HostFilesystem(root, watch="scan") as fs:
        snapshot = fs.snapshot()
        assert not fs.changes(snapshot)
        vandalise(root)
        fs.write("api.txt", "x")
        changes = fs.changes(snapshot)
        assert changes.added == (
            "api.txt", "empty", "escape", "fifo", "renamed/", "renamed/one.txt", "renamed/sub/",
            "renamed/sub/two.txt", "socket", "t/x/new/", "t/x/new/file",
        )  # fmt: skip
        assert changes.changed == (".git/HEAD", "a.txt", "link", "peer.txt", "run.sh", "secret")
        assert changes.removed == ("d/", "d/one.txt", "d/sub/", "d/sub/two.txt", "empty/", "ignored.log")
        fs.restore(snapshot)
        assert not fs.changes(snapshot)


def test_a_change_within_one_clock_tick_is_seen(root: Path) -> None:
    """A write of the same length right after the snapshot, with the old time set again, does not get away."""
    with HostFilesystem(root, watch="scan") as fs:
        for number in range(20):
            (root / "hot.txt").write_text(f"{number:04}")
            times = (root / "hot.txt").stat()
            snapshot = fs.snapshot()
            (root / "hot.txt").write_text("evil")
            os.utime(root / "hot.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
            assert fs.changes(snapshot).changed == ("hot.txt",)
            fs.restore(snapshot)
            assert (root / "hot.txt").read_text() == f"{number:04}"
            fs.release(snapshot)


def test_what_others_changed_between_transactions_stays(root: Path) -> None:
    """The copy follows: a snapshot is the state of its own moment."""
    with HostFilesystem(root, watch="scan") as fs:
        fs.release(fs.snapshot())
        (root / "a.txt").write_text("others, in between")
        snapshot = fs.snapshot()
        (root / "a.txt").write_text("others, during")
        fs.restore(snapshot)
        fs.release(snapshot)
    assert (root / "a.txt").read_text() == "others, in between"


def test_snapshots_nest_and_end(root: Path) -> None:
    """Restoring the outer one ends the inner one."""
    with HostFilesystem(root, watch="scan") as fs:
        before = looks(root)
        outer = fs.snapshot()
        (root / "a.txt").write_text("1")
        inner = fs.snapshot()
        (root / "a.txt").write_text("2")
        fs.restore(inner)
        assert (root / "a.txt").read_text() == "1"
        fs.restore(outer)
        assert looks(root) == before
        with pytest.raises(SnapshotError):
            fs.restore(inner)


def test_the_copy_is_made_once(root: Path) -> None:
    """A second snapshot, also by a new object, reads no file that did not change."""
    when = time.time() - 3600
    for path in root.rglob("*"):
        os.utime(path, (when, when), follow_symlinks=False)
    time.sleep(0.15)  # until nothing is so new that its content must be compared
    with HostFilesystem(root, watch="scan") as first:
        first.release(first.snapshot())
        (root / "run.sh").write_text("changed")
        time.sleep(0.15)
        with HostFilesystem(root, watch="scan") as second:
            second.release(second.snapshot())
            mirror = vault_of(root) / "mirror"
            assert len([path for path in mirror.iterdir() if path.name.startswith("c")]) == 10


@pytest.mark.slow  # a process that is killed
def test_a_killed_transaction_is_rolled_back_with_what_others_did(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After `kill -9`, opening the root (watching or not) takes back everybody's changes, and says so."""
    before = looks(root)
    for watch in ('watch="scan"', ""):
        code = (
            "import os, sys, signal\n"
            "from weakincentives.filesystem.disk.filesystem import HostFilesystem\n"
            "from tests.filesystem.test_host_scan import vandalise\n"
            "from pathlib import Path\n"
            "fs = HostFilesystem(sys.argv[1], watch='scan')\n"
            "s = fs.savepoint()\nfs.write('api.txt', 'x')\ns2 = fs.snapshot()\nvandalise(Path(sys.argv[1]))\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        done = subprocess.run([sys.executable, "-c", code, str(root)], check=False, cwd=Path.cwd())
        assert done.returncode == -9
        assert looks(root) != before
        HostFilesystem(root, watch="scan" if watch else None).close()
        assert looks(root) == before
        assert "Rolled back" in caplog.text
        caplog.clear()


def _crash_points(folder: Path, step: int, error: int | None = None) -> int:
    """Crash (or fail) at calls of a watched transaction, then of the recovery, too."""
    at, number = random.Random(SEED).randrange(step) + 1, 0
    while True:
        number += 1
        root = folder / f"crash{number}"
        build(root)
        before = looks(root)
        syscalls = Faulty(at, error=error)
        fs = None
        released = False
        try:
            fs = open_host(root, syscalls, watch="scan")
            snapshot = fs.savepoint()
            for change in everything(fs)[:6]:
                change()
            vandalise(root)
            after = looks(root)
            released = True
            fs.release(snapshot)
        except BaseException as failure:
            if not syscalls.dead and not isinstance(failure, OSError):
                raise
        if fs is not None:
            abandon(fs, syscalls)
        done = syscalls.count < at
        for again in (at % 97 + 1, None):
            second = Faulty(again)
            try:
                open_host(root, second, watch="scan").close()
            except BaseException:
                if not second.dead:
                    raise
            second.reap()
        found = looks(root)
        assert found == before or (released and found == after), f"seed {SEED}, call {at}"  # pyright: ignore[reportPossiblyUnboundVariable]
        if done:
            return number
        at += step


def test_a_crash_at_any_call_is_rolled_back(folder: Path) -> None:
    """Also in scan mode, wherever the process stops, and again in recovery."""
    assert _crash_points(folder, 23) >= 9  # the first call is random


@pytest.mark.torture
def test_a_crash_at_every_call(folder: Path) -> None:
    """Every call of a watched transaction, each with a crash in recovery, too."""
    assert _crash_points(folder, 1) > 200


@pytest.mark.torture
def test_a_disk_error_at_every_call(folder: Path) -> None:
    """Every call may fail; when the process then ends, all is rolled back."""
    assert _crash_points(folder, 1, errno.EIO) > 200


def test_it_cannot_be_read_only(root: Path) -> None:
    """A copy must be written somewhere."""
    with pytest.raises(ValueError, match="read_only"):
        HostFilesystem(root, watch="scan", read_only=True)


def test_what_cannot_be_put_back_is_named(root: Path) -> None:
    """A socket that was there before cannot be made again: everything else is restored, then it is an error."""
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root)
    try:
        server.bind("sock")
    finally:
        os.chdir(here)
        server.close()
    with HostFilesystem(root, watch="scan") as fs:
        snapshot = fs.snapshot()
        (root / "sock").unlink()
        (root / "a.txt").write_text("changed")
        with pytest.raises(JournalError, match="sock"):
            fs.restore(snapshot)
        assert (root / "a.txt").read_text() == "alpha"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_tree_deeper_than_any_path() -> None:
    """What others nested more deeply than a path can say is taken away whole, and what was there stays."""
    root = Path(tempfile.mkdtemp())  # not below pytest's folder: it would fail to remove what an interrupt left there
    (root / "kept.txt").write_text("kept")
    try:
        with HostFilesystem(root, watch="scan") as fs:
            before = fs.snapshot()
            home = os.getcwd()
            try:
                os.chdir(root)
                for _ in range(2100):
                    os.mkdir("d")
                    os.chdir("d")
            finally:
                os.chdir(home)
            assert "d/" in fs.changes(before).added
            fs.restore(before)
            assert os.listdir(root) == ["kept.txt"]
            fs.release(before)
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)


def test_an_undo_that_found_nothing_leaves_older_snapshots_as_they_were(root: Path) -> None:
    """Restoring a snapshot when nothing has changed alters neither it nor what an older one restores."""
    with HostFilesystem(root, watch="scan") as fs:
        first, before = fs.snapshot(), looks(root)
        second = fs.snapshot()
        fs.restore(second)
        vandalise(root)
        fs.restore(first)
        assert looks(root) == before


def test_entries_that_go_while_a_directory_is_read_are_left_out(tmp_path: Path) -> None:
    """What is gone before its attributes are read is not in the listing; all others are."""
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    with os.scandir(tmp_path) as entries:
        listed = list(entries)
    (tmp_path / "b").unlink()
    assert sorted(name for name, _ in still_there(listed)) == ["a", "c"]
