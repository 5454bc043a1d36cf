"""Sessions: the cost of a change and of a rollback must not depend on how much is there."""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import process_time
from typing import Any

from benchmarks.harness import Row, interleave, ratio
from weakincentives.prompt import ToolInvoked, ToolResult
from weakincentives.run_context import RunContext
from weakincentives.session import Session, reducer

SMALL, LARGE = 10, 100_000
EVENTS = "1,000 calls in the log"


@dataclass(frozen=True)
class Item:
    number: int


@dataclass(frozen=True)
class Total:
    value: int = 0

    @reducer(on=int)
    def add(self, event: int) -> Total:
        return Total(self.value + event)


def _session(size: int) -> Session:
    session = Session()
    session[Item].seed(Item(number) for number in range(size))
    session.install(Total)
    return session


def _appending(size: int) -> Callable[[], object]:
    """Dispatch one event; the session is put back every so often, so that it keeps its size."""
    session, event = _session(size), Item(-1)
    start, dispatch, restore = session.snapshot(), session.dispatch, session.restore

    def run() -> None:
        for _ in range(64):
            dispatch(event)
        restore(start)

    return run


def _rolling_back(size: int) -> Callable[[], object]:
    session = _session(size)

    def run() -> None:
        session.restore(session.snapshot())

    return run


def _changing_and_rolling_back(size: int) -> Callable[[], object]:
    session, event = _session(size), Item(-1)

    def run() -> None:
        before = session.snapshot()
        session.dispatch(event)
        session.dispatch(1)
        session.restore(before)

    return run


def _forking(size: int) -> Callable[[], object]:
    session = _session(size)
    return session.fork


@dataclass(frozen=True)
class Find:
    query: str
    limit: int


@dataclass(frozen=True)
class Found:
    paths: tuple[str, ...]
    total: int


def _called(size: int) -> Session:
    """A session with as many calls in its log as a long run has."""
    session, context = Session(), RunContext(session_id="s")
    for number in range(size):
        result = ToolResult.ok(Found((f"a/{number}.txt", "b.txt"), number), message="Found 2.")
        session.record(
            ToolInvoked(
                *("find", Find(f"tea {number}", number), result, True, 1.7e9 + number, 0.01, f"call_{number}"),
                *("s", "shop:agent", "openai", None, result.render(), context),
            )
        )
    return session


def _collecting() -> float:
    """Milliseconds of a full collection, the quickest of five."""
    spent: list[float] = []
    for _ in range(5):
        start = process_time()
        gc.collect()
        spent.append(process_time() - start)
    return min(spent) * 1e3


def _garbage_collection() -> Row:
    """What a long log adds to each full collection, and how much of that are the users' own params and values."""
    nothing = _collecting()
    session = _called(LARGE)
    logged = _collecting() - nothing
    calls = session[ToolInvoked].all()
    own: list[Any] = [part for call in calls for part in (call.params, getattr(call.result, "value", None))]
    del calls, session
    note = f"CPU; the params and values alone {_collecting() - nothing:.0f} ms"
    del own
    return Row(f"session: a full gc.collect() with {LARGE:,} calls in the log", logged, 50, "ms", note)


def run() -> Iterator[Row]:
    sizes = f"{LARGE:,} items against {SMALL}"
    yield ratio("session: dispatch with append", _appending(LARGE), _appending(SMALL), 1.2, note=f"{sizes}, 64 events")
    yield ratio("session: snapshot + restore", _rolling_back(LARGE), _rolling_back(SMALL), 1.2, note=sizes)
    (samples,) = interleave(_rolling_back(LARGE))
    yield Row(
        "session: snapshot + restore, absolute", statistics.median(samples) * 1e6, 10.0, "us", f"{LARGE:,} STATE items"
    )
    yield ratio(
        "session: snapshot + two events + restore",
        _changing_and_rolling_back(LARGE),
        _changing_and_rolling_back(SMALL),
        1.2,
        note=sizes,
    )
    yield ratio("session: fork", _forking(LARGE), _forking(SMALL), 1.2, note=sizes)
    called = _called(1_000)
    text = called.to_json()
    data = json.loads(text)
    yield ratio("session: to_json / json.dumps of the same", called.to_json, lambda: json.dumps(data), 3, note=EVENTS)
    yield ratio(
        "session: from_json / json.loads of the same",
        lambda: Session.from_json(text, types=[Find, Found]),
        lambda: json.loads(text),
        4,
        note=EVENTS,
    )
    yield _garbage_collection()
