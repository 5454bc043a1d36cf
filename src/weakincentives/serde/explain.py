"""From pydantic's errors to words a model can act on: what was expected, what came, what to use instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Literal, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json, to_json

from ..errors import Failure, ParseError
from .schema import Nodes, below, branches, shared_schema
from .secret_fields import SecretFields, has_secrets
from .type_adapters import adapter

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

_Errors = list[tuple[tuple[int | str, ...], ErrorDetails]]


def explain(
    error: ValidationError, cls: Any, text: str | bytes, *, extra: Literal["forbid", "ignore"]
) -> list[Failure]:
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
    return list(walker.failures([(e["loc"], e) for e in errors], from_json(text), (), [root]))


def error_text(error: ParseError, subject: str) -> str:
    """The failures as JSON text for the model: `{"error": "Invalid parameters for <subject>", "details": {...}}`."""
    details: dict[str, str] = {}
    for failure in error.failures[:_MAX_DETAILS]:
        path = failure.path or "arguments"
        details[path] = f"{details[path]}; {failure.text}" if path in details else failure.text
    if len(error.failures) > _MAX_DETAILS:
        details["..."] = f"{len(error.failures) - _MAX_DETAILS} more problems"
    return json.dumps({"error": f"Invalid parameters for {subject}", "details": details}, ensure_ascii=False)


def _explain_part(count: int, cls: Any, text: str | bytes, extra: Literal["forbid", "ignore"]) -> list[Failure]:
    """Explain a flood of errors by those in the first items of each list."""
    shortened = to_json(_shorten(from_json(text)))
    more = Failure("", f"{count} problems in all; these are the first")
    try:
        adapter(cls).validator.validate_json(shortened, strict=True, extra=extra)
    except ValidationError as error:
        if error.error_count() <= _MAX_ERRORS:
            return [more, *explain(error, cls, shortened, extra=extra)]
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
    input.
    """

    def __init__(self, definitions: Mapping[str, Any], *, has_secrets: bool) -> None:
        self._definitions = definitions
        self._secrets = SecretFields(definitions) if has_secrets else None

    def failures(self, errors: _Errors, value: Any, path: tuple[str, ...], nodes: Nodes) -> Iterator[Failure]:
        secrets = self._secrets if self._secrets and self._secrets.among(nodes) else None
        nodes = list(branches(nodes, self._definitions))
        inner: dict[int | str, _Errors] = {}
        members: dict[int | str, _Errors] = {}
        for loc, error in errors:
            if secrets and (not loc or (len(loc) == 1 and not _has(value, loc[0]))):
                error = _hidden(error, secrets, value, nodes)
            if not loc:
                yield _leaf(error, path, nodes)
            elif loc[0] == "[key]":
                yield _wrong_key(_leaf(error, path, nodes))
            elif _has(value, loc[0]):
                inner.setdefault(loc[0], []).append((loc[1:], error))
            elif error["type"] == "missing" and len(loc) == 1:
                yield _missing(loc[0], path, list(branches(below(nodes, loc[0]), self._definitions)))
            else:
                members.setdefault(loc[0], []).append((loc[1:], error))
        if members:
            yield from self._union(list(members.values()), value, path, nodes)
        for key, found in inner.items():
            if all(not loc and e["type"] in {"unexpected_keyword_argument", "extra_forbidden"} for loc, e in found):
                yield _unexpected(str(key), _Hidden(value[key]) if secrets else value[key], path, nodes)
            else:
                yield from self.failures(found, value[key], (*path, _clip(str(key), 80)), below(nodes, key))

    def _union(self, members: list[_Errors], value: Any, path: tuple[str, ...], nodes: Nodes) -> Iterator[Failure]:
        entered = [errors for errors in members if all(loc for loc, _ in errors)]
        if not entered:
            yield _alternatives([error for errors in members for _, error in errors], path, nodes)
            return
        tagged = [_wrong_tags(errors) for errors in entered]
        shared = [key for key in tagged[0] if all(key in tags for tags in tagged)]
        if shared:  # no member has that tag: list the tags there are
            key = shared[0]
            yield _one_of(tagged[0][key], (*path, key), below(nodes, key))
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


def _has(value: Any, key: int | str) -> bool:
    if isinstance(value, dict):
        return key in value
    return isinstance(value, list) and isinstance(key, int) and key < len(cast(list[Any], value))


def _wrong_tags(errors: _Errors) -> dict[str, ErrorDetails]:
    return {str(loc[0]): error for loc, error in errors if len(loc) == 1 and error["type"] == "literal_error"}


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


def _wrong_key(failure: Failure) -> Failure:
    return replace(failure, text=f"Wrong key: {failure.text}")


def _missing(key: int | str, path: tuple[str, ...], nodes: Nodes) -> Failure:
    types = list(dict.fromkeys(str(node["type"]) for node in nodes if "type" in node))
    expected = f"type {' or '.join(types)}" if types else "a value"
    what = "item" if isinstance(key, int) else "field"
    return Failure(_dotted((*path, str(key))), f"Missing required {what}, expected {expected}", expected, None)


def _unexpected(key: str, value: Any, path: tuple[str, ...], nodes: Nodes) -> Failure:
    known = list(dict.fromkeys(name for node in nodes for name in node.get("properties", {})))
    near = get_close_matches(key[:100], known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known fields: {', '.join(known) or 'none'}"
    return Failure(_dotted((*path, _clip(key, 80))), f"Unknown field; {hint}", None, describe(value))


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


__all__ = ["describe", "error_text", "explain"]
