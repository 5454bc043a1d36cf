"""Any value as JSON data, for display only: it may not be possible to read it back."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_jsonable_python

from ..content import for_readers
from .encoding import class_of, type_name


def json_view(value: Any) -> Any:
    """The value as JSON data: its fields, its items, and the name of the class of what has neither. Never raises.

    Secret fields (`SecretStr`) are masked; images and documents are one line of text.
    """
    try:
        with for_readers():
            return to_jsonable_python(value, by_alias=False, bytes_mode="base64", fallback=_mark)
    except Exception:  # noqa: BLE001 - values are users' code; and a value may hold itself
        return _mark(value)


def _mark(value: Any) -> dict[str, str]:
    return {"type_name": type_name(class_of(value))}


__all__ = ["json_view"]
