"""A small image with Python and a shell, made on this machine: no registry is asked, no script of a package runs."""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tarfile import TarError
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Literal, cast, final

# The root file system of an image, written as a tar stream: nothing is unpacked here, so nothing needs rights.


_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Names at the top that are links to the same name below `usr`, as on today's distributions."""

_USER = 1000


@final
class ImageRoot:
    """Writes files, links and directories; the first to take a path keeps it, and parents are made as needed.

    Everything belongs to root but `/workspace`, which belongs to the user `agent`, 1000:1000. `close` ends the archive;
    after `abandon` nothing more is written, so that what was written is no whole archive.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._sink = _Sink(stream)
        self._tar = tarfile.open(  # noqa: SIM115 - closed by close
            fileobj=cast(IO[bytes], self._sink), mode="w|", format=tarfile.PAX_FORMAT
        )
        self._taken: set[str] = set()

    def begin(self) -> None:
        """Write what every image has."""
        for name in _MERGED:
            self._add(_entry(name, tarfile.SYMTYPE, 0o777, target=f"usr/{name}"))
        for directory in (
            "proc",
            "sys",
            "dev",
            "root",
            "home",
            "run",
            "etc",
            "usr/bin",
            "usr/lib",
            "usr/lib64",
            "var/tmp",
        ):
            self.directory(directory)
        self._add(_entry("tmp", tarfile.DIRTYPE, 0o1777))
        workspace = _entry("workspace", tarfile.DIRTYPE, 0o755)
        workspace.uid = workspace.gid = _USER
        self._add(workspace)
        self.file("etc/passwd", f"root:x:0:0:root:/root:/bin/sh\nagent:x:{_USER}:{_USER}:agent:/tmp:/bin/sh\n".encode())
        self.file("etc/group", f"root:x:0:\nagent:x:{_USER}:\n".encode())
        self.file("etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n")
        self.file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files\n")

    def directory(self, path: str) -> None:
        """Make it, and those above it."""
        path = _merged(path)
        if path in self._taken or not path:
            return
        self.directory(path.rpartition("/")[0])
        self._add(_entry(path, tarfile.DIRTYPE, 0o755))

    def link(self, path: str, target: str) -> None:
        """A symbolic link."""
        path = _merged(path)
        self.directory(path.rpartition("/")[0])
        self._add(_entry(path, tarfile.SYMTYPE, 0o777, target=target))

    def file(self, path: str, content: bytes | Path, mode: int = 0o644) -> None:
        """A file with that content, or with that of a file here."""
        path = _merged(path)
        if path in self._taken:
            return
        self.directory(path.rpartition("/")[0])
        with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as stream:
            size = len(content) if isinstance(content, bytes) else content.stat().st_size
            self._add(_entry(path, tarfile.REGTYPE, mode, size=size), stream)

    def package(self, archive: IO[bytes]) -> None:
        """What a package brings, but its documentation and translations."""
        with tarfile.open(fileobj=archive, mode="r|") as members:
            for member in members:
                path = _merged(member.name)
                if path in self._taken or not path or path.startswith(_LEFT_OUT):
                    continue
                self.directory(path.rpartition("/")[0])
                kind = tarfile.REGTYPE if member.isreg() else member.type
                target = _merged(member.linkname) if member.islnk() else member.linkname
                entry = _entry(path, kind, _mode(member), member.size if member.isreg() else 0, target)
                self._add(entry, members.extractfile(member) if member.isreg() else None)

    def close(self) -> None:
        """End the archive."""
        self._tar.close()

    def abandon(self) -> None:
        """Leave it as it is."""
        self._sink.stream = None
        self._tar.close()

    def _add(self, entry: tarfile.TarInfo, content: IO[bytes] | None = None) -> None:
        if entry.name not in self._taken:
            self._taken.add(entry.name)
            self._tar.addfile(entry, content)


@final
class _Sink:
    """A stream that takes everything, or nothing more: a tar file that is dropped would write its end still."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream: IO[bytes] | None = stream

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        while self.stream is not None and rest:
            rest = rest[self.stream.write(rest) :]
        return len(data)


_LEFT_OUT = (
    "usr/share/doc/",
    "usr/share/man/",
    "usr/share/info/",
    "usr/share/locale/",
    "usr/share/lintian/",
    "var/lib/",
)


def _merged(path: str) -> str:
    path = path.removeprefix("./").strip("/")
    if path == ".":
        return ""
    return f"usr/{path}" if path.partition("/")[0] in _MERGED and "/" in path else path


def _mode(member: tarfile.TarInfo) -> int:
    """What it has, but nothing that lends rights and nothing that anybody else could change."""
    return 0o777 if member.issym() else member.mode & 0o755


def _entry(path: str, kind: bytes, mode: int, size: int = 0, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.size, entry.linkname = kind, mode, size, target
    return entry


# An image from what runs here: this Python with its standard library, the libraries both need, and busybox.


_INTERPRETER_LEFT_OUT = {
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
        listed = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
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

_OPTIONAL = ("usr-is-merged",)
"""Where it is known it keeps a dependency of a dependency from bringing Perl."""

_PACKAGES_LEFT_OUT = ("dpkg_", "init-system-helpers_", "perl", "usrmerge_", "usr-is-merged_")
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
        raise OSError(_packages_explained(failures))
    return sorted((folder / "cache" / "archives").glob("*.deb"))


def pack(packages: Sequence[Path], root: ImageRoot, report: Callable[[str], None]) -> None:
    """Write the files of the packages into the image."""
    wanted = [package for package in packages if not package.name.startswith(_PACKAGES_LEFT_OUT)]
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


def _packages_explained(failures: Sequence[str]) -> str:
    text = "\n".join(failures)
    if "Unable to locate" in text or "no installation candidate" in text:
        return _UPDATE
    if "enough free space" in text or "No space left" in text:
        return f"There is no space for the packages: {failures[-1]}. Free some, or set TMPDIR to a bigger place."
    if "404" in text or "Unable to fetch" in text or "Failed to fetch" in text:
        return "apt-get cannot download the packages. Run: apt-get update, or build it with: --from interpreter"
    return f"apt-get cannot bring the packages: {failures[-1] if failures else 'it failed without a word'}"


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
