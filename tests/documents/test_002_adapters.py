"""Document 002: the blocks that evaluate a prompt, as printed, with the scripted model."""

from dataclasses import dataclass

import pytest

from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolInvoked, ToolResult
from weakincentives.session import Session
from weakincentives.testing import ScriptedAdapter, call, execute_tool, say


@dataclass(frozen=True)
class WriteFileParams:
    path: str
    content: str
    overwrite: bool = False


@dataclass(frozen=True)
class WriteFileResult:
    path: str
    size: int


def write_file_handler(params: WriteFileParams, *, context: ToolContext) -> ToolResult[WriteFileResult]:
    """ "Stage 3: Custom Validation", as far as it concerns existing files."""
    fs = context.resources.get(Filesystem)

    # Custom validation: Check if overwriting without confirmation
    if fs.exists(params.path) and not params.overwrite:
        return ToolResult.error(
            f"File already exists: {params.path}\n"
            f"Set overwrite=true to replace existing file"
        )

    # All validations passed - execute write
    fs.write(params.path, params.content)
    return ToolResult.ok(
        WriteFileResult(path=params.path, size=len(params.content)),
        message=f"Wrote {len(params.content)} bytes to {params.path}"
    )


files = InMemoryFilesystem()


def make_prompt_with_write_file_tool():
    files.write("/workspace/config.json", "{}")
    tool = Tool[WriteFileParams, WriteFileResult](
        name="write_file", description="Write a file.", handler=write_file_handler
    )
    section = MarkdownSection(title="Files", template="Write the configuration.", tools=[tool])
    return Prompt(PromptTemplate(ns="documents", key="write", sections=[section])).bind(resources={Filesystem: files})


@pytest.fixture
def adapter():
    """An adapter in manual mode: it returns when the model wants to call tools."""
    return ScriptedAdapter(
        call("write_file", path="/workspace/config.json", content="{1}"),
        call("write_file", path="/workspace/config.json", content="{1}", overwrite=True),
        say("Updated config.json successfully"),
        manual=True,
    )


@pytest.fixture
def session():
    return Session()


# Integration Tests with Model Behavior


def test_model_recovery_from_validation_error(adapter, session):
    """Test that model can recover from validation error."""
    prompt = make_prompt_with_write_file_tool()

    # Model's first attempt (will fail)
    response1 = adapter.evaluate(prompt, session=session)
    assert response1.stop_reason == "tool_use"
    assert response1.tool_calls[0].name == "write_file"

    # Execute tool (will fail validation)
    tool_result = execute_tool(response1.tool_calls[0], session=session)
    assert not tool_result.success
    assert "already exists" in tool_result.message
    assert "overwrite=true" in tool_result.message

    # Model's recovery attempt
    response2 = adapter.evaluate(
        prompt,
        session=session,
        tool_results=[tool_result]
    )

    # Verify model parsed error and adjusted
    assert response2.stop_reason == "tool_use"
    assert response2.tool_calls[0].name == "write_file"
    assert response2.tool_calls[0].params["overwrite"] == True

    # Execute corrected tool call
    tool_result2 = execute_tool(response2.tool_calls[0], session=session)
    assert tool_result2.success

    # Beyond the block: the conversation ends and both calls are in the log.
    response3 = adapter.evaluate(prompt, session=session, tool_results=[tool_result2])
    assert response3.text == "Updated config.json successfully"
    assert [event.success for event in session[ToolInvoked].all()] == [False, True]
    assert files.read("/workspace/config.json") == "{1}"


# Binding Resources to Prompts, Option 1


class HTTPClient:
    def __init__(self, base_url):
        self.base_url = base_url


@dataclass(frozen=True)
class Params:
    task: str


def test_pre_constructed_instances(session):
    template = PromptTemplate(
        ns="documents", key="task", sections=[MarkdownSection[Params](title="Task", template="${task}")]
    )
    params = Params("Say done.")
    adapter = ScriptedAdapter(say("Done."), say("Done."))

    from weakincentives.prompt import Prompt

    # Simple case: pass instances directly
    http_client = HTTPClient(base_url="https://api.example.com")
    prompt = Prompt(template).bind(
        params,
        resources={HTTPClient: http_client}
    )

    # Use with context manager for lifecycle
    with prompt.resources:
        response = adapter.evaluate(prompt, session=session)
    assert response.text == "Done."

    # 7. Use MainLoop for Resource Management: the manual way works, too
    with prompt.resources:
        response = adapter.evaluate(prompt, session)
    assert response.text == "Done."


# How Adapters Present Errors to the Model


def error_content(arguments):
    """What the section shows as the content of the model's message."""
    return "File not found: config.json\nUse list_directory to see available files"


@dataclass(frozen=True)
class ReadParams:
    path: str


def failing_read(params: ReadParams) -> ToolResult[str]:
    return ToolResult.error(error_content(params))


def prompt_with_failing_read():
    tool = Tool[ReadParams, str](name="read_file", description="Read a file.", handler=failing_read)
    return Prompt(PromptTemplate(ns="documents", key="read", sections=[
        MarkdownSection(title="Files", template="Read.", tools=[tool])
    ]))


@pytest.mark.slow  # a server and the real client
def test_openai_format(session):
    from tests.adapters.wires import connected

    turns = (call("read_file", path="config.json").with_id("call_abc123"), say("Not there."))
    with connected("chat", *turns) as (adapter, server):
        adapter.evaluate(prompt_with_failing_read(), session)
        sent = server.received[1].body["messages"][-1]
    assert sent == {
      "role": "tool",
      "tool_call_id": "call_abc123",
      "content": "File not found: config.json\nUse list_directory to see available files"
    }


@pytest.mark.slow  # a server and the real client
def test_claude_format(session):
    from tests.adapters.wires import connected

    turns = (call("read_file", path="config.json").with_id("toolu_abc123"), say("Not there."))
    with connected("messages", *turns) as (adapter, server):
        adapter.evaluate(prompt_with_failing_read(), session)
        sent = server.received[1].body["messages"][-1]["content"][0]
    assert sent == {
      "type": "tool_result",
      "tool_use_id": "toolu_abc123",
      "is_error": False,
      "content": "File not found: config.json\nUse list_directory to see available files"
    }
