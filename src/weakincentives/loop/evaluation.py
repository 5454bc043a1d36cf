"""The loop that all adapters with `ask` share: render, ask, run the calls, answer every one, until there is an answer.

begin   answer what an earlier conversation left open, add the prompt, enter the resources
ask     limits, request, waiting and asking again when the provider is busy
answer  the turn's calls through the engine; every id is answered, also when an exception passes
finish  parse the final answer or say what was wrong with it
fail    answer what is open, keep the history with the exception

The state is in `state.py`, shared with adapters whose program has its own loop. Requests, calls and waits go through
`LiveSteps`, and `CallIds` makes call ids unique; both are below.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast, final

from ..content import KINDS_MADE
from ..errors import VisibilityExpansionRequired, WinkError
from ..interrupts import Lock, Shield, WeakTable, current_shield
from ..prompt.events import ToolInvoked
from ..prompt.policies import CallCounts
from ..prompt.prompt import Prompt
from ..prompt.tool import Tool
from ..results import ToolResult
from ..runtime.call import MAX_ID_CHARS, ToolCall, ToolReply
from ..runtime.executor import ToolExecutor
from ..runtime.inside import ids_around
from ..runtime.messages import CallMessage, Message, ModelMessage, UserMessage
from ..runtime.options import StartedOptions
from ..runtime.progress import MessageReceived, OnEvent, Retrying, TextDelta
from ..runtime.record.calls import RunRecorder
from ..runtime.record.files import World
from ..runtime.redaction import ended_text, redact, text_of
from ..runtime.turn import OnCall, OnReply, opened_text
from ..session import Session
from ..session.session import root_of
from ..waiting import OutOfTime, Waiting
from .attachments import Accepts, check_message, fitted
from .recorded import EvaluationSteps, RecordedSteps, RecordEnds
from .request import ModelRequest, ModelTurn, RequestFailed, ToolSpec, tool_spec
from .response import OpenCall, PromptResponse, by_call, check_open
from .state import EvaluatingAdapter, EvaluationState, Repair

logger: logging.Logger = logging.getLogger(__name__)

OutputT = TypeVar("OutputT")

_MAX_ERROR_CHARS = 8 * 1024
_NOT_RUN = "This call was not run, because the conversation went on without it."
_MAX_NAME_CHARS = 128
_MAX_STEM_CHARS = 24
"""With a number after it an id stays short enough for every provider."""


class TurnAdapterProtocol(EvaluatingAdapter, Protocol):
    """What the loop needs of an adapter: a `TurnAdapter`."""

    @property
    def accepts(self) -> Accepts:
        """What the model takes besides text."""
        ...

    def ask(self, request: ModelRequest) -> ModelTurn:
        """Wait for the answer."""
        ...

    async def aask(self, request: ModelRequest) -> ModelTurn:
        """Await the answer."""
        ...


@final
class Evaluation(Generic[OutputT]):
    """One evaluation under way. In manual mode it lives from step to step; `close` ends it early."""

    def __init__(  # noqa: PLR0917 - what one call of `evaluate` has gathered
        self,
        adapter: TurnAdapterProtocol,
        prompt: Prompt[OutputT],
        session: Session,
        options: StartedOptions,
        tool_results: Iterable[ToolReply] | None,
        recorder: RunRecorder | None = None,
        world: World = "check",
    ) -> None:
        self._adapter = adapter
        self._settings = adapter.settings
        self._given = by_call(tool_results or ())
        self._is_continued = bool(options.history.open_calls) and tool_results is not None
        self._ids = CallIds(session, options.history.messages)
        self._tools: tuple[Tool[Any, Any], ...] = ()
        self._specs: tuple[ToolSpec, ...] = ()
        self._recorder = recorder
        self._world: World = world
        self._state = EvaluationState(adapter, prompt, session, options)
        self._state.has_limits = recorder is None or not recorder.rows.is_over
        self._schema = self._state.rendered.output_schema
        self._steps: RecordedSteps | None = None
        self._hears = False  # whether a user may say something meanwhile
        self._interjected: deque[str] | None = None
        self._interjecting = Lock()
        self._left_at: ModelTurn | None = None  # where the record of a message ends
        self._is_left = False  # whether it ends in the middle of the last message
        self.has_begun: bool = False  # whether the last message, or going on with it, is on record if anything is

    @property
    def state(self) -> EvaluationState[OutputT]:
        """Its transcript, counts and executor, for a conversation, which asks it again."""
        return self._state

    # The loop.

    async def run(self, waiting: Waiting, on_event: OnEvent | None) -> PromptResponse[OutputT]:
        """Until the final answer, or in manual mode until there are calls to run."""
        state, recorder = self._state, self._recorder
        steps = self._steps_with(waiting)
        state.listen_with(on_event)  # each step of manual mode brings its own
        shield = current_shield()
        try:
            if not state.turns:
                await state.begin(steps.recall, self._given, is_continued=self._is_continued)
                await steps.enter()
                state.entered()
            else:
                state.executor.take_signals()
            response = await self._answered(steps)
            if response.tool_calls:
                state.executor.return_signals()  # between two steps it is the caller's program that runs
                return response
            await steps.finished(response)
            if recorder is not None:
                response = replace(response, step=recorder.step)
            state.finished(response)
        except BaseException as error:
            if recorder is not None and not isinstance(error, Exception):
                recorder.stop()  # it can be continued where it was: these answers are not part of it
            self._end_with(error, shield)
            try:
                await steps.failed(error)
            finally:
                await steps.close()
            raise
        await steps.close()
        return response

    def _steps_with(self, waiting: Waiting) -> EvaluationSteps:
        """How it asks, runs calls and waits."""
        live, recorder = LiveSteps(self._adapter, self._state.executor, waiting), self._recorder
        if recorder is None:
            return live
        if self._steps is None:
            state = self._state
            self._steps = RecordedSteps(
                live, state.executor, state.transcript, recorder, waiting, self._world, state.events
            )
        else:
            self._steps.wait_with(live, waiting)
        return self._steps

    async def _answered(self, steps: EvaluationSteps, turn: ModelTurn | None = None) -> PromptResponse[OutputT]:
        """Ask and run calls until there is an answer, or in manual mode until there are calls to run.

        `turn` is one that the model said already.
        """
        state = self._state
        while True:
            if turn is None:
                turn = await self._ask(steps)
            self._left_at = turn
            if turn.calls:
                if self._settings.manual:
                    return self._return_open_calls(turn)
                await self._answer(turn, steps)
                if self._hears:
                    await self._say_interjected(steps)
            elif turn.stop_reason != "pause" and not (self._hears and await self._say_interjected(steps, is_over=True)):
                output = state.parse_output(turn.text, turn.stop_reason)
                if not isinstance(output, Repair):
                    return state.response(turn.text, turn.stop_reason, output)
            turn = self._left_at = None

    def _end_with(self, error: BaseException, shield: Shield, steps: EvaluationSteps | None = None) -> None:
        """Answer what is open, keep the conversation with the exception, publish the end."""
        state = self._state
        shield.depth += 1  # a second interrupt waits until every call is answered
        try:
            state.events.stop_listening()
            state.answer_open_calls(ended_text(error))
            if steps is not None:
                for text in steps.left_over(self._take_interjected(is_over=True)):
                    self._say(UserMessage(text))
            state.failed(error)
        finally:
            shield.depth -= 1

    # Conversations: the same evaluation is asked again.

    async def open(self, waiting: Waiting) -> None:
        """Say the prompt and enter the resources; messages follow. After an exception it may be tried again."""
        steps, self._hears = self._steps_with(waiting), True
        try:
            await self._state.begin(steps.recall, message_follows=True)
            await steps.enter()
        finally:
            self._state.executor.return_signals()

    async def send(
        self, message: UserMessage | None, waiting: Waiting, options: StartedOptions, *, renders: bool
    ) -> PromptResponse[OutputT]:
        """Answer one message more, or go on with the last one. Whatever is raised, every call is answered.

        One that the record left off in the middle goes on where it was; one that failed is asked about again.
        """
        state, steps = self._state, self._steps_with(waiting)
        turn = self._what_is_open() if message is None else None
        state.listen_with(options.on_event)
        shield, self.has_begun = current_shield(), False
        try:
            with self._interjecting:
                self._interjected = deque()
            state.executor.take_signals()
            is_left, self._is_left = self._is_left, False
            state.begin_message(options, goes_on=is_left)
            if message is not None:
                self._check_size(message)
                await steps.heard(message)
                state.events.tell(MessageReceived, message.text)
                self._begin_message(message, renders=renders)
            elif not is_left:
                await steps.asked_again()
            self.has_begun = True
            response = await self._answered(steps, turn)
            await steps.finished(response)
            state.finished(response)
            if isinstance(steps, RecordedSteps):
                response = replace(response, step=steps.step)
        except BaseException as error:
            if self.has_begun:
                self._end_with(error, shield, steps)
                await steps.failed(error)
            raise
        else:
            return response
        finally:
            self._left_at = None
            with self._interjecting:
                self._interjected = None
            state.executor.return_signals()

    def _check_size(self, message: UserMessage) -> None:
        """A message that is too large is not part of the conversation, which could not go on with it."""
        try:
            check_message(message, self._adapter.accepts)
        except RequestFailed as failure:
            raise self._state.error(
                f"The message was not sent to {self._adapter.name}: {failure}.", "request"
            ) from failure

    async def serve(
        self, message: UserMessage | None, waiting: Waiting, options: StartedOptions, *, renders: bool
    ) -> bool | None:
        """Go through a message that is on record: whether it was answered; None when the record ends before that.

        Nothing is asked or run, and no limit holds.
        """
        state, steps = self._state, self._steps_with(waiting)
        assert isinstance(steps, RecordedSteps)
        shield = current_shield()
        state.events.is_served = steps.serves_only = True
        state.has_limits = False
        try:
            state.begin_message(options)
            if message is not None:
                self._begin_message(message, renders=renders)
            response = await self._answered(steps)
            await steps.finished(response)
            state.finished(response)
        except RecordEnds:
            self._is_left = True
            state.turns -= self._left_at is None  # the model was not asked for that one
            return None
        except Exception as error:
            if not steps.is_failing:
                raise
            self._left_at = None
            self._end_with(error, shield, steps)
            await steps.failed(error)
            return False
        else:
            self._left_at = None
            return True
        finally:
            state.events.is_served = steps.serves_only = False
            state.has_limits = True

    async def give_up(self, waiting: Waiting) -> None:
        """End the message that the record left off in the middle, as one that failed there."""
        state, steps = self._state, self._steps_with(waiting)
        self._left_at, self._is_left = None, False
        for call in state.transcript.open_calls():
            reply = await steps.outcome(ToolCall(call.id, call.name, call.arguments))
            if reply is not None:
                state.replied(reply)
        error = state.error("The process ended while this message was answered.", "response")
        self._end_with(error, current_shield(), steps)
        await steps.failed(error)

    def _what_is_open(self) -> ModelTurn | None:
        """The turn that the record leaves off in, with the calls that have no answer yet."""
        turn, calls = self._left_at, self._state.transcript.open_calls()
        return None if turn is None or (turn.calls and not calls) else turn._replace(calls=calls)

    def _begin_message(self, message: UserMessage, *, renders: bool) -> None:
        try:
            if renders:
                self._state.render_again()
        except Exception:
            self._say(message)
            self.has_begun = True
            raise
        self._say(message)

    def _say(self, message: UserMessage) -> None:
        """A user's message reaches the transcript here, whenever it was sent."""
        self._state.transcript.add(message)

    def interject(self, text: str) -> bool:
        """Say this to the model once the calls of its present turn are answered; False when no message is answered."""
        with self._interjecting:
            if self._interjected is None:
                return False
            self._interjected.append(text)
            return True

    async def _say_interjected(self, steps: EvaluationSteps, *, is_over: bool = False) -> bool:
        """Say what came meanwhile. When there is nothing and the answer is there, nothing more is taken."""
        try:
            texts = await steps.interjected(self._take_interjected(is_over=is_over), self._state.events.interjected)
            for text in texts:
                self._say(UserMessage(text))
        except BaseException as error:
            if not isinstance(error, RecordEnds):
                self._lose_record()
            raise
        return bool(texts)

    def _take_interjected(self, *, is_over: bool) -> Sequence[str]:
        with self._interjecting:
            if self._interjected is None:
                return ()
            texts, self._interjected = self._interjected, deque()
            if is_over and not texts:
                self._interjected = None
        return tuple(texts)

    # Asking.

    async def _ask(self, steps: EvaluationSteps) -> ModelTurn:
        state = self._state
        state.begin_turn()
        turn = await self._request(steps)
        state.spent(turn.usage)
        events = state.events
        events.said = events.turn
        if events.on_event is not None and turn.text and not events.streamed:
            events.tell(TextDelta, turn.text)
        if len(turn.calls) > self._settings.max_calls_per_turn:
            raise state.error(
                f"The model made {len(turn.calls)} calls in one turn, more than {self._settings.max_calls_per_turn}, "
                "so none of them was run. Raise max_calls_per_turn= of the adapter.",
                "response",
            )
        turn = self._ids.known(turn) if steps.was_served else self._ids.sound(turn, state.turns)
        try:
            state.transcript.add(
                ModelMessage(turn.text, turn.calls, turn.native, self._adapter.name if turn.native else "")
            )
            await steps.said(turn)
        except BaseException:
            self._lose_record()
            raise
        return turn

    def _lose_record(self) -> None:
        """What is here and what is on record may have parted: nothing more is recorded."""
        if self._recorder is not None:
            self._recorder.stop(lost=True)

    async def _request(self, steps: EvaluationSteps) -> ModelTurn:
        """Ask once, and again while waiting helps and the deadline allows it."""
        attempt = 1
        while True:
            self._state.events.streamed = False
            try:
                return await steps.ask(self._make_request())
            except RequestFailed as failure:
                delay = self._delay(attempt, failure)
                logger.info("Request %d failed (%s); waiting %.2f s", attempt, failure.kind, delay)
                self._state.events.tell(Retrying, _masked(failure), attempt, delay)
                await steps.sleep(delay)
                attempt += 1
            except (WinkError, AssertionError):
                raise
            except Exception as error:
                text = redact(f"{type(error).__name__}: {text_of(error)}"[:_MAX_ERROR_CHARS])
                raise self._state.error(f"Request to {self._adapter.name} failed. {text}", "request") from error

    def _make_request(self) -> ModelRequest:
        tools = self._state.executor.tools
        if tools is not self._tools:
            self._tools, self._specs = tools, tuple(map(tool_spec, tools))
        limits, events = self._state.limits, self._state.events
        is_limited = limits.deadline is not None
        on_text, on_reasoning = (None, None) if events.on_event is None else events.listen()
        return ModelRequest(
            self._state.transcript.upto_now(),
            self._specs,
            self._state.transcript.system or None,
            self._schema,
            limits.seconds() if is_limited else None,
            on_text,
            self._out_of_time if is_limited else None,
            on_reasoning,
        )

    def _out_of_time(self) -> bool:
        return self._state.limits.deadline is not None and self._state.limits.deadline.expired

    def _delay(self, attempt: int, failure: RequestFailed) -> float:
        delay = self._settings.throttle.wait(attempt, failure)
        text = _masked(failure)
        if delay is None:
            tries = f" after {attempt} attempts" if attempt > 1 else ""
            phase = "response" if failure.kind == "malformed" else "request"
            raise self._state.error(f"Request to {self._adapter.name} failed{tries}: {text}", phase) from failure
        left = self._state.limits.seconds()
        if left is not None and delay >= left:
            raise self._state.error(
                f"The deadline leaves no time to ask {self._adapter.name} again: {text}", "deadline"
            ) from failure
        return delay

    async def _answer(self, turn: ModelTurn, steps: EvaluationSteps) -> None:
        """Run the turn's calls. Afterwards every id has its answer in the transcript, whatever happened."""
        state = self._state
        calls = [ToolCall(call.id, call.name, call.arguments) for call in turn.calls]
        on_call = None if state.events.on_event is None else state.call_started
        try:
            replies = await steps.execute(calls, on_call, self._replied)
        except VisibilityExpansionRequired as expansion:
            state.answer_open_calls(self._expand_sections(expansion))
            return
        for reply in replies:
            if reply.outcome == "deadline":
                name = next((call.name for call in calls if call.id == reply.call_id), None)
                raise state.out_of_time(reply, name)

    def _replied(self, reply: ToolReply) -> None:
        if reply.outcome != "expanded":  # which is answered once the sections are open
            self._state.replied(reply)

    def _expand_sections(self, expansion: VisibilityExpansionRequired) -> str:
        """Show the sections from now on; the answer to the call that asked for them."""
        rendered = self._state.expand_sections(expansion)
        self._state.transcript.set_prompt(rendered.text, self._state.system, rendered.attachments)
        return opened_text(expansion.section_keys)

    # Manual mode.

    def _return_open_calls(self, turn: ModelTurn) -> PromptResponse[OutputT]:
        calls = tuple(OpenCall.of(call, self._state.session, self._execute_one) for call in turn.calls)
        return self._state.response(turn.text, "tool_use", None, calls)

    def _execute_one(self, call: ToolCall) -> ToolReply:
        """What an `OpenCall` does; opening sections is an answer here, since the loop is not running."""
        self._state.call_started(call)
        try:
            return self._state.executor.execute(call)
        except VisibilityExpansionRequired as expansion:
            text = self._expand_sections(expansion)
            return ToolReply(call.id, text, ToolResult(text), "expanded")

    def take_results(self, results: Iterable[ToolReply]) -> None:
        """Manual mode goes on: these are the answers; a call without one is recorded as not run."""
        given = by_call(results)
        check_open(given, self._state.transcript.open_calls(), where="this conversation")
        self._state.answer_open_calls(_NOT_RUN, given)

    def close(self, results: Iterable[ToolReply] = ()) -> None:
        """End a conversation in the middle: open calls are recorded as given or as not run, resources closed."""
        self._state.answer_open_calls(_NOT_RUN, by_call(results))
        self._state.executor.close()

    async def aclose(self) -> None:
        """Like `close`, for async code."""
        self._state.answer_open_calls(_NOT_RUN)
        await self._state.executor.aclose()


def _masked(failure: RequestFailed) -> str:
    """What may be said of a failed request: services quote the keys they were sent, and proxies their own."""
    return redact(str(failure)[:_MAX_ERROR_CHARS])


# The steps that reach outside: asking the model, running calls, waiting.


@final
class LiveSteps:
    """Sends requests, runs calls and waits, in the thread of the caller or in its event loop, as `waiting` says.

    What records or replays a run wraps it. In a thread a request that has a
    timeout runs in a worker, so that it can be given up on.
    """

    was_served = False

    def __init__(self, adapter: TurnAdapterProtocol, executor: ToolExecutor, waiting: Waiting) -> None:
        self._adapter = adapter
        self._executor = executor
        self._waiting = waiting

    async def ask(self, request: ModelRequest) -> ModelTurn:
        """Ask, for no longer than the request's timeout."""
        if KINDS_MADE:
            request = fitted(request, self._adapter.accepts)
        adapter, is_async = self._adapter, self._waiting.in_loop
        if request.timeout is None:
            return await adapter.aask(request) if is_async else adapter.ask(request)
        ask = adapter.aask if is_async else adapter.ask
        try:
            return await self._waiting.within(request.timeout, lambda: ask(request), is_async=is_async)
        except OutOfTime:
            raise RequestFailed("timeout", "the deadline passed while waiting for the model") from None

    async def execute(self, calls: Sequence[ToolCall], on_call: OnCall | None, on_reply: OnReply) -> list[ToolReply]:
        """Run the calls of a turn."""
        if self._waiting.in_loop:
            return await self._executor.aexecute_all(calls, on_call=on_call, on_reply=on_reply)
        return self._executor.execute_all(calls, on_call=on_call, on_reply=on_reply)

    async def said(self, turn: ModelTurn) -> None:
        """The model has said this; nothing to do without a record."""

    async def heard(self, message: UserMessage) -> None:
        """A user sent this message; the same."""

    async def asked_again(self) -> None:
        """A user wants it answered after all; the same."""

    async def interjected(self, texts: Sequence[str], tell: Callable[[str], None]) -> Sequence[str]:
        """The user said this meanwhile: listeners are told."""
        for text in texts:
            tell(text)
        return texts

    def left_over(self, texts: Sequence[str]) -> Sequence[str]:
        """The user said this in vain; the same."""
        return texts

    async def outcome(self, call: ToolCall) -> ToolReply | None:
        """What log and ledger know."""
        recalled = await self.recall(call)
        return None if recalled is None else self._executor.answer_open(call, recalled=recalled)

    async def finished(self, response: PromptResponse[Any]) -> None:
        """The evaluation has this answer; the same."""

    async def failed(self, error: BaseException) -> None:
        """The evaluation ends with this error; the same."""

    async def recall(self, call: ToolCall) -> ToolReply | None:
        """What is known of a call of an earlier conversation."""
        return await self._waiting.call(lambda: self._executor.recall(call))

    async def sleep(self, seconds: float) -> None:
        """Wait before a request is sent again."""
        await self._waiting.sleep(seconds)

    async def enter(self) -> None:
        """Enter the prompt's resources."""
        if self._waiting.in_loop:
            await self._executor.__aenter__()
        else:
            self._executor.__enter__()

    async def close(self) -> None:
        """Leave them."""
        if self._waiting.in_loop:
            await self._executor.aclose()
        else:
            self._executor.close()


# Call ids as they must be: there, short, and each of its own in the session, whatever the provider sent.


@final
class CallIds:
    """Gives the calls of one conversation their ids.

    An id belongs to one call of the session, so that its event is the only one with it and a call that was answered is
    never run again. Local models and scripts number their calls anew in every turn or conversation; a call under an id
    that is in the log, or in the conversation so far, therefore gets another one before anything sees it.
    """

    __slots__ = ("_begun", "_earlier", "_seen", "_session")

    begun: ClassVar[int] = 0
    """How many evaluations have begun in this process: others may be inside the calls of this one."""

    def __init__(self, session: Session, history: Sequence[Message]) -> None:
        self._session = session
        self._earlier = _ids_in_log(session)
        CallIds.begun += 1
        self._begun = CallIds.begun
        self._seen = {call.id for message in history if isinstance(message, ModelMessage) for call in message.calls}
        self._seen |= ids_around()  # an agent inside a call: the outer log has its calls, too

    def known(self, turn: ModelTurn) -> ModelTurn:
        """A turn that is on record, with the ids that it was given then."""
        self._seen.update(call.id for call in turn.calls)
        self._begun = -1  # agents inside these calls come to the log without an evaluation
        return turn

    def sound(self, turn: ModelTurn, number: int) -> ModelTurn:
        """The turn with a proper id for every call, the same object when all were proper.

        Of a call that came twice in the turn one is dropped, since it must not run twice; a missing or huge id is made
        up. `native` is given the new ids; where ids do not tell its calls apart it is left out.
        """
        calls = turn.calls
        if not calls:
            return turn
        if self._begun != CallIds.begun:  # perhaps agents inside the calls of the turn before, which have ids too
            self._begun, self._earlier = CallIds.begun, _ids_in_log(self._session)
        if len(calls) == 1 and (made := self._mended(calls[0], number)) is calls[0]:  # most turns are like this
            self._seen.add(made.id)
            return turn
        kept: list[CallMessage] = []
        renamed: dict[str, str] = {}
        for at, call in enumerate(calls):
            if call.id in renamed and call in calls[:at] and call.id:
                continue
            made = self._mended(call, number)
            renamed[call.id] = made.id
            kept.append(made)
            self._seen.add(made.id)
        mended = tuple(kept)
        if mended == calls:
            return turn
        native = _with_ids(turn.native, renamed) if len(renamed) == len(calls) and "" not in renamed else ()
        return turn._replace(calls=mended, native=native)

    def _mended(self, call: CallMessage, number: int) -> CallMessage:
        call_id, name = call.id, call.name
        if call_id and len(call_id) <= MAX_ID_CHARS and len(name) <= _MAX_NAME_CHARS and not self._is_used(call_id):
            return call
        if not call_id or len(call_id) > MAX_ID_CHARS:
            call_id = f"call_{number}"
        if self._is_used(call_id) or call_id != call.id:
            call_id = self._free(call_id[:_MAX_STEM_CHARS])
        return CallMessage(call_id, name[:_MAX_NAME_CHARS], call.arguments)

    def _is_used(self, call_id: str) -> bool:
        return call_id in self._seen or call_id in self._earlier

    def _free(self, stem: str) -> str:
        number = len(self._seen | self._earlier) + 1
        while self._is_used(f"{stem}_{number}"):
            number += 1
        return f"{stem}_{number}"


def _with_ids(native: Any, renamed: Mapping[str, str]) -> Any:
    """A provider's own form of a turn, with other ids for its calls."""
    if isinstance(native, Mapping):
        items = cast(Mapping[str, Any], native).items()
        return {
            key: renamed.get(value, value) if key in _ID_KEYS and isinstance(value, str) else _with_ids(value, renamed)
            for key, value in items
        }
    if isinstance(native, tuple):
        return tuple(_with_ids(item, renamed) for item in cast(Sequence[Any], native))
    if isinstance(native, list):
        return [_with_ids(item, renamed) for item in cast(Sequence[Any], native)]
    return native


_ID_KEYS = ("id", "call_id")
_lock = Lock()
_indexes: WeakTable[Session, CallCounts[set[str]]] = WeakTable()


def _ids_in_log(session: Session) -> set[str]:
    """The ids of all calls in the session's log, worked out once for each of them. Not to be changed."""
    owner = root_of(session)
    with _lock:
        index = _indexes.get(owner)
        if index is None:
            index = CallCounts(set[str], _add)
            _indexes.put(owner, index)
    return index.ask(session, lambda ids: ids)


def _add(ids: set[str], event: ToolInvoked) -> None:
    if event.call_id is not None:
        ids.add(event.call_id)


__all__ = ["TurnAdapterProtocol", "Evaluation"]
