"""`@tool`: a tool from a plain function, its name, docstring and annotations."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import Field, field, make_dataclass
from datetime import timedelta
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    final,
    get_args,
    get_origin,
    overload,
)

from pydantic import BaseModel

from ..results import ToolResult
from ..signatures import signature_of
from .handlers import UNKNOWN, is_async, is_context, resolved_hints, unwrap_awaitable
from .idempotency import IdempotencyConfig
from .tool import DEFAULT_MAX_RESULT_CHARS, Isolation, Tool
from .tool_checks import DeclarationErrors
from .tool_context import ToolContext
from .tool_metadata import ToolAnnotations, ToolExample
from .type_forms import is_params_type, plain

# A tool that is still the function it was made of, and what type checkers know of it.


class _Dataclass(Protocol):
    """Any instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")
R = TypeVar("R")
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
    undone. `call` is the handler, as for every tool. `inspect.signature` and doctest see the function.

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


# What a function's docstring says: a summary and guidance for the model, and a line for each parameter.


_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+):\s*(.*)$")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


@final
class Docstring(NamedTuple):
    """A docstring in its parts.

    Attributes:
        summary: the first paragraph, on one line; empty when there is none.
        parameters: the parameters' descriptions, from an `Args:` section or `:param name:` lines.
        lines: each line below the first paragraph, and whom it describes.
    """

    summary: str
    parameters: Mapping[str, str]
    lines: tuple[tuple[str, str | None], ...]

    def rest(self, *, without: Collection[str]) -> str:
        """Everything below the first paragraph, but for the descriptions of these parameters."""
        kept: list[str] = []
        for line, owner in reversed(self.lines):
            # Read from the end: a heading is kept when something indented is left below it.
            below = next((text for text in reversed(kept) if text), "")
            if owner not in without and (line or below) and (not _SECTION.match(line) or below.startswith(" ")):
                kept.append(line)
        return re.sub(r"\n{3,}", "\n\n", "\n".join(reversed(kept))).strip()


def read_docstring(doc: str | None) -> Docstring:
    """Take a docstring apart; None is an empty one."""
    text = inspect.cleandoc(doc or "")
    summary = _PARAGRAPH.split(text, maxsplit=1)[0]
    lines = [line.rstrip() for line in text.split("\n")]
    owners, parameters = _parameters(lines)
    start = summary.count("\n") + 1
    return Docstring(" ".join(summary.split()), parameters, tuple(zip(lines[start:], owners[start:], strict=True)))


def _parameters(lines: list[str]) -> tuple[list[str | None], dict[str, str]]:
    """For each line the parameter that it describes, or None; and the descriptions."""
    owners: list[str | None] = []
    found: dict[str, list[str]] = {}
    current: str | None = None
    depth: int | None = None  # how far the entries of an open section are indented
    inside = False
    for line in lines:
        text, indent = line.strip(), len(line) - len(line.lstrip())
        sphinx = _SPHINX.match(text)
        if sphinx:
            current, found[sphinx[1]] = sphinx[1], [sphinx[2]]
        elif _SECTION.match(line):
            inside, depth, current = True, None, None
        elif text and indent == 0:
            inside, current = False, None
        elif inside and text and (depth is None or indent <= depth):
            depth = indent
            entry = _ENTRY.match(text)
            current = None
            if entry:
                current, found[entry[1]] = entry[1], [entry[2]]
        elif text and current is not None:
            found[current].append(text)
        owners.append(current if text else None)
    described = {name: " ".join(part for part in parts if part) for name, parts in found.items()}
    return owners, {name: text for name, text in described.items() if text}


Function = Callable[..., Any]
FunctionP = ParamSpec("FunctionP")


@final
class ToolDecorator:
    """`@tool` and `@tool(...)`: make a `Tool` of a function, `def` or `async def`; the options are those of `Tool`.

    The function's keyword parameters become the params type, described by the docstring's `Args:` or by
    `Annotated[T, "text"]`; a function `(params: Params, *, context)` keeps its own. A parameter named `context`, or
    annotated with `ToolContext`, gets the context. What it returns is wrapped in `ToolResult.ok` unless it is a
    `ToolResult`.

    The first paragraph of the docstring is the description, everything below it the guidance; `description=` and
    `guidance=` replace them (`guidance=""` for none). Of the rest only the lines on parameters are left out, which
    stand in the schema, and those on `params` and `context`, which the model does not see. A first paragraph of more
    than 200 characters is refused: nothing is cut. The tool can still be called like the function; see `FunctionTool`.

    `PromptValidationError` for everything that `Tool` refuses, and for parameters and results without annotations.

    >>> @tool
    ... def add(left: int, right: int = 1) -> int:
    ...     '''Add two numbers.
    ...
    ...     Call it for every sum, however small.
    ...
    ...     Args:
    ...         left: The first one.
    ...     '''
    ...     return left + right
    >>> add.description, add.guidance
    ('Add two numbers.', 'Call it for every sum, however small.')
    >>> add.schema()["properties"]["left"]
    {'description': 'The first one.', 'type': 'integer'}
    >>> add.call(add.parse('{"left": 2}'), ToolContext())
    ToolResult(message='OK', value=3, success=True, exclude_value_from_context=False)
    >>> add(2, right=3)
    5
    """

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    # Params and result as a type checker can know them: a function that takes `params` says both itself; of any other
    # the params type is made, so it has no name. Each may return a value or a ToolResult, and be async or not.
    # fmt: off
    @overload
    def __call__(self, function: WithContext[OwnT, Coroutine[Any, Any, ToolResult[R]]], /) -> FunctionTool[OwnT, R, WithContext[OwnT, Coroutine[Any, Any, ToolResult[R]]]]: ...  # noqa: E501
    @overload
    def __call__(self, function: WithContext[OwnT, Coroutine[Any, Any, R]], /) -> FunctionTool[OwnT, R, WithContext[OwnT, Coroutine[Any, Any, R]]]: ...  # noqa: E501
    @overload
    def __call__(self, function: WithContext[OwnT, ToolResult[R]], /) -> FunctionTool[OwnT, R, WithContext[OwnT, ToolResult[R]]]: ...  # noqa: E501
    @overload
    def __call__(self, function: WithContext[OwnT, R], /) -> FunctionTool[OwnT, R, WithContext[OwnT, R]]: ...
    @overload
    def __call__(self, function: WithoutContext[OwnT, Coroutine[Any, Any, ToolResult[R]]], /) -> FunctionTool[OwnT, R, WithoutContext[OwnT, Coroutine[Any, Any, ToolResult[R]]]]: ...  # noqa: E501
    @overload
    def __call__(self, function: WithoutContext[OwnT, Coroutine[Any, Any, R]], /) -> FunctionTool[OwnT, R, WithoutContext[OwnT, Coroutine[Any, Any, R]]]: ...  # noqa: E501
    @overload
    def __call__(self, function: WithoutContext[OwnT, ToolResult[R]], /) -> FunctionTool[OwnT, R, WithoutContext[OwnT, ToolResult[R]]]: ...  # noqa: E501
    @overload
    def __call__(self, function: WithoutContext[OwnT, R], /) -> FunctionTool[OwnT, R, WithoutContext[OwnT, R]]: ...
    @overload
    def __call__(self, function: Callable[FunctionP, Coroutine[Any, Any, ToolResult[R]]], /) -> FunctionTool[Any, R, Callable[FunctionP, Coroutine[Any, Any, ToolResult[R]]]]: ...  # noqa: E501
    @overload
    def __call__(self, function: Callable[FunctionP, Coroutine[Any, Any, R]], /) -> FunctionTool[Any, R, Callable[FunctionP, Coroutine[Any, Any, R]]]: ...  # noqa: E501
    @overload
    def __call__(self, function: Callable[FunctionP, ToolResult[R]], /) -> FunctionTool[Any, R, Callable[FunctionP, ToolResult[R]]]: ...  # noqa: E501
    @overload
    def __call__(self, function: Callable[FunctionP, R], /) -> FunctionTool[Any, R, Callable[FunctionP, R]]: ...
    # fmt: on
    @overload
    def __call__(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        guidance: str | None = None,
        examples: Sequence[ToolExample[Any, Any]] = (),
        timeout: float | timedelta | None = None,
        isolation: Isolation | None = None,
        blocking: bool = True,
        max_result_chars: int = DEFAULT_MAX_RESULT_CHARS,
        max_repeats: int | None = 5,
        idempotency: IdempotencyConfig | None = None,
        annotations: ToolAnnotations = ...,
        accepts_overrides: bool = True,
    ) -> ToolDecorator: ...
    def __call__(self, function: Any = None, /, **options: Any) -> Any:
        """Decorate a function, or remember the options for it."""
        if function is None:
            return ToolDecorator({**self._options, **options})
        return _build(function, **self._options, **options)

    def __repr__(self) -> str:
        return f"tool({', '.join(f'{name}={value!r}' for name, value in self._options.items())})"


tool: ToolDecorator = ToolDecorator({})
"""The decorator; see `ToolDecorator`."""


def _build(
    function: Any,
    *,
    name: str | None = None,
    description: str | None = None,
    guidance: str | None = None,
    **options: Any,
) -> FunctionTool[Any, Any, Any]:
    if not inspect.isroutine(function):
        raise TypeError(f"@tool takes a function, got {function!r}.")
    name = function.__name__ if name is None else name
    refusals = DeclarationErrors(name)
    doc = read_docstring(function.__doc__)
    description = doc.summary if description is None else description
    if not description.strip():
        refusals.refuse(f"{function.__qualname__} has no docstring. Write one, or pass @tool(description=...).")
    shape = _read(function, doc, refusals)
    arguments = {
        "name": name,
        "description": description,
        "guidance": doc.rest(without=shape.documented) if guidance is None else guidance,
        "handler": _handler(function, shape),
        **options,
    }
    return FunctionTool.of(function, (shape.params_type, shape.result_type), arguments)


class _Shape(NamedTuple):
    """How a function is called and what it gives. `names` is None for a function that takes params as they are.

    `documented` are the parameters whose lines in the docstring are not for the guidance.
    """

    params_type: Any
    result_type: Any
    names: tuple[str, ...] | None
    context_name: str | None
    wraps: bool
    documented: frozenset[str]


def _read(function: Function, doc: Docstring, refusals: DeclarationErrors) -> _Shape:
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
    unseen: set[str] = set() if context_name is None else {context_name}
    if params_type is not UNKNOWN:
        return _Shape(params_type, result_type, None, context_name, wraps, frozenset({"params", *unseen}))
    names = tuple(argument.name for argument in arguments)
    texts = {name: _annotated_text(hints.get(name)) for name in names}
    # What `Annotated` says of a parameter is in the schema; a line on it in the docstring is further guidance.
    documented = unseen | {name for name in names if texts[name] is None}
    texts = {name: text or doc.parameters.get(name) for name, text in texts.items()}
    params_type = _make_params_type(function, arguments, hints, texts, refusals) if names else None
    return _Shape(params_type, result_type, names, context_name, wraps, frozenset(documented))


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
    function: Function,
    arguments: Sequence[inspect.Parameter],
    hints: Mapping[str, Any],
    texts: Mapping[str, str | None],
    refusals: DeclarationErrors,
) -> type[Any]:
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
        made.append((argument.name, hints[argument.name], _field(argument.default, texts[argument.name])))
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
    names, context_name = shape.names, shape.context_name
    if names is None and not shape.wraps:
        return function

    def call(params: Any, context: ToolContext) -> Any:
        arguments = {} if names is None else {name: getattr(params, name) for name in names}
        if context_name is not None:
            arguments[context_name] = context
        return function(params, **arguments) if names is None else function(**arguments)

    def handler(params: Any, context: ToolContext) -> Any:
        return _result(call(params, context))

    async def async_handler(params: Any, context: ToolContext) -> Any:
        return _result(await call(params, context))

    made = async_handler if is_async(function) else handler
    # Another process finds the tool, and so the handler, under the function's name.
    made.__name__, made.__qualname__ = function.__name__, function.__qualname__
    made.__module__, made.__doc__ = function.__module__, function.__doc__
    return made


def _result(value: Any) -> ToolResult[Any]:
    return cast(ToolResult[Any], value) if isinstance(value, ToolResult) else ToolResult.ok(value)
