"""`Section[Params]` and `PromptTemplate[Output]`: a type argument that the constructor already knows.

Python's own `Cls[X](...)` tells the instance of `X` only after `__init__` has run, too late to refuse anything. Here
`Cls[X]` is a small subclass that carries `X`, made once for each pair.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

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
def specialise(cls: type[Any], attribute: str, argument: Any) -> type[Any]:
    """The subclass of `cls` whose class attribute says `argument`; TypeError when `cls` has one already."""
    known = getattr(cls, attribute, None)
    if known is not None:
        raise TypeError(f"{cls.__name__} is for {_name(known)} already; it takes no further type argument.")
    make: Any = type(cls)
    namespace = {"__module__": cls.__module__, "__doc__": cls.__doc__, attribute: argument}
    return make(f"{cls.__name__}[{_name(argument)}]", (cls,), namespace)


def _name(argument: Any) -> str:
    return getattr(argument, "__name__", None) or repr(argument)


__all__ = ["OutputT", "ParamsT", "specialise"]
