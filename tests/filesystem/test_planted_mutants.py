"""Mistakes put in on purpose into what keeps planted state from being acted on: each must be noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.filesystem import planted
from tests.filesystem import test_host_crash as crashes
from tests.filesystem.crash import keep_vault

from weakincentives.filesystem.disk import journal, manifest, mirror, private_dir
from weakincentives.filesystem.disk import locations as places
from weakincentives.filesystem.disk.journal import Journal
from weakincentives.filesystem.disk.locations import StateFinder
from weakincentives.filesystem.disk.reversal import Reversal
from weakincentives.filesystem.disk.state_dir import IDLE, Authenticator, StateBinding, StateDir
from weakincentives.filesystem.disk.vaults import RootRecord, Vaults

Patch = Callable[[pytest.MonkeyPatch], None]
Proof = Callable[[Path], None]


def _true(*_args: Any) -> bool:
    return True


def _nothing(*_args: Any) -> None:
    return None


def _intent_after_the_vault(patch: pytest.MonkeyPatch) -> None:
    def make(self: Vaults, intend: Callable[[RootRecord], None]) -> tuple[RootRecord, int, str]:
        record, fd, parent = original(self, _nothing)
        intend(record._replace(inode=0, born=0))
        return record, fd, parent

    original = Vaults.make
    patch.setattr(Vaults, "make", make)


def _transaction_not_compared(patch: pytest.MonkeyPatch) -> None:
    def header_body(version: str, binding: StateBinding, _transaction: bytes) -> bytes:
        return original(version, binding, IDLE)

    def body(self: Journal, _transaction: bytes) -> bytes:
        return real_body(self, IDLE)

    original, real_body = journal.header_body, Journal._body
    patch.setattr(Journal, "_body", body)
    patch.setattr(mirror, "header_body", header_body)


def _number_never_cleared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StateDir, "end", _nothing)


def _macs_not_chained(patch: pytest.MonkeyPatch) -> None:
    def seal(self: Authenticator, kind: bytes, before: bytes, content: bytes) -> bytes:
        return original(self, kind, bytes(16) if kind == b"F" else before, content)

    original = Authenticator.seal
    patch.setattr(Authenticator, "seal", seal)


def _macs_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal, "compare_digest", _true)


def _paths_not_checked(patch: pytest.MonkeyPatch) -> None:
    for module in (journal, manifest):
        patch.setattr(module, "is_beneath", _true)


def _names_not_checked(patch: pytest.MonkeyPatch) -> None:
    for name in ("is_image", "is_staged"):
        patch.setattr(journal, name, _true)
    patch.setattr(manifest, "is_copy", _true)


def _images_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reversal, "is_authentic", _true)


def _vault_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StateFinder, "_is", _true)


def _modes_not_checked(patch: pytest.MonkeyPatch) -> None:
    for module in (places, private_dir):
        patch.setattr(module, "check_private", _nothing)


def _way_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(private_dir, "_check_above", _nothing)


def _proof(variant: planted.Variant, place: str = "private") -> Proof:
    def prove(folder: Path) -> None:
        planted.run(variant, folder, place)

    return prove


def _forged(name: str) -> Proof:
    return _proof(next(variant for variant in planted.FORGED if variant.__name__ == f"forged {name}"))


def _crash_while_the_vault_is_made(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        keep_vault(patch, "beside", folder)
        bench = crashes._Bench(folder)
        for at in range(1, bench.ready_call + 1):
            bench.crash(at, torn=False)
            bench.recover()
            bench.check(at, f"crash at call {at}")


MECHANISMS: list[tuple[Patch, Proof]] = [
    (_intent_after_the_vault, _crash_while_the_vault_is_made),
    (_transaction_not_compared, _proof(planted.journal_of_an_earlier_time)),
    (_transaction_not_compared, _proof(planted.manifest_marker_of_an_earlier_time)),
    (_number_never_cleared, _proof(planted.journal_of_an_earlier_time)),
    (_macs_not_chained, _proof(planted.first_record_left_out)),
    (_macs_not_compared, _proof(planted.record_altered)),
    (_paths_not_checked, _forged("path above")),
    (_names_not_checked, _forged("image of another name")),
    (_names_not_checked, _proof(planted.manifest_with_an_absolute_copy)),
    (_images_not_compared, _proof(planted.image_is_another_file)),
    (_vault_not_compared, _proof(planted.vault_swapped, "beside")),
    (_modes_not_checked, _proof(planted.entry_is_open_to_others, "beside")),
    (_way_not_checked, _proof(planted.the_way_there_is_open_to_others)),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "proof"), [pytest.param(*each, id=f"{n}-{each[0].__name__[1:]}") for n, each in enumerate(MECHANISMS)]
)
def test_the_mistake_is_noticed(mistake: Patch, proof: Proof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the proof passes, with it the proof fails."""
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
    proof(tmp_path / "right")
    with monkeypatch.context() as patch:
        mistake(patch)
        with pytest.raises(Exception):  # noqa: B017 - an assertion or whatever the mistake leads to
            proof(tmp_path / "wrong")
