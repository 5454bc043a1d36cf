"""Taking files out of a workspace, into a folder of the host."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, final

from ...errors import PathRefusedError
from ...filesystem import FileChanges, Filesystem, HostFilesystem
from ...filesystem.paths import reserved

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


__all__ = ["ExportedChanges", "ExportedFiles", "export_files", "undo_state_in"]
