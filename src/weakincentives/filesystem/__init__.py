"""Files below one root whose changes can be undone: in memory, on disk, and views of both.

`HostFilesystem` is found on first use: undo on disk is half of this package, and many programs keep files in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..deprecation import former_names
from ..lazy_names import FindName, lazy_names
from .memory.filesystem import InMemoryFilesystem
from .protocol import FileChanges, FileKind, FileStat, Filesystem, GrepMatch
from .views import ReadOnlyFilesystem, SubFilesystem

if TYPE_CHECKING:
    from .disk.filesystem import HostFilesystem

__getattr__: FindName = lazy_names(
    __name__,
    {".disk.filesystem": "HostFilesystem"},
    former_names(__name__, {"GuardedFilesystem": "filesystem.views"}, stacklevel=3),
)

__all__ = [
    "FileChanges",
    "FileKind",
    "FileStat",
    "Filesystem",
    "GrepMatch",
    "HostFilesystem",
    "InMemoryFilesystem",
    "ReadOnlyFilesystem",
    "SubFilesystem",
]
