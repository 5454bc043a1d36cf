from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from weakincentives.errors import ParseError, PromptValidationError
from weakincentives.prompt import FunctionTool, Tool, ToolAnnotations, ToolContext, ToolExample, ToolResult, tool


@dataclass(frozen=True)
class Weather:
    city: str
    degrees: float


@dataclass(frozen=True)
class Query:
    text: str


class Doc:
    def __init__(self, documentation: str) -> None:
        self.documentation = documentation


@tool
def get_weather(
    city: str,
    units: Literal["c", "f"] = "c",
    days: Annotated[int, Field(ge=1, le=7)] = 1,
    tags: list[str] = [],  # noqa: B006 - copied for every call
    near: Annotated[str | None, "A landmark"] = None,
    until: Annotated[str, Doc("A date")] = "",
    *,
    context: ToolContext,
) -> Weather:
    """Look up the weather
    of a city.

    Call it before you pack.

    Args:
        city: Which city,
            in English.
        units (str): Celsius or Fahrenheit.
        context: Nobody's business.

    Returns:
        The weather.
    """
    assert isinstance(context, ToolContext)
    tags.append("seen")
    return Weather(city, float(len(tags)))


def run(made: Tool[Any, Any], arguments: Any) -> ToolResult[Any]:
    return made.call(made.parse(arguments), ToolContext(session=None))


def test_a_function_becomes_a_tool() -> None:
    """Its name, its docstring and its return annotation are the tool's."""
    assert isinstance(get_weather, Tool)
    assert get_weather.name == "get_weather"
    assert get_weather.description == "Look up the weather of a city."
    assert get_weather.result_type is Weather
    assert get_weather.params_type is not None
    assert get_weather.params_type.__name__ == "GetWeatherParams"


def test_keyword_parameters_become_the_params_type() -> None:
    """Types, defaults and descriptions reach the schema; the context does not."""
    schema = get_weather.schema()
    properties = schema["properties"]
    assert schema["required"] == ["city"]
    assert set(properties) == {"city", "units", "days", "tags", "near", "until"}
    assert properties["city"] == {"type": "string", "description": "Which city, in English."}
    assert properties["units"]["enum"] == ["c", "f"]
    assert properties["units"]["description"] == "Celsius or Fahrenheit."
    assert properties["days"]["maximum"] == 7
    assert properties["near"]["description"] == "A landmark"
    assert properties["until"]["description"] == "A date"
    assert "description" not in schema


def test_arguments_are_checked_strictly() -> None:
    """All errors come at once, before the function runs."""
    with pytest.raises(ParseError) as caught:
        get_weather.parse('{"city": 7, "days": 9, "more": 1}')
    assert {failure.path for failure in caught.value.failures} == {"city", "days", "more"}


def test_a_plain_value_is_wrapped() -> None:
    """What is returned becomes the value of a successful result."""
    assert run(get_weather, {"city": "Bern"}) == ToolResult.ok(Weather("Bern", 1.0))


def test_mutable_defaults_are_not_shared() -> None:
    """Every call gets its own copy of a default."""
    first, second = run(get_weather, {"city": "Bern"}), run(get_weather, {"city": "Bern"})
    assert first.value == second.value == Weather("Bern", 1.0)


def test_a_params_parameter_is_used_as_it_is() -> None:
    """`(params: P, *, context)` is a handler already."""

    @tool(name="find", description="Find it.")
    def handler(params: Query, *, context: ToolContext) -> ToolResult[Query]:
        return ToolResult.ok(params, message="found")

    assert (handler.params_type, handler.result_type) == (Query, Query)
    assert run(handler, {"text": "x"}) == ToolResult.ok(Query("x"), message="found")


def test_a_handler_may_return_a_plain_value() -> None:
    """Wrapping works for `(params)` too."""

    @tool
    def shout(params: Query) -> str:
        """Shout."""
        return params.text.upper()

    assert run(shout, {"text": "x"}) == ToolResult.ok("X")


def test_a_params_parameter_of_another_type_is_an_argument() -> None:
    """A parameter that only happens to be called `params` is one of the arguments."""

    @tool
    def count(params: list[str]) -> int:
        """Count."""
        return len(params)

    assert run(count, {"params": ["a", "b"]}).value == 2


def test_context_is_known_by_name_or_type() -> None:
    """An unannotated `context` and any parameter of type ToolContext get the context; `context: str` is an argument."""

    @tool
    def by_type(ctx: ToolContext, number: int) -> str:
        """By type."""
        return f"{type(ctx).__name__} {number}"

    @tool
    def by_argument(context: str) -> str:
        """By argument."""
        return context

    assert run(by_type, {"number": 1}).value == "ToolContext 1"
    assert run(by_argument, {"context": "here"}).value == "here"
    namespace: dict[str, Any] = {}
    exec('def by_name(*, context) -> str:\n    "By name."\n    return type(context).__name__', namespace)
    by_name: Callable[[object], str] = namespace["by_name"]
    assert run(tool(by_name), "{}").value == "ToolContext"


def test_no_parameters_no_params() -> None:
    """A function without arguments makes a tool without parameters; None is a result."""

    @tool
    def ping() -> None:
        """Ping."""

    assert ping.params_type is None
    assert ping.result_type is None
    assert run(ping, "") == ToolResult.ok(None)


def test_async_functions_make_async_tools() -> None:
    """The result is wrapped after it was awaited."""

    @tool
    async def later(text: str) -> str:
        """Later."""
        return text

    @tool
    async def later_still(text: str) -> ToolResult[str]:
        """Later still."""
        return ToolResult.error(text)

    assert later.is_async
    assert later_still.is_async
    for made, wanted in ((later, ToolResult.ok("x")), (later_still, ToolResult.error("x"))):
        pending: Any = run(made, {"text": "x"})
        with pytest.raises(StopIteration) as done:
            pending.send(None)
        assert done.value.value == wanted


def test_results_pass_through() -> None:
    """A ToolResult that a function returns is left alone, bare annotations included."""
    namespace: dict[str, Any] = {"ToolResult": ToolResult}
    exec('def fail(why: str) -> ToolResult:\n    "Fail."\n    return ToolResult.error(why)', namespace)
    fail: Callable[[str], ToolResult[Any]] = namespace["fail"]
    made = tool(fail)
    assert made.result_type is Any
    assert run(made, {"why": "no"}) == ToolResult.error("no")


def test_options_are_those_of_tool() -> None:
    """Everything a Tool can be told can be told here."""

    @tool(
        name="peek",
        description="Peek.",
        timeout=2,
        annotations=ToolAnnotations(read_only=True),
        max_repeats=None,
        examples=(ToolExample("Once", None, "x"),),
    )
    def whatever() -> str:
        return "x"

    assert (whatever.name, whatever.timeout, whatever.max_repeats) == ("peek", 2.0, None)
    assert whatever.annotations.read_only


@tool(isolation="process")
def isolated(number: int) -> int:
    """Run elsewhere."""
    return number + 1


def test_decorated_functions_can_be_isolated() -> None:
    """At module level the handler is found under the function's name."""
    assert isolated.isolation == "process"
    with pytest.raises(PromptValidationError, match="module level"):

        @tool(isolation="process")
        def local(number: int) -> int:  # pyright: ignore[reportUnusedFunction]
            """Run elsewhere."""
            return number


SOURCES = {
    "def f(x: int) -> int: return x": "no docstring",
    "def f(x) -> int:\n 'F.'": "'x'",
    "def f(x: 'Nowhere') -> int:\n 'F.'": "cannot be resolved",
    "def f(x: int):\n 'F.'": "what it returns",
    "def f(*x: int) -> int:\n 'F.'": "by name",
    "def f(**x: int) -> int:\n 'F.'": "by name",
    "def f(x: int, /) -> int:\n 'F.'": "by name",
    "def F(x: int) -> int:\n 'F.'": "use 'f'",
    "def f(x: object()) -> int:\n 'F.'": "x",
}


@pytest.mark.parametrize(("source", "words"), SOURCES.items())
def test_functions_that_say_too_little_are_refused(source: str, words: str) -> None:
    """The error names the tool, the parameter and what to write."""
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    function = namespace.get("f") or namespace["F"]
    with pytest.raises(PromptValidationError) as caught:
        tool(function)
    assert words in str(caught.value)
    assert caught.value.tool_name == function.__name__


def test_only_functions_can_be_decorated() -> None:
    """A class or value is a TypeError at once."""
    with pytest.raises(TypeError, match="function"):
        tool(Query)


@tool
def described(one: int, two: int = 2) -> int:
    """Sphinx style.

    :param one: The one.
    :param int two: The two,
        on two lines.
    :returns: Both.
    """
    return one + two


def test_sphinx_descriptions_are_read_too() -> None:
    """`:param name:` lines describe parameters as `Args:` does."""
    properties = described.schema()["properties"]
    assert [properties[name]["description"] for name in ("one", "two")] == ["The one.", "The two, on two lines."]


def test_the_rest_of_the_docstring_is_guidance() -> None:
    """Everything below the first paragraph, but for what the schema says of the parameters and the context's line."""
    assert get_weather.description == "Look up the weather of a city."
    assert get_weather.guidance == "Call it before you pack.\n\nReturns:\n    The weather."
    assert described.guidance == ":returns: Both."


def test_a_line_that_reaches_no_schema_stays_guidance() -> None:
    """Nothing is lost: not a line on a parameter that `Annotated` describes, nor one on a parameter that is none."""

    @tool
    def mix(left: Annotated[int, "One"], right: int) -> int:
        """Mix.

        Args:
            left: Never 7,
              nor 8.
            right: Two.
            wrong: Who?

        Last words.
        """
        return left + right

    assert mix.schema()["properties"]["left"]["description"] == "One"
    assert mix.guidance == "Args:\n    left: Never 7,\n      nor 8.\n    wrong: Who?\n\nLast words."


def test_params_of_the_functions_own_are_described_by_their_type() -> None:
    """A line on `params` tells the model nothing, since there is no such argument."""

    @tool
    def find(params: Query, *, context: ToolContext) -> str:
        """Find.

        Args:
            params: The query.
            context: The context.
        """
        return params.text

    assert find.guidance is None


def test_what_is_passed_replaces_its_part_of_the_docstring() -> None:
    """`description=` the first paragraph, `guidance=` the rest; an empty guidance is none."""

    def shout(text: str) -> str:
        """Shout.

        Not at night.
        """
        return text.upper()

    assert (tool(shout).description, tool(shout).guidance) == ("Shout.", "Not at night.")
    other = tool(description="Cry.")(shout)
    assert (other.description, other.guidance) == ("Cry.", "Not at night.")
    other = tool(guidance="At noon.")(shout)
    assert (other.description, other.guidance) == ("Shout.", "At noon.")
    assert tool(guidance="")(shout).guidance is None


def test_a_long_first_paragraph_is_refused() -> None:
    """Nothing is cut: the error says where the rest belongs."""

    def long(text: str) -> str:
        return text

    long.__doc__ = "Words. " * 40
    with pytest.raises(PromptValidationError, match=r"at most 200 .*further paragraphs, up to 4,000"):
        tool(long)
    long.__doc__ = "Words.\n\n" + "w" * 4001
    with pytest.raises(PromptValidationError, match="guidance has 4,001 characters"):
        tool(long)
    long.__doc__ = "w" * 200 + "\n   \n\t\n" + "w" * 4000
    assert tool(long).guidance == "w" * 4000


def test_a_tool_can_still_be_called_as_the_function() -> None:
    """Directly, with its own parameters and result: no parsing, no wrapping, no transaction."""
    assert get_weather("Bern", tags=["wet"], context=ToolContext()) == Weather("Bern", 2.0)
    assert described(1) == 3
    with pytest.raises(TypeError):
        described("1", "2", "3")  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert list(inspect.signature(described).parameters) == ["one", "two"]
    assert isinstance(described, FunctionTool)
    assert described.function.__name__ == "described"


def test_async_functions_are_awaited_as_ever() -> None:
    """Calling the tool of an `async def` gives its coroutine."""

    @tool
    async def later(text: str) -> str:
        """Later."""
        return text

    assert asyncio.run(later("x")) == "x"


def test_a_changed_tool_is_still_the_function() -> None:
    """Other words or limits leave it callable; with another handler it is a tool like any other."""
    renamed = described.replace(name="other")
    assert isinstance(renamed, FunctionTool)
    assert (renamed.name, renamed(one=1, two=1), renamed.guidance) == ("other", 2, ":returns: Both.")
    reworded = described.with_descriptions("Said otherwise.", {"one": "First"})
    assert isinstance(reworded, FunctionTool)
    assert reworded.schema()["properties"]["one"]["description"] == "First"

    def other(params: Any) -> ToolResult[int]:
        return ToolResult.ok(7)

    assert type(described.replace(handler=other)) is Tool
