"""`wink tools TARGET`: the tools a model would be offered, with their schemas."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from typing import Any, cast

from ...errors import WinkError
from ...loop.request import ToolSpec, tool_spec
from ...prompt import Prompt, PromptTemplate
from ...session import Session
from ..loading import Loaded, NoModel, load, make_loop, prompt_and_session, read_request, request_type
from ..output import UsageError, json_text, show, show_json


def run(arguments: argparse.Namespace) -> int:
    """Print the tools. Where they depend on the request, `UsageError` asks for one."""
    prompt, specs = offered_tools(load(arguments.target), read_request(arguments.request))
    if arguments.json:
        show_json([spec._asdict() for spec in specs], indent=2)
        return 0
    for spec in specs:
        show(f"{spec.name}{'  (read-only)' if spec.read_only else ''}")
        show("\n".join(f"  {line}".rstrip() for line in spec.text.splitlines()))
        policies = ", ".join(type(policy).__name__ for policy in prompt.policies_for(spec.name))
        if policies:
            show(f"  policies: {policies}")
        show("\n".join(f"    {line}" for line in json_text(spec.schema, indent=2).splitlines()))
        show()
    show(f"{len(specs)} {'tool' if len(specs) == 1 else 'tools'} of the prompt {prompt.name!r}")
    return 0


# Made-up requests, for looking at an agent whose tools do not depend on the request.


class NoStandInError(Exception):
    """Nothing can be made up for a type."""


def stand_in(wanted: Any, which: int, name: str = "request") -> Any:
    """A value of the type. That for `which` 0 differs from that for 1 wherever the type allows it.

    `NoStandInError` for types that are neither plain data nor dataclasses of it, and for values that a class refuses.
    """
    if wanted is str:
        return f"(the {name})" if which == 0 else f"(another {name})"
    if wanted in {int, float, bool}:
        return wanted(which)
    if wanted is type(None):
        return None
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
        return _made(wanted, which)
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return list(wanted)[-which]
    return _composed(typing.get_origin(wanted) or wanted, typing.get_args(wanted), which, name)


def _composed(origin: Any, arguments: tuple[Any, ...], which: int, name: str) -> Any:
    if origin in {typing.Annotated, typing.Union, types.UnionType}:
        return stand_in(arguments[0], which, name)
    if origin is typing.Literal:
        return arguments[-which]
    if origin in {list, tuple, set, frozenset, dict}:
        items = [stand_in(arguments[0], which, name)] if which and arguments and origin is not dict else []
        return cast("Any", origin)(items)
    raise NoStandInError(str(origin))


def _made(cls: type[Any], which: int) -> Any:
    try:
        hints: Mapping[str, Any] = typing.get_type_hints(cls, include_extras=True)
        fields = [field for field in dataclasses.fields(cls) if field.init]
        return cls(**{field.name: stand_in(hints[field.name], which, field.name) for field in fields})
    except NoStandInError:
        raise
    except Exception as error:
        raise NoStandInError(cls.__name__) from error


Offered = tuple[Prompt[Any], list[ToolSpec]]


def offered_tools(loaded: Loaded, request: str | None) -> Offered:
    """The prompt and its tools; `UsageError` when a request is needed to know them.

    Without a request a loop prepares two made-up ones that differ in every field. If both lead to the same tools, the
    tools do not depend on it.
    """
    try:
        prompt, session = prompt_and_session(loaded, request)
    except UsageError:
        found = None if request is not None else _for_any_request(loaded)
        if found is None:
            raise
        return found
    try:
        return prompt, _specs(prompt, session)
    except WinkError as error:
        raise UsageError(f"{error} (give params with --request)") from None


def _for_any_request(loaded: Loaded) -> Offered | None:
    if isinstance(loaded.target, PromptTemplate | Prompt):
        return None
    loop = make_loop(loaded, NoModel())
    found: list[Offered] = []
    try:
        for which in (0, 1):
            prompt, session = loop.prepare(stand_in(request_type(type(loop)), which))
            found.append((prompt, _specs(prompt, session)))
    except NoStandInError:
        return None
    except Exception:  # noqa: BLE001 - users' code, which may rightly refuse what was made up
        return None
    return found[0] if found[0][1] == found[1][1] else None


def _specs(prompt: Prompt[Any], session: Session) -> list[ToolSpec]:
    return [tool_spec(tool) for tool in prompt.tools(session=session)]
