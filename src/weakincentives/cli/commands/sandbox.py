"""`wink sandbox`: what sandboxes need on this machine."""

from __future__ import annotations

import argparse
from time import monotonic

from ..output import Subcommands, show, show_error
from ..usage import FailedError, WrongUseError


def register(subcommands: Subcommands) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser("sandbox", help="build the image that containers start from")
    actions = parser.add_commands("action")
    image = actions.add_parser("image", help="build a small local image with Python for podman, without any registry")
    image.add_argument("--name", metavar="NAME", help="of the image (default: localhost/wink-python:latest)")
    image.add_argument(
        "--from",
        dest="source",
        choices=["auto", "packages", "interpreter"],
        default="auto",
        help="packages of the distribution, or this Python with busybox (default: packages where apt-get is)",
    )
    image.add_argument("--rebuild", action="store_true", help="also when it is there already")
    image.set_defaults(run=run_image)


def run_image(arguments: argparse.Namespace) -> int:
    """Build the image; `FailedError` when it could not be built."""
    from ...contrib.podman.image import DEFAULT_IMAGE, build_image  # noqa: PLC0415 - `wink --help` stays quick

    name = arguments.name or DEFAULT_IMAGE
    started = monotonic()
    try:
        built = build_image(name, source=arguments.source, rebuild=arguments.rebuild, report=_report)
    except ValueError as error:
        raise WrongUseError(str(error)) from None
    except OSError as error:
        raise FailedError(str(error)) from None
    show(f"Built in {monotonic() - started:.0f} s: {name}" if built else f"Already there: {name}")
    return 0


def _report(line: str) -> None:
    show_error(line)
