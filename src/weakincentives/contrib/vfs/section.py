"""The suite for files: tools to find, read, write and edit them, and a policy against overwriting unread ones."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from ...errors import PromptValidationError
from ...filesystem import FileChanges, Filesystem, HostFilesystem, InMemoryFilesystem
from ...filesystem.search.walk import FilesystemTree, walk_files
from ...prompt import MarkdownSection
from ...prompt.section import suite_config
from ...session import SessionProtocol
from ..files.mounts import Copied, ExportedChanges, HostMount, copy_in, export_files, undo_state_in
from ..files.reading import reading_tools
from ..files.tool_parts import EXAMPLE_FILES, ToolNames
from ..files.tracked import TrackedFilesystem, TrackedMemory
from ..files.writing import writing_tools

# Which files a `VfsToolsSection` works on.


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
        watch: "scan" with a `root`: what programs change in the folder during a failing call of a tool that may start
            some is undone as well; see `HostFilesystem`. The tools of this section start none.

    `PromptValidationError` for what cannot go together.
    """

    root: str | os.PathLike[str] | None = None
    files: Mapping[str, str | bytes] = field(default_factory=dict[str, str | bytes])
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


class VfsToolsSection(MarkdownSection[Any]):
    r"""Files for a model, bound as the prompt's `Filesystem`: every failed call leaves them as they were.

    They live with the section: two evaluations that use the same section work on the same files, so make one for each
    conversation. A prompt has one `Filesystem`; a second suite of this kind takes `VfsConfig(shared=True)` and a
    `tool_prefix`. Files in a `root` folder are closed by `close`, by leaving a `with` block, or with the section.

    Attributes:
        mounted: what was copied in.

    Args:
        session: as for every suite; files keep nothing in it.
        config: which files; empty ones in memory unless given.
        tool_prefix: put before the name of each tool.

    `PromptValidationError` for a config that cannot be, a mount that is refused, or a prefix that makes no tool name.

    >>> vfs = VfsToolsSection(config=VfsConfig(files={"notes.txt": "buy milk\n"}))
    >>> vfs.filesystem.write("notes.txt", "buy tea\n")
    >>> print(vfs.diff(), end="")
    --- a/notes.txt
    +++ b/notes.txt
    @@ -1 +1 @@
    -buy milk
    +buy tea
    """

    def __init__(
        self,
        session: SessionProtocol | None = None,
        config: VfsConfig | None = None,
        *,
        accepts_overrides: bool = False,
        key: str = "vfs",
        title: str = "Files",
        tool_prefix: str = "",
    ) -> None:
        config = suite_config(VfsConfig, session, config)
        names = ToolNames(tool_prefix)
        tools = reading_tools(names, accepts_overrides=accepts_overrides)
        if not config.read_only:
            tools += writing_tools(
                names, read_before_write=config.read_before_write, accepts_overrides=accepts_overrides
            )
        guarded = config.read_before_write and not config.read_only
        self._files: TrackedFilesystem | TrackedMemory | None = None
        self.mounted: tuple[Copied, ...] = ()
        self._root = None if config.root is None else Path(config.root).resolve()
        if not config.shared:
            self._files, self.mounted = config.open()
        super().__init__(
            title=title,
            template=_text(names, config, self.mounted).replace("$", "$$"),
            key=key,
            tools=tools,
            policies=[names.read_before_write()] if guarded else [],
            accepts_overrides=accepts_overrides,
        )

    @property
    def filesystem(self) -> TrackedFilesystem | TrackedMemory:
        """The files; `PromptValidationError` when they are not the section's own but shared."""
        if self._files is None:
            raise PromptValidationError(
                f"Section {self.key!r} shares the prompt's files and has none of its own; "
                "ask the section that binds them."
            )
        return self._files

    def resources(self) -> Mapping[type[Any], object]:
        """The files, as the prompt's `Filesystem`; nothing when they are shared."""
        return {} if self._files is None else {Filesystem: self._files}

    def example_resources(self) -> Mapping[type[Any], object]:
        """Files for the examples, so that a check of the prompt holds whatever its own files are, and spares them."""
        return {Filesystem: InMemoryFilesystem(EXAMPLE_FILES)}

    def changes(self) -> FileChanges:
        """Which files differ from what they were when the section was made."""
        return self.filesystem.differences()

    def diff(self) -> str:
        """What was done to the files since the section was made, as a unified diff; empty when nothing was."""
        return self.filesystem.diff()

    def export(self, directory: str | os.PathLike[str], *, everything: bool = False) -> ExportedChanges:
        """Write the files that were added or changed into a folder of the host, or all files with `everything`.

        Files that are there are replaced; nothing is deleted, but what was removed is named in the result. All or
        nothing: when one cannot be written, the folder is as it was. Undo state is never written; with `everything`,
        what there is of it in a `root` is named in the result (`left_out`) and in a warning.
        """
        fs = self.filesystem
        found = fs.differences()
        paths = list(walk_files(FilesystemTree(fs))) if everything else [*found.added, *found.changed]
        hidden = [] if self._root is None or not everything else undo_state_in(self._root)
        left_out = export_files(fs, paths, directory, hidden=hidden)
        return ExportedChanges(found.added, found.changed, found.removed, left_out)

    def close(self) -> None:
        """Give back what a `root` folder holds; what was written stays. Calling it twice is fine."""
        if self._files is not None:
            self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


_READING = """\
Use these tools to {verbs} files in {where}. Paths start at its root, such as `src/main.py`; nothing outside of it can
be reached.

- Look before you act: `{p}list_directory`, `{p}glob_files` and `{p}search_files` find files by place and name,
  `{p}grep_files` finds lines by content.
- `{p}read_file` shows numbered lines. Long files come in pages: go on with `offset`. The numbers are not part of the
  text."""

_WRITING = """
- Prefer `{p}edit_file` for a change to a part of a file: it replaces one exact piece of text. `{p}write_file` writes
  the whole file.
- A call that fails changes nothing."""

_READ_FIRST = """
- Read a file before you change it, and again when something else has changed it."""


def _text(names: ToolNames, config: VfsConfig, mounted: tuple[Copied, ...]) -> str:
    text = _READING
    if not config.read_only:
        text += _WRITING + (_READ_FIRST if config.read_before_write else "")
    text = text.format(
        p=names.prefix,
        verbs="read" if config.read_only else "read and write",
        where="a workspace" if config.root is None else "a folder",
    )
    if mounted:
        listed = ", ".join(f"{copied.files} files in `{copied.mount.into}`" for copied in mounted)
        text += f"\n- Copied in at the start: {listed}. Changes stay in the workspace until they are taken out."
    return text
