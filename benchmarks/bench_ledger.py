"""What it costs to do something once: against a plain call, and against writes that are as durable."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from weakincentives.runtime import EffectLedger, IdempotencyConfig, Ledger, Session, SqliteEffectLedger, ToolCall
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.runtime.ledger import Claimed, EffectId, StoredResult

from .bench_engine import calling, handler
from .bench_engine import executor as plain_executor
from .bench_serde import GOOD, Order
from .harness import Row, ratio

PROCESSES = 6
EFFECTS = 150


def executor(ledger: Ledger) -> ToolExecutor:
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
            yield ratio("SQLite: a first run / two bare durable writes", first, writes, 2.0, batch_seconds=0.03)
            hit, write = calling(executor(ledger)), bare_writes(directory / "bare", 1)
            yield ratio("SQLite: a hit / one bare durable write", hit, write, 2.0, batch_seconds=0.03)
        yield fairness(directory)
