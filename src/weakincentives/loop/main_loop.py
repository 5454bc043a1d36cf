"""The loop around an agent: a request comes in, prompt and session are prepared, the model works, an answer is out."""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from ..budget import Budget, BudgetTracker, TokenUsage
from ..deadlines import Deadline
from ..errors import ResourcesClosedError
from ..prompt.prompt import Prompt
from ..prompt.prompt_resources import Bindings, as_bindings
from ..prompt.protocols import ProviderAdapterProtocol
from ..prompt.section import Section
from ..run_context import Heartbeat, RunContext
from ..runtime.ledger import Ledger
from ..session import Dispatcher, InProcessDispatcher, Session
from .batch import Batch, refuse_in_event_loop
from .result import LoopResult, ProgressTold, Retries

RequestT = TypeVar("RequestT")
OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)

_logger = logging.getLogger(__name__)


class LoopResponse(Protocol[OutputT_co]):
    """What a request is answered with. `PromptResponse` is the implementation."""

    @property
    def text(self) -> str:
        """What the model said last."""
        ...

    @property
    def output(self) -> OutputT_co:
        """The text parsed into the prompt's output type; None where the prompt declares none."""
        ...

    @property
    def stop_reason(self) -> str:
        """Why it stopped."""
        ...

    @property
    def usage(self) -> TokenUsage:
        """The tokens of all turns together."""
        ...

    @property
    def turns(self) -> int:
        """How often the model was asked."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MainLoopConfig:
    """What holds for all requests of a loop, unless one says otherwise.

    Attributes:
        resources: what tools need, by type: instances, which stay their owner's, or `Binding`s, which are built when
            first asked for and closed with the request. They count before the template's own; what `prepare` bound to
            its prompt counts before them.
        deadline: a moment for all requests, or a `timedelta` that each has for itself.
        budget: the tokens each request may spend.
        budget_tracker: counts the tokens of all requests together.
        effect_ledger: remembers what idempotent tools did, over requests and restarts; it stays its owner's.
        heartbeat: beats before every question to the model and after every call.
        on_event: is told of the progress of every request; see `weakincentives.runtime.progress`.
    """

    resources: Bindings | None = None
    deadline: Deadline | timedelta | None = None
    budget: Budget | None = None
    budget_tracker: BudgetTracker | None = None
    effect_ledger: Ledger | None = None
    heartbeat: Heartbeat | None = None
    on_event: Callable[[Any], object] | None = None

    def __post_init__(self) -> None:
        as_bindings(self.resources)
        if isinstance(self.deadline, timedelta) and self.deadline <= timedelta(0):
            raise ValueError(f"MainLoopConfig deadline= leaves no time: {self.deadline}.")


class _Prepared(NamedTuple):
    """One request, ready to be evaluated."""

    prompt: Prompt[Any]
    session: Session
    options: dict[str, Any]


class MainLoop(ABC, Generic[RequestT, OutputT]):
    """Answers requests with an agent. A subclass says what a request means: `prepare` gives its prompt and session.

    It holds nothing between requests, so one loop serves any number of them, from any thread or task. The adapter, the
    bus and the instances in the config stay their owners'. Whatever WINK builds for a request, a SINGLETON too, lives
    until that request is answered and is closed then, once.

    Args:
        adapter: who asks the model.
        bus: where subscribers hear of events: `prepare` makes its sessions with `Session(bus=self.bus)`.
        config: what holds for all requests.

    >>> from weakincentives.prompt import MarkdownSection
    >>> from weakincentives.testing import ScriptedAdapter, say
    >>> class Greeter(MainLoop[str, str]):
    ...     def prepare(self, request: str) -> tuple[Prompt[str], Session]:
    ...         task = MarkdownSection(title="Task", template=f"Greet {request}.")
    ...         return Prompt(name="greeter", sections=[task]), Session(bus=self.bus)
    >>> response, session = Greeter(adapter=ScriptedAdapter(say("Hello, Ada!"))).execute("Ada")
    >>> response.text
    'Hello, Ada!'
    """

    def __init__(
        self,
        adapter: ProviderAdapterProtocol[Any],
        *,
        bus: Dispatcher | None = None,
        config: MainLoopConfig | None = None,
    ) -> None:
        if not callable(getattr(adapter, "evaluate", None)):
            raise TypeError(f"adapter= needs an adapter with evaluate(), got {type(adapter).__name__}.")
        if config is not None and not isinstance(config, MainLoopConfig):
            raise TypeError(f"config= takes a MainLoopConfig, got {type(cast(object, config)).__name__}.")
        self.adapter = adapter
        self.bus: Dispatcher = InProcessDispatcher() if bus is None else bus
        self.config = MainLoopConfig() if config is None else config
        self._listening = bus is not None

    @abstractmethod
    def prepare(self, request: RequestT) -> tuple[Prompt[OutputT], Session]:
        """The prompt, its params bound, and the session of a request; what it raises ends the request."""

    def execute(
        self,
        request: RequestT,
        *,
        resources: Bindings | None = None,
        deadline: Deadline | timedelta | None = None,
        budget: Budget | None = None,
        run_context: RunContext | None = None,
        on_event: Callable[[Any], object] | None = None,
    ) -> tuple[LoopResponse[OutputT], Session]:
        """Answer one request; the session holds what came of it.

        `resources` are merged over the config's and the prompt's; `deadline`, `budget` and `on_event` stand in place
        of the config's. Raises what `prepare` raises and what the adapter's `evaluate` does: every call is answered and
        recorded by then, and what was built is closed.
        """
        prepared = self._prepare(
            request, resources=resources, deadline=deadline, budget=budget, run_context=run_context, on_event=on_event
        )
        return self._evaluate(prepared), prepared.session

    async def aexecute(
        self,
        request: RequestT,
        *,
        resources: Bindings | None = None,
        deadline: Deadline | timedelta | None = None,
        budget: Budget | None = None,
        run_context: RunContext | None = None,
        on_event: Callable[[Any], object] | None = None,
    ) -> tuple[LoopResponse[OutputT], Session]:
        """Like `execute`, for async code. Cancelling it undoes the call that runs and answers all others."""
        prepared = self._prepare(
            request, resources=resources, deadline=deadline, budget=budget, run_context=run_context, on_event=on_event
        )
        return await self._aevaluate(prepared), prepared.session

    def run(
        self,
        requests: Iterable[RequestT],
        *,
        concurrency: int = 1,
        progress: ProgressTold | bool | None = None,
        retries: Retries | None = None,
        max_requests: int | None = None,
    ) -> list[LoopResult[RequestT, LoopResponse[OutputT]]]:
        """Answer many requests, up to `concurrency` at a time; the results are in the order of the requests.

        A request that fails has its error in its result and stops no other; `retries` says which are tried again.
        Requests are taken as there is room for them. `progress` shows a line on the terminal (True; None does when
        there is one), or is called with a `LoopProgress` whenever a request is over.

        All results are kept, so the requests must end: `ValueError` for an iterator known to be endless. One whose
        length is not known may give `max_requests`, by default 100,000; then `EndlessRequestsError` is raised, with
        the results so far. `stream_results` has no such limit.

        Ctrl-C undoes every call that is running, answers all that are open, and passes on. With a concurrency above 1
        the requests share an event loop in this thread, and plain handlers run in threads of their own, so that they
        overlap and can be given up on (unless their tool says `blocking=False`).
        """
        return self._batch(requests, concurrency, progress, retries).collect(max_requests)

    async def arun(
        self,
        requests: Iterable[RequestT] | AsyncIterable[RequestT],
        *,
        concurrency: int = 8,
        progress: ProgressTold | bool | None = None,
        retries: Retries | None = None,
        max_requests: int | None = None,
    ) -> list[LoopResult[RequestT, LoopResponse[OutputT]]]:
        """Like `run`, for async code. Cancelling it cancels the requests that are running."""
        return await self._batch(requests, concurrency, progress, retries).acollect(max_requests)

    def stream_results(
        self,
        requests: Iterable[RequestT],
        *,
        concurrency: int = 1,
        progress: ProgressTold | bool | None = False,
        retries: Retries | None = None,
    ) -> Generator[LoopResult[RequestT, LoopResponse[OutputT]], None, None]:
        """Answer many requests and give each result as soon as it is there; nothing is kept.

        The requests may be endless: one is taken when there is room, and those that are over and not yet taken from
        here count as running. With a concurrency of 1 everything happens in this thread, one request for each
        result. Above that requests are taken in this thread and answered in another, so they go on while you handle a
        result; `prepare` and reducers run there. A source that blocks holds results back: `astream_results` over an
        asynchronous source does not.

        Closing the generator, leaving a `for` loop that is its only owner, and Ctrl-C cancel what is running: every
        such call is undone and recorded.
        """
        batch = self._batch(requests, concurrency, progress, retries)
        if concurrency == 1:
            return batch.in_order()
        refuse_in_event_loop("stream_results()", "async for result in loop.astream_results(...)")
        return batch.in_background()

    def astream_results(
        self,
        requests: Iterable[RequestT] | AsyncIterable[RequestT],
        *,
        concurrency: int = 8,
        progress: ProgressTold | bool | None = False,
        retries: Retries | None = None,
    ) -> AsyncGenerator[LoopResult[RequestT, LoopResponse[OutputT]], None]:
        """Like `stream_results`, for async code: `async for result in loop.astream_results(...)`.

        The requests share the event loop that runs. Use `contextlib.aclosing` where the loop may be left early: an
        asynchronous generator that is only dropped is closed some time later.
        """
        return self._batch(requests, concurrency, progress, retries).as_they_come()

    # Inside.

    def _batch(
        self,
        requests: Iterable[RequestT] | AsyncIterable[RequestT],
        concurrency: int,
        progress: ProgressTold | bool | None,
        retries: Retries | None,
    ) -> Batch[RequestT, LoopResponse[OutputT]]:
        return Batch(self._answer, self._aanswer, requests, concurrency, progress, retries)

    def _answer(self, result: LoopResult[RequestT, LoopResponse[OutputT]]) -> None:
        result.response = self._evaluate(self._prepare_for(result))

    async def _aanswer(self, result: LoopResult[RequestT, LoopResponse[OutputT]]) -> None:
        result.response = await self._aevaluate(self._prepare_for(result))

    def _prepare_for(self, result: LoopResult[RequestT, LoopResponse[OutputT]]) -> _Prepared:
        """One attempt at a request of a batch; its ids are known before `prepare`, which may fail."""
        prepared = self._prepare(result.request, run_context=result.run_context)
        result.session = prepared.session
        result.run_context = replace(result.run_context, session_id=prepared.session.session_id)
        prepared.options["run_context"] = result.run_context
        return prepared

    def _evaluate(self, prepared: _Prepared) -> LoopResponse[OutputT]:
        prompt, session, options = prepared
        with prompt.resources:
            return self.adapter.evaluate(prompt, session, **options)

    async def _aevaluate(self, prepared: _Prepared) -> LoopResponse[OutputT]:
        prompt, session, options = prepared
        evaluate = getattr(self.adapter, "aevaluate", None)
        if evaluate is None:
            raise TypeError(f"{type(self.adapter).__name__} has no aevaluate(); use execute(), or run() one at a time.")
        async with prompt.resources:
            return await evaluate(prompt, session, **options)

    def _prepare(
        self,
        request: RequestT,
        *,
        resources: Bindings | None = None,
        deadline: Deadline | timedelta | None = None,
        budget: Budget | None = None,
        run_context: RunContext | None = None,
        on_event: Callable[[Any], object] | None = None,
    ) -> _Prepared:
        prompt, session = self._checked(self.prepare(request))
        config = self.config
        deadline = config.deadline if deadline is None else deadline
        options: dict[str, Any] = {
            "deadline": Deadline.after(deadline) if isinstance(deadline, timedelta) else deadline,
            "budget": config.budget if budget is None else budget,
            "budget_tracker": config.budget_tracker,
            "effect_ledger": config.effect_ledger,
            "heartbeat": config.heartbeat,
            "run_context": RunContext(session_id=session.session_id) if run_context is None else run_context,
            "on_event": config.on_event if on_event is None else on_event,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return _Prepared(_with_resources(prompt, config.resources, resources), session, given)

    def _checked(self, prepared: object) -> tuple[Prompt[Any], Session]:
        pair = _as_pair(prepared)
        if len(pair) != 2 or not isinstance(pair[0], Prompt) or not isinstance(pair[1], Session):
            if inspect.iscoroutine(prepared):
                prepared.close()
            raise TypeError(f"{type(self).__name__}.prepare() must return (Prompt, Session), got {_shape(prepared)}.")
        session = pair[1]
        if self._listening and session.dispatcher is not self.bus:
            _logger.warning(
                "%s was given a bus, but prepare() made a session without it; use Session(bus=self.bus).",
                type(self).__name__,
            )
        return cast("Prompt[Any]", pair[0]), session


def _with_resources(prompt: Prompt[Any], config: Bindings | None, request: Bindings | None) -> Prompt[Any]:
    """The prompt with a resource context of its own, so that nothing it builds outlives the request."""
    defaults = {key: value for key, value in as_bindings(config).items() if not _bound_in_prepare(prompt, key)}
    return prompt.bind(resources={**defaults, **as_bindings(request)})


def _bound_in_prepare(prompt: Prompt[Any], key: type[Any]) -> bool:
    """Whether `bind(resources=)` bound the type. A section's own counts as not: binding it twice is an error."""
    registry, declared = prompt.resources.registry, prompt.template.resources
    if key not in registry or _is_sections(key, prompt.sections):
        return False
    if key not in declared:
        return True
    try:
        return registry.binding(key) is not declared[key] and registry.get(key) is not declared[key]
    except ResourcesClosedError:  # a provider, where the template has an instance or another provider
        return True


def _is_sections(key: type[Any], sections: Iterable[Section[Any]]) -> bool:
    return any(key in section.resources() or _is_sections(key, section.children) for section in sections)


def _as_pair(value: Any) -> tuple[object, ...]:
    return value if type(value) is tuple else ()  # pyright: ignore[reportUnknownVariableType]


def _shape(value: Any) -> str:
    if type(value) is tuple:
        return f"({', '.join(type(item).__name__ for item in cast('tuple[object, ...]', value))})"
    return type(value).__name__


__all__ = ["LoopResponse", "MainLoop", "MainLoopConfig"]
