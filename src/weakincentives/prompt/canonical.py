"""Values as bytes, for keys and hashes: equal values give the same bytes in every process, different values do not.

By value, not by serialisation: a field that is excluded or masked in JSON counts, `Decimal` 10 and 10.00 are one value,
and so are equal instants in two zones. Values of different kinds differ, also 1, 1.0 and True: the types of their
fields do.
"""

from __future__ import annotations

import ipaddress
import re
import types
from collections import abc, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from functools import cache
from json import dumps
from pathlib import PurePath
from struct import Struct
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    final,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

import pydantic_core
from pydantic import BaseModel
from pydantic_core import from_json, to_json

from ..errors import SchemaError
from ..lazy_modules import hashlib

Encoder = Callable[[Any], bytes]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAX_CLASSES = 4096
_length = Struct(">Q").pack


def canonical(value: object) -> bytes:
    """The value's form; `SchemaError` for one that has none. To be hashed, not kept: secrets are in it."""
    try:
        return _encode(value)
    except RecursionError:
        raise SchemaError("The value contains itself, or is nested too deeply to be compared.") from None


def _encode(value: Any) -> bytes:
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    return (_encoders.get(kind) or _learn(kind))(value)  # pyright: ignore[reportUnknownArgumentType]


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
    return next((encoder for base, encoder in _kinds() if issubclass(cls, base)), None)


def _frame(tag: bytes, parts: Iterable[bytes]) -> bytes:
    """Each part with its length, so that no two lists of parts share their bytes."""
    made = [tag]
    for part in parts:
        made += (_length(len(part)), part)
    return b"".join(made)


# Records: their class and all their fields, by name; their serialisers are not asked.


def _record(tag: bytes, cls: type[Any], names: tuple[str, ...], extra: str | None) -> Encoder:
    """The encoder of one class.

    The class is known by its qualified name without the module: that is another one when a program is run as a script,
    as a module or in a spawned process. `key_types` refuses two classes of one name.
    """
    head = _frame(tag, [_text(cls.__qualname__)])
    known = [(name, _frame(b"", [_text(name)])) for name in sorted(names)]

    def encode(value: Any) -> bytes:
        made = [head]
        for name, label in known:
            found: Any = getattr(value, name, _MISSING)
            if found is not _MISSING:
                # As `_encode` does it, with a function less for each field.
                kind = type(found)  # pyright: ignore[reportUnknownVariableType]
                part = (_encoders.get(kind) or _learn(kind))(found)  # pyright: ignore[reportUnknownArgumentType]
                made += (label, _length(len(part)), part)
        more: Any = None if extra is None else getattr(value, extra, None)
        if more:
            made.append(_frame(b"", _pairs({name: item for name, item in more.items() if name not in names})))
        return b"".join(made)

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


# Single values, and the pairs of mappings.


def _pairs(value: Mapping[Any, Any]) -> list[bytes]:
    pairs = sorted((_encode(name), _encode(item)) for name, item in value.items())
    return [part for pair in pairs for part in pair]


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


def _address(value: Any) -> bytes:
    return _frame(b"a", (_text(type(value).__name__), _text(str(value))))


@cache
def _kinds() -> tuple[tuple[Any, Encoder], ...]:
    """Classes and their encoders, in this order: a bool is an int, a datetime is a date."""
    from pydantic import AnyUrl  # noqa: PLC0415 - slow to import, and few programs make keys

    return (
        (type(None), lambda _: b"0"),
        (bool, lambda value: b"b1" if value else b"b0"),
        (int, lambda value: b"n%x" % value),  # not str: that refuses very long ones
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
        (re.Pattern, lambda value: _frame(b"p", (_encode(value.pattern), _encode(value.flags)))),
        (list, lambda value: _frame(b"l", map(_encode, value))),
        (tuple, lambda value: _frame(b"t", map(_encode, value))),
        (deque, lambda value: _frame(b"q", map(_encode, value))),
        (AbstractSet, lambda value: _frame(b"s", sorted(map(_encode, value)))),  # their own order differs by process
        (Mapping, lambda value: _frame(b"o", _pairs(value))),
    )  # fmt: skip


_encoders: dict[type[Any], Encoder] = {}


# Which types of params keys can be made of, as far as their annotations show it.


_UNIONS = (Union, types.UnionType)
_ABSTRACT = (abc.Sequence, abc.MutableSequence, abc.Collection)
"""What pydantic fills with lists and the like."""


def unkeyable(params_type: Any, names: tuple[str, ...] = ()) -> str | None:
    """What in the type keeps keys from being made of its values, in words; None when nothing is known to.

    Only the fields in `names` are looked at, if there are any. Annotations that say nothing (`Any`, a type variable,
    a name that cannot be resolved here) are left to the call.
    """
    look = _AnnotationWalk()
    hints = _hints(get_origin(params_type) or params_type)
    for name in names:
        if name in hints:
            look.at(f"its field {name!r}", hints[name])
    if not names:
        look.at("it", params_type)
    return look.problem


@final
class _AnnotationWalk:
    """A walk through annotations that ends at the first problem."""

    __slots__ = ("_classes", "problem")

    def __init__(self) -> None:
        self._classes: dict[str, Any] = {}
        self.problem: str | None = None

    def at(self, where: str, hint: Any) -> None:
        origin = get_origin(hint)
        said = getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None)  # NewType, `type X = ...`
        if self.problem is not None or origin is Literal or _says_nothing(hint):
            return
        if origin is Annotated or said is not None:
            self.at(where, get_args(hint)[0] if said is None else said)
            return
        cls = origin or hint
        if isinstance(cls, type) and cls not in _UNIONS and not _is_known(cls):  # forward references show nothing
            self.problem = f"{where} holds values of the class {cls.__qualname__}, which cannot be compared"
        for inner in get_args(hint):
            self.at(where, inner)
        if self.problem is None:
            self._inside(where, cls)

    def _inside(self, where: str, cls: Any) -> None:
        """Look at a class that is known by its name, once."""
        hints = _hints(cls)
        if not hints and not (isinstance(cls, type) and issubclass(cls, Enum)):
            return
        known = self._classes.get(cls.__qualname__)
        if known is cls:
            return
        if known is not None:
            self.problem = f"{where} holds values of two classes named {cls.__qualname__}, which cannot be told apart"
        self._classes[cls.__qualname__] = cls
        for name, hint in hints.items():
            self.at(f"its field {name!r}" if where == "it" else f"{where}, in {cls.__qualname__}.{name},", hint)


def _says_nothing(hint: Any) -> bool:
    """Also pydantic's markers, such as `AwareDatetime`: their values are of other classes."""
    if hint is None or hint is Any or hint is object or hint is ... or isinstance(hint, str | TypeVar):
        return True
    return str(getattr(hint, "__module__", "")).partition(".")[0] == "pydantic" and not _is_known(hint)


def _is_known(cls: Any) -> bool:
    if is_typeddict(cls) or cls in _ABSTRACT:
        return True
    return isinstance(cls, type) and _find(cast("type[Any]", cls)) is not None


def _is_model(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, BaseModel)


def _hints(cls: Any) -> dict[str, Any]:
    """The annotations of a record's fields; nothing for other classes, and for names that cannot be resolved."""
    if _is_model(cls):
        return {name: field.annotation for name, field in cls.model_fields.items()}
    names: Any = getattr(cls, "_fields", None)
    if is_dataclass(cls):
        names = [item.name for item in fields(cls)]
    if names is None and not is_typeddict(cls):
        return {}
    try:
        hints = get_type_hints(cls)
    except Exception:  # noqa: BLE001 - annotations are users' code, and may need names that are not here
        return {}
    return hints if names is None else {name: hints[name] for name in names if name in hints}


# The hashes that rows of the release before were made with: over the params in JSON. Kept for one release.
#
# They are only looked up, so that what an earlier release recorded is found; new rows have hashes by value.


def serialised_hash(params: object) -> str | None:
    """The hash of the params in JSON; None when they have no JSON form, so that no such row can exist."""
    try:
        return hashlib.sha256(_serialised(params)).hexdigest()[:32]
    except Exception:  # noqa: BLE001 - serialisers are users' code
        return None


def is_exact(params: Any, parse: Callable[[Any], Any]) -> bool:
    """Whether the params alone have their serialised hash: not when a serialiser masks or leaves out a part of them."""
    try:
        return _needs_form(params) or canonical(parse(_dump(params))) == canonical(params)
    except Exception:  # noqa: BLE001 - serialisers and validators are users' code
        return False


def _serialised(params: object) -> bytes:
    """The same bytes for equal params, and for no others. To be hashed, not kept: secrets are in them."""
    return _serialised_text(_form(params) if _needs_form(params) else _dump(params)).encode("utf-8", "surrogatepass")


def _needs_form(value: Any) -> bool:
    """Whether JSON alone does not tell it from others: sets have no order there, and all secrets look alike."""
    if value is None or isinstance(value, str | int | float | bytes):
        return False
    if isinstance(value, AbstractSet) or hasattr(cast(object, value), "get_secret_value"):
        return True
    return any(map(_needs_form, _parts(value)))


def _form(value: Any) -> Any:
    """Plain data that is equal for equal values and different for others."""
    reveal = getattr(value, "get_secret_value", None)
    if reveal is not None:
        return {"secret": _form(reveal())}
    if isinstance(value, AbstractSet):
        return {"set": sorted(_serialised_text(_form(item)) for item in cast(AbstractSet[Any], value))}
    if isinstance(value, Mapping):
        pairs = cast(Mapping[Any, Any], value).items()
        return {"map": sorted([_serialised_text(_form(name)), _serialised_text(_form(item))] for name, item in pairs)}
    parts = _parts(value)
    return [type(value).__name__, *map(_form, parts)] if parts else _dump(value)


def _parts(value: Any) -> Sequence[Any]:
    if isinstance(value, Mapping):
        pairs = cast(Mapping[Any, Any], value)
        return [*pairs, *pairs.values()]
    if isinstance(value, BaseModel):
        return [dict(value)]
    if is_dataclass(value):
        return [getattr(value, item.name) for item in fields(value)]
    return cast(Sequence[Any], value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def _dump(value: Any) -> Any:
    """JSON data as that release wrote it: with the names of attributes, also of those that have an alias."""
    return from_json(to_json(value, inf_nan_mode="strings"))


def _serialised_text(plain: Any) -> str:
    return dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
