"""Credentials that are recognised by the name before them: `password=...`, `"apiKey": "..."`, `the token is ...`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from .prefixes import Span
from .values import is_password, is_token

Strength = Literal["password", "token", "header"]

_KEYWORDS = ("pass", "pwd", "secret", "token", "key", "credential", "sig", "auth", "kennwort", "verifier")
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_MAX_NAME = 60

_REST = re.compile(r"[A-Za-z0-9_-]{0,60}+(?:\.[A-Za-z][A-Za-z0-9_-]{0,60}+){0,4}+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_PASSWORD_ENDS = ("password", "passwd", "passphrase", "passwort", "passcode", "kennwort", "pwd")
_PASS_WORDS = frozenset(
    {
        "pass", "dbpass", "storepass", "keypass", "userpass", "rootpass", "sshpass", "ftppass", "mailpass",
        "smtppass", "pgpass", "adminpass",
    }
)  # fmt: skip
_TOKEN_WORDS = frozenset(
    {
        "token", "secret", "secrets", "credential", "credentials", "creds", "auth", "sig", "signature",
        "authtoken", "accesstoken", "clientsecret", "oauth", "apikey", "accesskey", "secretkey", "privatekey",
        "accountkey", "sharedkey", "signingkey", "csrftoken", "verifier", "apisecret",
    }
)  # fmt: skip
_KEY_OWNERS = frozenset(
    {
        "api", "access", "account", "private", "signing", "secret", "encryption", "encrypt", "decryption",
        "shared", "master", "storage", "subscription", "service", "auth", "hmac", "aes", "client", "consumer",
        "app", "application", "webhook", "session", "jwt", "admin", "deploy", "server", "license", "sas",
        "host", "function", "ssh", "gpg", "ingest",
    }
)  # fmt: skip
_TAILS = frozenset(
    {
        "id", "value", "bytes", "base64", "b64", "hex", "raw", "plain", "prod", "live", "test", "dev", "primary",
        "secondary", "current", "new", "old",
    }
)  # fmt: skip

_SEPARATOR = re.compile(
    r"(?P<closed>\\{0,8}[\"'`]?\]?)(?:\s{1,4}+(?:for|of)\s{1,4}+[\w.@-]{1,40}+)?"
    r"\s{0,8}+(?P<sign>=>|:=|={1,3}|:(?!:|//)|%3[DdAa])\s{0,8}+(?:\[\s{0,4}+)?"
)
_XML_VALUE = re.compile(r"[\"']\s{1,4}+value\s?=\s?(?=[\"'])")
_PROSE = re.compile(r"\s{1,4}+(?:(?:is|was|are)\b\s{0,2}+(?:now\s|set to\s)?:?\s{0,4}+)?", re.IGNORECASE)
_ARGUMENT = re.compile(r"\\{0,4}[\"']\s{0,4}+,\s{0,4}+(?=\\{0,4}[\"'])")
_SCHEME = re.compile(r"(?:bearer|basic|token|apikey|negotiate|key)\s{1,8}+", re.IGNORECASE)
_TO_LINE_END = re.compile(r"(?:digest|aws4-hmac-sha256|oauth|hawk|signature|ntlm|hoba|mutual)\s", re.IGNORECASE)
_LINE = re.compile(r"[^\r\n]{0,8192}+")

_OPEN = re.compile(r"(?:[bBrRuUfF]{1,2}(?=\\{0,8}[\"']))?(\\{0,8}[\"'`])")
_BARE = re.compile(r"(?:[^\s\"'`,;&<>(){}\[\]|\\]|\\(?![rnt\"'])){1,128}+")
_MORE = re.compile(r"[^\s\"'`,;&<>(){}\[\]|\\]*+")
_MAX_QUOTED = 8192
_JUDGED = 128
"""How much of a value is looked at: what is accepted is then read to its end, what is not costs no more than this."""


class _Value(NamedTuple):
    begin: int
    end: int
    quoted: bool


def spans(text: str, lower: str) -> Iterator[Span]:
    """Where such credentials stand. `lower` is the same text in small letters, position by position."""
    done: set[int] = set()
    for keyword in _KEYWORDS:
        at = lower.find(keyword)
        while at >= 0:
            end = at + len(keyword)
            head = text[max(0, at - _MAX_NAME) : at]
            begin = at - len(head) + len(head.rstrip(_NAME_CHARS))
            rest = _REST.match(text, end)
            stop = rest.end() if rest else end
            if stop not in done:
                done.add(stop)
                strength = _strength(text, begin, stop)
                found = _value(text, lower, begin, stop, strength) if strength else None
                if found:
                    yield found
                    stop = max(stop, found[1])
            at = lower.find(keyword, stop)


def _strength(text: str, begin: int, end: int) -> Strength | None:
    """What a name promises, by its last word; the words after it in `_TAILS` and numbers do not count."""
    words = [word.lower() for word in _WORD.findall(text[begin:end])]
    while len(words) > 1 and (words[-1] in _TAILS or words[-1].isdigit()):
        words.pop()
    if not words:
        return None
    last = words[-1]
    if last.endswith(_PASSWORD_ENDS) or last in _PASS_WORDS:
        return "password"
    if last == "authorization":
        return "header"
    if last in _TOKEN_WORDS or last.endswith(("secret", "apikey", "authtoken")):
        return "token"
    if last == "key" and _is_owned_key(text, begin, words):
        return "token"
    return None


def _is_owned_key(text: str, begin: int, words: list[str]) -> bool:
    if len(words) > 1:
        return words[-2] in _KEY_OWNERS
    before = text[max(0, begin - 12) : begin]
    return before.endswith(("?", "&")) or before.rstrip(" ").rpartition(" ")[2].lower() in _KEY_OWNERS


def _value(text: str, lower: str, begin: int, end: int, strength: Strength) -> Span | None:
    """The value behind a name that ends at `end`, if it is one that must be masked."""
    separator = _SEPARATOR.match(text, end)
    if separator:
        if strength == "header":
            return _header(text, separator.end())
        found = _read(text, separator.end())
        if found is None:
            return None
        sign = separator["sign"]
        if found.quoted and _closes(text, begin, separator["closed"], found):
            return None
        return _judged(text, found, strength, sign="=" if "=" in sign or sign[-1] in "dD" else ":")
    if text.startswith(">", end):
        return _element(text, begin, end)
    named = _XML_VALUE.match(text, end)
    if named:
        found = _read(text, named.end())
        return _judged(text, found, strength, sign="=") if found else None
    return _loose(text, lower, begin, end, strength)


def _loose(text: str, lower: str, begin: int, end: int, strength: Strength) -> Span | None:
    """Values without a separator: flags, lists of arguments, `.netrc`, SQL and prose."""
    is_flag = text.startswith("-", begin)
    argument = _ARGUMENT.match(text, end)
    if argument:
        found = _read(text, argument.end()) if is_flag or strength == "password" else None
        sign = "flag" if is_flag else "prose"
        return _judged(text, found, strength, sign=sign) if found else None
    prose = _PROSE.match(text, end)
    found = _read(text, prose.end()) if prose else None
    if found is None:
        return None
    if found.quoted:
        return _judged(text, found, strength, sign="prose") if strength == "password" else None
    if text.find("\n", end, found.begin) >= 0:
        return None
    if is_flag or (strength == "password" and _in_netrc(lower, begin)):
        return _judged(text, found, strength, sign="flag")
    return _judged(text, found, strength, sign="prose")


def _in_netrc(lower: str, begin: int) -> bool:
    before = lower[max(0, begin - 160) : begin]
    return "login " in before and ("machine " in before or "default " in before)


def _header(text: str, position: int) -> Span | None:
    """The credentials of an `Authorization` header; the scheme stays, unless the rest of the line is credentials."""
    opened = _OPEN.match(text, position)
    begin = opened.end() if opened else position
    if _TO_LINE_END.match(text, begin):
        line = _LINE.match(text, begin)
        return (begin, line.end()) if line else None
    scheme = _SCHEME.match(text, begin)
    begin = scheme.end() if scheme else begin
    found = _BARE.match(text, begin)
    if not found or not is_password(found[0], sign="flag") or (scheme is None and not is_token(found[0], quoted=False)):
        return None
    return begin, _more(text, found.end())


def _element(text: str, begin: int, end: int) -> Span | None:
    if not (begin and text[begin - 1] == "<"):
        return None
    close = text.find("<", end + 1, end + 1 + 1024)
    inner = text[end + 1 : close] if close > end + 1 else ""
    if not is_password(inner[1:-1] if inner.startswith("{") else inner, sign="="):
        return None
    return (end + 1, close) if text.startswith("</", close) else None


def _closes(text: str, begin: int, closed: str, found: _Value) -> bool:
    """Whether the quote before the value is the end of a text around the name, as in `getpass("Password: ")`."""
    quote = text[found.begin - 1]
    if quote in closed:
        return False
    line = text[max(0, begin - 200) : begin].rpartition("\n")[2]
    return line.count(quote) % 2 == 1


def _read(text: str, position: int) -> _Value | None:
    opened = _OPEN.match(text, position)
    if opened:
        quote, begin = opened[1], opened.end()
        scheme = _SCHEME.match(text, begin)
        begin = scheme.end() if scheme else begin
        end = _closing(text, quote, begin)
        return _Value(begin, end, True) if end > begin else None
    scheme = _SCHEME.match(text, position)
    begin = scheme.end() if scheme else position
    found = _BARE.match(text, begin)
    return _Value(begin, found.end(), False) if found else None


def _closing(text: str, quote: str, begin: int) -> int:
    """Where a quoted value ends; a quote behind a backslash that the opening one does not have is part of it."""
    limit = min(len(text), begin + _MAX_QUOTED)
    line = text.find("\n", begin, limit)
    limit = line if line >= 0 else limit
    at = text.find(quote, begin, limit)
    for _ in range(64):
        if at < 0 or text[at - 1] != "\\":
            break
        at = text.find(quote, at + 1, limit)
    if at < 0:
        bare = _BARE.match(text, begin)  # the end was cut off
        return bare.end() if bare and bare.end() == len(text) else -1
    return at


def _more(text: str, end: int) -> int:
    found = _MORE.match(text, end)
    return found.end() if found else end


def _judged(text: str, found: _Value, strength: Strength, *, sign: str) -> Span | None:
    begin, end, quoted = found
    value = text[begin : min(end, begin + _JUDGED)]
    if not quoted and text[end : end + 1] in ("(", "[") and not text.startswith("[masked]", end):
        return None  # a call or an item
    ok = (
        is_password(value, sign=sign, quoted=quoted)
        if strength == "password"
        else is_token(value, quoted=quoted, sign=sign)
    )
    if not ok:
        return None
    if not quoted:
        if sign in (":", "prose"):
            end = begin + len(value.rstrip(".")) if end - begin <= _JUDGED else end
        end = _more(text, end) if end - begin >= _JUDGED else end
    return begin, end


__all__ = ["spans"]
