"""Crashes, broken disks and full disks at every system call: afterwards all is as before, or all is done."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.filesystem.crash import (
    PLACES,
    Faulty,
    NoLinks,
    Picture,
    abandon,
    build,
    entry_of,
    everything,
    keep_vault,
    open_host,
    picture,
)

from weakincentives.errors import JournalError
from weakincentives.filesystem.disk import private_dir
from weakincentives.filesystem.disk.filesystem import HostFilesystem

SEED = int(os.environ.get("WINK_SEED", "0")) or random.SystemRandom().randrange(1 << 32)


class _Bench:
    """One root that is set up, wrecked and looked at again and again."""

    def __init__(self, folder: Path, *, inside: bool = False, system: type[Faulty] = Faulty, **options: Any) -> None:
        self._system = system
        self._folder = folder
        self._inside = inside
        self._options = options
        self._number = 0
        private_dir.make(private_dir.location(None))  # so that all runs make the same calls
        self.root = folder
        self.before: Picture = {}
        self.unlinked: Picture = {}
        self.ready_call = 0
        self.fresh()
        self.last_call, self.commit_call = self._dry_run()
        self.after = picture(self.root, exact=False)

    def fresh(self) -> None:
        if self._number:
            rmtree(self.root)
        self._number += 1
        self.root = self._folder / f"root{self._number}"
        build(self.root)
        self.before = picture(self.root)
        self.unlinked = picture(self.root, links=False)

    def _dry_run(self) -> tuple[int, int]:
        syscalls = self._system()
        fs = open_host(self.root, syscalls, **self._options)
        snapshot = fs.savepoint()
        changes = everything(fs)
        changes[0]()
        self.ready_call = syscalls.count
        for change in changes[1:]:
            change()
        commit_call = syscalls.count + 1
        fs.release(snapshot)
        last_call = syscalls.count
        fs.close()
        return last_call, commit_call

    def crash(self, at: int, *, torn: bool) -> None:
        """Run the transaction on a fresh root and crash at that call."""
        self.fresh()
        syscalls = self._system(at, torn=torn)
        fs = None
        try:
            fs = open_host(self.root, syscalls, **self._options)
            snapshot = fs.savepoint()
            for change in everything(fs):
                change()
            fs.release(snapshot)
        except BaseException:
            if not syscalls.dead:
                raise
        if fs is not None:
            abandon(fs, syscalls)
        assert syscalls.count == at, "the transaction makes the same calls every time"

    def recover(self, at: int | None = None, *, torn: bool = False) -> int:
        """Open the root again, maybe crashing there; the number of calls that took."""
        syscalls = self._system(at, torn=torn)
        try:
            fs = open_host(self.root, syscalls, **self._options)
        except BaseException:
            if not syscalls.dead:
                raise
            return syscalls.count
        count = syscalls.count
        if syscalls.dead:  # while it was only tidying up
            abandon(fs, syscalls)
            return count
        syscalls.at = None
        fs.close()
        return count

    def same(self, found: Picture, expected: Picture, at: int) -> bool:
        if self._inside and at <= self.ready_call:
            # Making the state directory inside the root dates the root; what fails right then loses that date.
            found["."] = expected["."]
        return found == expected

    def check(self, at: int, what: str) -> None:
        """Exactly before, or exactly after; nothing left over."""
        if not self.same(picture(self.root), self.before, at):
            assert at > self.commit_call, f"{what}: a crash before the commit must leave all as it was"
            assert picture(self.root, exact=False) == self.after, f"{what}: neither before nor after"
        left = [path.name for path in self._folder.iterdir() if path.name.startswith(f".{self.root.name}.")]
        left += [path.name for path in self.root.glob(".wink*")]
        assert left == [], f"{what}: the vault must be gone"
        assert not entry_of(self.root).exists(), f"{what}: the entry must be gone"


@pytest.fixture(params=PLACES)
def bench(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> _Bench:
    keep_vault(monkeypatch, request.param, folder)
    return _Bench(folder, inside=request.param == "inside")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: thousands of trees are made and removed."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir="/dev/shm", prefix="wink-") as name:
        yield Path(name)


def _crash_points(bench: _Bench, step: int) -> Iterator[tuple[int, bool]]:
    start = random.Random(SEED).randrange(step) + 1
    for at in range(start, bench.last_call + 1, step):
        yield at, False
        yield at, True


def _crash_once(bench: _Bench, step: int) -> int:
    points = 0
    for at, torn in _crash_points(bench, step):
        bench.crash(at, torn=torn)
        bench.recover()
        bench.check(at, f"seed {SEED}, crash at call {at}, torn={torn}")
        points += 1
    return points


def _crash_twice(bench: _Bench, step: int, second_step: int) -> int:
    points = 0
    chance = random.Random(SEED)
    for at, torn in _crash_points(bench, step):
        again = chance.randrange(second_step) + 1
        while True:
            bench.crash(at, torn=torn)
            if bench.recover(again, torn=torn) < again:
                break
            bench.recover(again // 2 + 1)
            bench.recover()
            bench.check(at, f"seed {SEED}, crash at call {at}, torn={torn}, and in recovery at {again}")
            points += 1
            again += second_step
    return points


@pytest.mark.slow
def test_a_crash_at_any_call_leaves_before_or_after(bench: _Bench) -> None:
    """Wherever a process stops in a transaction, opening the root again finds nothing or all of it done."""
    assert _crash_once(bench, 5) > 50


@pytest.mark.slow
def test_a_crash_inside_recovery_is_recovered_from(bench: _Bench) -> None:
    """Recovery may be cut off at any call and simply runs again."""
    assert _crash_twice(bench, 40, 11) > 20


@pytest.mark.slow
def test_without_hard_links_it_is_as_safe(folder: Path) -> None:
    """Where no second name can be made the file itself is moved aside; crashes are survived all the same."""
    bench = _Bench(folder, system=NoLinks)
    assert _crash_once(bench, 4) > 50


@pytest.mark.torture
def test_crash_at_every_call(bench: _Bench) -> None:
    """Every single call, with and without a torn write."""
    assert _crash_once(bench, 1) > 500


@pytest.mark.torture
def test_crash_at_every_call_and_again_in_recovery(bench: _Bench) -> None:
    """Thousands of pairs of crash points."""
    assert _crash_twice(bench, int(os.environ.get("WINK_CRASH_STEP", "5")), 2) > 3000


@pytest.mark.torture
def test_crash_with_a_durable_journal(folder: Path) -> None:
    """The calls that wait for the disk are crash points as well."""
    assert _crash_once(_Bench(folder, durable=True), 1) > 600


def _fail_everywhere(bench: _Bench, step: int, code: int) -> int:
    """Fail once at each call; whatever raised has changed nothing, and going back is exact."""
    points = 0
    for at in range(random.Random(SEED).randrange(step) + 1, bench.last_call + 1, step):
        bench.fresh()
        points += 1
        what = f"seed {SEED}, {errno.errorcode[code]} at call {at}"
        syscalls = Faulty(at, error=code)
        try:
            fs = open_host(bench.root, syscalls)
        except OSError:
            continue
        snapshot = fs.savepoint()
        for change in everything(fs):
            last = picture(bench.root, exact=False)
            try:
                change()
            except OSError:
                if change.__name__ != "nested":
                    assert picture(bench.root, exact=False) == last, f"{what}: a write that raised changed something"
                break
        while True:
            try:
                fs.restore(snapshot)
                break
            except JournalError:
                assert syscalls.count >= at
        # An image that could not be removed goes when the filesystem is closed.
        assert bench.same(picture(bench.root, links=False), bench.unlinked, at), what
        fs.release(snapshot)
        fs.close()
        assert bench.same(picture(bench.root), bench.before, at), what
        syscalls.reap()
    return points


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_disk_error_at_any_call_can_be_rolled_back(bench: _Bench, code: int) -> None:
    """Whichever call fails, the write that met it changed nothing and a rollback is bit-identical."""
    assert _fail_everywhere(bench, 7, code) > 30


@pytest.mark.torture
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EACCES])
def test_a_disk_error_at_every_call(bench: _Bench, code: int) -> None:
    """Every call, one after the other."""
    assert _fail_everywhere(bench, 1, code) > 250


def test_a_commit_that_fails_is_finished_later(folder: Path) -> None:
    """When the disk refuses the commit it is an error, and the next operation makes up for it."""
    bench = _Bench(folder)
    for at in range(bench.commit_call, bench.last_call + 1):
        bench.fresh()
        syscalls = Faulty(at, error=errno.EIO)
        fs = open_host(bench.root, syscalls)
        snapshot = fs.savepoint()
        for change in everything(fs):
            change()
        try:
            fs.release(snapshot)
        except (JournalError, OSError):
            fs.write("later.txt", "x")
            fs.delete("later.txt")
        fs.close()
        assert picture(bench.root, exact=False) == bench.after, at


@pytest.mark.slow
def test_a_rollback_that_fails_goes_on_where_it_stopped(folder: Path) -> None:
    """Every call of `restore` may fail once; calling it again brings everything back."""
    bench = _Bench(folder)
    at = bench.commit_call
    while True:
        bench.fresh()
        syscalls = Faulty(at, error=errno.EIO)
        fs = open_host(bench.root, syscalls)
        snapshot = fs.savepoint()
        for change in everything(fs):
            change()
        try:
            fs.restore(snapshot)
        except JournalError:
            fs.restore(snapshot)
        assert picture(bench.root) == bench.before, at
        fs.release(snapshot)
        done = syscalls.count < at
        fs.close()
        syscalls.reap()
        if done:
            break
        at += 1
    assert at > bench.commit_call + 20


def test_recovery_says_what_it_did(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Opening a root that was left in the middle logs a warning with the number of changes undone."""
    bench = _Bench(folder)
    bench.crash(bench.commit_call, torn=False)
    with caplog.at_level("WARNING"):
        HostFilesystem(bench.root).close()
    assert "Rolled back" in caplog.text
    assert str(bench.root) in caplog.text


@pytest.mark.slow  # a crash at every step
def test_a_crash_while_an_outer_snapshot_is_released(folder: Path) -> None:
    """What the outer one covered is final from then on; what the inner one covers is undone until its release."""
    at = 0
    seen: set[tuple[str, bytes]] = set()
    while True:
        at += 1
        root = folder / f"root{at}"
        build(root)
        syscalls = Faulty(at)
        fs = None
        done = False
        try:
            fs = open_host(root, syscalls)
            outer = fs.savepoint()
            fs.write("a.txt", "outer")
            fs.move("d", "e")
            inner = fs.savepoint()
            fs.write("secret", "inner")
            fs.move("e", "f")
            fs.release(outer)
            fs.delete("f", recursive=True)
            fs.release(inner)
            done = True
        except BaseException:
            if not syscalls.dead:
                raise
        if fs is not None:
            abandon(fs, syscalls)
        HostFilesystem(root).close()
        found = ((root / "a.txt").read_text(), (root / "secret").read_bytes())
        directory = {name for name in ("d", "e", "f") if (root / name).exists()}
        expected = {("alpha", b"\0\xff"): {"d"}, ("outer", b"\0\xff"): {"e"}, ("outer", b"inner"): set[str]()}
        assert directory == expected[found], at
        seen.add(found)
        if done and syscalls.count < at:
            break
    assert len(seen) == 3
