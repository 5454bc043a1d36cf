"""The digest of a workspace: 10,000 files in under 5 seconds, and ten times the files in ten times the time."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from time import process_time

from weakincentives.contrib.digest import build_digest, refresh_digest
from weakincentives.filesystem import InMemoryFilesystem
from weakincentives.session import Session

from .harness import Row

_NAMES = (
    "module.py",
    "index.ts",
    "notes.md",
    "data.json",
    "mystery",
    "image.png",
    "run.sh",
    "main.go",
    "a.txt",
    "b.rs",
)


def run() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        small, large = os.path.join(folder, "small"), os.path.join(folder, "large")
        _fill(small, 1_000)
        _fill(large, 10_000)
        few, many = _interleaved(lambda: build_digest(small), lambda: build_digest(large))
        yield Row("digest of 10,000 files on disk", many, 5.0, "s", f"{many / 10_000 * 1e6:.0f} us a file")
        yield Row("digest on disk: a file among 10,000 against among 1,000", many / few / 10, 1.3, "x", "linear")
        session = Session()
        refresh_digest(session, large)
        start = process_time()
        refresh_digest(session, large)
        yield Row("refresh of a digest of 10,000 files, none changed", process_time() - start, 2.5, "s")
    small_memory, large_memory = _in_memory(1_000), _in_memory(10_000)
    few, many = _interleaved(lambda: build_digest(small_memory), lambda: build_digest(large_memory))
    yield Row("digest of 10,000 files in memory", many, 5.0, "s", f"{many / 10_000 * 1e6:.0f} us a file")
    yield Row("digest in memory: a file among 10,000 against among 1,000", many / few / 10, 1.3, "x", "linear")


def _paths(number: int) -> Iterator[str]:
    for count in range(number // 10):
        for name in _NAMES:
            yield f"part{count // 100}/package{count % 100}/{name}"


def _fill(root: str, number: int) -> None:
    os.makedirs(root)
    with open(os.path.join(root, ".gitignore"), "w", encoding="utf-8") as rules:
        rules.write("*.log\nbuild/\n/dist\n")
    for path in _paths(number):
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write("content\n")


def _in_memory(number: int) -> InMemoryFilesystem:
    return InMemoryFilesystem({".gitignore": "*.log\nbuild/\n/dist\n", **dict.fromkeys(_paths(number), "content\n")})


def _interleaved(small: object, large: object, rounds: int = 5) -> tuple[float, float]:
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for function, kept in zip((small, large), samples, strict=True):
            assert callable(function)
            start = process_time()
            function()
            kept.append(process_time() - start)
    return statistics.median(samples[0]), statistics.median(samples[1])
