"""The state of one evaluation, driven by our own loop or by a program that has its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, final
from uuid import uuid4

from ..budget import BudgetTracker, TokenUsage
from ..content import KINDS_MADE
from ..deadlines import Deadline
from ..errors import (
    BudgetExceededError,
    DeadlineExceededError,
    ParseError,
    PromptEvaluationError,
    VisibilityExpansionRequired,
)
from ..prompt.prompt import Prompt
from ..prompt.render import RenderedPrompt
from ..prompt.template import PromptTemplate
from ..prompt.visibility import set_visibility
from ..run_context import Heartbeat
from ..runtime.call import ToolCall, ToolReply
from ..runtime.executor import ToolExecutor
from ..runtime.messages import AnswerMessage, Transcript, UserMessage
from ..runtime.options import StartedOptions
from ..runtime.progress import OnEvent, SectionsOpened, TurnStarted
from ..session import Session
from .attachments import shown_of
from .events import EvaluationEvents
from .request import StopReason
from .response import OpenCall, PromptResponse, attach_history
from .settings import AdapterSettings

OutputT = TypeVar("OutputT")

_NO_TOKENS = TokenUsage()
_NO_REPLIES: Mapping[str, ToolReply] = {}

Recall = Callable[[ToolCall], Awaitable[ToolReply | None]]
"""What log and ledger know of a call of an earlier conversation; may wait for a disk or a server."""


class EvaluatingAdapter(Protocol):
    """What an evaluation needs to know of its adapter."""

    @property
    def name(self) -> str:
        """The name used in events and error messages."""
        ...

    @property
    def settings(self) -> AdapterSettings:
        """What is the same for all its evaluations."""
        ...


class Repair(NamedTuple):
    """What the model is told about a final answer that could not be parsed."""

    text: str


@final
class EvaluationLimits:
    """The time and tokens of one evaluation."""

    __slots__ = ("_key", "_prompt_name", "any", "deadline", "tracker")

    def __init__(self, prompt_name: str, options: StartedOptions) -> None:
        self._prompt_name = prompt_name
        self._key: str | None = None
        self.hold_to(options.deadline, options.budget_tracker)

    def hold_to(self, deadline: Deadline | None, tracker: BudgetTracker | None) -> None:
        """These hold from now on: a tracker among the resources is known only once they are open."""
        self.deadline: Deadline | None = deadline
        self.tracker: BudgetTracker | None = tracker
        self.any: bool = deadline is not None or tracker is not None

    def check(self, prompt_name: str) -> None:
        """Raise `PromptEvaluationError`, phase "deadline" or "budget", when a limit is passed."""
        try:
            if self.deadline is not None:
                self.deadline.check()
            if self.tracker is not None:
                self.tracker.check()
        except DeadlineExceededError as error:
            raise PromptEvaluationError(str(error), prompt_name=prompt_name, phase="deadline") from error
        except BudgetExceededError as error:
            raise PromptEvaluationError(str(error), prompt_name=prompt_name, phase="budget") from error

    def seconds(self) -> float | None:
        """What is left until the deadline; None without one."""
        return None if self.deadline is None else self.deadline.seconds_left()

    def spent(self, usage: TokenUsage) -> None:
        """Record what the evaluation has spent so far."""
        if self.tracker is not None:
            if self._key is None:
                self._key = f"{self._prompt_name}#{uuid4().hex}"
            self.tracker.record(self._key, usage)


@final
class EvaluationState(Generic[OutputT]):
    """The transcript, the usage, the counts and the executor of one evaluation. Its driver closes the executor.

    Attributes:
        transcript: every message so far; at the end each call in it has an answer.
        usage: the tokens of all turns together.
        failure: the first thing that must end the evaluation; the driver raises it as soon as it can.
        has_limits: False when it only repeats what has ended before: nothing is spent then, and no limit holds.
    """

    def __init__(
        self, adapter: EvaluatingAdapter, prompt: Prompt[OutputT], session: Session, options: StartedOptions
    ) -> None:
        if not isinstance(prompt, Prompt):
            fix = (
                "write Prompt(template)"
                if isinstance(prompt, PromptTemplate)
                else "make one: Prompt(name=..., sections=[...])"
            )
            raise TypeError(f"evaluate() takes a Prompt, got a {type(prompt).__name__}; {fix}.")
        self.prompt = prompt
        self.session = session
        self.settings: AdapterSettings = adapter.settings
        self.max_turns: int = options.max_turns or adapter.settings.max_turns
        self.limits: EvaluationLimits = EvaluationLimits(prompt.name, options)
        self.heartbeat: Heartbeat | None = options.heartbeat
        self.events: EvaluationEvents = EvaluationEvents(
            adapter.name, prompt, session, options.run_context, options.recorder
        )
        self.transcript: Transcript = Transcript(options.history.messages)
        self.usage: TokenUsage = _NO_TOKENS
        self.turns: int = 0
        self.expansions: int = 0
        self.repairs: int = 0
        self.failure: BaseException | None = None
        self.has_limits: bool = True
        self._left_open = frozenset(call.id for call in options.history.open_calls)
        self.executor: ToolExecutor = ToolExecutor(prompt=prompt, session=session, adapter=adapter, options=options)
        self.rendered: RenderedPrompt[OutputT] = self.executor.rendered_prompt

    def listen_with(self, on_event: OnEvent | None) -> None:
        """Tell this listener from now on, of this evaluation and of sub-agents in its calls."""
        self.events.listen_with(on_event)
        self.executor.run.on_event = None if on_event is None else self.events.pass_on

    # The beginning.

    async def begin(
        self,
        recall: Recall,
        given: Mapping[str, ToolReply] = _NO_REPLIES,
        *,
        is_continued: bool = False,
        message_follows: bool = False,
    ) -> None:
        """Answer the calls that the history left open, then say the prompt; it was said in one that is continued."""
        for call in self.transcript.open_calls():
            asked = ToolCall(call.id, call.name, call.arguments)
            reply = given.get(call.id)
            recalled = None if reply is not None else await recall(asked)
            self.replied(self.executor.answer_open(asked, given=reply, recalled=recalled))
        if is_continued and self.transcript.adopt_prompt(self.rendered.text):
            self.transcript.system = self.system
            return
        is_silent = not self.rendered.text and bool(self.rendered.system) and not self.transcript.upto_now()
        if is_silent and not message_follows:
            raise self.error(
                f"The prompt {self.prompt.name!r} has only system= sections, so there is nothing to answer. "
                "Add sections=[...] with the user's message, or continue a history=.",
                "request",
            )
        self.transcript.set_prompt(self.rendered.text, self.system, self.rendered.attachments)
        self.events.rendered(self.rendered)

    @property
    def system(self) -> str:
        """What the system says: the adapter's own words, then the prompt's."""
        own, prompts = self.settings.system or "", self.rendered.system
        return f"{own}\n\n{prompts}" if own and prompts else own or prompts

    def entered(self) -> None:
        """The resources are open: a tracker that is bound among them limits the evaluation too."""
        self.limits.hold_to(self.executor.deadline, self.executor.budget_tracker)

    def begin_message(self, options: StartedOptions, *, goes_on: bool = False) -> None:
        """Another message of the same conversation: its limits and counts are its own, unless it `goes_on`."""
        self.limits = EvaluationLimits(self.prompt.name, options)
        self.heartbeat = options.heartbeat
        self.failure = None
        self.executor.renew(options)
        self.entered()
        if goes_on:
            self.events.begin_again(self.events.turns_before)
            self.events.turn += self.turns
            self.limits.spent(self.usage)
            return
        self.events.begin_again(self.events.said)
        self.usage = TokenUsage()
        self.turns = self.expansions = self.repairs = 0

    def render_again(self) -> None:
        """Say the prompt as it reads now, at its place, if that is not what it says already."""
        rendered = self.prompt.render(session=self.session)
        before = self.rendered
        if (rendered.text, rendered.system, rendered.attachments) != (before.text, before.system, before.attachments):
            self.rendered = rendered
            self.transcript.set_prompt(rendered.text, self.system, rendered.attachments)
            self.events.rendered(rendered)
        self.executor.offer(rendered)

    # Turns and calls.

    def begin_turn(self) -> None:
        """The model is asked once more; `PromptEvaluationError` when a limit is passed."""
        if self.has_limits:
            if self.limits.any:
                self.limits.check(self.prompt.name)
            if self.turns >= self.max_turns:
                raise self.too_many_turns()
        self.turns += 1
        turn = self.events.turn = self.events.turns_before + self.turns
        if self.heartbeat is not None:
            self.heartbeat.beat()
        if self.events.on_event is not None:
            self.events.tell(TurnStarted, turn)

    def too_many_turns(self) -> PromptEvaluationError:
        """What to raise when the model goes on for too long."""
        return self.error(
            f"The model did not finish within {self.max_turns} turns. "
            "Raise max_turns= of the adapter or of the evaluation, or give it less to do.",
            "response",
        )

    def spent(self, usage: TokenUsage) -> None:
        """The model has used so many tokens more."""
        if usage.input or usage.output:
            self.usage = self.usage + usage
            if self.has_limits:
                self.limits.spent(self.usage)

    def call_started(self, call: ToolCall) -> None:
        """A call is about to begin; listeners see no secret in its arguments."""
        if self.events.on_event is not None:
            self.events.call_started(call, self.executor.shown_arguments(call))

    def replied(self, reply: ToolReply) -> None:
        """A call has its answer."""
        shown = shown_of(reply.result) if KINDS_MADE else ()
        self.transcript.add(AnswerMessage(reply.call_id, reply.text, reply.is_error, shown))
        if self.heartbeat is not None:
            self.heartbeat.beat()
        if self.events.on_event is not None:
            self.events.call_finished(reply.call_id, reply.text)

    def out_of_time(self, reply: ToolReply, tool_name: str | None = None) -> PromptEvaluationError:
        """What ends the evaluation after a call whose outcome is `deadline`: no time is left."""
        error = self.error(reply.message, "deadline")
        error.tool_name = tool_name
        return error

    def expand_sections(self, expansion: VisibilityExpansionRequired) -> RenderedPrompt[OutputT]:
        """Show the sections from now on and offer their tools; the prompt as it reads now, for the driver to say."""
        keys = tuple(expansion.section_keys)
        self.expansions += 1
        if self.expansions > self.settings.max_expansions:
            raise self.error(
                f"The model opened sections {self.expansions} times in one evaluation. Raise max_expansions= of the "
                "adapter, or show those sections in full.",
                "tool",
            ) from expansion
        set_visibility(self.session, keys)
        rendered = self.rendered = self.prompt.render(session=self.session)
        self.executor.offer(rendered)
        self.events.tell(SectionsOpened, keys)
        self.events.rendered(rendered)
        return rendered

    # The end.

    def parse_output(self, text: str, stop_reason: StopReason) -> OutputT | Repair | None:
        """The final answer in the prompt's type; None where it declares none, `Repair` when the model was told why.

        A refusal is not asked for again, and an answer that was truncated is asked for in fewer words.
        """
        prompt, output = self.prompt, None
        if prompt.structured_output is not None or prompt.output_type is str:
            try:
                output = prompt.parse_output(text)
            except ParseError as error:
                name = getattr(prompt.output_type, "__name__", "output")
                return self._ask_for_repair(f"could not be read: {error}", f"valid as {name}", text, stop_reason, error)
        if prompt.template.validate is not None:
            problem = self._problem_of(text if output is None else output, prompt.template.validate)
            if problem is not None:
                return self._ask_for_repair(f"was not accepted: {problem}", "accepted", text, stop_reason)
        return output

    def _problem_of(self, answer: Any, validate: Callable[[Any], object]) -> str | None:
        """What `validate=` says is wrong with the answer."""
        try:
            problem = validate(answer)
        except Exception as error:
            raise self.error(f"validate= of the prompt raised {type(error).__name__}: {error}", "response") from error
        if problem is None or isinstance(problem, str):
            return problem
        kind = type(problem).__name__
        raise self.error(f"validate= of the prompt must return None or a text for the model, got {kind}.", "response")

    def _ask_for_repair(
        self, problem: str, wanted: str, text: str, stop_reason: StopReason, error: ParseError | None = None
    ) -> Repair:
        if stop_reason == "refusal":
            raise self.error(f"The model declined to answer: {text[:500]}", "response") from error
        self.repairs += 1
        if self.repairs > self.settings.output_retries:
            detail = problem.partition(": ")[2]
            raise self.error(
                f"The model's answer is not {wanted}, {self.repairs} times in a row: {detail}", "response"
            ) from error
        cut = " It was cut for length: answer more briefly." if stop_reason == "max_tokens" else ""
        how = "." if self.prompt.structured_output is None else ", as JSON and nothing else."
        repair = Repair(f"The answer {problem}{cut}\nGive the whole answer again{how}")
        self.transcript.add(UserMessage(repair.text))
        return repair

    def answer_open_calls(
        self,
        text: str,
        given: Mapping[str, ToolReply] = _NO_REPLIES,
        *,
        recorded: Callable[[ToolCall], ToolReply | None] | None = None,
    ) -> None:
        """Answer every open call: as given, as recorded when it ran, otherwise with `text`, recorded as not run.

        `recorded` knows calls that ran elsewhere than in the executor, and have their event.
        """
        for call in self.transcript.open_calls():
            asked = ToolCall(call.id, call.name, call.arguments)
            reply = None if recorded is None else recorded(asked)
            if reply is not None:
                self.transcript.add(AnswerMessage(call.id, reply.text, reply.is_error, shown_of(reply.result)))
                continue
            reply = given.get(call.id)
            if reply is not None:
                reply = self.executor.answer_open(asked, given=reply)
            elif call.id in self._left_open:  # by an earlier process: what happened to it is not ours to say
                reply = self.executor.answer_open(asked, recalled=self.executor.recall(asked))
            else:
                reply = self.executor.decline(asked, text)
                if reply.outcome == "expanded":  # which has its answer only now
                    reply = reply._replace(text=text, is_error=False)
            self.replied(reply)

    def fail(self, error: BaseException) -> None:
        """Note what must end the evaluation; the first failure wins."""
        self.failure = self.failure or error

    def failed(self, error: BaseException) -> None:
        """The evaluation is over without an answer, and every call has one: keep the conversation, publish the end."""
        attach_history(error, self.transcript.history())
        self.events.executed(None, None, "error", self.usage)

    def finished(self, response: PromptResponse[OutputT]) -> None:
        """The evaluation is over, with this answer."""
        self.events.executed(response.text, response.output, response.stop_reason, self.usage)

    def response(
        self, text: str, stop_reason: StopReason, output: Any = None, calls: tuple[OpenCall, ...] = ()
    ) -> PromptResponse[OutputT]:
        """What the caller gets."""
        history = self.transcript.history()
        recorder = self.executor.run.recorder
        run_id = None if recorder is None else recorder.run_id
        return PromptResponse(
            text, output, stop_reason, calls, self.usage, history, self.turns, self.prompt.name, run_id
        )

    def error(self, message: str, phase: str) -> PromptEvaluationError:
        """What ends the evaluation, for the driver to raise."""
        return PromptEvaluationError(message, prompt_name=self.prompt.name, phase=phase)


__all__ = ["EvaluatingAdapter", "EvaluationState", "Recall", "Repair"]
