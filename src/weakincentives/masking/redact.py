"""Masking: where credentials are found, a mark is put in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

MASK = "[masked]"
"""What stands in the place of a credential."""

MAX_LEAVING_CHARS = 256 * 1024
"""What is kept of a text before it is masked and leaves the process: masking takes time in proportion to it."""

_MAX_ROUNDS = 6
_INVISIBLE = dict.fromkeys(
    (0xAD, 0x34F, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF)
)
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def redact(text: str) -> str:
    """The text with passwords, tokens and keys masked.

    It knows the usual shapes (`password=...`, `Bearer ...`, the password in a URL, well-known key prefixes, private
    keys, cookies, web tokens, connection strings). It is a net under mistakes, not a proof that no secret gets
    through. It takes time in proportion to the text, and masking a masked text changes nothing.

    >>> redact("cannot connect to postgres://app:hunter2@db/app")
    'cannot connect to postgres://[masked]@db/app'
    """
    # A mask may uncover something for another rule, as a quote does; a text without credentials takes one round.
    for _ in range(_MAX_ROUNDS):
        masked = _once(text)
        if masked == text:
            break
        text = masked
    return text


def leaving(text: str) -> str:
    """What leaves the process of a text that may hold credentials: cut when it is very long, then masked."""
    if len(text) > MAX_LEAVING_CHARS:
        text = f"{text[:MAX_LEAVING_CHARS]}\n[... {len(text) - MAX_LEAVING_CHARS} more characters]"
    return redact(text)


def _once(text: str) -> str:
    seen = text.translate(_INVISIBLE)
    found = _spans(seen)
    if not found:
        return text
    if len(seen) != len(text):
        # A character without width inside a keyword hides it from a reader, too: rules look at the text without them.
        kept = [at for at, character in enumerate(text) if ord(character) not in _INVISIBLE]
        found = [(kept[begin], kept[end - 1] + 1) for begin, end in found]
    parts: list[str] = []
    position = 0
    for begin, end in found:
        parts += (text[position:begin], MASK)
        position = end
    parts.append(text[position:])
    return "".join(parts)


@cache
def _rules() -> tuple[Callable[[str, str], Iterable[tuple[int, int]]], ...]:
    """The rules, loaded for the first text: compiling their patterns takes longer than many programs take to start."""
    from . import names, places, prefixes  # noqa: PLC0415 - most programs never mask anything

    return prefixes.spans, places.spans, names.spans


def _spans(text: str) -> list[tuple[int, int]]:
    """What must be masked, in order and without overlaps; marks that are there already are left alone."""
    lower = text.translate(_ASCII_LOWER) if not text.isascii() else text.lower()
    found = sorted({span for spans in _rules() for span in spans(text, lower)})
    merged: list[tuple[int, int]] = []
    for begin, end in found:
        if text[begin:end] == MASK:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


__all__ = ["MASK", "MAX_LEAVING_CHARS", "leaving", "redact"]
