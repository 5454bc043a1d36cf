"""`wink replay`: run a recorded run again with today's program, and show what differs."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict

from ...errors import WinkError
from ...runtime.record.sqlite import NotARunStoreError
from ...testing import ReplayResult, replay
from ...testing.recorded_model import UnknownToolError
from ..loading import load
from ..output import FailedError, UsageError, existing_file, show, show_json


def run(arguments: argparse.Namespace) -> int:
    """Print every divergence; 1 when there is one, unless the file was updated."""
    existing_file(arguments.file)
    for pattern in arguments.normalise:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"--normalise: {pattern!r} is not a regular expression: {error}") from None
    loaded = load(arguments.target)
    try:
        result = replay(
            arguments.file,
            loaded.target,
            calls="serve" if arguments.serve else "run",
            run=arguments.run_tools,
            ignore=arguments.ignore,
            normalise=arguments.normalise,
            update=arguments.update,
        )
    except (NotARunStoreError, UnknownToolError) as error:
        raise UsageError(str(error)) from None
    except WinkError as error:
        raise FailedError(str(error)) from None
    if arguments.json:
        _show_json(result)
    else:
        show(str(result))
        if result.updated:
            show(f"{arguments.file} was replaced by the run as it is now.")
        elif arguments.update and not result.same:
            show("It was not replaced: its turns differ, or it cannot be made again as a whole. Record it again.")
    return 0 if result.same or result.updated else 1


def _show_json(result: ReplayResult) -> None:
    for found in result.divergences:
        show_json(asdict(found))
    capture = asdict(result.capture)
    same = {"run_id": result.run_id, "same": result.same, "divergences": len(result.divergences)}
    show_json({**same, "updated": result.updated, "capture": capture})
