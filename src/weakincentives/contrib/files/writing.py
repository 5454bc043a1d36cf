"""The file tools that change something: write, edit, copy, move, delete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...filesystem import Filesystem
from ...filesystem.paths import ROOT, normalise
from ...filesystem.protocol import encode
from ...prompt import Tool, ToolContext, ToolExample, ToolResult
from ...prompt.read_before_write import SeenFiles, is_known
from .diffs import unified
from .edits import EditRefusedError, apply_edit
from .pages import read_whole, text_of
from .tool_parts import ADDS, DESTROYS, ToolNames


@dataclass(frozen=True, slots=True)
class WriteFileParams:
    """What to write."""

    path: str
    """The file, from the root of the workspace; missing directories are made."""
    content: str
    """The whole new content of the file."""
    overwrite: bool = field(default=False, metadata={"description": "Replace an existing file that was not read."})


@dataclass(frozen=True, slots=True)
class EditFileParams:
    """What to change."""

    path: str
    """The file, from the root of the workspace."""
    old_text: str
    """The exact text to replace, with its spaces and line breaks, without line numbers; must be unique."""
    new_text: str
    """What to put in its place; empty to delete it."""
    replace_all: bool = field(default=False, metadata={"description": "Replace every occurrence."})


@dataclass(frozen=True, slots=True)
class FileWritten:
    """A file that was written. `diff` is against what it was; empty for a new file."""

    path: str
    size: int
    diff: str = ""

    def render(self) -> str:
        """The diff."""
        return self.diff


@dataclass(frozen=True, slots=True)
class TransferParams:
    """From where to where."""

    src: str
    """The file or directory, from the root of the workspace."""
    dst: str
    """Its new path; must not exist yet."""


@dataclass(frozen=True, slots=True)
class DeleteFileParams:
    """What to delete."""

    path: str
    """The file or directory, from the root of the workspace."""
    recursive: bool = field(default=False, metadata={"description": "Delete a directory with all that is in it."})


@dataclass(frozen=True, slots=True)
class FileTransferred:
    """A file or directory that has a new place."""

    src: str
    dst: str

    def render(self) -> str:
        """From where to where."""
        return f"{self.src} -> {self.dst}"


@dataclass(frozen=True, slots=True)
class FileDeleted:
    """A file or directory that is gone."""

    path: str

    def render(self) -> str:
        """Its path."""
        return self.path


def writing_tools(names: ToolNames, *, read_before_write: bool, accepts_overrides: bool) -> list[Tool[Any, Any]]:
    """The five tools. With `read_before_write` a policy has made sure that what was read has not changed since."""

    def write_file(fs: Filesystem, params: WriteFileParams, context: ToolContext) -> ToolResult[FileWritten]:
        path = params.path
        try:
            before = read_whole(fs, path)
        except FileNotFoundError:
            data = encode(params.content)
            fs.write(path, data)
            return ToolResult(f"Created {path} ({len(data):,} bytes).", FileWritten(normalise(path), len(data)))
        session = context.session
        if not params.overwrite and not (
            is_known(path, session) if read_before_write else SeenFiles.of(session).knows(path, fs)
        ):
            return ToolResult.error(
                f"File already exists: {path}\nSet overwrite=true to replace it, "
                f"or call {names('edit_file')} to change a part of it."
            )
        return _replace(fs, path, before, params.content, names)

    def edit_file(fs: Filesystem, params: EditFileParams, _: ToolContext) -> ToolResult[FileWritten]:
        path, before = params.path, read_whole(fs, params.path)
        text = apply_edit(path, text_of(before, path), params.old_text, params.new_text, every=params.replace_all)
        return _replace(fs, path, before, text, names)

    def copy_file(fs: Filesystem, params: TransferParams, _: ToolContext) -> ToolResult[FileTransferred]:
        fs.copy(params.src, params.dst)
        return ToolResult("Copied.", FileTransferred(normalise(params.src), normalise(params.dst)))

    def move_file(fs: Filesystem, params: TransferParams, _: ToolContext) -> ToolResult[FileTransferred]:
        _refuse_protected(fs, params.src, "move")
        fs.move(params.src, params.dst)
        return ToolResult("Moved.", FileTransferred(normalise(params.src), normalise(params.dst)))

    def delete_file(fs: Filesystem, params: DeleteFileParams, _: ToolContext) -> ToolResult[FileDeleted]:
        _refuse_protected(fs, params.path, "delete")
        fs.delete(params.path, recursive=params.recursive)
        return ToolResult("Deleted.", FileDeleted(normalise(params.path)))

    diff = "--- a/src/brew.py\n+++ b/src/brew.py\n@@ -1,4 +1,4 @@\n-MINUTES = 3\n+MINUTES = 5\n \n \n def brew(cups):"
    return [
        names.build(
            WriteFileParams, FileWritten, "write_file",
            "Write a whole text file. An existing one must have been read; otherwise set overwrite.",
            write_file, annotations=DESTROYS, accepts_overrides=accepts_overrides,
            example=ToolExample("A new file", WriteFileParams("notes.txt", "buy tea\n"), FileWritten("notes.txt", 8)),
        ),
        names.build(
            EditFileParams, FileWritten, "edit_file",
            "Replace one exact piece of text in a file that was read; answers with a diff.",
            edit_file, annotations=DESTROYS, accepts_overrides=accepts_overrides,
            example=ToolExample(
                "Change a constant",
                EditFileParams("src/brew.py", "MINUTES = 3", "MINUTES = 5"),
                FileWritten("src/brew.py", 56, diff),
            ),
        ),
        names.build(
            TransferParams, FileTransferred, "copy_file", "Copy a file or directory to a path that does not exist.",
            copy_file, annotations=ADDS, accepts_overrides=accepts_overrides,
            example=ToolExample(
                "A copy", TransferParams("README.md", "docs/tea.md"), FileTransferred("README.md", "docs/tea.md")
            ),
        ),
        names.build(
            TransferParams, FileTransferred, "move_file", "Move or rename a file or directory.",
            move_file, annotations=DESTROYS, accepts_overrides=accepts_overrides,
            example=ToolExample(
                "Rename", TransferParams("README.md", "TEA.md"), FileTransferred("README.md", "TEA.md")
            ),
        ),
        names.build(
            DeleteFileParams, FileDeleted, "delete_file", "Delete a file, or a directory.",
            delete_file, annotations=DESTROYS, accepts_overrides=accepts_overrides,
            example=ToolExample("Delete a file", DeleteFileParams("README.md"), FileDeleted("README.md")),
        ),
    ]  # fmt: skip


def _refuse_protected(fs: Filesystem, path: str, action: str) -> None:
    """Before, not after: a disk asks the directory alone, so a file that must not be written could be deleted."""
    if fs.is_readonly(path) and not fs.is_readonly(ROOT):
        raise EditRefusedError(
            f"Cannot {action} {path} - file is read-only\nThis file is managed externally and cannot be modified"
        )


def _replace(fs: Filesystem, path: str, before: bytes, content: str, names: ToolNames) -> ToolResult[FileWritten]:
    path, after = normalise(path), encode(content)
    try:
        fs.write(path, after)
    except PermissionError:
        if fs.is_readonly(path) and not fs.is_readonly(ROOT):  # else a copy would be refused as well
            raise EditRefusedError(
                f"Permission denied: cannot write to {path}\nThis file is read-only. To modify it:\n"
                f"1. Copy to a new location with {names('copy_file')}\n2. Make changes to the copy\n"
                "3. Use the copy as your working file"
            ) from None
        raise
    diff = unified(path, before, after)
    message = f"Wrote {path} ({len(after):,} bytes)." if diff else f"{path} already held exactly that."
    return ToolResult(message, FileWritten(path, len(after), diff))
