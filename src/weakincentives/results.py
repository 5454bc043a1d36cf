"""What a tool handler returns, and the text that the model reads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

from .content import bytes_text
from .errors import SchemaError
from .serde import dump_json

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")
ValueT = TypeVar("ValueT")


@runtime_checkable
class ToolRenderableResult(Protocol):
    """A result value that says itself what the model should read."""

    def render(self) -> str:
        """The text for the model."""
        ...


@dataclass(slots=True, init=False)
class ToolResult(Generic[ValueT]):
    r"""What happened, typed, and what to tell the model.

    Attributes:
        message: a line or two for the model; always shown.
        value: the typed result; None for a failure unless it has something to say.
        success: False undoes everything the call changed.
        exclude_value_from_context: keep the value from the model, for large ones; events still hold it.

    >>> ToolResult.ok({"id": 7}, message="Created.").render()
    'Created.\n{"id":7}'
    """

    message: str
    value: ValueT | None
    success: bool
    exclude_value_from_context: bool

    def __init__(
        self,
        message: str,
        value: ValueT | None = None,
        success: bool = True,
        exclude_value_from_context: bool = False,
        **removed: object,
    ) -> None:
        if removed:
            if "payload" in removed:
                raise TypeError("ToolResult(payload=) is now ToolResult(value=).")
            raise TypeError(f"ToolResult() has no argument {next(iter(removed))!r}.")
        self.message = message
        self.value = value
        self.success = success
        self.exclude_value_from_context = exclude_value_from_context

    @staticmethod
    def ok(value: T, message: str = "OK") -> ToolResult[T]:
        """A success with its value."""
        return ToolResult(message, value)

    @staticmethod
    def error(message: str) -> ToolResult[Any]:
        """An expected failure: say what went wrong, why, and what to call next."""
        return ToolResult(message, None, success=False)

    def render(self) -> str:
        """The message, a line break and the rendered value; only the message when that is empty or excluded.

        Raises what the value's own `render()` raises, and `TypeError` when that gives no text.
        """
        value = self.value
        if value is None or self.exclude_value_from_context:
            return self.message
        text = value if type(value) is str else render_value(value)
        return f"{self.message}\n{text}" if text else self.message


_PLAIN = frozenset({str, int, float, bool, type(None)})


def renders_itself(result: ToolResult[Any]) -> bool:
    """Whether rendering it runs no code but ours, so that it needs no limits.

    >>> renders_itself(ToolResult.ok("text")), renders_itself(ToolResult.ok(["text"]))
    (True, False)
    """
    return type(result.message) is str and (result.exclude_value_from_context or type(result.value) in _PLAIN)


def render_value(value: object) -> str:
    """A value as text for the model.

    Its own `render()` if it has one; text as it is; None as nothing; a sequence one item a line; everything else
    as JSON, with one warning in the log for each dataclass type that has no `render()`. Bytes that are not text are one
    line that says how many.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    render = getattr(value, "render", None)
    if callable(render) and not isinstance(value, type):
        text = render()
        if not isinstance(text, str):
            raise TypeError(f"{type(value).__name__}.render() must return a str, got {type(text).__name__}.")
        return text
    if is_dataclass(value):
        _warn_once(type(value))
    elif isinstance(value, Sequence | AbstractSet) and not isinstance(value, bytes | bytearray | memoryview):
        items = cast(Sequence[object] | AbstractSet[object], value)
        return "\n".join(render_value(item) for item in items)
    return _as_json(cast(object, value))


def _as_json(value: object) -> str:
    try:
        return dump_json(_plain(value), computed=True)
    except SchemaError:
        plain = without_bytes(value)
        if plain is not value:
            return plain if isinstance(plain, str) else _as_json(plain)
        logger.warning("A %s has no JSON form; the model reads its repr. Give it a render().", type(value).__name__)
        return repr(value)


def without_bytes(value: object, above: tuple[int, ...] = ()) -> object:
    """The value itself when there are no bytes in it, else plain data with a line in the place of each."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes_text(bytes(cast("bytes", value)))
    if isinstance(value, str) or id(value) in above:
        return value
    inside = (*above, id(value))
    if isinstance(value, Mapping):
        pairs = list(cast(Mapping[object, object], value).items())
        made = [(without_bytes(key, inside), without_bytes(part, inside)) for key, part in pairs]
        is_same = all(key is old[0] and part is old[1] for (key, part), old in zip(made, pairs, strict=True))
        return cast(object, value) if is_same else dict(made)
    if isinstance(value, list | tuple | AbstractSet):
        items = list(cast("Iterable[object]", value))
        plain = [without_bytes(item, inside) for item in items]
        is_same = all(one is other for one, other in zip(plain, items, strict=True))
        return cast(object, value) if is_same else plain
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name, None) for field in fields(value)}
    elif hasattr(type(value), "model_fields"):
        parts = dict(vars(value))
    else:
        return value
    plain_parts = without_bytes(parts, inside)
    return value if plain_parts is parts else plain_parts


def _plain(value: object) -> object:
    return dict(cast(Mapping[object, object], value)) if isinstance(value, Mapping) else value


_warned: set[str] = set()


def _warn_once(cls: type) -> None:
    name = f"{cls.__module__}.{cls.__qualname__}"
    if name not in _warned:
        _warned.add(name)
        logger.warning("%s has no render(), so the model reads JSON. Add one to choose the text.", name)


__all__ = ["ToolRenderableResult", "ToolResult"]
