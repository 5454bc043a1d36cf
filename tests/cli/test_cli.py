"""The `wink` command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from weakincentives import __version__
from weakincentives.cli import main


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`wink version` says which WINK and which Python."""
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"wink {__version__} (Python 3.")


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
