"""One transactional call against a loop written by hand: `json.loads`, checks, handler."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import resource
import statistics
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from time import process_time
from typing import Any

from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolPolicy,
    ToolResult,
)
from weakincentives.runtime import Session, ToolCall
from weakincentives.runtime.executor import ToolExecutor

from .bench_serde import GOOD, Order, by_hand
from .harness import Row, ratio

LARGE = 100_000


def handler(params: Order, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok(params.customer)


async def async_handler(params: Order, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok(params.customer)


def failing(params: Order, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.error("No.")


def loop_by_hand() -> Callable[[], object]:
    """What a careful programmer writes without us: same call in, same handler, same reply out; no transaction."""
    handlers = {"order": handler}
    context, ids, replies = ToolContext(), itertools.count(), list[tuple[str, str]]()

    def one() -> object:
        call = ToolCall(str(next(ids)), "order", GOOD)
        handle = handlers.get(call.name)
        if handle is None:
            return replies.append((call.id, f"Unknown tool {call.name}"))
        try:
            result = handle(by_hand(call.arguments), context=context)  # pyright: ignore[reportArgumentType]
            text = f"{result.message}\n{result.value}" if result.value is not None else result.message
        except (ValueError, TypeError) as error:
            text = f"Error: {error}"
        return replies.append((call.id, text))

    return one


def executor(
    handle: Callable[..., Any] = handler,
    session: Session | None = None,
    files: int | None = None,
    policies: Sequence[ToolPolicy] = (),
    *,
    deadline: timedelta | None = None,
    read_only: bool = False,
) -> ToolExecutor:
    annotations = ToolAnnotations(read_only=read_only)
    tool = Tool[Order, str](
        name="order", description="Order.", handler=handle, max_repeats=None, annotations=annotations
    )
    section = MarkdownSection(title="Orders", template="Take orders.", tools=[tool], policies=policies)
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="bench", key="engine", sections=[section]))
    if files is not None:
        prompt = prompt.bind(resources={Filesystem: InMemoryFilesystem({f"d{n % 100}/{n}": "x" for n in range(files)})})
    return ToolExecutor(prompt=prompt, session=Session() if session is None else session, deadline=deadline)


class Never:
    def check(self, tool_name: str, params: object, context: ToolContext) -> str:
        return "Not now."


def calling(target: ToolExecutor, arguments: str = GOOD) -> Callable[[], object]:
    ids = itertools.count()
    return lambda: target.execute(ToolCall(str(next(ids)), "order", arguments))


def memory_growth() -> Row:
    """Bytes a call leaves behind beyond its entry in the log."""
    session = Session()
    call = calling(executor(session=session))
    for _ in range(2_000):
        call()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(50):
        for _ in range(2_000):
            call()
        session.reset(logs=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return Row("memory after 100,000 calls, log emptied now and then", grown, 20, "MB")


def cpu_ratio(name: str, subject: Callable[[], object], baseline: Callable[[], object], budget: float) -> Row:
    """Processor time of all threads, since what waits for a worker thread spends it there; interleaved."""
    times = 40
    ratios: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(30):
            spent: list[float] = []
            for one in (subject, baseline):
                start = process_time()
                for _ in itertools.repeat(None, times):
                    one()
                spent.append(process_time() - start)
            ratios.append(spent[0] / spent[1])
    finally:
        gc.enable()
    return Row(name, statistics.median(ratios), budget, note="processor time")


def awaiting(target: ToolExecutor, loop: asyncio.AbstractEventLoop) -> Callable[[], object]:
    """Ten calls in an event loop, so that starting the loop counts for little."""
    ids = itertools.count()
    loop.run_until_complete(target.__aenter__())

    async def ten() -> None:
        for _ in range(10):
            await target.aexecute(ToolCall(str(next(ids)), "order", GOOD))

    return lambda: loop.run_until_complete(ten())


def deadlines() -> Iterable[Row]:
    later = timedelta(hours=5)
    with executor() as plain, executor(deadline=later) as limited:
        yield cpu_ratio("a call with a deadline / without", calling(limited), calling(plain), 2.5)
        loop = asyncio.new_event_loop()
        one = calling(plain)

        def ten() -> None:
            for _ in range(10):
                one()

        in_thread = awaiting(executor(deadline=later), loop)
        yield cpu_ratio("the same in async code / a plain call in synchronous code", in_thread, ten, 4)
        subject, baseline = (awaiting(executor(async_handler, deadline=each), loop) for each in (later, None))
        yield cpu_ratio("an async handler with a deadline / without", subject, baseline, 2)
        loop.close()


def readers() -> Row:
    """Eight quick read-only calls as one turn, against one after another; equal ones would not overlap anyway."""
    texts = [GOOD.replace("Ada", f"Ada {number}") for number in range(8)]
    with executor(read_only=True) as target:
        ids = itertools.count()

        def calls() -> list[ToolCall]:
            return [ToolCall(str(next(ids)), "order", text) for text in texts]

        def in_a_row() -> None:
            for call in calls():
                target.execute(call)

        return cpu_ratio(
            "eight quick read-only calls in one turn / in a row", lambda: target.execute_all(calls()), in_a_row, 1.1
        )


def run() -> Iterable[Row]:
    logging.getLogger("weakincentives").setLevel(logging.CRITICAL)
    with executor() as run:  # as evaluations have it
        yield ratio(
            "one transactional call / the loop by hand, without a transaction", calling(run), loop_by_hand(), 2.0
        )
    # Outside of a run each call takes the signal handlers and gives them back: two system calls.
    yield ratio("the same outside of a run / the loop by hand", calling(executor()), loop_by_hand(), 2.2)

    with executor(async_handler) as waiting, executor() as plain:
        yield ratio("an async handler in plain code / a plain one", calling(waiting), calling(plain), 3)
    yield from deadlines()
    yield readers()

    loaded = Session()
    loaded[int].seed(range(LARGE))
    crowded = calling(executor(session=loaded))
    yield ratio(f"the same with {LARGE:,} STATE items / empty", crowded, calling(executor()), 1.2)
    few, many = calling(executor(files=10)), calling(executor(files=10_000))
    yield ratio("the same with 10,000 in-memory files / 10", many, few, 1.2)
    yield ratio("a failed call, rolled back / a successful one", calling(executor(failing)), calling(executor()), 1.5)
    refusing = calling(executor(policies=[Never()]))
    # Policies are asked while the call holds its locks, so a refused call opens a transaction and closes it.
    yield ratio("a refused call / json.loads + checks by hand", refusing, lambda: by_hand(GOOD), 4)
    yield memory_growth()
