"""Where the state of a root is kept, how it is found again, and how it is made and removed.

| in the entry | how it came | what finding it does |
|---|---|---|
| nothing, or no `root` | never written; or killed after making it | as if there were none |
| `root` without a vault's inode: *intended* | killed around making the vault | removes the vault if it is empty |
| `root`, and the vault it describes | between transactions, or in one | uses it |
| `root`, but the vault is gone, or another | moved, swapped, planted | nothing is undone; a new one is made |
| `root` that is not authentic | damaged, copied | the same |

All of this happens with the root's lock held.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

from ...errors import JournalError
from ..reserved import reserved
from . import private_dir
from .confine import Handle
from .private_dir import NotPrivateError, PrivateDir, check_private
from .state_dir import IDLE, JOURNAL, LOCK, MARKER, MIRROR, RECORD, TX, Authenticator, RootLock, StateBinding, StateDir
from .syscalls import DIRECTORY, HANDLE, Syscalls, look
from .vaults import (
    SAME,
    RootRecord,
    StateLocation,
    Vaults,
    candidate_locations,
    is_vault,
    one_disk,
    read_record,
    write_record,
)

# What is said about a folder before it is opened as a root: that it is undo state, or has some of version 1.


_log = logging.getLogger(__name__)


def refuse_undo_state(root: str, location: str, *, given: bool) -> None:
    """Raise `ValueError` for a root that is a vault or the private directory, or is in one.

    `location` is the private directory in use, empty where there is none. If it was `given`, it is not the user's own,
    which is asked for as well.
    """
    private = [location]
    if given:
        with suppress(NotPrivateError):
            private.append(private_dir.location(None))
    if any(map(reserved, root.split("/"))) or any((root + "/").startswith(each + "/") for each in private if each):
        raise ValueError(f"{root!r} is where undo state is kept, so it cannot be a root; name another folder.")


def old_places(root: str) -> tuple[str, str]:
    """Where version 1 kept its state: beside the root, or in it."""
    parent, name = os.path.split(root)
    return f"{parent.rstrip('/')}/.{name}.wink", f"{root.rstrip('/')}/.wink"


def warn_of_old_state(root: str) -> None:
    """Say so if a version of WINK that kept its journal beside or in the root left one open. Reads nothing."""
    for path in old_places(root):
        with suppress(OSError):
            if path not in _warned and os.stat(path + "/journal", follow_symlinks=False).st_size > 0:  # noqa: PTH116
                _warned.add(path)
                _log.warning(
                    "%s has the journal of a transaction that an older version of WINK left open. It is not used, as "
                    "it could have been planted. To look at it, and have it undone: wink state import-v1 %s",
                    path,
                    root,
                )


_warned: set[str] = set()


def hides_state(root: str | os.PathLike[str], state_dir: str | os.PathLike[str] | None = None) -> bool:
    """Whether the root's vault is, or would be, inside it. Opens no transaction and changes nothing."""
    sys, path = Syscalls(), os.path.realpath(root)
    with Handle(sys, sys.open(path, HANDLE)) as root_fd:
        places = StateFinder(sys, path, root_fd, state_dir, durable=False)
        return places.must_hide() or places.is_hidden()


@final
class StateFinder:
    """Finds and makes the state of one root.

    Args:
        sys: the operating system.
        root: the directory, without symlinks.
        root_fd: its handle.
        state_dir: the private directory that was asked for; None stands for the user's.
        durable: wait for the disk.
    """

    __slots__ = ("_binding", "_durable", "_root", "_root_fd", "_sys", "_vaults", "location", "reason")

    def __init__(
        self, sys: Syscalls, root: str, root_fd: int, state_dir: str | os.PathLike[str] | None, *, durable: bool
    ) -> None:
        self._sys = sys
        self._root = root
        self._root_fd = root_fd
        self._durable = durable
        self._vaults = Vaults(sys, root, root_fd, durable=durable)
        self._binding = (sys.fstat(root_fd).st_ino, sys.born(root_fd))
        self.reason: str = ""
        self.location: str = ""
        try:
            self.location = private_dir.location(state_dir)
        except NotPrivateError as error:
            self.reason = str(error)
        # Programs that work in the root could write there.
        inside = bool(self.location) and (self.location + "/").startswith(root.rstrip("/") + "/")
        if inside and state_dir is not None:
            raise ValueError(f"state_dir must not be inside the root, got {state_dir!r} in {root!r}.")
        refuse_undo_state(root, self.location, given=state_dir is not None)
        if inside:
            self.reason, self.location = f"{self.location} is inside the root", ""

    # --- looking

    def must_hide(self) -> bool:
        """Whether a vault would be inside the root: no other place is on its disk and can be written."""
        if self.location:
            with suppress(OSError, NotPrivateError):
                opened = self._sys.open(private_dir.on_disk(self.location), HANDLE)
                with Handle(self._sys, opened) as fd:
                    if one_disk(self._sys, fd, self._root_fd):
                        return False
        spot = candidate_locations(self._root)[0]
        if spot.inside:
            return True
        with suppress(OSError), self._vaults.parent(spot) as parent:
            return not self._sys.access(".", os.W_OK, dir_fd=parent)
        return True

    def is_hidden(self) -> bool:
        """Whether there is a vault inside the root."""
        with suppress(NotPrivateError, FileNotFoundError):
            opened = self._find_entry()
            if opened is not None:
                home, entry = opened
                with Handle(self._sys, entry):
                    record = self._read(entry, self._keys(home))
                    return record is not None and record.inside
        return False

    def pending(self) -> bool:
        """Whether a transaction is open, or was left open; needs no lock."""
        with suppress(NotPrivateError, OSError):
            opened = self._find_entry()
            if opened is not None:
                with Handle(self._sys, opened[1]) as entry:
                    journal = look(self._sys, JOURNAL, entry)
                    if journal is not None and journal.st_size > 0:
                        return True
                    return look(self._sys, MARKER, entry) is not None
        return False

    def has_entry(self) -> bool:
        """Whether there may be something to find; needs no lock."""
        try:
            opened = self._find_entry()
        except JournalError:
            raise
        except (NotPrivateError, OSError):
            return False
        if opened is None:
            return False
        self._sys.close(opened[1])
        return True

    def find(self) -> StateDir | None:
        """What there is, or None; see the table above. What cannot be used is reported, and not used."""
        try:
            opened = self._find_entry()
        except NotPrivateError:
            return None
        if opened is None:
            return None
        home, entry = opened
        used = False
        try:
            record = self._read(entry, self._keys(home))
            if record is None:
                self._forget(home, entry, "its description is missing or not authentic")
                return None
            if not record.inode:
                self._remove_intended(record)
                self._forget(home, entry, "its vault was never made")
                return None
            found = self._open_vault(home, entry, record)
            used = found is not None
            if found is None:
                self._forget(home, entry, f"its vault {record.vault} is gone, was replaced, or is open to others")
            return found
        finally:
            if not used:
                self._sys.close(entry)

    def _find_entry(self) -> tuple[PrivateDir, int] | None:
        home = private_dir.find(self.location) if self.location else None
        if home is None:
            return None
        try:
            entry = self._sys.open(home.name(*self._binding), DIRECTORY, dir_fd=home.roots)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                raise NotPrivateError(f"{self.location} has something else where a directory should be") from error
            raise
        try:
            check_private(self._sys.fstat(entry), self.location)
        except NotPrivateError:
            self._sys.close(entry)
            raise
        return home, entry

    def _keys(self, home: PrivateDir) -> Authenticator:
        return Authenticator(home.root_key(home.name(*self._binding)))

    def _read(self, entry: int, keys: Authenticator) -> RootRecord | None:
        record = read_record(self._sys, entry, keys)
        if record is not None and not self._binding[1] and record.path != self._root:
            return None  # neither birth time nor generation is known: another root may have got the inode's number
        return record

    def _open_vault(self, home: PrivateDir, entry: int, record: RootRecord) -> StateDir | None:
        for parent in dict.fromkeys((str(Path(self._root).parent), str(Path(record.path).parent))):
            with suppress(OSError):
                fd = entry
                if record.vault != SAME:
                    with self._vaults.parent(StateLocation(parent, record.vault, record.inside)) as at:
                        fd = self._sys.open(record.vault, DIRECTORY, dir_fd=at)
                if self._is(fd, record):
                    return self._state(self._keys(home), entry, fd, record, parent)
                if fd != entry:
                    self._sys.close(fd)
        return None

    def _is(self, fd: int, record: RootRecord) -> bool:
        return is_vault(self._sys, fd, record) and one_disk(self._sys, fd, self._root_fd)

    def _state(
        self, keys: Authenticator, entry: int, fd: int, record: RootRecord, parent: str, *, lasting: bool = True
    ) -> StateDir:
        tx = self._sys.open(TX, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600, dir_fd=fd)
        found = self._sys.fstat(tx)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != os.geteuid():
            self._sys.close(tx)
            raise OSError(errno.EPERM, "not ours", TX)
        if found.st_size < len(IDLE):
            self._sys.pwrite(tx, IDLE, 0)
        above = self._root if record.inside else parent
        return StateDir(
            self._sys,
            entry,
            fd,
            tx,
            keys=keys,
            binding=StateBinding(*self._binding, record.vault, record.inode, record.born),
            path=self.location if record.vault == SAME else f"{above}/{record.vault}",
            inside=record.inside,
            lasting=lasting,
            durable=self._durable,
        )

    def _forget(self, home: PrivateDir, entry: int, reason: str) -> None:
        """Without its vault nothing can be undone. Says so if there was something; a new vault is made later."""
        aside = f"rejected-{os.urandom(6).hex()}"
        left = False
        for name in (JOURNAL, MIRROR):
            with suppress(FileNotFoundError):
                found = self._sys.stat(name, dir_fd=entry)
                if stat.S_ISREG(found.st_mode) and found.st_size == 0:
                    self._sys.unlink(name, dir_fd=entry)
                    continue
                self._sys.rename(name, f"{aside}-{name}", source_fd=entry, target_fd=entry)
                left = True
        for name in self._sys.names(entry):
            if name in {RECORD, TX} or name.startswith("stage-"):
                self._sys.unlink(name, dir_fd=entry)
            elif left and name.startswith("image-"):
                self._sys.rename(name, f"rejected-{name}", source_fd=entry, target_fd=entry)
        with suppress(OSError):  # unless something is left in it
            self._sys.rmdir(home.name(*self._binding), dir_fd=home.roots)
        if left:
            _log.warning(
                "Nothing was undone in %s, although it has kept state: %s. What it had is put aside as %s.",
                self._root,
                reason,
                aside,
            )

    def _remove_intended(self, record: RootRecord) -> None:
        parent = str(Path(self._root).parent)
        with suppress(OSError):
            self._vaults.remove(StateLocation(parent, record.vault, record.inside))

    # --- making

    def make(self) -> StateDir:
        """A new vault, and an entry that describes it; without a private directory only a vault, and one warning.

        Raises `PermissionError` when no place for a vault can be written.
        """
        try:
            with private_dir.unchanging_key(self._home().path):
                return self._make_lasting()
        except NotPrivateError as error:
            return self._make_volatile(str(error))

    def _make_lasting(self) -> StateDir:
        home, entry = self._make_entry()
        try:
            return self._make_in(home, entry)
        except BaseException:
            self._sys.close(entry)
            raise

    def _home(self) -> PrivateDir:
        if not self.location:
            raise NotPrivateError(self.reason)
        return private_dir.make(self.location)

    def _make_entry(self) -> tuple[PrivateDir, int]:
        home = self._home()
        with suppress(FileExistsError):
            self._sys.mkdir(home.name(*self._binding), 0o700, dir_fd=home.roots)
            if self._durable:
                self._sys.fsync(home.roots)
        opened = self._find_entry()
        if opened is None:
            raise FileNotFoundError(errno.ENOENT, "The private directory was removed just now", self.location)
        return opened

    def _make_in(self, home: PrivateDir, entry: int) -> StateDir:
        keys = self._keys(home)

        def describe(record: RootRecord) -> None:
            write_record(self._sys, entry, keys, record, durable=self._durable)

        if one_disk(self._sys, entry, self._root_fd):
            record = RootRecord(self._root, SAME, False, self._sys.fstat(entry).st_ino, self._sys.born(entry))
            describe(record)
            return self._state(keys, entry, entry, record, "")
        # Described before the vault is made: one that nothing describes would stay for ever.
        record, fd, parent = self._vaults.make(describe)
        try:
            describe(record)  # before anything is in the vault: now it is found again
            return self._state(keys, entry, fd, record, parent)
        except BaseException:
            self._sys.close(fd)
            raise

    def _make_volatile(self, reason: str) -> StateDir:
        """A vault that no other process knows of: an undo works here, but nothing can be undone after a crash."""
        record, fd, parent = self._vaults.make(lambda _: None)
        if self._root not in _warned:
            _warned.add(self._root)
            _log.warning(
                "What is written to %s can be undone by this process, but not after a crash: there is no private "
                "directory to keep the journal in (%s). Name one with state_dir=, or set XDG_STATE_HOME.",
                self._root,
                reason,
            )
        return self._state(Authenticator(os.urandom(32)), fd, fd, record, parent, lasting=False)

    # --- removing

    def remove(self, state: StateDir) -> None:
        """Remove vault and entry if nothing in them is needed; may be cut off at any point."""
        if state.vanished():
            return
        if not state.lasting or not state.watched():
            state.drop_mirror()
        if not state.is_empty():
            return
        for name in (JOURNAL, TX):
            for fd in {state.entry, state.fd}:
                with suppress(FileNotFoundError):
                    self._sys.unlink(name, dir_fd=fd)
        if state.binding.vault != SAME:
            self._vaults.remove(StateLocation(str(Path(state.path).parent), state.binding.vault, state.inside))
        if state.lasting:
            with suppress(FileNotFoundError):
                self._sys.unlink(RECORD, dir_fd=state.entry)
            home = private_dir.find(self.location)
            if home is not None:
                self._sys.rmdir(home.name(*self._binding), dir_fd=home.roots)
                with suppress(FileNotFoundError):  # a process that waits for it makes another
                    self._sys.unlink(home.name(*self._binding) + LOCK, dir_fd=home.roots)

    def substitute_lock(self) -> int:
        """A file that stands for the root where that cannot be locked; `JournalError` where there is none."""
        try:
            home = self._home()
            name = home.name(*self._binding) + LOCK
            return self._sys.open(name, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=home.roots)
        except NotPrivateError as error:
            raise JournalError(
                f"{self._root} cannot be locked: it may not be read, and there is no private directory ({error})."
            ) from error


@contextmanager
def locked_root(
    sys: Syscalls, root: str, state_dir: str | os.PathLike[str] | None, *, durable: bool
) -> Generator[tuple[int, StateFinder], None, None]:
    """The root's handle and where its state is, for as long as no process can work there.

    Raises `JournalError` at once when one does.
    """
    with Handle(sys, sys.open(root, HANDLE)) as root_fd:
        places = StateFinder(sys, root, root_fd, state_dir, durable=durable)
        lock = RootLock(sys, root, root_fd, places.substitute_lock)
        try:
            lock.lock(0.0)
            yield root_fd, places
        finally:
            lock.close()
