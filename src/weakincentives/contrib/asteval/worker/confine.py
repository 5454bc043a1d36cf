"""Rights a process gives up for good, before it runs code that nobody has read."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import resource
import signal
import struct
from math import ceil

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Be killed when the parent ends; also when it has ended already."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def hide() -> None:
    """No other process of the same user may look into this one."""
    _prctl(_PR_SET_DUMPABLE, 0)


def limit_self() -> None:
    """Limits that also the worker itself is held to: no core files, no files written."""
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(kind, (0, 0))


def limit_code(seconds: float, memory: int, base: int) -> None:
    """Limits for the code: memory beyond what there is, processor time, and no new file, socket or process at all."""
    processor = ceil(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (base + memory, base + memory))


def address_space() -> int:
    """How much this process holds, found by trying; there may be no /proc here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 34 if soft == resource.RLIM_INFINITY else soft
    try:
        while high - low > 1 << 20:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
            try:
                mmap.mmap(-1, mmap.PAGESIZE).close()
            except (OSError, MemoryError):
                low = middle
            else:
                high = middle
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high


# What remains after the filter: memory, time, the channel that is open, and the end. By architecture: the audit number,
# and the numbers of read, write, close, mmap, mprotect, munmap, brk, rt_sigaction, rt_sigprocmask, rt_sigreturn,
# madvise, mremap, sched_yield, getpid, sendto, recvfrom, exit, exit_group, gettimeofday, clock_gettime, futex,
# getrandom, poll (x86_64), ppoll, lseek, fstat, getrusage, restart_syscall, sigaltstack.
_CALLS = {
    "x86_64": (0xC000003E, (
        0, 1, 3, 9, 10, 11, 12, 13, 14, 15, 28, 25, 24, 39, 44, 45, 60, 231, 96, 228,
        202, 318, 7, 271, 8, 5, 98, 219, 131,
    )),
    "aarch64": (0xC00000B7, (
        63, 64, 57, 222, 226, 215, 214, 134, 135, 139, 233, 216, 124, 172, 206, 207, 93, 94, 169, 113,
        98, 278, 73, 62, 80, 165, 128, 132,
    )),
}  # fmt: skip


def filter_calls() -> bool:
    """Refuse every other system call from now on, with EPERM. False where the kernel or processor is unknown."""
    known = _CALLS.get(platform.machine())
    if known is None or struct.calcsize("P") != 8:
        return False
    audit, calls = known
    program = [_statement(0x20, 4), _jump(audit, 1, 0), _statement(0x06, 0x80000000), _statement(0x20, 0)]
    program += [_jump(number, len(calls) - index, 0) for index, number in enumerate(calls)]
    program += [_statement(0x06, 0x00050000 | 1), _statement(0x06, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.create_string_buffer(header), 0, 0) == 0


def _statement(code: int, value: int) -> bytes:
    return struct.pack("HBBI", code, 0, 0, value)


def _jump(value: int, if_equal: int, otherwise: int) -> bytes:
    return struct.pack("HBBI", 0x15, if_equal, otherwise, value)


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


__all__ = ["address_space", "die_with_parent", "filter_calls", "hide", "limit_code", "limit_self"]
