"""Marking what cannot be saved, so that one value without a JSON form does not keep a session from being saved."""

from __future__ import annotations

from typing import Any

from .encoding import OpaqueValue, class_of, parts_of, type_name, with_parts
from .secret_values import encode_masked


def marked(value: Any, above: tuple[int, ...] = ()) -> Any:
    """The value with an `OpaqueValue` in the place of each smallest part that cannot be saved.

    It is an `OpaqueValue` itself when that does not help: a field with a declared type does not keep a mark, so the
    object around it is what is lost. Nothing of an opaque value is called but what copying and comparing call; what
    they raise makes it opaque.
    """
    mark = OpaqueValue(type_name(class_of(value)))
    if id(value) in above:
        return mark
    try:
        if _can_be_saved(value):
            return value
        parts = parts_of(value)
        if parts is None:
            return mark
        rebuilt = with_parts(value, {key: marked(part, (*above, id(value))) for key, part in parts.items()})
        return rebuilt if _can_be_saved(rebuilt) else mark
    except Exception:  # noqa: BLE001 - the value's class is somebody else's code
        return mark


def _can_be_saved(value: Any) -> bool:
    try:
        encode_masked(value)
    except Exception:  # noqa: BLE001 - SessionFormatError, or what the value's class raises
        return False
    return True


__all__ = ["marked"]
