"""The results as a plot: CPU time of a turn, on a logarithmic scale, for conversations of three lengths.

Written by hand as SVG, so that nothing needs to be installed. The colours follow the reader's light or dark setting,
and it has a ground of its own, so that it is readable where that setting is not known.
"""

from __future__ import annotations

import math
from html import escape

from .table import Results

LENGTHS = {"turns-10": "10 turns", "turns-100": "100 turns", "turns-1000": "1,000 turns"}
SUBTITLE = (
    "multiples of json.loads, checks by hand and the same handler; logarithmic; each from above: 10, 100, 1,000 turns"
)
LEFT, RIGHT, TOP, ROW, BAR = 190, 690, 66, 54, 13
STYLE = """\
    text { font: 13px -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
    .ground { fill: #ffffff; stroke: #d1d9e0; }
    .small { font-size: 11px; fill: #59636e; }
    .title { font-size: 15px; font-weight: 600; }
    .line { stroke: #d1d9e0; stroke-width: 1; }
    .bar0 { fill: #9ec5fe; } .bar1 { fill: #4a90e2; } .bar2 { fill: #1b4f9c; }
    .own .bar0 { fill: #8fd9a8; } .own .bar1 { fill: #2da44e; } .own .bar2 { fill: #116329; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; } .small { fill: #9198a1; } .line { stroke: #3d444d; }
      .ground { fill: #0d1117; stroke: #3d444d; }
      .bar0 { fill: #1f4b8e; } .bar1 { fill: #4a90e2; } .bar2 { fill: #a5cdff; }
      .own .bar0 { fill: #196c2e; } .own .bar1 { fill: #2ea043; } .own .bar2 { fill: #7ee787; }
    }"""


def draw(results: Results) -> str:
    """An SVG document. Frameworks without a single figure are left out."""
    shown = {name: cells for name, cells in results.items() if any(_number(cells.get(what)) for what in LENGTHS)}
    largest = max(_number(cells.get(what)) for cells in shown.values() for what in LENGTHS)
    decades = max(1, math.ceil(math.log10(largest)))
    height = TOP + ROW * len(shown) + 36

    def x(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * math.log10(max(value, 1.0)) / decades

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" width="760" height="{height}" role="img">',
        "<title>CPU time of one turn with one tool call, in eight frameworks</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="759" height="{height - 1}" rx="6"/>',
        '<text class="title" x="20" y="26">CPU time of a turn with one tool call (shorter is better)</text>',
        f'<text class="small" x="20" y="46">{escape(SUBTITLE)}</text>',
    ]
    bottom = TOP + ROW * len(shown)
    for decade in range(decades + 1):
        at = x(10**decade)
        parts.append(f'<line class="line" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}"/>')
        parts.append(f'<text class="small" x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{10**decade:,} x</text>')
    for row, (name, cells) in enumerate(shown.items()):
        top = TOP + ROW * row + 6
        own = ' class="own"' if name == "WINK" else ""
        title = escape(name.replace("==", " "))
        parts.append(f'<g{own}><text x="{LEFT - 10}" y="{top + 26}" text-anchor="end">{title}</text>')
        for index, what in enumerate(LENGTHS):
            y = top + index * (BAR + 1)
            value = _number(cells.get(what))
            if value:
                parts.append(
                    f'<rect class="bar{index}" x="{LEFT}" y="{y}" width="{x(value) - LEFT:.1f}" height="{BAR}"/>'
                )
            label = f"{value:,.0f} x" if value else str(cells.get(what)).replace(">", "did not finish in")
            parts.append(f'<text class="small" x="{x(value) + 5:.1f}" y="{y + 10}">{escape(label)}</text>')
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _number(cell: float | str | None) -> float:
    return cell if isinstance(cell, (int, float)) else 0.0
