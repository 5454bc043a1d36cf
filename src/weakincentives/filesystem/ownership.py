"""Which changes belong to a call and are undone with it, and which writes of other calls are refused.

While a call is open, other calls may write to the same files as long as the paths differ. A write at, above or below
a path that the call changed is refused at once, so the call's own changes can always be undone alone, newest first.
"""

from __future__ import annotations

from typing import Any, final

from ..errors import ConflictError
from ..fence import Owner


def covers(owner: Owner | None, writer: Owner | None, *, for_all: bool = False) -> bool:
    """Whether what the writer does belongs to a savepoint of that owner.

    A savepoint without an owner was opened by hand, and everything is its own. `for_all` adds writes outside of calls.
    """
    if owner is None or writer is owner:
        return True
    return for_all if writer is None else writer.inside(owner)


@final
class TouchedPaths:
    """A set of canonical paths that can be asked whether another one is among, above or below them.

    `seen` is up to which change they were collected.
    """

    __slots__ = ("_above", "_paths", "seen")

    def __init__(self, seen: int) -> None:
        self._paths: set[str] = set()
        self._above: set[str] = set()
        self.seen: int = seen

    def add(self, path: str) -> None:
        """One more path."""
        self._paths.add(path)
        while (path := path.rpartition("/")[0]) and path not in self._above:
            self._above.add(path)

    def overlaps(self, path: str) -> bool:
        """Whether the path is one of them, or holds one of them, or is inside one of them."""
        if path in self._paths or path in self._above:
            return True
        while path := path.rpartition("/")[0]:
            if path in self._paths:
                return True
        return False


class UndoMark:
    """A position in the list of changes that can be restored.

    A savepoint recovers after a crash; a bare mark ends with its process. `owner` is whose changes are undone, with
    `for_all` those outside of calls as well; None stands for all changes. `manifest` and `logged`, the
    marks of calls that were open when it was made and that no scan is needed for, are only set by `watch="scan"`.
    `touched` holds the paths of its changes; it is only made when another call writes meanwhile.
    """

    __slots__ = ("alive", "for_all", "logged", "manifest", "note", "owner", "position", "savepoint", "touched")

    manifest: Any
    logged: tuple[UndoMark, ...]
    note: Any

    def __init__(
        self, position: int, savepoint: bool = False, owner: Owner | None = None, for_all: bool = False
    ) -> None:
        self.position: int = position
        self.savepoint: bool = savepoint
        self.owner: Owner | None = owner
        self.for_all: bool = for_all
        self.alive: bool = True
        self.touched: TouchedPaths | None = None

    def covers(self, writer: Owner | None) -> bool:
        """Whether a change of that writer is undone with it."""
        if covers(self.owner, writer, for_all=self.for_all):
            return True
        # A bare mark that outlives the call it was made in belongs to no call any more.
        return not self.savepoint and self.owner is not None and self.owner.holder is None


def conflict(path: str, owner: Owner | None) -> ConflictError:
    """The refusal of a write to a path that the owner's call has changed."""
    who = holder_name(None if owner is None else owner.holder)
    return ConflictError(
        f"{path!a} was changed by {who} that is still open, so it was not written. Wait until that is over."
    )


def holder_name(holder: Any) -> str:
    """What error messages call the savepoint that stands in the way."""
    tool = getattr(getattr(holder, "call", None), "tool_name", None)
    return f"the call of the tool {tool!r}" if tool else "a transaction"
