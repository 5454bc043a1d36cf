"""A tool that is still the function it was made of, and what type checkers know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, final

from pydantic import BaseModel

from .tool import Tool
from .tool_context import ToolContext


class _Dataclass(Protocol):
    """Any instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")
OwnT = TypeVar("OwnT", bound=_Dataclass | BaseModel)
"""The params of a function that takes them as they are."""
OwnT_contra = TypeVar("OwnT_contra", bound=_Dataclass | BaseModel, contravariant=True)
ReturnT_co = TypeVar("ReturnT_co", covariant=True)
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class WithContext(Protocol[OwnT_contra, ReturnT_co]):
    """`def find(params: Find, *, context: ToolContext)`."""

    def __call__(self, params: OwnT_contra, *, context: ToolContext) -> ReturnT_co:
        """Call it."""
        ...


class WithoutContext(Protocol[OwnT_contra, ReturnT_co]):
    """`def find(params: Find)`."""

    def __call__(self, params: OwnT_contra) -> ReturnT_co:
        """Call it."""
        ...


@final
class FunctionTool(Tool[ParamsT, ResultT], Generic[ParamsT, ResultT, FunctionT]):
    """What `@tool` makes: a `Tool` that can be called like the function, outside of any transaction.

    Calling it runs the function itself, with its own parameters and its own result: nothing is parsed, recorded or
    undone. `call` is the handler, as of every tool. `inspect.signature` and doctest see the function.

    Attributes:
        function: the function, unchanged.
    """

    __slots__ = ("__wrapped__", "function")

    function: FunctionT

    @classmethod
    def of(cls, function: Any, types: tuple[Any, ...], arguments: Mapping[str, Any]) -> FunctionTool[Any, Any, Any]:
        """A tool with these arguments of the constructor; not for users, who write `@tool`."""
        made: FunctionTool[Any, Any, Any] = object.__new__(cls)
        made._fill(_declared=types, function=function, __wrapped__=function)
        made.__init__(**arguments)
        return made

    if TYPE_CHECKING:
        __call__: FunctionT
    else:

        def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
            """Call the function."""
            return self.function(*args, **kwargs)

    def _remade(self, arguments: Mapping[str, Any]) -> Tool[ParamsT, ResultT]:
        # With another handler, the function is not what the tool runs any more.
        if arguments["handler"] is not self.handler:
            return super()._remade(arguments)
        return FunctionTool.of(self.function, self._declared, arguments)


__all__ = ["FunctionT", "FunctionTool", "OwnT", "ParamsT", "ResultT", "WithContext", "WithoutContext"]
