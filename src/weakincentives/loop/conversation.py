"""Conversations: many messages of a user, answered one after another with the same prompt, session and resources."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Generic, Literal, NamedTuple, Self, TypedDict, TypeVar, Unpack, cast, final

from ..budget import Budget
from ..content import Document, Image, contents_in
from ..deadlines import Deadline
from ..event_loop import running_loop
from ..interrupts import shielded
from ..prompt.placeholders import as_block
from ..prompt.prompt import Prompt
from ..prompt.section import Section
from ..runtime.messages import History, UserMessage
from ..runtime.options import RunOptions, StartedOptions
from ..runtime.progress import OnEvent
from ..runtime.record.files import World
from ..runtime.record.runs import RunRecord
from ..session import Session
from ..waiting import AWAITING, BLOCKING, Waiting, drive
from .adapter import TurnAdapter, aopen_record, context_of, open_record
from .attachments import user_message
from .background import refuse_in_event_loop
from .idle import IdleTimer
from .message_queue import MessageQueue, Place
from .open_conversation import OpenConversation, UndoneMessage, enter_resources, leave_resources
from .response import PromptResponse
from .stream import Begin, EventStream, StreamedRun, SyncEventStream, tell_both

OutputT = TypeVar("OutputT")
ResultT = TypeVar("ResultT")

Busy = Literal["wait", "raise"]
"""What a message does that comes while another one is answered."""
Renders = Literal["each", "once"]
"""How often the prompt is rendered: before each message, or once."""

_LIKE_OURS = re.compile(
    r"(?:^|[\n-\r\x1c-\x1e\x85\u2028\u2029])"  # all that ends a line for some reader
    r"(?:(?:[ \t>*+-]|\d+[.)])*+(?:#|=++[ \t]*+(?:$|[\n\r])|`{3}|~{3}|</?h[1-6]\b)|[ \t>]*+-++[ \t]*+(?:$|[\n\r]))",
    re.IGNORECASE,
)
"""What may pass for a heading of the prompt, or ends a block."""
_CLOSED = "The conversation is closed. Open another one: loop.conversation(...)."
_NOT_OPEN = "The conversation was not read from the record yet: use `with loop.conversation(...) as chat:`."

_logger = logging.getLogger(__name__)


class MessageKeywords(TypedDict, total=False):
    """What holds for one message, in place of the conversation's own; an `on_event` is told besides the other one."""

    deadline: Deadline | timedelta | None
    budget: Budget | None
    on_event: OnEvent | None


class Prepared(NamedTuple):
    """What a conversation consists of; `options` are as they were given, since a duration is that of each message."""

    prompt: Prompt[Any]
    session: Session
    options: RunOptions
    record: RunRecord | None = None


Prepare = Callable[[Waiting], Awaitable[Prepared]]
"""Makes prompt and session again, and says where they are on record; may wait for the store."""


@final
class Conversation(Generic[OutputT]):
    """A conversation of `MainLoop.conversation`: `with loop.conversation(request) as chat: chat.send("Hello")`.

    Prompt, session and resources are made once and live until the block is left. The prompt stands before the first
    message. Turns, time and tokens are limited for each message. Messages are answered one at a time.

    A message that fails leaves the conversation usable: what its calls have done stays, every call is answered,
    `resume` asks about it again, and `undo` goes back to before it.

    On record, it is there until the end of the last message, whatever happens to the process: entering the block reads
    it. Leaving the block lets other processes go on with it. Only one has it at a time.

    Attributes:
        id: the id of its run; None when it is not on record.
    """

    def __init__(
        self,
        adapter: Any,
        prepared: Prepared | Prepare,
        *,
        id: str | None = None,  # noqa: A002 - as users call it
        busy: Busy = "wait",
        render: Renders = "each",
        message_template: Section[Any] | None = None,
        idle: timedelta | None = None,
    ) -> None:
        if not isinstance(adapter, TurnAdapter) or adapter.settings.manual:
            kind = type(cast("object", adapter)).__name__
            raise TypeError(f"A conversation needs an adapter that asks turn by turn, not in manual mode; got {kind}.")
        if busy not in {"wait", "raise"} or render not in {"each", "once"}:
            raise ValueError(f"busy= takes 'wait' or 'raise', render= 'each' or 'once'; got {busy!r} and {render!r}.")
        if idle is not None and idle <= timedelta(0):
            raise ValueError(f"idle= leaves no time: {idle}.")
        self.id: str | None = id
        self._adapter = adapter
        self._template = message_template
        self._renders = render == "each"
        self._line = MessageQueue(waits=busy == "wait")
        self._idle = None if idle is None else IdleTimer(idle)
        self._is_closed = False
        self._counted = 0
        self._prepare: Prepare | None = None
        self._prepared: Prepared | None = None
        self._open: OpenConversation[OutputT] | None = None
        if isinstance(prepared, Prepared):
            self._prepared = prepared
            prompt, session, options, _ = prepared
            self._open = OpenConversation(
                adapter, prompt, session, options, options.started(), renders=self._renders
            )  # fmt: skip
        else:
            self._prepare = prepared

    def __repr__(self) -> str:
        name = "" if self.id is None else f" {self.id!r}"
        return f"<Conversation{name}, {'closed' if self._is_closed else 'open'}>"

    # Messages.

    def send(self, message: object, **options: Unpack[MessageKeywords]) -> PromptResponse[OutputT]:
        """Answer one message: a text, a list of texts, images and documents, or params of the `message_template`.

        `history`, `usage` and `turns` of the response: the conversation so far, and what this message took. Raises what
        `evaluate` does. `RuntimeError` when another message is being answered and the conversation has `busy="raise"`.

        A message before it that has no answer stays without one.
        """
        self._check_keywords(options)
        return self._now(lambda chat: chat.send(self._said(message), BLOCKING, self._started(options)))

    async def asend(self, message: object, **options: Unpack[MessageKeywords]) -> PromptResponse[OutputT]:
        """Like `send`, for async code. Cancelling it undoes the call that runs and answers all others."""
        self._check_keywords(options)
        return await self._soon(lambda chat: chat.send(self._said(message), AWAITING, self._started(options)))

    @property
    def unanswered(self) -> str | None:
        """The last message, when it has no answer: it failed, was cancelled, or its process ended; else None."""
        return self._opened.unanswered

    def resume(self, **options: Unpack[MessageKeywords]) -> PromptResponse[OutputT]:
        """Answer the message that has no answer.

        When its process ended, it goes on where it was, as `MainLoop.resume` does. When it failed or was cancelled, the
        model is asked again, after what was done already. Its limits begin anew. `ValueError` when there is none.
        """
        self._check_keywords(options)
        return self._now(lambda chat: chat.resume(BLOCKING, self._started(options)))

    async def aresume(self, **options: Unpack[MessageKeywords]) -> PromptResponse[OutputT]:
        """Like `resume`, for async code."""
        self._check_keywords(options)
        return await self._soon(lambda chat: chat.resume(AWAITING, self._started(options)))

    def stream(self, message: object, **options: Unpack[MessageKeywords]) -> EventStream[OutputT]:
        """Like `asend`, one event after another: `async with chat.stream(text) as events:`. See `EventStream`."""
        return EventStream(self._streamed(lambda keywords: self.asend(message, **keywords), options))

    def stream_sync(self, message: object, **options: Unpack[MessageKeywords]) -> SyncEventStream[OutputT]:
        """Like `stream`, for synchronous code: `with chat.stream_sync(text) as events:`. See `SyncEventStream`."""
        refuse_in_event_loop("stream_sync()", "async with chat.stream(...)")
        return SyncEventStream(self._streamed(lambda keywords: self.asend(message, **keywords), options))

    def stream_resume(self, **options: Unpack[MessageKeywords]) -> EventStream[OutputT]:
        """Like `aresume`, one event after another: `async with chat.stream_resume() as events:`."""
        return EventStream(self._streamed(lambda keywords: self.aresume(**keywords), options))

    def stream_resume_sync(self, **options: Unpack[MessageKeywords]) -> SyncEventStream[OutputT]:
        """Like `stream_resume`, for synchronous code: `with chat.stream_resume_sync() as events:`."""
        refuse_in_event_loop("stream_resume_sync()", "async with chat.stream_resume()")
        return SyncEventStream(self._streamed(lambda keywords: self.aresume(**keywords), options))

    def interject(self, text: str) -> None:
        """Say something while a message is being answered, from any thread or task.

        The model reads it once the calls of its present turn are answered, or instead of ending. When the message fails
        before that, it is read with the next one. `RuntimeError` when no message is being answered.
        """
        if self._open is None or not self._open.interject(self._guarded(text)):
            raise RuntimeError("No message is being answered, so there is nothing to interject into. Use send().")

    def undo(self, *, world: World = "check") -> UndoneMessage:
        """Go back to before the last message: state, files and other resources, and what the model has read.

        The log stays, and says which calls were undone. Repeated, it undoes the message before. `ValueError` when there
        is none left, `RuntimeError` while a message is being answered, `RollbackError` when something could not be
        restored; then it may be tried again.

        On record the messages of earlier processes can be undone as well. `world` is then what to do about files that
        another program changed since: "check" refuses with `WorldChangedError` and changes nothing, "keep" leaves these
        files as they are, "restore" undoes those changes, too.
        """
        return self._now(lambda chat: chat.undo(BLOCKING, world), alone="undo it")

    async def aundo(self, *, world: World = "check") -> UndoneMessage:
        """Like `undo`, for async code."""
        return await self._soon(lambda chat: chat.undo(AWAITING, world), alone="undo it")

    def fork(
        self, messages: int | None = None, *, new_id: str | None = None, effects: Literal["shared", "fresh"] = "shared"
    ) -> str:
        """Another conversation that has the first `messages` of this one with their answers, or all; its id.

        Undone messages do not count. This one stays as it is. `effects` are those of `RunStore.fork`, which forks at
        any step. `TypeError` for a conversation that is not on record.
        """

        async def fork(chat: OpenConversation[OutputT]) -> str:
            record = self._record()
            return record.store.fork(record.run_id, at=chat.step_after(messages), new_id=new_id, effects=effects)

        self._record_wanted("fork()")
        return self._now(fork, alone="fork the conversation")

    @property
    def session(self) -> Session:
        """What the tools have done so far. One that was read from the record again is another object."""
        return self._opened.session

    @property
    def history(self) -> History:
        """The conversation so far: `loop.conversation(request, history=...)` goes on from it."""
        return self._opened.history

    # Its beginning and its end.

    def close(self) -> None:
        """Close what was built for it; leaving the block does so. Closing twice does nothing.

        On record, other processes may go on with it.
        """
        self._is_closed = True
        if self._idle is not None:
            self._idle.stop()
        if self._open is not None:
            drive(self._open.close(BLOCKING))

    async def aclose(self) -> None:
        """Like `close`, for async code."""
        self._is_closed = True
        if self._idle is not None:
            await self._idle.astop()
        if self._open is not None:
            await self._open.close(AWAITING)

    def __enter__(self) -> Self:
        self._check_open()
        if self._prepare is not None:
            self._now(_nothing)
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._check_open()
        if self._prepare is not None:
            await self._soon(_nothing)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    # Inside: one thing after another, each with the conversation open.

    def _now(self, do: Callable[[OpenConversation[OutputT]], Awaitable[ResultT]], *, alone: str = "") -> ResultT:
        self._check_open()
        place = Place()
        try:
            if alone:
                self._enter_alone(place, alone)
            else:
                self._line.enter(place)
            return drive(self._done(do, BLOCKING))
        finally:
            self._rest(place)

    async def _soon(self, do: Callable[[OpenConversation[OutputT]], Awaitable[ResultT]], *, alone: str = "") -> ResultT:
        self._check_open()
        place = Place()
        try:
            if alone:
                self._enter_alone(place, alone)
            else:
                await self._line.aenter(place)
            return await self._done(do, AWAITING)
        finally:
            self._rest(place)

    def _enter_alone(self, place: Place, what: str) -> None:
        if not self._line.try_enter(place):
            raise RuntimeError(f"A message is being answered; wait for its answer before you {what}.")

    async def _done(self, do: Callable[[OpenConversation[OutputT]], Awaitable[ResultT]], waiting: Waiting) -> ResultT:
        self._check_open()
        if self._idle is not None:
            self._idle.stop()
        chat = self._open
        if chat is None or chat.is_over:
            chat = await self._read(waiting)
        else:
            await chat.open(waiting)
        try:
            return await do(chat)
        finally:
            self._counted = max(self._counted, chat.step)

    async def _read(self, waiting: Waiting) -> OpenConversation[OutputT]:
        """Take the run, and go through what is on record."""
        assert self._prepare is not None
        if self._open is not None:
            await self._open.close(waiting)
        self._prepared = prompt, session, options, record = await self._prepare(waiting)
        assert record is not None
        await enter_resources(prompt, waiting)
        recorder = None
        try:
            if waiting.in_loop:
                recorder = await aopen_record(record, prompt, session)
            else:
                recorder = open_record(record, prompt, session)
            history = recorder.rows.history
            started = options.started().replace(
                recorder=recorder,
                run_context=context_of(recorder, session, options.run_context),
                history=History.from_json(history) if history else History(),
            )
            chat: OpenConversation[OutputT] = OpenConversation(
                self._adapter, prompt, session, options, started, renders=self._renders, recorder=recorder,
                world=record.world,
            )  # fmt: skip
        except BaseException:
            if recorder is not None:
                recorder.rows.release()
            await leave_resources(prompt, waiting)
            raise
        try:
            chat.entered(waiting)
            await chat.open(waiting, counted=self._counted)
        except BaseException:
            await chat.close(waiting)
            raise
        self._open = chat
        return chat

    def _rest(self, place: Place) -> None:
        """Let the next message in; when none comes for long, close what is open."""
        with shielded():
            chat = self._open
            is_last = self._line.is_inside(place) and not self._is_closed
            if self._idle is not None and is_last and chat is not None and not chat.is_over:
                if not chat.in_loop:
                    self._idle.start(lambda: drive(self._unload(BLOCKING)))
                elif running_loop() is not None:
                    self._idle.start_here(lambda: self._unload(AWAITING))
            self._line.leave(place)

    async def _unload(self, waiting: Waiting) -> None:
        place = Place()
        try:
            if self._open is not None and self._line.try_enter(place, brief=True):
                await self._open.close(waiting)
        except Exception:
            _logger.exception("An idle conversation could not be closed")
        finally:
            self._line.leave(place)

    @property
    def _opened(self) -> OpenConversation[OutputT]:
        if self._open is None:
            raise RuntimeError(_NOT_OPEN)
        return self._open

    @property
    def _ready(self) -> Prepared:
        if self._prepared is None:
            raise RuntimeError(_NOT_OPEN)
        return self._prepared

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(_CLOSED)

    def _record_wanted(self, function: str) -> None:
        if self._prepare is None:
            raise TypeError(f"{function} needs a conversation on record: MainLoopConfig(runs=...).")

    def _record(self) -> RunRecord:
        record = self._ready.record
        assert record is not None
        return record

    def _check_keywords(self, keywords: MessageKeywords) -> None:
        self._check_open()
        unknown = set(keywords) - MessageKeywords.__optional_keys__
        if unknown:
            names = ", ".join(sorted(MessageKeywords.__optional_keys__))
            raise TypeError(f"send() got an unexpected keyword argument {min(unknown)!r}. It takes: {names}.")

    def _started(self, keywords: MessageKeywords) -> StartedOptions:
        usual, on_event = self._ready.options, keywords.get("on_event")
        if on_event is not None and usual.on_event is not None:
            keywords = {**keywords, "on_event": tell_both(on_event, usual.on_event)}
        return RunOptions(**keywords).over(usual).started()

    def _streamed(
        self, answer: Callable[[MessageKeywords], Awaitable[PromptResponse[OutputT]]], options: MessageKeywords
    ) -> Begin[OutputT]:
        def begin(on_event: OnEvent) -> StreamedRun[OutputT]:
            keywords: MessageKeywords = {**options, "on_event": tell_both(on_event, options.get("on_event"))}
            prompt, session, usual, _ = self._ready
            context = usual.run_context
            run_id = self.id or (None if context is None else context.run_id)
            return StreamedRun(session, prompt.name, run_id, lambda: answer(keywords))

        return begin

    def _said(self, message: object) -> UserMessage:
        """What the model reads of a message: every one comes through here."""
        if isinstance(message, str):
            return UserMessage(self._guarded(message))
        if isinstance(message, Image | Document | list | tuple):
            said = user_message(cast("list[str | Image | Document]", message))
            return replace(said, text=self._guarded(said.text))
        if self._template is None:
            raise TypeError(
                f"send() takes a text, or a list of texts and images, got a {type(message).__name__}. "
                "For typed messages give conversation() a message_template= section."
            )
        expected = self._template.params_type
        if expected is not None and not isinstance(message, expected):
            raise TypeError(f"The message_template= takes a {expected.__name__}, got a {type(message).__name__}.")
        return UserMessage(self._template.render_body(message), contents_in(message))

    def _guarded(self, text: str) -> str:
        """The text as it is; in a block where it could pass for a part of the prompt, which the same role says."""
        if not text.strip():
            raise ValueError("The message is empty, so there is nothing to answer.")
        if self._ready.prompt.template.system or _LIKE_OURS.search(text) is None:
            return text
        return f"The user says:\n\n{as_block(text)}"


async def _nothing(_: object) -> None:
    """Open it, and do nothing more."""


def checked_template(section: Section[Any] | None) -> Section[Any] | None:
    """A section for messages; `ValueError` for one with tools or sections inside, which would be ignored."""
    if section is not None and not isinstance(section, Section):
        raise TypeError(f"message_template= takes a section, got {type(cast('object', section)).__name__}.")
    if section is not None and (section.tools or section.children):
        raise ValueError(
            f"The message_template= section {section.title!r} has tools or children, which a message cannot have. "
            "Put them on a section of the prompt."
        )
    return section


__all__ = ["Busy", "Conversation", "MessageKeywords", "Renders", "UndoneMessage", "checked_template"]
