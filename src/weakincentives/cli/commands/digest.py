"""`wink digest DIR`: what a workspace holds, in outline, as a model would read it."""

from __future__ import annotations

import argparse

from ..output import Subcommands, show
from ..usage import FailedError, WrongUseError, existing_directory


def register(subcommands: Subcommands) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser("digest", help="print an outline of a workspace, as a model would read it")
    parser.add_argument("directory", metavar="DIR", nargs="?", default=".", help="the workspace (default: here)")
    parser.add_argument("--max-chars", type=int, default=6000, metavar="N", help="at most so long (default: 6000)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the digest. `WrongUseError` for a directory that is not there and for a senseless limit."""
    from ...contrib.digest import DigestConfig, build_digest  # noqa: PLC0415 - see `main.build_parser`
    from ...errors import PromptValidationError  # noqa: PLC0415

    try:
        config = DigestConfig(max_chars=arguments.max_chars)
    except PromptValidationError:
        raise WrongUseError("--max-chars must be 200 or more") from None
    existing_directory(arguments.directory)
    try:
        digest = build_digest(arguments.directory, config=config)
    except OSError as error:
        raise FailedError(f"{arguments.directory}: {error.strerror or error}") from None
    show(f"{digest.summary}\n\n{digest.body}")
    return 0
