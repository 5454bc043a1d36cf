"""What `wink doctor` finds: one thing that is here or missing, what it is for and how to get it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, NamedTuple

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


__all__ = ["Finding", "State", "needs_linux", "package_command"]
