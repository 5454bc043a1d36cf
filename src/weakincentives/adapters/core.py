"""The base of all adapters: `evaluate` is here, `ask` is what each provider adds."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

from ..budget import Budget, BudgetTracker
from ..deadlines import Deadline
from ..prompt.prompt import Prompt
from ..run_context import Heartbeat, RunContext
from ..runtime.call import ToolReply
from ..session import Session
from .driving import drive
from .exchange import ModelRequest, ModelTurn
from .inner_loop import Evaluation, new_key
from .limits import Limits, LoopSettings
from .modes import AWAITING_MODE, BLOCKING_MODE
from .progress import OnEvent
from .response import PromptResponse
from .throttle import Throttle
from .tool_executor import ToolExecutor
from .transcript import AnswerMessage, History, Message, open_calls

OutputT = TypeVar("OutputT")

_LEFT_OPEN = "This call was not run, because the conversation was continued without it."


class LoopOptions(TypedDict, total=False):
    """The settings every adapter takes by name; see `LoopSettings`."""

    max_turns: int
    output_retries: int
    max_expansions: int
    throttle: Throttle
    manual: bool
    hide_errors: bool
    system: str | None


class _Options(NamedTuple):
    """What one evaluation was given beside prompt and session; see `ProviderAdapter.evaluate`."""

    deadline: Deadline | None
    budget: Budget | None
    budget_tracker: BudgetTracker | None
    effect_ledger: Any
    heartbeat: Heartbeat | None
    run_context: RunContext | None
    history: History | Sequence[Message] | None
    tool_results: Iterable[ToolReply] | None


class ProviderAdapter(ABC):
    """Talks to a model and runs its tool calls. A subclass says how to `ask`; the loop is shared.

    One adapter serves any number of evaluations, from any thread or task. It holds no conversation, but for manual
    mode, where an open one is kept for its session until it ends, is begun anew, or `abandon` ends it.
    """

    def __init__(self, **options: Unpack[LoopOptions]) -> None:
        self.settings = LoopSettings(**options)
        self._open: dict[str, Evaluation[Any]] = {}
        self._lock = Lock()

    @property
    def name(self) -> str:
        """How events and errors call it."""
        return type(self).__name__

    @abstractmethod
    def ask(self, request: ModelRequest) -> ModelTurn:
        """Send one request and wait for the answer; `RequestFailed` says how it failed. Never retries by itself."""

    async def aask(self, request: ModelRequest) -> ModelTurn:
        """Like `ask`, for async code; runs `ask` in a thread unless a subclass knows better."""
        return await asyncio.to_thread(self.ask, request)

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        deadline: Deadline | None = None,
        budget: Budget | None = None,
        budget_tracker: BudgetTracker | None = None,
        effect_ledger: Any = None,
        heartbeat: Heartbeat | None = None,
        run_context: RunContext | None = None,
        on_event: OnEvent | None = None,
        history: History | Sequence[Message] | None = None,
        tool_results: Iterable[ToolReply] | None = None,
    ) -> PromptResponse[OutputT]:
        """Render the prompt, ask the model and run its calls until it has answered.

        Args:
            prompt: what to say and which tools to offer. Its resources are entered for the evaluation.
            session: where state and events go.
            deadline: when it must be over.
            budget: the tokens it may spend.
            budget_tracker: the same, counted together with other evaluations; it wins over `budget`.
            effect_ledger: where idempotent calls are remembered.
            heartbeat: beats before every request and after every call.
            run_context: correlation ids for events and handlers.
            on_event: is told of progress; see `weakincentives.adapters.progress`.
            history: an earlier conversation to continue.
            tool_results: in manual mode, the answers to the calls of the last step; the limits are still that step's.

        Raises:
            PromptEvaluationError: no answer; its `phase` is "request", "response", "tool", "budget" or "deadline".
            PromptRenderError: the prompt lacks params.
            RollbackError: a call could not be undone completely.

        Whatever is raised, every call is answered and recorded first; `history_of(error)` is the conversation.
        """
        options = _Options(
            deadline, budget, budget_tracker, effect_ledger, heartbeat, run_context, history, tool_results
        )
        evaluation = self._begin(prompt, session, options)
        return self._ended(evaluation, session, drive(evaluation.run(BLOCKING_MODE, on_event)))

    async def aevaluate(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        deadline: Deadline | None = None,
        budget: Budget | None = None,
        budget_tracker: BudgetTracker | None = None,
        effect_ledger: Any = None,
        heartbeat: Heartbeat | None = None,
        run_context: RunContext | None = None,
        on_event: OnEvent | None = None,
        history: History | Sequence[Message] | None = None,
        tool_results: Iterable[ToolReply] | None = None,
    ) -> PromptResponse[OutputT]:
        """Like `evaluate`, for async code. Cancelling it undoes the call that runs and answers all others."""
        options = _Options(
            deadline, budget, budget_tracker, effect_ledger, heartbeat, run_context, history, tool_results
        )
        evaluation = self._begin(prompt, session, options)
        return self._ended(evaluation, session, await evaluation.run(AWAITING_MODE, on_event))

    def abandon(self, session: Session) -> None:
        """End an open conversation of manual mode: its calls are recorded as not run, its resources closed."""
        with self._lock:
            evaluation = self._open.pop(session.session_id, None)
        if evaluation is not None:
            evaluation.close()

    # Inside.

    def _ended(
        self, evaluation: Evaluation[OutputT], session: Session, response: PromptResponse[OutputT]
    ) -> PromptResponse[OutputT]:
        if response.tool_calls:
            with self._lock:
                self._open[session.session_id] = evaluation
        return response

    def _begin(self, prompt: Prompt[OutputT], session: Session, options: _Options) -> Evaluation[OutputT]:
        if options.tool_results is None or options.history is not None:
            self.abandon(session)
            return self._new(prompt, session, options)
        with self._lock:
            evaluation = self._open.get(session.session_id)
        if evaluation is None:
            raise ValueError(
                "tool_results= goes on with a conversation of manual mode, but this session has none open. "
                "Evaluate without it first, or pass history= as well."
            )
        evaluation.take_results(options.tool_results)
        with self._lock:
            self._open.pop(session.session_id, None)
        return evaluation

    def _new(self, prompt: Prompt[OutputT], session: Session, options: _Options) -> Evaluation[OutputT]:
        limits = Limits(new_key(prompt.name), options.deadline, options.budget, options.budget_tracker)
        return Evaluation(
            self,
            prompt,
            session,
            limits=limits,
            history=_whole(options.history, options.tool_results or ()),
            heartbeat=options.heartbeat,
            run_context=options.run_context,
            executor_options=_executor_options(options.effect_ledger),
        )


def _whole(history: History | Sequence[Message] | None, results: Iterable[ToolReply]) -> History:
    """The earlier conversation with an answer for every call, as no provider takes one without."""
    messages = tuple(history.messages if isinstance(history, History) else history or ())
    given = {reply.call_id: reply for reply in results}
    for call in open_calls(messages):
        reply = given.get(call.id)
        text, is_error = (_LEFT_OPEN, False) if reply is None else (reply.text, reply.is_error)
        messages = (*messages, AnswerMessage(call.id, text, is_error))
    return History(messages)


def _executor_options(effect_ledger: Any) -> dict[str, Any]:
    if effect_ledger is None:
        return {}
    if "effect_ledger" not in inspect.signature(ToolExecutor).parameters:
        raise TypeError("This version runs no effect ledger.")
    return {"effect_ledger": effect_ledger}


__all__ = ["LoopOptions", "ProviderAdapter"]
