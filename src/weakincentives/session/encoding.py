"""Values to JSON data and back; checked when saving that they will load as they were.

Pydantic writes and reads what a class declares. What a class leaves open (a field of type `object`, a subclass in
the place of its base) would come back as a bare dict, so it is found by comparing, and written once more as a patch
with its own type's name. A value that still does not come back equal is refused when it is saved, not when
it is needed. Reading it again to find out is left out where its types are proof enough (`certain`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from types import NoneType
from typing import Any, cast, final
from uuid import UUID

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import PydanticSerializationError

from ..errors import SessionFormatError
from .certain import Keeper, Path, Places, keeper_of, leaves_of

Encoded = tuple[Any, list[Any]]
"""JSON data and the patches to it."""


@final
@dataclass(frozen=True, slots=True)
class OpaqueValue:
    """Stands in a loaded session for a value that could not be saved: the name of its class is all that is left."""

    type_name: str


def type_name(cls: type[object]) -> str:
    """How a class is named in saved text."""
    return f"{cls.__module__}:{cls.__qualname__}"


_MOVED: Mapping[str, str] = {
    "weakincentives.contrib.evaluation.protocol": "weakincentives.contrib.code.protocol",
    "weakincentives.contrib.evaluation.tool": "weakincentives.contrib.code.tool",
    "weakincentives.contrib.tools.digest.digest": "weakincentives.contrib.digest.digest",
    "weakincentives.contrib.planning.changes": "weakincentives.contrib.planning.plan",
    "weakincentives.contrib.tools.planning.changes": "weakincentives.contrib.planning.plan",
    "weakincentives.contrib.tools.planning.plan": "weakincentives.contrib.planning.plan",
    "weakincentives.prompt.disclosure": "weakincentives.prompt.render",
    "weakincentives.runtime.cuts": "weakincentives.runtime.truncation",
}
"""Modules that text saved by 0.1 names, and where their classes are now. Sessions and ledgers outlive releases."""


def present_name(name: str) -> str:
    """The name that a class has today, for one that an earlier release wrote down."""
    module, colon, path = name.partition(":")
    return f"{_MOVED.get(module, module)}{colon}{path}"


class_of: Callable[[object], type[Any]] = type
"""The class of a value of which nothing is known."""

_fields_of = lru_cache(maxsize=512)(fields)


_PLAIN: tuple[type[Any], ...] = (
    *(bool, int, float, str, bytes, tuple, list, dict, set, frozenset),
    *(datetime, date, time, timedelta, Decimal, UUID),
    OpaqueValue,
)

_PLAIN_SCALARS = frozenset({bool, int, float, str, bytes, NoneType})

PLAIN_TYPES: Mapping[str, type[Any]] = {type_name(cls): cls for cls in _PLAIN}
"""Types that may stand in an open field without being named in `types=`."""


@lru_cache(maxsize=512)
def adapter_of(cls: type[Any]) -> TypeAdapter[Any]:
    """Pydantic's adapter of a class. Raises SessionFormatError for a class it cannot handle."""
    try:
        return TypeAdapter(cls)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise SessionFormatError(
            f"{type_name(cls)} cannot be saved: {first_line(error)}. "
            "Hold plain data in it: a dataclass of JSON-like fields."
        ) from error


def encode(value: Any) -> Encoded:
    """The value as JSON data with patches. Raises SessionFormatError when it would not come back equal."""
    data, patches, _ = _encode(value, _open_places(value))
    return data, patches


def encode_all(cls: type[Any], items: Sequence[Any]) -> list[Any] | None:
    """The data of many items, all of this class, that come back without patches; None when that is not certain.

    It is what `encode` gives for each of them, and takes a fraction of the time.
    """
    leaves = _leaves(cls)
    if leaves is None or not frozenset({cls}).issuperset(map(type, items)):
        return None
    if not all(kinds.issuperset(map(type, map(attrgetter(name), items))) for name, kinds in leaves.items()):
        return None
    try:
        return _dump(list[cls], list(items))
    except SessionFormatError:  # said of the one item that it is about
        return None


def comes_back(value: Any) -> bool:
    """Whether the types of the value are proof that its JSON gives an equal one; False when that is not known."""
    return _open_places(value) == []


def decode(cls: type[Any], data: Any, patches: list[Any], find: Callable[[str], type[Any]]) -> Any:
    """The value that `encode` wrote; `find` gives the class of a name or raises SessionFormatError."""
    for path, name, part_data, part_patches in patches:
        _put(data, path, decode(find(name), part_data, part_patches, find))
    try:
        return adapter_of(cls).validator.validate_python(data, by_name=True, by_alias=False)
    except ValidationError as error:
        raise SessionFormatError(f"The data does not fit {type_name(cls)}: {_explain(error)}.") from error


def _encode(value: Any, open_places: Places | None) -> tuple[Any, list[Any], Any]:
    """The data, the patches, and what comes back from them."""
    cls = class_of(value)
    data = _dump(cls, value)
    if open_places is not None:
        return data, _patch_open_places(data, open_places), value
    loaded = decode(cls, data, [], _unknown)
    differences = list(_differences(value, loaded, ()))
    if not differences:
        return data, [], loaded
    patches: list[Any] = []
    patched = _dump(cls, value)
    for path, part in differences:
        if not path:
            raise SessionFormatError(f"A {type_name(cls)} cannot be saved: it would not load as it was.")
        part_data, part_patches, part_back = _encode(part, _open_places(part))
        patches.append([list(path), type_name(class_of(part)), part_data, part_patches])
        _put(data, path, None)
        _put(patched, path, part_back)
    back = decode(cls, patched, [], _unknown)
    for path, part in _differences(value, back, ()):
        raise SessionFormatError(
            f"A {type_name(cls)} cannot be saved: {_dotted(path)} holds a {type(part).__qualname__}, "
            "which its declared type does not keep."
        )
    return data, patches, back


def _open_places(value: Any) -> Places | None:
    """The open places of a value that comes back for certain but for them; None when that is not known."""
    keeps = _keeper(class_of(value))
    places: Places = []
    return places if keeps is not None and keeps(value, (), places) else None


@lru_cache(maxsize=512)
def _keeper(cls: type[Any]) -> Keeper | None:
    try:
        return keeper_of(cls, adapter_of(cls).core_schema)
    except Exception:  # noqa: BLE001 - a class that has no schema; what is wrong with it is said when it is saved
        return None


@lru_cache(maxsize=512)
def _leaves(cls: type[Any]) -> Mapping[str, frozenset[type[Any]]] | None:
    try:
        return leaves_of(cls, adapter_of(cls).core_schema)
    except Exception:  # noqa: BLE001 - as in `_keeper`
        return None


def _patch_open_places(data: Any, places: Places) -> list[Any]:
    """Take out of the data what stands in open places and would be lost: the patches that restore it."""
    # What is read in an open place is the data itself.
    differences = [found for path, part in places for found in _differences(part, _at(data, path), path)]
    patches: list[Any] = []
    for path, part in differences:
        part_data, part_places = _at(data, path), _open_places(part)
        if part_places is None:
            part_data, part_patches, _ = _encode(part, None)
        else:  # plain parts are written alike, whether their class is declared or not
            part_patches = _patch_open_places(part_data, part_places)
        patches.append([list(path), type_name(class_of(part)), part_data, part_patches])
        _put(data, path, None)
    return patches


def _at(data: Any, path: Path) -> Any:
    for key in path:
        data = data[key]
    return data


def _dump(cls: type[Any], value: Any) -> Any:
    try:
        return adapter_of(cls).serializer.to_python(value, mode="json", warnings="none", by_alias=False)
    except (PydanticSerializationError, UnicodeError) as error:  # bytes that are not text, text that is not Unicode
        raise SessionFormatError(f"A {type_name(cls)} cannot be saved: {first_line(error)}.") from error


def _unknown(name: str) -> type[Any]:
    raise SessionFormatError(f"No class for {name}.")  # pragma: no cover - only called for patches


def _differences(saved: Any, loaded: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """The topmost places where something else came back, with what was saved there."""
    if type(saved) is not type(loaded):
        if not _same_plain(saved, loaded):
            yield path, saved
        return
    parts = parts_of(saved)
    if parts is None:
        if not _same_plain(saved, loaded):
            yield path, saved
        return
    others = parts_of(loaded) or {}
    if parts.keys() != others.keys():
        yield path, saved
        return
    for key, part in parts.items():
        if part is not others[key]:  # most text is: Pydantic passes it through
            yield from _differences(part, others[key], (*path, key))


def parts_of(value: Any) -> dict[Any, Any] | None:
    """The parts of a value that has some, by the key they have in saved data: the names of attributes, not aliases."""
    if class_of(value) in _PLAIN_SCALARS:
        return None
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in _fields_of(class_of(value))}
    if isinstance(value, BaseModel):
        return dict(value)
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    if isinstance(value, list | tuple):
        return dict(enumerate(cast("list[Any]", value)))
    return None


def with_parts(value: Any, parts: dict[Any, Any]) -> Any:
    """A copy of a value that has parts (`parts_of`), with these in their place."""
    if isinstance(value, BaseModel):
        return value.model_copy(update=parts)
    if is_dataclass(value):
        made = copy(value)
        for name, part in parts.items():
            object.__setattr__(made, name, part)
        return made
    if isinstance(value, dict):
        return parts
    kind: Any = class_of(value)
    return kind._make(parts.values()) if hasattr(kind, "_make") else kind(parts.values())


def _same_plain(saved: Any, loaded: Any) -> bool:
    # Equality lets 1 come back as 1.0 where a float is declared; the second test is for NaN.
    return bool(saved == loaded) or (loaded != loaded and saved != saved)  # noqa: PLR0124


def _put(data: Any, path: Sequence[str | int], value: Any) -> None:
    try:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value
    except (KeyError, IndexError, TypeError) as error:
        raise SessionFormatError(f"The data has no place {_dotted(path)}.") from error


def _dotted(path: Sequence[str | int]) -> str:
    return ".".join(map(str, path))


def _explain(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{_dotted(p['loc']) or 'the value'}: {p['msg']}" for p in problems[:5])


def first_line(error: Exception) -> str:
    """What an error of pydantic says, without its details."""
    return str(error).partition("\n")[0].rstrip(".")


# Values with `Secret` fields: marks are saved instead of the secrets.


_STARS = "**********"
"""What pydantic writes for a secret: only this comes back as it was."""


def encode_masked(value: Any) -> Encoded:
    """`encode`, with secrets masked: they do not come back, everything else does.

    A model may say how its secrets are written as JSON; they are masked all the same.
    """
    open_places = _open_places(value)
    if open_places is None or any(masked(part, (id(value),)) is not part for _, part in open_places):
        value = masked(value)
        open_places = _open_places(value)
    data, patches, _ = _encode(value, open_places)
    return data, patches


def masked(value: Any, above: tuple[int, ...] = ()) -> Any:
    """The value itself when there is no secret in it, else a copy in which each is a secret made of stars.

    A secret that is neither text nor bytes stays: there is no mark of its type, and pydantic writes it as stars, which
    do not come back, so that saving it is refused.

    >>> from pydantic import SecretStr
    >>> masked({"user": "amy", "pin": SecretStr("1234")})["pin"].get_secret_value()
    '**********'
    """
    kind: Any = class_of(value)
    if kind in _PLAIN_SCALARS:
        return value
    if hasattr(kind, "get_secret_value"):
        return _masked_secret(kind, value)
    parts = None if id(value) in above or _open_places(value) == [] else parts_of(value)
    if not parts:
        return value
    made = {key: masked(part, (*above, id(value))) for key, part in parts.items()}
    return with_parts(value, made) if any(made[key] is not part for key, part in parts.items()) else value


def _masked_secret(kind: Any, value: Any) -> Any:
    from pydantic import SecretBytes  # noqa: PLC0415 - slow to import, and there already when a value is one

    if isinstance(value, SecretBytes):
        return kind(_STARS.encode())
    return kind(_STARS) if isinstance(value.get_secret_value(), str) else value
