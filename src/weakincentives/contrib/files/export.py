"""Taking files out of a workspace, into a folder of the host."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ...filesystem import Filesystem, HostFilesystem


def export_files(fs: Filesystem, paths: Iterable[str], directory: str | os.PathLike[str]) -> None:
    """Write these files below the directory, which is made if it is missing; files that are there are replaced.

    All or nothing: when one cannot be written, the directory is as it was and the error is raised. Nothing outside the
    directory is written, whatever symlinks it holds.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    with HostFilesystem(directory) as target:
        before = target.savepoint()
        try:
            for path in paths:
                target.write(path, fs.read_bytes(path))
        except BaseException:
            target.restore(before)
            raise
        target.release(before)


__all__ = ["export_files"]
