"""Files in memory: the contract, and what is promised beyond it."""

from __future__ import annotations

import gc
import time
import tracemalloc
from datetime import UTC, datetime
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weakincentives.errors import SnapshotError
from weakincentives.filesystem import FileChanges, Filesystem
from weakincentives.filesystem.memory.filesystem import InMemoryFilesystem
from weakincentives.testing.filesystem_contract import FilesystemContract


class TestInMemoryFilesystem(FilesystemContract):
    any_order = True

    def make(self) -> Filesystem:
        return InMemoryFilesystem()


class TestSubOfInMemoryFilesystem(FilesystemContract):
    """A sub view is a filesystem like any other."""

    any_order = True

    def make(self) -> Filesystem:
        fs = InMemoryFilesystem()
        fs.mkdir("deep/down")
        return fs.sub("deep/down")


class Ticking:
    """A clock that moves on by one second each time it is asked."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time(), UTC)

    def time(self) -> float:
        self.seconds += 1
        return self.seconds

    def monotonic(self) -> float:
        return self.time()


def times(fs: InMemoryFilesystem) -> dict[str, float]:
    return {path: fs.stat(path).modified for path in fs.glob("**")}


def test_appending_to_a_long_file_copies_only_what_is_appended() -> None:
    """Whatever the file's length; a reader of its end copies no more than that end."""
    fs = InMemoryFilesystem({"log": bytes(50_000_000)})
    tracemalloc.start()
    try:
        for _ in range(100):
            before = fs.snapshot()
            fs.append("log", b"x")
            assert fs.changes(before) == FileChanges((), ("log",), ())
            assert fs.read_bytes("log", offset=fs.stat("log").size - 2, limit=9)[-1:] == b"x"
            fs.restore(before)
            fs.append("log", b"y")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert fs.read_bytes("log") == bytes(50_000_000) + b"y" * 100


def test_a_long_file_that_was_appended_to_is_kept_once() -> None:
    """Reading joins it, and what it was before goes when no snapshot holds it."""
    tracemalloc.start()
    try:
        fs = InMemoryFilesystem({"log": bytes(20_000_000)})
        for _ in range(5):
            fs.append("log", b"x")
            assert len(fs.read_bytes("log")) == fs.stat("log").size
        assert tracemalloc.get_traced_memory()[0] < 21_000_000
    finally:
        tracemalloc.stop()


def test_many_small_appends_take_little_more_memory_than_their_bytes() -> None:
    """They are kept together, not one object each."""
    fs = InMemoryFilesystem()
    line = b"0123456789"
    tracemalloc.start()
    try:
        for _ in range(20_000):
            fs.append("log", line)
        assert tracemalloc.get_traced_memory()[0] < 400_000
    finally:
        tracemalloc.stop()
    assert fs.read_bytes("log") == line * 20_000


def test_threads_that_read_a_file_in_pieces_see_one_content() -> None:
    """Each joins it or finds it joined; a snapshot of before shows what was there."""
    parts = [bytes([number]) * 70_000 for number in range(20)]
    fs = InMemoryFilesystem({"log": parts[0]})
    before = fs.snapshot()
    for part in parts[1:]:
        fs.append("log", part)
    whole, seen = b"".join(parts), list[bool]()
    threads = [Thread(target=lambda: seen.append(fs.read_bytes("log") == whole)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 8
    fs.restore(before)
    assert fs.read_bytes("log") == parts[0]


def test_a_search_sees_a_file_in_pieces_as_one() -> None:
    """What makes a file binary, or an encoding, may stand behind its first piece; so may half of a line."""
    fs = InMemoryFilesystem({"binary": "needle", "text": "a nee", "wide": b"\xff"})
    fs.append("binary", b"\0" + b"x" * 100_000)
    fs.append("text", "dle\n" + "x" * 100_000)
    fs.append("wide", b"\xfe" + "needle\n".encode("utf-16-le") + bytes(100_000))
    assert [(match.path, match.line) for match in fs.grep("needle")] == [("text", 1), ("wide", 1)]


@given(st.lists(st.binary(max_size=9) | st.integers(0, 90_000).map(bytes), min_size=1, max_size=8), st.data())
def test_any_part_of_a_file_in_pieces_is_that_part_of_its_content(written: list[bytes], data: st.DataObject) -> None:
    """Also one that begins behind its end or is longer than the rest."""
    fs = InMemoryFilesystem()
    for content in written:
        fs.append("log", content)
    whole = b"".join(written)
    offset = data.draw(st.integers(0, len(whole) + 2))
    limit = data.draw(st.none() | st.integers(0, len(whole) + 2))
    assert fs.stat("log").size == len(whole)
    assert fs.read_bytes("log", offset=offset, limit=limit) == whole[offset:][:limit]
    assert fs.read_bytes("log") == whole


def test_files_can_be_given_at_the_start() -> None:
    """Text and bytes, under any spelling of their paths."""
    fs = InMemoryFilesystem({"/workspace/a.txt": "text", "d/b.bin": b"\x00"})
    assert fs.read("a.txt") == "text"
    assert fs.read_bytes("d/b.bin") == b"\x00"


def test_times_come_from_the_clock_and_go_back() -> None:
    """A restore brings back every time, those of directories included."""
    fs = InMemoryFilesystem({"d/a": "x", "d/b": "y"}, clock=Ticking())
    before = times(fs)
    snapshot = fs.snapshot()
    fs.write("d/a", "z")
    assert fs.stat("d/a").modified > before["d/a"]
    assert fs.stat("d").modified == before["d"]
    fs.delete("d/b")
    assert fs.stat("d").modified > before["d"]
    fs.restore(snapshot)
    assert times(fs) == before


def test_a_released_snapshot_cannot_come_back() -> None:
    """Its state is freed at once, so restoring it and asking for changes raise `SnapshotError`."""
    fs = InMemoryFilesystem({"a": "x"})
    snapshot = fs.snapshot()
    fs.release(snapshot)
    with pytest.raises(SnapshotError, match="released"):
        fs.restore(snapshot)
    with pytest.raises(SnapshotError, match="released"):
        fs.changes(snapshot)


def test_nothing_is_remembered_without_a_snapshot() -> None:
    """The log of touched paths is empty before the first snapshot and after the last."""
    fs = InMemoryFilesystem({"a": "x"})
    assert fs._log._newest is None
    snapshot = fs.snapshot()
    fs.write("b", "y")
    assert fs._log._newest is not None
    del snapshot
    fs.write("c", "z")
    assert fs._log._newest is None


def test_the_log_has_one_period_for_each_living_snapshot() -> None:
    """Under a long-lived snapshot, thousands of short ones leave one set of paths behind, in whatever order they go."""
    fs = InMemoryFilesystem()
    outer = fs.snapshot()
    window: list[object] = []
    for number in range(2000):
        window.append(fs.snapshot())
        fs.write(f"f{number % 10}", str(number))
        if len(window) > 3:
            del window[number % 3]
    fs.snapshot()
    periods = 0
    period = fs._log._newest
    while period is not None:
        periods += 1
        period = period.before
    assert periods <= 5
    assert fs.changes(outer).added == tuple(f"f{number}" for number in range(10))


@pytest.mark.slow
def test_snapshots_dropped_leave_memory_where_it_was() -> None:
    """Ten thousand snapshots with writes in between, dropped or released, keep nothing."""
    fs = InMemoryFilesystem({f"d{number % 10}/f{number}": "x" for number in range(1000)})

    def cycle(count: int) -> None:
        for number in range(count):
            snapshot = fs.snapshot()
            fs.write(f"d1/f{number % 100}", "y" * 1000)
            if number % 2:
                fs.restore(snapshot)
            if number % 3 == 0:
                fs.release(snapshot)

    cycle(500)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cycle(10_000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 200_000


@pytest.mark.timing
def test_changes_cost_what_changed() -> None:
    """Asking for changes reads neither the tree nor the directory around a changed file."""
    fs = InMemoryFilesystem({f"f{number}": "x" for number in range(20_000)})
    snapshot = fs.snapshot()
    fs.write("f5", "y")
    start = time.process_time()
    for _ in range(100):
        assert fs.changes(snapshot).changed == ("f5",)
    assert time.process_time() - start < 0.5


def test_a_directory_deleted_and_made_again_differs_in_its_files_only() -> None:
    """What came back with the same bytes is no change, and neither is the directory itself."""
    fs = InMemoryFilesystem({"d/same": "x", "d/other": "x", "d/gone": "x", "d/deep/gone": "x"})
    snapshot = fs.snapshot()
    fs.delete("d", recursive=True)
    fs.write("d/same", "x")
    fs.write("d/other", "y")
    fs.write("d/new", "z")
    assert fs.changes(snapshot) == FileChanges(("d/new",), ("d/other",), ("d/deep/", "d/deep/gone", "d/gone"))


@pytest.mark.slow
@pytest.mark.timing
def test_fifty_thousand_files_in_one_directory_are_no_burden() -> None:
    """Writes do not copy the directory, and a snapshot of it is as quick as any."""
    fs = InMemoryFilesystem({f"all/f{number}": "x" for number in range(50_000)})
    start = time.process_time()
    for number in range(1000):
        snapshot = fs.snapshot()
        fs.write(f"all/f{number}", "y")
        fs.restore(snapshot)
    assert time.process_time() - start < 1
    assert len(fs.list("all")) == 50_000
    assert fs.read("all/f7") == "x"


def test_a_search_sees_one_moment() -> None:
    """A stream or walk under way is not disturbed by writes."""
    fs = InMemoryFilesystem({"a": b"1" * 100_000})
    stream = fs.stream("a", chunk_size=10)
    next(stream)
    fs.delete("a")
    assert sum(map(len, stream)) == 99_990


def test_deep_trees_need_no_recursion() -> None:
    """A thousand levels can be written, walked, compared, copied and deleted."""
    deep = "/".join(["d"] * 1500)
    fs = InMemoryFilesystem()
    snapshot = fs.snapshot()
    fs.write(f"{deep}/x", "x")
    assert len(fs.changes(snapshot).added) == 1501
    assert fs.search("x") == [f"{deep}/x"]
    fs.copy("d", "e")
    assert len(fs.glob("e/**")) == 1501
    fs.delete("d", recursive=True)
    assert fs.exists("e")


def test_snapshots_and_writes_from_many_threads_do_not_mix_up() -> None:
    """Threads that take, compare and drop snapshots while others write see consistent changes and lose no write."""
    fs = InMemoryFilesystem()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(200):
                snapshot = fs.snapshot()
                fs.write(f"t{number}/f{step}", "x")
                assert f"t{number}/f{step}" in fs.changes(snapshot).added
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(fs.glob("*/*")) == 1600
