"""002: "Testing Validation and Errors", its tests as printed, run as tests of the document's handlers."""

from dataclasses import dataclass

from weakincentives.dbc import require
from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory import InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.resources import ResourceRegistry


def make_context_with_files(paths):
    fs = InMemoryFilesystem()
    for path in paths:
        fs.write(path, "x")
    return ToolContext(resources=ResourceRegistry.build({Filesystem: fs}))


def make_context():
    return make_context_with_files(["test.py"])


@dataclass(frozen=True)
class SearchParams:
    query: str
    limit: int = 10


@dataclass(frozen=True)
class SearchResult:
    matches: tuple[str, ...]
    total_count: int


@require(lambda params: 1 <= params.limit <= 100, "limit must be between 1 and 100")
@require(lambda params: len(params.query.strip()) > 0, "query cannot be empty")
def search_handler(params: SearchParams, *, context: ToolContext) -> ToolResult[SearchResult]:
    """ "Stage 2" and "Success with No Results" in one."""
    matches = context.filesystem.search(params.query, limit=params.limit)
    if not matches:
        return ToolResult.ok(SearchResult((), 0), message=f"No files match '{params.query}'")
    message = f"Found {len(matches)} files matching '{params.query}'"
    return ToolResult.ok(SearchResult(tuple(matches), len(matches)), message=message)


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
    """Write content to a file with business rule validation."""
    fs = context.resources.get(Filesystem)

    # Custom validation: Check if path is safe
    if not params.path.startswith("/workspace/"):
        return ToolResult.error(f"Cannot write outside workspace: {params.path}\nAll paths must start with /workspace/")

    # Custom validation: Check if file is too large
    if len(params.content) > 10 * 1024 * 1024:  # 10MB
        return ToolResult.error(f"File too large: {len(params.content)} bytes\nMaximum size is 10MB (10,485,760 bytes)")

    # Custom validation: Check if overwriting without confirmation
    if fs.exists(params.path) and not params.overwrite:
        return ToolResult.error(f"File already exists: {params.path}\nSet overwrite=true to replace existing file")

    # All validations passed - execute write
    fs.write(params.path, params.content)

    return ToolResult.ok(
        WriteFileResult(path=params.path, size=len(params.content)),
        message=f"Wrote {len(params.content)} bytes to {params.path}",
    )


# Testing Happy Paths vs Error Paths: the anti-pattern


def test_search_handler_only_success():
    """Incomplete test - only validates happy path."""
    params = SearchParams(query="test", limit=10)
    context = make_context()

    result = search_handler(params, context=context)

    assert result.success
    assert len(result.value.matches) > 0


# Testing Happy Paths vs Error Paths


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


# Parameterized Tests for Validation Rules


import pytest


@pytest.mark.parametrize(
    "limit,expected_error",
    [
        (0, "limit must be between 1 and 100"),
        (-1, "limit must be between 1 and 100"),
        (101, "limit must be between 1 and 100"),
        (500, "limit must be between 1 and 100"),
    ],
)
def test_search_handler_invalid_limits(limit, expected_error):
    """Test all invalid limit values."""
    params = SearchParams(query="test", limit=limit)
    context = make_context()

    result = search_handler(params, context=context)

    assert not result.success
    assert expected_error in result.message


@pytest.mark.parametrize(
    "query,expected_error",
    [
        ("", "query cannot be empty"),
        ("   ", "query cannot be empty"),
        ("\t\n", "query cannot be empty"),
    ],
)
def test_search_handler_invalid_queries(query, expected_error):
    """Test all invalid query values."""
    params = SearchParams(query=query, limit=10)
    context = make_context()

    result = search_handler(params, context=context)

    assert not result.success
    assert expected_error in result.message


# Testing Error Message Quality; the path is under /workspace/, as the handler wants it


def test_write_file_error_message_quality():
    """Test that error messages are actionable."""
    params = WriteFileParams(path="/workspace/config.json", content="data")
    context = make_context_with_files(["config.json"])

    result = write_file_handler(params, context=context)

    # Verify error message contains:
    # 1. What went wrong
    assert "already exists" in result.message.lower()

    # 2. How to fix it
    assert "overwrite=true" in result.message

    # 3. The specific file involved
    assert "config.json" in result.message

    # Anti-pattern: vague errors
    assert result.message != "Error"
    assert result.message != "File operation failed"
    assert "error code" not in result.message.lower()


# Fuzzing Validation Logic


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
