"""What a ledger stores about a call: its id, its state, and the effect once it has happened."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID, uuid4

from ...errors import SessionFormatError
from ...lazy_modules import hashlib
from ...results import ToolResult
from ...session.encoding import PLAIN_TYPES, adapter_of, class_of, comes_back, decode, encode, present_name, type_name
from ..redaction import text_of

# Results in a ledger: JSON with its type's name, so that a replay gives the typed value again.


_LONGEST_NUMBER = 4300  # digits of the longest number that is read; a shorter text has none that is longer
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


NO_RESULT = StoredResult("")


def store_result(result: ToolResult[Any], declared: Any) -> StoredResult:
    """The result as text; that `load_result` gives an equal value was checked.

    Never raises for a value: the effect has happened already. A value without a JSON form is left out, and
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


def load_result(stored: StoredResult, declared: Any) -> ToolResult[Any]:
    """The typed result again; without its value, and saying so, when that was not kept or has changed its type."""
    message, text, name, patches, problem, excluded = stored
    if text is not None and name == "" and _declares(declared):
        try:
            value = adapter_of(declared).validator.validate_json(text, by_name=True, by_alias=False)
            return ToolResult(message, value, True, excluded)
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
        text = adapter.serializer.to_json(value, warnings="none", ensure_ascii=True, by_alias=False).decode()
        if class_of(value) is declared and len(text) < _LONGEST_NUMBER and comes_back(value):
            return text
        back = adapter.validate_json(text, by_name=True, by_alias=False)
        same = class_of(back) is class_of(value) and bool(back == value)
    except Exception:  # noqa: BLE001 - as above
        return None
    return text if same else None


def _finder(declared: Any) -> Callable[[str], type[Any]]:
    """Classes by name: the tool's own, plain ones, and those of modules that are loaded; nothing is imported."""

    def find(name: str) -> type[Any]:
        name = present_name(name)
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
    """The text, with what a database cannot store replaced: NUL characters and lone surrogates."""
    return text_of(text).replace("\x00", "\ufffd").encode("utf-8", "backslashreplace").decode()


EffectState = Literal["started", "succeeded", "unknown"]
"""started: a process holds the claim, until its lease runs out; succeeded: the effect happened, and this is its result;
unknown: whether it happened is not known, so it is not repeated."""

MAX_KEY = 512
"""Longer keys are hashed: databases index only so much."""


MAX_TTL = timedelta(days=365_000)
"""A longer ttl counts as none: `datetime` ends in the year 9999."""


def effective_ttl(ttl: timedelta | None) -> timedelta | None:
    """How long to remember a success; None for no limit."""
    return None if ttl is None or ttl > MAX_TTL else ttl


class EffectId(NamedTuple):
    """Which call: the key as `IdempotencyConfig` makes it, and the session that a session-scoped key belongs to."""

    key: str
    session_id: str = ""

    @property
    def text(self) -> str:
        """Key and session as one text, unique also for services outside; what handlers read."""
        return f"{self.key}@{self.session_id}" if self.session_id else self.key


def storable_key(key: str) -> str:
    """The key, or a hash of one that is too long for an index or that a database could not hold."""
    if len(key) <= MAX_KEY and key.isascii() and "\x00" not in key:
        return key
    raw = key.encode("utf-8", "surrogatepass")
    if len(raw) <= MAX_KEY and b"\x00" not in raw and key.isprintable():
        return key
    return f"{key.partition(':')[0][:64]}:sha256:{hashlib.sha256(raw).hexdigest()}"


@dataclass(frozen=True, slots=True)
class ToolEffect:
    """An effect that happened, and the result to answer with when it is asked for again.

    Attributes:
        idempotency_key: the key of the call, `scope:tool:hash` or `scope:` and what `key_fn` said.
        params_hash: a hash of the params; the params themselves are not stored.
        result_value: the value as plain JSON data, for people; a replay makes the typed value again of `stored`.
        created_at: when it was recorded.
        expires_at: from then on it counts as never having happened; None for never.
        session_id: the session the key belongs to; empty for keys that all sessions share.
    """

    idempotency_key: str
    tool_name: str
    params_hash: str
    result_message: str
    result_value: Any
    result_success: bool
    created_at: datetime
    expires_at: datetime | None
    effect_id: UUID = field(default_factory=uuid4)
    session_id: str = ""
    stored: StoredResult = NO_RESULT


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A row as operators see it.

    Attributes:
        token: rises with every claim of the row; only the newest can record.
        started_at: when the call was claimed last.
        lease_left: seconds until a started call counts as abandoned; zero or less once it does.
        why: for an unknown one, what made it so.
        effect: for a succeeded one, what happened.
    """

    id: EffectId
    tool_name: str
    params_hash: str
    state: EffectState
    token: int
    started_at: datetime
    lease_left: float = 0.0
    why: str = ""
    effect: ToolEffect | None = None
