r"""The regular expressions that users and models may write, read once and written out for either engine.

The language is that of RE2, so that no pattern can take more than linear time: lookaround, backreferences, atomic
groups, possessive quantifiers, `(?x)` and conditionals are refused by name. A pattern is matched against one line at a
time, so `\A` and `\Z` mean the same as `^` and `$`, and the flags `m` and `s` change nothing. Groups never capture.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn, final

from ...errors import PatternError

MAX_PATTERN_LENGTH: Final = 1000
MAX_REPETITION: Final = 1000

_LINE_BREAK: Final = 10
_SPACES: Final = r"\t\n\f\r "
_WORD: Final = "0-9A-Za-z_"
_SETS: Final = {"d": "0-9", "w": _WORD, "s": _SPACES}
_CHARACTERS: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_POSIX: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": r"\x21-\x7e", "lower": "a-z", "print": r"\x20-\x7e",
    "punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e", "space": r"\t\n\x0b\f\r ", "upper": "A-Z", "word": _WORD,
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_CATEGORY: Final = re.compile(r"C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
_SCRIPT: Final = re.compile(r"[A-Z][a-z]+(?:_[A-Z][a-z]+)*")

_counted = re.compile(r"\{(\d{0,9})(,?)(\d{0,9})\}").match
_flags = re.compile(r"\?([a-zA-Z]*)(-?)([a-zA-Z]*)([:)])").match
_named = re.compile(r"\?P?<([A-Za-z_]\w*)>", re.ASCII).match
_hexadecimal = re.compile(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,8})\}|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})").match
_octal = re.compile(r"0[0-7]{0,2}").match
_property = re.compile(r"[pP](?:(\w)|\{(\^?)([\w&]+)\})").match
_posix = re.compile(r"\[:(\^?)(\w+):\]").match

_REFUSED_GROUPS: Final = {
    "?=": "lookahead", "?!": "lookahead", "?<=": "lookbehind", "?<!": "lookbehind", "?>": "atomic groups",
    "?(": "conditionals", "?#": "comments", "?P=": "backreferences", "?P>": "recursion", "?R": "recursion",
    "?|": "branch resets", "?&": "recursion",
}  # fmt: skip
_REFUSED_ESCAPES: Final = {
    "N": "characters by name", "h": r"\h", "R": r"\R", "X": r"\X", "K": r"\K", "G": r"\G", "C": r"\C", "Q": r"\Q",
    "k": "backreferences", "g": "backreferences", "L": r"\L", "m": r"\m", "M": r"\M",
}  # fmt: skip


@final
class Translation:
    """One pass over a pattern. `text` is what the engine is given; `PatternError` for what is not in the language.

    Args:
        pattern: what the user wrote.
        ignore_case: whether case does not matter anywhere.
        for_re2: written for RE2; else for the module `regex`, whose own rules are avoided where they differ.
    """

    __slots__ = ("_at", "_for_re2", "_heights", "_names", "_parts", "_pattern", "_repeatable", "text")

    def __init__(self, pattern: str, *, ignore_case: bool, for_re2: bool) -> None:
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_LENGTH:
            raise PatternError(f"The pattern must be text of at most {MAX_PATTERN_LENGTH:,} characters.")
        self._pattern = pattern
        self._for_re2 = for_re2
        self._at = 0
        self._parts: list[str] = []
        self._names: set[str] = set()
        # How often what was read last is repeated, by the repetitions inside it; None when nothing can be repeated.
        self._repeatable: int | None = None
        self._heights: list[int] = [1]  # the same for each open group: the most of what it holds
        while self._at < len(pattern):
            self._next()
        if len(self._heights) > 1:
            self._wrong("a group is not closed: ')' is missing")
        start = "(?m)" if for_re2 else "(?m-f)"
        self.text: str = f"{start}{'(?i)' if ignore_case else ''}{''.join(self._parts)}"

    def _next(self) -> None:
        character = self._pattern[self._at]
        if character in "*+?{" and self._quantifier():
            return
        self._at += 1
        if character == "(":
            self._group()
        elif character == ")":
            self._close()
        elif character == "|":
            self._parts.append("|")
            self._repeatable = None
        elif character == "[":
            self._set(self._class())
        elif character == "\\":
            self._escape()
        elif character in "^$":
            self._assertion(character)
        elif character == ".":
            self._set(r"[^\n]")
        else:
            self._literal(ord(character))

    # --- groups

    def _group(self) -> None:
        self._heights.append(1)
        self._repeatable = None
        if not self._pattern.startswith("?", self._at):
            self._parts.append("(?:")
            return
        if (named := _named(self._pattern, self._at)) is not None:
            if named[1] in self._names:
                self._wrong(f"two groups are named {named[1]!a}")
            self._names.add(named[1])
            self._at = named.end()
            self._parts.append("(?:")
            return
        flags = _flags(self._pattern, self._at)
        if flags is None or not set(flags[1] + flags[3]) <= set("ims") or (flags[2] and not flags[3]):
            self._refuse_group(flags)
        assert flags is not None
        self._at = flags.end()
        case = "i" if "i" in flags[1] else "-i" if "i" in flags[3] else ""
        if flags[4] == ":":
            self._parts.append(f"(?{case}:")
            return
        self._heights.pop()  # flags for the rest of the group around them
        if not flags[1] and not flags[3]:
            self._wrong("'(?)' holds nothing")
        self._parts.append(f"(?{case})" if case else "")

    def _refuse_group(self, flags: re.Match[str] | None) -> NoReturn:
        for start, what in sorted(_REFUSED_GROUPS.items(), key=lambda item: -len(item[0])):
            if self._pattern.startswith(start, self._at):
                self._unsupported(what)
        if flags is not None:
            self._unsupported(f"flags {flags[1] + flags[2] + flags[3]!a}, only i, m and s")
        self._wrong("'(?' does not begin a group that is known")

    def _close(self) -> None:
        if len(self._heights) == 1:
            self._wrong("')' closes no group")
        height = self._heights.pop()
        self._parts.append(")")
        self._holds(height)

    # --- repetitions

    def _quantifier(self) -> bool:
        """Read `*`, `+`, `?` or `{n,m}`; False for a brace that is only a character."""
        low, high, end = self._range()
        if end is None:
            return False
        if self._repeatable is None:
            self._wrong(f"{self._pattern[self._at : end]!a} has nothing to repeat")
        most = low if high is None else high
        if most > MAX_REPETITION or (most > 1 and most * self._repeatable > MAX_REPETITION):
            self._unsupported(f"repetition over {MAX_REPETITION:,}, nested ones multiplied")
        if high is not None and high < low:
            self._wrong("a repetition has its limits the wrong way round")
        lazy = self._pattern.startswith("?", end)
        if self._pattern.startswith("+", end):
            self._unsupported("possessive quantifiers")
        self._parts.append(f"{{{low},{'' if high is None else high}}}{'?' if lazy else ''}")
        self._heights[-1] = max(self._heights[-1], max(most, 1) * self._repeatable)
        self._repeatable = None
        self._at = end + lazy
        return True

    def _range(self) -> tuple[int, int | None, int | None]:
        """Least, most (None without limit), and where the quantifier ends; None when it is none."""
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        character = self._pattern[self._at]
        if character in simple:
            return (*simple[character], self._at + 1)
        found = _counted(self._pattern, self._at)
        if found is None or not (found[1] or found[3]):
            return 0, 0, None
        low = int(found[1] or 0)
        high = low if not found[2] else int(found[3]) if found[3] else None
        return low, high, found.end()

    def _holds(self, height: int) -> None:
        self._heights[-1] = max(self._heights[-1], height)
        self._repeatable = height

    def _atom(self, text: str) -> None:
        self._parts.append(text)
        self._holds(1)

    def _literal(self, number: int) -> None:
        self._atom(self._character(number) if self._for_re2 or number != _LINE_BREAK else "(?!)")

    def _set(self, text: str) -> None:
        """A class of characters. RE2 is told that none of them is a line break, the other engine here."""
        self._atom(text if self._for_re2 else f"(?:(?!\\n){text})")

    def _assertion(self, text: str) -> None:
        self._atom(f"(?:{text})")

    # --- characters

    def _escape(self) -> None:
        character = self._pattern[self._at : self._at + 1]
        if character in {"A", "Z", "z"}:
            self._at += 1
            self._assertion("^" if character == "A" else "$")
        elif character in {"b", "B"}:
            self._at += 1
            self._assertion(self._boundary(inside=character == "B"))
        else:
            found = self._set_or_character()
            if isinstance(found, int):
                self._literal(found)
            else:
                self._set(f"[{found}]")

    def _boundary(self, *, inside: bool) -> str:
        if self._for_re2:
            return r"\B" if inside else r"\b"
        # The module's own would count letters of all languages, as RE2 does not.
        after, before = f"(?<=[{_WORD}])", f"(?=[{_WORD}])"
        no_after, no_before = f"(?<![{_WORD}])", f"(?![{_WORD}])"
        return f"{after}{before}|{no_after}{no_before}" if inside else f"{after}{no_before}|{no_after}{before}"

    def _set_or_character(self) -> int | str:
        """What follows a backslash: the character's number, or the inside of a class."""
        character = self._pattern[self._at : self._at + 1]
        if not character:
            self._wrong("it ends with a backslash")
        if (found := _hexadecimal(self._pattern, self._at)) is not None:
            self._at = found.end()
            return int(found[1] or found[2] or found[3] or found[4], 16)
        if (found := _octal(self._pattern, self._at)) is not None:
            self._at = found.end()
            return int(found[0], 8)
        if (found := _property(self._pattern, self._at)) is not None:
            self._at = found.end()
            return self._of_property(found)
        self._at += 1
        if character in _CHARACTERS:
            return _CHARACTERS[character]
        if (kind := _SETS.get(character.lower())) is not None:
            return kind if character.islower() else self._complement(kind)
        if character in "123456789":
            self._unsupported("backreferences")
        if character in _REFUSED_ESCAPES:
            self._unsupported(_REFUSED_ESCAPES[character])
        if character.isalnum() and character.isascii():
            self._wrong(f"there is no escape \\{character}")
        return ord(character)

    def _of_property(self, found: re.Match[str]) -> str:
        name = found[1] or found[3]
        negated = (found[0][0] == "P") != bool(found[2])
        if _CATEGORY.fullmatch(name) is None and (len(name) < 3 or _SCRIPT.fullmatch(name) is None):
            self._wrong(f"there is no class of characters named {name!a}")
        prefix = "" if self._for_re2 or len(name) < 3 else "Script="
        return f"\\{'P' if negated else 'p'}{{{prefix}{name}}}"

    def _complement(self, kind: str) -> str:
        """The inside of a class for all but these; there is no other way to say it within a class."""
        negated = {"0-9": r"\x00-/:-", _WORD: r"\x00-/:-@\[-\^`\{-", _SPACES: r"\x00-\x08\x0b\x0e-\x1f!-"}
        return negated[kind] + self._character(0x10FFFF)

    def _class(self) -> str:
        """A class, from behind its opening bracket."""
        negated = self._pattern.startswith("^", self._at)
        self._at += negated
        inside, first = list[str](), True
        while first or not self._pattern.startswith("]", self._at):
            if self._at >= len(self._pattern):
                self._wrong("a class is not closed: ']' is missing")
            inside.append(self._member())
            first = False
        self._at += 1
        return f"[{'^' if negated else ''}{''.join(inside)}]"

    def _member(self) -> str:
        if (found := _posix(self._pattern, self._at)) is not None:
            if found[1] or found[2] not in _POSIX:
                self._wrong(f"there is no class {found[0]!a}")
            self._at = found.end()
            return _POSIX[found[2]]
        low = self._single()
        rest = self._pattern[self._at : self._at + 2]
        if len(rest) < 2 or rest[0] != "-" or rest[1] == "]":
            return self._character(low) if isinstance(low, int) else low
        self._at += 1
        high = self._single()
        if isinstance(low, str) or isinstance(high, str) or high < low:
            self._wrong("a class has a range that has no order")
        return f"{self._character(low)}-{self._character(high)}"

    def _single(self) -> int | str:
        character = self._pattern[self._at]
        self._at += 1
        if character != "\\":
            return ord(character)
        if self._pattern.startswith("b", self._at):  # in a class, a backspace
            self._at += 1
            return 8
        return self._set_or_character()

    def _character(self, number: int) -> str:
        """The one character, whatever it would mean otherwise."""
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            self._wrong(f"{number:#x} is not a character")
        character = chr(number)
        if character == "_" or (number < 128 and character.isalnum()):
            return character
        return f"\\x{{{number:x}}}" if self._for_re2 else f"\\U{number:08x}"

    # --- refusals

    def _unsupported(self, what: str) -> NoReturn:
        raise PatternError(
            f"{shown(self._pattern)} cannot be used: patterns have no {what}, so that their time and memory stay "
            "bounded. Search for a simpler pattern, then read the lines that were found."
        )

    def _wrong(self, why: str) -> NoReturn:
        raise PatternError(
            f"{shown(self._pattern)} is not a valid regular expression: {why} (position {self._at}). "
            "Escape special characters with a backslash."
        )


def shown(pattern: str) -> str:
    """The pattern for a message, in ASCII, its beginning if it is long."""
    return ascii(pattern if len(pattern) <= 80 else pattern[:77] + "...")


def too_large(pattern: str, reason: str) -> PatternError:
    """The error for a pattern whose tables do not fit."""
    return PatternError(
        f"{shown(pattern)} cannot be used: {reason[:200]}. Use a simpler pattern, with fewer repetitions."
    )
