"""The files in here: what is used of the workspace, what an evaluation finds and leaves, and emptying the rest."""

from __future__ import annotations

import os
import stat
import time

from .wire import packed, unpacked

RESERVED = ".wink"
"""Where the host might look for its own journal: nothing that was made in here may pass for one."""

_UNTOUCHED = 0
"""The modification time of a file that may be written and was not."""


def over(top: str, max_bytes: int, max_files: int, reserve: int) -> str | None:
    """What is wrong with what is in the directory, or None.

    Sizes are what the files claim, holes and further names included: that is what a copy of them takes.
    """
    free = os.statvfs(top)
    if free.f_bavail * free.f_frsize < reserve:
        return f"the disk that holds the workspace has less than {reserve:,} bytes left"
    if os.path.lexists(os.path.join(top, RESERVED)):
        return f"the name {RESERVED} is reserved at the top of the workspace"
    size = count = 0
    pending = [top]
    while pending:
        directory = pending.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    try:
                        info = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    count += 1
                    size += max(info.st_size, info.st_blocks * 512)
                    if stat.S_ISDIR(info.st_mode):
                        pending.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{directory} cannot be looked into ({error.strerror})"
        if size > max_bytes:
            return f"the workspace holds more than {max_bytes:,} bytes"
        if count > max_files:
            return f"the workspace holds more than {max_files:,} files"
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
            file.write(unpacked(contents.get(path, "")))
        os.chmod(full, 0o600 if path in writable else 0o400)
        os.utime(full, ns=(_UNTOUCHED, _UNTOUCHED))
    # Nothing but these can be made there without being told so.
    for where, _, _ in os.walk(directory):
        os.chmod(where, 0o500)


def collect(directory: str, writable: list[str], most: int) -> dict[str, str]:
    """What was written of the files that may be; `ValueError` when it is too much, or no file any more."""
    written: dict[str, str] = {}
    for path in sorted(writable):
        try:
            fd = os.open(os.path.join(directory, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ValueError(f"{path} is no file that can be read ({error.strerror})") from None
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise ValueError(f"{path} is no ordinary file")
            if info.st_mtime_ns == _UNTOUCHED:
                continue
            most -= info.st_size
            if most < 0:
                raise ValueError("Too much was written")
            with open(fd, "rb", closefd=False) as file:
                written[path] = packed(file.read())
        finally:
            os.close(fd)
    return written
