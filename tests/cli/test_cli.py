"""The `wink` command."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from weakincentives import __version__
from weakincentives.cli import main
from weakincentives.cli.main import build_parser


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`wink version` says which WINK and which Python."""
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"wink {__version__} (Python 3.")


SCRIPT = "import sys; from weakincentives.cli import main; sys.exit(main())"  # what the installed `wink` does


@pytest.mark.slow  # programs
@pytest.mark.parametrize("start", [["-c", SCRIPT], ["-m", "weakincentives"]], ids=["wink", "python -m"])
def test_the_command_and_the_module_are_the_same(start: list[str]) -> None:
    """`wink --version` and `python -m weakincentives --version` say the same, and exit codes reach the shell."""
    done = subprocess.run([sys.executable, *start, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"wink {__version__} (Python 3.")
    done = subprocess.run([sys.executable, *start, "tools", "nope.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "wink tools: there is no file nope.py\n")


@pytest.mark.parametrize("command", [[], ["ledger"], ["model"], ["sandbox"], ["state"]])
def test_a_command_without_its_action_prints_its_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Bare `wink`, and every command that only groups others: nothing was asked for, so nothing failed."""
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"usage: {' '.join(['wink', *command])} [-h]")
    assert ("ACTION" if command else "COMMAND") in out


def _commands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, list[str]]]:
    """Every command with its options, also those of commands that group others."""
    actions = parser._actions  # pyright: ignore[reportPrivateUsage] # argparse has no public way to ask
    yield name, [option for action in actions for option in action.option_strings if option.startswith("--")]
    for action in actions:
        if isinstance(action.choices, dict):
            for command, found in cast("dict[str, argparse.ArgumentParser]", action.choices).items():
                yield from _commands(found, f"{name} {command}")


def test_the_documentation_lists_every_command() -> None:
    """Each command and each of its options is in docs/cli.md, and nothing is there that does not exist."""
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    commands = dict(_commands(build_parser(), "wink"))
    assert len(commands) > 15
    for command, options in commands.items():
        assert re.search(rf"`{command}\b", text), command
        for option in options:
            assert option == "--help" or re.search(rf"[` ]{option}[` ]", text), f"{command} {option}"
    for command in re.findall(r"`(wink(?: [a-z][a-z0-9-]*)*)", text):
        assert " ".join(command.split()[:3]) in commands, command
    every = {option for options in commands.values() for option in options}
    assert {*re.findall(r"`(--[a-z][a-z-]+)", text)} <= every


def test_no_page_names_a_command_that_does_not_exist() -> None:
    """In any page, `wink` is followed by a command, and by one of its actions where it has some."""
    commands = dict(_commands(build_parser(), "wink"))
    root = Path(__file__).parents[2]
    found: set[str] = set()
    for page in (*root.glob("*.md"), *(root / "docs").rglob("*.md")):
        if page.name != "CHANGELOG.md":  # which names what was removed
            found.update(re.findall(r"(?:^|`)(wink(?: [a-z][a-z0-9-]*(?![\w.:-]))+)", page.read_text(), re.MULTILINE))
    assert "wink ledger list" in found
    assert {" ".join(command.split()[:3]) for command in found} <= set(commands)


def test_help_has_no_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.14 colours help by itself; everything that `wink` prints has its escape sequences marked."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main([]) == 0
    assert capsys.readouterr().out.isascii()


def test_wrong_use_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command exits with 2 and says what there is."""
    with pytest.raises(SystemExit) as caught:
        main(["nope"])
    assert caught.value.code == 2
    assert "'version'" in capsys.readouterr().err


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`wink --help` lists each with a line."""
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "print the version" in capsys.readouterr().out


def test_an_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C gives exit code 130 and one line, no traceback."""
    from weakincentives.cli.commands import version

    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(version, "run", interrupted)
    assert main(["version"]) == 130
    assert capsys.readouterr().err == "wink: interrupted\n"


def test_importing_the_package_alone_imports_nothing_heavy() -> None:
    """`import weakincentives` leaves pydantic and every extra for later."""
    code = "import weakincentives, sys; print('pydantic' in sys.modules, weakincentives.parse.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False parse\n"


def test_the_root_exports_are_true() -> None:
    """Every name of `__all__` can be had, unknown names raise, and there are at most 28."""
    import weakincentives

    assert len(weakincentives.__all__) <= 28
    for name in weakincentives.__all__:
        assert getattr(weakincentives, name) is not None
        assert name in dir(weakincentives)
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = weakincentives.nothing_here
