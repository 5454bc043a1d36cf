"""Choices made from bytes, so that whichever engine makes up the bytes makes up structured input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, TypeVar, cast, final

T = TypeVar("T")

VALUES: Sequence[Any] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 0.5, 1e308, float("nan"), float("inf"), "", "a", "\0",
    "\ud800", "\u202e", "..", "x" * 5000, [], {}, [[]], {"": None}, {"type": "str"}, [None] * 50, "1", "null",
)  # fmt: skip


@final
class Source:
    """Bytes that are used up by choices; once there are none left every choice is the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def empty(self) -> bool:
        """Whether all is used up."""
        return self._at >= len(self._data)

    def number(self, limit: int) -> int:
        """From 0 to below the limit."""
        size = 1 if limit <= 256 else 3
        piece = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(piece, "little") % limit

    def pick(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[self.number(len(options))]

    def rest(self) -> bytes:
        """All that is left."""
        piece, self._at = self._data[self._at :], len(self._data)
        return piece

    def text(self, words: Sequence[str], most: int = 40) -> str:
        """Words of a language, mixed with characters of all kinds."""
        parts: list[str] = []
        while not self.empty and len(parts) < most:
            chosen = self.number(256)
            if chosen < 160:
                parts.append(words[chosen % len(words)])
            elif chosen < 224:
                parts.append(chr(32 + self.number(95)))
            else:
                parts.append(chr(self.number(0x110000)))
        return "".join(parts)

    def changed(self, document: Any) -> bytes:
        """A JSON document of the same kind as this one, with a few parts replaced, removed, doubled or damaged."""
        root: Any = [json.loads(json.dumps(document))]
        for _ in range(self.number(6)):
            self._edit(root)
        text = json.dumps(root[0] if root else None)
        for _ in range(self.number(3)):
            at = self.number(len(text) + 1)
            text = (
                text[:at]
                + self.pick(["", "{", "]", '"', ",", "\\u", "1e999", "[" * 2000])
                + text[at + self.number(4) :]
            )
        return text.encode("utf-8", "surrogatepass")

    def _edit(self, root: Any) -> None:
        holder: Any = root
        while True:
            keys: list[Any] = list(cast(Any, holder)) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                return
            key = self.pick(keys)
            below = cast(Any, holder[key])
            if type(below) not in {dict, list} or not below or self.number(4) == 0:
                break
            holder = below
        action = self.number(4)
        if action == 0 and holder is not root:
            del holder[key]
        elif action == 1 and isinstance(holder, list):
            cast(list[Any], holder).append(deepcopy(cast(Any, holder[key])))
        elif action == 2 and isinstance(holder, dict):
            holder[self.pick(["", "type", "notes", "0", "\ud800"])] = deepcopy(cast(Any, holder[key]))
        else:
            holder[key] = deepcopy(self.pick(VALUES))


__all__ = ["Source"]
