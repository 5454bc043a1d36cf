"""One pydantic `TypeAdapter` per type, made once."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from typing import Annotated, Any, NewType, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

from ..errors import SchemaError

# Metadata that pydantic would ignore: a dict in `Annotated`, where `field(metadata=)` takes one.


@cache
def _known() -> frozenset[str]:
    """What a field's metadata may say; other keys belong to other libraries, in both places."""
    from pydantic import Field  # noqa: PLC0415 - slow to import, and few programs have such metadata

    return frozenset(inspect.signature(Field).parameters)


def refuse_unread_metadata(form: Any, names_for: Callable[[Any], dict[str, Any]]) -> None:
    """Raise `SchemaError` for a limit that would not be kept: `Annotated[str, {"min_length": 1}]`, at any depth.

    `names_for` gives the names that annotations of a class inside a function may use.
    """
    _look(form, getattr(form, "__name__", str(form)), names_for, set())


def _look(form: Any, where: str, names_for: Callable[[Any], dict[str, Any]], seen: set[Any]) -> None:
    said: Any = getattr(form, "__supertype__", None) or getattr(form, "__value__", None)  # NewType, `type X = ...`
    if said is not None and not isinstance(form, type):
        _look(said, where, names_for, seen)
        return
    if get_origin(form) is Annotated:
        form, *metadata = get_args(form)
        for item in metadata:
            _check(item, where)
        _look(form, where, names_for, seen)
        return
    for part in get_args(form):
        _look(part, where, names_for, seen)
    cls = get_origin(form) or form
    if isinstance(cls, type) and cls not in seen and _has_fields(cls):
        seen.add(cls)
        for name, hint in _hints(cls, names_for).items():
            _look(hint, f"{cls.__name__}.{name}", names_for, seen)


def _check(metadata: object, where: str) -> None:
    given: Mapping[Any, Any] = cast("Mapping[Any, Any]", metadata) if isinstance(metadata, Mapping) else {}
    known = [str(key) for key in given if key in _known()]
    if known:
        raise SchemaError(
            f"{where} has {given!r} in Annotated, where it would be ignored. "
            f"Write Annotated[..., Field({known[0]}=...)], or field(metadata={{{known[0]!r}: ...}})."
        )


def _has_fields(cls: type[Any]) -> bool:
    marks = ("_fields", "__required_keys__")  # of a NamedTuple; of a TypedDict, whichever module it is from
    return is_dataclass(cls) or issubclass(cls, BaseModel) or any(hasattr(cls, mark) for mark in marks)


def _hints(cls: type[Any], names_for: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    if issubclass(cls, BaseModel):
        fields_of = cls.model_fields.items()
        return {name: _annotated(info.annotation, info.metadata) for name, info in fields_of}
    names = names_for(cls)
    try:
        return get_type_hints(cls, localns=names, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation that pydantic does not need, and that cannot be evaluated
        scope = {**vars(sys.modules[cls.__module__]), **names}
        found = ((item.name, _evaluated(item.type, scope)) for item in (fields(cls) if is_dataclass(cls) else ()))
        return dict(found)


def _annotated(form: Any, metadata: list[Any]) -> Any:
    return Annotated[(form, *metadata)] if metadata else form  # pyright: ignore[reportInvalidTypeForm, reportReturnType]


def _evaluated(form: Any, scope: dict[str, Any]) -> Any:
    if not isinstance(form, str):
        return form
    try:
        return eval(form, scope)  # noqa: S307 - the author's own text, as `get_type_hints` does
    except Exception:  # noqa: BLE001 - it says nothing here
        return None


_STRICT = ConfigDict(strict=True, allow_inf_nan=False)


@lru_cache(maxsize=4096)
def adapter(cls: Any) -> TypeAdapter[Any]:
    """The strict adapter of a type; `SchemaError` when the type has no JSON form.

    A dataclass takes its configuration from what encloses it, so it is wrapped in a `NewType`: pydantic refuses to
    configure a bare one.
    """
    name = getattr(cls, "__name__", str(cls))
    try:
        made = TypeAdapter[Any](cast(Any, NewType)(name, cls), config=_STRICT)
        if not made.pydantic_complete:
            made.rebuild(force=True, _types_namespace=_callers_names(cls))
        refuse_unread_metadata(cls, _callers_names)
    except PydanticUndefinedAnnotation as error:
        raise SchemaError(
            f"{name} uses the name {error.name!r}, which is not defined where its module is read. "
            "Define that type at module level, before it is needed."
        ) from error
    except PydanticSchemaGenerationError as error:
        raise SchemaError(f"{name} has a field with no JSON form: {_first_line(error)}") from error
    except (PydanticUserError, TypeError) as error:
        raise SchemaError(f"{name} cannot be used for typed data: {_first_line(error)}") from error
    return made


def _callers_names(cls: Any) -> dict[str, Any]:
    """Names that the functions now running in the type's own module know, for types defined inside functions."""
    names: dict[str, Any] = {}
    frame = inspect.currentframe()
    module = getattr(cls, "__module__", None)
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0].split(". Set `arbitrary", 1)[0]
