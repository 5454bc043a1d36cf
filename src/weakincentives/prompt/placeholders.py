"""Template texts with `${name}` placeholders: read once, checked against a dataclass, filled in one pass."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property, lru_cache
from textwrap import dedent
from typing import Any, final

from ..errors import PromptRenderError, PromptValidationError
from ..lazy_modules import difflib
from ..results import without_bytes

# The second alternative is whatever stands in braces, so that a malformed name is refused rather than shown.
_DOLLAR = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>[^{}\n]*)\}|(?P<open>\{))")
_BARE = re.compile(r"\$(?:\$|\{|(?P<name>[^\W\d]\w*))")
_BACKTICKS = re.compile("`+")
_MARKDOWN_LINE_END = re.compile(r"\r\n?|\n")
_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})")
_TAG = re.compile(" {0,3}</?[a-z]", re.IGNORECASE)
_HTML_BLOCKS = tuple(
    (re.compile(f" {{0,3}}{begin}", re.IGNORECASE), re.compile(end, re.IGNORECASE))
    for begin, end in (
        (r"<(?:pre|script|style|textarea)(?:[ \t>]|$)", r"</(?:pre|script|style|textarea)>"),
        ("<!--", "-->"),
        (r"<\?", r"\?>"),
        (r"<!\[CDATA\[", r"\]\]>"),
        ("<![a-z]", ">"),
    )
)
"""How the HTML begins and ends in which markdown sees no fences; any other ends at an empty line."""
_LINE_ENDS = re.compile(r"[\x7f-\x9f\u2028\u2029]")
"""What ends a line besides the control characters that JSON escapes."""
_MAY_HOLD_BYTES = frozenset({bytes, bytearray, memoryview, list, tuple, dict, set, frozenset})
"""Their own text would show bytes as `b'...'`, which says nothing to a model."""
_BETWEEN = {__name__.partition(".")[0], "typing"}
"""Whose frames stand between a template and the line that wrote it; `Section[Params](...)` goes through `typing`."""


@final
class TemplateText:
    r"""A template text, dedented and stripped, ready to be filled any number of times.

    Only `${name}` is a placeholder; `$$` stands for one dollar sign and every other dollar sign for itself, so that
    `$5` and `$HOME` need no care. A `$name` that looks like a placeholder (a field of `params_type`, or a name in lower
    case) stays too, with a `UserWarning`: write `${name}`, or `$$name` for the text itself. Filling is a single pass: a
    value that contains `${...}` stays as it is.

    A field with `metadata={"untrusted": True}` is filled as quoted data, so that nothing in it reads as a heading or an
    instruction of ours: see `as_block` and `as_string`.

    Raises `PromptValidationError` for a name that is not an identifier, a placeholder that is not a field or property
    of `params_type`, and any placeholder at all where there is no `params_type`.
    """

    __slots__ = ("_literals", "_params_type", "_path", "_quotes", "_what", "names", "source")

    def __init__(self, text: str, params_type: type[Any] | None, *, path: Sequence[str], what: str) -> None:
        if not isinstance(text, str):
            raise PromptValidationError(
                f"The {what} of section {dotted(path)!r} must be text, got {type(text).__name__}.", section_path=path
            )
        self.source: str = dedent(text).strip()
        self._path = tuple(path)
        self._what = what
        self._params_type = params_type
        literals, names = [""], list[str]()
        end = 0
        for found in _DOLLAR.finditer(self.source):
            literals[-1] += self.source[end : found.start()]
            end = found.end()
            if found["escaped"]:
                literals[-1] += "$"
            else:
                names.append(self._checked(found["name"], found[0]))
                literals.append("")
        literals[-1] += self.source[end:]
        self._literals = tuple(literals)
        self.names: tuple[str, ...] = tuple(names)
        self._quotes = self._quotes_of_untrusted()
        self._warn_of_bare_names()

    def _quotes_of_untrusted(self) -> tuple[Callable[[str], str], ...]:
        """What makes text of each placeholder's value: a fenced block on a line of its own, outside of code."""
        untrusted = () if self._params_type is None else untrusted_names(self._params_type)
        quotes: list[Callable[[str], str]] = []
        for at, name in enumerate(self.names):
            before, behind = self._literals[at], self._literals[at + 1]
            has_line = (before.endswith("\n") or (not before and not at)) and (
                behind.startswith("\n") or (not behind and at + 1 == len(self.names))
            )
            if name not in untrusted:
                quotes.append(str)
            elif _is_verbatim("0".join(self._literals[: at + 1])):
                quotes.append(_as_verbatim_string)
            elif has_line:
                has_space = not before or before.endswith("\n\n")
                quotes.append(as_block if has_space else _as_block_of_its_own)
            else:
                quotes.append(as_string)
        return tuple(quotes)

    def _warn_of_bare_names(self) -> None:
        known = () if self._params_type is None else placeholder_names(self._params_type)
        for found in _BARE.finditer(self.source):
            name = found["name"]
            if name is not None and (name in known or name.islower()):
                warnings.warn(
                    f"In the {self._what} of section {dotted(self._path)!r}, ${name} is text and is not filled. "
                    f"Write ${{{name}}} for the placeholder, or $${name} for the text itself.",
                    stacklevel=_callers_level(),
                )

    def fill(self, params: object) -> str:
        """The text with the values of `params`: `str()` of each, a line for bytes, and nothing at all for None.

        Raises `PromptRenderError` when a value cannot be had or has no text.
        """
        if not self.names:
            return self._literals[0]
        pieces = [self._literals[0]]
        for name, literal, quote in zip(self.names, self._literals[1:], self._quotes, strict=True):
            try:
                value = getattr(params, name)
                if type(value) in _MAY_HOLD_BYTES:
                    value = without_bytes(value)
                pieces.append("" if value is None else quote(str(value)))
            except Exception as error:  # a property or `__str__` of the user's
                raise PromptRenderError(
                    f"The placeholder ${{{name}}} in the {self._what} of section {dotted(self._path)!r} "
                    f"could not be filled: {type(error).__name__}: {error}",
                    section_path=self._path,
                    placeholder=name,
                    dataclass_type=type(params),
                ) from error
            pieces.append(literal)
        return "".join(pieces)

    def _checked(self, name: str | None, text: str) -> str:
        if name is None or not name.isidentifier():
            raise self._refusal(
                f"{text!r} is not a placeholder; write ${{name}} with the name of a field, or $${{ for the text itself",
                name,
            )
        if self._params_type is None:
            raise self._refusal(
                f"the placeholder ${{{name}}} has no params to come from; give the section a params type "
                f"(MarkdownSection[Params] or params=Params), or write $${{{name}}} for the text itself",
                name,
            )
        known = placeholder_names(self._params_type)
        if name in known:
            return name
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean ${{{near[0]}}}?" if near else f"it has: {', '.join(known) or 'no fields'}"
        raise self._refusal(f"the placeholder ${{{name}}} is not a field of {self._params_type.__name__}; {hint}", name)

    def _refusal(self, problem: str, name: str | None) -> PromptValidationError:
        return PromptValidationError(
            f"In the {self._what} of section {dotted(self._path)!r}, {problem}",
            section_path=self._path,
            placeholder=name,
            dataclass_type=self._params_type,
        )


@lru_cache(maxsize=1024)
def placeholder_names(params_type: type[Any]) -> tuple[str, ...]:
    """What placeholders may name: the dataclass's fields, then its properties."""
    names = [item.name for item in fields(params_type)] if is_dataclass(params_type) else []
    for base in params_type.__mro__:
        names += [name for name, value in vars(base).items() if isinstance(value, property | cached_property)]
    return tuple(dict.fromkeys(names))


@lru_cache(maxsize=1024)
def untrusted_names(params_type: type[Any]) -> frozenset[str]:
    """The fields whose values come from outside: those with `metadata={"untrusted": True}`."""
    found = fields(params_type) if is_dataclass(params_type) else ()
    return frozenset(item.name for item in found if item.metadata.get("untrusted"))


def as_block(text: str) -> str:
    r"""Text from outside as a fenced block that nothing in it can close.

    >>> print(as_block("## 2. Refunds\nAlways."))
    ```text
    ## 2. Refunds
    Always.
    ```
    """
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _as_block_of_its_own(text: str) -> str:
    """`as_block` after an empty line, which ends HTML such as `<ticket>`: there a fence would be plain text."""
    return f"\n{as_block(text)}"


def _is_verbatim(before: str) -> bool:
    """Whether a fence after this much of a template would not begin a block: in code, or in an HTML comment and such.

    In doubt it is: a JSON string is safe everywhere.
    """
    fence, indent, end, in_tags = "", 0, None, False
    for line in _MARKDOWN_LINE_END.split(before):
        text = line.strip(" \t")
        is_open = bool(fence) or end is not None
        if not text and in_tags:
            if is_open:
                return True  # what seemed to begin among the tags was part of them, or not
            in_tags = False
        in_tags |= not is_open and _TAG.match(line) is not None
        found = _FENCE.match(line)
        if end is not None:
            end = None if end.search(line) else end
        elif fence:
            if text and len(line) - len(line.lstrip(" ")) < indent:
                return True  # a list item that the fence was in has ended, and the fence with it
            if found and found[1] == " " * indent and found[2].startswith(fence) and not text.strip(fence[0]):
                fence = ""
        elif found:
            indent, fence = len(found[1]), found[2]
        else:
            ends = (closing for begin, closing in _HTML_BLOCKS if begin.match(line))
            end = next((closing for closing in ends if not closing.search(line)), None)
    return bool(fence) or end is not None


def as_string(text: str) -> str:
    r"""Text from outside as a JSON string: it stays in its line.

    >>> print(as_string("Ada\n## 2. Refunds"))
    "Ada\n## 2. Refunds"
    """
    quoted = json.dumps(text, ensure_ascii=False)
    return _LINE_ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _as_verbatim_string(text: str) -> str:
    """`as_string` where only a sign such as `-->` ends what the template began."""
    return as_string(text).replace(">", "\\u003e")


def dotted(path: Sequence[str]) -> str:
    """A section's path as text: `parent.child`."""
    return ".".join(path)


def _callers_level() -> int:
    """The `stacklevel`, for the function that asks, of the line outside of this package that made the section."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    return level
