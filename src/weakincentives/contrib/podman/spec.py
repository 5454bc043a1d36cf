"""A container's limits, as arguments for podman, and the check that they are in force."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from ...errors import SandboxError
from ...filesystem import reserved
from ..code import wire
from ..code.remote import LOADER, program, sources
from . import inside
from .image import DEFAULT_IMAGE

PYTHON: Final = "python3"
"""The container's process 1, whatever the image would start by itself."""

ARGUMENTS: Final = ("-I", "-c", LOADER)
"""What it is started with: it waits for `boot_message`, so nothing of the host is mounted for it."""


def boot_message(paths: Sequence[str]) -> bytes:
    """The supervisor's program; `paths` are the places that the container reports on."""
    modules = {
        **sources(Path(reserved.__file__).parent, reserved.__package__ or "", "reserved"),
        **sources(Path(wire.__file__).parent, wire.__package__ or "", "wire"),
        **sources(Path(inside.__file__).parent, inside.__name__, "scratch", "processes", "main"),
    }
    return program(modules, list(paths))


WORKSPACE = "/workspace"
_WRITABLE = {WORKSPACE, "/tmp", "/dev/shm", "/dev/mqueue"}  # noqa: S108 - in the container
"""All that may be writable; queues cannot be made in the last one."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container that is locked down: no capabilities, no way to more privileges, nothing writable but two places.

    Attributes:
        root: the folder of the host that is its `/workspace`.
        user: user and group it runs as.
        read_only: further folders of the host, by their path inside; they cannot be written there.
        memory, tmp: bytes of memory, and of it for `/tmp`.
        disk, files: bytes and files that the workspace may hold.
        lease: seconds after which podman ends it, whatever happens to its owner.
        executable: whether programs in the workspace may be started as such.
        rootless: whether podman runs without root's rights.
    """

    root: str
    user: tuple[int, int]
    image: str = DEFAULT_IMAGE
    read_only: Mapping[str, str] = field(default_factory=dict[str, str])
    memory: int = 512 * 1024 * 1024
    cpus: float = 1.0
    pids: int = 128
    tmp: int = 64 * 1024 * 1024
    disk: int = 512 * 1024 * 1024
    files: int = 50_000
    network: str = "none"
    lease: int = 3600
    executable: bool = False
    rootless: bool = False
    program: str = "podman"

    def arguments(self, name: str, labels: Mapping[str, str], seccomp: str) -> list[str]:
        """For `podman run`, without the arguments of the program inside; `seccomp` is a file of system calls."""
        options = "nosuid,nodev" if self.executable else "nosuid,nodev,noexec"
        line = ["run", "-i", "--rm", "--name", name, "--pull=never", "--sig-proxy=false", "--http-proxy=false"]
        for label, value in labels.items():
            line += ["--label", f"{label}={value}"]
        line += ["--timeout", str(self.lease), "--stop-timeout", "0", "--log-driver", "none"]
        line += ["--network", self.network, "--user", f"{self.user[0]}:{self.user[1]}"]
        if self.rootless:
            line += ["--userns", "keep-id"]
        line += ["--memory", str(self.memory), "--memory-swap", str(self.memory), "--cpus", f"{self.cpus:g}"]
        line += ["--pids-limit", str(self.pids), "--cap-drop", "all", "--security-opt", "no-new-privileges"]
        line += ["--security-opt", f"seccomp={seccomp}"]
        line += ["--read-only", "--read-only-tmpfs=false"]
        line += ["--tmpfs", f"/tmp:rw,nosuid,nodev,size={self.tmp},mode=1777"]  # noqa: S108 - in the container
        line += ["--shm-size", str(min(self.tmp, 64 * 1024 * 1024))]
        # Nothing that outlives its process: segments go with the last one attached, queues cannot be made.
        line += ["--sysctl", "kernel.shm_rmid_forced=1", "--sysctl", "kernel.msgmni=0"]
        line += ["--sysctl", "fs.mqueue.queues_max=0"]
        line += ["-v", f"{self.root}:{WORKSPACE}:rw,{options}"]
        # What the image says of itself is not asked: it could start a file of the workspace, or add writable places.
        line += ["--entrypoint", PYTHON, "--workdir", "/", "--image-volume=ignore", "--no-healthcheck"]
        for target, source in self.read_only.items():
            line += ["-v", f"{source}:{target}:ro,nosuid,nodev,noexec"]
        return [*line, self.image]

    @property
    def paths(self) -> Sequence[str]:
        """The places inside whose protection is checked."""
        return ("/", WORKSPACE, *self.read_only)

    def shortcomings(self, facts: Mapping[str, Any]) -> list[str]:
        """What is not in force of what was asked for, by what the container said of itself."""
        found: list[str] = []

        def check(holds: object, what: str) -> None:
            if not holds:
                found.append(what)

        memory, pids, cpus = facts.get("memory"), facts.get("pids"), facts.get("cpus")
        check(isinstance(memory, int) and memory <= self.memory, f"memory is limited to {memory}, not {self.memory}")
        check(facts.get("swap") == 0, f"swap is limited to {facts.get('swap')}, not 0")
        check(isinstance(pids, int) and pids <= self.pids, f"processes are limited to {pids}, not {self.pids}")
        check(
            isinstance(cpus, int | float) and cpus <= self.cpus + 0.01, f"cpus are limited to {cpus}, not {self.cpus}"
        )
        check((facts.get("uid"), facts.get("gid")) == self.user, f"it runs as user {facts.get('uid')}")
        check(facts.get("uid") != 0, "it runs as root")
        check(facts.get("pid") == 1, "it shares the machine's processes")
        capabilities: Mapping[str, object] = facts.get("capabilities") or {"all": "unknown"}
        held = [f"{name}={value}" for name, value in capabilities.items() if str(value).strip("0")]
        check(not held, f"it has capabilities ({', '.join(held)})")
        check(facts.get("no_new_privileges") == "1", "it can gain privileges")
        check(facts.get("seccomp") == "2", "system calls are not filtered")
        opened = facts.get("opened")
        check(opened == [], f"it can get into {opened}")
        if self.network == "none":
            check(facts.get("interfaces") == ["lo"], f"it has a network ({facts.get('interfaces')})")
        read_only: Mapping[str, object] = facts.get("read_only") or {}
        for path in ("/", *self.read_only):
            check(read_only.get(path) is True, f"{path} can be written")
        mounts = facts.get("mounts")
        check(isinstance(mounts, list), "what can be written is not known")
        for path in cast(list[object], mounts) if isinstance(mounts, list) else ():
            check(path in _WRITABLE, f"{path} can be written")
        return found


# Which system calls a container may make: what podman allows by default, less what building and computing do not need.
#
# Podman's own profile lets every process make user namespaces and mount in them, which opens much of the kernel, and
# open sockets of kinds that no network namespace holds, such as those between a virtual machine and its host.


PLACES: Final = ("/etc/containers/seccomp.json", "/usr/share/containers/seccomp.json")
"""Where podman's profile is."""

_REFUSED: Final = frozenset(
    """
    unshare setns mount umount umount2 pivot_root open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
    clone clone3 socket socketcall keyctl add_key request_key bpf perf_event_open userfaultfd ptrace process_vm_readv
    process_vm_writev pidfd_getfd io_uring_setup io_uring_enter io_uring_register name_to_handle_at open_by_handle_at
    kcmp chroot prlimit64 ioprio_set sched_setattr
    """.split()  # noqa: SIM905 - names to read
)
"""Taken out of what is allowed; `clone`, `socket` and `prlimit64` come back with conditions."""

_NEW_NAMESPACES: Final = 0x7E020000
_FAMILIES: Final = (1, 2, 10)
"""Of sockets: local ones and those of a network namespace."""

_NETLINK, _AUDIT = 16, 9


def restricted_profile(profile: Mapping[str, Any]) -> dict[str, Any]:
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
    """The restricted profile, for podman; `SandboxError` when there is none to begin with."""
    for place in PLACES:
        if os.path.exists(place):  # noqa: PTH110 - a list of text
            try:
                return json.dumps(restricted_profile(json.loads(Path(place).read_text(encoding="utf-8"))))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise SandboxError(
                    f"{place} is not a profile of system calls ({error}). Install podman again."
                ) from error
    raise SandboxError(
        f"podman's profile of system calls is missing ({PLACES[-1]}). Install containers-common (Fedora) or "
        "golang-github-containers-common (Debian, Ubuntu)."
    )


def _allow(name: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": list(arguments)}


def _argument(index: int, operation: str, value: int) -> dict[str, Any]:
    return {"index": index, "value": value, "valueTwo": 0, "op": operation}
