"""The work whose instructions `bench_instructions.py` counts; started by it, under valgrind.

Each scenario runs a number of times, then three times as often: the difference belongs to the scenario alone.
`python -m benchmarks.instructions names` lists the scenarios.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from weakincentives import Session, ToolCall, ToolExecutor, ToolInvoked
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.prompt import (
    IdempotencyConfig,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    QuotaPolicy,
    RateLimitPolicy,
    Section,
    Tool,
    ToolContext,
    ToolResult,
)
from weakincentives.runtime import EffectLedger, SqliteRunStore
from weakincentives.testing import ScriptedAdapter, call, say

from . import bench_engine, bench_record
from .bench_loop import Orders
from .bench_serde import Order

Scenario = tuple[str, Callable[[int], object], int]
"""Its name, one round of it (numbered), and how many rounds are counted."""


@dataclass(slots=True, frozen=True)
class Span:
    start: int
    end: int


@dataclass(slots=True, frozen=True)
class Find:
    path: str
    pattern: str
    mode: Literal["regex", "literal", "glob"]
    span: Span
    globs: tuple[str, ...] = ()
    limit: int = 10


TEXTS = [
    json.dumps({
        "path": f"src/app/main{n}.py", "pattern": "def \\w+", "mode": "regex", "span": {"start": 1, "end": 400},
        "globs": ["*.py", "*.pyi"], "limit": 25,
    })
    for n in range(1000)
]  # fmt: skip
KEYS = {"path", "pattern", "mode", "span", "globs", "limit"}

Handler = Callable[..., Any]


def find(params: Find, *, context: ToolContext | None) -> ToolResult[None]:
    return ToolResult.ok(None, message=f"{params.path}:{params.limit}")


async def find_async(params: Find, *, context: ToolContext) -> ToolResult[None]:
    return find(params, context=context)


def fail(params: Find, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.error("No.")


def write_and_fail(params: Find, *, context: ToolContext) -> ToolResult[None]:
    assert context.filesystem is not None
    context.filesystem.write("a.txt", "x")
    return ToolResult.error("No.")


def look_at_log(params: Find, *, context: ToolContext) -> ToolResult[None]:
    context.session[ToolInvoked].latest()
    return find(params, context=context)


def by_hand(text: str) -> str:
    """The floor: the cheapest honest code that does the same without a transaction."""
    data = json.loads(text)
    for key in data:
        if key not in KEYS:
            raise ValueError(key)
    if (
        type(data["path"]) is not str
        or type(data["pattern"]) is not str
        or data["mode"] not in ("regex", "literal", "glob")
    ):
        raise TypeError
    span = data["span"]
    if type(span["start"]) is not int or type(span["end"]) is not int:
        raise TypeError
    globs = data.get("globs", [])
    if not all(type(item) is str for item in globs) or type(data.get("limit", 10)) is not int:
        raise TypeError
    made = Span(span["start"], span["end"])
    params = Find(data["path"], data["pattern"], data["mode"], made, tuple(globs), data.get("limit", 10))
    return find(params, context=None).message


class Never:
    def check(self, tool_name: str, params: object, context: ToolContext) -> str:
        return "Not now."


class Always:
    def check(self, tool_name: str, params: object, context: ToolContext) -> None:
        return


def tool(handler: Handler, **options: Any) -> Tool[Find, None]:
    return Tool[Find, None](name="find", description="Find.", handler=handler, max_repeats=None, **options)


def executor(*sections: Section, files: Filesystem | None = None, **options: Any) -> ToolExecutor:
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="bench", key="instructions", sections=sections))
    if files is not None:
        prompt = prompt.bind(resources={Filesystem: files})
    return ToolExecutor(prompt=prompt, session=Session(), **options)


def calling(
    handler: Handler, text: Callable[[int], str] = lambda n: TEXTS[n % 1000], *, policies: tuple[Any, ...] = (),
    idempotency: IdempotencyConfig | None = None, **options: Any,
) -> Callable[[int], object]:  # fmt: skip
    section = MarkdownSection(
        title="T", template="x", tools=[tool(handler, idempotency=idempotency)], policies=policies
    )
    return executing(executor(section, **options).__enter__(), "find", text)


_ids = itertools.count()


def executing(run: ToolExecutor, name: str, text: Callable[[int], str]) -> Callable[[int], object]:
    return lambda n: run.execute(ToolCall(f"call{next(_ids)}", name, text(n)))


def heard(event: object) -> None:
    pass


def evaluation(**options: Any) -> Callable[[int], object]:
    section = MarkdownSection(title="T", template="x", tools=[tool(find)])
    prompt: Prompt[str] = Prompt(PromptTemplate[str](ns="bench", key="evaluation", sections=[section]))
    script = [call("find", **json.loads(text)) for text in TEXTS[:10]]
    return lambda _: ScriptedAdapter(*script, say("done")).evaluate(prompt, Session(), **options)


def recorded_evaluation(store: SqliteRunStore, *, served: bool) -> Callable[[int], object]:
    """Ten calls that each add an item; `served`: the evaluation has ended, and all of it comes from the record."""
    subject = bench_record.prompt()
    script = [call("add", number=n, text="an entry of ordinary length") for n in range(10)]

    def one(run_id: str) -> object:
        record = store.run(run_id, types=[bench_record.Entry])
        return ScriptedAdapter(*script, say("done")).evaluate(subject, Session(), record=record)

    one("served")
    return lambda _: one("served" if served else f"run{next(_ids)}")


def awaiting(handler: Handler, loop: asyncio.AbstractEventLoop, **options: Any) -> Callable[[int], object]:
    """Ten calls in async code, so that starting the event loop counts for little."""
    run = executor(MarkdownSection(title="T", template="x", tools=[tool(handler)]), **options)
    loop.run_until_complete(run.__aenter__())

    async def ten(first: int) -> None:
        for n in range(first, first + 10):
            await run.aexecute(ToolCall(f"call{next(_ids)}", "find", TEXTS[n % 1000]))

    return lambda n: loop.run_until_complete(ten(n))


def batch(handler: Handler, requests: int = 8) -> Callable[[int], object]:
    """Requests that make one call each, all at once."""
    order = Tool[Order, str](name="order", description="Order.", handler=handler, max_repeats=None)
    section = MarkdownSection(title="Orders", template="Take orders.", tools=[order])
    template = PromptTemplate[str](ns="bench", key="requests", sections=[section])

    def one(_: int) -> None:
        results = Orders(requests, template).run(range(requests), concurrency=requests, progress=False)
        assert all(result.ok for result in results)

    return one


def scenarios() -> Iterator[Scenario]:
    fresh = itertools.count(1000)
    loop = asyncio.new_event_loop()
    later = timedelta(hours=5)
    yield "floor", lambda n: by_hand(TEXTS[n % 1000]), 200
    yield "a plain call", calling(find), 200
    yield "the same with files in memory", calling(find, files=InMemoryFilesystem()), 100
    yield "the same with a deadline", calling(find, deadline=later), 30
    yield "an async handler in synchronous code", calling(find_async), 60
    yield "a failed call", calling(fail), 100
    yield "a refused call", calling(find, policies=(Never(),)), 100
    yield "a call with bad arguments", calling(find, lambda _: '{"path": 1, "x": 2}'), 50
    yield "a call under a policy that allows it", calling(find, policies=(Always(),)), 60
    yield "a call under RateLimitPolicy", calling(find, policies=(RateLimitPolicy(10**6),)), 60
    yield "a call under QuotaPolicy", calling(find, policies=(QuotaPolicy(10**6),)), 60
    yield "a handler that looks at the log", calling(look_at_log), 60
    ledger, config = EffectLedger(), IdempotencyConfig(scope="bench")
    new = calling(find, lambda _: TEXTS[0].replace("400", str(next(fresh))), effect_ledger=ledger, idempotency=config)
    yield "an idempotent call, the first time", new, 60
    yield "the same again", calling(find, lambda _: TEXTS[1], effect_ledger=ledger, idempotency=config), 100
    files = executor(VfsToolsSection(session=Session(), config=VfsConfig())).__enter__()
    written = executing(
        files, "write_file", lambda _: json.dumps({"path": f"f{next(fresh)}.txt", "content": "hello\nworld\n"})
    )
    yield "write_file", written, 40
    folder = tempfile.mkdtemp()
    yield "a failed call that wrote a file on disk", calling(write_and_fail, files=HostFilesystem(folder)), 20
    yield "an evaluation of 10 calls", evaluation(), 10
    yield "the same with a listener", evaluation(on_event=heard), 10
    store = SqliteRunStore(Path(tempfile.mkdtemp(), "runs.db"), durable=False)
    yield "the same on record, each call with one changed item", recorded_evaluation(store, served=False), 4
    yield "the same served from the record", recorded_evaluation(store, served=True), 10
    yield "10 calls of an async handler in async code", awaiting(find_async, loop), 8
    yield "the same with a deadline, async", awaiting(find_async, loop, deadline=later), 8
    yield "10 calls of a synchronous handler in async code", awaiting(find, loop), 8
    yield "the same with a deadline, synchronous", awaiting(find, loop, deadline=later), 8
    yield "8 requests of one call at once, async handler", batch(bench_engine.async_handler), 4
    yield "8 requests of one call at once, synchronous handler", batch(bench_engine.handler), 4


def count_begins() -> None:
    """Callgrind is started with `--zero-before=getsid`: a function of libc that nothing else here calls."""
    os.getsid(0)


def count_ends() -> None:
    """And with `--dump-before=getpgid`."""
    os.getpgid(0)


def main() -> None:
    logging.getLogger("weakincentives").setLevel(logging.CRITICAL)
    gc.disable()
    subprocess.run(["callgrind_control", "--instr=on", str(os.getpid())], check=True, capture_output=True)
    for name, one, rounds in scenarios():
        for number in range(30):
            one(number)
        gc.collect()
        for times in (rounds, 3 * rounds):
            count_begins()
            for number in range(times):
                one(number)
            count_ends()
        sys.stdout.write(f"{name}\t{rounds}\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:] == ["names"]:
        sys.stdout.write("".join(f"{name}\n" for name, _, _ in scenarios()))
        sys.stdout.flush()
        os._exit(0)
    main()
