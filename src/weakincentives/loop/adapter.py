"""The base of all adapters: `evaluate` is here, `ask` is what each provider adds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, TypedDict, TypeVar, Unpack

from ..interrupts import Lock
from ..lazy_modules import asyncio
from ..prompt.prompt import Prompt
from ..run_context import RunContext
from ..runtime.call import ToolReply
from ..runtime.options import RunKeywords, RunOptions, options_from, run_id_of
from ..runtime.progress import OnEvent
from ..runtime.record.calls import RunRecorder
from ..runtime.record.resources import ResourceRecorder
from ..runtime.record.runs import RunRecord
from ..session import Session
from ..waiting import AWAITING, BLOCKING, drive
from .attachments import TEXT_ONLY, Accepts
from .background import refuse_in_event_loop
from .evaluation import Evaluation
from .request import ModelRequest, ModelTurn, Throttle
from .response import PromptResponse, by_call, check_open
from .settings import AdapterSettings, check_setting_names
from .stream import Begin, EventStream, StreamedRun, SyncEventStream, tell_both

OutputT = TypeVar("OutputT")


class AdapterKeywords(TypedDict, total=False):
    """The settings every adapter takes by name; see `AdapterSettings`."""

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


class Adapter(ABC):
    """Talks to a model and runs its tool calls: `evaluate` works through one prompt.

    One adapter serves any number of evaluations, from any thread or task. A provider that answers one request at a time
    is a `TurnAdapter`; an adapter for a program with a loop of its own implements `evaluate` and `aevaluate`.
    """

    def __init__(self, **options: Unpack[AdapterKeywords]) -> None:
        check_setting_names(type(self), options)
        self.settings: AdapterSettings = AdapterSettings(**options)

    @property
    def name(self) -> str:
        """The name used in events and error messages."""
        return type(self).__name__

    @abstractmethod
    def evaluate(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        tool_results: Iterable[ToolReply] | None = None,
        **options: Unpack[RunKeywords],
    ) -> PromptResponse[OutputT]:
        """Render the prompt, ask the model and run its calls until it has answered.

        Args:
            prompt: what to say and which tools to offer. Its resources are entered for the evaluation.
            session: where state and events go.
            tool_results: in manual mode, the answers to the calls of the last step; the limits are still that step's.
                An answer to a call that was not run here, such as a denial, is recorded as it is given. With a
                `history` that has open calls the conversation goes on where it was, and the prompt is not sent again.
            options: deadline, budget, listeners and so on; see `RunOptions`.

        Raises:
            ValueError: `tool_results` answers calls that are not open; nothing was recorded or sent.
            PromptEvaluationError: no answer; its `phase` is "request", "response", "tool", "budget" or "deadline".
            PromptRenderError: the prompt lacks params.
            RollbackError: a call could not be undone completely.

        Whatever is raised, every call is answered and recorded first; `history_of(error)` is the conversation.
        """

    @abstractmethod
    async def aevaluate(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        tool_results: Iterable[ToolReply] | None = None,
        **options: Unpack[RunKeywords],
    ) -> PromptResponse[OutputT]:
        """Like `evaluate`, for async code. Cancelling it undoes the call that runs and answers all others."""

    def stream(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        after: int | str | None = None,
        **options: Unpack[RunKeywords],
    ) -> EventStream[OutputT]:
        """Like `aevaluate`, one event after another: `async with adapter.stream(...) as events:`. See `EventStream`.

        With `after`, what a run on record has done after that step is told first; see `MainLoop.stream`.
        """
        return EventStream(self._streamed(prompt, session, self._run_options("stream", options)), after)

    def stream_sync(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        after: int | str | None = None,
        **options: Unpack[RunKeywords],
    ) -> SyncEventStream[OutputT]:
        """Like `stream`, for synchronous code: `with adapter.stream_sync(...) as events:`. See `SyncEventStream`."""
        refuse_in_event_loop("stream_sync()", "async with adapter.stream(...)")
        return SyncEventStream(self._streamed(prompt, session, self._run_options("stream_sync", options)), after)

    def _streamed(self, prompt: Prompt[OutputT], session: Session, options: RunOptions) -> Begin[OutputT]:
        def begin(on_event: OnEvent) -> StreamedRun[OutputT]:
            keywords = options.keywords()
            keywords["on_event"] = tell_both(on_event, options.on_event)
            return StreamedRun(
                session,
                prompt.name,
                run_id_of(options),
                lambda: self.aevaluate(prompt, session, **keywords),
                options.record,
            )

        return begin

    def close(self) -> None:  # noqa: B027 - most adapters hold nothing
        """Release what the adapter holds. Leaving `with adapter:` does so. It may be used again afterwards."""

    async def aclose(self) -> None:
        """Like `close`, for async code; leaving `async with adapter:` does so."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def _run_options(self, function: str, keywords: RunKeywords) -> RunOptions:
        """The options of `evaluate` or `aevaluate`; what they leave open is the adapter's own."""
        name = f"{type(self).__name__}.{function}"
        if keywords.get("hide_errors") is None:
            keywords = {**keywords, "hide_errors": self.settings.hide_errors}
        return options_from(RunOptions, keywords, function=name, others=("tool_results",))


class TurnAdapter(Adapter):
    """An adapter that asks a model for one turn after another. A subclass says how to `ask`; the loop is shared.

    It holds no conversation, except in manual mode, where an open one is kept for its session until it ends, is begun
    anew, or `abandon` ends it.
    """

    accepts: Accepts = TEXT_ONLY
    """What the model takes besides text. `ask` is given no more than that; one line of text stands for the rest."""

    def __init__(self, **options: Unpack[AdapterKeywords]) -> None:
        super().__init__(**options)
        self._open: dict[str, Evaluation[Any]] = {}
        self._lock = Lock()

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
        tool_results: Iterable[ToolReply] | None = None,
        **options: Unpack[RunKeywords],
    ) -> PromptResponse[OutputT]:
        """See `Adapter.evaluate`."""
        given = self._run_options("evaluate", options)
        record, recorder = self._recordable(given), None
        if record is not None:
            recorder = open_record(record, prompt, session)
        evaluation = self._begin(prompt, session, given, tool_results, recorder)
        return self._ended(evaluation, session, drive(evaluation.run(BLOCKING, given.on_event)))

    async def aevaluate(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        tool_results: Iterable[ToolReply] | None = None,
        **options: Unpack[RunKeywords],
    ) -> PromptResponse[OutputT]:
        """Like `evaluate`, for async code. Cancelling it undoes the call that runs and answers all others."""
        given = self._run_options("aevaluate", options)
        record, recorder = self._recordable(given), None
        if record is not None:
            recorder = await aopen_record(record, prompt, session)
        evaluation = self._begin(prompt, session, given, tool_results, recorder)
        return self._ended(evaluation, session, await evaluation.run(AWAITING, given.on_event))

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

    def abandon(self, session: Session) -> None:
        """End an open conversation of manual mode: its calls are recorded as not run, its resources closed."""
        self._abandon(session, ())

    # Inside.

    def _recordable(self, options: RunOptions) -> RunRecord | None:
        record = record_of(options)
        if record is not None and self.settings.manual:
            raise ValueError("record= cannot be used in manual mode yet: the calls would be run outside of the run.")
        return record

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

    def _begin(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        options: RunOptions,
        tool_results: Iterable[ToolReply] | None,
        recorder: RunRecorder | None = None,
    ) -> Evaluation[OutputT]:
        """A new evaluation, or in manual mode the open one, continued with these results."""
        if tool_results is None or options.history is not None:
            started = options.started()
            if recorder is not None:
                context = context_of(recorder, session, started.run_context)
                started = started.replace(recorder=recorder, run_context=context)
            if tool_results is not None:
                tool_results = tuple(tool_results)
                check_open(by_call(tool_results), started.history.open_calls, where="history=")
            self._abandon(session, tool_results or ())
            record = record_of(options)
            world = "check" if record is None else record.world
            try:
                return Evaluation(self, prompt, session, started, tool_results, recorder, world)
            except BaseException:  # a prompt that lacks params, for example: the run must not stay taken
                if recorder is not None:
                    recorder.rows.release()
                raise
        with self._lock:
            evaluation = self._open.get(session.session_id)
        if evaluation is None:
            raise ValueError(
                "tool_results= continues a conversation of manual mode, but this session has none open. "
                "Evaluate without it first, or pass history= as well."
            )
        evaluation.take_results(tool_results)
        with self._lock:
            self._open.pop(session.session_id, None)
        return evaluation


def record_of(options: RunOptions) -> RunRecord | None:
    """The run that the options name; TypeError for what is not one."""
    record = options.record
    if record is not None and not isinstance(record, RunRecord):
        raise TypeError(f"record= takes a run of a store, such as store.run(...), got {type(record).__name__}.")
    return record


def open_record(record: RunRecord, prompt: Prompt[Any], session: Session, *, not_resumable: str = "") -> RunRecorder:
    """Take the run for this evaluation; the caller releases it. See `RunRecord.open`."""
    with _looked_at(prompt, session) as resources:
        return record.open(session, prompt.name, prompt.tools(), not_resumable=not_resumable, resources=resources)


async def aopen_record(
    record: RunRecord, prompt: Prompt[Any], session: Session, *, not_resumable: str = ""
) -> RunRecorder:
    """Like `open_record`, for async code. Cancelled meanwhile, the run does not stay taken."""
    opened: list[RunRecorder] = []

    def open_it() -> None:
        opened.append(
            record.open(session, prompt.name, prompt.tools(), not_resumable=not_resumable, resources=resources)
        )

    with _looked_at(prompt, session) as resources:
        try:
            await AWAITING.call(open_it)
        except BaseException:
            for recorder in opened:
                recorder.rows.release()
            raise
    return opened[0]


@contextmanager
def _looked_at(prompt: Prompt[Any], session: Session) -> Generator[ResourceRecorder]:
    """The prompt's resources as they are now, looked at in the thread that uses them, to be recorded."""
    prompt.install(session)
    resources = ResourceRecorder(prompt.resources.context)
    try:
        resources.begin()
        yield resources
    except BaseException:
        resources.forget()
        raise


def context_of(recorder: RunRecorder, session: Session, given: RunContext | None) -> RunContext:
    """The ids of a recorded run: the attempt is counted, and the session keeps its recorded id."""
    attempts = recorder.rows.attempt - 1
    if given is None:
        return RunContext(run_id=recorder.run_id, session_id=session.session_id, attempt=1 + attempts)
    session_id = None if given.session_id is None else session.session_id
    return replace(given, session_id=session_id, attempt=given.attempt + attempts)


ProviderAdapter = TurnAdapter
"""The name of `TurnAdapter` in earlier releases."""

__all__ = [
    "Adapter",
    "AdapterKeywords",
    "ProviderAdapter",
    "TurnAdapter",
    "aopen_record",
    "context_of",
    "open_record",
    "record_of",
]
