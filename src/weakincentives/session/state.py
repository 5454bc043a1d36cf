"""What all handles of one session share: the contents, the lock, and how each write changes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from threading import get_ident
from typing import Any, final
from uuid import uuid4

from ..clock import Clock
from ..errors import SessionError, SnapshotError
from ..fence import Owner
from ..persistent_map import with_entry, without_entry
from .contents import INITIAL, NOTES, POLICIES, REDUCERS, STATE, Contents, Transform, constant
from .events import Dispatcher, SlicePolicy, SubscriptionChange, own_policy
from .reducers import AnyReducer, DispatchPlan, ReducerStep, append_all, reduced, repeated, with_step
from .snapshots import NO_NOTES, NO_SLICES, LogBuffer, Notes, SliceChange, Slices, Snapshot, compare, same_log
from .vector import EMPTY, Vector

_LOG_ALONE = DispatchPlan(True, True, (), False)
"""Of events that are appended to their LOG slice and nothing else, as nearly all of the engine's are."""


@final
class SessionState(Contents):
    """The shared part of a session. It knows nothing of guards: handles enter theirs around every write."""

    __slots__ = ("__weakref__", "_session_id", "clock", "dispatcher", "subscribed", "tags")
    # Of `Contents`: without them, checkers of packages that use this one infer narrower types from assignments here.
    state: Slices
    initial: Slices
    logged: LogBuffer
    notes: Notes
    policies: Mapping[type[Any], SlicePolicy]
    reducers: Mapping[type[Any], tuple[ReducerStep, ...]]

    def __init__(self, dispatcher: Dispatcher, clock: Clock, tags: Mapping[str, str], session_id: str | None) -> None:
        Contents.__init__(self)
        self.dispatcher: Dispatcher = dispatcher
        self.subscribed: list[SubscriptionChange] = []
        self.clock: Clock = clock
        self.tags: Mapping[str, str] = tags
        self._session_id = session_id

    def adopt(self, other: SessionState) -> None:
        """Start with the content and the registrations of another core; neither sees the other's later changes."""
        with other.lock:
            self.state, self.logs, self.initial = other.state, other.logs, other.initial
            self.policies, self.reducers, self.notes = other.policies, other.reducers, other.notes

    @property
    def session_id(self) -> str:
        """Made when first asked for, since most sessions are never asked."""
        if self._session_id is None:
            with self.lock:
                if self._session_id is None:
                    self._session_id = str(uuid4())
        return self._session_id

    # Writing. While a savepoint is open each write is noted first: should Ctrl-C come in between, it is undone anyway.

    def record(self, event: object, unowned: bool = False) -> None:
        """Run the event's reducers, or append it to its own slice; all of it or, with `ReducerError`, nothing."""
        if self._reducing:
            self.refuse_impure_writes()
        event_type = type(event)
        with self.lock:
            _, is_log, steps, is_pending = plan = self._plans.get(event_type) or self._plan(event_type)
            if steps:
                self._reduce(event, event_type, plan, unowned)
            elif is_log:
                if is_pending and self.calls:
                    self.note_write(STATE, event_type, partial(_appended, event), unowned=unowned)
                self.logged.fresh.append(event)
            else:
                self._append(event_type, event, unowned)

    def record_unowned(self, event: object) -> None:
        """Record an event of the engine: what its reducers make of it belongs to no call, so no call undoes it."""
        # The engine's own events are recorded with every call, so they skip the plan and the log of writes: an event
        # that is only appended to a LOG slice is never undone, and there is nothing to note for it.
        if self._plans.get(type(event)) is _LOG_ALONE and not self._reducing:
            with self.lock:
                self.logged.fresh.append(event)
        else:
            self.record(event, True)

    def append(self, slice_type: type[Any], value: object) -> None:
        """Append a checked value to a slice."""
        if self._reducing:
            self.refuse_impure_writes()
        with self.lock:
            plan = self._plans.get(slice_type) or self._plan(slice_type)
            if plan.is_log:
                if plan.is_pending and self.calls:
                    self.note_write(STATE, slice_type, partial(_appended, value))
                self.logs = {**self.logs, slice_type: self.logs.get(slice_type, EMPTY).append(value)}
            else:
                self._append(slice_type, value)

    def replace(self, slice_type: type[Any], values: Vector[Any]) -> None:
        """Make checked values the only ones; a LOG slice that has some already refuses."""
        self.refuse_impure_writes()
        with self.lock:
            if self.view(slice_type) and self.policy(slice_type) is SlicePolicy.LOG:
                raise SessionError(
                    f"{slice_type.__qualname__} is a LOG slice and not empty: it can only grow. Use append()."
                )
            self._set(slice_type, values, constant(values))

    def clear(self, slice_type: type[Any], predicate: Callable[[Any], object] | None) -> None:
        """Remove items of a STATE slice; what the predicate raises passes through, and nothing is removed."""
        self.refuse_impure_writes()
        with self.lock:
            if self.policy(slice_type) is SlicePolicy.LOG:
                raise SessionError(
                    f"{slice_type.__qualname__} is a LOG slice: it can only grow. "
                    f"Its owner may empty it with session.clear_log({slice_type.__qualname__})."
                )
            if predicate is None:
                self._set(slice_type, EMPTY, constant(EMPTY))
                return
            remaining = partial(_without, predicate)
            self._set(slice_type, self.pure(remaining, self.view(slice_type)), remaining)

    def clear_log(self, slice_type: type[Any], predicate: Callable[[Any], object] | None) -> None:
        """Remove items of a LOG slice; otherwise as `clear`."""
        self.refuse_impure_writes()
        with self.lock:
            if self.policy(slice_type) is not SlicePolicy.LOG:
                name = slice_type.__qualname__
                raise SessionError(f"{name} is a STATE slice; use session[{name}].clear().")
            content = EMPTY if predicate is None else self.pure(partial(_without, predicate), self.view(slice_type))
            self.logged = LogBuffer({**self.logs, slice_type: content}, [], self.logged.epoch + 1)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the STATE slices; refuses a snapshot of another session, or a released one."""
        self.refuse_impure_writes()
        state = self._content_of(snapshot)
        with self.lock:
            if snapshot.initial is not self.initial or snapshot.policies is not self.policies:
                state = self._as_shown_in(snapshot, state)
            if self.calls or self.policies:
                self.replace_all(state, snapshot.notes)
            else:
                self.state, self.notes = state, snapshot.notes

    def _as_shown_in(self, snapshot: Snapshot, state: Slices) -> Slices:
        """The snapshot's state, with what other slices showed then and would not show as they are registered now.

        Their initial content was replaced or undone since, or only a call that was undone since made them LOGs. A slice
        that showed nothing and was not registered then is left out: it has the initial content that it has now.
        """
        for slice_type in {*snapshot.initial, *snapshot.policies}:
            if slice_type not in state and self.policy(slice_type) is not SlicePolicy.LOG:
                shown = snapshot.logs().get(slice_type)
                if shown is None:
                    shown = snapshot.initial.get(slice_type)
                if shown is not None and shown is not self.initial.get(slice_type):
                    state = {**state, slice_type: shown}
        return state

    def note(self, key: object, value: object) -> None:
        """Remember a fact beside the slices; None forgets it."""
        with self.lock:
            notes = self.notes
            if value is not None:
                notes = with_entry(notes, key, value)
            elif key in notes:
                notes = without_entry(notes, key)
            if self.calls:
                self.note_write(NOTES, key, constant(value))
            self.notes = notes

    def reset(self, *, logs: bool) -> None:
        """Give the STATE slices their initial content; `logs` empties the others too."""
        self.refuse_impure_writes()
        with self.lock:
            self.replace_all(NO_SLICES, NO_NOTES)
            if logs:
                self.logged = LogBuffer(NO_SLICES, [], self.logged.epoch + 1)

    def replace_all(self, state: Slices, notes: Notes, unowned: Collection[type[Any]] = ()) -> None:
        """Give every slice and note the content it has there; slices that have become LOGs stay as they are.

        Needs the lock. No call owns the writes to the slices in `unowned`.
        """
        for slice_type, policy in self.policies.items():
            if policy is SlicePolicy.LOG and slice_type in state:
                state = without_entry(state, slice_type)
        if self.calls:
            # A key that has the same content before and after is noted if it was written to: undoing that write
            # must not restore what was replaced here.
            touched = dict.fromkeys((write.space, write.key) for write in self.writes)
            noted: list[tuple[int, Any, Transform, None]] = []
            for space, before, after in ((STATE, self.state, state), (NOTES, self.notes, notes)):
                for key in dict.fromkeys((*before, *after, *(key for place, key in touched if place == space))):
                    value = after.get(key)
                    is_kept = space == STATE and self.policy(key) is SlicePolicy.LOG
                    if not is_kept and (value is not before.get(key) or (space, key) in touched):
                        noted.append((space, key, constant(value), None))
            self.note_writes([write for write in noted if write[1] not in unowned], False)
            self.note_writes([write for write in noted if write[1] in unowned], True)
        self.state, self.notes = state, notes

    def changes(self, since: Snapshot, *, logs: bool) -> tuple[SliceChange, ...]:
        """The slices that show something else than in a snapshot because of what was written or undone since."""
        before = self._content_of(since)
        if since.initial is not self.initial or since.policies is not self.policies:
            before = self._as_shown_in(since, before)
        found = compare(before, self.state, self.initial, SlicePolicy.STATE)
        if logs:
            logged = self.logs
            same = same_log if since.epoch == self.logged.epoch else None
            found += compare(since.logs(), logged, self.initial, SlicePolicy.LOG, same)
        return tuple(found)

    # Registering.

    def register(
        self, slice_type: type[Any], event_type: type[Any], reducer: AnyReducer, policy: SlicePolicy | None
    ) -> None:
        """Run `reducer` on the slice for each such event; an equal one that is registered already is replaced."""
        self.refuse_impure_writes()
        with self.lock:
            if policy is not None:
                self.declare(slice_type, policy)
            is_own_log = slice_type is event_type and self.policy(slice_type) is SlicePolicy.LOG
            if is_own_log and reducer is not append_all:
                raise SessionError(
                    f"{slice_type.__qualname__} is a LOG slice: its own events are recorded as they are. "
                    "Register the reducer on another slice."
                )
            added = partial(with_step, ReducerStep(slice_type, reducer))
            reducers = {**self.reducers, event_type: added(self.reducers.get(event_type))}
            if self.calls:
                self.note_write(REDUCERS, event_type, added)
            self.reducers = reducers
            self._plans = {}

    def declare(self, slice_type: type[Any], policy: SlicePolicy) -> None:
        """Give a slice its policy; refuses to change one that its class names or that its content depends on."""
        with self.lock:
            known = self.policies.get(slice_type) or own_policy(slice_type)
            if known is None and self.view(slice_type):
                known = SlicePolicy.STATE
            if known is not None and known is not policy:
                raise SessionError(
                    f"{slice_type.__qualname__} is a {known.name} slice already and cannot become {policy.name}. "
                    "Name the policy in the class (slice_policy), or register before the first item."
                )
            state = self.state
            if policy is SlicePolicy.LOG and slice_type in state:
                state = without_entry(state, slice_type)  # empty, but it would hide the items among the logs
            if self.calls:
                is_new_log = known is None and policy is SlicePolicy.LOG
                gone = [(STATE, slice_type, constant(None), None)] if is_new_log else []
                self.note_writes([*gone, (POLICIES, slice_type, constant(policy), None)], False)
            self.state, self.policies = state, {**self.policies, slice_type: policy}
            self._plans = {}

    def set_initial(self, slice_type: type[Any], content: Vector[Any]) -> None:
        """Say what a slice holds that was never written to."""
        with self.lock:
            if self.calls:
                self.note_write(INITIAL, slice_type, constant(content))
            self.initial = {**self.initial, slice_type: content}

    # Savepoints; see `savepoints.py`.

    def close_savepoint(self, owner: Owner) -> None:
        """Forget an open savepoint. Without the last one the logs of writes and subscriptions end."""
        with self.lock:
            self.forget_mark(owner)
            if not self.calls:
                self.subscribed.clear()

    # Inside.

    def _content_of(self, snapshot: Snapshot) -> Slices:
        if snapshot.home is not self:
            raise SnapshotError("This snapshot was taken of another session; restore it there.")
        if snapshot.state is None:
            raise SnapshotError("This snapshot was released; take another one.")
        return snapshot.state

    def _append(self, slice_type: type[Any], value: object, unowned: bool = False) -> None:
        if self.calls:
            self.note_write(STATE, slice_type, partial(_appended, value), unowned=unowned)
        state = self.state
        content = state.get(slice_type)
        if content is None:
            content = self.initial.get(slice_type, EMPTY)
        self.state = {**state, slice_type: content.append(value)}

    def _set(self, slice_type: type[Any], content: Vector[Any], transform: Transform) -> None:
        is_log = self.policy(slice_type) is SlicePolicy.LOG
        if self.calls and (not is_log or self.is_pending(slice_type)):
            self.note_write(STATE, slice_type, transform)
        if is_log:
            self.logs = {**self.logs, slice_type: content}
        elif content is not self.view(slice_type):
            self.state = {**self.state, slice_type: content}

    def _plan(self, event_type: type[Any]) -> DispatchPlan:
        if own_policy(event_type) is SlicePolicy.LOG and event_type not in self.reducers:  # as the engine's own events
            self._plans[event_type] = _LOG_ALONE
            return _LOG_ALONE
        is_log = self.policy(event_type) is SlicePolicy.LOG
        registered = self.reducers.get(event_type, ())
        steps = tuple((step, self.policy(step.slice_type) is SlicePolicy.LOG) for step in registered)
        own = any(step.slice_type is event_type for step in registered)
        plan = DispatchPlan(is_log and not own, is_log, steps, is_log and self.is_pending(event_type))
        if plan == _LOG_ALONE:
            plan = _LOG_ALONE
        self._plans[event_type] = plan
        return plan

    def _reduce(self, event: object, event_type: type[Any], plan: DispatchPlan, unowned: bool) -> None:
        state, logs = self.state, self.logs
        if plan.appends:
            logs = {**logs, event_type: logs.get(event_type, EMPTY).append(event)}
        self._reducing = get_ident()
        try:
            for step, is_log in plan.steps:
                slice_type = step.slice_type
                content = (logs if is_log else state).get(slice_type)
                if content is None:
                    content = self.initial.get(slice_type, EMPTY)
                result = reduced(step, content, event, is_log)
                if is_log:
                    logs = {**logs, slice_type: result}
                elif result is not content:
                    state = {**state, slice_type: result}
        finally:
            self._reducing = 0
        if self.calls:
            self._note_reductions(event, event_type, plan, unowned)
        # The log first: should Ctrl-C come in between, then what happened is at least on record.
        self.logs = logs
        self.state = state

    def _note_reductions(self, event: object, event_type: type[Any], plan: DispatchPlan, unowned: bool) -> None:
        noted: list[tuple[int, Any, Transform, type[Any] | None]] = []
        if plan.appends and plan.is_pending:
            noted.append((STATE, event_type, partial(_appended, event), None))
        for step, is_log in plan.steps:
            if not is_log or self.is_pending(step.slice_type):
                noted.append((STATE, step.slice_type, partial(repeated, step, event), event_type))
        self.note_writes(noted, unowned)


def _appended(value: object, content: Vector[Any]) -> Vector[Any]:
    return content.append(value)


def _without(predicate: Callable[[Any], object], content: Vector[Any]) -> Vector[Any]:
    return content.without(predicate)
