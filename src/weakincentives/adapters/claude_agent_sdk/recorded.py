"""A run on record that Claude Code drives: what is heard of its turns, its calls, and its end.

Turns happen inside Claude Code and cannot be played to it again. Such a run can be shown and replayed, but not resumed.
One that has ended gives its recorded answer, and Claude Code is not started.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, final

from ...budget import TokenUsage
from ...errors import RunFormatError
from ...filesystem import Filesystem
from ...filesystem.views import is_recordable
from ...loop.attachments import shown_of
from ...loop.recorded import error_of, failure_body, params_of, turn_body, turn_of
from ...loop.request import ModelTurn
from ...loop.response import PromptResponse
from ...loop.state import EvaluationState, Repair
from ...prompt.events import ToolInvoked
from ...prompt.tool import Tool
from ...runtime.call import ToolCall, ToolReply
from ...runtime.executor import ToolExecutor
from ...runtime.messages import AnswerMessage, CallMessage, ModelMessage
from ...runtime.record.calls import RunRecorder, redo
from ...runtime.record.rows import Step
from ...runtime.run import Run
from ...runtime.transactions import Savepoint
from ...runtime.truncation import TruncatedResults
from ...waiting import AWAITING, Waiting

NOT_RESUMABLE = "its turns happen inside Claude Code and cannot be played to it again"

_SECONDS = 5.0
"""How long a call waits for the message that it belongs to, which was sent before it and is only not taken yet."""


@final
class DrivenRecord:
    """The record of one evaluation; the engine's `CallRecorder` for its calls."""

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder
        self._rows = recorder.rows
        self._heard: list[ModelTurn] = []  # and not written yet; each is a turn, or more of the one before
        self._continues = False  # whether the first of them is more of a turn that is on record
        self._known: set[str] = set()
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()
        self._is_ending = False

    # Calls.

    @property
    def run_id(self) -> str:
        """As `CallRecorder.run_id`."""
        return self._recorder.run_id

    @property
    def step(self) -> int:
        """As `CallRecorder.step`."""
        return self._recorder.step

    @property
    def is_over(self) -> bool:
        """Whether the run had ended before this evaluation."""
        return self._rows.is_over

    @property
    def stopped(self) -> bool:
        """As `CallRecorder.stopped`."""
        return self._recorder.stopped or self._rows.is_over

    def stop(self, *, lost: bool = False) -> None:
        """As `CallRecorder.stop`; but calls that are ended because the evaluation ends are part of what happened."""
        if not self._is_ending:
            self._recorder.stop(lost=lost)

    def step_of(self, event: ToolInvoked) -> int | None:
        """As `CallRecorder.step_of`."""
        return self._recorder.step_of(event)

    def run_inside(self, call_id: str, name: str) -> None:
        """As `CallRecorder.run_inside`: none, since this run cannot go on, so what is inside a call is part of it."""

    async def started(self, call: ToolCall, tool: Tool[Any, Any], savepoint: Savepoint, waiting: Waiting) -> None:
        """As `CallRecorder.started`."""
        await self._recorder.started(call, tool, savepoint, waiting)

    async def ended(  # noqa: PLR0917 - as `CallRecorder`
        self,
        event: ToolInvoked,
        call: ToolCall,
        tool: Tool[Any, Any] | None,
        savepoint: Savepoint | None,
        truncated: TruncatedResults,
        waiting: Waiting,
        **more: Any,
    ) -> None:
        """As `CallRecorder.ended`."""
        await self._recorder.ended(event, call, tool, savepoint, truncated, waiting, **more)

    async def watch_files(self, executor: ToolExecutor) -> None:
        """Record the changes of the files that the prompt binds, once the resources are open."""
        fs = executor.run.resources.get(Filesystem, None)
        if is_recordable(fs):
            files = await AWAITING.call(lambda: self._rows.watch(fs))
            executor.run.files_view = files.view

    # Turns. Claude Code begins the first calls of a turn while the model is still speaking.

    def hear_turn(self) -> None:
        """The model begins to speak."""
        self._heard.append(ModelTurn(""))
        if len(self._heard) == 1:
            self._continues = False

    def hear(self, text: str, *calls: CallMessage) -> None:
        """The model said this, in the turn that was begun last."""
        if not self._heard:  # the rest of it is on record
            self._heard.append(ModelTurn(""))
            self._continues = True
        turn = self._heard[-1]
        self._heard[-1] = turn._replace(text=turn.text + text, calls=turn.calls + calls)
        self._known.update(call.id for call in calls)
        self._news.set()

    async def write_turn_of(self, call_id: str, executor: ToolExecutor) -> None:
        """Before a call runs: put on record what was heard of its turn. `RecordError` when that fails."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS):
                while call_id not in self._known:
                    self._news.clear()
                    await self._news.wait()
        await self.write_heard(executor)

    async def write_heard(self, executor: ToolExecutor) -> None:
        """Put on record what was heard, and before it the prompt, if that is another one than before.

        Without tokens: how many a single turn took is not said.
        """
        async with self._writing:
            while len(self._heard) > 1 or any(turn.text or turn.calls for turn in self._heard):
                turn, continues = self._heard.pop(0), self._continues
                self._continues = False
                names = [tool.name for tool in executor.tools]
                prompt = executor.rendered_prompt
                said = (prompt.text, prompt.system, prompt.attachments)
                await self._rows.write_prompt(said, names, prompt.sections, AWAITING)
                body = turn_body(turn._replace(stop_reason="tool_use" if turn.calls else "end_turn"))
                body = {**body, "continues": True} if continues else body
                await self._rows.write_turn(body, TokenUsage(), AWAITING)

    # The end.

    def ending(self) -> None:
        """The evaluation ends by itself: what its calls come to is recorded."""
        self._is_ending = True

    async def finished(self, response: PromptResponse[Any]) -> None:
        """Record the answer."""
        text, used = self._rows.kept(response.text), response.usage
        body = {
            "text": text, "stop": response.stop_reason, "turns": response.turns,
            "usage": [used.input, used.output, used.cached, used.reasoning],
        }  # fmt: skip
        await self._rows.write_end(body, AWAITING, failed=False, usage=used)

    async def failed(self, error: BaseException, usage: TokenUsage) -> None:
        """Record the error, unless the run was interrupted, or had ended before."""
        if isinstance(error, Exception) and not self.is_over:
            await self._rows.write_end(failure_body(error), AWAITING, failed=True, usage=usage)

    def release(self) -> None:
        """Let other processes have the run."""
        self._rows.release()

    # A run that has ended.

    def serve(self, state: EvaluationState[Any]) -> PromptResponse[Any]:
        """The recorded answer, or its error; the session has its calls and what they changed. Files are left alone."""
        run, end = state.executor.run, None
        arguments: dict[str, CallMessage] = {}
        for step in self._rows.serve_all():
            if step.kind == "turn":
                turn = turn_of(step)
                arguments.update({call.id: call for call in turn.calls})
                state.transcript.add(ModelMessage(turn.text, turn.calls))
                state.turns = step.turn
                state.usage = state.usage + turn.usage
            elif step.kind == "call":
                made = arguments.get(step.call_id or "")
                reply = self._redo(step, None if made is None else made.arguments, run)
                if made is not None:
                    state.transcript.add(
                        AnswerMessage(reply.call_id, reply.text, reply.is_error, shown_of(reply.result))
                    )
            elif step.kind == "end":
                end = step
        if end is None:
            raise RunFormatError(f"The run {self.run_id!r} has ended, but its record has no end.")
        if "error" in end.body:
            raise error_of(end)
        text, reason = self._rows.text(end.body["text"]), end.body["stop"]
        output = state.parse_output(text, reason)
        if isinstance(output, Repair):
            raise RunFormatError(f"The recorded answer of {self.run_id!r} does not fit the output type of the prompt.")
        state.turns = end.body["turns"]
        if "usage" in end.body:
            state.usage = TokenUsage(*end.body["usage"])
        return state.response(text, reason, output)

    def _redo(self, step: Step, arguments: str | None, run: Run) -> ToolReply:
        call = ToolCall(step.call_id or "", step.tool or "", arguments)
        if not step.body.get("native"):
            return redo(call, step, params_of(call, step, run), self._rows, run)
        params: Any = arguments
        with suppress(TypeError, ValueError):
            params = json.loads(params)
        return redo(call, step, params, self._rows, run)


__all__ = ["NOT_RESUMABLE", "DrivenRecord"]
