"""Server-sent events, for web frameworks: what a page's `EventSource` reads."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from contextlib import aclosing, nullcontext
from typing import Any, cast

from ..crash_log import log_crash
from ..lazy_modules import asyncio
from ..runtime.progress import RunEvent
from ..runtime.redaction import redact, text_of
from ..runtime.response import Failed
from .stream import EventStream

_logger = logging.getLogger(__name__)
_END: Any = None


async def sse(
    events: EventStream[Any] | AsyncIterable[RunEvent] | Iterable[RunEvent], *, keep_alive: float = 15.0
) -> AsyncGenerator[bytes, None]:
    """Server-sent events, for the streaming response of any async web framework: `sse(loop.stream(request))`.

    Each has the event's name, its JSON as data and, for a run on record, its step as id. A run that fails ends with one
    named `failed`, whose text has credentials masked, and is logged. A comment is sent after `keep_alive` seconds
    without an event, so that proxies keep the connection. A stream is entered here; when the framework closes or
    cancels the generator, because the reader has gone, the run is cancelled and undone.

    It also takes a generator of your own around a stream, which is closed as a stream is, and the events of a run on
    record, `sse(store.open(run_id).events(after=step))`, which are read in a thread.
    """
    async with aclosing(_each(events)) as following:
        waiting = None
        try:
            while True:
                waiting = waiting or asyncio.ensure_future(anext(following, _END))
                await asyncio.wait({waiting}, timeout=keep_alive)
                if not waiting.done():
                    yield b": the run goes on\n\n"
                    continue
                try:
                    event, waiting = waiting.result(), None
                except Exception as error:  # noqa: BLE001 - whatever ended the run; the page is told
                    log_crash(_logger, "A run that is streamed failed", error, None)
                    event = Failed(redact(text_of(error)), type(error).__name__)
                    yield _sse(event)
                    return
                if event is None:
                    return
                yield _sse(event)
        finally:
            if waiting is not None:
                await _cancelled(waiting)


async def _each(events: Any) -> AsyncGenerator[RunEvent, None]:
    if isinstance(events, EventStream):
        stream = cast("EventStream[Any]", events)
        async with stream:
            async for event in stream:
                yield event
    elif isinstance(events, AsyncIterable):
        source = cast("AsyncIterable[RunEvent]", events)
        async with aclosing(cast("Any", source)) if isinstance(source, AsyncGenerator) else nullcontext():
            async for event in source:
                yield event
    else:
        rest: Iterator[RunEvent] = iter(events)
        while (event := await asyncio.to_thread(next, rest, None)) is not None:
            yield event


async def _cancelled(waiting: asyncio.Future[Any]) -> None:
    """Cancel it, and wait until what was running is undone, however often this is cancelled meanwhile."""
    waiting.cancel()
    cancelled = None
    while not waiting.done():
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError as again:
            cancelled = again
    if cancelled is not None:
        raise cancelled


def _sse(event: RunEvent) -> bytes:
    number = "" if event.step is None else f"id: {event.step}\n"
    return f"{number}event: {event.name()}\ndata: {json.dumps(event.to_dict())}\n\n".encode()


__all__ = ["sse"]
