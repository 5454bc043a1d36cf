"""An image from the distribution's packages: apt brings them, their files go in, their scripts never run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tarfile import TarError

from .image_root import ImageRoot

PACKAGES = (
    *("python3", "bash", "dash", "coreutils", "grep", "sed", "findutils", "tar", "gzip", "diffutils", "mawk", "procps"),
    *("debianutils", "base-files", "netbase", "libstdc++6"),
)

_OPTIONAL = ("usr-is-merged",)
"""Where it is known it keeps a dependency of a dependency from bringing Perl."""

_LEFT_OUT = ("dpkg_", "init-system-helpers_", "perl", "usrmerge_", "usr-is-merged_")
"""Downloaded because scripts that never run would need them."""

_UPDATE = "apt-get does not know the packages. Run: apt-get update"


def have_apt() -> bool:
    """Whether packages can be had this way."""
    return shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None


def download(folder: Path, report: Callable[[str], None]) -> Sequence[Path]:
    """The packages with all they need, downloaded into the folder; nothing of the machine's own apt is touched.

    `OSError` says what to do when apt cannot do it.
    """
    apt = _apt(folder)
    names = [*PACKAGES, *(name for name in _OPTIONAL if _known(name))]
    command = [*apt, "--download-only", "--no-install-recommends", "install", *names]
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment, text=True
    ) as running:
        assert running.stdout is not None
        try:
            failures = _follow(running.stdout, report)
        except BaseException:
            running.kill()
            raise
    if running.returncode != 0:
        raise OSError(_explained(failures))
    return sorted((folder / "cache" / "archives").glob("*.deb"))


def pack(packages: Sequence[Path], root: ImageRoot, report: Callable[[str], None]) -> None:
    """Write the files of the packages into the image."""
    wanted = [package for package in packages if not package.name.startswith(_LEFT_OUT)]
    # What scripts of packages would have set up, first: what is there first stays.
    root.link("usr/bin/sh", "dash")
    root.link("usr/bin/awk", "mawk")
    root.link("usr/bin/which", "which.debianutils")
    root.link("usr/bin/python", "python3")
    for index, package in enumerate(wanted):
        if index % 20 == 0:
            report(f"Packing: {index} of {len(wanted)} packages")
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as unpacking:
            assert unpacking.stdout is not None
            assert unpacking.stderr is not None
            broken = False
            try:
                root.package(unpacking.stdout)
            except TarError:
                broken = True
                unpacking.stdout.close()
            except BaseException:
                unpacking.kill()
                raise
            problem = unpacking.stderr.read().decode(errors="replace").strip()
        if broken or unpacking.returncode != 0:
            raise OSError(f"The package {package.name} cannot be unpacked: {problem}. Try again.")


def _apt(folder: Path) -> list[str]:
    """An apt-get that knows the machine's package lists, believes nothing is installed, and works in the folder."""
    (folder / "cache" / "archives" / "partial").mkdir(parents=True)
    (folder / "status").touch()
    settings = {
        "Dir::State::status": folder / "status",
        "Dir::State::extended_states": folder / "extended_states",
        "Dir::Cache": folder / "cache",
        "Dir::Log": folder,
        "Debug::NoLocking": "1",
        "Acquire::Retries": "2",
        # The folder is ours alone, and the user that apt drops its rights to cannot write there.
        "APT::Sandbox::User": "root",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    return ["apt-get", "-q", "-y", *options]


def _known(name: str) -> bool:
    found = subprocess.run(["apt-cache", "pkgnames", name], capture_output=True, text=True, check=False)
    return name in found.stdout.split()


def _follow(lines: Iterable[str], report: Callable[[str], None]) -> list[str]:
    """Report how far apt is; give its complaints."""
    failures: list[str] = []
    total = "?"
    for line in lines:
        counted = re.match(r"\d+ upgraded, (\d+) newly installed", line)
        fetched = re.match(r"Get:(\d+) ", line)
        if counted:
            total = counted[1]
            report(f"Downloading {total} packages with apt-get")
        elif fetched and int(fetched[1]) % 20 == 0:
            report(f"Downloaded: {fetched[1]} of {total} packages")
        elif line.startswith(("E:", "Err:")):
            failures.append(line.strip())
    return failures


def _explained(failures: Sequence[str]) -> str:
    text = "\n".join(failures)
    if "Unable to locate" in text or "no installation candidate" in text:
        return _UPDATE
    if "enough free space" in text or "No space left" in text:
        return f"There is no space for the packages: {failures[-1]}. Free some, or set TMPDIR to a bigger place."
    if "404" in text or "Unable to fetch" in text or "Failed to fetch" in text:
        return "apt-get cannot download the packages. Run: apt-get update, or build it with: --from interpreter"
    return f"apt-get cannot bring the packages: {failures[-1] if failures else 'it failed without a word'}"


__all__ = ["PACKAGES", "download", "have_apt", "pack"]
