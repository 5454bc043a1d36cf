"""Credentials that are recognised by the name before them: `password=...`, `"apiKey": "..."`, `the token is ...`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .judgement import (
    KEY_OWNERS,
    Strength,
    is_label,
    is_passphrase,
    is_password,
    is_reference,
    is_token,
    strength_of,
)
from .prefixes import Span

_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_MAX_NAME = 60
_MARK = "[masked]"
_OPENING = ('"', "'")
_MAX_KEPT = 1024
"""How many verdicts about names one pass keeps: most texts repeat the same few."""

_DIGIT = re.compile(r"[0-9]")
# Runs of characters are possessive and bounded, as everywhere here.
_SCHEME = r"(?i:bearer|basic|token|apikey|negotiate|key)[ \t]{1,8}+"
_BARE_CHARS = r"[^\s\"'`,;&<>(){}\[\]|\\]"
_BACKSLASH = r"\\(?![rnt\"'])"
_BARE_RUN = rf"(?:{_BACKSLASH})?+{_BARE_CHARS}{{1,64}}+(?:{_BACKSLASH}{_BARE_CHARS}{{0,32}}+){{0,4}}+"
_QUOTE = r"(?:[bBrRuUfFnN]{1,2}(?=\\{0,8}[\"']))?+(?P<quote>\\{0,8}(?:\"{3}|'{3}|[\"'`]))"

MARKS: tuple[str, ...] = (
    *("pass", "pw", "psk", "secret", "token", "key", "credential", "sig", "auth", "kennwort", "verifier"),
)
"""A text without any of these, in lower case, holds no such credential."""
_NAME = rf"(?:{'|'.join(MARKS)})[a-z0-9_-]*+(?:\.[a-z][a-z0-9_-]*+)*+"
_FOLLOWING = r"(?=[=:% \t\r\n\f\v\xa0\"'`\\\]>])(?!(?s:.{1,2}?)\[masked\])"
_OF = r"(?P<of>\s{1,4}+(?:(?:is|was) )?(?:(?:generated|created|set) )?(?:for|of)\s{1,4}+[\w.@-]{1,40}+)?\s{0,8}+"
_ITEM = r"(?:\[\s{0,40}+)?(?:string\(\d{1,5}\) (?=\"))?+(?P<behind>)"  # PHP's var_dump
_SIGN = rf"(?P<sign>=>|:=|={{1,3}}|:(?!:|//)|%3[da])[^\S\n]{{0,8}}+(?P<below>\n\s{{0,40}}+)?+{_ITEM}"
_SEPARATORS = (
    rf"(?P<closed>\\{{0,8}}[\"'`]?\]?){_OF}{_SIGN}",
    r"(?P<entry>[\"']?,?\s{1,40}+[\"']?value[\"']?\s?:\s{0,4}+)",
    r"(?P<space>\s{1,4}+)(?:(?:is|was|are)\b\s{0,2}+(?:now\s|(?:set|changed|reset|updated) to\s)?:?\s{0,4}+)?+",
    r"(?P<attribute>[\"']\s{1,4}+value\s?=\s?(?=[\"']))",
    r"\\{0,4}[\"']\s{0,4}+,\s{0,16}+(?=\\{0,4}[\"'])",
    r"(?P<element>>)",
)
_BEGUN = rf"(?:{_QUOTE}(?:{_SCHEME})?+|(?:{_SCHEME})?+(?P<bare>{_BARE_RUN})(?!\(|\[(?!masked\])))?+(?P<begun>)"
# What is followed by a bracket is a call or an item, not a value.
# In the text in lower case: a name from its keyword on, what separates it from a value, and how that begins. Most
# names are not followed by a credential, and each match has a fixed cost, so that all of it is one pattern. A name
# without a value matches, too, and what follows a name is only looked at: the search goes on behind the name, and a run
# of characters without an upper bound is read once.
_NAMED = re.compile(rf"{_NAME}(?:(?={_FOLLOWING}(?:{'|'.join(_SEPARATORS)}){_BEGUN})|)")
_BLOCK = re.compile(r"[|>][-+0-9]{0,2}+[ \t]{0,4}+\r?\n([ \t]{1,40}+)(?P<value>[^\s][^\r\n]{0,1024}+)")
_PHRASE = re.compile(r"(?: [^\s=:;,\"'|&<>#\[\]()]{1,40}+){1,7}+(?=[ \t]{0,4}+(?:[\r\n]|$))")
_SWITCH = re.compile(
    r"--?(?:ask|no|show|prompt|with|use|skip|hide|require|generate|random|reset|change|print)[-_]|-[a-z][A-Z_]+$"
)
_ASKING = ("mysql", "mariadb", "psql", "pg_", "createdb", "dropdb", "createuser", "vacuumdb")
"""Commands that ask for a password when `--password` stands alone."""
_DEFAULT = re.compile(r"[-=]([^{}\s]{3,128}+)\}")
_LINE_BEGINS = frozenset({"", "export", "set", "setx", "-", "+", "ENV", "ARG", "+ export", "$ export", "declare -x"})
_LINE_END = re.compile(r"[ \t,;)\]}]{0,8}+(?:[\r\n]|$)")
_NEXT_NAME = re.compile(r"[A-Za-z_][\w.-]*+(?::|=(?![=\s]|$))")
_RUN = re.compile(r"[^\s\"'`\\]{1,64}+")
_RUN_ON = "&<>()[]{}|,;"
"""What ends a value in most texts, and is part of it in a few."""
_CODE = re.compile(r"[,;&|(\[{][\w.-]{1,40}+[=:]|^[\w.]++[(\[<{].*[)\]>}]$")  # another pair, or a call
_BREAKS = r"[&<>()\[\]{}|]{1,4}+(?!amp;|quot;|lt;|gt;|apos;|[\w.-]{1,40}+=)"
_EXTRA = re.compile(rf"(?:{_BREAKS}(?=[^\W_]){_BARE_CHARS}{{1,64}}+){{1,8}}+")
_BRACKETS = ("()", "[]", "{}", "<>")
_HEADER = re.compile(rf"(?:{_QUOTE})?+(?P<scheme>{_SCHEME})?+(?P<bare>{_BARE_RUN})")
_TO_LINE_END = re.compile(
    rf"(?:{_QUOTE})?+(?P<line>(?:digest|aws4-hmac-sha256|oauth|hawk|signature|ntlm|hoba|mutual)\s[^\r\n]{{0,8192}}+)",
    re.IGNORECASE,
)
_BARE = re.compile(_BARE_RUN)
_MORE = re.compile(rf"{_BARE_CHARS}*+")
_MAX_QUOTED = 8192
_JUDGED = 64
"""How much of a value is looked at: what is accepted is then read to its end, what is not costs no more than this."""


_MAX_LINES = 200


def spans(text: str, lower: str, _absent: set[str]) -> Iterator[Span]:
    """Where such credentials stand. `lower` is the same text in lower case, position by position."""
    reader = _Reader(text, lower)
    position = masked = 0
    while position >= 0:
        names, position = _NAMED.finditer(lower, position), -1
        for named in names:
            begin, end = named.span()
            if begin < masked:
                if end <= masked:
                    continue  # all of it is in the value before
                position = masked
                break
            found = reader.behind(named, begin, end) if named.lastindex else None
            if found:
                yield found
                masked = found[1]


class _Reader:
    """Reads the values behind the names of one text, in their order; lives for one pass over it."""

    def __init__(self, text: str, lower: str) -> None:
        self._text = text
        self._lower = lower
        self._strengths: dict[str, Strength] = {}
        self._dismissed: set[str] = set()
        self._quotes: dict[str, tuple[int, int]] = {}
        self._masked: Span = (0, 0)
        self._has_marks = _MARK in text
        self._may_be_netrc = "login " in lower

    def behind(self, named: re.Match[str], begin: int, end: int) -> Span | None:
        """The credential behind a name that something follows."""
        text = self._text
        if begin and text[begin - 1] in _NAME_CHARS:
            head = text[max(0, begin - _MAX_NAME) : begin]
            begin += len(head.rstrip(_NAME_CHARS)) - len(head)
        if end - begin > 2 * _MAX_NAME:
            begin = end - 2 * _MAX_NAME
        # Without quotes, a name and what follows it are judged by themselves, and most texts repeat the same few.
        whole = text[begin : named.end("begun") + 1]
        if whole in self._dismissed:
            return None
        name = text[begin:end]
        strength = self._strengths.get(name) or self._strength(name)
        if strength == "key" and not self._is_owned_key(begin):
            return None
        if strength == "none":
            found = None
        elif named["sign"]:
            found = self._assigned(begin, strength, named)
        else:
            found = self._value(begin, strength, named)
        if found:
            self._masked = found
        elif named["bare"] and whole[-1] not in _RUN_ON and not (self._may_be_netrc or name.isupper()):
            if len(self._dismissed) >= _MAX_KEPT:
                self._dismissed.clear()
            self._dismissed.add(whole)
        return found

    def _strength(self, name: str) -> Strength:
        if len(self._strengths) >= _MAX_KEPT:
            self._strengths.clear()
        strength = self._strengths[name] = strength_of(name)
        return strength

    def _is_owned_key(self, begin: int) -> bool:
        """Whether `key` alone is a credential's name by what stands before it: `&key=`, `the API key is`."""
        before = self._text[max(0, begin - 12) : begin]
        return before.endswith(("?", "&")) or before.rstrip(" ").rpartition(" ")[2].lower() in KEY_OWNERS

    def _value(self, begin: int, strength: Strength, named: re.Match[str]) -> Span | None:
        """The value behind a name without a sign."""
        text = self._text
        if named["space"]:
            return self._prose(begin, strength, named)
        if named["element"]:
            return _element(text, begin, named.end())
        if named["entry"]:
            return self._judged(named, named["quote"], strength, ":")
        if named["attribute"]:
            return self._judged(named, named["quote"], strength, "=")
        is_flag = text.startswith("-", begin)
        if is_flag or strength == "password" or text[max(0, begin - 1) : begin] in _OPENING:
            return self._judged(named, named["quote"], strength, "flag" if is_flag else "prose")
        return None

    def _assigned(self, begin: int, strength: Strength, assigned: re.Match[str]) -> Span | None:
        """The value behind a sign: `=`, `:` and the like."""
        text = self._text
        sign, below, quote, bare = assigned.group("sign", "below", "quote", "bare")
        # What stands behind `==` is compared, and mostly a variable: it must look like a credential by itself.
        kind = "=" if sign in ("=", "=>", ":=", "%3d") else ":"
        if below and (kind == "=" or strength == "header") and not (quote and below[-1] in " \t"):
            return None  # nothing stands behind the sign: the next line is about something else
        if strength == "header":
            return _header(text, assigned.end("behind"))
        if quote and quote[-1] not in assigned["closed"] and self._inside(quote[-1], begin):
            return None  # the quote is the end of a text around the name, as in `getpass("Password: ")`
        end = assigned.end("begun")
        if text.startswith("${", begin - 2) and begin > 1:
            return self._default(assigned.end("sign"))
        if kind == "=" and strength == "password" and bare and self._has_line(begin) and self._labels(assigned):
            return None
        if sign == ":" and not quote and not bare:
            block = _block(text, end, strength)
            if block:
                return block
        found = self._judged(assigned, quote, strength, kind) if quote or bare else None
        if below:
            return found if found and _has_line(text, found, quote or "") else None
        if quote:
            return found
        following = text[end : end + 1]
        if strength == "password":
            if not bare or (following and following in _RUN_ON):
                is_inside = found and begin and not text[begin - 1].isspace()
                whole = None if is_inside else self._run(begin, assigned, kind)
                return whole or (found and self._extended(begin, found))
            if found:
                return (found[0], self._phrase_end(begin, end)) if following == " " and kind == "=" else found
        if bare and not found and text[begin : assigned.end()].isupper() and self._has_line(begin):
            return self._variable(strength, assigned, kind)
        return found

    def _default(self, begin: int) -> Span | None:
        """What a shell takes for a variable without a value: `${PASSWORD:-hunter2}`; a word is an example."""
        found = _DEFAULT.match(self._text, begin)
        if not found or not _DIGIT.search(found[1]) or not is_password(found[1], sign="="):
            return None
        return found.span(1)

    def _labels(self, assigned: re.Match[str]) -> bool:
        """Whether all that follows in the line is a label, as in files of translations."""
        begin = assigned.start("bare")
        line = self._text[begin : begin + 160].partition("\n")[0].rstrip()
        return " " in line and is_label(line)

    def _has_line(self, begin: int) -> bool:
        """Whether a name begins its line, as in files of settings."""
        return self._text[max(0, begin - 40) : begin].rpartition("\n")[2].strip() in _LINE_BEGINS

    def _phrase_end(self, begin: int, end: int) -> int:
        """Where a password ends that has a line for itself: it may be several words."""
        phrase = _PHRASE.match(self._text, end) if self._has_line(begin) else None
        return phrase.end() if phrase else end

    def _variable(self, strength: Strength, assigned: re.Match[str], kind: str) -> Span | None:
        """The value of a variable in a line of its own: its name says that it is one, so that words will do."""
        text, (begin, end) = self._text, assigned.span("bare")
        if strength == "password":
            is_last = _LINE_END.match(text, end)
            return (begin, end) if is_last and is_password(text[begin:end][:_JUDGED], sign="=") else None
        phrase = _PHRASE.match(text, end) if kind == "=" and _is_secret(assigned) else None
        return (begin, phrase.end()) if phrase and is_passphrase(text[begin : phrase.end()], least=3) else None

    def _run(self, begin: int, assigned: re.Match[str], kind: str) -> Span | None:
        """A password in a line for itself: it may hold what ends a value elsewhere, such as `&`, `>` or a bracket."""
        text, first, chunk = self._text, assigned.end("behind"), assigned["bare"]
        name = text[begin : assigned.end()]
        is_variable = "_" in name and name.isupper()
        run = _RUN.match(text, first) if chunk or is_variable else None
        if not run:
            return None
        value = run.group().rstrip(",;)}]>|")
        following = text[run.end() : run.end() + 1]
        is_last = _LINE_END.match(text, first + len(value)) or (assigned["of"] and following.isspace())
        if not is_last or not (is_variable or assigned["of"] or self._has_line(begin)):
            return None
        is_code = _CODE.search(run.group()) or (chunk and is_reference(chunk, digit=False))
        is_whole = not is_code and (chunk or value[-1:].isalnum()) and is_password(value, sign=kind)
        return (first, first + len(value)) if is_whole else None

    def _extended(self, begin: int, found: Span) -> Span:
        """The same elsewhere; a bracket that was opened before the name ends the password."""
        text = self._text
        extra = _EXTRA.match(text, found[1])
        if not extra:
            return found
        line = text[max(0, begin - 200) : begin].rpartition("\n")[2]
        ends = [text.find(close, found[1], extra.end()) for opened, close in _BRACKETS if opened in line]
        return found[0], min((end for end in ends if end >= 0), default=extra.end())

    def _prose(self, begin: int, strength: Strength, prose: re.Match[str]) -> Span | None:
        """Values without a separator: flags, `.netrc`, SQL and prose."""
        text = self._text
        if prose["quote"]:
            return self._judged(prose, prose["quote"], strength, "prose") if strength == "password" else None
        if not prose["bare"] or text.find("\n", prose.end(), prose.start("bare")) >= 0:
            return None
        if self._takes_nothing(text[begin : prose.end()], begin, prose):
            return None
        is_flag = text.startswith("-", begin) or (strength == "password" and self._in_netrc(begin))
        return self._judged(prose, None, strength, "flag" if is_flag else "prose")

    def _takes_nothing(self, flag: str, begin: int, prose: re.Match[str]) -> bool:
        """Whether a flag has no value behind a space: it asks for a password, or is a switch."""
        if _SWITCH.match(flag) or prose["bare"].startswith("--"):
            return True
        line = self._lower[max(0, begin - 200) : begin].rpartition("\n")[2] if flag == "--password" else ""
        return any(command in line for command in _ASKING)

    def _in_netrc(self, begin: int) -> bool:
        first = max(0, begin - 160)
        if not self._may_be_netrc or self._lower.rfind("login ", first, begin) < 0:
            return False
        return any(self._lower.rfind(word, first, begin) >= 0 for word in ("machine ", "default "))

    def _inside(self, quote: str, begin: int) -> bool:
        """Whether an odd number of quotes stands before a place in its line.

        Counted on from the last place that was asked for, so that all of them together read the text once, and from
        the end of the last quoted value that is or was masked: what is counted is then the same before and after a
        mask, and a quote that was opened before the text was cut hides nothing for long.
        """
        text = self._text
        counted, number = self._quotes.get(quote, (0, 0))
        first = text.rfind("\n", counted, begin) + 1
        if self._has_marks:
            marked = text.rfind(f"{_MARK}{quote}", counted, begin)
            first = max(first, marked + len(_MARK) + 1 if marked >= 0 else 0)
        masked = self._masked[1]
        if first <= masked and counted <= masked < begin and text[masked] == quote:
            first = masked + 1
        if first:
            counted, number = first, 0
        number += text.count(quote, counted, begin) - text.count(f"\\{quote}", counted, begin)
        self._quotes[quote] = (max(begin, counted), number)
        return number % 2 == 1

    def _judged(self, begun: re.Match[str], quote: str | None, strength: Strength, sign: str) -> Span | None:
        """The value whose beginning a pattern has found, if it is a credential: to its quote, or as far as it goes."""
        text = self._text
        judge = is_password if strength == "password" else is_token
        if quote:
            begin = begun.end("begun")
            end = _closing(text, quote, begin)
            value = text[begin:end][:_JUDGED] if end > begin else ""
            if judge(value, sign=sign, quoted=True):
                return begin, end
            least = 2 if sign == "=" else 4
            is_phrase = " " in value and _is_secret(begun) and is_passphrase(value, least=least)
            return (begin, end) if is_phrase else None
        begin, end = begun.span("bare")
        value = text[begin:end][:_JUDGED] if begin >= 0 else ""
        if not judge(value, sign=sign, quoted=False):
            return None
        if end - begin >= _JUDGED:
            return begin, _more(text, end)
        return begin, begin + len(value.rstrip(".")) if sign in (":", "prose") else end


def _is_secret(named: re.Match[str]) -> bool:
    """Whether a name says secret or key: a phrase behind it may be one, behind a token it is a message."""
    return "secret" in named.group() or named.group().endswith("key")


def _has_line(text: str, found: Span, quote: str) -> bool:
    """Whether a value below its name has the line for itself, and does not look like another name."""
    begin, end = found
    if not _LINE_END.match(text, end + len(quote)):
        return False
    return bool(quote) or not _NEXT_NAME.match(text[begin:end][:_JUDGED])


def _header(text: str, position: int) -> Span | None:
    """The credentials of an `Authorization` header; the scheme stays, unless the rest of the line is credentials."""
    line = _TO_LINE_END.match(text, position)
    if line:
        return line.span("line")
    found = _HEADER.match(text, position)
    if not found:
        return None
    value = found["bare"][:_JUDGED]
    if not is_password(value, sign="flag") or (found["scheme"] is None and not is_token(value, quoted=False)):
        return None
    return found.start("bare"), _more(text, found.end())


def _block(text: str, position: int, strength: Strength) -> Span | None:
    """A block of YAML below its name: as many lines as are set in as far as the first, if that is a credential."""
    found = _BLOCK.match(text, position)
    if not found:
        return None
    value = found["value"][:_JUDGED].rstrip()
    if not (is_password(value, sign=":") if strength == "password" else is_token(value, quoted=False)):
        return None
    end = found.end()
    for _ in range(_MAX_LINES):
        following = text.find("\n", end, end + 2)
        if following < 0 or not text.startswith(found[1], following + 1):
            break
        line = text.find("\n", following + 1)
        end = len(text) if line < 0 else line
    return found.start("value"), end


def _element(text: str, begin: int, end: int) -> Span | None:
    if not (begin and text[begin - 1] == "<"):
        return None
    close = text.find("<", end + 1, end + 1 + 1024)
    inner = text[end + 1 : close] if close > end + 1 else ""
    if not is_password(inner[1:-1] if inner.startswith("{") else inner, sign="="):
        return None
    return (end + 1, close) if text.startswith("</", close) else None


def _closing(text: str, quote: str, begin: int) -> int:
    """Where a quoted value ends; a quote behind a backslash that the opening one does not have is part of it."""
    limit = begin + _MAX_QUOTED
    at = text.find(quote, begin, limit)
    for _ in range(64):
        if at < 0 or text[at - 1] != "\\":
            break
        at = text.find(quote, at + 1, limit)
    if at < 0 or text.find("\n", begin, at) >= 0:
        bare = _BARE.match(text, begin)  # the end was cut off
        return bare.end() if bare and bare.end() == len(text) else -1
    return at


def _more(text: str, end: int) -> int:
    found = _MORE.match(text, end)
    return found.end() if found else end
