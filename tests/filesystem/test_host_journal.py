"""The journal's place, its lock, its snapshots' lives, and the errors that name the fix."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.filesystem.crash import Faulty, build, entry_of, everything, keep_vault, picture, vault_of

from weakincentives.errors import JournalError, ReadOnlyError, SnapshotError
from weakincentives.filesystem.disk import disk_root as disk
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.journal import Record, RejectedError, encode, frame, header, read
from weakincentives.filesystem.disk.private_dir import ROOTS
from weakincentives.filesystem.disk.state_dir import Authenticator


@pytest.fixture
def root(tmp_path: Path) -> Path:
    build(tmp_path / "root")
    return tmp_path / "root"


def test_a_transaction_without_writes_touches_nothing(root: Path) -> None:
    """Taking, restoring and releasing a snapshot makes no system call at all."""
    syscalls = Faulty()
    with HostFilesystem(root, syscalls=syscalls) as fs:
        calls = syscalls.count
        for _ in range(3):
            snapshot = fs.snapshot()
            assert not fs.changes(snapshot)
            fs.restore(snapshot)
            fs.release(snapshot)
        assert syscalls.count == calls
        assert not entry_of(root).exists()


def test_the_journal_is_in_the_private_directory_and_goes_with_the_last_user(root: Path) -> None:
    """A folder of mode 0700 while it is needed, nothing in or beside the root; `.git` is the user's own."""
    git = picture(root / ".git")
    with HostFilesystem(root) as fs:
        fs.write("a.txt", "x")
        assert entry_of(root).stat().st_mode & 0o777 == 0o700
        assert not list(root.glob(".wink*"))
        assert not list(root.parent.glob(".*wink*"))
    assert not entry_of(root).exists()
    assert picture(root / ".git") == git


def test_the_vault_is_hidden_in_the_root_where_there_is_no_other_place(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vault inside the root is never shown, searched, read or written, and the root keeps its date."""
    keep_vault(monkeypatch, "inside", root.parent)
    before = picture(root)
    with HostFilesystem(root) as fs:
        snapshot = fs.snapshot()
        fs.write("a.txt", "x")
        vault = vault_of(root)
        assert vault.parent == root
        assert vault.is_dir()
        assert vault.name not in [stat.path for stat in fs.list()]
        assert not [path for path in fs.glob("**") if ".wink" in path]
        assert not fs.search(vault.name)
        assert not fs.exists(vault.name)
        assert not fs.exists(f"{vault.name}/tx")
        for refused in (fs.read, fs.delete, fs.list, fs.stat):
            with pytest.raises(OSError, match="reserved"):
                refused(f"{vault.name}/tx")
        fs.restore(snapshot)
        assert picture(root) == before
    assert picture(root) == before
    assert not vault.exists()


def test_foreign_files_in_a_vault_stay(root: Path) -> None:
    """Only what WINK made is removed there."""
    with HostFilesystem(root) as fs:
        fs.write("a.txt", "x")
        (entry_of(root) / "notes.txt").write_text("mine")
    assert (entry_of(root) / "notes.txt").read_text() == "mine"


def test_rollback_is_exact(root: Path) -> None:
    """Bytes, modes, times (of directories, too), inodes, links, attributes: everything is as before."""
    before = picture(root)
    with HostFilesystem(root) as fs:
        snapshot = fs.snapshot()
        for _ in range(3):
            for change in everything(fs):
                change()
            assert picture(root) != before
            fs.restore(snapshot)
            assert picture(root) == before
        fs.release(snapshot)
    assert picture(root) == before


def test_a_write_keeps_mode_and_attributes(root: Path) -> None:
    """Replacing a file leaves what writing in place would have left, but never a set-user-id bit."""
    with HostFilesystem(root) as fs:
        fs.write("run.sh", "new")
        assert (root / "run.sh").stat().st_mode & 0o7777 == 0o755
        fs.append("secret", "x")
        assert (root / "secret").stat().st_mode & 0o7777 == 0o600
        if hasattr(os, "listxattr") and "user.wink" in os.listxattr(root / "a.txt"):
            fs.write("a.txt", "x")
            assert os.getxattr(root / "a.txt", "user.wink") == b"kept"
        (root / "run.sh").chmod(0o4755)
        fs.write("run.sh", "newer")
        assert (root / "run.sh").stat().st_mode & 0o7777 == 0o755


def test_rewriting_a_file_keeps_one_image(root: Path) -> None:
    """A hundred writes of one file in a transaction need the space of one."""
    with HostFilesystem(root) as fs:
        snapshot = fs.snapshot()
        for number in range(100):
            fs.write("a.txt", str(number))
        assert len(list(entry_of(root).iterdir())) <= 5
        fs.restore(snapshot)
        assert fs.read("a.txt") == "alpha"


def test_restoring_an_outer_snapshot_ends_the_inner_ones(root: Path) -> None:
    """Using one that is over raises; releasing it does nothing."""
    with HostFilesystem(root) as fs:
        outer = fs.snapshot()
        inner = fs.snapshot()
        fs.write("a.txt", "x")
        fs.restore(outer)
        for use in (fs.restore, fs.changes):
            with pytest.raises(SnapshotError, match="over"):
                use(inner)
        fs.release(inner)
        fs.release(outer)
        with pytest.raises(SnapshotError):
            fs.restore(outer)


def test_releasing_an_outer_snapshot_keeps_the_inner_one(root: Path) -> None:
    """What came before the inner one is then final, also for a crash; the inner one can still be restored."""
    with HostFilesystem(root) as fs:
        outer = fs.snapshot()
        fs.write("a.txt", "final")
        inner = fs.snapshot()
        fs.write("a.txt", "undone")
        fs.write("secret", "undone")
        fs.release(outer)
        fs.restore(inner)
        assert fs.read("a.txt") == "final"
        fs.write("secret", "undone again")
        fs.restore(inner)
        assert fs.read_bytes("secret") == b"\x00\xff"
        fs.release(inner)
    assert (root / "a.txt").read_text() == "final"


@pytest.mark.slow
def test_a_snapshot_that_nobody_holds_counts_as_released(root: Path) -> None:
    """Thousands taken and dropped, also one after the other in one variable, leave nothing behind."""
    with HostFilesystem(root) as fs:
        held = fs.snapshot()
        for number in range(2000):
            held = fs.snapshot()
            if number % 100 == 0:
                fs.write("a.txt", str(number))
        gc.collect()
        fs.release(held)
        fs.snapshot()
        gc.collect()
        fs.write("a.txt", "end")
        assert len(fs._scope._snapshots.live) == 0
        assert sorted(path.name for path in entry_of(root).iterdir()) == ["journal", "root", "tx"]
        assert (entry_of(root) / "journal").stat().st_size == 0


def test_closing_keeps_what_was_written(root: Path) -> None:
    """A snapshot that is still open when the filesystem is closed is released; closing twice is fine."""
    fs = HostFilesystem(root)
    snapshot = fs.snapshot()
    fs.write("a.txt", "stays")
    fs.close()
    fs.close()
    assert (root / "a.txt").read_text() == "stays"
    for use in (lambda: fs.read("a.txt"), lambda: fs.write("a.txt", "x"), fs.snapshot):
        with pytest.raises(ValueError, match="closed"):
            use()
    with pytest.raises(SnapshotError):
        fs.restore(snapshot)


def test_a_program_that_ends_by_itself_keeps_what_it_wrote(root: Path) -> None:
    """Only a process that is killed is rolled back."""
    code = (
        "import sys\nfrom weakincentives.filesystem.disk.filesystem import HostFilesystem\n"
        "fs = HostFilesystem(sys.argv[1])\nheld = fs.snapshot()\nfs.write('a.txt', 'stays')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)
    assert not entry_of(root).exists()
    assert (root / "a.txt").read_text() == "stays"


def test_one_writer_at_a_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a transaction has written, another object's write, and opening the root, name who has it."""
    monkeypatch.setattr(disk, "PATIENCE", 0.05)
    with HostFilesystem(root) as fs, HostFilesystem(root) as other:
        snapshot = fs.snapshot()
        fs.write("a.txt", "x")
        with pytest.raises(JournalError, match="another HostFilesystem of this process"):
            other.write("b.txt", "x")
        with pytest.raises(JournalError, match="one writer at a time"):
            HostFilesystem(root)
        assert other.read("a.txt") == "x"
        fs.release(snapshot)
        other.write("b.txt", "x")
        fs.write("b.txt", "y")
        assert other.read("b.txt") == "y"


def test_another_process_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the id of the process that has the transaction open; after its death all is rolled back."""
    monkeypatch.setattr(disk, "PATIENCE", 0.05)
    code = (
        "import sys\nfrom weakincentives.filesystem.disk.filesystem import HostFilesystem\n"
        "fs = HostFilesystem(sys.argv[1])\nheld = fs.savepoint()\nfs.write('a.txt', 'x')\nprint('go', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with HostFilesystem(root) as early:
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdin is not None
        assert child.stdout is not None
        with child:
            assert child.stdout.readline() == "go\n"
            with pytest.raises(JournalError, match=f"process {child.pid} "):
                HostFilesystem(root)
            with pytest.raises(JournalError, match=f"process {child.pid} "):
                early.write("b.txt", "x")
            child.send_signal(signal.SIGKILL)
        early.write("b.txt", "x")
        assert early.read("a.txt") == "alpha"


def _in_child(fs: HostFilesystem, results: multiprocessing.SimpleQueue[str]) -> None:
    try:
        fs.write("b.txt", "child")
        results.put("written")
    except JournalError as error:
        results.put(str(error))


def test_a_forked_child_must_open_its_own(root: Path) -> None:
    """Its parent's filesystem refuses to write, and its end changes nothing of the parent's transaction."""
    context = multiprocessing.get_context("fork")
    with HostFilesystem(root) as fs:
        snapshot = fs.snapshot()
        fs.write("a.txt", "parent")
        results: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
        child = context.Process(target=_in_child, args=(fs, results))
        child.start()
        child.join()
        assert "forked" in results.get()
        fs.restore(snapshot)
        assert fs.read("a.txt") == "alpha"


def test_read_only_makes_nothing(root: Path) -> None:
    """Every write raises `ReadOnlyError`; snapshots cost nothing and no state directory appears."""
    before = picture(root)
    with HostFilesystem(root, read_only=True) as fs:
        snapshot = fs.snapshot()
        for change in everything(fs)[1:6]:
            with pytest.raises(ReadOnlyError):
                change()
        assert fs.is_readonly("a.txt")
        assert fs.stat("a.txt").readonly
        assert all(stat.readonly for stat in fs.list())
        fs.restore(snapshot)
        fs.release(snapshot)
        assert fs.read("a.txt") == "alpha"
    assert picture(root) == before
    assert not entry_of(root).exists()


def test_a_root_that_is_no_directory_is_a_clear_error(root: Path) -> None:
    """Missing and wrong kind each have their own error; a symlink is resolved once."""
    with pytest.raises(FileNotFoundError, match="must exist"):
        HostFilesystem(root / "missing")
    with pytest.raises(NotADirectoryError, match="must be a directory"):
        HostFilesystem(root / "a.txt")
    with pytest.raises(ValueError, match="watch"):
        HostFilesystem(root, watch="inotify")  # pyright: ignore[reportArgumentType]
    link = root.parent / "link"
    link.symlink_to(root)
    with HostFilesystem(link) as fs:
        link.unlink()
        link.symlink_to("/etc")
        assert fs.read("a.txt") == "alpha"
        assert fs.root == root


def test_damaged_records_end_the_journal() -> None:
    """Whatever is cut off or changed in the journal's file, only whole records before it count."""
    records = [
        Record("create", "a", staged="stage-0123456789ab-1"),
        Record("move", "b", "c", inode=5, times=((".", 7),)),
        Record("delete", "\udcff", image="image-0123456789ab-2"),
    ]
    keys, expected = Authenticator(b"k" * 32), b'["of this root"]'
    data, first = header(keys, expected, 0)
    mac, statuses = first.mac, set(range(first.end - 32, first.end))  # the second slot is not in use yet
    for record in records:
        part, mac = frame(keys, mac, encode(record))
        statuses |= set(range(len(data), len(data) + 16))
        data += part
    assert [record for _, record in read(keys, data, expected).records] == records
    for cut in range(len(data)):
        found = read(keys, data[:cut], expected)
        assert [record for _, record in found.records] == records[: len(found.records)]
        assert all(end <= cut for end, _ in found.marks)
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
        try:
            found = read(keys, damaged, expected)
        except RejectedError:
            assert at < first.end
            continue
        assert [record for _, record in found.records] == records[: len(found.records)]
        assert len(found.records) < len(records) or at in statuses


@pytest.mark.slow  # eight threads
def test_eight_threads_with_a_rollback_lose_nothing(root: Path) -> None:
    """Whatever threads write while a snapshot is alive is undone; what they write afterwards stays."""
    before = picture(root)
    with HostFilesystem(root) as fs:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for step in range(25):
                    fs.write(f"t{number}/{step % 5}.txt", f"{number}.{step}")
                    fs.append("shared.txt", f"{number}.{step}\n")
                    fs.move(f"t{number}/{step % 5}.txt", f"t{number}/moved/{step}.txt")
                    fs.copy("a.txt", f"t{number}/copy{step}.txt")
                    fs.delete(f"t{number}/copy{step}.txt")
                    assert fs.read(f"t{number}/moved/{step}.txt") == f"{number}.{step}"
            except BaseException as error:
                failures.append(error)

        def run() -> None:
            threads = [Thread(target=work, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failures == []
            assert len(fs.read("shared.txt").split()) == 200

        snapshot = fs.snapshot()
        run()
        fs.restore(snapshot)
        assert picture(root) == before
        fs.release(snapshot)
        run()
    assert len(list(root.glob("t*/moved/*.txt"))) == 200


def test_a_state_directory_that_another_object_removed_is_made_again(root: Path) -> None:
    """One closes and tidies up while another has the root open: the other goes on writing."""
    first = HostFilesystem(root)
    first.write("a.txt", "x")
    with HostFilesystem(root) as second:
        second.write("a.txt", "y")
        first.close()
        assert not entry_of(root).exists()
        snapshot = second.snapshot()
        second.write("a.txt", "z")
        second.restore(snapshot)
        assert second.read("a.txt") == "y"
    assert not entry_of(root).exists()


@pytest.mark.slow
def test_a_tree_of_a_thousand_levels_is_no_problem(root: Path) -> None:
    """Deleting, listing the changes and bringing it back do not depend on how deep it is nested."""
    with HostFilesystem(root) as fs:
        fs.mkdir("/".join("e" * 1000))
        before = picture(root, exact=False)
        snapshot = fs.snapshot()
        fs.delete("e", recursive=True)
        assert len(fs.changes(snapshot).removed) == 1000
        fs.restore(snapshot)
        assert picture(root, exact=False) == before
        fs.release(snapshot)
        fs.delete("e", recursive=True)
    assert not entry_of(root).exists()


class _Traced(Faulty):
    """Writes down what is done, with the names behind the descriptors."""

    __slots__ = ("trace",)

    def __init__(self) -> None:
        super().__init__()
        self.trace: list[tuple[str, str]] = []


def _trace(name: str) -> None:
    wrapped = getattr(Faulty, name)

    def call(self: _Traced, *args: Any, **kwargs: Any) -> Any:
        result = wrapped(self, *args, **kwargs)
        what = os.readlink(f"/proc/self/fd/{args[0]}") if isinstance(args[0], int) else args[0]
        self.trace.append((name, Path(what).name))
        return result

    setattr(_Traced, name, call)


for _name in ("fsync", "rename", "pwrite", "ftruncate", "link", "write"):
    _trace(_name)


def test_durable_waits_for_the_disk_in_the_right_order(root: Path) -> None:
    """New content, then its record, are on the disk before the rename; the directory before the commit."""
    syscalls = _Traced()
    with HostFilesystem(root, durable=True, syscalls=syscalls) as fs:
        snapshot = fs.savepoint()
        fs.write("d/sub/two.txt", "new")
        fs.release(snapshot)
        entry = entry_of(root).name
        trace = [(call, "entry" if what == entry else what.partition("-")[0]) for call, what in syscalls.trace]
    assert trace == [
        ("fsync", ROOTS),
        ("write", "stage"),  # where the vault is
        ("fsync", "stage"),
        ("rename", "stage"),
        ("fsync", "entry"),
        ("pwrite", "tx"),
        ("write", "stage"),
        ("fsync", "stage"),
        ("link", "two.txt"),
        ("pwrite", "tx"),
        ("fsync", "tx"),
        ("pwrite", "journal"),
        ("fsync", "entry"),
        ("fsync", "journal"),
        ("rename", "stage"),
        ("fsync", "sub"),
        ("ftruncate", "journal"),
        ("pwrite", "tx"),
        ("fsync", "journal"),
    ]


def test_what_another_program_broke_meanwhile_is_put_back_where_we_wrote(root: Path) -> None:
    """A directory that vanished is made again for what belongs in it; what is in the way is moved away."""
    with HostFilesystem(root) as fs:
        snapshot = fs.snapshot()
        fs.write("d/sub/two.txt", "new")
        fs.delete("t/x/y/z.txt")
        fs.write("secret", "new")
        fs.delete("empty")
        shutil.rmtree(root / "d" / "sub")
        shutil.rmtree(root / "t")
        (root / "secret").unlink()
        (root / "secret" / "is").mkdir(parents=True)
        (root / "empty").write_text("in the way")
        fs.restore(snapshot)
        assert fs.read("d/sub/two.txt") == "two" * 3000
        assert fs.read("t/x/y/z.txt") == "deep"
        assert fs.read_bytes("secret") == b"\x00\xff"
        assert fs.stat("empty").kind == "directory"


def test_a_directory_made_anew_is_compared_inside(root: Path) -> None:
    """Deleted and made again, only what is different in it counts as a change."""
    with HostFilesystem(root) as fs:
        snapshot = fs.snapshot()
        fs.delete("d", recursive=True)
        fs.write("d/sub/two.txt", "two" * 3000)
        fs.write("d/other.txt", "x")
        (root / "d" / "sub" / "two.txt").chmod(0o640)
        changes = fs.changes(snapshot)
        assert (changes.added, changes.changed, changes.removed) == (("d/other.txt",), (), ("d/one.txt",))


def test_a_set_group_id_directory_gives_its_group_away(root: Path) -> None:
    """Files and directories made in it get its group, as if they had been made in place."""
    if os.geteuid() != 0:
        pytest.skip("another group can only be given away by root")
    (root / "shared").mkdir()
    os.chown(root / "shared", 0, 12345)
    (root / "shared").chmod(0o2775)
    with HostFilesystem(root) as fs:
        fs.write("shared/a/b.txt", "x")
        fs.write("shared/c.txt", "x")
        for path in ("shared/a", "shared/c.txt"):
            assert (root / path).stat().st_gid == 12345
        assert (root / "shared" / "a").stat().st_mode & 0o2000


def test_another_users_file_stays_theirs(root: Path) -> None:
    """Root that writes a user's file leaves it to the user."""
    if os.geteuid() != 0:
        pytest.skip("only root can write as somebody else")
    os.chown(root / "a.txt", 1234, 4321)
    with HostFilesystem(root) as fs:
        fs.write("a.txt", "x")
    assert ((root / "a.txt").stat().st_uid, (root / "a.txt").stat().st_gid) == (1234, 4321)
