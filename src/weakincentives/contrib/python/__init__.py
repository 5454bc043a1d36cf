"""The safe Python suite: code that a model wrote, run by Monty."""

from .monty import MontyBackend
from .section import PythonConfig, PythonSection

__all__ = ["MontyBackend", "PythonConfig", "PythonSection"]
