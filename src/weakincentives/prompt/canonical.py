"""Values as bytes: the same for equal values, and for no others, in every process. What keys and hashes are made of.

By value, not by serialisation: a field that is excluded or masked in JSON counts, `Decimal` 10 and 10.00 are one value,
and so are equal instants in two zones. Values of different kinds differ, also 1, 1.0 and True: the types of their
fields do.
"""

from __future__ import annotations

import ipaddress
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

import pydantic_core
from pydantic import AnyUrl, BaseModel

from ..errors import SchemaError

Encoder = Callable[[Any], bytes]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAX_CLASSES = 4096


def canonical(value: object) -> bytes:
    """The value's form; `SchemaError` for one that has none. To be hashed, not kept: secrets are in it."""
    try:
        return _encode(value)
    except RecursionError:
        raise SchemaError("The value contains itself, or is nested too deeply to be compared.") from None


def has_form(cls: type[Any]) -> bool:
    """Whether values of the class, apart from what they contain, have a form."""
    return _find(cls) is not None


def _encode(value: Any) -> bytes:
    cls = cast("type[Any]", type(value))
    return (_encoders.get(cls) or _learn(cls))(value)


def _learn(cls: type[Any]) -> Encoder:
    found = _find(cls)
    if found is None:
        raise SchemaError(f"Two values of the class {cls.__qualname__} cannot be compared.")
    if len(_encoders) >= _MAX_CLASSES:  # classes may be made without end
        _encoders.clear()
    _encoders[cls] = found
    return found


def _find(cls: type[Any]) -> Encoder | None:
    """The encoder of a class. Enums and records come first: some of them are numbers, text or tuples as well."""
    if issubclass(cls, Enum):
        return _flag if issubclass(cls, Flag) else _member
    if hasattr(cls, "get_secret_value"):
        return _secret
    if issubclass(cls, BaseModel):
        return _record(b"m", cls, tuple(cls.model_fields), "__pydantic_extra__")
    if is_dataclass(cls):
        return _record(b"r", cls, tuple(item.name for item in fields(cls)), _extra_of(cls))
    names: Any = getattr(cls, "_fields", None)
    if names is not None and issubclass(cls, tuple):
        return _record(b"N", cast("type[Any]", cls), tuple(names), None)
    return next((encoder for base, encoder in _KINDS if issubclass(cls, base)), None)


def _frame(tag: bytes, parts: Iterable[bytes]) -> bytes:
    """Each part with its length, so that no two lists of parts share their bytes."""
    made = [tag]
    for part in parts:
        made.append(len(part).to_bytes(8, "big"))
        made.append(part)
    return b"".join(made)


# Records: their class and all their fields, by name, whatever their serialisers do.


def _record(tag: bytes, cls: type[Any], names: tuple[str, ...], extra: str | None) -> Encoder:
    """The encoder of one class.

    The class is known by its qualified name without the module: that is another one when a program is run as a script,
    as a module or in a spawned process. `key_types` refuses two classes of one name.
    """
    head = _text(cls.__qualname__)
    known = [(name, _text(name)) for name in sorted(names)]

    def encode(value: Any) -> bytes:
        parts = [head]
        for name, label in known:
            found = getattr(value, name, _MISSING)
            if found is not _MISSING:
                parts += (label, _encode(found))
        more: Any = None if extra is None else getattr(value, extra, None)
        if more:
            parts += _pairs({name: item for name, item in more.items() if name not in names})
        return _frame(tag, parts)

    return encode


_MISSING: Any = object()


def _extra_of(cls: type[Any]) -> str | None:
    """Where a pydantic dataclass that allows other names keeps them."""
    config: Any = getattr(cls, "__pydantic_config__", None) or {}
    return "__dict__" if config.get("extra") == "allow" else None


def _member(value: Any) -> bytes:
    return _frame(b"e", (_text(type(value).__qualname__), _text(value.name)))


def _flag(value: Any) -> bytes:
    return _frame(b"g", (_text(type(value).__qualname__), _encode(value.value)))


def _secret(value: Any) -> bytes:
    return b"x" + _encode(value.get_secret_value())


# Containers.


def _list(value: Any) -> bytes:
    return _frame(b"l", map(_encode, value))


def _tuple(value: Any) -> bytes:
    return _frame(b"t", map(_encode, value))


def _deque(value: Any) -> bytes:
    return _frame(b"q", map(_encode, value))


def _set(value: Any) -> bytes:
    return _frame(b"s", sorted(map(_encode, value)))  # their own order is another one in each process


def _mapping(value: Any) -> bytes:
    return _frame(b"o", _pairs(value))


def _pairs(value: Mapping[Any, Any]) -> list[bytes]:
    pairs = sorted((_encode(name), _encode(item)) for name, item in value.items())
    return [part for pair in pairs for part in pair]


# Single values.


def _text(value: str) -> bytes:
    return b"u" + str.encode(value, "utf-8", "surrogatepass")


def _float(value: float) -> bytes:
    return b"f" + float.hex(value + 0.0).encode()  # -0.0 + 0.0 is 0.0, which it is equal to


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return b"c" + str(value).encode()  # infinities, and what is not a number
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    if not short:
        return b"c0"
    # Not normalize(): that rounds to the precision of the current context.
    return b"c" + f"{'-' if sign else ''}{short}e{exponent + len(text) - len(short)}".encode()


def _datetime(value: datetime) -> bytes:
    if value.utcoffset() is None:
        return b"w" + value.replace(tzinfo=None, fold=0).isoformat().encode()
    return b"i" + str((value - _EPOCH) // _MICROSECOND).encode()


def _time(value: time) -> bytes:
    offset = value.utcoffset()
    day = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    if offset is None:
        return b"k" + str(day // _MICROSECOND).encode()
    return b"z" + str((day - offset) // _MICROSECOND).encode()


def _pattern(value: re.Pattern[Any]) -> bytes:
    return _frame(b"p", (_encode(value.pattern), _encode(value.flags)))


def _address(value: Any) -> bytes:
    return _frame(b"a", (_text(type(value).__name__), _text(str(value))))


_KINDS: tuple[tuple[Any, Encoder], ...] = (
    (type(None), lambda _: b"0"),
    (bool, lambda value: b"b1" if value else b"b0"),
    (int, lambda value: b"n" + format(int(value), "x").encode()),  # not str: that refuses very long ones
    (float, _float),
    (complex, lambda value: _frame(b"j", (_float(value.real), _float(value.imag)))),
    (Decimal, _decimal),
    (Fraction, lambda value: b"h" + f"{value.numerator:x}/{value.denominator:x}".encode()),
    (str, _text),
    ((bytes, bytearray), lambda value: b"y" + bytes(value)),
    (datetime, _datetime),
    (date, lambda value: b"d" + value.isoformat().encode()),
    (time, _time),
    (timedelta, lambda value: b"v" + str(value // _MICROSECOND).encode()),
    (UUID, lambda value: b"U" + value.bytes),
    (PurePath, lambda value: b"/" + _text(str(value))),
    ((ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network), _address),
    ((AnyUrl, pydantic_core.Url, pydantic_core.MultiHostUrl), lambda value: b"@" + _text(str(value))),
    (re.Pattern, _pattern),
    (list, _list),
    (tuple, _tuple),
    (deque, _deque),
    (AbstractSet, _set),
    (Mapping, _mapping),
)  # fmt: skip
"""In this order: a bool is an int, a datetime is a date."""

_encoders: dict[type[Any], Encoder] = {}


__all__ = ["canonical", "has_form"]
