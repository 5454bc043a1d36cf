"""Tools whose calls cannot be told apart are refused when they are declared, as far as their types show it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID

import pytest
from pydantic import AnyUrl, AwareDatetime, BaseModel, Field, SecretStr
from pydantic_core import core_schema

from weakincentives.errors import PromptValidationError
from weakincentives.prompt import IdempotencyConfig, Tool, ToolResult
from weakincentives.prompt.canonical import unkeyable

T = TypeVar("T")
UserId = NewType("UserId", int)


class Color(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: Decimal


class Entry(TypedDict):
    a: int
    b: NotRequired[list[str]]


class Model(BaseModel):
    number: Annotated[int, Field(gt=0, exclude=True)]
    card: SecretStr
    home: AnyUrl
    at: AwareDatetime


@dataclass
class Tree(Generic[T]):
    value: T
    children: list[Tree[T]] = field(default_factory=list["Tree[T]"])


@dataclass
class Everything:
    only_at_first: InitVar[int]
    of_the_class: ClassVar[Callable[[], int]]
    a: int | None
    b: bool | float | str | bytes | Decimal | Fraction
    c: datetime | date | time | timedelta
    d: UUID | Path | IPv4Address
    e: Literal["x", 1]
    f: dict[str, list[Entry]]
    g: Point
    h: Model
    i: UserId
    j: Tree[int]
    k: Color
    m: Sequence[int] | Mapping[str, Any]
    n: frozenset[tuple[int, ...]]
    o: object
    _: KW_ONLY
    p: set[int] = field(default_factory=set[int])


class Opaque:
    """Made of text, and equal to itself alone."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return core_schema.no_info_after_validator_function(
            cls, core_schema.str_schema(), serialization=core_schema.to_string_ser_schema()
        )


class Opening(BaseModel):
    name: str = ""
    what: list[Opaque] = []


@dataclass
class Nested:
    opening: dict[str, Opening]


@dataclass
class Lazy:
    items: Iterable[int]
    more: Iterator[int] | None = None


def _named_alike() -> Any:
    class Color(enum.Enum):
        BLUE = 1

    Color.__qualname__ = "Color"
    return Color


Alike = _named_alike()


@dataclass
class Both:
    one: Color
    two: Alike  # type: ignore[valid-type] # pyright: ignore[reportInvalidTypeForm]


@pytest.mark.parametrize("cls", [None, Everything, Entry, Model, Tree[int]])
def test_types_whose_values_can_be_compared_pass(cls: Any) -> None:
    """Every kind of field that params may have."""
    assert unkeyable(cls) is None


@pytest.mark.parametrize(
    ("cls", "problem"),
    [
        (Opening, "its field 'what' holds values of the class Opaque, which cannot be compared"),
        (Nested, "its field 'opening', in Opening.what, holds values of the class Opaque, which cannot be compared"),
        (Lazy, "its field 'items' holds values of the class Iterable, which cannot be compared"),
        (Both, "its field 'two' holds values of two classes named Color, which cannot be told apart"),
    ],
)
def test_types_whose_values_cannot_be_compared_are_named(cls: Any, problem: str) -> None:
    """With the field and the class, however deep."""
    assert unkeyable(cls) == problem


def test_names_that_cannot_be_resolved_are_left_to_the_call() -> None:
    """A class made in a function may refer to others there."""

    @dataclass
    class Inside:
        x: int

    @dataclass
    class Outside:
        inner: list[Inside]

    class Pending(BaseModel):
        later: list[Missing] = []  # type: ignore[name-defined] # noqa: F821 # pyright: ignore[reportUndefinedVariable]

    assert unkeyable(Outside) is None
    assert unkeyable(Pending) is None


def test_fields_that_do_not_count_are_not_looked_at() -> None:
    """With `param_keys` only those matter."""
    assert unkeyable(Opening, ("name",)) is None
    assert unkeyable(Opening, ("name", "what")) is not None


def opening_tool(config: IdempotencyConfig) -> Tool[Opening, str]:
    return Tool[Opening, str](
        name="open", description="Open.", handler=lambda params: ToolResult.ok(params.name), idempotency=config
    )


def test_such_a_tool_is_refused_when_it_is_declared() -> None:
    """The error names the tool, the field, and what to use instead; other strategies are free to take it."""
    with pytest.raises(PromptValidationError) as caught:
        opening_tool(IdempotencyConfig())
    text = str(caught.value)
    assert text.startswith(
        "Tool 'open': idempotency cannot make keys of Opening: its field 'what' holds values of the "
    )
    assert 'IdempotencyConfig(strategy="custom", key_fn=...)' in text
    with pytest.raises(PromptValidationError):
        opening_tool(IdempotencyConfig(strategy="params", param_keys=("what",)))
    opening_tool(IdempotencyConfig(strategy="params", param_keys=("name",)))
    opening_tool(IdempotencyConfig(strategy="custom", key_fn=lambda params: params.name))
    opening_tool(IdempotencyConfig(strategy="none"))
