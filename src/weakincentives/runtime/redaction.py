"""Masking credentials in text that goes to a model."""

from __future__ import annotations

import re

_MASK = "[masked]"
_MAX_CHARS = 64 * 1024
"""What is read of an exception's text: some carry a whole file."""

# Every repetition is bounded and no part begins with one, so that no text, however long and odd, takes long.
_SECRETS = re.compile(
    r"""
    (?P<url>(?<=://)[^\s/:@]{1,256}:[^\s/@]{1,256}(?=@))                          # user:password@host
  | (?P<block>-----BEGIN\ [A-Z ]{0,40}PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]{0,40}PRIVATE\ KEY-----|\Z))
  | (?P<name>(?:password|passwd|passphrase|pwd|secret|api[_-]?key|access[_-]?key|private[_-]?key|token|credential
        |authorization)\w{0,64}["']?\s{0,8}[=:]\s{0,8}(?:["']?(?:bearer|basic|token)\s{1,8})?)
    (?:"[^"]*"|'[^']*'|[^\s,;&)\]}"']+)                                           # password=...
  | (?P<scheme>\b(?:bearer|basic|token)\s{1,8})[A-Za-z0-9._~+/=-]{8,}             # Authorization: Bearer ...
  | \b(?:sk|pk|rk|xox[abprs]|ghp|gho|ghu|ghs|github_pat|glpat|npm|hf|dop_v1|shpat)[-_][A-Za-z0-9_-]{12,}
  | \bAIza[0-9A-Za-z_-]{30,}
  | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
  | \beyJ[A-Za-z0-9_-]{8,256}\.[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]*             # a JSON web token
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def redact(text: str) -> str:
    """The text with passwords, tokens and keys masked.

    It knows the usual shapes (`password=...`, `Bearer ...`, user and password in a URL, well-known key prefixes,
    private keys, web tokens). It is a net under mistakes, not a proof that no secret gets through.

    >>> redact("cannot connect to postgres://app:hunter2@db/app")
    'cannot connect to postgres://[masked]@db/app'
    """
    return _SECRETS.sub(_replacement, text)


def text_of(value: object) -> str:
    """What an exception says, or another value of somebody else's making; nothing when it cannot say it."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - its class is somebody else's code
        return ""


def described(error: BaseException) -> str:
    """An exception for operators: its class and what it says, with credentials masked."""
    text = text_of(error)[:_MAX_CHARS]
    return redact(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _replacement(match: re.Match[str]) -> str:
    return f"{match['scheme'] or match['name'] or ''}{_MASK}"


__all__ = ["described", "redact", "text_of"]
