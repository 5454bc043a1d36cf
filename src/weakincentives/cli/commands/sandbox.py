"""`wink sandbox`: what sandboxes need on this machine."""

from __future__ import annotations

import argparse
from time import monotonic

from ...contrib.podman.image import DEFAULT_IMAGE, build_image
from ..output import FailedError, UsageError, show, show_error


def run_image(arguments: argparse.Namespace) -> int:
    """Build the image; `FailedError` when it could not be built."""
    name = arguments.name or DEFAULT_IMAGE
    started = monotonic()
    try:
        built = build_image(name, source=arguments.source, rebuild=arguments.rebuild, report=show_error)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise FailedError(str(error)) from None
    show(f"Built in {monotonic() - started:.0f} s: {name}" if built else f"Already there: {name}")
    return 0
