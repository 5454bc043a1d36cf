"""In-memory files: what a rollback costs must not depend on how many files there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weakincentives.fence import Fence
from weakincentives.filesystem import InMemoryFilesystem
from weakincentives.filesystem.views import GuardedFilesystem

from .harness import Row, ratio


def spread(count: int) -> InMemoryFilesystem:
    return InMemoryFilesystem({f"d{number // 100}/f{number}.txt": "content" for number in range(count)})


def heaped(count: int) -> InMemoryFilesystem:
    return InMemoryFilesystem({f"d0/f{number}.txt": "content" for number in range(count)})


def transaction(fs: InMemoryFilesystem) -> Callable[[], None]:
    def run() -> None:
        snapshot = fs.snapshot()
        fs.write("d0/f1.txt", "changed")
        fs.write("d0/f2.txt", "changed")
        fs.write("d0/new.txt", "added")
        fs.restore(snapshot)

    return run


def changes(fs: InMemoryFilesystem) -> Callable[[], object]:
    snapshot = fs.snapshot()
    fs.write("d0/f1.txt", "changed")
    return lambda: fs.changes(snapshot)


def appending(size: int) -> Callable[[], object]:
    fs = InMemoryFilesystem({"log": bytes(size)})

    def run() -> None:
        snapshot = fs.snapshot()
        fs.append("log", b"x")
        fs.changes(snapshot)
        fs.restore(snapshot)

    return run


def run() -> Iterator[Row]:
    few = transaction(spread(10))
    name = "in-memory files: snapshot, 3 writes, restore"
    yield ratio(f"{name}; 50,000 files", transaction(spread(50_000)), few, 1.5, note="10 files")
    yield ratio(f"{name}; 50,000 in one directory", transaction(heaped(50_000)), few, 1.5, note="10 files")
    yield ratio(
        "in-memory files: changes() after one write; 50,000 files",
        changes(spread(50_000)),
        changes(spread(10)),
        1.5,
        note="10 files",
    )
    tree, flat = spread(10_000), InMemoryFilesystem({f"f{number}": "" for number in range(100)})
    yield ratio(
        "in-memory files: list the root (100 children) of a 10,000-file tree",
        tree.list,
        flat.list,
        1.5,
        note="100 files in all",
    )
    yield ratio(
        "in-memory files: append a byte to 100 MB, undone",
        appending(100_000_000),
        appending(1),
        1.5,
        note="to one byte",
    )
    fs, fence = spread(10), Fence()
    yield ratio(
        "in-memory files: guarded view made and written through",
        lambda: GuardedFilesystem(fs, fence).write("d0/f1.txt", "x"),
        lambda: fs.write("d0/f1.txt", "x"),
        1.5,
        note="plain write",
    )
