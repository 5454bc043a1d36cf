"""Where undo state is kept, in which states a process can leave it, and what there is without a private place."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from tests.filesystem.crash import Faulty, abandon, build, entry_of, keep_vault, open_host, picture, vault_of
from tests.filesystem.planted import Case

from weakincentives.errors import JournalError
from weakincentives.filesystem.disk import disk_root as disk
from weakincentives.filesystem.disk import locations as places
from weakincentives.filesystem.disk import private_dir
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.journal import Record
from weakincentives.filesystem.disk.private_dir import KEY, ROOTS
from weakincentives.filesystem.disk.state_dir import Authenticator
from weakincentives.filesystem.disk.syscalls import Syscalls
from weakincentives.filesystem.disk.vaults import RootRecord, write_record


@pytest.fixture(params=["private", "beside", "inside"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    keep_vault(monkeypatch, request.param, tmp_path)
    build(tmp_path / "root")
    return tmp_path / "root"


def _looks(root: Path) -> dict[str, tuple[object, ...]]:
    return picture(root, exact=False)


def _keys(root: Path) -> Authenticator:
    home = private_dir.make(private_dir.location(None))
    return Authenticator(home.root_key(entry_of(root).name))


def _intend_vault(root: Path) -> Path:
    """Describe a vault beside the root as one that is about to be made; where it would be."""
    keys = _keys(root)
    entry_of(root).mkdir(mode=0o700)
    vault = root.parent / ".root.wink-0123456789abcdef"
    fd = os.open(entry_of(root), os.O_DIRECTORY)
    write_record(Syscalls(), fd, keys, RootRecord(str(root), vault.name, inside=False), durable=False)
    os.close(fd)
    return vault


def _left(root: Path) -> list[Path]:
    return [*root.parent.glob(".root.wink*"), *root.glob(".wink*"), *entry_of(root).parent.glob("*")]


# --- the states in which a process can leave it


def test_an_entry_without_a_description_is_as_none(root: Path) -> None:
    """Killed right after it was made: it goes, and the next write makes a new one."""
    _keys(root)
    entry_of(root).mkdir(mode=0o700)
    with HostFilesystem(root) as fs:
        fs.write("a.txt", "x")
    assert _left(root) == []


@pytest.mark.parametrize("made", [False, True])
def test_a_vault_that_was_only_intended_is_removed(root: Path, made: bool) -> None:
    """The description comes first, so a vault that was made just before the kill is known, and goes if it is empty."""
    vault = _intend_vault(root)
    if made:
        vault.mkdir(mode=0o700)
    HostFilesystem(root).close()
    assert _left(root) == []


def test_an_intended_vault_with_something_in_it_stays(root: Path) -> None:
    """It cannot be ours: nothing is put into a vault before its description is complete."""
    vault = _intend_vault(root)
    vault.mkdir()
    (vault / "file").write_text("somebody's")
    HostFilesystem(root).close()
    assert (vault / "file").read_text() == "somebody's"


def test_between_transactions_only_leftovers_are_removed(root: Path) -> None:
    """Images, staged and discarded files of a killed process go; nothing is undone."""
    syscalls = Faulty()
    fs = open_host(root, syscalls)
    fs.write("a.txt", "kept")
    abandon(fs, syscalls)
    for name in ("image", "stage", "trash"):
        (vault_of(root) / f"{name}-0123456789ab-1").write_text("left over")
    HostFilesystem(root).close()
    assert (root / "a.txt").read_text() == "kept"
    assert _left(root) == []


def test_a_number_that_was_not_cleared_after_the_commit_is_harmless(root: Path) -> None:
    """The journal was cut, so the transaction is committed; and so it is when it had not recorded anything yet."""
    syscalls = Faulty()
    fs = open_host(root, syscalls)
    held = fs.savepoint()
    fs.write("a.txt", "kept")
    fs.release(held)
    abandon(fs, syscalls)
    (vault_of(root) / "tx").write_bytes(os.urandom(16))
    HostFilesystem(root).close()
    assert (root / "a.txt").read_text() == "kept"
    assert _left(root) == []


def test_an_open_transaction_is_undone(tmp_path: Path) -> None:
    """Journal, vault and number agree: everything is undone, newest first, and nothing is left."""
    case = Case(tmp_path)
    HostFilesystem(case.root).close()
    assert _looks(case.root) == case.before
    assert not case.entry.exists()


def test_a_rejected_journal_is_put_aside_with_its_images(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning says why; the journal and the old files stay, for who wants to look at them."""
    case = Case(tmp_path)
    (case.vault / "tx").write_bytes(bytes(16))
    with caplog.at_level("WARNING"):
        HostFilesystem(case.root).close()
        HostFilesystem(case.root).close()
    assert caplog.text.count("Nothing was undone") == 1
    assert "another root, vault or transaction" in caplog.text
    assert len(list(case.entry.glob("rejected-*-journal"))) == 1
    assert "alpha" in [path.read_text() for path in case.vault.glob("rejected-image-*") if path.is_file()]


def test_a_parent_that_became_a_symlink_is_not_followed(tmp_path: Path) -> None:
    """The record is ours, its directory was swapped since: opening refuses, and nothing behind it is touched."""
    case = Case(tmp_path)
    case.forge(Record("create", "d/a.txt", staged="stage-0123456789ab-1"))
    shutil.rmtree(case.root / "d")
    (case.root / "d").symlink_to(case.outside)
    outside = picture(case.outside)
    with pytest.raises(JournalError, match="symlink"):
        HostFilesystem(case.root)
    assert picture(case.outside) == outside


@pytest.mark.parametrize("openat2", [None, False])
def test_a_path_on_another_disk_is_not_touched(tmp_path: Path, openat2: bool | None) -> None:
    """Something was mounted in the root since: recovery does not reach into it."""
    case = Case(tmp_path)
    case.forge(Record("create", "d/a.txt", staged="stage-0123456789ab-1"))
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "none", case.root / "d"], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (case.root / "d" / "a.txt").write_text("other disk")
        with pytest.raises(JournalError):
            HostFilesystem(case.root, syscalls=Syscalls(openat2=openat2))
        assert (case.root / "d" / "a.txt").read_text() == "other disk"
    finally:
        subprocess.run(["umount", case.root / "d"], check=True)


# --- the private directory


def test_state_dir_names_the_place(tmp_path: Path) -> None:
    """Everything is below it, closed to others; the root and the home stay clean."""
    build(tmp_path / "root")
    with HostFilesystem(tmp_path / "root", state_dir=tmp_path / "mine") as fs:
        fs.write("a.txt", "x")
        made = [tmp_path / "mine", *(tmp_path / "mine").rglob("*")]
        assert {path.name for path in made} >= {"mine", KEY, ROOTS, "journal", "root", "tx"} - {"journal"}
        assert all(path.stat().st_mode & 0o077 == 0 for path in made)
        assert len((tmp_path / "mine" / KEY).read_bytes()) == 32
    assert list((tmp_path / "mine" / ROOTS).iterdir()) == []


def test_state_dir_inside_the_root_is_refused(tmp_path: Path) -> None:
    """A program that works in the root could write there; a symlink does not help."""
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "root")
    for inside in (tmp_path / "root" / "state", tmp_path / "link" / "state", tmp_path / "root"):
        with pytest.raises(ValueError, match="inside the root"):
            HostFilesystem(tmp_path / "root", state_dir=inside)


def _volatile(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In this process everything can be undone; a crash cannot, and one warning says so."""
    before = picture(root)
    places._warned.clear()
    with caplog.at_level("WARNING"):
        for _ in range(2):
            with HostFilesystem(root) as fs:
                held = fs.savepoint()
                fs.write("a.txt", "x")
                fs.delete("t", recursive=True)
                fs.restore(held)
                fs.release(held)
                assert picture(root) == before
    assert caplog.text.count("not after a crash") == 1
    assert [*root.parent.glob(".*wink*"), *root.glob(".wink*")] == []


def test_without_a_private_directory_nothing_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A home that others can write to counts as none."""
    build(tmp_path / "root")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "open"))
    _volatile(tmp_path / "root", caplog)
    case = tmp_path / "root"
    syscalls = Faulty()
    fs = open_host(case, syscalls)
    held = fs.savepoint()
    fs.write("a.txt", "stays")
    abandon(fs, syscalls)
    HostFilesystem(case).close()
    assert (case / "a.txt").read_text() == "stays"
    assert held is not None


def test_a_private_directory_inside_the_root_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A root that holds the user's home holds its state, where a tool could write."""
    build(tmp_path / "root")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "root" / "state"))
    _volatile(tmp_path / "root", caplog)
    assert not (tmp_path / "root" / "state").exists()


def test_the_home_is_used_without_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~/.local/state/wink`; a relative `XDG_STATE_HOME` is ignored, as its specification demands."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert private_dir.location(None) == str(tmp_path / ".local" / "state" / "wink")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert private_dir.location(None) == str(tmp_path / ".local" / "state" / "wink")


@pytest.mark.slow  # processes
def test_processes_that_start_at_once_agree_on_the_key(tmp_path: Path) -> None:
    """The key is complete before it has its name, and the first one stays."""
    code = (
        "import sys\nfrom weakincentives.filesystem.disk import private_dir\n"
        "print(private_dir.make(sys.argv[1]).key.hex())"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "new" / "wink")], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    keys = {process.communicate()[0] for process in started}
    assert keys == {(tmp_path / "new" / "wink" / KEY).read_bytes().hex() + "\n"}
    assert [path.name for path in (tmp_path / "new" / "wink").glob(f"{KEY}*")] == [KEY]


def test_two_users_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is on the root itself, whatever private directory each of them has."""
    monkeypatch.setattr(disk, "PATIENCE", 0.05)
    build(tmp_path / "root")
    with (
        HostFilesystem(tmp_path / "root", state_dir=tmp_path / "one") as one,
        HostFilesystem(tmp_path / "root", state_dir=tmp_path / "two") as two,
    ):
        held = one.savepoint()
        one.write("a.txt", "x")
        with pytest.raises(JournalError, match="one writer at a time"):
            two.write("b.txt", "x")
        one.release(held)
        two.write("b.txt", "x")


def _age(entry: Path) -> None:
    when = entry.stat().st_mtime - 31 * 24 * 3600
    for path in (*entry.rglob("*"), entry):
        os.utime(path, (when, when), follow_symlinks=False)


@pytest.mark.parametrize("place", ["private", "beside"])
@pytest.mark.parametrize("watch", ["scan", None])
@pytest.mark.parametrize("gone", [False, True], ids=["clean", "deleted"])
def test_nothing_stays_behind_when_a_root_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, watch: Literal["scan"] | None, gone: bool
) -> None:
    """Neither entry nor vault, whether it kept a copy or not, and also when the root was deleted meanwhile."""
    keep_vault(monkeypatch, place, tmp_path)
    root = tmp_path / "root"
    build(root)
    with HostFilesystem(root, watch=watch) as fs:
        held = fs.savepoint()
        fs.write("new.txt", "x")
        fs.release(held)
        entry, vault = entry_of(root), vault_of(root)
        assert entry.exists()
        assert vault.exists()
        if gone:
            shutil.rmtree(root)
    assert not entry.exists()
    assert not vault.exists()


_KILLED = """
import os, sys
from weakincentives.filesystem import HostFilesystem
fs = HostFilesystem(sys.argv[1], watch="scan")
held = fs.savepoint()
fs.write("new.txt", "x")
if sys.argv[2] != "open":
    fs.release(held)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow  # a process that is killed
@pytest.mark.parametrize("gone", [False, True], ids=["there", "deleted"])
@pytest.mark.parametrize("kept", ["", "open", "rejected", "looked"])
def test_what_a_killed_process_left_goes_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str, gone: bool
) -> None:
    """With the next root that is written, though not every time; never while something could be undone or looked at."""
    keep_vault(monkeypatch, "private", tmp_path)
    old = tmp_path / "old"
    build(old)
    done = subprocess.run([sys.executable, "-c", _KILLED, str(old), kept], check=False)
    assert done.returncode == -9
    entry = entry_of(old)
    assert (entry / "mirror" / "manifest").exists()
    if kept == "rejected":
        (entry / "rejected-1-journal").write_text("x")
    if gone:
        shutil.rmtree(old)
    if kept != "looked":
        _age(entry.parent.parent / "looked")
    build(tmp_path / "new")
    with HostFilesystem(tmp_path / "new") as fs:
        fs.write("a.txt", "x")
        assert entry_of(tmp_path / "new").exists()
    assert entry.exists() == bool(kept)


def test_a_process_at_work_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with a transaction keeps its state; one without makes it again when it needs it."""
    keep_vault(monkeypatch, "private", tmp_path)
    for name in ("busy", "idle", "new"):
        build(tmp_path / name)
    with HostFilesystem(tmp_path / "busy") as busy, HostFilesystem(tmp_path / "idle", watch="scan") as idle:
        held = busy.snapshot()
        busy.write("a.txt", "x")
        idle.release(idle.snapshot())
        before = _looks(tmp_path / "idle")
        entries = [entry_of(tmp_path / name) for name in ("busy", "idle")]
        _age(entries[0].parent.parent / "looked")
        with HostFilesystem(tmp_path / "new") as fs:
            fs.write("a.txt", "x")
        assert [entry.exists() for entry in entries] == [True, False]
        busy.restore(held)
        busy.release(held)
        again = idle.savepoint()
        idle.write("new.txt", "x")
        (tmp_path / "idle" / "planted").write_text("by another program")
        idle.restore(again)
        idle.release(again)
        assert _looks(tmp_path / "idle") == before


def test_a_file_that_stood_for_a_lock_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless another process holds it."""
    keep_vault(monkeypatch, "private", tmp_path)
    build(tmp_path / "first")
    with HostFilesystem(tmp_path / "first") as fs:
        fs.write("a.txt", "x")
        roots = entry_of(tmp_path / "first").parent
    free, held = roots / f"{'0' * 32}.lock", roots / f"{'1' * 32}.lock"
    free.touch(0o600)
    build(tmp_path / "second")
    with held.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _age(roots.parent / "looked")
        with HostFilesystem(tmp_path / "second") as fs:
            fs.write("a.txt", "x")
        assert not free.exists()
        assert held.exists()
    held.unlink()
