"""The loop around an agent: a request comes in, prompt and session are prepared, the model works, an answer is out."""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar, Unpack, cast, get_args, get_origin
from uuid import uuid4

from ..errors import NotResumableError, RecordError, ResourcesClosedError
from ..lazy_modules import asyncio
from ..prompt.prompt import Prompt
from ..prompt.prompt_resources import Bindings, as_bindings
from ..prompt.section import Section
from ..prompt.tool_context import ProviderAdapterProtocol
from ..run_context import RunContext
from ..runtime.messages import History
from ..runtime.options import RunKeywords, RunOptions, options_from, run_id_of
from ..runtime.progress import OnEvent
from ..runtime.record.files import FilesToKeep, World, checked_files
from ..runtime.record.protocol import RunStore
from ..runtime.record.rows import RunInfo
from ..runtime.record.runs import RunRecord, check_kind, request_text
from ..serde import parse
from ..serde.secret_fields import has_secrets
from ..session import Dispatcher, InProcessDispatcher, Session
from ..waiting import Waiting
from .background import refuse_in_event_loop
from .batch import Batch
from .conversation import Busy, Conversation, Prepare, Prepared, Renders, checked_template
from .response import PromptResponse
from .result import LoopResult, ProgressTold, Retries
from .stream import Begin, EventStream, StreamedRun, SyncEventStream, tell_both

RequestT = TypeVar("RequestT")
OutputT = TypeVar("OutputT")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MainLoopConfig(RunOptions):
    """What holds for all requests of a loop, unless one says otherwise.

    A `deadline` is a moment for all requests, or a `timedelta` that each has for itself; the `budget` is what each
    request may spend, the `budget_tracker` counts all of them together, and the `effect_ledger` remembers what
    idempotent tools did over requests and restarts. See `RunOptions` for the others.

    Attributes:
        resources: what tools need, by type: instances, which stay their owner's, or `Binding`s, which are built when
            first asked for and closed with the request. They count before the template's own; what `prepare` bound to
            its prompt counts before them.
        runs: where runs are recorded; its owner closes it. A run that was interrupted goes on where it was.
        record_types: the classes of values in sessions that neither a slice nor a tool names.
        resumable: False for runs that are to be looked at and not gone on with: values that could not be read back are
            then recorded as their JSON view instead of being refused.
        record_files: which files a record keeps with their content: "changed", those that calls change; "read", also
            those that handlers read; "all", also all that are there when a run begins.
        accept_unrecorded: the names of resources whose state is not recorded, and that may have another when a run goes
            on: what they are bound as, in full (`shop.till:Till`) or the class alone.
    """

    resources: Bindings | None = None
    runs: RunStore | None = None
    record_types: tuple[type[Any], ...] = ()
    resumable: bool = True
    record_files: FilesToKeep = "changed"
    accept_unrecorded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        RunOptions.__post_init__(self)  # zero-argument super() fails in slotted dataclasses on Python 3.11
        as_bindings(self.resources)
        checked_files("record_files", self.record_files)


class _Prepared(NamedTuple):
    """One request, ready to be evaluated."""

    prompt: Prompt[Any]
    session: Session
    options: RunKeywords


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
        self.config: MainLoopConfig = MainLoopConfig() if config is None else config
        self._listening = bus is not None

    @abstractmethod
    def prepare(self, request: RequestT) -> tuple[Prompt[OutputT], Session]:
        """The prompt, its params bound, and the session of a request; what it raises ends the request."""

    def execute(
        self,
        request: RequestT,
        *,
        resources: Bindings | None = None,
        run_id: str | None = None,
        **options: Unpack[RunKeywords],
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Answer one request; the session holds what came of it.

        `resources` are merged over the config's and the prompt's; each of the other options (see `RunOptions`) stands
        in place of the config's. Raises what `prepare` raises and what the adapter's `evaluate` does: every call is
        answered and recorded by then, and what was built is closed.

        With `runs` in the config, `run_id` names the run, or one is made up (`response.run_id`). A run that was
        interrupted goes on where it was; one that has ended gives its recorded answer, or raises its recorded error,
        and nothing is asked or run. `RunBusyError` while another process has it, `RunConflictError` when the id belongs
        to another request.
        """
        prepared = self._prepare(request, resources, self._run_options("execute", options), run_id)
        return self._evaluate(prepared), prepared.session

    async def aexecute(
        self,
        request: RequestT,
        *,
        resources: Bindings | None = None,
        run_id: str | None = None,
        **options: Unpack[RunKeywords],
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Like `execute`, for async code. Cancelling it undoes the call that runs and answers all others."""
        prepared = self._prepare(request, resources, self._run_options("aexecute", options), run_id)
        return await self._aevaluate(prepared), prepared.session

    def stream(
        self,
        request: RequestT,
        *,
        resources: Bindings | None = None,
        run_id: str | None = None,
        after: int | str | None = None,
        **options: Unpack[RunKeywords],
    ) -> EventStream[OutputT]:
        """Like `aexecute`, one event after another: `async with loop.stream(request) as events:`, then `async for`.

        The first event is `RunStarted`, the last `Finished`, with the response; `events.session` is the session. What
        `aexecute` raises is raised by the iteration, and what `prepare` raises when the block is entered. Leaving the
        block early cancels the run and waits until the call that was running is undone. See `EventStream`.

        A run on record that goes on tells `Resumed` and then what happens now. With `after`, a step's number, what is
        on record after that step is told before: 0 for all of it. A reader that lost the connection gives the step of
        the last event that it has; a browser's `Last-Event-ID` can be passed as it is, also when it is not a number.
        """
        return EventStream(self._streamed(request, resources, run_id, self._run_options("stream", options)), after)

    def stream_sync(
        self,
        request: RequestT,
        *,
        resources: Bindings | None = None,
        run_id: str | None = None,
        after: int | str | None = None,
        **options: Unpack[RunKeywords],
    ) -> SyncEventStream[OutputT]:
        """Like `stream`, for synchronous code: `with loop.stream_sync(request) as events:`, then `for`.

        The run goes on in another thread while you handle an event. `RuntimeError` where an event loop runs.
        """
        refuse_in_event_loop("stream_sync()", "async with loop.stream(...)")
        return SyncEventStream(
            self._streamed(request, resources, run_id, self._run_options("stream_sync", options)), after
        )

    def conversation(
        self,
        request: RequestT | None = None,
        *,
        id: str | None = None,  # noqa: A002 - as users call it
        resources: Bindings | None = None,
        busy: Busy = "wait",
        render: Renders = "each",
        message_template: Section[Any] | None = None,
        idle: timedelta | None = None,
        world: World = "check",
        accept_unrecorded: Iterable[str] = (),
        accept_changed: Iterable[str] = (),
        **options: Unpack[RunKeywords],
    ) -> Conversation[OutputT]:
        """Answer many messages: `with loop.conversation(request) as chat:`, then `chat.send(text)`; or `async with`.

        `prepare` is called once, and what it gives lives until the block is left. Limits hold for each message; a
        `budget_tracker` counts them all. See `Conversation`.

        With `runs` in the config it is on record as the run `id`, or as one whose id is made up (`chat.id`).
        `loop.conversation(id="chat-17")` goes on with it, in any process; entering the block reads it, and raises what
        `resume` does: `RecordError` for one that is not there, `RunBusyError` while another process has it,
        `RunConflictError` when it was begun with another request, or is not a conversation.

        Args:
            request: who it is with, say: what `prepare` takes. One that is on record need not be given again.
            id: which conversation of the config's store.
            resources: as in `execute`.
            busy: whether a message that comes while another is answered waits for it ("wait"), or raises RuntimeError.
            render: "each" shows the prompt as it reads before each message; it is replaced where it stands, and only
                when it differs, because providers keep what has not changed. "once" never replaces it.
            message_template: a section that says what typed messages say: `chat.send(Order(...))`.
            idle: when no message came for that long, close the resources and let other processes have the run. The next
                message reads it from the record again.
            world: as in `resume`.
            accept_unrecorded: as in `resume`.
            accept_changed: as in `resume`.
            options: as in `execute`; with `history=` it goes on from an earlier conversation.

        `TypeError` for an adapter whose program has a loop of its own.
        """
        given = self._run_options("conversation", options)
        if self.config.runs is None:
            if id is not None:
                self._store()
            if idle is not None:
                raise ValueError(
                    "idle= needs a store, MainLoopConfig(runs=...): without a record a conversation that was closed "
                    "could not go on."
                )
            prepared: Prepared | Prepare = self._begin_conversation(cast("RequestT", request), resources, given)
        else:
            id = uuid4().hex if id is None else id  # noqa: A001 - as above
            how = {
                "world": world,
                "accept_unrecorded": (*self.config.accept_unrecorded, *accept_unrecorded),
                "accept_changed": tuple(accept_changed),
            }
            prepared = self._reading(request, id, resources, given, how)
        return Conversation(
            self.adapter, prepared, id=id, busy=busy, render=render, idle=idle,
            message_template=checked_template(message_template),
        )  # fmt: skip

    def _begin_conversation(
        self, request: RequestT, resources: Bindings | None, options: RunOptions, run_id: str | None = None
    ) -> Prepared:
        prompt, session, keywords = self._prepare(request, resources, options, run_id)
        # As they were given: a duration is that of each message.
        given = replace(options.over(self.config), run_context=keywords.get("run_context"))
        record = cast("RunRecord | None", keywords.get("record"))
        return Prepared(prompt, session, given, record)

    def _reading(
        self,
        request: RequestT | None,
        run_id: str,
        resources: Bindings | None,
        options: RunOptions,
        how: Mapping[str, Any],
    ) -> Prepare:
        """What makes prompt and session of a conversation on record, whenever it is opened."""
        history = "" if options.history is None else History.of(options.history).to_json()

        async def prepare(waiting: Waiting) -> Prepared:
            asked = request
            if asked is None:
                store = self._store()
                info = await waiting.call(lambda: store.info(run_id))
                if info is not None:
                    check_kind(info, is_conversation=True)
                    asked = self._recorded_request(info)
                elif _request_type(type(self)) is not type(None):
                    raise RecordError(
                        f"There is no conversation {run_id!r} in this store. To begin it, give its request: "
                        f"loop.conversation(request, id={run_id!r})."
                    )
            made = self._begin_conversation(cast("RequestT", asked), resources, options, run_id)
            assert made.record is not None
            record = replace(made.record, is_conversation=True, history=history, **how)
            return made._replace(record=record)

        return prepare

    def resume(
        self,
        run_id: str,
        *,
        request: RequestT | None = None,
        resources: Bindings | None = None,
        world: World = "check",
        retry: bool = False,
        accept_unrecorded: Iterable[str] = (),
        accept_changed: Iterable[str] = (),
        **options: Unpack[RunKeywords],
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Go on with a run of the config's store, with the request that it was begun with.

        Args:
            run_id: which run.
            request: the request, for a loop whose request could not be recorded or has a type that is not declared:
                `class Desk(MainLoop[Ticket, str])` declares it.
            resources: as in `execute`; pass what the run was begun with.
            world: what to do about files that another program changed since: "check" refuses with `WorldChangedError`,
                "keep" goes on with them as they are, "restore" writes what is on record over them.
            retry: go on with a run that failed; without it, its recorded error is raised again.
            accept_unrecorded: the names of resources whose state was not recorded and may be another now, beside those
                of the config: what they are bound as, in full or the class alone.
            accept_changed: the names of tools that were changed or removed, and whose recorded calls need not be read.

        Raises `RecordError` for an unknown run, `RunFormatError` when tools were changed so that they cannot read the
        recorded calls, `NotResumableError` for a run that is not over and was recorded with `resumable=False`, or by an
        adapter that cannot go on with runs; otherwise as `execute`.
        """
        prepared = self._prepare_again(
            self._store().info(run_id), run_id, request, resources, self._run_options("resume", options),
            world=world, retry=retry,
            accept_unrecorded=(*self.config.accept_unrecorded, *accept_unrecorded),
            accept_changed=tuple(accept_changed),
        )  # fmt: skip
        return self._evaluate(prepared), prepared.session

    async def aresume(
        self,
        run_id: str,
        *,
        request: RequestT | None = None,
        resources: Bindings | None = None,
        world: World = "check",
        retry: bool = False,
        accept_unrecorded: Iterable[str] = (),
        accept_changed: Iterable[str] = (),
        **options: Unpack[RunKeywords],
    ) -> tuple[PromptResponse[OutputT], Session]:
        """Like `resume`, for async code."""
        info = await asyncio.to_thread(self._store().info, run_id)
        prepared = self._prepare_again(
            info, run_id, request, resources, self._run_options("aresume", options), world=world, retry=retry,
            accept_unrecorded=(*self.config.accept_unrecorded, *accept_unrecorded),
            accept_changed=tuple(accept_changed),
        )  # fmt: skip
        return await self._aevaluate(prepared), prepared.session

    def run(
        self,
        requests: Iterable[RequestT],
        *,
        concurrency: int = 1,
        progress: ProgressTold | bool | None = None,
        retries: Retries | None = None,
        max_requests: int | None = None,
        run_id: Callable[[RequestT], str] | None = None,
    ) -> list[LoopResult[RequestT, PromptResponse[OutputT]]]:
        """Answer many requests, up to `concurrency` at a time; the results are in the order of the requests.

        A request that fails has its error in its result and stops no other; `retries` says which are tried again.
        Requests are taken as there is room for them. `progress` shows a line on the terminal (True; None does when
        there is one), or is called with a `LoopProgress` whenever a request is over.

        All results are kept, so the requests must end: `ValueError` for an iterator known to be endless. One whose
        length is not known may give `max_requests`, by default 100,000; then `EndlessRequestsError` is raised, with
        the results so far. `stream_results` has no such limit.

        With `runs` in the config, `run_id` gives each request the id of its run, as in `execute`: a batch that was
        killed and is run again goes on with those that were interrupted, gives the recorded answers of those that have
        ended, and begins the others. `TypeError` when the config has no `runs`.

        Ctrl-C undoes every call that is running, answers all that are open, and passes on. With a concurrency above 1
        the requests share an event loop in this thread, and plain handlers run in threads of their own, so that they
        overlap and can be given up on (unless their tool says `blocking=False`).
        """
        return self._batch(requests, concurrency, progress, retries, run_id).collect(max_requests)

    async def arun(
        self,
        requests: Iterable[RequestT] | AsyncIterable[RequestT],
        *,
        concurrency: int = 8,
        progress: ProgressTold | bool | None = None,
        retries: Retries | None = None,
        max_requests: int | None = None,
        run_id: Callable[[RequestT], str] | None = None,
    ) -> list[LoopResult[RequestT, PromptResponse[OutputT]]]:
        """Like `run`, for async code. Cancelling it cancels the requests that are running."""
        return await self._batch(requests, concurrency, progress, retries, run_id).acollect(max_requests)

    def stream_results(
        self,
        requests: Iterable[RequestT],
        *,
        concurrency: int = 1,
        progress: ProgressTold | bool | None = False,
        retries: Retries | None = None,
        run_id: Callable[[RequestT], str] | None = None,
    ) -> Generator[LoopResult[RequestT, PromptResponse[OutputT]], None, None]:
        """Answer many requests and give each result as soon as it is there; nothing is kept.

        The requests may be endless: one is taken when there is room, and those that are over and not yet taken from
        here count as running. With a concurrency of 1 everything happens in this thread, one request for each
        result. Above that requests are taken in this thread and answered in another, so they go on while you handle a
        result; `prepare` and reducers run there. A source that blocks holds results back: `astream_results` over an
        asynchronous source does not.

        Closing the generator, leaving a `for` loop that is its only owner, and Ctrl-C cancel what is running: every
        such call is undone and recorded.
        """
        batch = self._batch(requests, concurrency, progress, retries, run_id)
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
        run_id: Callable[[RequestT], str] | None = None,
    ) -> AsyncGenerator[LoopResult[RequestT, PromptResponse[OutputT]], None]:
        """Like `stream_results`, for async code: `async for result in loop.astream_results(...)`.

        The requests share the event loop that runs. Use `contextlib.aclosing` where the loop may be left early: an
        asynchronous generator that is only dropped is closed some time later.
        """
        return self._batch(requests, concurrency, progress, retries, run_id).as_they_come()

    # Inside.

    def _batch(
        self,
        requests: Iterable[RequestT] | AsyncIterable[RequestT],
        concurrency: int,
        progress: ProgressTold | bool | None,
        retries: Retries | None,
        run_id: Callable[[RequestT], str] | None,
    ) -> Batch[RequestT, PromptResponse[OutputT]]:
        if run_id is not None:
            self._store()

        def answer(result: LoopResult[RequestT, PromptResponse[OutputT]]) -> None:
            result.response = self._evaluate(self._prepare_for(result, run_id))

        async def aanswer(result: LoopResult[RequestT, PromptResponse[OutputT]]) -> None:
            result.response = await self._aevaluate(self._prepare_for(result, run_id))

        return Batch(answer, aanswer, requests, concurrency, progress, retries)

    def _prepare_for(
        self, result: LoopResult[RequestT, PromptResponse[OutputT]], run_id: Callable[[RequestT], str] | None
    ) -> _Prepared:
        """One attempt at a request of a batch; its ids are known before `prepare`, which may fail."""
        run_options = RunOptions(run_context=result.run_context)
        name = None if run_id is None else run_id(result.request)
        prepared = self._prepare(result.request, None, run_options, name)
        if name is not None and result.attempts > 1:  # the attempt before may be on record: go on where it failed
            prepared.options["record"] = replace(self._record(result.request, name), retry=True)
        result.session = prepared.session
        result.run_context = replace(result.run_context, session_id=prepared.session.session_id)
        prepared.options["run_context"] = result.run_context
        return prepared

    def _streamed(
        self, request: RequestT, resources: Bindings | None, run_id: str | None, options: RunOptions
    ) -> Begin[OutputT]:
        def begin(on_event: OnEvent) -> StreamedRun[OutputT]:
            prepared = self._prepare(request, resources, options, run_id)
            keywords = prepared.options
            keywords["on_event"] = tell_both(on_event, keywords.get("on_event"))
            name, run = prepared.prompt.name, run_id_of(RunOptions(**keywords))
            return StreamedRun(prepared.session, name, run, lambda: self._aevaluate(prepared), keywords.get("record"))

        return begin

    def _evaluate(self, prepared: _Prepared) -> PromptResponse[OutputT]:
        prompt, session, options = prepared
        with prompt.resources:
            return self.adapter.evaluate(prompt, session, **options)

    async def _aevaluate(self, prepared: _Prepared) -> PromptResponse[OutputT]:
        prompt, session, options = prepared
        evaluate = getattr(self.adapter, "aevaluate", None)
        if evaluate is None:
            raise TypeError(f"{type(self.adapter).__name__} has no aevaluate(); use execute(), or run() one at a time.")
        async with prompt.resources:
            return await evaluate(prompt, session, **options)

    def _run_options(self, function: str, keywords: RunKeywords) -> RunOptions:
        name = f"{type(self).__name__}.{function}"
        return options_from(RunOptions, keywords, function=name, others=("resources", "run_id"))

    def _prepare(
        self,
        request: RequestT,
        resources: Bindings | None,
        options: RunOptions,
        run_id: str | None,
    ) -> _Prepared:
        prompt, session = self._checked(self.prepare(request))
        keywords = options.over(self.config).keywords()  # from here on a request's own time runs
        ids: dict[str, Any] = {"session_id": session.session_id}
        if run_id is not None or self.config.runs is not None:
            record = keywords["record"] = self._record(request, run_id)
            ids["run_id"] = record.run_id
        if "run_context" not in keywords:
            keywords["run_context"] = RunContext(**ids)
        return _Prepared(_with_resources(prompt, self.config.resources, resources), session, keywords)

    # Records.

    def _prepare_again(
        self, info: RunInfo | None, run_id: str, request: RequestT | None, resources: Bindings | None,
        options: RunOptions, **how: Any,
    ) -> _Prepared:  # fmt: skip
        """Ready to go on with a run; `how` are fields of `RunRecord`."""
        if info is None:
            raise RecordError(f"There is no run {run_id!r} in this store.")
        check_kind(info, is_conversation=False)
        if info.is_inside:
            raise NotResumableError(
                f"The run {run_id!r} is a sub-agent's and goes on with the run around it: resume {info.parent!r}."
            )
        asked = self._recorded_request(info) if request is None else request
        prepared = self._prepare(asked, resources, options, run_id)
        prepared.options["record"] = replace(self._record(asked, run_id), **how)
        return prepared

    def _store(self) -> RunStore:
        if self.config.runs is None:
            raise TypeError(f"{type(self).__name__} has no store for runs: pass MainLoopConfig(runs=...).")
        return self.config.runs

    def _record(self, request: RequestT, run_id: str | None) -> RunRecord:
        text, digest = request_text(request)
        return RunRecord(
            self._store(),
            uuid4().hex if run_id is None else run_id,
            type(self).__name__,
            text,
            digest,
            self.config.record_types,
            resumable=self.config.resumable,
            files=self.config.record_files,
            accept_unrecorded=self.config.accept_unrecorded,
        )

    def _recorded_request(self, info: RunInfo) -> RequestT:
        declared = _request_type(type(self))
        if info.request is None:
            reason = "it has no JSON form"
        elif declared is None:
            reason = f"{type(self).__name__} declares no type"
        elif has_secrets(declared):
            reason = "it has secret fields, which are not recorded"
        else:
            return parse(declared, info.request, max_bytes=None)
        raise NotResumableError(
            f"The request of the run {info.run_id!r} cannot be read back: {reason}. "
            "Pass it: loop.resume(run_id, request=...)."
        )

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


def _request_type(cls: type[Any]) -> Any:
    """What `class Desk(MainLoop[Ticket, str])` declares as its request; None when it declares none."""
    for base in cls.__mro__:
        for declared in getattr(base, "__orig_bases__", ()):
            if get_origin(declared) is MainLoop:
                request = get_args(declared)[0]
                return None if request is Any or isinstance(request, TypeVar) else request
    return None


def _with_resources(prompt: Prompt[Any], config: Bindings | None, request: Bindings | None) -> Prompt[Any]:
    """The prompt with a resource context of its own, so that nothing it builds outlives the request."""
    defaults = {key: value for key, value in as_bindings(config).items() if not _bound_in_prepare(prompt, key)}
    return prompt.bind(resources={**defaults, **as_bindings(request)} or None)


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


__all__ = ["MainLoop", "MainLoopConfig"]
