"""A small image with Python and a shell, built on this machine without a registry or package scripts."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE
from tarfile import TarError
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Literal, final

# The root file system of an image is a folder here. Owners, and modes that depend on the umask, are set in the archive
# that is made of it, so that building an image needs no rights.


_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Names at the top that are links to the same name below `usr`, as on today's distributions."""

_DIRECTORIES = (
    *("proc", "sys", "dev", "root", "home", "run", "tmp", "workspace", "etc"),
    *("usr/bin", "usr/lib", "usr/lib64", "var/tmp"),
)

_USER = 1000

_DOCUMENTATION = (
    *("usr/share/doc/", "usr/share/man/", "usr/share/info/", "usr/share/locale/", "usr/share/lintian/"),
    "var/lib/",
)
"""What packages bring that no program needs."""


@final
class ImageRoot:
    """The files of an image, in a folder: what is there first stays, and parents are made as needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for directory in _DIRECTORIES:
            (folder / directory).mkdir(parents=True)
        for name in _MERGED:
            (folder / name).symlink_to(f"usr/{name}")
        self.file("etc/passwd", f"root:x:0:0:root:/root:/bin/sh\nagent:x:{_USER}:{_USER}:agent:/tmp:/bin/sh\n".encode())
        self.file("etc/group", f"root:x:0:\nagent:x:{_USER}:\n".encode())
        self.file("etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n")
        self.file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files\n")

    def link(self, path: str, target: str) -> None:
        """A symbolic link."""
        place = self._place(path)
        if place is not None:
            place.symlink_to(target)

    def file(self, path: str, content: bytes | Path, mode: int = 0o644) -> None:
        """A file with that content, or with that of a file here."""
        place = self._place(path)
        if place is not None:
            if isinstance(content, bytes):
                place.write_bytes(content)
            else:
                shutil.copyfile(content, place)
            place.chmod(mode)

    def package(self, archive: IO[bytes]) -> None:
        """What a package brings, but its documentation and translations."""
        with tarfile.open(fileobj=archive) as members:
            members.extractall(self._folder, filter=self._wanted)  # noqa: S202 - the filter refuses what leads out

    def pack(self, archive: Path) -> None:
        """Write it all as root's, but `/workspace`, which belongs to the user `agent`, 1000:1000."""
        with tarfile.open(archive, "w") as packed:
            packed.add(self._folder, arcname=".", filter=_normalised)

    def _place(self, path: str) -> Path | None:
        """Where to put it; None when something is there already."""
        place = self._folder / _merged(path)
        if os.path.lexists(place):
            return None
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _wanted(self, member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        member = tarfile.tar_filter(member, folder)  # no setuid, and no path that leads out
        path = _merged(member.name)
        if not path or path.startswith(_DOCUMENTATION) or self._place(path) is None:
            return None
        target = _merged(member.linkname) if member.islnk() else member.linkname
        return member.replace(name=path, linkname=target, deep=False)


def _merged(path: str) -> str:
    path = path.removeprefix("./").strip("/")
    if path == ".":
        return ""
    return f"usr/{path}" if path.partition("/")[0] in _MERGED and "/" in path else path


def _normalised(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without anything of the user, the umask and the time it was made at."""
    entry.uid = entry.gid = _USER if entry.name == "./workspace" else 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    if entry.isdir():
        entry.mode = 0o1777 if entry.name == "./tmp" else 0o755
    return entry


# An image from what runs here: this Python with its standard library, the libraries both need, and busybox.


_INTERPRETER_LEFT_OUT = {
    *("__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo"),
    *("ensurepip", "lib2to3", "pydoc_data"),
}


def pack_interpreter(root: ImageRoot, report: Callable[[str], None]) -> None:
    """Write this interpreter and a shell into the image. `OSError` says what is missing."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise OSError("busybox is not installed; the image needs it for its shell. Run: apt-get install busybox-static")
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
    for applet in _run([busybox, "--list"], check=True).stdout.split():
        root.link(f"usr/bin/{applet}", "busybox")


def _standard_library() -> Iterable[tuple[Path, str]]:
    library = Path(sysconfig.get_path("stdlib")).resolve()
    for folder, directories, names in os.walk(library):
        directories[:] = sorted(
            name for name in directories if name not in _INTERPRETER_LEFT_OUT and not name.startswith(("config-", "."))
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
        listed = _run(["ldd", str(path)]).stdout
        for name, where in re.findall(r"^\s*(\S+)(?: => (/\S+))? \(0x", listed, re.MULTILINE):
            if where:
                needed.setdefault(name, Path(where))
            elif name.startswith("/"):  # the loader itself, at the path that programs name
                root.file(name, Path(name).resolve(), 0o755)
    folder = next((str(path.parent) for name, path in needed.items() if name.startswith("libc.")), "/lib")
    for name, path in needed.items():
        root.file(f"{folder}/{Path(name).name}", path.resolve(), 0o755)


# An image from the distribution's packages: apt brings them, their files go in, their scripts never run.


PACKAGES = (
    *("python3", "bash", "dash", "coreutils", "grep", "sed", "findutils", "tar", "gzip", "diffutils", "mawk", "procps"),
    *("debianutils", "base-files", "netbase", "libstdc++6"),
)

_PACKAGES_LEFT_OUT = ("dpkg_", "init-system-helpers_", "perl", "usrmerge_", "usr-is-merged_")
"""Downloaded because scripts that never run would need them."""


def have_apt() -> bool:
    """Whether packages can be had this way."""
    return shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None


def download(folder: Path, report: Callable[[str], None]) -> Sequence[Path]:
    """The packages with all they need, downloaded into the folder; nothing of the machine's own apt is touched.

    `OSError` says what to do when apt cannot do it.
    """
    report("Downloading packages with apt-get")
    (folder / "cache" / "archives" / "partial").mkdir(parents=True)
    (folder / "status").touch()
    settings = {  # the machine's package lists, nothing installed, and all files in the folder
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
    command = ["apt-get", "-q", "-y", *options, "--download-only", "--no-install-recommends", "install", *PACKAGES]
    # Where it is known, it keeps a dependency of a dependency from bringing Perl.
    if "usr-is-merged" in _run(["apt-cache", "pkgnames", "usr-is-merged"]).stdout.split():
        command.append("usr-is-merged")
    done = _run(command, {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"})
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()
        raise OSError(_packages_explained([line.strip() for line in lines if line.startswith(("E:", "Err:"))]))
    return sorted((folder / "cache" / "archives").glob("*.deb"))


def pack_packages(packages: Sequence[Path], root: ImageRoot, report: Callable[[str], None]) -> None:
    """Put the files of the packages into the image."""
    wanted = [package for package in packages if not package.name.startswith(_PACKAGES_LEFT_OUT)]
    report(f"Packing the files of {len(wanted)} packages")
    # What scripts of packages would have set up, first: what is there first stays.
    root.link("usr/bin/sh", "dash")
    root.link("usr/bin/awk", "mawk")
    root.link("usr/bin/which", "which.debianutils")
    root.link("usr/bin/python", "python3")
    for package in wanted:
        with TemporaryFile() as archive:
            command = ["dpkg-deb", "--fsys-tarfile", str(package)]
            done = subprocess.run(command, stdout=archive, stderr=PIPE, text=True, errors="replace", check=False)
            archive.seek(0)
            try:
                if done.returncode == 0:
                    root.package(archive)
                    continue
                problem = done.stderr.strip()
            except TarError as error:
                problem = str(error)
        raise OSError(f"The package {package.name} cannot be unpacked: {problem}. Try again.")


def _packages_explained(failures: Sequence[str]) -> str:
    text = "\n".join(failures)
    if "Unable to locate" in text or "no installation candidate" in text:
        return "apt-get does not know the packages. Run: apt-get update"
    if "enough free space" in text or "No space left" in text:
        return f"There is no space for the packages: {failures[-1]}. Free some, or set TMPDIR to a bigger place."
    if "404" in text or "Unable to fetch" in text or "Failed to fetch" in text:
        return "apt-get cannot download the packages. Run: apt-get update, or build it with: --from interpreter"
    return f"apt-get cannot bring the packages: {failures[-1] if failures else 'it failed without a word'}"


DEFAULT_IMAGE = "localhost/wink-python:latest"
"""What `wink sandbox image` builds, and what a sandbox uses unless it is told otherwise."""

ImageSource = Literal["auto", "packages", "interpreter"]
"""Where the files come from: the distribution's packages, or what runs here; `auto` takes packages where apt is."""

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
        ValueError: a name or source that does not exist.
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
    """The files go into a folder, the folder into an archive, and podman makes an image of the archive."""
    from_packages = source == "packages" or (source == "auto" and have_apt())
    if from_packages and not have_apt():
        raise OSError("There is no apt-get and dpkg-deb here. Build the image with: --from interpreter")
    root = ImageRoot(folder / "root")
    if from_packages:
        pack_packages(download(folder, say), root, say)
    else:
        pack_interpreter(root, say)
    root.pack(folder / "root.tar")
    changes = [part for change in _CHANGES for part in ("--change", change)]
    # Podman keeps its own copy there meanwhile.
    done = _podman("import", "--quiet", *changes, str(folder / "root.tar"), name, environment={"TMPDIR": str(folder)})
    if done.returncode != 0:
        raise OSError(_explained(done.stderr))


def _identity(name: str) -> str | None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for an image; use one such as {DEFAULT_IMAGE}")
    found = _podman("image", "inspect", "--format", "{{.Id}}", name)
    if found.returncode == 0:
        return found.stdout.strip()
    if re.search(r"no such (object|image)|not known", found.stderr):
        return None
    raise OSError(_explained(found.stderr))


def _podman(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    if shutil.which("podman") is None:
        raise OSError("podman is not installed. Run: apt-get install --no-install-recommends podman runc")
    return _run(["podman", *arguments], environment)


def _run(
    command: Sequence[str], environment: Mapping[str, str] | None = None, *, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with further environment variables and nothing to read."""
    env = {**os.environ, **(environment or {})}
    return subprocess.run(
        command, capture_output=True, stdin=DEVNULL, text=True, errors="replace", env=env, check=check
    )


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
