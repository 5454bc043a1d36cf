from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import BaseModel, RootModel
from typing_extensions import TypedDict

from weakincentives.dbc import require
from weakincentives.errors import ParseError, PromptValidationError
from weakincentives.prompt import IdempotencyConfig, Tool, ToolAnnotations, ToolContext, ToolExample, ToolResult


@dataclass(frozen=True, slots=True)
class Lookup:
    entity_id: str = field(metadata={"description": "What to fetch"})
    related: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    entity_id: str


@dataclass(frozen=True, slots=True)
class Other:
    number: int = 0


class Model(BaseModel):
    name: str


class Listed(RootModel[list[int]]):
    pass


class Typed(TypedDict):
    name: str


def lookup(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    return ToolResult.ok(Found(params.entity_id), message=f"Fetched {params.entity_id}.")


def build(types: tuple[Any, Any] = (Lookup, Found), **options: Any) -> Tool[Any, Any]:
    options = {"name": "lookup", "description": "Fetch an entity.", **options}
    typed: Any = Tool[types]  # pyright: ignore[reportInvalidTypeArguments, reportInvalidTypeForm]
    return typed(**options)


def refusal(make: Callable[[], object]) -> PromptValidationError:
    with pytest.raises(PromptValidationError) as caught:
        make()
    return caught.value


# What it is.


def test_a_tool_knows_the_types_it_was_declared_with() -> None:
    """`Tool[P, R]` keeps its types, and pyright sees them."""
    tool = Tool[Lookup, Found](name="lookup", description=" Fetch. ", handler=lookup)
    assert (tool.params_type, tool.result_type, tool.description) == (Lookup, Found, "Fetch.")
    assert repr(tool) == "Tool[Lookup, Found](name='lookup')"
    found = tool.parse('{"entity_id": "e1"}')
    assert found.entity_id == "e1"


def test_types_are_read_from_the_handler_when_they_are_not_declared() -> None:
    """A bare `Tool(...)` takes its types from the handler's annotations, future annotations included."""
    tool = Tool(name="lookup", description="Fetch.", handler=lookup)
    assert (tool.params_type, tool.result_type) == (Lookup, Found)


def test_a_tool_without_types_is_refused_with_both_ways_out() -> None:
    """A tool of which nothing is known says how to declare its types."""

    handler: Any = eval("lambda params, *, context: None")
    error = refusal(lambda: Tool(name="lookup", description="Fetch.", handler=handler))
    assert "Tool[Params, Result](...)" in str(error)
    assert "ToolResult[Result]" in str(error)


def test_a_tool_may_have_no_handler() -> None:
    """A tool without handler is a declaration: calling it says so."""
    tool = build()
    assert tool.handler is None
    with pytest.raises(TypeError, match="no handler"):
        tool.call(None, ToolContext(tool_name="lookup"))


def test_tools_do_not_change() -> None:
    """Setting or deleting an attribute raises and names `replace`."""
    tool: Any = build()
    with pytest.raises(AttributeError, match=r"replace\(name=\.\.\.\)"):
        tool.name = "other"
    with pytest.raises(AttributeError):
        del tool.name


def test_replace_makes_another_tool_with_the_same_types() -> None:
    """`replace` changes what it is told, checks it again, and leaves the first tool alone."""
    tool = build(handler=lookup, timeout=3)
    other = tool.replace(name="fs_lookup")
    assert (other.name, other.timeout, other.result_type, tool.name) == ("fs_lookup", 3.0, Found, "lookup")
    assert "name" in str(refusal(lambda: tool.replace(name="No!")))


def test_descriptions_can_be_said_in_other_words() -> None:
    """`with_descriptions` replaces the tool's and its parameters' texts, and refuses unknown parameters."""
    tool = build(handler=lookup)
    other = tool.with_descriptions("Get it.", {"entity_id": "An id"})
    assert other.description == "Get it."
    assert other.schema()["properties"]["entity_id"]["description"] == "An id"
    assert other.replace(name="x").schema()["properties"]["entity_id"]["description"] == "An id"
    assert tool.schema()["properties"]["entity_id"]["description"] == "What to fetch"
    assert "entity_id, related" in str(refusal(lambda: tool.with_descriptions(params={"nope": "x"})))


def test_aliases_are_types_like_any_other() -> None:
    """`Tool[P, R]` can stand in annotations and unions, and needs two types."""
    assert (Tool[Lookup, Found] | None) is not None
    with pytest.raises(TypeError, match="2"):
        _ = cast(Any, Tool)[Lookup]


# Parameters and results.


def test_a_tool_without_parameters_takes_what_models_send_for_nothing() -> None:
    """With params type None, empty text, null and an empty object are fine, anything else is refused."""
    tool = Tool[None, str](name="now", description="The time.")
    several: list[Any] = ["", "{}", "null", " {} ", b"", b"{}", {}]
    for nothing in several:
        assert tool.parse(nothing) is None
    with pytest.raises(ParseError, match="tz"):
        tool.parse('{"tz": "UTC"}')
    with pytest.raises(ParseError):
        tool.parse("[1]")
    assert tool.schema() == {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(("params_type", "value"), [(Model, "Ada"), (Typed, "Ada")])
def test_models_and_typed_dicts_are_params_types_too(params_type: Any, value: str) -> None:
    """pydantic models and TypedDicts work as params, strictly: unknown keys are refused."""
    tool = build((params_type, str))
    parsed = tool.parse('{"name": "Ada"}')
    assert (parsed["name"] if isinstance(parsed, dict) else parsed.name) == value
    with pytest.raises(ParseError):
        tool.parse('{"name": "Ada", "more": 1}')


@pytest.mark.parametrize("params_type", [str, int, list[int], dict[str, int], Listed, Lookup | None])
def test_params_types_that_are_no_objects_are_refused(params_type: Any) -> None:
    """A params type must be something whose fields a model can fill in."""
    assert "must be a dataclass" in str(refusal(lambda: build((params_type, str))))


def test_a_params_type_without_a_schema_is_refused_with_its_field() -> None:
    """A field that has no JSON form is named, with its type and where such things belong."""
    Holder = make_dataclass("Holder", [("ok", Annotated[int, "fine"]), ("call", Callable[[], int])])  # noqa: N806
    error = refusal(lambda: build((Holder, str)))
    assert error.tool_name == "lookup"
    assert error.dataclass_type is Holder
    assert "field 'call'" in str(error)
    assert "context.resources" in str(error)
    assert "http" not in str(error)


@pytest.mark.parametrize(
    "result_type", [None, str, tuple[Found, ...], list[Found], dict[str, int], Found | None, Literal["a"], object]
)
def test_results_may_be_of_any_type(result_type: Any) -> None:
    """Sequences, mappings, text, unions and None are result types."""
    assert build((Lookup, result_type)).result_type == result_type


# Names and descriptions.


@pytest.mark.parametrize("name", ["a", "read_file", "mcp-tool_2", "0", "x" * 64])
def test_good_names(name: str) -> None:
    """Lowercase letters, digits, underscore and hyphen, up to 64 of them."""
    assert build(name=name).name == name


@pytest.mark.parametrize(
    ("name", "fix"),
    [("", ""), ("Read File", "'read_file'"), ("x" * 65, "'" + "x" * 64 + "'"), ("naïve", "'na_ve'"), ("a\n", "'a'")],
)
def test_bad_names_are_refused_with_a_better_one(name: str, fix: str) -> None:
    """A name that providers would refuse is refused here, with one that would do."""
    error = refusal(lambda: build(name=name))
    assert error.tool_name == name
    assert "^[a-z0-9_-]{1,64}$" in str(error)
    assert fix in str(error)


def test_names_and_descriptions_must_be_text() -> None:
    """Anything but text is refused, naming the field."""
    assert "name must be text" in str(refusal(lambda: build(name=7)))
    assert "description must be text" in str(refusal(lambda: build(description=None)))


@pytest.mark.parametrize(("text", "wrong"), [("   ", "empty"), ("x" * 201, "201 characters")])
def test_descriptions_have_1_to_200_characters(text: str, wrong: str) -> None:
    """Too short and too long descriptions are refused; surrounding space does not count."""
    assert wrong in str(refusal(lambda: build(description=text)))
    assert len(build(description=f"  {'x' * 200}\n").description) == 200


# Handlers.


def params_only(params: Lookup) -> ToolResult[Found]:
    return ToolResult.ok(Found("1"))


def positional(params: Lookup, context: ToolContext) -> ToolResult[Found]:
    assert isinstance(context, ToolContext)
    return ToolResult.ok(Found("2"))


def keyword(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    assert isinstance(context, ToolContext)
    return ToolResult.ok(Found("3"))


def renamed(p: Lookup, /, *, ctx: ToolContext | None = None) -> ToolResult[Found]:
    assert isinstance(ctx, ToolContext)
    return ToolResult.ok(Found("4"))


def catch_all(params: Lookup, **rest: Any) -> ToolResult[Found]:
    assert isinstance(rest["context"], ToolContext)
    return ToolResult.ok(Found("5"))


def defaults(params: Lookup, extra: int = 6, *, context: ToolContext) -> ToolResult[Found]:
    assert isinstance(context, ToolContext)
    return ToolResult.ok(Found(str(extra)))


class Callee:
    def __call__(self, params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
        return ToolResult.ok(Found("7"))

    def method(self, params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
        return ToolResult.ok(Found("8"))


@require(lambda params: bool(params.entity_id), "entity_id cannot be empty")
def guarded(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    return ToolResult.ok(Found("9"))


def offset(number: str, params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    return ToolResult.ok(Found(number))


@pytest.mark.parametrize(
    ("handler", "answer"),
    [
        (params_only, "1"),
        (positional, "2"),
        (keyword, "3"),
        (renamed, "4"),
        (catch_all, "5"),
        (defaults, "6"),
        (Callee(), "7"),
        (Callee().method, "8"),
        (guarded, "9"),
        (functools.partial(offset, "10"), "10"),
    ],
)
def test_every_form_of_handler_is_called_the_same_way(handler: Any, answer: str) -> None:
    """`tool.call(params, context)` calls any of the signatures; methods, partials and callable objects included."""
    tool = build(handler=handler)
    assert not tool.is_async
    assert tool.call(Lookup("x"), ToolContext()).value == Found(answer)


async def async_handler(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    return ToolResult.ok(Found("async"))


def returns_awaitable(params: Lookup, *, context: ToolContext) -> Awaitable[ToolResult[Found]]:
    return async_handler(params, context=context)


class AsyncCallee:
    async def __call__(self, params: Lookup) -> ToolResult[Found]:
        return ToolResult.ok(Found("object"))


@pytest.mark.parametrize(
    ("handler", "is_async", "answer"),
    [(async_handler, True, "async"), (AsyncCallee(), True, "object"), (returns_awaitable, False, "async")],
)
def test_async_handlers_give_something_to_await(handler: Any, is_async: bool, answer: str) -> None:
    """`is_async` says beforehand that the result must be awaited."""
    tool = build(handler=handler)
    assert tool.is_async is is_async
    pending = tool.call(Lookup("x"), ToolContext())
    with pytest.raises(StopIteration) as done:
        pending.send(None)
    assert done.value.value.value == Found(answer)


def nothing_taken() -> ToolResult[Found]:
    raise NotImplementedError


def keyword_only(*, context: ToolContext) -> ToolResult[Found]:
    raise NotImplementedError


def one_more(params: Lookup, client: object, *, context: ToolContext) -> ToolResult[Found]:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("handler", "wrong"),
    [
        (nothing_taken, "takes no params"),
        (keyword_only, "takes no params"),
        (one_more, "'client'"),
        ("lookup", "must be a function"),
        (Callee, "must be a function"),
        (type, "must be a function"),
    ],
)
def test_handlers_that_cannot_be_called_are_refused(handler: Any, wrong: str) -> None:
    """A handler that needs something else than params and context is refused with what to write."""
    error = refusal(lambda: build(handler=handler))
    assert wrong in str(error)
    assert "def handler(params, *, context)" in str(error)


# Annotations that contradict the types.


def wants_other(params: Other, *, context: ToolContext) -> ToolResult[Found]:
    raise NotImplementedError


def gives_other(params: Lookup, *, context: ToolContext) -> ToolResult[Other]:
    raise NotImplementedError


def gives_text(params: Lookup, *, context: ToolContext) -> str:
    raise NotImplementedError


def gives_many(params: Lookup, *, context: ToolContext) -> ToolResult[tuple[Other, ...]]:
    raise NotImplementedError


def gives_nothing(params: Lookup, *, context: ToolContext) -> ToolResult[None]:
    raise NotImplementedError


async def gives_other_later(params: Lookup) -> ToolResult[Other]:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("types", "handler", "words"),
    [
        ((Lookup, Found), wants_other, ("'params'", "Other", "Lookup")),
        ((Lookup, Found), gives_other, ("ToolResult[Other]", "Found")),
        ((Lookup, Found), gives_other_later, ("ToolResult[Other]", "Found")),
        ((Lookup, Found), gives_text, ("return str", "ToolResult[Found]")),
        ((Lookup, Found), gives_nothing, ("ToolResult[None]", "Found")),
        ((Lookup, None), gives_other, ("ToolResult[Other]", "None")),
        ((Lookup, tuple[Found, ...]), gives_many, ("tuple[Other, ...]", "tuple[Found, ...]")),
        ((None, Found), lookup, ("'params'", "Lookup", "None")),
    ],
)
def test_annotations_that_contradict_the_types_are_refused(types: Any, handler: Any, words: tuple[str, ...]) -> None:
    """The error names tool, handler, parameter and both types, though the annotations are strings here."""
    error = refusal(lambda: build(types, handler=handler))
    assert error.tool_name == "lookup"
    assert handler.__qualname__ in str(error)
    for word in words:
        assert word in str(error)


def wide(params: object, *, context: ToolContext) -> ToolResult[Any]:
    raise NotImplementedError


def unresolvable(params: Any, *, context: Any) -> Any:
    raise NotImplementedError


unresolvable.__annotations__ = {"params": "Nowhere", "context": "Missing", "return": "ToolResult[Gone]"}


def partly(params: Any, *, context: Any) -> Any:
    raise NotImplementedError


partly.__annotations__ = {"params": "Nowhere", "context": "Missing", "return": "ToolResult[Other]"}


def bare_result(params: Lookup | Other) -> Any:
    raise NotImplementedError


bare_result.__annotations__ = {"params": Lookup | Other, "return": "ToolResult"}


@pytest.mark.parametrize("handler", [wide, unresolvable, bare_result])
def test_what_contradicts_nothing_is_accepted(handler: Any) -> None:
    """Wider parameters, Any, a bare ToolResult and names that cannot be resolved are fine."""
    assert build(handler=handler).handler is handler


def test_one_unresolvable_annotation_does_not_hide_the_others() -> None:
    """Annotations are resolved one by one."""
    assert "ToolResult[Other]" in str(refusal(lambda: build(handler=partly)))


# Examples.


def test_examples_are_kept_as_a_tuple() -> None:
    """Examples that fit are kept, sequence results included."""
    example = ToolExample("Basic", Lookup("a"), (Found("a"),))
    assert build((Lookup, tuple[Found, ...]), examples=[example]).examples == (example,)


@pytest.mark.parametrize(
    ("types", "example", "words"),
    [
        ((Lookup, Found), ToolExample("x", Other(), Found("a")), ("example 1 input", "Lookup", "Other")),
        ((Lookup, Found), ToolExample("x", Lookup("a"), Other()), ("example 1 output", "Found", "Other")),
        ((Lookup, Found), ToolExample("x", Lookup("a"), None), ("example 1 output", "Found", "None")),
        ((None, Found), ToolExample("x", Lookup("a"), Found("a")), ("example 1 input", "None")),
        ((Lookup, None), ToolExample("x", Lookup("a"), Found("a")), ("example 1 output", "None")),
        ((Lookup, list[Found]), ToolExample("x", Lookup("a"), (Found("a"),)), ("output", "list[Found]")),
        ((Lookup, tuple[Found, ...]), ToolExample("x", Lookup("a"), (Other(),)), ("output", "tuple[Found, ...]")),
        ((Lookup, tuple[int, str]), ToolExample("x", Lookup("a"), (1, "a", 2)), ("output", "tuple[int, str]")),
        ((Lookup, dict[str, int]), ToolExample("x", Lookup("a"), {"a": "b"}), ("output", "dict[str, int]")),
        ((Lookup, Found), ToolExample("", Lookup("a"), Found("a")), ("example 1 description", "empty")),
        ((Lookup, Found), ToolExample("x" * 201, Lookup("a"), Found("a")), ("example 1 description", "201")),
        ((Lookup, Found), ToolExample("x", Lookup(cast(Any, 7)), Found("a")), ("'entity_id'", "integer 7")),
        ((Lookup, Found), "no example", ("must be a ToolExample",)),
    ],
)
def test_examples_that_do_not_fit_are_refused(types: Any, example: Any, words: tuple[str, ...]) -> None:
    """The error says which example, which side of it, what it must be and what it is."""
    error = refusal(lambda: build(types, examples=(example,)))
    for word in words:
        assert word in str(error)


def test_a_lone_example_is_refused_with_the_comma_it_lacks() -> None:
    """`examples=(ToolExample(...))` is the mistake; the error shows the tuple."""
    assert "(ToolExample(...),)" in str(refusal(lambda: build(examples=ToolExample("x", Lookup("a"), Found("a")))))


def test_fields_that_the_constructor_does_not_take_are_no_problem_in_examples() -> None:
    """A computed field (`init=False`) of an example's input is not held against it."""
    length = ("length", int, field(init=False, default=0))
    Computed: Any = make_dataclass("Computed", [("name", str), length])  # noqa: N806
    assert build((Computed, str), examples=[ToolExample("x", Computed("a"), "b")]).examples


# Everything else.


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), True, "5", timedelta(0)])
def test_bad_timeouts_are_refused(timeout: Any) -> None:
    """A timeout is a positive number of seconds."""
    assert "timeout must be" in str(refusal(lambda: build(timeout=timeout)))


def test_timeouts_may_be_durations() -> None:
    """A timedelta is turned into seconds."""
    assert build(timeout=timedelta(minutes=1)).timeout == 60.0


def test_process_isolation_needs_an_importable_handler() -> None:
    """Lambdas, local functions, methods and tools without handler cannot run in another process."""

    def local(params: Lookup) -> ToolResult[Found]:
        raise NotImplementedError

    assert build(handler=lookup, isolation="process").isolation == "process"
    nameless: Any = eval("lambda params: None")
    several: list[Any] = [local, nameless, Callee().method, Callee(), None]
    for handler in several:
        assert "module level" in str(refusal(lambda handler=handler: build(handler=handler, isolation="process")))
    assert "isolation must be" in str(refusal(lambda: build(isolation="vm")))


@pytest.mark.parametrize(
    "options",
    [
        {"max_result_chars": 255},
        {"max_result_chars": None},
        {"max_result_chars": True},
        {"max_repeats": 1},
        {"max_repeats": 2.5},
    ],
)
def test_limits_are_whole_numbers_that_are_large_enough(options: Any) -> None:
    """Limits that make no sense are refused by name."""
    assert next(iter(options)) in str(refusal(lambda: build(**options)))


def test_limits_have_defaults() -> None:
    """32 Ki characters of result, the fifth identical call is refused; None lets a tool poll."""
    tool = build()
    assert (tool.max_result_chars, tool.max_repeats, build(max_repeats=None).max_repeats) == (32768, 5, None)


def test_a_tool_cannot_be_read_only_and_destructive() -> None:
    """Annotations that contradict one another are refused with the tool's name."""
    error = refusal(lambda: build(annotations=ToolAnnotations(read_only=True, destructive=True)))
    assert error.tool_name == "lookup"
    assert "read_only and destructive" in str(error)
    assert "must be ToolAnnotations" in str(refusal(lambda: build(annotations="read_only")))


def test_annotations_have_the_defaults_of_mcp() -> None:
    """Without annotations a tool counts as writing, destructive, not idempotent, and open to the world."""
    assert build().annotations.hints() == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }
    assert ToolAnnotations(read_only=True).hints()["destructiveHint"] is False
    assert "read_only must be True or False" in str(refusal(lambda: ToolAnnotations(read_only=cast(Any, "yes"))))


def test_idempotency_keys_must_be_fields_of_the_params() -> None:
    """A key that no argument has would make all calls the same; it is refused with the fields there are."""
    config = IdempotencyConfig(strategy="params", param_keys=("order_id",))
    error = refusal(lambda: build(idempotency=config))
    assert "'order_id'" in str(error)
    assert "entity_id, related" in str(error)
    assert "none" in str(refusal(lambda: build((None, str), idempotency=config)))
    good = IdempotencyConfig(strategy="params", param_keys=("name",))
    assert build((Typed, str), idempotency=good).idempotency is good
    assert build((Model, str), idempotency=good).idempotency is good
    assert "must be an IdempotencyConfig" in str(refusal(lambda: build(idempotency="auto")))


def test_guidance_is_longer_advice() -> None:
    """Up to 4,000 characters, stripped; an empty one is none, and `replace` keeps it."""
    tool = build(guidance="  Ask for one at a time. \n")
    assert tool.guidance == "Ask for one at a time."
    assert tool.replace(name="other").guidance == tool.guidance
    assert tool.with_descriptions("Get.").guidance == tool.guidance
    assert build(guidance=" ").guidance is build().guidance is None
    assert build(guidance="g" * 4000).guidance == "g" * 4000
    assert "guidance has 4,001 characters, at most 4,000" in str(refusal(lambda: build(guidance="g" * 4001)))
    assert "guidance must be text, got int" in str(refusal(lambda: build(guidance=3)))
    assert "goes into guidance=" in str(refusal(lambda: build(description="d" * 201)))
