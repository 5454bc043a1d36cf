"""What an evaluation tells: the session's log and subscribers, and whoever listens to its progress."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Any, final

from ...budget import TokenUsage
from ...loop.events import publish
from ...loop.request import StopReason
from ...prompt.events import PromptExecuted, PromptRendered, ToolInvoked
from ...prompt.prompt import Prompt
from ...run_context import RunContext
from ...runtime.progress import CallFinished, OnEvent, ProgressEvent
from ...session import Session

logger = logging.getLogger(__name__)


@final
class Telling:
    """Nothing it calls can end the evaluation: what listeners and reducers raise is logged."""

    def __init__(
        self,
        prompt: Prompt[Any],
        session: Session,
        adapter_name: str,
        run_context: RunContext | None,
        on_event: OnEvent | None,
    ) -> None:
        self._session = session
        self._on_event = on_event
        self._started = session.clock.monotonic()
        self._who: dict[str, Any] = {
            "prompt_name": prompt.name,
            "prompt_ns": prompt.ns,
            "prompt_key": prompt.key,
            "adapter": adapter_name,
            "session_id": session.session_id,
            "run_context": run_context,
        }

    @property
    def listened_to(self) -> bool:
        """Whether somebody wants to see progress."""
        return self._on_event is not None

    def rendered(self, text: str, tool_names: tuple[str, ...]) -> None:
        """The prompt as it was sent."""
        publish(self._session, PromptRendered(text=text, tool_names=tool_names, **self._who))

    def executed(self, text: str | None, output: Any, stop_reason: StopReason, usage: TokenUsage) -> None:
        """The end, good or bad."""
        duration = self._session.clock.monotonic() - self._started
        publish(
            self._session,
            PromptExecuted(
                text=text, output=output, stop_reason=stop_reason, usage=usage, duration=duration, **self._who
            ),
        )

    def progress(self, event: ProgressEvent) -> None:
        """Tell the listener, if there is one."""
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:
            logger.exception("on_event raised on %s", type(event).__name__)

    def call_finished(self, call_id: str, text: str) -> None:
        """How the call ended, as it was recorded."""
        if self._on_event is None:
            return
        for event in reversed(self._session[ToolInvoked].all()):
            if event.call_id == call_id:
                name, outcome, kept = event.tool_name, event.outcome, event.success
                self.progress(CallFinished(call_id, name, outcome, text, event.duration, event.changes, kept))
                return


# How long Claude Code is waited for: a time for each answer of the model, which does not run while calls do.


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
