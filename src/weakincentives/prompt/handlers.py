"""Handlers: the three signatures they may have, read once and made into one."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast, final, get_args, get_origin

from ..results import ToolResult
from ..signatures import annotations_of, signature_of
from .tool_context import ToolContext
from .type_forms import plain

ParamsT_contra = TypeVar("ParamsT_contra", contravariant=True)
ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")


class ToolHandler(Protocol[ParamsT_contra, ResultT]):
    """A handler in its full form: `def handle(params, *, context) -> ToolResult[Result]`, or `async def`."""

    def __call__(
        self, params: ParamsT_contra, /, *, context: ToolContext
    ) -> ToolResult[ResultT] | Awaitable[ToolResult[ResultT]]:
        """Do the work; the only place where side effects happen."""
        ...


AnyHandler = (
    ToolHandler[ParamsT, ResultT]
    | Callable[[ParamsT, ToolContext], ToolResult[ResultT] | Awaitable[ToolResult[ResultT]]]
    | Callable[[ParamsT], ToolResult[ResultT] | Awaitable[ToolResult[ResultT]]]
)
"""What `Tool(handler=)` takes: `(params, *, context)`, `(params, context)` or `(params)`."""

Call = Callable[[Any, ToolContext], Any]


@final
class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final[Any] = _Unknown()
"""No annotation, or one that cannot be resolved: it contradicts nothing."""


class SignatureError(Exception):
    """The handler cannot be called with params and context; the text says what to write."""


class HandlerPlan(NamedTuple):
    """All that needs to be known of a handler to call it.

    Attributes:
        call: the handler with the one signature `(params, context)`.
        is_async: whether what `call` returns must be awaited.
        params_type: what its first parameter is annotated with, or UNKNOWN.
        returns: its return annotation as it stands, or UNKNOWN.
    """

    call: Call
    is_async: bool
    params_name: str
    params_type: Any
    returns: Any

    @property
    def result_type(self) -> Any:
        """The `R` of the annotated `ToolResult[R]`; UNKNOWN when it is not said."""
        result = unwrap_awaitable(self.returns)
        return get_args(result)[0] if get_origin(result) is ToolResult else UNKNOWN


def read_handler(handler: Callable[..., Any]) -> HandlerPlan:
    """Read a handler's signature and annotations; `SignatureError` when it has none of the three forms."""
    try:
        signature = signature_of(handler)
    except (TypeError, ValueError):
        raise SignatureError("its signature cannot be read. Wrap it in a function (params, *, context)") from None
    hints = resolved_hints(handler)
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    }:
        raise SignatureError("it takes no params. Write def handler(params, *, context)")
    first, *rest = parameters
    call = _normalised(handler, rest, hints)
    return HandlerPlan(
        call=call,
        is_async=is_async(handler),
        params_name=first.name,
        params_type=hints.get(first.name, UNKNOWN),
        returns=hints.get("return", UNKNOWN),
    )


def _normalised(handler: Callable[..., Any], rest: list[inspect.Parameter], hints: Mapping[str, Any]) -> Call:
    context: inspect.Parameter | None = None
    for parameter in rest:
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            context = context or parameter
        elif parameter.name == "context" or is_context(hints.get(parameter.name)):
            context = parameter
        elif parameter.default is parameter.empty:
            raise SignatureError(
                f"it needs the argument {parameter.name!r}, which the engine does not pass. Write "
                f"def handler(params, *, context) and take {parameter.name!r} from params or context.resources"
            )
    if context is None:
        return lambda params, context: handler(params)  # noqa: ARG005 - the one signature
    if context.kind is context.POSITIONAL_ONLY or (
        context is rest[0] and context.kind is context.POSITIONAL_OR_KEYWORD
    ):
        return handler
    if context.kind is context.VAR_KEYWORD or context.name == "context":
        return lambda params, context: handler(params, context=context)
    name = context.name
    return lambda params, context: handler(params, **{name: context})


def is_context(hint: Any) -> bool:
    """Whether an annotation means the context, also as `ToolContext | None` or an unresolved name."""
    if isinstance(hint, str):
        return any(part.strip().rpartition(".")[2] == "ToolContext" for part in hint.split("|"))
    return hint is ToolContext or ToolContext in get_args(hint)


def is_async(handler: object) -> bool:
    """Whether calling it gives a coroutine: `async def`, a partial of one, or an object with an async `__call__`."""
    while isinstance(handler, functools.partial):
        handler = cast(functools.partial[Any], handler).func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def unwrap_awaitable(hint: Any) -> Any:
    """What awaiting gives, for `Awaitable[X]` and `Coroutine[Any, Any, X]`; else the hint. Both without `Annotated`."""
    hint = plain(hint)
    return plain(get_args(hint)[-1]) if get_origin(hint) in (Awaitable, Coroutine) else hint


def resolved_hints(handler: Callable[..., Any]) -> dict[str, Any]:
    """The annotations, strings evaluated one by one; those that cannot be are left out.

    Each by itself, so that one name known only to type checkers does not hide the others.
    """
    function = _function_of(handler)
    scope: dict[str, Any] = {**vars(builtins), **getattr(function, "__globals__", {})}
    code = getattr(function, "__code__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or (), strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    hints: dict[str, Any] = {}
    for name, hint in annotations_of(function).items():
        try:
            while isinstance(hint, str):  # twice where a quoted name stands in a module with lazy annotations
                text, hint = hint, eval(hint, scope)  # noqa: S307 - the author's own text, as `get_type_hints` does
                if text == hint:
                    break
        except Exception:  # noqa: BLE001 - an error here means that it is unknown
            if not is_context(hint):
                continue
            hint = ToolContext
        hints[name] = None if hint is NoneType else hint
    return hints


def _function_of(handler: Any) -> Any:
    while True:
        if isinstance(handler, functools.partial):
            handler = cast(functools.partial[Any], handler).func
        elif inspect.ismethod(handler):
            handler = handler.__func__
        elif hasattr(handler, "__wrapped__"):
            handler = handler.__wrapped__
        elif inspect.isfunction(handler) or inspect.isbuiltin(handler) or isinstance(handler, type):
            return handler
        else:  # an object that can be called
            method: Any = type(handler).__call__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            if not inspect.isfunction(method):
                return handler
            handler = method


def importable(handler: Any) -> bool:
    """Whether another process can find the handler by its module and name."""
    name, module = getattr(handler, "__qualname__", None), getattr(handler, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str) or inspect.ismethod(handler):
        return False
    return "<" not in name
