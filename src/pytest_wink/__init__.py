r"""A pytest plugin: a directory of recorded runs is a test suite, without a line of Python.

Every `NAME.wink` beside a `wink.toml` is replayed and must go as it did. The file says what is replayed:

    loop = "support.desk:Desk"     # module:attribute: a loop, its class, or a prompt
    calls = "run"                  # or "serve": no handler runs
    run = []                       # tools that run although their effects leave the machine
    ignore = ["*.log"]             # kinds of divergences, paths, or kind:path
    normalise = ["\\d+ ms"]       # patterns of what differs each time

This package stands outside of `weakincentives`, and imports nothing of it before there is a run to replay: pytest loads
plugins in every project where they are installed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

_SUFFIX = ".wink"
_SETTINGS = "wink.toml"
_LISTS = ("run", "ignore", "normalise")
_REPLACED = "Captured wink call"
"""How pytest calls the section of a report that says that a file was replaced."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's option."""
    parser.getgroup("wink").addoption(
        "--wink-update",
        action="store_true",
        help="replace recorded runs that go differently now; new replies and changes are accepted, never new turns",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> WinkFile | None:
    """Collect recorded runs beside their settings."""
    if file_path.suffix != _SUFFIX or not file_path.with_name(_SETTINGS).is_file():
        return None
    return WinkFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which files were replaced: the report of a test that passed is not shown."""
    for report in terminalreporter.getreports("passed"):
        for title, text in report.sections:
            if title == _REPLACED:
                terminalreporter.write_line(f"{report.nodeid}: {text}")


class WinkFile(pytest.File):
    """One recorded run."""

    def collect(self) -> Iterator[pytest.Item]:
        """The one test that it is."""
        settings = _settings(self.path.with_name(_SETTINGS))
        item: Any = WinkItem.from_parent(self, name="replay", settings=settings)  # pyright: ignore[reportUnknownMemberType]
        yield item

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        """What is wrong with the settings, without our traceback."""
        if isinstance(excinfo.value, _SettingsError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class WinkItem(pytest.Item):
    """The replay of one run; it fails when something is not as it was."""

    def __init__(self, *, settings: dict[str, Any], **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._settings = settings

    def runtest(self) -> None:
        """Replay it; with --wink-update, write it anew where only replies and changes differ."""
        from weakincentives.testing import replay  # noqa: PLC0415 - see above

        options = {key: value for key, value in self._settings.items() if key != "loop"}
        update = bool(self.config.getoption("--wink-update"))
        target = _target(self._settings["loop"], [self.path.parent, self.config.rootpath])
        result = replay(self.path, target, update=update, **options)
        if result.updated:
            self.add_report_section("call", "wink", "the file was replaced by the run as it is now.")
        elif update and not result.same:
            self.add_report_section("call", "wink", "The turns differ, so it was not replaced: record it again.")
            result.assert_same()
        else:
            result.assert_same()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What differs, without our traceback; everything else as always."""
        from weakincentives.errors import WinkError  # noqa: PLC0415 - imported already

        if isinstance(excinfo.value, AssertionError | WinkError | _SettingsError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it stands."""
        return self.path, None, f"replay of {self.path.name}"


class _SettingsError(Exception):
    """`wink.toml` cannot be read, or names something that is not there."""


def _settings(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - only where there is a run to replay

    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _SettingsError(f"{path} cannot be read: {error}") from None
    known = ("loop", "calls", *_LISTS)
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise _SettingsError(f"{path}: there is no setting {unknown[0]!r}; known are: {', '.join(known)}")
    if not isinstance(settings.get("loop"), str) or ":" not in settings["loop"]:
        raise _SettingsError(f'{path}: loop = "module:attribute" says what is replayed')
    if settings.get("calls", "run") not in {"run", "serve"}:
        raise _SettingsError(f'{path}: calls is "run" or "serve", not {settings["calls"]!r}')
    for name in _LISTS:
        given: Any = settings.get(name, [])
        if not isinstance(given, list) or not all(isinstance(item, str) for item in cast("list[Any]", given)):
            raise _SettingsError(f'{path}: {name} is a list of texts, such as {name} = ["..."]')
    for pattern in settings.get("normalise", []):
        try:
            re.compile(pattern)
        except re.error as error:
            raise _SettingsError(f"{path}: normalise: {pattern!r} is not a regular expression: {error}") from None
    return settings


def _target(text: str, folders: list[Path]) -> Any:
    """What `module:attribute` names; modules are also found beside the settings and at the root of the tests."""
    from importlib import import_module  # noqa: PLC0415 - as above

    name, _, attribute = text.partition(":")
    for folder in map(str, folders):
        if folder not in sys.path:
            sys.path.append(folder)
    try:
        found: Any = import_module(name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ModuleNotFoundError, AttributeError) as error:
        raise _SettingsError(f"{_SETTINGS}: {text} is not there: {error}") from error
    return found
