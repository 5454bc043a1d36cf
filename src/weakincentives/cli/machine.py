"""Which programs, models and features of the filesystem this machine has. Each is tried, not only looked for."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .finding import Finding, needs_linux, package_command

_SECONDS = 20.0
"""What a program may take to say its version."""


def programs() -> Iterator[Finding]:
    """Podman with its image, bubblewrap, PostgreSQL."""
    yield from _podman()
    yield _bubblewrap()
    yield _postgres()


def _podman() -> Iterator[Finding]:
    group, purpose = "Programs", "PodmanSandboxSection: models run programs in a container"
    if sys.platform != "linux":
        yield needs_linux(group, "podman", purpose)
        return
    program = shutil.which("podman")
    if program is None:
        yield Finding(group, "podman", "missing", purpose, "", package_command("podman"))
        return
    said = _said(program, "--version")
    if said is None:
        yield Finding(group, "podman", "broken", purpose, f"{program} does not run", "podman info")  # says why
        return
    yield Finding(group, "podman", "ok", purpose, said.removeprefix("podman version "))
    yield _image()


def _image() -> Finding:
    purpose = "the image that containers start from, with Python"
    try:
        from ..contrib.podman.image import DEFAULT_IMAGE, have_image  # noqa: PLC0415 - heavy, and needs the core

        there = have_image()
    except (OSError, ImportError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        return Finding("Programs", "sandbox image", "broken", purpose, first, "podman info")
    detail = DEFAULT_IMAGE if there else ""
    get = "" if there else "wink sandbox image"
    return Finding("Programs", "sandbox image", "ok" if there else "missing", purpose, detail, get)


def _bubblewrap() -> Finding:
    purpose = "a second wall around AstevalSection"
    if sys.platform != "linux":
        return needs_linux("Programs", "bubblewrap", purpose)
    program = shutil.which("bwrap")
    if program is None:
        return Finding("Programs", "bubblewrap", "missing", purpose, "", package_command("bubblewrap"))
    if _said(program, "--ro-bind", "/", "/", "--unshare-all", "true") is None:
        detail = "it may not make namespaces here: the kernel, or the profile of a container, forbids it"
        return Finding("Programs", "bubblewrap", "broken", purpose, detail, _allow_namespaces())
    return Finding("Programs", "bubblewrap", "ok", purpose, (_said(program, "--version") or "").rpartition(" ")[2])


def _allow_namespaces() -> str:
    """The setting that forbids them; distributions have different ones."""
    for name, value in (("kernel/apparmor_restrict_unprivileged_userns", 0), ("kernel/unprivileged_userns_clone", 1)):
        if Path("/proc/sys", name).exists():
            return f"sudo sysctl {name.replace('/', '.')}={value}"
    return "sudo sysctl user.max_user_namespaces=15000"


def _postgres() -> Finding:
    purpose = "effect ledgers that many machines share; any server that can be reached will do"
    found = shutil.which("postgres") or shutil.which("psql")
    servers = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if found is None and servers:
        found = str(servers[-1])
    if found is None:
        mac = "brew install postgresql"
        return Finding("Programs", "PostgreSQL", "missing", purpose, "", package_command("postgresql", mac=mac))
    return Finding("Programs", "PostgreSQL", "ok", purpose, found)


def model() -> Iterator[Finding]:
    """The weights of the small model."""
    purpose = "the small model behind --model local, which also needs the extra local"
    try:
        from ..adapters.local_weights import have_weights, weights_path  # noqa: PLC0415 - heavy, and needs the core

        there, where = have_weights(), str(weights_path())
    except (OSError, RuntimeError, ImportError) as error:
        yield Finding("Local model", "SmolLM2-135M", "broken", purpose, str(error), "wink model fetch")
        return
    detail, get = (where, "") if there else ("", "wink model fetch")
    yield Finding("Local model", "SmolLM2-135M", "ok" if there else "missing", purpose, detail, get)


def files(directory: str) -> Iterator[Finding]:
    """What the filesystem of a directory can do; a temporary directory is made in it and removed."""
    group = f"Files in {directory}"
    try:
        with tempfile.TemporaryDirectory(prefix=".wink-doctor-", dir=directory) as folder:
            yield from _tried(group, Path(folder))
    except OSError as error:
        get = "choose a directory that you may write to: wink doctor DIR"
        yield Finding(group, "writing", "broken", "HostFilesystem, and wink run --workspace", error.strerror or "", get)
        return
    yield _openat2(group)


def _tried(group: str, folder: Path) -> Iterator[Finding]:
    file = folder / "a"
    file.write_bytes(b"x")
    yield Finding(group, "writing", "ok", "HostFilesystem, and wink run --workspace")
    yield _feature(group, "locks", _locks(file), "one writer at a time, in any process")
    yield _feature(group, "hard links", _links(file, folder / "b"), "old versions of files, kept without a copy")
    yield _feature(group, "symbolic links", _symlinks(folder / "c"), "trees that have some are undone with them")
    yield _xattrs(group, file)
    cased = not (folder / "A").exists()
    detail = "" if cased else "A and a are one file here"
    yield Finding(group, "upper and lower case", "ok", "the same names on every machine", detail or "are distinct")


def _feature(group: str, name: str, works: bool, purpose: str) -> Finding:
    get = "" if works else "keep files on a local disk rather than on a network share"
    return Finding(group, name, "ok" if works else "missing", purpose, "", get)


def _locks(file: Path) -> bool:
    with file.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def _links(file: Path, other: Path) -> bool:
    try:
        os.link(file, other)
    except OSError:
        return False
    return True


def _symlinks(name: Path) -> bool:
    try:
        name.symlink_to("a")
    except OSError:
        return False
    return True


def _xattrs(group: str, file: Path) -> Finding:
    name, purpose = "extended attributes", "attributes of files are undone with them"
    if not hasattr(os, "setxattr"):
        return needs_linux(group, name, purpose)
    try:
        os.setxattr(file, "user.wink", b"1")
    except OSError:
        return _feature(group, name, False, purpose)
    return _feature(group, name, True, purpose)


def _openat2(group: str) -> Finding:
    purpose = "paths checked by the kernel in one step; without it, step by step"
    if sys.platform != "linux":
        return needs_linux(group, "openat2", purpose)
    try:
        from ..filesystem.syscalls import Syscalls  # noqa: PLC0415 - needs the core

        there = Syscalls().has_openat2
    except ImportError as error:
        return Finding(group, "openat2", "broken", purpose, str(error))
    get = "" if there else "Linux 5.6 or newer, and a container profile that allows it"
    return Finding(group, "openat2", "ok" if there else "missing", purpose, "", get)


def _said(*line: str) -> str | None:
    """The first line that a program prints; None when it fails, or takes too long."""
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            line, capture_output=True, text=True, timeout=_SECONDS, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout.splitlines() or [""])[0].strip()


__all__ = ["files", "model", "programs"]
