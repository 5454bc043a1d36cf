"""G5: a handler that was given up on but still runs keeps its claim until it really ends."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from weakincentives.deadlines import Deadline
from weakincentives.errors import NoEffect
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolResult
from weakincentives.runtime import EffectLedger, IdempotencyConfig, Ledger, Session, SqliteEffectLedger, ToolCall
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.runtime.ledger import Busy, LedgerEntry
from weakincentives.runtime.ledger.leases import running_here
from weakincentives.runtime.recall import recall_answer

_ids = itertools.count()
STILL = "The outcome of 'refund' is unknown: it is still running in this process."
LONG = 30.0
"""Longer than anything takes on a busy machine."""


@dataclass(frozen=True)
class Refund:
    order: str = "A"


@dataclass(frozen=True)
class Receipt:
    number: int


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    made: Ledger = EffectLedger() if request.param == "memory" else SqliteEffectLedger(tmp_path / "ledger.db")
    yield made
    made.close()


class Stuck:
    """A handler that goes on after its call gave up on it, until it is let go; then it performs its effect."""

    def __init__(self, end: Callable[[], Any] | None = None) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.effects: list[str] = []
        self.end = (lambda: ToolResult.ok(Receipt(len(self.effects)), message="Refunded.")) if end is None else end

    def sync(self, params: Refund) -> ToolResult[Receipt]:
        self.begun.set()
        assert self.go.wait(LONG)
        self.effects.append(params.order)
        return self.end()

    async def blocking(self, params: Refund) -> ToolResult[Receipt]:
        """Blocks the loop it runs in."""
        return self.sync(params)

    async def stubborn(self, params: Refund) -> ToolResult[Receipt]:
        """Will not be cancelled."""
        self.begun.set()
        while not self.go.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.005)
        self.effects.append(params.order)
        return self.end()


def nothing(params: Refund) -> None:
    """The lookup says: it did not happen (yet)."""


LOOKING = IdempotencyConfig(scope="shop", reconcile=nothing)


def executor(
    handler: Callable[..., Any],
    ledger: Ledger,
    config: IdempotencyConfig = LOOKING,
    *,
    timeout: float | None = 0.05,
    **options: Any,
) -> ToolExecutor:
    tool = Tool[Refund, Receipt](
        name="refund", description="Refund.", handler=handler, idempotency=config, timeout=timeout, max_repeats=None
    )
    section = MarkdownSection(title="Shop", template="", tools=[tool])
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="tests", key="abandoned", sections=[section]))
    return ToolExecutor(prompt=prompt, session=Session(), effect_ledger=ledger, **options)


def refund() -> ToolCall:
    return ToolCall(f"call-{next(_ids)}", "refund", "{}")


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.005)


def over(ledger: Ledger) -> None:
    """Wait until the handler has ended and the ledger knows how."""
    wait_for(lambda: not any(running_here(ledger, entry.id) for entry in ledger.entries()))
    wait_for(lambda: all(entry.state != "started" for entry in ledger.entries()))


@pytest.mark.parametrize("kind", ["sync", "blocking"])
def test_four_calls_make_one_effect(kind: str, ledger: Ledger) -> None:
    """A lookup that finds nothing while the handler still runs proves nothing, so it is not even asked."""
    stuck, asked = Stuck(), list[Any]()
    config = IdempotencyConfig(scope="shop", reconcile=asked.append)
    with executor(getattr(stuck, kind), ledger, config) as run:
        replies = [run.execute(refund()) for _ in range(4)]
        assert [reply.outcome for reply in replies] == ["unknown"] * 4
        assert replies[0].text.startswith("Tool 'refund' did not finish within 0.05 s")
        assert all(STILL in reply.text for reply in replies)
        assert [entry.state for entry in ledger.entries()] == ["started"]
        stuck.go.set()
        over(ledger)
        last = run.execute(refund())
    assert (last.outcome, last.result.value) == ("replayed", Receipt(1))
    assert stuck.effects == ["A"]
    assert asked == []


def test_a_call_inside_one_that_was_given_up_on_keeps_its_claim(ledger: Ledger) -> None:
    """Nothing extends its lease, because it has no limit of its own; but this process knows that its handler runs."""
    stuck, asked = Stuck(), list[Any]()
    config = IdempotencyConfig(scope="shop", reconcile=asked.append, lease=timedelta(milliseconds=100))
    inner, replies = executor(stuck.sync, ledger, config, timeout=None), list[Any]()

    def outer(params: Refund) -> ToolResult[str]:
        replies.append(inner.execute(refund()))
        return ToolResult.ok("")

    tool = Tool[Refund, str](name="outer", description="Around.", handler=outer, timeout=0.05)
    prompt: Prompt[Any] = Prompt(name="outer", sections=[MarkdownSection(title="Shop", template="", tools=[tool])])
    around = ToolExecutor(prompt=prompt, session=Session())
    assert around.execute(ToolCall("outer", "outer", "{}")).outcome == "timeout"
    assert stuck.begun.wait(LONG)
    time.sleep(0.2)
    elsewhere = executor(stuck.sync, ledger, config, timeout=None)
    reply = elsewhere.execute(refund())
    assert reply.outcome == "unknown"
    assert STILL in reply.text
    stuck.go.set()
    wait_for(lambda: replies)
    assert stuck.effects == ["A"]
    assert asked == []
    assert not any(running_here(ledger, entry.id) for entry in ledger.entries())


def test_four_async_calls_make_one_effect(ledger: Ledger) -> None:
    """The same for a coroutine that will not be cancelled, in the loop of its caller."""
    stuck = Stuck()

    async def main() -> None:
        async with executor(stuck.stubborn, ledger) as run:
            replies = [await run.aexecute(refund()) for _ in range(4)]
            assert [reply.outcome for reply in replies] == ["unknown"] * 4
            assert all(STILL in reply.text for reply in replies)
            stuck.go.set()
            await asyncio.to_thread(over, ledger)
            assert (await run.aexecute(refund())).outcome == "replayed"

    asyncio.run(main())
    assert stuck.effects == ["A"]


@pytest.mark.parametrize("kind", ["sync", "stubborn"])
def test_a_cancelled_call_keeps_its_claim_while_it_runs(kind: str, ledger: Ledger) -> None:
    """Cancelling the caller does not stop a thread, nor a coroutine that swallows it."""
    stuck = Stuck()

    async def main() -> None:
        async with executor(getattr(stuck, kind), ledger, timeout=LONG) as run:
            task = asyncio.ensure_future(run.aexecute(refund()))
            await asyncio.to_thread(stuck.begun.wait, LONG)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert STILL in (await run.aexecute(refund())).text
            stuck.go.set()
            await asyncio.to_thread(over, ledger)
            assert (await run.aexecute(refund())).outcome == "replayed"

    asyncio.run(main())
    assert stuck.effects == ["A"]


def test_ctrl_c_keeps_the_claim_of_a_thread(ledger: Ledger) -> None:
    """The caller is interrupted; the worker thread is not."""
    stuck = Stuck()

    def interrupt() -> None:
        assert stuck.begun.wait(LONG)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
    try:
        with executor(stuck.sync, ledger, timeout=LONG) as run:
            threading.Thread(target=interrupt).start()
            with pytest.raises(KeyboardInterrupt):
                run.execute(refund())
    finally:
        signal.signal(signal.SIGINT, before)
    with executor(stuck.sync, ledger, timeout=LONG) as run:
        assert STILL in run.execute(refund()).text
        stuck.go.set()
        over(ledger)
        assert run.execute(refund()).outcome == "replayed"
    assert stuck.effects == ["A"]


def test_out_of_deadline_it_keeps_its_claim(ledger: Ledger) -> None:
    """The event says deadline, the ledger started; the next evaluation is told, and later gets the result."""
    stuck = Stuck()
    deadline = Deadline.after(timedelta(seconds=0.3))
    with executor(stuck.sync, ledger, timeout=None, deadline=deadline) as run:
        assert run.execute(refund()).outcome == "deadline"
    with executor(stuck.sync, ledger) as run:
        assert STILL in run.execute(refund()).text
        assert [entry.state for entry in ledger.entries()] == ["started"]
        stuck.go.set()
        over(ledger)
        assert run.execute(refund()).outcome == "replayed"
    assert stuck.effects == ["A"]


def _says_no() -> Any:
    return ToolResult[Receipt].error("No money.")


def _no_effect() -> Any:
    raise NoEffect("The bank was closed.")


@pytest.mark.parametrize("end", [_says_no, _no_effect])
def test_one_that_says_it_failed_in_the_end_may_be_tried_again(end: Callable[[], Any], ledger: Ledger) -> None:
    """Nothing is recorded, as if it had been in time."""
    stuck = Stuck(end)
    with executor(stuck.sync, ledger) as run:
        assert run.execute(refund()).outcome == "unknown"
        stuck.go.set()
        over(ledger)
        assert ledger.entries() == []
        stuck.end = lambda: ToolResult.ok(Receipt(2))
    with executor(stuck.sync, ledger, timeout=30.0) as run:
        assert run.execute(refund()).outcome == "succeeded"


def _dies() -> Any:
    raise ConnectionError("the line went dead, password=hunter2")


@pytest.mark.parametrize("end", [_dies, lambda: "no result"])
def test_one_that_raises_in_the_end_is_in_doubt(end: Callable[[], Any], ledger: Ledger) -> None:
    """And only then may the lookup be asked."""
    stuck, asked = Stuck(end), list[Any]()

    def look_up(params: Refund) -> ToolResult[Receipt]:
        asked.append(params)
        return ToolResult.ok(Receipt(9), message="Found.")

    with executor(stuck.sync, ledger, IdempotencyConfig(scope="shop", reconcile=look_up)) as run:
        run.execute(refund())
        run.execute(refund())
        assert asked == []
        stuck.go.set()
        over(ledger)
        (entry,) = ledger.entries()
        assert (entry.state, "hunter2" in entry.why) == ("unknown", False)
    with executor(stuck.sync, ledger, IdempotencyConfig(scope="shop", reconcile=look_up), timeout=60.0) as run:
        assert run.execute(refund()).result.value == Receipt(9)
    assert len(asked) == 1


def test_retry_waits_for_the_end_too(ledger: Ledger) -> None:
    """It may be run again, but not beside itself."""
    stuck = Stuck(_dies)
    with executor(stuck.sync, ledger, IdempotencyConfig(scope="shop", on_exception="retry")) as run:
        assert run.execute(refund()).outcome == "unknown"
        assert STILL in run.execute(refund()).text
        stuck.go.set()
        over(ledger)
        assert ledger.entries() == []
        stuck.end = lambda: ToolResult.ok(Receipt(2))
    with executor(stuck.sync, ledger, timeout=30.0) as run:
        assert run.execute(refund()).outcome == "succeeded"
    assert stuck.effects == ["A", "A"]


@pytest.mark.slow  # waits for a lease
def test_its_lease_is_extended_as_long_as_it_runs(tmp_path: Path) -> None:
    """Other processes go on waiting for it, however short the lease is."""
    stuck, path = Stuck(), tmp_path / "ledger.db"
    config = IdempotencyConfig(scope="shop", lease=timedelta(seconds=3))
    with SqliteEffectLedger(path) as ledger, SqliteEffectLedger(path) as other:
        with executor(stuck.sync, ledger, config) as run:
            run.execute(refund())
            (entry,) = ledger.entries()
            left = [entry.lease_left]

            def has_risen() -> bool:
                found = other.claim(entry.id, "refund", entry.params_hash, 60.0, strict_params=False)
                assert isinstance(found, Busy)
                left.append(found.lease_left)
                return left[-1] > left[-2]

            wait_for(has_risen)
            stuck.go.set()
            over(ledger)
        assert [found.state for found in other.entries()] == ["succeeded"]


def test_a_lost_lease_lets_others_in_but_not_this_process(ledger: Ledger) -> None:
    """An operator forced the row away; here the handler is known to run, so nothing is started beside it."""
    stuck = Stuck()
    config = IdempotencyConfig(scope="shop", lease=timedelta(seconds=0.1))
    with executor(stuck.sync, ledger, config) as run:
        run.execute(refund())
        (entry,) = ledger.entries()
        ledger.resolve(entry.id, None, force=True)
        time.sleep(0.1)
        assert STILL in run.execute(refund()).text
        stuck.go.set()
        wait_for(lambda: not running_here(ledger, entry.id))
    assert stuck.effects == ["A"]
    assert ledger.entries() == []


def test_until_its_end_is_recorded_it_counts_as_running(tmp_path: Path) -> None:
    """Another process is writing just then; in between the call may not be taken for one that can run."""
    stuck, path = Stuck(), tmp_path / "ledger.db"
    with SqliteEffectLedger(path) as ledger, executor(stuck.sync, ledger) as run:
        run.execute(refund())
        (entry,) = ledger.entries()
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            stuck.go.set()
            wait_for(lambda: stuck.effects)
            time.sleep(0.1)
            assert running_here(ledger, entry.id)
            assert STILL in run.execute(refund()).text
        over(ledger)
        assert run.execute(refund()).outcome == "replayed"


def test_who_waits_for_a_call_that_is_given_up_on_is_told_at_once(ledger: Ledger) -> None:
    """It does not wait until its own patience ends."""
    stuck, replies = Stuck(), list[Any]()
    with (
        executor(stuck.sync, ledger, timeout=0.5) as one,
        executor(stuck.sync, ledger, IdempotencyConfig(scope="shop", lease=timedelta(hours=1)), timeout=None) as two,
    ):
        first = threading.Thread(target=lambda: one.execute(refund()))
        first.start()
        assert stuck.begun.wait(LONG)
        second = threading.Thread(target=lambda: replies.append(two.execute(refund())))
        second.start()
        first.join()
        second.join(LONG)
        assert replies
        assert STILL in replies[0].text
        stuck.go.set()
        over(ledger)
    assert stuck.effects == ["A"]


def test_one_that_ends_while_it_is_cancelled_is_recorded_at_once(ledger: Ledger) -> None:
    """The call is undone, since its time was up; the effect happened, so the next call gets its result."""
    effects: list[str] = []

    async def closing(params: Refund) -> ToolResult[Receipt]:
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            effects.append(params.order)
        return ToolResult.ok(Receipt(3))

    with executor(closing, ledger) as run:
        first, second = run.execute(refund()), run.execute(refund())
    assert first.outcome == "unknown"
    assert "'refund' ended just after that, and its effect happened." in first.text
    assert (second.outcome, second.result.value) == ("replayed", Receipt(3))
    assert effects == ["A"]


def test_another_call_under_its_custom_key_conflicts(ledger: Ledger) -> None:
    """It is not this one that is still running: other params and another tool are told whose key it is."""
    stuck = Stuck()
    config = IdempotencyConfig(scope="shop", strategy="custom", key_fn=lambda _: "k")
    with executor(stuck.sync, ledger, config) as run:
        run.execute(refund())
        assert run.execute(ToolCall("other", "refund", '{"order": "B"}')).outcome == "conflict"
        assert recall_answer(ToolCall("unseen", "refund", '{"order": "C"}'), run._run) is None
        assert STILL in run.execute(refund()).text
        stuck.go.set()
        over(ledger)
    assert stuck.effects == ["A"]


def test_what_is_recalled_of_it_is_that_it_runs(ledger: Ledger) -> None:
    """A conversation that goes on meanwhile is told the same."""
    stuck = Stuck()
    with executor(stuck.sync, ledger) as run:
        run.execute(refund())
        found = recall_answer(refund(), run._run)
        assert found is not None
        assert found.outcome == "unknown"
        assert STILL in found.text
        stuck.go.set()
        over(ledger)
        found = recall_answer(refund(), run._run)
        assert found is not None
        assert found.outcome == "replayed"


def test_a_forked_child_does_not_wait_for_its_parents_handler(tmp_path: Path) -> None:
    """The thread is not there; the row says that another process holds the call."""
    stuck = Stuck()
    with SqliteEffectLedger(tmp_path / "ledger.db") as ledger, executor(stuck.sync, ledger) as run:
        run.execute(refund())
        (entry,) = ledger.entries()
        child = os.fork()
        if child == 0:
            os._exit(0 if not running_here(ledger, entry.id) and _is_started(ledger, entry) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        stuck.go.set()
        over(ledger)


def _is_started(ledger: Ledger, entry: LedgerEntry) -> bool:
    found = ledger.find(entry.id)
    return found is not None and found.state == "started"


def storm(ledger: Ledger, keys: int, threads: int, seed: int) -> list[str]:
    """Handlers that end before, at and after their timeout, called again and again; all effects that happened.

    The lookup tells the truth at the moment in which it is asked.
    """
    chance = random.Random(seed)
    delays = {f"k{number}": chance.choice((0.0, 0.01, 0.02, 0.03, 0.1)) for number in range(keys)}
    effects: list[str] = []

    def slow(params: Refund) -> ToolResult[Receipt]:
        time.sleep(delays[params.order])
        effects.append(params.order)
        return ToolResult.ok(Receipt(1))

    def look_up(params: Refund) -> ToolResult[Receipt] | None:
        return ToolResult.ok(Receipt(1)) if params.order in effects else None

    def work(orders: list[str]) -> None:
        config = IdempotencyConfig(scope="shop", reconcile=look_up)
        with executor(slow, ledger, config, timeout=0.02) as run:
            for order in orders:
                run.execute(ToolCall(f"call-{next(_ids)}", "refund", f'{{"order": "{order}"}}'))

    workers: list[threading.Thread] = []
    for _ in range(threads):
        orders = [*delays] * 2
        chance.shuffle(orders)
        workers.append(threading.Thread(target=work, args=(orders,)))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    over(ledger)
    return effects


def test_a_storm_of_calls_that_are_given_up_on_repeats_none(ledger: Ledger) -> None:
    """Whatever the moment in which a handler ends, its effect happens once."""
    effects = storm(ledger, keys=20, threads=3, seed=7)
    assert effects
    assert len(effects) == len(set(effects))


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(10))
def test_a_long_storm_repeats_none(seed: int, ledger: Ledger) -> None:
    """The same, at length."""
    effects = storm(ledger, keys=80, threads=4, seed=seed)
    assert len(effects) == len(set(effects))
