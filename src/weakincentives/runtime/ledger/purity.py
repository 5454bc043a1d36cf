"""Whether equal text always gives equal params, so that the key of a call need not be worked out again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from ...errors import SchemaError
from ...serde.type_adapters import adapter

_IMPURE = ("default_factory", "post_init")


@lru_cache(maxsize=1024)
def is_pure(params_type: Any) -> bool:
    """False when something in the type runs code of its own: a default's factory, `__post_init__`, a validator."""
    if params_type is None:
        return True
    try:
        return _pure(adapter(params_type).core_schema)
    except SchemaError:
        return False


def _pure(part: object) -> bool:
    if isinstance(part, Mapping):
        schema = cast(Mapping[str, object], part)
        kind = schema.get("type")
        if isinstance(kind, str) and (kind.startswith("function") or kind in {"call", "custom-error", "generator"}):
            return False
        return not any(schema.get(name) for name in _IMPURE) and all(map(_pure, schema.values()))
    if isinstance(part, list | tuple):
        return all(map(_pure, cast("list[object]", part)))
    return True


__all__ = ["is_pure"]
