"""Taking files out of a workspace, into a folder of the host."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from ...errors import PathRefusedError
from ...filesystem import Filesystem, HostFilesystem
from ...filesystem.paths import reserved

_log = logging.getLogger(__name__)


def export_files(fs: Filesystem, paths: Iterable[str], directory: str | os.PathLike[str]) -> tuple[str, ...]:
    """Write these files below the directory, which is made if it is missing; files that are there are replaced.

    All or nothing: when one cannot be written, the directory is as it was and the error is raised. Nothing outside the
    directory is written, whatever symlinks it holds. `PathRefusedError` for a directory in which undo state is kept;
    paths that could be taken for undo state are left out. Those are returned, and a warning names them.
    """
    folder = Path(directory).resolve()
    if any(map(reserved, folder.parts)):
        raise PathRefusedError(f"{str(folder)!a} is kept for undo state, so nothing is exported to it; name another.")
    wanted, left_out = list[str](), list[str]()
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


__all__ = ["export_files"]
