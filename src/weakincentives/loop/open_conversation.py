"""A conversation while its prompt, session and resources are there: what is said, undone, and read from the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

from ..errors import NotResumableError, RecordError
from ..prompt.events import ToolInvoked
from ..prompt.prompt import Prompt
from ..prompt.visibility import VisibilityOverrides
from ..runtime.blocks import create_snapshot, release_snapshot, restore_snapshot
from ..runtime.messages import History, UserMessage
from ..runtime.options import RunOptions, StartedOptions
from ..runtime.record.calls import RunRecorder
from ..runtime.record.contents import load_attachments
from ..runtime.record.files import World
from ..runtime.record.recorder import Recorder
from ..runtime.record.resources import is_recordable
from ..runtime.transactions import CompositeSnapshot, snapshots_of
from ..session import Session
from ..waiting import Waiting
from .evaluation import Evaluation, TurnAdapterProtocol
from .response import PromptResponse

OutputT = TypeVar("OutputT")

_NO_EFFECT = frozenset({"invalid", "unknown_tool", "refused", "conflict", "expanded", "replayed"})
"""Outcomes of calls that reached nothing outside in this conversation."""


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


@dataclass(slots=True)
class _Message:
    """What undoing a message needs, and whether it was answered.

    `step` is its row on record, `said` the number of its turns.
    """

    text: str
    length: int
    snapshot: CompositeSnapshot
    calls: int
    step: int = 0
    was_served: bool = False
    is_answered: bool = False
    said: int = 0


@final
class OpenConversation(Generic[OutputT]):
    """From the first message, or the record, until it is closed. Its user lets one thing happen at a time.

    With a record a message is undone by what the record has of before it, and it may be opened again. `is_over` says
    that this must be done: it was closed, or what is here and what is on record have parted.
    """

    def __init__(
        self,
        adapter: TurnAdapterProtocol,
        prompt: Prompt[OutputT],
        session: Session,
        options: RunOptions,
        started: StartedOptions,
        *,
        renders: bool,
        recorder: RunRecorder | None = None,
        world: World = "check",
    ) -> None:
        self.session: Session = session
        self.is_over: bool = False
        self.in_loop: bool = False
        self._prompt = prompt
        self._options = options
        self._renders = renders
        self._rows: Recorder | None = None if recorder is None else recorder.rows
        self._evaluation: Evaluation[OutputT] = Evaluation(adapter, prompt, session, started, None, recorder, world)
        self._has_resources = False
        self._is_begun = False
        self._is_left = False  # whether the record ends in the middle of the last message
        self._messages: list[_Message] = []
        self._last: _Message | None = None  # once it is closed
        self._told_from: int | None = None  # what stands of the calls from there on was told by the undo before

    # Its beginning and its end.

    async def open(self, waiting: Waiting, *, counted: int = 0) -> None:
        """Open what is not open yet, and go through what is on record.

        What messages took counts in a tracker that was given, unless their steps were `counted`.
        """
        if not self._has_resources:
            await enter_resources(self._prompt, waiting)
            self.entered(waiting)
        if not self._is_begun:
            await self._evaluation.open(waiting)
            self._is_begun = True
            if self._rows is not None:
                await self._serve(self._rows, waiting, counted)

    def entered(self, waiting: Waiting) -> None:
        """The resources are open, and closed with it."""
        self._has_resources, self.in_loop = True, waiting.in_loop

    async def close(self, waiting: Waiting) -> None:
        """Close what was built for it, and let other processes have the run; closing twice does nothing."""
        had_resources, self._has_resources = self._has_resources, False
        rows, messages, self._messages = self._rows, self._messages, []
        self.is_over = self.is_over or rows is not None
        self._last = messages[-1] if messages else self._last
        for message in reversed(messages):
            release_snapshot(self.session, message.snapshot)
        try:
            if rows is not None:
                rows.forget_resources()
        finally:
            try:
                if had_resources:
                    await self._close_resources(waiting)
            finally:
                if rows is not None:
                    rows.release()

    async def _close_resources(self, waiting: Waiting) -> None:
        executor = self._evaluation.state.executor
        try:
            await executor.aclose() if waiting.in_loop else executor.close()
        finally:
            await leave_resources(self._prompt, waiting)

    # Messages.

    @property
    def history(self) -> History:
        """What the model has read and said so far."""
        return self._evaluation.state.transcript.history()

    @property
    def unanswered(self) -> str | None:
        """The last message, when it has no answer."""
        last = self._messages[-1] if self._messages else self._last
        return None if last is None or last.is_answered else last.text

    @property
    def step(self) -> int:
        """The last step on record; 0 without one."""
        return 0 if self._rows is None else self._rows.step

    async def send(self, message: UserMessage, waiting: Waiting, options: StartedOptions) -> PromptResponse[OutputT]:
        """Answer one message more."""
        await self._leave_nothing_open(waiting)
        self._remember(message.text)
        return await self._answered(message, waiting, options)

    async def resume(self, waiting: Waiting, options: StartedOptions) -> PromptResponse[OutputT]:
        """Answer the last message, from where it was left."""
        if self.unanswered is None:
            raise ValueError("Every message is answered, so there is nothing to go on with.")
        self._is_left = False
        return await self._answered(None, waiting, options)

    def interject(self, text: str) -> bool:
        """As `Evaluation.interject`."""
        return self._evaluation.interject(text)

    async def _answered(
        self, message: UserMessage | None, waiting: Waiting, options: StartedOptions
    ) -> PromptResponse[OutputT]:
        last, events = self._messages[-1], self._evaluation.state.events
        events.said = last.said
        try:
            response = await self._evaluation.send(message, waiting, options, renders=self._renders)
        except BaseException:
            self._look_at_record(last)
            raise
        finally:
            last.said = events.said
        last.is_answered = True
        return response

    def _look_at_record(self, last: _Message) -> None:
        """After a failure: whether what is on record is what is here, and whether the message was sent at all."""
        rows, has_begun = self._rows, self._evaluation.has_begun
        self.is_over = rows is not None and not (has_begun and self._is_on_record(rows, last))
        if rows is not None and rows.stopped and rows.has_ended:
            last.is_answered = True  # an interrupt came after that was on record
        if not has_begun and (rows is None or rows.step < last.step):
            self._messages.pop()
            release_snapshot(self.session, last.snapshot)

    def _is_on_record(self, rows: Recorder, last: _Message) -> bool:
        calls = self.session[ToolInvoked].all()[last.calls :]
        return not rows.stopped and all(
            rows.step_of(call.event_id) is not None for call in calls if call.within is None
        )

    def _remember(self, text: str, *, was_served: bool = False) -> _Message:
        rows, session = self._rows, self.session
        if rows is None:
            snapshot = create_snapshot(session, self._prompt.resources)
        else:
            snapshot = self._snapshot_beside(rows, was_served=was_served)
        length = len(self._evaluation.state.transcript.upto_now())
        self._told_from = None
        calls = len(session[ToolInvoked].all())
        step = 0 if rows is None else rows.step + (not was_served)
        made = _Message(text, length, snapshot, calls, step, was_served)
        self._messages.append(made)
        return made

    def _snapshot_beside(self, rows: Recorder, *, was_served: bool) -> CompositeSnapshot:
        """Of what the record does not have: the session, which costs nothing, and resources that are not recorded."""
        context = self._prompt.resources.context
        files = None if rows.files is None else rows.files.fs
        others = [
            part for part in context.snapshotables() if not was_served and part is not files and not is_recordable(part)
        ]
        return CompositeSnapshot(self.session.snapshot(), snapshots_of(others), context.mark())

    async def _leave_nothing_open(self, waiting: Waiting) -> None:
        if self._is_left:
            self._is_left = False
            try:
                await self._evaluation.give_up(waiting)
            except BaseException:
                self.is_over = True
                raise
            self.is_over = self._rows is not None and not self._is_on_record(self._rows, self._messages[-1])

    # What is on record.

    async def _serve(self, rows: Recorder, waiting: Waiting, counted: int) -> None:
        while (step := rows.next_message()) is not None:
            if step.body["as"] == "undo":
                self._undo_served(rows)
                continue
            rows.serve_message()
            message: UserMessage | None = None
            if step.body["as"] == "message":
                message = UserMessage(rows.text(step.body["text"]), load_attachments(step, rows.store))
            last = self._messages[-1] if message is None else self._remember(message.text, was_served=True)
            options, events = self._options.started(), self._evaluation.state.events
            events.said = last.said
            answered = await self._evaluation.serve(message, waiting, options, renders=self._renders)
            last.said = events.said
            last.is_answered, self._is_left = bool(answered), answered is None
            if step.seq > counted and not self._is_left:
                self._evaluation.state.limits.spent(self._evaluation.state.usage)

    # Undo.

    async def undo(self, waiting: Waiting, world: World) -> UndoneMessage:
        """Go back to before the last message."""
        await self._leave_nothing_open(waiting)
        if not self._messages:
            raise ValueError("There is no message to undo.")
        last, rows = self._messages[-1], self._rows
        standing, opened = self._standing(last.calls), self.session[VisibilityOverrides].latest()
        if rows is None:
            restore_snapshot(self.session, self._prompt.resources, last.snapshot)
        else:
            await self._undo_recorded(rows, last, waiting, world)
        self._forget_last(opened)
        return UndoneMessage(last.text, standing)

    async def _undo_recorded(self, rows: Recorder, last: _Message, waiting: Waiting, world: World) -> None:
        """By what the record has of before the message. The undo is on record before files are touched.

        So a process that ends in between finds them as they were before a step that is on record, and goes on.
        """
        if rows.stopped:
            raise RecordError(f"The conversation {rows.run_id!r} is not recorded any more, so it cannot go on here.")
        store, run_id, files, resources = rows.store, rows.run_id, rows.files, rows.resources
        missing = resources.unrecorded() if last.was_served and resources is not None else []
        if missing:
            raise NotResumableError(
                f"The message cannot be undone: the state of {', '.join(missing)} before it is not on record. Give "
                "these classes record_delta() and apply(), or pass accept_unrecorded= to leave them as they are."
            )
        paths: list[tuple[str, str | None, str | None]] = []
        if files is not None:
            paths = await waiting.call(lambda: files.undo_since(last.step, store, run_id, world))
        self.is_over = True  # until all of it is done
        restore_snapshot(self.session, self._prompt.resources, last.snapshot)
        is_done = True
        if resources is not None and resources.any:
            steps = await waiting.call(lambda: tuple(store.steps(run_id, until=last.step)))
            is_done = resources.go_back(steps)
        told = f"The message of step {last.step} was undone."
        await rows.write_user("undo", told, waiting, of=last.step, files=paths)
        if files is not None and paths:
            await waiting.call(lambda: files.put({path: after for path, _, after in paths}, store))
        self.is_over = not is_done

    def _undo_served(self, rows: Recorder) -> None:
        opened = self.session[VisibilityOverrides].latest()
        restore_snapshot(self.session, self._prompt.resources, self._messages[-1].snapshot)
        rows.serve_message()
        self._forget_last(opened, was_served=True)

    def _forget_last(self, opened: VisibilityOverrides | None, *, was_served: bool = False) -> None:
        last, state = self._messages.pop(), self._evaluation.state
        self._told_from = last.calls
        release_snapshot(self.session, last.snapshot)
        state.transcript.cut(last.length)
        if self.session[VisibilityOverrides].latest() != opened:
            state.events.is_served = was_served
            try:
                state.render_again()
            finally:
                state.events.is_served = False

    def _standing(self, since: int) -> tuple[ToolInvoked, ...]:
        tools = self._evaluation.state.executor.run.tools
        events = self.session[ToolInvoked].all()[since : self._told_from]
        return tuple(event for event in events if event.outcome not in _NO_EFFECT and _reaches_out(tools, event))

    # Forks.

    def step_after(self, messages: int | None) -> int:
        """The step that the first messages end with; all of them when None."""
        if messages is None or messages == len(self._messages):
            return self.step
        if not 0 <= messages <= len(self._messages):
            raise ValueError(f"The conversation has {len(self._messages)} messages, got {messages}.")
        return self._messages[messages].step - 1


def _reaches_out(tools: Any, event: ToolInvoked) -> bool:
    bound = tools.get(event.tool_name)
    if bound is None:
        return True
    notes = bound.tool.annotations
    return bound.tool.idempotency is not None or (notes.open_world and not notes.read_only)


async def enter_resources(prompt: Prompt[Any], waiting: Waiting) -> None:
    """Open them where they are used."""
    if waiting.in_loop:
        await prompt.resources.__aenter__()
    else:
        prompt.resources.__enter__()


async def leave_resources(prompt: Prompt[Any], waiting: Waiting) -> None:
    """Close them."""
    if waiting.in_loop:
        await prompt.resources.__aexit__(None, None, None)
    else:
        prompt.resources.__exit__(None, None, None)


__all__ = ["OpenConversation", "UndoneMessage", "enter_resources", "leave_resources"]
