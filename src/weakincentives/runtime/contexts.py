"""What handlers and policies hold while a call runs: handles that end with the call, or never write."""

from __future__ import annotations

from typing import Any, cast, final

from ..budget import BudgetTracker
from ..errors import StaleCallError
from ..fence import Fence, Guard, Owner
from ..filesystem.views import FilesView
from ..interrupts import Lock
from ..prompt.events import Outcome
from ..prompt.tool_context import ToolContext
from ..resources.context import ResourceContext, ToolScope
from ..session import Session
from .call import Request
from .handler_watch import HandlerWatch
from .ledger.leases import LedgerLease
from .locks import is_filesystem
from .run import Run
from .transactions import Savepoint


@final
class CallContext(ToolContext):
    """The context of one call. Its handles are made when first asked for: many handlers need none.

    What is written through the handles belongs to `savepoint`; without one, `writes` is false or the writes belong to
    no call. `end` revokes them. A thread that outlives its call may still be asking for its first handle then. Handles
    are made under a lock, and made closed once the call is over; `end` takes the same lock before it looks for them.
    """

    __slots__ = (
        "_around", "_fence", "_lease", "_over", "_owner", "_request", "_resources", "_run", "_scope", "_session",
        "_writes",
    )  # fmt: skip

    # The public fields are properties, so they still cannot be set.
    __setattr__: Any = object.__setattr__
    __delattr__: Any = object.__delattr__

    def __init__(self, request: Request, run: Run, writes: bool, savepoint: Savepoint | None = None) -> None:
        self._request = request
        self._run = run
        self._writes = writes
        self._owner: Owner | None = None if savepoint is None else savepoint.owner
        self._around: Guard | None = None
        if savepoint is not None and savepoint.owner.around is not None:
            self._around = savepoint.enclosing_fence()
        self._fence: Guard | None = None
        self._lease: LedgerLease | None = None
        self._over: str | None = None
        self._scope: ToolScope | None = None
        self._session: Session | None = None
        self._resources: CallResources | None = None

    @property
    def session(self) -> Session:  # pyright: ignore[reportIncompatibleVariableOverride] # made when asked for
        """The session; writes raise once the call is over."""
        handle = self._session
        if handle is None:
            name, run = self._request.call.name, self._run
            self._session = handle = run.session.guarded(self.guard()) if self._writes else run.read_only(name)[1]
        return handle

    @property
    def resources(self) -> CallResources:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The resources; files are fenced like the session."""
        found = self._resources
        if found is None:
            if self._fence is None and self._scope is None:
                self._make_both()
            found = CallResources(self.scope(), self.guard(), self._run.resources, self._run.files_view)
            self._resources = found
        return found

    def _make_both(self) -> None:
        """Scope and guard under one lock: a call that works on files asks for both at once."""
        with _making:
            if self._fence is None and self._scope is None:
                self._fence = self._new_guard()
                self._scope = self._new_scope()

    def scope(self) -> ToolScope:
        """The resources of this call alone."""
        scope = self._scope
        if scope is None:
            with _making:
                scope = self._scope
                if scope is None:
                    scope = self._new_scope()
                    self._scope = scope
        return scope

    def guard(self) -> Guard:
        """What its writes happen in."""
        guard = self._fence
        if guard is None:
            with _making:
                guard = self._fence
                if guard is None:
                    guard = self._new_guard()
                    self._fence = guard
        return guard

    def _new_guard(self) -> Guard:
        if not self._writes:
            return self._run.read_only(self._request.call.name)[0]
        fence = Fence(self._around, self._owner)
        if self._over is not None:  # closed before another thread can get it, or that one could still write
            fence.close(self._over)
        return fence

    def _new_scope(self) -> ToolScope:
        scope = _scope_of(self._run)
        if self._over is not None:
            scope.close()
        return scope

    def writing(self) -> CallContext:
        """Another context of the same call, to complete it with: its handles write, even if these only read."""
        context = CallContext(self._request, self._run, True)
        context._around, context._owner = self._around, self._owner
        return context

    def give_up(self) -> None:
        """Have the handler's work stop, as far as it is ours; it may still run, and would begin calls.

        For a call that is over, or will be as soon as it is its turn to be answered.
        """
        if self._owner is not None:
            self._owner.ended = self._run.locks

    def end(self, outcome: Outcome) -> None:
        """Close what was built for the call, then refuse all further writes."""
        scope = self._scope
        try:
            if scope is not None:
                scope.close()
        finally:
            reason = _ENDINGS.get(outcome)
            if reason is None:
                reason = "it returned"
            else:
                self.give_up()
            self._over = reason
            fence = self._fence
            if fence is None or scope is None:
                with _making:  # a handle that is being made now is known here; one that is made later is made closed
                    fence, made = self._fence, self._scope
                if made is not scope and made is not None:
                    made.close()
            if fence is not None and self._writes:
                cast("Fence", fence).close(reason)

    def require_active(self) -> None:
        """`StaleCallError` once the call is over."""
        if self._writes:
            with self.guard():  # closing it is what ends a call, so no end can be missed
                return
        if self._over is not None:
            raise StaleCallError(f"This call is over ({self._over}). Do all work before the handler returns.")

    def beat(self) -> None:
        """Say that the work is alive; `StaleCallError` once the call is over, so that no lease is kept for nothing."""
        if self._over is not None:
            raise StaleCallError(f"This call is over ({self._over}), so it has no heartbeat any more.")
        super().beat()
        if self._lease is not None:
            self._lease.beat()

    # What does not change from call to call is the run's.

    @property
    def prompt(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The prompt being evaluated; its resources are those of this call."""
        prompt = self._run.prompt
        return prompt if prompt is None else CallPrompt(prompt, self)

    @property
    def rendered_prompt(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the model was sent."""
        return self._run.rendered_prompt

    @property
    def adapter(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The adapter that evaluates the prompt."""
        return self._run.adapter

    @property
    def deadline(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The run's deadline, or None."""
        return self._run.deadline

    @property
    def heartbeat(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The run's heartbeat, or None."""
        return self._run.heartbeat

    @property
    def run_context(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The run's correlation ids, or None."""
        return self._run.run_context

    @property
    def call_id(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The model's id of the call."""
        return self._request.call.id

    @property
    def tool_name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tool that was called."""
        return self._request.call.name

    @property
    def idempotency_key(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The call's key in the ledger, or None for a tool that declares no idempotency."""
        return None if self._lease is None else self._lease.key

    @property
    def fencing_token(self) -> int | None:
        """The number of the call's claim in the ledger, or None."""
        return None if self._lease is None else self._lease.token

    @property
    def watch(self) -> HandlerWatch | None:
        """What sees the handler end, for a call that holds a claim; else None."""
        return None if self._lease is None else self._lease.watch

    def hold(self, lease: LedgerLease) -> None:
        """Say under which claim the call runs."""
        if self._owner is not None:  # a lookup before the handler has no savepoint
            lease.owner = self._owner
        self._lease = lease

    @property
    def _budget_tracker(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._run.budget_tracker

    @property
    def _source(self) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """It is not a copy of another context."""
        return


def _scope_of(run: Run) -> ToolScope:
    """The resources of a call; the run's tracker is among them, bound or passed."""
    tracker = run.budget_tracker
    if tracker is None:
        return run.resources.tool_scope()
    return run.resources.tool_scope(overrides={BudgetTracker: tracker})


_making = Lock()
"""Two threads of a handler may ask for their first handle at once; there must be one fence and one scope."""

_ENDINGS: dict[Outcome, str] = {
    "timeout": "it ran out of time",
    "deadline": "the deadline passed",
    "cancelled": "it was cancelled",
}


_MISSING: Any = object()


@final
class CallResources:
    """A tool scope whose filesystems are fenced: what a handler gets here writes nothing once its call is over."""

    __slots__ = ("_guard", "_guarded", "_scope", "_shared", "_view")

    def __init__(self, scope: ToolScope, guard: Guard, shared: ResourceContext, view: FilesView) -> None:
        self._shared = shared
        self._view = view
        self._scope = scope
        self._guard = guard
        self._guarded: dict[Any, Any] | None = None

    def get(self, resource_type: Any, /, default: Any = _MISSING) -> Any:
        """The resource, built on first use; see `ResourceContext.get`."""
        found = self._scope.get(resource_type) if default is _MISSING else self._scope.get(resource_type, default)
        return self._fenced(resource_type, found)

    async def aget(self, resource_type: Any, /, default: Any = _MISSING) -> Any:
        """Like `get`, for async code."""
        if default is _MISSING:
            return self._fenced(resource_type, await self._scope.aget(resource_type))
        return self._fenced(resource_type, await self._scope.aget(resource_type, default))

    def __contains__(self, resource_type: object, /) -> bool:
        return resource_type in self._scope

    def __repr__(self) -> str:
        return repr(self._shared)

    def _fenced(self, resource_type: Any, found: Any) -> Any:
        if not is_filesystem(found.__class__):
            return found
        if self._guarded is None:
            self._guarded = {}
        guarded = self._guarded.get(resource_type)
        if guarded is None:
            guarded = self._guarded[resource_type] = self._view(found, self._guard)
        return guarded


def unfenced(resources: CallResources) -> tuple[ResourceContext, Guard]:
    """What outlives the call, and the call's guard: for a transaction inside it, whose undo must pass the guard."""
    return resources._shared, resources._guard  # pyright: ignore[reportPrivateUsage] # a friend of the class


@final
class CallPrompt:
    """A prompt as a handler sees it: everything is the prompt's own, but the resources are those of the call."""

    __slots__ = ("_context", "_prompt")

    def __init__(self, prompt: Any, context: CallContext) -> None:
        self._prompt = prompt
        self._context = context

    @property
    def resources(self) -> CallResources:
        """The resources of the call, as `context.resources`."""
        return self._context.resources

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prompt, name)

    def __eq__(self, other: object) -> bool:
        return self._prompt is (other._prompt if type(other) is CallPrompt else other)

    def __hash__(self) -> int:
        return hash(self._prompt)

    def __repr__(self) -> str:
        return repr(self._prompt)
