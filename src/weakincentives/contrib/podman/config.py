"""What a `PodmanSandboxSection` works on, and within which limits."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...clock import MAX_SECONDS, is_finite_number
from ...errors import PromptValidationError
from ...filesystem.reserved import reserved
from ..code.protocol import EvalLimits
from ..files.mounts import Copied, HostMount, copy_in
from .image import DEFAULT_IMAGE
from .spec import WORKSPACE, ContainerSpec
from .workspace import Workspace

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d{1,12})([bkmg]?)", re.IGNORECASE)
_INSIDE = re.compile(r"/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_TAKEN = (WORKSPACE, "/proc", "/sys", "/dev", "/tmp", "/etc", "/usr", "/bin", "/lib")  # noqa: S108 - in the container

MB = 1 << 20
LEAST_PIDS = 16


def _no_files() -> Mapping[str, str | bytes]:
    return {}


def _nothing() -> Mapping[str, str]:
    return {}


def _undo_state(folder: Path) -> Path | None:
    """Something at, above or below the folder that undo state is kept in, or None."""
    for part in (folder, *folder.parents):
        if reserved(part.name):
            return part
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if reserved(name):
                return Path(where, name)
    return None


def _no_mounts() -> Mapping[str, str | os.PathLike[str]]:
    return {}


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
    files: Mapping[str, str | bytes] = field(default_factory=_no_files)
    mounts: Sequence[HostMount | str | os.PathLike[str]] = ()
    read_only_mounts: Mapping[str, str | os.PathLike[str]] = field(default_factory=_no_mounts)
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
    env: Mapping[str, str] = field(default_factory=_nothing)
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

    def open(self) -> tuple[Workspace, tuple[Copied, ...]]:
        """The workspace, with all that is to be copied in. Raises what a folder or a mount is refused with."""
        workspace = Workspace(self.root, self.files)
        try:
            mounts = [mount if isinstance(mount, HostMount) else HostMount(mount) for mount in self.mounts]
            copied = tuple(copy_in(mount, workspace.host, self.allowed_roots) for mount in mounts)
            workspace.check(self.size("disk"), int(self.max_files))
        except BaseException:
            workspace.close()
            raise
        return workspace, copied

    def spec(self, workspace: Workspace) -> ContainerSpec:
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
            raise _wrong(f"read_only_mounts= has {folder}, which is no folder, or has a colon in its name")
        if (state := _undo_state(folder)) is not None:
            raise _wrong(f"read_only_mounts= has undo state in it, {state}; mount a folder without any")
        return str(folder)


def _wrong(problem: str) -> PromptValidationError:
    return PromptValidationError(f"PodmanSandboxConfig {problem}.")


__all__ = ["PodmanSandboxConfig"]
