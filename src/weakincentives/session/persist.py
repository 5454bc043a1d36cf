"""The text a session is saved as: its id and tags, and every slice with the shape of its type."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import SessionFormatError
from .encoding import PLAIN_TYPES, class_of, decode, type_name
from .events import SlicePolicy, own_policy
from .opaque import marked
from .own_types import own_type
from .secret_values import encode_masked
from .shapes import shape_changes, shape_of
from .snapshots import Logs, Slices
from .vector import EMPTY, Vector

logger = logging.getLogger(__name__)

OnOpaque = Literal["error", "mark"]
"""What saving does about a value without a JSON form."""

FORMAT = "wink-session"
VERSION = 1


@dataclass(frozen=True, slots=True)
class SavedSession:
    """What was in a saved session."""

    session_id: str
    tags: dict[str, str]
    slices: list[tuple[type[Any], SlicePolicy, Vector[Any]]]


def dump_session(
    session_id: str, tags: Mapping[str, str], state: Slices, logs: Logs, on_opaque: OnOpaque = "error"
) -> str:
    """The text. Linear in all items, each of which is proved to come back; raises SessionFormatError otherwise.

    With `on_opaque="mark"` what would not come back is marked instead, or left out where no mark can stand.
    """
    if on_opaque not in ("error", "mark"):
        raise ValueError(f"on_opaque must be 'error' or 'mark', not {on_opaque!r}.")
    slices: list[dict[str, Any]] = []
    left_out: dict[str, int] = {}
    for policy, content in ((SlicePolicy.STATE, state), (SlicePolicy.LOG, logs)):
        for cls, items in _by_name(content):
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
        # Whatever a part of another JSON type than it should have leads to.
        raise SessionFormatError(f"The saved session is damaged: {type(error).__qualname__}: {error}.") from error


def _by_name(slices: Slices | Logs) -> Iterator[tuple[type[Any], Vector[Any]]]:
    yield from sorted(slices.items(), key=lambda entry: type_name(entry[0]))


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


def _load_slice(
    entry: dict[str, Any], find: Callable[[str], type[Any]], accepted: frozenset[type[Any]]
) -> tuple[type[Any], SlicePolicy, Vector[Any]]:
    cls = find(entry["type"])
    changes = shape_changes(entry["shape"], shape_of(cls))
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
        cls = known.get(name) or PLAIN_TYPES.get(name) or own_type(name)
        if cls is None:
            raise SessionFormatError(
                f"The saved session holds {name}, which is not in types=. Add the class there; "
                f"if it is gone, the session cannot be loaded. Known: {', '.join(sorted(known)) or 'none'}."
            )
        return cls

    return find


def _read(text: str | bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SessionFormatError(f"The saved session is damaged: it is not JSON ({error}).") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise SessionFormatError(f"This is no saved session: it lacks 'format': '{FORMAT}'.")
    if document.get("version") != VERSION:  # pyright: ignore[reportUnknownMemberType]
        raise SessionFormatError(
            f"The saved session has version {document.get('version')!r}, "  # pyright: ignore[reportUnknownMemberType]
            f"but this WINK reads version {VERSION}."
        )
    return document  # pyright: ignore[reportUnknownVariableType]


__all__ = ["OnOpaque", "SavedSession", "dump_session", "load_session"]
