"""Which system calls a container may make: what podman allows by default, less what nobody needs to build or compute.

Podman's own profile lets every process make user namespaces and mount in them, which opens much of the kernel, and open
sockets of kinds that no network namespace holds, such as those between a virtual machine and its host.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...errors import SandboxError

PLACES: Final = ("/etc/containers/seccomp.json", "/usr/share/containers/seccomp.json")
"""Where podman's profile is."""

_REFUSED: Final = frozenset(
    """
    unshare setns mount umount umount2 pivot_root open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
    clone clone3 socket socketcall keyctl add_key request_key bpf perf_event_open userfaultfd ptrace process_vm_readv
    process_vm_writev pidfd_getfd io_uring_setup io_uring_enter io_uring_register name_to_handle_at open_by_handle_at
    kcmp chroot prlimit64
    """.split()  # noqa: SIM905 - names to read
)
"""Taken out of what is allowed; `clone`, `socket` and `prlimit64` come back with conditions."""

_NEW_NAMESPACES: Final = 0x7E020000
_FAMILIES: Final = (1, 2, 10)
"""Of sockets: local ones and those of a network namespace."""

_NETLINK, _AUDIT = 16, 9


def tightened(profile: Mapping[str, Any]) -> dict[str, Any]:
    """A profile of podman's without what is refused, and for programs of this machine's kind only."""
    rules: list[dict[str, Any]] = []
    for rule in profile["syscalls"]:
        names = [name for name in rule.get("names", ()) if name not in _REFUSED]
        if names:
            rules.append({**rule, "names": names})
    rules.append(_allow("clone", _argument(0, "SCMP_CMP_MASKED_EQ", _NEW_NAMESPACES)))
    rules += [_allow("socket", _argument(0, "SCMP_CMP_EQ", family)) for family in _FAMILIES]
    rules.append(_allow("socket", _argument(0, "SCMP_CMP_EQ", _NETLINK), _argument(2, "SCMP_CMP_NE", _AUDIT)))
    rules.append(_allow("prlimit64", _argument(0, "SCMP_CMP_EQ", 0)))  # of oneself, not of process 1
    kinds: list[dict[str, Any]] = [{**kind, "subArchitectures": []} for kind in profile.get("archMap", ())]
    return {**profile, "archMap": kinds, "syscalls": rules}


def profile_text() -> str:
    """The tightened profile, for podman; `SandboxError` when there is none to begin with."""
    for place in PLACES:
        if os.path.exists(place):  # noqa: PTH110 - a list of text
            try:
                return json.dumps(tightened(json.loads(Path(place).read_text(encoding="utf-8"))))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise SandboxError(f"{place} is no profile of system calls ({error}). Install podman again.") from error
    raise SandboxError(
        f"podman's profile of system calls is missing ({PLACES[-1]}). Install containers-common (Fedora) or "
        "golang-github-containers-common (Debian, Ubuntu)."
    )


def _allow(name: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": list(arguments)}


def _argument(index: int, operation: str, value: int) -> dict[str, Any]:
    return {"index": index, "value": value, "valueTwo": 0, "op": operation}


__all__ = ["PLACES", "profile_text", "tightened"]
