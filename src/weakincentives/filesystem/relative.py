"""Paths as somebody sees them for whom a directory is the root."""

from __future__ import annotations

from typing import final

from .paths import ROOT, is_below


def relative(path: str, base: str) -> str:
    """A canonical path at or below `base`, from there on."""
    if base == ROOT:
        return path
    return ROOT if path == base else path[len(base) + 1 :]


@final
class RelativeErrors:
    """To be entered around what is asked of the filesystem that the directory is in: errors name paths from there on.

    Holds nothing else, and may be entered any number of times.
    """

    __slots__ = ("_base",)

    def __init__(self, base: str) -> None:
        self._base = base

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and isinstance(error.filename, str) and is_below(error.filename, self._base):
            error.filename = relative(error.filename, self._base)


__all__ = ["RelativeErrors", "relative"]
