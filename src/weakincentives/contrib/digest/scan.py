"""One walk through a workspace: which files there are, without those that `.gitignore` leaves out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from ...filesystem import Filesystem
from ...filesystem.paths import ROOT
from ...filesystem.search.gitignore import Ignore
from .digest import DigestConfig


class Entry(NamedTuple):
    """A file that counts."""

    path: str
    size: int
    modified: float
    mode: int

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def depth(self) -> int:
        """How many directories it is in."""
        return self.path.count("/")


@dataclass(slots=True, frozen=True)
class Scan:
    """What a walk found; the files are sorted by path.

    Attributes:
        complete: whether every directory was looked at.
        unreadable: how many could not be read.
    """

    files: tuple[Entry, ...]
    directories: int
    symlinks: int
    unreadable: int
    complete: bool
    fingerprint: str


def scan(fs: Filesystem, config: DigestConfig) -> Scan:
    """Walk a filesystem, the upper levels first, until `max_files` were seen. No file's content is read."""
    ignore = Ignore(fs.stream)
    files: list[Entry] = []
    counts = {"directory": 0, "symlink": 0, "unreadable": 0}
    waiting = deque([ROOT])
    while waiting and len(files) < config.max_files:
        try:
            children = fs.list(waiting.popleft())
        except OSError:  # gone since it was seen, or not ours to read
            counts["unreadable"] += 1
            continue
        for path, kind, size, modified, mode in (
            (child.path, child.kind, child.size, child.modified, child.mode)
            for child in children
            if not ignore.ignores(child.path, child.kind)
        ):
            if kind == "file":
                files.append(Entry(path, size, modified, mode))
            elif kind == "directory":
                counts["directory"] += 1
                waiting.append(path)
            else:
                counts["symlink"] += kind == "symlink"
    complete = not waiting and len(files) <= config.max_files
    files = sorted(files[: config.max_files])
    return Scan(
        tuple(files), counts["directory"], counts["symlink"], counts["unreadable"], complete,
        _fingerprint(files, counts, config),
    )  # fmt: skip


def _fingerprint(files: list[Entry], counts: dict[str, int], config: DigestConfig) -> str:
    state = blake2b(f"{config}{counts}".encode(), digest_size=16)
    for entry in files:
        state.update(f"{entry.path}\0{entry.size}\0{entry.modified!r}\0{entry.mode}\n".encode())
    return state.hexdigest()


__all__ = ["Entry", "Scan", "scan"]
