"""What all handles of one session share: a lock, the content of the slices, and the registrations.

Content and registrations are immutable values in plain attributes. Writers replace them while they hold the lock;
readers just read them, so a reader never waits and never sees half of a dispatch. That also makes snapshots, forks
and clones a matter of copying a few references. Only what was just logged waits in a list until somebody looks: most
events are recorded for a reader who comes much later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock, get_ident
from typing import Any, NamedTuple, final
from uuid import uuid4

from immutables import Map

from ..clock import Clock
from ..errors import ReducerError, SessionError, SnapshotError
from .events import Dispatcher, SlicePolicy, own_policy
from .operations import apply
from .reducers import append_all
from .snapshots import (
    NO_LOGS,
    NO_NOTES,
    NO_SLICES,
    Logged,
    Logs,
    Notes,
    SliceChange,
    Slices,
    Snapshot,
    compare,
    same_log,
)
from .vector import EMPTY, Vector

AnyReducer = Callable[[Vector[Any], Any], object]


class Step(NamedTuple):
    """One reducer to run for an event, and the slice it reduces."""

    slice_type: type[Any]
    reducer: AnyReducer


class Plan(NamedTuple):
    """What recording an event of one type does; worked out once, until something is registered."""

    appends: bool
    is_log: bool
    steps: tuple[tuple[Step, bool], ...]


@final
class Core:
    """The shared part of a session. It knows nothing of guards: handles enter theirs around every write."""

    __slots__ = (
        "_plans",
        "_reducing",
        "_session_id",
        "clock",
        "dispatcher",
        "initial",
        "lock",
        "logged",
        "notes",
        "policies",
        "reducers",
        "state",
        "tags",
    )

    def __init__(self, dispatcher: Dispatcher, clock: Clock, tags: Mapping[str, str], session_id: str | None) -> None:
        self.lock = RLock()
        self.dispatcher = dispatcher
        self.clock = clock
        self.tags = tags
        self.state: Slices = NO_SLICES
        self.logged = Logged(NO_LOGS, [], 0)
        self.initial: Slices = NO_SLICES
        self.notes: Notes = NO_NOTES
        self.policies: Map[type[Any], SlicePolicy] = Map()
        self.reducers: Map[type[Any], tuple[Step, ...]] = Map()
        self._plans: dict[type[Any], Plan] = {}
        self._reducing = 0
        self._session_id = session_id

    def adopt(self, other: Core) -> None:
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

    # Reading: no lock, since every attribute holds an immutable value; but for what was just logged.

    @property
    def logs(self) -> Logs:
        """The content of the LOG slices now."""
        if self.logged.fresh:
            with self.lock:
                self.logs = self.logged.all()
        return self.logged.logs

    @logs.setter
    def logs(self, logs: Logs) -> None:
        self.logged = Logged(logs, [], self.logged.epoch)

    def view(self, slice_type: type[Any]) -> Vector[Any]:
        """The content of a slice now."""
        content = self.state.get(slice_type)
        if content is None:
            content = self.logs.get(slice_type)
            if content is None:
                return self.initial.get(slice_type, EMPTY)
        return content

    def policy(self, slice_type: type[Any]) -> SlicePolicy:
        """What was registered for the slice, else what its class says, else STATE."""
        registered = self.policies.get(slice_type)
        return registered or own_policy(slice_type) or SlicePolicy.STATE

    # Writing.

    def record(self, event: object) -> None:
        """Run the event's reducers, or append it to its own slice; all of it or, with `ReducerError`, nothing."""
        if self._reducing:
            self.refuse_impure_writes()
        event_type = type(event)
        with self.lock:
            _, is_log, steps = plan = self._plans.get(event_type) or self._plan(event_type)
            if steps:
                self._reduce(event, event_type, plan)
            elif is_log:
                self.logged.fresh.append(event)
            else:
                self._append(event_type, event)

    def append(self, slice_type: type[Any], value: object) -> None:
        """Append a checked value to a slice."""
        if self._reducing:
            self.refuse_impure_writes()
        with self.lock:
            plan = self._plans.get(slice_type) or self._plan(slice_type)
            if plan.is_log:
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
            self._set(slice_type, values)

    def clear(self, slice_type: type[Any], predicate: Callable[[Any], object] | None) -> None:
        """Remove items of a STATE slice; what the predicate raises passes through, and nothing is removed."""
        self.refuse_impure_writes()
        with self.lock:
            if self.policy(slice_type) is SlicePolicy.LOG:
                raise SessionError(
                    f"{slice_type.__qualname__} is a LOG slice: it can only grow. "
                    f"Its owner may empty it with session.clear_log({slice_type.__qualname__})."
                )
            self._set(slice_type, self._without(slice_type, predicate))

    def clear_log(self, slice_type: type[Any], predicate: Callable[[Any], object] | None) -> None:
        """Remove items of a LOG slice; otherwise as `clear`."""
        self.refuse_impure_writes()
        with self.lock:
            if self.policy(slice_type) is not SlicePolicy.LOG:
                name = slice_type.__qualname__
                raise SessionError(f"{name} is a STATE slice; use session[{name}].clear().")
            content = self._without(slice_type, predicate)
            self.logged = Logged({**self.logs, slice_type: content}, [], self.logged.epoch + 1)

    def restore(self, snapshot: Snapshot) -> None:
        """Bring the STATE slices back; refuses a foreign or released snapshot."""
        self.refuse_impure_writes()
        state = self._content_of(snapshot)
        with self.lock:
            self.state, self.notes = state, snapshot.notes

    def note(self, key: object, value: object) -> None:
        """Remember a fact beside the slices; None forgets it."""
        with self.lock:
            if value is not None:
                self.notes = self.notes.set(key, value)
            elif key in self.notes:
                self.notes = self.notes.delete(key)

    def reset(self, *, logs: bool) -> None:
        """Give the STATE slices their initial content; `logs` empties the others too."""
        self.refuse_impure_writes()
        with self.lock:
            self.state, self.notes = NO_SLICES, NO_NOTES
            if logs:
                self.logged = Logged(NO_LOGS, [], self.logged.epoch + 1)

    def changes(self, since: Snapshot, *, logs: bool) -> tuple[SliceChange, ...]:
        """The slices written to since a snapshot."""
        found = compare(self._content_of(since), self.state, self.initial, SlicePolicy.STATE)
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
            steps = self.reducers.get(event_type, ())
            step = Step(slice_type, reducer)
            if step not in steps:
                steps = (*steps, step)
            steps = tuple(step if known == step else known for known in steps)
            self.reducers = self.reducers.set(event_type, steps)
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
            self.policies = self.policies.set(slice_type, policy)
            self._plans = {}

    def set_initial(self, slice_type: type[Any], content: Vector[Any]) -> None:
        """Say what a slice holds that was never written to."""
        with self.lock:
            self.initial = self.initial.set(slice_type, content)

    # Inside.

    def refuse_impure_writes(self) -> None:
        """Raise when a reducer or predicate of this thread is running: its dispatch would overwrite the change."""
        if self._reducing and self._reducing == get_ident():
            raise SessionError(
                "A reducer or predicate wrote to its session. They are pure: return an operation instead."
            )

    def _content_of(self, snapshot: Snapshot) -> Slices:
        if snapshot.home is not self:
            raise SnapshotError("This snapshot was taken of another session; restore it there.")
        if snapshot.state is None:
            raise SnapshotError("This snapshot was released; take another one.")
        return snapshot.state

    def _without(self, slice_type: type[Any], predicate: Callable[[Any], object] | None) -> Vector[Any]:
        if predicate is None:
            return EMPTY
        self._reducing = get_ident()
        try:
            return self.view(slice_type).without(predicate)
        finally:
            self._reducing = 0

    def _append(self, slice_type: type[Any], value: object) -> None:
        state = self.state
        content = state.get(slice_type)
        if content is None:
            content = self.initial.get(slice_type, EMPTY)
        self.state = state.set(slice_type, content.append(value))

    def _set(self, slice_type: type[Any], content: Vector[Any]) -> None:
        if self.policy(slice_type) is SlicePolicy.LOG:
            self.logs = {**self.logs, slice_type: content}
        elif content is not self.view(slice_type):
            self.state = self.state.set(slice_type, content)

    def _plan(self, event_type: type[Any]) -> Plan:
        is_log = self.policy(event_type) is SlicePolicy.LOG
        registered = self.reducers.get(event_type, ())
        steps = tuple((step, self.policy(step.slice_type) is SlicePolicy.LOG) for step in registered)
        own = any(step.slice_type is event_type for step in registered)
        plan = Plan(is_log and not own, is_log, steps)
        self._plans[event_type] = plan
        return plan

    def _reduce(self, event: object, event_type: type[Any], plan: Plan) -> None:
        state, logs = self.state, self.logs
        if plan.appends:
            logs = {**logs, event_type: logs.get(event_type, EMPTY).append(event)}
        self._reducing = get_ident()
        try:
            for (slice_type, reducer), is_log in plan.steps:
                content = (logs if is_log else state).get(slice_type)
                if content is None:
                    content = self.initial.get(slice_type, EMPTY)
                reduced = _reduced(slice_type, reducer, content, event, is_log)
                if is_log:
                    logs = {**logs, slice_type: reduced}
                elif reduced is not content:
                    state = state.set(slice_type, reduced)
        finally:
            self._reducing = 0
        # The log first: should Ctrl-C come in between, then what happened is at least on record.
        self.logs = logs
        self.state = state


def _reduced(
    slice_type: type[Any], reducer: AnyReducer, content: Vector[Any], event: object, append_only: bool
) -> Vector[Any]:
    try:
        return apply(reducer(content, event), content, slice_type, append_only=append_only)
    except Exception as error:
        text = str(error).encode("ascii", "backslashreplace").decode()
        raise ReducerError(
            f"The reducer of {slice_type.__qualname__} for {type(event).__qualname__} raised "
            f"{type(error).__qualname__}: {text}. Nothing of this dispatch was applied."
        ) from error


__all__ = ["AnyReducer", "Core"]
