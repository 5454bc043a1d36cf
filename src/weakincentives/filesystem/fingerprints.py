"""What changes when a file's content does.

A filesystem that can tell without reading the file again has a method `fingerprint(path)`, which raises as `read_bytes`
does; of any other the content is read. Either way it is the SHA-256 of the content, so that equal content has equal
fingerprints in every filesystem and after a restart, and what was rolled back has the one it had. A file too large to
be read for that (`MAX_HASHED`) is known by its size and time instead, which a rollback restores as well.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from ..fence import check_wanted
from .protocol import FileStat, Filesystem

MAX_HASHED = 64 << 20
"""Of a larger file nothing is read: a sparse one of 1 TiB takes no room and would take an hour."""
_WHOLE_BYTES = 65536
"""Smaller files are read at once: this is asked at each call that reads or writes."""


def fingerprint(fs: Filesystem, path: str) -> str:
    """The fingerprint of the file at `path`; raises what `Filesystem.read_bytes` raises."""
    known: Any = getattr(fs, "fingerprint", None)
    if known is not None:
        return known(path)
    head = fs.read_bytes(path, limit=_WHOLE_BYTES)
    if len(head) < _WHOLE_BYTES:
        return sha256(head).hexdigest()
    found = fs.stat(path)
    if found.size > MAX_HASHED:
        return fingerprint_of_stat(found)
    digest, length = sha256(), 0
    for piece in fs.stream(path):
        digest.update(piece)
        length += len(piece)
        if length > MAX_HASHED:  # it grows while it is read
            return fingerprint_of_stat(fs.stat(path))
        check_wanted()
    return digest.hexdigest()


def fingerprint_of_stat(found: FileStat) -> str:
    """What tells versions of a file apart without reading it; blind to a change that keeps size and time."""
    return f"stat:{found.size}:{found.modified!r}"


__all__ = ["fingerprint", "fingerprint_of_stat"]
