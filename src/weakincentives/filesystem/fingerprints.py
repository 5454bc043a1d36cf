"""What changes when a file's content does.

A filesystem that can tell without reading the file again has a method `fingerprint(path)`, which raises as `read_bytes`
does; of any other the content is read. Either way it is the SHA-256 of the content, so that equal content has equal
fingerprints in every filesystem and after a restart, and what was rolled back has the one it had.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from .protocol import Filesystem

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
    digest = sha256()
    for piece in fs.stream(path):
        digest.update(piece)
    return digest.hexdigest()


__all__ = ["fingerprint"]
