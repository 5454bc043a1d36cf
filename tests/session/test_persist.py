"""Saved sessions load equal, or a clear error says what is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from weakincentives.errors import SessionFormatError
from weakincentives.session import InProcessDispatcher, Session, SlicePolicy, append_all, reducer


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Step:
    title: str
    status: Literal["open", "done"] = "open"


@dataclass(frozen=True)
class Plan:
    goal: str
    steps: tuple[Step, ...] = ()
    color: Color | None = None
    due: datetime | None = None
    weights: dict[str, float] = field(default_factory=dict[str, float])
    tags: frozenset[str] = frozenset()
    after: Plan | None = None


@dataclass(frozen=True)
class BigPlan(Plan):
    budget: int = 0


@dataclass(frozen=True)
class Called:
    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    name: str
    params: object = None
    result: Any = None


@dataclass(frozen=True)
class Holder:
    plan: Plan


class Model(BaseModel):
    name: str
    extra: Any = None


@dataclass(frozen=True)
class Opaque:
    call: Callable[[], None]


class Plain:
    pass


@dataclass(frozen=True)
class Listed:
    items: list[str]


@dataclass(frozen=True)
class Raw:
    data: bytes


@dataclass(frozen=True)
class Count:
    value: int = 0

    @reducer(on=int)
    def add(self, event: int) -> Count:
        return Count(self.value + event)


TYPES = [Step, Plan, BigPlan, Called, Holder, Model, Listed, Raw, Count]

VALUES: list[Any] = [
    Step("a"),
    Plan(
        "g",
        (Step("a"), Step("b", "done")),
        Color.BLUE,
        datetime(2024, 5, 1, 12, tzinfo=UTC),
        {"x": 1.5},
        frozenset({"t"}),
        Plan("h"),
    ),
    Plan("int where a float is declared", weights={"x": 1}),
    Called("t", params=Step("a"), result=Plan("g", (Step("b"),))),
    Called("t", params=(Step("a"), {"deep": [Step("b")]}), result={"x": (1, 2)}),
    Called("t", params=Called("u", params=Step("a"))),
    Called("t", params=datetime(2024, 5, 1, tzinfo=UTC), result=timedelta(seconds=3)),
    Called("t", params=Decimal("1.10"), result=UUID(int=5)),
    Called("t", params={1, 2}, result=frozenset({"a"})),
    Called("t", params=b"bytes", result=math.inf),
    Holder(BigPlan("g", budget=7)),
    Model(name="m", extra=Step("a")),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_is_saved_loads_equal(value: Any) -> None:
    """Any value that can be saved comes back equal and of the same classes, also in fields of type object."""
    session = Session()
    session.dispatch(value)
    loaded = Session.from_json(session.to_json(), types=TYPES)
    assert loaded[type(value)].all() == [value]


def test_a_whole_session_comes_back() -> None:
    """Id, tags, STATE and LOG slices with their policies come back; text may be bytes."""
    session = Session(session_id="s1", tags={"user": "u"})
    session[Step].register(Step, append_all, policy=SlicePolicy.LOG)
    session.dispatch(Step("logged"))
    session.dispatch(Called("c"))
    session[Plan].seed([Plan("a"), BigPlan("b", budget=2)])
    session[int].seed(range(100))
    session[str].clear()
    bus = InProcessDispatcher()
    parent = Session()
    loaded = Session.from_json(session.to_json().encode(), types=[*TYPES, int], bus=bus, parent=parent)
    assert (loaded.session_id, loaded.tags) == ("s1", {"user": "u"})
    assert loaded[Step].all() == [Step("logged")]
    assert loaded[Step].policy is loaded[Called].policy is SlicePolicy.LOG
    assert loaded[Plan].all() == [Plan("a"), BigPlan("b", budget=2)]
    assert loaded[int].all() == list(range(100))
    assert loaded.dispatcher is bus
    assert loaded.parent is parent
    assert loaded.to_json() == session.to_json()


def test_any_text_can_be_written() -> None:
    """Saved text is ASCII, so even strings that no encoding takes survive a file."""
    session = Session()
    session.dispatch("\ud800 \N{SNOWMAN}")
    loaded = Session.from_json(session.to_json().encode("ascii"), types=[])
    assert loaded[str].all() == ["\ud800 \N{SNOWMAN}"]


def test_an_installed_state_goes_on_after_loading() -> None:
    """Registrations are code: installing again after loading carries on from the saved state."""
    session = Session()
    session.install(Count)
    session.dispatch(5)
    loaded = Session.from_json(session.to_json(), types=TYPES)
    loaded.install(Count)
    loaded.dispatch(2)
    assert loaded[Count].all() == [Count(7)]


def test_an_unknown_type_is_named() -> None:
    """A type that is not in `types` is an error that names it and says what to do."""
    session = Session()
    session[Step].append(Step("a"))
    with pytest.raises(SessionFormatError, match=r"test_persist:Step, which is not in types=. Add the class") as caught:
        Session.from_json(session.to_json(), types=[Plan])
    assert "Plan" in str(caught.value)


def test_an_unknown_type_inside_a_value_is_named() -> None:
    """A class in a field of type object must be in `types` too; nothing is ever imported by name."""
    session = Session()
    session.dispatch(Called("c", params=Step("a")))
    with pytest.raises(SessionFormatError, match=r"Item 0 of the slice of .*Called: .*:Step, which is not in types="):
        Session.from_json(session.to_json(), types=[Called])


def _task(**fields: type[Any]) -> type[Any]:
    made = make_dataclass("Task", [*fields.items()], frozen=True)
    made.__module__ = "app"
    return made


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"title": str, "size": int, "extra": int}, "field 'extra' is new"),
        ({"title": str}, "field 'size' is gone"),
        ({"title": str, "size": str}, "field 'size' was integer and is string"),
        ({"name": str, "size": int}, "field 'title' is gone, field 'name' is new"),
        ({"title": str, "size": int | None}, r"field 'size' was integer and is integer \| null"),
    ],
)
def test_a_changed_type_is_named_with_its_fields(fields: dict[str, Any], complaint: str) -> None:
    """A class whose fields are not what they were is an error that names class and field."""
    before = _task(title=str, size=int)
    session = Session()
    session[before].append(before(title="a", size=1))
    with pytest.raises(SessionFormatError, match=f"app:Task has changed since the session was saved: .*{complaint}"):
        Session.from_json(session.to_json(), types=[_task(**fields)])


def test_a_change_deep_inside_is_noticed() -> None:
    """A changed class inside a field counts as a change of the field."""
    inner, changed = _task(size=int), _task(size=int, more=int)

    def outer(part: type[Any]) -> type[Any]:
        made = make_dataclass("Outer", [("parts", tuple[part, ...])], frozen=True)
        made.__module__ = "app"
        return made

    session = Session()
    session[outer(inner)].seed([])
    before = outer(inner)
    session[before].append(before((inner(1),)))
    with pytest.raises(SessionFormatError, match="field 'parts' was array of Task"):
        Session.from_json(session.to_json(), types=[outer(changed)])


def test_an_accepted_change_loads_when_the_data_fits() -> None:
    """`accept_changed` loads a changed class whose saved data still fits, and names the field where it does not."""
    before = _task(title=str)
    session = Session()
    session[before].append(before(title="a"))
    with_default = make_dataclass("Task", [("title", str), ("size", int, field(default=3))], frozen=True)
    with_default.__module__ = "app"
    loaded = Session.from_json(session.to_json(), types=[], accept_changed=[with_default])
    assert loaded[with_default].all() == [with_default("a", 3)]
    with pytest.raises(SessionFormatError, match=r"Item 0 of the slice of app:Task.*size: Field required"):
        Session.from_json(session.to_json(), types=[], accept_changed=[_task(title=str, size=int)])


def test_a_changed_policy_is_refused() -> None:
    """A slice saved as STATE whose class now says LOG is an error."""
    session = Session()
    session[Called].append(Called("a"))
    text = session.to_json().replace('"policy": "log"', '"policy": "state"')
    with pytest.raises(SessionFormatError, match="Called was saved as a STATE slice"):
        Session.from_json(text, types=TYPES)


def test_two_classes_of_one_name_are_refused() -> None:
    """`types` with two classes of the same name cannot be told apart."""
    with pytest.raises(SessionFormatError, match="two different classes named app:Task"):
        Session.from_json(Session().to_json(), types=[_task(a=int), _task(a=int)])


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (Opaque(print), "Opaque cannot be saved"),
        (Plain(), "Plain cannot be saved"),
        (Called("c", params=Plain()), "Called cannot be saved: .*Plain"),
        (Called("c", params=ValueError("x")), "Called cannot be saved: .*ValueError"),
        (Listed(("a", "b")), "items holds a tuple, which its declared type does not keep"),  # type: ignore[arg-type]
        (Raw(b"\xff"), "Raw cannot be saved"),
        (Step("a", "closed"), "Step.*status"),  # type: ignore[arg-type]
    ],
)
def test_what_would_not_come_back_is_refused_when_it_is_saved(value: Any, complaint: str) -> None:
    """A value that cannot be loaded again makes `to_json` raise, naming its type."""
    session = Session()
    session.dispatch(value)
    with pytest.raises(SessionFormatError, match=complaint):
        session.to_json()


DOCUMENT = json.loads(Session(session_id="s").to_json())
SLICE = {"type": "builtins:int", "policy": "state", "shape": {"": "integer"}, "items": [1], "notes": {}}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        ("[]", "not a saved session"),
        ('{"format": "other"}', "not a saved session"),
        (json.dumps({**DOCUMENT, "version": 99}), "version 99"),
        (json.dumps({**DOCUMENT, "slices": 5}), "damaged"),
        (json.dumps({**DOCUMENT, "slices": [5]}), "damaged"),
        (json.dumps({**DOCUMENT, "slices": [{"type": "builtins:int"}]}), "damaged"),
        (json.dumps({**DOCUMENT, "slices": [{**SLICE, "items": ["x"]}]}), "Item 0 of the slice of builtins:int"),
        (json.dumps({**DOCUMENT, "slices": [{**SLICE, "policy": "other"}]}), "damaged"),
        (json.dumps({**DOCUMENT, "slices": [{**SLICE, "shape": 5}]}), "damaged"),
        (json.dumps({**DOCUMENT, "slices": [{**SLICE, "shape": {"": "string"}}]}), "it was string, is integer"),
        (json.dumps({**DOCUMENT, "slices": [{**SLICE, "notes": {"0": 5}}]}), "damaged"),
        (
            json.dumps(
                {
                    **DOCUMENT,
                    "slices": [
                        {**SLICE, "notes": {"0": {"type": "builtins:int", "patches": [[["a"], "builtins:int", 1, []]]}}}
                    ],
                }
            ),
            "no place a",
        ),
        (json.dumps({k: v for k, v in DOCUMENT.items() if k != "tags"}), "damaged"),
    ],
)
def test_damaged_text_is_a_clear_error(text: str | bytes, complaint: str) -> None:
    """Text that is not a saved session, or a broken one, raises SessionFormatError saying what is wrong."""
    with pytest.raises(SessionFormatError, match=complaint):
        Session.from_json(text, types=[int])


_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.builds(Called, st.text(max_size=3), inner, inner)
    ),
    max_leaves=10,
)


@given(st.lists(st.builds(Called, st.text(), _plain, _plain), max_size=5))
def test_any_tree_of_open_fields_comes_back(items: list[Called]) -> None:
    """However classes, lists, tuples and dicts nest in open fields, they come back as they were."""
    session = Session()
    session[Called].seed(items)
    loaded = Session.from_json(session.to_json(), types=[Called])
    assert repr(list(loaded[Called].all())) == repr(items)
