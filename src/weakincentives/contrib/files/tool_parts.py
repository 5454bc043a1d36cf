"""What the file tools have in common: names that know their prefix, and errors that say what to call next."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, TypeVar, final

from ...errors import FilesystemError, ReadOnlyError
from ...filesystem import Filesystem
from ...prompt import ReadBeforeWritePolicy, Tool, ToolAnnotations, ToolContext, ToolExample, ToolResult
from .edits import EditRefusedError
from .pages import BinaryFileError, TooLargeError

P = TypeVar("P")
R = TypeVar("R")

Act = Callable[[Filesystem, P, ToolContext], ToolResult[R]]
"""What a tool does with the files; an `OSError` it raises becomes a failed result."""

EXAMPLE_FILES: dict[str, str] = {
    "README.md": "# Tea\n\nHow to make tea.\n",
    "src/brew.py": "MINUTES = 3\n\n\ndef brew(cups):\n    return cups * MINUTES\n",
}
"""The workspace in which the tools' examples hold."""


@final
class ToolNames:
    """The tools' names in one section, for messages and for the tools themselves."""

    __slots__ = ("prefix",)

    def __init__(self, prefix: str) -> None:
        self.prefix: str = prefix

    def __call__(self, tool: str) -> str:
        """The tool's full name."""
        return f"{self.prefix}{tool}"

    def read_before_write(self) -> ReadBeforeWritePolicy:
        """The rule that a file must be read before these tools change it."""
        return ReadBeforeWritePolicy(
            reads=[self("read_file")],
            writes=[self("write_file"), self("edit_file")],
            transfers=[self("copy_file"), self("move_file")],
        )

    def build(
        self,
        params_type: type[P],
        result_type: type[R],
        name: str,
        description: str,
        act: Act[P, R],
        *,
        annotations: ToolAnnotations,
        example: ToolExample[P, R],
        accepts_overrides: bool,
    ) -> Tool[P, R]:
        """The tool, with whatever its files refuse turned into a failed result."""

        def handler(params: Any, context: ToolContext) -> ToolResult[R]:
            fs = context.filesystem
            if fs is None:
                return ToolResult.error(
                    "No files are bound to this prompt, so none can be used\nGo on without them, and tell the user."
                )
            try:
                return act(fs, params, context)
            except (OSError, EditRefusedError) as error:
                return ToolResult.error(self.explain(error, params))

        typed: Any = Tool[params_type, result_type]
        return typed(
            name=self(name),
            description=description,
            handler=handler,
            examples=[example],
            annotations=annotations,
            accepts_overrides=accepts_overrides,
        )

    def explain(self, error: OSError | EditRefusedError, params: object) -> str:
        """What went wrong, and what to call next."""
        if isinstance(error, EditRefusedError):
            return str(error)
        path = error.filename or getattr(params, "path", None) or getattr(params, "src", ".")
        if isinstance(error, FileNotFoundError):
            return f"File not found: {path}\nUse {self('list_directory')} to see available files"
        if isinstance(error, TooLargeError):
            return str(error)
        if isinstance(error, BinaryFileError):
            return (
                f"Binary file: {path}\nIt is not UTF-8 text, so it cannot be shown or edited; "
                f"{self('list_directory')} tells its size, {self('copy_file')} and {self('move_file')} take it whole."
            )
        if isinstance(error, FileExistsError):
            return f"File already exists: {path}\nChoose another path, or call {self('delete_file')} on it first."
        if isinstance(error, IsADirectoryError):
            return f"Not a file but a directory: {path}\nUse {self('list_directory')} to see what is in it"
        if isinstance(error, NotADirectoryError):
            return f"Not a directory: {path}\nUse {self('list_directory')} on its parent to see what is there"
        if error.errno == errno.ENOTEMPTY:
            return f"Directory not empty: {path}\nSet recursive=true to delete all that is in it."
        if isinstance(error, ReadOnlyError):
            return f"Cannot change {path}: the files are read-only\nWork with what is there, and report what to change."
        if isinstance(error, FilesystemError):
            return f"{error}\nUse {self('list_directory')} to see available files"
        return f"Cannot use {path}: {error.strerror or error}\nTry another path, or tell the user."


READS = ToolAnnotations(read_only=True, idempotent=True, open_world=False)
ADDS = ToolAnnotations(destructive=False, open_world=False, starts_programs=False)
DESTROYS = ToolAnnotations(destructive=True, open_world=False, starts_programs=False)
