"""`wink check TARGET`: is an agent sound? Its definition, its text, and every example of its tools."""

from __future__ import annotations

import argparse

from ..output import Subcommands, show


def register(subcommands: Subcommands) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser("check", help="validate an agent and try the examples of its tools")
    parser.add_argument("target", metavar="PATH_OR_MODULE[:NAME]", help="a MainLoop, PromptTemplate or Prompt")
    parser.add_argument("--request", metavar="JSON", help="the request or params to render it with; - reads it")
    parser.add_argument(
        "--effects",
        action="store_true",
        help="also run examples of tools with an IdempotencyConfig, whose effects no transaction takes back",
    )
    parser.add_argument("--verbose", action="store_true", help="show what WINK logs, with tracebacks of handlers")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check everything; 1 when something is wrong."""
    from ...errors import PromptRenderError, WinkError  # noqa: PLC0415 - see `main.build_parser`
    from ..examples import tried  # noqa: PLC0415
    from ..loading import load, prompt_and_session  # noqa: PLC0415
    from ..requests import read_request  # noqa: PLC0415

    loaded = load(arguments.target)
    prompt, session = prompt_and_session(loaded, read_request(arguments.request))
    show(f"ok      {loaded.name}: {_number(len(prompt.sections), 'section')}, prompt {prompt.name!r}")
    wrong = 0
    try:
        prompt.install(session)
        text = prompt.render(session=session).text
        show(f"ok      renders: {len(text):,} characters, {_number(len(prompt.tools(session=session)), 'tool')}")
    except PromptRenderError as error:
        if arguments.request is None and error.dataclass_type is not None:
            show(f"skipped rendering: {error} (give params with --request)")
        else:
            wrong += 1
            show(f"WRONG   rendering: {error}")
    except WinkError as error:
        wrong += 1
        show(f"WRONG   rendering: {error}")
    not_run: list[str] = []
    for verdict in tried(prompt, effects=arguments.effects):
        wrong += verdict.state == "WRONG"
        if verdict.state == "skipped":
            not_run.append(verdict.tool)
        show(f"{verdict.state:7} {verdict.tool}: {verdict.text}")
    show(f"{wrong} wrong" if wrong else "all is well", end="")
    if not_run:
        names = ", ".join(dict.fromkeys(not_run))
        show(f"; {_number(len(not_run), 'example')} of {names} not run (--effects runs them, for real)", end="")
    show()
    return 1 if wrong else 0


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
