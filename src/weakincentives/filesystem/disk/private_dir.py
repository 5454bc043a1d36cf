"""The user's private directory: the only place from which instructions to undo something are ever read.

It holds `KEY`, 32 random bytes that everything in it is authenticated with, and `ROOTS`, with one entry for each root
that has something to undo. It is used only where no other user can change it: the directory and its entries are ours
and closed to others, and so is the way to it (the rule of sshd: every directory above belongs to us or to root, and is
writable by no other user unless it is sticky; a group without other members counts as us).
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import stat
import time
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from ...errors import JournalError

# Whether a group is one user's alone, as many systems give one to each: then what it may write, only that user may.
#
# Such systems set the umask to 002, so that a home and the directories in it are often writable by the group.


class User(NamedTuple):
    """A user as the system knows it."""

    name: str
    uid: int
    gid: int


class Group(NamedTuple):
    """A group as the system knows it, with the names of those who are in it beside those whose primary group it is."""

    name: str
    gid: int
    members: Collection[str] = ()


def is_private_group(group: Group, user: User, users: Iterable[User]) -> bool:
    """Whether the user is the only member of the group: it has the user's name, is theirs, and has no other members.

    The name must agree, since not all users need to be known here: directories of large sites do not list them. Group 0
    belongs to no single user: containers run as unlisted users in it.

    >>> anna, bert = User("anna", 1000, 1000), User("bert", 1001, 1001)
    >>> is_private_group(Group("anna", 1000), anna, [anna, bert])
    True
    >>> is_private_group(Group("anna", 1000, ["bert"]), anna, [anna, bert])
    False
    """
    return (
        group.gid == user.gid != 0
        and group.name == user.name
        and all(member == user.name for member in group.members)
        and not any(other.gid == group.gid and other.uid != user.uid for other in users)
    )


@lru_cache(maxsize=16)
def is_own_group(gid: int, uid: int) -> bool:
    """The same for a group and a user of this system; False for those that it does not know."""
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
        users = [User(each.pw_name, each.pw_uid, each.pw_gid) for each in pwd.getpwall()]
    except (KeyError, OSError):
        return False
    return is_private_group(
        Group(group.gr_name, group.gr_gid, group.gr_mem), User(user.pw_name, user.pw_uid, user.pw_gid), users
    )


def has_acl(path: str) -> bool:
    """Whether other users may have rights that the mode does not tell; True where that cannot be found out."""
    try:
        return any("acl" in name for name in os.listxattr(path))
    except (OSError, AttributeError):  # no extended attributes; not Linux
        return True


KEY: Final = ".key.wink"
ROOTS: Final = ".roots.wink"
"""Names that are reserved, so that tools whose root contains the private directory, as a home does, do not see them."""

_KEY_SIZE: Final = 32
_OVERFLOW: Final = 65534
"""Who owns what the user namespace of a container does not know; there it cannot be anybody inside."""

_PATIENCE: Final = 5.0
"""Seconds to wait for a process that replaces the key."""

_OPEN: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotPrivateError(Exception):
    """There is no private directory, or others could change it; the text says which and why."""


@dataclass(frozen=True, slots=True)
class PrivateDir:
    """An opened private directory. Kept open, and shared, until the process ends.

    Attributes:
        path: where it is, without symlinks.
        roots: a descriptor of the directory of entries.
        key: the secret that everything in it is authenticated with.
    """

    path: str
    roots: int
    key: bytes

    def name(self, inode: int, born: int) -> str:
        """The name of a root's entry; it says nothing about the root to who does not know the key."""
        return blake2b(f"{inode}:{born}".encode(), key=self.key, salt=_machine(), digest_size=16).hexdigest()

    def root_key(self, name: str) -> bytes:
        """The key of one entry."""
        return blake2b(name.encode(), key=self.key, digest_size=32).digest()


def location(state_dir: str | os.PathLike[str] | None) -> str:
    """Where it is or would be: what is given, else `$XDG_STATE_HOME/wink`, else `~/.local/state/wink`.

    Raises `NotPrivateError` when there is no home.
    """
    if state_dir is not None:
        return os.path.realpath(state_dir)
    given = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(given):  # noqa: PTH117 - text; the specification has relative ones ignored
        return os.path.realpath(given + "/wink")
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where this does not
    if not os.path.isabs(home):  # noqa: PTH117
        raise NotPrivateError("there is no home directory")
    return os.path.realpath(home + "/.local/state/wink")


def find(path: str) -> PrivateDir | None:
    """The directory, or None where there is none yet. Never makes anything; raises `NotPrivateError`."""
    known = _known(path)
    if known is not None:
        return known
    try:
        return _enter(path)
    except FileNotFoundError:
        return None
    except JournalError:
        raise
    except OSError as error:
        raise NotPrivateError(f"{path} cannot be opened ({error.strerror})") from error


def make(path: str) -> PrivateDir:
    """The directory, made where there is none; raises `NotPrivateError`. Two processes may do this at once."""
    known = _known(path)
    if known is not None:
        return known
    try:
        _make_directories(path)
        _make_key(path)
        return _enter(path)
    except JournalError:
        raise
    except OSError as error:
        raise NotPrivateError(f"{path} cannot be made or opened ({error.strerror})") from error


def on_disk(path: str) -> str:
    """A directory on the disk where it is or would be made; raises `NotPrivateError` where it could not be private."""
    if find(path) is not None:
        return path
    while not Path(path).is_dir() and path != "/":
        path = str(Path(path).parent)
    for above in (path, *map(str, Path(path).parents)):
        _check_above(above)
    if not os.access(path, os.W_OK):
        raise NotPrivateError(f"{path} cannot be written")
    return path


@contextmanager
def unchanging_key(path: str) -> Generator[None, None, None]:
    """Around making an entry: the key is not replaced meanwhile. `JournalError` when that takes too long."""
    fd = os.open(path, _OPEN)
    try:
        _share(fd, path)
        yield
    finally:
        os.close(fd)


@contextmanager
def alone(path: str) -> Generator[None, None, None]:
    """Around replacing the key: no entry is made, and no process reads the key. `JournalError` if one does."""
    fd = os.open(path, _OPEN)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JournalError(f"Another process uses {path} right now ({error.strerror}). Try again.") from error
        yield
    finally:
        os.close(fd)


def replace_key(path: str) -> None:
    """Have a new key, and a new directory for entries. Only inside `alone`, and when there are no entries left.

    What was cut off by a crash leaves the old key or the new one, with no entries. Other processes notice: the
    directory that they have open is not there any more.
    """
    draft = _draft_key(path + "/" + KEY)
    try:
        os.rename(draft, path + "/" + KEY)  # noqa: PTH104
    except BaseException:
        os.unlink(draft)  # noqa: PTH108
        raise
    made = f"{path}/{ROOTS}-{os.urandom(8).hex()}"
    os.mkdir(made, 0o700)  # noqa: PTH102
    try:
        os.rename(made, path + "/" + ROOTS)  # noqa: PTH104 - over the old one, which must be empty
    except BaseException:
        os.rmdir(made)  # noqa: PTH106
        raise
    _opened.pop((path, os.geteuid()), None)


_opened: dict[tuple[str, int], PrivateDir] = {}


def _known(path: str) -> PrivateDir | None:
    """The one that is open already, unless it was replaced since."""
    found = _opened.get((path, os.geteuid()))
    if found is not None:
        with suppress(OSError):
            now = os.stat(path + "/" + ROOTS, follow_symlinks=False)  # noqa: PTH116
            then = os.fstat(found.roots)
            if (now.st_ino, now.st_dev) == (then.st_ino, then.st_dev):
                return found
        _opened.pop((path, os.geteuid()), None)
    return None


def _enter(path: str) -> PrivateDir:
    fd = os.open(path, _OPEN)
    try:
        for above in Path(path).parents:
            _check_above(str(above))
        check_private(os.fstat(fd), path)
        _share(fd, path)  # so that key and entries belong together
        key = _read_key(fd, path)
        roots = os.open(ROOTS, _OPEN, dir_fd=fd)
    finally:
        os.close(fd)
    try:
        check_private(os.fstat(roots), path + "/" + ROOTS)
    except BaseException:
        os.close(roots)
        raise
    found = _opened[path, os.geteuid()] = PrivateDir(path, roots, key)
    return found


def _share(fd: int, path: str) -> None:
    """Exclude who would replace the key, until the descriptor is closed."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise JournalError(f"Another process is replacing the key in {path}. Try again.") from None
            time.sleep(0.002)
        except OSError:  # this disk locks no directories; then no key is ever replaced there
            return None


def _check_above(path: str) -> None:
    check_above(path, os.stat(path), os.geteuid())  # noqa: PTH116 - the path has no symlinks


def check_above(
    path: str, found: os.stat_result, uid: int, is_own_group: Callable[[int, int], bool] = is_own_group
) -> None:
    """Raise `NotPrivateError` where others than the user and root could replace what is in the directory.

    A group that is the user's alone may write to it.
    """
    if found.st_uid not in {0, uid, _OVERFLOW}:
        raise NotPrivateError(f"{path} belongs to another user")
    writable = found.st_mode & 0o022
    if not writable or found.st_mode & stat.S_ISVTX:
        return
    # With an ACL the group's bits stand for all that it grants, to whomever.
    if writable == stat.S_IWGRP and not has_acl(path) and is_own_group(found.st_gid, uid):
        return
    mode = stat.S_IMODE(found.st_mode)
    raise NotPrivateError(f"{path} can be written by others (mode {mode:o}); to change that: chmod go-w {path}")


def check_private(found: os.stat_result, path: str) -> None:
    """Raise `NotPrivateError` unless it is ours, and closed to all others."""
    if found.st_uid != os.geteuid():
        raise NotPrivateError(f"{path} belongs to another user")
    if found.st_mode & 0o077:
        raise NotPrivateError(f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):o}, must be 700)")


def _read_key(fd: int, path: str) -> bytes:
    key = os.open(KEY, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
    try:
        found = os.fstat(key)
        content = os.read(key, _KEY_SIZE + 1) if stat.S_ISREG(found.st_mode) else b""
    finally:
        os.close(key)
    check_private(found, path + "/" + KEY)
    if len(content) != _KEY_SIZE:
        raise NotPrivateError(f"{path}/{KEY} is damaged: it must be {_KEY_SIZE} bytes")
    return content


def _make_directories(path: str) -> None:
    missing = [path + "/" + ROOTS, path]
    while not Path(missing[-1]).parent.is_dir():
        missing.append(str(Path(missing[-1]).parent))
    for each in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(each, 0o700)  # noqa: PTH102


def _make_key(path: str) -> None:
    """Complete before it has its name, and never replaced: `link` fails where another process was quicker."""
    key = path + "/" + KEY
    if os.path.lexists(key):
        return
    draft = _draft_key(key)
    try:
        with suppress(FileExistsError):
            os.link(draft, key)
    finally:
        os.unlink(draft)  # noqa: PTH108


def _draft_key(key: str) -> str:
    """A new key in a file beside it, complete and on the disk; its name."""
    draft = f"{key}-{os.urandom(8).hex()}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, os.urandom(_KEY_SIZE))
        os.fsync(fd)
    except BaseException:
        os.unlink(draft)  # noqa: PTH108
        raise
    finally:
        os.close(fd)
    return draft


def _machine() -> bytes:
    """What tells this machine from others whose disk is a copy of the same image, where there is such a thing."""
    with suppress(OSError, ValueError):
        return bytes.fromhex(Path("/etc/machine-id").read_text().strip())[:16]
    return b""
