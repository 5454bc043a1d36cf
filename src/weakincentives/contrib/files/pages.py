"""Text files by pages of numbered lines, and the question whether a file is text at all."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from ...errors import NotTextError
from ...filesystem import Filesystem

DEFAULT_LINES = 2000
MAX_PAGE_CHARS = 24_000
"""So that a page with its numbers stays below what a model reads of one result."""
MAX_LINE_CHARS = 2000
WHOLE_BYTES = 1 << 20
"""Files up to this size are read as a whole, so that their number of lines is known."""
SNIFFED_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines of a file, without their line ends. `total` is None when the end of the file was not reached."""

    start: int
    lines: tuple[str, ...]
    total: int | None

    @property
    def end(self) -> int:
        """The number of its last line; below `start` when it is empty."""
        return self.start + len(self.lines) - 1

    def numbered(self) -> str:
        """The lines as a model reads them: number, tab, text; long ones are clipped and say so."""
        return "\n".join([f"{number:>6}\t{_clipped(line)}" for number, line in enumerate(self.lines, self.start)])


def is_binary(head: bytes) -> bool:
    """Whether the first bytes of a file are not those of a UTF-8 text."""
    return b"\0" in head[:SNIFFED_BYTES]


def read_page(fs: Filesystem, path: str, *, offset: int = 1, limit: int = DEFAULT_LINES) -> Page:
    """At most `limit` lines from line `offset` on, fewer when they are long; at least one where there is one.

    `NotTextError` for a binary file and for one that is not UTF-8; what `Filesystem.read_bytes` raises.
    """
    if fs.stat(path).size <= WHOLE_BYTES:
        text = _decoded(fs.read_bytes(path), path)
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        kept = _fitting(lines[offset - 1 : offset - 1 + limit])
        return Page(offset, kept, len(lines))
    stream = _lines(fs.stream(path), path)
    before = sum(1 for _ in islice(stream, offset - 1))
    if before < offset - 1:
        return Page(offset, (), before)
    wanted = list(islice(stream, limit))
    kept = _fitting(wanted)
    ended = len(kept) == len(wanted) and next(stream, None) is None
    return Page(offset, kept, before + len(kept) if ended else None)


def _fitting(lines: list[str]) -> tuple[str, ...]:
    used, kept = 0, list[str]()
    for line in lines:
        used += min(len(line), MAX_LINE_CHARS) + 8
        if used > MAX_PAGE_CHARS and kept:
            break
        kept.append(line.removesuffix("\r"))
    return tuple(kept)


def _clipped(line: str) -> str:
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]} [clipped: the line has {len(line):,} characters]"


def _decoded(data: bytes, path: str) -> str:
    if is_binary(data):
        raise _binary(path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _binary(path) from error


def _binary(path: str) -> NotTextError:
    return NotTextError(f"{path!a} is not UTF-8 text.")


def _lines(chunks: Iterable[bytes], path: str) -> Iterator[str]:
    """The lines of a file that is too big to be held; a line of a megabyte comes in pieces."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    rest, first = "", True
    try:
        for chunk in chunks:
            if first and is_binary(chunk):
                raise _binary(path)
            first = False
            *lines, rest = (rest + decoder.decode(chunk)).split("\n")
            yield from lines
            if len(rest) > WHOLE_BYTES:
                yield rest
                rest = ""
        rest += decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _binary(path) from error
    if rest:
        yield rest


__all__ = ["DEFAULT_LINES", "MAX_PAGE_CHARS", "Page", "is_binary", "read_page"]
