"""Parsing is strict, complete in its errors, and survives anything."""

from __future__ import annotations

import copy
import json
import math
import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator
from tests.conftest import examples
from typing_extensions import TypedDict

from weakincentives.errors import ParseError, SchemaError
from weakincentives.serde import dump, dump_json, error_text, parse, parser, parsing
from weakincentives.serde.parsing import MAX_INPUT_BYTES

T = TypeVar("T")
UserId = NewType("UserId", int)


SEVEN = UUID(int=7)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True, slots=True)
class Cat:
    kind: Literal["cat"]
    lives: int = 9


@dataclass(frozen=True, slots=True)
class Dog:
    kind: Literal["dog"]
    name: str


@dataclass(frozen=True, slots=True)
class Node:
    value: int
    children: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Box(Generic[T]):
    content: T


class Movie(TypedDict):
    title: str
    year: int


class Model(BaseModel):
    name: str
    size: int = 1

    @field_validator("size")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("size must be even")
        return value


@dataclass(frozen=True, slots=True)
class Everything:
    text: str = "a"
    number: int = 1
    ratio: float = 0.5
    flag: bool = True
    mode: Literal["a", "b"] = "a"
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    either: int | str = 1
    pet: Cat | Dog = field(default_factory=lambda: Cat("cat"))
    pair: tuple[int, str] = (1, "a")
    many: tuple[int, ...] = ()
    items: list[str] = field(default_factory=list)
    unique: frozenset[int] = frozenset()
    table: dict[str, int] = field(default_factory=dict)
    mapping: Mapping[str, list[int]] = field(default_factory=dict[str, list[int]])
    maybe: int | None = None
    when: datetime = datetime(2025, 1, 1, tzinfo=UTC)
    day: date = date(2025, 1, 1)
    hour: clock_time = clock_time(12, 30)
    span: timedelta = timedelta(seconds=90)
    ident: UUID = SEVEN
    price: Decimal = Decimal("1.50")
    place: Path = Path("a/b")
    user: UserId = UserId(3)
    short: Annotated[str, Field(max_length=5)] = "abc"
    node: Node = Node(1, (Node(2),))
    box: Box[int] = field(default_factory=lambda: Box(1))
    movie: Movie = field(default_factory=lambda: Movie(title="M", year=1931))
    model: Model = field(default_factory=lambda: Model(name="m", size=2))
    anything: Any = None


@dataclass(frozen=True)
class Search:
    query: str
    limit: int = field(default=10, metadata={"ge": 1, "le": 100, "unit": "rows"})
    code: str = field(default="ab", metadata={"min_length": 2, "max_length": 4, "pattern": "^[a-z]+$"})
    file_types: tuple[str, ...] = ()


def failures(cls: type[Any], data: Any) -> dict[str, str]:
    with pytest.raises(ParseError) as caught:
        parse(cls, data)
    return {failure.path: failure.text for failure in caught.value.failures}


def test_every_type_goes_round() -> None:
    """What `dump` writes `parse` reads back equal, through text, bytes and mapping."""
    value = Everything()
    plain = dump(value)
    assert parse(Everything, dump_json(value)) == value
    assert parse(Everything, json.dumps(plain).encode()) == value
    assert parse(Everything, plain) == value
    assert isinstance(parse(Everything, plain).node.children[0], Node)


@pytest.mark.parametrize(
    ("field_name", "value", "text"),
    [
        ("text", 1, "Expected type string, got integer 1"),
        ("text", None, "Expected type string, got null"),
        ("number", "10", "Expected type integer, got string '10'"),
        ("number", 1.0, "Expected type integer, got number 1.0"),
        ("number", True, "Expected type integer, got boolean true"),
        ("ratio", "1", "Expected type number, got string '1'"),
        ("flag", "true", "Expected type boolean, got string 'true'"),
        ("flag", 1, "Expected type boolean, got integer 1"),
        ("mode", "c", "mode must be one of: a, b"),
        ("colour", "green", "colour must be one of: red, blue"),
        ("level", 3, "level must be one of: 1, 2"),
        ("either", True, "Expected type integer or string, got boolean true"),
        ("items", "abc", "Expected type array, got string 'abc'"),
        ("table", [], "Expected type object, got array"),
        ("maybe", "x", "Expected type integer, got string 'x'"),
        ("when", "yesterday", "Expected a date and time such as 2025-01-31T12:00:00Z, got string 'yesterday'"),
        ("day", "2025-13-01", "Expected a date such as 2025-01-31, got string '2025-13-01'"),
        ("hour", "noon", "Expected a time such as 12:00:00, got string 'noon'"),
        ("span", "long", "Expected a duration such as PT1H30M, got string 'long'"),
        ("ident", "zz", "Expected a UUID, got string 'zz'"),
        ("price", "free", "Expected a decimal number, got string 'free'"),
        ("short", "abcdef", "Must have at most 5 characters, got string 'abcdef'"),
        ("pet", 5, "Expected type object, got integer 5"),
        ("user", "3", "Expected type integer, got string '3'"),
    ],
)
def test_each_type_is_checked_and_nothing_is_coerced(field_name: str, value: object, text: str) -> None:
    """The failure names what was expected and what came, in JSON's words."""
    assert failures(Everything, {field_name: value}) == {field_name: text}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"pet": {"kind": "bird"}}, {"pet.kind": "pet.kind must be one of: cat, dog"}),
        ({"pet": {"kind": "dog"}}, {"pet.name": "Missing required field, expected type string"}),
        ({"pet": {"kind": "cat", "live": 3}}, {"pet.live": "Unknown field; did you mean 'lives'?"}),
        ({"node": {"value": 1, "children": [{"value": "x"}]}},
         {"node.children.0.value": "Expected type integer, got string 'x'"}),
        ({"pair": [1]}, {"pair.1": "Missing required item, expected type string"}),
        ({"table": {"a": "b"}}, {"table.a": "Expected type integer, got string 'b'"}),
        ({"box": {"content": "x"}}, {"box.content": "Expected type integer, got string 'x'"}),
        ({"movie": {"title": "M"}}, {"movie.year": "Missing required field, expected type integer"}),
        ({"movie": {"title": "M", "year": 1, "more": 1}}, {"movie.more": "Unknown field; known fields: title, year"}),
        ({"model": {"name": "m", "size": 3}}, {"model.size": "size must be even"}),
        ({"model": {"name": "m", "sizes": 2}}, {"model.sizes": "Unknown field; did you mean 'size'?"}),
    ],
)  # fmt: skip
def test_failures_inside_point_to_the_place(data: Mapping[str, Any], expected: dict[str, str]) -> None:
    """Paths lead through objects, arrays, unions, generics, TypedDicts and models, without class names."""
    assert failures(Everything, data) == expected


def test_all_failures_come_at_once() -> None:
    """One answer lists everything wrong: missing, unknown, types and limits."""
    assert failures(Search, {"limit": 0, "code": "A", "file_types": ["py", 7], "qurey": "x"}) == {
        "query": "Missing required field, expected type string",
        "limit": "Must be at least 1, got integer 0",
        "code": "Must have at least 2 characters, got string 'A'",
        "file_types.1": "Expected type string, got integer 7",
        "qurey": "Unknown field; did you mean 'query'?",
    }
    assert failures(Search, {"query": "x", "limit": 101, "code": "AB"}) == {
        "limit": "Must be at most 100, got integer 101",
        "code": "Must match the pattern ^[a-z]+$, got string 'AB'",
    }


def test_the_model_s_text_has_the_documented_shape() -> None:
    """`{"error": ..., "details": {path: problem}}`, as JSON."""
    with pytest.raises(ParseError) as caught:
        parse(Search, '{"query": "x", "limit": "10"}')
    assert json.loads(error_text(caught.value, "tool 'search_files'")) == {
        "error": "Invalid parameters for tool 'search_files'",
        "details": {"limit": "Expected type integer, got string '10'"},
    }


PYTHONISMS = ("http", "pydantic", "Everything", "Cat", "Dog", "NoneType", " str,", " int,", "dict", "tuple", "Input")


def test_the_text_has_no_python_in_it() -> None:
    """No URLs, class names or Python type names reach the model, whatever is wrong."""
    wrong = {name: [object] for name in Everything.__dataclass_fields__}
    for value in (None, 1, "x", [], {}, [1], {"x": 1}, True, 1.5):
        data = dict.fromkeys((n for n in wrong if n != "anything"), value)
        with pytest.raises(ParseError) as caught:
            parse(Everything, data)
        text = error_text(caught.value, "tool 't'")
        assert [word for word in PYTHONISMS if word in text] == [], value


def test_unknown_fields_can_be_ignored() -> None:
    """`extra="ignore"` drops them; nothing else becomes lenient."""
    assert parse(Search, {"query": "x", "more": 1}, extra="ignore") == Search("x")
    with pytest.raises(ParseError):
        parse(Search, {"query": 1, "more": 1}, extra="ignore")


def test_values_are_clipped() -> None:
    """A huge wrong value, or a huge wrong key, does not flood the answer."""
    with pytest.raises(ParseError) as caught:
        parse(Search, {"query": "x", "limit": "9" * 10_000, "k" * 10_000: 1})
    assert len(error_text(caught.value, "tool 't'")) < 600


def test_many_failures_are_counted_not_listed() -> None:
    """The text lists twenty and says how many more there are; the error holds them all."""
    with pytest.raises(ParseError) as caught:
        parse(Search, {"query": "x", "file_types": [1] * 500})
    assert len(caught.value.failures) == 500
    assert json.loads(error_text(caught.value, "t"))["details"]["..."] == "480 more problems"


def test_of_many_failures_only_those_shown_are_put_into_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty for the model; all of them for code that reads `failures` or the message."""
    described: list[object] = []

    def describe(value: object) -> str:
        described.append(value)
        return f"integer {value}"

    monkeypatch.setattr(parsing, "describe", describe)
    for count, told in ((1000, 1000), (5000, 101)):  # above a thousand, the first hundred of each list and their number
        with pytest.raises(ParseError) as caught:
            parser(Search)(json.dumps({"query": "x", "file_types": [1] * count}))
        described.clear()
        error_text(caught.value, "t")
        assert len(described) <= 20
        assert len(caught.value.failures) == told
        assert str(caught.value).count("Expected type string, got integer 1") == told - (told < count)


def test_an_error_is_the_same_whenever_its_failures_are_read() -> None:
    """Its message, arguments, form and copies, before and after."""
    text = '{"query": 1, "limits": 2}'
    said = "query: Expected type string, got integer 1; limits: Unknown field; did you mean 'limit'?"
    error = refused(text)
    assert (str(error), error.args, repr(error)) == (said, (said,), f'ParseError("{said}")')
    assert error.failures == refused(text).failures == pickle.loads(pickle.dumps(refused(text))).failures
    assert str(copy.copy(refused(text))) == said


def refused(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse(Search, text)
    return caught.value


@given(st.text("abcdef_", max_size=12), st.lists(st.text("abcdef_", max_size=12), max_size=6, unique=True))
def test_the_nearest_name_is_that_of_difflib(word: str, names: list[str]) -> None:
    """What is left out before the costly comparison could not have been found by it."""
    assert parsing._nearest(word, names) == next(iter(get_close_matches(word, names, n=1)), None)  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True)
class Checked:
    low: int
    high: int
    how: str = "value"

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise {"value": ValueError, "key": KeyError, "type": TypeError}[self.how]("low must not exceed high")


@pytest.mark.parametrize("how", ["value", "key", "type"])
def test_a_post_init_that_raises_is_a_failure(how: str) -> None:
    """Whatever the user's own check raises, the caller sees a ParseError with its text."""
    assert "low must not exceed high" in failures(Checked, {"low": 2, "high": 1, "how": how})[""]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("", "Invalid JSON"),
        ("{", "Invalid JSON"),
        ('{"query": "x",}', "Invalid JSON"),
        ("[" * 100_000, "Invalid JSON: recursion limit exceeded"),
        ('{"query": "x", "limit": ' + "9" * 10_000 + "}", "Invalid JSON: number out of range"),
        ('{"query": "\\ud800"}', "Invalid JSON"),
        ('{"query": "\ud800"}', "Invalid text"),
        (b'{"query": "\xff"}', "Invalid JSON"),
        ("\ufeff{}", "Invalid JSON"),
        ("null", "Expected type object, got null"),
        ("[]", "Expected type object, got array"),
        ('"text"', "Expected type object, got string 'text'"),
        ("7", "Expected type object, got integer 7"),
        ({"query": b"x"}, "Not JSON data: a bytes is not JSON"),
        ({"query": float("nan")}, "Not JSON data"),
        ({"query": "\ud800"}, "Invalid JSON"),
    ],
)  # fmt: skip
def test_what_is_not_an_object_is_refused(data: Any, text: str) -> None:
    """Broken JSON, wrong encodings, deep nesting and huge numbers are errors with a reason, not crashes."""
    assert failures(Search, data)[""].startswith(text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999"])
def test_numbers_that_are_not_numbers_are_refused(number: str) -> None:
    """JSON has no NaN and no infinity, and neither has a field."""
    assert failures(Everything, f'{{"ratio": {number}}}')["ratio"].startswith("Expected a finite number")


def test_circular_and_deep_mappings_are_refused() -> None:
    """A mapping that contains itself, or nests beyond reason, is an error."""
    loop: dict[str, Any] = {"query": "x"}
    loop["anything"] = loop
    assert "Not JSON data" in failures(Everything, loop)[""]
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ParseError):
        parse(Everything, {"anything": deep})
    while deep:  # taken apart here, or its deallocation would recurse
        deep = deep.pop()


def test_of_duplicate_keys_the_last_wins() -> None:
    """As everywhere in JSON."""
    assert parse(Search, '{"query": "a", "query": "b"}') == Search("b")


@pytest.mark.slow  # fifty megabytes
@pytest.mark.timing
def test_too_much_text_is_refused_at_once() -> None:
    """Fifty megabytes are turned away before they are read; the limit can be lifted."""
    text = json.dumps({"query": "x" * 50_000_000})
    started = time.process_time()
    assert failures(Search, text)[""].startswith("Input is too long")
    assert time.process_time() - started < 1
    assert len(parse(Search, text, max_bytes=None).query) == 50_000_000
    assert MAX_INPUT_BYTES < 50_000_000


@pytest.mark.slow  # a million items
def test_a_million_failures_do_not_hang() -> None:
    """The first are explained, the number is told."""
    text = json.dumps({"query": "x", "file_types": [1] * 1_000_000})
    started = time.process_time()
    found = failures(Search, text)
    assert time.process_time() - started < 10
    assert found[""] == "1000000 problems in all; these are the first"
    assert found["file_types.0"] == "Expected type string, got integer 1"


def test_a_million_failures_beyond_the_first_items_are_counted() -> None:
    """Where the first items are right, the number alone is told."""
    text = json.dumps({"query": "x", "file_types": ["a"] * 200 + [1] * 2000})
    assert failures(Search, text) == {"": "2000 problems in all, too many to list"}


class Opaque:
    pass


@dataclass
class Unparsable:
    thing: Opaque


@dataclass
class Undefined:
    thing: NotDefinedAnywhere  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


@pytest.mark.parametrize(
    ("cls", "text"), [(Unparsable, "no JSON form"), (Undefined, "'NotDefinedAnywhere', which is not defined")]
)
def test_a_type_that_cannot_be_parsed_is_a_schema_error(cls: type[Any], text: str) -> None:
    """The error is about the type, not about the data, and says which part."""
    with pytest.raises(SchemaError, match=text):
        parse(cls, "{}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,  # there are six fields for them; what Hypothesis makes takes most of the time
)
NAMES = st.sampled_from([*Everything.__dataclass_fields__, "unknown", ""])


@settings(max_examples=examples(1000))
@given(st.dictionaries(NAMES, JSON, max_size=6))
def test_any_json_object_parses_or_gives_a_parse_error(data: dict[str, Any]) -> None:
    """Never another exception, never a failure without text, and text and mapping agree."""
    outcomes: list[object] = []
    for form in (data, json.dumps(data)):
        try:
            outcomes.append(dump_json(parse(Everything, form)))
        except ParseError as error:
            assert error.failures  # noqa: PT017 - both endings are fine
            assert all(failure.text for failure in error.failures)  # noqa: PT017
            json.loads(error_text(error, "tool 't'"))
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]


@settings(max_examples=examples(1000))
@given(st.text() | st.binary())
def test_any_text_parses_or_gives_a_parse_error(data: str | bytes) -> None:
    """Garbage in, one clear error out."""
    with pytest.raises(ParseError):
        parse(Search, data)


@pytest.mark.parametrize("text", ['{"a": Infinity}', '{"a": [1, NaN]}', '{"a": {"x": -Infinity}}', '{"a": 1e400}'])
def test_numbers_that_json_does_not_have_are_refused_everywhere(text: str) -> None:
    """Also in a field that takes anything; by `parse` and by `parser`, and the path is named."""
    for read in (lambda: parse(Open, text), lambda: parser(Open)(text)):
        with pytest.raises(ParseError, match=r"^a.*: Expected a finite number"):
            read()


_DIGITS = st.text("0123456789", min_size=1, max_size=4) | st.builds(
    str.__mul__, st.sampled_from("19"), st.integers(1, 320)
)
_NUMBERS = st.tuples(
    st.sampled_from(["", "-"]),
    _DIGITS.map(lambda digits: digits.lstrip("0") or "0"),
    st.just("") | _DIGITS.map(".{}".format),
    st.just("") | st.tuples(st.sampled_from(["e", "E", "e+", "E+", "e-", "E-"]), _DIGITS).map("".join),
).map("".join)


@settings(max_examples=examples(1000))
@given(_NUMBERS, st.booleans())
def test_an_open_field_takes_exactly_the_numbers_that_are_finite(number: str, as_bytes: bool) -> None:
    """However a number is written: with hundreds of digits, zeros before its exponent, in text or in bytes."""
    text = f'{{"a": ["e1000 NaN", {{"x": {number}}}]}}' if len(number) % 2 else f'{{"a": {number}}}'
    data = text.encode() if as_bytes else text
    is_integer = number.lstrip("-").isdigit()
    if is_integer or math.isfinite(float(number)):
        assert json.loads(text)["a"] == parse(Open, data).a
    else:
        with pytest.raises(ParseError, match="Expected a finite number"):
            parse(Open, data)


@dataclass
class Open:
    a: Any = None
