"""The two ways to run a call, for tests of what holds in both."""

from __future__ import annotations

import asyncio

import pytest

from weakincentives.runtime import ToolCall, ToolReply
from weakincentives.runtime.executor import ToolExecutor

ACT = ToolCall("1", "act", "{}")


def run_sync(executor: ToolExecutor, request: ToolCall = ACT) -> ToolReply:
    """Run one call in synchronous code; the executor is closed after it."""
    with executor:
        return executor.execute(request)


def run_async(executor: ToolExecutor, request: ToolCall = ACT) -> ToolReply:
    """The same in an event loop of its own."""

    async def main() -> ToolReply:
        async with executor:
            return await executor.aexecute(request)

    return asyncio.run(main())


both_ways = pytest.mark.parametrize("run", [run_sync, run_async])
"""Gives a test one of them after the other as `run`."""


__all__ = ["ACT", "both_ways", "run_async", "run_sync"]
