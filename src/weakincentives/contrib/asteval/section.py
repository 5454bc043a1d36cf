"""The suite for calculations: one tool that evaluates simple code with asteval, in a worker process."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...prompt.section import suite_config
from ...session import SessionProtocol
from ..code.protocol import EvalLimits
from ..code.tool import CodeSection
from .backend import AstevalBackend, Bubblewrap, Confined


@dataclass(frozen=True, slots=True)
class AstevalConfig:
    """How code is evaluated.

    Attributes:
        limits: what one evaluation may use. There is no way to sleep, so `limits.sleep` is never used.
        bubblewrap: "available" uses it where it works, "required" evaluates nothing without it, "never" leaves it out.
        confinement: "required" evaluates nothing unless bubblewrap and a filter of system calls both hold the code.
        max_workers: evaluations at the same time.
    """

    limits: EvalLimits = field(default_factory=EvalLimits)
    bubblewrap: Bubblewrap = "available"
    confinement: Confined = "available"
    max_workers: int = 4


class AstevalSection(CodeSection):
    """A calculator for a model: numbers, text and small data, in asteval's part of Python.

    asteval alone is not a security boundary: what holds the code is the worker process around it. `PythonSection` knows
    more Python, is faster, and is the better default.

    The code sees its inputs and the files it names, nothing else. Files come from the prompt's `Filesystem` and are
    written there only when the code succeeded, so that a failed call leaves no trace.

    Attributes:
        backend: what evaluates the code. It starts with the first call and is the section's: `close` ends it, and so
            does the end of the section. `backend.confinement` says what holds the code.

    Args:
        session: as for every suite; the evaluator keeps nothing in it.
        tool_prefix: put before the name of the tool.

    A missing extra shows with the first call, as an `ImportError` that names it; so does confinement that is required
    and does not work, as a `RuntimeError`.

    >>> from weakincentives.prompt import ToolContext
    >>> with AstevalSection() as calculator:
    ...     [tool] = calculator.tools
    ...     result = tool.call(tool.parse({"code": "sqrt(sum(prices))", "inputs": {"prices": [4, 5]}}), ToolContext())
    >>> print(result.render())
    OK
    Value: 3.0
    """

    def __init__(
        self,
        session: SessionProtocol | None = None,
        config: AstevalConfig | None = None,
        *,
        accepts_overrides: bool = False,
        key: str = "asteval",
        title: str = "Calculator",
        tool_prefix: str = "",
    ) -> None:
        config = suite_config(AstevalConfig, session, config)
        self.backend: AstevalBackend = AstevalBackend(
            bubblewrap=config.bubblewrap, confinement=config.confinement, max_workers=config.max_workers
        )
        super().__init__(
            self.backend,
            config.limits,
            accepts_overrides=accepts_overrides,
            key=key,
            title=title,
            tool_prefix=tool_prefix,
        )
