"""The suite for programs: files, a shell and Python in a container, where a call that fails leaves no trace."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ...clock import MAX_SECONDS, is_finite_number
from ...errors import PromptValidationError
from ...filesystem import Filesystem, InMemoryFilesystem
from ...filesystem.reserved import reserved
from ...filesystem.search.walk import FilesystemTree, walk_files
from ...prompt import MarkdownSection, Tool
from ...prompt.section import suite_config
from ...session import SessionProtocol
from ..code.protocol import EvalLimits
from ..code.tool import evaluate_python_tool, instructions
from ..files.mounts import Copied, ExportedFiles, HostMount, copy_in, export_files, undo_state_in
from ..files.reading import reading_tools
from ..files.tool_parts import EXAMPLE_FILES, ToolNames
from ..files.writing import writing_tools
from .backend import ContainerBackend
from .container import Container
from .image import DEFAULT_IMAGE
from .shell import ShellLimits, shell_execute_tool
from .spec import WORKSPACE, ContainerSpec
from .workspace import ContainerWorkspace, ContainerWorkspaceFilesystem

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d{1,12})([bkmg]?)", re.IGNORECASE)
_INSIDE = re.compile(r"/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_TAKEN = (WORKSPACE, "/proc", "/sys", "/dev", "/tmp", "/etc", "/usr", "/bin", "/lib")  # noqa: S108 - in the container

MB = 1 << 20
LEAST_PIDS = 16


def _evaluation() -> EvalLimits:
    return EvalLimits(seconds=10.0, sleep=10.0, memory=256 * MB, recursion=900)


@dataclass(frozen=True, slots=True)
class PodmanSandboxConfig:
    """A workspace, and a container that is locked down around it.

    Sizes are bytes, or text such as "512m" and "2g". Every limit is always set.

    Attributes:
        image: has python3 and sh; `wink sandbox image` builds the default one without any registry.
        root: the folder to work in, which stays; without it a temporary one, removed when the section is closed. When
            this process is root, the folder must belong to another user: the container runs as that one.
        files: what is in a temporary workspace at the start, by path.
        mounts: folders of the host to copy in at the start, as `HostMount` or just as a path.
        read_only_mounts: folders of the host by their path in the container, where they can be read, not written.
        allowed_roots: mounts of both kinds must be inside one of these; without any, nothing can be mounted.
        memory, cpus, pids: of the whole container; there is no swap.
        tmp: bytes of `/tmp`, which count as memory.
        disk, max_files: what the workspace may hold; a command that puts more there is stopped and undone.
        network: "none", or the name of a network of podman's; with any other than "none", data can leave.
        timeout: seconds a command may take at most.
        output: bytes of each output of a command that are kept; at fifty times that it is stopped.
        evaluation: what one `evaluate_python` may use.
        env: further environment variables for commands; everything that runs in the container can read them.
        executable: let programs that are in the workspace be started as such; scripts run by their interpreter anyway.
        read_before_write: a file must be read before it is overwritten.
        lease: seconds after which a container is ended and replaced, whatever happens.
        podman: the command.

    `PromptValidationError` for what cannot be.
    """

    image: str = DEFAULT_IMAGE
    root: str | os.PathLike[str] | None = None
    files: Mapping[str, str | bytes] = field(default_factory=dict[str, str | bytes])
    mounts: Sequence[HostMount | str | os.PathLike[str]] = ()
    read_only_mounts: Mapping[str, str | os.PathLike[str]] = field(default_factory=dict[str, str | os.PathLike[str]])
    allowed_roots: Sequence[str | os.PathLike[str]] = ()
    memory: int | str = 512 * MB
    cpus: float = 1.0
    pids: int = 128
    tmp: int | str = 64 * MB
    disk: int | str = 512 * MB
    max_files: int = 50_000
    network: str = "none"
    timeout: float = 60.0
    output: int = 30_000
    evaluation: EvalLimits = field(default_factory=_evaluation)
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    executable: bool = False
    read_before_write: bool = True
    lease: int = 3600
    podman: str = "podman"

    def __post_init__(self) -> None:
        for name in ("mounts", "allowed_roots"):
            if isinstance(getattr(self, name), str | os.PathLike | HostMount):
                raise _wrong(f"{name}= takes a sequence; write {name}=[...] around it")
        if self.root is not None and (self.mounts or self.files):
            raise _wrong("root= works on that folder itself, so files= and mounts= cannot be given beside it")
        for name, least in (("memory", 32 * MB), ("tmp", MB), ("disk", MB)):
            if self.size(name) < least:
                raise _wrong(f"{name}= must be at least {least:,} bytes")
        for name in ("cpus", "pids", "max_files", "timeout", "output", "lease"):
            value = getattr(self, name)
            if not is_finite_number(value) or value <= 0:
                raise _wrong(f"{name}= must be a finite, positive number, got {value!r}")
        if max(self.timeout, self.lease) > MAX_SECONDS:
            raise _wrong(f"timeout= and lease= must be at most {MAX_SECONDS:,.0f} seconds")
        if self.pids < LEAST_PIDS:
            raise _wrong(
                f"pids= must be at least {LEAST_PIDS}: the container's own process, a shell and what it starts"
            )
        if self.lease <= max(self.timeout, self.evaluation.seconds + self.evaluation.sleep) + 30:
            raise _wrong("lease= must be well above timeout= and the time of evaluation=: by more than 30 seconds")
        if self.evaluation.memory > self.size("memory") * 3 // 4:
            raise _wrong("evaluation= takes more than three quarters of memory=; lower its memory, or raise memory=")
        if not self.image.strip() or self.image.startswith("-") or self.network.startswith("-") or not self.network:
            raise _wrong("image= and network= must be names")
        for inside in self.read_only_mounts:
            taken = any(inside == path or inside.startswith(f"{path}/") for path in _TAKEN)
            if taken or not _INSIDE.fullmatch(inside) or ".." in inside.split("/"):
                raise _wrong(f"read_only_mounts= cannot have {inside!r}; use a path of its own, such as /data")

    def size(self, name: str) -> int:
        """One of the sizes, in bytes."""
        value = getattr(self, name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        found = _SIZE.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise _wrong(f"{name}= must be a number of bytes or text such as '512m', got {value!r}")
        return int(found[1]) * _UNITS[found[2].lower()]

    def open(self) -> tuple[ContainerWorkspace, tuple[Copied, ...]]:
        """The workspace, with all that is to be copied in. Raises what a folder or a mount is refused with."""
        workspace = ContainerWorkspace(self.root, self.files)
        try:
            mounts = [mount if isinstance(mount, HostMount) else HostMount(mount) for mount in self.mounts]
            copied = tuple(copy_in(mount, workspace.host, self.allowed_roots) for mount in mounts)
            workspace.check(self.size("disk"), int(self.max_files))
        except BaseException:
            workspace.close()
            raise
        return workspace, copied

    def spec(self, workspace: ContainerWorkspace) -> ContainerSpec:
        """The container for that workspace."""
        return ContainerSpec(
            root=str(workspace.root),
            user=workspace.user,
            rootless=workspace.rootless,
            image=self.image,
            read_only={inside: self._allowed(outside) for inside, outside in self.read_only_mounts.items()},
            memory=self.size("memory"),
            cpus=self.cpus,
            pids=int(self.pids),
            tmp=self.size("tmp"),
            disk=self.size("disk"),
            files=int(self.max_files),
            network=self.network,
            lease=int(self.lease),
            executable=self.executable,
            program=self.podman,
        )

    def _allowed(self, outside: str | os.PathLike[str]) -> str:
        folder = Path(outside).resolve()
        roots = [Path(root).resolve() for root in self.allowed_roots]
        if not any(folder.is_relative_to(root) for root in roots):
            listed = ", ".join(str(root) for root in roots) or "none"
            raise _wrong(f"read_only_mounts= has {folder}, which is not in allowed_roots= (allowed: {listed})")
        if not folder.is_dir() or ":" in str(folder):
            raise _wrong(f"read_only_mounts= has {folder}, which is not a folder, or has a colon in its name")
        state = [part for part in (folder, *folder.parents) if reserved(part.name)]
        state += (folder / path for path in undo_state_in(folder))
        if state:
            raise _wrong(f"read_only_mounts= has undo state in it, {state[0]}; mount a folder without any")
        return str(folder)


def _wrong(problem: str) -> PromptValidationError:
    return PromptValidationError(f"PodmanSandboxConfig {problem}.")


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
        config = suite_config(PodmanSandboxConfig, session, config)
        names = ToolNames(tool_prefix)
        self.mounted: tuple[Copied, ...]
        self._workspace, self.mounted = config.open()
        try:
            self.container: Container = Container(config.spec(self._workspace))
        except BaseException:
            self._workspace.close()
            raise
        self._files = ContainerWorkspaceFilesystem(self._workspace.host, self.container)
        self._finalizer = weakref.finalize(self, _close, self.container, self._files, self._workspace)
        super().__init__(
            title=title,
            template=_text(names, config, self.container, self.mounted).replace("$", "$$"),
            key=key,
            tools=_tools(names, config, self.container, accepts_overrides),
            policies=[names.read_before_write()] if config.read_before_write else [],
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
        """End the container and give the files back; a temporary workspace is removed. Calling it twice is fine."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _close(container: Container, files: ContainerWorkspaceFilesystem, workspace: ContainerWorkspace) -> None:
    try:
        container.close()
    finally:
        files.close()
        workspace.close()


def _tools(
    names: ToolNames, config: PodmanSandboxConfig, container: Container, accepts_overrides: bool
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
- `{p}shell_execute` runs a command line. An exit code other than 0 is reported and is not a failure, unless you set
  `check=true`.
- A call that fails changes nothing: a command that takes too long, says or writes too much, or does not pass its
  check, is stopped, and all it did to the files is undone.
- Only the workspace is kept. When a call ends, all programs that are left running are ended and `/tmp` is emptied:
  nothing can be started in the background for a later call.
- {network}
- Limits of a command: {seconds:g} seconds, {memory} MB of memory, {pids} processes, {disk} MB of files,
  {output:,} bytes of output."""


def _text(names: ToolNames, config: PodmanSandboxConfig, container: Container, mounted: tuple[Copied, ...]) -> str:
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
