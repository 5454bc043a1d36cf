"""Conversations: many messages of a user, answered one after another with the same prompt, session and resources."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, Literal, NamedTuple, Self, TypedDict, TypeVar, Unpack, cast, final

from ..budget import Budget
from ..content import Document, Image, contents_in
from ..deadlines import Deadline
from ..interrupts import Lock
from ..lazy_modules import asyncio
from ..prompt.events import ToolInvoked
from ..prompt.placeholders import as_block
from ..prompt.prompt import Prompt
from ..prompt.section import Section
from ..prompt.visibility import VisibilityOverrides
from ..runtime.blocks import create_snapshot, release_snapshot, restore_snapshot
from ..runtime.messages import History, UserMessage
from ..runtime.options import RunOptions, StartedOptions
from ..runtime.progress import OnEvent
from ..runtime.transactions import CompositeSnapshot
from ..session import Session
from ..waiting import AWAITING, BLOCKING, drive
from .adapter import TurnAdapter
from .attachments import user_message
from .background import refuse_in_event_loop
from .evaluation import Evaluation
from .response import PromptResponse
from .stream import Begin, EventStream, StreamedRun, SyncEventStream, tell_both

OutputT = TypeVar("OutputT")

Busy = Literal["wait", "raise"]
"""What a message does that comes while another one is answered."""
Renders = Literal["each", "once"]
"""How often the prompt is rendered: before each message, or once."""

_NO_EFFECT = frozenset({"invalid", "unknown_tool", "refused", "conflict", "expanded", "replayed"})
"""Outcomes of calls that reached nothing outside in this conversation."""
_LIKE_OURS = re.compile(r"^[ \t]{0,3}(#|=+[ \t]*$|-+[ \t]*$|`{3}|~{3})", re.MULTILINE)
"""What may pass for a heading of the prompt, or ends a block."""
_CLOSED = "The conversation is closed. Open another one: loop.conversation(...)."


class MessageKeywords(TypedDict, total=False):
    """What holds for one message, in place of the conversation's own; an `on_event` is told besides the other one."""

    deadline: Deadline | timedelta | None
    budget: Budget | None
    on_event: OnEvent | None


@final
@dataclass(frozen=True, slots=True)
class UndoneMessage:
    """A message that was undone.

    Attributes:
        text: the message, as the model had read it.
        standing: the calls whose tools may have reached something outside, which no undo takes back.
    """

    text: str
    standing: tuple[ToolInvoked, ...] = ()


class _Message(NamedTuple):
    """What undoing a message needs."""

    text: str
    length: int
    snapshot: CompositeSnapshot
    calls: int


@final
class Conversation(Generic[OutputT]):
    """A conversation of `MainLoop.conversation`: `with loop.conversation(request) as chat: chat.send("Hello")`.

    Prompt, session and resources are made once and live until the block is left. The prompt stands before the first
    message. Turns, time and tokens are limited for each message. Messages are answered one at a time.

    A message that fails leaves the conversation usable: what its calls have done stays, every call is answered, and
    `undo` goes back to before it.

    Attributes:
        session: what the tools have done so far.
    """

    def __init__(
        self,
        adapter: Any,
        prompt: Prompt[OutputT],
        session: Session,
        options: RunOptions,
        *,
        busy: Busy = "wait",
        render: Renders = "each",
        message_template: Section[Any] | None = None,
    ) -> None:
        if not isinstance(adapter, TurnAdapter) or adapter.settings.manual:
            kind = type(cast("object", adapter)).__name__
            raise TypeError(f"A conversation needs an adapter that asks turn by turn, not in manual mode; got {kind}.")
        if busy not in {"wait", "raise"} or render not in {"each", "once"}:
            raise ValueError(f"busy= takes 'wait' or 'raise', render= 'each' or 'once'; got {busy!r} and {render!r}.")
        self.session: Session = session
        self._prompt = prompt
        self._options = options
        self._template = message_template
        self._renders = render == "each"
        self._evaluation: Evaluation[OutputT] = Evaluation(adapter, prompt, session, options.started(), None)
        self._line = _MessageQueue(waits=busy == "wait")
        self._has_resources = False
        self._is_begun = False
        self._is_closed = False
        self._messages: list[_Message] = []
        self._told_from: int | None = None  # what stands of the calls from there on was told by the undo before

    # Messages.

    def send(self, message: object, **options: Unpack[MessageKeywords]) -> PromptResponse[OutputT]:
        """Answer one message: a text, a list of texts, images and documents, or params of the `message_template`.

        `history`, `usage` and `turns` of the response: the conversation so far, and what this message took. Raises what
        `evaluate` does. `RuntimeError` when another message is being answered and the conversation has `busy="raise"`.
        """
        said, started = self._said(message), self._started(options)
        self._line.enter()
        try:
            self._check_open()
            if not self._has_resources:
                self._prompt.resources.__enter__()
                self._has_resources = True
            if not self._is_begun:
                drive(self._evaluation.open(BLOCKING))
                self._is_begun = True
            self._remember(said.text)
            return drive(self._evaluation.send(said, BLOCKING, started, renders=self._renders))
        finally:
            self._line.leave()

    async def asend(self, message: object, **options: Unpack[MessageKeywords]) -> PromptResponse[OutputT]:
        """Like `send`, for async code. Cancelling it undoes the call that runs and answers all others."""
        said, started = self._said(message), self._started(options)
        await self._line.aenter()
        try:
            self._check_open()
            if not self._has_resources:
                await self._prompt.resources.__aenter__()
                self._has_resources = True
            if not self._is_begun:
                await self._evaluation.open(AWAITING)
                self._is_begun = True
            self._remember(said.text)
            return await self._evaluation.send(said, AWAITING, started, renders=self._renders)
        finally:
            self._line.leave()

    def stream(self, message: object, **options: Unpack[MessageKeywords]) -> EventStream[OutputT]:
        """Like `asend`, one event after another: `async with chat.stream(text) as events:`. See `EventStream`."""
        return EventStream(self._streamed(message, options))

    def stream_sync(self, message: object, **options: Unpack[MessageKeywords]) -> SyncEventStream[OutputT]:
        """Like `stream`, for synchronous code: `with chat.stream_sync(text) as events:`. See `SyncEventStream`."""
        refuse_in_event_loop("stream_sync()", "async with chat.stream(...)")
        return SyncEventStream(self._streamed(message, options))

    def interject(self, text: str) -> None:
        """Say something while a message is being answered, from any thread or task.

        The model reads it once the calls of its present turn are answered, or instead of ending. `RuntimeError` when no
        message is being answered.
        """
        if not self._evaluation.interject(self._guarded(text)):
            raise RuntimeError("No message is being answered, so there is nothing to interject into. Use send().")

    def undo(self) -> UndoneMessage:
        """Go back to before the last message: state, files and other resources, and what the model has read.

        The log stays, and says which calls were undone. Repeated, it undoes the message before. `ValueError` when there
        is none left, `RuntimeError` while a message is being answered, `RollbackError` when something could not be
        restored; then it may be tried again.
        """
        self._check_open()
        if not self._line.try_enter():
            raise RuntimeError("A message is being answered; wait for its answer before you undo it.")
        try:
            if not self._messages:
                raise ValueError("There is no message to undo.")
            last = self._messages[-1]
            state, standing = self._evaluation.state, self._standing(last.calls)
            opened = self.session[VisibilityOverrides].latest()
            restore_snapshot(self.session, self._prompt.resources, last.snapshot)
            self._messages.pop()
            self._told_from = last.calls
            release_snapshot(self.session, last.snapshot)
            state.transcript.cut(last.length)
            if self.session[VisibilityOverrides].latest() != opened:
                state.render_again()
            return UndoneMessage(last.text, standing)
        finally:
            self._line.leave()

    @property
    def history(self) -> History:
        """The conversation so far: `loop.conversation(request, history=...)` goes on from it."""
        return self._evaluation.state.transcript.history()

    # Its end.

    def close(self) -> None:
        """Close what was built for it; leaving the block does so. Closing twice does nothing."""
        if self._end():
            try:
                self._evaluation.state.executor.close()
            finally:
                self._prompt.resources.__exit__(None, None, None)

    async def aclose(self) -> None:
        """Like `close`, for async code."""
        if self._end():
            try:
                await self._evaluation.state.executor.aclose()
            finally:
                await self._prompt.resources.__aexit__(None, None, None)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    # Inside.

    def _end(self) -> bool:
        """Whether there is something to close. What undoing needed is not needed any more."""
        self._is_closed = True
        was_open, self._has_resources = self._has_resources, False
        messages, self._messages = self._messages, []
        for message in reversed(messages):
            release_snapshot(self.session, message.snapshot)
        return was_open

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(_CLOSED)

    def _remember(self, text: str) -> None:
        snapshot = create_snapshot(self.session, self._prompt.resources)
        length = len(self._evaluation.state.transcript.upto_now())
        self._told_from = None
        self._messages.append(_Message(text, length, snapshot, len(self.session[ToolInvoked].all())))

    def _standing(self, since: int) -> tuple[ToolInvoked, ...]:
        tools = self._evaluation.state.executor.run.tools
        events = self.session[ToolInvoked].all()[since : self._told_from]
        return tuple(event for event in events if event.outcome not in _NO_EFFECT and _reaches_out(tools, event))

    def _started(self, keywords: MessageKeywords) -> StartedOptions:
        self._check_open()
        unknown = set(keywords) - MessageKeywords.__optional_keys__
        if unknown:
            names = ", ".join(sorted(MessageKeywords.__optional_keys__))
            raise TypeError(f"send() got an unexpected keyword argument {min(unknown)!r}. It takes: {names}.")
        usual, on_event = self._options, keywords.get("on_event")
        if on_event is not None and usual.on_event is not None:
            keywords = {**keywords, "on_event": tell_both(on_event, usual.on_event)}
        return RunOptions(**keywords).over(usual).started()

    def _streamed(self, message: object, options: MessageKeywords) -> Begin[OutputT]:
        def begin(on_event: OnEvent) -> StreamedRun[OutputT]:
            keywords: MessageKeywords = {**options, "on_event": tell_both(on_event, options.get("on_event"))}
            context = self._options.run_context
            run_id = None if context is None else context.run_id
            return StreamedRun(self.session, self._prompt.name, run_id, lambda: self.asend(message, **keywords))

        return begin

    def _said(self, message: object) -> UserMessage:
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
        if self._prompt.template.system or _LIKE_OURS.search(text) is None:
            return text
        return f"The user says:\n\n{as_block(text)}"


def _reaches_out(tools: Any, event: ToolInvoked) -> bool:
    bound = tools.get(event.tool_name)
    if bound is None:
        return True
    notes = bound.tool.annotations
    return bound.tool.idempotency is not None or (notes.open_world and not notes.read_only)


@final
class _MessageQueue:
    """Lets one message through at a time, in the order in which they came; from threads and tasks alike."""

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits
        self._lock = Lock()
        self._is_taken = False
        self._others: deque[Future[None]] = deque()

    def try_enter(self) -> bool:
        """Enter if there is no message in."""
        with self._lock:
            was_taken, self._is_taken = self._is_taken, True
            return not was_taken

    def _place(self) -> Future[None] | None:
        """None when it is this one's turn already."""
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return None
            if not self._waits:
                raise RuntimeError("Another message is being answered. Wait for its answer, or open with busy='wait'.")
            place: Future[None] = Future()
            self._others.append(place)
            return place

    def enter(self) -> None:
        """Wait for one's turn."""
        place = self._place()
        if place is not None:
            self._wait(place, place.result)

    async def aenter(self) -> None:
        """Await it."""
        place = self._place()
        if place is not None:
            try:
                await asyncio.wrap_future(place)
            except BaseException:
                self._give_up(place)
                raise

    def _wait(self, place: Future[None], wait: Callable[[], None]) -> None:
        try:
            wait()
        except BaseException:
            self._give_up(place)
            raise

    def _give_up(self, place: Future[None]) -> None:
        with self._lock:
            is_waiting = place in self._others
            if is_waiting:
                self._others.remove(place)
        if not is_waiting and not place.cancelled():
            self.leave()  # it was given the turn meanwhile

    def leave(self) -> None:
        """Let the next one in."""
        with self._lock:
            while self._others:
                place = self._others.popleft()
                if place.set_running_or_notify_cancel():
                    place.set_result(None)
                    return
            self._is_taken = False


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
