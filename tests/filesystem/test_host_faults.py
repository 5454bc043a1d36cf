"""Each system call of a call failing, once and for good: before or after, never between, and never a user's file."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.filesystem.crash import Faulty, Picture, build, picture

from weakincentives.filesystem.disk.filesystem import HostFilesystem

SEED = int(os.environ.get("WINK_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
CODES = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EINTR)
NEW_PATHS = ("new.txt", "made/deep/file.txt", "moved.txt", "copied.txt")
USERS = b"written by the user"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir="/dev/shm", prefix="wink-") as name:
        yield Path(name)


def _call(fs: HostFilesystem) -> None:
    """What a tool does: something of every kind."""
    fs.write("new.txt", "new")
    fs.write("a.txt", "changed")
    fs.write("a.txt", "changed again")
    fs.append("secret", "more")
    fs.write("made/deep/file.txt", "deep")
    fs.delete("t", recursive=True)
    fs.move("run.sh", "moved.txt")
    fs.move("d/sub/two.txt", "far/away/two.txt")
    fs.copy("ignored.log", "copied.txt")


def _looks(root: Path) -> Picture:
    return picture(root, exact=False)


def _without(found: Picture, users: list[str]) -> Picture:
    """What the user made, and the directories that were made for it, left out."""
    return {
        path: value for path, value in found.items() if not any((f"{user}/").startswith(f"{path}/") for user in users)
    }


class _Trial:
    """One call on a fresh root in which the system call number `at` fails, and all later ones if `for_good`."""

    def __init__(self, folder: Path, number: int, options: dict[str, Any], *, bare: bool) -> None:
        self.root = folder / f"root{number}"
        build(self.root)
        self.before = _looks(self.root)
        self.options = options
        self.bare = bare
        self.failed_undo = self.failed_release = False

    def run(self, syscalls: Faulty, *, fails: bool) -> HostFilesystem | None:
        """The call, as the engine makes it: undone when it fails, and released unless the undo failed."""
        try:
            fs = HostFilesystem(self.root, syscalls=syscalls, **self.options)
        except OSError:
            return None
        try:
            self.older = fs.snapshot() if self.bare else None
            savepoint = fs.savepoint()
        except OSError:
            return fs
        try:
            _call(fs)
            if fails:
                raise _ToolError
        except (OSError, _ToolError):
            try:
                fs.restore(savepoint)
            except OSError:
                self.failed_undo = True
                return fs
        try:
            fs.release(savepoint)
        except OSError:
            self.failed_release = True
        return fs

    def user_puts(self) -> list[str]:
        """Another program works in the folder: where nothing is, there is a file now."""
        put: list[str] = []
        for path in NEW_PATHS:
            place = self.root / path
            if not place.parent.exists() or not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(USERS)
                put.append(path)
        return put


class _ToolError(Exception):
    pass


def _after(folder: Path, options: dict[str, Any]) -> tuple[Picture, int]:
    """What a call that succeeds leaves, and how many system calls a failing one takes."""
    trial = _Trial(folder, 0, options, bare=True)
    fs = trial.run(Faulty(), fails=False)
    assert fs is not None
    after = _looks(trial.root)
    fs.close()
    rmtree(trial.root)
    trial = _Trial(folder, 0, options, bare=True)
    counted = Faulty()
    fs = trial.run(counted, fails=True)
    assert fs is not None
    assert _looks(trial.root) == trial.before
    last = counted.count
    fs.close()
    rmtree(trial.root)
    return after, last


class _ForGood(Faulty):
    """From the failing call on, everything that changes something fails the same way until it is repaired."""

    __slots__ = ()


def _break_for_good(name: str) -> None:
    wrapped: Callable[..., Any] = getattr(Faulty, name)

    def call(self: _ForGood, *args: Any, **kwargs: Any) -> Any:
        if self.at is not None and self.count >= self.at and self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        return wrapped(self, *args, **kwargs)

    setattr(_ForGood, name, call)


for _name in ("pwrite", "write", "ftruncate", "fsync", "rename", "link", "unlink", "mkdir", "rmdir", "chmod", "utime"):
    _break_for_good(_name)


def _sweep(folder: Path, step: int, options: dict[str, Any], seed: int) -> dict[str, int]:
    """Try every `step`-th call with random other choices; counts of what came out."""
    chance = random.Random(seed)
    after, last = _after(folder, options)
    counts = {"trials": 0, "before": 0, "after": 0, "failed undo": 0}
    for number, at in enumerate(range(chance.randrange(step) + 1, last + 1, step), 1):
        code, for_good, bare = chance.choice(CODES), chance.random() < 0.5, chance.random() < 0.5
        fails, again = chance.random() < 0.6, chance.random() < 0.5
        what = f"seed {seed}, call {at}: {errno.errorcode[code]}, {for_good=}, {bare=}, {fails=}, {again=}"
        trial = _Trial(folder, number, options, bare=bare)
        syscalls = (_ForGood if for_good else Faulty)(at, error=code)
        fs = trial.run(syscalls, fails=fails)
        syscalls.at = None  # the fault goes away
        # After a failed undo the folder is known to be in between: it is the user who has to wait. The same holds for
        # a failed commit where whatever anybody does is undone with the transaction.
        waits = trial.failed_undo or (trial.failed_release and "watch" in options)
        users = [] if waits else trial.user_puts()
        if fs is not None and again:
            fs.write("later.txt", "later")
            fs.delete("later.txt")
        if fs is not None and (again or chance.random() < 0.5):
            fs.close()
        syscalls.reap()
        if fs is not None:
            fs._scope.closed, fs._scope.busy = True, False
        HostFilesystem(trial.root, **options).close()
        for path in users:
            assert (trial.root / path).read_bytes() == USERS, f"{what}: a user's file at {path} is lost"
        found = _without(_looks(trial.root), users)
        if found == _without(trial.before, users):
            counts["before"] += 1
        else:
            assert found == _without(after, users), f"{what}: neither before nor after"
            assert not fails, f"{what}: a failed call was kept"
            counts["after"] += 1
        left = [path.name for path in trial.root.parent.iterdir() if path.name.startswith(f".{trial.root.name}.")]
        if not options.get("watch"):
            assert left == [], f"{what}: {left}"
        counts["failed undo"] += trial.failed_undo
        counts["trials"] += 1
        rmtree(trial.root)
        for name in left:
            rmtree(trial.root.parent / name)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"durable": True}, {"watch": "scan"}], ids=["journal", "durable", "scan"])
def test_a_failing_system_call_leaves_before_or_after(folder: Path, options: dict[str, Any]) -> None:
    """Whichever call fails, once or for good: reopened, the root is as before or after, and a user's file stays."""
    counts = _sweep(folder, 5 if options else 3, options, SEED)
    assert counts["trials"] > 30
    assert counts["before"] > 5, counts


@pytest.mark.torture
@pytest.mark.parametrize("options", [{}, {"durable": True}, {"watch": "scan"}], ids=["journal", "durable", "scan"])
def test_every_failing_system_call_leaves_before_or_after(folder: Path, options: dict[str, Any]) -> None:
    """Every call, several times over, as the other choices are random."""
    for extra in range(int(os.environ.get("WINK_FAULT_ROUNDS", "8"))):
        _sweep(folder, 1, options, SEED + extra)
