"""Text files in pages of numbered lines, and a test of whether a file is text."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from ...errors import NotTextError
from ...fence import check_wanted
from ...filesystem import Filesystem

DEFAULT_LINES = 2000
MAX_PAGE_CHARS = 24_000
"""So that a page with its numbers stays below what a model reads of one result."""
MAX_LINE_CHARS = 2000
WHOLE_BYTES = 1 << 20
"""Files up to this size are read as a whole, so that their number of lines is known."""
MAX_SKIPPED_BYTES = 256 << 20
"""So much is read to find the line to begin with."""
MAX_EDITED_BYTES = 64 << 20
"""What can be held twice, with a diff between the two."""
SNIFFED_BYTES = 8192


class BinaryFileError(NotTextError):
    """A file that is not UTF-8 text was to be shown or edited."""


class TooLargeError(NotTextError):
    """A file was to be edited or read that is too large for that; the message says what to do."""


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
        lines = self.lines
        if lines and max(map(len, lines)) > MAX_LINE_CHARS:
            lines = tuple(_clipped(line) for line in lines)
        return "\n".join(["%6d\t%s" % pair for pair in enumerate(lines, self.start)])  # noqa: UP031 - the quickest


def is_binary(head: bytes) -> bool:
    """Whether the first bytes of a file are not those of a UTF-8 text."""
    return head.find(b"\0", 0, SNIFFED_BYTES) >= 0


def read_page(fs: Filesystem, path: str, *, offset: int = 1, limit: int = DEFAULT_LINES) -> Page:
    """At most `limit` lines from line `offset` on, fewer when they are long; at least one where there is one.

    `BinaryFileError` for a binary file and for one that is not UTF-8, `TooLargeError` when the lines are too far into
    a large one; what `Filesystem.read_bytes` raises.
    """
    data = fs.read_bytes(path, limit=WHOLE_BYTES + 1)
    if len(data) <= WHOLE_BYTES:
        return _page_of(text_of(data, path), offset, limit)
    stream = _lines(_limited(fs.stream(path, chunk_size=WHOLE_BYTES), path), path)
    before = sum(1 for _ in islice(stream, offset - 1))
    if before < offset - 1:
        return Page(offset, (), before)
    wanted = list(islice(stream, limit))
    kept = _fitting(wanted)
    ended = len(kept) == len(wanted) and next(stream, None) is None
    return Page(offset, kept, before + len(kept) if ended else None)


def read_whole(fs: Filesystem, path: str) -> bytes:
    """All of a file that is to be changed; `TooLargeError` for more than `MAX_EDITED_BYTES`."""
    data = fs.read_bytes(path, limit=MAX_EDITED_BYTES + 1)
    if len(data) <= MAX_EDITED_BYTES:
        return data
    raise TooLargeError(
        f"{path!a} has {fs.stat(path).size:,} bytes, and files over {MAX_EDITED_BYTES:,} cannot be changed here. "
        "Use a program for it, or delete the file and write a new one."
    )


def _limited(chunks: Iterable[bytes], path: str) -> Iterator[bytes]:
    """The same pieces, up to the limit and while the call is wanted."""
    length = 0
    for chunk in chunks:
        check_wanted()
        if length > MAX_SKIPPED_BYTES:
            raise TooLargeError(
                f"The lines are more than {length:,} bytes into {path!a}, which is too far to count. "
                "Search for text in it, or use a program for it."
            )
        length += len(chunk)
        yield chunk


def _page_of(text: str, offset: int, limit: int) -> Page:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    total = len(lines)
    if offset > 1 or limit < total:
        lines = lines[offset - 1 : offset - 1 + limit]
    small = len(text) + 8 * total <= MAX_PAGE_CHARS and "\r" not in text
    return Page(offset, tuple(lines) if small else _fitting(lines), total)


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


def text_of(data: bytes, path: str) -> str:
    """The file's text; `BinaryFileError` for a binary one and for one that is not UTF-8."""
    if is_binary(data):
        raise _binary(path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _binary(path) from error


def _binary(path: str) -> BinaryFileError:
    return BinaryFileError(f"{path!a} is not UTF-8 text.")


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
