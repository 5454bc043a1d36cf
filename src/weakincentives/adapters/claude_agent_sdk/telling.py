"""What an evaluation tells: the session's log and subscribers, and whoever listens to its progress."""

from __future__ import annotations

import logging
from typing import Any, final

from ...budget import TokenUsage
from ...crash_log import log_crash
from ...errors import ReducerError
from ...prompt.events import PromptExecuted, PromptRendered, ToolInvoked
from ...prompt.prompt import Prompt
from ...run_context import RunContext
from ...session import Session
from ...session.savepoints import unowned_recorder
from ..exchange import StopReason
from ..progress import CallFinished, OnEvent, ProgressEvent

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
        self._publish(PromptRendered(text=text, tool_names=tool_names, **self._who))

    def executed(self, text: str | None, output: Any, stop_reason: StopReason, usage: TokenUsage) -> None:
        """The end, good or bad."""
        duration = self._session.clock.monotonic() - self._started
        self._publish(
            PromptExecuted(
                text=text, output=output, stop_reason=stop_reason, usage=usage, duration=duration, **self._who
            )
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

    def _publish(self, event: PromptRendered | PromptExecuted) -> None:
        session = self._session
        try:
            unowned_recorder(session)(event)
        except ReducerError as error:
            extra = None if event.run_context is None else event.run_context.log_extra()
            log_crash(logger, f"A reducer failed on {type(event).__name__}", error, extra)
            session[type(event)].append(event)  # pyright: ignore[reportArgumentType]
        session.dispatcher.dispatch(event)  # which logs what subscribers raise


__all__ = ["Telling"]
