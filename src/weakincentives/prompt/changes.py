"""What a call changed, or what was undone of it, small enough to keep in the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from ..filesystem import FileChanges
from ..session.snapshots import SliceChange

_MAX_NAMED = 3


@final
@dataclass(frozen=True, slots=True)
class SliceDelta:
    """One slice that was written to: the name of its type, and how many items more it has because of the call.

    `contended` says that other code wrote to it while the call ran; those changes are not counted.
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
    'Rolled back: 2 files and the Plan state. Nothing was changed.'
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
        """The changes in a few words, such as "2 files and the Plan state"; empty when there are none."""
        paths = (*self.files.added, *self.files.changed, *self.files.removed)
        directories = sum(path.endswith("/") for path in paths)
        parts = [_count(len(paths) - directories, "file", "files"), _count(directories, "directory", "directories")]
        if len(self.slices) > _MAX_NAMED:
            parts.append(f"{len(self.slices)} slices")
        else:
            names = [delta.name.removesuffix("State") for delta in self.slices]
            parts += [f"the {name} state" if name else "the state" for name in names]
        named = [part for part in parts if part]
        return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)

    def describe_undone(self, *, effect_unknown: bool = False) -> str:
        """The last line of the reply to a call that was undone.

        `effect_unknown` says that something outside may have happened, so that not everything was rolled back.
        """
        text = self.describe()
        if not text:
            return "Nothing was changed."
        contended = any(delta.contended for delta in self.slices)
        kept = " Changes that other code made there meanwhile were kept." if contended else ""
        return f"Rolled back: {text}.{'' if effect_unknown else ' Nothing was changed.'}{kept}"


def _count(number: int, one: str, several: str) -> str:
    return "" if number == 0 else f"{number} {one if number == 1 else several}"


NO_CHANGES = Changes()
"""Shared by all calls that changed nothing."""

__all__ = ["NO_CHANGES", "Changes", "SliceDelta"]
