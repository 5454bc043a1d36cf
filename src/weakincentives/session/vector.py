"""A sequence that never changes: appending gives a new one that shares almost everything with the old.

This is what makes snapshots free. A slice's content is one `Vector`; its holder (a snapshot, a fork, a loop in
another thread) keeps seeing exactly those items, and dropping it frees what is not shared.

The layout is a counter in base 32. The tail holds the last 1 to 32 items; `spine[0]` holds full leaves of 32 items,
`spine[1]` nodes of 32 leaves, and so on. A full digit is carried to the next one when the item after it arrives, so
an append copies one tuple of at most 32 entries, and one more for every 32nd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import is_
from typing import Any, NamedTuple, TypeVar, cast, final, overload

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")

WIDTH = 32
BITS = 5

_Node = tuple[Any, ...]
_Spine = tuple[_Node, ...]


class VectorDelta(NamedTuple):
    """How one vector became another: the first `keep` items stayed but for `replaced`, and `added` follow."""

    keep: int
    replaced: dict[int, Any]
    added: tuple[Any, ...]


@final
class Vector(Sequence[T_co]):
    """An immutable sequence with constant-time `append`; what `session[T].all()` returns.

    It equals any list, tuple or vector with equal items. Slicing gives a tuple. It is safe to share between threads.

    >>> one = Vector([1, 2])
    >>> two = one.append(3)
    >>> one, two, two[-1], two == [1, 2, 3]
    (Vector([1, 2]), Vector([1, 2, 3]), 3, True)
    """

    __slots__ = ("_size", "_spine", "_tail")

    _size: int
    _spine: _Spine
    _tail: _Node

    def __init__(self, values: Iterable[T_co] = ()) -> None:
        built = values if isinstance(values, Vector) else EMPTY.extend(values)
        self._size, self._spine, self._tail = built._size, built._spine, built._tail

    def append(self: Vector[U], value: U) -> Vector[U]:
        """This vector and one more item."""
        # Not by _make: this is the hottest line of a session.
        longer: Vector[U] = _new(Vector)
        tail = self._tail
        longer._size = self._size + 1
        if len(tail) < WIDTH:
            longer._spine = self._spine
            longer._tail = (*tail, value)
        else:
            longer._spine = _carry(self._spine, tail)
            longer._tail = (value,)
        return longer

    def extend(self: Vector[U], values: Iterable[U]) -> Vector[U]:
        """This vector and all of `values`, which is read once; the same object when there are none."""
        items: list[Any] = [*self._tail, *values]
        added = len(items) - len(self._tail)
        if not added:
            return self
        if len(items) <= WIDTH:
            return _make(self._size + added, self._spine, tuple(items))
        spine = self._spine
        rest = (len(items) - 1) // WIDTH * WIDTH
        for start in range(0, rest, WIDTH):
            spine = _carry(spine, tuple(items[start : start + WIDTH]))
        return _make(self._size + added, spine, tuple(items[rest:]))

    def set(self: Vector[U], index: int, value: U) -> Vector[U]:
        """This vector with another item at `index`. Raises IndexError outside of it."""
        position = self._position(index)
        offset = self._size - len(self._tail)
        if position >= offset:
            return _make(self._size, self._spine, _put(self._tail, 0, position - offset, value))
        spine = list(self._spine)
        for height in range(len(spine) - 1, -1, -1):
            shift = BITS * (height + 1)
            span = len(spine[height]) << shift
            if position < span:
                spine[height] = _put(spine[height], shift, position, value)
                break
            position -= span
        return _make(self._size, tuple(spine), self._tail)

    def without(self, predicate: Callable[[T_co], object]) -> Vector[T_co]:
        """This vector less the items that satisfy `predicate`; the same object when none does."""
        kept = [item for item in self if not predicate(item)]
        return self if len(kept) == self._size else EMPTY.extend(kept)

    def delta(self, before: Vector[Any]) -> VectorDelta:
        """How `before` became this vector. Items count as the same when they are the same object.

        Takes as long as there are differences: what both share is skipped without being looked at.
        """
        keep = min(self._size, before._size)
        replaced: dict[int, Any] = {}
        if self._spine is before._spine:  # as after most appends: only the last few items can differ
            if all(map(is_, before._tail, self._tail)):
                return VectorDelta(keep, replaced, self._tail[len(before._tail) :])
            _compare_leaves(before._tail, self._tail, self._size - len(self._tail), replaced)
        else:
            height = 0
            while WIDTH << BITS * height < keep:
                height += 1
            _find_replaced(before, self, 0, height, keep, replaced)
        return VectorDelta(keep, replaced, self[keep:] if keep else tuple(self))

    def patched(self: Vector[U], delta: VectorDelta) -> Vector[U]:
        """What this vector becomes by a delta. Raises IndexError when it has fewer items than the delta keeps."""
        if delta.keep > self._size:
            raise IndexError(f"the delta keeps {delta.keep} items of a vector of {self._size}")
        patched = self if delta.keep == self._size else EMPTY.extend(self[: delta.keep])
        for index, item in delta.replaced.items():
            patched = patched.set(index, item)
        return patched.extend(delta.added)

    def latest(self) -> T_co | None:
        """The last item, or None when there is none."""
        tail = self._tail
        return tail[-1] if tail else None

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        if isinstance(index, slice):
            return tuple(map(self._at, range(*index.indices(self._size))))
        return self._at(self._position(index))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T_co]:
        return chain.from_iterable(self._leaves())

    def __reversed__(self) -> Iterator[T_co]:
        return chain.from_iterable(map(reversed, self._leaves_backward()))

    def __contains__(self, value: object) -> bool:
        return any(value in leaf for leaf in self._leaves())

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Vector | tuple | list):
            return NotImplemented
        others = cast("Sequence[object]", other)
        return len(others) == self._size and all(a == b for a, b in zip(self, others, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        if self._size <= 2 * WIDTH:
            return f"Vector({list(self)!r})"
        return f"Vector([{self[0]!r}, ... {self._size} items ..., {self[-1]!r}])"

    def __reduce__(self) -> tuple[Any, ...]:
        return Vector, (list(self),)

    def _position(self, index: int) -> int:
        position = index + self._size if index < 0 else index
        if not 0 <= position < self._size:
            raise IndexError(f"index {index} is outside of a vector of {self._size} items")
        return position

    def _at(self, position: int) -> Any:
        offset = self._size - len(self._tail)
        if position >= offset:
            return self._tail[position - offset]
        height = len(self._spine)
        while True:
            level = self._spine[height - 1]
            shift = BITS * height
            span = len(level) << shift
            if position < span:
                break
            position -= span
            height -= 1
        node: Any = level
        while shift >= 0:
            node = node[position >> shift & WIDTH - 1]
            shift -= BITS
        return node

    def _node(self, start: int, height: int) -> _Node | None:
        """The node with the items from `start` on that stands `height` above the leaves; None when there is none yet.

        `start` is where a node of that height begins.
        """
        offset = self._size - len(self._tail)
        if start >= offset:
            return self._tail if height == 0 else None
        for level in range(len(self._spine) - 1, -1, -1):
            nodes = self._spine[level]
            span = len(nodes) << BITS * (level + 1)
            if start < span:
                if level < height:
                    # All nodes of a full level are the node above them once the next item was added.
                    return nodes if level + 1 == height and start == 0 and len(nodes) == WIDTH else None
                node: Any = nodes
                for above in range(level, height - 1, -1):
                    node = node[start >> BITS * (above + 1) & WIDTH - 1]
                return node
            start -= span
        return None

    def _leaves(self) -> Iterator[_Node]:
        for height in range(len(self._spine) - 1, -1, -1):
            yield from _down(self._spine[height], height)
        yield self._tail

    def _leaves_backward(self) -> Iterator[_Node]:
        yield self._tail
        for height, level in enumerate(self._spine):
            yield from _down_backward(level, height)


_new: Callable[[type[Vector[Any]]], Vector[Any]] = object.__new__


def _make(size: int, spine: _Spine, tail: _Node) -> Vector[Any]:
    vector = _new(Vector)
    vector._size = size  # pyright: ignore[reportPrivateUsage]
    vector._spine = spine  # pyright: ignore[reportPrivateUsage]
    vector._tail = tail  # pyright: ignore[reportPrivateUsage]
    return vector


def _find_replaced(  # noqa: PLR0917 - one step of a recursion
    before: Vector[Any], after: Vector[Any], start: int, height: int, end: int, replaced: dict[int, Any]
) -> None:
    """Add the items from `start` to `end` that are another object in `after`, among those of one node."""
    old, new = before._node(start, height), after._node(start, height)  # pyright: ignore[reportPrivateUsage]
    if old is not None and old is new:
        return
    if height:
        span = WIDTH << BITS * (height - 1)
        for child in range(start, min(start + (WIDTH << BITS * height), end), span):
            _find_replaced(before, after, child, height - 1, end, replaced)
        return
    _compare_leaves(old or (), new or (), start, replaced)


def _compare_leaves(old: _Node, new: _Node, start: int, replaced: dict[int, Any]) -> None:
    for place, (one, other) in enumerate(zip(old, new, strict=False), start):
        if one is not other:
            replaced[place] = other


def _carry(spine: _Spine, node: _Node) -> _Spine:
    """Add a full node to the lowest digit, carrying digits that are full."""
    lower: list[_Node] = []
    for level in spine:
        if len(level) < WIDTH:
            lower.append((*level, node))
            return (*lower, *spine[len(lower) :])
        lower.append((node,))
        node = level
    return (*lower, (node,))


def _put(node: _Node, shift: int, position: int, value: object) -> _Node:
    """Copy the path to one item, with another item at its end."""
    index = position >> shift
    child = _put(node[index], shift - BITS, position & (1 << shift) - 1, value) if shift else value
    return (*node[:index], child, *node[index + 1 :])


def _down(nodes: _Node, height: int) -> Iterator[_Node]:
    if height == 0:
        yield from nodes
        return
    for node in nodes:
        yield from _down(node, height - 1)


def _down_backward(nodes: _Node, height: int) -> Iterator[_Node]:
    if height == 0:
        yield from reversed(nodes)
        return
    for node in reversed(nodes):
        yield from _down_backward(node, height - 1)


EMPTY: Vector[Any] = _make(0, (), ())
"""The vector of nothing."""
