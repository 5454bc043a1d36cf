"""Where a root's vault is: described in its private entry, and made where that is on another disk.

Such a vault is beside the root, else in it, under a random name. Its description says how to tell it from another.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from hmac import compare_digest
from pathlib import Path
from typing import Final, NamedTuple, final

from .confine import Handle
from .state_dir import IDLE, RECORD, Authenticator
from .syscalls import CREATE, DIRECTORY, Syscalls, write_all

_VERSION: Final = "wink-root-2"
SAME: Final = "."
"""The vault's name where it is the entry itself."""

_vault_name = re.compile(r"\.|\.(?:[^/\0]+\.)?wink-[0-9a-f]{16}").fullmatch


class RootRecord(NamedTuple):
    """Which vault a root has; without an inode it is only intended."""

    path: str
    vault: str
    inside: bool
    inode: int = 0
    born: int = 0


def read_record(sys: Syscalls, entry: int, keys: Authenticator) -> RootRecord | None:
    """The description, or None where there is none, or one that is not authentic."""
    try:
        fd = sys.open(RECORD, os.O_RDONLY | os.O_NONBLOCK, dir_fd=entry)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:
            return None
        raise
    with Handle(sys, fd):
        data = sys.read(fd, 1 << 16) if stat.S_ISREG(sys.fstat(fd).st_mode) else b""
    if not compare_digest(data[:16], keys.mac(b"R", IDLE, data[16:])):
        return None
    version, *fields = json.loads(data[16:])
    if version != _VERSION:
        return None
    record = RootRecord(*fields)
    return record if _vault_name(record.vault) else None


def write_record(sys: Syscalls, entry: int, keys: Authenticator, record: RootRecord, *, durable: bool) -> None:
    """Put it in place in one step."""
    body = json.dumps((_VERSION, *record)).encode()
    staged = f"stage-{os.urandom(6).hex()}-0"
    fd = sys.open(staged, CREATE, 0o600, dir_fd=entry)
    try:
        try:
            write_all(sys, fd, keys.mac(b"R", IDLE, body) + body)
            if durable:
                sys.fsync(fd)
        finally:
            sys.close(fd)
        sys.rename(staged, RECORD, source_fd=entry, target_fd=entry)
    except BaseException:
        with suppress(OSError):
            sys.unlink(staged, dir_fd=entry)
        raise
    if durable:
        sys.fsync(entry)


def is_vault(sys: Syscalls, fd: int, record: RootRecord) -> bool:
    """Whether it is the directory that is described, and ours alone."""
    found = sys.fstat(fd)
    same = (found.st_ino, sys.born(fd)) == (record.inode, record.born)
    return same and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700


_UNUSABLE: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


class StateLocation(NamedTuple):
    """A place where a vault may be: a name in the root, or in the directory `parent`."""

    parent: str
    name: str
    inside: bool


def candidate_locations(root: str) -> tuple[StateLocation, ...]:
    """Where a vault may be that is not in the private directory, the preferred place first. The names are random."""
    parent, name = os.path.split(root)
    random = f"wink-{os.urandom(8).hex()}"
    inside = StateLocation(root, f".{random}", inside=True)
    if not name or len(os.fsencode(name)) > 230:
        return (inside,)
    return StateLocation(parent, f".{name}.{random}", inside=False), inside


def one_disk(sys: Syscalls, fd: int, root_fd: int) -> bool:
    """Whether moving something from one directory to the other is a single step."""
    return sys.fstat(fd).st_dev == sys.fstat(root_fd).st_dev and _mount(fd) == _mount(root_fd)


@final
class Vaults:
    """Makes and removes the vaults of one root. Its caller holds the root's lock."""

    __slots__ = ("_durable", "_root", "_root_fd", "_sys")

    def __init__(self, sys: Syscalls, root: str, root_fd: int, *, durable: bool) -> None:
        self._sys = sys
        self._root = root
        self._root_fd = root_fd
        self._durable = durable

    def make(self, intend: Callable[[RootRecord], None]) -> tuple[RootRecord, int, str]:
        """A vault beside the root, or in it; its description, its descriptor and the directory it is in.

        `intend` is told about it before it is made. Raises `PermissionError` when no place can be written.
        """
        for spot in candidate_locations(self._root):
            made: list[str] = []
            try:
                with self.parent(spot) as at:
                    if not spot.inside and not self._sys.access(".", os.W_OK, dir_fd=at):
                        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), spot.parent)
                    intend(RootRecord(self._root, spot.name, spot.inside))
                    return self._make_at(at, spot, made)
            except OSError as error:
                # Once it is made, the description of this one must stay, so that it is found and removed.
                if error.errno not in _UNUSABLE or spot.inside or made:
                    raise
        raise AssertionError("unreachable: the last spot is inside")

    def _make_at(self, at: int, spot: StateLocation, made: list[str]) -> tuple[RootRecord, int, str]:
        before = self._sys.fstat(at)
        self._sys.mkdir(spot.name, 0o700, dir_fd=at)
        made.append(spot.name)
        if spot.inside:  # the root looks as it did
            self._sys.utime(".", (before.st_atime_ns, before.st_mtime_ns), dir_fd=at)
        if self._durable:
            self._sys.fsync(at)
        fd = self._sys.open(spot.name, DIRECTORY, dir_fd=at)
        try:
            record = RootRecord(self._root, spot.name, spot.inside, self._sys.fstat(fd).st_ino, self._sys.born(fd))
        except BaseException:
            self._sys.close(fd)
            raise
        return record, fd, spot.parent

    def remove(self, spot: StateLocation) -> None:
        """Remove it if it is empty, else raise `OSError`."""
        with self.parent(spot) as at:
            before = self._sys.fstat(at)
            self._sys.rmdir(spot.name, dir_fd=at)
            if spot.inside:  # the root looks as it did
                self._sys.utime(".", (before.st_atime_ns, before.st_mtime_ns), dir_fd=at)

    @contextmanager
    def parent(self, spot: StateLocation) -> Generator[int, None, None]:
        """The directory that holds the spot; refused when moving between it and the root would be no single step."""
        name, base = (".", self._root_fd) if spot.inside else (spot.parent, None)
        with Handle(self._sys, self._sys.open(name, DIRECTORY, dir_fd=base)) as fd:
            if not spot.inside and not one_disk(self._sys, fd, self._root_fd):
                raise OSError(errno.EPERM, "on another filesystem", spot.parent)
            yield fd


def _mount(fd: int) -> str:
    """Which mount it is in: bind mounts share a device, yet nothing can be renamed between them."""
    with suppress(OSError):
        for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
            if line.startswith("mnt_id:"):
                return line
    return ""
