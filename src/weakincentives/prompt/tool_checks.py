"""Everything that can be wrong with a tool, refused with a text that names tool, field and fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any, NoReturn, TypeVar, cast, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.json_schema import PydanticJsonSchemaWarning

from ..clock import checked_seconds
from ..content import Document, Image
from ..errors import ParseError, PromptValidationError, SchemaError
from ..results import ToolResult
from ..serde import dump, parse
from ..serde.dumping import holds
from ..serde.schema import shared_schema
from ..signatures import annotations_of
from .canonical import unkeyable
from .handlers import UNKNOWN, HandlerPlan, SignatureError, importable, read_handler, unwrap_awaitable
from .idempotency import IdempotencyConfig
from .tool_metadata import ToolAnnotations, ToolExample
from .type_forms import assignable, fits, is_params_type, is_typed_dict, plain, type_name

NAME_PATTERN = re.compile(r"[a-z0-9_-]{1,64}")
MAX_DESCRIPTION = 200
MAX_GUIDANCE = 4_000
MIN_RESULT_CHARS = 256
"""Less would not hold the notice that a result was cut."""


class DeclarationErrors:
    """Refuses on behalf of one tool: every error carries its name and the type it is about."""

    __slots__ = ("_params_type", "_tool_name")

    def __init__(self, tool_name: str, params_type: Any = None) -> None:
        self._tool_name = tool_name
        self._params_type = params_type if isinstance(params_type, type) else None

    def refuse(self, text: str, dataclass_type: Any = None) -> NoReturn:
        """Raise the error."""
        about = dataclass_type if isinstance(dataclass_type, type) else self._params_type
        raise PromptValidationError(
            f"Tool {self._tool_name!r}: {text}", tool_name=self._tool_name, dataclass_type=about
        ) from None


def checked_name(name: object) -> str:
    """The name, if it is one."""
    if isinstance(name, str) and NAME_PATTERN.fullmatch(name):
        return name
    if not isinstance(name, str):
        DeclarationErrors(repr(name)).refuse(f"name must be text, got {type(name).__name__}.")
    better = re.sub(r"[^a-z0-9_-]+", "_", name.lower()).strip("_")[:64]
    return DeclarationErrors(name).refuse(
        "name must be 1 to 64 lowercase letters, digits, '_' or '-' (^[a-z0-9_-]{1,64}$)"
        + (f"; use {better!r}." if better else ".")
    )


def checked_description(text: object, refusals: DeclarationErrors, what: str = "description") -> str:
    """The text, stripped, if it is 1 to 200 characters."""
    if not isinstance(text, str):
        refusals.refuse(f"{what} must be text, got {type(text).__name__}.")
    stripped = text.strip()
    if not stripped:
        refusals.refuse(f"{what} is empty. Say in 1 to {MAX_DESCRIPTION} characters what the model gets.")
    if len(stripped) > MAX_DESCRIPTION:
        refusals.refuse(
            f"{what} has {len(stripped)} characters, at most {MAX_DESCRIPTION} are allowed. "
            f"Shorten it{_MORE_ROOM if what == 'description' else ''}."
        )
    return stripped


_MORE_ROOM = (
    "; what else the model should know goes into guidance=, or for @tool into the docstring's further paragraphs, "
    f"up to {MAX_GUIDANCE:,} characters"
)


def checked_guidance(text: object, refusals: DeclarationErrors) -> str | None:
    """The text, stripped, if it is at most 4,000 characters; None for an empty one."""
    if text is None:
        return None
    if not isinstance(text, str):
        refusals.refuse(f"guidance must be text, got {type(text).__name__}.")
    stripped = text.strip()
    if len(stripped) > MAX_GUIDANCE:
        refusals.refuse(
            f"guidance has {len(stripped):,} characters, at most {MAX_GUIDANCE:,} are allowed. Shorten it, or put what "
            "concerns more than this tool into the section's template."
        )
    return stripped or None


def checked_plan(handler: Any, refusals: DeclarationErrors) -> HandlerPlan | None:
    """How to call the handler; None for a tool without one."""
    if handler is None:
        return None
    if not callable(handler) or isinstance(handler, type):
        refusals.refuse(
            f"handler must be a function, got {handler!r}. Write def handler(params, *, context) -> ToolResult[Result]."
        )
    try:
        return read_handler(cast(Callable[..., Any], handler))
    except SignatureError as error:
        refusals.refuse(f"handler {handler_name(handler)} cannot be called with params and context: {error}.")


def handler_name(handler: Any) -> str:
    """The handler as its author calls it."""
    return getattr(handler, "__qualname__", None) or type(handler).__qualname__


def declared_types(
    declared: tuple[Any, ...] | None, plan: HandlerPlan | None, refusals: DeclarationErrors
) -> tuple[Any, Any]:
    """The params and result types: as declared, else as the handler is annotated."""
    params_type, result_type = (plain(item) for item in declared or (UNKNOWN, UNKNOWN))
    if isinstance(params_type, TypeVar) or params_type is UNKNOWN:
        params_type = UNKNOWN if plan is None else plain(plan.params_type)
    if isinstance(result_type, TypeVar) or result_type is UNKNOWN:
        result_type = UNKNOWN if plan is None else plain(plan.result_type)
    if params_type is UNKNOWN or result_type is UNKNOWN:
        missing = "params" if params_type is UNKNOWN else "result"
        refusals.refuse(
            f"its {missing} type is not known. Write Tool[Params, Result](...), or annotate the handler: "
            "def handler(params: Params, *, context: ToolContext) -> ToolResult[Result]."
        )
    return params_type, result_type


def check_params_type(params_type: Any, refusals: DeclarationErrors) -> None:
    """Refuse a params type that the model's arguments cannot be parsed into."""
    if params_type is None:
        return
    name = type_name(params_type)
    if not is_params_type(params_type):
        refusals.refuse(f"params type {name} must be a dataclass, or None for a tool without parameters.")
    try:
        shared_schema(params_type)  # cached there, so rendering finds it made
    except PydanticJsonSchemaWarning:
        return  # a default that is left out of the schema, where warnings are errors
    except Exception as error:  # noqa: BLE001 - schema hooks of the user's types run here
        said = str(error).split("\n", 1)[0].rstrip(".")  # without what pydantic adds to it
        refusals.refuse(
            f"params type {name} has no JSON schema{_faulty_field(params_type)}: {said}. Use text, "
            "numbers, lists, dicts and dataclasses; handlers get everything else from context.resources."
        )
    if holds(params_type, _CONTENTS):
        refusals.refuse(
            f"params type {name} holds an Image or a Document, and a model cannot write the bytes of one. Take a path "
            "or an id instead, and return the image in the result."
        )


_CONTENTS = frozenset({Image, Document})


def _faulty_field(params_type: Any) -> str:
    """Which field is to blame, where that can be told."""
    try:
        hints = get_type_hints(params_type, include_extras=True)
    except (NameError, TypeError):
        return ""
    for name, hint in hints.items():
        try:
            shared_schema(hint)
        except Exception:  # noqa: BLE001 - as above
            return f" because of its field {name!r} ({type_name(hint)})"
    return ""


def check_annotations(
    plan: HandlerPlan, handler: Any, params_type: Any, result_type: Any, refusals: DeclarationErrors
) -> None:
    """Refuse a handler whose annotations contradict the tool's types."""
    name = handler_name(handler)
    wanted, returned = type_name(params_type), type_name(result_type)
    if plan.params_type is not UNKNOWN and not assignable(params_type, plan.params_type):
        refusals.refuse(
            f"handler {name} annotates {plan.params_name!r} as {type_name(plan.params_type)}, but the params type is "
            f"{wanted}. Annotate it as {wanted}, or declare Tool[{type_name(plan.params_type)}, {returned}].",
            params_type,
        )
    if plan.returns is UNKNOWN:
        return
    result = unwrap_awaitable(plan.returns)
    if (get_origin(result) or result) not in (ToolResult, Any):
        refusals.refuse(
            f"handler {name} is annotated to return {type_name(plan.returns)}. Handlers return "
            f"ToolResult[{returned}]: use ToolResult.ok(value, message=...) or ToolResult.error(message)."
        )
    annotated = plan.result_type
    if annotated is not UNKNOWN and not assignable(annotated, result_type):
        refusals.refuse(
            f"handler {name} is annotated to return ToolResult[{type_name(annotated)}], but the result type is "
            f"{returned}. Annotate ToolResult[{returned}], or declare Tool[{wanted}, {type_name(annotated)}].",
            result_type,
        )


def checked_examples(
    examples: Any, params_type: Any, result_type: Any, refusals: DeclarationErrors
) -> tuple[ToolExample[Any, Any], ...]:
    """The examples as a tuple, if each shows a call that could be."""
    if isinstance(examples, ToolExample):
        refusals.refuse("examples must be a sequence: write examples=(ToolExample(...),).")
    checked = tuple(examples)
    for number, example in enumerate(checked, 1):
        _check_example(example, f"example {number}", params_type, result_type, refusals)
    return checked


def _check_example(example: object, what: str, params_type: Any, result_type: Any, refusals: DeclarationErrors) -> None:
    if not isinstance(example, ToolExample):
        refusals.refuse(f"{what} must be a ToolExample, got {type(example).__name__}.")
    known = cast(ToolExample[Any, Any], example)
    checked_description(known.description, refusals, f"{what} description")
    if not fits(known.input, params_type):
        _wrong(f"{what} input", known.input, params_type, refusals)
    if not fits(known.output, result_type):
        _wrong(f"{what} output", known.output, result_type, refusals)
    for path, text in _problems(known.input, params_type):
        refusals.refuse(f"{what} input field {path!r} is wrong: {text}. The model would copy it.", params_type)


def _wrong(what: str, value: object, wanted: Any, refusals: DeclarationErrors) -> NoReturn:
    fix = "Pass None" if wanted is None else f"Pass a {type_name(wanted)}"
    refusals.refuse(f"{what} must be {type_name(wanted)}, got {type_name(type(value))}. {fix}.", wanted)


def _problems(value: object, params_type: Any) -> list[tuple[str, str]]:
    """Fields of an example that the arguments' own checks would refuse."""
    if params_type is None:
        return []
    try:
        parse(params_type, dump(value))
    except SchemaError:
        return []
    except ParseError as error:
        return [(item.path, item.text) for item in error.failures if item.path and item.got is not None]
    return []


def checked_timeout(timeout: object, refusals: DeclarationErrors) -> float | None:
    """The timeout in seconds."""
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    try:
        return checked_seconds("timeout", seconds)
    except (TypeError, ValueError) as error:
        refusals.refuse(f"{error} None means no timeout.")


def check_isolation(isolation: object, handler: Any, refusals: DeclarationErrors) -> None:
    """Refuse an unknown isolation, and a handler that another process could not find."""
    if isolation not in (None, "thread", "process"):
        refusals.refuse(f'isolation must be "thread", "process" or None, got {isolation!r}.')
    if isolation == "process" and not importable(handler):
        what = "there is no handler" if handler is None else f"handler {handler_name(handler)} cannot be imported"
        refusals.refuse(f'isolation="process" needs a handler that is a function at module level; {what}.')


def checked_limit(field: str, value: object, least: int, refusals: DeclarationErrors) -> int:
    """A whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        refusals.refuse(f"{field} must be a whole number of {least} or more, got {value!r}.")
    return value


def check_idempotency(config: object, params_type: Any, refusals: DeclarationErrors) -> None:
    """Refuse keys that are not fields of the params, and params that keys cannot be made of."""
    if config is None:
        return
    if not isinstance(config, IdempotencyConfig):
        refusals.refuse(f"idempotency must be an IdempotencyConfig, got {type(config).__name__}.")
    names = field_names(params_type)
    for key in config.param_keys:
        if key not in names:
            known = ", ".join(names) or "none"
            refusals.refuse(
                f"idempotency param_keys names {key!r}, which is not a field of {type_name(params_type)}. "
                f"Its fields: {known}."
            )
    if config.strategy in {"auto", "params"}:
        problem = unkeyable(params_type, config.param_keys)
        if problem is not None:
            refusals.refuse(
                f"idempotency cannot make keys of {type_name(params_type)}: {problem}. "
                'Use IdempotencyConfig(strategy="custom", key_fn=...), or "params" with other fields.'
            )


def check_behaviour(annotations: object, refusals: DeclarationErrors) -> None:
    """Refuse annotations that contradict one another."""
    if not isinstance(annotations, ToolAnnotations):
        refusals.refuse(f"annotations must be ToolAnnotations, got {type(annotations).__name__}.")
    if annotations.read_only and annotations.destructive:
        refusals.refuse(
            "annotations read_only and destructive contradict one another: a read-only tool destroys nothing. "
            "Set one of them."
        )


def field_names(params_type: Any) -> tuple[str, ...]:
    """The names of the arguments."""
    origin = get_origin(params_type) or params_type
    if origin is None:
        return ()
    if is_dataclass(origin):
        return tuple(item.name for item in fields(origin))
    if is_typed_dict(origin):
        return tuple(annotations_of(origin))
    if isinstance(origin, type) and issubclass(origin, BaseModel):
        return tuple(origin.model_fields)
    return ()
