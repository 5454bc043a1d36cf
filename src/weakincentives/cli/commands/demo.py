"""`wink demo`: an agent at work, offline: refused, rolled back, successful, and verified at the end."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic

from ..._demo import errand
from ..._demo import play as maintenance
from ...runtime import SqliteRunStore
from .. import models
from ..output import UsageError, show, show_error
from ..trace import Trace
from .run import make_trace

_TITLE = "WINK: an agent repairs a broken project"

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
    "  wink run AGENT.py --model openai:NAME   # your own agent; wink check and wink tools look at it",
    "  docs/README.md                          # in the repository: one page per concept",
)


def run(arguments: argparse.Namespace) -> int:
    """Show it; 1 when it does not end as it should."""
    models.check_base_url(arguments.model, arguments.base_url)
    if arguments.svg:
        return _draw(arguments)
    trace = make_trace(plain=arguments.plain, as_json=arguments.json)
    if arguments.json:
        return _maintain(arguments, trace, ())
    # Among the temporary files, so that it goes by itself: it is for looking at, once the demonstration is over.
    record = Path(mkdtemp(prefix="wink-demo-"), "runs.db")
    return _maintain(arguments, trace, (*_looking(record, arguments.model), *_NEXT), record)


def _looking(record: Path, model: str) -> Iterable[str]:
    where = f"{shlex.quote(str(record))} {maintenance.RUN_ID}"
    yield "This run is on record, among the temporary files. To look at it, step by step:"
    yield f"  wink show {where}"
    if model == "scripted":  # whose steps are known
        yield f"  wink show {where} 15     # what was rolled back"
        yield f"  wink diff {where} 14 24  # the repair"
    yield ""


def _maintain(arguments: argparse.Namespace, trace: Trace, closing: Iterable[str], record: Path | None = None) -> int:
    with ExitStack() as stack:
        store = None if record is None else stack.enter_context(SqliteRunStore(record))
        title, intro, play = _job(arguments.model, arguments.base_url, stack, store)
        began = monotonic()
        trace.heading(title, intro)
        played = play(trace.event)
        trace.usage(played.usage, played.turns, monotonic() - began)
    trace.checks("Verified on the disk, in the session and in the log", played.checks)
    if played.error is not None:
        show_error(f"wink demo: {played.error}")
    trace.closing(closing if played.ok else ["The demonstration did not end as it should."])
    return 0 if played.ok else 1


def _job(
    model: str, base_url: str | None, stack: ExitStack, record: SqliteRunStore | None
) -> tuple[str, str, Callable[[maintenance.OnEvent], maintenance.Played]]:
    """What is shown with the model: small ones get an errand."""
    if model == "scripted":
        return _TITLE, _INTRO, lambda on_event: maintenance.play(None, on_event, record=record)
    small = model.partition(":")[0] == "local"
    adapter = models.make_adapter(
        model, base_url=base_url, **({"max_calls": 4, "max_turns": errand.MAX_TURNS} if small else {})
    )
    if hasattr(adapter, "close"):
        stack.callback(adapter.close)
    if small:
        return (
            "WINK: a small model runs an errand",
            _ERRAND,
            lambda on_event: errand.play(adapter, on_event, record=record),
        )
    return _TITLE, _INTRO, lambda on_event: maintenance.play(adapter, on_event, record=record)


def _draw(arguments: argparse.Namespace) -> int:
    try:
        from ..rich_trace import RichTrace  # noqa: PLC0415
    except ImportError:
        raise UsageError("--svg needs rich. Install it: pip install 'weakincentives[cli]'") from None
    if not Path(arguments.svg).parent.is_dir() or Path(arguments.svg).is_dir():
        raise UsageError(f"--svg: {arguments.svg} cannot be written; name a file in a directory that exists")
    trace = RichTrace(recording=True)
    code = _maintain(arguments, trace, ())
    Path(arguments.svg).write_text(trace.svg("wink demo"), encoding="utf-8")
    show(f"wink demo: drawn into {arguments.svg}")
    return code
