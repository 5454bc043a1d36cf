"""Nothing outside the root is read or written: not by paths, not by what is planted, not by swapping in time."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from tests.filesystem.crash import picture

from weakincentives.errors import PathRefusedError
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.syscalls import Syscalls
from weakincentives.testing.code_escapes import ESCAPES


@pytest.fixture(params=[None, False], ids=["openat2", "handles"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostFilesystem]:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "secret.txt").write_text("SECRET")
    (outside / "deep" / "secret.txt").write_text("SECRET")
    (tmp_path / "outside.txt").write_text("SECRET")
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "b.txt").write_text("inside")
    with HostFilesystem(root, syscalls=Syscalls(openat2=request.param)) as made:
        yield made


def _plant(root: Path) -> list[str]:
    """Symlinks of every kind, and special files; the paths that would go through them."""
    outside = root.parent / "outside"
    for name, target in (
        ("absolute", str(outside)),
        ("relative", "../outside"),
        ("file", str(outside / "secret.txt")),
        ("inner", "a"),
        ("inner_file", "a/b.txt"),
        ("self", "."),
        ("parent", ".."),
        ("loop", "loop"),
        ("dangling", "nowhere"),
        ("magic", "/proc/self/cwd"),
        ("magic_fd", "/proc/self/fd"),
        ("root_of_all", "/"),
        ("a/up", "../../outside"),
        ("a/chain", "up"),
    ):
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root)
    try:
        server.bind("socket")
    finally:
        os.chdir(here)
        server.close()
    if os.geteuid() == 0:
        os.mknod(root / "null", 0o20666, os.makedev(1, 3))
    links = ["absolute", "relative", "inner", "self", "parent", "magic", "root_of_all", "a/up", "a/chain", "loop"]
    through = [f"{link}/{rest}" for link in links for rest in ("secret.txt", "deep/secret.txt", "new/file.txt")]
    ends = ["file", "inner_file", "dangling", "magic_fd", "loop", "absolute", "fifo", "socket", "null", "a/up"]
    return [*through, *ends, "root_of_all/etc/passwd", "parent/outside.txt", "parent/outside/secret.txt"]


def _attempts(fs: HostFilesystem, path: str) -> list[Callable[[], object]]:
    return [
        lambda: fs.read(path),
        lambda: fs.read_bytes(path),
        lambda: list(fs.stream(path)),
        lambda: fs.write(path, "EVIL"),
        lambda: fs.append(path, "EVIL"),
        lambda: fs.copy(path, "copy"),
        lambda: fs.mkdir(f"{path}/made"),
        lambda: fs.write(f"{path}/made.txt", "EVIL"),
        lambda: fs.list(path),
        lambda: fs.copy("a/b.txt", f"{path}/copied"),
        lambda: fs.move("a/b.txt", f"{path}/moved"),
    ]


def test_no_planted_thing_leads_out(fs: HostFilesystem) -> None:
    """Over 60 attack paths, each through every method: an error of ours every time, nothing outside touched."""
    paths = [*_plant(fs.root), *ESCAPES]
    assert len(paths) >= 110
    outside = fs.root.parent
    before = {name: value for name, value in picture(outside).items() if not name.startswith(("root", ".root"))}
    inside = picture(fs.root, exact=False)
    for path in paths:
        for attempt in _attempts(fs, path):
            with pytest.raises(OSError) as caught:
                attempt()
            assert not isinstance(caught.value, FileNotFoundError) or path.startswith(("null", "self/"))
    assert picture(fs.root, exact=False) == inside
    after = {name: value for name, value in picture(outside).items() if not name.startswith(("root", ".root"))}
    del before["."], after["."]  # the state directory came and went
    assert after == before


def test_a_symlink_is_shown_and_can_be_removed_but_not_followed(fs: HostFilesystem) -> None:
    """`stat` and `list` name its kind; `delete` and `move` take the link itself; searches pass it by."""
    (fs.root / "link").symlink_to("../outside")
    assert fs.stat("link").kind == "symlink"
    assert [stat.kind for stat in fs.list()] == ["directory", "symlink"]
    assert fs.glob("**/*.txt") == ["a/b.txt"]
    assert fs.grep("SECRET") == []
    snapshot = fs.snapshot()
    fs.move("link", "moved")
    fs.delete("moved")
    assert (fs.root.parent / "outside" / "secret.txt").read_text() == "SECRET"
    fs.restore(snapshot)
    assert os.readlink(fs.root / "link") == "../outside"


def test_a_fifo_does_not_block(fs: HostFilesystem) -> None:
    """Reading one is refused at once, though nothing writes to it."""
    os.mkfifo(fs.root / "fifo")
    start = time.monotonic()
    with pytest.raises(PathRefusedError, match="FIFO"):
        fs.read("fifo")
    with pytest.raises(PathRefusedError):
        fs.write("fifo", "x")
    assert time.monotonic() - start < 30
    assert fs.stat("fifo").kind == "other"
    fs.delete("fifo")


def test_a_tree_with_links_is_copied_and_removed_without_following(fs: HostFilesystem) -> None:
    """Links inside stay links; what they point to is neither copied nor deleted."""
    (fs.root / "a" / "out").symlink_to("../../outside")
    fs.copy("a", "c")
    assert os.readlink(fs.root / "c" / "out") == "../../outside"
    fs.delete("c", recursive=True)
    fs.delete("a", recursive=True)
    assert (fs.root.parent / "outside" / "secret.txt").read_text() == "SECRET"


def test_names_that_the_api_would_refuse_are_not_shown(fs: HostFilesystem) -> None:
    """Other programs make names with control characters or broken text; listings leave them out."""
    for name in (b"bad\nname", b"\xff\xfe", b"esc\x1b[31m"):
        Path(os.fsdecode(os.fsencode(fs.root) + b"/" + name)).write_text("x")
    assert [stat.path for stat in fs.list()] == ["a"]
    assert fs.glob("*") == ["a"]
    snapshot = fs.snapshot()
    fs.move("a", "z")
    assert fs.changes(snapshot).added == ("z/", "z/b.txt")
    fs.restore(snapshot)


def _exchange(directory: int, one: bytes, other: bytes) -> None:
    """In one step where the system can, else with a moment in which nothing is there."""
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange is not None and exchange(directory, one, directory, other, 2) == 0:
        return
    if exchange is not None and ctypes.get_errno() not in {errno.ENOSYS, errno.EINVAL}:  # as C libraries call it
        raise OSError(ctypes.get_errno(), "renameat2")
    for source, target in ((one, b"aside"), (other, one), (b"aside", other)):
        while True:
            try:
                os.rename(source, target, src_dir_fd=directory, dst_dir_fd=directory)
                break
            except OSError:  # a write found nothing there, and made a directory
                shutil.rmtree(os.fsdecode(target), ignore_errors=True, dir_fd=directory)


def _race(fs: HostFilesystem, seconds: float) -> tuple[int, int]:
    """Swap a directory and a symlink to the outside all the time while reading and writing through it."""
    root = fs.root
    (root / "door").mkdir()
    (root / "door" / "secret.txt").write_text("inside")
    (root / "trap").symlink_to("../outside")
    directory = os.open(root, os.O_DIRECTORY)
    stop = Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            _exchange(directory, b"door", b"trap")
            swaps += 1

    swapper = Thread(target=swap)
    swapper.start()
    tries = 0
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            tries += 1
            try:
                assert fs.read("door/secret.txt") in {"inside", "written"}, "leaked"
                fs.write("door/secret.txt", "written")
                fs.write(f"door/new{tries % 7}.txt", "EVIL")
                fs.list("door")
                fs.delete(f"door/new{tries % 7}.txt")
            except OSError:
                pass
    finally:
        stop.set()
        swapper.join()
        os.close(directory)
    outside = root.parent / "outside"
    assert sorted(path.name for path in outside.iterdir()) == ["deep", "secret.txt"]
    assert (outside / "secret.txt").read_text() == "SECRET"
    return tries, swaps


@pytest.mark.slow
def test_swapping_a_symlink_in_leaks_nothing(fs: HostFilesystem) -> None:
    """While a directory and a symlink change places, no operation ever reaches the outside."""
    tries, swaps = _race(fs, 1.0)
    assert tries > 20
    assert swaps > 20


@pytest.mark.torture
def test_swapping_a_symlink_in_for_longer(fs: HostFilesystem) -> None:
    """The same for ten seconds."""
    _race(fs, 10.0)
