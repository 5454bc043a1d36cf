"""Regular expressions over lines, within a limit of wall-clock time that no pattern can escape."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain
from time import monotonic, thread_time
from typing import Any, Final, Protocol, final

from ...errors import PatternError
from ...fence import check_wanted
from ..protocol import GrepMatch
from .walk import WalkTree

# Compiled patterns that take bounded time and memory, whatever the pattern.
#
# `google-re2` matches in this process: its time is linear in the text and its memory has a limit. Where it is not
# installed, `regex` does in a process of its own that is limited and killed (`pattern_worker.py`).


MAX_MEMORY: Final = 8 << 20
"""What a pattern and its tables may take. Less makes some patterns slow: 2.3 s with 2 MiB, 0.07 s with 8."""


class Matcher(Protocol):
    """Finds a pattern in lines. Used by one thread; `close` it when the search is over, whatever happened."""

    spent: float
    """Seconds of processor time that the last search took: a busy machine does not make a pattern slow."""

    def search(self, text: bytes, start: int, end: int, /) -> tuple[int, int] | None:
        """Where the first match in `text[start:end]` is, which is valid UTF-8 and begins and ends at line breaks.

        `TimeoutError` when it was stopped.
        """
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


def compiled(pattern: str, *, ignore_case: bool, deadline: float) -> Matcher:
    """The pattern, ready to search until `deadline` (of `time.monotonic`); `PatternError` when it cannot be used.

    What reads patterns is imported by the first search: it compiles some of its own, and most programs never search.
    """
    try:
        import re2  # noqa: PLC0415 - as above
    except ImportError:
        from .pattern_worker import WorkerMatcher  # noqa: PLC0415 - only where re2 is missing

        return WorkerMatcher(pattern, ignore_case=ignore_case, deadline=deadline)
    return Re2Matcher(re2, pattern, ignore_case=ignore_case)


@final
class Re2Matcher:
    """A pattern compiled by RE2, which never backtracks."""

    __slots__ = ("_search", "spent")

    def __init__(self, re2: Any, pattern: str, *, ignore_case: bool) -> None:
        from .pattern_syntax import Translation, too_large  # noqa: PLC0415 - see `compiled`

        self.spent: float = 0.0
        text = Translation(pattern, ignore_case=ignore_case, for_re2=True).text
        options = re2.Options()
        options.max_mem = MAX_MEMORY
        options.never_nl = True
        options.never_capture = True
        options.log_errors = False
        try:
            self._search: Any = re2.compile(text.encode(), options).search
        except re2.error as error:
            reason = error.args[0] if error.args else b""
            raise too_large(pattern, reason.decode("ascii", "replace")) from error
        finally:
            re2.purge()  # its cache would keep the memory of 128 patterns

    def search(self, text: bytes, start: int, end: int, /) -> tuple[int, int] | None:
        """See `Matcher.search`."""
        began = thread_time()
        found = self._search(text, start, end)
        self.spent = thread_time() - began
        return None if found is None else found.span()

    def close(self) -> None:
        """Nothing: its memory goes with it."""


MIN_PIECE: Final = 4 << 10
FIRST_PIECE: Final = 16 << 10
MAX_PIECE: Final = 1 << 20
SLOW: Final = 0.06
"""Seconds of processor time after which no longer piece is tried: the clock is read between pieces. The worst pattern
known takes 0.5 s for the first one, and a quarter of that later."""
QUICK: Final = 0.005
SNIFFED_BYTES: Final = 8192

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def grep_files(
    tree: WalkTree,
    paths: Iterable[str],
    pattern: str,
    *,
    ignore_case: bool,
    max_matches: int,
    max_line_length: int,
    timeout: float,
) -> list[GrepMatch]:
    """The matching lines of the files, at most `max_matches`; files that cannot be read are passed over.

    `timeout` is wall-clock time and includes compiling, walking and reading. `PatternError` when it is over.
    """
    deadline = monotonic() + timeout
    try:
        matcher = compiled(pattern, ignore_case=ignore_case, deadline=deadline)
        try:
            search = _Search(matcher, max_matches, max_line_length, deadline)
            for path in paths if max_matches > 0 else ():
                search.check()
                if not search.in_file(tree, path):
                    break
        finally:
            matcher.close()
    except TimeoutError as error:
        from .pattern_syntax import shown  # noqa: PLC0415 - see `patterns.compiled`

        raise PatternError(
            f"The search for {shown(pattern)} took longer than {timeout:g} seconds and was stopped; "
            "use a simpler pattern, fewer files (path=, glob=), or a longer timeout."
        ) from error
    return search.found


@final
class _Search:
    """One search: what it has found, and how much it looks at before it reads the clock again."""

    __slots__ = ("_deadline", "_matcher", "_max_length", "_max_matches", "_size", "found")

    def __init__(self, matcher: Matcher, max_matches: int, max_length: int, deadline: float) -> None:
        self._matcher = matcher
        self._max_matches = max_matches
        self._max_length = max_length
        self._deadline = deadline
        self._size = FIRST_PIECE
        self.found: list[GrepMatch] = []

    def check(self) -> None:
        """`TimeoutError` when time is up, `StaleCallError` when the call around the search was given up."""
        if monotonic() > self._deadline:
            raise TimeoutError
        check_wanted()

    def in_file(self, tree: WalkTree, path: str) -> bool:
        """Search one file; whether there is room for more matches."""
        line = 1
        for block in _blocks(tree, path):
            start = 0
            while start < len(block):
                end = self._end(block, start)
                if not self._in_piece(path, line, block, start, end):
                    return False
                line += block.count(b"\n", start, end)
                start = end
            self.check()
        return True

    def _in_piece(self, path: str, line: int, block: bytes, start: int, end: int) -> bool:
        """Search `block[start:end]`, which starts in line number `line`."""
        last = end - 1 if block[end - 1] == 10 else end  # behind the last line break there is no line
        while start <= last:
            hit = self._matcher.search(block, start, last)
            self._adapt(self._matcher.spent)
            if hit is None:
                return True
            line += block.count(b"\n", start, hit[0])
            self._add(path, line, block, *hit)
            if len(self.found) >= self._max_matches:
                return False
            line_end = block.find(b"\n", hit[0], end)
            if line_end < 0:
                return True
            start, line = line_end + 1, line + 1
            self.check()
        return True

    def _end(self, block: bytes, start: int) -> int:
        """Where the next piece ends: at a line break, or within a line that is too long to be searched at once."""
        if len(block) - start <= self._size:
            return len(block)
        if cut := block.rfind(b"\n", start, start + self._size) + 1:
            return cut
        line_end = block.find(b"\n", start) + 1 or len(block)
        size = self._size
        # A part of a line is not searched in its place, as "$" would match at its end. It only tells how long the
        # pattern takes: twice as much is tried until the line is reached or that is too slow.
        while start + size < line_end:
            self._matcher.search(block, start, _whole(block, start + size))
            self.check()
            if self._matcher.spent > SLOW:
                return _whole(block, start + size)
            size *= 2
        return line_end

    def _adapt(self, seconds: float) -> None:
        if seconds < QUICK:
            self._size = min(2 * self._size, MAX_PIECE)
        elif seconds > SLOW:
            self._size = max(self._size // 2, MIN_PIECE)
        self.check()

    def _add(self, path: str, line: int, block: bytes, low: int, high: int) -> None:
        if self.found and self.found[-1].line == line and self.found[-1].path == path:
            return  # another part of the same long line
        begin = block.rfind(b"\n", 0, low) + 1
        end = block.find(b"\n", low)
        text = block[begin : end if end >= 0 else len(block)].decode()
        before, inside = len(block[begin:low].decode()), len(block[low:high].decode())
        self.found.append(GrepMatch(path, line, _clip(text, before, before + inside, self._max_length)))


def _clip(text: str, start: int, end: int, limit: int) -> str:
    if end <= limit or len(text) <= limit:
        return text[:limit]
    return text[start : start + limit]  # far to the right: show what matched


def _whole(block: bytes, end: int) -> int:
    """The same place, or the start of the character that it would cut."""
    while end < len(block) and block[end] & 0xC0 == 0x80:
        end -= 1
    return end


def _blocks(tree: WalkTree, path: str) -> Iterator[bytes]:
    """The text of a file as valid UTF-8, by whole lines; nothing for a binary file. Longer lines come in pieces."""
    rest = b""
    try:
        for chunk in _utf8(tree, path):
            cut = chunk.rfind(b"\n") + 1
            if cut:
                yield _clean(rest + chunk[:cut])
                rest = chunk[cut:]
            else:
                rest += chunk
                if len(rest) > MAX_PIECE:
                    cut = _whole(rest, len(rest) - 4)
                    yield _clean(rest[:cut])
                    rest = rest[cut:]
    except OSError:
        pass  # gone or not readable; what was read of it counts
    if rest:
        yield _clean(rest)


def _utf8(tree: WalkTree, path: str) -> Iterator[bytes]:
    chunks = iter(tree.chunks(path))
    head = next(chunks, b"")
    encoding = _encoding(head)
    if encoding is None:
        return
    if encoding.startswith("utf-8"):
        yield head.removeprefix(codecs.BOM_UTF8)
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for chunk in chain([head], chunks, [b""]):
        yield decoder.decode(chunk, final=not chunk).encode(errors="replace")


def _clean(block: bytes) -> bytes:
    """With line feeds only, and a replacement character for each byte that is not UTF-8."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if block.isascii():
        return block
    try:
        block.decode()
    except UnicodeDecodeError:
        return block.decode(errors="replace").encode()
    return block


def _encoding(head: bytes) -> str | None:
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            return encoding
    return None if b"\0" in head[:SNIFFED_BYTES] else "utf-8"
