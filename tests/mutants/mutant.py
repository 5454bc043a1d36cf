"""What a seeded fault is."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One fault: in `file`, `old` (which occurs exactly once) becomes `new`.

    `by` names the tests that notice it, if those are not in the common suite.
    """

    name: str
    file: str
    old: str
    new: str
    by: tuple[str, ...] = ()
