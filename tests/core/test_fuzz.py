"""The fuzzers themselves: every target takes any bytes, and a defect is found and kept."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz import __main__ as command
from fuzz import targets
from fuzz.source import Source

from weakincentives.errors import SessionFormatError
from weakincentives.runtime import Session


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Targets that need files have them here."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    targets.clear()
    yield
    targets.clear()


@pytest.mark.parametrize("name", targets.TARGETS)
def test_each_target_takes_any_bytes(name: str) -> None:
    """A hundred inputs (eight where each is a crash), empty and long ones among them."""
    chance = random.Random(name)
    for size in [0, 1, 512, *(chance.randrange(200) for _ in range(5 if name == "journal" else 97))]:
        targets.TARGETS[name](chance.randbytes(size))


def test_documents_that_are_changed_are_often_valid_json() -> None:
    """Else nothing behind the parser would ever be reached."""
    chance = random.Random(1)
    valid = 0
    for _ in range(200):
        try:
            json.loads(Source(chance.randbytes(60)).changed({"a": [1, {"b": "c"}], "d": None}))
        except (ValueError, RecursionError):
            continue
        valid += 1
    assert 60 < valid < 200


def test_a_defect_is_found_and_its_input_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hypothesis, in the time given; the file has the input that failed."""

    def defective(data: bytes) -> None:
        if len(data) > 3:
            raise SessionFormatError("found")

    monkeypatch.setattr(targets, "TARGETS", {"defective": defective})
    monkeypatch.setattr(command, "FOUND", tmp_path / "found")
    with pytest.raises(SessionFormatError):
        command.run_hypothesis("defective", 20)
    assert len((tmp_path / "found/defective-hypothesis").read_bytes()) > 3


@pytest.mark.parametrize(
    ("name", "data"),
    [
        # A note of a slice that is null was an AttributeError.
        ("session", bytes.fromhex("07070a1d1d1d1d1d1d1d1d001d1d00001d1d001d")),
    ],
)
def test_what_the_fuzzers_found_stays_found(name: str, data: bytes) -> None:
    """Each input that once did what is not documented."""
    targets.TARGETS[name](data)


@pytest.mark.parametrize("note", [None, 1, "x", [], {"patches": None}, {"type": None}])
def test_a_damaged_note_in_a_saved_session_is_a_format_error(note: object) -> None:
    """Whatever JSON type it has instead of its own."""
    session = Session()
    session[targets.Item].seed([targets.Item(1, "x", None, (1, {2}))])
    saved = json.loads(session.to_json())
    assert saved["slices"][0]["notes"], "an item with a note is needed"
    saved["slices"][0]["notes"]["0"] = note
    with pytest.raises(SessionFormatError):
        Session.from_json(json.dumps(saved), types=[targets.Item])
