"""000: "Tool Contracts", "ToolContext, Resources, and Filesystem", "ToolResult Semantics" and "Tool Examples"."""

from dataclasses import dataclass

import pytest

from weakincentives.errors import PromptValidationError
from weakincentives.prompt import Tool, ToolContext, ToolResult


@dataclass(frozen=True)
class NowParams:
    tz: str


@dataclass(frozen=True)
class NowResult:
    iso: str


def now_handler(params, *, context):
    return ToolResult.ok(NowResult(iso="2025-01-01T00:00:00+00:00"))


def test_tool_contracts():
    from dataclasses import dataclass
    from weakincentives.prompt import Tool, ToolContext, ToolResult

    @dataclass(slots=True, frozen=True)
    class MyParams:
        query: str

    @dataclass(slots=True, frozen=True)
    class MyResult:
        answer: str

        def render(self) -> str:
            return self.answer

    def handler(params: MyParams, *, context: ToolContext) -> ToolResult[MyResult]:
        # Do work here (read files, call an API, etc.)
        return ToolResult.ok(MyResult(answer="42"), message="ok")

    tool = Tool[MyParams, MyResult](
        name="my_tool",
        description="Do a thing.",
        handler=handler,
    )

    assert (tool.params_type, tool.result_type) == (MyParams, MyResult)
    result = tool.call(tool.parse('{"query": "life"}'), ToolContext())
    assert result.render() == "ok\n42"
    with pytest.raises(PromptValidationError):
        Tool[MyResult, MyResult](name="my_tool", description="Do a thing.", handler=handler)


def test_toolcontext_resources_and_filesystem():
    class MyHttpClient:
        def __init__(self, *args):
            pass

    from weakincentives.resources import Binding, ResourceRegistry

    registry = ResourceRegistry.of(
        Binding.instance(MyHttpClient, MyHttpClient(...)),
    )

    context = ToolContext(resources=registry)
    assert isinstance(context.resources.get(MyHttpClient), MyHttpClient)
    for name in ("prompt", "rendered_prompt", "adapter", "deadline", "budget_tracker", "filesystem"):
        assert getattr(context, name) is None


def test_toolresult_semantics():
    from functools import partial

    MyResult = partial(NowResult, "now")

    # Success with typed value (most common)
    ToolResult.ok(MyResult(), message="Done")

    # Failure with no value
    ToolResult.error("Something went wrong")

    # Full form (when exclude_value_from_context is needed)
    ToolResult(
        message="Human-readable status",
        value=...,  # dataclass | mapping | sequence | str | None
        success=True,  # if False, adapters treat as tool failure
        exclude_value_from_context=False,  # hide large payloads from model context
    )

    assert ToolResult.ok(MyResult(), message="Done").success
    failure = ToolResult.error("Something went wrong")
    assert (failure.success, failure.value, failure.render()) == (False, None, "Something went wrong")


def test_tool_examples():
    from weakincentives.prompt import ToolExample

    tool = Tool[NowParams, NowResult](
        name="now",
        description="Return UTC time.",
        handler=now_handler,
        examples=(
            ToolExample(
                description="Get UTC time",
                input=NowParams(tz="UTC"),
                output=NowResult(iso="2025-01-01T00:00:00+00:00"),
            ),
        ),
    )

    assert tool.examples[0].input == NowParams(tz="UTC")
