"""What it costs to do something once: against a plain call, and against writes that are as durable."""

from __future__ import annotations

import asyncio
import itertools
import logging
import multiprocessing
import os
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from weakincentives.runtime import EffectLedger, IdempotencyConfig, Ledger, Session, SqliteEffectLedger, ToolCall
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.runtime.ledger import Claimed, EffectId, StoredResult

from .bench_engine import async_handler, calling, handler
from .bench_engine import executor as plain_executor
from .bench_serde import GOOD, Order
from .harness import ELAPSED, Row, ratio

PROCESSES = 6
EFFECTS = 150
SESSIONS = 64


def executor(ledger: Ledger, handler: Callable[..., Any] = handler) -> ToolExecutor:
    tool = Tool[Order, str](
        name="order", description="Order.", handler=handler, max_repeats=None, idempotency=IdempotencyConfig()
    )
    section = MarkdownSection(title="Orders", template="Take orders.", tools=[tool])
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="bench", key="ledger", sections=[section]))
    return ToolExecutor(prompt=prompt, session=Session(), effect_ledger=ledger)


def first_runs(ledger: Ledger) -> Callable[[], object]:
    """Calls of which each is new."""
    run, ids = executor(ledger), itertools.count()

    def one() -> object:
        number = next(ids)
        return run.execute(ToolCall(str(number), "order", GOOD.replace('"Ada"', f'"Ada {number}"')))

    return one


def bare_writes(path: Path, count: int) -> Callable[[], object]:
    """What any durable record costs: a page is appended, and the disk waited for."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    page = bytes(4096)

    def write() -> None:
        for _ in range(count):
            os.write(file, page)
            os.fdatasync(file)

    return write


def _effects(path: str, index: int, barrier: Any, queue: Any) -> None:
    """One process: claims and records, each pair timed."""
    times: list[float] = []
    with SqliteEffectLedger(path) as ledger:
        barrier.wait()
        for number in range(EFFECTS):
            effect_id = EffectId(f"k{index}-{number}")
            began = perf_counter()
            claimed = ledger.claim(effect_id, tool_name="t", params_hash="h", lease=60.0, strict_params=False)
            assert isinstance(claimed, Claimed)
            ledger.finish(effect_id, claimed.token, StoredResult("Done."), None)
            times.append(perf_counter() - began)
    queue.put(times)


def fairness(directory: Path) -> Row:
    """How much longer the slowest take than the usual ones when six processes write to one file."""
    context = multiprocessing.get_context("fork")
    barrier, queue = context.Barrier(PROCESSES), context.SimpleQueue()
    path = str(directory / "fair.db")
    SqliteEffectLedger(path).close()
    children = [context.Process(target=_effects, args=(path, n, barrier, queue)) for n in range(PROCESSES)]
    for child in children:
        child.start()
    times = sorted(seconds for _ in children for seconds in queue.get())
    for child in children:
        child.join()
    median, p99 = statistics.median(times), times[int(len(times) * 0.99)]
    note = f"{p99 * 1e3:.1f} ms against {median * 1e3:.1f} ms; {len(times)} effects"
    return Row(f"SQLite, {PROCESSES} processes on one file: p99 / median", p99 / median, 10, "x", note)


def threads(ledger: Ledger, sessions: int, each: int) -> tuple[float, list[float]]:
    """First runs in so many sessions, each in a thread of its own: seconds for all of them, and those of each."""
    times, start = list[float](), threading.Barrier(sessions + 1)

    def work() -> None:
        one = first_runs(ledger)
        start.wait()
        for _ in range(each):
            began = perf_counter()
            one()
            times.append(perf_counter() - began)

    working = [threading.Thread(target=work) for _ in range(sessions)]
    for thread in working:
        thread.start()
    start.wait()
    began = perf_counter()
    for thread in working:
        thread.join()
    return perf_counter() - began, times


def tasks(ledger: Ledger, sessions: int, each: int) -> tuple[float, list[float]]:
    """The same in tasks of one event loop, with an async handler."""
    times, ids = list[float](), itertools.count()

    async def work(run: ToolExecutor) -> None:
        for _ in range(each):
            number, began = next(ids), perf_counter()
            await run.aexecute(ToolCall(str(number), "order", GOOD.replace('"Ada"', f'"Ada {number}"')))
            times.append(perf_counter() - began)

    async def all_sessions() -> float:
        runs = [executor(ledger, async_handler) for _ in range(sessions)]
        began = perf_counter()
        await asyncio.gather(*map(work, runs))
        return perf_counter() - began

    return asyncio.run(all_sessions()), times


def sessions(directory: Path) -> Iterable[Row]:
    """Many sessions of one process share the waiting for the disk; measured in turns with one, on the same disk."""
    for name, work, budget in (("threads", threads, 0.25), ("tasks", tasks, 1.0)):
        with SqliteEffectLedger(directory / f"{name}.db") as ledger:
            work(ledger, SESSIONS, 20)  # while SQLite's log grows to its usual size, a commit takes longer
            spent, slower, times = list[float](), list[float](), list[float]()
            for _ in range(5):
                one, _ = work(ledger, 1, 20)
                many, found = work(ledger, SESSIONS, 10)
                spent.append((many / SESSIONS / 10) / (one / 20))
                slower.append(sorted(found)[int(len(found) * 0.99)] / statistics.median(found))
                times += found
        note = f"{statistics.median(times) * 1e3:.1f} ms each"
        many_to_one = f"SQLite, an effect in {SESSIONS} sessions ({name}) / in one"
        yield Row(many_to_one, statistics.median(spent), budget, "x", note)
        yield Row(f"SQLite, {SESSIONS} sessions ({name}): p99 / median", statistics.median(slower), 5, "x", note)


def run() -> Iterable[Row]:
    logging.getLogger("weakincentives").setLevel(logging.CRITICAL)
    plain = calling(plain_executor())
    hit = calling(executor(EffectLedger()))
    yield ratio("in memory: a hit / a plain call", hit, plain, 1.5, rounds=120, batch_seconds=0.003)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with SqliteEffectLedger(directory / "ledger.db") as ledger:
            first = first_runs(ledger)
            writes = bare_writes(directory / "bare", 2)
            yield ratio("SQLite: a first run / two bare durable writes", first, writes, 2.0, rounds=15, clock=ELAPSED)
            hit, write = calling(executor(ledger)), bare_writes(directory / "bare", 1)
            yield ratio("SQLite: a hit / one bare durable write", hit, write, 2.0, rounds=15, clock=ELAPSED)
        yield fairness(directory)
        yield from sessions(directory)
