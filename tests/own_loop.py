"""A kept event loop for one test, so that what other tests left on this thread's does not count."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from weakincentives import event_loop as kept_loop

_before: set[threading.Thread] = set()


@contextmanager
def own_loop() -> Generator[None]:
    """This thread has a new kept loop meanwhile, and `loop_threads` tells of those that were started since."""
    _before.clear()
    _before.update(threading.enumerate())
    of_thread, others = kept_loop._of_thread, kept_loop.thread_loop()  # pyright: ignore[reportPrivateUsage]
    of_thread.loop = kept_loop.KeptLoop()
    try:
        yield
    finally:
        of_thread.loop = others


def loop_threads() -> list[threading.Thread]:
    """The threads in which kept loops run on."""
    named = [thread for thread in threading.enumerate() if thread.name == "weakincentives-loop"]
    return [thread for thread in named if thread not in _before]
