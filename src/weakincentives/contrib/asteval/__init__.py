"""The asteval suite: a calculator with variables, in a worker process with limits."""

from .backend import AstevalBackend
from .section import AstevalConfig, AstevalSection

__all__ = ["AstevalBackend", "AstevalConfig", "AstevalSection"]
