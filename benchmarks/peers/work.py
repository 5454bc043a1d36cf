"""The work that every framework does: the model asks for one tool again and again, then says that it is done.

Imported in environments that have no WINK, so it imports only the standard library.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

Conversation: TypeAlias = Callable[[], Awaitable[object]] | Callable[[], object]
"""Runs one conversation from its first word to its last, and returns all that is kept of it.

With an async handler it is awaited; with a synchronous one it is called, and uses the framework's synchronous way in.
"""

NAME = "find"
DESCRIPTION = "Find lines in files."
QUESTION = "Where are the functions?"
DONE = "Done."
ARGUMENTS: dict[str, Any] = {
    "path": "src/app/main.py", "pattern": "def \\w+", "mode": "regex", "span": {"start": 1, "end": 400},
    "globs": ["*.py", "*.pyi"], "limit": 25,
}  # fmt: skip
TEXT = json.dumps(ARGUMENTS)
KEYS = frozenset(ARGUMENTS)


def find(
    path: str, pattern: str, mode: Literal["regex", "literal", "glob"], span: dict[str, int], globs: list[str],
    limit: int,
) -> str:  # fmt: skip
    """Find lines in files.

    Args:
        path: Where to begin.
        pattern: What to look for.
        mode: How the pattern is written.
        span: The first and the last line.
        globs: Which files.
        limit: How many lines at most.
    """
    return f"{path}:{limit}"


async def find_async(
    path: str, pattern: str, mode: Literal["regex", "literal", "glob"], span: dict[str, int], globs: list[str],
    limit: int,
) -> str:  # fmt: skip
    """Find lines in files.

    Args:
        path: Where to begin.
        pattern: What to look for.
        mode: How the pattern is written.
        span: The first and the last line.
        globs: Which files.
        limit: How many lines at most.
    """
    return f"{path}:{limit}"


find_async.__name__ = NAME


def by_hand() -> str:
    """The floor: the cheapest honest code that reads and checks the arguments and calls the handler."""
    data = json.loads(TEXT)
    for key in data:
        if key not in KEYS:
            raise ValueError(key)
    if type(data["path"]) is not str or type(data["pattern"]) is not str:
        raise TypeError
    if data["mode"] not in ("regex", "literal", "glob"):
        raise TypeError
    span = data["span"]
    if type(span["start"]) is not int or type(span["end"]) is not int:
        raise TypeError
    if not all(type(item) is str for item in data["globs"]) or type(data["limit"]) is not int:
        raise TypeError
    return find(**data)
