"""Rendering is quick and grows with the sections, not faster."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Section, Tool, ToolContext
from weakincentives.session import Session

from .harness import Row, interleave, ratio


@dataclass(frozen=True)
class Params:
    name: str = "deploy"
    limit: int = 3


class Allow:
    def check(self, tool_name: str, params: object, context: ToolContext) -> None:
        return None


def _template(sections: int, tools: int) -> PromptTemplate[Any]:
    """Top-level sections of nine children each; every second section has a tool until they are used up."""
    made = [Tool[None, str](name=f"tool_{number}", description="A tool.") for number in range(tools)]
    policy = Allow()

    def section(number: int, children: list[Section[Any]]) -> Section[Any]:
        own = [made[number // 2]] if number % 2 == 0 and number // 2 < tools else []
        return MarkdownSection[Params](
            title=f"Section {number}",
            template="Use ${name} when needed, at most ${limit} times.\n" + "Guidance. " * 20,
            enabled=lambda params: params.limit > 0,
            tools=own,
            policies=[policy],
            children=children,
        )

    tree = [section(top, [section(top + below, []) for below in range(1, 10)]) for top in range(0, sections, 10)]
    return PromptTemplate[Any](ns="bench", key="prompt", sections=tree)


def run() -> Iterator[Row]:
    session = Session()
    large, small = Prompt(_template(200, 100)).bind(Params()), Prompt(_template(100, 50)).bind(Params())
    assert len(large.render().tools) == 100
    (samples,) = interleave(lambda: large.render(session=session))
    yield Row("render 200 sections, 100 tools", statistics.median(samples) * 1e3, 20, "ms")
    yield ratio(
        "render 200 sections",
        lambda: large.render(session=session),
        lambda: small.render(session=session),
        2.4,
        note="against 100 sections",
    )
    yield ratio("build a template of 200 sections", lambda: _template(200, 0), lambda: _template(100, 0), 2.4,
                note="against 100 sections")  # fmt: skip
