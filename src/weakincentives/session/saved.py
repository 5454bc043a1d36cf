"""The text a session is saved as: its id and tags, and every slice with the shape of its type."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

from pydantic.errors import PydanticUserError

from ..errors import SessionFormatError
from .encoding import (
    PLAIN_TYPES,
    OpaqueValue,
    adapter_of,
    class_of,
    decode,
    encode_masked,
    first_line,
    parts_of,
    present_name,
    type_name,
    with_parts,
)
from .events import SlicePolicy, own_policy
from .snapshots import Slices
from .vector import EMPTY, Vector

# Marking what cannot be saved, so that one value without a JSON form does not keep a session from being saved.


def marked(value: Any, above: tuple[int, ...] = ()) -> Any:
    """The value with an `OpaqueValue` in place of each smallest part that cannot be saved.

    It is an `OpaqueValue` itself when that does not help: a field with a declared type does not keep a mark, so the
    object around it is what is lost. Nothing of an opaque value is called but what copying and comparing call; what
    they raise makes it opaque.
    """
    mark = OpaqueValue(type_name(class_of(value)))
    if id(value) in above:
        return mark
    try:
        if _can_be_saved(value):
            return value
        parts = parts_of(value)
        if parts is None:
            return mark
        rebuilt = with_parts(value, {key: marked(part, (*above, id(value))) for key, part in parts.items()})
        return rebuilt if _can_be_saved(rebuilt) else mark
    except Exception:  # noqa: BLE001 - the value's class is users' code
        return mark


def _can_be_saved(value: Any) -> bool:
    try:
        encode_masked(value)
    except Exception:  # noqa: BLE001 - SessionFormatError, or what the value's class raises
        return False
    return True


# WINK's own classes in saved sessions: its events, the state of its sections, what its tools take and give.
#
# They are known by name, so that `Session.from_json` needs to be told only of the classes of the application. The list
# is written down: a saved text may be anybody's, and must not make us import or build anything else.


_PACKAGE = "weakincentives."
_CLASSES = {
    "budget": "TokenUsage",
    "content": "Document Image",
    "contrib.code.protocol": "EvalResult",
    "contrib.code.tool": "EvaluatePythonParams PythonResult",
    "contrib.files.reading": (
        "ReadFileParams FileContent ListDirectoryParams Entry Listing GlobFilesParams SearchFilesParams FoundFiles "
        "GrepFilesParams FoundLine FoundLines"
    ),
    "contrib.files.writing": (
        "WriteFileParams EditFileParams FileWritten TransferParams DeleteFileParams FileTransferred FileDeleted"
    ),
    "contrib.podman.shell": "ShellExecuteParams ShellResult",
    "contrib.digest.digest": "WorkspaceDigest",
    "contrib.planning.plan": "Plan PlanStep SetupPlan AddStep UpdateStep ReadPlan",
    "filesystem.protocol": "FileChanges FileStat GrepMatch",
    "prompt.changes": "Changes SliceDelta",
    "prompt.events": "ToolInvoked CallsUndone PromptRendered PromptExecuted",
    "prompt.read_before_write": "SeenFiles",
    "prompt.render": "OpenSections ReadSection",
    "prompt.visibility": "SectionVisibility SetVisibility VisibilityOverrides",
    "results": "ToolResult",
    "run_context": "RunContext",
    "runtime.truncation": "ReadToolResult ResultPart",
}


def own_type(name: str) -> type[Any] | None:
    """The class of WINK with that name in saved text, imported if need be; None when it is none of those.

    `SessionFormatError` when it needs an extra that is not installed.
    """
    module, _, class_name = name.partition(":")
    if class_name not in _CLASSES.get(module.removeprefix(_PACKAGE), "").split() or not module.startswith(_PACKAGE):
        return None
    try:
        return getattr(import_module(module), class_name)
    except ImportError as error:
        raise SessionFormatError(f"The saved session holds {name}, which cannot be imported here: {error}.") from error


# What a class looks like in saved text, so that a changed class is noticed when a session is loaded.


Shape = dict[str, str]
"""The fields of a class, each with its type in words; a class without fields has one, named ''."""


def shape_of(cls: type[Any]) -> Shape:
    """The shape of a class. Raises SessionFormatError for one that has no JSON form."""
    try:
        schema = adapter_of(cls).json_schema(by_alias=False)
    except PydanticUserError as error:
        raise SessionFormatError(f"{type_name(cls)} cannot be saved: {first_line(error)}.") from error
    definitions: dict[str, Any] = schema.get("$defs", {})
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "properties" not in schema:
        return {"": _words(schema, definitions, ())}
    return {name: _words(part, definitions, ()) for name, part in schema["properties"].items()}


def shape_changes(saved: Shape, now: Shape) -> str:
    """What differs between two shapes, for people; empty when nothing does."""
    changes = [f"field '{name}' is gone" for name in saved if name not in now]
    changes += [f"field '{name}' is new" for name in now if name not in saved]
    changes += [
        f"field '{name}' was {saved[name]} and is {now[name]}" if name else f"it was {saved[name]}, is {now[name]}"
        for name in saved
        if name in now and saved[name] != now[name]
    ]
    return ", ".join(changes)


def _words(schema: dict[str, Any], definitions: dict[str, Any], above: tuple[str, ...]) -> str:
    if "$ref" in schema:
        name: str = schema["$ref"].rpartition("/")[2]
        if name in above:
            return name
        return name + " " + _words(definitions[name], definitions, (*above, name))

    def inner(part: dict[str, Any]) -> str:
        return _words(part, definitions, above)

    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return " | ".join(map(inner, schema[union]))
    if "enum" in schema or "const" in schema:
        return f"one of {schema.get('enum', [schema.get('const')])}"
    if "properties" in schema:
        return "{" + ", ".join(f"{name}: {inner(part)}" for name, part in schema["properties"].items()) + "}"
    kind: str = schema.get("format") or schema.get("type") or "anything"
    if "prefixItems" in schema:
        return f"{kind} of ({', '.join(map(inner, schema['prefixItems']))})"
    of = schema.get("items", schema.get("additionalProperties"))
    return f"{kind} of {inner(of)}" if isinstance(of, dict) else kind  # pyright: ignore[reportUnknownArgumentType]


logger: logging.Logger = logging.getLogger(__name__)

OnOpaque = Literal["error", "mark"]
"""What saving does about a value without a JSON form."""

FORMAT = "wink-session"
VERSION = 1


class SavedSession(NamedTuple):
    """What was in a saved session."""

    session_id: str
    tags: dict[str, str]
    slices: list[tuple[type[Any], SlicePolicy, Vector[Any]]]


def dump_session(
    session_id: str, tags: Mapping[str, str], state: Slices, logs: Slices, on_opaque: OnOpaque = "error"
) -> str:
    """The text. Linear in all items, each of which is sure to come back; raises SessionFormatError otherwise.

    With `on_opaque="mark"` what cannot be saved is marked instead, or left out where no mark can stand.
    """
    if on_opaque not in ("error", "mark"):
        raise ValueError(f"on_opaque must be 'error' or 'mark', not {on_opaque!r}.")
    slices: list[dict[str, Any]] = []
    left_out: dict[str, int] = {}
    for policy, content in ((SlicePolicy.STATE, state), (SlicePolicy.LOG, logs)):
        for cls, items in sorted(content.items(), key=lambda entry: type_name(entry[0])):
            kept = items if on_opaque == "error" else _marked(cls, items)
            if len(kept) < len(items):
                left_out[type_name(cls)] = len(items) - len(kept)
            if kept or not items:
                slices.append(_dump_slice(cls, policy, kept))
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "session_id": session_id,
        "tags": dict(tags),
        "slices": slices,
    }
    if left_out:
        logger.warning("Not saved, because they have no JSON form: %s", _counted(left_out))
        document["left_out"] = left_out
    # ASCII, so that even text with lone surrogates can be written to any file.
    return json.dumps(document)


def load_session(text: str | bytes, types: Iterable[type[Any]], accept_changed: Iterable[type[Any]]) -> SavedSession:
    """What the text holds. Raises SessionFormatError naming what is damaged, unknown or changed."""
    accepted = frozenset(accept_changed)
    find = _finder((*types, *accepted))
    document = _read(text)
    try:
        slices = [_load_slice(entry, find, accepted) for entry in document["slices"]]
        if document.get("left_out"):
            logger.warning("The saved session lacks what could not be saved: %s", _counted(document["left_out"]))
        return SavedSession(str(document["session_id"]), dict(document["tags"]), slices)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # A part that has another JSON type than it should raises one of these.
        raise SessionFormatError(f"The saved session is damaged: {type(error).__qualname__}: {error}.") from error


def _marked(cls: type[Any], items: Vector[Any]) -> Vector[Any]:
    """The items with marks where something cannot be saved, without those that cannot be saved at all."""
    try:
        shape_of(cls)
    except SessionFormatError:
        return EMPTY
    return Vector([item for item in map(marked, items) if isinstance(item, cls)])


def _counted(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count} item{'' if count == 1 else 's'} of {name}" for name, count in left_out.items())


def _dump_slice(cls: type[Any], policy: SlicePolicy, items: Vector[Any]) -> dict[str, Any]:
    data: list[Any] = []
    notes: dict[str, Any] = {}
    for index, item in enumerate(items):
        encoded, patches = encode_masked(item)
        data.append(encoded)
        if patches or type(item) is not cls:
            notes[str(index)] = {"type": type_name(class_of(item)), "patches": patches}
    return {
        "type": type_name(cls),
        "policy": policy.value,
        "shape": shape_of(cls),
        "items": data,
        "notes": notes,
    }


def _expected_shape(cls: type[Any], saved: Shape) -> Shape:
    """The shape of the class; of one of ours, without the fields that came since: they have their defaults."""
    now = shape_of(cls)
    if not cls.__module__.startswith(_PACKAGE) or not is_dataclass(cls):
        return now
    optional = {each.name for each in fields(cls) if each.default is not MISSING or each.default_factory is not MISSING}
    return {name: words for name, words in now.items() if name in saved or name not in optional}


def _load_slice(
    entry: dict[str, Any], find: Callable[[str], type[Any]], accepted: frozenset[type[Any]]
) -> tuple[type[Any], SlicePolicy, Vector[Any]]:
    cls = find(entry["type"])
    changes = shape_changes(entry["shape"], _expected_shape(cls, entry["shape"]))
    if changes and cls not in accepted:
        raise SessionFormatError(
            f"{type_name(cls)} has changed since the session was saved: {changes}. "
            "Load it with the class as it was, or name the class in accept_changed= if the saved data still fits."
        )
    policy = SlicePolicy(entry["policy"])
    if own_policy(cls) not in (None, policy):
        raise SessionFormatError(
            f"{type_name(cls)} was saved as a {policy.name} slice, but its class says otherwise now."
        )
    notes: dict[str, Any] = entry["notes"]
    items: list[Any] = []
    for index, data in enumerate(entry["items"]):
        note = notes.get(str(index), {})
        item_type = find(note["type"]) if note else cls
        try:
            items.append(decode(item_type, data, note.get("patches", []), find))
        except SessionFormatError as error:
            raise SessionFormatError(f"Item {index} of the slice of {type_name(cls)}: {error}") from error
    return cls, policy, Vector(items)


def _finder(types: Iterable[type[Any]]) -> Callable[[str], type[Any]]:
    known: dict[str, type[Any]] = {}
    for cls in types:
        if known.setdefault(type_name(cls), cls) is not cls:
            raise SessionFormatError(f"types= has two different classes named {type_name(cls)}.")

    def find(name: str) -> type[Any]:
        name = present_name(name)
        cls = known.get(name) or PLAIN_TYPES.get(name) or own_type(name)
        if cls is None:
            raise SessionFormatError(
                f"The saved session holds {name}, which is not in types=. Add the class there; "
                f"if it is gone, the session cannot be loaded. Known: {', '.join(sorted(known)) or 'none'}."
            )
        return cls

    return lru_cache(maxsize=512)(find)


def _read(text: str | bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SessionFormatError(f"The saved session is damaged: it is not JSON ({error}).") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise SessionFormatError(f"This is not a saved session: it lacks 'format': '{FORMAT}'.")
    if document.get("version") != VERSION:  # pyright: ignore[reportUnknownMemberType]
        raise SessionFormatError(
            f"The saved session has version {document.get('version')!r}, "  # pyright: ignore[reportUnknownMemberType]
            f"but this WINK reads version {VERSION}."
        )
    return document  # pyright: ignore[reportUnknownVariableType]
