"""Code that must not reach the network: connecting raises there, and nowhere else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, cast

from ..interrupts import Lock

_is_closed: ContextVar[bool] = ContextVar("network_closed", default=False)
_lock = Lock()
_blocks = 0
_in_front: list[tuple[Any, str, Any, Any]] = []
"""What we have put there while blocks are open: where, our function, and what the place itself had before."""


@contextmanager
def network(*, closed: bool) -> Generator[None]:
    """Close the network for what runs inside, and in the threads and jobs of pools that it starts; or open it again.

    `PermissionError` for a connection that is tried with Python's sockets, and for a name that is looked up. Libraries
    that connect in C, and processes that are started inside, are not reached.
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
            for owner, name, wrap in _PLACES:
                ours = wrap(getattr(owner, name))
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


def _guarded_if_addressed(function: Callable[..., Any]) -> Callable[..., Any]:
    """For `sendmsg`, which on a pair of sockets is how processes of one machine talk to each other."""
    refuse_or_call = _guarded(function)

    @wraps(function)
    def refuse_address_or_call(*arguments: Any) -> Any:
        return (refuse_or_call if len(arguments) > _ADDRESS and arguments[_ADDRESS] else function)(*arguments)

    return refuse_address_or_call


_ADDRESS = 4


def _starting(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    """A thread begins with an empty context, so it is told."""

    @wraps(start)
    def start_closed(thread: threading.Thread) -> None:
        if _is_closed.get():
            thread.run = partial(_run_closed, thread.run)
        start(thread)

    return start_closed


def _submitting(submit: Callable[..., Any]) -> Callable[..., Any]:
    """A pool has threads from before, and does other jobs with those that it starts now."""

    @wraps(submit)
    def submit_closed(pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Any:
        if not _is_closed.get():
            return submit(pool, function, *args, **keywords)
        token = _is_closed.set(False)
        try:
            return submit(pool, _run_closed, function, *args, **keywords)
        finally:
            _is_closed.reset(token)

    return submit_closed


def _run_closed(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    token = _is_closed.set(True)
    try:
        return function(*arguments, **keywords)
    finally:
        _is_closed.reset(token)


_PLACES: tuple[tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]], ...] = (
    (socket, "getaddrinfo", _guarded), (socket, "gethostbyname", _guarded), (socket, "gethostbyname_ex", _guarded),
    (socket, "gethostbyaddr", _guarded), (socket, "getnameinfo", _guarded), (socket.socket, "connect", _guarded),
    (socket.socket, "connect_ex", _guarded), (socket.socket, "sendto", _guarded),
    (socket.socket, "sendmsg", _guarded_if_addressed), (threading.Thread, "start", _starting),
    (ThreadPoolExecutor, "submit", _submitting),
)  # fmt: skip

__all__ = ["network"]
