"""Which trace a command shows."""

from __future__ import annotations

import sys
from typing import TextIO

from .trace import JsonTrace, PlainTrace, Trace


def make_trace(*, plain: bool, as_json: bool, stream: TextIO | None = None) -> Trace:
    """JSON or plain lines when asked for; `rich` on a terminal that has its signs, where it is installed."""
    target = sys.stdout if stream is None else stream
    if as_json:
        return JsonTrace(target)
    if not plain and target.isatty() and (target.encoding or "").lower().startswith("utf"):
        try:
            from .rich_trace import RichTrace  # noqa: PLC0415 - an extra
        except ImportError:
            return PlainTrace(target)
        return RichTrace(target)
    return PlainTrace(target)


__all__ = ["make_trace"]
