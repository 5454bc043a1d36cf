"""Calls on record: the row of one that ended, and the same end again in a later process, without its handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, final

from ...errors import RunFormatError, SessionFormatError
from ...fence import Owner, current_owner
from ...prompt.changes import NO_CHANGES, Changes
from ...prompt.events import RecordedError, ToolInvoked, link_event, tool_invoked
from ...prompt.idempotency import IdempotencyConfig
from ...prompt.tool import Tool
from ...results import ToolResult
from ...run_context import RunContext
from ...session.deltas import type_finder
from ...session.encoding import decode, encode
from ...session.json_view import json_view
from ...session.savepoints import log_alone, outermost
from ...waiting import Waiting
from ..call import ToolCall, ToolReply
from ..contexts import CallContext
from ..inside import redone_inside, run_of
from ..ledger.effects import StoredResult, load_result, store_result
from ..ledger.memory import EffectLedger
from ..locks import locks_of
from ..options import RunToRecord
from ..transactions import Savepoint
from ..truncation import TruncatedResults
from .contents import contents_of
from .recorder import CallRow, Recorder
from .rows import Content, Step

RunInside = Callable[[Recorder, str, str], RunToRecord]
"""The run of an agent inside a call of this run, by the id of the call and the agent's name."""

_OWN = type_finder(())
_NO_CONTENTS = nullcontext()


@final
class RunRecorder:
    """The engine's `CallRecorder`: rows of a run for its calls."""

    def __init__(self, recorder: Recorder, inside: RunInside, *, goes_on: bool = False) -> None:
        self.rows: Recorder = recorder
        self._inside = inside
        self._goes_on = goes_on
        self._started: set[str] = set()
        self._agents: dict[str, str] = {}

    @property
    def run_id(self) -> str:
        """As `CallRecorder.run_id`."""
        return self.rows.run_id

    @property
    def step(self) -> int:
        """As `CallRecorder.step`."""
        return self.rows.step

    @property
    def stopped(self) -> bool:
        """As `CallRecorder.stopped`."""
        return self.rows.stopped

    def stop(self, *, lost: bool = False) -> None:
        """As `CallRecorder.stop`. A conversation goes on after an interrupt, so how its calls ended is on record."""
        if lost or not self._goes_on:
            self.rows.stop()

    def step_of(self, event: ToolInvoked) -> int | None:
        """As `CallRecorder.step_of`."""
        return self.rows.step_of(event.event_id)

    def run_inside(self, call_id: str, name: str) -> RunToRecord | None:
        """As `CallRecorder.run_inside`."""
        if self.stopped:
            return None
        run = self._inside(self.rows, call_id, name)
        self._agents[call_id] = run.run_id
        return run

    async def started(self, call: ToolCall, tool: Tool[Any, Any], savepoint: Savepoint, waiting: Waiting) -> None:
        """Record a call that could leave the machine before its handler runs, unless a ledger knows it from then on.

        Other calls need no such row: what they change is undone when the process ends. A call inside another one is
        part of that, which counts as started then, whatever its own tool says: it must not be made again either.
        """
        notes = tool.annotations
        if not notes.open_world or notes.read_only:
            return
        around = self._around(savepoint.owner.around)
        if tool.idempotency is not None and _outlives_process(tool.idempotency, savepoint, around):
            return
        if around is None:
            self._started.add(call.id)
            await self.rows.write_started(call.id, tool.name, waiting)
        elif around.call_id not in self._started:
            self._started.add(around.call_id)
            await self.rows.write_started(around.call_id, around.tool_name, waiting, inside=True)

    def _around(self, owner: Owner | None) -> CallContext | None:
        """The outermost call of this run around some code; those of other runs do not have its rows in theirs."""
        found = None
        while owner is not None:
            call = getattr(owner.holder, "call", None)
            if owner.recorder is not None and owner.recorder.run_id == self.run_id and isinstance(call, CallContext):
                found = call
            owner = owner.around
        return found

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
        """As `CallRecorder.ended`. A call inside another of the run is part of that one's row, once that has ended."""
        if self._around(current_owner() if savepoint is None else savepoint.owner.around) is None:
            row = self._row(event, tool, truncated.full_text(call.id))
            row.body.update(more)
            agent = self._agents.pop(call.id, None)
            if agent is not None:
                row.body["agent"] = agent
            if savepoint is not None:
                self._add_files(row, savepoint)
            await self.rows.write_call(row, waiting)

    def _row(self, event: ToolInvoked, tool: Tool[Any, Any] | None, full: str | None) -> CallRow:
        """How a call ended, ready to be written; `RunFormatError` for a value that could not be read back."""
        result = ToolResult.error("") if event.result is None else event.result
        shown: dict[str, Content] = {}
        with self.rows.keeping(shown):
            stored = store_result(result, None if tool is None else tool.result_type)
        if stored.problem and not self.rows.keeps_views:
            raise RunFormatError(
                f"The result of '{event.tool_name}' cannot be recorded: {stored.problem.rstrip('.')}. "
                "Return plain data: a dataclass of JSON-like fields; or record with resumable=False, for looking at it "
                "only."
            )
        told: dict[str, Any] = {"id": event.event_id}
        if event.run_context is not None and event.run_context.attempt > 1:
            told["attempt"] = event.run_context.attempt
        if event.within is not None:
            told["within"] = event.within
        if event.undone_calls:
            told["undone"] = list(event.undone_calls)
        if event.changes:
            told["changes"] = _changes_data(event.changes)
        if event.error is not None:
            told["error"] = encode(event.error)[0]
        body: dict[str, Any] = {
            "event": told,
            "text": self.rows.kept(event.rendered_output),
            "success": result.success,
            "result": {name: value for name, value in stored._asdict().items() if value not in ("", None, False)},
        }
        if stored.problem:
            body["view"] = json_view(result.value)
        if full is not None:
            body["full"] = self.rows.kept(full)
        row = CallRow(event, body)
        row.shown = shown
        return row

    def _add_files(self, row: CallRow, savepoint: Savepoint) -> None:
        files = self.rows.files
        if files is not None and row.event.success and row.event.changes.files:
            snapshot = savepoint.snapshot_of(files.fs)
            if snapshot is not None:
                row.files, row.blobs = files.changes(snapshot, row.event.changes.files)
        if files is not None:
            row.files, row.blobs = files.with_reads(row.files, row.blobs)


def _outlives_process(config: IdempotencyConfig, savepoint: Savepoint, around: CallContext | None) -> bool:
    """Whether a ledger will know the call by its key when the process has ended.

    One in memory ends with it. A key of a session is found again only in the session of the run: another one that a
    handler makes has another id the next time.
    """
    call: Any = savepoint.call
    run = run_of(call)
    if run is None or config.strategy == "none" or isinstance(run.ledger(), EffectLedger):
        return False
    if around is None or config.scope != "session":
        return True
    outer = run_of(around)
    return outer is not None and outermost(run.session) is outermost(outer.session)


def _changes_data(changes: Changes) -> dict[str, Any]:
    """As `encode`, which finds out for each call that these classes keep their values."""
    files = changes.files
    return {
        "slices": [{"name": one.name, "added": one.added, "contended": one.contended} for one in changes.slices],
        "files": {"added": [*files.added], "changed": [*files.changed], "removed": [*files.removed]},
    }


def event_of(step: Step, params: Any, tool: Tool[Any, Any] | None, rows: Recorder, run: Any) -> ToolInvoked:
    """The event of a call that is on record."""
    body = step.body
    told: Mapping[str, Any] = body["event"]
    changes: Changes = decode(Changes, told["changes"], [], _OWN) if "changes" in told else NO_CHANGES
    error: RecordedError | None = decode(RecordedError, told["error"], [], _OWN) if "error" in told else None
    result = result_of(step, tool)
    outcome: Any = step.outcome
    context: RunContext | None = run.run_context
    if context is not None:
        attempt = told.get("attempt", 1)
        context = context if context.attempt == attempt else replace(context, attempt=attempt)
    event = tool_invoked(
        step.tool or "", params, result, outcome in ("succeeded", "replayed"), step.started, step.duration,
        step.call_id, run.session_id, run.prompt_name, run.adapter_name, None, rows.text(body["text"]),
        context, changes, outcome, error,
    )  # fmt: skip
    link_event(event, told["id"], told.get("within"), tuple(told.get("undone", ())))
    return event


def result_of(step: Step, tool: Tool[Any, Any] | None) -> ToolResult[Any]:
    """The result of a call that is on record."""
    body = step.body
    result = load_result(_stored(body["result"]), None if tool is None else tool.result_type)
    return result if body["success"] else replace(result, success=False)


def _stored(fields: Mapping[str, Any]) -> StoredResult:
    return StoredResult(**{"message": "", **fields})  # pyright: ignore[reportArgumentType] - as `_row` wrote them


def redo(call: ToolCall, step: Step, params: Any, rows: Recorder, run: Any) -> ToolReply:
    """End a call as the record says: its event to the log and its reducers, its answer. Nothing else runs.

    What it changed is in the session and in the files already.
    """
    bound = run.tools.get(call.name)
    try:
        with contents_of(rows.store) if "contents" in step.body else _NO_CONTENTS:
            inside = rows.events_in(step)
            event = event_of(step, params, None if bound is None else bound.tool, rows, run)
    except (SessionFormatError, KeyError, TypeError, ValueError) as error:
        raise RunFormatError(f"Step {step.seq} of the record cannot be read: {error}.") from error
    for inner in inside:  # their reducers have run: what they made is part of what the call changed
        log_alone(run.session, inner)
    redone_inside(event, inside, locks_of(run.session, run.resources))
    if "full" in step.body:
        run.truncated.restore(call.id, rows.text(step.body["full"]))
    run.record(event)
    assert event.result is not None
    is_error = event.outcome in ("crashed", "undone", "unknown")
    return ToolReply(call.id, event.rendered_output, event.result, event.outcome, is_error)


__all__ = ["RunRecorder", "event_of", "redo", "result_of"]
