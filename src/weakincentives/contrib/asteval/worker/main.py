"""Keeps a worker going: for each evaluation it forks a child, which gives up its rights and runs the code.

The worker itself never sees code. Its control channel is standard input. For each evaluation it is sent the child's own
channel, before there is a request, so that the fork is done by the time of the call. When the control channel ends, so
does the worker.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import platform
import resource
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from math import ceil
from typing import Any, NoReturn

from ...code.wire import pack_bytes, receive, send
from . import language
from .control import KILL, READY, START, STATUS

CHANNEL = 3
"""The child's descriptor for the request and the answer."""
ALIVE = 4
"""The child's descriptor that ends with the child."""
MAX_DESCRIPTOR = 32
"""The worker opens far fewer."""
RESERVE = 8 * 1024 * 1024
"""Bytes kept for the answer that there is no memory."""


def main() -> NoReturn:
    """Serve until the host is gone."""
    die_with_parent()
    limit_self()
    hide()
    _load_codecs()
    control = socket.socket(fileno=0)
    language.warm_up()
    gc.collect()
    gc.freeze()
    os.dup2(1, 2)  # standard error was for messages about the start
    control.sendall(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, len(START), 1)
        if message != START or len(descriptors) != 1:
            os._exit(0)
        _evaluate(control, descriptors[0])


def _load_codecs() -> None:
    """What Python would load on first use, when no file can be opened any more."""
    for codec in ("ascii", "latin-1", "utf-8", "utf-16", "utf-32", "cp1252", "unicode_escape"):
        "a".encode(codec).decode(codec)
    __import__("unicodedata")


def _evaluate(control: socket.socket, channel: int) -> None:
    """Fork, wait until the child is dead, report how it died."""
    alive, held = os.pipe()
    child = os.fork()
    if child == 0:
        _run(channel, held)
    os.close(channel)
    os.close(held)
    # The pipe ends when the child does; the control channel brings the order to kill it, or the end of the host.
    select.select([control, alive], [], [])
    for kill in (os.killpg, os.kill):  # the child leads a group as soon as it runs; its number is its own until waitpid
        with suppress(OSError):
            kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(alive)
    if control.recv(1) != KILL:
        os._exit(0)
    control.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))


def _run(channel: int, held: int) -> NoReturn:
    """In the child: wait for the request, give up all rights, run the code, answer, end."""
    try:
        os.setsid()
        die_with_parent()
        os.dup2(held, MAX_DESCRIPTOR)  # out of the way of the two numbers
        os.dup2(channel, CHANNEL)
        os.dup2(MAX_DESCRIPTOR, ALIVE)
        os.closerange(0, CHANNEL)
        os.closerange(ALIVE + 1, MAX_DESCRIPTOR + 1)
        language.warm_up()
        request = receive(CHANNEL)
        limits = request["limits"]
        sys.setrecursionlimit(1000 + 60 * limits["recursion"])
        evaluation = language.CodeRun(request)
        reserve = mmap.mmap(-1, RESERVE)
        limit_code(limits["seconds"], limits["memory"])
        filtered = filter_calls()
        if request["filter_required"] and not filtered:
            send(CHANNEL, {"stdout": "", "error": "The code was not run: system calls cannot be filtered here"})
        else:
            _answer(evaluation, reserve, filtered)
    finally:
        os._exit(0)


def _answer(evaluation: language.CodeRun, reserve: mmap.mmap, filtered: bool) -> None:
    answer: dict[str, Any] | None = None
    try:
        answer = evaluation.run()
        answer["written"] = {path: pack_bytes(data) for path, data in evaluation.files.written.items()}
        send(CHANNEL, {**answer, "filtered": filtered})
    except MemoryError:
        answer = None
    if answer is None:  # outside the handler, which keeps alive what took the memory
        reserve.close()
        gc.collect()
        send(CHANNEL, {"stdout": "", "error": "MemoryError: memory limit exceeded", "filtered": filtered})


# Rights a process gives up for good, before it runs untrusted code.

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Be killed when the parent ends; end now if it has ended already."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def hide() -> None:
    """No other process of the same user may look into this one."""
    _prctl(_PR_SET_DUMPABLE, 0)


def limit_self() -> None:
    """Limits that hold for the worker itself, too: no core files, no files written."""
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(kind, (0, 0))


def limit_code(seconds: float, memory: int) -> None:
    """Limits for the code: memory beyond what there is, processor time, and no new file, socket or process at all."""
    processor = ceil(seconds) + 1
    most = _address_space() + memory
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _address_space() -> int:
    """How much this process holds, found by trying: in bubblewrap there is no /proc to read it from."""
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
    # A program for the kernel: another architecture kills the process, a listed call is allowed, the rest is EPERM.
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
