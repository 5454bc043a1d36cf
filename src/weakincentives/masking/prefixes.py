"""Credentials that are recognised by how they begin, wherever they stand."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from typing import NamedTuple

Span = tuple[int, int]

_W = r"[A-Za-z0-9_-]"
_DIGIT = rf"(?={_W}{{0,64}}?\d)"
_RUN = r"[A-Za-z0-9]{20,}+"
"""No word is that long, so it need not have a digit."""

# The pattern is tried only behind a literal, so that its cost is that of the places found.
# Possessive quantifiers: nothing is read twice. Only the last run of a pattern has no upper bound: when it is reached,
# the pattern matches and all of the run is masked, so that nothing behind a mask looks like another beginning.
_TABLE: tuple[tuple[tuple[str, ...], str], ...] = (
    (("sk_live_", "sk_test_", "rk_live_", "rk_test_", "pk_live_", "pk_test_"), r"[A-Za-z0-9]{16,}+"),
    (("sk-", "pk-", "rk-", "sk_", "pk_", "rk_"), rf"(?:{_DIGIT}{_W}{{12,}}+|{_RUN})"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), rf"(?:{_DIGIT}{_W}{{12,}}+|{_RUN})"),
    (
        ("glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "glagent-", "glsoat-", "glft-"),
        rf"(?:{_DIGIT}{_W}{{12,}}+|{_RUN})",
    ),
    (("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-", "xoxe-", "xoxe.", "xapp-"), r"(?=[\w.-]{0,200}?\d)[\w.-]{10,}+"),
    (("npm_", "hf_", "api_org_"), rf"(?:(?=\w{{0,80}}?\d)[A-Za-z0-9]{{16,}}+|{_RUN})"),
    (("gsk_", "r8_", "pplx-", "xai-", "fw_", "tvly-", "nvapi-", "esecret_"), rf"{_DIGIT}{_W}{{20,}}+"),
    (("whsec_", "dckr_pat_", "dckr_oat_", "lin_api_", "lin_oauth_", "ntn_", "secret_"), rf"{_DIGIT}{_W}{{20,}}+"),
    (("shpat_", "shpss_", "shpca_", "shppa_", "rubygems_", "pul-", "sgp_", "dapi"), r"[0-9a-f_]{30,}+"),
    (("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{30,}+"),
    (("sq0atp-", "sq0csp-", "sq0idp-"), rf"{_W}{{20,}}+"),
    (("glc_", "glsa_", "sntrys_", "sntryu_", "eyJrIjoi", "eyJwYXlsb2FkIjoi"), r"[A-Za-z0-9_+/=-]{24,}+"),
    (("NRAK-", "NRJS-", "NRII-", "NRAL-", "PMAK-", "HRKU-", "RGAPI-"), rf"{_W}{{20,}}+"),
    (("hvs.", "hvb.", "hvr."), rf"{_W}{{16,}}+"),
    (("dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."), r"[\w.-]{30,}+"),
    (("ATATT3", "ATCTT3", "ATBB"), r"[A-Za-z0-9_=-]{20,}+"),
    (("figd_", "figo_", "pscale_tkn_", "pscale_pw_", "pscale_oauth_"), r"[\w.-]{20,}+"),
    (("tskey-", "GOCSPX-", "pypi-AgE", "testpypi-AgE", "sbp_", "flyv1 ", "fo1_", "FlyV1 "),
     r"(?=[\w.+/=-]{0,200}?\d)[\w.+/=-]{16,}+"),
    (("nfp_", "CFPAT-", "phc_", "phx_"), rf"{_DIGIT}{_W}{{16,}}+"),
    (("AGE-SECRET-KEY-1",), r"[0-9A-Z]{20,}+"),
    (("AIza",), rf"{_W}{{30,}}+"),
    (("AKIA", "ASIA", "ABIA", "ACCA"), r"[0-9A-Z]{16}(?![0-9A-Za-z])"),
    (("ya29.",), r"[\w.-]{16,}+"),
    (("1//0",), rf"{_W}{{24,}}+"),
    (("SG.",), r"[\w-]{16,40}+\.[\w-]{16,80}+"),
    (("SK",), r"[0-9a-f]{32}(?![0-9A-Za-z])"),
    (("cio",), r"(?=[A-Za-z0-9]{0,40}?\d)[A-Za-z0-9]{32}(?![0-9A-Za-z])"),
    (("pat",), r"[A-Za-z0-9]{14}\.[0-9a-f]{60,64}"),
    (("sl.",), r"(?=[\w-]{0,200}?\d)[\w-]{60,}+"),
    (("EAAA", "EAAC"), r"(?=\w{0,200}?\d)[\w-]{40,}+"),
    (("key-",), r"[0-9a-z]{32}(?![0-9A-Za-z])"),
    (("sk.eyJ",), rf"{_W}{{16,512}}+\.{_W}{{16,}}+"),
    (("eyJ",), rf"{_W}{{8,512}}+\.{_W}{{8,16384}}+\.{_W}{{0,4096}}+(?:\.{_W}{{1,8192}}+){{0,2}}+"),
    (("$2a$", "$2b$", "$2y$"), r"\d\d\$[./A-Za-z0-9]{53}"),
    (("$apr1$",), r"[./A-Za-z0-9]{1,8}+\$[./A-Za-z0-9]{22,}+"),
    (("{SSHA}", "{SSHA256}", "{SSHA512}", "{SHA}", "{SMD5}"), r"[A-Za-z0-9+/]{20,}+={0,2}+"),
    # The first line of a private key in base64, as in a Kubernetes secret.
    (("LS0tLS1CRUdJTiBQUklWQVRF", "LS0tLS1CRUdJTiBSU0EgUFJJVkFURS", "LS0tLS1CRUdJTiBFQyBQUklWQVRF",
      "LS0tLS1CRUdJTiBPUEVOU1NI", "LS0tLS1CRUdJTiBFTkNSWVBURUQg"), r"[A-Za-z0-9+/=]{20,}+"),
    (("django-insecure-",), r"[^\s\"']{20,}+"),
    # Discord: the first part is the base64 of a number of 17 to 20 digits.
    (("MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT"),
     rf"(?=[A-Za-z]{{0,24}}+\d)[A-Za-z0-9]{{21,26}}+\.{_W}{{5,7}}+\.(?={_W}{{0,40}}?\d){_W}{{25,}}+"),
    # The beginning of a Docker configuration in base64: {"auths":
    (("eyJhdXRocyI6", "eyAiYXV0aHMi", "ewoJImF1dGhzIj", "ewogICJhdXRocyI6", "ewogICAgImF1dGhzIj"),
     r"[A-Za-z0-9+/=]{20,}+"),
    (("$1$", "$5$", "$6$", "$y$", "$argon2"), r"[^\s:\"']{24,}+"),
)  # fmt: skip


def any_of(literals: Iterable[str]) -> str:
    """A pattern of these literals that decides by one character after the other."""
    tails: dict[str, list[str]] = {}
    for literal in literals:
        tails.setdefault(literal[0], []).append(literal[1:])
    return "|".join(re.escape(first) + ("" if "" in rest else f"(?:{any_of(rest)})") for first, rest in tails.items())


_RULES: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
"""By the first two characters of the literal."""
for _literals, _rest in _TABLE:
    for _literal in _literals:
        _RULES.setdefault(_literal[:2], []).append((_literal, re.compile(_rest)))
# A credential does not begin behind a letter or digit, and few words begin as one of them does: so this reads a text
# once, and mostly skips from word to word.
_FIRST = re.compile(any_of(literal for literals, _ in _TABLE for literal in literals))
_BEGINNING = re.compile(f"[^A-Za-z0-9](?={_FIRST.pattern})")

_PAIR = r"\s{0,8}+[\"'][^\"'\s]{1,64}+[\"'],\s{0,8}+[\"']()[^\"'\r\n]{2,128}+(?=[\"']\s{0,8}+\))"
_AFTER_PLACE: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (literal, re.compile(pattern))
    for literal, pattern in (
        ("hooks.slack.com/", r"(?:services|workflows|triggers)/()[\w/-]{10,200}+"),
        ("discord.com/api/", r"(?:v\d+/)?webhooks/\d{5,30}+/()[\w-]{20,120}+"),
        ("discordapp.com/api/", r"(?:v\d+/)?webhooks/\d{5,30}+/()[\w-]{20,120}+"),
        ("webhook.office.com/", r"webhookb2/()[\w@/.-]{20,300}+"),
        ("outlook.office.com/", r"webhook/()[\w@/.-]{20,300}+"),
        ("hooks.zapier.com/", r"hooks/catch/()[\w/]{8,100}+"),
        ("maker.ifttt.com/", r"[\w/{}-]{0,100}?/key/()[\w-]{10,100}+"),
        ("hook.", r"(?:eu|us)\d\.make\.com/()\w{20,60}+"),
        ("jdbc:oracle:", r"\w{1,10}+:[^\s/@:]{1,64}+/()[^\s/@]{2,128}+(?=@)"),
        ("sqlplus ", r"(?:-\w{1,10}+ ){0,4}+[^\s/@:-]{1,64}+/()[^\s/@]{2,128}+(?=@)"),
        (":5432:", r"[^\s:/]{1,64}+:[^\s:/]{1,64}+:()[^\s:]{3,200}+(?=\s|$)"),  # .pgpass
        ("*:*:*:", r"[^\s:/]{1,64}+:()[^\s:]{3,200}+(?=\s|$)"),
        ("api.telegram.org/bot", r"()\d{5,12}+:[\w-]{20,60}+"),
        ("rabbitmqctl ", r"(?:add_user|change_password) [^\s]{1,64}+ [\"']?()[^\s\"'$<]{3,128}+"),
        ("echo ", r"[\"']?[^\s:\"'|$]{1,64}+:()[^\s\"'|$]{2,128}+(?=[\"']?\s?\|\s?(?:sudo )?chpasswd)"),
        ("echo ", r"[\"']?()[^\s\"'|$]{2,128}+(?=[\"']?\s?\|\s?sudo -S)"),
        ('"value": "', r"()[A-Za-z0-9+/]{86}==(?=\")"),  # an account's key of 64 bytes
        ("AUTH PLAIN ", r"()[A-Za-z0-9+/]{12,512}+={0,2}+"),
        ("AUTH LOGIN ", r"()[A-Za-z0-9+/]{12,512}+={0,2}+"),
        ("AUTH XOAUTH2 ", r"()[A-Za-z0-9+/]{12,4096}+={0,2}+"),
        ("_SALT'", r",\s{0,16}+'()[^'\r\n]{40,80}+(?=')"),  # WordPress
        ("password to proceed to installation:", r"\s{1,8}+()[0-9a-f]{32}(?![0-9a-f])"),  # Jenkins
        ("auth=(", _PAIR),
        ("BasicAuth(", _PAIR),
        ("DigestAuth(", _PAIR),
    )
)
"""Addresses that are or hold credentials: the part that is masked begins at the empty group."""

_DIGITS = "0123456789"


class _Middle(NamedTuple):
    literal: str
    back: int
    """How far before the literal the pattern begins."""
    pattern: re.Pattern[str]
    before: str
    least: int
    most: int


_MIDDLES = (
    _Middle(":AA", 0, re.compile(r":AA[\w-]{32,34}(?![\w-])"), _DIGITS, 5, 12),  # Telegram
    _Middle(
        ".atlasv1.", 0, re.compile(rf"\.atlasv1\.{_W}{{40,}}+"), string.ascii_letters + _DIGITS, 14, 14
    ),  # Terraform
    _Middle("-us", 0, re.compile(r"-us\d{1,2}(?![0-9A-Za-z])"), _DIGITS + "abcdef", 32, 32),  # Mailchimp
    _Middle("Q~", 1, re.compile(r"\dQ~[\w.~-]{31,34}(?![\w.~-])"), string.ascii_letters + _DIGITS, 3, 3),  # Azure
)


MARKS: tuple[str, ...] = (
    *(literal.lower() for literal, _ in _AFTER_PLACE),
    *(middle.literal.lower() for middle in _MIDDLES),
)
"""A text without any of these, in lower case, holds no such credential unless it `begins`."""


def spans(text: str, _lower: str, absent: set[str]) -> Iterator[Span]:
    """Where such credentials stand. Letters are told apart by their case here."""
    yield from _begun(text)
    for literal, pattern in _AFTER_PLACE:
        if literal in absent:
            continue
        at = text.find(literal)
        if at < 0:
            absent.add(literal)
        while at >= 0:
            found = pattern.match(text, at + len(literal))
            if found:
                yield found.start(1), found.end()
            at = text.find(literal, at + len(literal))
    for middle in _MIDDLES:
        yield from _around(text, middle)


def begins(text: str) -> bool:
    """Whether a word begins as a credential does."""
    return _FIRST.match(text) is not None or _BEGINNING.search(text) is not None


def _begun(text: str) -> Iterator[Span]:
    ends: dict[str, int] = {}  # of the last credential that began so: what looks like a beginning in it is part of it
    if _FIRST.match(text):
        yield from _at(text, 0, ends)
    for found in _BEGINNING.finditer(text):
        yield from _at(text, found.end(), ends)


def _at(text: str, at: int, ends: dict[str, int]) -> Iterator[Span]:
    for literal, pattern in _RULES.get(text[at : at + 2], ()):
        if text.startswith(literal, at) and at >= ends.get(literal, 0):
            found = pattern.match(text, at + len(literal))
            if found:
                ends[literal] = found.end()
                yield at, found.end()


def _around(text: str, middle: _Middle) -> Iterator[Span]:
    """Credentials found by something in their middle: what stands before it is read backwards, by `str.rstrip`."""
    at = text.find(middle.literal)
    while at >= 0:
        begin = at - middle.back
        found = middle.pattern.match(text, begin) if begin >= 0 else None
        if found:
            head = text[max(0, begin - middle.most - 1) : begin]
            length = len(head) - len(head.rstrip(middle.before))
            if middle.least <= length <= middle.most:
                yield begin - length, found.end()
        at = text.find(middle.literal, at + len(middle.literal))
