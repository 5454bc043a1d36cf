"""002, "Validation and Error Handling": schema, contracts, enums."""

import json
from dataclasses import dataclass
from typing import Literal

import pytest

from weakincentives.dbc import ensure, require
from weakincentives.errors import ParseError
from weakincentives.results import ToolResult
from weakincentives.serde import error_text, parse, schema


def test_stage_1_automatic_schema_validation():
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

    described = schema(SearchParams)["properties"]
    assert described["query"]["description"] == "Search query (required)."
    assert described["limit"]["description"] == "Maximum results to return (1-100)."

    for wrong in (
        {"query": None}, {"query": 1},
        {"query": "a", "limit": "10"}, {"query": "a", "limit": 1.5},
        {"query": "a", "case_sensitive": "true"},
        {"query": "a", "file_types": "py"}, {"query": "a", "file_types": [1]},
    ):
        with pytest.raises(ParseError):
            parse(SearchParams, wrong)
    assert parse(SearchParams, {"query": "a", "file_types": ["py"]}).file_types == ("py",)


def test_stage_1_schema_validation_errors():
    @dataclass(slots=True, frozen=True)
    class SearchParams:
        query: str
        limit: int = 10

    with pytest.raises(ParseError) as caught:
        parse(SearchParams, '{"query": "test", "limit": "10"}')
    assert json.loads(error_text(caught.value, "tool 'search_files'")) == json.loads("""
{
  "error": "Invalid parameters for tool 'search_files'",
  "details": {
    "limit": "Expected type integer, got string '10'"
  }
}
""")


def test_stage_2_value_validation_with_dbc():
    @dataclass(slots=True, frozen=True)
    class SearchParams:
        query: str
        limit: int = 10
        case_sensitive: bool = False

    @require(lambda params: 1 <= params.limit <= 100, "limit must be between 1 and 100")
    @require(lambda params: len(params.query.strip()) > 0, "query cannot be empty")
    def search_handler(params: SearchParams, *, context: object) -> ToolResult[str]:
        """Search files with validated parameters."""
        return ToolResult.ok(params.query, message="Found 0 matches")

    # Model calls: search_files(query="", limit=10)
    assert search_handler(SearchParams(query="", limit=10), context=None) == ToolResult.error(
        "Precondition failed: query cannot be empty"
    )
    # Model calls: search_files(query="test", limit=500)
    assert search_handler(SearchParams(query="test", limit=500), context=None) == ToolResult.error(
        "Precondition failed: limit must be between 1 and 100"
    )


def test_enum_validation():
    @dataclass(slots=True, frozen=True)
    class DeployParams:
        """Parameters for deployment."""
        environment: Literal["development", "staging", "production"]
        """Target environment."""

        strategy: Literal["rolling", "blue-green", "canary"] = "rolling"
        """Deployment strategy."""

    # Model sends: deploy(environment="prod")
    with pytest.raises(ParseError) as caught:
        parse(DeployParams, {"environment": "prod"})
    assert [f.text for f in caught.value.failures] == [
        "environment must be one of: development, staging, production"
    ]


def test_validating_output_values():
    @dataclass(slots=True, frozen=True)
    class SearchResult:
        """Search results with built-in validation."""
        matches: tuple[str, ...]
        total_count: int

        def __post_init__(self) -> None:
            """Validate result consistency."""
            if len(self.matches) > self.total_count:
                raise ValueError(
                    f"Invalid result: {len(self.matches)} matches "
                    f"but total_count={self.total_count}"
                )

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

    assert ToolResult.ok(SearchResult(("a",), 1), message="Done").render() == "Done\nFound 1 total matches:\n1. a"
    with pytest.raises(ValueError, match="Invalid result: 2 matches but total_count=1"):
        SearchResult(("a", "b"), 1)


def test_structured_output_constraints():
    @dataclass
    class MyParams:
        wrong: bool

    @ensure(lambda result: result.success or result.value is None,
            "Failed results must have value=None")
    @ensure(lambda result: len(result.message) > 0,
            "Result must include a message")
    def validated_handler(params: MyParams, *, context: object) -> ToolResult[str]:
        """Handler with validated output contract."""
        if params.wrong:
            return ToolResult(message="", value=None)
        return ToolResult.ok("value", message="Done")

    assert validated_handler(MyParams(False), context=None).success
    assert validated_handler(MyParams(True), context=None).message == (
        "Postcondition failed: Result must include a message"
    )
