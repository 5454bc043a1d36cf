"""Large items of slices: a change of a few fields is on record as that change, not as the whole item again.

A plan with a thousand steps is one item, and every call changes one of its steps. So an item of some size is on record
as `{"whole": item}` once, and what replaces it later as `{"patch": operations}`, where that is smaller. An operation is
`[path, value]`, which puts a value at the keys and indexes of a path, `[path]`, which takes a key away, or
`[path, index, count, values]`, which puts values in the place of some of a list.

A patch is made and applied to the recorded data, never to what a present object gives when it is written once more:
a set may be written in another order then.
"""

from __future__ import annotations

import marshal
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast, final

from ...errors import SessionFormatError

_LARGE = 4096
"""About so many characters of JSON make an item large."""
_CHUNK = 32
"""So many small items are weighed together."""
_WITHOUT_REFERENCES = 2
"""The version of `marshal`'s format in which equal parts are written each time."""

_NO_ITEMS: Mapping[int, Any] = {}

State = Mapping[str, Any]
"""What a row says of the session; see `session.deltas`."""


@final
class LargeItems:
    """The data of a run's large items after its last row. It is never changed: `read` and `write` make new ones."""

    __slots__ = ("_slices",)

    def __init__(self, slices: Mapping[str, Mapping[int, Any]] | None = None) -> None:
        self._slices: Mapping[str, Mapping[int, Any]] = slices or {}

    def __getitem__(self, name: str) -> Mapping[int, Any]:
        """The large items of a slice, by their indexes."""
        return self._slices.get(name, _NO_ITEMS)

    def read(self, state: State) -> tuple[State, LargeItems]:
        """What a row that follows says, all items whole; and the items after it.

        Raises `SessionFormatError` for a row that does not follow, or is damaged.
        """
        return self._map(state, _whole_of)

    def write(self, state: State) -> tuple[State, LargeItems]:
        """A row to write for these changes, in which all items are whole; and the items after it."""
        return self._map(state, _written)

    def _map(self, state: State, form: Any) -> tuple[State, LargeItems]:
        slices: dict[str, Mapping[int, Any]] | None = None
        changes: list[Any] = []
        try:
            for name, policy, change in state.get("slices", ()):
                before = self[name]
                made, after = (None, _NO_ITEMS) if change is None else _map_change(change, before, form)
                changes.append([name, policy, made])
                if after is not before:
                    slices = dict(self._slices) if slices is None else slices
                    slices[name] = after
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise SessionFormatError(f"the recorded change of a large item is damaged: {error!r}") from error
        if not changes:
            return state, self
        return {**state, "slices": changes}, self if slices is None else LargeItems(slices)


def is_whole(change: Any) -> bool:
    """Whether a slice's change alone says all that the slice holds."""
    if change is None:
        return True
    keep, replaced, _ = change
    return len(replaced) == keep and not any(isinstance(item, dict) and "patch" in item for item in replaced.values())


def _map_change(change: Any, before: Mapping[int, Any], form: Any) -> tuple[Any, Mapping[int, Any]]:
    keep, replaced, added = change
    large: dict[int, Any] = {}
    made_replaced: dict[str, Any] = {}
    for index, item in replaced.items():
        made_replaced[index], kept = form(item, before.get(int(index)))
        if kept is not None:
            large[int(index)] = kept
    made_added: list[Any] = []
    for start in range(0, len(added), _CHUNK):
        chunk = added[start : start + _CHUNK]
        if form is _written and len(chunk) > 1 and size_of(chunk) < _LARGE:  # none of them is large then
            made_added += chunk
            continue
        for at, item in enumerate(chunk, keep + start):
            made, kept = form(item, None)
            made_added.append(made)
            if kept is not None:
                large[at] = kept
    if before or large:
        stay = {at: item for at, item in before.items() if at < keep and str(at) not in replaced}
        after: Mapping[int, Any] = {**stay, **large} if large or len(stay) < len(before) else before
    else:
        after = before
    return [keep, made_replaced, made_added], after


def _whole_of(item: Any, base: Any) -> tuple[Any, Any]:
    """A recorded item as a whole, and its data if it is a large one."""
    if isinstance(item, list):
        return cast("list[Any]", item), None
    if "patch" in item:
        whole = _apply(base, item["patch"])
        return whole, whole
    return item["whole"], item["whole"]


def _written(item: Any, base: Any) -> tuple[Any, Any]:
    """An item as it is written, and its data if it is a large one."""
    size = size_of(item)
    if size < _LARGE:
        return item, None
    if base is not None:
        with suppress(RecursionError):  # of an item that is nested very deep
            operations = list(_differences(base, item, []))
            if size_of(operations) < size // 2:
                return {"patch": operations}, item
    return {"whole": item}, item


def size_of(value: Any) -> int:
    """About how many characters of JSON a value is. It is not written as JSON for that: every row would be, twice."""
    try:
        return len(marshal.dumps(value, _WITHOUT_REFERENCES))
    except ValueError:  # an item of a class of its own, or nested too deeply
        return _weight(value)


def _weight(value: Any) -> int:
    """The same for data that `marshal` does not take."""
    weight = 0
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, str):
            weight += len(value) + 3
        elif isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            weight += 2 + 4 * len(fields) + sum(map(len, fields))
            left.extend(fields.values())
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            weight += 2 + len(items)
            left.extend(items)
        else:
            weight += 5
    return weight


def _differences(before: Any, after: Any, path: list[str | int]) -> Iterator[list[Any]]:
    """The operations that make one value out of another."""
    if isinstance(before, dict) and isinstance(after, dict):
        old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
        stay = [key for key in old if key in new]
        if [*stay, *(key for key in new if key not in old)] == list(new):  # else their order would be another one
            yield from ([[*path, key]] for key in old if key not in new)
            for key, value in new.items():
                if key in old:
                    yield from _differences(old[key], value, [*path, key])
                else:
                    yield [[*path, key], value]
            return
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_differences(cast("list[Any]", before), cast("list[Any]", after), path)
        return
    elif _is_same(cast("object", before), cast("object", after)):
        return
    yield [path, after]


def _is_same(before: object, after: object) -> bool:
    """Whether two values that are not both objects or both lists have the same JSON: 1, 1.0 and true have not."""
    return type(before) is type(after) and (
        repr(before) == repr(after) if isinstance(after, float) else before == after
    )


def _list_differences(before: list[Any], after: list[Any], path: list[str | int]) -> Iterator[list[Any]]:
    """From the end, so that an operation leaves the indexes of those that follow it as they were."""
    # By their texts, which tell 1, 1.0 and True apart.
    ends = (len(before), len(after))
    for old, new in (*_pairs([*map(repr, before)], [*map(repr, after)]), (-1, -1)):
        first, last = (old + 1, new + 1), ends
        both = min(last[0] - first[0], last[1] - first[1])
        if last[0] - first[0] != last[1] - first[1]:
            yield [path, first[0] + both, last[0] - first[0] - both, after[first[1] + both : last[1]]]
        for at in range(both):
            yield from _differences(before[first[0] + at], after[first[1] + at], [*path, first[0] + at])
        ends = (old, new)


def _pairs(before: list[str], after: list[str]) -> Iterator[tuple[int, int]]:
    """Places of the same text in both, from the end: all that have one order in both, but for repeated ones."""
    shorter = min(len(before), len(after))
    start = end = 0
    while start < shorter and before[start] == after[start]:
        start += 1
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
        yield len(before) - end, len(after) - end
    where = {before[at]: at for at in range(start, len(before) - end)}
    last: list[int] = []  # of the rows of so many places that are found so far, the one with the least last place
    rows: list[Any] = []
    for at in range(start, len(after) - end):
        old = where.get(after[at])
        if old is not None:
            length = bisect_left(last, old)
            last[length : length + 1] = [old]
            rows[length : length + 1] = [(old, at, rows[length - 1] if length else None)]
    row = rows[-1] if rows else None
    while row is not None:
        old, at, row = row
        yield old, at
    yield from ((at, at) for at in range(start - 1, -1, -1))


def _apply(value: Any, operations: Any) -> Any:
    """The value after these operations. What they do not touch is shared with the one before."""
    for path, *operation in operations:
        value = _changed(value, path, operation)
    return value


def _changed(value: Any, path: Sequence[Any], operation: Sequence[Any]) -> Any:
    if not path and len(operation) == 1:
        return operation[0]
    made: Any = value.copy()
    if path and (len(path) > 1 or len(operation) == 3):
        made[path[0]] = _changed(value[path[0]], path[1:], operation)
    elif len(operation) == 3:
        start, count, values = operation
        if not 0 <= start <= start + count <= len(made):
            raise IndexError(f"{start} to {start + count} of {len(made)}")
        made[start : start + count] = values
    elif operation:
        made[path[0]] = operation[0]
    else:
        del made[path[0]]
    return made


__all__ = ["LargeItems", "State", "is_whole", "size_of"]
