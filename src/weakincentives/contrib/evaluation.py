"""The older import path of `contrib.code` and of the backends; removed in the next release."""

from .asteval import AstevalBackend
from .code import EvalBackend, EvalFiles, EvalLimits, EvalResult
from .code.files import CodeFiles
from .python import MontyBackend

__all__ = ["AstevalBackend", "CodeFiles", "EvalBackend", "EvalFiles", "EvalLimits", "EvalResult", "MontyBackend"]
