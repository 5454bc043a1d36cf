"""`wink doctor`: what this machine has and lacks, what each thing is for, and the command that gets it."""

from __future__ import annotations

import argparse
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from ..models import PROVIDERS
from ..output import existing_directory, show, show_json
from .version import version_text

_WIDTH = 78


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; 1 when something is missing that everything needs."""
    if arguments.directory is not None:
        existing_directory(arguments.directory)
    found: list[Finding] = []
    if not arguments.json:
        show(f"{version_text()} on {platform.system()} {platform.release()} ({platform.machine()})")
    group = ""
    directory = arguments.directory or tempfile.gettempdir()
    for finding in chain(core(), extras(), keys(), programs(), model(), files(directory)):
        found.append(finding)
        if arguments.json:
            show_json(finding._asdict())
            continue
        if finding.group != group:
            group = finding.group
            show(f"\n{group}")
        for line in _lines(finding):
            show(line)
    if not arguments.json:
        show(f"\n{_summary(found)}")
    return 1 if any(finding.needed and finding.state != "ok" for finding in found) else 0


def _lines(finding: Finding) -> Iterator[str]:
    """Two or three lines: what it is and what it is for, then the command."""
    detail = f" ({finding.detail})" if finding.detail else ""
    text = f"{finding.name}{detail} - {finding.purpose}"
    yield from textwrap.wrap(
        text, _WIDTH, initial_indent=f"  {finding.state:8} ", subsequent_indent=" " * 11, break_on_hyphens=False
    )
    if finding.get:
        yield f"{' ' * 11}-> {finding.get}"  # whole, since it is there to be copied


def _summary(found: Iterable[Finding]) -> str:
    lacking = [finding for finding in found if finding.state != "ok"]
    needed = [finding.name for finding in lacking if finding.needed]
    if needed:
        return f"WINK cannot work without: {', '.join(needed)}."
    if lacking:
        return f"WINK works here. {len(lacking)} things are missing; get those whose purpose is yours."
    return "WINK works here, and nothing is missing."


# What `wink doctor` finds: one thing that is here or missing, what it is for and how to get it.


State = Literal["ok", "missing", "broken"]


class Finding(NamedTuple):
    """One thing.

    Attributes:
        purpose: what it is for.
        detail: what is here, or what is wrong with it; never a secret.
        get: the command that gets it, where it is not here or does not work.
        needed: whether everything needs it.
    """

    group: str
    name: str
    state: State
    purpose: str
    detail: str = ""
    get: str = ""
    needed: bool = False


def needs_linux(group: str, name: str, purpose: str) -> Finding:
    """What is of no use on another system, so there is nothing to get."""
    return Finding(group, name, "missing", purpose, "needs Linux")


def package_command(package: str, *, mac: str = "") -> str:
    """How the system's own package manager installs a package."""
    if sys.platform == "darwin":
        return mac or f"brew install {package}"
    try:
        known = Path("/etc/os-release").read_text(encoding="utf-8").lower()
    except OSError:
        known = ""
    family = " ".join(line for line in known.splitlines() if line.startswith(("id=", "id_like=")))
    for names, command in _INSTALLERS:
        if any(name in family for name in names):
            return f"sudo {command} {package}"
    return f"install {package} with the package manager of your system"


_INSTALLERS = (
    (("debian", "ubuntu"), "apt-get install"),
    (("fedora", "rhel", "centos"), "dnf install"),
    (("arch",), "pacman -S"),
    (("alpine",), "apk add"),
    (("suse",), "zypper install"),
)


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
        from ...contrib.podman.image import DEFAULT_IMAGE, have_image  # noqa: PLC0415 - heavy, and needs the core

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
        from ...adapters.local_weights import have_weights, weights_path  # noqa: PLC0415 - heavy, and needs the core

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
    with file.open("rb") as held:
        locks = _works(lambda: fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB))
    yield _feature(group, "locks", locks, "one writer at a time, in any process")
    links = _works(lambda: os.link(file, folder / "b"))
    yield _feature(group, "hard links", links, "old versions of files, kept without a copy")
    symlinks = _works(lambda: (folder / "c").symlink_to("a"))
    yield _feature(group, "symbolic links", symlinks, "trees that have some are undone with them")
    name, purpose = "extended attributes", "attributes of files are undone with them"
    if hasattr(os, "setxattr"):
        yield _feature(group, name, _works(lambda: os.setxattr(file, "user.wink", b"1")), purpose)
    else:
        yield needs_linux(group, name, purpose)
    cased = not (folder / "A").exists()
    detail = "" if cased else "A and a are one file here"
    yield Finding(group, "upper and lower case", "ok", "the same names on every machine", detail or "are distinct")


def _feature(group: str, name: str, works: bool, purpose: str) -> Finding:
    get = "" if works else "keep files on a local disk rather than on a network share"
    return Finding(group, name, "ok" if works else "missing", purpose, "", get)


def _works(use: Callable[[], object]) -> bool:
    try:
        use()
    except OSError:
        return False
    return True


def _openat2(group: str) -> Finding:
    purpose = "paths checked by the kernel in one step; without it, step by step"
    if sys.platform != "linux":
        return needs_linux(group, "openat2", purpose)
    try:
        from ...filesystem.disk.syscalls import Syscalls  # noqa: PLC0415 - needs the core

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


# Which Python packages and keys are here: the core, what each extra brings, what each provider asks for.


class Extra(NamedTuple):
    """What `pip install 'weakincentives[NAME]'` brings."""

    package: str
    module: str
    purpose: str


EXTRAS = {
    "openai": Extra("openai", "openai", "models of OpenAI, and servers that speak its API"),
    "anthropic": Extra("anthropic", "anthropic", "Claude models"),
    "litellm": Extra("litellm", "litellm", "most other providers"),
    "claude-agent-sdk": Extra("claude-agent-sdk", "claude_agent_sdk", "Claude Code as the model's harness"),
    "local": Extra("xllamacpp", "xllamacpp", "a model in this process, without key or network"),
    "python": Extra("pydantic-monty", "pydantic_monty", "PythonSection: models run Python"),
    "asteval": Extra("asteval", "asteval", "AstevalSection: models run arithmetic"),
    "postgres": Extra("psycopg", "psycopg", "effect ledgers in PostgreSQL"),
    "cli": Extra("rich", "rich", "colours in the terminal"),
}

_OLDEST = (3, 11)
_NO_LITELLM = (3, 15)
_PATTERN_ENGINES = (("re2", "google-re2"), ("regex", "regex"))


def core() -> Iterator[Finding]:
    """Python itself and the packages that everything needs."""
    here = ".".join(map(str, sys.version_info[:3]))
    new_enough = sys.version_info >= _OLDEST
    yield Finding(
        "Needed by everything", "Python", "ok" if new_enough else "broken", "3.11 or newer", here,
        "" if new_enough else "install Python 3.11 or newer", needed=True,
    )  # fmt: skip
    for package in _core_packages():
        found = _version(package)
        yield Finding(
            "Needed by everything", package, "missing" if found is None else "ok", "part of WINK itself", found or "",
            "" if found else "pip install --force-reinstall weakincentives", needed=True,
        )  # fmt: skip

    engine = next((package for module, package in _PATTERN_ENGINES if _can_be_found(module)), "")
    yield Finding(
        "Needed by everything", "google-re2 or regex", "ok" if engine else "missing", "grep with patterns of models",
        f"{engine} {_version(engine)}" if engine else "", "" if engine else "pip install regex", needed=True,
    )  # fmt: skip


def _core_packages() -> list[str]:
    """As the metadata of the installed WINK says; without any, the one that is always there."""
    try:
        declared = requires("weakincentives") or []
    except PackageNotFoundError:
        return ["pydantic"]
    # One with a marker is not needed on every machine: which one it is, pip has decided.
    plain = [line for line in declared if ";" not in line]
    return [match[0] for line in plain if (match := re.match(r"[A-Za-z0-9._-]+", line))]


def extras() -> Iterator[Finding]:
    """What `pip install 'weakincentives[...]'` could add."""
    for name, extra in EXTRAS.items():
        found = _version(extra.package) if _can_be_found(extra.module) else None
        if name == "asteval" and sys.platform != "linux":
            yield needs_linux("Extras", name, extra.purpose)
        elif found:
            yield Finding("Extras", name, "ok", extra.purpose, found)
        elif name == "litellm" and sys.version_info >= _NO_LITELLM:
            get = "--model openai:NAME --base-url URL, with the provider's address"
            yield Finding("Extras", name, "missing", extra.purpose, "needs Python 3.14 or older", get)
        else:
            yield Finding("Extras", name, "missing", extra.purpose, "", f"pip install 'weakincentives[{name}]'")


def keys() -> Iterator[Finding]:
    """Whether the variables of the providers are set. Their values are not looked at."""
    for name, row in PROVIDERS.items():
        if row.key:
            is_set = bool(os.environ.get(row.key))
            get = "" if is_set else f"export {row.key}=..."
            purpose = f"--model {name}:NAME and its adapter"
            yield Finding("Keys", row.key, "ok" if is_set else "missing", purpose, "is set" if is_set else "", get)
        if row.url and os.environ.get(row.url):
            yield Finding("Keys", row.url, "ok", f"another server for {name}:NAME, which needs no key", "is set")


def _can_be_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # it is kept from being imported
        return False


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
