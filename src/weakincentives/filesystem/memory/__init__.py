"""Files in memory: a persistent tree whose root is the whole state."""

from .filesystem import InMemoryFilesystem

__all__ = ["InMemoryFilesystem"]
