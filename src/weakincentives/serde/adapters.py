"""One pydantic `TypeAdapter` a type, made once."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, NewType, cast

from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

from ..errors import SchemaError
from .unread_metadata import refuse_unread_metadata

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


__all__ = ["adapter"]
