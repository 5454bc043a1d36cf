from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NewType, Protocol, TypeVar, cast

import pytest
from typing_extensions import TypedDict

from weakincentives.dbc import require
from weakincentives.errors import PromptValidationError
from weakincentives.prompt import Tool, ToolContext, ToolResult, tool
from weakincentives.prompt.handlers import read_handler, resolved_hints
from weakincentives.prompt.type_forms import assignable, fits, is_params_type, type_name

T = TypeVar("T")
Id = NewType("Id", int)


class Base:
    pass


class Child(Base):
    pass


class Box(Generic[T]):
    pass


class IntBox(Box[int]):
    pass


class Readable(Protocol):
    def read(self) -> str: ...


class Row(TypedDict):
    name: str


@pytest.mark.parametrize(
    ("source", "target", "wanted"),
    [
        (Child, Base, True),
        (Base, Child, False),
        (Child, Any, True),
        (Any, Child, True),
        (Child, object, True),
        (Child, T, True),
        (None, None, True),
        (None, Child, False),
        (Child, None, False),
        (Child, Child | None, True),
        (Child | None, Child, False),
        (Child | None, Base | None, True),
        (Id, int, True),
        (Annotated[Child, "x"], Base, True),
        (list[Child], Sequence[Base], True),
        (list[Child], Sequence[int], False),
        (list[Child], tuple[Child, ...], False),
        (tuple[Child, ...], tuple[Base, ...], True),
        (dict[str, int], Mapping[str, int], True),
        (dict[str, int], Mapping[str, str], False),
        (IntBox, Box[str], True),  # a class of its own: nothing is said about its parameters
        (Literal["a"], str, True),
        (Literal["a"], int, False),
        (str, Literal["a"], False),
        (Row, dict, True),
        (Row, Mapping[str, object], True),
        (dict[str, str], Row, True),
        (Child, Row, False),
        (Child, Readable, True),  # a protocol that cannot be checked
    ],
)
def test_assignability_says_no_only_when_sure(source: Any, target: Any, wanted: bool) -> None:
    """Contradictions between annotations and types are found; doubts are let pass."""
    assert assignable(source, target) is wanted


@pytest.mark.parametrize(
    ("value", "form", "wanted"),
    [
        (1, int, True),
        ("1", int, False),
        (None, None, True),
        (0, None, False),
        (None, int | None, True),
        ([1, 2], list[int], True),
        ([1, "2"], list[int], False),
        ("ab", Sequence[str], True),
        ((1, "a"), tuple[int, str], True),
        ((1,), tuple[int, str], False),
        ((), tuple[int, ...], True),
        ({"a": 1}, Mapping[str, int], True),
        ({1: 1}, Mapping[str, int], False),
        ({1, 2}, frozenset[int], False),
        (frozenset({1}), frozenset[int], True),
        ("a", Literal["a", "b"], True),
        (True, Literal[1], False),
        ({"name": "x"}, Row, True),
        ("x", Row, False),
        (7, Id, True),
        (IntBox(), Box[int], True),
        (object(), Readable, True),
        (object(), "Unresolved", True),
    ],
)
def test_values_are_judged_with_their_items(value: Any, form: Any, wanted: bool) -> None:
    """Examples' values are compared with the declared types, into sequences and mappings."""
    assert fits(value, form) is wanted


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (None, "None"),
        (type(None), "None"),
        (Child, "Child"),
        (tuple[Child, ...], "tuple[Child, ...]"),
        (Child | None, "Child | None"),
        (Literal["a", 1], "Literal['a', 1]"),
        (Annotated[Child, "x"], "Child"),
        (Id, "int"),
        (Any, "Any"),
        (Box[int], "Box[int]"),
    ],
)
def test_types_are_named_as_one_would_write_them(form: Any, name: str) -> None:
    """Error texts show no module paths."""
    assert type_name(form) == name


def test_only_objects_can_be_params() -> None:
    """A TypedDict is one, an instance is not."""
    assert is_params_type(Row)
    assert not is_params_type(cast(Any, Child()))
    assert not is_params_type(list[int])


def test_a_quoted_name_among_lazy_annotations_is_resolved() -> None:
    """`"Child"` in a module with lazy annotations is text of text."""

    def handler(params: "Child") -> "ToolResult[Child]":  # noqa: UP037 - the point
        raise NotImplementedError

    assert resolved_hints(handler) == {"params": Child, "return": ToolResult[Child]}


def test_names_of_an_enclosing_function_are_resolved() -> None:
    """Types that a handler also uses in its body are found in its closure."""

    class Local:
        pass

    def handler(params: Local) -> ToolResult[Local]:
        return ToolResult.ok(Local())

    assert resolved_hints(handler)["params"] is Local


def test_a_context_that_cannot_be_resolved_is_known_by_its_name() -> None:
    """`ToolContext` imported for type checkers only is still the context."""

    def handler(params: Any, *, ctx: Any) -> Any:
        return ctx

    handler.__annotations__ = {"ctx": "prompt.ToolContext"}
    context = ToolContext()
    assert read_handler(handler).call(None, context) is context


def test_a_handler_whose_signature_cannot_be_read_is_refused() -> None:
    """The error says to wrap it."""

    class Odd:
        __signature__ = "none"

        def __call__(self, *args: Any) -> Any: ...

    with pytest.raises(PromptValidationError, match="Wrap it in a function"):
        Tool[None, None](name="odd", description="Odd.", handler=cast(Any, Odd()))


def annotated(params: None) -> Annotated[ToolResult[int], "how many"]:
    return ToolResult.ok(1)


async def annotated_async(params: None) -> Annotated[ToolResult[int], "how many"]:
    return ToolResult.ok(1)


def annotated_inside(params: None) -> Annotated[Awaitable[Annotated[ToolResult[int], "how many"]], "later"]:
    return annotated_async(params)


@pytest.mark.parametrize("handler", [annotated, annotated_async, annotated_inside])
def test_an_annotated_result_is_understood(handler: Any) -> None:
    """`Annotated` around what a handler returns hides nothing: not the type, and not a contradiction."""
    assert Tool(name="count", description="Count.", handler=handler).result_type is int
    assert Tool[None, int](name="count", description="Count.", handler=handler).result_type is int
    with pytest.raises(
        PromptValidationError, match=r"annotated to return ToolResult\[int\], but the result type is str"
    ):
        Tool[None, str](name="count", description="Count.", handler=handler)


def test_an_annotated_result_of_a_decorated_function_is_not_wrapped_again() -> None:
    """`@tool` sees the `ToolResult` inside of `Annotated`."""

    @tool
    def count() -> Annotated[ToolResult[int], "how many"]:
        """Count."""
        return ToolResult.ok(1)

    assert count.result_type is int
    assert count.call(None, ToolContext()) == ToolResult.ok(1)


@pytest.mark.parametrize("text", [False, True])
def test_a_contract_knows_an_annotated_handler(text: bool) -> None:
    """A broken condition is an answer to the model, as for any handler; annotations may be text or not."""

    def handler(params: None) -> None: ...

    form = Annotated[ToolResult[int], "how many"]
    returns: Any = "typing.Annotated[ToolResult[int], 'how many']" if text else form
    handler.__annotations__ = {"params": None, "return": returns}
    checked = cast(Any, require(lambda params: params is not None, "say what")(handler))
    assert checked(None) == ToolResult.error("Precondition failed: say what")
