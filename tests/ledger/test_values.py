"""Results come back from a ledger as they went in, typed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from weakincentives.results import ToolResult
from weakincentives.runtime.ledger import effects as values
from weakincentives.runtime.ledger.effects import StoredResult, load_result, storable_key, store_result


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Item:
    name: str
    price: Decimal = Decimal("1.10")


@dataclass(frozen=True)
class Special(Item):
    reason: str = "because"


@dataclass(frozen=True)
class Basket:
    items: tuple[Item, ...] = ()
    when: datetime = datetime(2025, 1, 1, tzinfo=UTC)
    colour: Colour = Colour.RED
    notes: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    anything: Any = None


class Model(BaseModel):
    x: int
    y: list[str] = []


VALUES: list[tuple[Any, Any]] = [
    ("text", str),
    ("", str),
    (7, int),
    (1.5, float),
    (True, bool),
    (Item("a"), Item),
    (Basket((Item("a"), Item("b"))), Basket),
    (Basket(notes={"a": [1, 2]}, anything={"b": [None, 1.5]}), Basket),
    (Basket(anything=Item("inner")), Basket),
    (Special("a"), Item),
    ([Item("a")], list[Item]),
    ((Item("a"), Item("b")), tuple[Item, ...]),
    ([Item("a")], Any),
    (Model(x=1, y=["a"]), Model),
    (Item("a"), Item | Model),
    (Colour.RED, Colour),
    (UUID(int=5), UUID),
    (date(2025, 2, 3), date),
    (timedelta(hours=3), timedelta),
    ({"a": 1}, dict[str, int]),
    (frozenset({1, 2}), frozenset[int]),
    (Item("a"), None),
    (b"bytes", bytes),
    ("\u00e9\u4e2d\U0001f600", str),
    ("nul\x00", str),
]


@pytest.mark.parametrize(("value", "declared"), VALUES)
def test_a_value_comes_back_with_its_type(value: Any, declared: Any) -> None:
    """Through JSON text, whatever the tool declares."""
    stored = store_result(ToolResult.ok(value, message="Done."), declared)
    assert stored.problem == ""
    json.loads(stored.value or "")
    back = load_result(stored, declared)
    assert back == ToolResult.ok(value, message="Done.")
    assert type(back.value) is type(value)


def test_what_comes_back_is_a_copy() -> None:
    """Changing one replay's value does not change the next one's."""
    stored = store_result(ToolResult.ok({"a": [1]}), dict[str, list[int]])
    first: Any = load_result(stored, dict[str, list[int]]).value
    first["a"].append(2)
    assert load_result(stored, dict[str, list[int]]).value == {"a": [1]}


def test_a_result_without_a_value_has_none() -> None:
    """Nor a note about one."""
    assert load_result(store_result(ToolResult("Done."), str), str) == ToolResult("Done.")


def test_exclusion_is_kept() -> None:
    """What the model was not to read the first time, it does not read the second time."""
    result = ToolResult("Done.", "long", exclude_value_from_context=True)
    assert load_result(store_result(result, str), str) == result


class Opaque:
    pass


@pytest.mark.parametrize("value", [Opaque(), lambda: None, open, object()])
def test_a_value_that_cannot_be_kept_says_so(value: Any) -> None:
    """The effect is recorded all the same, with its message."""
    stored = store_result(ToolResult.ok(value, message="Done."), type(value))
    assert stored.value is None
    assert stored.problem
    back = load_result(stored, type(value))
    assert back.value is None
    assert back.message.startswith("Done.\n[The value of the first run cannot be shown again: ")


def test_a_value_that_is_too_large_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger holds results, not archives."""
    monkeypatch.setattr(values, "MAX_VALUE_CHARS", 100)
    assert "more than 100 characters" in store_result(ToolResult.ok("x" * 200), str).problem


def test_a_class_that_has_changed_is_noticed() -> None:
    """The message still answers, and says what is missing."""
    stored = StoredResult("Done.", '{"nome": "a"}')
    back = load_result(stored, Item)
    assert back.value is None
    assert "cannot be shown again" in back.message
    gone = StoredResult("Done.", '{"name": "a"}', "nowhere:Gone")
    assert "no class nowhere:Gone any more" in load_result(gone, Any).message


def test_nothing_is_imported_for_a_name_in_a_ledger() -> None:
    """Only classes of loaded modules are found."""
    import sys

    sys.modules.pop("this", None)
    assert "cannot be shown" in load_result(StoredResult("x", "1", "this:d"), Any).message
    assert "this" not in sys.modules


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(JSON)
def test_any_json_comes_back(value: Any) -> None:
    """Or says that it cannot."""
    stored = store_result(ToolResult.ok(value), Any)
    back = load_result(stored, Any)
    assert back.value == value or (back.value is None and stored.problem)


@given(st.text())
def test_keys_fit_any_index_and_stay_apart(key: str) -> None:
    """Whatever a key function gives: bounded, without what databases refuse, and the same each time."""
    stored = storable_key(f"scope:{key}")
    assert len(stored.encode()) <= 600
    assert "\x00" not in stored
    assert storable_key(stored) == stored
    assert storable_key(f"scope:{key}x") != stored


def test_long_keys_that_differ_at_the_end_stay_apart() -> None:
    """They are hashed as a whole."""
    assert len({storable_key("s:" + "x" * 2000 + end) for end in "abc"}) == 3
    assert storable_key("tenant:" + "x" * 2000).startswith("tenant:sha256:")


@dataclass(frozen=True)
class Counted:
    name: str
    count: int | None = None
    done: bool = False
    values: tuple[int, ...] = ()


_FIELD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800")


@given(st.builds(Counted, _FIELD, _FIELD, _FIELD, st.lists(_FIELD, max_size=3).map(tuple) | _FIELD))
def test_what_is_kept_unread_comes_back_equal(value: Any) -> None:
    """Where types are taken for proof they are those of this very value, whatever its class declares."""
    stored = store_result(ToolResult.ok(value), Counted)
    if not stored.problem:
        loaded = load_result(stored, Counted).value
        assert repr(loaded) == repr(value) or loaded == value


@pytest.mark.parametrize("digits", [4290, 4299, 4300, 4301, 5000])
def test_a_number_that_cannot_be_read_is_not_kept_unread(digits: int) -> None:
    """Longer numbers are written, but not read: a value with one is kept only as far as it comes back."""
    value = Counted("a", 10 ** (digits - 1))
    stored = store_result(ToolResult.ok(value), Counted)
    assert bool(stored.problem) == (digits > 4300)
    if not stored.problem:
        assert load_result(stored, Counted).value == value
