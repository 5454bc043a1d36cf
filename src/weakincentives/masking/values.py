"""Whether what stands behind a name is a credential, or a type, a reference, a number, a word."""

from __future__ import annotations

import re

_NEVER = frozenset(
    {
        "none", "null", "nil", "true", "false", "str", "string", "int", "bytes", "secretstr", "optional", "any",
        "undefined", "required", "redacted", "masked", "hidden", "removed", "empty", "missing", "yes", "no",
        "on", "off", "text", "varchar", "char", "changeme", "xxx", "value", "object", "password", "passwd",
        "pass", "pwd", "token", "secret", "key", "apikey", "api_key", "your_password", "your-password",
        "expired", "invalid", "incorrect", "wrong",
    }
)  # fmt: skip
# Every pattern reads a value once: runs are possessive, and no two parts of a pattern can share a character.
_REFERENCE = re.compile(
    r"\$[A-Za-z_{(]|%[sr(]|%\w++%$|[*.xX•?]++$|<|\{|(?i:\[masked\]|\[redacted\])|!|@\w++@$|#\{|\(|="
    r"|(?:~|\.{1,2})?/[\w.-]*+(?:/[\w.@-]*+)*+$|[A-Za-z]:\\|(?:https?|file|vault|secret|arn|op|ref)[:+]"  # paths
    r"|[A-Z]++(?:_[A-Z0-9]++)++$"  # the name of a variable
)
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)++$")
_LETTERS = re.compile(r"[A-Za-z_-]++:?$", re.IGNORECASE)
_NAME = re.compile(r"(?:pass(?:word|wd|phrase)?+|pwd|token|secret|key|credentials?+|auth)(?:[_-]|:?$)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[\d_,.]++%?[a-z]?$")
_SLUG = re.compile(r"[a-z]++(?:[-_.:/](?:[a-z]++|\d{1,4}+(?![a-z0-9]))|\d{1,4}+(?![a-z0-9]))*+[-_.:/]?+$")
_DIGIT = re.compile(r"[0-9]")
_LETTER = re.compile(r"[^\W\d_]")
_TOKEN_CHARS = re.compile(r"[\w.~+/=:%!@#$^*?&-]++$", re.ASCII)
_QUOTED_CHARS = re.compile(r"[!-~]++$")
_TURN = re.compile(r"[a-z](?=[A-Z])|[A-Z](?=[a-z])")
_MIXED = 6
"""How often capitals and small letters must meet in a token without digits, as they do in random text."""


def _is_reference(value: str) -> bool:
    lower = value.lower().strip(".,:;")
    return (
        lower in _NEVER or bool(_REFERENCE.match(value)) or (bool(_LETTERS.match(value)) and bool(_NAME.search(value)))
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
    if len(value) < (16 if sign == "prose" else 8 if quoted else 12):
        return False
    if _DIGIT.search(value):
        if not _LETTER.search(value):
            return False
    elif value.islower() or len(value) < 16 or len(_TURN.findall(value)) < _MIXED:
        return False
    if not (_QUOTED_CHARS if quoted and len(value) >= 32 else _TOKEN_CHARS).match(value):
        return False
    return not (_is_reference(value) or _NUMBER.match(value) or _SLUG.match(value) or _ATTRIBUTE.match(value))


__all__ = ["is_password", "is_token"]
