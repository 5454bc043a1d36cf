"""Credentials that are recognised by where they stand: key blocks, URLs, headers, cookies, command lines, reports."""

from __future__ import annotations

import base64
import binascii
import re
import string
from collections.abc import Callable, Iterator

from .judgement import is_password, is_placeholder_login, strength_of
from .prefixes import Span

_URL_END = re.compile(r"[^\s\"'<>`\\]{0,1024}+")
_USER = re.compile(r"[^\s:/?#]{0,128}+:")
_REFERENCE = re.compile(r"\$\{[^{}\s]{1,80}\}:")
_PORT = re.compile(r"\d{1,5}+(?=[/?#,;)\]}]|$)")
_HOST = re.compile(r"(?!sha\d{3}:)(?:[A-Za-z0-9_.%-]|\[)")  # not the hash of an image
_QUERY = re.compile(r"[?&][\w.-]{1,64}+=")
_LONE = re.compile(r"(?=[A-Za-z]{0,200}?\d)(?=\d{0,200}?[A-Za-z])[\w-]{20,200}+@")

# Addresses that a program could not read, or that stand in JSON, in a query or without their scheme.
_BROKEN_URLS = tuple(
    (literal, re.compile(pattern))
    for literal, pattern in (
        ("//", r"[\w.%+-]{1,64}+:()(?!\d{1,5}+[/?#])[^\s\"'`<>\\/?#@$\[]{3,128}+(?=@(?!sha\d)[\w\[])"),
        (r":\/\/", r"[\w.%+-]{0,64}+:()[^\s\"'`<>\\@$\[]{1,128}+(?=@(?!sha\d)[\w\[])"),
        (":/", r"[\w.%+-]{1,64}+:()(?!\d{1,5}+[/?#])[^\s\"'`<>\\/?#@$\[]{3,128}+(?=@(?!sha\d)[\w\[])"),
        ("%3a%2f%2f", r"[\w.+-]{0,64}+%3a()(?:[^\s\"'`<>%&\[]|%(?!40)){1,128}+(?=%40)"),
    )
)
_PROTOCOLS = ("@tcp(", "@unix(")  # of a MySQL address in Go, which has no scheme
_NO_PASSWORD = re.compile(r"[\s\"'`/]")

_COOKIE = re.compile(r"s?\\{0,4}[\"']?\s{0,4}[:=][ \t]{0,4}(?:\[\s{0,4})?[bB]?\\{0,4}[\"']?")
_PAIR = re.compile(r"([^\s=;,\"']{1,64}+)=\"?([^\s;,\"'\\]{0,4096}+)(;?\s{0,4}+)")
_ATTRIBUTES = frozenset({"path", "expires", "domain", "max-age", "samesite", "priority"})

_SCHEME = re.compile(r"(bearer|basic)[ \t]{1,8}+([A-Za-z0-9._~+/=-]{8,8192}+)", re.IGNORECASE)

_QUOTED = r"'(?!\[masked\]')([^'\r\n]{2,200}+)'|\"(?!\[masked\]\")([^\"$\r\n]{2,200}+)\""
_ATTACHED = rf"(?:(?!\[masked\](?:\s|$))([^\s\"'$=-][^\s\"']{{2,200}}+)|{_QUOTED})"
_SEPARATE = rf"[ \t]{{1,4}}+(?:(?!\[masked\](?:\s|$))([^\s\"'$<-][^\s\"']{{2,800}}+)|{_QUOTED})"
_USER_PASSWORD = re.compile(r"(?:-u|--user|--proxy-user)(?:\s{1,4}+|=)[\"']?[^\s:\"'$/]{1,128}+:([^\s\"'$]{1,256}+)")
_COOKIE_ARGUMENT = r"(?:\s{1,4}+|=)[\"']?[^\s=\"'$]{1,64}+=([^\s\"';$]{6,4096}+)"
_FLAGS = tuple(
    (f" {flag}", re.compile(flag + rest), commands)
    for flag, rest, commands in (
        ("-p", _ATTACHED, ("mysql", "mariadb", "sshpass", "7z ", "7za ")),
        ("-p", _SEPARATE, ("sshpass", "az login", "acr login", "docker login", "podman login", "buildah login",
                           "skopeo login", "nerdctl login", "crane auth login", "oras login", "oc login", "cf login",
                           "ibmcloud login", "psexec", "twine", "plink", "pscp", "helm registry", "mongo", "cqlsh",
                           "rdesktop", "rabbitmqadmin", "cypher-shell", "couchbase-cli", "beeline", "evil-winrm",
                           "crackmapexec", "ncftpput", "ncftpget")),
        ("-P", _SEPARATE, ("sqlcmd", "bcp ", "zip ", "mosquitto_", "ipmitool")),
        ("-a", _SEPARATE, ("redis-cli", "valkey-cli")),
        ("-w", _SEPARATE, ("ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldapwhoami", "ldappasswd")),
        ("-N", _SEPARATE, ("ssh-keygen",)),
        ("-c", _SEPARATE, ("snmpwalk", "snmpget", "snmpset")),
        ("-U", r"\s{0,4}+[\"']?[^\s%\"'$]{1,128}+%([^\s\"'$]{1,256}+)",
         ("smbclient", "rpcclient", "smbmap", "net rpc", "winexe")),
        ("-u", r"\s{0,4}+[\"']?[^\s,\"'$]{1,128}+,([^\s\"'$]{1,256}+)", ("lftp",)),
        ("-b", r"[a-zA-Z]{0,4}+(?: {1,4}+[^\s\"'-][^\s\"']{0,128}+){2} {1,4}+[\"']?([^\s\"'$]{3,256}+)", ("htpasswd",)),
        ("-b", _COOKIE_ARGUMENT, ("curl",)),
        ("--cookie", _COOKIE_ARGUMENT, ("curl",)),
        ("--token", r"[ =]([a-z0-9]{6}\.[a-z0-9]{16})(?![\w.])", ("kubeadm",)),
        ("/p:", _ATTACHED, ("xfreerdp", "mstsc")),
        *((flag, _SEPARATE, ("keytool", "jarsigner")) for flag in ("-storepass", "-srcstorepass", "-deststorepass",
                                                                   "-keypass", "-srckeypass", "-destkeypass")),
        ("/user:", r"[^\s\"']{1,128}+\s{1,4}+([^\s\"'/*][^\s\"']{2,128}+)", ("net use",)),
    )
)  # fmt: skip
"""Flags that carry a password, for the commands where they do."""

_KEY_CHARS = string.ascii_letters + string.digits + "+/=\\\r\n"
_LEAST_KEY = 20

_IN_QUOTES = r"([\"'])(?P<value>(?:(?!\1)[^\r\n]){2,256}+)\1"
_STATEMENTS = tuple(
    (literal, re.compile(literal + rest, re.IGNORECASE))
    for literal, rest in (
        ("identified", rf"\s{{1,4}}(?:with\s{{1,4}}\w{{1,40}}\s{{1,4}})?by\s{{1,4}}{_IN_QUOTES}"),
        ("convertto-securestring", rf"\s{{1,4}}(?:-string\s{{1,4}})?{_IN_QUOTES}"),
        ("requirepass", r"[ \t]{1,8}+[\"']?(?P<value>[^\s\"'<$]{6,256}+)[\"']?[ \t]*+(?=[\r\n]|$)"),
        ("password</name>", r"\s{0,80}+<value>(?P<value>[^<>\s$]{3,256}+)</value>"),
        ("unseal key ", r"\d:[ \t]{1,8}+(?P<value>[A-Za-z0-9+/=]{40,90}+)(?![\w+/=])"),
    )
)  # fmt: skip
"""Sentences of a language or a program in which a password stands."""


def spans(text: str, lower: str, absent: set[str]) -> Iterator[Span]:
    """Where such credentials stand. `lower` is the same text in lower case, position by position."""
    for marks, rule in _RULES:
        for mark in marks:
            if mark in lower:
                yield from rule(text, lower, absent)
                break


def _keys(text: str) -> Iterator[Span]:
    yield from _blocks(text, "-----BEGIN ", "-----END ", "-----")
    yield from _blocks(text, "---- BEGIN SSH2 ", "---- END ", "----")
    yield from _ends(text)


def _blocks(text: str, begin: str, end: str, dashes: str) -> Iterator[Span]:
    at = text.find(begin)
    while at >= 0:
        after = at + len(begin)
        closed = text.find(dashes, after, after + 64)
        if closed < 0 or "PRIVATE KEY" not in text[after:closed]:
            at = text.find(begin, after)
            continue
        last = text.find(end, closed)
        if last < 0:  # the text was cut: everything that is left may be the key
            yield at, len(text)
            return
        stop = text.find(dashes, last + len(end), last + len(end) + 64)
        stop = last + len(end) if stop < 0 else stop + len(dashes)
        yield at, stop
        at = text.find(begin, stop)


def _ends(text: str) -> Iterator[Span]:
    """The last lines of a private key whose beginning was left out: its base64, read backwards from the end line."""
    mark, before = "-----END ", 0
    at = text.find(mark)
    while at >= 0:
        after = at + len(mark)
        if "PRIVATE KEY" in text[after : after + 64].partition("-----")[0]:
            lines = text[before:at]
            begin = before + len(lines.rstrip(_KEY_CHARS))
            if at - begin >= _LEAST_KEY:
                yield begin, at
        before = after
        at = text.find(mark, after)


def _putty(text: str) -> Iterator[Span]:
    at = text.find("PuTTY-User-Key-File-")
    while at >= 0:
        begin = text.find("Private-Lines:", at)
        if begin < 0:
            return
        begin += len("Private-Lines:")
        stop = text.find("Private-MAC:", begin)
        yield begin, stop if stop >= 0 else len(text)
        if stop < 0:
            return
        at = text.find("PuTTY-User-Key-File-", stop)


def _urls(text: str) -> Iterator[Span]:
    at = text.find("://")
    while at >= 0:
        begin = at + 3
        following = text.find("://", begin)
        found = _URL_END.match(text, begin, len(text) if following < 0 else following)
        end = found.end() if found else begin
        user = _USER.match(text, begin, end)
        if user and not _PORT.match(text, user.end(), end):
            last = _last_at(text, user.end(), end)
            if last > user.end() and not is_placeholder_login(*_login(text, begin, user.end(), last)):
                yield begin, last
        elif not user:
            lone = _LONE.match(text, begin, end)
            if lone and _HOST.match(text, lone.end(), end):
                yield begin, lone.end() - 1
        at = following


def _login(text: str, begin: int, password: int, end: int) -> tuple[str, str]:
    """The user and the password of an address; a user may be a reference that holds a colon."""
    reference = _REFERENCE.match(text, begin, end)
    password = reference.end() if reference else password
    return text[begin : password - 1], text[password:end]


def _broken_urls(text: str, lower: str) -> Iterator[Span]:
    for literal, pattern in _BROKEN_URLS:
        at = lower.find(literal)
        while at >= 0:
            found = pattern.match(lower, at + len(literal))
            if found and text[at - 1 : at] != ":":
                yield found.start(1), found.end()
            at = lower.find(literal, at + len(literal))
    for literal in _PROTOCOLS:
        at = text.find(literal)
        while at >= 0:
            user, _, password = text[max(0, at - 128) : at].rpartition(":")
            if user[-1:].isalnum() and not _NO_PASSWORD.search(password):
                yield at - len(password), at
            at = text.find(literal, at + len(literal))


def _last_at(text: str, begin: int, end: int) -> int:
    """The last `@` before a host: a password may hold `@`, `/`, `?` and `#`. One in the query of the URL is not it."""
    first = text.find("@", begin, end)
    if first < 0:
        return -1
    query = _QUERY.search(text, first, end)
    last = text.rfind("@", begin, query.start() if query else end)
    return last if last >= 0 and _HOST.match(text, last + 1, end) else first if _HOST.match(text, first + 1) else -1


def _cookies(text: str, lower: str) -> Iterator[Span]:
    at = lower.find("cookie")
    while at >= 0:
        end = at + 6
        header = _COOKIE.match(text, end)
        if header:
            position = header.end()
            pair = _PAIR.match(text, position)
            while pair:
                if len(pair[2]) >= 6 and pair[1].lower() not in _ATTRIBUTES:
                    yield pair.span(2)
                end = pair.end()
                pair = _PAIR.match(text, end) if pair[3] else None
        at = lower.find("cookie", end)


def _schemes(text: str, lower: str) -> Iterator[Span]:
    for word in ("bearer", "basic"):
        at = lower.find(word)
        while at >= 0:
            end = at + len(word)
            found = None if at and text[at - 1].isalnum() else _SCHEME.match(text, at)
            if found:
                value = found[2]
                if _is_basic(value) if word == "basic" else any(map(str.isdigit, value)):
                    yield found.span(2)
                    end = found.end()
            at = lower.find(word, end)


def _is_basic(value: str) -> bool:
    """Whether it is the base64 of `user:password`: the word `basic` alone says little."""
    try:
        return b":" in base64.b64decode(value[:4096], validate=True)
    except (binascii.Error, ValueError):
        return False


def _flags(text: str, lower: str, absent: set[str]) -> Iterator[Span]:
    for flag, pattern, commands in _FLAGS:
        at = text.find(flag)
        present = [command for command in commands if command not in absent and command in lower] if at >= 0 else []
        if not present:
            absent.update(commands if at >= 0 else ())
            continue
        while at >= 0:
            found = pattern.match(text, at + 1)
            if found and _has_command(lower, present, at):
                yield found.span(found.lastindex or 0)
            at = text.find(flag, at + len(flag))
    for literal in (" -u", " --user", " --proxy-user"):
        at = text.find(literal)
        while at >= 0:
            found = _USER_PASSWORD.match(text, at + 1)
            if found and not found[1].isdigit() and lower.rfind("curl", max(0, at - 200), at) >= 0:
                yield found.span(1)
            at = text.find(literal, at + len(literal))


def _has_command(lower: str, commands: list[str], at: int) -> bool:
    """Whether one of the commands stands before the flag, with no end of a command between them."""
    first = max(0, at - 200)
    first = max(first, *(lower.rfind(end, first, at) for end in ("\n", "&& ", " | ")))
    return any(lower.find(command, first, at + 1) >= 0 for command in commands)


def _statements(text: str, lower: str) -> Iterator[Span]:
    for literal, pattern in _STATEMENTS:
        at = lower.find(literal)
        while at >= 0:
            found = pattern.match(text, at)
            if found:
                yield found.span("value")
            at = lower.find(literal, at + len(literal))


# Reports of values that were refused: the name stands in one place, the value in another.


_REPORTED = r"[bBrRuU]{0,2}(?P<quote>\\{0,4}[\"'])(?P<value>[^\r\n\"']{2,1024}?)(?P=quote)"
_REPORTED_VALUE = re.compile(rf"{_REPORTED}|(?P<number>\d{{4,64}}+)(?=[,\]])")
_LOCATION = re.compile(r"\\{0,4}[\"']\s{0,4}+:\s{0,4}+[\[(]([^\])\r\n]{1,200}+)[\])]")
_INPUT = re.compile(
    rf"\\{{0,4}}[\"']input\\{{0,4}}[\"']\s{{0,4}}+:\s{{0,4}}+(?:{_REPORTED}|(?P<number>\d{{4,64}}+)(?=[,}}]))"
)
_REJECTED = re.compile(
    r"\\{0,4}[\"']([\w.\[\]]{1,80}+)\\{0,4}[\"']: rejected value \[(?!\[masked\])(?P<value>[^\]\r\n]{2,1024}+)\]"
)
_NEAR = 600


def _below_fields(text: str) -> Iterator[Span]:
    """The text of pydantic: a line with the field, and below it `[type=..., input_value='...', input_type=str]`."""
    mark = "input_value="
    at = text.find(mark)
    while at >= 0:
        found = _REPORTED_VALUE.match(text, at + len(mark))
        if found:
            first = max(0, at - _NEAR)
            field, line, _ = text[first:at].rpartition("\n")
            if line and _names_secret(field.rpartition("\n")[2]):
                yield from _reported(found)
        at = text.find(mark, at + len(mark))


def _at_locations(text: str) -> Iterator[Span]:
    """The same as JSON or a dict: `"loc": ["body", "password"], "msg": "...", "input": "..."`."""
    at = text.find("loc")
    while at >= 0:
        end = at + 3
        location = _LOCATION.match(text, end)
        if location and _names_secret(location[1].rstrip(", ").rpartition(",")[2]):
            following = text.find("loc", location.end(), location.end() + _NEAR)
            until = location.end() + _NEAR if following < 0 else following
            found = _INPUT.search(text, location.end(), until)
            if found:
                yield from _reported(found)
                end = found.end()
        at = text.find("loc", end)


def _rejected(text: str) -> Iterator[Span]:
    """Spring's text: `Field error in object 'user' on field 'password': rejected value [...]`."""
    mark = "on field "
    at = text.find(mark)
    while at >= 0:
        found = _REJECTED.match(text, at + len(mark))
        if found and _names_secret(found[1]) and is_password(found["value"], sign="=", quoted=True):
            yield found.span("value")
        at = text.find(mark, at + len(mark))


def _names_secret(field: str) -> bool:
    return strength_of(field.strip(" \t\r\"'\\")[-120:]) in ("password", "token")


def _reported(found: re.Match[str]) -> Iterator[Span]:
    if found["number"]:
        yield found.span("number")
    elif is_password(found["value"][:64], sign="=", quoted=True):
        yield found.span("value")


_RULES: tuple[tuple[tuple[str, ...], Callable[[str, str, set[str]], Iterator[Span]]], ...] = (
    (("----",), lambda text, _lower, _absent: _keys(text)),
    (("putty-user-key-file-",), lambda text, _lower, _absent: _putty(text)),
    (("://",), lambda text, _lower, _absent: _urls(text)),
    ((*(literal for literal, _ in _BROKEN_URLS), *_PROTOCOLS), lambda text, lower, _absent: _broken_urls(text, lower)),
    (("cookie",), lambda text, lower, _absent: _cookies(text, lower)),
    (("bearer", "basic"), lambda text, lower, _absent: _schemes(text, lower)),
    ((" -", " /"), _flags),
    (tuple(literal for literal, _ in _STATEMENTS), lambda text, lower, _absent: _statements(text, lower)),
    (("input_value=",), lambda text, _lower, _absent: _below_fields(text)),
    (("loc",), lambda text, _lower, _absent: _at_locations(text)),
    (("on field ",), lambda text, _lower, _absent: _rejected(text)),
)
"""Each rule with what a text holds, in lower case, in which it finds something; it is not asked about others."""

MARKS: tuple[str, ...] = tuple(mark for marks, _ in _RULES for mark in marks)
"""A text without any of these, in lower case, holds no such credential."""
