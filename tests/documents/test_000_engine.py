"""000: "Tool Contracts" called, "Transactional Tool Execution", and "Tool Policies" enforced."""

from dataclasses import dataclass
from typing import Any

import pytest

from weakincentives.adapters.tool_executor import ToolExecutor
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import Session, ToolCall
from weakincentives.testing import execute_tool, make_session, make_vfs


def test_tool_contracts_skeleton_runs():
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

    assert execute_tool(tool, {"query": "what?"}).text == "ok\n42"


def test_exceptions_are_caught():
    """ "Exceptions raised by handlers are caught and converted into tool failures." """

    def handler(params):
        raise KeyError("answer")

    reply = execute_tool(Tool[None, Any](name="t", description="T.", handler=handler))
    assert not reply.success


def test_excluded_values_are_recorded():
    """The model sees a summary message, but the full value is recorded in the session for debugging."""
    session = make_session()

    def handler(params):
        return ToolResult(message="Read 3 MB", value="x" * 3_000_000, exclude_value_from_context=True)

    reply = execute_tool(Tool[None, Any](name="t", description="T.", handler=handler), session=session)
    assert reply.text == "Read 3 MB"
    assert len(session[ToolInvoked].latest().result.value) == 3_000_000


@dataclass(frozen=True)
class Plan:
    title: str


@pytest.mark.parametrize("disk", [False, True])
def test_transactional_tool_execution(disk, tmp_path):
    """What gets rolled back and what is preserved, in memory and on disk, without opting in."""
    outside = []

    def handler(params: None, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Plan].append(Plan("half done"))
        context.filesystem.write("notes.txt", "half done")
        outside.append("an API call")
        return ToolResult.error("Something went wrong")

    session, fs = make_session(), HostFilesystem(tmp_path) if disk else make_vfs()
    fs.write("notes.txt", "before")
    tool = Tool[None, Any](name="t", description="T.", handler=handler)
    execute_tool(tool, session=session, resources={Filesystem: fs})
    assert (session[Plan].count(), fs.read("notes.txt")) == (0, "before")
    assert (session[ToolInvoked].count(), outside) == (1, ["an API call"])


def test_tool_policies_enforcement():
    """ "WINK returns a ToolResult.error() without executing the handler", naming the policy."""
    ran = []

    def named(name):
        return Tool[None, Any](
            name=name, description=name, handler=lambda params: ran.append(name) or ToolResult("ok", None)
        )

    deploy_tool, test_tool, build_tool = named("deploy"), named("test"), named("build")

    from weakincentives.prompt import (
        SequentialDependencyPolicy,
        ReadBeforeWritePolicy,
    )

    # Require 'test' and 'build' before 'deploy'
    deploy_policy = SequentialDependencyPolicy(
        dependencies={
            "deploy": frozenset({"test", "build"}),
        }
    )

    # Require reading a file before overwriting it (new files allowed)
    read_first = ReadBeforeWritePolicy()

    from weakincentives.prompt import MarkdownSection, Tool as _

    section = MarkdownSection(
        title="Deployment",
        key="deployment",
        template="Deploy the application after testing.",
        tools=(deploy_tool, test_tool, build_tool),
        policies=(deploy_policy,),
    )

    executor = ToolExecutor(prompt=Prompt(PromptTemplate(ns="t", key="k", sections=[section])), session=Session())
    reply = executor.execute(ToolCall("1", "deploy", "{}"))
    assert (reply.result.success, ran) == (False, [])
    assert reply.text.endswith("Refused by SequentialDependencyPolicy.")
    for number, name in enumerate(("test", "build", "deploy"), 2):
        assert executor.execute(ToolCall(str(number), name, "{}")).success
    assert ran == ["test", "build", "deploy"]
    assert read_first is not None
