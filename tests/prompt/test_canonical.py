"""Equal values have one key, different values two: for every kind of value that params may hold."""

from __future__ import annotations

import copy
import enum
import math
import os
import re
import subprocess
import sys
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, RootModel, Secret, SecretBytes, SecretStr, field_serializer
from tests.conftest import examples

from weakincentives.errors import SchemaError
from weakincentives.prompt.canonical import canonical


class Color(enum.Enum):
    RED = 1
    CRIMSON = RED
    BLUE = 2


class Size(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    A = "a"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 0


class Spot(NamedTuple):
    x: int
    y: int


class Card(BaseModel):
    """A number that no serialiser shows."""

    name: str = ""
    number: str = Field(default="", exclude=True)
    code: str = ""

    @field_serializer("code")
    def mask(self, value: str) -> str:
        return "***"


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 0


class Numbers(RootModel[list[int]]):
    pass


@dataclass(frozen=True)
class Inner:
    x: int
    hidden: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class Other:
    x: int
    hidden: str = ""


@dataclass
class Outer:
    inner: Inner | Other
    many: dict[str, list[Inner]] = field(default_factory=dict[str, list[Inner]])
    made: int = field(init=False, default=3)


@pydantic.dataclasses.dataclass(config=ConfigDict(extra="allow"))
class Loose:
    a: int = 0


@pydantic.dataclasses.dataclass
class Excluding:
    a: int = 0
    b: str = Field(default="", exclude=True)


class Text(str):
    __slots__ = ()


def _open(**values: Any) -> Open:
    return Open(**values)


def _loose(**values: Any) -> Loose:
    return pydantic.TypeAdapter(Loose).validate_python(values)


class Berlin(tzinfo):
    """Enough of a real zone: summer time, and an hour that comes twice."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        if dt is None:
            return None
        twice = (dt.month, dt.day, dt.hour) == (10, 26, 2)
        return timedelta(hours=2 if 4 <= dt.month <= 9 or (twice and not dt.fold) else 1)

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str:
        return "Berlin"


ZONE = Berlin()
NAIVE = datetime(2025, 1, 1)  # noqa: DTZ001 - such values are params too

EQUAL: list[tuple[Any, Any]] = [
    (Decimal(10), Decimal("10.00")),
    (Decimal(10), Decimal("1E+1")),
    (Decimal(0), Decimal("-0.000")),
    (Decimal("0E+7"), Decimal("0E-7")),
    (Decimal("1" + "0" * 60), Decimal("1E+60")),
    (0.0, -0.0),
    (datetime(2025, 7, 1, 12, tzinfo=UTC), datetime(2025, 7, 1, 14, tzinfo=timezone(timedelta(hours=2)))),
    (datetime(2025, 7, 1, 12, tzinfo=UTC), datetime(2025, 7, 1, 14, tzinfo=ZONE)),
    (NAIVE, NAIVE.replace(fold=1)),
    (time(12, tzinfo=UTC), time(14, tzinfo=timezone(timedelta(hours=2)))),
    (timedelta(days=1), timedelta(hours=24)),
    (Fraction(1, 2), Fraction(2, 4)),
    ({1, 2, 3}, frozenset({3, 2, 1})),
    ({"a": 1, "b": 2}, OrderedDict(b=2, a=1)),
    ({"a": 1}, MappingProxyType({"a": 1})),
    ({"a": 1}, Counter("a")),
    (Color.RED, Color.CRIMSON),
    (Rights.READ | Rights.WRITE, Rights.WRITE | Rights.READ),
    (Path("a/b"), PurePosixPath("a/./b")),
    ("a", Text("a")),
    (b"a", bytearray(b"a")),
    (SecretStr("a"), SecretStr("a")),
    (Secret({"a": 1, "b": 2}), Secret({"b": 2, "a": 1})),
    (AnyUrl("https://example.com"), AnyUrl("https://example.com/")),
    (_open(a=1, x=1, y=2), _open(a=1, y=2, x=1)),
    (_loose(a=1, x=1, y=2), _loose(a=1, y=2, x=1)),
    (10**5000, 10**5000),
    (re.compile("a", re.IGNORECASE), re.compile("a", re.IGNORECASE)),
]

DIFFERENT: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (1, Decimal(1)),
    (1, "1"),
    (0, None),
    (0, False),
    (1, Level.LOW),
    ("a", Word.A),
    ("a", b"a"),
    ("a", Path("a")),
    ("a", SecretStr("a")),
    ("\u00e9", "e\u0301"),
    ("", None),
    ([], None),
    ([], ()),
    ([], {}),
    ([], set[int]()),
    ([1], [[1]]),
    ([1, 2], [12]),
    (["a", "b"], ["ab"]),
    (["a", ""], ["", "a"]),
    ([["a"], "b"], [["a", "b"]]),
    ({1}, [1]),
    ({1, 12}, {11, 2}),
    ([1], deque([1])),
    ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
    ({"a": {"b": 1}}, {"a": {"c": 1}}),
    ({"a": None}, {}),
    ({1: "a"}, {"1": "a"}),
    (Decimal(10), Decimal(1)),
    (Decimal(10), Decimal(-10)),
    (Decimal("0.1"), Decimal("0.10000000000000000000000000000000001")),
    (Decimal("NaN"), Decimal("Infinity")),
    (0.1, math.nextafter(0.1, 1)),
    (1j, 1 + 1j),
    (Fraction(1, 2), Fraction(1, 3)),
    (NAIVE, NAIVE.replace(tzinfo=UTC)),
    (NAIVE, NAIVE.date()),
    (datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=ZONE)),
    (datetime(2025, 10, 26, 2, 30, tzinfo=ZONE), datetime(2025, 10, 26, 2, 30, tzinfo=ZONE, fold=1)),
    (time(12), time(12, tzinfo=UTC)),
    (time(12, 0, 0, 1), time(12, 0, 1)),
    (timedelta(microseconds=1), timedelta(0)),
    (UUID(int=1), UUID(int=2)),
    (UUID(int=1), UUID(int=1).bytes),
    (IPv4Address("10.0.0.1"), IPv4Interface("10.0.0.1")),
    (IPv4Address("10.0.0.1"), IPv6Address("::ffff:10.0.0.1")),
    (IPv4Network("10.0.0.0/8"), IPv4Network("10.0.0.0/9")),
    (Color.RED, Color.BLUE),
    (Color.RED, Size.RED),
    (Color.RED, 1),
    (Rights.READ, Rights.READ | Rights.WRITE),
    (Point(1, 2), Point(2, 1)),
    (Point(1, 2), (1, 2)),
    (Point(1, 2), Spot(1, 2)),
    (Inner(1), Inner(1, "h")),
    (Inner(1), Other(1)),
    (Inner(1), {"x": 1, "hidden": ""}),
    (Outer(Inner(1)), Outer(Other(1))),
    (Outer(Inner(1), {"a": [Inner(2)]}), Outer(Inner(1), {"a": [Inner(2, "h")]})),
    (Card(number="1"), Card(number="2")),
    (Card(code="1"), Card(code="2")),
    ({"cards": [Card(number="1")]}, {"cards": [Card(number="2")]}),
    (Excluding(b="1"), Excluding(b="2")),
    (_open(a=1), _open(a=1, x=1)),
    (_loose(a=1), _loose(a=1, x=1)),
    (Numbers([1, 2]), Numbers([2, 1])),
    (SecretStr("a"), SecretStr("b")),
    (SecretStr("a"), SecretBytes(b"a")),
    (re.compile("a"), re.compile("a", re.IGNORECASE)),
    (AnyUrl("https://example.com/a"), AnyUrl("https://example.com/b")),
    (10**5000, 10**5000 + 1),
]


@pytest.mark.parametrize(("one", "two"), EQUAL, ids=range(len(EQUAL)))
def test_equal_values_have_one_form(one: Any, two: Any) -> None:
    """However they are written: alone, in a list, in a record, as a key's part."""
    assert canonical(one) == canonical(two) == canonical(copy.deepcopy(one))
    assert canonical([one]) == canonical([two])
    assert canonical({"a": one}) == canonical({"a": two})


@pytest.mark.parametrize(("one", "two"), DIFFERENT, ids=range(len(DIFFERENT)))
def test_different_values_have_two_forms(one: Any, two: Any) -> None:
    """Also where JSON, or Python's own equality, takes them for one."""
    assert canonical(one) != canonical(two)
    assert canonical([one]) != canonical([two])
    assert canonical({"a": one}) != canonical({"a": two})


def test_every_listed_value_is_told_from_every_other() -> None:
    """One table of all of them: no two forms meet by accident."""
    values = [value for pair in DIFFERENT for value in pair]
    forms = [canonical(value) for value in values]
    for n, one in enumerate(values):
        for m, two in enumerate(values[:n]):
            if forms[n] == forms[m]:
                assert type(one) is type(two)
                assert repr(one) == repr(two)


class Opaque:
    """Equal to itself alone."""


ANY: Any = Opaque()


@pytest.mark.parametrize("value", [ANY, int, print, iter([1]), range(3), {"a": {"b": [ANY]}}, Inner(ANY)])
def test_what_cannot_be_compared_has_no_form(value: Any) -> None:
    """However deep it is; the error names its class."""
    with pytest.raises(SchemaError, match=r"Two values of the class \w+ cannot be compared"):
        canonical(value)


def test_a_value_that_contains_itself_has_no_form() -> None:
    """An error, and not the end of the program."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(SchemaError, match="contains itself"):
        canonical(loop)


def test_a_field_that_was_never_set_is_left_out() -> None:
    """A dataclass may leave `init=False` fields unset."""

    @dataclass
    class Lazy:
        a: int
        b: int = field(init=False)

    value, other = Lazy(1), Lazy(1)
    other.b = 2
    assert canonical(value) == canonical(Lazy(1)) != canonical(other)


@pytest.mark.slow
def test_classes_without_end_do_not_fill_the_memory() -> None:
    """What is remembered of classes is bounded."""
    from weakincentives.prompt import canonical as module

    for number in range(module._MAX_CLASSES + 10):
        canonical(make_dataclass("Made", [("x", int)])(number))
    assert len(module._encoders) <= module._MAX_CLASSES


# Properties: for each kind, pairs of values that are equal exactly when Python says so.

offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
near = NAIVE, NAIVE + timedelta(hours=3)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-3, 3) | st.integers(),
    "float": st.sampled_from([0.0, -0.0, 1.0]) | st.floats(allow_nan=False),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False)
    | st.tuples(st.sampled_from([1, 10, 100, 0, -10]), st.integers(-3, 3)).map(lambda t: Decimal(t[0]).scaleb(t[1])),
    "text": st.text(max_size=3),
    "bytes": st.binary(max_size=3),
    "bool": st.booleans(),
    "instant": st.datetimes(*near, timezones=offsets).map(lambda at: at.replace(minute=0, second=0, microsecond=0)),
    "naive": st.datetimes(*near),
    "date": st.dates(date(2025, 1, 1), date(2025, 1, 5)),
    "time": st.times() | st.sampled_from([time(1), time(2)]),
    "aware time": st.builds(time, st.integers(0, 23), tzinfo=offsets),
    "span": st.timedeltas(timedelta(0), timedelta(seconds=2)),
    "uuid": st.integers(0, 3).map(lambda n: UUID(int=n)),
    "fraction": st.fractions(max_denominator=4),
    "enum": st.sampled_from(Color),
    "flag": st.sampled_from([Rights(0), Rights.READ, Rights.WRITE, Rights.READ | Rights.WRITE]),
    "path": st.lists(st.sampled_from("ab."), min_size=1, max_size=3).map(lambda parts: PurePosixPath(*parts)),
    "address": st.integers(0, 3).map(IPv4Address),
    "secret": st.text(max_size=2).map(SecretStr),
    "point": st.builds(Point, st.integers(0, 2), st.integers(0, 2)),
    "record": st.builds(Other, st.integers(0, 2), st.sampled_from(["", "h"])),
    "model": st.builds(Card, name=st.sampled_from("ab"), number=st.sampled_from("ab"), code=st.sampled_from("ab")),
    "none": st.none(),
}
for _name in ("int", "decimal", "text", "instant", "enum", "record", "secret"):
    KINDS[f"list of {_name}"] = st.lists(KINDS[_name], max_size=3)
    KINDS[f"tuple of {_name}"] = st.lists(KINDS[_name], max_size=3).map(tuple)
    KINDS[f"set of {_name}"] = st.lists(KINDS[_name], max_size=3).map(frozenset)
    KINDS[f"mapping to {_name}"] = st.dictionaries(st.text(max_size=1), KINDS[_name], max_size=3)
    KINDS[f"mapping from {_name}"] = st.dictionaries(KINDS[_name], st.integers(0, 1), max_size=2)
    KINDS[f"nested {_name}"] = st.lists(st.dictionaries(st.sampled_from("ab"), st.lists(KINDS[_name], max_size=2)))


@pytest.mark.parametrize("kind", KINDS)
def test_two_values_of_a_kind_have_one_form_exactly_when_they_are_equal(kind: str) -> None:
    """Whatever their text, their zone, their exponent or the order in which they were put together."""

    @settings(max_examples=examples(40), deadline=None)
    @given(KINDS[kind], KINDS[kind])
    def check(one: Any, two: Any) -> None:
        assert (canonical(one) == canonical(two)) == (one == two)
        assert canonical(one) == canonical(copy.deepcopy(one))

    check()


@pytest.mark.torture
@pytest.mark.parametrize("kind", KINDS)
def test_many_values_of_a_kind(kind: str) -> None:
    """The same, at length."""

    @settings(max_examples=3000, deadline=None)
    @given(KINDS[kind], KINDS[kind])
    def check(one: Any, two: Any) -> None:
        assert (canonical(one) == canonical(two)) == (one == two)

    check()


def test_values_of_different_kinds_have_different_forms() -> None:
    """No value of one kind is taken for one of another."""
    anything = st.sampled_from(list(KINDS.values())).flatmap(lambda kind: kind)

    @settings(max_examples=examples(200), deadline=None)
    @given(anything, anything)
    def check(one: Any, two: Any) -> None:
        if canonical(one) == canonical(two):
            assert type(one) is type(two)
            assert one == two

    check()


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from tests.prompt.test_canonical import DIFFERENT, EQUAL
from weakincentives.prompt.idempotency import params_hash
for pair in [*EQUAL, *DIFFERENT]:
    for value in pair:
        print(params_hash(value))
"""


@pytest.mark.slow
def test_forms_are_the_same_in_every_process() -> None:
    """Whatever the seed of its hashes."""
    root = str(Path(__file__).parents[2])
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM.format(tests=root)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert len(said.pop().split()) == 2 * len([*EQUAL, *DIFFERENT])


def test_a_field_cannot_be_forged_by_the_text_of_another() -> None:
    """A value has its length before it, so text that looks like the next field stays text."""

    @dataclass
    class Pair:
        a: str
        b: str

    looks_like_b = "\0\0\0\0\0\0\0\2ubu"
    assert canonical(Pair(f"1{looks_like_b}2", "3")) != canonical(Pair("1", f"2{looks_like_b}3"))
