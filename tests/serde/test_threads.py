"""Types that are looked at in several threads at once."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from weakincentives import errors
from weakincentives.serde import schema


class Slow:
    """Garbage whose removal lets other threads run."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(0)


def litter(phase: str, _info: dict[str, Any]) -> None:
    if phase == "stop":
        for _ in range(3):
            Slow()


def test_sources_are_read_in_several_threads() -> None:
    """The garbage collector may switch threads in the middle of a tree, which Python 3.11 takes for an error."""
    assert errors.__file__ is not None
    read = schema.__globals__["_docs_in"].__wrapped__
    before = gc.get_threshold()
    gc.callbacks.append(litter)
    gc.set_threshold(50, 2, 2)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(read, [errors.__file__] * 200))
    finally:
        gc.callbacks.remove(litter)
        gc.set_threshold(*before)
    assert all(docs == found[0] for docs in found)
