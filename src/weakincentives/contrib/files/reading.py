"""The file tools that change nothing: read, list, find by name, pattern and content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...filesystem import FileKind, Filesystem
from ...filesystem.paths import normalise
from ...prompt import Tool, ToolContext, ToolExample, ToolResult
from .pages import DEFAULT_LINES, Page, read_page
from .tool_parts import READS, ToolNames

MAX_ENTRIES = 500
MAX_MATCHES = 200
MAX_SECONDS = 5.0
"""How long a search may take; less where the run has less time left."""


@dataclass(frozen=True, slots=True)
class ReadFileParams:
    """What to read."""

    path: str
    """The file, from the root of the workspace."""
    offset: int = field(default=1, metadata={"description": "The first line to read, counted from 1."})
    limit: int = field(default=DEFAULT_LINES, metadata={"description": "The maximum number of lines."})


@dataclass(frozen=True, slots=True)
class FileContent:
    """Lines of a file."""

    path: str
    page: Page

    def render(self) -> str:
        """The numbered lines."""
        return self.page.numbered()


@dataclass(frozen=True, slots=True)
class ListDirectoryParams:
    """Where to look."""

    path: str = field(default=".", metadata={"description": "The directory; by default, the root of the workspace."})


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory."""

    name: str
    kind: FileKind
    size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What a directory holds."""

    path: str
    entries: tuple[Entry, ...]

    def render(self) -> str:
        """One entry per line; directories end in a slash."""
        return "\n".join([_entry(entry) for entry in self.entries])


@dataclass(frozen=True, slots=True)
class GlobFilesParams:
    """What to find."""

    pattern: str
    """Such as "**/*.py"; "**" stands for any number of directories."""
    path: str = field(default=".", metadata={"description": "The directory in which to start."})


@dataclass(frozen=True, slots=True)
class SearchFilesParams:
    """What to find."""

    query: str
    """Text that the file's path contains; case does not matter."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Paths, sorted."""

    paths: tuple[str, ...]

    def render(self) -> str:
        """One a line."""
        return "\n".join(self.paths)


@dataclass(frozen=True, slots=True)
class GrepFilesParams:
    """What to find."""

    pattern: str
    """A regular expression, matched line by line; RE2 syntax: no lookaround, no backreferences."""
    path: str = field(default=".", metadata={"description": "The file or directory to search."})
    glob: str | None = field(default=None, metadata={"description": 'Only files that match, such as "*.py".'})
    ignore_case: bool = field(default=False, metadata={"description": "Whether to ignore case."})


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line that matches."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class FoundLines:
    """Lines that match, in path order."""

    lines: tuple[FoundLine, ...]

    def render(self) -> str:
        """Path, line number and text."""
        return "\n".join([f"{found.path}:{found.line}: {found.text}" for found in self.lines])


def reading_tools(names: ToolNames, *, accepts_overrides: bool) -> list[Tool[Any, Any]]:
    """The five tools."""

    def read_file(fs: Filesystem, params: ReadFileParams, _: ToolContext) -> ToolResult[FileContent]:
        if params.offset < 1 or params.limit < 1:
            return ToolResult.error("offset and limit must be at least 1\nLines are counted from 1.")
        page = read_page(fs, params.path, offset=params.offset, limit=params.limit)
        if not page.lines and params.offset > 1:
            return ToolResult.error(
                f"{params.path} has only {page.total} lines\nCall {names('read_file')} with a smaller offset."
            )
        return ToolResult(_position(params.path, page, names), FileContent(normalise(params.path), page))

    def list_directory(fs: Filesystem, params: ListDirectoryParams, _: ToolContext) -> ToolResult[Listing]:
        stats = fs.list(params.path)
        path = normalise(params.path)
        entries = tuple(Entry(stat.path.rpartition("/")[2], stat.kind, stat.size) for stat in stats[:MAX_ENTRIES])
        where = "The workspace" if path == "." else path
        message = f"{where} is empty." if not entries else f"{where}: {_number(len(stats), 'entry', 'entries')}."
        if len(stats) > MAX_ENTRIES:
            message += f" The first {MAX_ENTRIES} are shown; use {names('glob_files')} to choose."
        return ToolResult(message, Listing(path, entries))

    def glob_files(fs: Filesystem, params: GlobFilesParams, _: ToolContext) -> ToolResult[FoundFiles]:
        return _found(fs.glob(params.pattern, path=params.path), "path", "Use a narrower pattern.")

    def search_files(fs: Filesystem, params: SearchFilesParams, _: ToolContext) -> ToolResult[FoundFiles]:
        return _found(fs.search(params.query, limit=MAX_ENTRIES + 1), "file", "Use a longer query.")

    def grep_files(fs: Filesystem, params: GrepFilesParams, context: ToolContext) -> ToolResult[FoundLines]:
        left = None if context.deadline is None else context.deadline.remaining().total_seconds()
        found = fs.grep(
            params.pattern,
            path=params.path,
            glob=params.glob,
            ignore_case=params.ignore_case,
            max_matches=MAX_MATCHES + 1,
            max_line_length=300,
            timeout=MAX_SECONDS if left is None else min(MAX_SECONDS, left),
        )
        lines = tuple(FoundLine(match.path, match.line, match.text) for match in found[:MAX_MATCHES])
        message = f"{_number(len(lines), 'line', 'lines')} found."
        if len(found) > MAX_MATCHES:
            message = f"More than {MAX_MATCHES} lines found; these are the first. Narrow it with path or glob."
        return ToolResult(message, FoundLines(lines))

    readme = ("# Tea", "", "How to make tea.")
    return [
        names.build(
            ReadFileParams, FileContent, "read_file", "Read a text file, or a page of it, with line numbers.",
            read_file, annotations=READS, accepts_overrides=accepts_overrides,
            example=ToolExample(
                "Read a file", ReadFileParams("README.md"), FileContent("README.md", Page(1, readme, 3))
            ),
        ),
        names.build(
            ListDirectoryParams, Listing, "list_directory", "List the files and directories in a directory.",
            list_directory, annotations=READS, accepts_overrides=accepts_overrides,
            example=ToolExample(
                "What is in src",
                ListDirectoryParams("src"),
                Listing("src", (Entry("brew.py", "file", 56),)),
            ),
        ),
        names.build(
            GlobFilesParams, FoundFiles, "glob_files", "Find files and directories whose path matches a pattern.",
            glob_files, annotations=READS, accepts_overrides=accepts_overrides,
            example=ToolExample("All Python files", GlobFilesParams("**/*.py"), FoundFiles(("src/brew.py",))),
        ),
        names.build(
            GrepFilesParams, FoundLines, "grep_files", "Find lines of text files that match a regular expression.",
            grep_files, annotations=READS, accepts_overrides=accepts_overrides,
            example=ToolExample(
                "Where a function is defined",
                GrepFilesParams(r"def \w+"),
                FoundLines((FoundLine("src/brew.py", 4, "def brew(cups):"),)),
            ),
        ),
        names.build(
            SearchFilesParams, FoundFiles, "search_files", "Find files by a part of their name or path.",
            search_files, annotations=READS, accepts_overrides=accepts_overrides,
            example=ToolExample("By name", SearchFilesParams("readme"), FoundFiles(("README.md",))),
        ),
    ]  # fmt: skip


def _position(path: str, page: Page, names: ToolNames) -> str:
    if page.total == 0:
        return f"{path} is empty."
    if page.total == len(page.lines):
        return f"{path}, {_number(len(page.lines), 'line', 'lines')}"
    of = "" if page.total is None else f" of {page.total}"
    if page.end == page.total:
        return f"{path}, lines {page.start}-{page.end}{of}, to the end"
    return (
        f"{path}, lines {page.start}-{page.end}{of}. "
        f"Go on with {names('read_file')}(path={path!r}, offset={page.end + 1})."
    )


def _found(paths: Sequence[str], what: str, advice: str) -> ToolResult[FoundFiles]:
    if len(paths) > MAX_ENTRIES:
        message = f"More than {MAX_ENTRIES} {what}s found; these are the first. {advice}"
    else:
        message = f"{_number(len(paths), what, what + 's')} found."
    return ToolResult(message, FoundFiles(tuple(paths[:MAX_ENTRIES])))


def _number(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _entry(entry: Entry) -> str:
    if entry.kind == "directory":
        return f"{entry.name}/"
    return f"{entry.name} ({entry.size:,} bytes)" if entry.kind == "file" else f"{entry.name} ({entry.kind})"
