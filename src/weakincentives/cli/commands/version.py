"""`wink version`."""

from __future__ import annotations

import argparse
import platform

from ... import __version__
from ..output import show


def run(_: argparse.Namespace) -> int:
    """Print the versions."""
    show(version_text())
    return 0


def version_text() -> str:
    """Which WINK and which Python, on one line."""
    return f"wink {__version__} (Python {platform.python_version()})"
