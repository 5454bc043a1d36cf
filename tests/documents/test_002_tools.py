"""002: the blocks on tools, results, examples and validation; the headings are in the names of the tests.

Handlers are called directly, as the document's own tests do.
"""

from dataclasses import dataclass, fields, make_dataclass

import pytest

from weakincentives import prompt as ours
from weakincentives.errors import ParseError, PromptValidationError
from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory import InMemoryFilesystem
from weakincentives.prompt import Tool, ToolContext, ToolInvoked, ToolResult
from weakincentives.resources import ResourceRegistry
from weakincentives.serde import error_text, parse


def data(name, *fields, **optional):
    """A dataclass with required and optional fields, for the documents' free names."""
    return make_dataclass(
        name, [*fields, *((field, object, default) for field, default in optional.items())], frozen=True
    )


def make_context(files=(), session=None, **resources):
    fs = InMemoryFilesystem()
    for path, content in dict(files).items():
        fs.write(path, content)
    bound = {Filesystem: fs, **{type(value): value for value in resources.values()}}
    return ToolContext(session=session, resources=ResourceRegistry.build(bound))


SearchParams = data("SearchParams", ("query", str), ("limit", int, 10))
SearchResult = data("SearchResult", ("matches", tuple), total_count=0)
MyParams = data("MyParams", path="", url="")
MyResult = data("MyResult", status="")
FileContents = data("FileContents", ("content", str), path="", size=0)
ReadFileParams = data("ReadFileParams", ("path", str))
NowParams = data("NowParams", ("tz", str))
NowResult = data("NowResult", ("iso", str))


def handler(params, *, context):
    return ToolResult.ok(None)


def test_basic_tool_definition():
    class DocumentIndex:
        def search(self, query, limit):
            return ["a", "b"][:limit]

    from dataclasses import dataclass
    from weakincentives.prompt import Tool, ToolContext, ToolResult

    @dataclass(slots=True, frozen=True)
    class SearchParams:
        """Parameters for searching documentation."""

        query: str
        limit: int = 10

    @dataclass(slots=True, frozen=True)
    class SearchResult:
        """Search results with matching documents."""

        matches: tuple[str, ...]
        total_count: int

        def render(self) -> str:
            """Format results for model consumption."""
            if not self.matches:
                return "No matches found."

            lines = [f"Found {self.total_count} total matches:"]
            for i, match in enumerate(self.matches, 1):
                lines.append(f"{i}. {match}")
            return "\n".join(lines)

    def search_handler(params: SearchParams, *, context: ToolContext) -> ToolResult[SearchResult]:
        """Search the documentation index."""
        # Access resources through context
        index = context.resources.get(DocumentIndex)

        # Perform the search
        matches = index.search(params.query, limit=params.limit)

        return ToolResult.ok(
            SearchResult(matches=tuple(matches), total_count=len(matches)), message=f"Found {len(matches)} results"
        )

    # Create the tool with type parameters
    search_tool = Tool[SearchParams, SearchResult](
        name="search_docs",
        description="Search the documentation index for relevant content.",
        handler=search_handler,
    )

    context = make_context(index=DocumentIndex())
    result = search_tool.call(search_tool.parse('{"query": "fs"}'), context)
    assert result.render() == "Found 2 results\nFound 2 total matches:\n1. a\n2. b"
    assert search_tool.schema()["description"] == "Parameters for searching documentation."
    with pytest.raises(PromptValidationError):
        Tool[SearchParams, SearchParams](name="search_docs", description="Search.", handler=search_handler)


def test_toolcontext_fields():
    from weakincentives.budget import BudgetTracker
    from weakincentives.deadlines import Deadline
    from weakincentives.prompt import PromptProtocol, PromptResources, ProviderAdapterProtocol
    from weakincentives.prompt import RenderedPromptProtocol, SessionProtocol

    @dataclass(slots=True, frozen=True)
    class ToolContext:
        """Immutable container exposing prompt execution state to handlers."""

        prompt: PromptProtocol
        """The prompt being executed"""

        rendered_prompt: RenderedPromptProtocol | None
        """The rendered prompt with all sections expanded"""

        adapter: ProviderAdapterProtocol
        """The adapter executing the tool (OpenAI, LiteLLM, Claude Agent SDK)"""

        session: SessionProtocol
        """The current session containing all state slices"""

        deadline: Deadline | None
        """Optional wall-clock deadline for terminating execution"""

        budget_tracker: BudgetTracker | None
        """Optional token budget tracker"""

        resources: PromptResources
        """Typed resource registry for dependency injection"""

    context = ours.ToolContext()
    assert all(hasattr(context, field.name) for field in fields(ToolContext))


def test_resource_management_in_tool_handlers():
    class Response:
        text = "{}"

    class HTTPClient:
        def get(self, url):
            return Response()

    class Tracer:
        def __init__(self):
            self.spans = []

        def record(self, text):
            self.spans.append(text)

    tracer = Tracer()
    context = make_context(http=HTTPClient(), tracer=tracer)

    def handler(params: MyParams, *, context: ToolContext) -> ToolResult[MyResult]:
        # Get resources from context
        http = context.resources.get(HTTPClient)
        tracer = context.resources.get(Tracer)
        fs = context.resources.get(Filesystem)

        # Use resources
        tracer.record(f"fetching {params.url}")
        response = http.get(params.url)

        # Filesystem is the most common resource for workspace agents
        fs.write("output.json", response.text)

        return ToolResult.ok(MyResult(status="success"), message="Fetched and saved")

    tool = Tool[MyParams, MyResult](name="fetch", description="Fetch.", handler=handler)
    assert tool.call(MyParams(url="u"), context).success
    assert context.filesystem.read("output.json") == "{}"
    assert tracer.spans == ["fetching u"]


def test_filesystem_resource():
    """The handler; the section that installs the filesystem is tried with the suites."""
    ReadFileResult = FileContents

    from weakincentives.filesystem import Filesystem

    # Tools in this section can access it via context
    def read_file_handler(params: ReadFileParams, *, context: ToolContext) -> ToolResult[ReadFileResult]:
        fs = context.resources.get(Filesystem)
        content = fs.read(params.path)
        return ToolResult.ok(ReadFileResult(content=content))

    context = make_context({"a.txt": "hi"})
    assert read_file_handler(ReadFileParams("a.txt"), context=context).value.content == "hi"


def test_toolresult_structure():
    """The class as printed, with `Generic` in the place of the newer syntax; ours has the same fields."""
    from typing import Generic, TypeVar

    ResultValueT = TypeVar("ResultValueT")

    @dataclass(slots=True)
    class ToolResult(Generic[ResultValueT]):
        """Structured response emitted by a tool handler."""

        message: str
        """Human-readable status for the model."""

        value: ResultValueT | None
        """Typed payload (dataclass, mapping, sequence, string, or None)."""

        success: bool = True
        """Whether the operation succeeded (affects adapter behavior)."""

        exclude_value_from_context: bool = False
        """Hide large payloads from model context while preserving in session."""

    @dataclass(slots=True)
    class ToolResult(Generic[ResultValueT]):
        """Structured response from a tool handler."""

        message: str
        """Human-readable summary for the model (always required)."""

        value: ResultValueT | None
        """Typed payload (dataclass, mapping, sequence, string, or None)."""

        success: bool = True
        """Whether the operation succeeded (affects adapter behavior)."""

        exclude_value_from_context: bool = False
        """Hide large payloads from model while preserving in session."""

    mine = ours.ToolResult("m")
    assert [field.name for field in fields(ToolResult)] == [field.name for field in fields(ours.ToolResult)]
    assert (mine.value, mine.success, mine.exclude_value_from_context) == (None, True, False)


def test_convenience_constructors():
    large_string = "x" * 1000

    # Success with typed value (most common)
    ToolResult.ok(SearchResult(matches=("doc1", "doc2"), total_count=2), message="Found 2 results")

    # Failure with no value
    ToolResult.error("File not found: config.json")

    # Full form (when exclude_value_from_context is needed)
    ToolResult(
        message="Read 1.2MB from large_file.csv",
        value=FileContents(content=large_string),
        success=True,
        exclude_value_from_context=True,  # Hide from model, keep in session
    )

    hidden = ToolResult(
        message="Read 1.2MB from large_file.csv",
        value=FileContents(content=large_string),
        success=True,
        exclude_value_from_context=True,
    )
    assert hidden.render() == "Read 1.2MB from large_file.csv"
    assert ToolResult.error("File not found: config.json").render() == "File not found: config.json"


def test_rendering_results(caplog):
    @dataclass(slots=True, frozen=True)
    class FileSearchResult:
        matches: tuple[str, ...]
        total_count: int
        truncated: bool

        def render(self) -> str:
            """Control exactly what the model sees."""
            if not self.matches:
                return "No matching files found."

            lines = [f"Found {len(self.matches)} files"]
            if self.truncated:
                lines.append(f"(showing first {len(self.matches)} of {self.total_count} total)")

            for path in self.matches:
                lines.append(f"  - {path}")

            return "\n".join(lines)

    found = FileSearchResult(matches=("a", "b"), total_count=5, truncated=True)
    assert ToolResult.ok(found).render() == "OK\nFound 2 files\n(showing first 2 of 5 total)\n  - a\n  - b"

    # The six rules above the block.
    Plain = data("Plain", ("text", str))
    assert ToolResult.ok(Plain("x")).render() == 'OK\n{"text":"x"}'
    assert ToolResult.ok(Plain("y")).render() == 'OK\n{"text":"y"}'
    assert len([record for record in caplog.records if "Plain" in record.getMessage()]) == 1
    assert ToolResult.ok({"a": 1}).render() == 'OK\n{"a":1}'
    assert ToolResult.ok(["a", "b"]).render() == "OK\na\nb"
    assert ToolResult.ok("text").render() == "OK\ntext"
    assert ToolResult.ok(None).render() == "OK"


def test_excluding_large_values_from_context():
    def read_large_file_handler(params: ReadFileParams, *, context: ToolContext) -> ToolResult[FileContents]:
        fs = context.resources.get(Filesystem)
        content = fs.read(params.path)

        # Value is recorded in session for debugging
        # But model only sees the summary message
        return ToolResult(
            message=f"Read {len(content)} bytes from {params.path}",
            value=FileContents(content=content),
            success=True,
            exclude_value_from_context=True,  # Don't send full content to model
        )

    tool = Tool[ReadFileParams, FileContents](name="read", description="Read.", handler=read_large_file_handler)
    result = tool.call(ReadFileParams("a.txt"), make_context({"a.txt": "x" * 10}))
    assert (result.render(), result.value.content) == ("Read 10 bytes from a.txt", "x" * 10)


def test_defining_examples():
    now_handler = handler

    from weakincentives.prompt import ToolExample

    now_tool = Tool[NowParams, NowResult](
        name="now",
        description="Return current UTC time in ISO 8601 format.",
        handler=now_handler,
        examples=(
            ToolExample(
                description="Get current UTC time",
                input=NowParams(tz="UTC"),
                output=NowResult(iso="2025-01-01T00:00:00+00:00"),
            ),
            ToolExample(
                description="Get time in specific timezone",
                input=NowParams(tz="America/New_York"),
                output=NowResult(iso="2025-01-01T05:00:00-05:00"),
            ),
        ),
    )

    assert [example.input.tz for example in now_tool.examples] == ["UTC", "America/New_York"]


def test_stage_1_automatic_schema_validation():
    from dataclasses import dataclass

    @dataclass(slots=True, frozen=True)
    class SearchParams:
        """Parameters for searching files."""

        query: str
        """Search query (required)."""

        limit: int = 10
        """Maximum results to return (1-100)."""

        case_sensitive: bool = False
        """Whether search is case-sensitive."""

        file_types: tuple[str, ...] = ()
        """File extensions to filter (e.g., ('py', 'md'))."""

    tool = Tool[SearchParams, str](name="search_files", description="Search files.", handler=handler)
    with pytest.raises(ParseError) as caught:
        tool.parse({"query": "a", "limit": "10"})
    assert error_text(caught.value, "tool 'search_files'") == (
        '{"error": "Invalid parameters for tool \'search_files\'", '
        '"details": {"limit": "Expected type integer, got string \'10\'"}}'
    )
    for wrong in (
        {"query": None},
        {"query": 1},
        {"query": "a", "limit": 1.0},
        {"query": "a", "case_sensitive": "true"},
        {"query": "a", "file_types": [1]},
    ):
        with pytest.raises(ParseError):
            tool.parse(wrong)
    assert tool.parse({"query": "a", "file_types": ["py", "md"]}).file_types == ("py", "md")


def test_stage_2_value_validation_with_dbc():
    from weakincentives.dbc import require
    from weakincentives.prompt import Tool, ToolContext, ToolResult

    @dataclass(slots=True, frozen=True)
    class SearchParams:
        query: str
        limit: int = 10
        case_sensitive: bool = False

    @require(lambda params: 1 <= params.limit <= 100, "limit must be between 1 and 100")
    @require(lambda params: len(params.query.strip()) > 0, "query cannot be empty")
    def search_handler(params: SearchParams, *, context: ToolContext) -> ToolResult[SearchResult]:
        """Search files with validated parameters."""
        # Preconditions guaranteed by @require decorators
        fs = context.resources.get(Filesystem)
        results = fs.search(params.query, limit=params.limit)

        return ToolResult.ok(SearchResult(matches=tuple(results)), message=f"Found {len(results)} matches")

    tool = Tool[SearchParams, SearchResult](name="search_files", description="Search.", handler=search_handler)
    context = make_context({"test.py": ""})

    # When preconditions fail:
    assert tool.call(SearchParams("", 10), context) == ToolResult.error("Precondition failed: query cannot be empty")
    assert tool.call(SearchParams("test", 500), context) == ToolResult.error(
        "Precondition failed: limit must be between 1 and 100"
    )
    assert tool.call(SearchParams("test"), context).value.matches == ("test.py",)


def test_stage_3_custom_business_rule_validation():
    WriteFileParams = data("WriteFileParams", ("path", str), ("content", str), overwrite=False)
    WriteFileResult = data("WriteFileResult", ("path", str), ("size", int))

    def write_file_handler(params: WriteFileParams, *, context: ToolContext) -> ToolResult[WriteFileResult]:
        """Write content to a file with business rule validation."""
        fs = context.resources.get(Filesystem)

        # Custom validation: Check if path is safe
        if not params.path.startswith("/workspace/"):
            return ToolResult.error(
                f"Cannot write outside workspace: {params.path}\nAll paths must start with /workspace/"
            )

        # Custom validation: Check if file is too large
        if len(params.content) > 10 * 1024 * 1024:  # 10MB
            return ToolResult.error(
                f"File too large: {len(params.content)} bytes\nMaximum size is 10MB (10,485,760 bytes)"
            )

        # Custom validation: Check if overwriting without confirmation
        if fs.exists(params.path) and not params.overwrite:
            return ToolResult.error(f"File already exists: {params.path}\nSet overwrite=true to replace existing file")

        # All validations passed - execute write
        fs.write(params.path, params.content)

        return ToolResult.ok(
            WriteFileResult(path=params.path, size=len(params.content)),
            message=f"Wrote {len(params.content)} bytes to {params.path}",
        )

    tool = Tool[WriteFileParams, WriteFileResult](name="write_file", description="Write.", handler=write_file_handler)
    context = make_context({"config.json": "x"})
    path = "/workspace/config.json"
    assert "All paths must start with /workspace/" in tool.call(WriteFileParams("config.json", "y"), context).message
    assert "File too large" in tool.call(WriteFileParams(path, "x" * (10 * 1024 * 1024 + 1)), context).message
    assert tool.call(WriteFileParams(path, "y"), context) == ToolResult.error(
        "File already exists: /workspace/config.json\nSet overwrite=true to replace existing file"
    )
    assert tool.call(WriteFileParams(path, "y", overwrite=True), context).success


def test_validation_error_message_design():
    def fragments(params, existing_size):
        return ToolResult.error(
            f"Cannot write to {params.path} - path must start with /workspace/\n"
            f"Example valid paths: /workspace/output.txt, /workspace/data/results.json"
        )

        return ToolResult.error(
            f"File {params.path} already exists ({existing_size} bytes)\n"
            f"To overwrite, call write_file again with overwrite=true"
        )

        return ToolResult.error(
            f"Query '{params.query}' returned no results\nTry a broader search term or check spelling"
        )

    result = fragments(data("Params", path="a", query="q")(), 7)
    assert "path must start with /workspace/" in result.message


def test_enum_validation():
    from typing import Literal

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

    with pytest.raises(ParseError, match="environment must be one of: development, staging, production"):
        parse(DeployParams, {"environment": "prod"})


def test_validation_with_external_systems_files():
    DeleteFileParams = ReadFileParams
    DeleteFileResult = data("DeleteFileResult", ("path", str))

    def delete_file_handler(params: DeleteFileParams, *, context: ToolContext) -> ToolResult[DeleteFileResult]:
        """Delete a file with external validation."""
        fs = context.resources.get(Filesystem)

        # Check if file exists (external filesystem check)
        if not fs.exists(params.path):
            return ToolResult.error(
                f"Cannot delete {params.path} - file does not exist\nUse list_directory to see available files"
            )

        # Check if file is protected (external metadata check)
        if fs.is_readonly(params.path):
            return ToolResult.error(
                f"Cannot delete {params.path} - file is read-only\n"
                f"This file is managed externally and cannot be modified"
            )

        # Validation passed - execute deletion
        fs.delete(params.path)

        return ToolResult.ok(DeleteFileResult(path=params.path), message=f"Deleted {params.path}")

    context = make_context({"a.txt": ""})
    assert "file does not exist" in delete_file_handler(DeleteFileParams("b.txt"), context=context).message
    assert delete_file_handler(DeleteFileParams("a.txt"), context=context).message == "Deleted a.txt"
    locked = ToolContext(
        resources=ResourceRegistry.build({Filesystem: make_context({"a.txt": ""}).filesystem.readonly()})
    )
    assert "file is read-only" in delete_file_handler(DeleteFileParams("a.txt"), context=locked).message


def test_success_with_no_results():
    def search_handler(params: SearchParams, *, context: ToolContext) -> ToolResult[SearchResult]:
        """Search with proper empty result handling."""
        fs = context.resources.get(Filesystem)
        matches = fs.search(params.query)

        # No matches is not an error - it's information
        if not matches:
            return ToolResult.ok(SearchResult(matches=(), total_count=0), message=f"No files match '{params.query}'")

        return ToolResult.ok(
            SearchResult(matches=tuple(matches), total_count=len(matches)),
            message=f"Found {len(matches)} files matching '{params.query}'",
        )

    context = make_context({"test.py": ""})
    assert search_handler(SearchParams("none"), context=context).message == "No files match 'none'"
    assert search_handler(SearchParams("test"), context=context).value.matches == ("test.py",)


def test_validating_output_values():
    from dataclasses import dataclass, field

    @dataclass(slots=True, frozen=True)
    class SearchResult:
        """Search results with built-in validation."""

        matches: tuple[str, ...]
        total_count: int

        def __post_init__(self) -> None:
            """Validate result consistency."""
            if len(self.matches) > self.total_count:
                raise ValueError(f"Invalid result: {len(self.matches)} matches but total_count={self.total_count}")

            if self.total_count < 0:
                raise ValueError(f"total_count cannot be negative: {self.total_count}")

        def render(self) -> str:
            """Format for model consumption."""
            if not self.matches:
                return "No matches found."

            lines = [f"Found {self.total_count} total matches:"]
            for i, match in enumerate(self.matches, 1):
                lines.append(f"{i}. {match}")
            return "\n".join(lines)

    with pytest.raises(ValueError, match="1 matches but total_count=0"):
        SearchResult(matches=("a",), total_count=0)
    assert SearchResult((), 0).render() == "No matches found."


def test_output_transformation_and_normalization():
    def read_file_handler(params: ReadFileParams, *, context: ToolContext) -> ToolResult[FileContents]:
        """Read file with normalized line endings."""
        fs = context.resources.get(Filesystem)
        raw_content = fs.read(params.path)

        # Normalize line endings for consistent processing
        normalized = raw_content.replace("\r\n", "\n").replace("\r", "\n")

        # Normalize path separators
        canonical_path = params.path.replace("\\", "/")

        return ToolResult.ok(
            FileContents(path=canonical_path, content=normalized, size=len(raw_content)),
            message=f"Read {len(raw_content)} bytes from {canonical_path}",
        )

    tool = Tool[ReadFileParams, FileContents](name="read_file", description="Read.", handler=read_file_handler)
    assert tool.call(ReadFileParams("a.txt"), make_context({"a.txt": "1\r\n2\r3"})).value.content == "1\n2\n3"


def test_structured_output_constraints():
    from weakincentives.dbc import ensure

    @ensure(lambda result: result.success or result.value is None, "Failed results must have value=None")
    @ensure(lambda result: len(result.message) > 0, "Result must include a message")
    def validated_handler(params: MyParams, *, context: ToolContext) -> ToolResult[MyResult]:
        """Handler with validated output contract."""
        # Implementation guaranteed to satisfy postconditions
        return ToolResult.ok(MyResult(), message="Done")

    tool = Tool[MyParams, MyResult](name="validated", description="Do it.", handler=validated_handler)
    assert tool.call(MyParams(), ToolContext()).message == "Done"

    @ensure(lambda result: len(result.message) > 0, "Result must include a message")
    def silent(params: MyParams, *, context: ToolContext) -> ToolResult[MyResult]:
        return ToolResult.ok(MyResult(), message="")

    assert silent(MyParams(), context=ToolContext()).message == "Postcondition failed: Result must include a message"


def test_toolresult_error_for_expected_failures():
    class GitError(Exception):
        message = "unreachable"

    GitAuthError, GitConflictError, GitNetworkError = (
        type(name, (GitError,), {}) for name in ("Auth", "Conflict", "Net")
    )
    GitPushParams = data("GitPushParams", remote="origin", branch="main")
    GitPushResult = data("GitPushResult", ("sha", str), ("remote", str))

    class GitClient:
        def __init__(self, error=None):
            self.error = error

        def push(self, remote, branch):
            if self.error:
                raise self.error
            return data("Pushed", sha="abc")()

    def git_push_handler(params: GitPushParams, *, context: ToolContext) -> ToolResult[GitPushResult]:
        """Push with expected failure handling."""
        git = context.resources.get(GitClient)

        try:
            result = git.push(params.remote, params.branch)
            return ToolResult.ok(
                GitPushResult(sha=result.sha, remote=params.remote),
                message=f"Pushed {result.sha} to {params.remote}/{params.branch}",
            )
        except GitAuthError as e:
            # Expected failure: credentials missing or invalid
            return ToolResult.error(
                f"Authentication failed for {params.remote}\nConfigure credentials with: git_configure_auth tool"
            )
        except GitConflictError as e:
            # Expected failure: remote has changes
            return ToolResult.error(
                f"Push rejected - remote has new commits\nPull latest changes with: git_pull tool, then retry push"
            )
        except GitNetworkError as e:
            # Expected failure: network unavailable
            return ToolResult.error(f"Network error: {e.message}\nCheck connectivity and retry")

    tool = Tool[GitPushParams, GitPushResult](name="git_push", description="Push.", handler=git_push_handler)
    for error, words in (
        (GitAuthError(), "git_configure_auth"),
        (GitConflictError(), "git_pull"),
        (GitNetworkError(), "unreachable"),
    ):
        assert words in tool.call(GitPushParams(), make_context(git=GitClient(error))).message
    assert tool.call(GitPushParams(), make_context(git=GitClient())).message == "Pushed abc to origin/main"


def test_exceptions_for_unexpected_failures():
    ProcessDataParams = data("ProcessDataParams", ("input_path", str), ("output_path", str))
    ProcessDataResult = data("ProcessDataResult", ("input_path", str), ("output_path", str), ("bytes_processed", int))
    process = str.upper

    def process_data_handler(params: ProcessDataParams, *, context: ToolContext) -> ToolResult[ProcessDataResult]:
        """Process data with exception handling."""
        fs = context.resources.get(Filesystem)

        # Expected failure: file not found
        if not fs.exists(params.input_path):
            return ToolResult.error(
                f"Input file not found: {params.input_path}\nUse list_directory to see available files"
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
                input_path=params.input_path, output_path=params.output_path, bytes_processed=len(raw_data)
            ),
            message=f"Processed {len(raw_data)} bytes to {params.output_path}",
        )

    context = make_context({"in.txt": "data", "empty.txt": ""})
    assert process_data_handler(ProcessDataParams("in.txt", "out.txt"), context=context).success
    assert context.filesystem.read("out.txt") == "DATA"
    assert "not found" in process_data_handler(ProcessDataParams("none", "out.txt"), context=context).message
    with pytest.raises(AssertionError):
        process_data_handler(ProcessDataParams("empty.txt", "out.txt"), context=context)


def test_exceptions_for_unexpected_failures_the_result():
    """The printed constructor call."""

    def block(exception_message):
        return ToolResult(message=f"Internal error: {exception_message}", value=None, success=False)

    assert block("boom").render() == "Internal error: boom"


def test_error_message_design_include_actionable_next_steps():
    def fragments(params):
        # Good: Actionable error
        return ToolResult.error(
            f"Permission denied: cannot write to {params.path}\n"
            f"This file is read-only. To modify it:\n"
            f"1. Copy to a new location with copy_file\n"
            f"2. Make changes to the copy\n"
            f"3. Use the copy as your working file"
        )

    assert "copy_file" in fragments(MyParams(path="a")).message


def test_error_message_design_suggest_alternative_tools():
    def fragments(params):
        # Good: Alternative approach
        return ToolResult.error(
            f"search_files searches by filename only\n"
            f"To search by content, use grep_files tool:\n"
            f"  grep_files(pattern='{params.query}', path='/workspace')"
        )

    assert "grep_files(pattern='q'" in fragments(SearchParams("q")).message


def test_error_message_design_provide_examples():
    def fragments(params):
        # Good: Show valid format
        return ToolResult.error(
            f"Invalid date: '{params.date}'\nExpected format: YYYY-MM-DD\nExamples:\n  - 2025-01-15\n  - 2025-12-31"
        )

    assert "YYYY-MM-DD" in fragments(data("P", date="1/2")()).message


def test_retry_vs_no_retry_situations():
    """The fragments as printed; the first return of each is what is seen."""

    def fragments(params, size=1):
        # Wrong parameters - model can correct
        return ToolResult.error(f"limit must be between 1 and 100 (got {params.limit})")

        # Missing prerequisite - model can call required tool
        return ToolResult.error(f"Cannot deploy - tests have not run\nCall run_tests first, then retry deploy")

        # Resource not found - model can use discovery
        return ToolResult.error(f"File not found: {params.path}\nUse list_directory to see available files")

    def fragments(params, size=1):
        # System resource exhausted
        return ToolResult.error(
            f"Out of memory: cannot process {size} MB file\n"
            f"Maximum supported size is 100 MB\n"
            f"This file requires human intervention"
        )

        # Authentication missing
        return ToolResult.error(
            f"No credentials configured for {params.service}\n"
            f"Administrator must configure API key\n"
            f"Cannot proceed without credentials"
        )

        # Hard business rule violation
        return ToolResult.error(
            f"Cannot delete production database\n"
            f"This operation is permanently blocked\n"
            f"Contact administrator if this is required"
        )

    assert fragments(data("P", service="s")(), 500).message.startswith("Out of memory: cannot process 500 MB file")


def test_fail_fast_validation():
    ComplexParams = data("ComplexParams", ("input_path", str), ("output_path", str), overwrite=False, max_size=1024)
    ComplexResult = data("ComplexResult", ("bytes_processed", int))

    def process(data, max_size):
        return data[:max_size]

    def complex_operation_handler(params: ComplexParams, *, context: ToolContext) -> ToolResult[ComplexResult]:
        """Handler with fail-fast validation."""
        fs = context.resources.get(Filesystem)
        session = context.session

        # Validate ALL inputs before ANY side effects
        errors = []

        if not params.input_path.startswith("/workspace/"):
            errors.append(f"input_path must start with /workspace/ (got {params.input_path})")

        if not params.output_path.startswith("/workspace/"):
            errors.append(f"output_path must start with /workspace/ (got {params.output_path})")

        if not fs.exists(params.input_path):
            errors.append(f"input_path does not exist: {params.input_path}")

        if fs.exists(params.output_path) and not params.overwrite:
            errors.append(f"output_path exists: {params.output_path} (set overwrite=true)")

        if params.max_size < 1024:
            errors.append(f"max_size too small: {params.max_size} (minimum 1024 bytes)")

        # Return ALL errors at once (better than failing on first issue)
        if errors:
            return ToolResult.error("Validation failed:\n" + "\n".join(f"  - {e}" for e in errors))

        # NOW execute side effects (all validations passed)
        data = fs.read(params.input_path)
        processed = process(data, max_size=params.max_size)
        fs.write(params.output_path, processed)

        return ToolResult.ok(ComplexResult(bytes_processed=len(data)), message=f"Processed {len(data)} bytes")

    context = make_context({"in": "data"})
    wrong = complex_operation_handler(ComplexParams("in", "out", max_size=1), context=context)
    assert wrong.message.count("\n  - ") == 3
    good = ComplexParams("/workspace/in", "/workspace/out")
    assert complex_operation_handler(good, context=context).value.bytes_processed == 4
    assert "set overwrite=true" in complex_operation_handler(good, context=context).message


def test_multi_stage_validation():
    DeployParams = data("DeployParams", ("environment", str), ("version", str))
    DeployResult = data("DeployResult", ("environment", str), ("version", str))

    class NetworkError(Exception):
        pass

    class Deployer:
        def __init__(self, healthy=True):
            self.healthy = healthy

        def check_environment(self, environment):
            if environment == "staging":
                raise NetworkError
            return data("Status", healthy=self.healthy, reason="disk full")()

        def deploy(self, environment, version):
            return None

    def deploy_handler(params: DeployParams, *, context: ToolContext) -> ToolResult[DeployResult]:
        """Handler with multi-stage validation."""
        deployer = context.resources.get(Deployer)
        session = context.session

        # Stage 1: Parameter validation (fast, no I/O)
        if params.environment not in ("development", "staging", "production"):
            return ToolResult.error(
                f"Invalid environment: {params.environment}\nMust be one of: development, staging, production"
            )

        # Stage 2: Business rule validation (requires session state)
        tool_history = list(session[ToolInvoked].all())
        has_tests = any(t.tool_name == "run_tests" and t.success for t in tool_history)
        if not has_tests:
            return ToolResult.error("Cannot deploy without running tests\nCall run_tests first, then retry deploy")

        # Stage 3: External system validation (requires I/O)
        try:
            status = deployer.check_environment(params.environment)
        except NetworkError:
            return ToolResult.error(
                f"Cannot reach {params.environment} environment\nCheck network connectivity and retry"
            )

        if not status.healthy:
            return ToolResult.error(
                f"{params.environment} environment is unhealthy: {status.reason}\n"
                "Wait for health checks to pass, then retry"
            )

        # All stages passed - execute deployment
        result = deployer.deploy(params.environment, params.version)

        return ToolResult.ok(
            DeployResult(environment=params.environment, version=params.version),
            message=f"Deployed {params.version} to {params.environment}",
        )

    context = make_context(deployer=Deployer())
    run = lambda environment, context=context: deploy_handler(DeployParams(environment, "1"), context=context)
    assert "Must be one of" in run("prod").message
    assert "Call run_tests first" in run("production").message
    context.session.dispatch(ToolInvoked(tool_name="run_tests", success=True))
    assert "Cannot reach staging" in run("staging").message
    assert run("production").message == "Deployed 1 to production"
    sick = ToolContext(session=context.session, resources=ResourceRegistry.build({Deployer: Deployer(healthy=False)}))
    assert "unhealthy: disk full" in run("production", sick).message


def test_validation_with_external_systems_credentials():
    ValidateCredentialsParams = data("ValidateCredentialsParams", ("token", str))
    ValidateCredentialsResult = data("ValidateCredentialsResult", ("valid", bool), ("expires_at", str))

    class APITimeoutError(Exception):
        pass

    class APIError(Exception):
        message = "broken"

    class APIClient:
        def validate_token(self, token):
            if token == "slow":
                raise APITimeoutError
            if token == "bad":
                raise APIError
            return data("Answer", valid=token == "good", reason="expired", expires_at="tomorrow")()

    def validate_credentials_handler(
        params: ValidateCredentialsParams, *, context: ToolContext
    ) -> ToolResult[ValidateCredentialsResult]:
        """Validate credentials with external API."""
        api = context.resources.get(APIClient)

        try:
            # External validation call
            result = api.validate_token(params.token)

            if result.valid:
                return ToolResult.ok(
                    ValidateCredentialsResult(valid=True, expires_at=result.expires_at),
                    message=f"Token valid until {result.expires_at}",
                )
            else:
                return ToolResult.error(f"Token invalid: {result.reason}\nGenerate a new token with: create_token tool")

        except APITimeoutError:
            # Transient failure - encourage retry
            return ToolResult.error("Validation service timeout\nThis is likely temporary - retry in a few seconds")
        except APIError as e:
            # Permanent failure - different guidance
            return ToolResult.error(
                f"Validation service error: {e.message}\n"
                f"Cannot validate credentials at this time\n"
                f"Contact administrator if this persists"
            )

    context = make_context(api=APIClient())
    answers = {"good": "Token valid until tomorrow", "old": "create_token", "slow": "retry in a few", "bad": "broken"}
    for token, words in answers.items():
        assert words in validate_credentials_handler(ValidateCredentialsParams(token), context=context).message


def test_idempotency_checks():
    InitializeWorkspaceParams = data("InitializeWorkspaceParams", ("config", str))
    InitializeWorkspaceResult = data("InitializeWorkspaceResult", ("already_initialized", bool), ("config", str))

    def initialize_workspace_handler(
        params: InitializeWorkspaceParams, *, context: ToolContext
    ) -> ToolResult[InitializeWorkspaceResult]:
        """Initialize workspace (idempotent)."""
        fs = context.resources.get(Filesystem)
        session = context.session

        # Check if already initialized
        if fs.exists("/workspace/.initialized"):
            config = fs.read("/workspace/.initialized")
            return ToolResult.ok(
                InitializeWorkspaceResult(already_initialized=True, config=config),
                message="Workspace already initialized (no changes made)",
            )

        # Not initialized - proceed with initialization
        fs.mkdir("/workspace/src")
        fs.mkdir("/workspace/tests")
        fs.write("/workspace/.initialized", params.config)

        return ToolResult.ok(
            InitializeWorkspaceResult(already_initialized=False, config=params.config),
            message="Workspace initialized successfully",
        )

    context = make_context()
    for again in (False, True):
        result = initialize_workspace_handler(InitializeWorkspaceParams("c"), context=context)
        assert (result.success, result.value.already_initialized) == (True, again)


def test_1_always_implement_render_on_result_types():
    @dataclass(slots=True, frozen=True)
    class MyResult:
        data: dict[str, object]
        count: int

        def render(self) -> str:
            """Control what the model sees."""
            return f"Processed {self.count} items successfully"

    assert (
        ToolResult.ok(MyResult({"a": object()}, 3), message="Done").render() == "Done\nProcessed 3 items successfully"
    )


def test_2_use_exclude_value_from_context_for_large_payloads():
    fs = make_context({"a.txt": "xyz"}).filesystem

    def read_large_file_handler(params, *, context):
        content = fs.read(params.path)

        return ToolResult(
            message=f"Read {len(content)} bytes from {params.path}",
            value=FileContents(content=content),
            exclude_value_from_context=True,  # Save tokens
        )

    tool = Tool[ReadFileParams, FileContents](name="read", description="Read.", handler=read_large_file_handler)
    assert tool.call(ReadFileParams("a.txt"), ToolContext()).render() == "Read 3 bytes from a.txt"


def test_3_prefer_declarative_policies_over_imperative_checks():
    """The imperative form works too."""

    def deploy_handler(params, *, context):
        # Manual validation in every handler
        tools = context.session[ToolInvoked].all()
        if not any(t.tool_name == "test" for t in tools):
            return ToolResult.error("Must run tests first")

        # ... actual logic

    assert deploy_handler(None, context=ToolContext()).message == "Must run tests first"


def test_4_use_tool_examples_for_complex_parameters():
    from weakincentives.prompt import ToolExample

    tool = Tool[SearchParams, SearchResult](
        name="search",
        description="...",
        handler=handler,
        examples=(
            ToolExample(
                description="Basic search",
                input=SearchParams(query="filesystem", limit=10),
                output=SearchResult(matches=("doc1", "doc2"), total_count=2),
            ),
        ),
    )

    assert tool.examples[0].input.query == "filesystem"


def test_10_test_tools_in_isolation():
    from weakincentives.session import Session

    session = Session()
    registry = ResourceRegistry.build({str: "index"})

    def search_handler(params, *, context):
        assert context.resources.get(str) == "index"
        return ToolResult.ok(SearchResult(("a", "b"), total_count=2))

    def test_search_handler():
        params = SearchParams(query="filesystem", limit=5)
        context = ToolContext(
            session=session,
            resources=registry,
            # ... other fields
        )

        result = search_handler(params, context=context)

        assert result.success
        assert result.value.total_count == 2

    test_search_handler()
