"""Arguments checked before any handler: what a model reads when it calls a tool well, and badly."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..errors import ParseError
from ..serde import error_text, parse, schema


@dataclass(slots=True, frozen=True)
class SearchParams:
    """Parameters for searching files."""

    query: str
    """Search query (required)."""

    limit: int = 10
    """Maximum results to return (1-100)."""

    case_sensitive: bool = False
    """Whether search is case-sensitive."""

    file_types: tuple[str, ...] = ()
    """File extensions to filter (e.g., ('py', 'md'))."""


GOOD = (
    '{"query": "rollback"}',
    '{"query": "rollback", "limit": 5, "file_types": ["py", "md"]}',
)
BAD = (
    ("a number in quotes", '{"query": "rollback", "limit": "10"}'),
    ("four mistakes, all reported", '{"limit": 2.5, "case_sensitive": "true", "file_types": ["py", 7]}'),
    ("a name that is almost right", '{"query": "rollback", "limt": 5}'),
    ("JSON that stops in the middle", '{"query": "roll'),
    ("not an object", '["rollback"]'),
)


def show() -> str:
    """The schema, accepted calls and refusals. AssertionError when a bad call is accepted."""
    lines = ["What the model is told about search_files:", "", json.dumps(schema(SearchParams), indent=2), ""]
    lines += ["Calls that reach the handler, typed:", ""]
    for text in GOOD:
        lines += [f"  {text}", f"    -> {parse(SearchParams, text)}", ""]
    lines += ["Calls that do not, and what the model reads instead:", ""]
    for title, text in BAD:
        answer = json.loads(_refusal(text))
        lines += [f"  {text}    ({title})", f"    {answer['error']}"]
        lines += [f"      {path}: {problem}" for path, problem in answer["details"].items()]
        lines.append("")
    lines.append(f"{len(GOOD)} calls accepted, {len(BAD)} refused before any handler ran.")
    return "\n".join(lines)


def _refusal(text: str) -> str:
    try:
        value = parse(SearchParams, text)
    except ParseError as error:
        return error_text(error, "tool 'search_files'")
    raise AssertionError(f"{text} should have been refused but gave {value!r}")


__all__ = ["show"]
