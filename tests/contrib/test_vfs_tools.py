"""The file tools, called as a model calls them."""

from __future__ import annotations

import itertools
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from weakincentives.contrib.files.tool_parts import EXAMPLE_FILES
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.errors import PromptValidationError, ReadOnlyError
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.filesystem.views import GuardedFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from weakincentives.runtime import Session, ToolCall, ToolReply
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.testing import make_context
from weakincentives.testing.code_escapes import ESCAPES

NAMES = [
    "read_file", "list_directory", "glob_files", "grep_files", "search_files",
    "write_file", "edit_file", "copy_file", "move_file", "delete_file",
]  # fmt: skip


class Workspace:
    """A section with an executor around it."""

    def __init__(self, *sections: Any, **config: Any) -> None:
        self.vfs = VfsToolsSection(config=VfsConfig(**config)) if not sections else sections[0]
        self.session = Session()
        prompt = Prompt(name="files", sections=sections or [self.vfs])
        self.executor = ToolExecutor(prompt=prompt, session=self.session)
        self._ids = itertools.count()

    def call(self, tool: str, **arguments: Any) -> ToolReply:
        return self.executor.execute(ToolCall(f"call_{next(self._ids)}", tool, json.dumps(arguments)))

    def ok(self, tool: str, **arguments: Any) -> str:
        reply = self.call(tool, **arguments)
        assert reply.result.success, reply.text
        return reply.text

    def fails(self, tool: str, **arguments: Any) -> str:
        reply = self.call(tool, **arguments)
        assert not reply.result.success, reply.text
        assert reply.outcome in {"failed", "refused"}, reply.text
        return reply.text


# The tools as such


def test_every_tool_is_there_and_describes_itself() -> None:
    """The ten tools have the agreed names, a description for each parameter and true annotations."""
    vfs = VfsToolsSection()
    assert [tool.name for tool in vfs.tools] == NAMES
    for tool in vfs.tools:
        for name, described in tool.schema()["properties"].items():
            assert described.get("description"), f"{tool.name}.{name}"
        assert tool.annotations.read_only == (NAMES.index(tool.name) < 5)
        assert not tool.annotations.open_world


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_hold(name: str) -> None:
    """Each example gives just what it says, in the workspace of the examples."""
    tool = next(tool for tool in VfsToolsSection().tools if tool.name == name)
    assert tool.examples
    for example in tool.examples:
        result: Any = tool.call(example.input, make_context(fs=InMemoryFilesystem(EXAMPLE_FILES)))
        assert result.success
        assert result.value == example.output
        assert result.render().strip()


@pytest.mark.parametrize("path", ESCAPES, ids=range(len(ESCAPES)))
def test_no_path_leads_out(path: str, tmp_path: Path) -> None:
    """Whatever path a model gives, each tool answers with a failed result and touches nothing."""
    (tmp_path / "outside.txt").write_text("secret")
    with VfsToolsSection(config=VfsConfig(root=tmp_path / "root", read_before_write=False)) as vfs:
        tools = {tool.name: tool for tool in vfs.tools}
        context = make_context(fs=vfs.filesystem)
        sets: dict[str, dict[str, Any]] = {
            "read_file": {"path": path},
            "list_directory": {"path": path},
            "write_file": {"path": path, "content": "x", "overwrite": True},
            "edit_file": {"path": path, "old_text": "a", "new_text": "b"},
            "copy_file": {"src": path, "dst": "inside"},
            "move_file": {"src": path, "dst": "inside"},
            "delete_file": {"path": path, "recursive": True},
            "grep_files": {"pattern": "s", "path": path},
            "glob_files": {"pattern": "*", "path": path},
        }
        for name, arguments in sets.items():
            tool = tools[name]
            assert tool.params_type is not None
            result: Any = tool.call(tool.params_type(**arguments), context)
            assert not result.success, name
            assert "secret" not in result.message
        assert vfs.changes() == vfs.changes().__class__()
    assert (tmp_path / "outside.txt").read_text() == "secret"
    assert list((tmp_path / "root").iterdir()) == []


def test_without_files_the_tools_say_so() -> None:
    """A shared section in a prompt that binds no files answers with a failed result."""
    [read, *_] = VfsToolsSection(config=VfsConfig(shared=True)).tools
    assert read.params_type is not None
    result: Any = read.call(read.params_type(path="x"), ToolContext())
    assert not result.success
    assert "No files are bound" in result.message


# Reading


def test_reading_shows_numbered_lines() -> None:
    """Lines come with their numbers, and the message tells how many there are."""
    text = Workspace(files={"a.txt": "one\ntwo\n"}).ok("read_file", path="a.txt")
    assert text == "a.txt, 2 lines\n     1\tone\n     2\ttwo"


def test_reading_by_pages() -> None:
    """A page starts at offset, has at most limit lines, and tells how to go on until the end."""
    work = Workspace(files={"a.txt": "".join(f"line {n}\n" for n in range(1, 11))})
    text = work.ok("read_file", path="a.txt", offset=3, limit=2)
    assert text == (
        "a.txt, lines 3-4 of 10. Go on with read_file(path='a.txt', offset=5).\n     3\tline 3\n     4\tline 4"
    )
    assert work.ok("read_file", path="a.txt", offset=9).startswith("a.txt, lines 9-10 of 10, to the end\n")
    assert work.fails("read_file", path="a.txt", offset=11) == (
        "a.txt has only 10 lines\nCall read_file with a smaller offset."
    )
    assert "at least 1" in work.fails("read_file", path="a.txt", offset=0)


def test_reading_an_empty_file() -> None:
    """An empty file is told as such."""
    assert Workspace(files={"a.txt": ""}).ok("read_file", path="a.txt") == "a.txt is empty."


@pytest.mark.parametrize("lines", [30_000, 300_000])
def test_big_files_come_in_pages_that_fit(lines: int) -> None:
    """Whatever the size, pages follow one another without gaps, and none is longer than what a model reads at once."""
    content = "".join(f"this is line number {n}\n" for n in range(1, lines + 1))
    work = Workspace(files={"big.txt": content})
    reply = work.call("read_file", path="big.txt")
    assert len(reply.text) < 32 * 1024
    value: Any = reply.result.value
    assert value.page.lines[-1] == f"this is line number {value.page.end}"
    assert f"offset={value.page.end + 1}" in reply.text
    following: Any = work.call("read_file", path="big.txt", offset=value.page.end + 1).result.value
    assert following.page.lines[0] == f"this is line number {value.page.end + 1}"
    last: Any = work.call("read_file", path="big.txt", offset=lines - 1).result.value
    assert last.page.lines == (f"this is line number {lines - 1}", f"this is line number {lines}")
    assert last.page.total == lines
    assert "has only" in work.fails("read_file", path="big.txt", offset=lines + 1)


def test_long_lines_are_clipped() -> None:
    """A line of a megabyte is shown in part, and says so."""
    text = Workspace(files={"min.js": "x" * 1_000_000}).ok("read_file", path="min.js")
    assert len(text) < 3000
    assert "[clipped: the line has 1,000,000 characters]" in text


@pytest.mark.parametrize("content", [b"\x89PNG\0\0", b"caf\xe9", b"x" * 2_000_000 + b"\xff", b"\0" * 2_000_000])
def test_binary_files_are_named_as_such(content: bytes) -> None:
    """Reading or editing what is no text fails and tells what can be done with it."""
    work = Workspace(files={"data.bin": content})
    assert work.fails("read_file", path="data.bin", limit=100_000_000).startswith(
        "Binary file: data.bin\nIt is not UTF-8 text"
    )
    unguarded = Workspace(files={"data.bin": content}, read_before_write=False)
    assert unguarded.fails("edit_file", path="data.bin", old_text="a", new_text="b").startswith("Binary file: data.bin")


def test_missing_files_say_where_to_look() -> None:
    """The text names the file and the tool to call next."""
    assert Workspace().fails("read_file", path="nope.txt") == (
        "File not found: nope.txt\nUse list_directory to see available files"
    )


def test_listing() -> None:
    """Directories end in a slash, files have a size; a long list is cut and says how to choose."""
    work = Workspace(files={"b/x.txt": "1", "a.txt": "12"})
    assert work.ok("list_directory") == "The workspace: 2 entries.\na.txt (2 bytes)\nb/"
    assert work.ok("list_directory", path="b") == "b: 1 entry.\nx.txt (1 bytes)"
    assert "Not a directory: a.txt" in work.fails("list_directory", path="a.txt")
    assert Workspace().ok("list_directory") == "The workspace is empty."
    crowded = Workspace(files={f"{n:04}": "" for n in range(600)}).ok("list_directory")
    assert "600 entries. The first 500 are shown; use glob_files to choose." in crowded
    assert "0499" in crowded
    assert "0500" not in crowded


def test_finding() -> None:
    """Files are found by pattern, by part of the path and by content."""
    work = Workspace(files={"src/tea.py": "MINUTES = 3\n", "doc/tea.md": "three minutes\n", "x.bin": b"\0minutes"})
    assert work.ok("glob_files", pattern="**/*.py") == "1 path found.\nsrc/tea.py"
    assert work.ok("search_files", query="TEA") == "2 files found.\ndoc/tea.md\nsrc/tea.py"
    assert work.ok("search_files", query="coffee") == "0 files found."
    assert work.ok("grep_files", pattern="minutes") == "1 line found.\ndoc/tea.md:1: three minutes"
    assert work.ok("grep_files", pattern="minutes", ignore_case=True, glob="*.py") == (
        "1 line found.\nsrc/tea.py:1: MINUTES = 3"
    )
    assert "not a valid regular expression" in work.fails("grep_files", pattern="(")
    assert "File not found: nowhere" in work.fails("grep_files", pattern="x", path="nowhere")


def test_many_finds_are_cut() -> None:
    """More than a model can use is cut, with advice."""
    work = Workspace(files={f"d/{n}.txt": "tea\n" for n in range(600)})
    assert work.ok("glob_files", pattern="d/*").startswith("More than 500 paths found; these are the first.")
    assert work.ok("search_files", query="txt").startswith("More than 500 files found; these are the first.")
    assert work.ok("grep_files", pattern="tea").startswith("More than 200 lines found; these are the first.")


# Writing


def test_a_new_file_is_written_at_once() -> None:
    """New files need no reading, and their directories are made."""
    work = Workspace()
    assert work.ok("write_file", path="a/b.txt", content="tea\n") == "Created a/b.txt (4 bytes)."
    assert work.vfs.filesystem.read("a/b.txt") == "tea\n"


def test_an_unread_file_is_not_overwritten() -> None:
    """The policy refuses, also with overwrite, until the file has been read; then no overwrite is needed."""
    work = Workspace(files={"a.txt": "old\n"})
    for overwrite in (False, True):
        assert work.fails("write_file", path="a.txt", content="new", overwrite=overwrite).startswith(
            "Cannot write to a.txt without reading it first\nCall read_file(path='a.txt') first"
        )
    assert "without reading it first" in work.fails("edit_file", path="/workspace/a.txt", old_text="old", new_text="")
    work.ok("read_file", path="a.txt")
    assert work.ok("write_file", path="a.txt", content="new\n") == (
        "Wrote a.txt (4 bytes).\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new"
    )
    assert work.ok("write_file", path="a.txt", content="new\n") == "a.txt already held exactly that."


def test_a_file_that_changed_is_read_again() -> None:
    """What other code changed since it was read is not overwritten."""
    work = Workspace(files={"a.txt": "old\n"})
    work.ok("read_file", path="a.txt")
    work.vfs.filesystem.write("a.txt", "from elsewhere\n")
    assert "it has changed since it was read" in work.fails("write_file", path="a.txt", content="new")
    assert work.vfs.filesystem.read("a.txt") == "from elsewhere\n"


def test_without_the_policy_overwrite_decides() -> None:
    """An existing file needs overwrite=true."""
    work = Workspace(files={"a.txt": "old"}, read_before_write=False)
    assert work.fails("write_file", path="a.txt", content="new").startswith(
        "File already exists: a.txt\nSet overwrite=true to replace it"
    )
    work.ok("write_file", path="a.txt", content="new", overwrite=True)
    assert work.vfs.filesystem.read("a.txt") == "new"
    assert "but a directory: d" in Workspace(files={"d/x": ""}, read_before_write=False).fails(
        "write_file", path="d", content="x", overwrite=True
    )


def test_editing() -> None:
    """One exact piece of text is replaced and the diff comes back."""
    lines = [f"line {n}\n" for n in range(1, 101)]
    work = Workspace(files={"a.txt": "".join(lines)})
    work.ok("read_file", path="a.txt")
    text = work.ok("edit_file", path="a.txt", old_text="line 50\n", new_text="fifty\n")
    assert "@@ -47,7 +47,7 @@\n line 47\n line 48\n line 49\n-line 50\n+fifty\n line 51" in text
    lines[49] = "fifty\n"
    assert work.vfs.filesystem.read("a.txt") == "".join(lines)
    assert work.ok("edit_file", path="a.txt", old_text="line 9", new_text="row 9", replace_all=True)
    assert work.vfs.filesystem.read("a.txt").count("row 9") == 11


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        ("", "old_text is empty"),
        ("x = 1", "old_text occurs 2 times in a.py (lines 1, 3)\nAdd lines around it"),
        ("def brew(cup):", "Similar text:\nline 4: def brew(cups):"),
        ("def brew(cups):\n  return  cups", "Similar text:\nlines 4-5:\ndef brew(cups):\n    return cups"),
        ("     4\tdef brew(cups):", "leave the numbers and the tab out"),
        ("nothing like it at all", "Read the file again and copy the text exactly."),
        ("y = 2", "old_text and new_text are equal"),
    ],
)
def test_edits_that_do_not_fit_say_why(old: str, expected: str) -> None:
    """Absent, ambiguous and empty texts fail with what to do about it, and change nothing."""
    content = "x = 1\ny = 2\nx = 1\ndef brew(cups):\n    return cups\n"
    work = Workspace(files={"a.py": content})
    work.ok("read_file", path="a.py")
    assert expected in work.fails("edit_file", path="a.py", old_text=old, new_text="y = 2")
    assert work.vfs.filesystem.read("a.py") == content


def test_editing_keeps_line_ends() -> None:
    """In a file with CRLF a plain line break in an edit means CRLF."""
    work = Workspace(files={"a.txt": "one\r\ntwo\r\nthree\r\n"})
    work.ok("read_file", path="a.txt")
    work.ok("edit_file", path="a.txt", old_text="one\ntwo", new_text="1\n2\n2b")
    assert work.vfs.filesystem.read("a.txt") == "1\r\n2\r\n2b\r\nthree\r\n"


def test_a_huge_change_has_a_short_diff() -> None:
    """The diff in a reply is cut, or replaced by one line where comparing would take long."""
    work = Workspace(files={"a.txt": "".join(f"{n}\n" for n in range(1000))})
    work.ok("read_file", path="a.txt")
    text = work.ok("write_file", path="a.txt", content="".join(f"{n} x\n" for n in range(1000)))
    assert "[the diff goes on: 2,003 lines in all]" in text
    text = work.ok("write_file", path="a.txt", content="".join(f"{n} y\n" for n in range(100_000)))
    assert text.endswith("a.txt changed (1,000 -> 100,000 lines; too many differ to show)")


def test_copy_move_delete() -> None:
    """Files and directories are copied, moved and deleted; nothing is lost by accident."""
    work = Workspace(files={"a/x.txt": "1", "a/y.txt": "2"})
    assert work.ok("copy_file", src="a", dst="b") == "Copied.\na -> b"
    assert work.ok("move_file", src="a/x.txt", dst="c.txt") == "Moved.\na/x.txt -> c.txt"
    assert work.fails("copy_file", src="c.txt", dst="b/x.txt").startswith(
        "File already exists: b/x.txt\nChoose another path, or call delete_file on it first."
    )
    assert "File not found: nope" in work.fails("move_file", src="nope", dst="z")
    assert work.fails("delete_file", path="b") == (
        "Directory not empty: b\nSet recursive=true to delete all that is in it."
    )
    assert work.ok("delete_file", path="b", recursive=True) == "Deleted.\nb"
    assert list(work.vfs.filesystem.glob("**")) == [".", "a", "a/y.txt", "c.txt"]


def test_read_only_has_no_tools_that_write() -> None:
    """The model is offered only what works, and files cannot be written from elsewhere either."""
    work = Workspace(files={"a.txt": "1"}, read_only=True)
    assert [tool.name for tool in work.executor.tools] == NAMES[:5]
    assert work.ok("read_file", path="a.txt")
    with pytest.raises(PermissionError):
        work.vfs.filesystem.write("a.txt", "2")


def test_a_read_only_folder_works_through_the_engine(tmp_path: Path) -> None:
    """Calls on a root that is only read succeed and fail as elsewhere, and leave nothing in it."""
    (tmp_path / "a.txt").write_text("1")
    work = Workspace(root=tmp_path, read_only=True)
    assert work.ok("read_file", path="a.txt")
    assert work.fails("read_file", path="b.txt")
    work.vfs.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("content", ["tea\ud800", "\ud800"])
def test_text_that_cannot_be_stored_is_refused(content: str) -> None:
    """Lone surrogates fail with what to do about it."""
    [tool] = [tool for tool in VfsToolsSection().tools if tool.name == "write_file"]
    assert tool.params_type is not None
    result: Any = tool.call(tool.params_type(path="a.txt", content=content), make_context())
    assert not result.success
    assert "lone surrogate" in result.message


# Prefixes, keys, several in one prompt


def test_a_prefix_reaches_names_texts_and_policy() -> None:
    """With a prefix, tools, instructions, errors and the policy all speak of the prefixed names."""
    work = Workspace(VfsToolsSection(config=VfsConfig(files={"a.txt": "1"}), tool_prefix="box_"))
    assert [tool.name for tool in work.executor.tools] == [f"box_{name}" for name in NAMES]
    assert "`box_read_file`" in work.vfs.render_body(None)
    assert "Use box_list_directory" in work.fails("box_read_file", path="nope")
    assert "Call box_read_file(path='a.txt') first" in work.fails("box_write_file", path="a.txt", content="2")
    work.ok("box_read_file", path="a.txt")
    work.ok("box_write_file", path="a.txt", content="2")


def test_two_sets_of_files_in_one_prompt_are_refused() -> None:
    """A prompt has one Filesystem: the error names both sections."""
    with pytest.raises(PromptValidationError, match=r"Filesystem.*'vfs'.*'more'"):
        PromptTemplate[Any](
            ns="t", key="t", sections=[VfsToolsSection(), VfsToolsSection(key="more", tool_prefix="more_")]
        )


def test_a_second_section_may_share_the_files() -> None:
    """With shared=True and a prefix a second section works on the first one's files."""
    first = VfsToolsSection(config=VfsConfig(files={"a.txt": "1"}))
    second = VfsToolsSection(config=VfsConfig(shared=True, read_only=True), key="look", tool_prefix="look_")
    work = Workspace(first, second)
    work.ok("write_file", path="b.txt", content="2")
    assert "b.txt" in work.ok("look_list_directory")
    with pytest.raises(PromptValidationError, match="ask the section that binds them"):
        second.diff()


def test_usable_in_a_template_and_by_bind() -> None:
    """The files arrive as the prompt's Filesystem either way, whatever session the section was built with."""
    vfs = VfsToolsSection(session=Session(), config=VfsConfig(files={"a.txt": "1"}))
    template = PromptTemplate[Any](ns="t", key="t", sections=[MarkdownSection(title="Task", template="Tidy up.")])
    assert Prompt(template).bind(sections=[vfs]).resources.get(Filesystem) is vfs.filesystem
    inside = PromptTemplate[Any](ns="t", key="t", sections=[vfs])
    assert Prompt(inside).resources.get(Filesystem) is vfs.filesystem


def test_overrides_are_off_unless_allowed() -> None:
    """Neither the text nor the tools can be overridden, unless the section says so."""
    closed, opened = VfsToolsSection(), VfsToolsSection(accepts_overrides=True)
    assert not closed.accepts_overrides
    assert not any(tool.accepts_overrides for tool in closed.tools)
    assert opened.accepts_overrides
    assert all(tool.accepts_overrides for tool in opened.tools)


# Files that are protected


class Protecting(GuardedFilesystem):
    """Files of which one is write-protected; as on a disk, deleting and moving it asks the directory alone."""

    def __init__(self, fs: Filesystem, protected: str) -> None:
        super().__init__(fs, nullcontext())
        self._protected = protected

    def is_readonly(self, path: str) -> bool:
        return path == self._protected or super().is_readonly(path)

    def write(self, path: str, content: str | bytes) -> None:
        if self.is_readonly(path):
            raise ReadOnlyError(f"{path} is read-only.")
        super().write(path, content)


def protected_workspace(path: str) -> Workspace:
    files = Protecting(InMemoryFilesystem({path: "color = red\n", "free.txt": "x"}), path)
    work = Workspace(files={})
    section = VfsToolsSection(config=VfsConfig(shared=True))
    prompt = Prompt(name="files", sections=[section]).bind(resources={Filesystem: files})
    work.executor = ToolExecutor(prompt=prompt, session=work.session)
    return work


def test_a_read_only_file_is_changed_by_way_of_a_copy() -> None:
    """The refusal says so, and the copy of a file that was read may be written at once."""
    work = protected_workspace("system.conf")
    work.ok("read_file", path="system.conf")
    for tool, arguments in (
        ("write_file", {"content": "color = blue\n"}),
        ("edit_file", {"old_text": "red", "new_text": "blue"}),
    ):
        assert work.fails(tool, path="system.conf", **arguments).startswith(
            "Permission denied: cannot write to system.conf\nThis file is read-only. To modify it:\n"
            "1. Copy to a new location with copy_file\n2. Make changes to the copy\n"
            "3. Use the copy as your working file"
        )
    assert work.fails("delete_file", path="system.conf").startswith(
        "Cannot delete system.conf - file is read-only\nThis file is managed externally and cannot be modified"
    )
    assert work.fails("move_file", src="system.conf", dst="mine.conf").startswith(
        "Cannot move system.conf - file is read-only\nThis file is managed externally and cannot be modified"
    )
    work.ok("copy_file", src="system.conf", dst="system-modified.conf")
    work.ok("write_file", path="system-modified.conf", content="color = blue\n")
    work.ok("move_file", src="system-modified.conf", dst="etc/system.conf")
    work.ok("edit_file", path="etc/system.conf", old_text="blue", new_text="green")


def test_a_copy_is_not_suggested_where_it_would_be_refused_as_well(tmp_path: Path) -> None:
    """All files are read-only."""
    with VfsToolsSection(config=VfsConfig(root=tmp_path, read_only=True)) as own:
        files = own.filesystem
        writer = VfsToolsSection(config=VfsConfig(shared=True, read_before_write=False))
        (tmp_path / "a.txt").write_text("a")
        prompt = Prompt(name="files", sections=[writer]).bind(resources={Filesystem: files})
        executor = ToolExecutor(prompt=prompt, session=Session())
        arguments = json.dumps({"path": "a.txt", "content": "b", "overwrite": True})
        reply = executor.execute(ToolCall("1", "write_file", arguments))
        assert "the files are read-only" in reply.text
        assert "copy_file" not in reply.text


def test_writing_to_a_directory_says_that_it_is_one() -> None:
    """With and without the rule that files are read first."""
    for first in (True, False):
        work = Workspace(files={"d/a.txt": "x"}, read_before_write=first)
        for overwrite in (True, False):
            reply = work.fails("write_file", path="d", content="x", overwrite=overwrite)
            assert "directory" in reply.splitlines()[0]
            assert "reading it first" not in reply


@pytest.mark.parametrize("tool", ["copy_file", "move_file"])
def test_copying_what_is_missing_names_it(tool: str, tmp_path: Path) -> None:
    """In memory and on disk."""
    for config in ({}, {"root": tmp_path}):
        work = Workspace(**config)
        assert work.fails(tool, src="no/such.txt", dst="new/place.txt").startswith("File not found: no/such.txt\n")


# A folder in which other programs work as well


def test_what_other_programs_did_is_undone_when_the_folder_is_watched(tmp_path: Path) -> None:
    """A call that fails takes back what a program did that it started."""

    def build(params: None, *, context: ToolContext) -> ToolResult[str]:
        assert context.filesystem is not None
        context.filesystem.write("ours.txt", "x")
        (tmp_path / "made.o").write_text("by a compiler")
        (tmp_path / "kept.txt").write_text("broken")
        return ToolResult.error("It does not compile.")

    tool = Tool[None, str](name="build", description="Build.", handler=build)
    (tmp_path / "kept.txt").write_text("kept")
    for watch, left in (("scan", "kept"), (None, "broken")):
        with VfsToolsSection(config=VfsConfig(root=tmp_path, watch=cast(Any, watch))) as vfs:
            section = MarkdownSection(title="Build", template="x", tools=[tool])
            prompt = Prompt(name="files", sections=[vfs, section])
            reply = ToolExecutor(prompt=prompt, session=Session()).execute(ToolCall("1", "build", "{}"))
            assert not reply.result.success
        assert (tmp_path / "kept.txt").read_text() == left
        assert (tmp_path / "made.o").exists() == (watch is None)
        assert not (tmp_path / "ours.txt").exists()


@pytest.mark.parametrize(
    "config", [{"watch": "scan"}, {"watch": "scan", "root": ".", "read_only": True}, {"watch": "yes", "root": "."}]
)
def test_a_watch_needs_a_folder_that_is_written_to(config: dict[str, Any]) -> None:
    """Anything else is refused when the config is made."""
    with pytest.raises(PromptValidationError, match="watch="):
        VfsConfig(**config)
