"""Calls that a harness runs itself: it tells us when one of its native tools begins and ends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast, final

from ..budget import BudgetTracker
from ..deadlines import Deadline
from ..prompt.events import ToolInvoked
from ..prompt.policy import ToolPolicy, may_overlap
from ..prompt.tool import DEFAULT_MAX_RESULT_CHARS
from ..prompt.tool_metadata import ToolAnnotations
from ..prompt.tree import BoundTool
from ..resources import ResourceRegistry
from ..results import ToolResult
from ..run_context import RunContext
from ..session import Session
from ..signals import shielded_run
from ..waiting import BLOCKING, blocking_here, drive
from .admission import gate, screen
from .blocks import Resources, context_of
from .call import Admitted, HandlerOutcome, Refused, ToolCall, ToolReply
from .conclude import abort, conclude_now
from .contexts import CallContext
from .finish import accept, commit, finish, tell
from .options import CallRecorder, ExecutorOptions
from .run import Run, count_in, has_bound_tracker
from .transactions import Savepoint


@dataclass(frozen=True, slots=True)
class _NativeTool:
    """What the stages ask of a tool, for one that is not ours."""

    name: str
    annotations: ToolAnnotations
    max_repeats: int | None = None
    timeout: float | None = None
    isolation: str | None = None
    max_result_chars: int = DEFAULT_MAX_RESULT_CHARS
    idempotency: None = None
    result_type: None = None


@final
class _NativeCalls:
    """Puts calls on record with a mark that says that the harness ran them."""

    def __init__(self, recorder: CallRecorder) -> None:
        self._recorder = recorder
        self.stop: Callable[[], None] = recorder.stop
        self.step_of: Callable[[ToolInvoked], int | None] = recorder.step_of
        self.started: Callable[..., Coroutine[Any, Any, None]] = recorder.started

    @property
    def run_id(self) -> str:
        return self._recorder.run_id

    @property
    def step(self) -> int:
        return self._recorder.step

    @property
    def stopped(self) -> bool:
        return self._recorder.stopped

    async def ended(self, *call: Any, **more: Any) -> None:
        await self._recorder.ended(*call, native=True, **more)


class _Pending(NamedTuple):
    admitted: Admitted
    savepoint: Savepoint | None


@final
@dataclass(slots=True)
class PendingToolTracker:
    """Wraps native tools in the same gate and the same end as our own calls.

    One writing tool at a time: while one is pending, or the session is busy with another call, the next is refused
    rather than mixed up with it. Read-only ones may overlap. Use it from one thread or event loop.

    Args:
        policies: asked before every native tool, like those of a section.
        prompt: named in the events, as is the adapter.
        budget_tracker: a budget that is used up refuses the tool, as does one that is bound among the resources.
        recorder: puts the tools on record, marked as native. A call that cannot be recorded is undone, and
            `RecordError` is raised.
    """

    session: Session
    resources: Resources | None = None
    policies: Sequence[ToolPolicy] = ()
    deadline: Deadline | None = None
    run_context: RunContext | None = None
    prompt: object = None
    adapter: object = None
    budget_tracker: BudgetTracker | None = None
    recorder: CallRecorder | None = None
    _counted: bool = field(init=False, repr=False, default=False)
    _run: Run = field(init=False, repr=False)
    _pending: dict[str, _Pending] = field(init=False, repr=False, default_factory=dict[str, _Pending])

    def __post_init__(self) -> None:
        context = context_of(self.resources)
        options = ExecutorOptions(
            deadline=self.deadline, budget_tracker=self.budget_tracker, run_context=self.run_context
        ).started()
        if self.recorder is not None:
            options = options.replace(recorder=_NativeCalls(self.recorder))
        self._run = Run(
            tools={},
            session=self.session,
            resources=ResourceRegistry().open().open() if context is None else context,
            prompt=self.prompt,
            adapter=self.adapter,
            options=options,
        )

    @property
    def pending(self) -> tuple[str, ...]:
        """The ids of the tools that have begun and not ended."""
        return tuple(self._pending)

    def begin_tool_execution(
        self,
        *,
        tool_use_id: str,
        tool_name: str,
        arguments: Mapping[str, Any] | None = None,
        read_only: bool = False,
        open_world: bool = True,
    ) -> ToolReply | None:
        """Remember everything before a native tool runs; a reply means that it must not run, and why.

        With a recorder, a tool that changes things and is `open_world` is put on record before it runs, so that its
        effect counts as unknown when the process ends in the middle of it.
        """
        call = ToolCall(tool_use_id, tool_name, arguments)
        notes = ToolAnnotations(read_only=read_only, destructive=not read_only, open_world=open_world)
        native = _NativeTool(tool_name, notes)
        with shielded_run():
            return self._begin(call, BoundTool(cast(Any, native), tuple(self.policies)), arguments or {}, read_only)

    def _count_in_bound(self) -> None:
        """The bound tracker stops native tools too; looked for when resources are open for certain."""
        run = self._run
        if not self._counted and has_bound_tracker(run.resources):
            count_in(run, run.resources.get(BudgetTracker))
        self._counted = True

    def _begin(self, call: ToolCall, bound: BoundTool, params: Any, read_only: bool) -> ToolReply | None:
        self._count_in_bound()
        savepoint: Savepoint | None = None
        try:
            self._require_new(call.id)
            request = screen(call, bound, params, self._run)
            savepoint = self._open(call, params, read_only)
            admitted = drive(gate(request, self._run, BLOCKING))
            if self._run.recorder is not None and savepoint is not None:
                drive(self._run.recorder.started(call, bound.tool, savepoint, BLOCKING))
        except Refused as refused:
            if savepoint is not None:
                savepoint.close()
            return conclude_now(call, refused, self._run)
        except BaseException as error:  # noqa: BLE001 - a participant that cannot be remembered, or Ctrl-C
            try:
                return abort(call, params, error, savepoint, self._run)
            finally:
                if savepoint is not None:
                    savepoint.close()
        self._pending[call.id] = _Pending(admitted, savepoint)
        return None

    def end_tool_execution(
        self, *, tool_use_id: str, success: bool, result: ToolResult[Any] | None = None
    ) -> ToolReply | None:
        """Keep or undo what the native tool did; None for an id that is not pending."""
        if result is None:
            result = ToolResult("OK", None) if success else ToolResult.error("The tool failed.")
        return self._end(tool_use_id, HandlerOutcome(result, "succeeded" if success else "failed"))

    def refuse(
        self, *, tool_use_id: str, tool_name: str, text: str, arguments: Mapping[str, Any] | None = None
    ) -> ToolReply:
        """Answer and record a native tool that must not run, for a reason of the harness's own."""
        with shielded_run():
            refused = self._run.memory.refusal_of(tool_use_id) or Refused("refused", text)
            return conclude_now(ToolCall(tool_use_id, tool_name, arguments), refused, self._run)

    def abort(self, *, tool_use_id: str, outcome: Literal["cancelled", "deadline"] = "cancelled") -> ToolReply | None:
        """Undo a tool that will not end by itself; None for an id that is not pending."""
        text = "The tool was interrupted." if outcome == "cancelled" else "The deadline passed while the tool ended."
        return self._end(tool_use_id, HandlerOutcome(ToolResult.error(text), outcome))

    def abort_all(self, *, outcome: Literal["cancelled", "deadline"] = "cancelled") -> tuple[ToolReply, ...]:
        """Undo whatever is pending, newest first; the answers."""
        replies = [self.abort(tool_use_id=tool_use_id, outcome=outcome) for tool_use_id in reversed(self.pending)]
        return tuple(reply for reply in replies if reply is not None)

    def _require_new(self, tool_use_id: str) -> None:
        refused = self._run.memory.refusal_of(tool_use_id)
        if refused is not None:
            raise refused

    def _open(self, call: ToolCall, params: Any, read_only: bool) -> Savepoint | None:
        """The savepoint of a tool that writes; `Refused` while another one is in the way."""
        is_busy = bool(self._pending) and not may_overlap(self.policies) if read_only else self._is_writing()
        savepoint = None if read_only else self._run.savepoint()
        if savepoint is not None:
            savepoint.for_all = True  # the harness's code runs outside of all calls of ours
        if is_busy or (savepoint is not None and not savepoint.try_open()):
            raise Refused(
                "refused",
                f"Another tool is still running, so '{call.name}' was not started.\n"
                "Wait for its result, then call it again.",
                params=params,
            )
        if savepoint is not None:
            savepoint.place_here()
            savepoint.outlive_task()  # hooks of a harness run in tasks of their own
        return savepoint

    def _is_writing(self) -> bool:
        return any(item.savepoint is not None for item in self._pending.values())

    def _end(self, tool_use_id: str, ended: HandlerOutcome) -> ToolReply | None:
        with shielded_run():
            pending = self._pending.pop(tool_use_id, None)
            return None if pending is None else drive(self._complete(pending, ended))

    async def _complete(self, pending: _Pending, ended: HandlerOutcome) -> ToolReply:
        admitted, savepoint, run = pending.admitted, pending.savepoint, self._run
        if savepoint is None:
            # While a writing tool is pending its locks are ours: hooks run in contexts of their own, so that cannot
            # be seen from there.
            savepoint = Savepoint(self.session, run.resources, ()) if self._is_writing() else run.savepoint()
            savepoint.owner.only_through_api = True  # the tool only read, and is over
            await savepoint.open(blocking_here())
        try:
            context = CallContext(admitted.request, run, True)
            accepted = await accept(admitted, ended, context, savepoint, run, BLOCKING)
            told = await tell(accepted, savepoint, run, BLOCKING)
            committed = await commit(told, savepoint, run, BLOCKING)
            return finish(committed, run)
        finally:
            savepoint.close()
