"""The section around the tool that evaluates code: its instructions, and the end of what it started."""

from __future__ import annotations

from typing import Any, Self

from ...prompt import MarkdownSection
from .protocol import EvalBackend, EvalLimits
from .tool import evaluate_python_tool, instructions


class CodeSection(MarkdownSection[Any]):
    """One tool, `evaluate_python`, over a backend.

    Args:
        owned: whether the backend is the section's own, so that `close` ends it.
        tool_prefix: put before the name of the tool.
    """

    def __init__(
        self,
        backend: EvalBackend,
        limits: EvalLimits,
        *,
        owned: bool = True,
        accepts_overrides: bool,
        key: str,
        title: str,
        tool_prefix: str,
    ) -> None:
        self._ends = getattr(backend, "close", None) if owned else None
        super().__init__(
            title=title,
            template=instructions(tool_prefix, backend, limits).replace("$", "$$"),
            key=key,
            tools=[evaluate_python_tool(f"{tool_prefix}evaluate_python", backend, limits, accepts_overrides)],
            accepts_overrides=accepts_overrides,
        )

    def close(self) -> None:
        """End what evaluates the code, if it is the section's own; it starts again when it is used again."""
        if self._ends is not None:
            self._ends()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


__all__ = ["CodeSection"]
