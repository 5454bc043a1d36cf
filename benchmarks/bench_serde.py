"""Parsing against the checks a careful programmer writes by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from weakincentives.errors import ParseError
from weakincentives.serde import error_text, parse

from .harness import Row, ratio


@dataclass(frozen=True, slots=True)
class Address:
    street: str
    city: str
    zip_code: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    customer: str
    quantity: int
    express: bool
    mode: Literal["rolling", "canary"]
    tags: tuple[str, ...]
    address: Address


GOOD = json.dumps({
    "customer": "Ada", "quantity": 3, "express": True, "mode": "canary", "tags": ["a", "b"],
    "address": {"street": "1 Main St", "city": "London"},
})  # fmt: skip
BAD = GOOD.replace('"quantity": 3', '"quantity": "3"')
WORSE = BAD.replace('"city"', '"town": 1, "city"')
MANY = json.dumps({**json.loads(GOOD), "tags": [1] * 1000})


def _text(data: dict[str, Any], key: str) -> str:
    value = data[key]
    if type(value) is not str:
        raise TypeError(f"{key}: expected string, got {value!r}")
    return value


def _known(data: dict[str, Any], names: frozenset[str]) -> None:
    unknown = data.keys() - names
    if unknown:
        raise ValueError(f"unknown: {unknown}")


ORDER = frozenset({"customer", "quantity", "express", "mode", "tags", "address"})
ADDRESS = frozenset({"street", "city", "zip_code"})


def by_hand(text: str) -> Order:
    data = json.loads(text)
    if type(data) is not dict:
        raise TypeError("expected an object")
    data: dict[str, Any]
    _known(data, ORDER)
    quantity, express, mode, tags, place = (
        data["quantity"], data["express"], data["mode"], data["tags"], data["address"],
    )  # fmt: skip
    if type(quantity) is not int:
        raise TypeError(f"quantity: expected integer, got {quantity!r}")
    if type(express) is not bool:
        raise TypeError(f"express: expected boolean, got {express!r}")
    if mode not in {"rolling", "canary"}:
        raise ValueError(f"mode: got {mode!r}")
    if type(tags) is not list:
        raise TypeError("tags: expected an array")
    for tag in tags:  # pyright: ignore[reportUnknownVariableType]
        if type(tag) is not str:  # pyright: ignore[reportUnknownArgumentType]
            raise TypeError(f"tags: expected strings, got {tag!r}")
    if type(place) is not dict:
        raise TypeError("address: expected an object")
    _known(place, ADDRESS)  # pyright: ignore[reportUnknownArgumentType]
    zip_code = place.get("zip_code")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if zip_code is not None and type(zip_code) is not str:  # pyright: ignore[reportUnknownArgumentType]
        raise TypeError("zip_code: expected string")
    address = Address(_text(place, "street"), _text(place, "city"), zip_code)  # pyright: ignore[reportUnknownArgumentType]
    return Order(_text(data, "customer"), quantity, express, mode, tuple(tags), address)  # pyright: ignore[reportUnknownArgumentType]


@dataclass(frozen=True, slots=True)
class Open:
    order: Order
    more: dict[str, Any]


OPEN = json.dumps({
    "order": json.loads(GOOD), "more": {str(i): {"id": i, "score": i / 7, "tags": ["a", "b"]} for i in range(100)},
})  # fmt: skip
bare: Any = TypeAdapter(Open).validator
bare_order: Any = TypeAdapter(Order).validator


def refuse(text: str) -> str:
    try:
        parse(Order, text)
    except ParseError as error:
        return error_text(error, "tool 'order'")
    raise AssertionError("should have been refused")


def pydantic_errors(text: str) -> list[Any]:
    try:
        bare_order.validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        return error.errors(include_url=False)
    raise AssertionError("should have been refused")


def run() -> Iterable[Row]:
    assert parse(Order, GOOD) == by_hand(GOOD)
    yield ratio("parse a 6-field nested call / json.loads + checks by hand",
                lambda: parse(Order, GOOD), lambda: by_hand(GOOD), 0.6)  # fmt: skip
    yield ratio("refuse a bad call, text included / parse a good one",
                lambda: refuse(BAD), lambda: parse(Order, GOOD), 12)  # fmt: skip
    yield ratio("the same with an unknown field inside",
                lambda: refuse(WORSE), lambda: parse(Order, GOOD), 10)  # fmt: skip
    yield ratio("refuse a call with 1,000 errors / pydantic's list of them",
                lambda: refuse(MANY), lambda: pydantic_errors(MANY), 3)  # fmt: skip
    yield ratio("parse a type that has Any in it / pydantic alone",
                lambda: parse(Open, OPEN), lambda: bare.validate_json(OPEN, strict=True), 2)  # fmt: skip
