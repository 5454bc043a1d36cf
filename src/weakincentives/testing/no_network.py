"""Code that must not reach the network: connecting raises there, and nowhere else."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, cast

from ..interrupts import Lock

_is_closed: ContextVar[bool] = ContextVar("network_closed", default=False)
_PLACES: tuple[tuple[Any, str], ...] = (
    (socket, "getaddrinfo"), (socket.socket, "connect"), (socket.socket, "connect_ex"), (socket.socket, "sendto"),
)  # fmt: skip
_lock = Lock()
_blocks = 0
_in_front: list[tuple[Any, str, Any, Any]] = []
"""What we have put there while blocks are open: where, our function, and what the place itself had before."""


@contextmanager
def network(*, closed: bool) -> Generator[None]:
    """Close the network for what runs inside, in this thread and in those that inherit its context; or open it again.

    `PermissionError` for a connection that is tried with Python's sockets. Libraries that connect in C, and processes
    that are started inside, are not reached.
    """
    # Not by an audit hook. It would stay as long as the process, and under a tracer, such as coverage's, threads that
    # start at the same time would fail: Python 3.11 asks audit hooks while it installs the tracer of one of them.
    _count(+1)
    token = _is_closed.set(closed)
    try:
        yield
    finally:
        _is_closed.reset(token)
        _count(-1)


def _count(more: int) -> None:
    """The first block that is open puts our functions in front of Python's, the last one takes them away."""
    global _blocks  # noqa: PLW0603 - the sockets are the process's, too
    with _lock:
        _blocks += more
        if _blocks == 1 and not _in_front:
            for owner, name in _PLACES:
                ours = _guarded(getattr(owner, name))
                _in_front.append((owner, name, ours, _own(owner, name)))
                setattr(owner, name, ours)
        while _in_front and not _blocks:
            owner, name, ours, before = _in_front.pop()
            if _own(owner, name) is not ours:
                continue  # another library has put its own in front meanwhile, and calls ours
            if before is None:
                delattr(owner, name)  # it is inherited again
            else:
                setattr(owner, name, before)


def _own(owner: Any, name: str) -> Any:
    return cast("dict[str, Any]", vars(owner)).get(name)


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def refuse_or_call(*arguments: Any, **keywords: Any) -> Any:
        if _is_closed.get():
            raise PermissionError(
                "A replay opens no connection. Declare the tool as ToolAnnotations(open_world=True), then it is "
                "answered from the record; or name it in replay(run=...)."
            )
        return function(*arguments, **keywords)

    return refuse_or_call


__all__ = ["network"]
