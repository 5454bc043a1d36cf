"""The content of a file, copied and compared with its holes: the work is that of its data and not of its length."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Final

from ..fence import check_wanted
from .syscalls import Syscalls, write_all

STEP: Final = 8 << 20
"""After so many bytes it is asked whether the call is still wanted."""
SMALL: Final = 1 << 20
_ELSEWISE: Final = frozenset({errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF})


def copy_content(
    sys: Syscalls, source: int, target: int, found: os.stat_result, check: Callable[[], None] = check_wanted
) -> None:
    """Copy all of `source`, of which `found` is known, to `target`, an empty file, which is then at its end.

    `OSError` (ENOSPC) before anything is copied when there is no room; `StaleCallError` when the call is given up, or
    what `check` raises. What was copied until then is the caller's to drop.
    """
    if found.st_size <= SMALL:
        while data := sys.read(source, SMALL):
            write_all(sys, target, data)
        return
    if found.st_blocks * 512 > sys.free(target):
        raise OSError(errno.ENOSPC, "There is not enough room on the disk for a copy")
    for start, end in _data(sys, source, found.st_size):
        position = start
        while position < end:
            check()
            done = _copy(sys, source, target, min(STEP, end - position), position)
            if not done:  # cut by another program meanwhile
                break
            position += done
    sys.ftruncate(target, found.st_size)
    sys.seek(target, 0, os.SEEK_END)


def same_content(sys: Syscalls, one: int, two: int, size: int, check: Callable[[], None]) -> bool:
    """Whether two files of that size hold the same; where both have a hole nothing is read."""
    at = 0
    while at < size:
        start = min(_next_data(sys, one, at, size), _next_data(sys, two, at, size))
        if start >= size:
            break
        at = min(start + SMALL, size)
        while start < at:
            check()
            data = sys.pread(one, at - start, start)
            if not data or sys.pread(two, len(data), start) != data:
                return False
            start += len(data)
    return True


def _next_data(sys: Syscalls, fd: int, at: int, size: int) -> int:
    """Where the next data is, from `at` on; `at` itself where the disk cannot tell, `size` if only a hole is left."""
    try:
        return sys.seek_data(fd, at)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        if error.errno != errno.EINVAL:
            raise
        return at


def _data(sys: Syscalls, fd: int, size: int) -> Iterator[tuple[int, int]]:
    """From where to where there is data; all of it where the disk cannot tell."""
    end = 0
    while end < size:
        try:
            start = sys.seek_data(fd, end)
            end = sys.seek_hole(fd, start)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            if error.errno != errno.EINVAL:
                raise
            start, end = end, size
        yield start, min(end, size)


def _copy(sys: Syscalls, source: int, target: int, count: int, offset: int) -> int:
    try:
        return sys.copy_range(source, target, count, offset)
    except OSError as error:
        if error.errno not in _ELSEWISE:
            raise
    data = sys.pread(source, min(count, SMALL), offset)
    done = 0
    while done < len(data):
        done += sys.pwrite(target, memoryview(data)[done:], offset + done)
    return done


__all__ = ["copy_content", "same_content"]
