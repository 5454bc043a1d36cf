"""What a run remembers of its calls: the ids that were brought, and whether the last calls only repeat themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import count
from operator import attrgetter
from typing import Any, cast, final

from pydantic import BaseModel

from ..prompt.tool import Tool
from .call import Refused, Request

MAX_ID_CHARS = 16 * 1024
"""A call whose id is longer is refused: some providers put a signature of kilobytes into an id, none a megabyte."""


def short_id(call_id: str, limit: int = MAX_ID_CHARS) -> str:
    """The id, or its beginning with a digest of the rest when it is longer than `limit`."""
    if len(call_id) <= limit:
        return call_id
    digest = sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{call_id[: limit - len(digest) - 1]}#{digest}"


PastCall = tuple[Request | None, Any]
"""A request and the value of its first field: by these two calls are compared."""

_NO_CALL: PastCall = (None, object())


@final
class CallMemory:
    """Which ids were brought to this run, and how the last calls repeat one another.

    Every id is kept as long as the run: a call that was answered is never run again. That is one entry per call, and
    its text is the one the log holds as well. Counting is exact for calls that come one after another; calls from
    several threads at once may be counted in any order.

    Attributes:
        alternated: how many calls in a row were the same as the last but one, and not as the last.
        is_idle: set by who finds that these lead nowhere; False again as soon as another call is made.
    """

    __slots__ = ("_before", "_ids", "_in_row", "_is_counting", "_last", "_numbers", "_readers", "alternated", "is_idle")

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._numbers = count()
        self._readers: dict[Tool[Any, Any], Callable[[Any], Any]] = {}
        self._last = self._before = _NO_CALL
        self._is_counting = False
        self._in_row = 1
        self.alternated = 0
        self.is_idle = False

    def knows(self, call_id: str) -> bool:
        """Whether a call with this id was brought."""
        return call_id in self._ids

    def is_new(self, call_id: str) -> bool:
        """Remember an id; False when it was there already."""
        number = next(self._numbers)
        return self._ids.setdefault(call_id, number) == number

    def refusal_of(self, call_id: str) -> Refused | None:
        """Why a call with this id must not run, or None; the id is remembered."""
        if len(call_id) <= MAX_ID_CHARS:
            number = next(self._numbers)
            # One step, so that of two threads with one id only one is first.
            if self._ids.setdefault(call_id, number) == number:
                return None
        if len(call_id) <= MAX_ID_CHARS or not self.is_new(short_id(call_id)):
            text = f"The id {call_id[:100]!r} was used before, so this call was not run."
            return Refused("invalid", text, duplicate=True)
        return Refused(
            "invalid",
            f"The id of the call has {len(call_id)} characters, so it was not run.\n"
            f"Send every call with an id of at most {MAX_ID_CHARS} characters.",
        )

    def repeats(self, request: Request, tool: Tool[Any, Any], limit: int) -> int:
        """How many times in a row this very call was made, this time included; 2 counts as 1 unless it is the limit.

        Calls are the same when their tool is and the fields of their params are equal, or their text. Also counts
        calls that are made in turn with one other; see `in_turn`.
        """
        try:
            first = self._readers[tool](request[2])
        except KeyError:
            first = self._reader(tool)(request[2])
        before = self._before
        self._before = self._last
        self._last = (request, first)
        # The last but one is the same in a row of three and when two calls alternate, and another one nearly always
        # else. Then its first field differs, as a rule: that is all an ordinary call pays for.
        try:
            if first != before[1] and not self._is_counting and limit != 2:
                return 1
        except Exception:  # noqa: BLE001, S110 - fields may hold anything; below they are compared with care
            pass
        return self._count(before, limit)

    def _count(self, before: PastCall, limit: int) -> int:
        last, this = self._before, self._last
        in_row, alternated = 1, 0
        if _is_same(this, before):
            if _is_same(this, last):
                in_row = max(self._in_row, 2) + 1
            else:
                alternated = self.alternated + 1
        elif limit == 2 and _is_same(this, last):
            in_row = 2
        self._in_row, self.alternated = in_row, alternated
        self._is_counting = in_row > 1 or alternated > 0
        self.is_idle = self.is_idle and alternated > 0
        return in_row

    def in_turn(self) -> int:
        """How many times the last call was made in turn with one other (A, B, A, B, ...), the last time included."""
        return (self.alternated + 3) // 2 if self.alternated else 1

    def two_in_turn(self) -> tuple[Request, Request]:
        """The last two calls, newest first; only when `alternated` says that there are two."""
        last, before = self._last[0], self._before[0]
        assert last is not None
        assert before is not None
        return last, before

    def _reader(self, tool: Tool[Any, Any]) -> Callable[[Any], Any]:
        names = _field_names(tool.params_type)
        reader = self._readers[tool] = attrgetter(names[0]) if names else _itself
        return reader


def same_params(one: Any, other: Any) -> bool:
    """Whether two params have equal fields, whatever their class says of equality; False when that cannot be told."""
    kind = cast(type[Any], type(one))
    try:
        if kind is not type(other):
            return bool(one == other)
        values = _fields_reader(kind)
        if values is None:
            return bool(one == other) or is_dataclass(kind)
        return bool(values(one) == values(other))
    except Exception:  # noqa: BLE001 - fields may hold anything
        return False


def _is_same(one: PastCall, other: PastCall) -> bool:
    this, that = one[0], other[0]
    if this is None or that is None or this.call.name != that.call.name:
        return False
    text = this.call.arguments
    return (type(text) is str and text == that.call.arguments) or same_params(this.params, that.params)


@lru_cache(maxsize=256)
def _fields_reader(kind: Any) -> Callable[[Any], Any] | None:
    names = _field_names(kind)
    return attrgetter(*names) if names else None


def _field_names(kind: Any) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return tuple(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else ()


def _itself(params: Any) -> Any:
    return params


__all__ = ["MAX_ID_CHARS", "CallMemory", "PastCall", "same_params", "short_id"]
