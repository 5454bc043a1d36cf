"""Mistakes put in on purpose: the crash run must notice each of them, or it proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.filesystem import test_host_crash as crashes
from tests.filesystem import test_host_killed as killed
from tests.filesystem import test_host_states as states
from tests.filesystem import test_ownership as ownership
from tests.filesystem.crash import Picture, build

from weakincentives.errors import JournalError
from weakincentives.filesystem import InMemoryFilesystem
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.journal import Journal, Record, Span
from weakincentives.filesystem.disk.mirror_scope import MirrorScope
from weakincentives.filesystem.disk.restoration import Restoration
from weakincentives.filesystem.disk.reversal import Reversal
from weakincentives.filesystem.disk.staging import Staging
from weakincentives.filesystem.disk.state_dir import StateDir
from weakincentives.filesystem.disk.undo_log import UndoLog
from weakincentives.filesystem.disk.undo_scope import SnapshotStack, UndoScope
from weakincentives.filesystem.memory.write_log import WriteLog
from weakincentives.filesystem.ownership import TouchedPaths, UndoMark

pytestmark = pytest.mark.slow  # each proof several times

small_disk = killed.small_disk

Patch = Callable[[pytest.MonkeyPatch], None]


def _nothing(*args: Any, **kwargs: Any) -> Any:
    return None


def _no_times(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reversal, "_set_time", _nothing)


def _no_write_ahead(patch: pytest.MonkeyPatch) -> None:
    def append(self: Journal, record: Record) -> Span:
        return Span(self.end, self.end)

    patch.setattr(Journal, "append", append)
    patch.setattr(Journal, "cut", _nothing)


def _oldest_first(patch: pytest.MonkeyPatch) -> None:
    def load(self: Journal) -> list[tuple[Span, Record]]:
        return original(self)[::-1]

    original = Journal.load
    patch.setattr(Journal, "load", load)


def _keep_new_files(patch: pytest.MonkeyPatch) -> None:
    def discard(self: Reversal, path: str) -> list[str]:
        return []

    patch.setattr(Reversal, "_discard", discard)


def _moves_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reversal, "_move_back", _nothing)


def _images_stay(patch: pytest.MonkeyPatch) -> None:
    def restore_path(self: Reversal, record: Record) -> list[str]:
        return []

    patch.setattr(Reversal, "_restore_path", restore_path)


def _kept_too_long(patch: pytest.MonkeyPatch) -> None:
    """A nested snapshot does not make files be kept again."""
    patch.setattr(UndoLog, "boundary", _nothing)


def _no_recovery(patch: pytest.MonkeyPatch) -> None:
    def pending(self: Journal) -> bool:
        return False

    patch.setattr(Journal, "pending", pending)


def _mode_not_carried(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Staging, "_resemble", _nothing)


def _garbage_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StateDir, "sweep", _nothing)


def _commit_first(patch: pytest.MonkeyPatch) -> None:
    """What is kept is thrown away before the commit."""

    def commit(self: UndoLog) -> None:
        for change in self.entries:
            self._disk.state.purge(change.record.image)
        original(self)

    original = UndoLog._commit
    patch.setattr(UndoLog, "_commit", commit)


MUTANTS: list[Patch] = [
    _no_times, _no_write_ahead, _oldest_first, _keep_new_files, _moves_stay, _images_stay, _kept_too_long,
    _no_recovery, _mode_not_carried, _garbage_stays, _commit_first,
]  # fmt: skip


def _prove(folder: Path, expected: Picture) -> None:
    bench = crashes._Bench(folder)
    assert bench.after == expected
    crashes._crash_once(bench, 4)


@pytest.mark.torture
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_crash_run_notices(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mistake the run fails; without it, it passes."""
    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with TemporaryDirectory(dir=shared) as one, TemporaryDirectory(dir=shared) as other:
        expected = crashes._Bench(Path(one)).after
        with monkeypatch.context() as patch:
            mutant(patch)
            with pytest.raises((AssertionError, OSError)):
                _prove(Path(other), expected)


# --- mistakes in what happens when something fails, and in whose changes are undone


def _settles_while_owed(patch: pytest.MonkeyPatch) -> None:
    def settle(self: UndoLog, live: Sequence[UndoMark], released: UndoMark | None = None) -> None:
        owed, self.owed = self.owed, []
        original(self, live, released)
        self.owed = owed

    original = UndoLog.settle
    patch.setattr(UndoLog, "settle", settle)
    patch.setattr(UndoScope, "_mend", _nothing)


def _owed_after_the_undo(patch: pytest.MonkeyPatch) -> None:
    def undo(self: UndoLog, mark: UndoMark) -> None:
        try:
            original(self, mark)
        except OSError:
            self.owed.clear()
            raise

    original = UndoLog.undo
    patch.setattr(UndoLog, "undo", undo)


def _scan_forgets_what_it_owes(patch: pytest.MonkeyPatch) -> None:
    def pay(self: MirrorScope) -> list[str]:
        owed = self._owed
        assert owed is not None
        self._owed = None
        return self._mirror.restore(owed.manifest)

    patch.setattr(MirrorScope, "_finish_owed", pay)


def _staged_file_dropped_first(patch: pytest.MonkeyPatch) -> None:
    def withdraw(self: UndoLog, staged: str) -> None:
        self._disk.state.purge(staged)
        original(self, staged)

    original = UndoLog.withdraw
    patch.setattr(UndoLog, "withdraw", withdraw)


def _no_staged_proof(patch: pytest.MonkeyPatch) -> None:
    def is_there(self: Reversal, name: str, at: int) -> bool:
        return not name.startswith("stage") and original(self, name, at)

    original = Reversal.is_there
    patch.setattr(Reversal, "is_there", is_there)


def _tail_is_not_cut(patch: pytest.MonkeyPatch) -> None:
    def mend(self: Journal, end: int) -> None:
        self.torn = False

    patch.setattr(Journal, "mend", mend)


def _floor_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "set_floor", _nothing)


def _bare_undo_is_not_written_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UndoLog, "_reopen", _nothing)


def _nothing_is_made_void(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "set_void", _nothing)


def _bare_snapshots_reach_below_calls(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SnapshotStack, "check_restorable", SnapshotStack.check)


def _bare_snapshots_recover(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UndoScope, "seal", _nothing)
    patch.setattr(UndoLog, "seal", _nothing)


def _trash_purged_last(patch: pytest.MonkeyPatch) -> None:
    def run(self: Restoration) -> Any:
        later: list[str] = []

        def purge(self: StateDir, name: str) -> None:
            later.append(name)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(StateDir, "purge", purge)
            done = original(self)
        for name in later:
            self._disk.state.purge(name)
        return done

    original = Restoration.run
    patch.setattr(Restoration, "run", run)


def _no_conflicts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UndoScope, "refuse_conflicts", _nothing)


def _no_conflicts_in_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteLog, "claim", _nothing)


def _everything_is_undone(patch: pytest.MonkeyPatch) -> None:
    def covers(self: UndoMark, writer: object) -> bool:
        return True

    patch.setattr(UndoMark, "covers", covers)


def _only_equal_paths_conflict(patch: pytest.MonkeyPatch) -> None:
    def overlaps(self: TouchedPaths, path: str) -> bool:
        return path in self._paths

    patch.setattr(TouchedPaths, "overlaps", overlaps)


def _kept_once_for_all_writers(patch: pytest.MonkeyPatch) -> None:
    def must_keep(self: UndoLog, path: str) -> bool:
        return self.recording and path not in self._fresh

    patch.setattr(UndoLog, "must_keep", must_keep)


def _old_root_although_others_wrote(patch: pytest.MonkeyPatch) -> None:
    def note(self: WriteLog, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for mark in self.open:
            mark.shared = False

    original = WriteLog.note
    patch.setattr(WriteLog, "note", note)


def _marks_stay_above(patch: pytest.MonkeyPatch) -> None:
    """A position that was undone is still waited for."""
    patch.setattr(SnapshotStack, "lower", _nothing)


def _failed_scan_undo(folder: Path) -> None:
    _failed_undo(folder, "scan")


def _failed_undo(folder: Path, watch: Any = None) -> None:
    for how in ("released", "dropped", "kept"):
        root = folder / how
        build(root)
        states.test_a_failed_undo_is_never_committed(root, watch, how)
    build(folder / "refused")
    states.test_after_a_failed_undo_nothing_is_written_until_it_succeeds(folder / "refused", watch)


def _orphans(folder: Path) -> None:
    for again, path in product((False, True), ("new.txt", "a.txt")):
        build(folder / f"{again}{path}")
        states.test_a_record_that_could_not_be_cut_is_recognised(folder / f"{again}{path}", again, path)
    build(folder / "root")
    states.test_a_record_of_a_write_that_failed_takes_no_users_file(folder / "root")


def _bare(folder: Path) -> None:
    states.test_a_crash_in_the_undo_of_a_bare_snapshot(folder, None)
    build(folder / "root")
    states.test_a_bare_snapshot_below_an_open_call_is_not_restored(folder / "root", None)


def _filesystems(folder: Path) -> Iterator[Any]:
    files = {"kept.txt": "kept", "dir/one.txt": "1"}
    yield InMemoryFilesystem(files)
    (folder / "host").mkdir()
    with HostFilesystem(folder / "host") as fs:
        for path, content in files.items():
            fs.write(path, content)
        yield fs


def _owners(folder: Path) -> None:
    for number, test in enumerate((
        ownership.test_an_undo_leaves_what_others_wrote,
        ownership.test_what_an_outer_call_writes_while_an_inner_one_fails_stays,
        ownership.test_an_undo_beside_another_open_call,
        ownership.test_a_snapshot_inside_a_call_goes_back_over_its_own_writes,
        ownership.test_somebody_elses_undo_does_not_touch_an_open_call,
        lambda fs: ownership.test_a_write_that_overlaps_with_an_open_call_is_refused(fs, "made/other.txt"),
    )):  # fmt: skip
        (folder / str(number)).mkdir()
        for fs in _filesystems(folder / str(number)):
            test(fs)
    (folder / "killed").mkdir()
    ownership.test_a_kill_leaves_what_others_wrote(folder / "killed")


MECHANISMS: list[tuple[Patch, Callable[[Path], None]]] = [
    (_settles_while_owed, _failed_undo),
    (_owed_after_the_undo, _failed_undo),
    (_scan_forgets_what_it_owes, _failed_scan_undo),
    (_staged_file_dropped_first, _orphans),
    (_no_staged_proof, _orphans),
    (_tail_is_not_cut, _orphans),
    (_floor_stays, _bare),
    (_bare_undo_is_not_written_down, _bare),
    (_bare_snapshots_reach_below_calls, _bare),
    (_bare_snapshots_recover, _bare),
    (_nothing_is_made_void, _owners),
    (_no_conflicts, _owners),
    (_no_conflicts_in_memory, _owners),
    (_everything_is_undone, _owners),
    (_only_equal_paths_conflict, _owners),
    (_kept_once_for_all_writers, _owners),
    (_old_root_although_others_wrote, _owners),
    (_marks_stay_above, _owners),
]


@pytest.mark.parametrize("proof", [_failed_undo, _failed_scan_undo, _orphans, _bare, _owners])
def test_the_proofs_pass_without_any(proof: Callable[[Path], None], tmp_path: Path) -> None:
    """What the mistakes below break holds for the real thing."""
    proof(tmp_path)


@pytest.mark.torture
@pytest.mark.parametrize("mutant", [pytest.param(both, id=both[0].__name__[1:]) for both in MECHANISMS])
def test_the_proofs_notice(
    mutant: tuple[Patch, Callable[[Path], None]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the mistake one of them fails."""
    mistake, proof = mutant
    with monkeypatch.context() as patch:
        mistake(patch)
        with pytest.raises(BaseException):  # noqa: B017 - an assertion, an error or several of them
            proof(tmp_path)


@pytest.mark.torture
def test_the_full_disk_notices(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not wanted must go before anything is restored."""
    with monkeypatch.context() as patch:
        _trash_purged_last(patch)
        with pytest.raises(JournalError, match="No space"):
            killed.test_a_call_that_fills_the_disk_is_undone_in_scan_mode(small_disk, "savepoint")


def test_the_run_passes_without_any(tmp_path: Path) -> None:
    """The expectation that the mutants break holds for the real thing."""
    bench = crashes._Bench(tmp_path)
    bench.crash(bench.commit_call - 1, torn=False)
    HostFilesystem(bench.root).close()
    bench.check(bench.commit_call - 1, "unmutated")
