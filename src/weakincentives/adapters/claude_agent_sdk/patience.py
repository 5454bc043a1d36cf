"""How long Claude Code is waited for: a time for each answer of the model, which does not run while calls do."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import final


@final
class Patience:
    """`async with patience: ...` raises `TimeoutError` when nothing whole came for so long, and no call was under way.

    May be entered again, one time after another. `renew`, `suspend` and `resume` do nothing outside of it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._under_way: set[str] = set()
        self._timeout: asyncio.Timeout | None = None
        self.is_over = False

    async def __aenter__(self) -> None:
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        self.renew()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        timeout, self._timeout = self._timeout, None
        assert timeout is not None
        try:
            await timeout.__aexit__(kind, error, traceback)
        finally:
            self.is_over = timeout.expired()

    def renew(self) -> None:
        """Something whole came: the time for the next begins, unless calls are under way."""
        if self._timeout is not None and not self._timeout.expired():
            now = asyncio.get_running_loop().time()
            self._timeout.reschedule(None if self._under_way else now + self._seconds)

    def suspend(self, call_id: str) -> None:
        """A call has begun: its own limits hold."""
        self._under_way.add(call_id)
        self.renew()

    def resume(self, call_id: str) -> None:
        """A call has ended."""
        self._under_way.discard(call_id)
        self.renew()


__all__ = ["Patience"]
