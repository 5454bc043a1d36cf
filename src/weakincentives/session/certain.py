"""Which values are certain to load as they were saved: known from their types, without reading them back.

It holds where a class declares nothing but plain types, and the value has exactly those. Every schema that is not
listed here (a validator, a serialiser, a limit, a union) says nothing; such a value is read again to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import isdatadescriptor, ismemberdescriptor
from math import isfinite
from operator import attrgetter, contains
from types import NoneType
from typing import Any

from ..budget import TokenUsage
from ..run_context import RunContext

Path = tuple[str | int, ...]
Places = list[tuple[Path, Any]]
"""Where a class leaves the type open, and what stands there."""
Keeper = Callable[[Any, Path, Places], bool]
"""Whether the parts of a value come back as they are, apart from those in open places, which are added to the list."""
_Kinds = frozenset[type[Any]]
_Kept = tuple[_Kinds | None, Keeper | _Kinds | None]
"""The types that come back, None for any; and what looks at the parts of a value of one of them, if they have some.

For a list or tuple of values without parts that is simply the types of its items.
"""

_LEAVES: Mapping[str, type[Any]] = {"str": str, "int": int, "bool": bool, "none": NoneType}
_KEYS: Mapping[str, str] = {
    **dict.fromkeys((*_LEAVES, "float", "any"), ""),
    "nullable": "schema",
    "default": "schema default default_factory default_factory_takes_data",
    "literal": "expected",
    "list": "items_schema",
    "tuple": "items_schema variadic_item_index",
    "dict": "keys_schema values_schema",
    "definition-ref": "schema_ref",
    "dataclass": "cls fields schema config post_init frozen slots ref generic_origin",
    "dataclass-args": "dataclass_name fields computed_fields collect_init_only",
    "dataclass-field": "name schema kw_only init validation_alias serialization_alias",
}
"""What a core schema may say besides its type. Anything else may change a value."""
_TEXT = frozenset({str})
_ANY = {"type": "any"}
_ONLY_CHECKING = frozenset({RunContext, TokenUsage})
"""Classes whose `__post_init__` changes nothing: a value that has passed it passes again."""


class _NotCertainError(Exception):
    """A schema that is not known to keep its values."""


def keeper_of(cls: type[Any], schema: Mapping[str, Any]) -> Keeper | None:
    """What looks at the values of a class that has this core schema; None when nothing is known of them."""
    definitions: dict[str, Any] = {}
    if schema["type"] == "definitions":
        definitions = {part["ref"]: part for part in schema["definitions"]}
        schema = schema["schema"]
    try:
        kinds, keeper = _kept(schema, definitions)
    except _NotCertainError:
        return None
    return _looking(keeper) if kinds == frozenset({cls}) else None


def leaves_of(cls: type[Any], schema: Mapping[str, Any]) -> Mapping[str, _Kinds] | None:
    """The types that the fields of a dataclass may have, if values of these have no parts and always come back.

    None for every other class. Many values can be checked by it at once, field by field.
    """
    try:
        if schema["type"] != "dataclass" or schema["cls"] is not cls:
            return None
        kept = _fields_of(schema, {})
    except _NotCertainError:
        return None
    leaves = {name: kinds for name, (kinds, keeper) in kept.items() if kinds is not None and keeper is None}
    return leaves if len(leaves) == len(kept) else None


def _kept(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> _Kept:
    kind = _known_type(schema)
    if kind in _LEAVES:
        return frozenset({_LEAVES[kind]}), None
    if kind == "float":
        return frozenset({float}), _finite
    if kind == "any":
        return None, _open_place
    if kind == "default":
        return _kept(schema["schema"], definitions)
    if kind == "nullable":
        kinds, keeper = _kept(schema["schema"], definitions)
        return None if kinds is None else kinds | {NoneType}, keeper
    if kind == "literal":
        texts = frozenset(item for item in schema["expected"] if type(item) is str)
        return _TEXT, lambda value, _path, _places: value in texts
    if kind == "dict" and schema.get("keys_schema", _ANY) in ({"type": "str"}, _ANY):
        return frozenset({dict}), _dict(_kept(schema.get("values_schema", _ANY), definitions))
    if kind == "list":
        return frozenset({list}), _sequence(_kept(schema.get("items_schema", _ANY), definitions))
    if kind == "tuple" and schema.get("variadic_item_index") == 0 and len(schema["items_schema"]) == 1:
        return frozenset({tuple}), _sequence(_kept(schema["items_schema"][0], definitions))
    if kind == "dataclass":
        return frozenset({schema["cls"]}), _dataclass(schema, definitions)
    if kind == "definition-ref" and schema["schema_ref"] in definitions:
        # Without itself, so that a class that contains itself is not followed for ever: nothing is known of it.
        others = {ref: part for ref, part in definitions.items() if ref != schema["schema_ref"]}
        return _kept(definitions[schema["schema_ref"]], others)
    raise _NotCertainError


def _known_type(schema: Mapping[str, Any]) -> str:
    kind: str = schema["type"]
    if kind not in _KEYS or not schema.keys() <= {"type", "metadata", *_KEYS[kind].split()}:
        raise _NotCertainError
    return kind


def _finite(value: Any, _path: Path, _places: Places) -> bool:
    return isfinite(value)  # pydantic writes the others as null where no float is declared


def _open_place(value: Any, path: Path, places: Places) -> bool:
    places.append((path, value))
    return True


def _sequence(inner: _Kept) -> Keeper | _Kinds:
    kinds, keeper = inner[0], _looking(inner[1])
    if keeper is None:
        return kinds or frozenset()

    def keeps(value: Any, path: Path, places: Places) -> bool:
        return not value or (
            (kinds is None or kinds.issuperset(map(type, value)))
            and all(item is None or keeper(item, (*path, index), places) for index, item in enumerate(value))
        )

    return keeps


def _dict(inner: _Kept) -> Keeper:
    kinds, keeper = inner[0], _looking(inner[1])

    def keeps(value: Any, path: Path, places: Places) -> bool:
        return (
            _TEXT.issuperset(map(type, value))
            and all(map(str.isascii, value))  # half of a surrogate pair would be another key
            and (kinds is None or kinds.issuperset(map(type, value.values())))
            and (
                keeper is None or all(item is None or keeper(item, (*path, key), places) for key, item in value.items())
            )
        )

    return keeps


def _looking(keeper: Keeper | _Kinds | None) -> Keeper | None:
    if not isinstance(keeper, frozenset):
        return keeper
    return lambda value, _path, _places: keeper.issuperset(map(type, value))


def _fields_of(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, _Kept]:
    """What is known of the fields of a dataclass."""
    cls: type[Any] = schema["cls"]
    _known_type(schema)
    arguments = schema["schema"]
    if _known_type(arguments) != "dataclass-args" or arguments.get("computed_fields"):
        raise _NotCertainError
    if not schema.get("config", {}).keys() <= {"title"} or (schema.get("post_init") and cls not in _ONLY_CHECKING):
        raise _NotCertainError
    kept: dict[str, _Kept] = {}
    for field in arguments["fields"]:
        if _known_type(field) != "dataclass-field" or field.get("init") is False:
            raise _NotCertainError
        kept[field["name"]] = _kept(field["schema"], definitions)
    if list(kept) != [field.name for field in fields(cls)] or not _is_made_as_usual(cls, kept):
        raise _NotCertainError
    return kept


def _dataclass(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Keeper:
    cls: type[Any] = schema["cls"]
    kept = _fields_of(schema, definitions)
    keepers = [(name, keeper) for name, (_, keeper) in kept.items() if callable(keeper)]
    lists = [(name, items) for name, (_, items) in kept.items() if items is not None and not callable(items)]
    typed = [(name, kinds) for name, (kinds, _) in kept.items() if kinds is not None]
    while len(typed) < 2:  # of a single name, `attrgetter` gives no tuple
        typed.append(("__class__", frozenset({type(cls)})))
    parts_of = attrgetter(*(name for name, _ in typed))
    kinds_of_parts = tuple(kinds for _, kinds in typed)
    usual: tuple[type[Any], ...] = ()  # the types of the last value that passed; most have the same

    def keeps(value: Any, path: Path, places: Places) -> bool:
        nonlocal usual
        types: tuple[type[Any], ...] = tuple(map(type, parts_of(value)))
        if types != usual:
            if not all(map(contains, kinds_of_parts, types)):
                return False
            usual = types
        for name, kinds in lists:
            items = getattr(value, name)
            if items and not kinds.issuperset(map(type, items)):
                return False
        for name, keeper in keepers:
            part = getattr(value, name)
            if part is not None and not keeper(part, (*path, name), places):
                return False
        return True

    return keeps


def _is_made_as_usual(cls: Any, names: Mapping[str, Any]) -> bool:
    """Whether pydantic, which calls `__new__` and then sets the attributes, makes what it was told to."""
    attributes = [getattr(cls, name, None) for name in names]
    if any(isdatadescriptor(item) and not ismemberdescriptor(item) for item in attributes):
        return False
    try:
        return cls.__getattribute__ is object.__getattribute__ and type(cls.__new__(cls)) is cls
    except Exception:  # noqa: BLE001 - it is users' code
        return False
