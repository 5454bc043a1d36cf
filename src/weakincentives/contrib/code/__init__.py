"""What suites that evaluate code share: the protocol of a backend, its limits, the files that code sees."""

from .files import CodeFiles
from .protocol import EvalBackend, EvalFiles, EvalLimits, EvalResult

__all__ = ["CodeFiles", "EvalBackend", "EvalFiles", "EvalLimits", "EvalResult"]
