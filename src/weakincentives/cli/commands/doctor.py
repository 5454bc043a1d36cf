"""`wink doctor`: what this machine has and lacks, what each thing is for, and the command that gets it."""

from __future__ import annotations

import argparse
import platform
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..output import Subcommands, show, show_json
from ..usage import existing_directory
from .version import version_text

if TYPE_CHECKING:
    from ..machine import Finding

_WIDTH = 78


def register(subcommands: Subcommands) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser("doctor", help="what this machine has and lacks, and the command that gets it")
    where = "whose filesystem to try (default: where temporary files are)"
    parser.add_argument("directory", metavar="DIR", nargs="?", help=where)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; 1 when something is missing that everything needs."""
    if arguments.directory is not None:
        existing_directory(arguments.directory)
    found: list[Finding] = []
    if not arguments.json:
        show(f"{version_text()} on {platform.system()} {platform.release()} ({platform.machine()})")
    group = ""
    for finding in _findings(arguments.directory or tempfile.gettempdir()):
        found.append(finding)
        if arguments.json:
            show_json(finding._asdict())
            continue
        if finding.group != group:
            group = finding.group
            show(f"\n{group}")
        for line in _lines(finding):
            show(line)
    if not arguments.json:
        show(f"\n{_summary(found)}")
    return 1 if any(finding.needed and finding.state != "ok" for finding in found) else 0


def _findings(directory: str) -> Iterator[Finding]:
    from .. import machine  # noqa: PLC0415 - see `main.build_parser`

    yield from machine.core()
    yield from machine.extras()
    yield from machine.keys()
    yield from machine.programs()
    yield from machine.model()
    yield from machine.files(directory)


def _lines(finding: Finding) -> Iterator[str]:
    """Two or three lines: what it is and what it is for, then the command."""
    detail = f" ({finding.detail})" if finding.detail else ""
    text = f"{finding.name}{detail} - {finding.purpose}"
    yield from textwrap.wrap(
        text, _WIDTH, initial_indent=f"  {finding.state:8} ", subsequent_indent=" " * 11, break_on_hyphens=False
    )
    if finding.get:
        yield f"{' ' * 11}-> {finding.get}"  # whole, since it is there to be copied


def _summary(found: Iterable[Finding]) -> str:
    lacking = [finding for finding in found if finding.state != "ok"]
    needed = [finding.name for finding in lacking if finding.needed]
    if needed:
        return f"WINK cannot work without: {', '.join(needed)}."
    if lacking:
        return f"WINK works here. {len(lacking)} things are missing; get those whose purpose is yours."
    return "WINK works here, and nothing is missing."
