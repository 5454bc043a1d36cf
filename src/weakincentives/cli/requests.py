"""What `--request` says, as the request of a loop or the params of a prompt."""

from __future__ import annotations

import dataclasses
import json
import sys
import typing
from typing import Any, cast

from ..errors import ParseError, WinkError
from ..prompt import MarkdownSection, Prompt, PromptTemplate
from ..runtime import MainLoop
from ..serde import parse
from .usage import WrongUseError


def read_request(text: str | None) -> str | None:
    """The text given, or what stands on standard input for `-`; `WrongUseError` when there is nothing."""
    if text != "-":
        return text
    read = sys.stdin.read()
    if not read.strip():
        raise WrongUseError("--request - reads the request from standard input, and nothing came")
    return read


def request_for(loop: type[MainLoop[Any, Any]], text: str | None) -> Any:
    """The loop's request. A `str` may be given as it is; everything else is JSON, checked against its type.

    Without a text, a request that needs nothing is made. `WrongUseError` for JSON that does not fit.
    """
    wanted = request_type(loop)
    name = getattr(wanted, "__name__", str(wanted))
    if text is None:
        if wanted is type(None):
            return None
        if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
            try:
                return wanted()
            except TypeError:
                pass
        raise WrongUseError(f"{loop.__name__} answers requests of the type {name}: give one with {_asked(wanted)}")
    if wanted is str and not text.lstrip().startswith('"'):
        return text
    if wanted is None:
        return _json(text)
    return _parsed(wanted, text)


def prompt_for(target: PromptTemplate[Any] | Prompt[Any], text: str | None) -> Prompt[Any]:
    """The prompt with its params bound.

    JSON for the only params type there is, or an object with one key a type. A prompt without params takes the text as
    a section of its own. `WrongUseError` for JSON that does not fit.
    """
    prompt = target if isinstance(target, Prompt) else Prompt(target)
    if text is None:
        return prompt
    types = {cls.__name__: cls for cls in prompt.template.tree.params_types}
    if not types:
        section = MarkdownSection[Any](title="Request", key="wink-request", template=text.replace("$", "$$"))
        return prompt.bind(sections=[section])
    if len(types) == 1:
        return prompt.bind(_parsed(next(iter(types.values())), text))
    given = _json(text)
    if not isinstance(given, dict) or not given.keys() <= types.keys():
        raise WrongUseError(f"--request takes an object with the keys {', '.join(types)}")
    members = cast("dict[str, Any]", given)
    return prompt.bind(*[_parsed(types[name], json.dumps(value)) for name, value in members.items()])


def request_type(loop: type[MainLoop[Any, Any]]) -> Any:
    """The first argument of `MainLoop[...]` in the class header, or None when it says nothing."""
    for cls in loop.__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            if typing.get_origin(base) is MainLoop:
                first = typing.get_args(base)[0]
                return None if first is Any or isinstance(first, typing.TypeVar) else first
    return None


def _asked(wanted: Any) -> str:
    """How to give such a request, as far as the names of its fields say."""
    if not (isinstance(wanted, type) and dataclasses.is_dataclass(wanted)):
        return "--request"
    needed = [field.name for field in dataclasses.fields(wanted) if field.init and not _has_default(field)]
    return f"--request '{{{', '.join(f'{json.dumps(name)}: ...' for name in needed)}}}'"


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise WrongUseError(f"--request is not valid JSON: {error}") from None


def _parsed(cls: Any, text: str) -> Any:
    _json(text)
    try:
        return parse(cls, text)
    except ParseError as error:
        raise WrongUseError(f"--request is not a {getattr(cls, '__name__', cls)}: {error}") from None
    except WinkError as error:
        raise WrongUseError(f"--request cannot be read: {error}") from None


__all__ = ["prompt_for", "read_request", "request_for", "request_type"]
