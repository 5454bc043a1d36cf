"""What a backend that evaluates untrusted code must do.

The asteval worker is sent this module as source text, so it imports nothing but the standard library and `clock`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, runtime_checkable

from ...clock import checked_seconds, is_finite_number


@dataclass(frozen=True, slots=True)
class EvalLimits:
    """How much one evaluation may use. Every limit is always set; ValueError for one that is not a positive number.

    Attributes:
        seconds: of running time.
        memory: bytes the code may hold.
        recursion: depth of calls.
        output: characters of printed text that are kept, and of the value; the rest is dropped and said to be.
        sleep: seconds it may spend sleeping, all sleeps together.
        file_bytes: of all files it reads, and of all it writes.
        host_calls: how often it may reach for a file.
    """

    seconds: float = 2.0
    memory: int = 64 * 1024 * 1024
    recursion: int = 200
    output: int = 20_000
    sleep: float = 0.5
    file_bytes: int = 8 * 1024 * 1024
    host_calls: int = 1000

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not is_finite_number(value) or value < 0 or (value == 0 and item.name != "sleep"):
                raise ValueError(f"EvalLimits {item.name} must be a finite, positive number, got {value!r}.")
        object.__setattr__(self, "seconds", checked_seconds("EvalLimits seconds", self.seconds))
        object.__setattr__(self, "sleep", checked_seconds("EvalLimits sleep", self.sleep, zero=True))

    def within(self, seconds: float) -> EvalLimits:
        """These limits, with no more time than that."""
        if seconds >= self.seconds + self.sleep:
            return self
        running = max(0.01, min(self.seconds, seconds))
        return replace(self, seconds=running, sleep=max(0.0, min(self.sleep, seconds - running)))


@dataclass(frozen=True, slots=True)
class EvalFiles:
    """What the code finds, by canonical path, and which paths it may write. Everything else does not exist for it."""

    contents: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    writable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EvalResult:
    """The result of an evaluation.

    Attributes:
        value: of the last expression, in plain Python types; None when there is none.
        stdout: what was printed, standard error included, in the order it came.
        error: why it failed, with the line it failed at, in words for a model; None when it succeeded.
        truncated: whether something printed was dropped.
        duration: seconds it took.
        written: the files it wrote, whole, by canonical path; empty when it failed.
    """

    value: Any = None
    stdout: str = ""
    error: str | None = None
    truncated: bool = False
    duration: float = 0.0
    written: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


@runtime_checkable
class EvalBackend(Protocol):
    """Runs code where it can do no harm. `weakincentives.testing.EvalEscapes` is what every one must survive.

    Safe to call from any thread. Whatever the code does: the call ends within the limits and a second, it returns, the
    process it is called from lives, and nothing but the `EvalResult` gets out. Derive from this class: `begin` and
    `close` have defaults.
    """

    @property
    @abstractmethod
    def guide(self) -> str:
        """What a model must know to write code for it: what is there, and what is missing. A few lines of text."""
        ...

    @abstractmethod
    def evaluate(self, code: str, inputs: Mapping[str, Any], files: EvalFiles, limits: EvalLimits) -> EvalResult:
        """Run the code with the inputs as its global names. What the code does wrong is in the result's `error`.

        Raises only when the backend itself cannot work: `ImportError` when something must be installed first.
        """
        ...

    def begin(self) -> EvalBackend:
        """The backend for one call, asked for before the call's files are read.

        One whose code reaches the files by itself returns a backend that starts no code once the call is over.
        """
        return self

    def close(self) -> None:
        """End what it started; calling it twice is fine. It starts again on its next use. By default, do nothing."""
