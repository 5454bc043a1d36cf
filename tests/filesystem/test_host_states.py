"""The states of a root: idle, bare, open, owed and torn; what each allows, and what a new process makes of it."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.filesystem.crash import Faulty, abandon, build, entry_of, open_host, picture

from weakincentives.errors import JournalError, SnapshotError
from weakincentives.filesystem.disk.filesystem import HostFilesystem

WATCH = pytest.mark.parametrize("watch", [None, "scan"], ids=["journal", "scan"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    build(tmp_path / "root")
    return tmp_path / "root"


def _looks(root: Path) -> dict[str, tuple[object, ...]]:
    return picture(root, exact=False)


class _Broken(Faulty):
    """A disk on which some calls fail until it is repaired; "fsync" fails for the journal only."""

    __slots__ = ("broken",)

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()


def _breakable(name: str) -> None:
    wrapped = getattr(Faulty, name)

    def call(self: _Broken, *args: Any, **kwargs: Any) -> Any:
        if name in self.broken and (name != "fsync" or os.readlink(f"/proc/self/fd/{args[0]}").endswith("/journal")):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return wrapped(self, *args, **kwargs)

    setattr(_Broken, name, call)


for _name in ("rename", "ftruncate", "fsync", "pwrite", "unlink"):
    _breakable(_name)


# --- owed


@WATCH
def test_after_a_failed_undo_nothing_is_written_until_it_succeeds(root: Path, watch: Literal["scan"] | None) -> None:
    """Every later write and snapshot first tries to finish the undo; when it cannot, it is refused and says why."""
    before = _looks(root)
    disk = _Broken()
    with HostFilesystem(root, watch=watch, syscalls=disk) as fs:
        savepoint = fs.savepoint()
        fs.write("new.txt", "x")
        fs.write("a.txt", "x")
        disk.broken = {"rename"}
        with pytest.raises(JournalError, match="Input/output error"):
            fs.restore(savepoint)
        between = _looks(root)
        for attempt in (lambda: fs.write("b.txt", "x"), lambda: fs.delete("secret"), fs.snapshot, fs.savepoint):
            with pytest.raises(JournalError, match="Input/output error"):
                attempt()
        assert _looks(root) == between
        disk.broken.clear()
        fs.write("b.txt", "written once the undo was finished")
        assert {**before, "b.txt": between["."]}.keys() == _looks(root).keys()
        fs.delete("b.txt")
        assert _looks(root) == before
    assert _looks(root) == before


@WATCH
@pytest.mark.parametrize("how", ["released", "dropped", "kept"])
def test_a_failed_undo_is_never_committed(root: Path, watch: Literal["scan"] | None, how: str) -> None:
    """Releasing or dropping the snapshot, and closing, leave the journal; the next process finishes the undo."""
    before = _looks(root)
    disk = _Broken()
    fs = HostFilesystem(root, watch=watch, syscalls=disk)
    savepoint: Any = fs.savepoint()
    fs.write("new.txt", "x")
    fs.write("a.txt", "x")
    disk.broken = {"rename"}
    with pytest.raises(JournalError):
        fs.restore(savepoint)
    if how == "released":
        fs.release(savepoint)
    elif how == "dropped":
        del savepoint
        gc.collect()
    with pytest.raises(JournalError):
        fs.write("b.txt", "x")
    with pytest.raises(JournalError):
        fs.close()
    fs.close()
    assert _looks(root) != before
    HostFilesystem(root).close()
    assert _looks(root) == before


def test_an_outer_undo_finishes_an_inner_one_that_failed(root: Path) -> None:
    """What the outer savepoint covers is undone with it, whatever was owed."""
    before = _looks(root)
    disk = _Broken()
    with HostFilesystem(root, syscalls=disk) as fs:
        outer = fs.savepoint()
        fs.write("outer.txt", "x")
        inner = fs.savepoint()
        fs.write("inner.txt", "x")
        disk.broken = {"rename", "unlink"}
        with pytest.raises(JournalError):
            fs.restore(inner)
        disk.broken.clear()
        fs.restore(outer)
        assert _looks(root) == before
        fs.write("later.txt", "x")
        fs.release(outer)
        assert fs.read("later.txt") == "x"


def test_an_owed_undo_does_not_reach_below_its_mark(root: Path) -> None:
    """Finishing the inner undo leaves what the outer call wrote before and is going to keep."""
    disk = _Broken()
    with HostFilesystem(root, syscalls=disk) as fs:
        outer = fs.savepoint()
        fs.write("outer.txt", "x")
        inner = fs.savepoint()
        fs.write("inner.txt", "x")
        disk.broken = {"rename", "unlink"}
        with pytest.raises(JournalError):
            fs.restore(inner)
        disk.broken.clear()
        fs.write("later.txt", "x")
        fs.release(outer)
    assert (root / "outer.txt").exists()
    assert (root / "later.txt").exists()
    assert not (root / "inner.txt").exists()


def test_a_write_of_two_steps_that_cannot_be_undone_is_owed(root: Path) -> None:
    """The first step of a failed move is undone by the next operation, not kept."""
    before = _looks(root)
    disk = _Broken()
    with HostFilesystem(root, syscalls=disk) as fs:
        disk.at, disk.error = None, errno.EIO
        fs.mkdir(".")  # makes the vault, which takes a rename of its own
        renames = 0
        original = _Broken.rename

        def failing(self: _Broken, *args: Any, **kwargs: Any) -> None:
            nonlocal renames
            renames += 1
            if renames > 1:
                self.broken = {"rename"}
            original(self, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_Broken, "rename", failing)
            with pytest.raises(OSError, match="Input/output error"):
                fs.move("a.txt", "made/for/it.txt")
        assert (root / "made").exists()
        with pytest.raises(JournalError, match="not finished"):
            fs.write("b.txt", "x")
        disk.broken.clear()
        fs.snapshot()
        assert _looks(root) == before


def test_what_can_never_be_put_back_closes_nothing(root: Path) -> None:
    """A socket that was there before cannot be made again: that is said once, and the root is open again."""
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root)
    try:
        server.bind("sock")
    finally:
        os.chdir(here)
        server.close()
    with HostFilesystem(root, watch="scan") as fs:
        savepoint = fs.savepoint()
        (root / "sock").unlink()
        (root / "a.txt").write_text("changed")
        with pytest.raises(JournalError, match="sock"):
            fs.restore(savepoint)
        fs.write("b.txt", "x")
        fs.release(savepoint)
    assert (root / "a.txt").read_text() == "alpha"
    assert (root / "b.txt").read_text() == "x"


# --- torn


def test_a_record_of_a_write_that_failed_takes_no_users_file(root: Path) -> None:
    """One failing fsync leaves nothing in the journal, so what a user puts at the path later stays."""
    disk = _Broken()
    fs = HostFilesystem(root, durable=True, syscalls=disk)
    savepoint = fs.savepoint()
    fs.write("first.txt", "x")
    size = (entry_of(root) / "journal").stat().st_size
    disk.broken = {"fsync"}
    with pytest.raises(OSError, match="Input/output error"):
        fs.write("new.txt", "x")
    assert (entry_of(root) / "journal").stat().st_size == size
    disk.broken.clear()
    (root / "new.txt").write_text("by the user")
    fs.restore(savepoint)
    fs.close()
    assert (root / "new.txt").read_text() == "by the user"
    assert not (root / "first.txt").exists()


@pytest.mark.parametrize("path", ["new.txt", "a.txt"])
@pytest.mark.parametrize("again", [False, True], ids=["reopened", "same object"])
def test_a_record_that_could_not_be_cut_is_recognised(root: Path, again: bool, path: str) -> None:
    """What was staged is still there, which proves that nothing happened: a user's file at the path stays."""
    before = _looks(root)
    disk = _Broken()
    fs = HostFilesystem(root, durable=True, syscalls=disk)
    savepoint = fs.savepoint()
    fs.write("first.txt", "x")
    disk.broken = {"fsync", "ftruncate"}
    with pytest.raises(OSError, match="Input/output error"):
        fs.write(path, "x")
    with pytest.raises(JournalError, match="not finished"):
        fs.write("other.txt", "x")
    assert any(path.name.startswith("stage-") for path in entry_of(root).iterdir())
    (root / path).unlink(missing_ok=True)
    (root / path).write_text("by the user")
    if again:
        disk.broken.clear()
        fs.write("first.txt", "y")
        assert not any(path.name.startswith("stage-") for path in entry_of(root).iterdir())
        fs.restore(savepoint)
        fs.close()
    else:
        abandon(fs, disk)
        HostFilesystem(root).close()
    assert (root / path).read_text() == "by the user"
    assert {**_looks(root), path: 0} == {**before, path: 0}
    assert not entry_of(root).exists()


# --- bare and open

_KILLED = """
import os, signal, sys
from weakincentives.filesystem import HostFilesystem
fs = HostFilesystem(sys.argv[1], watch=sys.argv[2] or None)
older = fs.snapshot()
fs.write("bare.txt", "by hand")
for number in range(5):
    savepoint = fs.savepoint()
    fs.write(f"call{number}.txt", "x")
    fs.write("a.txt", str(number))
    fs.release(savepoint)
if sys.argv[3] == "open":
    savepoint = fs.savepoint()
    fs.write("open.txt", "x")
    fs.write("a.txt", "open")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow  # a process that is killed
@WATCH
@pytest.mark.parametrize("how", ["open", "between"])
def test_a_kill_undoes_the_open_call_only(root: Path, watch: Literal["scan"] | None, how: str) -> None:
    """Calls that succeeded stay, and so does what was written by hand, although an older bare snapshot was alive."""
    done = subprocess.run([sys.executable, "-c", _KILLED, str(root), watch or "", how], check=False)
    assert done.returncode == -signal.SIGKILL
    HostFilesystem(root, watch=watch).close()
    assert [(root / f"call{number}.txt").exists() for number in range(5)] == [True] * 5
    assert (root / "bare.txt").read_text() == "by hand"
    assert (root / "a.txt").read_text() == "4"
    assert not (root / "open.txt").exists()


@WATCH
def test_a_bare_snapshot_goes_back_over_committed_calls(root: Path, watch: Literal["scan"] | None) -> None:
    """Kept by a call is final for a crash, not for a snapshot that is still held."""
    before = _looks(root)
    with HostFilesystem(root, watch=watch) as fs:
        older = fs.snapshot()
        for number in range(3):
            savepoint = fs.savepoint()
            fs.write(f"call{number}.txt", "x")
            fs.write("a.txt", str(number))
            fs.delete("secret") if number == 1 else None
            fs.release(savepoint)
        fs.restore(older)
        assert _looks(root) == before
        fs.release(older)
    assert _looks(root) == before


@pytest.mark.slow
@WATCH
def test_a_crash_in_the_undo_of_a_bare_snapshot(tmp_path: Path, watch: Literal["scan"] | None) -> None:
    """Wherever the process stops: what was written is there, or all of it is undone."""
    seen: set[bool] = set()
    for at in range(1, 1000):
        root = tmp_path / f"root{at}"
        build(root)
        before = _looks(root)
        syscalls = Faulty()
        fs = open_host(root, syscalls, watch=watch)
        older = fs.snapshot()
        fs.write("a.txt", "x")
        fs.write("new/deep.txt", "x")
        savepoint = fs.savepoint()
        fs.move("d", "e")
        fs.release(savepoint)
        after = _looks(root)
        syscalls.at = syscalls.count + at
        try:
            fs.restore(older)
        except BaseException:
            assert syscalls.dead
        done = not syscalls.dead
        abandon(fs, syscalls)
        HostFilesystem(root).close()
        found = _looks(root)
        assert found in (before, after), at
        seen.add(found == before)
        if done:
            break
    assert seen == {True, False}


@WATCH
def test_a_bare_snapshot_below_an_open_call_is_not_restored(root: Path, watch: Literal["scan"] | None) -> None:
    """It would take the call's own undo away: a clear error, and the call can still be undone."""
    with HostFilesystem(root, watch=watch) as fs:
        older = fs.snapshot()
        fs.write("a.txt", "older")
        savepoint = fs.savepoint()
        fs.write("a.txt", "by the call")
        with pytest.raises(SnapshotError, match="older than a call"):
            fs.restore(older)
        inside = fs.snapshot()
        fs.write("a.txt", "more")
        fs.restore(inside)
        assert fs.read("a.txt") == "by the call"
        fs.restore(savepoint)
        assert fs.read("a.txt") == "older"
        fs.release(savepoint)
        fs.restore(older)
        assert fs.read("a.txt") == "alpha"


def test_a_commit_that_was_made_already_is_made(root: Path) -> None:
    """A marker that is gone counts as removed, so that a commit can be repeated after an interrupt."""
    with HostFilesystem(root, watch="scan") as fs:
        savepoint = fs.savepoint()
        fs.write("a.txt", "x")
        (entry_of(root) / "mirror" / "open").unlink()
        fs.release(savepoint)
        fs.write("a.txt", "y")
    assert (root / "a.txt").read_text() == "y"


def test_state_of_the_version_before_is_never_read(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A journal beside or in the root is reported by name and left as it is; nothing in it is done."""
    for old in (root.parent / ".root.wink", root / ".wink"):
        old.mkdir()
        (old / "journal").write_bytes(b'["create","a.txt","","",0,-1,[]]')
        with HostFilesystem(root) as fs:
            fs.write("b.txt", "x")
        assert (old / "journal").read_bytes() == b'["create","a.txt","","",0,-1,[]]'
        assert str(old) in caplog.text
        assert (root / "a.txt").read_text() == "alpha"


def test_releasing_an_outer_savepoint_takes_no_room(root: Path) -> None:
    """What is older than the inner one is final by one small write in place."""
    with HostFilesystem(root) as fs:
        outer = fs.savepoint()
        for number in range(10):
            fs.write(f"outer{number}.txt", "x")
        inner = fs.savepoint()
        fs.write("inner.txt", "x")
        size = (entry_of(root) / "journal").stat().st_size
        fs.release(outer)
        assert (entry_of(root) / "journal").stat().st_size == size
        fs.restore(inner)
        fs.release(inner)
        assert (entry_of(root) / "journal").stat().st_size == 0
    assert (root / "outer9.txt").exists()
    assert not (root / "inner.txt").exists()
