"""Values that came out of evaluated code, as text of bounded length and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

MAX_DEPTH = 30


def shown(value: object, limit: int) -> str:
    """The value's representation, cut after `limit` characters; never fails and never builds more than it shows.

    >>> shown({"a": [1, 2], "b": (3,)}, 100)
    "{'a': [1, 2], 'b': (3,)}"
    >>> shown(list(range(10**6)), 10)
    '[0, 1, 2, ... [cut: the value is longer]'
    """
    pieces: list[str] = []
    room = limit
    for piece in _pieces(value, 0, limit):
        pieces.append(piece[:room])
        room -= len(piece)
        if room < 0:
            return "".join([*pieces, "... [cut: the value is longer]"])
    return "".join(pieces)


def _pieces(value: Any, depth: int, limit: int) -> Iterator[str]:
    kind = cast(type[Any], type(value))
    if depth > MAX_DEPTH:
        yield "..."
    elif kind is str or kind is bytes:
        # A cut one is longer than the limit still, so that the cut is seen.
        yield repr(value[: limit + 1])
    elif kind is dict:
        yield from _items("{", _pairs(value, depth, limit), "}")
    elif kind is list:
        yield from _items("[", _each(value, depth, limit), "]")
    elif kind is tuple:
        yield from _items("(", _each(value, depth, limit), ",)" if len(value) == 1 else ")")
    elif kind in {set, frozenset} and value:
        yield from _items("{", _each(value, depth, limit), "}")
    else:
        yield _leaf(value)


def _items(opening: str, items: Iterator[Iterator[str]], closing: str) -> Iterator[str]:
    yield opening
    for index, item in enumerate(items):
        if index:
            yield ", "
        yield from item
    yield closing


def _each(values: Sequence[Any] | AbstractSet[Any], depth: int, limit: int) -> Iterator[Iterator[str]]:
    for value in values:
        yield _pieces(value, depth + 1, limit)


def _pairs(values: Mapping[Any, Any], depth: int, limit: int) -> Iterator[Iterator[str]]:
    for key, value in values.items():
        yield _pair(key, value, depth, limit)


def _pair(key: Any, value: Any, depth: int, limit: int) -> Iterator[str]:
    yield from _pieces(key, depth + 1, limit)
    yield ": "
    yield from _pieces(value, depth + 1, limit)


def _leaf(value: object) -> str:
    if type(value) is int and value.bit_length() > 14_000:  # Python refuses to spell more than 4,300 digits
        return f"<an integer of {value.bit_length():,} bits>"
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - whatever a backend lets out
        return f"<a {type(value).__name__} that cannot be shown: {type(error).__name__}>"


__all__ = ["shown"]
