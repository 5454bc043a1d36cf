"""Making characters visible that control a terminal, change the direction of text or cannot be seen."""

from __future__ import annotations

import unicodedata
from typing import IO

# Letters and marks by their class, but nothing is drawn for them: fillers, joiners, variation selectors.
# The emoji selector (U+FE0F) is not among them: it follows many ordinary emoji.
_DRAWN_AS_NOTHING = frozenset(
    (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x3164, 0xFFA0, 0x2800)
) | frozenset((*range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0)))


class _Marks(dict[int, str]):
    """What `str.translate` puts in place of a character; filled as characters are met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        seen = character.isprintable() or unicodedata.category(character) == "Zs" or character in self.kept
        mark = character if seen and code not in _DRAWN_AS_NOTHING else _mark(code)
        self[code] = mark
        return mark

    def __init__(self, kept: str) -> None:
        super().__init__()
        self.kept = kept


def _mark(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


_TEXT = _Marks("\n\t")
_LINE = _Marks("")


def visible(text: str) -> str:
    r"""The text with a mark such as `\u001b` for each character that cannot be seen; line breaks and tabs stay.

    Escape sequences, control characters, bidirectional and zero-width characters and lone surrogates are marked, so
    that what a model, a tool or a file name says cannot act on the terminal or look like something else. The marks
    are those of JSON: inside JSON text they mean the same character. Never raises.

    >>> print(visible("done\x1b[2J\u202e"))
    done\u001b[2J\u202e
    """
    return text if text.isascii() and text.isprintable() else text.replace("\r\n", "\n").translate(_TEXT)


def visible_line(text: str) -> str:
    r"""`visible` for what must stay on one line: line breaks and tabs are marked, too.

    >>> print(visible_line("a\nb"))
    a\u000ab
    """
    return text if text.isascii() and text.isprintable() else text.translate(_LINE)


def writable(text: str, stream: IO[str]) -> str:
    """The text with marks for what the stream's encoding does not have, so that writing it does not raise."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except (LookupError, UnicodeError):  # an encoding that Python does not know
        return text.encode("ascii", "backslashreplace").decode()
