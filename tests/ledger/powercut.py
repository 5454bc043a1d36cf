"""Simulated power cuts: from a trace of a program's system calls, what a disk may hold at a chosen moment.

What was written and then synced is there. What was written since may be there or not, write by write, and the last
one half. Run as a program, this is the program that is traced: it claims and finishes, and says so.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from weakincentives.runtime.ledger import Claimed, EffectId, SqliteEffectLedger, StoredResult

CALLS = "openat,pwrite64,write,fdatasync,fsync,ftruncate,close,unlink"
_LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def program(path: str, count: int, synchronous: str) -> None:
    ledger = SqliteEffectLedger(path)
    ledger._database.writer.get().execute(f"PRAGMA synchronous = {synchronous}")  # pyright: ignore[reportPrivateUsage]
    for number in range(count):
        effect_id = EffectId(f"k{number}")
        claimed = ledger.claim(effect_id, tool_name="t", params_hash="h", lease=60.0, strict_params=False)
        assert isinstance(claimed, Claimed)
        os.write(1, f"claimed {number}\n".encode())
        ledger.finish(effect_id, claimed.token, StoredResult("Done."), timedelta(hours=1))
        os.write(1, f"finished {number}\n".encode())


@dataclass
class Contents:
    """A file: what is on the disk for certain, and the writes that may be."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list[tuple[int, bytes | None]])
    is_there: bool = False


def _apply(image: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        del image[at:]
        return
    if len(image) < at:
        image.extend(bytes(at - len(image)))
    image[at : at + len(data)] = data


class Disk:
    """Follows a trace; `images` is what may be found after a cut right now."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._open: dict[int, str] = {}
        self.files: dict[str, Contents] = {}

    def images(self, rng: random.Random) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        luck = rng.choice((0.0, 0.5, 1.0))
        for name, contents in self.files.items():
            image = bytearray(contents.synced)
            for at, data in contents.pending:
                if rng.random() < luck:
                    torn = data if data is None or rng.random() < 0.7 else data[: rng.randrange(len(data) + 1)]
                    _apply(image, at, torn)
            if contents.is_there or image:
                found[name] = bytes(image)
        return found

    def follow(self, call: str, arguments: str, result: int) -> str | None:
        """Take in one call; what the program said, when it said something."""
        if call == "openat":
            texts = _TEXT.findall(arguments)
            name = _decoded(texts[0]).decode() if texts else ""
            if result >= 0 and name.startswith(self._directory) and not name.endswith("-shm"):
                self._open[result] = name
                contents = self.files.setdefault(name, Contents())
                if "O_TRUNC" in arguments:
                    contents.pending.append((0, None))
            return None
        if call == "unlink":
            self.files.pop(_decoded(_TEXT.findall(arguments)[0]).decode(), None)
            return None
        fd = int(arguments.split(",", maxsplit=1)[0])
        if call == "write" and fd == 1:
            return _decoded(_TEXT.findall(arguments)[0]).decode().strip()
        if call == "close":
            self._open.pop(fd, None)
        elif fd in self._open:
            self._change(self.files.setdefault(self._open[fd], Contents()), call, arguments)
        return None

    @staticmethod
    def _change(contents: Contents, call: str, arguments: str) -> None:
        if call in {"fsync", "fdatasync"}:
            for at, data in contents.pending:
                _apply(contents.synced, at, data)
            contents.pending.clear()
            contents.is_there = True
        elif call == "pwrite64":
            contents.pending.append((int(arguments.rsplit(",", 1)[1]), _decoded(_TEXT.findall(arguments)[0])))
        elif call == "ftruncate":
            contents.pending.append((int(arguments.split(",")[1]), None))


def _decoded(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def moments(trace: Path, directory: Path) -> Iterator[tuple[str, Disk]]:
    """The disk at each moment at which the program said something."""
    disk = Disk(str(directory))
    for line in trace.read_text().splitlines():
        match = _LINE.match(line)
        if match:
            said = disk.follow(match[1], match[2], int(match[3]))
            if said:
                yield said, disk


if __name__ == "__main__":
    program(sys.argv[1], int(sys.argv[2]), sys.argv[3])
