"""Credentials in reports of values that were refused: the name stands in one place, the value in another."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .names import is_password, strength_of
from .prefixes import Span

_QUOTED = r"[bBrRuU]{0,2}(?P<quote>\\{0,4}[\"'])(?P<value>[^\r\n\"']{2,1024}?)(?P=quote)"
_VALUE = re.compile(rf"{_QUOTED}|(?P<number>\d{{4,64}}+)(?=[,\]])")
_LOCATION = re.compile(r"\\{0,4}[\"']\s{0,4}+:\s{0,4}+[\[(]([^\])\r\n]{1,200}+)[\])]")
_INPUT = re.compile(
    rf"\\{{0,4}}[\"']input\\{{0,4}}[\"']\s{{0,4}}+:\s{{0,4}}+(?:{_QUOTED}|(?P<number>\d{{4,64}}+)(?=[,}}]))"
)
_REJECTED = re.compile(
    r"\\{0,4}[\"']([\w.\[\]]{1,80}+)\\{0,4}[\"']: rejected value \[(?!\[masked\])(?P<value>[^\]\r\n]{2,1024}+)\]"
)
_NEAR = 600


def spans(text: str, _lower: str, _absent: set[str]) -> Iterator[Span]:
    """Where such credentials stand."""
    yield from _below_fields(text)
    yield from _at_locations(text)
    yield from _rejected(text)


def _below_fields(text: str) -> Iterator[Span]:
    """The text of pydantic: a line with the field, and below it `[type=..., input_value='...', input_type=str]`."""
    mark = "input_value="
    at = text.find(mark)
    while at >= 0:
        found = _VALUE.match(text, at + len(mark))
        if found:
            first = max(0, at - _NEAR)
            field, line, _ = text[first:at].rpartition("\n")
            if line and _names_secret(field.rpartition("\n")[2]):
                yield from _value(found)
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
                yield from _value(found)
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


def _value(found: re.Match[str]) -> Iterator[Span]:
    if found["number"]:
        yield found.span("number")
    elif is_password(found["value"][:64], sign="=", quoted=True):
        yield found.span("value")


__all__ = ["spans"]
