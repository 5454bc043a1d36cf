"""Ids for events: one for every call, so they must cost next to nothing."""

from __future__ import annotations

import os
from itertools import count
from uuid import uuid4

_next = count().__next__
_process = ""


def _renew() -> None:
    global _process  # noqa: PLW0603 - a process has one
    _process = uuid4().hex


def new_event_id() -> str:
    """A new id, unique across processes: a random part for each process and a number within it."""
    return f"{_process}-{_next():x}"


_renew()
os.register_at_fork(after_in_child=_renew)

__all__ = ["new_event_id"]
