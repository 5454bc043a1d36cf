"""003: "Tool", "ToolResult", "ToolContext", "Resource Access" and "ToolExample"."""

from dataclasses import dataclass

import pytest

from weakincentives.errors import PromptValidationError
from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory import InMemoryFilesystem
from weakincentives.prompt import Tool, ToolContext, ToolExample, ToolResult
from weakincentives.resources import ResourceRegistry


@dataclass(frozen=True)
class Params:
    path: str = ""


@dataclass(frozen=True)
class Result:
    done: bool = True


ParamsT, ResultT = Params, Result


def test_tool_fields():
    """The table: name pattern, description length, optional handler, overridable, examples."""
    tool = Tool[Params, Result](name="a-b_1", description="x", handler=None)
    assert (tool.accepts_overrides, tool.examples) == (True, ())
    for wrong in ({"name": "A"}, {"description": ""}, {"description": "x" * 201}):
        with pytest.raises(PromptValidationError):
            Tool[Params, Result](**{"name": "a", "description": "x", "handler": None, **wrong})


def test_toolcontext_fields():
    """The tables: fields, properties and methods."""
    context = ToolContext()
    for name in ("prompt", "rendered_prompt", "adapter", "session", "deadline", "heartbeat", "run_context"):
        assert hasattr(context, name)
    assert (context.filesystem, context.budget_tracker, context.beat()) == (None, None, None)
    assert context.session.dispatcher is not None


def test_toolexample_fields():
    """The table: description, input, output."""
    example = ToolExample(description="x", input=Params(), output=Result())
    assert Tool[Params, Result](name="a", description="x", handler=None, examples=(example,)).examples == (example,)


def test_tool_handler_signature():
    def handle(params: ParamsT, *, context: ToolContext) -> ToolResult[ResultT]: ...

    assert Tool[Params, Result](name="a", description="x", handler=handle).handler is handle


def test_resource_access():
    def my_handler(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        fs = context.resources.get(Filesystem)
        # Or shorthand: fs = context.filesystem

        return ToolResult.ok(Result(fs is context.filesystem), message="ok")

    tool = Tool[Params, Result](name="a", description="x", handler=my_handler)
    context = ToolContext(resources=ResourceRegistry.build({Filesystem: InMemoryFilesystem()}))
    assert tool.call(Params(), context).value.done
