"""The suite for safe Python: one tool that evaluates untrusted code."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from ...prompt.section import suite_config
from ...session import SessionProtocol
from ..code.protocol import EvalBackend, EvalLimits
from ..code.tool import CodeSection
from .monty import MontyBackend


@dataclass(frozen=True, slots=True)
class PythonConfig:
    """How code is evaluated.

    Attributes:
        limits: what one evaluation may use.
        deterministic: `now` is what every clock shows and `seed` starts `random`, so that the same code with the same
            inputs and files gives the same result. For the default backend; another one has settings of its own.
    """

    limits: EvalLimits = field(default_factory=EvalLimits)
    deterministic: bool = False
    now: datetime = datetime(2025, 1, 1, tzinfo=UTC)
    seed: int = 0

    def backend(self) -> EvalBackend:
        """The default backend with these settings."""
        return MontyBackend(now=self.now, seed=self.seed) if self.deterministic else MontyBackend()


class PythonSection(CodeSection):
    """Python for a model: calculations, data, text; not for programs that need the machine.

    The code sees its inputs and the files it names, nothing else. Files come from the prompt's `Filesystem` and are
    written there only when the code succeeded, so that a failed call leaves no trace.

    Attributes:
        backend: what evaluates the code. The default one starts with the first call and is the section's: `close` ends
            it, and so does the end of the section. One that is handed in stays its owner's.

    Args:
        session: as for every suite; the evaluator keeps nothing in it.
        tool_prefix: put before the name of the tool.

    A missing extra shows with the first call, as an `ImportError` that names it.

    >>> from weakincentives.prompt import ToolContext
    >>> with PythonSection() as python:
    ...     [tool] = python.tools
    ...     result = tool.call(tool.parse({"code": "sum(prices) * 2", "inputs": {"prices": [1, 2]}}), ToolContext())
    >>> print(result.render())
    OK
    Value: 6
    """

    def __init__(
        self,
        session: SessionProtocol | None = None,
        config: PythonConfig | None = None,
        *,
        backend: EvalBackend | None = None,
        accepts_overrides: bool = False,
        key: str = "python",
        title: str = "Python",
        tool_prefix: str = "",
    ) -> None:
        config = suite_config(PythonConfig, session, config)
        self.backend: EvalBackend = config.backend() if backend is None else backend
        super().__init__(
            self.backend,
            config.limits,
            owned=backend is None,
            accepts_overrides=accepts_overrides,
            key=key,
            title=title,
            tool_prefix=tool_prefix,
        )
