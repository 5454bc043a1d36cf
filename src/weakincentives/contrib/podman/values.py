"""Values that code in a container made, rebuilt on the host from plain data: nothing of theirs is ever run here."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final, cast, final

MAX_DEPTH: Final = 50


@final
class Shown:
    """A value of a type that only the container knows; its representation is all there is of it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def decoded(data: Any, depth: int = 0) -> Any:
    """The value; `ValueError` for what is none."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if data is None or isinstance(data, bool | int | str):
        return data
    if not isinstance(data, list) or len(cast(list[Any], data)) != 2:
        raise ValueError("no value")
    kind, content = cast(list[Any], data)
    scalar = _SCALARS.get(kind) if isinstance(kind, str) else None
    if scalar is not None:
        if not isinstance(content, str):
            raise ValueError("no text")
        return scalar(content)
    if not isinstance(content, list):
        raise ValueError("no items")  # noqa: TRY004 - the data is wrong, not the program
    items = cast(list[Any], content)
    try:
        return _collection(kind, items, depth + 1)
    except TypeError as error:  # what cannot be hashed, as a key or in a set
        raise ValueError("no key") from error


def _collection(kind: Any, items: list[Any], depth: int) -> Any:
    if kind == "d":
        pairs = [(decoded(key, depth), decoded(value, depth)) for key, value in items]
        return dict(pairs)
    build = _COLLECTIONS.get(kind) if isinstance(kind, str) else None
    if build is None:
        raise ValueError("no such kind")
    return build([decoded(item, depth) for item in items])


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("no bytes") from error


def _integer(text: str) -> int:
    return int(text, 16)


_SCALARS: Final[Mapping[str, Callable[[str], Any]]] = {"i": _integer, "f": float, "b": _bytes, "o": Shown}
_COLLECTIONS: Final[Mapping[str, Callable[[list[Any]], Any]]] = {"l": list, "t": tuple, "s": set, "z": frozenset}

__all__ = ["Shown", "decoded"]
