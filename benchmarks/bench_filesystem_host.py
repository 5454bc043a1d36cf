"""Files on disk: what a transaction and a write cost, and on what that depends."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Row, interleave, ratio
from weakincentives.filesystem.disk.filesystem import HostFilesystem

CONTENT = b"x" * 1000


def _filled(stack: ExitStack, files: int) -> HostFilesystem:
    """A root with that many files, a hundred to a directory."""
    root = Path(stack.enter_context(TemporaryDirectory(prefix="wink-bench-"))) / "root"
    root.mkdir()
    for number in range(files):
        if number % 100 == 0:
            (root / f"d{number // 100}").mkdir()
        (root / f"d{number // 100}" / f"f{number}.txt").write_bytes(b"content")
    return stack.enter_context(HostFilesystem(root))


def _transaction(fs: HostFilesystem) -> Callable[[], None]:
    def run() -> None:
        snapshot = fs.snapshot()
        fs.write("d0/f0.txt", CONTENT)
        fs.restore(snapshot)
        fs.release(snapshot)

    return run


def _plain(folder: Path, *, durable: bool) -> Callable[[], None]:
    """What careful programs do by hand: a temporary file, then a rename."""
    folder.mkdir(exist_ok=True)

    def run() -> None:
        fd = os.open(folder / "tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(fd, CONTENT)
        if durable:
            os.fsync(fd)
        os.close(fd)
        os.rename(folder / "tmp", folder / "file.txt")
        if durable:
            fd = os.open(folder, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

    return run


def _empty(fs: HostFilesystem) -> Callable[[], None]:
    def run() -> None:
        fs.release(fs.snapshot())

    return run


def run() -> Iterator[Row]:
    with ExitStack() as stack:
        small, middle, large = (_filled(stack, files) for files in (100, 10_000, 50_000))
        yield ratio(
            "disk: snapshot, write, rollback with 50,000 files",
            _transaction(large),
            _transaction(small),
            1.5,
            note="against 100 files",
        )
        samples = interleave(_transaction(middle), _empty(middle), rounds=30)
        # The fastest round: what other programs do to the disk at the same time is not our cost.
        milliseconds = min(samples[0]) * 1e3
        yield Row("disk: snapshot, write, rollback with 10,000 files", milliseconds, 1.0, "ms", "best of 30 rounds")
        microseconds = statistics.median(samples[1]) * 1e6
        yield Row("disk: snapshot and release, nothing written", microseconds, 3.0, "us", "absolute")
        yield ratio(
            "disk: write",
            lambda: small.write("w/file.txt", CONTENT),
            _plain(small.root / "p", durable=False),
            4.0,
            note="against a temporary file and a rename",
        )
        durable = stack.enter_context(HostFilesystem(_filled(stack, 10).root, durable=True))
        yield ratio(
            "disk: durable write",
            lambda: durable.write("w/file.txt", CONTENT),
            _plain(durable.root / "p", durable=True),
            4.0,
            note="against the same with fsync of file and directory",
            rounds=10,
        )
        yield ratio(
            "disk: list a directory of 100 in a tree of 50,000",
            lambda: large.list("d0"),
            lambda: small.list("d0"),
            1.5,
            note="against the only directory of a tree of 100",
        )
        yield ratio(
            "disk: list the root of a tree of 10,000 files",
            middle.list,
            lambda: small.list("d0"),
            1.5,
            note="100 children against 100 children",
        )


__all__ = ["run"]
