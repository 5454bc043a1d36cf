"""Keeps a worker going: for each evaluation it forks a child, which gives up its rights and runs the code.

The worker itself never sees code. Its control channel is standard input; for each evaluation it is given the child's
own channel, before there is a request, so that forking takes nobody's time. When the control channel ends, so does the
worker.
"""

from __future__ import annotations

import gc
import mmap
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, NoReturn

from . import confine, language
from .files import asker
from .frames import KILL, READY, START, STATUS, receive, send, unpack

MAX_REQUEST = 1 << 28
MAX_DESCRIPTOR = 32
"""The worker opens far fewer."""
RESERVE = 8 * 1024 * 1024
"""Bytes kept for saying that there is no memory."""


def main() -> NoReturn:
    """Serve until the host is gone."""
    confine.die_with_parent()
    confine.limit_self()
    confine.hide()
    _load_codecs()
    control = socket.socket(fileno=0)
    language.warm_up()
    base = confine.address_space()
    gc.collect()
    gc.freeze()
    os.dup2(1, 2)  # nobody listens to complaints any more
    control.sendall(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, len(START), 1)
        if message != START or len(descriptors) != 1:
            os._exit(0)
        _evaluate(control, descriptors[0], base)


def _load_codecs() -> None:
    """What Python would load on first use, when no file can be opened any more."""
    for codec in ("ascii", "latin-1", "utf-8", "utf-16", "utf-32", "cp1252", "unicode_escape"):
        "a".encode(codec).decode(codec)
    __import__("unicodedata")


def _evaluate(control: socket.socket, channel: int, base: int) -> None:
    """Fork, wait until the child is dead, say how it died."""
    alive, held = os.pipe()
    child = os.fork()
    if child == 0:
        _run(channel, held, base)
    os.close(channel)
    os.close(held)
    # The pipe ends when the child does; the control channel brings the order to kill it, or the end of the host.
    select.select([control, alive], [], [])
    _kill(child)
    _, status = os.waitpid(child, 0)
    os.close(alive)
    if control.recv(1) != KILL:
        os._exit(0)
    control.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))


def _kill(child: int) -> None:
    """The child, with its group: it leads one as soon as it runs. Before it is waited for: the number is still its."""
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(child, signal.SIGKILL)


def _run(descriptor: int, held: int, base: int) -> NoReturn:
    """In the child: wait for the request, give up all rights, run the code, answer, end."""
    try:
        os.setsid()
        confine.die_with_parent()
        for other in {0, 1, 2, *range(3, MAX_DESCRIPTOR)} - {descriptor, held}:
            with suppress(OSError):
                os.close(other)
        channel = socket.socket(fileno=descriptor)
        language.warm_up()
        request = receive(channel, MAX_REQUEST)
        if request is not None:
            sys.setrecursionlimit(1000 + 60 * request["recursion"])
            reserve = mmap.mmap(-1, RESERVE)
            confine.limit_code(request.pop("seconds"), request.pop("memory") + RESERVE, base)
            required, filtered = request.pop("filter_required"), confine.filter_calls()
            if required and not filtered:
                send(channel, {**language.UNFILTERED.message(), "filtered": False})
            else:
                _answer(channel, request, reserve, filtered)
    finally:
        os._exit(0)


def _answer(channel: socket.socket, request: dict[str, Any], reserve: mmap.mmap, filtered: bool) -> None:
    def exchange(message: dict[str, Any]) -> dict[str, Any]:
        send(channel, message)
        answer = receive(channel, MAX_REQUEST)
        if answer is None:
            os._exit(0)
        return answer

    try:
        inputs = unpack(request.pop("inputs"))
        outcome = language.evaluate(ask=asker(exchange), inputs=inputs, **request)
        send(channel, {**outcome.message(), "filtered": filtered})
    except MemoryError:
        failed = True
    else:
        failed = False
    if failed:  # outside the handler, which holds on to what took the memory
        reserve.close()
        gc.collect()
        send(channel, {**language.NO_MEMORY.message(), "filtered": filtered})


__all__ = ["main"]
