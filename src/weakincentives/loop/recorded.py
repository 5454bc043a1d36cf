"""The steps of an evaluation that is on record: what is there is served, the rest is done and recorded.

The loop itself runs as always. So what it counts (turns, usage, repairs, repetitions) is counted again by the same
code, and users' code need not be deterministic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast, final

from ..budget import TokenUsage
from ..errors import RecordError, RunFormatError, VisibilityExpansionRequired
from ..filesystem import Filesystem, InMemoryFilesystem
from ..filesystem.views import behind_views, is_recordable
from ..prompt.tool import Tool
from ..runtime.admission import parse
from ..runtime.call import Refused, ToolCall, ToolReply, short_id
from ..runtime.conclude import conclude, shown_arguments
from ..runtime.executor import ToolExecutor
from ..runtime.messages import CallMessage, Transcript, UserMessage
from ..runtime.record.calls import RunRecorder, redo
from ..runtime.record.events import error_of
from ..runtime.record.files import KeptFile, World, told_of_kept
from ..runtime.record.rows import Step
from ..runtime.response import plain_output
from ..runtime.run import Run
from ..runtime.turn import OPENED, OnCall, OnReply
from ..waiting import UNINTERRUPTED, Waiting
from .events import EvaluationEvents
from .request import ModelRequest, ModelTurn
from .response import PromptResponse

_logger = logging.getLogger(__name__)


class EvaluationSteps(Protocol):
    """What an evaluation does that reaches outside. `LiveSteps` does it; `RecordedSteps` stands before that."""

    @property
    def was_served(self) -> bool:
        """Whether the last turn was on record."""
        ...

    async def ask(self, request: ModelRequest) -> ModelTurn:
        """Ask the model."""
        ...

    async def said(self, turn: ModelTurn) -> None:
        """The model has said this; nothing is run before this returns."""
        ...

    async def execute(self, calls: Sequence[ToolCall], on_call: OnCall | None, on_reply: OnReply) -> list[ToolReply]:
        """Run the calls of a turn."""
        ...

    async def recall(self, call: ToolCall) -> ToolReply | None:
        """What is known of a call of an earlier conversation."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait before a request is sent again."""
        ...

    async def enter(self) -> None:
        """Enter the prompt's resources."""
        ...

    async def close(self) -> None:
        """Leave them."""
        ...

    async def heard(self, message: UserMessage) -> None:
        """The user has sent this message; the model is not asked before this returns."""
        ...

    async def asked_again(self) -> None:
        """The user wants the last message answered, which failed."""
        ...

    async def interjected(self, texts: Sequence[str], tell: Callable[[str], None]) -> Sequence[str]:
        """What the user said meanwhile, to be told to the model now."""
        ...

    def left_over(self, texts: Sequence[str]) -> Sequence[str]:
        """What the user said meanwhile, of a message that fails: it is told with the next one."""
        ...

    async def outcome(self, call: ToolCall) -> ToolReply | None:
        """What became of a call that an earlier process left open; None when it was not run."""
        ...

    async def finished(self, response: PromptResponse[Any]) -> None:
        """The evaluation has this answer."""
        ...

    async def failed(self, error: BaseException) -> None:
        """The evaluation ends with this error."""
        ...


class RecordEnds(BaseException):
    """There is no more on record of a message that is only to be served."""


@final
class RecordedSteps:
    """Stands between an evaluation and its live steps.

    Attributes:
        serves_only: what is not on record is not done: `RecordEnds` is raised instead.
    """

    def __init__(  # noqa: PLR0917 - what an evaluation consists of
        self,
        live: EvaluationSteps,
        executor: ToolExecutor,
        transcript: Transcript,
        recorder: RunRecorder,
        waiting: Waiting,
        world: World,
        events: EvaluationEvents,
    ) -> None:
        self._live = live
        self._events = events
        if not recorder.rows.held.is_new:
            events.served()
        self._transcript = transcript
        self._executor = executor
        self._rows = recorder.rows
        self._waiting = waiting
        self._world: World = world
        self.was_served: bool = False
        self.serves_only: bool = False
        self._kept: tuple[KeptFile, ...] = ()
        self._expansions: dict[str, VisibilityExpansionRequired] = {}  # of calls that have no answer yet
        self._left_over: Sequence[str] = ()

    def wait_with(self, live: EvaluationSteps, waiting: Waiting) -> None:
        """Do what is not on record so from now on: a conversation may be used from plain code and from async code."""
        self._live = live
        self._waiting = waiting

    async def ask(self, request: ModelRequest) -> ModelTurn:
        """The next turn on record; else the model is asked, unless the run has ended."""
        step = self._rows.next_turn()
        self.was_served = step is not None
        if step is not None:
            self._say_messages()
            rows, now = self._rows, self._transcript
            said = (rows.prompt or "", rows.system, rows.attachments)
            if rows.prompt is not None and said != (now.prompt.text, now.system, now.prompt.attachments):
                now.set_prompt(*said)  # what the model read, whatever the program would say today
            return turn_of(step)
        end = self._rows.coming_end() if self._rows.is_conversation else self._rows.next_end()
        if end is not None:
            raise error_of(end)
        await self._go_on(asks=True)
        if self._say_messages():
            request = request._replace(messages=self._transcript.upto_now())
        return await self._live.ask(request)

    async def _go_on(self, *, asks: bool = False) -> None:
        """What happens now is new: tell listeners, and the model of files that are not as it left them.

        This is on record before anything else happens, so that the next attempt takes these files for what they are.
        """
        if self.serves_only:
            raise RecordEnds
        self._events.goes_on(self._rows.attempt, asks=asks)
        if self._kept:
            kept, self._kept = self._kept, ()
            await self._rows.write_message(told_of_kept(kept), kept, self._waiting)

    def _say_messages(self) -> bool:
        """Put what was to be said since the last turn after the answers to its calls; False when there was nothing."""
        said = self._rows.messages
        for text in said:
            self._transcript.add(UserMessage(text))
        self._rows.messages = []
        return bool(said)

    @property
    def step(self) -> int:
        """The last step on record."""
        return self._rows.step

    @property
    def is_failing(self) -> bool:
        """Whether the message that is served failed here."""
        end = self._rows.coming_end()
        return end is not None and "error" in end.body

    async def heard(self, message: UserMessage) -> None:
        """Record the message; nothing is asked before that is on record."""
        self._events.goes_on(self._rows.attempt)
        await self._rows.write_user("message", message.text, self._waiting, attachments=message.attachments)

    async def asked_again(self) -> None:
        """Record that the last message is asked about again."""
        await self._rows.write_user("resume", "The message is asked about again.", self._waiting)

    async def interjected(self, texts: Sequence[str], tell: Callable[[str], None]) -> Sequence[str]:
        """What is on record here; else it is recorded."""
        if self.serves_only:
            return self._rows.next_interjections()
        for text in texts:
            await self._rows.write_user("interjection", text, self._waiting)
            tell(text)
        return texts

    def left_over(self, texts: Sequence[str]) -> Sequence[str]:
        """The same; it is recorded with the failure."""
        if self.serves_only:
            return self._rows.next_interjections()
        self._left_over = texts
        return texts

    async def outcome(self, call: ToolCall) -> ToolReply | None:
        """Unknown of one that was started; else what log and ledger know."""
        if self._rows.was_started(call.id):
            return await self._unknown(call)
        return await self._live.outcome(call)

    async def said(self, turn: ModelTurn) -> None:
        """Record what the model said, with ids as they are used; nothing is run before that is on record."""
        if not self.was_served:
            names, transcript = [tool.name for tool in self._executor.tools], self._transcript
            sections = self._executor.rendered_prompt.sections
            prompt = (transcript.prompt.text, transcript.system, transcript.prompt.attachments)
            await self._rows.write_prompt(prompt, names, sections, self._waiting)
            await self._rows.write_turn(turn_body(turn), turn.usage, self._waiting)

    async def execute(self, calls: Sequence[ToolCall], on_call: OnCall | None, on_reply: OnReply) -> list[ToolReply]:
        """Redo the calls that are on record, then run the others."""
        if not self.was_served:
            return await self._live.execute(calls, on_call, on_reply)
        replies: list[ToolReply] = []
        expansion: VisibilityExpansionRequired | None = None
        run = self._executor.run
        for at, call in enumerate(calls):
            if call.id in self._expansions:
                expansion = self._expansions[call.id]
                continue
            step = self._rows.next_call(call.id)
            was_started = step is None and self._rows.was_started(call.id)
            if step is None:
                await self._go_on()
            if step is None and expansion is None and not was_started:
                left = calls[at:]
                if not any(self._rows.was_started(other.id) for other in left):
                    return replies + await self._live.execute(left, on_call, on_reply)
                try:  # one that overlapped with it had begun
                    replies += await self._live.execute([call], on_call, on_reply)
                except VisibilityExpansionRequired as error:
                    expansion = error
                continue
            if step is None and on_call is not None:
                on_call(call)
            if step is not None:
                reply = redo(call, step, params_of(call, step, run), self._rows, run)
                if reply.outcome == "expanded":
                    expansion = VisibilityExpansionRequired(reply.message, section_keys=step.body["sections"])
                    self._expansions[call.id] = expansion
            elif was_started:
                reply = await self._interrupted(call)
            else:
                reply = await conclude(call, Refused("cancelled", OPENED), run, self._waiting)
            replies.append(reply)
            on_reply(reply)
        self._expansions.clear()
        if expansion is not None:
            raise expansion
        return replies

    async def _interrupted(self, call: ToolCall) -> ToolReply:
        """A call that was started and has no end: what it did outside is unknown, so it is not run again."""
        run = self._executor.run
        bound = run.tools.get(call.name)
        if bound is not None and (bound.tool.annotations.idempotent or await self._is_in_ledger(call, bound.tool)):
            replies = await self._live.execute([call], None, lambda _: None)
            return replies[0]
        return await self._unknown(call)

    async def _unknown(self, call: ToolCall) -> ToolReply:
        run = self._executor.run
        text = (
            f"The process ended while '{call.name}' ran, so whether it took effect is unknown.\n"
            "Check before you repeat it."
        )
        return await conclude(call, Refused("unknown", text, params=_params(call, run)), run, self._waiting)

    async def _is_in_ledger(self, call: ToolCall, tool: Tool[Any, Any]) -> bool:
        """Whether a ledger answers it, such as one in memory in the process that was interrupted."""
        return tool.idempotency is not None and await self._live.recall(call) is not None

    async def recall(self, call: ToolCall) -> ToolReply | None:
        """As `LiveSteps.recall`."""
        return await self._live.recall(call)

    async def sleep(self, seconds: float) -> None:
        """As `LiveSteps.sleep`."""
        await self._live.sleep(seconds)

    async def enter(self) -> None:
        """Enter the resources, and bring them and the files to where the record ends.

        Of a run that is over, only files in memory, which were made anew: work goes on in a folder afterwards. One
        inside a call that is run again begins where the call began.
        """
        await self._live.enter()
        await self._rows.restore_resources(self._waiting)
        self._rows.note_times()
        fs = self._executor.run.resources.get(Filesystem, None)
        is_over = self._rows.is_over and not self._rows.is_inside
        if not is_recordable(fs) or (is_over and not isinstance(behind_views(fs), InMemoryFilesystem)):
            return
        files = await self._waiting.call(lambda: self._rows.watch(fs))
        self._executor.run.files_view = files.view
        if self._rows.serving:
            rows, world = self._rows, "keep" if is_over else self._world
            self._kept = await self._waiting.call(lambda: files.restore(rows.store, rows.run_id, world))

    async def close(self) -> None:
        """Leave the resources, and let other processes have the run."""
        try:
            self._rows.forget_resources()
        finally:
            try:
                await self._live.close()
            finally:
                self._rows.release()

    async def finished(self, response: PromptResponse[Any]) -> None:
        """Record the answer."""
        if self.serves_only and self.is_failing:  # an interrupt came after the answer, and before that was on record
            raise error_of(cast("Step", self._rows.coming_end()))
        if self._rows.next_end() is None:
            if self.serves_only:
                raise RecordEnds
            if self._events.is_hushed:
                self._events.goes_on(self._rows.attempt)
            used = response.usage
            body: dict[str, Any] = {
                "text": self._rows.kept(response.text), "stop": response.stop_reason, "turns": response.turns,
                "usage": [used.input, used.output, used.cached, used.reasoning],
            }  # fmt: skip
            if response.output is not None:
                body["output"] = plain_output(response.output)
            await self._rows.write_end(body, self._waiting, failed=False)

    async def failed(self, error: BaseException) -> None:
        """Record the error, unless the run was only interrupted."""
        rows = self._rows
        if rows.is_conversation:
            await self._message_failed(error)
            return
        if not isinstance(error, Exception) or rows.stopped or rows.serving or rows.end is not None:
            return
        self._events.goes_on(rows.attempt)
        await rows.write_end(failure_body(error), self._waiting, failed=True)

    async def _message_failed(self, error: BaseException) -> None:
        """Record the error of a message, an interrupt too, after what was said too late to be answered."""
        rows, texts = self._rows, self._left_over
        self._left_over = ()
        if rows.has_ended:  # it was answered already, and the interrupt came after that
            rows.stop()
        if rows.stopped or (self.serves_only and rows.next_end() is not None):
            return
        waiting = self._waiting if self._waiting.in_loop else UNINTERRUPTED
        try:
            for text in texts:
                await rows.write_user("interjection", text, waiting)
            await rows.write_end(failure_body(error), waiting, failed=True)
        except RecordError:
            _logger.exception("The failure of a message could not be recorded")


def params_of(call: ToolCall, step: Step, run: Run) -> Any:
    """The params of a call on record, as its event has them."""
    return _raw_params(call, run) if step.body.get("raw") else _params(call, run)


def _params(call: ToolCall, run: Run) -> Any:
    """The params of a call on record; parsing it also counts it, as it was counted then."""
    try:
        return parse(call, run).params
    except Refused as refused:
        return shown_arguments(call, run) if refused.params is None else refused.params


def _raw_params(call: ToolCall, run: Run) -> Any:
    """The arguments of a call on record that was not parsed then."""
    run.memory.is_new(short_id(call.id))
    return shown_arguments(call, run)


def turn_body(turn: ModelTurn) -> dict[str, Any]:
    """What the model said, as a step has it."""
    usage = turn.usage
    return {
        "text": turn.text,
        "calls": [[call.id, call.name, call.arguments] for call in turn.calls],
        "usage": [usage.input, usage.output, usage.cached, usage.reasoning],
        "stop": turn.stop_reason,
        "native": list(turn.native),
    }


def turn_of(step: Step) -> ModelTurn:
    """What the model said, as a step has it; `RunFormatError` when that cannot be read."""
    try:
        body = step.body
        return ModelTurn(
            body["text"],
            tuple(CallMessage(*call) for call in body["calls"]),
            TokenUsage(*body["usage"]),
            body["stop"],
            tuple(cast("list[dict[str, Any]]", body["native"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunFormatError(f"Step {step.seq} of the record cannot be read: {error}.") from error


def failure_body(error: BaseException) -> dict[str, Any]:
    """What ended a run, as a step has it."""
    return {
        "error": type(error).__name__,
        "message": str(error) or type(error).__name__,
        "phase": getattr(error, "phase", None),
        "tool": getattr(error, "tool_name", None),
        "prompt": getattr(error, "prompt_name", None),
    }


__all__ = [
    "EvaluationSteps",
    "RecordEnds",
    "RecordedSteps",
    "error_of",
    "failure_body",
    "params_of",
    "turn_body",
    "turn_of",
]
