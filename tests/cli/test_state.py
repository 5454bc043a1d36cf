"""`wink state`: what is kept to undo changes, for people."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from tests.filesystem.crash import build, keep_vault, picture
from tests.filesystem.planted import Case

from weakincentives.cli import main
from weakincentives.filesystem.disk import disk_root as disk
from weakincentives.filesystem.disk.filesystem import HostFilesystem


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    keep_vault(monkeypatch, "private", tmp_path)
    monkeypatch.setattr(disk, "PATIENCE", 0.05)
    return Case(tmp_path)


class Terminal(io.StringIO):
    """A person who types that."""

    def isatty(self) -> bool:
        return True


def test_list_shows_roots_and_what_to_do(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """Path, id, state, size and age, where old files are; then the command that helps."""
    assert main(["state", "list"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{case.root}\n    {case.entry.name}  open\n")
    assert re.search(r"\d+ bytes, changed \d+ seconds ago", out)
    assert f"old files in {case.vault}\n" in out
    assert "Folders: 1; with a transaction that was left open: 1.\n" in out
    assert "wink state clean ROOT" in out


def test_list_as_json_is_one_object_a_line(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """With everything, also what cannot be used and what lies about."""
    case.other().chmod(0o750)
    (case.folder / ".root.wink").mkdir()
    assert main(["state", "list", "--json"]) == 0
    state, unusable, stray = map(json.loads, capsys.readouterr().out.splitlines())
    assert (state["root"], state["there"], state["status"]) == (str(case.root), True, "open")
    assert "open to others" in unusable["unusable"]
    assert stray == {"stray": str(case.folder / ".root.wink"), "version": 1}


def test_names_cannot_act_on_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A root's name may hold anything: it is shown with visible marks, on one line."""
    root = tmp_path / "bad\x1b]52;c;x\x07\nidle"
    build(root)
    state = str(tmp_path / "state")
    with HostFilesystem(root, state_dir=state) as fs:
        held = fs.savepoint()
        fs.write("a.txt", "x")
        assert main(["state", "list", "--state-dir", state]) == 0
        fs.release(held)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\nidle" not in out


def test_clean_says_what_it_did(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """What was undone goes to stderr, as a log of the library would say it."""
    assert main(["state", "clean", str(case.root)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{case.root} is clean: no transaction is open, and nothing is kept for it.\n"
    assert "Rolled back 4 change(s)" in err
    assert picture(case.root, exact=False) == case.before


def test_clean_names_what_was_put_aside(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """It is kept, and the reason is told."""
    (case.vault / "tx").write_bytes(bytes(16))
    assert main(["state", "clean", str(case.root)]) == 0
    out, err = capsys.readouterr()
    assert "-journal" in out
    assert "wink state forget ROOT" in out
    assert "Nothing was undone" in err


@pytest.mark.parametrize("command", [["clean"], ["forget", "--yes"]])
def test_a_root_in_use_is_refused(case: Case, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One message, exit code 1, and the transaction goes on."""
    with HostFilesystem(case.root) as fs:
        held = fs.savepoint()
        fs.write("a.txt", "x")
        assert main(["state", *command, str(case.root)]) == 1
        assert "one writer at a time" in capsys.readouterr().err
        fs.restore(held)
        fs.release(held)
    assert picture(case.root, exact=False) == case.before


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_forget_says_what_is_lost_and_asks(
    case: Case, answer: str, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything but yes is no."""
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert main(["state", "forget", str(case.root)]) == code
    out = capsys.readouterr().out
    assert "a.txt was changed and stays so; what it was before is lost" in out
    assert ("Forgotten" in out, "Nothing was changed" in out) == (code == 0, code == 1)
    assert case.entry.exists() == (code == 1)


def test_forget_asks_nobody_where_nobody_is(
    case: Case, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a script --yes says it; without it nothing is changed, whatever stands on standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["state", "forget", case.entry.name]) == 2
    assert "--yes" in capsys.readouterr().err
    assert case.entry.exists()
    assert main(["state", "forget", case.entry.name, "--yes"]) == 0
    assert not case.entry.exists()


def test_a_new_key_only_when_the_old_one_is_not_needed(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the command for each root that is in the way."""
    assert main(["state", "rotate-key"]) == 1
    assert f"wink state clean {case.root}" in capsys.readouterr().err
    assert main(["state", "clean", str(case.root)]) == 0
    assert main(["state", "rotate-key"]) == 0
    assert "There is a new key." in capsys.readouterr().out


@pytest.mark.parametrize("command", ["list", "clean", "forget", "rotate-key"])
def test_a_directory_that_is_not_private_is_refused(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command says so, with exit code 1."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    root = [str(tmp_path)] if command in {"clean", "forget"} else []
    assert main(["state", command, *root, "--state-dir", str(tmp_path / "open")]) == 1
    assert "is open to others" in capsys.readouterr().err
