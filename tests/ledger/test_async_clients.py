"""A pooled database client in async tools of plain code: each connection belongs to the event loop it was opened on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asyncpg

from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.resources import Binding, Resolver
from weakincentives.runtime import Session, ToolInvoked
from weakincentives.testing import ScriptedAdapter, call, say


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


def _uri(dsn: str) -> str:
    """What asyncpg takes, of the words that psycopg takes."""
    words = dict(word.split("=", 1) for word in dsn.split())
    return f"postgresql:///{words['dbname']}?host={words['host']}&user={words['user']}"
