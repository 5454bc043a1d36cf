"""An image from what runs here: this Python with its standard library, the libraries both need, and busybox."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path

from .image_root import ImageRoot

_LEFT_OUT = {
    *("__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo"),
    *("ensurepip", "lib2to3", "pydoc_data"),
}

_NO_BUSYBOX = "busybox is not installed; the image needs it for its shell. Run: apt-get install busybox-static"


def pack_interpreter(root: ImageRoot, report: Callable[[str], None]) -> None:
    """Write this interpreter and a shell into the image. `OSError` says what is missing."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise OSError(_NO_BUSYBOX)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    report(f"Packing {version} from {python}")
    root.file(f"usr/local/bin/{version}", python, 0o755)
    root.link("usr/local/bin/python3", version)
    root.link("usr/local/bin/python", version)
    native = [python, Path(busybox)]
    for path, inside in _standard_library():
        root.file(f"usr/local/{sys.platlibdir}/{version}/{inside}", path)
        if path.suffix == ".so":
            native.append(path)
    report("Packing the libraries it needs, and busybox")
    _pack_libraries(root, native)
    root.file("usr/bin/busybox", Path(busybox), 0o755)
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in applets:
        root.link(f"usr/bin/{applet}", "busybox")


def _standard_library() -> Iterable[tuple[Path, str]]:
    library = Path(sysconfig.get_path("stdlib")).resolve()
    for folder, directories, names in os.walk(library):
        directories[:] = sorted(
            name for name in directories if name not in _LEFT_OUT and not name.startswith(("config-", "."))
        )
        for name in sorted(names):
            path = Path(folder, name)
            # A name that is not text cannot be Python's own.
            if path.is_file() and not name.endswith((".a", ".pyc")) and name.isprintable():
                yield path, str(path.relative_to(library))


def _pack_libraries(root: ImageRoot, native: Iterable[Path]) -> None:
    """All shared libraries, in the folder of the C library: the one place where the loader looks on any system."""
    needed: dict[str, Path] = {}
    for path in native:
        listed = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
        for name, where in re.findall(r"^\s*(\S+)(?: => (/\S+))? \(0x", listed, re.MULTILINE):
            if where:
                needed.setdefault(name, Path(where))
            elif name.startswith("/"):  # the loader itself, at the path that programs name
                root.file(name, Path(name).resolve(), 0o755)
    folder = next((str(path.parent) for name, path in needed.items() if name.startswith("libc.")), "/lib")
    for name, path in needed.items():
        root.file(f"{folder}/{Path(name).name}", path.resolve(), 0o755)


__all__ = ["pack_interpreter"]
