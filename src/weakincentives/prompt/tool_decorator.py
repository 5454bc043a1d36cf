"""`@tool`: a tool from a plain function, its name, docstring and annotations."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, cast, get_args, get_origin, overload

from ..results import ToolResult
from ..signatures import signature_of
from .annotations import ToolAnnotations
from .docstrings import parameter_docs, summary_of
from .handlers import UNKNOWN, is_async, is_context, resolved_hints, unwrap_awaitable
from .idempotency import IdempotencyConfig
from .tool import DEFAULT_MAX_RESULT_CHARS, Isolation, Tool
from .tool_checks import Refusals
from .tool_context import ToolContext
from .tool_example import ToolExample
from .typeforms import is_params_type, plain

Function = Callable[..., Any]


@overload
def tool(function: Function, /) -> Tool[Any, Any]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    examples: Sequence[ToolExample[Any, Any]] = (),
    timeout: float | timedelta | None = None,
    isolation: Isolation | None = None,
    max_result_chars: int = DEFAULT_MAX_RESULT_CHARS,
    max_repeats: int | None = 5,
    idempotency: IdempotencyConfig | None = None,
    annotations: ToolAnnotations = ...,
    accepts_overrides: bool = True,
) -> Callable[[Function], Tool[Any, Any]]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Tool[Any, Any] | Callable[[Function], Tool[Any, Any]]:
    """Make a `Tool` of a function, `def` or `async def`; the options are those of `Tool`.

    Its keyword parameters become the params type, described by the docstring's `Args:` or by `Annotated[T, "text"]`; a
    function `(params: Params, *, context)` keeps its own. The first paragraph of the docstring is the description. A
    parameter named `context`, or annotated with `ToolContext`, gets the context. What it returns is wrapped in
    `ToolResult.ok` unless it is a `ToolResult`.

    `PromptValidationError` for whatever `Tool` refuses, and for parameters and results without annotations.

    >>> @tool
    ... def add(left: int, right: int = 1) -> int:
    ...     '''Add two numbers.
    ...
    ...     Args:
    ...         left: The first one.
    ...     '''
    ...     return left + right
    >>> add.schema()["properties"]["left"]
    {'description': 'The first one.', 'type': 'integer'}
    >>> add.call(add.parse('{"left": 2}'), ToolContext())
    ToolResult(message='OK', value=3, success=True, exclude_value_from_context=False)
    """
    if function is None:
        return partial(_build, name=name, description=description, options=options)
    return _build(function, name=name, description=description, options=options)


def _build(
    function: Function, *, name: str | None, description: str | None, options: Mapping[str, Any]
) -> Tool[Any, Any]:
    if not inspect.isroutine(function):
        raise TypeError(f"@tool takes a function, got {function!r}.")
    name = function.__name__ if name is None else name
    refusals = Refusals(name)
    description = summary_of(function.__doc__) if description is None else description
    if not description.strip():
        refusals.refuse(f"{function.__qualname__} has no docstring. Write one, or pass @tool(description=...).")
    shape = _read(function, refusals)
    typed: Any = Tool[shape.params_type, shape.result_type]
    return typed(name=name, description=description, handler=_handler(function, shape), **options)


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a function is called and what it gives. `names` is None for a function that takes params as they are."""

    params_type: Any
    result_type: Any
    names: tuple[str, ...] | None
    context_name: str | None
    wraps: bool


def _read(function: Function, refusals: Refusals) -> _Shape:
    hints = resolved_hints(function)
    parameters = list(signature_of(function).parameters.values())
    context_name = next((p.name for p in parameters if _takes_context(p, hints)), None)
    arguments = [p for p in parameters if p.name != context_name]
    returns = unwrap_awaitable(hints.get("return", UNKNOWN))
    if returns is UNKNOWN:
        refusals.refuse(
            f"{function.__qualname__} does not say what it returns. Annotate it: -> Result, -> ToolResult[Result] or "
            "-> None."
        )
    wraps = (get_origin(returns) or returns) is not ToolResult
    result_type = returns if wraps else (get_args(returns) or (Any,))[0]
    params_type = _own_params_type(arguments, hints)
    if params_type is not UNKNOWN:
        return _Shape(params_type, result_type, None, context_name, wraps)
    names = tuple(argument.name for argument in arguments)
    params_type = _make_params_type(function, arguments, hints, refusals) if names else None
    return _Shape(params_type, result_type, names, context_name, wraps)


def _takes_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    hint = hints.get(parameter.name, UNKNOWN)
    return is_context(hint) or (parameter.name == "context" and hint in (UNKNOWN, Any))


def _own_params_type(arguments: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> Any:
    """The type of `params`, when that is how the function takes its arguments."""
    if len(arguments) != 1 or arguments[0].name != "params" or arguments[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return UNKNOWN
    hint = plain(hints.get("params", UNKNOWN))
    return hint if hint is None or is_params_type(hint) else UNKNOWN


def _make_params_type(
    function: Function, arguments: Sequence[inspect.Parameter], hints: Mapping[str, Any], refusals: Refusals
) -> type[Any]:
    docs = parameter_docs(function.__doc__)
    made: list[tuple[str, Any, Any]] = []
    for argument in arguments:
        if argument.kind in {argument.VAR_POSITIONAL, argument.VAR_KEYWORD, argument.POSITIONAL_ONLY}:
            refusals.refuse(
                f"{function.__qualname__} takes {argument}, but a model sends arguments by name. Name each of them."
            )
        if argument.name not in hints:
            what = "an annotation that cannot be resolved" if argument.annotation is not argument.empty else "no type"
            refusals.refuse(
                f"the parameter {argument.name!r} of {function.__qualname__} has {what}. "
                f"Annotate it with a type defined at module level, such as {argument.name}: str."
            )
        hint = hints[argument.name]
        text = _annotated_text(hint) or docs.get(argument.name)
        made.append((argument.name, hint, _field(argument.default, text)))
    camel = "".join(part.capitalize() for part in function.__name__.split("_"))
    namespace = {"__module__": function.__module__}
    return make_dataclass(f"{camel}Params", made, frozen=True, slots=True, kw_only=True, namespace=namespace)


def _annotated_text(hint: Any) -> str | None:
    """The text in `Annotated[T, "text"]`, or in an object with `documentation`, as `typing_extensions.Doc` has."""
    if get_origin(hint) is not Annotated:
        return None
    for extra in get_args(hint)[1:]:
        text = extra if isinstance(extra, str) else getattr(extra, "documentation", None)
        if isinstance(text, str):
            return text
    return None


def _field(default: Any, text: str | None) -> Any:
    metadata = {"description": text} if text else {}
    if default is inspect.Parameter.empty:
        return field(metadata=metadata)
    if type(default).__hash__ is None:  # mutable: each call gets its own
        return field(default_factory=partial(copy.deepcopy, default), metadata=metadata)
    return field(default=default, metadata=metadata)


def _handler(function: Function, shape: _Shape) -> Function:
    if shape.names is None and not shape.wraps:
        return function
    call = _caller(function, shape)
    handler = _awaiting(call) if is_async(function) else _wrapping(call)
    # Another process finds the tool, and so the handler, under the function's name.
    handler.__name__, handler.__qualname__ = function.__name__, function.__qualname__
    handler.__module__, handler.__doc__ = function.__module__, function.__doc__
    return handler


def _awaiting(call: Callable[[Any, ToolContext], Any]) -> Function:
    async def handler(params: Any, context: ToolContext) -> Any:
        return _result(await call(params, context))

    return handler


def _wrapping(call: Callable[[Any, ToolContext], Any]) -> Function:
    def handler(params: Any, context: ToolContext) -> Any:
        return _result(call(params, context))

    return handler


def _caller(function: Function, shape: _Shape) -> Callable[[Any, ToolContext], Any]:
    names, context_name = shape.names, shape.context_name

    def call(params: Any, context: ToolContext) -> Any:
        arguments = {} if names is None else {name: getattr(params, name) for name in names}
        if context_name is not None:
            arguments[context_name] = context
        return function(params, **arguments) if names is None else function(**arguments)

    return call


def _result(value: Any) -> ToolResult[Any]:
    return cast(ToolResult[Any], value) if isinstance(value, ToolResult) else ToolResult.ok(value)


__all__ = ["tool"]
