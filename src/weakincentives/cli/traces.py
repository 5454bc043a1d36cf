"""Which trace a command shows."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from .trace import JsonTrace, PlainTrace, Trace


def make_trace(*, plain: bool, as_json: bool, stream: TextIO | None = None) -> Trace:
    """JSON or plain lines when asked for; `rich` on a terminal that has its signs, where it is installed.

    A non-empty FORCE_COLOR asks for colours where there is no terminal, as in the log of a CI run. NO_COLOR counts
    before it; on a terminal `rich` minds it.
    """
    target = sys.stdout if stream is None else stream
    if as_json:
        return JsonTrace(target)
    if not plain and _in_colour(target):
        try:
            from .rich_trace import RichTrace  # noqa: PLC0415 - an extra
        except ImportError:
            return PlainTrace(target)
        return RichTrace(target)
    return PlainTrace(target)


def _in_colour(target: TextIO) -> bool:
    if os.environ.get("FORCE_COLOR") and not os.environ.get("NO_COLOR"):
        return True
    return target.isatty() and (target.encoding or "").lower().startswith("utf")


__all__ = ["make_trace"]
