"""002: what its handlers do when they are called: execution, transactions, testing, policies. Blocks as printed."""

import json
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from weakincentives.adapters.tool_executor import ToolExecutor
from weakincentives.dbc import require
from weakincentives.filesystem import Filesystem
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    QuotaPolicy,
    ReadBeforeWritePolicy,
    SequentialDependencyPolicy,
    Tool,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from weakincentives.resources import ResourceRegistry
from weakincentives.runtime import Session, ToolCall
from weakincentives.session import Replace
from weakincentives.testing import (
    execute_tool,
    make_context,
    make_context_with_files,
    make_session,
    make_vfs,
    transactional,
)


@dataclass(frozen=True)
class Plan:
    steps: tuple[str, ...] = ()
    status: str = "new"


@dataclass(frozen=True)
class UpdatePlan:
    status: str


def set_status(view, event):
    return Replace((replace(view[-1], status=event.status),))


@dataclass(frozen=True)
class UpdateProgress:
    step: int
    total: int


@dataclass(frozen=True)
class MyParams:
    path: str = ""
    force_error: bool = False


@dataclass(frozen=True)
class MyResult:
    status: str


def planned():
    session = make_session()
    session[Plan].register(UpdatePlan, set_status)
    session[Plan].seed(Plan(("step1",)))
    return session


# Exception Handling


def test_exception_handling():
    def risky_handler(params: MyParams, *, context: ToolContext) -> ToolResult[MyResult]:
        # This exception will be caught
        if not params.path.startswith("/safe/"):
            raise ValueError("Path must start with /safe/")

        # This will be converted to ToolResult.error("Path must start with /safe/")
        # ... and the transaction will be rolled back

    tool = Tool[MyParams, MyResult](name="risky", description="Risky.", handler=risky_handler)
    reply = execute_tool(tool, {"path": "/etc"})
    # "When exceptions are caught" says how: the message has this in front.
    assert reply.text == "Internal error: Path must start with /safe/"
    assert (reply.result.value, reply.result.success, reply.is_error) == (None, False, True)


# Schema validation errors; When preconditions fail; Enum Validation: what the model reads


@dataclass(slots=True, frozen=True)
class SearchParams:
    query: str
    limit: int = 10
    case_sensitive: bool = False


@dataclass(frozen=True)
class SearchResult:
    matches: tuple[str, ...]
    total_count: int = 0


@require(lambda params: 1 <= params.limit <= 100, "limit must be between 1 and 100")
@require(lambda params: len(params.query.strip()) > 0, "query cannot be empty")
def search_handler(
    params: SearchParams,
    *,
    context: ToolContext
) -> ToolResult[SearchResult]:
    """Search files with validated parameters."""
    # Preconditions guaranteed by @require decorators
    fs = context.resources.get(Filesystem)
    results = fs.search(params.query, limit=params.limit)
    if not results:
        return ToolResult.ok(SearchResult(matches=()), message=f"No files match '{params.query}'")

    return ToolResult.ok(
        SearchResult(matches=tuple(results), total_count=len(results)),
        message=f"Found {len(results)} matches"
    )


search_files = Tool[SearchParams, SearchResult](
    name="search_files", description="Search files.", handler=search_handler
)


def test_schema_validation_errors():
    """The JSON of the document, exactly."""
    reply = execute_tool(search_files, '{"query": "x", "limit": "10"}')
    assert json.loads(reply.text) == json.loads("""
{
  "error": "Invalid parameters for tool 'search_files'",
  "details": {
    "limit": "Expected type integer, got string '10'"
  }
}
""")


def test_when_preconditions_fail():
    # Model calls: search_files(query="", limit=10)
    # Result: ToolResult.error("Precondition failed: query cannot be empty")
    reply = execute_tool(search_files, {"query": "", "limit": 10})
    assert reply.result == ToolResult.error("Precondition failed: query cannot be empty")

    # Model calls: search_files(query="test", limit=500)
    # Result: ToolResult.error("Precondition failed: limit must be between 1 and 100")
    reply = execute_tool(search_files, {"query": "test", "limit": 500})
    assert reply.result == ToolResult.error("Precondition failed: limit must be between 1 and 100")


def test_enum_validation():
    @dataclass(slots=True, frozen=True)
    class DeployParams:
        """Parameters for deployment."""
        environment: Literal["development", "staging", "production"]
        """Target environment."""

        strategy: Literal["rolling", "blue-green", "canary"] = "rolling"
        """Deployment strategy."""

    # Schema validation automatically rejects invalid values
    # Model sends: deploy(environment="prod")
    # Error: "environment must be one of: development, staging, production"

    tool = Tool[DeployParams, None](name="deploy", description="Deploy.", handler=lambda params: ToolResult.ok(None))
    details = json.loads(execute_tool(tool, {"environment": "prod"}).text)["details"]
    assert "must be one of: development, staging, production" in details["environment"].lower()


# Exceptions for Unexpected Failures


@dataclass(frozen=True)
class ProcessDataParams:
    input_path: str
    output_path: str


@dataclass(frozen=True)
class ProcessDataResult:
    input_path: str
    output_path: str
    bytes_processed: int


def process(raw):
    return raw.upper()


def test_exceptions_for_unexpected_failures():
    def process_data_handler(
        params: ProcessDataParams,
        *,
        context: ToolContext
    ) -> ToolResult[ProcessDataResult]:
        """Process data with exception handling."""
        fs = context.resources.get(Filesystem)

        # Expected failure: file not found
        if not fs.exists(params.input_path):
            return ToolResult.error(
                f"Input file not found: {params.input_path}\n"
                f"Use list_directory to see available files"
            )

        raw_data = fs.read(params.input_path)

        # Unexpected failure: data structure invariant violated
        # Let exception propagate - this indicates a bug
        assert len(raw_data) > 0, "read() returned empty data for existing file"

        # Unexpected failure: resource exhausted
        # Let exception propagate - this needs human intervention
        if len(raw_data) > 1024 * 1024 * 1024:  # 1GB
            raise RuntimeError(f"File too large: {len(raw_data)} bytes")

        processed = process(raw_data)
        fs.write(params.output_path, processed)

        return ToolResult.ok(
            ProcessDataResult(
                input_path=params.input_path,
                output_path=params.output_path,
                bytes_processed=len(raw_data)
            ),
            message=f"Processed {len(raw_data)} bytes to {params.output_path}"
        )

    tool = Tool[ProcessDataParams, ProcessDataResult](
        name="process_data", description="Process.", handler=process_data_handler
    )
    fs, session = make_vfs({"in.txt": "abc", "empty.txt": ""}), make_session()

    def call(input_path):
        params = ProcessDataParams(input_path, "out.txt")
        return execute_tool(tool, params, session=session, resources={Filesystem: fs})

    expected = call("missing.txt")
    assert (expected.is_error, expected.text.split("\n")[0]) == (False, "Input file not found: missing.txt")
    unexpected = call("empty.txt")
    assert unexpected.is_error
    exception_message = str(session[ToolInvoked].latest().error)  # pytest adds lines to a failed assert
    assert exception_message.startswith("read() returned empty data for existing file")
    assert unexpected.result == (
        ToolResult(
            message=f"Internal error: {exception_message}",
            value=None,
            success=False
        )
    )
    assert call("in.txt").message == "Processed 3 bytes to out.txt"
    assert fs.read("out.txt") == "ABC"


# Transaction Rollback on Errors


@dataclass(frozen=True)
class MultiStepParams:
    pass


@dataclass(frozen=True)
class MultiStepResult:
    steps_completed: int


@pytest.mark.parametrize("valid", [True, False])
def test_transaction_rollback_on_errors(valid):
    def validate_intermediate():
        return valid

    def multi_step_handler(
        params: MultiStepParams,
        *,
        context: ToolContext
    ) -> ToolResult[MultiStepResult]:
        """Handler with multiple state changes."""
        fs = context.resources.get(Filesystem)
        session = context.session

        # Step 1: Update session state
        session.dispatch(UpdateProgress(step=1, total=3))

        # Step 2: Write intermediate file
        fs.write("/workspace/temp.txt", "intermediate data")

        # Step 3: Validate and fail
        if not validate_intermediate():
            # This error triggers AUTOMATIC ROLLBACK of:
            # - UpdateProgress dispatch (session state reverts)
            # - temp.txt write (file disappears)
            return ToolResult.error(
                "Validation failed at step 3\n"
                "Intermediate changes rolled back"
            )

        # If we reach here, all changes are committed
        return ToolResult.ok(
            MultiStepResult(steps_completed=3),
            message="All steps completed successfully"
        )

    session, fs = make_session(), make_vfs()
    tool = Tool[MultiStepParams, MultiStepResult](name="multi", description="Steps.", handler=multi_step_handler)
    reply = execute_tool(tool, {}, session=session, resources={Filesystem: fs})
    assert reply.success is valid
    assert session[UpdateProgress].count() == (1 if valid else 0)
    assert fs.exists("temp.txt") is valid
    # LOG slices stay, and the last line says what was undone.
    assert [event.success for event in session[ToolInvoked].all()] == [valid]
    if not valid:
        assert reply.text == (
            "Validation failed at step 3\n"
            "Intermediate changes rolled back\n"
            "Rolled back: 1 file and the UpdateProgress state. Nothing was changed."
        )


# Testing Validation and Errors: with weakincentives.testing, as printed


def test_search_handler_only_success():
    """Incomplete test - only validates happy path."""
    params = SearchParams(query="test", limit=10)
    context = make_context_with_files(["test.py"])

    result = search_handler(params, context=context)

    assert result.success
    assert len(result.value.matches) > 0


def test_search_handler_success():
    """Test successful search."""
    params = SearchParams(query="test", limit=10)
    context = make_context_with_files(["test.py", "test_helper.py"])

    result = search_handler(params, context=context)

    assert result.success
    assert result.value.matches == ("test.py", "test_helper.py")
    assert "Found 2" in result.message

def test_search_handler_no_results():
    """Test search with no matches."""
    params = SearchParams(query="nonexistent", limit=10)
    context = make_context_with_files(["other.py"])

    result = search_handler(params, context=context)

    assert result.success  # No results is not an error
    assert result.value.matches == ()
    assert "No files match" in result.message

def test_search_handler_invalid_limit():
    """Test validation error for invalid limit."""
    params = SearchParams(query="test", limit=500)
    context = make_context()

    result = search_handler(params, context=context)

    assert not result.success
    assert "limit must be between 1 and 100" in result.message
    assert result.value is None


@pytest.mark.parametrize("limit,expected_error", [
    (0, "limit must be between 1 and 100"),
    (-1, "limit must be between 1 and 100"),
    (101, "limit must be between 1 and 100"),
    (500, "limit must be between 1 and 100"),
])
def test_search_handler_invalid_limits(limit, expected_error):
    """Test all invalid limit values."""
    params = SearchParams(query="test", limit=limit)
    context = make_context()

    result = search_handler(params, context=context)

    assert not result.success
    assert expected_error in result.message

@pytest.mark.parametrize("query,expected_error", [
    ("", "query cannot be empty"),
    ("   ", "query cannot be empty"),
    ("\t\n", "query cannot be empty"),
])
def test_search_handler_invalid_queries(query, expected_error):
    """Test all invalid query values."""
    params = SearchParams(query=query, limit=10)
    context = make_context()

    result = search_handler(params, context=context)

    assert not result.success
    assert expected_error in result.message


@dataclass(frozen=True)
class ProcessParams:
    invalid_field: bool = False
    valid_field: bool = False


def process_plan(params: ProcessParams, *, context: ToolContext) -> ToolResult[Any]:
    session = context.session
    plan = session[Plan].latest()
    session[Plan].seed(Plan((*plan.steps, "step2")))
    context.filesystem.write("/workspace/temp.txt", "intermediate")
    if params.invalid_field:
        return ToolResult.error("invalid_field is not allowed")
    context.filesystem.move("/workspace/temp.txt", "/workspace/output.txt")
    return ToolResult(message="Processed", value=None)


# A handler called directly has no transaction; this callable has.
process_handler = transactional(Tool[ProcessParams, Any](name="process", description="P.", handler=process_plan))


def test_handler_rollback_on_error():
    """Test that validation errors trigger rollback."""
    session = make_session()
    fs = make_vfs()
    context = make_context(session=session, fs=fs)

    # Initial state
    initial_plan = Plan(steps=("step1",))
    session[Plan].seed(initial_plan)

    # Call handler that will fail validation
    params = ProcessParams(invalid_field=True)
    result = process_handler(params, context=context)

    # Verify error returned
    assert not result.success

    # Verify state rolled back
    assert session[Plan].latest() == initial_plan

    # Verify filesystem rolled back
    assert not fs.exists("/workspace/temp.txt")

    # Verify ToolInvoked recorded failure
    invocations = list(session[ToolInvoked].all())
    assert len(invocations) == 1
    assert invocations[0].success == False

def test_handler_commit_on_success():
    """Test that successful operations commit changes."""
    session = make_session()
    fs = make_vfs()
    context = make_context(session=session, fs=fs)

    # Initial state
    session[Plan].seed(Plan(steps=("step1",)))

    # Call handler that will succeed
    params = ProcessParams(valid_field=True)
    result = process_handler(params, context=context)

    # Verify success returned
    assert result.success

    # Verify state committed
    plan = session[Plan].latest()
    assert len(plan.steps) == 2  # Added new step

    # Verify filesystem committed
    assert fs.exists("/workspace/output.txt")

    # Verify ToolInvoked recorded success
    invocations = list(session[ToolInvoked].all())
    assert len(invocations) == 1
    assert invocations[0].success == True


from hypothesis import given, strategies as st

@given(
    limit=st.integers(),
    query=st.text(),
)
def test_search_handler_never_crashes(limit, query):
    """Fuzz test: handler should never raise exceptions."""
    params = SearchParams(query=query, limit=limit)
    context = make_context()

    # Should never raise - always returns ToolResult
    result = search_handler(params, context=context)

    # Result should always have a message
    assert isinstance(result.message, str)
    assert len(result.message) > 0

    # If failed, value should be None
    if not result.success:
        assert result.value is None


# Example: Automatic Rollback


@pytest.mark.parametrize("force_error", [True, False])
def test_automatic_rollback(force_error):
    def risky_handler(params: MyParams, *, context: ToolContext) -> ToolResult[MyResult]:
        fs = context.resources.get(Filesystem)
        session = context.session

        # Update session state
        session.dispatch(UpdatePlan(status="in-progress"))

        # Write to filesystem
        fs.write("output.txt", "partial results")

        # Simulate failure
        if params.force_error:
            raise ValueError("Simulated failure")

        return ToolResult.ok(MyResult(status="done"))

    # When called with force_error=True:
    # - UpdatePlan event is rolled back (plan status reverts)
    # - output.txt write is undone
    # - Model sees clean error message
    # - No inconsistent state to debug

    session, fs = planned(), make_vfs()
    tool = Tool[MyParams, MyResult](name="risky", description="Risky.", handler=risky_handler)
    reply = execute_tool(tool, MyParams(force_error=force_error), session=session, resources={Filesystem: fs})
    assert session[Plan].latest().status == ("new" if force_error else "in-progress")
    assert fs.exists("output.txt") is not force_error
    if force_error:
        assert reply.text == (
            "Internal error: Simulated failure\nRolled back: 1 file and the Plan state. Nothing was changed."
        )


# Why This Matters; 8. Trust Transactions, Don't Reinvent Rollback


@pytest.mark.parametrize("fails", [True, False])
def test_why_this_matters(fails):
    fs, data, session = make_vfs(), "data", planned()

    def external_api_call():
        if fails:
            raise ConnectionError("unreachable")
        return "result"

    # Traditional approach - manual cleanup required
    def traditional_handler(params, context):
        original_plan = context.session[Plan].latest()

        try:
            context.session.dispatch(UpdatePlan(status="in-progress"))
            fs.write("output.txt", data)
            result = external_api_call()
            return ToolResult.ok(result)
        except Exception as e:
            # Manual rollback - easy to get wrong
            context.session.dispatch(UpdatePlan(status=original_plan.status))
            fs.delete("output.txt")  # What if this also fails?
            return ToolResult.error(str(e))

    # WINK approach - automatic cleanup
    def wink_handler(params, context):
        context.session.dispatch(UpdatePlan(status="in-progress"))
        fs.write("output.txt", data)
        result = external_api_call()
        return ToolResult.ok(result)
        # Exceptions automatically trigger rollback

    for handler in (traditional_handler, wink_handler):
        session = planned()
        tool = Tool[None, str](name="work", description="Work.", handler=handler)
        assert execute_tool(tool, session=session, resources={Filesystem: fs}).success is not fails
        assert session[Plan].latest().status == ("new" if fails else "in-progress")
        assert fs.exists("output.txt") is not fails


# Manual Transaction Control


def test_manual_transaction_control():
    session, fs = planned(), make_vfs()
    resources = ResourceRegistry.build({Filesystem: fs})
    work = []

    def do_work():
        session.dispatch(UpdatePlan(status="worked"))
        fs.write("work.txt", "x")
        work.append(session[Plan].latest().status)
        if work.count("worked") == 2:
            raise RuntimeError("the second time fails")

    def should_commit():
        return False

    from weakincentives.runtime import (
        tool_transaction,
        create_snapshot,
        restore_snapshot,
        PendingToolTracker,
    )

    # Option 1: Context manager (auto-rollback on exception)
    with tool_transaction(session, resources, tag="my_operation") as snapshot:
        do_work()
        if not should_commit():
            restore_snapshot(session, resources, snapshot)  # Manual rollback

    assert (session[Plan].latest().status, fs.exists("work.txt")) == ("new", False)

    # Option 2: Manual snapshot/restore
    def option_2():
        snapshot = create_snapshot(session, resources, tag="checkpoint")
        try:
            do_work()
        except Exception:
            restore_snapshot(session, resources, snapshot)
            raise

    with pytest.raises(RuntimeError, match="second time"):
        option_2()
    assert (session[Plan].latest().status, fs.exists("work.txt")) == ("new", False)

    # Option 3: Hook-based tracking (for Claude Agent SDK)
    tracker = PendingToolTracker(session=session, resources=resources)
    tracker.begin_tool_execution(tool_use_id="abc", tool_name="write_file")
    # ... native tool executes ...
    fs.write("native.txt", "x")
    tracker.end_tool_execution(tool_use_id="abc", success=False)  # Auto-rollback

    assert not fs.exists("native.txt")
    assert [event.tool_name for event in session[ToolInvoked].all()] == ["write_file"]


# Policies in action


@dataclass(frozen=True)
class PathParams:
    path: str
    content: str = ""


def test_read_before_write_in_action():
    def read(params: PathParams, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult.ok(context.filesystem.read(params.path))

    def write(params: PathParams, *, context: ToolContext) -> ToolResult[Any]:
        context.filesystem.write(params.path, params.content)
        return ToolResult(message="Success", value=None)

    section = MarkdownSection(
        title="Files",
        template="",
        tools=[
            Tool[PathParams, Any](name="read_file", description="Read.", handler=read),
            Tool[PathParams, Any](name="write_file", description="Write.", handler=write),
        ],
        policies=[ReadBeforeWritePolicy()],
    )
    fs, session = make_vfs({"config.json": "{}"}), make_session()
    prompt = Prompt(PromptTemplate(ns="t", key="k", sections=[section])).bind(resources={Filesystem: fs})
    executor = ToolExecutor(prompt=prompt, session=session)
    replies = []

    def call(name, params):
        replies.append(executor.execute(ToolCall(f"c{len(replies)}", name, params)))

    def read_file(**params):
        call("read_file", params)

    def write_file(**params):
        call("write_file", params)

    # This fails - didn't read config.json first
    write_file(path="config.json", content="new content")
    # Error: Cannot write to config.json without reading it first

    # This works - read before write
    read_file(path="config.json")
    write_file(path="config.json", content="updated content")
    # Success

    # This works - new file
    write_file(path="new_file.txt", content="content")
    # Success

    assert replies[0].text.startswith("Cannot write to config.json without reading it first")
    assert [reply.outcome for reply in replies] == ["refused", "succeeded", "succeeded", "succeeded"]
    assert fs.read("config.json") == "updated content"


def test_policy_composition_in_action():
    """Policies stop a call before the handler, in their order; ToolInvoked tells what has been done."""
    ran = []

    def tool(name):
        def handler(params):
            ran.append(name)
            return ToolResult(message=name, value=None)

        return Tool[None, Any](name=name, description=name, handler=handler)

    section = MarkdownSection(
        title="Production Ops",
        key="ops",
        template="...",
        tools=(tool("deploy"), tool("test"), tool("build")),
        policies=(
            QuotaPolicy(max_calls=3),
            SequentialDependencyPolicy(dependencies={"deploy": frozenset({"test", "build"})}),
        ),
    )
    executor = ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="t", key="k", sections=[section])), session=make_session()
    )

    def call(number, name):
        return executor.execute(ToolCall(str(number), name, "{}")).text

    assert call(1, "deploy") == (
        "Cannot call 'deploy' - missing required tools: build, test\n"
        "Call these tools first, then retry deploy.\n"
        "Refused by SequentialDependencyPolicy."
    )
    assert [call(2, "test"), call(3, "build"), call(4, "deploy")] == ["test", "build", "deploy"]
    assert call(5, "test").startswith("Quota exceeded: 3/3 calls used")
    assert ran == ["test", "build", "deploy"]


# Key behaviors of errors


def test_key_behaviors_of_errors():
    """Rollback, an event for successes and failures, the message verbatim, and the conversation goes on."""
    session = make_session()

    def handler(params: MyParams, *, context: ToolContext) -> ToolResult[Any]:
        if params.force_error:
            return ToolResult.error("File not found: config.json\nUse list_directory to see available files")
        return ToolResult.ok(MyResult("done"), message="ok")

    tool = Tool[MyParams, Any](name="work", description="Work.", handler=handler)
    failed = execute_tool(tool, MyParams(force_error=True), session=session)
    assert failed.text == "File not found: config.json\nUse list_directory to see available files"
    assert failed.is_error is False  # as the document prints for Claude
    assert execute_tool(tool, MyParams(), session=session).success
    assert [event.success for event in session[ToolInvoked].all()] == [False, True]
    assert isinstance(session, Session)
