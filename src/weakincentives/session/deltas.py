"""What changed in a session between two moments, as JSON data that another process can apply.

A slice's change is `[name, policy, change]`: the change is None for a slice that was never written to (again), else
`[keep, {index: item}, [items that were added]]`. An item is `[data]` when it is of the slice's own class and comes back
from its data alone, else `[data, name of its class, patches]`; see `encoding`. In records that are only looked at, a
value that would not come back is `[its JSON view, name of its class, None]`; see `unchecked`.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import marshal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from ..errors import SessionError, SessionFormatError
from ..fence import current_owner
from ..persistent_map import changed_entries, with_entry, without_entry
from .encoding import PLAIN_TYPES, class_of, decode, encode, encode_all, present_name, type_name
from .events import SlicePolicy, own_policy
from .json_view import json_view
from .saved import marked, own_type
from .session import Session
from .snapshots import NO_NOTES, LogBuffer, Notes, SliceChange, Slices, Snapshot
from .state import SessionState
from .vector import EMPTY, Vector, VectorDelta

FindType = Callable[[str], type[Any]]
"""The class with that name in saved data; raises `SessionFormatError` when it is not known."""

Delta = dict[str, Any]
"""JSON data; empty when nothing changed."""


def types_of(session: Session) -> set[type[Any]]:
    """The classes of the slices that the session holds or has reducers for."""
    core = session._core
    steps = {step.slice_type for registered in core.reducers.values() for step in registered}
    return {*core.state, *core.logs, *core.initial, *core.policies, *core.reducers, *steps}


def type_finder(types: Iterable[type[Any]]) -> FindType:
    """Finds these classes, plain ones and WINK's own by their names. Nothing else is looked for or imported."""
    known = {type_name(cls): cls for cls in types}

    @lru_cache(maxsize=512)
    def find(name: str) -> type[Any]:
        name = present_name(name)
        cls = known.get(name) or PLAIN_TYPES.get(name) or own_type(name)
        if cls is None:
            raise SessionFormatError(f"{name} is not among the classes that are known here")
        return cls

    return find


def unchecked(name: str) -> type[Any]:  # noqa: ARG001 - whatever it is
    """Takes every class for known: for writing what will be looked at, and not be read back.

    With it, a value that could not be read back is not refused; its JSON view is written.
    """
    return object


def dump_delta(
    session: Session, since: Snapshot | None, find: FindType, *, skip: Collection[type[Any]] = ()
) -> tuple[Delta, list[SliceChange], Snapshot]:
    """What changed since a snapshot, or everything, and the moment up to which that is so.

    Left out are the slices in `skip`; their changes are the second value. Raises `SessionFormatError` for a value that
    would not come back equal, or whose class `find` does not know: what cannot be read is not written.
    """
    core = session._core
    with core.lock:
        changes = _all_of(core) if since is None else core.changes(since, logs=True)
        now = session.snapshot()  # afterwards: what was just logged has been sorted into its slices then
    delta: Delta = {}
    written: Slices = {} if since is None or since.state is None else since.state
    slices = [_dump_change(change, core, written, find) for change in changes if change.slice_type not in skip]
    if slices:
        delta["slices"] = slices
    noted = _dump_noted(NO_NOTES if since is None else since.notes, now.notes, find)
    if noted:
        delta["notes"] = noted
    return delta, [change for change in changes if change.slice_type in skip], now


def dump_slice(now: Snapshot, name: str, find: FindType) -> list[Any]:
    """A whole slice as it was at a moment, as the change that makes it from nothing."""
    state: Slices = {} if now.state is None else now.state
    for slices, policy in ((state, SlicePolicy.STATE), (now.logs(), SlicePolicy.LOG)):
        for cls, items in slices.items():
            if type_name(cls) == name:
                return _dump_whole(cls, policy, items, find)
    return _dump_whole(find(name), SlicePolicy.LOG, EMPTY, find)


def dump_notes(now: Snapshot, find: FindType) -> list[Any]:
    """All notes as they were at a moment, as the changes that make them from nothing."""
    return _dump_noted(NO_NOTES, now.notes, find)


def dump_logged(events: Iterable[Any], find: FindType) -> list[list[Any]]:
    """Events of LOG slices; what has no JSON form in them is marked."""
    return [_dump_item(None, marked(event), find) for event in events]


def load_logged(events: Iterable[Any], find: FindType) -> list[Any]:
    """The events that `dump_logged` wrote."""
    return [_load_item(None, event, find) for event in _copied([*events])]


def apply_delta(session: Session, delta: Mapping[str, Any], find: FindType) -> None:
    """Change the session as the delta says; no reducer runs and no subscriber is called.

    Raises `SessionFormatError` for data that cannot be read, and then changes nothing.
    """
    if not delta:
        return
    core = session._core
    delta = _copied(dict(delta))
    with core.lock:
        state, logs = dict(core.state), dict(core.logs)
        policies: dict[type[Any], SlicePolicy] = {}
        for name, policy_name, change in delta.get("slices", ()):
            cls, policy = find(name), SlicePolicy(policy_name)
            if own_policy(cls) not in (None, policy):
                raise SessionFormatError(f"{name} was a {policy.name} slice, but its class says otherwise now")
            policies[cls] = policy
            slices = logs if policy is SlicePolicy.LOG else state
            if change is None:
                slices.pop(cls, None)
            else:
                before = slices.get(cls, EMPTY)
                slices[cls] = before.patched(_load_change(cls, change, find))
        notes = core.notes
        for key_data, value_data in delta.get("notes", ()):
            key = _load_item(None, key_data, find)
            if value_data is not None:
                notes = with_entry(notes, key, _load_item(None, value_data, find))
            elif key in notes:
                notes = without_entry(notes, key)
        for cls, policy in policies.items():
            if policy is SlicePolicy.LOG and core.policy(cls) is not policy:
                core.declare(cls, policy)
        core.state, core.logs, core.notes = state, logs, notes


def apply_readable(session: Session, delta: Mapping[str, Any], find: FindType, unread: set[str]) -> None:
    """`apply_delta` as far as it can be read. The slices that cannot are added to `unread`, emptied, and left out."""
    for name, policy, change in delta.get("slices", ()):
        if name not in unread:
            try:
                apply_delta(session, {"slices": [[name, policy, change]]}, find)
            except (SessionFormatError, IndexError, ValueError):
                unread.add(name)
                with suppress(SessionFormatError):  # its class is not known
                    apply_delta(session, {"slices": [[name, policy, None]]}, find)
    for note in delta.get("notes", ()):
        try:
            apply_delta(session, {"notes": [note]}, find)
        except SessionFormatError:
            unread.add("notes")


def show(session: Session, content: Session, *, skip: Collection[type[Any]] = ()) -> Snapshot:
    """Make a session hold what another one holds, slices in `skip` aside, and give that moment.

    No reducer runs and no subscriber is called. Registrations stay the session's own, and so does what slices hold
    that were never written to. Inside a call on the session it is a write of that call, undone with it, but for slices
    that only events in `skip` change. `SessionError` for code outside of the calls that are open on it.
    """
    if session._guard is None:
        return _show(session, content._core, skip)
    with session._guard:
        return _show(session, content._core, skip)


def _show(session: Session, other: SessionState, skip: Collection[type[Any]]) -> Snapshot:
    core = session._core
    with core.lock:
        owner = current_owner()
        if core.calls and not (owner is not None and any(map(owner.inside, core.calls))):
            raise SessionError("A session cannot take over recorded content while a call is open on it.")
        for cls, policy in other.policies.items():
            if policy is SlicePolicy.LOG and core.policy(cls) is not policy:
                core.declare(cls, policy)
        kept = {cls: items for cls, items in core.logs.items() if cls in skip}
        logs = {**{cls: items for cls, items in other.logs.items() if cls not in skip}, **kept}
        if core.calls:  # what is equal was not changed by the call: both go on with the same items
            other.state = {cls: _same(core.state.get(cls), items) for cls, items in other.state.items()}
            core.replace_all(dict(other.state), other.notes, _reduced_from(core, skip))
        else:
            core.state, core.notes = dict(other.state), other.notes
        core.logged = LogBuffer(logs, [], core.logged.epoch + 1)
        return session.snapshot()


def _same(own: Vector[Any] | None, items: Vector[Any]) -> Vector[Any]:
    return items if own is None or own != items else own


def _reduced_from(core: SessionState, events: Collection[type[Any]]) -> set[type[Any]]:
    """The slices that are made of these events and no others."""
    own: set[type[Any]] = set()
    others: set[type[Any]] = set()
    for event_type, steps in core.reducers.items():
        (own if event_type in events else others).update(step.slice_type for step in steps)
    return own - others


def adopt_id(session: Session, session_id: str) -> None:
    """Give a session that was just made the id of the one whose content it takes over."""
    session._core._session_id = session_id


_MANY = 16
"""So many items are written together."""


def _all_of(core: SessionState) -> list[SliceChange]:
    """All slices that were written to, empty ones too: what they held at first is not what they hold."""
    both = ((core.state, SlicePolicy.STATE), (core.logs, SlicePolicy.LOG))
    return [SliceChange(cls, policy, EMPTY, items) for slices, policy in both for cls, items in slices.items()]


def _dump_change(change: SliceChange, core: SessionState, written: Slices, find: FindType) -> list[Any]:
    cls, name = change.slice_type, type_name(change.slice_type)
    find(name)
    is_state = change.policy is SlicePolicy.STATE
    if is_state and cls not in core.state:
        return [name, change.policy.value, None]
    # What a slice held before it was first written to is the program's own: the data must be complete without it.
    keep, replaced, added = change.after.delta(EMPTY if is_state and cls not in written else change.before)
    return [
        name,
        change.policy.value,
        [
            keep,
            {str(index): _dump_item(cls, item, find) for index, item in replaced.items()},
            _dump_items(cls, added, find),
        ],
    ]


def _dump_whole(cls: type[Any], policy: SlicePolicy, items: Vector[Any], find: FindType) -> list[Any]:
    return [type_name(cls), policy.value, [0, {}, _dump_items(cls, tuple(items), find)]]


def _dump_noted(before: Notes, after: Notes, find: FindType) -> list[Any]:
    return [
        [_dump_item(None, key, find), None if value is None else _dump_item(None, value, find)]
        for key, value in changed_entries(before, after)
    ]


def _load_change(cls: type[Any], change: Any, find: FindType) -> VectorDelta:
    try:
        keep, replaced, added = change
        return VectorDelta(
            int(keep),
            {int(index): _load_item(cls, item, find) for index, item in replaced.items()},
            tuple([_load_item(cls, item, find) for item in added]),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise SessionFormatError(f"The recorded change of {type_name(cls)} is damaged: {error}.") from error


def _dump_items(cls: type[Any], items: Sequence[Any], find: FindType) -> list[list[Any]]:
    data = encode_all(cls, items) if len(items) >= _MANY else None
    return [_dump_item(cls, item, find) for item in items] if data is None else [[one] for one in data]


def _dump_item(cls: type[Any] | None, item: Any, find: FindType) -> list[Any]:
    own = class_of(item)
    try:
        data, patches = encode(item)
    except Exception:
        if find is not unchecked:
            raise
        return [json_view(item), type_name(own), None]
    if own is cls and not patches:
        return [data]
    find(type_name(own))
    _check_known(patches, find)
    return [data, type_name(own), patches]


def _check_known(patches: Iterable[Any], find: FindType) -> None:
    for _, name, _, inner in patches:
        find(name)
        _check_known(inner, find)


def _copied(data: Any) -> Any:
    """Its own data for what is read: patches are put into it, and what stands in open places becomes part of values."""
    return marshal.loads(marshal.dumps(data))  # noqa: S302 - what was just written; ten times as quick as JSON


def _load_item(cls: type[Any] | None, item: Any, find: FindType) -> Any:
    if len(item) == 1 and cls is not None:
        return decode(cls, item[0], [], find)
    data, name, patches = item
    if patches is None:
        raise SessionFormatError(f"a value of {name} is on record as its JSON view only")
    return decode(find(name), data, patches, find)


__all__ = [
    "Delta",
    "FindType",
    "adopt_id",
    "apply_delta",
    "apply_readable",
    "dump_delta",
    "dump_logged",
    "dump_notes",
    "dump_slice",
    "load_logged",
    "show",
    "type_finder",
    "types_of",
    "unchecked",
]
