"""Regular expressions over lines, with a time limit that even a catastrophic pattern cannot escape."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING

from ..errors import PatternError
from .protocol import GrepMatch
from .walk import Tree

if TYPE_CHECKING:
    from regex import Pattern

MAX_PATTERN_LENGTH = 10_000
MAX_PIECE = 1_000_000
SNIFFED_BYTES = 8192

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def grep_files(
    tree: Tree,
    paths: Iterable[str],
    pattern: str,
    *,
    ignore_case: bool,
    max_matches: int,
    max_line_length: int,
    timeout: float,
) -> list[GrepMatch]:
    """The matching lines of the files, at most `max_matches`; files that cannot be read are passed over."""
    deadline = monotonic() + timeout
    compiled = _compile(pattern, ignore_case=ignore_case)
    found: list[GrepMatch] = []
    if max_matches <= 0:
        return found
    try:
        for path in paths:
            for line, text in _lines(tree, path):
                left = deadline - monotonic()
                match = compiled.search(text, timeout=left) if left > 0 else _too_slow()
                if match and not (found and found[-1].line == line and found[-1].path == path):
                    found.append(GrepMatch(path, line, _clip(text, match.start(), match.end(), max_line_length)))
                    if len(found) >= max_matches:
                        return found
            if monotonic() > deadline:
                _too_slow()
    except TimeoutError as error:
        raise PatternError(
            f"The search for {_shown(pattern)} took longer than {timeout:g} seconds and was stopped; "
            "use a simpler pattern, fewer files (path=, glob=), or a longer timeout."
        ) from error
    return found


def _too_slow() -> None:
    raise TimeoutError


def _compile(pattern: str, *, ignore_case: bool) -> Pattern[str]:
    import regex  # noqa: PLC0415 - takes a while to import, and most programs never search

    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_LENGTH:
        raise PatternError(f"The pattern must be text of at most {MAX_PATTERN_LENGTH} characters.")
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except (regex.error, OverflowError, RecursionError, ValueError) as error:
        raise PatternError(
            f"{_shown(pattern)} is not a valid regular expression: {error}. Escape special characters with a backslash."
        ) from error


def _shown(pattern: str) -> str:
    return ascii(pattern if len(pattern) <= 80 else pattern[:77] + "...")


def _clip(text: str, start: int, end: int, limit: int) -> str:
    if end <= limit or len(text) <= limit:
        return text[:limit]
    return text[start : start + limit]  # far to the right: show what matched


def _lines(tree: Tree, path: str) -> Iterator[tuple[int, str]]:
    """Line numbers and lines; nothing for a binary file. A line of a million characters comes in pieces."""
    try:
        chunks = iter(tree.chunks(path))
        head = next(chunks, b"")
        encoding = _encoding(head)
        if encoding is not None:
            yield from _split_lines(chain([head], chunks), encoding)
    except OSError:
        return


def _encoding(head: bytes) -> str | None:
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            return encoding
    return None if b"\0" in head[:SNIFFED_BYTES] else "utf-8"


def _split_lines(chunks: Iterable[bytes], encoding: str) -> Iterator[tuple[int, str]]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    number = 1
    rest = ""
    for chunk in chain(chunks, [b""]):
        *lines, rest = (rest + decoder.decode(chunk, final=not chunk)).split("\n")
        for line in lines:
            yield number, line.removesuffix("\r")
            number += 1
        if len(rest) > MAX_PIECE:
            yield number, rest
            rest = ""
    if rest:
        yield number, rest


__all__ = ["grep_files"]
