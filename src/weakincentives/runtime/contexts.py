"""What handlers and policies hold while a call runs: handles that end with the call, or never write."""

from __future__ import annotations

from threading import Lock
from typing import Any, cast, final

from ..budget import BudgetTracker
from ..errors import StaleCallError
from ..fence import Fence, Guard, Owner
from ..prompt.events import Outcome
from ..prompt.tool_context import ContextFields as _Fields
from ..prompt.tool_context import ToolContext
from ..resources import ToolScope
from ..session import Session
from .call import Request
from .handler_watch import HandlerWatch
from .ledger.leases import Held
from .participants import CallResources
from .run import Run


class _CallFields(_Fields):
    """The fields of a `CallContext` while they can still be set, as with `ToolContext`."""

    __slots__ = (
        "_around", "_fence", "_held", "_over", "_owner", "_request", "_resources", "_run", "_scope", "_session",
        "_writes",
    )  # fmt: skip

    _request: Request
    _run: Run
    _writes: bool
    _around: Guard | None
    _owner: Owner | None
    _fence: Guard | None
    _held: Held | None
    _over: str | None
    _scope: ToolScope | None
    _session: Session | None
    _resources: CallResources | None


@final
class CallContext(_CallFields, ToolContext):
    """The context of one call. Its handles are made when first asked for: many handlers need none.

    `end` makes them worthless. A thread that outlives its call may still be asking for its first handle then. Handles
    are made under a lock, and made closed once the call is over; `end` takes the same lock before it looks for them.
    """

    __slots__ = ()

    @property
    def session(self) -> Session:  # pyright: ignore[reportIncompatibleVariableOverride] # made when asked for
        """The session; writes raise once the call is over."""
        handle = self._session
        if handle is None:
            handle = self._run.session.guarded(self.guard())
            _set_session(self, handle)
        return handle

    @property
    def resources(self) -> CallResources:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The resources; files are fenced like the session."""
        found = self._resources
        if found is None:
            if self._fence is None and self._scope is None:
                self._make_both()
            found = CallResources(self.scope(), self.guard(), self._run.resources)
            _set_resources(self, found)
        return found

    def _make_both(self) -> None:
        """Scope and guard under one lock: a call that works on files asks for both at once."""
        with _making:
            if self._fence is None and self._scope is None:
                _set_fence(self, self._new_guard())
                _set_scope(self, self._new_scope())

    def scope(self) -> ToolScope:
        """The resources of this call alone."""
        scope = self._scope
        if scope is None:
            with _making:
                scope = self._scope
                if scope is None:
                    scope = self._new_scope()
                    _set_scope(self, scope)
        return scope

    def guard(self) -> Guard:
        """What its writes happen in."""
        guard = self._fence
        if guard is None:
            with _making:
                guard = self._fence
                if guard is None:
                    guard = self._new_guard()
                    _set_fence(self, guard)
        return guard

    def _new_guard(self) -> Guard:
        if not self._writes:
            return self._run.read_only_guard(self._request.call.name)
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
        """Another context of the same call, to settle it with: its handles write, even if these only read."""
        return call_context(self._request, self._run, True, self._around, self._owner)

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
            _set_over(self, reason)
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
        if self._held is not None:
            self._held.beat()

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
        return None if self._held is None else self._held.key

    @property
    def fencing_token(self) -> int | None:
        """The number of the call's claim in the ledger, or None."""
        return None if self._held is None else self._held.token

    @property
    def watch(self) -> HandlerWatch | None:
        """What sees the handler end, for a call that holds a claim; else None."""
        return None if self._held is None else self._held.watch

    def hold(self, held: Held) -> None:
        """Say under which claim the call runs."""
        if self._owner is not None:  # a lookup before the handler has no savepoint
            held.owner = self._owner
        _set_held(self, held)

    @property
    def _budget_tracker(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._run.budget_tracker

    @property
    def _source(self) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """It is no copy of another context."""
        return


def call_context(
    request: Request, run: Run, writes: bool, around: Guard | None = None, owner: Owner | None = None
) -> CallContext:
    """The context of a call; a function, because a constructor takes twice as long and every call needs one.

    `owner` is the call's savepoint: what is written through the context's handles belongs to it.
    """
    self: Any = _new(_CallFields)
    self._request = request
    self._run = run
    self._writes = writes
    self._around = around
    self._owner = owner
    self._fence = self._held = self._over = self._scope = self._session = self._resources = None
    self.__class__ = CallContext
    return self


def _scope_of(run: Run) -> ToolScope:
    """The resources of a call; the run's tracker is among them, bound or passed."""
    tracker = run.budget_tracker
    if tracker is None:
        return run.resources.tool_scope()
    return run.resources.tool_scope(overrides={BudgetTracker: tracker})


_new = object.__new__
_making = Lock()
"""Two threads of a handler may ask for their first handle at once; there must be one fence and one scope."""

# The fields cannot be set from outside; these are their slots.
_set_fence = _CallFields.__dict__["_fence"].__set__
_set_held = _CallFields.__dict__["_held"].__set__
_set_over = _CallFields.__dict__["_over"].__set__
_set_scope = _CallFields.__dict__["_scope"].__set__
_set_session = _CallFields.__dict__["_session"].__set__
_set_resources = _CallFields.__dict__["_resources"].__set__


_ENDINGS: dict[Outcome, str] = {
    "timeout": "it ran out of time",
    "deadline": "the deadline passed",
    "cancelled": "it was cancelled",
}


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


__all__ = ["CallContext", "call_context"]
