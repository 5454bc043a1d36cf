"""A pooled database client in async tools of plain code: each connection belongs to the event loop it was opened on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asyncpg

from weakincentives.adapters import ToolExecutor
from weakincentives.event_loop import thread_loop
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.resources import Binding, Resolver
from weakincentives.runtime import MainLoop, Session, ToolCall, ToolInvoked
from weakincentives.testing import ScriptedAdapter, call, execute_tool, say


@dataclass(frozen=True)
class Word:
    text: str


class Database:
    """A pool, opened by an async provider and closed with the run."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool

    async def aclose(self) -> None:
        await self.pool.close()


async def upper(params: Word, *, context: ToolContext) -> ToolResult[str]:
    database = await context.resources.aget(Database)
    return ToolResult.ok(await database.pool.fetchval("select upper($1)", params.text))


async def upper_in_time(params: Word, *, context: ToolContext) -> ToolResult[str]:
    return await upper(params, context=context)


def test_tools_share_a_pool_of_connections(postgres: str) -> None:
    """Two calls, one with a limit; the pool is opened and closed where they run, in each of two evaluations."""
    pools: list[Any] = []

    async def connect(_: Resolver) -> Database:
        untyped: Any = asyncpg
        pools.append(await untyped.create_pool(dsn=_uri(postgres), min_size=1, max_size=2))
        return Database(pools[-1])

    tools = [
        Tool[Word, str](name="upper", description="Upper case.", handler=upper),
        Tool[Word, str](name="in_time", description="Upper case, in time.", handler=upper_in_time, timeout=60.0),
    ]
    section = MarkdownSection(title="Task", template="Go.", tools=tools)
    for _ in range(2):
        prompt = Prompt[str](name="pool", sections=[section]).bind(resources={Database: Binding(Database, connect)})
        session = Session()
        script = [call("upper", text="a"), call("in_time", text="b"), call("upper", text="c"), say("done")]
        assert ScriptedAdapter(*script).evaluate(prompt, session).text == "done"
        assert [event.result and event.result.value for event in session[ToolInvoked].all()] == ["A", "B", "C"]
    assert len(pools) == 2
    assert all(pool.is_closing() for pool in pools)


def test_every_way_of_calling_uses_the_same_pool(postgres: str) -> None:
    """A pool that a handler opens once serves `execute`, `evaluate`, `run` and `execute_tool`, one after the other."""
    pools: list[Any] = []

    async def query(params: Word, *, context: ToolContext) -> ToolResult[str]:
        if not pools:
            untyped: Any = asyncpg
            pools.append(await untyped.create_pool(dsn=_uri(postgres), min_size=1, max_size=1))
        return ToolResult.ok(await pools[0].fetchval("select upper($1)", params.text))

    tool = Tool[Word, str](name="query", description="Upper case.", handler=query)
    prompt = Prompt[str](name="pool", sections=[MarkdownSection(title="Task", template="Go.", tools=[tool])])

    class Asking(MainLoop[str, str]):
        def prepare(self, request: str) -> tuple[Prompt[str], Session]:
            return prompt, Session()

    def turn(request: Any) -> Any:
        return call("query", text="r") if len(request.messages) == 1 else say("done")

    def values(session: Session | None) -> list[Any]:
        assert session is not None
        return [event.result and event.result.value for event in session[ToolInvoked].all()]

    with ToolExecutor(prompt=prompt, session=Session()) as executor:
        replies = [executor.execute(ToolCall(f"{n}", "query", {"text": "x"})) for n in range(2)]
    assert [reply.result.value for reply in replies] == ["X", "X"]
    session = Session()
    ScriptedAdapter(call("query", text="a"), call("query", text="b"), say("done")).evaluate(prompt, session)
    assert values(session) == ["A", "B"]
    for concurrency in (1, 2):
        results = Asking(ScriptedAdapter(*[turn] * 4)).run(["1", "2"], concurrency=concurrency, progress=False)
        assert [values(result.session) for result in results] == [["R"], ["R"]]
    assert [execute_tool(tool, {"text": "t"}).result.value for _ in range(2)] == ["T", "T"]
    thread_loop().run(pools[0].close())


def _uri(dsn: str) -> str:
    """What asyncpg takes, of the words that psycopg takes."""
    words = dict(word.split("=", 1) for word in dsn.split())
    return f"postgresql:///{words['dbname']}?host={words['host']}&user={words['user']}"
