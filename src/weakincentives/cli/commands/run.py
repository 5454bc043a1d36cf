"""`wink run TARGET`: one request to an agent of yours, with a trace of what it does."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..models import add_model_arguments, check_base_url
from ..output import Subcommands, show, show_answer


def register(subcommands: Subcommands) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser("run", help="run a MainLoop or a prompt of yours")
    parser.add_argument("target", metavar="PATH_OR_MODULE[:NAME]", help="a MainLoop, PromptTemplate or Prompt")
    parser.add_argument("--request", metavar="JSON", help="the loop's request or the prompt's params; - reads it")
    parser.add_argument("--workspace", metavar="DIR", help="a folder that the agent's tools get as their files")
    add_model_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="show what the model would read; ask nobody")
    parser.add_argument("--plain", action="store_true", help="a trace without colours")
    parser.add_argument("--json", action="store_true", help="a trace of one JSON object a line")
    parser.add_argument("--verbose", action="store_true", help="show what WINK logs, with tracebacks of handlers")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run it: the trace goes to stderr, the answer to stdout; 1 when there is no answer, or only a part of one."""
    from ..loading import load  # noqa: PLC0415 - see `main.build_parser`
    from ..requests import read_request  # noqa: PLC0415
    from ..rich_trace import make_trace  # noqa: PLC0415
    from ..running import Running  # noqa: PLC0415

    loaded = load(arguments.target)
    request = read_request(arguments.request)
    running = Running(loaded, request, arguments.workspace)
    check_base_url(arguments.model, arguments.base_url)
    if arguments.dry_run:
        show(running.dry())
        return 0
    trace = make_trace(plain=arguments.plain, as_json=arguments.json, stream=sys.stderr)
    answer: Any = running.run(arguments.model, trace, arguments.base_url)
    if answer is None:
        return 1
    show_answer(answer)
    return 0 if running.is_whole else 1
