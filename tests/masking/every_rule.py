"""Masking as it was before texts without credentials were told by one look: every rule looks through every text.

It takes long, and is what `redact` and `masked_data` are compared with.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from weakincentives.masking import names, places, prefixes
from weakincentives.masking.judgement import is_placeholder
from weakincentives.masking.redact import _ASCII_LOWER, _INVISIBLE, MASK

Span = tuple[int, int]

RULES = tuple((literal, re.compile(rest)) for literals, rest in prefixes._TABLE for literal in literals)
LITERALS = (
    *(literal for literal, _ in RULES),
    *(literal for literal, _ in prefixes._AFTER_PLACE),
    *(middle.literal for middle in prefixes._MIDDLES),
    *(literal for literal, _ in places._BROKEN_URLS),
    *(literal for literal, _ in places._STATEMENTS),
    *(flag for flag, _, _ in places._FLAGS),
    *(command for _, _, commands in places._FLAGS for command in commands),
    *places._PROTOCOLS,
    *names.MARKS,
)


def redact(text: str) -> str:
    for _ in range(6):
        masked = _once(text)
        if masked == text:
            break
        text = masked
    return text


def masked_data(data: Any) -> Any:
    if isinstance(data, str):
        return redact(data)
    if isinstance(data, dict):
        return {key: _member(str(key), value) for key, value in data.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(data, list):
        return [masked_data(item) for item in data]  # pyright: ignore[reportUnknownVariableType]
    return data


def _member(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return masked_data(value)
    value = redact(value)
    pair = json.dumps({key: value}, ensure_ascii=False)
    hidden = redact(pair)
    if hidden == pair:
        return value
    try:
        return next(iter(json.loads(hidden).values()))
    except (ValueError, AttributeError, StopIteration):
        return value


def _once(text: str) -> str:
    invisible = [found.start() for found in _INVISIBLE.finditer(text)]
    found = _spans(_INVISIBLE.sub("", text))
    if invisible:
        dropped = [at - before for before, at in enumerate(invisible)]
        found = [(begin + bisect_right(dropped, begin), end + bisect_left(dropped, end)) for begin, end in found]
    parts: list[str] = []
    position = 0
    for begin, end in found:
        parts.append(text[position:begin])
        position = end
    return MASK.join([*parts, text[position:]])


def _spans(text: str) -> list[Span]:
    lower = text.lower()
    if len(lower) != len(text):
        lower = text.translate(_ASCII_LOWER)
    found = sorted([*_prefixes(text), *_places(text, lower), *names.spans(text, lower, set())])
    merged: list[Span] = []
    for begin, end in found:
        if begin == end or text[begin:end] == MASK or is_placeholder(text[begin:end]):
            continue
        if not merged or begin > merged[-1][1]:
            merged.append((begin, end))
        elif end > merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
    return merged


def _prefixes(text: str) -> Iterator[Span]:
    for literal, pattern in RULES:
        at = text.find(literal)
        while at >= 0:
            end = at + len(literal)
            if not (at and text[at - 1].isalnum() and text[at - 1].isascii()):
                found = pattern.match(text, end)
                if found:
                    end = found.end()
                    yield at, end
            at = text.find(literal, end)
    for literal, pattern in prefixes._AFTER_PLACE:
        at = text.find(literal)
        while at >= 0:
            found = pattern.match(text, at + len(literal))
            if found:
                yield found.start(1), found.end()
            at = text.find(literal, at + len(literal))
    for middle in prefixes._MIDDLES:
        yield from prefixes._around(text, middle)


def _places(text: str, lower: str) -> Iterator[Span]:
    yield from places._blocks(text, "-----BEGIN ", "-----END ", "-----")
    yield from places._blocks(text, "---- BEGIN SSH2 ", "---- END ", "----")
    of_text: tuple[Callable[[str], Iterator[Span]], ...] = (
        places._ends, places._putty, places._urls, places._below_fields, places._at_locations, places._rejected,
    )  # fmt: skip
    for rule in of_text:
        yield from rule(text)
    for rule in (places._broken_urls, places._cookies, places._schemes, places._statements):
        yield from rule(text, lower)
    yield from places._flags(text, lower, set())
