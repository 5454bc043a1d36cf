"""Values that are kept for as long as an object lives, and forgotten without running Python code.

The callbacks of `weakref.WeakKeyDictionary`, `WeakSet` and `finalize` are Python functions. They run at whatever moment
an object goes, and an interrupt that is raised in one of them is lost: Python prints it and goes on.
"""

from __future__ import annotations

from functools import partial
from typing import Generic, TypeVar, final
from weakref import ref

K = TypeVar("K")
V = TypeVar("V")


@final
class WeakTable(Generic[K, V]):
    """Values by the identity of their keys. Single operations are safe in any thread."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[int, tuple[ref[K], V]] = {}

    def get(self, key: K) -> V | None:
        """The value of this very object, or None."""
        found = self._items.get(id(key))
        return None if found is None or found[0]() is not key else found[1]

    def put(self, key: K, value: V) -> None:
        """Keep a value until the key goes; the table does not keep the key."""
        number = id(key)
        self._items[number] = ref(key, partial(self._items.pop, number)), value  # C code throughout

    def living(self) -> list[K]:
        """The keys that are alive."""
        living = [key() for key, _ in list(self._items.values())]
        return [key for key in living if key is not None]


__all__ = ["WeakTable"]
