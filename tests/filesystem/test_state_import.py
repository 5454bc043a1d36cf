"""What version 1 left open: told step by step, undone after a yes, and never a way out of the root."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from tests.filesystem.crash import Crash, Faulty, build, picture

from weakincentives.cli import main
from weakincentives.errors import JournalError
from weakincentives.filesystem.disk import disk_root as disk
from weakincentives.filesystem.disk import locations as root_checks
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.journal import RejectedError
from weakincentives.filesystem.disk.locations import old_places
from weakincentives.filesystem.disk.version_1 import OldTransaction, old_transactions, open_old

IMAGES = ("image-0123456789ab-1", "image-0123456789ab-2")
STAGED = ("stage-0123456789ab-1", "stage-0123456789ab-2")

Row = list[Any]


def frame(row: Row, *, void: bool = False) -> bytes:
    body = json.dumps(row).encode()
    return (len(body) | void << 31).to_bytes(4, "big") + crc32(body).to_bytes(4, "big") + body


def journal(*rows: Row, floor: int = 0) -> bytes:
    front = b"WNK2" + floor.to_bytes(8, "big")
    return front + crc32(front).to_bytes(4, "big") + b"".join(map(frame, rows))


class Old:
    """A root in which version 1 was killed: a file replaced, one deleted, one moved, one made, one not made yet."""

    def __init__(self, folder: Path, place: str = "beside") -> None:
        self.folder = folder
        self.root = folder / "root"
        self.outside = folder / "outside"
        build(self.root)
        build(self.outside)
        self.before = picture(self.root)
        times = [[".", self.root.stat().st_mtime_ns]]
        self.state = Path(old_places(str(self.root))[place == "inside"])
        self.state.mkdir(mode=0o700)
        (self.state / "lock").touch(0o600)
        deleted, moved = (self.root / "t").stat().st_ino, (self.root / "secret").stat().st_ino
        os.link(self.root / "a.txt", self.state / IMAGES[0])
        (self.root / "a.new").write_text("changed")
        (self.root / "a.new").rename(self.root / "a.txt")
        (self.root / "t").rename(self.state / IMAGES[1])
        (self.root / "secret").rename(self.root / "moved")
        (self.root / "new.txt").write_text("new")
        (self.state / STAGED[1]).write_text("not put yet")
        self.rows: list[Row] = [
            ["replace", "a.txt", "", STAGED[0], IMAGES[0], 0, -1, times],
            ["delete", "t", "", "", IMAGES[1], deleted, -1, times],
            ["move", "secret", "moved", "", "", moved, -1, times],
            ["create", "new.txt", "", STAGED[0], "", 0, -1, times],
            ["create", "later.txt", "", STAGED[1], "", 0, -1, times],
        ]
        self.write(*self.rows)
        self.crashed = picture(self.root)

    @property
    def journal(self) -> Path:
        return self.state / "journal"

    def write(self, *rows: Row, **options: Any) -> None:
        self.journal.touch(0o600)
        self.journal.write_bytes(journal(*rows, **options))


@pytest.fixture(params=["beside", "inside"])
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Old:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(disk, "PATIENCE", 0.05)
    return Old(tmp_path, request.param)


def looks(root: Path) -> dict[str, tuple[object, ...]]:
    return {path: look for path, look in picture(root).items() if not path.startswith(".wink")}


def import_all(root: Path) -> None:
    for found in old_transactions(str(root)):
        found.undo()
        assert found.remove()


def test_what_was_left_open_is_told_and_undone(old: Old, capsys: pytest.CaptureFixture[str]) -> None:
    """Newest first, each step on a line; afterwards the root is exactly as it was, and the old state is gone."""
    assert main(["state", "import-v1", str(old.root), "--yes"]) == 0
    out = capsys.readouterr().out.splitlines()
    steps = [line.strip().partition(" (")[0] for line in out if line.startswith("  ")]
    assert steps[0] == "leave later.txt: the change had not happened"
    assert steps[1].startswith("remove new.txt")
    assert steps[2] == "move moved back to secret, if it is still what was moved"
    assert steps[3].startswith("restore t as it was: a folder of 20")
    assert steps[4].startswith("restore a.txt as it was: 5 bytes of 20")
    assert looks(old.root) == old.before
    assert not old.state.exists()
    assert main(["state", "import-v1", str(old.root), "--yes"]) == 1
    assert "left nothing open" in capsys.readouterr().err


def test_nothing_is_changed_before_a_yes(old: Old, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal to ask at, exit code 2."""
    before = picture(old.folder)
    assert main(["state", "import-v1", str(old.root)]) == 2
    assert "--yes" in capsys.readouterr().err
    assert {path: look for path, look in picture(old.folder).items() if path != "state"} == before


def test_the_warning_names_the_command(old: Old, caplog: pytest.LogCaptureFixture) -> None:
    """Opening the root leaves the old state alone and says what to do."""
    root_checks._warned.clear()
    with caplog.at_level("WARNING"):
        HostFilesystem(old.root).close()
    assert f"wink state import-v1 {old.root}" in caplog.text
    assert picture(old.root) == old.crashed


def test_what_is_below_the_floor_or_void_or_torn_stays(old: Old) -> None:
    """It was final, undone already, or has not happened."""
    first = journal(old.rows[0])
    old.journal.write_bytes(journal(old.rows[0], floor=len(first)) + frame(old.rows[1], void=True) + b"\0\0\0")
    (found,) = ([*each.records] for each in old_transactions(str(old.root)))
    assert found == []


def _rows(*rows: Row) -> Callable[[Old], None]:
    return lambda old: old.write(["create", "new.txt", "", STAGED[0], "", 0, -1, []], *rows)


def _linked(old: Old) -> None:
    old.state.rename(old.folder / "aside")
    old.state.symlink_to(old.folder / "aside")


def _journal_linked(old: Old) -> None:
    old.journal.rename(old.outside / "journal")
    old.journal.symlink_to(old.outside / "journal")


def _hard_link(old: Old) -> None:
    os.link(old.journal, old.outside / "journal")


def _fifo(old: Old) -> None:
    old.journal.unlink()
    os.mkfifo(old.journal, 0o600)


def _deleted_is_another(old: Old) -> None:
    (old.state / IMAGES[1]).rename(old.folder / "aside")
    (old.state / IMAGES[1]).write_text("planted")


def _scan(old: Old) -> None:
    (old.state / "mirror").mkdir()
    (old.state / "mirror" / "open").touch()


def _another_user(old: Old) -> None:
    if os.geteuid() != 0:
        old.state.chmod(0o770)
    else:
        os.chown(old.state, 12345, 12345)


HOSTILE: dict[str, Callable[[Old], object]] = {
    "path above": _rows(["move", "../outside/a.txt", "new.txt", "", "", 1, -1, []]),
    "absolute path": _rows(["create", "/etc/passwd", "", STAGED[0], "", 0, -1, []]),
    "the root itself": _rows(["create", ".", "", STAGED[0], "", 0, -1, []]),
    "target above": _rows(["move", "stolen", "../outside/a.txt", "", "", 1, -1, []]),
    "image above": _rows(["delete", "stolen", "", "", "../outside/a.txt", 1, -1, []]),
    "image of another name": _rows(["delete", "stolen", "", "", "lock", 1, -1, []]),
    "staged above": _rows(["create", "a.txt", "", "../outside/a.txt", "", 1, -1, []]),
    "times above": _rows(["create", "a.txt", "", STAGED[0], "", 0, -1, [["..", 0]]]),
    "undo state": _rows(["create", "d/.wink-0123456789abcdef", "", STAGED[0], "", 0, -1, []]),
    "unknown operation": _rows(["chmod", "a.txt", "", "", "", 0, 0o777, []]),
    "too few fields": _rows(["create", "a.txt"]),
    "no list": lambda old: old.journal.write_bytes(journal() + frame({"a": 1})),  # pyright: ignore[reportArgumentType]
    "no header": lambda old: old.journal.write_bytes(b"x" * 100),
    "directory open to others": lambda old: old.state.chmod(0o755),
    "journal open to others": lambda old: old.journal.chmod(0o644),
    "directory of another user": _another_user,
    "directory is a symlink": _linked,
    "journal is a symlink": _journal_linked,
    "journal is a hard link": _hard_link,
    "journal is a FIFO": _fifo,
    "deleted file is another": _deleted_is_another,
    "scan": _scan,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_version_1_never_left_is_refused(old: Old, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As a whole, before the first step, with the reason; nothing anywhere is changed."""
    HOSTILE[name](old)
    before = picture(old.folder)
    assert main(["state", "import-v1", str(old.root), "--yes"]) == 1
    assert "is not used, because" in capsys.readouterr().err
    assert {path: look for path, look in picture(old.folder).items() if path != "state"} == before


def test_a_parent_that_is_a_symlink_is_not_followed(old: Old) -> None:
    """The record is about `d/a.txt`, and `d` leads out of the root."""
    shutil.rmtree(old.root / "d")
    (old.root / "d").symlink_to(old.outside)
    old.write(["create", "d/a.txt", "", STAGED[0], "", 0, -1, []])
    outside = picture(old.outside)
    with pytest.raises(JournalError, match="symlink"):
        import_all(old.root)
    assert picture(old.outside) == outside


def test_processes_of_both_versions_are_excluded(old: Old) -> None:
    """The old lock, the new one, and a newer transaction that was left."""
    fd = os.open(old.state / "lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(JournalError, match="older version"):
        import_all(old.root)
    os.close(fd)
    with HostFilesystem(old.root) as fs:
        held = fs.savepoint()
        fs.write("b.txt", "x")
        with pytest.raises(JournalError, match="one writer at a time"):
            import_all(old.root)
        fs.release(held)
    syscalls = Faulty()
    killed = HostFilesystem(old.root, syscalls=syscalls)
    held = killed.savepoint()
    killed.write("b.txt", "y")
    syscalls.reap()
    with pytest.raises(JournalError, match="wink state clean"):
        import_all(old.root)
    killed._scope.closed = True
    assert held is not None


def test_what_is_not_of_version_1_stays(old: Old) -> None:
    """Everything is undone, and the directory stays with what other programs put there."""
    (old.state / "notes").write_text("mine")
    (found,) = (each.remove() for each in old_transactions(str(old.root)) if each.undo() is None)
    assert not found
    assert (old.state / "notes").read_text() == "mine"
    assert looks(old.root) == old.before
    assert list(old_transactions(str(old.root))) == []


def _run(syscalls: Faulty, old: Old) -> bool:
    """Whether the import came to its end."""
    try:
        with open_old(syscalls, str(old.root), str(old.state)) as found:
            assert isinstance(found, OldTransaction)
            found.undo()
            found.remove()
        return True
    except FileNotFoundError:
        return True  # the one before was killed when all was done
    except (Crash, OSError, RejectedError):
        assert syscalls.dead
        syscalls.reap()
        return False


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.torture)])
def test_an_import_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int) -> None:
    """Killed at any call, and started again: the root is as it was before the old transaction."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    number = 1
    while True:
        folder = tmp_path / str(number)
        folder.mkdir()
        old = Old(folder)
        done = _run(Faulty(number), old)
        if not done:
            assert _run(Faulty(), old)
        assert looks(old.root) == old.before
        if done:
            break
        number += stride
    assert number > 20
