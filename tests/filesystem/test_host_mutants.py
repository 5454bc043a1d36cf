"""Mistakes put in on purpose: the crash run must notice each of them, or it proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.filesystem import test_host_crash as crashes
from tests.filesystem.crash import Picture

from weakincentives.filesystem.host import HostFilesystem
from weakincentives.filesystem.journal import Journal, Record
from weakincentives.filesystem.staging import Staging
from weakincentives.filesystem.state_dir import StateDir
from weakincentives.filesystem.undo import UndoLog

Patch = Callable[[pytest.MonkeyPatch], None]


def _nothing(*args: Any, **kwargs: Any) -> Any:
    return None


def _no_times(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UndoLog, "_set_time", _nothing)


def _no_write_ahead(patch: pytest.MonkeyPatch) -> None:
    def append(self: Journal, record: Record) -> int:
        return self._end

    patch.setattr(Journal, "append", append)
    patch.setattr(Journal, "cut", _nothing)


def _oldest_first(patch: pytest.MonkeyPatch) -> None:
    def load(self: Journal) -> list[tuple[int, Record]]:
        return original(self)[::-1]

    original = Journal.load
    patch.setattr(Journal, "load", load)


def _keep_new_files(patch: pytest.MonkeyPatch) -> None:
    def discard(self: UndoLog, path: str) -> list[str]:
        return []

    patch.setattr(UndoLog, "_discard", discard)


def _moves_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UndoLog, "_move_back", _nothing)


def _images_stay(patch: pytest.MonkeyPatch) -> None:
    def put_back(self: UndoLog, record: Record) -> list[str]:
        return []

    patch.setattr(UndoLog, "_put_back", put_back)


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
        self._purge(self.entries)
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


def test_the_run_passes_without_any(tmp_path: Path) -> None:
    """The expectation that the mutants break holds for the real thing."""
    bench = crashes._Bench(tmp_path)
    bench.crash(bench.commit_call - 1, torn=False)
    HostFilesystem(bench.root).close()
    bench.check(bench.commit_call - 1, "unmutated")
