"""The hashes that rows of the release before were made with: over the params in JSON. Kept for one release.

They are only looked up, so that what an earlier release recorded is found; new rows have hashes by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from hashlib import sha256
from json import dumps
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from .canonical import canonical


def serialised_hash(params: object) -> str | None:
    """The hash of the params in JSON; None when they have no JSON form, so that no such row can exist."""
    try:
        return sha256(_serialised(params)).hexdigest()[:32]
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
    return _text(_form(params) if _needs_form(params) else _dump(params)).encode("utf-8", "surrogatepass")


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
        return {"set": sorted(_text(_form(item)) for item in cast(AbstractSet[Any], value))}
    if isinstance(value, Mapping):
        pairs = cast(Mapping[Any, Any], value).items()
        return {"map": sorted([_text(_form(name)), _text(_form(item))] for name, item in pairs)}
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


def _text(plain: Any) -> str:
    return dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


__all__ = ["is_exact", "serialised_hash"]
