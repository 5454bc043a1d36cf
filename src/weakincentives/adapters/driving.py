"""Running a coroutine that never suspends, so that what is written once as `async` serves plain code too."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, without an event loop; RuntimeError when it waits for something after all."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("A blocking call tried to suspend.")


__all__ = ["drive"]
