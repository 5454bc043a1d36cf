"""Declaring tools, and what the declarations cost for every call."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass
from time import process_time
from typing import Any, Literal

from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory.filesystem import InMemoryFilesystem
from weakincentives.prompt import (
    QuotaPolicy,
    RateLimitPolicy,
    ReadBeforeWritePolicy,
    SequentialDependencyPolicy,
    Tool,
    ToolContext,
    ToolInvoked,
    ToolPolicy,
    ToolResult,
)
from weakincentives.resources import ResourceRegistry
from weakincentives.session import Session

from .harness import Row, ratio


@dataclass(frozen=True)
class _Point:
    x: float
    y: float


_FIELDS: list[Any] = [
    ("query", str),
    ("limit", int, field(default=10, metadata={"description": "At most so many"})),
    ("exact", bool, field(default=False)),
    ("kinds", tuple[str, ...], field(default=())),
    ("order", Literal["name", "date"], field(default="name")),
    ("near", _Point | None, field(default=None)),
]


def run() -> Iterator[Row]:
    yield _building()
    yield from _policies()
    yield from _per_call()


def _building() -> Row:
    """A tool whose params type was never seen before, its class and its schema included."""
    samples: list[float] = []
    for _ in range(60):
        params: Any = make_dataclass("Params", _FIELDS, frozen=True, slots=True)

        def handler(params: Any, *, context: ToolContext) -> ToolResult[str]:
            return ToolResult.ok("done")

        start = process_time()
        typed: Any = Tool[params, str]
        typed(name="search", description="Search.", handler=handler).schema()
        samples.append(process_time() - start)
    return Row("building a tool with 6 fields", statistics.median(samples) * 1e3, 3.0, "ms", "with its schema")


def _session(calls: int) -> Session:
    session = Session()
    for number in range(calls):
        session.record(ToolInvoked(tool_name=f"tool_{number % 20}", success=True, timestamp=float(number)))
    return session


def _context(calls: int) -> ToolContext:
    fs = InMemoryFilesystem()
    fs.write("plan.md", "a short file")
    context = ToolContext(session=_session(calls), resources=ResourceRegistry.build({Filesystem: fs}))
    for number in range(calls // 10):
        fs.write(f"{number}.md", "seen")
        _READ_FIRST.on_result("read_file", {"path": f"{number}.md"}, ToolResult.ok(None), context)
    _READ_FIRST.on_result("read_file", {"path": "plan.md"}, ToolResult.ok(None), context)
    return context


_READ_FIRST = ReadBeforeWritePolicy()


def _policies() -> Iterator[Row]:
    few, many = _context(10), _context(100_000)
    cases: tuple[tuple[ToolPolicy, str], ...] = (
        (SequentialDependencyPolicy({"deploy": frozenset({"tool_1", "tool_2"})}), "deploy"),
        (RateLimitPolicy(10), "deploy"),
        (QuotaPolicy(1_000_000), "deploy"),
        (_READ_FIRST, "write_file"),
    )
    for policy, name in cases:
        params = {"path": "plan.md"}
        assert policy.check(name, params, many) is None  # builds the index, once in the life of a session
        yield ratio(
            f"{type(policy).__name__}: 100,000 calls against 10",
            lambda policy=policy, name=name, params=params: policy.check(name, params, many),
            lambda policy=policy, name=name, params=params: policy.check(name, params, few),
            1.2,
            note="flat",
        )


class _Context:
    """What a mutable object with a context's fields costs."""

    __slots__ = ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")

    def __init__(self, *, a: Any, b: Any, c: Any, d: Any, e: Any = None, f: Any = None, g: Any = None, h: Any = None,
                 i: Any = None, j: Any = None, k: Any = None, l: Any = None) -> None:  # fmt: skip  # noqa: E741
        self.a, self.b, self.c, self.d, self.e, self.f = a, b, c, d, e, f
        self.g, self.h, self.i, self.j, self.k, self.l = g, h, i, j, k, l


@dataclass(slots=True, kw_only=True)
class _Event:
    """What a mutable object with an event's fields costs."""

    tool_name: Any
    params: Any
    result: Any
    success: Any
    timestamp: Any
    duration: Any
    call_id: Any
    session_id: Any
    prompt_name: Any
    adapter: Any
    rendered_output: Any
    outcome: Any
    usage: Any = None
    run_context: Any = None
    event_id: Any = None
    changes: Any = None


def _per_call() -> Iterator[Row]:
    session, resources = Session(), ResourceRegistry()
    fields: dict[str, Any] = {
        "tool_name": "search", "params": None, "result": ToolResult.ok("done"), "success": True, "timestamp": 1.0,
        "duration": 0.5, "call_id": "c1", "session_id": "s1", "prompt_name": "p", "adapter": "a",
        "rendered_output": "done", "outcome": "succeeded",
    }  # fmt: skip
    yield ratio(
        "ToolContext against a mutable object",
        lambda: ToolContext(session=session, resources=resources, call_id="c1", tool_name="search"),
        lambda: _Context(a=session, b=resources, c="c1", d="search"),
        2.0,
    )
    yield ratio(
        "ToolInvoked with its id against a mutable object", lambda: ToolInvoked(**fields), lambda: _Event(**fields), 2.5
    )
