"""The suite for programs: files, a shell and Python in a container, where a call that fails leaves no trace."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ...filesystem import Filesystem, InMemoryFilesystem
from ...filesystem.search.walk import FilesystemTree, walk_files
from ...prompt import MarkdownSection, ReadBeforeWritePolicy, Tool
from ...session import SessionProtocol
from ..code.protocol import EvalLimits
from ..code.tool import evaluate_python_tool, instructions
from ..files.mounts import Copied, ExportedFiles, export_files, undo_state_in
from ..files.reading import reading_tools
from ..files.tool_parts import EXAMPLE_FILES, Names
from ..files.writing import writing_tools
from .backend import ContainerBackend
from .config import PodmanSandboxConfig
from .container import Container
from .shell import ShellLimits, shell_execute_tool
from .workspace import QuietFilesystem, Workspace


class PodmanSandboxSection(MarkdownSection[Any]):
    """A workspace for a model: the file tools, `shell_execute` and `evaluate_python`, in one container.

    The container starts with the first command or evaluation and lives with the section, and with this process: it
    ends with either, also when that is killed. Nothing is kept in it from one call to the next but the workspace,
    which is bound as the prompt's `Filesystem`; a call that fails leaves that as it was, whatever a command did to it.

    Make one section for each conversation, and close it: with `close`, a `with` block, or by dropping it. A temporary
    workspace is gone then; `export` takes files out before. Once closed, its tools fail and say so.

    Attributes:
        mounted: what was copied in.
        container: what everything runs in.

    Args:
        session: as for every suite; the sandbox keeps nothing in it.
        config: which files and limits.
        tool_prefix: put before the name of each tool.

    `PromptValidationError` for a folder or mount that is refused. What podman needs and lacks shows with the first
    command, as a failed call that names the fix; `start` shows it earlier, as a `SandboxError`.
    """

    def __init__(
        self,
        session: SessionProtocol | None = None,
        config: PodmanSandboxConfig | None = None,
        *,
        accepts_overrides: bool = False,
        key: str = "sandbox",
        title: str = "Sandbox",
        tool_prefix: str = "",
    ) -> None:
        del session
        config = PodmanSandboxConfig() if config is None else config
        names = Names(tool_prefix)
        self._workspace, self.mounted = config.open()
        try:
            self.container = Container(config.spec(self._workspace))
        except BaseException:
            self._workspace.close()
            raise
        self._files = QuietFilesystem(self._workspace.host, self.container)
        self._finalizer = weakref.finalize(self, _close, self.container, self._files, self._workspace)
        policy = ReadBeforeWritePolicy(
            reads=[names("read_file")],
            writes=[names("write_file"), names("edit_file")],
            transfers=[names("copy_file"), names("move_file")],
        )
        super().__init__(
            title=title,
            template=_text(names, config, self.container, self.mounted).replace("$", "$$"),
            key=key,
            tools=_tools(names, config, self.container, accepts_overrides),
            policies=[policy] if config.read_before_write else [],
            accepts_overrides=accepts_overrides,
        )

    @property
    def filesystem(self) -> Filesystem:
        """The workspace's files."""
        return self._files

    def resources(self) -> Mapping[type[Any], object]:
        """The files, as the prompt's `Filesystem`."""
        return {Filesystem: self._files}

    def example_resources(self) -> Mapping[type[Any], object]:
        """Other files, in which the examples of the file tools hold."""
        return {Filesystem: InMemoryFilesystem(EXAMPLE_FILES)}

    def start(self) -> None:
        """Start the container now rather than with the first call; `SandboxError` when it cannot be."""
        self.container.start()

    def export(self, directory: str | os.PathLike[str], *, pattern: str = "**") -> ExportedFiles:
        """Write the workspace's files that match into a folder of the host; their paths.

        Files that are there are replaced, nothing is deleted; all or nothing. Symlinks and special files stay behind.
        Undo state is never written: what there is of it in the workspace is named by the result's `left_out`, and in a
        warning.
        """
        wanted = set(self._files.glob(pattern))
        paths = [path for path in walk_files(FilesystemTree(self._files)) if path in wanted]
        left_out = export_files(self._files, paths, directory, hidden=undo_state_in(self._workspace.root))
        return ExportedFiles((path for path in paths if path not in left_out), left_out)

    def close(self) -> None:
        """End the container and give the files back; a temporary workspace is removed. Twice is fine."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _close(container: Container, files: QuietFilesystem, workspace: Workspace) -> None:
    try:
        container.close()
    finally:
        files.close()
        workspace.close()


def _tools(
    names: Names, config: PodmanSandboxConfig, container: Container, accepts_overrides: bool
) -> list[Tool[Any, Any]]:
    limits = ShellLimits(config.timeout, config.output, config.size("memory"))
    return [
        *reading_tools(names, accepts_overrides=accepts_overrides),
        *writing_tools(names, read_before_write=config.read_before_write, accepts_overrides=accepts_overrides),
        shell_execute_tool(names("shell_execute"), container, limits, config.env, accepts_overrides),
        evaluate_python_tool(
            names("evaluate_python"),
            ContainerBackend(container),
            config.evaluation,
            accepts_overrides,
            open_world=config.network != "none",
        ),
    ]


_TEXT = """\
You have a workspace: files that the file tools and programs see alike, and a container to run programs in. Paths start
at its root, such as `src/main.py`; in the container that is `/workspace`.

- Look before you act: `{p}list_directory`, `{p}glob_files`, `{p}search_files` and `{p}grep_files` find files,
  `{p}read_file` shows them. Prefer `{p}edit_file` for a change to a part of a file.
- `{p}shell_execute` runs a command line. An exit code other than 0 is reported and is no failure, unless you set
  `check=true`.
- A call that fails changes nothing: a command that takes too long, says or writes too much, or does not pass its
  check, is stopped, and all it did to the files is undone.
- Only the workspace is kept. When a call ends, all programs that are left running are ended and `/tmp` is emptied:
  nothing can be started in the background for a later call.
- {network}
- Limits of a command: {seconds:g} seconds, {memory} MB of memory, {pids} processes, {disk} MB of files,
  {output:,} bytes of output."""


def _text(names: Names, config: PodmanSandboxConfig, container: Container, mounted: tuple[Copied, ...]) -> str:
    mb = 1 << 20
    isolated = "There is no network: nothing can be downloaded or installed."
    text = _TEXT.format(
        p=names.prefix,
        network=isolated if config.network == "none" else "There is a network.",
        seconds=config.timeout,
        memory=config.size("memory") // mb,
        pids=config.pids,
        disk=config.size("disk") // mb,
        output=config.output,
    )
    if config.read_before_write:
        text += "\n- Read a file before you change it, and again when something else has changed it."
    if mounted:
        listed = ", ".join(f"{copied.files} files in `{copied.mount.into}`" for copied in mounted)
        text += f"\n- Copied in at the start: {listed}."
    if config.read_only_mounts:
        text += f"\n- To be read by programs, not changed: {', '.join(sorted(config.read_only_mounts))}."
    limits: EvalLimits = config.evaluation
    return f"{text}\n\n{instructions(names.prefix, ContainerBackend(container), limits)}"


__all__ = ["PodmanSandboxSection"]
