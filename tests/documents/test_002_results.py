"""002, "ToolResult Semantics" and "Best Practices"."""

from dataclasses import dataclass

from weakincentives.results import ToolResult, render_value


@dataclass(slots=True, frozen=True)
class FileContents:
    content: str


@dataclass(slots=True, frozen=True)
class SearchResult:
    matches: tuple[str, ...]
    total_count: int


def test_toolresult_structure():
    fields = {"message": "m", "value": None, "success": True, "exclude_value_from_context": False}
    result = ToolResult(**fields)
    assert {name: getattr(result, name) for name in fields} == fields


def test_convenience_constructors():
    # Success with typed value (most common)
    assert ToolResult.ok(
        SearchResult(matches=("doc1", "doc2"), total_count=2),
        message="Found 2 results"
    ).success

    # Failure with no value
    assert not ToolResult.error("File not found: config.json").success

    # Full form (when exclude_value_from_context is needed)
    large_string = "x" * 100
    assert ToolResult(
        message="Read 1.2MB from large_file.csv",
        value=FileContents(content=large_string),
        success=True,
        exclude_value_from_context=True,  # Hide from model, keep in session
    ).render() == "Read 1.2MB from large_file.csv"


def test_rendering_results():
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

    assert render_value(FileSearchResult(("a.py",), 3, True)) == "Found 1 files\n(showing first 1 of 3 total)\n  - a.py"
    assert render_value(FileContents("x")) == '{"content":"x"}'
    assert render_value({"a": 1}) == '{"a":1}'
    assert render_value(["a", "b"]) == "a\nb"
    assert render_value("text") == "text"
    assert render_value(None) == ""


def test_exceptions_for_unexpected_failures():
    exception_message = "disk full"
    assert ToolResult(
        message=f"Internal error: {exception_message}",
        value=None,
        success=False
    ) == ToolResult.error("Internal error: disk full")


def test_best_practice_1_always_implement_render():
    @dataclass(slots=True, frozen=True)
    class MyResult:
        data: dict[str, object]
        count: int

        def render(self) -> str:
            """Control what the model sees."""
            return f"Processed {self.count} items successfully"

    assert render_value(MyResult({}, 3)) == "Processed 3 items successfully"
