"""An operating system that fails, or stops for good, at the n-th call; and exact pictures of a directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.disk import locations as places
from weakincentives.filesystem.disk import private_dir, vaults
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.syscalls import CALLS, Syscalls


class Crash(BaseException):
    """The process is gone."""


class Faulty(Syscalls):
    """Counts calls. At call `at` it raises `error`, or crashes: then nothing works any more.

    `torn` lets a crashing write do half of its work. `reap()` gives back what the dead process had open.
    """

    __slots__ = ("at", "count", "dead", "error", "open_fds", "torn")

    def __init__(
        self, at: int | None = None, *, error: int | None = None, torn: bool = False, openat2: bool | None = None
    ) -> None:
        super().__init__(openat2=openat2)
        self.at = at
        self.error = error
        self.torn = torn
        self.count = 0
        self.dead = False
        self.open_fds: set[int] = set()

    def reap(self) -> None:
        self.dead = True
        for fd in self.open_fds:
            os.close(fd)
        self.open_fds.clear()


def _wrap(name: str) -> Callable[..., Any]:
    original = getattr(Syscalls, name)

    def call(self: Faulty, *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise OSError(5, "the process is dead")
        self.count += 1
        if self.count == self.at:
            if self.error is not None:
                raise OSError(self.error, os.strerror(self.error))
            self.dead = True
            if self.torn and name in {"write", "pwrite"}:
                half = bytes(args[1])[: len(args[1]) // 2]
                original(self, args[0], half, *args[2:])
            raise Crash(f"at call {self.count}, {name}")
        result = original(self, *args, **kwargs)
        if name in {"open", "open_beneath"}:
            self.open_fds.add(result)
        elif name == "close":
            self.open_fds.discard(args[0])
        return result

    return call


for _name in CALLS:
    setattr(Faulty, _name, _wrap(_name))


class NoLinks(Faulty):
    """A filesystem without hard links, or a file that the user may not link."""

    __slots__ = ()

    def link(self, source: str, target: str, *, source_fd: int, target_fd: int) -> None:
        raise PermissionError(1, "Operation not permitted")


PLACES = ("private", "beside", "inside")
"""Where a vault can be."""


def keep_vault(monkeypatch: pytest.MonkeyPatch, place: str, folder: Path) -> None:
    """Have vaults of roots in the folder made in that place; the private directory is in `folder/state`."""
    state = folder / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    real_disk, real_locations = vaults.one_disk, vaults.candidate_locations

    def one_disk(sys: Syscalls, fd: int, root_fd: int) -> bool:
        return not os.readlink(f"/proc/self/fd/{fd}").startswith(str(state)) and real_disk(sys, fd, root_fd)

    def inside(root: str) -> tuple[vaults.StateLocation, ...]:
        return real_locations(root)[-1:]

    if place != "private":
        for module in (places, vaults):
            monkeypatch.setattr(module, "one_disk", one_disk)
        state.mkdir(mode=0o700, exist_ok=True)
    if place == "inside":
        for module in (places, vaults):
            monkeypatch.setattr(module, "candidate_locations", inside)


def entry_of(root: Path) -> Path:
    """The root's entry in the private directory, whether it is there or not."""
    found = private_dir.find(private_dir.location(None))
    if found is None:
        return Path(private_dir.location(None), private_dir.ROOTS, "none")
    fd = os.open(root, getattr(os, "O_PATH", os.O_RDONLY))
    try:
        return Path(found.path, private_dir.ROOTS, found.name(os.fstat(fd).st_ino, Syscalls().born(fd)))
    finally:
        os.close(fd)


def vault_of(root: Path) -> Path:
    """The root's vault: beside it, in it, or its entry."""
    found = [*root.parent.glob(f".{root.name}.wink-*"), *root.glob(".wink-*")]
    assert len(found) <= 1
    return found[0] if found else entry_of(root)


Picture = dict[str, tuple[object, ...]]


def picture(root: Path, *, exact: bool = True, links: bool = True) -> Picture:
    """All that is below the root; `exact` adds times, inodes, link counts and extended attributes."""
    found: Picture = {}
    pending = [root]
    while pending:
        path = pending.pop()
        info = path.lstat()
        content: object = None
        if stat.S_ISREG(info.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(info.st_mode):
            content = os.readlink(path)
        elif stat.S_ISDIR(info.st_mode):
            pending += [path / name for name in os.listdir(path) if path != root or not name.startswith(".wink-")]
        details: tuple[object, ...] = (oct(info.st_mode), content)
        if exact:
            count = info.st_nlink if links and stat.S_ISREG(info.st_mode) else 0
            xattrs = {key: os.getxattr(path, key, follow_symlinks=False) for key in _xattrs(path)}
            details += (info.st_mtime_ns, info.st_ino, count, xattrs)
        found[str(path.relative_to(root))] = details
    return found


def _xattrs(path: Path) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except (OSError, AttributeError):  # the disk or the system has none
        return []


def build(root: Path) -> None:
    """A small tree with everything that is easily lost."""
    root.mkdir()
    for name, content, mode in (
        ("a.txt", b"alpha", 0o644),
        ("secret", b"\x00\xff", 0o600),
        ("run.sh", b"#!/bin/sh\r\n", 0o755),
        ("d/one.txt", b"one", 0o444),
        ("d/sub/two.txt", b"two" * 3000, 0o640),
        (".gitignore", b"*.log\n", 0o644),
        ("ignored.log", b"keep me", 0o644),
        (".git/HEAD", b"ref: refs/heads/main\n", 0o644),
        ("t/x/y/z.txt", b"deep", 0o644),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
    (root / "empty").mkdir(mode=0o700)
    (root / "link").symlink_to("a.txt")
    (root / "t" / "outside").symlink_to("/etc")
    os.link(root / "a.txt", root / "peer.txt")
    try:
        os.setxattr(root / "a.txt", "user.wink", b"kept")
        os.setxattr(root / "empty", "user.wink", b"kept")
    except (OSError, AttributeError):
        pass
    when = 1_600_000_000_123_456_789
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(when + number, when + number), follow_symlinks=False)
    os.utime(root, ns=(when, when))


def everything(fs: Filesystem) -> list[Callable[[], object]]:
    """A transaction's worth of changes of every kind, to be called in order."""
    inner: list[Any] = []

    def nested() -> None:
        inner.append(fs.snapshot())
        fs.write("a.txt", "inner")
        fs.delete("run.sh")
        fs.restore(inner[0])
        fs.write("inner.txt", "kept")
        fs.release(inner[0])

    return [
        lambda: fs.mkdir("."),
        lambda: fs.write("a.txt", "ALPHA"),
        lambda: fs.write("a.txt", "ALPHA again"),
        lambda: fs.append("secret", b"more"),
        lambda: fs.write("new/deep/file.txt", "n"),
        lambda: fs.delete("empty"),
        lambda: fs.write("empty", "a file now"),
        lambda: fs.delete("t", recursive=True),
        lambda: fs.write("t", "a file now"),
        lambda: fs.move("d/sub", "moved/far/sub"),
        lambda: fs.write("moved/far/sub/two.txt", "2"),
        lambda: fs.write("a.txt", "before the inner one"),
        nested,
        lambda: fs.copy("d", "copied/d"),
        lambda: fs.delete("ignored.log"),
        lambda: fs.mkdir("ignored.log/is/a/directory"),
        lambda: fs.move("moved/far/sub/two.txt", "two.txt"),
        lambda: fs.delete("link"),
    ]


def open_host(root: Path, syscalls: Faulty, **options: Any) -> HostFilesystem:
    """The filesystem over that operating system; a crash while it is opened gives everything back."""
    try:
        return HostFilesystem(root, syscalls=syscalls, **options)
    except BaseException:
        syscalls.reap()
        raise


def abandon(fs: HostFilesystem, syscalls: Faulty) -> None:
    """What is left of a process that crashed: nothing but its files."""
    syscalls.reap()
    fs._disk._lock._fd = -1  # a forked child closes its own, whatever that number is by then
    fs._disk.closed = True
    fs._scope.closed = True
    fs._scope.busy = False
