"""Which paths and names a recovery may act on, whoever wrote them down: those below the root, and our own."""

from __future__ import annotations

import re
from typing import Any

_image = re.compile(r"image-[0-9a-f]{12}-[0-9]+").fullmatch
_staged = re.compile(r"stage-[0-9a-f]{12}-[0-9]+").fullmatch
_ours = re.compile(r"(?:image|stage|trash)-[0-9a-f]{12}-[0-9]+").fullmatch
_copy = re.compile(r"c[0-9]+").fullmatch


def is_beneath(path: Any) -> bool:
    """Whether it is a path below the root: text, relative, without empty parts, `.`, `..` and NUL.

    >>> is_beneath("src/a.py"), is_beneath("../a.py"), is_beneath("/etc"), is_beneath("")
    (True, False, False, False)
    """
    return isinstance(path, str) and "\0" not in path and not any(part in {"", ".", ".."} for part in path.split("/"))


def is_image(name: Any) -> bool:
    """Whether an image in the vault may have that name."""
    return isinstance(name, str) and _image(name) is not None


def is_staged(name: Any) -> bool:
    """Whether something that was staged in the vault may have that name."""
    return isinstance(name, str) and _staged(name) is not None


def is_ours(name: str) -> bool:
    """Whether we give such names to what we keep in a vault: images, staged files and what is to be removed."""
    return _ours(name) is not None


def is_copy(name: Any) -> bool:
    """Whether a copy in the mirror may have that name."""
    return isinstance(name, str) and _copy(name) is not None


__all__ = ["is_beneath", "is_copy", "is_image", "is_ours", "is_staged"]
