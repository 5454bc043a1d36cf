"""Files below one root, that can be taken back: in memory, on disk, and views of both.

`HostFilesystem` is found on first use: undo on disk is half of this package, and many programs keep files in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .memory.filesystem import InMemoryFilesystem
from .protocol import FileChanges, FileKind, FileStat, Filesystem, GrepMatch
from .views import GuardedFilesystem, ReadOnlyFilesystem, SubFilesystem

if TYPE_CHECKING:
    from .disk.filesystem import HostFilesystem


def __getattr__(name: str) -> Any:
    if name != "HostFilesystem":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .disk.filesystem import HostFilesystem  # noqa: PLC0415 - see above

    globals()[name] = HostFilesystem
    return HostFilesystem


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
