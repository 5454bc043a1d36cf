"""The text of a saved session is a format: it stays byte for byte what it was, and says nothing that does not load."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, datetime
from enum import Enum
from gc import collect
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, Self, TypeVar, cast
from weakref import ref

import pytest
from pydantic import BaseModel, Field, SecretStr

from weakincentives.budget import TokenUsage
from weakincentives.errors import SessionFormatError
from weakincentives.prompt import ToolInvoked, ToolResult
from weakincentives.run_context import RunContext
from weakincentives.session import Session
from weakincentives.session.encoding import adapter_of, masked
from weakincentives.session.saved import shape_of

KEPT = Path(__file__).parent / "data" / "session-text.json"
T = TypeVar("T")


class Color(Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: str


@dataclass(frozen=True)
class Point:
    x: int
    label: str | None = None


@dataclass(frozen=True)
class Point3(Point):
    z: float = 0.0


@dataclass
class Shape:
    points: list[Point]
    names: tuple[str, ...] = ()
    weights: dict[str, float] = field(default_factory=dict[str, float])
    rows: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    mode: Literal["open", "closed"] = "open"
    first: Point | None = None


@dataclass(frozen=True)
class Open:
    _hidden: Any = None
    value: object = None
    more: tuple[Any, ...] = ()


@dataclass
class Box(Generic[T]):
    value: T
    others: list[T] | None = None


@dataclass(frozen=True)
class Tree:
    value: Any = None
    below: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class Short:
    text: Annotated[str, Field(max_length=3)]


@dataclass(frozen=True)
class Renamed:
    number: Annotated[int, Field(alias="no")]


@dataclass
class Capped:
    number: int

    def __post_init__(self) -> None:
        self.number = min(self.number, 5)


@dataclass(frozen=True)
class Login:
    user: str
    password: SecretStr


@dataclass(frozen=True)
class Dated:
    color: Color
    at: datetime | None = None
    tags: frozenset[str] = frozenset()


class Model(BaseModel):
    name: str
    extra: Any = None


POINT = Point(1, "a")
SHAPE = Shape([POINT, Point(2)], ("a",), {"x": 1.5, "inf": math.inf}, {"r": [1, 2]}, "closed", POINT)
VALUES: list[Any] = [
    *(POINT, Point(True), Point3(1, None, 2.5), SHAPE, Shape([Point3(1)], weights={"x": 1}, first=Point3(2))),
    *(Open(POINT, SHAPE), Open({"a": [POINT, (1, POINT)]}, "\ud800"), Open(1, (), (POINT, None, Open(2, {3})))),
    *(Open(Pair(1, "a"), b"raw", (math.nan, 10**30, Color.RED, datetime(2024, 5, 1, tzinfo=UTC))),),
    *(Box(POINT, [POINT]), Box([{"a": (1,)}]), Tree(POINT, (Tree(1), Tree((2,)))), Short("abc"), Renamed(1)),
    *(Capped(5), Login("amy", SecretStr("hunter2")), Open(Login("amy", SecretStr("hunter2")), {"k": SecretStr("b")})),
    *(Dated(Color.RED, datetime(2024, 5, 1, tzinfo=UTC), frozenset({"t"})), Model(name="m", extra=POINT)),
    *("text", 1, 2.5, (1, POINT), {"a": POINT}),
]
EVENT: dict[str, Any] = {"timestamp": 1.5, "event_id": "e-1", "call_id": "c-1"}
CONTEXT = RunContext("run", "request")
EVENTS = [
    ToolInvoked("plain", **EVENT),
    ToolInvoked("a", POINT, ToolResult.ok(SHAPE), usage=TokenUsage(1, 2), run_context=CONTEXT, **EVENT),
    ToolInvoked("b", {"q": [POINT]}, ToolResult("m", (POINT,), success=False), undone_calls=("x", "y"), **EVENT),
    ToolInvoked("c", Login("amy", SecretStr("hunter2")), ToolResult.ok(Open(POINT)), duration=1, **EVENT),
]


def many_kinds() -> Session:
    session = Session(session_id="s", tags={"user": "u"})
    for value in VALUES:
        session[cast("type[Any]", type(value))].append(value)
    for event in EVENTS:
        session.record(event)
    return session


def test_the_text_is_what_it_was() -> None:
    """A session with many kinds of values has the text that 0.2 wrote of it, secrets masked."""
    text = many_kinds().to_json()
    assert text == KEPT.read_text().strip()
    assert text == many_kinds().to_json(on_opaque="mark")
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (Shape([], mode="other"), "The data does not fit .*Shape: mode"),  # type: ignore[arg-type]
        (Shape((POINT,)), "points holds a tuple, which its declared type does not keep"),  # type: ignore[arg-type]
        (Shape([], rows={"a": (1,)}), "rows.a holds a tuple"),  # type: ignore[dict-item]
        (Point("1"), "x holds a str"),  # type: ignore[arg-type]
        (Point(1, SecretStr("a")), "The data does not fit .*Point: label"),  # type: ignore[arg-type]
        (Shape([], weights={"\ud800": 1.5}), "A builtins:dict cannot be saved: .*surrogates"),
        (Short("abcd"), "The data does not fit .*Short: text"),
        (Open({1: "a"}), "A builtins:dict cannot be saved: it would not load as it was"),
        (Open({"\ud800": 1}), "A .*Open cannot be saved"),
        (Open((object(),)), "A .*Open cannot be saved: Unable to serialize"),
        (Open(Short("abcd")), "The data does not fit .*Short: text"),
    ],
)
def test_types_are_no_proof_where_they_do_not_match(value: Any, complaint: str) -> None:
    """A value of another type than its class declares is refused, also after values of the class that were saved."""
    session = many_kinds()
    session[cast("type[Any]", type(value))].append(value)
    with pytest.raises(SessionFormatError, match=complaint):
        session.to_json()


def test_a_class_that_changes_its_values_is_read_again() -> None:
    """`__post_init__` runs when a session is loaded: a value that it would change is refused."""
    session = Session()
    capped = Capped(5)
    capped.number = 9
    session[Capped].append(capped)
    with pytest.raises(SessionFormatError, match="number holds a int"):
        session.to_json()


def test_a_class_that_cannot_be_made_is_refused() -> None:
    """Loading calls `__new__` without arguments, then sets the fields: a class that wants some cannot be loaded."""

    @dataclass
    class Made:
        number: int

        def __new__(cls, number: int) -> Self:
            return object.__new__(cls)

    session = Session()
    session[Made].append(Made(1))
    with pytest.raises(TypeError, match="number"):
        session.to_json()


def test_secrets_deep_inside_are_found_in_time() -> None:
    """Masking is linear in the depth of a value."""
    value: Any = SecretStr("hunter2")
    for _ in range(60):
        value = [value]
    found = masked(value)
    for _ in range(60):
        (found,) = found
    assert found.get_secret_value() == "**********"


def test_classes_are_not_kept_for_ever() -> None:
    """What is known of a class is forgotten: a program may make classes in a loop."""
    made: type[Any] = make_dataclass("Made", [("number", int)], frozen=True)
    kept = ref(made)
    session = Session()
    session[made].append(made(1))
    session.to_json()
    del made, session
    for number in range(600):
        other = make_dataclass(f"Other{number}", [("number", int)])
        masked(other(1))
    adapter_of.cache_clear()
    shape_of(int)
    collect()
    assert kept() is None
