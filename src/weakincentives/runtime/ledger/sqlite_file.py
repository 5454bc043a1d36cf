"""Opening the file of a ledger, or of a store that keeps one: create it, or refuse a file of another kind."""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
import random
import sqlite3
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import final
from weakref import ref

from ...errors import LedgerError, WinkError
from ...private_files import ensure_private
from .rows import COLUMNS, FORMER_ROWS_INDEX, SCHEMA_VERSION, TABLE

_log = logging.getLogger(__name__)

APPLICATION_ID = 0x57494E4B
"""`WINK` in the header of the file, to tell ledgers from other databases."""


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    with suppress(OSError, AttributeError):  # macOS
        ask = ctypes.CDLL(None).sysctlbyname
        answer, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
        if ask(b"kern.bootsessionuuid", answer, ctypes.byref(size), None, ctypes.c_size_t(0)) == 0 and answer.value:
            return answer.value.decode("ascii", "replace")
    return "unknown"  # leases end late after a boot, never early


BOOT = _boot()
"""Names the machine's monotonic clock: it starts anew with each boot."""

_NETWORK = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB",
    0xFF534D42: "CIFS",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x73757245: "Coda",
    0x01021997: "9P",
    0x0BD00BD0: "Lustre",
    0x7461636F: "OCFS2",
    0x01161970: "GFS2",
    0x47504653: "GPFS",
    0x19830326: "BeeGFS",
    0x013111A8: "IBRIX",
}
_FUSE = 0x65735546
_FUSE_NETWORK = ("sshfs", "s3fs", "rclone", "gluster", "gcsfuse", "goofys", "blobfuse", "davfs", "ceph", "juicefs")


class NotALedgerError(LedgerError):
    """The file exists, and is not a ledger."""


@final
@dataclass(frozen=True, slots=True)
class FileUse:
    """What a program uses a file for; whatever that is, the file holds the tables of a ledger too.

    Attributes:
        noun: what the file is called in messages.
        kind: the same, for a file that is not one.
        holds: what other users must not read.
        loss: what goes wrong without the file.
        server: the class to use for several machines.
        error: what is raised when the file cannot be used, and `not_one` when it is a file of another kind.
        durable: whether a commit waits for the disk, so that it survives a power cut.
    """

    noun: str
    kind: str
    holds: str
    loss: str
    server: str
    error: type[WinkError]
    not_one: type[WinkError]
    durable: bool = True


LEDGER_FILE = FileUse(
    "ledger", "an effect ledger", "arguments and results of calls", "effects would be repeated",
    "PostgresEffectLedger", LedgerError, NotALedgerError,
)  # fmt: skip


def connect(path: Path, use: FileUse = LEDGER_FILE) -> sqlite3.Connection:
    """A connection to the file at `path`, which is created if it is missing.

    The error that `use` names when it is of another kind, or cannot be there; `sqlite3.Error` is left to the caller, to
    be retried or explained by `error_from_sqlite`.
    """
    if not path.parent.is_dir():
        raise use.error(f"The {use.noun} cannot be made: there is no directory {path.parent}. Make it first.")
    network = network_filesystem(path.parent)
    if network is not None:
        raise use.error(
            f"The {use.noun} {path} would be on a network filesystem ({network}), where SQLite's locks do not hold. "
            f"Put it on a local disk, or use {use.server} for several machines."
        )
    with suppress(OSError):  # SQLite fails for the same reason, and its error is explained
        ensure_private(path)
    _report_open_to_others(path, use)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        _check(connection, path, use)
        _set_wal(connection, path, use)
        if use.durable:  # less may lose a claim in a power cut, and repeat its effect
            connection.execute("PRAGMA synchronous = FULL")
        else:
            connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: flush the cache of the drive too; no effect elsewhere
        connection.execute("PRAGMA trusted_schema = OFF")
        if connection.execute("PRAGMA user_version").fetchone()[0] < SCHEMA_VERSION:
            _create_tables(connection)
    except BaseException:
        connection.close()
        raise
    return connection


_reported: set[Path] = set()


def _report_open_to_others(path: Path, use: FileUse) -> None:
    """Log once per process that other users can read or write an existing file; its mode is left to its owner."""
    if path in _reported:
        return
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):
            mode = name.stat().st_mode & 0o777
            if mode & 0o077:
                _reported.add(path)
                _log.warning(
                    "Other users may get at the %s's file %s (mode %04o), which holds %s. Unless that is wanted, run: "
                    "chmod 600 %s*",
                    use.noun,
                    name,
                    mode,
                    use.holds,
                    path,
                )
                return


def _check(connection: sqlite3.Connection, path: Path, use: FileUse) -> None:
    """Refuse a database of another kind, and one of a newer version."""
    connection.execute("BEGIN")  # read all three at once: another process may be creating the ledger
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    finally:
        connection.execute("ROLLBACK")
    if application == 0 and version == 0 and tables == 0:
        return
    if application != APPLICATION_ID:
        raise use.not_one(f"{path} is a SQLite database, but not {use.kind}. Choose another file.")
    if version > SCHEMA_VERSION:
        raise use.error(
            f"The {use.noun} {path} has version {version}, but this WINK knows versions up to {SCHEMA_VERSION}. "
            "Update it."
        )


def _set_wal(connection: sqlite3.Connection, path: Path, use: FileUse) -> None:
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise use.error(f"The {use.noun} {path} is on a filesystem without shared memory. Put it on a local disk.")


def _create_tables(connection: sqlite3.Connection) -> None:
    """Create or upgrade the tables; of several processes that start together, one does it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 1:
            _upgrade(connection)
        if version == 0:
            connection.execute(f"{TABLE} WITHOUT ROWID")
            connection.execute(FORMER_ROWS_INDEX)
            connection.execute("CREATE TABLE wink_tokens (last INTEGER NOT NULL)")
            connection.execute("INSERT INTO wink_tokens VALUES (0)")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _upgrade(connection: sqlite3.Connection) -> None:
    """Copy the table of version 1, since SQLite adds no column without a default."""
    columns = f"{COLUMNS}, lease_until, lease_clock"
    connection.execute("ALTER TABLE wink_effects RENAME TO wink_effects_1")
    connection.execute(f"{TABLE} WITHOUT ROWID")
    connection.execute(FORMER_ROWS_INDEX)
    connection.execute(f"INSERT INTO wink_effects ({columns}, key_form) SELECT {columns}, 1 FROM wink_effects_1")  # noqa: S608 - constants
    connection.execute("DROP TABLE wink_effects_1")


def identity(path: Path) -> tuple[int, int]:
    """Which file is at the path now; zeros when there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked before every transaction
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)


def network_filesystem(directory: Path) -> str | None:
    """The name of the network filesystem that a directory is on; None when it is local or unknown."""
    magic = _magic(directory)
    if magic == _FUSE:
        kind = _mounted_as(directory)
        return kind if any(name in kind for name in _FUSE_NETWORK) else None
    return _NETWORK.get(magic)


def _magic(directory: Path) -> int:
    """The type of filesystem according to `statfs`; 0 where it is not available."""
    try:
        statfs = ctypes.CDLL(None, use_errno=True).statfs
    except (OSError, AttributeError):
        return 0
    buffer = ctypes.create_string_buffer(512)  # larger than any struct statfs; the kind comes first
    if statfs(os.fsencode(directory), buffer) != 0:
        return 0
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF


def _mounted_as(directory: Path) -> str:
    """The type of the mount that holds a directory, such as "fuse.sshfs"."""
    here, found, longest = f"{directory.resolve()}/", "fuse", -1
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
            fields = line.split(" ")
            point = fields[4].replace("\\040", " ").rstrip("/") + "/"
            if here.startswith(point) and len(point) >= longest:
                longest, found = len(point), fields[fields.index("-") + 1]
    return found


def error_from_sqlite(error: sqlite3.Error, path: Path, use: FileUse = LEDGER_FILE) -> WinkError:
    """What an error of SQLite means for the file, and what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    what = f"The {use.noun} {path}"
    if code == sqlite3.SQLITE_NOTADB:
        return use.not_one(f"{path} is not a SQLite database, so not {use.kind}. Choose another file.")
    if code == sqlite3.SQLITE_CORRUPT:
        return use.error(f"{what} is damaged ({error}). Restore it from a backup; do not go on without it.")
    if code == sqlite3.SQLITE_FULL:
        return use.error(f"{what} cannot grow: the disk is full. Make room, then try again.")
    if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY}:
        return use.error(f"{what} cannot be opened for writing ({error}). Check the path and its rights.")
    return use.error(f"{what} cannot be used: {error}.")


# Which processes wait for a SQLite file, so that the last writer lets others go first.
#
# A waiting process takes a shared advisory lock on the file's directory. A writer that sees the lock taken knows that
# another process waits. No process waits for this lock: it is only a sign, and the system drops it when a process
# dies. It is a lock on a byte (`fcntl`), which belongs to the open descriptor: `flock` on the directory is used by a
# `HostFilesystem` whose root it is. Systems other than Linux have no such locks for directories; there writers do not
# see who waits.


_YIELD_SECONDS = (0.0006, 0.0012)
"""Seconds that a writer waits for the others, which try several times within that."""


@final
class WriterQueue:
    """The place of one process in the queue; used under the ledger's lock."""

    __slots__ = ("__weakref__", "_directory", "_fd", "_waiting", "_yield_until")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd: int | None = None
        self._waiting = False
        self._yield_until = 0.0

    def join(self) -> None:
        """Show other processes that this one waits."""
        if not self._waiting:
            self._waiting = True
            with suppress(OSError):
                _lock(self._descriptor(), fcntl.F_RDLCK)

    def leave(self) -> None:
        """Show that it does not wait any more."""
        if self._waiting:
            self._waiting = False
            with suppress(OSError):
                _lock(self._descriptor(), fcntl.F_UNLCK)

    def wrote(self) -> None:
        """A transaction was committed: find out whether others wait."""
        with suppress(OSError):
            if _is_shared(self._descriptor()):
                self._yield_until = time.monotonic() + random.uniform(*_YIELD_SECONDS)  # noqa: S311 - not for secrets

    def give_way(self) -> None:
        """Before the next transaction: let the waiting processes go first."""
        left = self._yield_until - time.monotonic()
        if left > 0:
            time.sleep(left)

    def close(self) -> None:
        """Release the directory."""
        fd = self._own()
        if fd is not None and _descriptors.pop(fd, None) is not None:
            with suppress(OSError):
                os.close(fd)
        self._fd, self._waiting = None, False

    def _own(self) -> int | None:
        """The descriptor, unless its number may be another's: after a fork, or in a finalizer of garbage it is part of.

        Then the garbage collector has closed it already: it calls weak references first, and finalizers later.
        """
        held = None if self._fd is None else _descriptors.get(self._fd)
        return None if held is None or held() is not self else self._fd

    def _descriptor(self) -> int:
        fd = self._own()
        if fd is None:  # a lock that came through a fork is the parent's too
            fd = self._fd = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            held = _Descriptor(self, _CLOSE)
            held.close = partial(os.close, fd)
            _descriptors[fd] = held  # instead of one that was closed when its queue went
        return fd


_FIRST_BYTE = struct.Struct("hhqqi")
"""Linux's `struct flock`: kind, from where, start, length, process."""

_HAS_LOCKS = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")


def _lock(fd: int, kind: int) -> None:
    if _HAS_LOCKS:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FIRST_BYTE.pack(kind, os.SEEK_SET, 0, 1, 0))


def _is_shared(fd: int) -> bool:
    """Whether another descriptor has the lock."""
    if not _HAS_LOCKS:
        return False
    found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FIRST_BYTE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    return _FIRST_BYTE.unpack_from(found)[0] != fcntl.F_UNLCK


@final
class _Descriptor(ref[WriterQueue]):
    """Closes a descriptor when its queue goes, in C code: an interrupt in a `__del__` would be lost."""

    __slots__ = ("close",)

    close: Callable[[], None]


_CLOSE = methodcaller("close")
_descriptors: dict[int, _Descriptor] = {}
"""Those that this process has opened, by their numbers; a forked child has opened none."""

os.register_at_fork(after_in_child=_descriptors.clear)
