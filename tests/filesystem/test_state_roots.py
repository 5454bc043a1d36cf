"""Folders that are no roots, and what else may lie in one: the private directory, vaults, ledgers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.filesystem.crash import PLACES, Faulty, abandon, build, entry_of, keep_vault, open_host, picture, vault_of
from tests.filesystem.planted import Case

from weakincentives.contrib.podman.workspace import ContainerWorkspace
from weakincentives.errors import PathRefusedError, PromptValidationError
from weakincentives.filesystem.disk import disk_root as disk
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.private_dir import KEY, ROOTS
from weakincentives.results import ToolResult
from weakincentives.runtime.ledger import SqliteEffectLedger
from weakincentives.runtime.ledger.sqlite_file import WriterQueue


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_undo_state_is_not_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, read_only: bool) -> None:
    """The private directory, an entry, a vault, and whatever is in them; reading would show the key, and old files."""
    keep_vault(monkeypatch, place, tmp_path)
    case = Case(tmp_path)
    private = tmp_path / "state" / "wink"
    (case.vault / "rejected-tree").mkdir()
    (tmp_path / "link").symlink_to(private)
    before = picture(tmp_path)
    places = (private, private / ROOTS, case.entry, vault_of(case.root), case.vault / "rejected-tree")
    for path in (*places, tmp_path / "link", tmp_path / "link" / ROOTS):
        with pytest.raises(ValueError, match="undo state"):
            HostFilesystem(path, read_only=read_only)
        with pytest.raises(ValueError, match="undo state"):
            HostFilesystem(path, read_only=read_only, state_dir=tmp_path / "other")
    assert picture(tmp_path) == before


def test_a_state_dir_of_ones_own_is_not_a_root(tmp_path: Path) -> None:
    """Nor is what is below it; a folder beside it whose name begins alike is one."""
    for name in ("state/deep", "state-of-affairs"):
        (tmp_path / name).mkdir(parents=True, mode=0o700)
    for path in (tmp_path / "state", tmp_path / "state" / "deep"):
        with pytest.raises(ValueError, match=r"undo state|inside the root"):
            HostFilesystem(path, state_dir=tmp_path / "state")
    HostFilesystem(tmp_path / "state-of-affairs", state_dir=tmp_path / "state").close()


def test_a_root_that_contains_the_private_directory_does_not_show_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a home does: who read the key there could make undo state for other roots, which would be believed."""
    keep_vault(monkeypatch, "private", tmp_path)
    private = Case(tmp_path).entry.parent.parent
    inside = private.relative_to(tmp_path).as_posix()
    key = (private / KEY).read_bytes()
    with HostFilesystem(tmp_path) as fs:
        assert {entry.path for entry in fs.list(inside)} <= {f"{inside}/looked"}
        assert not [path for path in fs.glob("**") if KEY in path or ROOTS in path]
        for name in (KEY, f"{ROOTS}/x/journal", KEY.upper()):
            with pytest.raises(PathRefusedError, match="reserved"):
                fs.read_bytes(f"{inside}/{name}")
            with pytest.raises(PathRefusedError, match="reserved"):
                fs.write(f"{inside}/{name}", "x")
    assert (private / KEY).read_bytes() == key


# --- containers


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that a container may work in."""
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "a.txt").write_text("old")
    if os.geteuid() == 0:
        for path in (folder, folder / "a.txt"):
            os.chown(path, 1000, 1000)
    return folder


def test_a_container_is_refused_before_its_folder_is_opened(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a vault would be inside, nothing is made or dated there."""
    keep_vault(monkeypatch, "inside", tmp_path)
    before = picture(tmp_path)
    with pytest.raises(PromptValidationError, match="would be inside"):
        ContainerWorkspace(shared, {"b.txt": "x"})
    assert picture(tmp_path) == before


def test_nothing_is_undone_in_a_folder_that_a_container_may_not_have(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process left a transaction there: it is as it was left after the refusal, and opening it undoes it."""
    keep_vault(monkeypatch, "inside", tmp_path)
    syscalls = Faulty()
    fs = open_host(shared, syscalls)
    held = fs.savepoint()
    fs.write("a.txt", "in a transaction")
    abandon(fs, syscalls)
    before = picture(tmp_path)
    with pytest.raises(PromptValidationError, match="would be inside"):
        ContainerWorkspace(shared, {"b.txt": "x"})
    assert picture(tmp_path) == before
    HostFilesystem(shared).close()
    assert (shared / "a.txt").read_text() == "old"
    assert held is not None


def test_a_vault_that_is_inside_already_refuses_a_container(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another place may be had by now, but the old files of a killed process are where the container reaches them."""
    with pytest.MonkeyPatch.context() as patch:
        keep_vault(patch, "inside", tmp_path)
        fs = HostFilesystem(shared, watch="scan")
        fs.release(fs.snapshot())
        assert list(shared.glob(".wink-*")) == [vault_of(shared)]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert entry_of(shared).exists()
    before = picture(tmp_path)
    with pytest.raises(PromptValidationError, match="inside"):
        ContainerWorkspace(shared, {})
    assert picture(tmp_path) == before
    fs.close()


# --- ledgers


_WAITS = """
import sys
from pathlib import Path
from weakincentives.runtime.ledger.sqlite_file import WriterQueue
queue = WriterQueue(Path(sys.argv[1]))
queue.join()
print("waiting", flush=True)
sys.stdin.readline()
queue.leave()
print("left", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow  # an interpreter
def test_a_ledger_may_be_in_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the ledger keeps no other process from writing, and a transaction is not taken for a waiter."""
    monkeypatch.setattr(disk, "PATIENCE", 0.05)
    root = tmp_path / "root"
    build(root)
    queue = WriterQueue(root)
    with (
        subprocess.Popen(
            [sys.executable, "-c", _WAITS, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        ) as process,
        HostFilesystem(root) as fs,
    ):
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "waiting\n"
        held = fs.savepoint()
        fs.write("a.txt", "x")
        queue.wrote()
        assert queue._yield_until > 0, "it tells that another process waits"
        process.stdin.write("leave\n")
        assert process.stdout.readline() == "left\n"
        queue._yield_until = 0.0
        queue.wrote()
        assert queue._yield_until == 0, "nobody waits; the root's lock is another thing"
        fs.release(held)
        process.stdin.write("end\n")
    queue.close()


def test_calls_are_recorded_while_a_root_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger in the root that is being written: both go on."""
    monkeypatch.setattr(disk, "PATIENCE", 0.05)
    build(tmp_path / "root")
    with SqliteEffectLedger(tmp_path / "root" / "ledger.db") as ledger, HostFilesystem(tmp_path / "root") as fs:
        held = fs.savepoint()
        fs.write("a.txt", "x")
        for number in range(5):
            ledger.record(idempotency_key=f"k:t:{number}", tool_name="t", params=None, result=ToolResult.ok(1, "Done."))
        fs.restore(held)
        fs.release(held)
        assert len(ledger.entries()) == 5
