"""What suites that evaluate code share: the protocol of a backend, its limits, the files that code sees."""

from ...deprecation import FormerNames, former_names
from .protocol import EvalBackend, EvalFiles, EvalLimits, EvalResult

__getattr__: FormerNames = former_names(__name__, {"CodeFiles": "contrib.code.files"})

__all__ = ["EvalBackend", "EvalFiles", "EvalLimits", "EvalResult"]
