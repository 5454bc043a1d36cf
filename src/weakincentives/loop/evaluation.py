"""The loop all adapters share: render, ask, run the calls, answer every one, ask again, until there is an answer.

start   render the prompt, tell PromptRendered, enter the resources
ask     limits, request, waiting and asking again when the provider is busy
answer  the turn's calls through the engine; every id is answered, also when an exception passes
open    sections the model asked for: rendered anew, the transcript kept
finish  parse the final answer or say what was wrong with it; tell PromptExecuted
fail    answer what is open, keep the history with the exception, tell PromptExecuted
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar, final
from uuid import uuid4

from ..budget import TokenUsage
from ..errors import ParseError, PromptEvaluationError, VisibilityExpansionRequired, WinkError
from ..interrupts import current_shield
from ..prompt.prompt import Prompt
from ..prompt.tool import Tool
from ..prompt.visibility import set_visibility
from ..results import ToolResult
from ..run_context import Heartbeat, RunContext
from ..runtime.call import ToolCall, ToolReply, make
from ..runtime.executor import ToolExecutor
from ..runtime.ledger import Ledger
from ..runtime.messages import AnswerMessage, History, ModelMessage, Transcript, UserMessage
from ..runtime.progress import OnEvent, Retrying, SectionsOpened, TextDelta, TurnStarted
from ..runtime.redaction import ended_text, redact, text_of
from ..session import Session
from .call_ids import CallIds
from .events import Teller
from .history import by_call, check_open, remember
from .limits import Limits, LoopSettings
from .request import ModelRequest, ModelTurn, StopReason, ToolSpec, tool_spec
from .response import OpenCall, PromptResponse
from .steps import Asking, Mode
from .throttle import RequestFailed

logger = logging.getLogger(__name__)

OutputT = TypeVar("OutputT")

_NO_REPLIES: Mapping[str, ToolReply] = {}
_MAX_ERROR_CHARS = 8 * 1024
_NOT_RUN = "This call was not run, because the conversation went on without it."


class LoopAdapter(Asking, Protocol):
    """What the loop needs of an adapter."""

    @property
    def name(self) -> str:
        """How events and errors call it."""
        ...

    @property
    def settings(self) -> LoopSettings:
        """What is the same for all its evaluations."""
        ...


@final
class Evaluation(Generic[OutputT]):
    """One evaluation under way. In manual mode it lives from step to step; `close` ends it early."""

    def __init__(
        self,
        adapter: LoopAdapter,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        limits: Limits,
        history: History,
        tool_results: Iterable[ToolReply] | None,
        heartbeat: Heartbeat | None,
        run_context: RunContext | None,
        effect_ledger: Ledger | None,
    ) -> None:
        self._adapter = adapter
        self._prompt = prompt
        self._session = session
        self._settings = adapter.settings
        self._limits = limits
        self._heartbeat = heartbeat
        self._teller = Teller(adapter.name, prompt, session, run_context)
        self._transcript = Transcript(history.messages)
        self._left_open = frozenset(call.id for call in history.open_calls)
        self._given = by_call(tool_results or ())
        self._is_continued = bool(self._left_open) and tool_results is not None
        self._ids = CallIds(session, history.messages)
        self._usage = TokenUsage()
        self._turns = self._expansions = self._parse_failures = 0
        self._tools: tuple[Tool[Any, Any], ...] = ()
        self._specs: tuple[ToolSpec, ...] = ()
        prompt.install(session)
        rendered = prompt.render(session=session)
        self._schema = rendered.output_schema
        self.executor = ToolExecutor(
            prompt=prompt,
            session=session,
            adapter=adapter,
            deadline=limits.deadline,
            budget_tracker=limits.tracker,
            heartbeat=heartbeat,
            run_context=run_context,
            rendered_prompt=rendered,
            hide_errors=self._settings.hide_errors,
            effect_ledger=effect_ledger,
        )
        self._rendered = rendered

    # The loop.

    async def run(self, mode: Mode, on_event: OnEvent | None) -> PromptResponse[OutputT]:
        """Until the final answer, or in manual mode until there are calls to run."""
        self._teller.on_event = on_event
        manual = self._settings.manual
        shield = current_shield()
        try:
            if not self._turns:
                await self._begin(mode)
                await mode.enter(self.executor)
                self._limits.count_in(self.executor.budget_tracker)
            else:
                self.executor.take_signals()
            while True:
                turn = await self._ask(mode)
                if turn.calls:
                    if manual:
                        response = self._hand_out(turn)
                        self.executor.return_signals()  # between two steps it is the caller's program that runs
                        return response
                    await self._answer(turn, mode)
                elif turn.stop_reason != "pause":
                    response = self._finish(turn)
                    if response is not None:
                        break
        except BaseException as error:
            shield.depth += 1  # a second interrupt waits until every call is answered
            try:
                self._fail(error)
            finally:
                shield.depth -= 1
            await mode.close(self.executor)
            raise
        await mode.close(self.executor)
        return response

    async def _begin(self, mode: Mode) -> None:
        """Answer the calls that the history left open, then say the prompt; one that goes on with them has it said."""
        for call in self._transcript.open_calls():
            asked = ToolCall(call.id, call.name, call.arguments)
            given = self._given.get(call.id)
            recalled = None if given is not None else await mode.recall(self.executor, asked)
            self._add_answer(self.executor.answer_open(asked, given=given, recalled=recalled))
        if self._is_continued and self._transcript.adopt_prompt(self._rendered.text):
            return
        self._transcript.set_prompt(self._rendered.text)
        self._teller.rendered(self._rendered)

    async def _ask(self, mode: Mode) -> ModelTurn:
        if self._limits.any:
            self._limits.check(self._prompt.name)
        if self._turns >= self._settings.max_turns:
            raise self._error(
                f"The model did not finish within {self._turns} turns. "
                "Raise max_turns= of the adapter, or give it less to do.",
                "response",
            )
        self._turns += 1
        if self._heartbeat is not None:
            self._heartbeat.beat()
        teller = self._teller
        if teller.on_event is not None:
            teller.tell(TurnStarted(self._turns))
        turn = await self._request(mode)
        usage = turn.usage
        if usage.input or usage.output:
            self._usage = self._usage + usage
            self._limits.spent(self._usage)
        if teller.on_event is not None and turn.text and not teller.streamed:
            teller.tell(TextDelta(turn.text))
        if len(turn.calls) > self._settings.max_calls_per_turn:
            raise self._error(
                f"The model made {len(turn.calls)} calls in one turn, more than {self._settings.max_calls_per_turn}, "
                "so none of them was run. Raise max_calls_per_turn= of the adapter.",
                "response",
            )
        turn = self._ids.sound(turn, self._turns)
        self._transcript.add(
            ModelMessage(turn.text, turn.calls, turn.native, self._adapter.name if turn.native else "")
        )
        return turn

    async def _request(self, mode: Mode) -> ModelTurn:
        """Ask once, and again while waiting helps and the deadline allows it."""
        attempt = 1
        while True:
            self._teller.streamed = False
            try:
                return await mode.ask(self._adapter, self._make_request())
            except RequestFailed as failure:
                delay = self._delay(attempt, failure)
                logger.info("Request %d failed (%s); waiting %.2f s", attempt, failure.kind, delay)
                self._teller.tell(Retrying(_masked(failure), attempt, delay))
                await mode.sleep(delay)
                attempt += 1
            except (WinkError, AssertionError):
                raise
            except Exception as error:
                text = redact(f"{type(error).__name__}: {text_of(error)}"[:_MAX_ERROR_CHARS])
                raise self._error(f"{self._adapter.name} could not be asked. {text}", "request") from error

    def _make_request(self) -> ModelRequest:
        tools = self.executor.tools
        if tools is not self._tools:
            self._tools, self._specs = tools, tuple(map(tool_spec, tools))
        limits = self._limits
        teller = self._teller
        return make(
            ModelRequest,
            (
                self._transcript.upto_now(),
                self._specs,
                self._settings.system,
                self._schema,
                limits.seconds(),
                None if teller.on_event is None else teller.streaming(),
                None if limits.deadline is None else self._out_of_time,
            ),
        )

    def _out_of_time(self) -> bool:
        return self._limits.deadline is not None and self._limits.deadline.expired

    def _delay(self, attempt: int, failure: RequestFailed) -> float:
        delay = self._settings.throttle.wait(attempt, failure)
        text = _masked(failure)
        if delay is None:
            tries = f" after {attempt} attempts" if attempt > 1 else ""
            phase = "response" if failure.kind == "malformed" else "request"
            raise self._error(f"{self._adapter.name} could not be asked{tries}: {text}", phase) from failure
        left = self._limits.seconds()
        if left is not None and delay >= left:
            raise self._error(
                f"The deadline leaves no time to ask {self._adapter.name} again: {text}", "deadline"
            ) from failure
        return delay

    async def _answer(self, turn: ModelTurn, mode: Mode) -> None:
        """Run the turn's calls. Afterwards every id has its answer in the transcript, whatever happened."""
        calls = [make(ToolCall, (call.id, call.name, call.arguments)) for call in turn.calls]
        on_call = None if self._teller.on_event is None else self._call_started
        try:
            replies = await mode.execute(self.executor, calls, on_call, self._replied)
        except VisibilityExpansionRequired as expansion:
            self._open(expansion)
            return
        for reply in replies:
            if reply.outcome == "deadline":
                error = self._error(reply.message, "deadline")
                error.tool_name = next((call.name for call in calls if call.id == reply.call_id), None)
                raise error

    def _call_started(self, call: ToolCall) -> None:
        if self._teller.on_event is not None:
            self._teller.call_started(call, self.executor.shown_arguments(call))

    def _replied(self, reply: ToolReply) -> None:
        if reply.outcome == "expanded" and not self._settings.manual:
            return  # answered once the sections are open
        self._add_answer(reply)

    def _add_answer(self, reply: ToolReply) -> None:
        self._transcript.add(AnswerMessage(reply.call_id, reply.text, reply.is_error))
        if self._heartbeat is not None:
            self._heartbeat.beat()
        self._teller.call_finished(reply.call_id, reply.text)

    def _open(self, expansion: VisibilityExpansionRequired) -> None:
        self._answer_open_calls(self._expand(expansion))

    def _expand(self, expansion: VisibilityExpansionRequired) -> str:
        """Show the sections from now on; the answer to whoever asked for them."""
        keys = tuple(expansion.section_keys)
        self._expansions += 1
        if self._expansions > self._settings.max_expansions:
            raise self._error(
                f"The model opened sections {self._expansions} times in one evaluation. Raise max_expansions= of the "
                "adapter, or show those sections in full.",
                "tool",
            ) from expansion
        set_visibility(self._session, keys)
        rendered = self._prompt.render(session=self._session)
        self.executor.offer(rendered)
        self._transcript.set_prompt(rendered.text)
        self._teller.tell(SectionsOpened(keys))
        self._teller.rendered(rendered)
        return f"Opened: {', '.join(keys)}. What they hold is in the prompt now, with their tools."

    # The end.

    def _finish(self, turn: ModelTurn) -> PromptResponse[OutputT] | None:
        """The response, or None when the model was told to answer again."""
        output: OutputT | None = None
        prompt = self._prompt
        if prompt.structured_output is not None or prompt.output_type is str:
            try:
                output = prompt.parse_output(turn.text)
            except ParseError as error:
                self._answer_again(error, turn)
                return None
        response = self._response(turn, output)
        self._teller.executed(response.text, response.output, response.stop_reason, self._usage)
        return response

    def _answer_again(self, error: ParseError, turn: ModelTurn) -> None:
        problem = f"The answer could not be read: {error}"
        if turn.stop_reason == "refusal":
            raise self._error(f"The model declined to answer: {turn.text[:500]}", "response") from error
        cut = " It was cut for length: answer more briefly." if turn.stop_reason == "max_tokens" else ""
        self._parse_failures += 1
        if self._parse_failures > self._settings.output_retries:
            raise self._error(
                f"The model's answer is no {getattr(self._prompt.output_type, '__name__', 'output')}, "
                f"{self._parse_failures} times in a row: {error}",
                "response",
            ) from error
        self._transcript.add(UserMessage(f"{problem}{cut}\nGive the whole answer again, as JSON and nothing else."))

    def _hand_out(self, turn: ModelTurn) -> PromptResponse[OutputT]:
        handed = tuple(OpenCall.of(call, self._session, self._execute_one) for call in turn.calls)
        return self._response(turn, None, handed)

    def _execute_one(self, call: ToolCall) -> ToolReply:
        """What an `OpenCall` does; opening sections is an answer here, since the loop is not running."""
        self._call_started(call)
        try:
            return self.executor.execute(call)
        except VisibilityExpansionRequired as expansion:
            text = self._expand(expansion)
            return ToolReply(call.id, text, ToolResult(text), "expanded")

    def take_results(self, results: Iterable[ToolReply]) -> None:
        """Manual mode goes on: these are the answers; a call without one is recorded as not run."""
        given = by_call(results)
        check_open(given, self._transcript.open_calls(), where="this conversation")
        self._answer_open_calls(_NOT_RUN, given)

    def close(self, results: Iterable[ToolReply] = ()) -> None:
        """End a conversation in the middle: open calls are recorded as given or as not run, resources closed."""
        self._answer_open_calls(_NOT_RUN, by_call(results))
        self.executor.close()

    async def aclose(self) -> None:
        """Like `close`, for async code."""
        self._answer_open_calls(_NOT_RUN)
        await self.executor.aclose()

    def _fail(self, error: BaseException) -> None:
        self._teller.stop_listening()
        self._answer_open_calls(ended_text(error))
        remember(error, self._transcript.history())
        self._teller.executed(None, None, "error", self._usage)

    def _answer_open_calls(self, text: str, given: Mapping[str, ToolReply] = _NO_REPLIES) -> None:
        """Answer every open call: as given, as recorded when it ran, otherwise with `text`, recorded as not run."""
        for call in self._transcript.open_calls():
            asked = ToolCall(call.id, call.name, call.arguments)
            reply = given.get(call.id)
            if reply is not None:
                reply = self.executor.answer_open(asked, given=reply)
            elif call.id in self._left_open:  # by an earlier process: what happened to it is not ours to say
                reply = self.executor.answer_open(asked, recalled=self.executor.recall(asked))
            else:
                reply = self.executor.decline(asked, text)
                if reply.outcome == "expanded":  # which has its answer only now
                    reply = reply._replace(text=text, is_error=False)
            self._add_answer(reply)

    def _response(self, turn: ModelTurn, output: Any, calls: tuple[OpenCall, ...] = ()) -> PromptResponse[OutputT]:
        reason: StopReason = "tool_use" if calls else turn.stop_reason
        history = self._transcript.history()
        name = self._prompt.name
        return PromptResponse(turn.text, output, reason, calls, self._usage, history, self._turns, name)

    def _error(self, message: str, phase: str) -> PromptEvaluationError:
        return PromptEvaluationError(message, prompt_name=self._prompt.name, phase=phase)


def _masked(failure: RequestFailed) -> str:
    """What may be said of a failed request: services quote the keys they were sent, and proxies their own."""
    return redact(str(failure)[:_MAX_ERROR_CHARS])


def new_key(prompt_name: str) -> str:
    """Under which an evaluation's usage is counted."""
    return f"{prompt_name}#{uuid4().hex}"


__all__ = ["Evaluation", "LoopAdapter", "new_key"]
