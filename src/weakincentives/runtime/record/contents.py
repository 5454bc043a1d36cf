"""Images and documents on record: each is a blob, kept once, and rows have its name in the place of its bytes.

A step's body lists the names under `contents`, so that an export brings them along and pruning leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from ...content import KINDS_MADE, KeptApart, kept_apart
from ...content import Content as Attachment
from ...errors import ParseError, RunFormatError
from ...serde import dump, parse
from .protocol import RunStore
from .rows import Content, Step, digest_of

Attachments = tuple[Attachment, ...]
"""What a message shows besides text."""


_NONE = nullcontext()


@dataclass(frozen=True, slots=True)
class _Shown:
    attachments: Attachments


def contents_apart(store: RunStore, blobs: dict[str, Content]) -> AbstractContextManager[None]:
    """While it is open, images and documents in what is dumped are added to the blobs, and stand there by name."""
    if not KINDS_MADE:
        return _NONE

    def put(data: bytes) -> str:
        name = digest_of(data)
        blobs[name] = data
        return name

    def get(name: str) -> bytes:  # whether a value comes back is tried before it is written
        found = blobs.get(name)
        return found if isinstance(found, bytes) else store.blob(name)

    return kept_apart(KeptApart(put, get))


def contents_of(store: RunStore) -> AbstractContextManager[None]:
    """While it is open, names of images and documents in what is loaded become these again.

    Needed only for a step whose body has `contents`.
    """
    return kept_apart(KeptApart(digest_of, store.blob))


def referring(body: Mapping[str, Any], shown: Mapping[str, Content]) -> Mapping[str, Any]:
    """The body of a step, with the names of the images and documents in it."""
    return {**body, "contents": [{"blob": name} for name in shown]} if shown else body


def dump_attachments(attachments: Attachments) -> list[Any]:
    """As a body has them; to be called while they are kept apart."""
    return dump(_Shown(attachments))["attachments"]


def load_attachments(step: Step, store: RunStore) -> Attachments:
    """What the prompt or message of a step shows besides text; `RunFormatError` when that cannot be read."""
    if "attachments" not in step.body:
        return ()
    try:
        with contents_of(store):
            return parse(_Shown, {"attachments": step.body["attachments"]}).attachments
    except ParseError as error:
        raise RunFormatError(f"Step {step.seq} of the record cannot be read: {error}.") from error


__all__ = ["Attachments", "contents_apart", "contents_of", "dump_attachments", "load_attachments", "referring"]
