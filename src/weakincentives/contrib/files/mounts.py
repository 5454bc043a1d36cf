"""Copying folders of the host into a workspace: what was asked for, within limits, inside allowed roots."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self, final

from ...errors import PathRefusedError, PromptValidationError
from ...filesystem import FileChanges, Filesystem, HostFilesystem
from ...filesystem.paths import ROOT, join, normalise
from ...filesystem.reserved import reserved
from ...filesystem.search.globs import Glob


@dataclass(frozen=True, slots=True)
class HostMount:
    """A folder of the host, copied in once; changes made later on either side do not reach the other.

    Attributes:
        path: the folder.
        into: where its files go in the workspace.
        include, exclude: globs as in pathlib, from the folder; one without a slash counts at any depth. A file is
            copied when some `include` and no `exclude` matches it.
        gitignore: leave out what `.gitignore` files say.
        max_bytes, max_file_bytes: more is refused.
    """

    path: str | os.PathLike[str]
    into: str = ROOT
    include: Sequence[str] = ("**",)
    exclude: Sequence[str] = ()
    gitignore: bool = False
    max_bytes: int = 64 * 1024 * 1024
    max_file_bytes: int = 8 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("include", "exclude"):
            if isinstance(getattr(self, name), str):
                raise PromptValidationError(f"HostMount {name}= takes several globs: {name}=('*.py',).")
        if self.max_bytes < 1 or self.max_file_bytes < 1:
            raise PromptValidationError("HostMount max_bytes and max_file_bytes must be positive.")


class Copied(NamedTuple):
    """What a mount brought: number and size of the files, and what was left out because it is not an ordinary file."""

    mount: HostMount
    files: int
    size: int
    skipped: tuple[str, ...]


def copy_in(mount: HostMount, target: Filesystem, allowed_roots: Iterable[str | os.PathLike[str]]) -> Copied:
    """Copy the folder's files into the target.

    `PromptValidationError` when the folder is not inside an allowed root once all symlinks are resolved, is not a
    folder, is part of undo state, or holds more than the limits. Symlinks in it are never followed: they are left out
    and named in the result. Undo state in it is left out.
    """
    folder = _allowed(mount, allowed_roots)
    into = normalise(mount.into)
    count, size, skipped = 0, 0, list[str]()
    with HostFilesystem(folder, read_only=True) as source:
        for path in _chosen(mount, source, skipped):
            data = source.read_bytes(path, limit=mount.max_file_bytes + 1)
            size += len(data)
            if len(data) > mount.max_file_bytes:
                _refuse(mount, f"{path!a} is over {mount.max_file_bytes:,} bytes. Exclude it, or raise max_file_bytes=")
            if size > mount.max_bytes:
                _refuse(
                    mount, f"its files are over {mount.max_bytes:,} bytes together. Exclude some, or raise max_bytes="
                )
            target.write(join(into, path), data)
            count += 1
    return Copied(mount, count, size, tuple(sorted(skipped)))


def _allowed(mount: HostMount, allowed_roots: Iterable[str | os.PathLike[str]]) -> Path:
    roots = [Path(root).resolve() for root in allowed_roots]
    folder = Path(mount.path).resolve()
    if not any(folder.is_relative_to(root) for root in roots):
        listed = ", ".join(str(root) for root in roots) or "none"
        _refuse(
            mount, f"it is not inside an allowed root (allowed: {listed}). Name one in the config: allowed_roots=[...]"
        )
    if not folder.is_dir():
        _refuse(mount, "it is not a folder. Mounts copy folders; choose single files with include=")
    if any(map(reserved, folder.parts)):
        _refuse(mount, "it holds undo state, whose old contents must not be shown. Mount the folder it is kept for")
    return folder


def _chosen(mount: HostMount, source: Filesystem, skipped: list[str]) -> Iterator[str]:
    include, exclude = _globs(mount.include), _globs(mount.exclude)
    for path in source.glob("**", gitignore=mount.gitignore):
        if any(_matches(glob, path) for glob in include) and not any(_matches(glob, path) for glob in exclude):
            kind = source.stat(path).kind
            if kind == "file":
                yield path
            elif kind != "directory":
                skipped.append(path)


def _globs(patterns: Sequence[str]) -> list[Glob]:
    return [Glob(pattern if "/" in pattern or pattern == "**" else f"**/{pattern}") for pattern in patterns]


def _matches(glob: Glob, path: str) -> bool:
    """Whether the pattern matches the file, or a directory above it."""
    states, done = glob.start, False
    parts = path.split("/")
    for index, part in enumerate(parts):
        states, done = glob.step(states, part)
        if index < len(parts) - 1 and glob.accepts(states, "directory", done=done):
            return True
    return glob.accepts(states, "file", done=done)


def _refuse(mount: HostMount, problem: str) -> None:
    raise PromptValidationError(f"HostMount of {os.fspath(mount.path)!a}: {problem}.")


# Taking files out of a workspace, into a folder of the host.


_log = logging.getLogger(__name__)


@final
class ExportedFiles(tuple[str, ...]):  # noqa: SLOT001 - a tuple's subclass can have no slots but empty ones
    """The paths of the files that were written.

    Attributes:
        left_out: what was not, because it is undo state or has a name that is reserved for it.
    """

    left_out: tuple[str, ...]

    def __new__(cls, paths: Iterable[str], left_out: Iterable[str] = ()) -> Self:
        """Of both."""
        self = super().__new__(cls, paths)
        self.left_out = tuple(left_out)
        return self


@final
@dataclass(frozen=True, slots=True)
class ExportedChanges(FileChanges):
    """What was changed, of which the files that were added or changed are written.

    Attributes:
        left_out: what was not, because it is undo state or has a name that is reserved for it.
    """

    left_out: tuple[str, ...] = ()


def undo_state_in(root: str | os.PathLike[str]) -> list[str]:
    """The paths of undo state in a folder, sorted. No method of a filesystem shows them; symlinks are not followed."""
    found: list[str] = []
    for at, directories, files, _ in os.fwalk(root):
        hidden = list(filter(reserved, directories))
        found += (os.path.relpath(f"{at}/{name}", root) for name in (*hidden, *filter(reserved, files)))
        directories[:] = [name for name in directories if name not in hidden]
    return sorted(found)


def export_files(
    fs: Filesystem, paths: Iterable[str], directory: str | os.PathLike[str], *, hidden: Iterable[str] = ()
) -> tuple[str, ...]:
    """Write these files below the directory, which is made if it is missing; files that are there are replaced.

    All or nothing: when one cannot be written, the directory is as it was and the error is raised. Nothing outside the
    directory is written, whatever symlinks it holds. `PathRefusedError` for a directory in which undo state is kept;
    paths that could be taken for undo state are left out. Those are returned, and a warning names them, together with
    `hidden`: the paths of what `fs` does not show.
    """
    folder = Path(directory).resolve()
    if any(map(reserved, folder.parts)):
        raise PathRefusedError(f"{str(folder)!a} is kept for undo state, so nothing is exported to it; name another.")
    wanted, left_out = list[str](), list(hidden)
    for path in paths:
        (left_out if any(map(reserved, path.split("/"))) else wanted).append(path)
    if left_out:
        _log.warning("Not exported, because the names are reserved for undo state: %s", ascii(left_out))
    folder.mkdir(parents=True, exist_ok=True)
    with HostFilesystem(folder) as target:
        before = target.savepoint()
        try:
            for path in wanted:
                target.write(path, fs.read_bytes(path))
        except BaseException:
            target.restore(before)
            raise
        target.release(before)
    return tuple(left_out)
