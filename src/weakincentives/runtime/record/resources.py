"""The state of a run's resources that are not files: what rows say of it, and how it is brought back.

The `resources` of a row's body are `[name, what, data]`, in the order in which they are to be applied: `whole` is all
that a resource held, `delta` what changed since, both as its `record_delta` gave them; `view` is the JSON view of one
that could not be read back, in records that are only looked at. Without data are `unrecorded`, a resource that takes
part in calls and has no `record_delta`, and `unbuilt`, one that the run has and that nothing had asked for when it
began. A resource is named by the type that it is bound as.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal, cast, final, get_args

from ...errors import NotResumableError, RecordError, RunFormatError
from ...filesystem import Filesystem
from ...interrupts import Lock
from ...resources import ResourceContext, Scope
from ...resources.binding import InstanceBinding
from ...session.encoding import class_of, type_name
from ...session.json_view import json_view
from ...types import Recordable
from ...waiting import Waiting
from ..locks import is_filesystem
from ..redaction import text_of
from ..transactions import release_parts, restore_all
from .rows import Step

ResourceRow = tuple[str, str, Any]
"""A name, what is said of it, and the data."""

_What = Literal["whole", "delta", "view", "unrecorded", "unbuilt"]
_WHATS = frozenset(get_args(_What))
_NOT_SEEN = object()
_FIX = (
    "For runs to come, give their classes record_delta() and apply(), as weakincentives.resources.Recordable says. "
    "To go on with this one, if it does no harm that they hold something else, pass accept_unrecorded="
)


def is_recordable(resource: object) -> bool:
    """Whether the state of a snapshotable resource can be on record; `__getattr__` is not asked, as for snapshots."""
    kind, own = type(resource), getattr(resource, "__dict__", ())
    return all(
        (hasattr(kind, name) or name in own) and callable(getattr(resource, name, None))
        for name in ("record_delta", "apply")
    )


@final
class ResourceRecorder:
    """Records the resources of one run and makes their changes again.

    What calls users' code is called where their handlers and `snapshot` are, and not in the thread that writes.
    """

    def __init__(self, context: ResourceContext) -> None:
        self._context = context
        self._lock = Lock()
        self._pending: list[list[Any]] = []
        self._problem = ""
        self._since: dict[str, tuple[Any, Any]] = {}  # each resource, and its snapshot as of the last row
        self._first: dict[str, Any] = {}  # what those held that were there when the run was taken
        self._unrecorded: set[str] = set()
        self._recorded: dict[str, _Recorded] = {}
        self._accepted: Collection[str] = ()
        self._seen: tuple[Any, ...] = ()
        self._names: list[tuple[Any, str | None]] = []  # those of the resources that were seen
        bindings = context.root.bindings
        names = Counter(map(type_name, bindings))
        self._keys = {type_name(key): key for key in bindings if names[type_name(key)] == 1}

    # Writing.

    def begin(self) -> None:
        """Look at what is there when the run is taken; files are told apart later."""
        self._look(None, at_first=True)
        self._first = {name: data for name, what, data in self._pending if what == "whole"}
        built = {name for name, _, _ in self._pending}
        for name, key in self._keys.items():
            binding = self._context.root.bindings[key]
            if name not in built and binding.scope is Scope.SINGLETON and not binding.given and _is_snapshotable(key):
                self._pending.append([name, "unbuilt", None])

    def look(self, fs: object, *, readable: bool) -> None:
        """Note what changed since it was looked at before, for the row that is written next; `fs` is recorded as files.

        Raises `RecordError` when a resource raises, and `RunFormatError` for a delta that could not be read back, when
        it has to be `readable`.
        """
        parts = self._context.root.snapshotables
        if parts and not (len(parts) == 1 and parts[0] is fs):  # most runs have files and nothing else
            self._look(fs)
            if readable:
                self.check_readable()

    def check_readable(self) -> None:
        """`RunFormatError` when a delta that was noted could not be read back."""
        if self._problem:
            raise RunFormatError(
                f"The run cannot be recorded: {self._problem}. Give it dicts with texts as keys, lists, texts, "
                "numbers, booleans and None; or record with resumable=False, for looking at it only."
            )

    def take(self) -> list[list[Any]]:
        """What was noted and is not in a row yet."""
        with self._lock:
            pending, self._pending = self._pending, []
        return pending

    def forget(self) -> None:
        """Release the snapshots; nothing is written any more."""
        with self._lock:
            parts, self._since = tuple(self._since.values()), {}
        release_parts(parts)

    def _look(self, fs: object, *, at_first: bool = False) -> None:
        with self._lock:
            parts = self._context.root.snapshotables
            if parts is not self._seen:
                self._seen, self._names = parts, [(part, self._name_of(part)) for part in parts]
            for part, bound_as in self._names:
                if part is fs or (at_first and is_filesystem(class_of(part)) and Filesystem in self._context):
                    continue
                name = type_name(class_of(part)) if bound_as is None else bound_as
                if bound_as is not None and is_recordable(part):
                    self._note(name, part)
                elif name not in self._unrecorded:
                    self._unrecorded.add(name)
                    self._pending.append([name, "unrecorded", None])

    def _note(self, name: str, part: Recordable[Any]) -> None:
        known = self._since.get(name)
        if known is not None and known[0] is not part:  # that one is gone: undone with the call that built it
            known = None
        try:
            delta = part.record_delta(None if known is None else known[1])
            taken = part.snapshot()
        except Exception as error:
            raise RecordError(
                f"The state of {name} could not be recorded: {type(error).__name__}: {text_of(error)}"
            ) from error
        self._since[name] = (part, taken)
        if known is not None:
            release_parts((known,))
            if delta is None:
                return
        data, problem = _as_json(delta)
        what = "view" if problem else "delta" if known is not None else "whole"
        self._pending.append([name, what, data])
        if problem:
            self._problem = f"{name}.record_delta() gave what is not JSON data: {problem}"

    def _name_of(self, part: object) -> str | None:
        """What it is bound as; None for a prototype, of which there may be several."""
        root = self._context.root
        given = [
            type_name(key)
            for key, binding in root.bindings.items()
            if isinstance(binding.provider, InstanceBinding) and binding.provider.value is part
        ]
        if given:
            return min((name for name in given if name in self._keys), default=None)
        for item in root.built_since(0):
            if item.value is part and not item.alias:
                name = type_name(item.resource_type)
                return name if self._is_bound(name) else None
        return None

    def _is_bound(self, name: str) -> bool:
        """Whether the program binds one such resource, for the whole run."""
        key = self._keys.get(name)
        return key is not None and self._context.root.bindings[key].scope is Scope.SINGLETON

    # Going on.

    def read(self, steps: Iterable[Step], accepted: Collection[str], *, is_over: bool, run_id: str) -> None:
        """Take up what is on record. `RunFormatError` when it cannot be read.

        `NotResumableError` for a run that is not over and has a resource whose state is not on record or that is not
        bound any more, unless it is `accepted`.
        """
        for step in steps:
            self._unrecorded.update(step.body.get("unrecorded", ()))  # as rows had it before there was `Recordable`
            for name, what, data in resource_rows(step):
                if what == "unrecorded":
                    self._unrecorded.add(name)
                elif what == "unbuilt":
                    self._recorded.pop(name, None)
                else:
                    self._add(step, name, what, data)
        gone = {name for name in self._recorded if not self._is_bound(name)}
        missing = sorted(name for name in self._unrecorded | gone if not _is_accepted(name, accepted))
        if missing and not is_over:
            raise _refusal(run_id, missing)
        for name in gone:
            del self._recorded[name]
        known = {*self._recorded, *self._unrecorded}
        self._pending = [row for row in self._pending if row[0] not in known and row[1] != "unbuilt"]
        self._accepted = accepted

    def _add(self, step: Step, name: str, what: str, data: Any) -> None:
        known = self._recorded.get(name)
        if known is None:
            known = self._recorded[name] = _Recorded(data if what == "whole" else _NOT_SEEN)
        if what == "whole":
            known.deltas = [(step.seq, data)]
        elif what == "view":
            known.deltas = None
        elif known.deltas is not None:
            if not known.deltas:
                raise RunFormatError(f"Step {step.seq} of the record says how {name} changed, but not what it was.")
            known.deltas.append((step.seq, data))

    async def restore(self, waiting: Waiting, *, is_over: bool, run_id: str) -> None:
        """Bring each resource to where the record ends, building those that are not there; all of them, or none.

        Of a run that is over only those that are as the run began with, since others are used elsewhere by now. Raises
        `RunFormatError` when one does not take what is on record, `NotResumableError` when it is not `Recordable` any
        more.
        """
        done: list[tuple[Any, Any]] = []
        try:
            for name, known in self._recorded.items():
                if known.deltas is None or (is_over and self._first.get(name, _NOT_SEEN) != known.first):
                    continue
                key = self._keys[name]
                part = await self._context.aget(key) if waiting.in_loop else self._context.get(key)
                if not is_recordable(part):
                    if is_over or _is_accepted(name, self._accepted):
                        continue
                    raise _refusal(run_id, [name])  # noqa: TRY301 - those before it are restored, too
                done.append((part, part.snapshot()))
                _apply(part, name, known.deltas)
                self._forget(name)
                self._since[name] = (part, part.snapshot())
        except BaseException:
            restore_all(lambda: None, None, tuple(done), 0, None, [])
            raise
        finally:
            release_parts(tuple(done))

    @property
    def any(self) -> bool:
        """Whether there are some on record."""
        return bool(self._since)

    def unrecorded(self) -> list[str]:
        """Those whose state is not on record and that may not have another."""
        return sorted(name for name in self._unrecorded if not _is_accepted(name, self._accepted))

    def go_back(self, steps: Iterable[Step]) -> bool:
        """Bring each resource to what it held after these steps, the first ones of the run; all of them, or none.

        The next row says so. False when one is still there that the run did not have then.
        """
        then = ResourceRecorder(self._context)
        for step in steps:
            for name, what, data in resource_rows(step):
                if what == "unbuilt":
                    then._recorded.pop(name, None)
                elif what != "unrecorded":
                    then._add(step, name, what, data)
        done: list[tuple[Any, Any]] = []
        rows: list[list[Any]] = []
        taken: dict[str, tuple[Any, Any]] = {}
        parts = self._context.root.snapshotables
        still_there: set[str] = set()
        try:
            for name, (part, _) in self._since.items():
                known = then._recorded.get(name)
                if known is None:
                    rows.append([name, "unbuilt", None])
                    if any(part is other for other in parts):
                        still_there.add(name)
                    continue
                done.append((part, part.snapshot()))
                _apply(part, name, known.deltas or ())
                rows.append([name, "whole", part.record_delta(None)])
                taken[name] = (part, part.snapshot())
        except BaseException:
            restore_all(lambda: None, None, tuple(done), 0, None, [])
            release_parts(tuple(taken.values()))
            raise
        finally:
            release_parts(tuple(done))
        for name in self._since.keys() - still_there:
            self._forget(name)
        self._since.update(taken)
        self._pending.extend(rows)
        return not still_there

    def _forget(self, name: str) -> None:
        before = self._since.pop(name, None)
        if before is not None:
            release_parts((before,))


@final
class _Recorded:
    """What a record has of one resource: what it held at first, and the deltas since it was whole, with their steps.

    There are none to apply once one of them is a view.
    """

    __slots__ = ("deltas", "first")

    def __init__(self, first: Any) -> None:
        self.first: Any = first
        self.deltas: list[tuple[int, Any]] | None = []


def resource_rows(step: Step) -> Iterator[ResourceRow]:
    """What a step says of resources; `RunFormatError` when that cannot be read."""
    rows: Any = step.body.get("resources", ())
    try:
        made = [(name, what, data) for name, what, data in rows if isinstance(name, str) and what in _WHATS]
        if len(made) != len(rows):
            raise ValueError(f"one of {len(rows)} is not known")  # noqa: TRY301 - as what cannot be taken apart
    except (TypeError, ValueError) as error:
        raise RunFormatError(f"Step {step.seq} of the record cannot be read: its resources: {error}.") from error
    yield from made


def unrecorded_in(steps: Iterable[Step]) -> set[str]:
    """The resources whose state a record does not have, as far as these steps say."""
    found: set[str] = set()
    for step in steps:
        found.update(step.body.get("unrecorded", ()))
        found.update(name for name, what, _ in resource_rows(step) if what == "unrecorded")
    return found


def apply_rows(context: ResourceContext, step: Step) -> None:
    """Make what one step says of resources in those of a program; what it has no such resource for is left out.

    Before the context is open, those that were handed in are all that there is.
    """
    bindings = context.root.bindings
    keys = {type_name(key): key for key, item in bindings.items() if item.scope is Scope.SINGLETON}
    for name, what, data in resource_rows(step):
        key = keys.get(name)
        if key is None or what not in {"whole", "delta"}:
            continue
        provider = bindings[key].provider
        if isinstance(provider, InstanceBinding):
            part: Any = provider.value
        elif context.is_open:
            part = context.get(key)
        else:
            continue
        if is_recordable(part):
            _apply(part, name, [(step.seq, data)])


def _apply(part: Recordable[Any], name: str, deltas: Sequence[tuple[int, Any]]) -> None:
    for seq, data in deltas:
        if data is None:  # it had nothing to say
            continue
        try:
            part.apply(data)
        except Exception as error:
            raise RunFormatError(
                f"{name} does not take what step {seq} of the record says of it: "
                f"{type(error).__name__}: {text_of(error)}. It was left as it was. Use the program as it was."
            ) from error


def _refusal(run_id: str, names: Sequence[str]) -> NotResumableError:
    return NotResumableError(
        f"The run {run_id!r} used {', '.join(names)}, whose state is not on record, or is not bound as a resource that "
        f"can take it: it cannot be brought back to where the run was. {_FIX}{list(names)!r}."
    )


def _is_accepted(name: str, accepted: Collection[str]) -> bool:
    """Whether it is named, in full or by its class alone."""
    short = name.rpartition(":")[2]
    return not {name, short, short.rpartition(".")[2]}.isdisjoint(accepted)


def _is_snapshotable(cls: object) -> bool:
    return callable(getattr(cls, "snapshot", None)) and callable(getattr(cls, "restore", None))


def _as_json(delta: Any) -> tuple[Any, str]:
    """A copy as it comes back from JSON; or its JSON view, and why it does not come back."""
    try:
        data = json.loads(json.dumps(delta, allow_nan=False))
        problem = _difference(delta, data, "")
    except (TypeError, ValueError, RecursionError) as error:
        return json_view(delta), str(error)
    return (json_view(delta), problem) if problem else (data, "")


def _difference(delta: Any, data: Any, path: str) -> str:
    """What does not come back as it is, with where it is; empty when all of it does."""
    kind = class_of(delta)
    if kind is not class_of(data):
        return f"a {kind.__name__}{f' at {path}' if path else ''}"
    if kind is dict:
        given, read = cast("dict[Any, Any]", delta), cast("dict[str, Any]", data)
        for key, value in given.items():
            if class_of(key) is not str:
                return f"the key {key!r}{f' at {path}' if path else ''}"
            if found := _difference(value, read[key], f"{path}[{key!r}]"):
                return found
    elif kind is list:
        for at, (value, back) in enumerate(zip(delta, data, strict=True)):
            if found := _difference(value, back, f"{path}[{at}]"):
                return found
    return ""


__all__ = ["ResourceRecorder", "apply_rows", "is_recordable", "resource_rows", "unrecorded_in"]
