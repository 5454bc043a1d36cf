"""`wink digest DIR`: what a workspace holds, in outline, as a model would read it."""

from __future__ import annotations

import argparse

from ...contrib.digest import DigestConfig, build_digest
from ...errors import PromptValidationError
from ..output import FailedError, UsageError, existing_directory, show


def run(arguments: argparse.Namespace) -> int:
    """Print the digest. `UsageError` for a directory that is not there and for a senseless limit."""
    try:
        config = DigestConfig(max_chars=arguments.max_chars)
    except PromptValidationError:
        raise UsageError("--max-chars must be 200 or more") from None
    existing_directory(arguments.directory)
    try:
        digest = build_digest(arguments.directory, config=config)
    except OSError as error:
        raise FailedError(f"{arguments.directory}: {error.strerror or error}") from None
    show(f"{digest.summary}\n\n{digest.body}")
    return 0
