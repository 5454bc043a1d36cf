"""What is in a directory tree, by a walk that asks for each entry's attributes but reads nothing.

Inode, size, mode, modification and change time together tell whether a file is still the same: the last one
cannot be set by programs. A file that changed so shortly before it was looked at that another change could have
the same time is marked, and its content is compared the next time.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, final

from ...errors import PathRefusedError
from ..paths import ROOT
from .confine import Handle, is_beneath, is_copy
from .disk_root import DiskRoot
from .journal import RejectedError
from .syscalls import DIRECTORY

_SETTLED_NS: Final = 100_000_000  # clocks of filesystems tick every 10 ms at worst


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file, directory, symlink or special file.

    Attributes:
        mode, uid, gid, size, mtime, ctime, inode: as the kernel says, times in ns.
        copy: the name of the content's copy; for a symlink, where it points.
        xattrs: extended attributes, values in hexadecimal.
        fresh: whether it might change without any of the above telling.
        opaque: whether it could not be read, or was too large to be copied, so that its content (all below a
            directory) is not known.
    """

    mode: int
    uid: int
    gid: int
    size: int
    mtime: int
    ctime: int
    inode: int
    copy: str = ""
    xattrs: tuple[tuple[str, str], ...] = ()
    fresh: bool = False
    opaque: bool = False

    def same(self, info: os.stat_result) -> bool:
        """Whether the kernel says the same as then."""
        return (
            self.ctime == info.st_ctime_ns
            and self.inode == info.st_ino
            and self.mtime == info.st_mtime_ns
            and self.size == info.st_size
            and self.mode == info.st_mode
        )

    def untouched(self, other: ManifestEntry) -> bool:
        """Whether the kernel said the same of both, so that there was no write between them."""
        return (self.ctime, self.inode, self.mtime, self.size) == (other.ctime, other.inode, other.mtime, other.size)

    def like(self, other: ManifestEntry) -> bool:
        """Whether a program that reads it would see no difference."""
        return (
            self.mode == other.mode
            and self.mtime == other.mtime
            and (self.uid, self.gid) == (other.uid, other.gid)
            and self.copy == other.copy
            and self.xattrs == other.xattrs
        )


Manifest = dict[str, ManifestEntry]
Describe = Callable[[str, int, str, os.stat_result, "ManifestEntry | None"], ManifestEntry]
"""Makes the entry of something that is new or changed: path, directory, name, attributes, the entry before."""


def entry(info: os.stat_result, now: int, **rest: Any) -> ManifestEntry:
    """An entry from what the kernel says."""
    fresh = info.st_ctime_ns > now - _SETTLED_NS
    return ManifestEntry(
        info.st_mode,
        info.st_uid,
        info.st_gid,
        info.st_size,
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_ino,
        fresh=fresh and stat.S_ISREG(info.st_mode),
        **rest,
    )


@final
class TreeScan:
    """One walk through the root. What did not change keeps the entry it had in `before`."""

    __slots__ = ("_before", "_describe", "_device", "_disk", "_kept", "_opened", "_sys", "found")

    def __init__(self, disk: DiskRoot, before: Manifest, describe: Describe, *, opened: Manifest | None = None) -> None:
        self._disk = disk
        self._sys = disk.sys
        self._before = before
        self._describe = describe
        self._opened = opened
        self._device = self._sys.fstat(disk.root_fd).st_dev
        self._kept = True
        self.found: Manifest = {}

    def run(self) -> Manifest:
        """The whole tree, the root itself as "."; `before` itself where nothing has changed."""
        info = self._sys.fstat(self._disk.root_fd)
        known = self._before.get(ROOT)
        self.found[ROOT] = known if known is not None and known.same(info) else entry(info, time.time_ns())
        pending = [ROOT]
        while pending:
            pending += self._directory(pending.pop())
        unchanged = self._kept and self.found[ROOT] is known and len(self.found) == len(self._before)
        return self._before if unchanged else self.found

    def _directory(self, path: str) -> list[str]:
        """Look at all that is in it; the directories among that."""
        try:
            handle = self._enter(path)
        except (FileNotFoundError, NotADirectoryError, PathRefusedError):  # swapped since it was seen
            return []
        except OSError as error:
            # It may not be read, or others have nested it more deeply than a path can say.
            if not isinstance(error, PermissionError) and error.errno != errno.ENAMETOOLONG:
                raise
            self._mark(path, opaque=True)
            return []
        if self.found[path].opaque:
            self._mark(path, opaque=False)
        with handle as fd:
            return self._children(path, fd)

    def _mark(self, path: str, *, opaque: bool) -> None:
        self.found[path] = replace(self.found[path], opaque=opaque)
        self._kept = False

    def _children(self, path: str, at: int) -> list[str]:
        """The same for an open directory. Nothing is done twice in here: it is the cost of every call."""
        before, found, device, inner = self._before, self.found, self._device, list[str]()
        hidden = self._disk.hidden if path == ROOT else ""
        above = "" if path == ROOT else f"{path}/"
        for name, info in self._sys.stats(at):
            if name == hidden:
                continue
            child = above + name
            known = before.get(child)
            if (
                known is None
                or known.ctime != info.st_ctime_ns  # `same`, without a call for each file
                or known.inode != info.st_ino
                or known.mtime != info.st_mtime_ns
                or known.size != info.st_size
                or known.mode != info.st_mode
                or known.fresh
            ):
                self._kept = False
                try:
                    known = self._describe(child, at, name, info, known)
                except FileNotFoundError:  # gone since it was listed
                    continue
            found[child] = known
            if stat.S_ISDIR(info.st_mode) and info.st_dev == device:
                inner.append(child)
        return inner

    def _enter(self, path: str) -> Handle:
        try:
            return self._disk.dirs.directory(path, DIRECTORY)
        except PathRefusedError:
            raise
        except PermissionError:
            # To restore what is in it, it must be opened, unless its content was never known.
            if self._opened is None or ((known := self._opened.get(path)) is not None and known.opaque):
                raise
            parent, name = self._disk.dirs.parent(path)
            with parent as at:
                self._sys.chmod(name, 0o700, dir_fd=at)
            return self._disk.dirs.directory(path, DIRECTORY)


def differences(before: Manifest, after: Manifest) -> tuple[Manifest, list[str]]:
    """The entries of `after` that `before` has not, or not the same, and the paths that only `before` has.

    Entries are compared by identity: a walk keeps those of what did not change, and all of them if nothing did.
    """
    if before is after:
        return {}, []
    differing = {path: e for path, e in after.items() if before.get(path) is not e}
    kept = len(after) - sum(path not in before for path in differing)
    return differing, [path for path in before if path not in after] if kept < len(before) else []


def pack(changed: Manifest, removed: Iterable[str]) -> bytes:
    """A step from one manifest to the next, as JSON."""
    rows = {
        path: (e.mode, e.uid, e.gid, e.size, e.mtime, e.ctime, e.inode, e.copy, e.xattrs, e.fresh, e.opaque)
        for path, e in changed.items()
    }
    return json.dumps((rows, list(removed)), separators=(",", ":")).encode()


def unpack(manifest: Manifest, data: bytes) -> None:
    """Take that step; raises `RejectedError` at anything that `pack` would not write, even if its MAC is right."""
    try:
        rows, removed = json.loads(data)
        for path in removed:
            manifest.pop(path, None)
        for path, row in rows.items():
            row[8] = tuple((key, value) for key, value in row[8])
            found = ManifestEntry(*row)
            if not (is_beneath(path) or path == ROOT) or not _is_sound(found):
                raise RejectedError("it has an entry that is never written")
            manifest[path] = found
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise RejectedError("it has an entry of another version") from error


def _is_sound(found: ManifestEntry) -> bool:
    if stat.S_ISREG(found.mode) and not found.opaque:
        return is_copy(found.copy)
    return isinstance(found.copy, str) and (stat.S_ISLNK(found.mode) or not found.copy)
