"""What a call changed, or what was undone of it, small enough to keep in the log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from ..filesystem import FileChanges
from ..session import SliceChange

_MAX_NAMED = 3


@final
@dataclass(frozen=True, slots=True)
class SliceDelta:
    """One slice that was written to: the name of its type, and how many items more it has because of the call.

    `contended` says that others wrote to it while the call ran; their changes are not counted.
    """

    name: str
    added: int = 0
    contended: bool = False


@final
@dataclass(frozen=True, slots=True)
class Changes:
    """The STATE slices and files of one call; false when there are none.

    >>> undone = Changes((SliceDelta("Plan", 1),), FileChanges(added=("a.txt",), changed=("b.txt",)))
    >>> undone.describe_undone()
    'Nothing was changed: 2 files and the plan were restored.'
    """

    slices: tuple[SliceDelta, ...] = ()
    files: FileChanges = FileChanges()  # noqa: RUF009 - immutable

    @classmethod
    def of(cls, slices: Iterable[SliceChange] = (), files: FileChanges | None = None) -> Changes:
        """What a session and a filesystem say has changed since a snapshot."""
        deltas = tuple([SliceDelta(c.slice_type.__name__, c.added, c.contended) for c in slices]) if slices else ()
        if files is not None and (files.changed or files.added or files.removed):
            return cls(deltas, files)
        return cls(deltas) if deltas else NO_CHANGES

    def __bool__(self) -> bool:
        return bool(self.slices) or bool(self.files)

    def describe(self) -> str:
        """The changes in a few words, such as "2 files and the plan"; empty when there are none."""
        paths = (*self.files.added, *self.files.changed, *self.files.removed)
        directories = sum(path.endswith("/") for path in paths)
        parts = [_count(len(paths) - directories, "file", "files"), _count(directories, "directory", "directories")]
        if len(self.slices) > _MAX_NAMED:
            parts.append(f"{len(self.slices)} slices")
        else:
            parts += [f"the {_words(delta.name)}" for delta in self.slices]
        named = [part for part in parts if part]
        return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)

    def describe_undone(self) -> str:
        """The last line of the reply to a call that was undone."""
        text = self.describe()
        if not text:
            return "Nothing was changed."
        one = " and " not in text and not re.match(r"(?!1 )\d", text)
        kept = " What others wrote there meanwhile was kept." if any(delta.contended for delta in self.slices) else ""
        return f"Nothing was changed: {text} {'was' if one else 'were'} restored.{kept}"


def _count(number: int, one: str, several: str) -> str:
    return "" if number == 0 else f"{number} {one if number == 1 else several}"


def _words(name: str) -> str:
    """`WorkspaceDigest` as "workspace digest"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).replace("_", " ").strip().lower()


NO_CHANGES = Changes()
"""Shared by all calls that changed nothing."""

__all__ = ["NO_CHANGES", "Changes", "SliceDelta"]
