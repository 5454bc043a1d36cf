"""The older import path of `contrib.code` and of the backends; it goes with the next release."""

from .asteval import AstevalBackend
from .code import CodeFiles, EvalBackend, EvalFiles, EvalLimits, EvalResult
from .python import MontyBackend

__all__ = ["AstevalBackend", "CodeFiles", "EvalBackend", "EvalFiles", "EvalLimits", "EvalResult", "MontyBackend"]
