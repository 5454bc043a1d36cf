"""Parsing: JSON text, bytes or a mapping becomes a typed value, or one error that lists everything wrong.

The error is in words a model can act on: what was expected, what came, what to use instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import isfinite
from operator import getitem
from typing import Any, Literal, NoReturn, TypeVar, cast, overload

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json, to_json

from ..errors import Failure, ParseError
from ..lazy_modules import difflib
from .schema import Nodes, below, branches, shared_schema
from .secret_fields import SecretFields, has_secrets, unsaid
from .type_adapters import adapter

T = TypeVar("T")

MAX_INPUT_BYTES = 16 * 1024 * 1024
"""What `parse` reads at most unless told otherwise."""


@lru_cache(maxsize=4096)
def _validator(cls: Any) -> Callable[..., Any]:
    return adapter(cls).validator.validate_json


def parse(
    cls: type[T],
    data: str | bytes | Mapping[str, Any],
    *,
    extra: Literal["forbid", "ignore"] = "forbid",
    max_bytes: int | None = MAX_INPUT_BYTES,
) -> T:
    """Make a `cls` of JSON text, UTF-8 bytes or a mapping, strictly: nothing is coerced.

    A mapping passes the same checks as its JSON text. `ParseError` holds all failures; `SchemaError` says that
    `cls` itself cannot be parsed into. `extra="ignore"` drops unknown keys instead of refusing them. Of duplicate
    keys the last wins.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Search:
    ...     query: str
    ...     limit: int = 10
    >>> parse(Search, '{"query": "tea"}')
    Search(query='tea', limit=10)
    >>> parse(Search, {"query": "tea", "limit": "5"})
    Traceback (most recent call last):
    ...
    weakincentives.errors.ParseError: limit: Expected type integer, got string '5'
    """
    text = data if isinstance(data, str | bytes) else _text_of(data)
    if max_bytes is not None and len(text) > max_bytes:
        raise ParseError([Failure("", f"Input is too long: {len(text)} bytes, at most {max_bytes} are read")])
    validate = _validator(cls)
    try:
        parsed = validate(text, strict=True, extra=extra)
    except Exception as error:  # noqa: BLE001 - raised again, explained
        _refuse(error, cls, text, extra)
    if _is_open(cls) and _may_have_endless_numbers(text):
        sent = from_json(text)
        if not _all_finite(sent):
            raise ParseError(list(_not_finite(sent, "")))
    return parsed


def parser(cls: type[T]) -> Callable[[str | bytes | Mapping[str, Any]], T]:
    """`parse` for one type, looked up once: for what is parsed again and again. `SchemaError` as `parse`."""
    validate, is_open = _validator(cls), _is_open(cls)

    def parse_one(data: str | bytes | Mapping[str, Any]) -> T:
        if not is_open and type(data) is str and len(data) <= MAX_INPUT_BYTES:
            try:
                return validate(data, strict=True, extra="forbid")
            except Exception as error:  # noqa: BLE001 - raised again, explained
                _refuse(error, cls, data, "forbid")
        return parse(cls, data)

    return parse_one


def _refuse(error: Exception, cls: Any, text: str | bytes, extra: Literal["forbid", "ignore"]) -> NoReturn:
    """Raise `ParseError` for what a validator raised."""
    if isinstance(error, ValidationError):
        raise ParseError(explain(error, cls, text, extra=extra)) from None
    # A `__post_init__` or validator of the user's raised.
    raise ParseError([Failure("", unsaid(cls, str(error), text) or type(error).__name__)]) from error


@lru_cache(maxsize=4096)
def _is_open(cls: Any) -> bool:
    """Whether something in the type takes any value: pydantic checks no number there."""
    return _has_any(adapter(cls).core_schema)


def _has_any(part: object) -> bool:
    if isinstance(part, Mapping):
        schema = cast(Mapping[str, object], part)
        return schema.get("type") == "any" or any(map(_has_any, schema.values()))
    return isinstance(part, list | tuple) and any(map(_has_any, cast("list[object]", part)))


_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_MARKS = (b"NaN", b"Infinity", b"0e000", b"0e+000", b"0" * 200)
"""What stands in every text with a number that is not finite, once digits look alike.

A number is too large for a float with 200 digits before its exponent, or an exponent of three digits, or not at all.
"""


def _may_have_endless_numbers(text: str | bytes) -> bool:
    """False when all numbers in valid JSON text are finite: looking for marks takes a tenth of reading it again."""
    shape = (text.encode() if isinstance(text, str) else text).translate(_ALIKE)
    return any(mark in shape for mark in _MARKS)


def _all_finite(value: Any) -> bool:
    """Whether JSON has a form for every number in JSON data."""
    containers: list[Any] = [[value]]
    for items in containers:  # grows while it is read
        for item in items:
            kind = type(item)  # pyright: ignore[reportUnknownVariableType]
            if kind is float:
                if not isfinite(item):
                    return False
            elif kind is dict:
                containers.append(item.values())
            elif kind is list:
                containers.append(item)
    return True


def _not_finite(value: Any, path: str) -> Iterator[Failure]:
    """Numbers that JSON has no form for, although its parser takes them."""
    if isinstance(value, float) and not isfinite(value):
        yield Failure(path, f"Expected a finite number, got number {value}")
    elif isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            yield from _not_finite(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _not_finite(item, f"{path}[{index}]")


def _text_of(data: object) -> str:
    try:
        return json.dumps(data, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise ParseError([Failure("", f"Not JSON data: {error}")]) from None


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    raise TypeError(f"a {type(value).__name__} is not JSON; use text, numbers, booleans, null, arrays and objects")


# From pydantic's errors to failures.


_encode = json.JSONEncoder(ensure_ascii=False).encode

_MAX_DETAILS = 20
_MAX_ERRORS = 1000  # above this, listing them costs seconds and gigabytes
_MAX_ITEMS = 100

_TYPES = {
    "int": "integer", "float": "number", "string": "string", "bool": "boolean", "bytes": "string",
    "list": "array", "tuple": "array", "set": "array", "frozen_set": "array", "iterable": "array",
    "dict": "object", "mapping": "object", "dataclass": "object", "model": "object", "model_attributes": "object",
}  # fmt: skip
_FORMS = {
    "datetime": "a date and time such as 2025-01-31T12:00:00Z", "date": "a date such as 2025-01-31",
    "time": "a time such as 12:00:00", "time_delta": "a duration such as PT1H30M", "uuid": "a UUID",
    "decimal": "a decimal number", "path": "a path", "url": "a URL", "complex": "a complex number",
    "timezone": "a time zone", "finite_number": "a finite number", "none_required": "null",
    "int_parsing_size": "an integer of at most 4300 digits",
}  # fmt: skip
_LIMITS = {
    "greater_than": "Must be greater than {gt}", "greater_than_equal": "Must be at least {ge}",
    "less_than": "Must be less than {lt}", "less_than_equal": "Must be at most {le}",
    "multiple_of": "Must be a multiple of {multiple_of}",
    "string_too_short": "Must have at least {min_length} characters",
    "string_too_long": "Must have at most {max_length} characters",
    "string_pattern_mismatch": "Must match the pattern {pattern}",
    "too_short": "Must have at least {min_length} items", "too_long": "Must have at most {max_length} items",
}  # fmt: skip
_SUFFIX = re.compile(r"_(type|parsing|exact_type|sub_type|from_float|from_datetime_parsing)$")

_UNKNOWN = frozenset({"unexpected_keyword_argument", "extra_forbidden"})

_Errors = list[tuple[tuple[int | str, ...], ErrorDetails]]
_Pending = Callable[[], Failure]


class _Explained(Sequence[Failure]):
    """Failures, each put into words when it is read: of a thousand a model is told twenty."""

    def __init__(self, pending: Iterable[_Pending]) -> None:
        self._pending = list(pending)

    def __len__(self) -> int:
        return len(self._pending)

    @overload
    def __getitem__(self, index: int) -> Failure: ...
    @overload
    def __getitem__(self, index: slice) -> list[Failure]: ...
    def __getitem__(self, index: int | slice) -> Failure | list[Failure]:
        if isinstance(index, slice):
            return [put_into_words() for put_into_words in self._pending[index]]
        return self._pending[index]()


def explain(
    error: ValidationError, cls: Any, text: str | bytes, *, extra: Literal["forbid", "ignore"]
) -> Sequence[Failure]:
    """Everything wrong with `text`, in the order of the input."""
    if error.error_count() > _MAX_ERRORS:
        return _explain_part(error.error_count(), cls, text, extra)
    errors = error.errors(include_url=False)
    if errors[0]["type"] == "json_invalid":
        return [Failure("", f"Invalid JSON: {errors[0].get('ctx', {}).get('error', 'not JSON')}")]
    if errors[0]["type"] == "string_unicode" and not errors[0]["loc"]:
        return [Failure("", "Invalid text: it is not Unicode (half of a surrogate pair, or bytes that are not UTF-8)")]
    root = shared_schema(cls)
    walker = _Walker(root.get("$defs", {}), has_secrets=has_secrets(cls))
    return _Explained(walker.failures([(e["loc"], e) for e in errors], from_json(text), (), [root]))


def error_text(error: ParseError, subject: str) -> str:
    """The failures as JSON text for the model: `{"error": "Invalid parameters for <subject>", "details": {...}}`."""
    details: dict[str, str] = {}
    for failure in error.found[:_MAX_DETAILS]:
        path = failure.path or "arguments"
        details[path] = f"{details[path]}; {failure.text}" if path in details else failure.text
    if len(error.found) > _MAX_DETAILS:
        details["..."] = f"{len(error.found) - _MAX_DETAILS} more problems"
    return _encode({"error": f"Invalid parameters for {subject}", "details": details})


def _explain_part(count: int, cls: Any, text: str | bytes, extra: Literal["forbid", "ignore"]) -> Sequence[Failure]:
    """Explain a flood of errors by those in the first items of each list."""
    shortened = to_json(_shorten(from_json(text)))
    more = Failure("", f"{count} problems in all; these are the first")
    try:
        adapter(cls).validator.validate_json(shortened, strict=True, extra=extra)
    except ValidationError as error:
        if error.error_count() <= _MAX_ERRORS:
            found = explain(error, cls, shortened, extra=extra)
            return _Explained([lambda: more, *(partial(getitem, found, index) for index in range(len(found)))])
    return [Failure("", f"{count} problems in all, too many to list")]


def _shorten(value: Any) -> Any:
    if isinstance(value, list):
        return [_shorten(item) for item in cast(list[Any], value)[:_MAX_ITEMS]]
    if isinstance(value, dict):
        pairs = list(cast(dict[str, Any], value).items())[:_MAX_ITEMS]
        return {key: _shorten(item) for key, item in pairs}
    return value


class _Walker:
    """Follows the errors' locations through the input and the schema at once.

    pydantic puts the label of a union's member into a location; it is told from a key or index by not being in the
    input. Each failure is a function that puts it into words.
    """

    def __init__(self, definitions: Mapping[str, Any], *, has_secrets: bool) -> None:
        self._definitions = definitions
        self._secrets = SecretFields(definitions) if has_secrets else None

    def failures(self, errors: _Errors, value: Any, path: tuple[str, ...], nodes: Nodes) -> Iterator[_Pending]:
        secrets = self._secrets if self._secrets and self._secrets.among(nodes) else None
        nodes = branches(nodes, self._definitions)
        inner: dict[int | str, _Errors] = {}
        members: dict[int | str, _Errors] = {}
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        keys: Mapping[Any, Any] = value if kind is dict else {}
        length = len(value) if kind is list else 0
        for loc, error in errors:
            is_inside = bool(loc) and (loc[0] in keys or (isinstance(loc[0], int) and loc[0] < length))
            if secrets and not is_inside and len(loc) < 2:
                error = _hidden(error, secrets, value, nodes)
            if not loc:
                yield partial(_leaf, error, path, nodes)
            elif loc[0] == "[key]":
                yield partial(_wrong_key, error, path, nodes)
            elif is_inside:
                inner.setdefault(loc[0], []).append((loc[1:], error))
            elif error["type"] == "missing" and len(loc) == 1:
                yield partial(_missing, loc[0], path, branches(below(nodes, loc[0]), self._definitions))
            else:
                members.setdefault(loc[0], []).append((loc[1:], error))
        if members:
            yield from self._union(list(members.values()), value, path, nodes)
        for key, found in inner.items():
            if found[0][1]["type"] in _UNKNOWN and all(not loc and e["type"] in _UNKNOWN for loc, e in found):
                yield partial(_unexpected, str(key), _Hidden(value[key]) if secrets else value[key], path, nodes)
            elif len(found) == 1:  # one error is one failure, wherever it leads
                yield partial(self._follow, key, found, value, path, nodes)
            else:
                yield from self._below(key, found, value, path, nodes)

    def _follow(self, key: int | str, errors: _Errors, value: Any, path: tuple[str, ...], nodes: Nodes) -> Failure:
        return next(self._below(key, errors, value, path, nodes))()

    def _below(
        self, key: int | str, errors: _Errors, value: Any, path: tuple[str, ...], nodes: Nodes
    ) -> Iterator[_Pending]:
        return self.failures(errors, value[key], (*path, _clip(str(key), 80)), below(nodes, key))

    def _union(self, members: list[_Errors], value: Any, path: tuple[str, ...], nodes: Nodes) -> Iterator[_Pending]:
        entered = [errors for errors in members if all(loc for loc, _ in errors)]
        if not entered:
            yield partial(_alternatives, [error for errors in members for _, error in errors], path, nodes)
            return
        tagged = [_wrong_tags(errors) for errors in entered]
        shared = [key for key in tagged[0] if all(key in tags for tags in tagged)]
        if shared:  # no member has that tag: list the tags there are
            key = shared[0]
            yield partial(_one_of, tagged[0][key], (*path, key), below(nodes, key))
            return
        best = min(zip(tagged, entered, strict=True), key=lambda pair: (len(pair[0]), len(pair[1])))[1]
        yield from self.failures(best, value, path, nodes)


class _Hidden:
    """Stands for a value that may hold a secret: only its kind is told."""

    def __init__(self, value: Any) -> None:
        self.kind = "integer" if type(value) is int else describe(value).split(" ", 1)[0]


def _hidden(error: ErrorDetails, secrets: SecretFields, value: Any, nodes: Nodes) -> ErrorDetails:
    """The error without what came, and what its validator says without the secrets in it."""
    context = dict(error.get("ctx", {}))
    if "error" in context:
        context["error"] = secrets.unsaid(str(context["error"]), value, nodes)
    return {**error, "input": _Hidden(error["input"]), "ctx": context}


def _wrong_tags(errors: _Errors) -> dict[str, ErrorDetails]:
    return {str(loc[0]): error for loc, error in errors if len(loc) == 1 and error["type"] == "literal_error"}


def _wrong_key(error: ErrorDetails, path: tuple[str, ...], nodes: Nodes) -> Failure:
    failure = _leaf(error, path, nodes)
    return replace(failure, text=f"Wrong key: {failure.text}")


def _leaf(error: ErrorDetails, path: tuple[str, ...], nodes: Nodes) -> Failure:
    kind, context = error["type"], error.get("ctx", {})
    got = describe(error["input"])
    if kind in {"literal_error", "enum"}:
        return _one_of(error, path, nodes)
    if kind in _LIMITS:
        expected = _LIMITS[kind].format_map(context)
        return Failure(_dotted(path), f"{expected}, got {got}", expected, got)
    if kind in {"value_error", "assertion_error"}:
        return Failure(_dotted(path), _clip(str(context.get("error") or "Not a valid value"), 500), None, got)
    expected = _expected(error)
    return Failure(_dotted(path), f"Expected {expected}, got {got}", expected, got)


def _expected(error: ErrorDetails) -> str:
    kind = error["type"]
    stem = _SUFFIX.sub("", kind)
    if kind in _FORMS or stem in _FORMS:
        return _FORMS.get(kind) or _FORMS[stem]
    if stem in _TYPES:
        return f"type {_TYPES[stem]}"
    family = next((form for name, form in _FORMS.items() if kind.startswith(f"{name}_")), None)
    return family or re.sub(r"^Input should (be )?", "", error["msg"])


def _alternatives(errors: Iterable[ErrorDetails], path: tuple[str, ...], nodes: Nodes) -> Failure:
    leaves = [_leaf(error, path, nodes) for error in errors]
    wanted = [leaf for leaf in leaves if leaf.text.startswith(("Must ", _dotted(path) or "value"))]
    if wanted:  # right type, wrong value: say what is wrong with the value
        return wanted[0]
    names = list(dict.fromkeys(leaf.expected or leaf.text for leaf in leaves))
    expected = names[0] + "".join(f" or {name.removeprefix('type ')}" for name in names[1:])
    return Failure(_dotted(path), f"Expected {expected}, got {leaves[0].got}", expected, leaves[0].got)


def _one_of(error: ErrorDetails, path: tuple[str, ...], nodes: Nodes) -> Failure:
    allowed = [str(value) for node in nodes for value in node.get("enum", [node["const"]] if "const" in node else [])]
    if not allowed:
        allowed = [str(error.get("ctx", {}).get("expected", ""))]
    expected = f"one of: {', '.join(dict.fromkeys(allowed))}"
    return Failure(_dotted(path), f"{_dotted(path) or 'value'} must be {expected}", expected, describe(error["input"]))


def _missing(key: int | str, path: tuple[str, ...], nodes: Nodes) -> Failure:
    types = list(dict.fromkeys(str(node["type"]) for node in nodes if "type" in node))
    expected = f"type {' or '.join(types)}" if types else "a value"
    what = "item" if isinstance(key, int) else "field"
    return Failure(_dotted((*path, str(key))), f"Missing required {what}, expected {expected}", expected, None)


def _unexpected(key: str, value: Any, path: tuple[str, ...], nodes: Nodes) -> Failure:
    known = {name: None for node in nodes for name in node.get("properties", {})}
    near = _nearest(key[:100], known)
    hint = f"did you mean '{near}'?" if near else f"known fields: {', '.join(known) or 'none'}"
    return Failure(_dotted((*path, _clip(key, 80))), f"Unknown field; {hint}", None, describe(value))


def _nearest(word: str, names: Iterable[str]) -> str | None:
    # `get_close_matches` takes long, and finds nothing where fewer than 0.6 of the letters are in both.
    in_word = frozenset(word).__contains__
    alike = [name for name in names if 10 * sum(map(in_word, name)) >= 3 * (len(name) + len(word))]
    return next(iter(difflib.get_close_matches(word, alike, n=1)), None) if alike else None


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path)


def describe(value: Any) -> str:
    """JSON's name for a value and the value itself, clipped: `string 'ten'`."""
    if value is None:
        return "null"
    if isinstance(value, _Hidden):
        return value.kind
    if isinstance(value, bool):
        return f"boolean {'true' if value else 'false'}"
    if isinstance(value, str):
        return f"string {_clip(value, 60)!r}"
    if isinstance(value, int):
        return f"integer {value}" if abs(value) < 10**30 else "a very large integer"
    if isinstance(value, float):
        return f"number {value}"
    return "array" if isinstance(value, list | tuple | set | frozenset) else "object"


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
