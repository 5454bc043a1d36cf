"""Mappings that are never changed: setting a key gives a new one that shares almost everything with the old.

This is what makes snapshots of directories free: the holder of a mapping keeps seeing exactly those entries.

A mapping of few entries is a plain dict, which is copied on every change; that is quicker than any tree, and reads
cost what they cost in a dict. One of many is a tree: lists of 64 places, of which each level looks at six more bits of
a key's hash, down to leaves that are dicts of a few entries. A change copies one leaf and the lists above it.

>>> one = with_entry({}, "a", 1)
>>> two = without_entry(with_entry(one, "b", 2), "a")
>>> one, two
({'a': 1}, {'b': 2})
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Any, TypeVar, cast, final

K = TypeVar("K")
V = TypeVar("V")

SMALL = 128
"""So many entries are one dict; a tree becomes one again when it has shrunk to half as many."""

LEAF = 64
"""So many entries a leaf has before it is divided."""

BITS = 6
WIDTH = 2**BITS
MASK = WIDTH - 1
HASH = 2**30 - 1
"""The bits of a hash that count: as many as Python calculates with quickly. Keys that agree in them share a leaf."""
LAST_SHIFT = 24

_Leaf = dict[Any, Any]
_Node = list[Any]  # of leaves and nodes
# Names that type checkers do not narrow by; a cast would be one more call where every one counts.
_SMALL: Any = dict
_NODE: Any = list
_NO_LEAF: _Leaf = {}


def with_entry(entries: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """The mapping with the value under the key."""
    if type(entries) is _SMALL:
        changed = {**entries, key: value}
        return changed if len(changed) <= SMALL else entries_of(changed)
    tree: Any = entries
    return tree.set(key, value)


def without_entry(entries: Mapping[K, V], key: K) -> Mapping[K, V]:
    """The mapping without the key. Raises KeyError when it is not there."""
    if type(entries) is _SMALL:
        changed = dict(entries)
        del changed[key]
        return changed
    tree: Any = entries
    return tree.delete(key)


def entries_of(items: Mapping[K, V] | Iterable[tuple[K, V]]) -> Mapping[K, V]:
    """A mapping of these entries, for the two functions above; of equal keys the last wins."""
    if isinstance(items, MapTree):
        return cast("MapTree[K, V]", items)
    entries: dict[K, V] = dict(items)
    return entries if len(entries) <= SMALL else MapTree(_divided(entries, 0), len(entries))


def changed_entries(before: Mapping[K, V], after: Mapping[K, V]) -> list[tuple[K, V | None]]:
    """The entries of `after` that are new or another object, and with None the keys that are gone.

    For mappings whose values are not None. What two large ones share is skipped without being looked at.

    >>> changed_entries({"a": 1, "b": 2}, {"b": 2, "c": 3})
    [('c', 3), ('a', None)]
    """
    if before is after:
        return []
    if isinstance(before, MapTree) and isinstance(after, MapTree):
        old, new = _different_entries(before.root, after.root)
    else:
        old, new = dict(before), dict(after)
    changed: list[tuple[K, V | None]] = [(key, value) for key, value in new.items() if old.get(key) is not value]
    return changed + [(key, None) for key in old if key not in new]


@final
class MapTree(Mapping[K, V]):
    """Many entries. Made by the functions above. It equals any mapping with equal items.

    It is safe to share between threads: nothing that it refers to is changed once it exists. The order of its keys is
    unspecified.
    """

    __slots__ = ("_root", "_size")

    def __init__(self, root: _Node, size: int) -> None:
        self._root = root
        self._size = size

    @property
    def root(self) -> Any:
        """What it consists of; not to be changed."""
        return self._root

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: K) -> V:
        below: Any = self._root
        bits = hash(key) & HASH
        while type(below) is _NODE:
            below = below[bits & MASK]
            bits >>= BITS
        return below[key]

    def get(self, key: K, default: Any = None) -> Any:
        """See `Mapping`; as the other two, quicker than what `Mapping` has."""
        below: Any = self._root
        bits = hash(key) & HASH
        while type(below) is _NODE:
            below = below[bits & MASK]
            bits >>= BITS
        return below.get(key, default)

    def __contains__(self, key: Any) -> bool:
        return self.get(key, _NO_LEAF) is not _NO_LEAF

    def set(self, key: K, value: V) -> Mapping[K, V]:
        """See `with_entry`."""
        bits, shift = hash(key) & HASH, 0
        root = node = self._root.copy()
        place = bits & MASK
        while type(below := node[place]) is _NODE:
            node[place] = node = below.copy()
            shift += BITS
            place = bits >> shift & MASK
        leaf = {**below, key: value}
        node[place] = leaf if len(leaf) <= LEAF else _divided(leaf, shift + BITS)
        changed: Any = _new(MapTree)  # not by __init__: this is the hottest line of large directories
        changed._root = root
        changed._size = self._size + len(leaf) - len(below)
        return changed

    def delete(self, key: K) -> Mapping[K, V]:
        """See `without_entry`."""
        bits = hash(key) & HASH
        root = node = self._root.copy()
        path = [(root, bits & MASK)]
        while type(below := node[bits & MASK]) is _NODE:
            node[bits & MASK] = node = below.copy()
            bits >>= BITS
            path.append((node, bits & MASK))
        leaf = below.copy()
        del leaf[key]
        node[bits & MASK] = leaf
        while not leaf and path:  # a list without an entry goes too, so that what was deleted leaves nothing behind
            node, place = path.pop()
            node[place] = _NO_LEAF
            leaf = any(node)
        smaller: MapTree[K, V] = MapTree(root, self._size - 1)
        return smaller if self._size > SMALL // 2 + 1 else smaller._gathered()

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(_leaves(self._root))

    def items(self) -> ItemsView[K, V]:
        """See `Mapping`."""
        return self._gathered().items()

    def values(self) -> ValuesView[V]:
        """See `Mapping`."""
        return self._gathered().values()

    def _gathered(self) -> dict[K, V]:
        """All entries in one dict: a caller of this wants most of them, and then that is the quickest way."""
        found: dict[K, V] = {}
        for leaf in _leaves(self._root):
            found.update(leaf)
        return found

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:  # where a key is depends on its hash, which is another in each process
        return entries_of, (self._gathered(),)

    def __repr__(self) -> str:
        return f"MapTree({self._gathered()!r})"


def _leaves(node: _Node) -> Iterator[_Leaf]:
    for below in node:
        if type(below) is _NODE:
            yield from _leaves(below)
        else:
            yield below


def _different_entries(before: Any, after: Any) -> tuple[_Leaf, _Leaf]:
    """The entries below two nodes of one place, without those of nodes that both have."""
    if before is after:
        return {}, {}
    if type(before) is _NODE and type(after) is _NODE:
        old: _Leaf = {}
        new: _Leaf = {}
        for one, other in zip(before, after, strict=True):
            if one is not other:
                of_one, of_other = _different_entries(one, other)
                old.update(of_one)
                new.update(of_other)
        return old, new
    return _all_entries(before), _all_entries(after)


def _all_entries(below: Any) -> _Leaf:
    return dict(chain.from_iterable(leaf.items() for leaf in _leaves(below))) if type(below) is _NODE else below


def _divided(entries: _Leaf, shift: int) -> Any:
    """A node with the entries below it, by six bits of their hashes; the entries themselves where no bits are left."""
    if shift > LAST_SHIFT:
        return entries
    node: _Node = [_NO_LEAF] * WIDTH
    for key, value in entries.items():
        place = (hash(key) & HASH) >> shift & MASK
        if node[place]:
            node[place][key] = value
        else:
            node[place] = {key: value}
    for place, leaf in enumerate(node):
        if len(leaf) > LEAF:
            node[place] = _divided(leaf, shift + BITS)
    return node


_new: Any = MapTree.__new__

__all__ = ["SMALL", "MapTree", "changed_entries", "entries_of", "with_entry", "without_entry"]
