"""One evaluation with Claude Code: it runs the loop, we run the calls, watch its own, and keep the record.

start   render the prompt, tell PromptRendered, enter the resources, start the process
listen  its messages become the transcript; what ended the evaluation meanwhile is raised
finish  parse the final answer or say what was wrong with it; tell PromptExecuted
end     the process first, so that nothing writes any more; then undo what was under way and answer what is open
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast, final

from ...budget import TokenUsage
from ...errors import ParseError, PromptEvaluationError, RollbackError, VisibilityExpansionRequired, WinkError
from ...filesystem import Filesystem, HostFilesystem
from ...loop.history import remember
from ...loop.limits import Limits, LoopSettings
from ...loop.request import StopReason, ToolSpec, tool_spec
from ...loop.response import PromptResponse
from ...loop.steps import AWAITING_MODE
from ...prompt.events import ToolInvoked
from ...prompt.prompt import Prompt
from ...prompt.tool import Tool
from ...prompt.tool_metadata import ToolAnnotations
from ...prompt.visibility import set_visibility
from ...results import ToolResult
from ...run_context import Heartbeat, RunContext
from ...runtime.call import ToolCall, ToolReply
from ...runtime.executor import ToolExecutor
from ...runtime.messages import AnswerMessage, CallMessage, History, ModelMessage, Transcript, UserMessage
from ...runtime.progress import CallStarted, OnEvent, SectionsOpened, TextDelta, TurnStarted
from ...runtime.redaction import ended_text, redact, text_of
from ...runtime.truncation import READ_TOOL, ReadToolResult, ResultPart
from ...session import Session
from ..sdk_adapter import anthropic_usage
from .events import Patience, Telling
from .native import NativeHooks, changes_files, tracker_of
from .processes import Processes, adapter_cli
from .served import PREFIX, SERVER, ServedTools

OutputT = TypeVar("OutputT")

_GRACE = 1.0
"""Seconds a call gets to end by itself once the evaluation is over; its own deadline is the same moment."""
_MARGIN = 5.0
"""Seconds beyond `request_timeout`, so that Claude Code, which keeps it too, can say itself what went wrong."""
_ENDING = "This call was not run, because the evaluation is ending."
_SHELL_PREFIX = "CLAUDE_CODE_SHELL_PREFIX"
_STOP_REASONS: dict[str | None, StopReason] = {"max_tokens": "max_tokens", "refusal": "refusal"}


_READ_ON = Tool[ReadToolResult, ResultPart](
    name=READ_TOOL,
    description="Read on in a tool result that was cut because it was too long.",
    handler=None,
    annotations=ToolAnnotations(read_only=True, destructive=False),
)
"""As the engine offers it once something was cut, which is too late for Claude Code to hear of it."""


class Given(NamedTuple):
    """What one evaluation was given beside prompt and session; see `ProviderAdapter.evaluate`."""

    limits: Limits
    history: History
    effect_ledger: Any
    heartbeat: Heartbeat | None
    run_context: RunContext | None
    on_event: OnEvent | None


@final
class Conversation(Generic[OutputT]):
    """One evaluation under way; `run` once."""

    def __init__(self, adapter: Any, prompt: Prompt[OutputT], session: Session, given: Given) -> None:
        self._adapter = adapter
        self._settings: LoopSettings = adapter.settings
        self._prompt = prompt
        self._session = session
        self._given = given
        self._limits = given.limits
        self._cwd = _working_directory(adapter, prompt)
        self._transcript = Transcript(given.history.messages)
        self._usage = TokenUsage()
        self._spent_in_turn: dict[int, TokenUsage] = {}  # since the last result, which has the exact sum
        self._turns = self._expansions = self._parse_failures = 0
        self._correction = ""
        self._ended: BaseException | None = None
        self._over = False
        self._message_id: str | None = None
        self._text = ""
        self._calls: list[CallMessage] = []
        self._newest_read: Future[None] | None = None
        self._streamed = False
        self._recorded_before = session[ToolInvoked].count()
        self._patience = Patience(self._settings.request_timeout + _MARGIN)
        self._telling = Telling(prompt, session, adapter.name, given.run_context, given.on_event)
        prompt.install(session)
        rendered = prompt.render(session=session)
        self._executor = ToolExecutor(
            prompt=prompt,
            session=session,
            adapter=adapter,
            deadline=self._limits.deadline,
            budget_tracker=self._limits.tracker,
            heartbeat=given.heartbeat,
            run_context=given.run_context,
            rendered_prompt=rendered,
            hide_errors=self._settings.hide_errors,
            effect_ledger=given.effect_ledger,
        )
        self._tracker = tracker_of(
            prompt,
            session=session,
            deadline=self._limits.deadline,
            budget_tracker=self._limits.tracker,
            run_context=given.run_context,
            adapter=adapter,
        )
        self._served = ServedTools(adapter.mcp, adapter.mcp_types, self._specs, self._execute)
        self._rendered_text: str = rendered.text
        self._earlier = History()

    async def _begin(self) -> None:
        """Answer the calls that the history left open, by what is known of them; then say the prompt."""
        for open_call in self._transcript.open_calls():
            call = ToolCall(open_call.id, open_call.name, open_call.arguments)
            recalled = await AWAITING_MODE.recall(self._executor, call)
            reply = self._executor.answer_open(call, recalled=recalled)
            self._transcript.add(AnswerMessage(call.id, reply.text, reply.is_error))
        self._earlier = self._transcript.history()
        self._transcript.set_prompt(self._rendered_text)
        self._telling.rendered(self._rendered_text, tuple(tool.name for tool in self._executor.tools))

    async def run(self) -> PromptResponse[OutputT]:
        """Until the final answer."""
        timer = asyncio.timeout(self._limits.seconds())
        try:
            await self._begin()
            self._limits.check(self._prompt.name)
            await self._executor.__aenter__()
            self._limits.count_in(self._executor.budget_tracker)
            async with timer:
                response = await self._converse()
        except BaseException as error:
            late = isinstance(error, TimeoutError) and timer.expired()
            raised = self._as_ours(error, late=late)
            try:
                await self._end("deadline" if late else "cancelled", ended_text(raised))
            except RollbackError as failure:  # nothing can be promised any more, which matters most
                raised = failure
            remember(raised, self._transcript.history())
            self._telling.executed(None, None, "error", self._usage)
            if raised is error:
                raise
            raise raised from error
        await self._end("cancelled", "The evaluation ended: The conversation is over.")
        self._telling.executed(response.text, response.output, response.stop_reason, self._usage)
        return response

    async def _converse(self) -> PromptResponse[OutputT]:
        sdk = self._adapter.sdk
        # Leaving the block ends the process, and its children with it, before anything is undone.
        with closing(Processes(adapter_cli(self._adapter), self._adapter.env)) as processes:
            async with sdk.ClaudeSDKClient(self._options(processes)) as client:
                try:
                    await client.query(self._first_words())
                    while True:
                        response = self._finish(await self._listen(client))
                        if response is not None:
                            return response
                        await client.query(self._correction)
                except BaseException:
                    # Asked to end it would go on with its turn, and with the next: it must be told to stop.
                    self._over = True
                    with suppress(Exception):
                        await asyncio.wait_for(client.interrupt(), _GRACE)
                    raise

    def _options(self, processes: Processes) -> Any:
        adapter, settings = self._adapter, self._settings
        hooks = NativeHooks(
            self._tracker,
            started=self._call_started,
            ended=self._native_ended,
            failed=self._fail,
            is_over=self._is_over,
            root=Path(self._cwd or ".").resolve(),
            processes=processes,
        )
        return adapter.sdk.ClaudeAgentOptions(
            **{
                "system_prompt": settings.system,
                "setting_sources": [],
                "extra_args": {"no-session-persistence": None, "disable-slash-commands": None},
                **adapter.extra,
                "model": adapter.model,
                "tools": list(adapter.native_tools),
                "allowed_tools": [f"{PREFIX}{tool.name}" for tool in self._prompt_tools()] + list(adapter.native_tools),
                "mcp_servers": {SERVER: {"type": "sdk", "name": SERVER, "instance": self._served.server}},
                "strict_mcp_config": True,
                "max_turns": settings.max_turns,
                "cwd": self._cwd,
                "env": self._environment(processes),
                "cli_path": processes.cli_path,
                "include_partial_messages": self._telling.listened_to,
                "hooks": hooks.matchers(adapter.sdk),
            }
        )

    def _environment(self, processes: Processes) -> dict[str, str]:
        env: dict[str, str] = self._adapter.env
        if "Bash" in self._adapter.native_tools and _SHELL_PREFIX not in env:
            return {**env, _SHELL_PREFIX: processes.shell()}
        return env

    def _first_words(self) -> str:
        earlier = _as_text(self._earlier)
        return f"{earlier}\n\n{self._rendered_text}" if earlier else self._rendered_text

    # Listening.

    async def _listen(self, client: Any) -> Any:
        """Take its messages up to the result of this question."""
        try:
            async with self._patience:
                return await self._listen_on(client)
        except TimeoutError:
            if not self._patience.is_over:
                raise
            raise self._error(
                f"There was no whole answer within {self._settings.request_timeout:g} s, attempts of Claude Code's own "
                "included. Raise request_timeout= of the adapter.",
                "request",
            ) from None

    async def _listen_on(self, client: Any) -> Any:
        sdk = self._adapter.sdk
        async for message in client.receive_response():
            if not isinstance(message, sdk.StreamEvent):  # a piece of an answer that may never end
                self._patience.renew()
            if self._given.heartbeat is not None:
                self._given.heartbeat.beat()
            if isinstance(message, sdk.AssistantMessage):
                self._model_spoke(message)
            elif isinstance(message, sdk.UserMessage):
                self._calls_answered(message)
            elif isinstance(message, sdk.StreamEvent):
                self._streaming(message.event)
            if self._ended is not None:
                raise self._ended
            self._limits.check(self._prompt.name)
            if isinstance(message, sdk.ResultMessage):
                self._flush()
                return message
        raise self._error("Claude Code ended without a result.", "response")

    def _model_spoke(self, message: Any) -> None:
        """One turn comes in several messages, one for each of its blocks."""
        if message.parent_tool_use_id is not None:
            return
        if message.message_id is None or message.message_id != self._message_id:
            self._flush()
            self._message_id = message.message_id
            self._turns += 1
            self._telling.progress(TurnStarted(self._turns))
        self._spent_in_turn[self._turns] = anthropic_usage(message.usage)
        self._limits.spent(sum(self._spent_in_turn.values(), self._usage))
        sdk = self._adapter.sdk
        for block in message.content:
            if isinstance(block, sdk.TextBlock):
                self._text += block.text
                if not self._streamed:
                    self._telling.progress(TextDelta(block.text))
            elif isinstance(block, sdk.ToolUseBlock):
                name = block.name.removeprefix(PREFIX)
                self._calls.append(CallMessage(block.id, name, json.dumps(block.input, ensure_ascii=False)))
        if len(self._calls) > self._settings.max_calls_per_turn:
            raise self._error(
                f"The model made more than {self._settings.max_calls_per_turn} calls in one turn. "
                "Raise max_calls_per_turn= of the adapter.",
                "response",
            )

    def _streaming(self, event: dict[str, Any]) -> None:
        if event.get("type") == "message_start":
            self._streamed = False
        delta: dict[str, Any] = event.get("delta") or {}
        if delta.get("type") == "text_delta" and delta.get("text"):
            self._streamed = True
            self._telling.progress(TextDelta(delta["text"]))

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
                self._transcript.add(AnswerMessage(block.tool_use_id, text, bool(block.is_error)))

    def _record_unseen(self, call_id: str, text: str) -> None:
        """What Claude Code answered by itself (a tool that is not there, say) is recorded like any other call."""
        if self._is_recorded(call_id):
            return
        for known in self._transcript.open_calls():
            if known.id == call_id:
                call = ToolCall(known.id, known.name, known.arguments)
                self._call_started(known.id, known.name, known.arguments)
                if known.name in self._adapter.native_tools:
                    given = json.loads(known.arguments)
                    self._tracker.refuse(tool_use_id=call_id, tool_name=known.name, text=text, arguments=given)
                elif self._could_run(known):
                    self._executor.decline(call, text)
                else:
                    self._executor.execute(call)  # nothing runs: the engine says what is wrong with it
                self._patience.resume(call_id)
                self._telling.call_finished(call_id, text)

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

    def _prompt_tools(self) -> tuple[Any, ...]:
        """All tools that may come to be offered: Claude Code is told once; what is not open yet is refused."""
        known = {tool.name: tool for section in self._prompt.sections for tool in _tools_below(section)}
        known.setdefault(READ_TOOL, _READ_ON)
        return tuple({**known, **{tool.name: tool for tool in self._executor.tools}}.values())

    def _specs(self) -> tuple[ToolSpec, ...]:
        return tuple(map(tool_spec, self._prompt_tools()))

    async def _execute(self, call: ToolCall) -> ToolReply:
        if not self._only_reads(call):
            return await self._execute_one(call, None)
        # Claude Code overlaps these. They are recorded and told in the order in which they came.
        before, done = self._newest_read, Future[None]()
        self._newest_read = done
        try:
            return await self._execute_one(call, before)
        finally:
            done.set_result(None)

    def _only_reads(self, call: ToolCall) -> bool:
        return any(tool.name == call.name and tool.annotations.read_only for tool in self._executor.tools)

    async def _execute_one(self, call: ToolCall, before: Future[None] | None) -> ToolReply:
        if self._is_over():
            return self._executor.decline(call, _ENDING)
        self._call_started(call.id, call.name, json.dumps(call.arguments, ensure_ascii=False, default=str))
        try:
            reply = await self._executor.aexecute(call, before=before)
        except VisibilityExpansionRequired as expansion:
            reply = self._open(call, expansion)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the call is answered, then the evaluation ends with it
            self._fail(error)
            text = ended_text(error)
            reply = ToolReply(call.id, text, ToolResult.error(text), "crashed", is_error=True)
        finally:
            self._patience.resume(call.id)
        self._over_time(reply)
        self._telling.call_finished(call.id, reply.text)
        return reply

    def _open(self, call: ToolCall, expansion: VisibilityExpansionRequired) -> ToolReply:
        keys = tuple(expansion.section_keys)
        self._expansions += 1
        if self._expansions > self._settings.max_expansions:
            error = self._error(
                f"The model opened sections {self._expansions} times in one evaluation. Raise max_expansions= of the "
                "adapter, or show those sections in full.",
                "tool",
            )
            self._fail(error)
            return ToolReply(call.id, str(error), ToolResult.error(str(error)), "expanded")
        set_visibility(self._session, keys)
        rendered = self._prompt.render(session=self._session)
        self._executor.offer(rendered)
        self._telling.progress(SectionsOpened(keys))
        self._telling.rendered(rendered.text, tuple(tool.name for tool in self._executor.tools))
        text = f"Opened: {', '.join(keys)}. The prompt now reads:\n\n{rendered.text}"
        return ToolReply(call.id, text, ToolResult.ok(None, message=text), "expanded")

    def _is_over(self) -> bool:
        return self._over or self._ended is not None

    def _call_started(self, call_id: str, name: str, arguments: str) -> None:
        self._patience.suspend(call_id)
        shown = self._executor.shown_arguments(ToolCall(call_id, name, arguments))
        self._telling.progress(CallStarted(call_id, name, shown))

    def _native_ended(self, reply: ToolReply) -> None:
        self._patience.resume(reply.call_id)
        self._over_time(reply)
        self._telling.call_finished(reply.call_id, reply.text)

    def _over_time(self, reply: ToolReply) -> None:
        if reply.outcome == "deadline":
            self._fail(self._error(reply.message, "deadline"))

    def _fail(self, error: BaseException) -> None:
        self._ended = self._ended or error

    # The end.

    def _finish(self, result: Any) -> PromptResponse[OutputT] | None:
        self._usage = self._usage + anthropic_usage(result.usage)
        self._spent_in_turn.clear()
        self._limits.spent(self._usage)
        if result.subtype == "error_max_turns":
            raise self._error(
                f"The model did not finish within {self._settings.max_turns} turns. "
                "Raise max_turns= of the adapter, or give it less to do.",
                "response",
            )
        if result.is_error or result.subtype != "success":
            raise self._error(_service_problem(result), "request")
        text = result.result or ""
        output: Any = None
        if self._prompt.structured_output is not None or self._prompt.output_type is str:
            try:
                output = self._prompt.parse_output(text)
            except ParseError as error:
                self._answer_again(error)
                return None
        reason = _STOP_REASONS.get(result.stop_reason, "end_turn")
        return PromptResponse(
            text, output, reason, (), self._usage, self._transcript.history(), self._turns, self._prompt.name
        )

    def _answer_again(self, error: ParseError) -> None:
        self._parse_failures += 1
        if self._parse_failures > self._settings.output_retries:
            raise self._error(
                f"The model's answer is no {getattr(self._prompt.output_type, '__name__', 'output')}, "
                f"{self._parse_failures} times in a row: {error}",
                "response",
            ) from error
        self._correction = (
            f"The answer could not be read: {error}\nGive the whole answer again, as JSON and nothing else."
        )
        self._transcript.add(UserMessage(self._correction))

    async def _end(self, outcome: Any, text: str) -> None:
        """Undo what was under way, answer what is open, close the resources. The process has ended before."""
        try:
            await self._served.stop(_GRACE)
            for reply in self._tracker.abort_all(outcome=outcome):
                self._telling.call_finished(reply.call_id, reply.text)
        finally:
            self._flush()
            self._answer_open_calls(text)
            await self._executor.aclose()

    def _answer_open_calls(self, text: str) -> None:
        for open_call in self._transcript.open_calls():
            call = ToolCall(open_call.id, open_call.name, open_call.arguments)
            reply = self._executor.recall(call) if self._is_recorded(call.id) else None
            if reply is None:
                reply = self._executor.decline(call, text)
                self._telling.call_finished(call.id, reply.text)
            self._transcript.add(AnswerMessage(call.id, reply.text, reply.is_error))

    def _as_ours(self, error: BaseException, *, late: bool) -> BaseException:
        if late:
            return self._error("The deadline passed while Claude Code was at work.", "deadline")
        if not isinstance(error, Exception) or isinstance(error, WinkError | AssertionError):
            return error
        text = redact(f"{type(error).__name__}: {text_of(error)[:1000]}")
        return self._error(f"Claude Code could not be run. {text}", "request")

    def _error(self, message: str, phase: str) -> PromptEvaluationError:
        return PromptEvaluationError(message, prompt_name=self._prompt.name, phase=phase)


def _working_directory(adapter: Any, prompt: Prompt[Any]) -> str | None:
    files: Any = prompt.resources.get(Filesystem, None) if Filesystem in prompt.resources else None
    if changes_files(adapter.native_tools) and not (isinstance(files, HostFilesystem) and files.watches):
        raise ValueError(
            "Native tools change files behind WINK's back, so the prompt must watch them: "
            'bind(resources={Filesystem: HostFilesystem(root, watch="scan")}), or name only native_tools= that read.'
        )
    return str(files.root) if isinstance(files, HostFilesystem) else adapter.cwd


def _tools_below(section: Any) -> list[Any]:
    found = list(section.tools)
    for child in section.children:
        found += _tools_below(child)
    return found


def _block_text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(item.get("text", item)) for item in cast(list[dict[str, Any]], content))


def _as_text(history: History) -> str:
    """Claude Code takes no transcript of another loop, so an earlier conversation is told in words."""
    if not history.messages:
        return ""
    lines = ["This goes on with an earlier conversation:"]
    for message in history.messages:
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


__all__ = ["Conversation", "Given"]
