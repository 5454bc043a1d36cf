"""Results in a ledger: JSON with its type's name, so that a replay gives the typed value again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import NoneType
from typing import Any, NamedTuple, get_args

from ...errors import SessionFormatError
from ...results import ToolResult
from ...session.encoding import PLAIN_TYPES, adapter_of, class_of, decode, encode, type_name
from ..redaction import text_of

MAX_VALUE_CHARS = 16 * 1024 * 1024
"""A longer value is not kept, only the message."""


class StoredResult(NamedTuple):
    """A successful result as text.

    Attributes:
        value: the value as JSON; None when the result had none, or it could not be kept.
        value_type: the class of the value; empty when it is what the tool declares.
        value_patches: JSON; the parts of the value that its class leaves open, with their types.
        problem: why the value was not kept.
        excluded: `ToolResult.exclude_value_from_context`.
    """

    message: str
    value: str | None = None
    value_type: str = ""
    value_patches: str = ""
    problem: str = ""
    excluded: bool = False

    @property
    def data(self) -> Any:
        """The value as plain JSON data."""
        return None if self.value is None else json.loads(self.value)


NOTHING = StoredResult("")


def pack(result: ToolResult[Any], declared: Any) -> StoredResult:
    """The result as text that is proved to come back.

    Never raises for a value: the effect has happened already. One that has no JSON form is left out, and
    `problem` says why.
    """
    message, value, excluded = _text(result.message), result.value, result.exclude_value_from_context
    if value is None:
        return StoredResult(message, excluded=excluded)
    try:
        packed = _as_declared(value, declared)
        if packed is not None:
            stored = StoredResult(message, packed, excluded=excluded)
        else:
            data, patches = encode(value)
            notes = json.dumps(patches) if patches else ""
            stored = StoredResult(message, json.dumps(data), type_name(class_of(value)), notes, excluded=excluded)
    except Exception as error:  # noqa: BLE001 - values are users' code: their serialisers may raise anything
        return StoredResult(message, problem=_text(text_of(error) or type(error).__name__), excluded=excluded)
    if len(stored.value or "") + len(stored.value_patches) > MAX_VALUE_CHARS:
        return StoredResult(message, problem=f"it has more than {MAX_VALUE_CHARS} characters", excluded=excluded)
    return stored


def unpack(stored: StoredResult, declared: Any) -> ToolResult[Any]:
    """The typed result again; without its value, and saying so, when that was not kept or has changed its type."""
    message, text, name, patches, problem, excluded = stored
    if text is not None and name == "" and _declares(declared):
        try:
            return ToolResult(
                message, adapter_of(declared).validate_json(text, by_name=True, by_alias=False), True, excluded
            )
        except Exception as error:  # noqa: BLE001 - its class, and what checks it, are users' code
            return _without(message, error, excluded)
    if text is None:
        return ToolResult(_noted(message, problem) if problem else message, None, True, excluded)
    try:
        find = _finder(declared)
        data = json.loads(text)
        value = decode(find(name), data, json.loads(patches) if patches else [], find) if name else data
    except Exception as error:  # noqa: BLE001 - as above
        return _without(message, error, excluded)
    return ToolResult(message, value, True, excluded)


def _without(message: str, error: Exception, excluded: bool) -> ToolResult[Any]:
    return ToolResult(_noted(message, text_of(error).partition("\n")[0] or type(error).__name__), None, True, excluded)


def _noted(message: str, problem: str) -> str:
    return f"{message}\n[The value of the first run cannot be shown again: {problem}]"


def _declares(declared: Any) -> bool:
    return declared is not None and declared is not NoneType and declared is not Any and declared is not object


def _as_declared(value: Any, declared: Any) -> str | None:
    """The value as the JSON of its declared type; None when it would not come back the same from that."""
    if not isinstance(declared, type) and not get_args(declared):
        return None
    if not _declares(declared):
        return None
    try:
        adapter = adapter_of(declared)
        text = adapter.dump_json(value, warnings="none", ensure_ascii=True, by_alias=False).decode()
        back = adapter.validate_json(text, by_name=True, by_alias=False)
        same = class_of(back) is class_of(value) and bool(back == value)
    except Exception:  # noqa: BLE001 - as above
        return None
    return text if same else None


def _finder(declared: Any) -> Callable[[str], type[Any]]:
    """Classes by name: the tool's own, plain ones, and those of modules that are loaded; nothing is imported."""

    def find(name: str) -> type[Any]:
        for cls in (declared, *get_args(declared)):
            if isinstance(cls, type) and type_name(cls) == name:
                return cls
        plain = PLAIN_TYPES.get(name)
        if plain is not None:
            return plain
        module, _, path = name.partition(":")
        found: Any = sys.modules.get(module)
        for part in path.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, type):
            raise SessionFormatError(f"There is no class {name} any more.")
        return found

    return find


def _text(text: object) -> str:
    """Text that every database can hold."""
    return text_of(text).replace("\x00", "\ufffd").encode("utf-8", "backslashreplace").decode()


__all__ = ["MAX_VALUE_CHARS", "NOTHING", "StoredResult", "pack", "unpack"]
