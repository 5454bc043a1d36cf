"""Types at run time: their names, whether one fits another, whether a value fits.

When in doubt the answer is yes, because not everything that Python's types say can be checked.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel

_ANY: tuple[object, ...] = (Any, object)


def type_name(form: Any) -> str:
    """The type as a reader would write it."""
    if form is None or form is NoneType:
        return "None"
    if form is Ellipsis:
        return "..."
    origin, items = get_origin(form), get_args(form)
    if _is_union(form):
        return " | ".join(map(type_name, items))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, items))}]"
    if origin is not None and origin is not Annotated:
        return f"{type_name(origin)}[{', '.join(map(type_name, items))}]"
    return getattr(plain(form), "__name__", None) or str(form).removeprefix("typing.")


def is_params_type(form: Any) -> bool:
    """Whether the arguments of a tool may be parsed into it: a dataclass, a TypedDict or a pydantic model."""
    origin: Any = get_origin(form) or form
    if not isinstance(origin, type):
        return False
    if issubclass(origin, BaseModel):
        return not origin.__pydantic_root_model__
    return is_dataclass(cast(Any, origin)) or is_typed_dict(cast(Any, origin))


def is_typed_dict(form: Any) -> bool:
    """Whether it is a TypedDict, of `typing` or of `typing_extensions`: they do not know one another."""
    return isinstance(form, type) and issubclass(form, dict) and hasattr(cast(Any, form), "__required_keys__")


def plain(form: Any) -> Any:
    """The type without `Annotated` and `NewType`; None for NoneType."""
    while True:
        if get_origin(form) is Annotated:
            form = get_args(form)[0]
        elif isinstance(form, NewType):
            form = form.__supertype__
        else:
            return None if form is NoneType else form


def assignable(source: Any, target: Any) -> bool:
    """False only when no value of `source` can be meant where `target` is declared."""
    source, target = plain(source), plain(target)
    if source == target or _unknown(source) or _unknown(target):
        return True
    if _is_union(source):
        return all(assignable(member, target) for member in get_args(source))
    if _is_union(target):
        return any(assignable(source, member) for member in get_args(target))
    if source is None or target is None:
        return False
    if get_origin(source) is Literal:
        return all(fits(value, target) for value in get_args(source))
    if get_origin(target) is Literal:
        return False
    return _subtype(source, target)


def _subtype(source: Any, target: Any) -> bool:
    source_class, target_class = get_origin(source) or source, get_origin(target) or target
    if not isinstance(source_class, type) or not isinstance(target_class, type):
        return True
    if is_typed_dict(source_class):
        source_class = dict
    if is_typed_dict(target_class):
        return source_class is dict
    if not _subclass(source_class, target_class):
        return False
    ours, theirs = _item_types(source), _item_types(target)
    if len(ours) != len(theirs):
        return True  # a class of its own may take its parameters in any way
    return all(assignable(mine, wanted) for mine, wanted in zip(ours, theirs, strict=True))


def _item_types(form: Any) -> tuple[Any, ...]:
    return tuple(item for item in get_args(form) if item is not Ellipsis)


def _subclass(source: type, target: type) -> bool:
    try:
        return issubclass(source, target)
    except TypeError:  # a protocol that cannot be checked
        return True


def fits(value: object, form: Any) -> bool:
    """False only when `value` is certainly not a `form`; items of sequences, sets and mappings are looked at too."""
    form = plain(form)
    if _unknown(form):
        return True
    if form is None:
        return value is None
    if _is_union(form):
        return any(fits(value, member) for member in get_args(form))
    if get_origin(form) is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(form))
    cls = get_origin(form) or form
    if not isinstance(cls, type):
        return True
    if is_typed_dict(cls):
        return isinstance(value, Mapping)
    return _instance(value, cls) and _items_fit(value, get_args(form))


def _instance(value: object, cls: type) -> bool:
    try:
        return isinstance(value, cls)
    except TypeError:  # a protocol that cannot be checked
        return True


def _items_fit(value: object, items: tuple[Any, ...]) -> bool:
    if not items or isinstance(value, str | bytes | bytearray):
        return True
    if isinstance(value, Mapping):
        pairs = cast(Mapping[object, object], value).items()
        return len(items) != 2 or all(fits(key, items[0]) and fits(item, items[1]) for key, item in pairs)
    if isinstance(value, tuple) and items[-1:] != (Ellipsis,):
        several = cast(tuple[object, ...], value)
        return len(several) == len(items) and all(map(fits, several, items))
    if isinstance(value, Sequence | AbstractSet):
        return all(fits(item, items[0]) for item in cast(collections.abc.Iterable[object], value))
    return True


@lru_cache(maxsize=1024)
def _cached_unknown(form: Any) -> bool:
    return form in _ANY or isinstance(form, TypeVar | str)


def _unknown(form: Any) -> bool:
    try:
        return _cached_unknown(form)
    except TypeError:  # something unhashable inside
        return False


def _is_union(form: Any) -> bool:
    return get_origin(form) in (Union, UnionType)


# `Section[Params]` and `PromptTemplate[Output]`: a type argument that the constructor already knows.
#
# Python's own `Cls[X](...)` tells the instance of `X` only after `__init__` has run, too late to refuse anything.
# Here `Cls[X]` is a small subclass that carries `X`, made once for each pair.


if TYPE_CHECKING:
    # With a default, `MarkdownSection(title=...)` has a known type also where nothing says which params it takes.
    from typing_extensions import TypeVar

    ParamsT = TypeVar("ParamsT", default=Any)
    OutputT = TypeVar("OutputT", default=Any)
else:
    from typing import TypeVar

    ParamsT = TypeVar("ParamsT")
    OutputT = TypeVar("OutputT")


@lru_cache(maxsize=1024)
def bind_type_arguments(cls: type[Any], attribute: str, argument: Any) -> type[Any]:
    """The subclass of `cls` whose class attribute says `argument`; TypeError when `cls` has one already."""
    known = getattr(cls, attribute, None)
    if known is not None:
        raise TypeError(f"{cls.__name__} is for {short_name(known)} already; it takes no further type argument.")
    make: Any = type(cls)
    namespace = {"__module__": cls.__module__, "__doc__": cls.__doc__, attribute: argument}
    return make(f"{cls.__name__}[{short_name(argument)}]", (cls,), namespace)


def short_name(argument: Any) -> str:
    """The name of a class; the text of anything else."""
    return getattr(argument, "__name__", None) or repr(argument)
