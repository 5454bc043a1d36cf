"""Ids for events: one for every call, so they must cost next to nothing."""

from __future__ import annotations

import os
from itertools import count
from uuid import uuid4

next_number = count().__next__
"""The number of an event within its process."""
process = ""
"""The random part of the ids of this process; to be read here, since it changes after a fork."""


def _renew() -> None:
    global process  # noqa: PLW0603 - a process has one
    process = uuid4().hex


def event_id_of(process: str, number: int) -> str:
    """The id of that event of that process."""
    return f"{process}-{number:x}"


def new_event_id() -> str:
    """A new id, unique across processes: a random part for each process and a number within it."""
    return event_id_of(process, next_number())


_renew()
os.register_at_fork(after_in_child=_renew)

__all__ = ["event_id_of", "new_event_id", "next_number"]
