"""Real processes that are really killed, a disk that is really full, and a user who is not root."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.filesystem.crash import build, entry_of, everything, picture, vault_of

from weakincentives.errors import ReadOnlyError
from weakincentives.filesystem.disk.filesystem import HostFilesystem

pytestmark = pytest.mark.slow  # processes that are killed

SEED = int(os.environ.get("WINK_SEED", "0")) or random.SystemRandom().randrange(1 << 32)

_WORKER = """
import sys
from weakincentives.filesystem.disk.filesystem import HostFilesystem
fs = HostFilesystem(sys.argv[1], durable=sys.argv[2] == "durable")

def change(number):
    fs.write("count.txt", str(number))
    for part in range(5):
        fs.write(f"parts/{part}/{number % 3}.txt", str(number))
    fs.delete("tree", recursive=True)
    fs.write(f"tree/{number}/file.txt", str(number))
    fs.move("flip" if number % 2 else "flop", "flop" if number % 2 else "flip")

number = int(fs.read("count.txt"))
while True:
    number += 1
    snapshot = fs.savepoint()
    change(number)
    if number % 5 == 0:
        fs.restore(snapshot)
        change(number)
    fs.release(snapshot)
    print(number, flush=True)
"""


def _consistent(root: Path) -> int:
    """The number of the last transaction, of which all must be there and nothing of another."""
    number = int((root / "count.txt").read_text())
    if number:
        for part in range(5):
            assert (root / "parts" / str(part) / f"{number % 3}.txt").read_text() == str(number)
        assert [path.name for path in (root / "tree").iterdir()] == [str(number)]
        assert (root / "tree" / str(number) / "file.txt").read_text() == str(number)
    assert (root / ("flop" if number % 2 else "flip")).read_text() == "flipflop"
    assert not (root / ("flip" if number % 2 else "flop")).exists()
    return number


def _kill(folder: Path, times: int, how: str) -> int:
    root = folder / "root"
    (root / "tree").mkdir(parents=True)
    (root / "count.txt").write_text("0")
    (root / "flip").write_text("flipflop")
    chance = random.Random(SEED)
    open_ones = 0
    for kill in range(times):
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(root), how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        assert worker.stderr is not None
        with worker:
            said = worker.stdout.readline()
            assert said, worker.stderr.read()
            time.sleep(chance.random() * 0.02)
            worker.send_signal(signal.SIGKILL)
            said += worker.stdout.read()
        journal = entry_of(root) / "journal"
        open_ones += journal.exists() and journal.stat().st_size > 0
        HostFilesystem(root).close()
        number = _consistent(root)
        last = int(said.split()[-1])
        assert number in {last, last + 1}, f"seed {SEED}, kill {kill}: said {last}, found {number}"
    return open_ones


@pytest.mark.parametrize("how", ["quick", "durable"])
def test_a_killed_process_leaves_before_or_after(tmp_path: Path, how: str) -> None:
    """`kill -9` at random moments: what was committed is there, and nothing of what was not."""
    _kill(tmp_path, 5, how)


@pytest.mark.torture
def test_a_hundred_kills(tmp_path: Path) -> None:
    """The same often, with many of them in the middle of a transaction."""
    assert _kill(tmp_path, int(os.environ.get("WINK_KILLS", "120")), "quick") > 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(place)]
    try:
        mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small tmpfs needs root; run as root to include this test")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_changes_nothing(small_disk: Path) -> None:
    """A write that does not fit says so and changes nothing; a rollback needs no space."""
    root = small_disk / "root"
    build(root)
    before = picture(root)
    full = 0
    with HostFilesystem(root) as fs:
        for size in range(0, 520_000, 20_000):
            snapshot = fs.snapshot()
            for change in (*everything(fs), *[lambda s=size, n=n: fs.write(f"big{n}", b"x" * s) for n in range(4)]):
                last = picture(root, exact=False)
                try:
                    change()
                except OSError as error:
                    full += error.errno == errno.ENOSPC and "nothing was changed" in str(error)
                    if change.__name__ != "nested":
                        assert picture(root, exact=False) == last
            fs.restore(snapshot)
            assert picture(root) == before, size
            fs.release(snapshot)
        assert full
    assert picture(root) == before


def test_a_root_that_is_a_mount_keeps_its_journal_inside(small_disk: Path) -> None:
    """Nothing could be renamed from beside a mount point, so the vault is in it; paths on other disks are refused."""
    inner = small_disk / "inner"
    inner.mkdir()
    with HostFilesystem(small_disk) as fs:
        snapshot = fs.snapshot()
        fs.write("a.txt", "x")
        assert vault_of(small_disk).parent == small_disk
        assert [stat.path for stat in fs.list()] == ["a.txt", "inner"]
        fs.restore(snapshot)
        subprocess.run(["mount", "-t", "tmpfs", "none", str(inner)], check=True)
        try:
            (inner / "other.txt").write_text("other disk")
            for attempt in (
                lambda: fs.write("inner/new.txt", "x"),
                lambda: fs.write("inner/other.txt", "x"),
                lambda: fs.delete("inner/other.txt"),
                lambda: fs.move("inner/other.txt", "mine.txt"),
            ):
                with pytest.raises(OSError, match="another filesystem"):
                    attempt()
            assert fs.read("inner/other.txt") == "other disk"
            fs.restore(snapshot)
        finally:
            subprocess.run(["umount", str(inner)], check=True)
        fs.release(snapshot)
    assert [path.name for path in small_disk.iterdir()] == ["inner"]


def test_a_full_disk_in_scan_mode(small_disk: Path) -> None:
    """When the copy does not fit, taking the snapshot is the error; nothing of the root is changed."""
    root = small_disk / "root"
    build(root)
    (root / "big").write_bytes(b"x" * 300_000)
    before = picture(root)
    with HostFilesystem(root, watch="scan") as fs, pytest.raises(OSError, match="No space"):
        fs.snapshot()
    assert picture(root) == before


@pytest.mark.parametrize("kept", ["savepoint", "snapshot"])
def test_a_call_that_fills_the_disk_is_undone_in_scan_mode(small_disk: Path, kept: str) -> None:
    """What has to go is removed first, so that what was there before finds room again."""
    root = small_disk / "root"
    root.mkdir()
    for number in range(10):
        (root / f"old{number}").write_bytes(bytes([number]) * 15_000)
    before = picture(root, exact=False)
    with HostFilesystem(root, watch="scan") as fs:
        snapshot = fs.savepoint() if kept == "savepoint" else fs.snapshot()
        # As a subprocess would, past the API: some files go, some become longer, then there is no room left.
        for number in range(0, 10, 2):
            (root / f"old{number}").unlink()
        for number in (1, 3):
            (root / f"old{number}").write_bytes(b"y" * 20_000)
        with pytest.raises(OSError, match="No space left"):
            (root / "new").write_bytes(b"x" * 600_000)
        fs.restore(snapshot)
        assert picture(root, exact=False) == before
        fs.release(snapshot)
    assert picture(root, exact=False) == before


def test_a_read_only_disk_is_named(small_disk: Path) -> None:
    """On a filesystem that is mounted read-only every write raises `ReadOnlyError`, and reading works."""
    root = small_disk / "root"
    build(root)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    before = picture(root)
    with HostFilesystem(root) as fs:
        snapshot = fs.snapshot()
        for change in everything(fs)[1:4]:
            with pytest.raises(ReadOnlyError, match="read-only"):
                change()
        assert fs.read("a.txt") == "alpha"
        fs.restore(snapshot)
        fs.release(snapshot)
    assert picture(root) == before


_USER = """
import os, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/src"]
from tests.filesystem.crash import build, everything, picture
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.errors import *
if os.geteuid() == 0:
    os.setgid(65534); os.setgroups([]); os.setuid(65534)
root = Path(sys.argv[1]) / "root"
build(root)
(root / "locked" / "in").mkdir(parents=True)
(root / "locked" / "in" / "file").write_text("x")
(root / "locked" / "in").chmod(0o555)
before = picture(root)
for inside in (False, True):
    if inside:
        (Path(sys.argv[1])).chmod(0o555)
    with HostFilesystem(root) as fs:
        snapshot = fs.snapshot()
        for change in everything(fs):
            change()
        for refused in (lambda: fs.write("d/one.txt", "x"), lambda: fs.append("d/one.txt", "x"),
                        lambda: fs.write("locked/in/new", "x"), lambda: fs.delete("locked/in/file")):
            try:
                refused()
            except PermissionError:
                continue
            raise AssertionError("a write-protected thing was written")
        assert fs.is_readonly("d/one.txt") and not fs.is_readonly("a.txt")
        fs.move("locked/in", "place")
        fs.move("place", "far/away/moved")
        fs.delete("far", recursive=True)
        assert bool(list(root.glob(".wink-*"))) == inside
        fs.restore(snapshot)
        assert picture(root) == before
        fs.release(snapshot)
        fs.delete("locked", recursive=True)
        fs.mkdir("locked/in"); fs.write("locked/in/file", "x")
    assert picture(root, exact=False).keys() == before.keys()
    (root / "locked" / "in").chmod(0o555)
    before = picture(root)
    assert not list(root.glob(".wink-*"))
(Path(sys.argv[1])).chmod(0o755)
def looks():
    return {p: (v[0], v[1], v[2]) for p, v in picture(root).items()}
before = looks()
with HostFilesystem(root, watch="scan") as fs:
    snapshot = fs.snapshot()
    (root / "t" / "x").chmod(0o000)
    (root / "d").chmod(0o555)
    (root / "a.txt").chmod(0o000)
    (root / "locked" / "in").chmod(0o755)
    (root / "locked" / "in" / "planted").write_text("x")
    (root / "locked" / "in").chmod(0o000)
    fs.restore(snapshot)
    assert looks() == before
print("fine")
"""


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user can reach; pytest closes its own to others whenever one more pytest starts."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_it_works_for_a_user_who_is_not_root(reachable: Path) -> None:
    """Permissions are kept, write-protected files respected, write-protected trees moved and restored."""
    place = reachable / "place"
    place.mkdir()
    if os.geteuid() == 0:
        os.chown(place, 65534, 65534)
    here = Path.cwd()
    done = subprocess.run(
        [sys.executable, "-c", _USER, str(place), str(here)],
        check=False, capture_output=True, text=True, cwd=place,
    )  # fmt: skip
    if "Permission denied" in done.stderr and "ModuleNotFoundError" in done.stderr:
        pytest.skip("the checkout cannot be read by another user")
    assert done.stdout == "fine\n", done.stderr
