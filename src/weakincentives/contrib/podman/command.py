"""The podman command: where it is, with which settings it runs, and what its complaints mean."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ...errors import SandboxError
from .image import DEFAULT_IMAGE

QUERY_TIMEOUT_SECONDS = 30.0
"""Seconds a command may take that only asks or removes."""

_CONF = Path(__file__).with_name("containers.conf")
_SYSTEMD = Path("/run/systemd/system")

_CGROUPS = (
    "podman cannot limit resources on this machine. Run it as root, or as a user whose session systemd manages with "
    "cgroups v2; with runc installed (apt-get install runc) mixed cgroups work as well"
)
_NAMESPACES = (
    "podman may not make user namespaces here. Add the user to /etc/subuid and /etc/subgid, install uidmap, or run it "
    "as root"
)
_MEANINGS = (
    (
        ("image not known", "no such image", "unable to find image", "did not resolve to an image", "no such object"),
        "podman does not have the image {image}. {get}",
    ),
    (("no space left",), "podman has no space left. Free some with: podman system prune"),
    (
        ("setrlimit", "rlimit"),
        "podman may not set limits on this machine. Run it as root, or give the service CAP_SYS_RESOURCE",
    ),
    (
        ('"python3": executable file', "executable file `python3`", '"python3": stat'),
        "The image {image} has no python3, which a sandbox needs inside. Use one that has it. {get}",
    ),
    (("cgroup",), _CGROUPS),
    (("newuidmap", "newgidmap", "subuid", "user namespace", "cannot clone"), _NAMESPACES),
)
"""Words of podman's, and what they mean; the first that fits."""


def find_podman(program: str = "podman") -> str:
    """The full path of the command; `SandboxError` that says how to install it when it is missing.

    The same on systems other than Linux: there podman runs containers in a virtual machine, where neither the limits
    nor the owners of files are those that are asked for here.
    """
    if sys.platform != "linux":
        raise SandboxError(
            f"A sandbox needs Linux for its limits, and this is {sys.platform}. Run the program in a Linux virtual "
            "machine, or use PythonSection, which needs no container."
        )
    found = shutil.which(program)
    if found is None:
        raise SandboxError(
            f"{program} is not installed. Install it: apt-get install --no-install-recommends podman runc "
            "(Debian, Ubuntu) or dnf install podman (Fedora)."
        )
    return found


def podman(program: str, *arguments: str) -> list[str]:
    """The command line, with the settings that must come first."""
    line = [find_podman(program)]
    if shutil.which("runc") is not None:
        # crun does not know machines with both kinds of cgroups; runc knows all.
        line += ["--runtime", "runc"]
    if not _SYSTEMD.exists():
        line += ["--cgroup-manager", "cgroupfs"]
    return [*line, *arguments]


def environment() -> dict[str, str]:
    """What podman itself runs with; nothing of it is passed into a container."""
    return {**os.environ, "CONTAINERS_CONF": str(_CONF)}


def run(line: Sequence[str], seconds: float = QUERY_TIMEOUT_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run it to its end; `SandboxError` when it takes too long."""
    try:
        return subprocess.run(
            line, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        shown = " ".join(line[:4])
        raise SandboxError(f"podman did not answer within {seconds:g} s ({shown} ...). Try: podman ps") from None


def explained(complaints: str, image: str) -> str:
    """What podman's complaints mean, what to do, and its own last words."""
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    last = (lines[-1].removeprefix("Error: ") if lines else "it said nothing")[:500]
    lowered = complaints.lower()
    get = _how_to_get(image)
    for signs, meaning in _MEANINGS:
        if any(sign in lowered for sign in signs):
            return f"{meaning.format(image=image, get=get)}. (podman: {last})"
    return f"podman cannot start the container. (podman: {last})"


def _how_to_get(image: str) -> str:
    if image == DEFAULT_IMAGE:
        return "Build it with: wink sandbox image"
    if image.startswith("localhost/"):  # no registry has these
        return f"Build it with: podman build --tag {image}"
    return f"Get it with: podman pull {image}"
