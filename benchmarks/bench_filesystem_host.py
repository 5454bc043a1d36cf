"""Files on disk: what a transaction and a write cost, and on what that depends."""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory
from time import process_time, sleep

from benchmarks.harness import ELAPSED, Row, interleave, ratio
from weakincentives import MarkdownSection, Prompt, Session, Tool, ToolCall, ToolContext, ToolExecutor, ToolResult
from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.prompt import ToolAnnotations

CONTENT = b"x" * 1000
LARGE = 100 << 20


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


@dataclass(frozen=True)
class _Nothing:
    """No parameters."""


def _calls(stack: ExitStack, fs: HostFilesystem, annotations: ToolAnnotations) -> Callable[[], object]:
    """Calls of a tool that touches no file."""

    def handler(_: _Nothing, context: ToolContext) -> ToolResult[None]:
        del context
        return ToolResult.ok(None)

    tool = Tool[_Nothing, None](
        name="work", description="Work.", handler=handler, annotations=annotations, max_repeats=None
    )
    section = MarkdownSection(title="Work", template="", tools=[tool])
    prompt: Prompt[str] = Prompt(name="files", sections=[section]).bind(resources={Filesystem: fs})
    run, ids = stack.enter_context(ToolExecutor(prompt=prompt, session=Session())), count()
    return lambda: run.execute(ToolCall(str(next(ids)), "work", "{}"))


def _walk(root: Path) -> Callable[[], None]:
    """A bare walk: what any program pays that looks at each file."""

    def run() -> None:
        pending = [str(root)]
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)

    return run


def _first_copies(root: Path, folder: Path, rounds: int = 7) -> Row:
    """CPU time of the first snapshot against that of `cp -r`, each round once."""
    ratios: list[float] = []
    for number in range(rounds):
        began = getrusage(RUSAGE_CHILDREN)
        subprocess.run(["cp", "-r", "--reflink=auto", str(root), str(folder / f"copy{number}")], check=True)
        ended = getrusage(RUSAGE_CHILDREN)
        with HostFilesystem(root, watch="scan", state_dir=folder / f"state{number}") as fs:
            start = process_time()
            snapshot = fs.snapshot()
            spent = process_time() - start
            fs.release(snapshot)
        ratios.append(spent / (ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime))
    return Row("disk: first snapshot with watch, 1,000 files", statistics.median(ratios), 2.0, "x", "CPU of `cp -r`")


def _watched(stack: ExitStack) -> Iterator[Row]:
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="wink-bench-")))
    plain = _filled(stack, 1000).root
    sleep(0.2)  # until nothing is so new that its content would be compared
    yield _first_copies(plain, folder)
    fs = stack.enter_context(HostFilesystem(plain, watch="scan", state_dir=folder / "state"))
    fs.release(fs.snapshot())
    unwatched = stack.enter_context(HostFilesystem(plain, state_dir=folder / "unwatched"))
    for name, declared in (
        ("read-only", ToolAnnotations(read_only=True)),
        ("no programs", ToolAnnotations(starts_programs=False)),
    ):
        value = _cpu_ratio(_calls(stack, fs, declared), _calls(stack, unwatched, declared), 200)
        yield Row(f"disk: a call with watch, {name}", value, 1.3, "x", "CPU of the same without watch; 1,000 files")
    value = _cpu_ratio(_calls(stack, fs, ToolAnnotations()), _walk(plain), 5)
    note = "CPU of one bare walk; 1,000 files, a walk before and one after"
    yield Row("disk: a call with watch that may start programs", value, 4.0, "x", note)


def _cpu_ratio(subject: Callable[[], object], baseline: Callable[[], object], often: int, rounds: int = 15) -> float:
    """How many times the CPU time of `baseline` the subject takes: the median of the rounds' ratios."""
    ratios: list[float] = []
    for _ in range(rounds):
        spent: list[float] = []
        for function in (subject, baseline):
            start = process_time()
            for _ in range(often):
                function()
            spent.append(process_time() - start)
        ratios.append(spent[0] / spent[1])
    return statistics.median(ratios)


def _large(stack: ExitStack) -> Row:
    """Both write a new file and drop the old one: a new file takes memory that one written in place has already."""
    fs, data = _filled(stack, 1), b"x" * LARGE

    def transaction() -> None:
        savepoint = fs.savepoint()
        fs.write("large", data)
        fs.release(savepoint)

    def by_hand() -> None:
        fd = os.open(fs.root / "tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(fd, data)
        os.close(fd)
        os.rename(fs.root / "tmp", fs.root / "by-hand")

    def twice(write: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:  # the pages that the first one drops are there for the second
            write()
            write()

        return run

    value = _cpu_ratio(twice(transaction), twice(by_hand), 1, rounds=7)
    note = "CPU of a temporary file and a rename"
    return Row("disk: 100 MB written in a transaction", value, 1.5, "x", note)


def run() -> Iterator[Row]:
    with ExitStack() as stack:
        yield from _watched(stack)
        yield _large(stack)
        small, middle, large = (_filled(stack, files) for files in (100, 10_000, 50_000))
        yield ratio(
            "disk: snapshot, write, rollback with 50,000 files",
            _transaction(large),
            _transaction(small),
            1.5,
            note="against 100 files",
        )
        samples = interleave(_transaction(middle), _empty(middle), rounds=30)
        # The fastest round: the more others use the machine, the longer its kernel takes for the same.
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
            clock=ELAPSED,
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
