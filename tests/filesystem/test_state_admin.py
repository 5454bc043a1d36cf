"""What a person may do with kept state: list it, clean a root, forget one, have a new key; never by halves."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.filesystem.crash import PLACES, Crash, Faulty, build, entry_of, keep_vault, picture
from tests.filesystem.planted import Case

from weakincentives.errors import JournalError
from weakincentives.filesystem.disk import disk_root as disk
from weakincentives.filesystem.disk import private_dir, state_admin
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.kept_state import KeptState, StateEntry
from weakincentives.filesystem.disk.private_dir import KEY, ROOTS
from weakincentives.filesystem.disk.state_admin import (
    StateAdminError,
    clean,
    find_entry,
    list_state,
    losses,
    rotate_key,
)
from weakincentives.filesystem.disk.state_dir import RootLock
from weakincentives.filesystem.disk.syscalls import HANDLE, Syscalls
from weakincentives.filesystem.disk.vaults import RootRecord, write_record


@pytest.fixture(params=PLACES)
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    keep_vault(monkeypatch, request.param, tmp_path)
    monkeypatch.setattr(disk, "PATIENCE", 0.05)
    return Case(tmp_path)


def looks(root: Path) -> dict[str, tuple[object, ...]]:
    return {path: look for path, look in picture(root, exact=False).items() if not path.startswith(".wink")}


def forget(what: str) -> list[str]:
    with find_entry(what) as entry:
        return state_admin.forget(entry, losses(entry))


def only() -> KeptState:
    (found,) = list_state().states
    return found


def left(case: Case) -> list[Path]:
    roots = case.folder / "state" / "wink" / ROOTS
    return [*roots.iterdir(), *case.folder.glob(".*wink*"), *case.folder.glob("*/.wink*")]


def watched(folder: Path) -> Path:
    """A root that keeps a copy, with nothing open."""
    root = folder / "watched"
    build(root)
    with HostFilesystem(root, watch="scan") as fs:
        fs.release(fs.snapshot())
    return root


# --- list


def test_what_a_killed_process_left_is_listed(case: Case) -> None:
    """Where, what, how much, and that a transaction is open."""
    found = only()
    assert (found.id, found.root, found.there) == (case.entry.name, str(case.root), True)
    assert (found.status, found.rejected, found.vault) == ("open", (), str(case.vault))
    assert found.size > len("alpha")
    assert found.changed == pytest.approx(case.journal.stat().st_mtime, abs=60)


def test_listing_changes_nothing(case: Case) -> None:
    """Looking is safe at any time: nothing is undone, made or removed."""
    before = picture(case.folder)
    list_state(roots=[str(case.folder)])
    assert picture(case.folder) == before


def test_a_root_in_use_is_told_apart(case: Case) -> None:
    """While a process holds the lock its transaction is not one that was left."""
    with HostFilesystem(case.root) as fs:
        held = fs.savepoint()
        fs.write("a.txt", "x")
        assert only().status == "in use"
        fs.release(held)
        assert only().status == "idle"


def test_roots_that_are_gone_and_things_put_aside_are_listed(case: Case) -> None:
    """A root that was removed, and a journal that was rejected."""
    (case.vault / "tx").write_bytes(bytes(16))
    HostFilesystem(case.root).close()
    found = only()
    assert found.status == "idle"
    assert [name.rpartition("-")[2] for name in found.rejected if "image" not in name] == ["journal"]
    shutil.rmtree(case.root)
    assert only().root == str(case.root)
    assert not only().there


def test_vaults_that_nothing_refers_to_are_reported(case: Case) -> None:
    """Also those of older versions; the vault that is in use is not among them, nor are symlinks."""
    stray = case.root / ".wink-0123456789abcdef"
    old = case.folder / ".root.wink"
    for path in (stray, old):
        path.mkdir()
    (case.folder / ".root.wink-fedcba9876543210").symlink_to(case.outside)
    (case.folder / ".other.wink-fedcba9876543210").mkdir()
    assert list_state().strays == [(str(old), 1), (str(stray), 2)]
    assert list_state(roots=[str(case.folder / "other")]).strays == [
        (str(old), 1),
        (str(stray), 2),
        (str(case.folder / ".other.wink-fedcba9876543210"), 2),
    ]


def test_an_entry_that_cannot_be_used_is_listed_with_the_reason(case: Case) -> None:
    """One that is open to others does not hide the rest."""
    case.other()
    case.entry.chmod(0o750)
    found = list_state()
    assert [state.root for state in found.states] == [str(case.folder / "other")]
    ((name, reason),) = found.unusable
    assert name == case.entry.name
    assert "is open to others" in reason


def test_without_a_private_directory_there_is_nothing(tmp_path: Path) -> None:
    """Nothing is made by looking; one that is open to others is an error."""
    assert list_state(tmp_path / "none") == ([], [], [])
    assert not (tmp_path / "none").exists()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(StateAdminError, match="open to others"):
        list_state(tmp_path / "open")


# --- clean


def test_clean_undoes_what_was_left_and_drops_the_rest(case: Case) -> None:
    """The root is as before the transaction, and nothing of ours is anywhere."""
    assert clean(str(case.root)) == []
    assert looks(case.root) == case.before
    assert left(case) == []


def test_clean_drops_the_copy_of_a_watched_root(case: Case) -> None:
    """It is made again when it is needed, also by a process that has the root open."""
    root = watched(case.folder)
    with HostFilesystem(root, watch="scan") as fs:
        fs.release(fs.snapshot())
        before = looks(root)
        assert clean(str(root)) == []
        assert not entry_of(root).exists()
        held = fs.savepoint()
        (root / "a.txt").write_text("by a subprocess")
        fs.restore(held)
        fs.release(held)
        assert looks(root) == before


def test_clean_keeps_what_was_put_aside(case: Case) -> None:
    """It may be the only copy of something; forgetting it is another command."""
    (case.vault / "tx").write_bytes(bytes(16))
    kept = clean(str(case.root))
    assert any(name.endswith("-journal") for name in kept)
    assert "alpha" in [path.read_text() for path in case.vault.glob("rejected-image-*") if path.is_file()]
    assert set(clean(str(case.root))) == set(kept)


@pytest.mark.parametrize("wrote", [False, True])
def test_clean_refuses_while_another_process_holds_the_lock(case: Case, wrote: bool) -> None:
    """Whether it has something to undo or not; and nothing is changed."""
    HostFilesystem(case.root).close()
    watched_root = watched(case.folder)
    with HostFilesystem(watched_root, watch=None if wrote else "scan") as fs:
        held = fs.savepoint()
        if wrote:
            fs.write("a.txt", "x")
        with pytest.raises(JournalError, match="one writer at a time"):
            clean(str(watched_root))
        assert (entry_of(watched_root) / ("journal" if wrote else "mirror/manifest")).exists()
        fs.release(held)


def test_clean_of_a_root_that_is_gone_names_the_other_command(case: Case) -> None:
    """Nothing can be undone there."""
    shutil.rmtree(case.root)
    with pytest.raises(StateAdminError, match="wink state forget"):
        clean(str(case.root))
    assert case.entry.exists()


# --- forget


def test_forget_says_what_is_lost_and_undoes_nothing(case: Case) -> None:
    """Each change of the open transaction is told; the files stay as they are."""
    crashed = looks(case.root)
    with find_entry(str(case.root)) as entry:
        lines = losses(entry)
    assert "a.txt was changed and stays so; what it was before is lost" in "\n".join(lines)
    assert "t was deleted; it is lost" in "\n".join(lines)
    assert "secret was moved to moved and stays there" in "\n".join(lines)
    assert "new.txt was made and stays" in "\n".join(lines)
    assert forget(str(case.root)) == []
    assert looks(case.root) == crashed
    assert left(case) == []
    HostFilesystem(case.root).close()
    assert looks(case.root) == crashed


@pytest.mark.parametrize("by", ["path", "id", "beginning"])
def test_a_root_that_is_gone_can_be_forgotten(case: Case, by: str) -> None:
    """By the path it had, or by the id that the list shows."""
    shutil.rmtree(case.root)
    what = {"path": str(case.root), "id": case.entry.name, "beginning": case.entry.name[:8]}[by]
    assert forget(what) == []
    assert left(case) == []


def test_a_renamed_root_is_found_by_its_new_path(case: Case) -> None:
    """Its vault, too."""
    case.root.rename(case.folder / "renamed")
    assert forget(str(case.folder / "renamed")) == []
    assert left(case) == []


def test_what_is_not_kept_cannot_be_forgotten(case: Case) -> None:
    """Another root, another id, the beginning of every id."""
    for what in (str(case.outside), "0" * 32, "", str(case.folder / "none")):
        with pytest.raises(StateAdminError, match="nothing is kept"):
            find_entry(what)


def test_two_roots_that_had_one_path_are_told_apart_by_id(case: Case) -> None:
    """A root that was removed and made anew, killed twice: the path stands for the one that is there."""
    case.root.rename(case.folder / "aside")
    build(case.root)
    case.kill(case.root)
    shutil.rmtree(case.root)
    with pytest.raises(StateAdminError, match="more than one entry"):
        find_entry(str(case.root))
    assert forget(case.entry.name) == []
    assert len(list_state().states) == 1


@pytest.mark.parametrize("described", [False, True])
def test_what_was_only_begun_can_be_forgotten(case: Case, described: bool) -> None:
    """An entry without a description, and one whose vault was made just before the kill."""
    HostFilesystem(case.root).close()
    entry = entry_of(case.root)
    entry.mkdir(mode=0o700)
    vault = case.folder / ".root.wink-0123456789abcdef"
    if described:
        vault.mkdir(mode=0o700)
        fd = os.open(entry, os.O_DIRECTORY)
        write_record(Syscalls(), fd, case.keys, RootRecord(str(case.root), vault.name, inside=False), durable=False)
        os.close(fd)
    assert only().root == (str(case.root) if described else "")
    assert forget(entry.name) == []
    assert left(case) == []


def test_forget_refuses_while_the_root_is_in_use(case: Case) -> None:
    """Also when the root was renamed meanwhile: the kernel's list of locks tells."""
    with HostFilesystem(case.root) as fs:
        held = fs.savepoint()
        fs.write("a.txt", "x")
        with pytest.raises(JournalError, match="one writer at a time"):
            forget(str(case.root))
        case.root.rename(case.folder / "renamed")
        with pytest.raises(JournalError, match="has a transaction open"):
            forget(str(case.root))
        fs.restore(held)
        fs.release(held)
    assert looks(case.folder / "renamed") == case.before


def test_a_lock_on_another_directory_with_the_number_of_the_root_is_not_its_own(case: Case) -> None:
    """A directory that is made after the root is gone may get its inode number, and be in use."""
    number = case.root.stat().st_ino
    shutil.rmtree(case.root)
    others = (case.folder / f"other{n}" for n in range(2000))
    for other in others:
        other.mkdir()
        if other.stat().st_ino == number:
            break
    else:
        pytest.skip("this filesystem does not give a number a second time")
    fd = os.open(other, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert forget(case.entry.name) == []
    finally:
        os.close(fd)
    assert left(case) == []


def test_forget_refuses_what_was_not_agreed_to(case: Case) -> None:
    """Another process opened the root while the question stood there."""
    with find_entry(str(case.root)) as entry:
        lost = losses(entry)
        HostFilesystem(case.root).close()
        case.kill(case.root)
        with pytest.raises((JournalError, StateAdminError), match="changed"):
            state_admin.forget(entry, lost)
    assert only().status == "open"


def test_forget_leaves_what_others_put_into_a_vault(case: Case) -> None:
    """It is not ours, so it stays, and is told; in the private directory there is nothing of others."""
    (case.vault / "notes.txt").write_text("mine")
    beside = case.vault != case.entry
    assert forget(str(case.root)) == ([str(case.vault)] if beside else [])
    assert (case.vault / "notes.txt").exists() == beside
    assert not case.entry.exists()


@pytest.mark.parametrize("case", ["beside", "inside"], indirect=True)
def test_forget_leaves_a_vault_that_is_not_the_one_that_was_made(case: Case) -> None:
    """Another directory under its name is not emptied."""
    case.vault.rename(case.folder / "aside")
    case.vault.mkdir(mode=0o700)
    (case.vault / "image-0123456789ab-1").write_text("somebody's")
    forget(str(case.root))
    assert (case.vault / "image-0123456789ab-1").read_text() == "somebody's"
    assert not case.entry.exists()


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.torture)])
def test_forget_that_was_cut_off_never_undoes_a_part(case: Case, stride: int) -> None:
    """Killed at any call: opening the root finds the whole transaction or nothing of it."""
    number, outcomes = 1, set[bool]()
    home = private_dir.make(private_dir.location(None))
    while not _forgotten(case, home, number):
        HostFilesystem(case.root).close()
        undone = looks(case.root) == case.before
        outcomes.add(undone)
        assert undone or looks(case.root) == crashed_looks(case)
        HostFilesystem(case.root).close()
        shutil.rmtree(case.root)
        build(case.root)
        case.kill(case.root)
        number += stride
    assert outcomes == {True, False}


def _forgotten(case: Case, home: private_dir.PrivateDir, number: int) -> bool:
    """Forget the root in a process that is killed at that call; whether it came to its end."""
    syscalls = Faulty()
    try:
        with StateEntry(syscalls, home, entry_of(case.root).name, str(case.root)) as entry:
            lost = losses(entry)
            syscalls.at = syscalls.count + number
            state_admin.forget(entry, lost)
            syscalls.at = None
        return True
    except (Crash, OSError, StateAdminError):
        assert syscalls.dead
        syscalls.reap()
        return False


def crashed_looks(case: Case) -> dict[str, tuple[object, ...]]:
    """What the transaction had made of the root when its process was killed."""
    folder = case.folder / "like"
    if not folder.exists():
        folder.mkdir()
        build(folder / "root")
        case.kill(folder / "root")
    return looks(folder / "root")


# --- the key


def test_a_new_key_is_taken_at_once_by_all_processes(case: Case) -> None:
    """One that has the root open goes on with the new one: what it leaves when it is killed is undone."""
    HostFilesystem(case.root).close()
    root = watched(case.folder)
    key = case.folder / "state" / "wink" / KEY
    old = key.read_bytes()
    with HostFilesystem(root) as fs:
        fs.write("b.txt", "x")
        before = looks(root)
        assert rotate_key() == 1
        assert key.read_bytes() != old
        assert key.stat().st_mode & 0o777 == 0o600
        held = fs.savepoint()
        fs.write("a.txt", "y")
        private_dir._opened.clear()  # as another process has it
        assert only().status == "in use"
        fs.restore(held)
        fs.release(held)
    case.kill(root)
    private_dir._opened.clear()
    HostFilesystem(root).close()
    assert looks(root) == before
    assert sorted(path.name for path in key.parent.iterdir() if path.name != "looked") == [KEY, ROOTS]


_WRITER = """
import sys
from weakincentives.filesystem import HostFilesystem
fs = HostFilesystem(sys.argv[1])
fs.write("b.txt", "kept")
print("written", flush=True)
sys.stdin.readline()
held = fs.savepoint()
fs.write("a.txt", "in a transaction")
print("open", flush=True)
sys.stdin.readline()
"""


def test_a_process_that_was_there_before_the_new_key_is_recovered_from(tmp_path: Path) -> None:
    """It has the old key open, and notices: what it leaves when it is killed afterwards is found and undone."""
    build(tmp_path / "root")
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "root")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "written\n"
        assert rotate_key(tmp_path / "wink") == 1
        process.stdin.write("go on\n")
        assert process.stdout.readline() == "open\n"
        process.kill()
    HostFilesystem(tmp_path / "root", state_dir=tmp_path / "wink").close()
    assert (tmp_path / "root" / "b.txt").read_text() == "kept"
    assert (tmp_path / "root" / "a.txt").read_text() == "alpha"


def test_the_key_stays_while_it_is_needed(case: Case) -> None:
    """Something open, put aside or in use; the message names each and what to do."""
    key = (case.folder / "state" / "wink" / KEY).read_bytes()
    with pytest.raises(StateAdminError, match=f"wink state clean {case.root}"):
        rotate_key()
    (case.vault / "tx").write_bytes(bytes(16))
    HostFilesystem(case.root).close()
    with pytest.raises(StateAdminError, match=f"put aside: wink state forget {case.root}"):
        rotate_key()
    forget(str(case.root))
    with HostFilesystem(case.root) as fs:
        held = fs.savepoint()
        fs.write("a.txt", "x")
        with pytest.raises(StateAdminError, match="a process is at work"):
            rotate_key()
        fs.release(held)
    assert (case.folder / "state" / "wink" / KEY).read_bytes() == key
    assert rotate_key() == 0


def test_no_entry_is_made_while_the_key_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer waits; one that waits too long is refused, and can try again."""
    monkeypatch.setattr(private_dir, "_PATIENCE", 0.05)
    build(tmp_path / "root")
    state = tmp_path / "state"
    private_dir.make(str(state))
    with HostFilesystem(tmp_path / "root", state_dir=state) as fs:
        with private_dir.alone(str(state)), pytest.raises(JournalError, match="replacing the key"):
            fs.write("a.txt", "x")
        private_dir._opened.clear()  # as another process has it
        with private_dir.alone(str(state)), pytest.raises(JournalError, match="replacing the key"):
            private_dir.find(str(state))
        fs.write("a.txt", "x")
        with private_dir.unchanging_key(str(state)), pytest.raises(JournalError, match="right now"):
            rotate_key(state)


@pytest.mark.slow  # processes
def test_a_process_that_reads_the_key_gets_the_entries_that_belong_to_it(tmp_path: Path) -> None:
    """While others replace the key again and again, key and directory of entries agree."""
    state = tmp_path / "state"
    private_dir.make(str(state))
    code = (
        "import sys\nfrom weakincentives.errors import JournalError\n"
        "from weakincentives.filesystem.disk.state_admin import rotate_key\n"
        "for _ in range(60):\n    try:\n        rotate_key(sys.argv[1])\n    except JournalError:\n        pass\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(state)]) as process:
        while process.poll() is None:
            private_dir._opened.clear()
            home = private_dir.find(str(state))
            assert home is not None
            with private_dir.unchanging_key(str(state)):
                current = os.stat(state / ROOTS).st_ino == os.fstat(home.roots).st_ino
                assert not current or (state / KEY).read_bytes() == home.key
            os.close(home.roots)
    assert process.returncode == 0


def test_a_substitute_lock_that_was_removed_is_not_used_any_more(tmp_path: Path) -> None:
    """Where a file stands for the root, and it was removed, all lock the one that is there now."""
    build(tmp_path / "root")
    home = private_dir.make(str(tmp_path / "state"))
    root_fd = Syscalls().open(str(tmp_path / "root"), HANDLE)

    class Unlockable(Syscalls):
        """A disk that locks no directories."""

        def flock(self, fd: int, operation: int) -> None:
            if os.path.isdir(f"/proc/self/fd/{fd}"):
                raise OSError(38, "not here")
            super().flock(fd, operation)

    def substitute() -> int:
        return Syscalls().open("x.lock", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=home.roots)

    one, two = (RootLock(Unlockable(), "root", root_fd, substitute) for _ in range(2))
    try:
        one.lock(0.0)
        one.unlock()
        (tmp_path / "state" / ROOTS / "x.lock").unlink()
        two.lock(0.0)
        with pytest.raises(JournalError, match="one writer at a time"):
            one.lock(0.0)
    finally:
        one.close()
        two.close()
        os.close(root_fd)
