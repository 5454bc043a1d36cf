"""Masking: where credentials are found, a mark is put in their place."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from functools import cache

MASK = "[masked]"
"""Replaces a credential."""

MAX_LEAVING_CHARS = 256 * 1024
"""What is kept of a text before it is masked and leaves the process: masking takes time in proportion to it."""

_MAX_ROUNDS = 6
_INVISIBLE = re.compile("[\xad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def redact(text: str) -> str:
    """The text with passwords, tokens and keys masked.

    It knows the usual shapes (`password=...`, `Bearer ...`, the password in a URL, well-known key prefixes, private
    keys, cookies, web tokens, connection strings). It is a safety net, not a proof that no secret gets
    through. It takes time in proportion to the text, and masking a masked text changes nothing.

    >>> redact("cannot connect to postgres://app:hunter2@db/app")
    'cannot connect to postgres://[masked]@db/app'
    """
    # A mask may uncover something for another rule, as a quote does; a text without credentials takes one round.
    absent: set[str] = set()
    for _ in range(_MAX_ROUNDS):
        masked = _once(text, absent)
        if masked == text:
            break
        text = masked
    return text


def leaving(text: str) -> str:
    """What leaves the process of a text that may hold credentials: cut when it is very long, then masked."""
    if len(text) > MAX_LEAVING_CHARS:
        text = f"{text[:MAX_LEAVING_CHARS]}\n[... {len(text) - MAX_LEAVING_CHARS} more characters]"
    return redact(text)


def _once(text: str, absent: set[str]) -> str:
    # A character without width inside a keyword hides it from a reader, too: rules look at the text without them.
    invisible = [] if text.isascii() else [found.start() for found in _INVISIBLE.finditer(text)]
    found = _spans(_INVISIBLE.sub("", text) if invisible else text, absent)
    if not found:
        return text
    if invisible:
        dropped = [at - before for before, at in enumerate(invisible)]  # where each stood in the text without them
        found = [(begin + bisect_right(dropped, begin), end + bisect_left(dropped, end)) for begin, end in found]
    parts: list[str] = []
    position = 0
    for begin, end in found:
        parts.append(text[position:begin])
        position = end
    parts.append(text[position:])
    return MASK.join(parts)


_Rule = Callable[[str, str, set[str]], Iterable[tuple[int, int]]]


@cache
def _rules() -> tuple[Callable[[str], bool], re.Pattern[str], tuple[_Rule, ...]]:
    """The rules, loaded for the first text: compiling their patterns takes longer than many programs take to start.

    First comes what tells most texts without credentials: no word of theirs begins as one does, and, in lower case,
    nothing is in them that a rule looks for. Rules note which literals the text does not hold: no mask brings one,
    so that later rounds need not look for them.
    """
    from . import names, places, prefixes  # noqa: PLC0415 - most programs never mask anything

    marks = re.compile(prefixes.any_of((*prefixes.MARKS, *places.MARKS, *names.MARKS)))
    return prefixes.begins, marks, (prefixes.spans, places.spans, names.spans)


def _spans(text: str, absent: set[str]) -> list[tuple[int, int]]:
    """What must be masked, in order and without overlaps; marks that are there already are left alone."""
    begins, marks, rules = _rules()
    lower = text.lower()
    if len(lower) != len(text):  # a few capitals become two characters
        lower = text.translate(_ASCII_LOWER)
    if not begins(text) and not marks.search(lower):
        return []
    from .judgement import is_placeholder  # noqa: PLC0415 - as the rules

    # Each rule gives its spans in order, mostly: a list of such runs is sorted in one pass, a set of them is not.
    found = [span for spans in rules for span in spans(text, lower, absent)]
    found.sort()
    merged: list[tuple[int, int]] = []
    last = -1
    for span in found:
        begin, end = span
        if begin == end or (end - begin == len(MASK) and text[begin:end] == MASK):
            continue
        if is_placeholder(text[begin:end]):
            continue
        if begin > last:
            merged.append(span)
            last = end
        elif end > last:
            merged[-1] = (merged[-1][0], end)
            last = end
    return merged
