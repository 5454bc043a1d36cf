"""What is in force in here, as the kernel says it; the owner decides whether that is enough."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from typing import Any

_CGROUP = "/sys/fs/cgroup"
_NEW_USER = 0x10000000
_VSOCK = 40
_KERNEL = ("/proc", "/dev", "/sys/fs/cgroup")
"""Mounted writable in every container; their files have owners."""


def facts(paths: list[str]) -> dict[str, Any]:
    """Limits, privileges, network and which of the paths can be written to."""
    status = _status()
    return {
        "python": list(sys.version_info[:3]),
        "pid": os.getpid(),
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "groups": os.getgroups(),
        "memory": _number("memory.max", "memory/memory.limit_in_bytes"),
        "swap": _swap(),
        "pids": _number("pids.max", "pids/pids.max"),
        "cpus": _cpus(),
        "capabilities": {name: status.get(name) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")},
        "no_new_privileges": status.get("NoNewPrivs"),
        "seccomp": status.get("Seccomp"),
        "opened": _opened(),
        "interfaces": _interfaces(),
        "read_only": {path: bool(os.statvfs(path).f_flag & os.ST_RDONLY) for path in paths},
        "mounts": _writable(),
    }


def _opened() -> list[str]:
    """What a process can get into though it must not; tried in one that is over then."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(_NEW_USER) == 0:
                os.write(write, b"user namespaces\n")
            if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0:
                os.write(write, b"mounts\n")
            if libc.socket(_VSOCK, 1, 0) >= 0:
                os.write(write, b"sockets of virtual machines\n")
            os.write(write, b"done\n")
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as file:
        told = file.read().splitlines()
    os.waitpid(child, 0)
    return told[:-1] if told[-1:] == ["done"] else ["unknown"]


def _writable() -> list[str]:
    """Every place that is mounted to be written, but those of the kernel's that this user cannot write to."""
    found: list[str] = []
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            where, options = line.split(" ")[1], line.split(" ")[3]
            for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                where = where.replace(code, character)
            if "rw" not in options.split(","):
                continue
            of_kernel = any(where == path or where.startswith(path + "/") for path in _KERNEL)
            if of_kernel and (not os.access(where, os.W_OK) or stat.S_ISCHR(os.stat(where).st_mode)):
                continue
            found.append(where)
    return found


def _status() -> dict[str, str]:
    with open("/proc/self/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def _interfaces() -> list[str]:
    with open("/proc/net/dev") as file:
        return sorted(line.partition(":")[0].strip() for line in file if ":" in line)


def _first(*names: str) -> str | None:
    for name in names:
        try:
            with open(os.path.join(_CGROUP, name)) as file:
                return file.read().strip()
        except OSError:
            continue
    return None


def _number(*names: str) -> int | None:
    """The limit, or None when there is none."""
    text = _first(*names)
    return int(text) if text is not None and text.isdigit() else None


def _swap() -> int | None:
    """Bytes of swap it may use, or None when nothing bounds them."""
    own = _number("memory.swap.max")
    if own is not None:
        return own
    both = _number("memory/memory.memsw.limit_in_bytes")
    memory = _number("memory/memory.limit_in_bytes")
    if both is not None and memory is not None:
        return both - memory
    with open("/proc/swaps") as file:
        return None if len(file.readlines()) > 1 else 0


def _cpus() -> float | None:
    text = _first("cpu.max")
    if text is None:
        quota = _first("cpu/cpu.cfs_quota_us", "cpu,cpuacct/cpu.cfs_quota_us")
        period = _first("cpu/cpu.cfs_period_us", "cpu,cpuacct/cpu.cfs_period_us")
        text = f"{quota} {period}"
    quota, _, period = text.partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None
