"""The root file system of an image, written as a tar stream: nothing is unpacked here, so nothing needs rights."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import IO, cast, final

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


__all__ = ["ImageRoot"]
