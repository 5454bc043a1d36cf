"""What is needed to go back: instructions in the user's private directory, and kept files in the root's vault.

The *entry* is a directory in the private one. It holds `journal`, `mirror/` and `root`, which says where the vault is.
The *vault* holds what was there before: images of old files, staged and discarded ones, and `tx`, the number of the
open transaction. It is on the root's own filesystem, so that moving things in and out is one step. Where the private
directory is there, too, both are the same directory. Nothing in a vault is ever read as an instruction.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from contextlib import suppress
from typing import Final, NamedTuple, final

from .confine import is_ours
from .frames import Authenticator
from .removal import remove
from .syscalls import Syscalls

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


class Binding(NamedTuple):
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
        lasting: whether another process could find it again. If not, there is nobody to recover anything.
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
        key: bytes,
        binding: Binding,
        path: str,
        inside: bool,
        lasting: bool,
        durable: bool,
    ) -> None:
        self._sys = sys
        self.entry = entry
        self.fd = fd
        self._tx_fd = tx_fd
        self.keys = Authenticator(key)
        self.binding = binding
        self.path = path
        self.inside = inside
        self.lasting = lasting
        self._durable = durable
        self._holders: set[str] = set()
        self._tx = IDLE
        self._prefix = os.urandom(6).hex()
        self._random = os.urandom(8)
        self._count = 0

    def new_name(self, what: str) -> str:
        """A name that nobody uses: "image", "stage" or "trash" and a number."""
        self._count += 1
        return f"{what}-{self._prefix}-{self._count}"

    def watched(self) -> bool:
        """Whether a transaction that watches other programs is open, or was left open."""
        try:
            self._sys.stat(MARKER, dir_fd=self.entry)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

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
        """Put a file of the entry aside: nothing is undone by it. The images stay, for who wants to look at them."""
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
        try:
            if self._sys.stat(JOURNAL, dir_fd=self.entry).st_size > 0:
                return False
        except FileNotFoundError:
            pass
        self.sweep()
        names = {*self._sys.names(self.fd), *self._sys.names(self.entry)}
        return names <= {JOURNAL, RECORD, TX}

    def close(self) -> None:
        """Give the descriptors back."""
        fds = {self._tx_fd, self.fd, self.entry}
        self._tx_fd = self.fd = self.entry = -1
        for fd in fds:
            with suppress(OSError):
                self._sys.close(fd)


__all__ = ["IDLE", "JOURNAL", "MARKER", "MIRROR", "RECORD", "TX", "Binding", "StateDir"]
