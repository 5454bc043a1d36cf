"""One writer at a time: a lock on the root directory itself, so that it excludes other users, too."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import final

from ...errors import JournalError
from .syscalls import DIRECTORY, Syscalls


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


__all__ = ["RootLock", "holders_of"]
