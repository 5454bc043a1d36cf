"""`wink demo`: what a model gets to read when it calls a tool well, and badly."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass


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


def register(subcommands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the subcommand."""
    parser = subcommands.add_parser("demo", help="show typed arguments being checked, offline")
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """Check good and bad calls; 1 when one of them is not answered as it should be."""
    from ...errors import ParseError  # noqa: PLC0415 - heavy, see main.build_parser
    from ...serde import error_text, parse, schema  # noqa: PLC0415

    print("What the model is told about search_files:\n")
    print(json.dumps(schema(SearchParams), indent=2))

    print("\nCalls that reach the handler, typed:\n")
    for text in GOOD:
        print(f"  {text}\n    -> {parse(SearchParams, text)}\n")

    print("Calls that do not, and what the model reads instead:\n")
    for title, text in BAD:
        try:
            value = parse(SearchParams, text)
        except ParseError as error:
            answer = json.loads(error_text(error, "tool 'search_files'"))
            print(f"  {text}    ({title})\n    {answer['error']}")
            for path, problem in answer["details"].items():
                print(f"      {path}: {problem}")
            print()
        else:
            print(f"wink demo: {text} should have been refused but gave {value!r}")
            return 1
    print(f"{len(GOOD)} calls accepted, {len(BAD)} refused before any handler ran.")
    print("Next: read docs/, or run `make test`.")
    return 0
