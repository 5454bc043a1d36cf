"""Functions whose annotations name what only type checkers import: unquoted, as one writes it from Python 3.14 on.

Before that Python evaluates annotations at once, so there this module has them as text.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Words:
    """What the handlers take."""

    text: str


_SOURCE = '''
from typing import TYPE_CHECKING

from weakincentives.dbc import ensure, pure, require
from weakincentives.prompt import ToolResult

if TYPE_CHECKING:
    from nowhere import Missing
    from weakincentives.prompt import ToolContext

def plain(params: Words, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok(params.text)

def renamed(params: Words, *, ctx: ToolContext | None) -> ToolResult[str]:
    return ToolResult.ok("no context" if ctx is None else params.text)

def with_more(params: Words, *, context: ToolContext, cache: Missing = None) -> ToolResult[Missing]:
    return ToolResult.ok(params.text)

@require(lambda params: params.text, "text is empty")
@ensure(lambda result: result.success, "failed")
def checked(params: Words, *, context: ToolContext) -> ToolResult[Missing]:
    return ToolResult.ok(params.text)

@pure
def untouched(values: list[Missing], other: Missing = None) -> Missing:
    values.extend(other or ())
    return len(values)

def visible(params: Missing) -> bool:
    return True

def shout(text: str, context: ToolContext) -> str:
    """Say it loudly."""
    return text.upper()

def whisper(text: Missing, context: ToolContext) -> str:
    """Say it quietly."""
    return text.lower()
'''

_EARLIER = "from __future__ import annotations\n" if sys.version_info < (3, 14) else ""
HANDLERS: dict[str, Any] = {"__name__": __name__, "Words": Words}
# Without `dont_inherit` the annotations would be text, since they are in this module.
exec(compile(_EARLIER + _SOURCE, __file__, "exec", dont_inherit=True), HANDLERS)
