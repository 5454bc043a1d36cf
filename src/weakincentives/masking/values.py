"""Whether what stands behind a name is a credential, or a type, a reference, a number, a word."""

from __future__ import annotations

import re
from itertools import pairwise

_NEVER = frozenset(
    {
        "none", "null", "nil", "true", "false", "str", "string", "int", "bytes", "secretstr", "optional", "any",
        "undefined", "required", "redacted", "masked", "hidden", "removed", "empty", "missing", "yes", "no",
        "on", "off", "text", "varchar", "char", "changeme", "xxx", "value", "object", "password", "passwd",
        "pass", "pwd", "token", "secret", "key", "apikey", "api_key", "your_password", "your-password",
        "expired", "invalid", "incorrect", "wrong",
    }
)  # fmt: skip
_REFERENCE = re.compile(
    r"\$[A-Za-z_{(]|%[sr(]|%\w+%$|[*.xX•?]+$|<|\{|\[masked\]|\[redacted\]|!|@\w+@$|#\{|\(|=", re.IGNORECASE
)
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w.-]*(?:/[\w.@-]*)*$|[A-Za-z]:\\|(?:https?|file|vault|secret|arn|op|ref)[:+]")
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$")
_NAME_ITSELF = re.compile(
    r"[A-Za-z_-]*(?:pass(?:word|wd|phrase)?|pwd|token|secret|key|credentials?|auth)(?:[_-][A-Za-z_-]*)?:?$",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+]?[\d_,.]+%?[a-z]?$")
_UPPER_SNAKE = re.compile(r"[A-Z]+(?:_[A-Z0-9]+)+$")
_SLUG = re.compile(r"[a-z]+(?:[-_.:/]?\d{1,4}(?![a-z0-9])|[-_.:/][a-z]+)*$")
_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[^\W\d_]")
_TOKEN_CHARS = re.compile(r"[\w.~+/=:%!@#$^*?&-]+$", re.ASCII)


def _is_reference(value: str) -> bool:
    lower = value.lower().strip(".,:;")
    return (
        lower in _NEVER
        or bool(_REFERENCE.match(value))
        or bool(_PATH.match(value))
        or bool(_UPPER_SNAKE.match(value))
        or bool(_NAME_ITSELF.match(value))
    )


def is_password(value: str, *, sign: str, quoted: bool = False) -> bool:
    """Whether it is one, behind a name that says password.

    `sign` is what stands between: `=`, `:`, `flag` (a command line), `prose`.
    """
    if quoted:
        if len(value) < (4 if sign == "prose" else 2) or value[0] in ",;)]}+ " or _is_reference(value):
            return False
        return sign != "prose" or bool(_DIGIT.search(value))
    if len(value) < 3 or (sign in (":", "prose") and not _DIGIT.search(value)) or _is_reference(value):
        return False
    if _NUMBER.match(value):
        return sign in ("=", "flag") and value.isdigit() and len(value) >= 6
    if _ATTRIBUTE.match(value) and not _DIGIT.search(value):
        return False
    if sign in ("=", "flag"):
        return True
    return bool(_LETTER.search(value)) and (sign == ":" or len(value) >= 6)


def is_token(value: str, *, quoted: bool, sign: str = "=") -> bool:
    """Whether it is one, behind a name that says token, secret, key or the like: long, and like nothing else."""
    least = 16 if sign == "prose" else 8 if quoted else 12
    if len(value) < least or _is_reference(value) or not _TOKEN_CHARS.match(value):
        return False
    if _NUMBER.match(value) or _SLUG.match(value) or _ATTRIBUTE.match(value):
        return False
    letters = bool(_LETTER.search(value))
    if _DIGIT.search(value):
        return letters
    turns = sum(a.islower() != b.islower() for a, b in pairwise(value) if a.isalpha() and b.isalpha())
    return len(value) >= 16 and turns >= 6


__all__ = ["is_password", "is_token"]
