"""A mapping that never changes: setting a key gives a new one that shares almost everything with the old.

This is what makes snapshots of directories free: whoever holds a map keeps seeing exactly those entries.

A map of few entries is one dict, which is copied on every change; that is quicker than any tree, and reads cost what
they cost in a dict. A map of many is a tree: lists of 64 places, of which each level looks at six more bits of a key's
hash, down to leaves that are dicts of a few entries. A change copies one leaf and the lists above it.
"""

from __future__ import annotations

from abc import abstractmethod
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
_NODE: Any = list  # a name that type checkers do not narrow by; a cast would be one more call in the loops below
_NO_LEAF: _Leaf = {}


class Map(Mapping[K, V]):
    """An immutable mapping with `set` and `delete` in near constant time. Made by `map_of`.

    It equals any mapping with equal items, and is hashable when its values are. The order of its keys is unspecified.
    It is safe to share between threads: nothing that a map refers to is changed once the map exists.

    >>> one = map_of({"a": 1})
    >>> two = one.set("b", 2).delete("a")
    >>> one, two
    (Map({'a': 1}), Map({'b': 2}))
    """

    __slots__ = ()

    @abstractmethod
    def set(self, key: K, value: V) -> Map[K, V]:
        """This map with the value under the key."""

    @abstractmethod
    def delete(self, key: K) -> Map[K, V]:
        """This map without the key. Raises KeyError when it is not there."""


@final
class _Small(dict[K, V], Map[K, V]):
    """Few entries. The methods of dict that read are inherited, so reading runs no Python code."""

    __slots__ = ()

    def set(self, key: K, value: V) -> Map[K, V]:
        changed = _Small(self)
        changed[key] = value
        return changed if len(changed) <= SMALL else _Large(_divided(changed, 0), len(changed))

    def delete(self, key: K) -> Map[K, V]:
        changed = _Small(self)
        del changed[key]
        return changed

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride] - a dict that never changes
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"Map({dict(self)!r})"


@final
class _Large(Map[K, V]):
    """Many entries, in a tree."""

    __slots__ = ("_root", "_size")

    def __init__(self, root: _Node, size: int) -> None:
        self._root = root
        self._size = size

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
        below: Any = self._root
        bits = hash(key) & HASH
        while type(below) is _NODE:
            below = below[bits & MASK]
            bits >>= BITS
        return below.get(key, default)

    def __contains__(self, key: Any) -> bool:
        return self.get(key, _NO_LEAF) is not _NO_LEAF

    def set(self, key: K, value: V) -> Map[K, V]:
        bits, shift = hash(key) & HASH, 0
        root = node = self._root.copy()
        place = bits & MASK
        while type(below := node[place]) is _NODE:
            node[place] = node = below.copy()
            shift += BITS
            place = bits >> shift & MASK
        leaf = {**below, key: value}
        node[place] = leaf if len(leaf) <= LEAF else _divided(leaf, shift + BITS)
        return _Large(root, self._size + len(leaf) - len(below))

    def delete(self, key: K) -> Map[K, V]:
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
        smaller: _Large[K, V] = _Large(root, self._size - 1)
        return smaller if self._size > SMALL // 2 + 1 else _Small(smaller.items())

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(_leaves(self._root))

    def items(self) -> ItemsView[K, V]:
        return self._gathered().items()

    def values(self) -> ValuesView[V]:
        return self._gathered().values()

    def _gathered(self) -> dict[K, V]:
        """All entries in one dict: whoever asks for them wants most of them, and then that is the quickest way."""
        found: dict[K, V] = {}
        for leaf in _leaves(self._root):
            found.update(leaf)
        return found

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:  # where a key is depends on its hash, which is another in each process
        return map_of, (self._gathered(),)

    def __repr__(self) -> str:
        return f"Map({self._gathered()!r})"


def map_of(items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> Map[K, V]:
    """A map of these entries; of equal keys the last wins."""
    if isinstance(items, Map):
        return cast(Map[K, V], items)
    small: _Small[K, V] = _Small(items)
    return small if len(small) <= SMALL else _Large(_divided(small, 0), len(small))


def _leaves(node: _Node) -> Iterator[_Leaf]:
    for below in node:
        if type(below) is _NODE:
            yield from _leaves(below)
        else:
            yield below


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


__all__ = ["SMALL", "Map", "map_of"]
