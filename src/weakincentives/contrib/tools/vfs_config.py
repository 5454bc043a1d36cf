"""Which files a `VfsToolsSection` works on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ...errors import PromptValidationError
from ...filesystem import HostFilesystem
from ..files.mounts import Copied, HostMount, copy_in
from ..files.originals import TrackedFilesystem, TrackedMemory


def _no_files() -> Mapping[str, str | bytes]:
    return {}


@dataclass(frozen=True, slots=True)
class VfsConfig:
    """The files are in memory, unless `root` names a folder: then they are the ones in that folder.

    Attributes:
        root: the folder to work in; made if it is missing.
        files: what is there in memory at the start, by path.
        mounts: folders of the host to copy in at the start, as `HostMount` or just as a path.
        allowed_roots: mounts must be inside one of these; without any, nothing can be mounted.
        read_only: refuse every write, and offer no tool that writes.
        read_before_write: a file must be read before it is overwritten.
        shared: bring no files; work on the `Filesystem` that something else binds in the prompt.
        watch: "scan" with a `root`: what other programs change in the folder during a call that fails is undone as
            well; see `HostFilesystem`.

    `PromptValidationError` for what cannot go together.
    """

    root: str | os.PathLike[str] | None = None
    files: Mapping[str, str | bytes] = field(default_factory=_no_files)
    mounts: Sequence[HostMount | str | os.PathLike[str]] = ()
    allowed_roots: Sequence[str | os.PathLike[str]] = ()
    read_only: bool = False
    read_before_write: bool = True
    shared: bool = False
    watch: Literal["scan"] | None = None

    def __post_init__(self) -> None:
        for name in ("mounts", "allowed_roots"):
            if isinstance(getattr(self, name), str | os.PathLike | HostMount):
                raise PromptValidationError(f"VfsConfig {name}= takes a sequence; write {name}=[...] around it.")
        if self.root is not None and (self.mounts or self.files):
            raise PromptValidationError(
                "VfsConfig root= works on that folder itself, so files= and mounts=, which fill memory, cannot be "
                "given beside it. Leave out one of them."
            )
        if self.watch not in {None, "scan"}:
            raise PromptValidationError(f'VfsConfig watch= is None or "scan", got {self.watch!r}.')
        if self.watch and (self.root is None or self.read_only):
            raise PromptValidationError(
                'VfsConfig watch="scan" is for a folder that is written to: give root=, and leave out read_only=.'
            )
        if self.shared and (self.root is not None or self.mounts or self.files):
            raise PromptValidationError("VfsConfig shared=True brings no files: leave out root=, files= and mounts=.")

    def open(self) -> tuple[TrackedFilesystem | TrackedMemory, tuple[Copied, ...]]:
        """The files, ready to be used, and what was copied in. Raises what opening the root or a mount raises."""
        if self.root is not None:
            if not self.read_only:
                Path(self.root).mkdir(parents=True, exist_ok=True)
            return TrackedFilesystem(HostFilesystem(self.root, read_only=self.read_only, watch=self.watch)), ()
        fs = TrackedMemory(self.files)
        mounts = [mount if isinstance(mount, HostMount) else HostMount(mount) for mount in self.mounts]
        copied = tuple(copy_in(mount, fs, self.allowed_roots) for mount in mounts)
        return TrackedFilesystem(fs.readonly()) if self.read_only else fs.begin(), copied


__all__ = ["VfsConfig"]
