"""Files below one root, that can be taken back: in memory, on disk, and views of both."""

from .host import HostFilesystem
from .memory import InMemoryFilesystem
from .protocol import FileChanges, FileKind, FileStat, Filesystem, GrepMatch
from .views import GuardedFilesystem, ReadOnlyFilesystem, SubFilesystem

__all__ = [
    "FileChanges",
    "FileKind",
    "FileStat",
    "Filesystem",
    "GrepMatch",
    "GuardedFilesystem",
    "HostFilesystem",
    "InMemoryFilesystem",
    "ReadOnlyFilesystem",
    "SubFilesystem",
]
