"""What suites that evaluate code share: the protocol of a backend, its limits, the files that code sees."""

from .asteval import AstevalBackend
from .files import CodeFiles
from .monty import MontyBackend
from .protocol import EvalBackend, EvalFiles, EvalLimits, EvalResult

__all__ = ["AstevalBackend", "CodeFiles", "EvalBackend", "EvalFiles", "EvalLimits", "EvalResult", "MontyBackend"]
