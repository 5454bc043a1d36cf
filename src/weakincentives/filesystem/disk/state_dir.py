"""What is needed to undo: instructions in the user's private directory, and kept files in the root's vault.

The *entry* is a directory in the private one. It holds `journal`, `mirror/` and `root`, which says where the vault is.
The *vault* holds what was there before: images of old files, staged and discarded ones, and `tx`, the number of the
open transaction. It is on the root's own filesystem, so that moving things in and out is one step. Where the private
directory is there, too, both are the same directory. Nothing in a vault is ever read as an instruction.

All of it is used by one writer at a time, who holds the root's lock.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple, final

from ...errors import JournalError
from .confine import is_ours, remove
from .syscalls import DIRECTORY, Syscalls, look

_log = logging.getLogger(__name__)

MIRROR: Final = "mirror"
MARKER: Final = f"{MIRROR}/open"
"""What `watch="scan"` keeps in the entry."""

JOURNAL: Final = "journal"
RECORD: Final = "root"
TX: Final = "tx"
LOCK: Final = ".lock"
"""With the entry's name before it: a file beside the entry, which stands for a root that cannot be locked itself."""
IDLE: Final = bytes(16)
"""What `tx` holds while no transaction is open."""


MAC_SIZE: Final = 16


@final
class Authenticator:
    """Computes the MACs of one root's files."""

    __slots__ = ("_copy",)

    def __init__(self, key: bytes) -> None:
        self._copy = blake2b(key=key, digest_size=2 * MAC_SIZE).copy  # a copy costs less than a new keyed hash

    def mac(self, kind: bytes, before: bytes, content: bytes = b"") -> bytes:
        """The MAC of the content where it follows something."""
        return self.seal(kind, before, content)[:MAC_SIZE]

    def seal(self, kind: bytes, before: bytes, content: bytes) -> bytes:
        """The MAC, and as many bytes again that only the holder of the key can compute.

        `kind` is one byte and `before` has a fixed length, so that no two uses can be taken for each other.
        """
        state = self._copy()
        state.update(kind + before)
        state.update(content)
        return state.digest()


class StateBinding(NamedTuple):
    """What a journal or manifest belongs to; another root or vault never has the same."""

    root_inode: int
    root_born: int
    vault: str
    vault_inode: int
    vault_born: int


@final
class StateDir:
    """The opened entry and vault of one root. Holds its descriptors until `close`; its caller holds the root's lock.

    Attributes:
        fd: the vault.
        entry: the private entry; the same descriptor where they are one directory.
        keys: authenticates what is written to the entry.
        binding: what that belongs to.
        path: of the vault, for messages.
        inside: whether the vault is inside the root.
        lasting: whether another process could find it again. If not, nothing can be recovered after a crash.
    """

    __slots__ = (
        "_count",
        "_durable",
        "_holders",
        "_prefix",
        "_random",
        "_sys",
        "_tx",
        "_tx_fd",
        "binding",
        "entry",
        "fd",
        "inside",
        "keys",
        "lasting",
        "path",
    )

    def __init__(
        self,
        sys: Syscalls,
        entry: int,
        fd: int,
        tx_fd: int,
        *,
        keys: Authenticator,
        binding: StateBinding,
        path: str,
        inside: bool,
        lasting: bool,
        durable: bool,
    ) -> None:
        self._sys = sys
        self.entry: int = entry
        self.fd: int = fd
        self._tx_fd = tx_fd
        self.keys: Authenticator = keys
        self.binding: StateBinding = binding
        self.path: str = path
        self.inside: bool = inside
        self.lasting: bool = lasting
        self._durable = durable
        self._holders: set[str] = set()
        self._tx = IDLE
        self._prefix = os.urandom(6).hex()
        self._random = os.urandom(8)
        self._count = 0

    def new_name(self, what: str) -> str:
        """A name that is not in use: "image", "stage" or "trash" and a number."""
        self._count += 1
        return f"{what}-{self._prefix}-{self._count}"

    def watched(self) -> bool:
        """Whether a transaction that watches other programs is open, or was left open."""
        return look(self._sys, MARKER, self.entry) is not None

    def vanished(self) -> bool:
        """Whether another process removed it, having found nothing in it that was needed."""
        return self._sys.fstat(self._tx_fd).st_nlink == 0

    # --- the open transaction: its number is in the vault, and in the header of what can undo it

    def begin(self, holder: str) -> bytes:
        """The number of the open transaction, a new one where there is none. `holder` keeps it until `end`."""
        if not self._holders:
            self._count += 1
            tx = self._random + self._count.to_bytes(8, "big")  # never used before, and takes no system call
            self._sys.pwrite(self._tx_fd, tx, 0)
            if self._durable:
                self._sys.fsync(self._tx_fd)
            self._tx = tx
        self._holders.add(holder)
        return self._tx

    def end(self, holder: str) -> None:
        """The holder's part is committed or undone; with the last one, so is the transaction.

        What was committed before it stays so when this fails: the number only keeps old journals from being used again,
        and the next transaction replaces it.
        """
        self._holders.discard(holder)
        if not self._holders:
            self._tx = IDLE
            with suppress(OSError):
                self._sys.pwrite(self._tx_fd, IDLE, 0)

    def adopt(self, holders: Collection[str]) -> None:
        """Take over the transaction that another process left, of which these parts are there."""
        self._tx = self._sys.pread(self._tx_fd, len(IDLE), 0)
        self._holders = set(holders)

    @property
    def transaction(self) -> bytes:
        """The number of the open transaction."""
        return self._tx

    # --- cleaning

    def purge(self, name: str) -> None:
        """Remove a file or tree of ours; what cannot be removed now goes when the root is next opened."""
        with suppress(OSError):
            remove(self._sys, self.fd, name, self.new_name)

    def drop_mirror(self) -> None:
        """Remove what `watch="scan"` keeps, its description first; only while no such transaction is open."""
        for fd in dict.fromkeys((self.entry, self.fd)):
            with suppress(OSError):
                remove(self._sys, fd, MIRROR, self.new_name)

    def sweep(self, kept: Collection[str] = ()) -> None:
        """Remove all that a crash left; only with the lock held. `kept` are the names that the journal needs."""
        for name in self._sys.names(self.fd):
            if is_ours(name) and name not in kept:
                self.purge(name)
        if self.entry != self.fd:
            for name in self._sys.names(self.entry):
                if is_ours(name):
                    with suppress(OSError):
                        self._sys.unlink(name, dir_fd=self.entry)

    def reject(self, name: str, reason: object) -> None:
        """Put a file of the entry aside: nothing is undone by it. The images stay, for inspection."""
        aside = f"rejected-{os.urandom(6).hex()}"
        plain = name.rpartition("/")[2]
        for found in self._sys.names(self.fd):
            if found.startswith("image-") and is_ours(found):
                self.put_aside(found)
        self._sys.rename(name, f"{aside}-{plain}", source_fd=self.entry, target_fd=self.entry)
        _log.warning(
            "Nothing was undone in the root of %s, although a transaction seems to have been left open: its %s is not "
            "used, because %s. It was put aside as %s-%s.",
            self.path,
            plain,
            reason,
            aside,
            plain,
        )

    def put_aside(self, image: str) -> None:
        """Keep an image that is not used: it may be the only copy of something."""
        self._sys.rename(image, f"rejected-{image}", source_fd=self.fd, target_fd=self.fd)

    def is_empty(self) -> bool:
        """Whether nothing in it is needed any more; what a crash left is removed first."""
        journal = look(self._sys, JOURNAL, self.entry)
        if journal is not None and journal.st_size > 0:
            return False
        self.sweep()
        names = {*self._sys.names(self.fd), *self._sys.names(self.entry)}
        return names <= {JOURNAL, RECORD, TX}

    def close(self) -> None:
        """Close the descriptors."""
        fds = {self._tx_fd, self.fd, self.entry}
        self._tx_fd = self.fd = self.entry = -1
        for fd in fds:
            with suppress(OSError):
                self._sys.close(fd)


# One writer at a time: a lock on the root directory itself, so that it excludes other users, too.


@final
class RootLock:
    """Excludes every other process and every other object of this one. Holds a descriptor until `close`.

    Where the root may not be read, or its filesystem locks no directories, a file in the private directory stands for
    it, which excludes processes of the same user only.

    Args:
        sys: the operating system.
        root: the directory, for messages.
        root_fd: its handle.
        substitute: opens that file; raises `JournalError` where there is no private directory.
    """

    __slots__ = ("_fd", "_root", "_root_fd", "_substitute", "_substituted", "_sys")

    def __init__(self, sys: Syscalls, root: str, root_fd: int, substitute: Callable[[], int]) -> None:
        self._sys = sys
        self._root = root
        self._root_fd = root_fd
        self._substitute = substitute
        self._substituted = False
        self._fd = -1

    def lock(self, patience: float) -> None:
        """Exclude all others, waiting up to `patience` seconds; again does no harm.

        Raises `JournalError` naming the process that has it.
        """
        if self._fd < 0:
            self._open()
        deadline: float | None = None
        while True:
            try:
                self._sys.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not self._substituted or self._sys.fstat(self._fd).st_nlink:
                    return
                self.close()  # `wink state` removed that file: others lock the one that is there now
                self._open_substitute()
            except BlockingIOError:
                now = time.monotonic()
                deadline = now + patience if deadline is None else deadline
                if now >= deadline:
                    raise JournalError(self._held()) from None
                time.sleep(0.002)
            except OSError as error:
                if self._substituted:
                    raise JournalError(
                        f"{self._root} cannot be locked ({error.strerror}); use a local filesystem."
                    ) from error
                self.close()
                self._open_substitute()

    def unlock(self) -> None:
        """Let others write; without the lock it does nothing."""
        if self._fd >= 0:
            with suppress(OSError):  # locking again while it is held does no harm
                self._sys.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the descriptor, and with it the lock, back."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with suppress(OSError):
                self._sys.close(fd)

    def forget(self) -> None:
        """In a forked child: the lock is the parent's, and must not outlive it here."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        try:
            self._fd = self._sys.open(".", DIRECTORY, dir_fd=self._root_fd)
        except PermissionError:
            self._open_substitute()

    def _open_substitute(self) -> None:
        self._fd = self._substitute()
        self._substituted = True

    def _held(self) -> str:
        holder = next(iter(holders_of(self._sys.fstat(self._fd).st_ino)), 0)
        if holder == os.getpid():
            who = "another HostFilesystem of this process"
        else:
            who = f"process {holder}" if holder else "another process, or another HostFilesystem of this one,"
        return (
            f"{who} has a transaction open on {self._root}; one writer at a time. "
            "Wait until it is over, or give each its own root."
        )


def holders_of(inode: int) -> list[int]:
    """The processes that hold a lock on a file of that number, on any disk; none where the kernel does not tell."""
    holders = list[int]()
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and "->" not in fields and fields[5].endswith(f":{inode}"):
                holders.append(int(fields[4]))
    return holders
