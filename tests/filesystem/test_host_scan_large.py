"""`watch="scan"` on files that are too large to be copied, or only look so: sparse ones."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from weakincentives.errors import JournalError, RollbackError
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.filesystem.disk.syscalls import Syscalls
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.runtime import Session, ToolCall
from weakincentives.runtime.executor import ToolExecutor

MIB = 1 << 20
TERABYTE = 1 << 40
PATIENT = 60


@dataclass(frozen=True)
class Nothing:
    """No parameters."""


def make_sparse(path: Path) -> None:
    """1 TiB with data at the beginning, in the middle and later; skipped where the disk allows no such size."""
    try:
        with path.open("wb") as file:
            file.truncate(TERABYTE)
            for at in (0, TERABYTE // 2, TERABYTE // 4 * 3):
                file.seek(at)
                file.write(b"data\n")
    except OSError as error:
        pytest.skip(f"the disk here has no files of 1 TiB: {error}")
    if path.stat().st_blocks * 512 > 64 * MIB:
        pytest.skip("the disk here has no sparse files")


def pieces(path: Path) -> list[bytes]:
    """What is at the three places of a sparse file, and the length of the whole."""
    with path.open("rb") as file:
        found = [os.pread(file.fileno(), 8, at) for at in (0, TERABYTE // 2, TERABYTE // 4 * 3)]
    return [*found, str(path.stat().st_size).encode()]


def overwrite(path: Path, at: int = 10) -> None:
    """In place, as other programs do."""
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, b"CHANGED", at)
    os.close(fd)


def overwrite_data(path: Path) -> None:
    """Of a sparse file."""
    overwrite(path, TERABYTE // 2)


def overwrite_hole(path: Path) -> None:
    """Of a sparse file."""
    overwrite(path, TERABYTE // 4)


def cut(path: Path) -> None:
    """All but the beginning."""
    os.truncate(path, 3)


def overwrite_unseen(path: Path) -> None:
    """Without another size or modification time."""
    before = path.stat()
    overwrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(path: Path) -> None:
    """By another file of the same size and time."""
    before, other = path.stat(), path.with_name("other")
    other.write_bytes(b"y" * before.st_size)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(path)


def differing(fs: HostFilesystem, snapshot: object) -> list[str]:
    """All paths that are not as they were."""
    found = fs.changes(snapshot)
    return [*found.added, *found.changed, *found.removed]


def settle() -> None:
    """Until changes of now have another time than those before."""
    sleep(0.12)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(overwrite_data, id="data"),
        pytest.param(overwrite_hole, id="hole"),
        pytest.param(cut, id="cut"),
        pytest.param(Path.unlink, id="deleted"),
    ],
)
def test_a_sparse_file_is_copied_compared_and_restored_by_its_data(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    """A file of 1 TiB with 15 bytes of data takes no longer than a small one, and its holes stay holes."""
    path = tmp_path / "huge"
    make_sparse(path)
    before = pieces(path)
    began = monotonic()
    with HostFilesystem(tmp_path, watch="scan") as fs:
        first = fs.snapshot()
        settle()
        os.utime(path)  # it is compared with its copy
        snapshot = fs.snapshot()
        assert differing(fs, snapshot) == []
        change(path)
        assert differing(fs, snapshot) == ["huge"]
        fs.restore(snapshot)
        assert pieces(path) == before
        assert path.stat().st_blocks * 512 < 64 * MIB
        fs.restore(first)
        assert pieces(path) == before
    assert monotonic() - began < PATIENT


CHANGES: list[Callable[[Path], object]] = [
    overwrite,
    overwrite_unseen,
    replace,
    Path.unlink,
    cut,
    lambda path: path.chmod(0o600),
    lambda path: path.rename(path.with_name("elsewhere")),
]
NAMES = ["written", "written, same time", "replaced", "deleted", "cut", "other mode", "renamed"]


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_an_undo_that_cannot_be_complete_says_so(tmp_path: Path, change: Callable[[Path], object]) -> None:
    """A file above the limit is not copied; a change of it is named, and everything else is restored."""
    big, small = tmp_path / "big", tmp_path / "small"
    big.write_bytes(b"x" * 2 * MIB)
    big.chmod(0o644)
    small.write_text("as it was")
    settle()
    with HostFilesystem(tmp_path, watch="scan", max_copied_bytes=MIB) as fs:
        snapshot = fs.snapshot()
        change(big)
        small.write_text("changed")
        with pytest.raises(JournalError, match=r"'big'.*max_copied_bytes="):
            fs.restore(snapshot)
        assert small.read_text() == "as it was"
        if big.exists():
            assert big.stat().st_mode & 0o777 == 0o644
        again = fs.snapshot()  # what is there now is what a later undo goes back to
        small.write_text("changed again")
        fs.restore(again)
        assert small.read_text() == "as it was"


def test_an_undo_beside_a_large_file_is_complete(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was left out is logged once; as long as it does not change, there is nothing to say of it."""
    (tmp_path / "big").write_bytes(b"x" * 2 * MIB)  # so recently that it might change without a trace
    (tmp_path / "small").write_text("as it was")
    with (
        caplog.at_level(logging.WARNING, "weakincentives.filesystem"),
        HostFilesystem(tmp_path, watch="scan", max_copied_bytes=MIB) as fs,
    ):
        for _ in range(3):
            snapshot = fs.snapshot()
            assert differing(fs, snapshot) == []
            (tmp_path / "small").write_text("changed")
            assert differing(fs, snapshot) == ["small"]
            fs.restore(snapshot)
            assert (tmp_path / "small").read_text() == "as it was"
        snapshot = fs.snapshot()
        settle()
        overwrite_unseen(tmp_path / "big")
        assert differing(fs, snapshot) == ["big"]
        fs.release(snapshot)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "'big'" in said[0]
    assert "2097152 bytes" in said[0]


def test_the_limit_counts_data_and_can_be_lifted(tmp_path: Path) -> None:
    """A sparse file has little data; without a limit everything is copied."""
    big = tmp_path / "big"
    big.write_bytes(b"x" * 2 * MIB)
    with HostFilesystem(tmp_path, watch="scan", max_copied_bytes=None) as fs:
        snapshot = fs.snapshot()
        big.unlink()
        fs.restore(snapshot)
        assert big.read_bytes() == b"x" * 2 * MIB
    with pytest.raises(ValueError, match="max_copied_bytes must be 0 or more, or None"):
        HostFilesystem(tmp_path, watch="scan", max_copied_bytes=-1)


def executor_of(
    fs: HostFilesystem, handler: Callable[[Nothing, ToolContext], ToolResult[None]], **options: Any
) -> ToolExecutor:
    """One tool, `work`, on these files."""
    tool = Tool[Nothing, None](name="work", description="Work.", handler=handler, **options)
    section = MarkdownSection(title="Work", template="", tools=[tool])
    prompt = Prompt(name="files", sections=[section]).bind(resources={Filesystem: fs})
    return ToolExecutor(prompt=prompt, session=Session())


def test_the_call_that_changes_a_large_file_is_told(tmp_path: Path) -> None:
    """A failed call that cannot be undone ends the run with an error that names the file."""
    (tmp_path / "big").write_bytes(b"x" * 2 * MIB)

    def handler(_: Nothing, context: ToolContext) -> ToolResult[None]:
        del context
        (tmp_path / "big").unlink()
        return ToolResult.error("changed my mind")

    with (
        HostFilesystem(tmp_path, watch="scan", max_copied_bytes=MIB) as fs,
        pytest.raises(RollbackError, match="'big'"),
    ):
        executor_of(fs, handler).execute(ToolCall("1", "work", "{}"))


@pytest.mark.slow  # waits for a time limit
def test_a_call_that_ran_out_of_time_is_undone_also_where_that_takes_copies(tmp_path: Path) -> None:
    """Its work is given up, its undo is not."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 9 * MIB)
    ended = threading.Event()

    def handler(_: Nothing, context: ToolContext) -> ToolResult[None]:
        del context
        path.write_bytes(b"changed")
        ended.wait(PATIENT)
        return ToolResult.ok(None)

    with HostFilesystem(tmp_path, watch="scan") as fs:
        assert executor_of(fs, handler, timeout=1.0).execute(ToolCall("1", "work", "{}")).outcome == "timeout"
        ended.set()
        assert path.read_bytes() == b"x" * 9 * MIB


class Counting(Syscalls):
    """Counts how often a directory is listed, by its inode."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = Counter[int]()

    def names(self, fd: int) -> list[str]:
        self.listed[self.fstat(fd).st_ino] += 1
        return super().names(fd)

    def stats(self, fd: int) -> list[tuple[str, os.stat_result]]:
        self.listed[self.fstat(fd).st_ino] += 1
        return super().stats(fd)


def test_a_failing_call_walks_once_when_it_begins_and_once_when_it_ends(tmp_path: Path) -> None:
    """What it changed is found out by the walk that the undo goes by; what is restored is looked at by itself."""
    for number in range(20):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "file").write_text("as it was")
    (tmp_path / "closed").mkdir()
    calls = Counting()

    def handler(_: Nothing, context: ToolContext) -> ToolResult[None]:
        del context
        (tmp_path / "d1" / "file").write_text("changed")
        (tmp_path / "d2" / "file").unlink()
        (tmp_path / "d3" / "new").write_text("new")
        (tmp_path / "closed").chmod(0)
        return ToolResult.error("changed my mind")

    with HostFilesystem(tmp_path, watch="scan", syscalls=calls) as fs:
        executor = executor_of(fs, handler)
        for number in range(3):
            calls.listed.clear()
            reply = executor.execute(ToolCall(str(number), "work", "{}"))
            assert reply.outcome == "failed"
            assert "Rolled back: 3 files and 1 directory." in reply.text
            assert {calls.listed[(tmp_path / f"d{n}").stat().st_ino] for n in range(20)} == {2}
            assert calls.listed[tmp_path.stat().st_ino] == 2
            assert (tmp_path / "d1" / "file").read_text() == "as it was"
            assert (tmp_path / "d2" / "file").read_text() == "as it was"
            assert not (tmp_path / "d3" / "new").exists()
            assert (tmp_path / "closed").stat().st_mode & 0o777


def test_a_walk_is_shared_with_the_next_restore_only(tmp_path: Path) -> None:
    """After a write, another snapshot or a mere `changes`, a restore looks for itself."""
    (tmp_path / "a").write_text("as it was")
    calls = Counting()
    root = tmp_path.stat().st_ino
    with HostFilesystem(tmp_path, watch="scan", syscalls=calls) as fs:
        snapshot = fs.snapshot()
        (tmp_path / "b").write_text("new")
        assert fs.changes_before_restore(snapshot).added == ("b",)
        calls.listed.clear()
        fs.restore(snapshot)
        assert not calls.listed[root]
        assert not (tmp_path / "b").exists()
        steps: list[Callable[[], object]] = [
            lambda: fs.write("c", "by the API"),
            fs.snapshot,
            lambda: fs.changes(snapshot),
        ]
        for step in steps:
            fs.changes_before_restore(snapshot)
            (tmp_path / "a").write_text("changed")
            (tmp_path / "d").write_text("new")
            step()
            fs.restore(snapshot)
            assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
            assert (tmp_path / "a").read_text() == "as it was"


class Taking(Syscalls):
    """Another program takes a file away as soon as it is restored."""

    def rename(self, source: str, target: str, *, source_fd: int, target_fd: int) -> None:
        super().rename(source, target, source_fd=source_fd, target_fd=target_fd)
        if target == "gone":
            self.unlink(target, dir_fd=target_fd)


def test_a_file_that_is_taken_away_while_it_is_restored_does_not_fail_the_undo(tmp_path: Path) -> None:
    """What other programs do after it was restored is theirs; all else is restored, and the next snapshot sees it."""
    (tmp_path / "gone").write_text("as it was")
    (tmp_path / "kept").write_text("as it was")
    with HostFilesystem(tmp_path, watch="scan", syscalls=Taking()) as fs:
        snapshot = fs.snapshot()
        (tmp_path / "gone").write_text("changed")
        (tmp_path / "kept").write_text("changed")
        fs.restore(snapshot)
        assert (tmp_path / "kept").read_text() == "as it was"
        assert fs.changes(snapshot).removed == ("gone",)
        fs.write("new", "x")
        fs.restore(snapshot)
        assert not (tmp_path / "new").exists()


class Slow(Syscalls):
    """A disk that copies 4 KiB in 0.1 s."""

    def __init__(self) -> None:
        super().__init__()
        self.copying = threading.Event()

    def copy_range(self, source: int, target: int, count: int, offset: int) -> int:
        self.copying.set()
        sleep(0.1)
        return super().copy_range(source, target, min(count, 4096), offset)


def test_ctrl_c_ends_the_first_copy(tmp_path: Path) -> None:
    """Making the copy may take minutes; the call has not begun, so nothing is left to be undone."""
    (tmp_path / "file").write_bytes(os.urandom(32 * MIB))  # 13 minutes
    slow = Slow()

    def interrupt() -> None:
        if slow.copying.wait(PATIENT):
            os.kill(os.getpid(), signal.SIGINT)

    def handler(_: Nothing, context: ToolContext) -> ToolResult[None]:
        raise NotImplementedError

    thread = threading.Thread(target=interrupt)
    with HostFilesystem(tmp_path, watch="scan", syscalls=slow) as fs:
        executor = executor_of(fs, handler)
        began = monotonic()
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            executor.execute(ToolCall("1", "work", "{}"))
        thread.join()
        assert monotonic() - began < PATIENT
    assert os.listdir(tmp_path) == ["file"]
