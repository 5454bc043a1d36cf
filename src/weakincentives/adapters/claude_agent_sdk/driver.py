"""One evaluation with Claude Code: it runs the loop, we run the calls, watch its own, and keep the record.

start   render the prompt, tell PromptRendered, enter the resources, start the process
listen  its messages become the transcript; what ended the evaluation meanwhile is raised
finish  parse the final answer or say what was wrong with it; tell PromptExecuted
end     the process first, so that nothing writes any more; then undo what was under way and answer what is open
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, final

from ...budget import TokenUsage
from ...content import Content
from ...errors import ParseError, PromptEvaluationError, RecordError, RollbackError, WinkError
from ...loop.attachments import fitted, shown_of
from ...loop.request import ModelRequest, RequestFailed, StopReason
from ...loop.response import PromptResponse
from ...loop.settings import AdapterSettings
from ...loop.state import EvaluationState, Repair
from ...prompt.events import ToolInvoked
from ...prompt.prompt import Prompt
from ...runtime.call import ToolCall, ToolReply
from ...runtime.messages import AnswerMessage, CallMessage, Message, ModelMessage, UserMessage
from ...runtime.options import StartedOptions
from ...runtime.progress import ReasoningDelta, TextDelta
from ...runtime.redaction import ended_text, redact, text_of
from ...runtime.tracker import PendingToolTracker
from ...session import Session
from ...waiting import AWAITING
from ..anthropic import shown_block
from ..sdk_adapter import anthropic_usage
from .native import NativeHooks, working_directory
from .processes import Processes, adapter_cli
from .recorded import DrivenRecord
from .served import PREFIX, SERVER, ServedTools

OutputT = TypeVar("OutputT")

_GRACE = 1.0
"""Seconds a call gets to end by itself once the evaluation is over; its own deadline is the same moment."""
_MARGIN = 5.0
"""Seconds beyond `request_timeout`, so that Claude Code, which keeps it too, can say itself what went wrong."""
_SHELL_PREFIX = "CLAUDE_CODE_SHELL_PREFIX"
_STOP_REASONS: dict[str | None, StopReason] = {"max_tokens": "max_tokens", "refusal": "refusal"}


@final
class ClaudeDriver(Generic[OutputT]):
    """One evaluation under way; `run` once."""

    def __init__(
        self,
        adapter: Any,
        prompt: Prompt[OutputT],
        session: Session,
        options: StartedOptions,
        record: DrivenRecord | None = None,
    ) -> None:
        self._record = record
        self._adapter = adapter
        self._settings: AdapterSettings = adapter.settings
        self._prompt = prompt
        self._session = session
        self._cwd = working_directory(adapter.native_tools, prompt, adapter.cwd)
        self._spent_in_turn: dict[int, TokenUsage] = {}  # since the last result, which has the exact sum
        self._over = False
        self._message_id: str | None = None
        self._text = ""
        self._calls: list[CallMessage] = []
        self._streamed = False
        self._recorded_before = session[ToolInvoked].count()
        self._under_way: set[str] = set()
        self._shown: dict[str, tuple[Content, ...]] = {}
        self._answer_timer: asyncio.Timeout | None = None
        self._seconds = self._settings.request_timeout + _MARGIN
        self._state = EvaluationState(adapter, prompt, session, options.replace(recorder=record))
        self._state.listen_with(options.on_event)
        self._executor = self._state.executor
        self._transcript = self._state.transcript
        self._limits = self._state.limits
        self._events = self._state.events
        self._tracker = PendingToolTracker(
            session,
            prompt.resources,
            prompt.template.policies,  # and no others, since native tools belong to no section
            prompt=prompt,
            deadline=options.deadline,
            budget_tracker=options.budget_tracker,
            run_context=options.run_context,
            adapter=adapter,
            recorder=record,
        )
        self._served = ServedTools(
            adapter.mcp,
            adapter.mcp_types,
            self._state,
            heard=self._write_turn_of,
            started=self._call_started,
            ended=self._call_ended,
            is_over=self._is_over,
            accepts=adapter.accepts,
        )

    async def _recall(self, call: ToolCall) -> ToolReply | None:
        return await AWAITING.call(lambda: self._executor.recall(call))

    async def run(self) -> PromptResponse[OutputT]:
        """Until the final answer."""
        timer = asyncio.timeout(None)
        try:
            await self._state.begin(self._recall)
            if self._record is not None and self._record.is_over:
                response = self._record.serve(self._state)
                self._state.finished(response)
                return response
            self._limits.check(self._prompt.name)
            await self._executor.__aenter__()
            self._state.entered()
            if self._record is not None:
                await self._record.watch_files(self._executor)
            timer = asyncio.timeout(self._limits.seconds())  # a tracker among the resources may have one
            async with timer:
                response = await self._converse()
        except BaseException as error:
            raised = self._as_ours(error, late=timer.expired())
            # The timer and a message that comes too late both notice the deadline, and either may be first.
            late = timer.expired() or self._limits.seconds() == 0
            is_deadline = late and isinstance(raised, PromptEvaluationError) and raised.phase == "deadline"
            if self._record is not None and isinstance(raised, Exception):
                self._record.ending()
            elif self._record is not None:
                self._record.stop()  # as everywhere, a run that was interrupted has no end
            try:
                await self._end("deadline" if is_deadline else "cancelled", ended_text(raised))
                if self._record is not None:
                    await self._record.failed(raised, self._spent())
            except (RollbackError, RecordError) as failure:  # nothing can be promised any more, which matters most
                raised = failure
            self._state.failed(raised)
            if raised is error:
                raise
            raise raised from error
        try:
            if self._record is not None:
                self._record.ending()
            await self._end("cancelled", "The evaluation ended: The conversation is over.")
            if self._record is not None:
                await self._record.finished(response)
                response = replace(response, step=self._record.step)
        except BaseException as error:
            self._state.failed(error)
            raise
        self._state.finished(response)
        return response

    async def _converse(self) -> PromptResponse[OutputT]:
        sdk = self._adapter.sdk
        # Leaving the block ends the process, and its children with it, before anything is undone.
        with closing(Processes(adapter_cli(self._adapter), self._adapter.env)) as processes:
            async with sdk.ClaudeSDKClient(self._options(processes)) as client:
                try:
                    await client.query(self._first_words())
                    while True:
                        answer = self._finish(await self._listen(client))
                        if not isinstance(answer, Repair):
                            return answer
                        await client.query(answer.text)
                except BaseException:
                    # Asked to end it would go on with its turn, and with the next: it must be told to stop.
                    self._over = True
                    with suppress(Exception):
                        await asyncio.wait_for(client.interrupt(), _GRACE)
                    raise

    def _options(self, processes: Processes) -> Any:
        adapter = self._adapter
        hooks = NativeHooks(
            self._tracker,
            heard=self._write_turn_of,
            started=self._call_started,
            ended=self._call_ended,
            failed=self._state.fail,
            is_over=self._is_over,
            root=Path(self._cwd or ".").resolve(),
            processes=processes,
        )
        return adapter.sdk.ClaudeAgentOptions(
            **{
                "system_prompt": self._state.system or None,
                "setting_sources": [],
                "extra_args": {"no-session-persistence": None, "disable-slash-commands": None},
                **adapter.extra,
                "model": adapter.model,
                "tools": list(adapter.native_tools),
                "allowed_tools": [f"{PREFIX}{tool.name}" for tool in self._served.tools()] + list(adapter.native_tools),
                "mcp_servers": {SERVER: {"type": "sdk", "name": SERVER, "instance": self._served.server}},
                "strict_mcp_config": True,
                "max_turns": self._state.max_turns,
                "cwd": self._cwd,
                "env": self._environment(processes),
                "cli_path": processes.cli_path,
                "include_partial_messages": self._events.on_event is not None,
                "hooks": hooks.matchers(adapter.sdk),
            }
        )

    def _environment(self, processes: Processes) -> dict[str, str]:
        env: dict[str, str] = self._adapter.env
        if "Bash" in self._adapter.native_tools and _SHELL_PREFIX not in env:
            return {**env, _SHELL_PREFIX: processes.shell()}
        return env

    def _first_words(self) -> str | AsyncIterator[dict[str, Any]]:
        *earlier, prompt = fitted(ModelRequest(self._transcript.history().messages), self._adapter.accepts).messages
        assert isinstance(prompt, UserMessage)
        text = f"{_as_text(earlier)}\n\n{prompt.text}" if earlier else prompt.text
        shown = [content for message in earlier for content in getattr(message, "attachments", ())]
        return _with_blocks(text, [*shown, *prompt.attachments]) if shown or prompt.attachments else text

    # Listening.

    async def _listen(self, client: Any) -> Any:
        """Take its messages up to the result of this question. Each answer of the model has its time."""
        timer = asyncio.timeout(None)
        try:
            async with timer:
                self._answer_timer = timer
                self._renew()
                return await self._listen_on(client)
        except TimeoutError:
            if not timer.expired():
                raise
            raise self._state.error(
                f"There was no whole answer within {self._settings.request_timeout:g} s, attempts of Claude Code's own "
                "included. Raise request_timeout= of the adapter.",
                "request",
            ) from None
        finally:
            self._answer_timer = None

    def _renew(self) -> None:
        """Something whole came: the time for the next begins, unless calls are under way, whose own limits hold."""
        timer = self._answer_timer
        if timer is not None and not timer.expired():
            now = asyncio.get_running_loop().time()
            timer.reschedule(None if self._under_way else now + self._seconds)

    async def _listen_on(self, client: Any) -> Any:
        sdk = self._adapter.sdk
        async for message in client.receive_response():
            if not isinstance(message, sdk.StreamEvent):  # a piece of an answer that may never end
                self._renew()
            if self._state.heartbeat is not None:
                self._state.heartbeat.beat()
            if isinstance(message, sdk.AssistantMessage):
                self._model_spoke(message)
            elif isinstance(message, sdk.UserMessage):
                await self._write_heard()  # also of a call that Claude Code answered by itself
                self._calls_answered(message)
            elif isinstance(message, sdk.StreamEvent):
                self._streaming(message.event)
            if self._state.failure is not None:
                raise self._state.failure
            self._limits.check(self._prompt.name)
            if isinstance(message, sdk.ResultMessage):
                await self._write_heard()
                self._flush()
                return message
        raise self._state.error("Claude Code ended without a result.", "response")

    def _model_spoke(self, message: Any) -> None:
        """One turn comes in several messages, one for each of its blocks."""
        if message.parent_tool_use_id is not None:
            return
        record = None if message.error else self._record  # Claude Code's own words about a request that failed
        if message.message_id is None or message.message_id != self._message_id:
            self._flush()
            self._message_id = message.message_id
            self._state.begin_turn()
            if record is not None:
                record.hear_turn()
        self._spent_in_turn[self._state.turns] = anthropic_usage(message.usage)
        self._limits.spent(self._spent())
        sdk = self._adapter.sdk
        for block in message.content:
            if isinstance(block, sdk.TextBlock):
                self._text += block.text
                if record is not None:
                    record.hear(block.text)
                if not self._streamed:
                    self._events.tell(TextDelta, block.text)
            elif isinstance(block, sdk.ToolUseBlock):
                name = block.name.removeprefix(PREFIX)
                self._calls.append(CallMessage(block.id, name, json.dumps(block.input, ensure_ascii=False)))
                if record is not None:
                    record.hear("", self._calls[-1])
        if len(self._calls) > self._settings.max_calls_per_turn:
            raise self._state.error(
                f"The model made more than {self._settings.max_calls_per_turn} calls in one turn. "
                "Raise max_calls_per_turn= of the adapter.",
                "response",
            )

    def _spent(self) -> TokenUsage:
        return sum(self._spent_in_turn.values(), self._state.usage)

    async def _write_heard(self) -> None:
        if self._record is not None:
            await self._record.write_heard(self._executor)

    async def _write_turn_of(self, call_id: str) -> None:
        if self._record is not None:
            await self._record.write_turn_of(call_id, self._executor)

    def _streaming(self, event: dict[str, Any]) -> None:
        if event.get("type") == "message_start":
            self._streamed = False
        delta: dict[str, Any] = event.get("delta") or {}
        if delta.get("type") == "text_delta" and delta.get("text"):
            self._streamed = True
            self._events.tell(TextDelta, delta["text"])
        elif delta.get("type") == "thinking_delta" and delta.get("thinking"):
            self._events.tell(ReasoningDelta, delta["thinking"])

    def _flush(self) -> None:
        if self._text or self._calls:
            self._transcript.add(ModelMessage(self._text, tuple(self._calls)))
            self._text, self._calls = "", []

    def _calls_answered(self, message: Any) -> None:
        if message.parent_tool_use_id is not None or isinstance(message.content, str):
            return
        sdk = self._adapter.sdk
        for block in message.content:
            if isinstance(block, sdk.ToolResultBlock):
                self._flush()
                self._message_id = None
                text = _block_text(block.content)
                self._record_unseen(block.tool_use_id, text)
                shown = self._shown.pop(block.tool_use_id, ())
                self._transcript.add(AnswerMessage(block.tool_use_id, text, bool(block.is_error), shown))

    def _record_unseen(self, call_id: str, text: str) -> None:
        """What Claude Code answered by itself (a tool that is not there, say) is recorded like any other call."""
        if self._is_recorded(call_id):
            return
        for known in self._transcript.open_calls():
            if known.id == call_id:
                call = ToolCall(known.id, known.name, known.arguments)
                self._call_started(call)
                if known.name in self._adapter.native_tools:
                    given = json.loads(known.arguments)
                    self._tracker.refuse(tool_use_id=call_id, tool_name=known.name, text=text, arguments=given)
                elif self._could_run(known):
                    self._executor.decline(call, text)
                else:
                    self._executor.execute(call)  # nothing runs: the engine says what is wrong with it
                self._resume(call_id)
                self._events.call_finished(call_id, text)

    def _could_run(self, call: CallMessage) -> bool:
        for tool in self._executor.tools:
            if tool.name == call.name:
                try:
                    tool.parse(call.arguments)
                except ParseError:
                    return False
                return True
        return False

    def _is_recorded(self, call_id: str) -> bool:
        events = self._session[ToolInvoked].all()[self._recorded_before :]
        return any(event.call_id == call_id for event in events)

    # Calls.

    def _is_over(self) -> bool:
        return self._over or self._state.failure is not None

    def _call_started(self, call: ToolCall) -> None:
        self._under_way.add(call.id)
        self._renew()
        self._state.call_started(call)

    def _call_ended(self, reply: ToolReply) -> None:
        self._shown[reply.call_id] = shown_of(reply.result)
        self._resume(reply.call_id)
        if reply.outcome == "deadline":
            self._state.fail(self._state.out_of_time(reply))
        self._events.call_finished(reply.call_id, reply.text)

    def _resume(self, call_id: str) -> None:
        self._under_way.discard(call_id)
        self._renew()

    # The end.

    def _finish(self, result: Any) -> PromptResponse[OutputT] | Repair:
        """The response, or what to tell the model about an answer that could not be parsed."""
        self._spent_in_turn.clear()
        self._state.spent(anthropic_usage(result.usage))
        if result.subtype == "error_max_turns":
            raise self._state.too_many_turns()
        reason = _STOP_REASONS.get(result.stop_reason, "end_turn")
        if (result.is_error and reason != "refusal") or result.subtype != "success":
            raise self._state.error(_service_problem(result), "request")
        text = result.result or ""
        output = self._state.parse_output(text, reason)
        return output if isinstance(output, Repair) else self._state.response(text, reason, output)

    async def _end(self, outcome: Any, text: str) -> None:
        """Undo what was under way, answer what is open, close the resources. The process has ended before."""
        try:
            await self._served.stop(_GRACE)
            for reply in self._tracker.abort_all(outcome=outcome):
                self._events.call_finished(reply.call_id, reply.text)
            await self._write_heard()
        finally:
            self._flush()
            self._state.answer_open_calls(text, recorded=self._recorded)
            await self._executor.aclose()

    def _recorded(self, call: ToolCall) -> ToolReply | None:
        """The answer to a call that ended, but whose result Claude Code has not reported; native ones run elsewhere."""
        return self._executor.recall(call) if self._is_recorded(call.id) else None

    def _as_ours(self, error: BaseException, *, late: bool) -> BaseException:
        if not isinstance(error, Exception) or isinstance(error, WinkError | AssertionError):
            return error
        if isinstance(error, RequestFailed):  # an image that is too large
            return self._state.error(f"Request to {self._adapter.name} failed: {error}", "request")
        if late:  # also where the process, stopped for that, failed in a way of its own
            return self._state.error("The deadline passed while Claude Code was at work.", "deadline")
        text = redact(f"{type(error).__name__}: {text_of(error)[:1000]}")
        return self._state.error(f"Claude Code could not be run. {text}", "request")


async def _with_blocks(text: str, contents: Iterable[Content]) -> AsyncIterator[dict[str, Any]]:
    """A message of a user with images, as Claude Code takes it."""
    blocks = [*({"type": "text", "text": text} for _ in range(bool(text))), *map(shown_block, contents)]
    yield {"type": "user", "message": {"role": "user", "content": blocks}, "parent_tool_use_id": None}


def _block_text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    items = [item for item in cast(list[dict[str, Any]], content) if item.get("type") != "image"]
    return "\n".join(str(item.get("text", item)) for item in items)


def _as_text(messages: Iterable[Message]) -> str:
    """Claude Code takes no transcript of another loop, so an earlier conversation is told in words."""
    lines = ["This goes on with an earlier conversation:"]
    for message in messages:
        if isinstance(message, UserMessage):
            lines.append(f"<user>\n{message.text}\n</user>")
        elif isinstance(message, AnswerMessage):
            lines.append(f"<result>\n{message.text}\n</result>")
        else:
            calls = "\n".join(f"[called {call.name} with {call.arguments}]" for call in message.calls)
            lines.append("<you>\n" + "\n".join(part for part in (message.text, calls) if part) + "\n</you>")
    return "\n".join(lines)


def _service_problem(result: Any) -> str:
    status = result.api_error_status
    said = redact(str(result.result or "; ".join(result.errors or ()) or result.subtype))[:1000]
    hints = {
        401: " Set ANTHROPIC_API_KEY, or pass env= to the adapter.",
        403: " Set ANTHROPIC_API_KEY, or pass env= to the adapter.",
        404: " Check model= of the adapter.",
    }
    return (
        f"Claude Code could not get an answer{f' (status {status})' if status else ''}: {said}{hints.get(status, '')}"
    )
