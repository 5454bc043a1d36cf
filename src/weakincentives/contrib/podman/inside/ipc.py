"""Semaphores, segments and queues of System V: they belong to no process, so they would outlive a call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_REMOVE = 0
"""IPC_RMID."""


def remove_ipc() -> bool:
    """Remove all that there are in here; whether none is left. Nothing else may be running."""
    found = [(kind, number) for kind in _REMOVERS for number in _numbers(kind)]
    if not found:
        return True
    libc: Any = ctypes.CDLL(None)
    for kind, number in found:
        _REMOVERS[kind](libc, number)
    return not any(_numbers(kind) for kind in _REMOVERS)


_REMOVERS: dict[str, Callable[[Any, int], object]] = {
    "sem": lambda libc, number: libc.semctl(number, 0, _REMOVE),
    "shm": lambda libc, number: libc.shmctl(number, _REMOVE, None),
    "msg": lambda libc, number: libc.msgctl(number, _REMOVE, None),
}


def _numbers(kind: str) -> list[int]:
    """The number of each object of a kind, from a table whose second column it is."""
    try:
        with open(f"/proc/sysvipc/{kind}") as file:
            return [int(line.split()[1]) for line in file.readlines()[1:]]
    except FileNotFoundError:  # a kernel without them
        return []
