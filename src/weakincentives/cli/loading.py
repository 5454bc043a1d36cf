"""What a command line names and asks: `agent.py`, `agent.py:review`, `package.module:Loop`, and `--request`."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import sys
import traceback
import typing
from collections.abc import Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

from ..errors import ParseError, PromptRenderError, PromptValidationError, WinkError
from ..prompt import MarkdownSection, Prompt, PromptTemplate, RecordedError
from ..runtime import MainLoop
from ..serde import parse
from ..session import Session
from .output import FailedError, UsageError

_OURS = str(Path(__file__).parents[1]) + os.sep
_TRACE_LINE = re.compile(r'^ +File "(.+)", line (\d+)', re.MULTILINE)

Target = type[MainLoop[Any, Any]] | MainLoop[Any, Any] | PromptTemplate[Any] | Prompt[Any]


class Loaded(NamedTuple):
    """What was named, where it stands, and the module around it."""

    name: str
    target: Target
    module: ModuleType


def load(text: str) -> Loaded:
    """The loop or prompt that `PATH_OR_MODULE[:name]` names; without a name, the only one there is.

    `UsageError` when there is no such file, module or name, when importing it raises, and when there are several.
    """
    place, name = _split(text)
    module = _import_file(Path(place)) if _is_path(place) else _import_module(place)
    found = _candidates(module)
    if name:
        target = getattr(module, name, None)
        if target is None:
            raise UsageError(f"{place} has no {name!r}{_listed(found, '; it has')}")
        if not _is_target(target):
            raise UsageError(
                f"{name} in {place} is a {type(target).__name__}; name a MainLoop, a PromptTemplate or a Prompt"
                f"{_listed(found, ', such as')}"
            )
        return Loaded(name, target, module)
    loops = {key: value for key, value in found.items() if not isinstance(value, PromptTemplate | Prompt)}
    choice = loops or found
    if not choice:
        raise UsageError(f"{place} defines no MainLoop, PromptTemplate or Prompt")
    if len(choice) > 1:
        raise UsageError(f"{place} defines several{_listed(choice, ':')}; choose one: {place}:{next(iter(choice))}")
    name, target = next(iter(choice.items()))
    return Loaded(name, target, module)


def load_object(text: str) -> object:
    """The object that `PATH_OR_MODULE:name` names; `UsageError` when there is none, or importing it raises."""
    place, name = _split(text)
    if not name:
        raise UsageError(f"{text} names no object; write PATH_OR_MODULE:NAME")
    module = _import_file(Path(place)) if _is_path(place) else _import_module(place)
    found = getattr(module, name, None)
    if found is None:
        raise UsageError(f"{place} has no {name!r}")
    return found


def _split(text: str) -> tuple[str, str]:
    place, colon, name = text.rpartition(":")
    if not colon or not (name.isidentifier() or not name):
        return text, ""
    return place, name


def _is_path(place: str) -> bool:
    return place.endswith(".py") or "/" in place or not place.strip(".") or Path(place).is_file()


def _import_file(path: Path) -> ModuleType:
    if path.is_dir():
        raise UsageError(f"{path} is a directory; name the Python file in it")
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    name = path.stem if path.stem.isidentifier() else "wink_target"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    sys.path.insert(0, str(path.parent.resolve()))
    _guarded(str(path), lambda: spec.loader.exec_module(module))  # pyright: ignore[reportOptionalMemberAccess]
    return module


def _import_module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return _guarded(name, lambda: import_module(name))
    except ModuleNotFoundError as error:
        raise UsageError(f"there is no module {error.name!r}, and no file {name}") from None


def _guarded(place: str, load: Any) -> Any:
    """Run a user's module; what it raises is told with the line it comes from."""
    try:
        return load()
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise
        raise UsageError(f"{place} could not be imported: {error}{_where(error)}") from None
    except SystemExit as error:
        raise UsageError(f"{place} ended the program when it was imported (exit code {error.code})") from None
    except Exception as error:  # noqa: BLE001 - users' code
        raise UsageError(f"{place} could not be imported: {type(error).__name__}: {error}{_where(error)}") from None


def _where(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return ""  # says so itself
    return last_line(error)


def last_line(error: BaseException | RecordedError | None) -> str:
    """The last line of the user's own code that an error passed, in brackets; nothing when it passed none."""
    if isinstance(error, RecordedError):
        passed = [(name, int(line)) for name, line in _TRACE_LINE.findall(error.trace)]
    else:
        frames = traceback.extract_tb(None if error is None else error.__traceback__)
        passed = [(frame.filename, frame.lineno or 0) for frame in frames]
    own = [place for place in passed if not place[0].startswith((_OURS, "<"))]
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""


def _candidates(module: ModuleType) -> dict[str, Target]:
    """Loops defined in the module, and the prompts it has, by name; the same object under two names once."""
    found: dict[str, Target] = {}
    seen: set[int] = set()
    for name, value in vars(module).items():
        if name.startswith("_") or not _is_target(value) or id(value) in seen:
            continue
        if isinstance(value, type) and value.__module__ != module.__name__:
            continue
        seen.add(id(value))
        found[name] = value
    instances = {type(value) for value in found.values() if isinstance(value, MainLoop)}
    return {name: value for name, value in found.items() if value not in instances}


def _is_target(value: Any) -> bool:
    if isinstance(value, type):
        return issubclass(value, MainLoop) and not inspect.isabstract(cast(object, value))
    return isinstance(value, MainLoop | PromptTemplate | Prompt)


def _listed(found: Mapping[str, object], words: str) -> str:
    return f"{words} {', '.join(found)}" if found else ""


# The prompt behind whatever a command line names, for commands that look at it.


class NoModel:
    """Stands where an adapter would, for loops that are only looked at."""

    name = "none"

    def evaluate(self, *_: Any, **options: Any) -> Any:  # noqa: ARG002 - the signature of an adapter
        """No model is asked."""
        raise UsageError("this command asks no model")


def make_loop(loaded: Loaded, adapter: Any) -> MainLoop[Any, Any]:
    """The loop that was named, made with the adapter when it is a class. `UsageError` when that raises."""
    target = cast(object, loaded.target)
    if isinstance(target, MainLoop):
        return cast("MainLoop[Any, Any]", target)
    cls = cast("type[MainLoop[Any, Any]]", target)
    try:
        return cls(adapter=adapter)
    except Exception as error:  # noqa: BLE001 - users' code
        raise UsageError(f"{loaded.name}(adapter=...) raised {type(error).__name__}: {error}") from None


def prompt_and_session(loaded: Loaded, request: str | None) -> tuple[Prompt[Any], Session]:
    """The prompt a request leads to; `FailedError` when `prepare` raises, as in a run."""
    target = loaded.target
    if isinstance(target, PromptTemplate | Prompt):
        return prompt_for(target, request), Session()
    loop = make_loop(loaded, NoModel())
    asked = request_for(type(loop), request)
    try:
        prompt, session = loop.prepare(asked)
        return prompt.bind(resources=loop.config.resources), session
    except (PromptRenderError, PromptValidationError) as error:
        raise UsageError(f"{loaded.name}.prepare(): {error}") from None
    except Exception as error:  # noqa: BLE001 - users' code
        text = f"{loaded.name}.prepare() raised {type(error).__name__}: {error}{last_line(error)}"
        raise FailedError(text) from None


# What `--request` says, as the request of a loop or the params of a prompt.


def read_request(text: str | None) -> str | None:
    """The text given, or what stands on standard input for `-`; `UsageError` when there is nothing."""
    if text != "-":
        return text
    read = sys.stdin.read()
    if not read.strip():
        raise UsageError("--request - reads the request from standard input, and nothing came")
    return read


def request_for(loop: type[MainLoop[Any, Any]], text: str | None) -> Any:
    """The loop's request. A `str` may be given as it is; everything else is JSON, checked against its type.

    Without a text, a request that needs nothing is made. `UsageError` for JSON that does not fit.
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
        raise UsageError(f"{loop.__name__} answers requests of the type {name}: give one with {_asked(wanted)}")
    if wanted is str and not text.lstrip().startswith('"'):
        return text
    if wanted is None:
        return _json(text)
    return _parsed(wanted, text)


def prompt_for(target: PromptTemplate[Any] | Prompt[Any], text: str | None) -> Prompt[Any]:
    """The prompt with its params bound.

    JSON for the only params type there is, or an object with one key per type. A prompt without params takes the text
    as a section of its own. `UsageError` for JSON that does not fit.
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
        raise UsageError(f"--request takes an object with the keys {', '.join(types)}")
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
        raise UsageError(f"--request is not valid JSON: {error}") from None


def _parsed(cls: Any, text: str) -> Any:
    _json(text)
    try:
        return parse(cls, text)
    except ParseError as error:
        raise UsageError(f"--request is not a {getattr(cls, '__name__', cls)}: {error}") from None
    except WinkError as error:
        raise UsageError(f"--request cannot be read: {error}") from None
