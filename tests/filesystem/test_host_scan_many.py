"""`watch="scan"` on many small files: their copies share files, and are exact all the same."""

from __future__ import annotations

import errno
import logging
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.filesystem.crash import Faulty, abandon, open_host, vault_of
from tests.filesystem.test_host_scan import SEED, folder, looks

from weakincentives.errors import JournalError
from weakincentives.filesystem import HostFilesystem
from weakincentives.filesystem.disk.copies import SINGLE_COPIES, SMALL_BYTES
from weakincentives.filesystem.disk.syscalls import Syscalls

__all__ = ["folder"]

MANY = 2 * SINGLE_COPIES


def fill(root: Path, files: int = MANY, size: int = 50) -> None:
    """Small files of all lengths, an empty one and some at the border."""
    rng = random.Random(SEED)
    for number in range(files):
        path = root / f"d{number % 7}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.randrange(size)))
        path.chmod(0o600 | rng.randrange(0o100))
    for size in (0, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1):
        (root / f"border{size}").write_bytes(rng.randbytes(size))
    os.setxattr(root / "border0", "user.note", b"kept")


def spoil(root: Path) -> None:
    """Every file is changed, in one of several ways."""
    for number, path in enumerate(sorted(path for path in root.rglob("*") if path.is_file())):
        if number % 4 == 0:
            path.unlink()
        elif number % 4 == 1:
            path.write_bytes(b"spoiled")
        elif number % 4 == 2:
            path.chmod(0o640)
            os.utime(path, (1, 1))
        else:
            path.rename(path.with_name(f"{path.name}.moved"))


def copies(root: Path) -> list[Path]:
    """The files of copies."""
    return [path for path in (vault_of(root) / "mirror").iterdir() if path.name.startswith("c")]


def test_many_small_files_are_copied_into_few(tmp_path: Path) -> None:
    """All of them are restored: content, mode, time and attributes, also by a snapshot that comes later."""
    root = tmp_path / "root"
    fill(root)
    before = looks(root)
    with HostFilesystem(root, watch="scan") as fs:
        first = fs.snapshot()
        assert len(copies(root)) <= SINGLE_COPIES + 3
        for _ in range(2):
            spoil(root)
            assert len(fs.changes(first).changed) > MANY // 5
            fs.restore(first)
            assert looks(root) == before
            assert not fs.changes(first)
        second = fs.snapshot()
        spoil(root)
        fs.restore(second)
        assert looks(root) == before


def test_a_change_of_the_same_length_in_one_tick_is_seen(tmp_path: Path) -> None:
    """What was copied right after it was written is compared with its part of the shared file."""
    root = tmp_path / "root"
    fill(root)
    with HostFilesystem(root, watch="scan") as fs:
        hot = sorted(path for path in root.rglob("f*") if path.stat().st_size)[-20:]
        snapshot = fs.snapshot()
        for path in hot:
            times = path.stat()
            path.write_bytes(b"\0" * times.st_size)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert len(fs.changes(snapshot).changed) == len(hot)


@pytest.mark.slow
def test_shared_files_do_not_grow_without_end(tmp_path: Path) -> None:
    """Where most of one is needed no more, the rest is copied again and it goes."""
    root = tmp_path / "root"
    fill(root, size=500)
    total = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    with HostFilesystem(root, watch="scan") as fs:
        for turn in range(12):
            fs.release(fs.snapshot())
            kept = sum(path.stat().st_size for path in copies(root))
            assert kept <= 4 * total
            for number, path in enumerate(sorted(path for path in root.rglob("f*") if path.is_file())):
                if number % 12 != turn:  # another one stays as it was each time
                    path.write_bytes(os.urandom(200 + turn))
            before = looks(root)
            snapshot = fs.snapshot()
            spoil(root)
            fs.restore(snapshot)
            fs.release(snapshot)
            assert looks(root) == before


def test_a_shared_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    """Half of a file is never restored in place of the whole."""
    root = tmp_path / "root"
    fill(root)
    with HostFilesystem(root, watch="scan") as fs:
        snapshot = fs.snapshot()
        single = {path.read_bytes() for path in root.rglob("*") if path.is_file()}
        (shared,) = (path for path in copies(root) if path.read_bytes() not in single)
        whole = shared.read_bytes()
        os.truncate(shared, 10)
        before = looks(root)
        spoil(root)
        with pytest.raises(JournalError, match="was cut"):
            fs.restore(snapshot)
        shared.write_bytes(whole)
        fs.restore(snapshot)
        assert looks(root) == before


def test_two_objects_take_turns(tmp_path: Path) -> None:
    """What one of them copied, dropped and wrote down is known to the other."""
    root = tmp_path / "root"
    fill(root)
    with HostFilesystem(root, watch="scan") as one, HostFilesystem(root, watch="scan") as other:
        for turn in range(4):
            for name, fs in (("one", one), ("other", other)):
                (root / "border0").write_text(f"{name} {turn}")
                (root / f"made{turn}").write_text(name)
                before = looks(root)
                snapshot = fs.snapshot()
                spoil(root)
                fs.restore(snapshot)
                fs.release(snapshot)
                assert looks(root) == before


class SlowReads(Syscalls):
    """A disk that reads a small file in 30 ms."""

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        time.sleep(0.03)
        return super().pread(fd, count, offset)


@pytest.mark.slow  # waits for a time to pass
def test_a_long_first_copy_says_how_far_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every two seconds, and at the end; a short one says nothing."""
    root = tmp_path / "root"
    fill(root)
    with caplog.at_level(logging.INFO, "weakincentives.filesystem"):
        with HostFilesystem(root, watch="scan") as fs:
            fs.release(fs.snapshot())
        assert not [record for record in caplog.records if "Cop" in record.message]
        with HostFilesystem(root, watch="scan", syscalls=SlowReads()) as fs:
            fs.release(fs.snapshot())
    said = [record.message for record in caplog.records if "Cop" in record.message]
    assert "files so far" in said[0]
    assert said[-1].startswith(f"Copied {MANY + 4} files")
    assert len(said) <= 4


def crash_points(folder: Path, step: Callable[[int], int], error: int | None = None) -> int:
    """Crash (or fail) at calls of a transaction on many files, then of the recovery, too."""
    at, number = random.Random(SEED).randrange(40) + 1, 0
    while True:
        number += 1
        root = folder / f"crash{number}"
        fill(root, SINGLE_COPIES + 20)
        before = looks(root)
        syscalls = Faulty(at, error=error)
        fs = after = None
        try:
            fs = open_host(root, syscalls, watch="scan")
            fs.release(fs.savepoint())
            savepoint = fs.savepoint()
            spoil(root)
            after = looks(root)
            fs.release(savepoint)
        except BaseException as failure:
            if not syscalls.dead and not isinstance(failure, OSError):
                raise
        if fs is not None:
            abandon(fs, syscalls)
        done = syscalls.count < at
        for again in (at % 997 + 1, None):
            second = Faulty(again)
            try:
                open_host(root, second, watch="scan").close()
            except BaseException:
                if not second.dead:
                    raise
            second.reap()
        assert looks(root) in (before, after), f"seed {SEED}, call {at}"
        if done:
            return number
        at += step(at)


@pytest.mark.parametrize("error", [None, errno.EIO])
def test_a_crash_or_error_is_rolled_back(folder: Path, error: int | None) -> None:
    """Wherever the process stops or the disk fails, and again in recovery."""
    assert crash_points(folder, lambda at: 97 + at // 3, error) >= 4
