"""A small image with Python and a shell, made on this machine: no registry is asked, no script of a package runs."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Literal

from .image_interpreter import pack_interpreter
from .image_packages import download, have_apt, pack
from .image_root import ImageRoot

DEFAULT_IMAGE = "localhost/wink-python:latest"
"""What `wink sandbox image` builds, and what a sandbox uses unless it is told otherwise."""

ImageSource = Literal["auto", "packages", "interpreter"]
"""Where the files come from: the distribution's packages, or what runs here; `auto` takes packages where apt is."""

NO_PODMAN = "podman is not installed. Run: apt-get install --no-install-recommends podman runc"

_NAME = re.compile(r"[a-z0-9][a-z0-9._/:-]{0,200}")

_CHANGES = (
    "USER 1000:1000",
    "WORKDIR /workspace",
    "ENV PATH=/usr/local/bin:/usr/bin:/bin",
    "ENV HOME=/tmp",
    "ENV LANG=C.UTF-8",
    'CMD ["sh"]',
)


def have_image(name: str = DEFAULT_IMAGE) -> bool:
    """Whether podman has the image. `OSError` when there is no podman, or none that works."""
    return _identity(name) is not None


def build_image(
    name: str = DEFAULT_IMAGE,
    *,
    source: ImageSource = "auto",
    rebuild: bool = False,
    report: Callable[[str], None] | None = None,
) -> bool:
    """Build the image unless podman has it; true when it was built now.

    It holds Python, a shell and the usual small programs, the user `agent` (1000:1000) and `/workspace`. Nothing is
    left behind when it fails or is interrupted; an image of that name stays until the new one is whole.

    Args:
        name: of the image, `localhost/NAME:TAG`.
        source: see `ImageSource`.
        rebuild: also when there is one; the old one goes unless a container uses it.
        report: is given a line of text as the work goes on; it takes some seconds.

    Raises:
        ValueError: a name or source that is none.
        OSError: podman, a package or space is missing; the text says what to do.
    """
    if source not in {"auto", "packages", "interpreter"}:
        raise ValueError(f"There is no source {source!r}; use auto, packages or interpreter.")
    old = _identity(name)
    if old is not None and not rebuild:
        return False
    say = report or _silent
    try:
        with TemporaryDirectory(prefix="wink-image-", ignore_cleanup_errors=True) as folder:
            _build(name, source, Path(folder), say)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise OSError("There is no space left. Free some, or set TMPDIR to a bigger place.") from error
        raise
    if old is not None and old != _identity(name):
        _podman("image", "rm", old)  # stays when a container uses it
    return True


def _build(name: str, source: ImageSource, folder: Path, say: Callable[[str], None]) -> None:
    from_packages = source == "packages" or (source == "auto" and have_apt())
    if from_packages and not have_apt():
        raise OSError("There is no apt-get and dpkg-deb here. Build the image with: --from interpreter")
    packages: Sequence[Path] = download(folder, say) if from_packages else ()

    def fill(root: ImageRoot) -> None:
        if from_packages:
            pack(packages, root, say)
        else:
            pack_interpreter(root, say)

    _import(name, folder, fill)


def _import(name: str, folder: Path, fill: Callable[[ImageRoot], None]) -> None:
    """Stream the root file system into podman, which keeps its own copy in the folder meanwhile."""
    changes = [part for change in _CHANGES for part in ("--change", change)]
    with (
        TemporaryFile() as complaints,
        subprocess.Popen(
            ["podman", "import", "--quiet", *changes, "-", name],
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env={**os.environ, "TMPDIR": str(folder)},
        ) as importing,
    ):
        assert importing.stdin is not None
        root = ImageRoot(importing.stdin)
        try:
            root.begin()
            fill(root)
            root.close()
            importing.stdin.close()
        except BrokenPipeError:
            pass  # podman says why
        except BaseException:
            importing.kill()  # before its input ends: half an image must not be taken for a whole one
            raise
        finally:
            root.abandon()
        if importing.wait() != 0:
            complaints.seek(0)
            raise OSError(_explained(complaints.read().decode(errors="replace")))


def _identity(name: str) -> str | None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for an image; use one such as {DEFAULT_IMAGE}")
    found = _podman("image", "inspect", "--format", "{{.Id}}", name)
    if found.returncode == 0:
        return found.stdout.strip()
    if re.search(r"no such (object|image)|not known", found.stderr):
        return None
    raise OSError(_explained(found.stderr))


def _podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("podman") is None:
        raise OSError(NO_PODMAN)
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False)


def _explained(complaints: str) -> str:
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    last = lines[-1].removeprefix("Error: ") if lines else "it failed without a word"
    if "no space left" in complaints.lower():
        return (
            f"podman has no space left: {last}. Free some with: podman system prune, or set TMPDIR to a bigger place."
        )
    return f"podman cannot do it: {last}"


def _silent(_: str) -> None:
    pass


__all__ = ["DEFAULT_IMAGE", "ImageSource", "build_image", "have_image"]
