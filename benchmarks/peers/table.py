"""The results as a table."""

from __future__ import annotations

Cell = float | str
"""A number, or a word on why there is none."""
Results = dict[str, dict[str, Cell]]
"""For each framework, what was measured."""

COLUMNS = {
    "sync": "one call, sync",
    "async": "one call, async",
    "turns-10": "a turn of 10",
    "turns-100": "of 100",
    "turns-1000": "of 1,000",
    "together": "64 at once",
    "memory": "bytes kept a turn",
    "import": "import / WINK's",
}
ABOUT = """\
CPU time as a multiple of the floor (`json.loads`, checks by hand, the same handler), for the same scripted model
without a network. "One call" is a whole request: the model asks for one tool, the tool runs, the model answers. "A turn
of 10" is such a request with ten tool calls, divided by ten, in synchronous code. "64 at once" is one of 64 requests
with one call each in one event loop.
Not comparable: only WINK undoes what a failed call has changed and records every call; the others offer other things
(tracing, memory, graphs that can be resumed), some of which run by default and are part of their figures."""


def text(what: str, cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if what == "memory":
        return f"{cell:,.0f}"
    return f"{cell:,.1f} x" if cell < 20 else f"{cell:,.0f} x"


def table(results: Results) -> str:
    """Markdown, one row for each framework, with a word on what is compared."""
    lines = [f"| | {' | '.join(COLUMNS.values())} |", f"|---|{'---:|' * len(COLUMNS)}"]
    for name, cells in results.items():
        lines.append(f"| {name} | {' | '.join(text(what, cells.get(what, '')) for what in COLUMNS)} |")
    return "\n".join([*lines, "", ABOUT])
