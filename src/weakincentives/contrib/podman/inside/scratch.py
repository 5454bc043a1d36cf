"""Files inside the container: the size of the workspace, the files of an evaluation, and emptying everything else."""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import NamedTuple

from ....filesystem.reserved import reserved
from ...code.wire import pack_bytes, unpack_bytes

_UNTOUCHED = 0
"""The modification time of a file that may be written and was not."""


_REPLACED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""What opening a directory says that was one when it was listed, and is gone, a file or a symlink by now."""


class Bounds(NamedTuple):
    """What the workspace may hold: bytes and files in all; `reserve` bytes of its disk must stay free.

    `readable` is whether a file that its owner may not read could not be restored by the host.
    """

    disk: int
    files: int
    reserve: int
    readable: bool


def over(top: str, bounds: Bounds, final: bool) -> str | None:
    """What is wrong with what is in the directory, and what to do, or None; `final` when no command is running.

    Sizes are what the files claim, holes and further names included: that is what a copy of them takes.
    """
    free = os.statvfs(top)
    if free.f_bavail * free.f_frsize < bounds.reserve:
        return f"the disk that holds the workspace has less than {bounds.reserve:,} bytes left\nWrite less."
    size = count = 0
    pending: list[tuple[str, os.stat_result | None]] = [(top, None)]
    while pending:
        directory, listed = pending.pop()
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in _REPLACED:
                continue
            return _closed(directory, error)
        try:
            if listed is not None and not os.path.samestat(listed, os.fstat(fd)):
                continue  # a command moved it away, or the way to it, and put another in its place
            with os.scandir(fd) as entries:
                for entry in entries:
                    if reserved(entry.name):  # nothing that was made in here may pass for the host's undo state
                        return f"the name {ascii(entry.name)[1:-1]} is reserved for undo state\nUse another."
                    try:
                        info = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    count += 1
                    size += max(info.st_size, info.st_blocks * 512)
                    if stat.S_ISDIR(info.st_mode):
                        pending.append((os.path.join(directory, entry.name), info))
                    elif final and (why := _lasting(info.st_mode, bounds)) is not None:
                        return f"{os.path.join(directory, entry.name)} {why}"
        except FileNotFoundError:
            pass
        except OSError as error:
            return _closed(directory, error)
        finally:
            os.close(fd)
        if size > bounds.disk:
            return f"the workspace holds more than {bounds.disk:,} bytes\nWrite less."
        if count > bounds.files:
            return f"the workspace holds more than {bounds.files:,} files\nWrite fewer."
    return None


def _closed(directory: str, error: OSError) -> str:
    return f"{directory} cannot be looked into ({error.strerror})\nMake directories readable."


def _lasting(mode: int, bounds: Bounds) -> str | None:
    """Why something cannot stay: a later call that fails could not restore it."""
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISFIFO(mode)):
        return "is a socket or device, which cannot be kept\nPut it in /tmp, or remove it before the command ends."
    if bounds.readable and stat.S_ISREG(mode) and not mode & stat.S_IRUSR:
        return "cannot be read, so it cannot be kept\nMake it readable."
    return None


def wipe(top: str, until: float) -> bool:
    """Remove all that is in the directory; False when that takes too long.

    Trees are taken apart from the top, since they may be deeper than any path.
    """
    number = 0
    while time.monotonic() < until:
        names = os.listdir(top)
        if not names:
            return True
        for name in names:
            path = os.path.join(top, name)
            try:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    os.unlink(path)
                    continue
                os.chmod(path, 0o700)
                for child in os.listdir(path):
                    number += 1
                    below = os.path.join(path, child)
                    if stat.S_ISDIR(os.lstat(below).st_mode):
                        os.chmod(below, 0o700)
                        os.rename(below, os.path.join(top, f".wiped-{os.urandom(4).hex()}-{number}"))
                    else:
                        os.unlink(below)
                os.rmdir(path)
            except OSError:
                time.sleep(0.001)
    return not os.listdir(top)


def lay_out(directory: str, contents: dict[str, str], writable: list[str]) -> None:
    """The files an evaluation finds; those it may write are there, empty unless they have content."""
    os.mkdir(directory, 0o700)
    for path in {**contents, **dict.fromkeys(writable, "")}:
        full = os.path.join(directory, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(unpack_bytes(contents.get(path, "")))
        os.chmod(full, 0o600 if path in writable else 0o400)
        os.utime(full, ns=(_UNTOUCHED, _UNTOUCHED))
    # Nothing but these can be made there without being told so.
    for where, _, _ in os.walk(directory):
        os.chmod(where, 0o500)


def collect(directory: str, writable: list[str], most: int) -> dict[str, str]:
    """What was written of the files that may be; `ValueError` when it is too much, or not a file any more."""
    written: dict[str, str] = {}
    left = most
    for path in sorted(writable):
        try:
            fd = _opened(directory, path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ValueError(f"{path} is not a file that can be read ({error.strerror})") from None
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise ValueError(f"{path} is not an ordinary file")
            if info.st_mtime_ns == _UNTOUCHED:
                continue
            left -= info.st_size
            if left < 0:
                raise ValueError(f"Too much was written: at most {most:,} bytes in all")
            with open(fd, "rb", closefd=False) as file:
                written[path] = pack_bytes(file.read())
        finally:
            os.close(fd)
    return written


def _opened(directory: str, path: str) -> int:
    """The file, for reading. The code may have put a symlink in place of it or of a directory on the way: `OSError`."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    *parents, name = path.split("/")
    for part, flags in (*((parent, os.O_DIRECTORY) for parent in parents), (name, os.O_NONBLOCK)):
        above = fd
        try:
            fd = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=above)
        finally:
            os.close(above)
    return fd
