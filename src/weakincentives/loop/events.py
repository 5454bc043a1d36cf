"""What an evaluation publishes: events to the session's log and subscribers, progress to `on_event`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from time import time
from typing import Any, final

from ..budget import TokenUsage
from ..crash_log import log_crash
from ..errors import ReducerError
from ..interrupts import RLock
from ..prompt.events import PromptExecuted, PromptRendered, ToolInvoked
from ..prompt.prompt import Prompt
from ..prompt.render import RenderedPrompt
from ..run_context import RunContext
from ..runtime.call import ToolCall
from ..runtime.options import CallRecorder
from ..runtime.progress import (
    CallFinished,
    CallStarted,
    MessageReceived,
    OnEvent,
    ProgressEvent,
    ReasoningDelta,
    Resumed,
    TextDelta,
    TurnStarted,
)
from ..runtime.quick_events import placed, unfrozen
from ..session import Session
from ..session.savepoints import unowned_recorder
from .request import OnText, StopReason

# How an evaluation's own events reach the session: the log, the reducers, the subscribers, in this order.


logger: logging.Logger = logging.getLogger(__name__)


value_of_call: ContextVar[Prompt[Any] | None] = ContextVar("weakincentives_value_of_call", default=None)
"""A prompt whose answer is the value of the call around it, on the same session: it is routed once, with the call."""


def publish(
    session: Session, event: PromptRendered | PromptExecuted, *, routes_output: bool = True, tells: bool = True
) -> None:
    """Record the event, route a typed answer to the reducers of its type, tell the subscribers.

    What fails there is logged. It keeps neither the event from the log nor the evaluation from going on: the answer was
    given, and its caller gets it. The event belongs to no call; what reducers make of the answer belongs to the call
    that the evaluation runs in, if there is one, and is undone with it.
    """
    try:
        unowned_recorder(session)(event)
    except ReducerError as error:
        log_crash(logger, f"A reducer failed on {type(event).__name__}", error, _log_extra(event))
        session[type(event)].append(event)  # pyright: ignore[reportArgumentType]
    if routes_output and isinstance(event, PromptExecuted) and event.output is not None:
        try:
            session.dispatch_value(event.output)
        except ReducerError as error:
            what = f"A reducer failed on the output of the prompt {event.prompt_name!r}"
            log_crash(logger, what, error, _log_extra(event))
    if tells:
        session.dispatcher.dispatch(event)  # which logs what subscribers raise


def _log_extra(event: PromptRendered | PromptExecuted) -> dict[str, str | int] | None:
    return None if event.run_context is None else event.run_context.log_extra()


@final
class EvaluationEvents:
    """Publishes one evaluation. `on_event` is set for each step of it; nothing it raises gets out.

    An event's step says how far its listener is: up to there it was told everything. While calls run, rows may be
    written that were not told yet, so it is then the last one that was.
    """

    __slots__ = (
        "_broken", "_common", "_is_value", "_listening", "_log", "_open", "_recorder", "_run_id", "_session",
        "_started", "_telling", "_told",
        "is_hushed", "is_served", "on_event", "said", "streamed", "turn", "turns_before",
    )  # fmt: skip

    def __init__(
        self,
        adapter_name: str,
        prompt: Prompt[Any],
        session: Session,
        run_context: RunContext | None,
        recorder: CallRecorder | None = None,
    ) -> None:
        self._session = session
        self._is_value = value_of_call.get() is prompt
        self._recorder = recorder
        self._run_id = run_context.run_id if run_context is not None else None
        if recorder is not None:
            self._run_id = recorder.run_id
        self.turn: int = 0
        self.said: int = 0  # the turns of this message, with those of earlier attempts
        self.turns_before: int = 0  # those of earlier attempts
        self._common: dict[str, Any] = {
            "prompt_name": prompt.name,
            "prompt_ns": prompt.ns,
            "prompt_key": prompt.key,
            "adapter": adapter_name,
            "session_id": session.session_id,
            "run_context": run_context,
        }
        self._started = session.clock.monotonic()
        self._broken = False
        self.is_hushed: bool = False
        self._open: dict[str, None] = {}
        self._told = 0
        self._telling: Any = None
        self._log: Any = None
        self._listening: object = None
        self.on_event: OnEvent | None = None
        self.streamed: bool = False
        self.is_served: bool = False  # what is on record: subscribers were told of it when it happened

    def begin_again(self, turns_before: int) -> None:
        """Another message of the same conversation, or one more attempt at it: its time is its own."""
        self.turn = self.turns_before = turns_before
        self._started = self._session.clock.monotonic()

    # Progress.

    def listen_with(self, on_event: OnEvent | None) -> None:
        """Tell this listener from now on; it is told of nothing while it is being told."""
        self.on_event = on_event
        if on_event is not None:
            self._telling = RLock()
            self._log = self._session[ToolInvoked]

    def tell(self, kind: Callable[..., ProgressEvent], *values: Any) -> None:
        """Call `on_event`, if there is one; what it raises is logged, the first time as an error."""
        if self.on_event is None or self.is_hushed:
            return
        recorder = self._recorder
        step = None if recorder is None else self._told if self._open else recorder.step
        event = unfrozen(kind)(self._run_id, step, self.turn, time(), (), *values)
        event.__class__ = kind
        self._pass(event)

    def interjected(self, text: str) -> None:
        """The user said this while the message is answered."""
        self.tell(MessageReceived, text, True)

    def pass_on(self, event: ProgressEvent) -> None:
        """Tell what happened in a sub-agent, as part of this run."""
        if self._recorder is not None:
            step = self._told if self._open else self._recorder.step
            event = placed(event, self._run_id, step, event.path)
        self._pass(event)

    def _pass(self, event: ProgressEvent) -> None:
        if self.on_event is None:
            return
        try:
            with self._telling:  # sub-agents may work in several threads
                self.on_event(event)
        except Exception:
            level = logging.DEBUG if self._broken else logging.ERROR  # once is enough
            logger.log(level, "on_event raised on %s", type(event).__name__, exc_info=True)
            self._broken = True

    def served(self) -> None:
        """What follows is on record and happened before: nothing is told of it."""
        self.is_hushed = True

    def goes_on(self, attempt: int, *, asks: bool = False) -> None:
        """What follows happens now; listeners are told so once. With `asks`, the model is about to be asked."""
        if not self.is_hushed:
            return
        self.is_hushed = False
        turn = self.turn
        self.turn -= asks
        self.tell(Resumed, attempt)
        self.turn = turn
        if asks:
            self.tell(TurnStarted, turn)

    def listen(self) -> tuple[OnText, OnText]:
        """What takes the text and the reasoning of one request.

        Text of an abandoned request that still runs in its thread is ignored.
        """
        mine = self._listening = object()

        def on_text(text: str) -> None:
            if text and self._listening is mine:
                self.streamed = True
                self.tell(TextDelta, text)

        def on_reasoning(text: str) -> None:
            if text and self._listening is mine:
                self.tell(ReasoningDelta, text)

        return on_text, on_reasoning

    def stop_listening(self) -> None:
        """Ignore the text of all requests from now on."""
        self._listening = None

    def call_started(self, call: ToolCall, arguments: str) -> None:
        """A call is about to begin; `arguments` is what may be shown of them."""
        if self._recorder is not None and not self.is_hushed:
            if not self._open:
                self._told = self._recorder.step
            self._open[call.id] = None
        self.tell(CallStarted, call.id, call.name, arguments)

    def call_finished(self, call_id: str, text: str) -> None:
        """A call is over; what became of it is in the log."""
        if self.on_event is None or self.is_hushed:
            return
        event = self._event_of(call_id)
        if event is not None:
            if self._recorder is not None:
                self._close(call_id, self._recorder.step_of(event))
            changes, kept = event.changes, event.success
            self.tell(CallFinished, call_id, event.tool_name, event.outcome, text, event.duration, changes, kept)

    def _event_of(self, call_id: str) -> ToolInvoked | None:
        """The event of a call of this session, not that of one of an agent inside a call. Mostly it is the last."""
        own, log = (None, self._common["session_id"]), self._log
        last = log.latest()
        if last is not None and last.call_id == call_id and last.session_id in own:
            return last
        return next((one for one in reversed(log.all()) if one.call_id == call_id and one.session_id in own), None)

    def _close(self, call_id: str, step: int | None) -> None:
        """A call is told to be over: everything up to its row was told, if none before it is open."""
        is_first = next(iter(self._open), None) == call_id
        self._open.pop(call_id, None)
        if is_first and step is not None:
            self._told = step

    # The log.

    def rendered(self, rendered: RenderedPrompt[Any]) -> None:
        """A prompt is about to be sent."""
        names = tuple(tool.name for tool in rendered.tools)
        publish(
            self._session,
            PromptRendered(text=rendered.text, system=rendered.system, tool_names=names, **self._common),
            tells=not self.is_served,
        )

    def executed(self, text: str | None, output: Any, stop_reason: StopReason, usage: TokenUsage) -> None:
        """The evaluation is over."""
        duration = self._session.clock.monotonic() - self._started
        publish(
            self._session,
            PromptExecuted(
                text=text, output=output, stop_reason=stop_reason, usage=usage, duration=duration, **self._common
            ),
            routes_output=not self._is_value,
            tells=not self.is_served,
        )
