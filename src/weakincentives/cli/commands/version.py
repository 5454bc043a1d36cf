"""`wink version`."""

from __future__ import annotations

import argparse
import platform

from ... import __version__
from ..output import show


def register(subcommands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the subcommand."""
    parser = subcommands.add_parser("version", help="print the version of WINK and of Python")
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """Print the versions."""
    show(f"wink {__version__} (Python {platform.python_version()})")
    return 0
