"""Every system call that the files on disk need, in one object, so that tests can fail or crash at call n."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from struct import pack, unpack_from
from typing import Any, Final

from ...private_files import sync_to_disk

DIRECTORY: Final = os.O_DIRECTORY | os.O_CLOEXEC
"""To read a directory. Add `O_NOFOLLOW` wherever the last part is not known to be one."""

READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""To read a file. Opening a FIFO or a device must neither wait nor take the terminal; it is refused right after."""

CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
"""To make a file that is not there."""

HANDLE: Final = DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
"""To stand in a directory: needs no permission to read it."""

CHUNK: Final = 1 << 20
"""So many bytes are read at once."""

_OPENAT2: Final = 437  # the same on every architecture that has it, except alpha
_RESOLVE: Final = 0x08 | 0x04 | 0x02  # BENEATH | NO_SYMLINKS | NO_MAGICLINKS
_NO_XDEV: Final = 0x01

_EMPTY_PATH: Final = 0x1000
_BIRTH: Final = 0x800  # of statx: which field is asked for, and whether it was filled
_BIRTH_AT: Final = 80  # where that field is in the 256 bytes of the answer

_HANDLE_AT: Final = 8  # where the handle is in the answer of name_to_handle_at, behind its size and form
_INODE_AND_GENERATION: Final = 1  # FILEID_INO32_GEN


_PIN: Final = READ | os.O_NOFOLLOW | os.O_CLOEXEC
"""To hold a file while something is done to it, where there is no handle that needs no permission."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Syscalls:
    """The operating system. One instance serves any number of filesystems and threads.

    Nothing here follows a symlink in the last part of a name. Errors are the plain `OSError`s of the kernel.

    Args:
        openat2: whether to use that call; None asks the kernel. False forces the walk by directory handles.
    """

    __slots__ = ("has_openat2",)

    def __init__(self, *, openat2: bool | None = None) -> None:
        self.has_openat2: bool = _kernel_has_openat2() if openat2 is None else openat2

    # --- handles

    def open(self, name: str, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
        """A descriptor, always close-on-exec and never through a symlink in the last part."""
        return os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode, dir_fd=dir_fd)

    def open_beneath(self, root: int, path: str, flags: int, *, one_disk: bool = False) -> int:
        """`openat2` that refuses symlinks in every part and everything above `root`; and other disks, if asked to."""
        return _openat2(root, path, flags | os.O_CLOEXEC, _RESOLVE | _NO_XDEV if one_disk else _RESOLVE)

    def close(self, fd: int) -> None:
        """Close the descriptor."""
        os.close(fd)

    def flock(self, fd: int, operation: int) -> None:
        """Lock or unlock; `BlockingIOError` when another has it."""
        fcntl.flock(fd, operation)

    # --- content

    def read(self, fd: int, count: int) -> bytes:
        """The next bytes; empty at the end."""
        return os.read(fd, count)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        """Bytes from a position; empty at the end."""
        return os.pread(fd, count, offset)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """How much of it was written."""
        return os.write(fd, data)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """How much of it was written at that position."""
        return os.pwrite(fd, data, offset)

    def seek(self, fd: int, offset: int, whence: int) -> int:
        """Move to a position; where it is now."""
        return os.lseek(fd, offset, whence)

    def seek_data(self, fd: int, offset: int) -> int:
        """Move to where the next data begins; `ENXIO` behind the last, `EINVAL` where the disk cannot tell."""
        return _sought(fd, offset, "SEEK_DATA")

    def seek_hole(self, fd: int, offset: int) -> int:
        """Move to where the next hole begins, the end of the file counting as one; `EINVAL` as before."""
        return _sought(fd, offset, "SEEK_HOLE")

    def copy_range(self, source: int, target: int, count: int, offset: int) -> int:
        """Copy within the kernel, to the same position; how much was copied. `ENOSYS` where there is no such call."""
        if not hasattr(os, "copy_file_range"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        return os.copy_file_range(source, target, count, offset, offset)

    def free(self, fd: int) -> int:
        """How many bytes the disk has left for ordinary users."""
        found = os.fstatvfs(fd)
        return found.f_bavail * found.f_frsize

    def ftruncate(self, fd: int, length: int) -> None:
        """Cut the file."""
        os.ftruncate(fd, length)

    def fsync(self, fd: int) -> None:
        """Wait until it is on the disk."""
        sync_to_disk(fd)

    # --- looking

    def fstat(self, fd: int) -> os.stat_result:
        """What the descriptor is."""
        return os.fstat(fd)

    def born(self, fd: int) -> int:
        """When it was made (ns), which tells it from another with its inode number later; 0 if that is not known.

        Where a directory has no such time (disks made with small inodes, directories from a disk image) it is the
        generation of its inode, which does the same.
        """
        return _born(fd) or _generation(fd)

    def stat(self, name: str, *, dir_fd: int) -> os.stat_result:
        """What the name is, without following it."""
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)

    def access(self, name: str, mode: int, *, dir_fd: int) -> bool:
        """Whether the effective user may."""
        return os.access(name, mode, dir_fd=dir_fd, effective_ids=os.access in os.supports_effective_ids)

    def names(self, fd: int) -> list[str]:
        """The names in a directory, in no order."""
        return os.listdir(fd)

    def kinds(self, fd: int) -> list[tuple[str, int]]:
        """Name and file type (as in `st_mode`) of all in a directory, mostly without asking for each."""
        with os.scandir(fd) as entries:
            return [(entry.name, _type(entry)) for entry in entries]

    def stats(self, fd: int) -> list[tuple[str, os.stat_result]]:
        """Name and attributes of all in a directory, in no order; what goes meanwhile is left out."""
        with os.scandir(fd) as entries:
            listed = list(entries)
        try:
            return [(entry.name, entry.stat(follow_symlinks=False)) for entry in listed]
        except FileNotFoundError:  # entries remember what was asked of them, so only the rest is asked for again
            return list(still_there(listed))

    def readlink(self, name: str, *, dir_fd: int) -> str:
        """Where the symlink points."""
        return os.readlink(name, dir_fd=dir_fd)

    # --- names

    def rename(self, source: str, target: str, *, source_fd: int, target_fd: int) -> None:
        """Move in one step, over whatever file is there."""
        os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)

    def link(self, source: str, target: str, *, source_fd: int, target_fd: int) -> None:
        """One more name for the same file."""
        os.link(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)

    def unlink(self, name: str, *, dir_fd: int) -> None:
        """Remove a name that is not a directory."""
        os.unlink(name, dir_fd=dir_fd)

    def mkdir(self, name: str, mode: int = 0o777, *, dir_fd: int) -> None:
        """Make a directory."""
        os.mkdir(name, mode, dir_fd=dir_fd)

    def rmdir(self, name: str, *, dir_fd: int) -> None:
        """Remove an empty directory."""
        os.rmdir(name, dir_fd=dir_fd)

    def symlink(self, destination: str, name: str, *, dir_fd: int) -> None:
        """Make a symlink."""
        os.symlink(destination, name, dir_fd=dir_fd)

    def mkfifo(self, name: str, mode: int, *, dir_fd: int) -> None:
        """Make a FIFO; `ENOTSUP` where that cannot be done in a directory by its handle."""
        if os.mkfifo not in os.supports_dir_fd:
            raise _unsupported(name)
        os.mkfifo(name, mode, dir_fd=dir_fd)

    # --- attributes

    def fchmod(self, fd: int, mode: int) -> None:
        """Set the mode of an open file."""
        os.fchmod(fd, mode)

    def fchown(self, fd: int, uid: int, gid: int) -> None:
        """Set owner and group of an open file."""
        os.fchown(fd, uid, gid)

    def chown(self, name: str, uid: int, gid: int, *, dir_fd: int) -> None:
        """Set owner and group of a name itself."""
        os.chown(name, uid, gid, dir_fd=dir_fd, follow_symlinks=False)

    def chmod(self, name: str, mode: int, *, dir_fd: int) -> None:
        """Set the mode of a name that is not a symlink; one that is raises `ELOOP`."""
        if os.chmod in os.supports_follow_symlinks:
            if stat.S_ISLNK(self.stat(name, dir_fd=dir_fd).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
            os.chmod(name, mode, dir_fd=dir_fd, follow_symlinks=False)  # of a symlink swapped in: its own
            return
        # `fchmodat` follows symlinks and a file of mode 0 cannot be opened to read: pin it, then go by the pin.
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC if _HAS_PROC else _PIN, dir_fd=dir_fd)
        try:
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
            os.chmod(f"/proc/self/fd/{fd}" if _HAS_PROC else fd, mode)  # noqa: PTH101 - a descriptor
        finally:
            os.close(fd)

    def utime(self, name: str, times: tuple[int, int], *, dir_fd: int) -> None:
        """Set access and modification time (ns) of a name itself."""
        os.utime(name, ns=times, dir_fd=dir_fd, follow_symlinks=False)

    def xattrs(self, name: str, *, dir_fd: int) -> dict[str, bytes]:
        """The extended attributes that may be read; empty where the filesystem or the system has none."""
        if not hasattr(os, "listxattr"):
            return {}
        path = f"/proc/self/fd/{dir_fd}/{name}"
        try:
            if not _HAS_PROC:
                return _xattrs(name, dir_fd)
            names = os.listxattr(path, follow_symlinks=False)
            return {key: os.getxattr(path, key, follow_symlinks=False) for key in names}
        except OSError:
            return {}

    def fxattrs(self, fd: int) -> dict[str, bytes]:
        """The same of an open file, which takes less."""
        if not hasattr(os, "listxattr"):
            return {}
        try:
            return {key: os.getxattr(fd, key) for key in os.listxattr(fd)}
        except OSError:
            return {}

    def setxattr(self, fd: int, name: str, value: bytes) -> None:
        """Set one extended attribute of an open file; `ENOTSUP` where the system has none."""
        if not hasattr(os, "setxattr"):
            raise _unsupported(name)
        os.setxattr(fd, name, value)

    def removexattr(self, fd: int, name: str) -> None:
        """Remove one extended attribute of an open file; `ENOTSUP` where the system has none."""
        if not hasattr(os, "removexattr"):
            raise _unsupported(name)
        os.removexattr(fd, name)


CALLS: Final = tuple(name for name, member in vars(Syscalls).items() if callable(member) and not name.startswith("_"))
"""The names of all calls, for tests that wrap each of them."""


def write_all(sys: Syscalls, fd: int, data: bytes) -> None:
    """Write until nothing is left."""
    done = sys.write(fd, data) if data else 0
    while done < len(data):
        done += sys.write(fd, memoryview(data)[done:])


def pwrite_all(sys: Syscalls, fd: int, data: bytes, offset: int) -> None:
    """The same at a position."""
    done = sys.pwrite(fd, data, offset)
    while done < len(data):
        done += sys.pwrite(fd, memoryview(data)[done:], offset + done)


def read_all(sys: Syscalls, fd: int) -> bytes:
    """Read until the end."""
    data = b""
    while piece := sys.read(fd, CHUNK):
        data += piece
    return data


def read_part(sys: Syscalls, fd: int, size: int, offset: int) -> bytes:
    """So many bytes from a position; fewer only where the file ends before."""
    data = sys.pread(fd, size, offset)
    while len(data) < size and (piece := sys.pread(fd, size - len(data), offset + len(data))):
        data += piece
    return data


def look(sys: Syscalls, name: str, at: int) -> os.stat_result | None:
    """What has that name in the directory `at`, without following it; None where nothing has."""
    try:
        return sys.stat(name, dir_fd=at)
    except (FileNotFoundError, NotADirectoryError):
        return None


def still_there(listed: Iterable[os.DirEntry[str]]) -> Iterator[tuple[str, os.stat_result]]:
    """Name and attributes of those entries of a directory that have not gone since it was listed."""
    for entry in listed:
        with suppress(FileNotFoundError):
            yield entry.name, entry.stat(follow_symlinks=False)


def _type(entry: os.DirEntry[str]) -> int:
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else stat.S_IFIFO


def _sought(fd: int, offset: int, whence: str) -> int:
    try:
        return os.lseek(fd, offset, getattr(os, whence))
    except AttributeError:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from None
    except OSError as error:
        if error.errno in {errno.ENOTTY, errno.ENOTSUP, errno.EOPNOTSUPP}:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from error
        raise


def _unsupported(name: str) -> OSError:
    return OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), name)


def _xattrs(name: str, dir_fd: int) -> dict[str, bytes]:
    fd = os.open(name, _PIN, dir_fd=dir_fd)
    try:
        return {key: os.getxattr(fd, key) for key in os.listxattr(fd)}
    finally:
        os.close(fd)


def _has_proc() -> bool:
    """Whether a descriptor has a path, which leads to what is open whatever its name is by now."""
    if not hasattr(os, "O_PATH"):
        return False
    try:
        os.close(os.open("/proc/self/fd", DIRECTORY))
    except OSError:
        return False
    return True


_HAS_PROC: Final = _has_proc()


def _load_syscall() -> Callable[..., int] | None:
    function: Any = getattr(ctypes.CDLL(None, use_errno=True), "syscall", None)
    if function is None:
        return None
    function.restype = ctypes.c_long
    function.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.POINTER(_OpenHow),
        ctypes.c_size_t,
    )
    return function


_syscall: Callable[..., int] | None = _load_syscall() if sys.platform == "linux" else None


def _openat2(root: int, path: str, flags: int, resolve: int = _RESOLVE) -> int:
    if _syscall is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = _OpenHow(flags, 0, resolve)
    name = os.fsencode(path)
    code = errno.EAGAIN
    # EAGAIN: something was renamed while the kernel looked, so it cannot be sure; it asks to try again.
    for _ in range(1000):
        fd = _syscall(_OPENAT2, root, name, how, 24)
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(code, os.strerror(code), path)


_statx: Any = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def _born(fd: int) -> int:
    if _statx is None:  # not Linux, or an old C library
        return int(getattr(os.fstat(fd), "st_birthtime", 0) * 1_000_000_000)
    answer = ctypes.create_string_buffer(256)
    if _statx(fd, b"", _EMPTY_PATH, _BIRTH, answer) != 0 or not int.from_bytes(answer.raw[:4], sys.byteorder) & _BIRTH:
        return 0
    seconds, nanoseconds = unpack_from("qI", answer.raw, _BIRTH_AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


_name_to_handle_at: Any = getattr(ctypes.CDLL(None, use_errno=True), "name_to_handle_at", None)


def _generation(fd: int) -> int:
    """The generation in the kernel's handle of an inode; 0 where there is none.

    Only handles of one form count, `inode | generation`, which is that of ext4 and its relatives: it is kept on the
    disk. Other systems (FUSE) put something there that changes with each mount, and would never be found again.
    """
    if _name_to_handle_at is None:
        return 0
    room, mount = 128, ctypes.c_int()
    handle = ctypes.create_string_buffer(pack("Ii", room, 0), _HANDLE_AT + room)
    if _name_to_handle_at(fd, b"", handle, ctypes.byref(mount), _EMPTY_PATH) != 0:
        return 0
    size, form, inode, generation = unpack_from("IiII", handle.raw)
    known = (size, form, inode) == (8, _INODE_AND_GENERATION, os.fstat(fd).st_ino & 0xFFFF_FFFF)
    return int(generation) if known else 0


def _kernel_has_openat2() -> bool:
    """Missing before Linux 5.6; some container profiles answer EPERM."""
    try:
        root = os.open("/", HANDLE)
    except OSError:
        return False
    try:
        os.close(_openat2(root, ".", HANDLE))
    except OSError:
        return False
    finally:
        os.close(root)
    return True
