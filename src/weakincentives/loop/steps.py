"""The two ways to run the loop, so that it is written once: blocking a thread, or awaiting in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol, final

from ..runtime.call import ToolCall, ToolReply
from ..runtime.executor import OnCall, OnReply, ToolExecutor
from ..runtime.waiting import AWAITING, BLOCKING, OutOfTime
from .request import ModelRequest, ModelTurn
from .throttle import RequestFailed


class Asking(Protocol):
    """Whoever can be asked: a `ProviderAdapter`."""

    def ask(self, request: ModelRequest) -> ModelTurn:
        """Wait for the answer."""
        ...

    async def aask(self, request: ModelRequest) -> ModelTurn:
        """Await the answer."""
        ...


class Mode(Protocol):
    """How the loop asks, runs calls and waits."""

    async def ask(self, adapter: Asking, request: ModelRequest) -> ModelTurn:
        """Ask, for no longer than the request's timeout."""
        ...

    async def execute(
        self, executor: ToolExecutor, calls: Sequence[ToolCall], on_call: OnCall | None, on_reply: OnReply
    ) -> list[ToolReply]:
        """Run the calls of a turn."""
        ...

    async def recall(self, executor: ToolExecutor, call: ToolCall) -> ToolReply | None:
        """What is known of a call of an earlier conversation."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    async def enter(self, executor: ToolExecutor) -> None:
        """Enter the prompt's resources."""
        ...

    async def close(self, executor: ToolExecutor) -> None:
        """Leave them."""
        ...


@final
class BlockingMode:
    """For plain threads; never suspends. With a deadline a request runs in a worker thread, to be given up on."""

    async def ask(self, adapter: Asking, request: ModelRequest) -> ModelTurn:
        if request.timeout is None:
            return adapter.ask(request)
        try:
            return await BLOCKING.within(request.timeout, lambda: adapter.ask(request), is_async=False)
        except OutOfTime:
            raise _out_of_time() from None

    async def execute(
        self, executor: ToolExecutor, calls: Sequence[ToolCall], on_call: OnCall | None, on_reply: OnReply
    ) -> list[ToolReply]:
        return executor.execute_all(calls, on_call=on_call, on_reply=on_reply)

    async def recall(self, executor: ToolExecutor, call: ToolCall) -> ToolReply | None:
        return executor.recall(call)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this mode has no event loop

    async def enter(self, executor: ToolExecutor) -> None:
        executor.__enter__()

    async def close(self, executor: ToolExecutor) -> None:
        executor.close()


@final
class AwaitingMode:
    """For tasks of an event loop."""

    async def ask(self, adapter: Asking, request: ModelRequest) -> ModelTurn:
        if request.timeout is None:
            return await adapter.aask(request)
        try:
            return await AWAITING.within(request.timeout, lambda: adapter.aask(request), is_async=True)
        except OutOfTime:
            raise _out_of_time() from None

    async def execute(
        self, executor: ToolExecutor, calls: Sequence[ToolCall], on_call: OnCall | None, on_reply: OnReply
    ) -> list[ToolReply]:
        return await executor.aexecute_all(calls, on_call=on_call, on_reply=on_reply)

    async def recall(self, executor: ToolExecutor, call: ToolCall) -> ToolReply | None:
        return await AWAITING.call(lambda: executor.recall(call))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def enter(self, executor: ToolExecutor) -> None:
        await executor.__aenter__()

    async def close(self, executor: ToolExecutor) -> None:
        await executor.aclose()


def _out_of_time() -> RequestFailed:
    return RequestFailed("timeout", "the deadline passed while waiting for the model")


BLOCKING_MODE: Mode = BlockingMode()
AWAITING_MODE: Mode = AwaitingMode()

__all__ = ["AWAITING_MODE", "BLOCKING_MODE", "Asking", "Mode"]
