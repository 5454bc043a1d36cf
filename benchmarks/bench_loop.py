"""The loop around the engine: what a turn costs, also late in a long conversation, and what stays behind."""

from __future__ import annotations

import gc
import itertools
import logging
import statistics
import tracemalloc
from collections.abc import Callable, Iterable
from time import process_time
from typing import Any

from weakincentives.adapters import ModelRequest
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from weakincentives.runtime import MainLoop, Session
from weakincentives.testing import ScriptedAdapter, call_raw, say

from .bench_engine import async_handler, calling, executor, handler
from .bench_serde import GOOD, Order
from .harness import Row

LONG = 1_000
WINDOW = 50


def prompt() -> Prompt[Any]:
    tool = Tool[Order, str](name="order", description="Order.", handler=handler, max_repeats=None)
    section = MarkdownSection(title="Orders", template="Take orders.", tools=[tool])
    return Prompt(PromptTemplate[Any](ns="bench", key="loop", sections=[section]))


def stamps(turns: int) -> list[float]:
    """When each turn of one conversation began."""
    began: list[float] = []
    turn = call_raw("order", GOOD)

    def play(request: object) -> object:
        began.append(process_time())
        return turn

    script = [play] * turns
    adapter = ScriptedAdapter(*script, say("Done."), max_turns=turns + 1)
    adapter.evaluate(prompt(), Session())
    return began


def late_against_early() -> Row:
    """A turn after 1,000 against one after 10, both in windows of 50, in the same conversations."""
    ratios: list[float] = []
    for _ in range(15):
        gc.collect()
        began = stamps(LONG + WINDOW + 1)
        early = began[10 + WINDOW] - began[10]
        late = began[LONG + WINDOW] - began[LONG]
        ratios.append(late / early)
    return Row("a turn at 1,000 turns / a turn at 10", statistics.median(ratios), 1.3)


def conversation(turns: int) -> Callable[[], object]:
    turn = call_raw("order", GOOD)
    subject = prompt()
    return lambda: ScriptedAdapter(*[turn] * turns, say("Done."), max_turns=turns + 1).evaluate(subject, Session())


def beyond_the_engine() -> Row:
    """What the loop adds to a turn with one call, in calls of the engine."""
    turns = 200
    subject = conversation(turns)
    call = calling(executor())
    subject()
    added: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(30):
            start = process_time()
            subject()
            turn = (process_time() - start) / turns
            start = process_time()
            for _ in itertools.repeat(None, turns):
                call()
            engine = (process_time() - start) / turns
            added.append(turn / engine - 1)
    finally:
        gc.enable()
    return Row("what the loop adds to a turn / one call of the engine", statistics.median(added), 1.0)


class Orders(MainLoop[int, str]):
    """Answers each request with one call of one tool, then a word."""

    def __init__(self, requests: int, template: PromptTemplate[str]) -> None:
        turn = call_raw("order", GOOD)
        self._template = template

        def play(request: ModelRequest) -> object:
            return turn if len(request.messages) == 1 else say("Done.")

        super().__init__(adapter=ScriptedAdapter(*[play] * (2 * requests)))

    def prepare(self, request: int) -> tuple[Prompt[str], Session]:
        return Prompt(self._template), Session(bus=self.bus)


def many_requests(handle: Callable[..., Any], concurrency: int, name: str, budget: float) -> Row:
    """Processor time of one request that makes one call, in plain calls."""
    requests = 40
    tool = Tool[Order, str](name="order", description="Order.", handler=handle, max_repeats=None)
    section = MarkdownSection(title="Orders", template="Take orders.", tools=[tool])
    template = PromptTemplate[str](ns="bench", key="requests", sections=[section])
    one, ratios = calling(executor()), list[float]()
    for _ in range(15):
        loop = Orders(requests, template)
        start = process_time()
        assert all(result.ok for result in loop.run(range(requests), concurrency=concurrency, progress=False))
        spent = process_time() - start
        start = process_time()
        for _ in itertools.repeat(None, requests):
            one()
        ratios.append(spent / (process_time() - start))
    return Row(name, statistics.median(ratios), budget, note="processor time")


def memory() -> Row:
    """Bytes a turn leaves behind in a conversation of 2,000 turns against one of 200: linear, so about 1."""

    def kept(turns: int) -> float:
        gc.collect()
        tracemalloc.start()
        session = Session()
        adapter = ScriptedAdapter(*[call_raw("order", GOOD)] * turns, say("Done."), max_turns=turns + 1)
        response = adapter.evaluate(prompt(), session)
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(response.history.messages) == 2 * turns + 2
        return size / turns

    kept(50)
    short, long = kept(200), kept(2_000)
    return Row("memory of a turn, 2,000 turns / 200 turns", long / short, 1.2, note=f"{long:.0f} bytes a turn")


def run() -> Iterable[Row]:
    logging.getLogger("weakincentives").setLevel(logging.CRITICAL)
    yield late_against_early()
    yield beyond_the_engine()
    yield many_requests(async_handler, 8, "a request of one call, 8 at once, async handler / a plain call", 15)
    yield many_requests(handler, 8, "the same with a synchronous handler / a plain call", 20)
    yield memory()
