"""The tool: a typed contract between a model and a handler, checked when it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, cast

from ..serde import parse, parser, schema
from .handlers import AnyHandler, Call
from .idempotency import IdempotencyConfig
from .tool_checks import (
    MIN_RESULT_CHARS,
    DeclarationErrors,
    check_annotations,
    check_behaviour,
    check_idempotency,
    check_isolation,
    check_params_type,
    checked_description,
    checked_examples,
    checked_guidance,
    checked_limit,
    checked_name,
    checked_plan,
    checked_timeout,
    declared_types,
    field_names,
)
from .tool_context import ToolContext
from .tool_metadata import ToolAnnotations, ToolExample
from .type_forms import type_name

ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")

Isolation = Literal["thread", "process"]

DEFAULT_MAX_RESULT_CHARS = 32 * 1024
"""How much of a result the model reads at once; the rest stays behind a handle."""

_NO_PARAMS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_NO_ANNOTATIONS = ToolAnnotations()


class _TypedTool(GenericAlias):
    """`Tool[P, R]`: calling it builds a tool that knows its types before it checks itself.

    Python's own alias tells the new object its types only after `__init__`, too late to refuse anything.
    """

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cls: Any = self.__origin__
        made = cls.__new__(cls)
        object.__setattr__(made, "_declared", self.__args__)
        made.__init__(*args, **kwargs)
        return made


class Tool(Generic[ParamsT, ResultT]):
    """What a model may call: name, description, the types of its arguments and result, and the handler.

    `Tool[Params, Result](...)` names the types; without them they are read from the handler's annotations. Everything
    that can be wrong is refused here, with `PromptValidationError` naming tool, field and fix. A tool never changes;
    `replace` makes another one.

    Attributes:
        description: 1 to 200 characters: what the tool does.
        guidance: up to 4,000 characters that follow the description in the provider's schema: when to call it, what
            to mind, what its result means; None for none.
        timeout: seconds after which a call is failed and undone; None for no limit but the run's deadline.
        isolation: "process" runs the handler where it can be killed for certain; it must be importable. "thread"
            runs it in a worker thread; None in the caller's unless there is a timeout or deadline.
        blocking: whether a plain handler may take long. In async code it runs in a worker thread then, so that others
            get on meanwhile; False says that it is quick, and runs it on the event loop.
        max_result_chars: what the model reads of a result at most; the rest can be read on with `read_tool_result`.
        max_repeats: this many identical calls in a row and the last one is refused; None for tools that poll.
        idempotency: when two calls are one; None runs every call.
        call: the handler with one signature, `(params, context)`; returns an awaitable when `is_async`.
        parse: JSON text, bytes or a mapping to params, strictly; `ParseError` holds everything that is wrong.

    >>> from dataclasses import dataclass
    >>> from weakincentives.prompt import ToolResult
    >>> @dataclass(frozen=True)
    ... class Add:
    ...     left: int
    ...     right: int
    >>> def add(params: Add) -> ToolResult[int]:
    ...     return ToolResult.ok(params.left + params.right)
    >>> tool = Tool[Add, int](name="add", description="Add two numbers.", handler=add)
    >>> tool.call(tool.parse('{"left": 1, "right": 2}'), ToolContext()).value
    3
    """

    __slots__ = (
        "__weakref__",
        "_declared",
        "_param_descriptions",
        "accepts_overrides",
        "annotations",
        "blocking",
        "call",
        "description",
        "examples",
        "guidance",
        "handler",
        "idempotency",
        "is_async",
        "isolation",
        "max_repeats",
        "max_result_chars",
        "name",
        "params_type",
        "parse",
        "result_type",
        "timeout",
    )

    name: str
    description: str
    guidance: str | None
    handler: AnyHandler[ParamsT, ResultT] | None
    params_type: type[ParamsT] | None
    result_type: Any
    examples: tuple[ToolExample[ParamsT, ResultT], ...]
    timeout: float | None
    isolation: Isolation | None
    blocking: bool
    max_result_chars: int
    max_repeats: int | None
    idempotency: IdempotencyConfig | None
    annotations: ToolAnnotations
    accepts_overrides: bool
    call: Call
    is_async: bool
    parse: Callable[[str | bytes | Mapping[str, Any]], ParamsT]
    _declared: tuple[Any, ...]
    _param_descriptions: Mapping[str, str]

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: object) -> GenericAlias:
            # `Generic` checks the number of types; its alias is what annotations and subclasses expect.
            alias = super().__class_getitem__(types)
            return _TypedTool(cls, alias.__args__)

    def __init__(
        self,
        *,
        name: str,
        description: str,
        handler: AnyHandler[ParamsT, ResultT] | None = None,
        guidance: str | None = None,
        examples: Sequence[ToolExample[ParamsT, ResultT]] = (),
        timeout: float | timedelta | None = None,
        isolation: Isolation | None = None,
        blocking: bool = True,
        max_result_chars: int = DEFAULT_MAX_RESULT_CHARS,
        max_repeats: int | None = 5,
        idempotency: IdempotencyConfig | None = None,
        annotations: ToolAnnotations = _NO_ANNOTATIONS,
        accepts_overrides: bool = True,
    ) -> None:
        name = checked_name(name)
        refusals = DeclarationErrors(name)
        plan = checked_plan(handler, refusals)
        declared = cast(tuple[Any, ...] | None, getattr(self, "_declared", None))
        params_type, result_type = declared_types(declared, plan, refusals)
        refusals = DeclarationErrors(name, params_type)
        check_params_type(params_type, refusals)
        if plan is not None:
            check_annotations(plan, handler, params_type, result_type, refusals)
        check_isolation(isolation, handler, refusals)
        check_idempotency(idempotency, params_type, refusals)
        check_behaviour(annotations, refusals)
        self._fill(
            name=name,
            description=checked_description(description, refusals),
            guidance=checked_guidance(guidance, refusals),
            handler=handler,
            params_type=params_type,
            result_type=result_type,
            examples=checked_examples(examples, params_type, result_type, refusals),
            timeout=checked_timeout(timeout, refusals),
            isolation=isolation,
            blocking=blocking,
            max_result_chars=checked_limit("max_result_chars", max_result_chars, MIN_RESULT_CHARS, refusals),
            max_repeats=None if max_repeats is None else checked_limit("max_repeats", max_repeats, 2, refusals),
            idempotency=idempotency,
            annotations=annotations,
            accepts_overrides=accepts_overrides,
            call=_no_handler if plan is None else plan.call,
            is_async=plan is not None and plan.is_async,
            parse=_parse_nothing if params_type is None else parser(params_type),
            _declared=(params_type, result_type),
            _param_descriptions={},
        )

    def _fill(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, a copy; made on first use and kept for the type."""
        made = deepcopy(_NO_PARAMS) if self.params_type is None else schema(self.params_type)
        for name, text in self._param_descriptions.items():
            made["properties"][name]["description"] = text
        return made

    def replace(self, **changes: Any) -> Tool[ParamsT, ResultT]:
        """Another tool with some arguments of the constructor changed, checked again.

        >>> tool = Tool[None, str](name="now", description="The time.")
        >>> tool.replace(name="clock_now").name
        'clock_now'
        """
        kept = {name: getattr(self, name) for name in _ARGUMENTS if name not in changes}
        other = self._remade({**kept, **changes})
        object.__setattr__(other, "_param_descriptions", self._param_descriptions)
        return other

    def _remade(self, arguments: Mapping[str, Any]) -> Tool[ParamsT, ResultT]:
        return _TypedTool(Tool, self._declared)(**arguments)

    def with_descriptions(
        self, description: str | None = None, params: Mapping[str, str] | None = None
    ) -> Tool[ParamsT, ResultT]:
        """Another tool that describes itself, or some of its parameters, in other words.

        `PromptValidationError` for a parameter that does not exist.
        """
        other = self.replace(description=self.description if description is None else description)
        described = {**self._param_descriptions, **(params or {})}
        unknown = sorted(described.keys() - field_names(self.params_type))
        if unknown:
            DeclarationErrors(self.name, self.params_type).refuse(
                f"there is no parameter {unknown[0]!r} to describe. "
                f"Its parameters: {', '.join(field_names(self.params_type)) or 'none'}."
            )
        object.__setattr__(other, "_param_descriptions", described)
        return other

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Tool.{name} cannot be set; tool.replace({name}=...) makes another tool.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Tool.{name} cannot be deleted.")

    def __repr__(self) -> str:
        return f"Tool[{type_name(self.params_type)}, {type_name(self.result_type)}](name={self.name!r})"


_ARGUMENTS = (
    "name", "description", "handler", "guidance", "examples", "timeout", "isolation", "blocking", "max_result_chars",
    "max_repeats", "idempotency", "annotations", "accepts_overrides",
)  # fmt: skip


def _no_handler(params: object, context: ToolContext) -> NoReturn:  # noqa: ARG001 - the one signature
    raise TypeError(f"The tool {context.tool_name or ''} has no handler, so it cannot be called here.")


def _parse_nothing(arguments: str | bytes | Mapping[str, Any]) -> None:
    """Accept what models send for a call without arguments: nothing, null and an empty object."""
    if not arguments or (isinstance(arguments, str | bytes) and arguments.strip() in _NOTHING):
        return
    parse(_Nothing, arguments)


_NOTHING = ("", "null", "{}", b"", b"null", b"{}")


@dataclass
class _Nothing:
    """No parameters."""
