"""`wink demo`: an agent at work, offline: refused, rolled back, successful, and verified at the end."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..models import add_model_arguments, check_base_url
from ..output import Subcommands, show, show_error

if TYPE_CHECKING:
    from contextlib import ExitStack

    from ..._demo.play import OnEvent, Played
    from ..trace import Trace

SUBJECTS = {
    "maintenance": "An agent repairs a broken project",
    "arguments": "Arguments are checked before the handler",
    "deployment": "The prompt is the agent: sections carry instructions, tools and policies",
}

_INTRO = """\
A maintenance agent gets a broken Python project, in a folder of its own. It makes the mistakes
that models make. Watch what is refused, what is undone, and what stays."""

_ERRAND = """\
A model on this machine writes a shopping list. A small one may forget, repeat or confuse things:
watch that the list and the log agree all the same."""

_NEXT = (
    "What to try next:",
    "  wink demo --model openai:NAME           # the same job with a real model; also anthropic:NAME, litellm:NAME",
    "  wink demo --model local                 # a small model on this machine; first: wink model fetch",
    "  wink demo arguments                     # what a model reads when its arguments are wrong",
    "  wink demo deployment                    # a prompt with its tools and policies",
    "  wink run AGENT.py --model openai:NAME   # your own agent; wink check and wink tools look at it",
    "  docs/README.md                          # one page a noun",
)


def register(subcommands: Subcommands) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser("demo", help="watch an agent repair a project, offline")
    parser.add_argument("subject", nargs="?", choices=list(SUBJECTS), default="maintenance", help="what to show")
    add_model_arguments(parser, default="scripted")
    parser.add_argument("--plain", action="store_true", help="no colours")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--svg", metavar="FILE", help="draw the trace into a picture instead")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show one subject; 1 when a demonstration does not end as it should."""
    check_base_url(arguments.model, arguments.base_url)
    if arguments.subject != "maintenance":
        return _show(arguments.subject)
    from ..rich_trace import make_trace  # noqa: PLC0415 - see `main.build_parser`

    if arguments.svg:
        return _draw(arguments)
    trace = make_trace(plain=arguments.plain, as_json=arguments.json)
    return _maintain(arguments, trace, _NEXT)


def _show(subject: str) -> int:
    title = SUBJECTS[subject]
    show(f"{title}\n{'=' * len(title)}\n")
    try:
        show(import_module(f"weakincentives._demo.{subject}").show())
    except AssertionError as error:
        show(f"wink demo: this should not happen: {error}")
        return 1
    show("\nNext: `wink demo`, or read docs/.")
    return 0


def _maintain(arguments: argparse.Namespace, trace: Trace, closing: Iterable[str]) -> int:
    from contextlib import ExitStack  # noqa: PLC0415
    from time import monotonic  # noqa: PLC0415

    with ExitStack() as stack:
        title, intro, play = _job(arguments.model, arguments.base_url, stack)
        began = monotonic()
        trace.heading(title, intro)
        played = play(trace.event)
        trace.usage(played.usage, played.turns, monotonic() - began)
    trace.checks("Verified on the disk, in the session and in the log", played.checks)
    if played.error is not None:
        show_error(f"wink demo: {played.error}")
    trace.closing(closing if played.ok else ["The demonstration did not end as it should."])
    return 0 if played.ok else 1


def _job(model: str, base_url: str | None, stack: ExitStack) -> tuple[str, str, Callable[[OnEvent], Played]]:
    """What is shown with the model: small ones get an errand."""
    from ..._demo import errand  # noqa: PLC0415
    from ..._demo import play as maintenance  # noqa: PLC0415
    from ..models import make_adapter  # noqa: PLC0415

    title = f"WINK: {SUBJECTS['maintenance'].lower()}"
    if model == "scripted":
        return title, _INTRO, lambda on_event: maintenance.play(None, on_event)
    small = model.partition(":")[0] == "local"
    adapter = make_adapter(
        model, base_url=base_url, **({"max_calls": 4, "max_turns": errand.MAX_TURNS} if small else {})
    )
    if hasattr(adapter, "close"):
        stack.callback(adapter.close)
    if small:
        return "WINK: a small model runs an errand", _ERRAND, lambda on_event: errand.play(adapter, on_event)
    return title, _INTRO, lambda on_event: maintenance.play(adapter, on_event)


def _draw(arguments: argparse.Namespace) -> int:
    from ..usage import WrongUseError  # noqa: PLC0415

    try:
        from ..rich_trace import RichTrace  # noqa: PLC0415
    except ImportError:
        raise WrongUseError("--svg needs rich. Install it: pip install 'weakincentives[cli]'") from None
    if not Path(arguments.svg).parent.is_dir() or Path(arguments.svg).is_dir():
        raise WrongUseError(f"--svg: {arguments.svg} cannot be written; name a file in a directory that exists")
    trace = RichTrace(recording=True)
    code = _maintain(arguments, trace, ())
    Path(arguments.svg).write_text(trace.svg("wink demo"), encoding="utf-8")
    show(f"wink demo: drawn into {arguments.svg}")
    return code
