"""The base of all adapters: `evaluate` is here, `ask` is what each provider adds."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, NamedTuple, Self, TypedDict, TypeVar, Unpack

from ..budget import Budget, BudgetTracker
from ..deadlines import Deadline
from ..prompt.prompt import Prompt
from ..run_context import Heartbeat, RunContext
from ..runtime.call import ToolReply
from ..runtime.ledger import Ledger
from ..runtime.messages import History, Message
from ..runtime.progress import OnEvent
from ..runtime.waiting import drive
from ..session import Session
from .evaluation import Evaluation, new_key
from .history import by_call, check_open
from .limits import Limits, LoopSettings
from .request import ModelRequest, ModelTurn
from .response import PromptResponse
from .steps import AWAITING_MODE, BLOCKING_MODE
from .throttle import Throttle

OutputT = TypeVar("OutputT")


class LoopOptions(TypedDict, total=False):
    """The settings every adapter takes by name; see `LoopSettings`."""

    max_turns: int
    output_retries: int
    max_expansions: int
    max_calls_per_turn: int
    request_timeout: float
    max_answer_bytes: int
    throttle: Throttle
    manual: bool
    hide_errors: bool
    system: str | None


class _Options(NamedTuple):
    """What one evaluation was given beside prompt and session; see `ProviderAdapter.evaluate`."""

    deadline: Deadline | None
    budget: Budget | None
    budget_tracker: BudgetTracker | None
    effect_ledger: Ledger | None
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
        effect_ledger: Ledger | None = None,
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
            budget_tracker: the same, counted together with other evaluations. Both hold, and so does a
                `BudgetTracker` among the prompt's resources.
            effect_ledger: where idempotent calls are remembered.
            heartbeat: beats before every request and after every call.
            run_context: correlation ids for events and handlers.
            on_event: is told of progress; see `weakincentives.runtime.progress`.
            history: an earlier conversation to continue. Calls that it left open are answered by `tool_results`, by
                the session's log or by the ledger; a call of which none of them knows has an unknown outcome.
            tool_results: in manual mode, the answers to the calls of the last step; the limits are still that step's.
                An answer to a call that was not run here, such as a denial, is recorded as it is given. With a
                `history` that has open calls the conversation goes on where it was, and the prompt is not said again.

        Raises:
            ValueError: `tool_results` answers calls that are not open; nothing was recorded or sent.
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
        effect_ledger: Ledger | None = None,
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

    def close(self) -> None:
        """End every open conversation of manual mode, as `abandon` does, and release what the adapter holds.

        Leaving `with adapter:` does so. It may be used again afterwards.
        """
        for evaluation in self._take_open():
            evaluation.close()

    async def aclose(self) -> None:
        """Like `close`, for async code; leaving `async with adapter:` does so."""
        for evaluation in self._take_open():
            await evaluation.aclose()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def abandon(self, session: Session) -> None:
        """End an open conversation of manual mode: its calls are recorded as not run, its resources closed."""
        self._abandon(session, ())

    # Inside.

    def _take_open(self) -> list[Evaluation[Any]]:
        with self._lock:
            evaluations, self._open = list(self._open.values()), {}
        return evaluations

    def _abandon(self, session: Session, results: Iterable[ToolReply]) -> None:
        with self._lock:
            evaluation = self._open.pop(session.session_id, None)
        if evaluation is not None:
            evaluation.close(results)

    def _ended(
        self, evaluation: Evaluation[OutputT], session: Session, response: PromptResponse[OutputT]
    ) -> PromptResponse[OutputT]:
        if response.tool_calls:
            with self._lock:
                self._open[session.session_id] = evaluation
        return response

    def _begin(self, prompt: Prompt[OutputT], session: Session, options: _Options) -> Evaluation[OutputT]:
        if options.tool_results is None or options.history is not None:
            if options.tool_results is not None:
                history, results = History.of(options.history), tuple(options.tool_results)
                check_open(by_call(results), history.open_calls, where="history=")
                options = options._replace(history=history, tool_results=results)
            self._abandon(session, options.tool_results or ())
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
            history=History.of(options.history),
            tool_results=options.tool_results,
            heartbeat=options.heartbeat,
            run_context=options.run_context,
            effect_ledger=options.effect_ledger,
        )


__all__ = ["LoopOptions", "ProviderAdapter"]
