"""Whatever is planted, copied, replayed or damaged: nothing outside the root changes, nothing false is undone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.filesystem import planted
from tests.filesystem.planted import VARIANTS, Variant


@pytest.mark.parametrize(
    ("variant", "place"), [pytest.param(*each, id=f"{each[0].__name__}, {each[1]}") for each in VARIANTS]
)
def test_planted_state_is_never_acted_on(variant: Variant, place: str, tmp_path: Path) -> None:
    """Only what this root's last process left is undone; everything else is refused and changes nothing."""
    planted.run(variant, tmp_path, place)


def test_there_are_enough_variants() -> None:
    """At least forty."""
    assert len(VARIANTS) >= 80


@pytest.mark.slow
def test_an_ordinary_user_is_as_safe() -> None:
    """The same variants in a process that is not root's."""
    with TemporaryDirectory() as place:  # not in pytest's own folder, which is closed to other users
        done = subprocess.run(
            [sys.executable, "-m", "tests.filesystem.planted", place],
            check=False, capture_output=True, text=True, cwd=Path.cwd(),
        )  # fmt: skip
    if "Permission denied" in done.stderr and "ModuleNotFoundError" in done.stderr:
        pytest.skip("the checkout cannot be read by another user")
    assert done.stdout == f"{len(VARIANTS)} variants, 0 failed\n", done.stdout + done.stderr
