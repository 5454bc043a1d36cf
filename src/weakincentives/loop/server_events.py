"""Server-sent events, for web frameworks: what a page's `EventSource` reads."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import nullcontext
from typing import Any

from ..crash_log import log_crash
from ..lazy_modules import asyncio
from ..runtime.progress import RunEvent
from ..runtime.redaction import redact, text_of
from .stream import EventStream

_logger = logging.getLogger(__name__)
_END: Any = None


async def sse(events: EventStream[Any] | Iterable[RunEvent], *, keep_alive: float = 15.0) -> AsyncIterator[bytes]:
    """Server-sent events, for the streaming response of any async web framework: `sse(loop.stream(request))`.

    Each has the event's name, its JSON as data and, for a run on record, its step as id. A run that fails ends with one
    named `failed`, whose text has credentials masked, and is logged. A comment is sent after `keep_alive` seconds
    without an event, so that proxies keep the connection. A stream is entered here; when the framework closes or
    cancels the generator, because the reader has gone, the run is cancelled and undone.

    It also takes the events of a run on record, `sse(store.open(run_id).events(after=step))`, which are read in a
    thread.
    """
    stream = events if isinstance(events, EventStream) else _FromRecord(events)
    async with stream if isinstance(stream, EventStream) else nullcontext():
        following = None
        try:
            while True:
                following = following or asyncio.ensure_future(anext(stream, _END))
                await asyncio.wait({following}, timeout=keep_alive)
                if not following.done():
                    yield b": the run goes on\n\n"
                    continue
                try:
                    event, following = following.result(), None
                except Exception as error:  # noqa: BLE001 - whatever ended the run; the page is told
                    log_crash(_logger, "A run that is streamed failed", error, None)
                    yield _sse("failed", {"event": "failed", "message": redact(text_of(error))})
                    return
                if event is None:
                    return
                yield _sse(event.name(), event.to_dict(), event.step)
        finally:
            if following is not None:
                following.cancel()


class _FromRecord:
    """Events that are read from a store, each in a thread."""

    def __init__(self, events: Iterable[RunEvent]) -> None:
        self._events = iter(events)

    async def __anext__(self) -> RunEvent:
        event = await asyncio.to_thread(next, self._events, None)
        if event is None:
            raise StopAsyncIteration
        return event

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return self


def _sse(name: str, data: dict[str, Any], step: int | None = None) -> bytes:
    number = "" if step is None else f"id: {step}\n"
    return f"{number}event: {name}\ndata: {json.dumps(data)}\n\n".encode()


__all__ = ["sse"]
