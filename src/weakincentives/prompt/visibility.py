"""How much of a section the model sees, and what was opened since.

A section shows itself in full or as a summary. What the model opens is recorded in the session, as STATE: the failed
call that opened a section closes it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import final

from ..session import SessionProtocol
from ..session.reducers import reducer


class SectionVisibility(Enum):
    """Whether a section shows its whole body or only its summary."""

    FULL = "full"
    SUMMARY = "summary"


@final
@dataclass(frozen=True, slots=True)
class SetVisibility:
    """The event that changes how sections are shown, by their dotted paths."""

    section_keys: tuple[str, ...]
    visibility: SectionVisibility = SectionVisibility.FULL


@final
@dataclass(frozen=True, slots=True)
class VisibilityOverrides:
    """The session's word on how sections are shown; it wins over what the sections say themselves.

    >>> shown = VisibilityOverrides().showing(["reference.style"], SectionVisibility.FULL)
    >>> shown.get("reference.style")
    <SectionVisibility.FULL: 'full'>
    >>> shown.get("reference") is None
    True
    """

    entries: tuple[tuple[str, SectionVisibility], ...] = ()

    def get(self, section_key: str) -> SectionVisibility | None:
        """What is said of a section, or None."""
        return dict(self.entries).get(section_key)

    def showing(self, section_keys: Iterable[str], visibility: SectionVisibility) -> VisibilityOverrides:
        """These overrides with the sections shown like that."""
        return VisibilityOverrides(tuple({**dict(self.entries), **dict.fromkeys(section_keys, visibility)}.items()))

    @reducer(on=SetVisibility)
    def on_set_visibility(self, event: SetVisibility) -> VisibilityOverrides:
        """Record it."""
        return self.showing(event.section_keys, event.visibility)


def set_visibility(
    session: SessionProtocol,
    section_keys: Iterable[str],
    visibility: SectionVisibility = SectionVisibility.FULL,
) -> None:
    """Show sections in full, or as summaries, from the next rendering with this session on.

    Paths that name no section have no effect. Restoring an earlier snapshot of the session undoes it.
    """
    session.install(VisibilityOverrides)
    session.dispatch(SetVisibility(tuple(section_keys), visibility))
