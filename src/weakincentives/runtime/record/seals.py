"""Stores whose content cannot be read without a key: what is written is sealed, and opened when it is read.

The key is the user's, behind two methods. The store has a key of its own besides, made at random and kept sealed, with
which it hashes the names of content: a plain digest of a short text tells the text to anyone who can guess it.
"""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import chain
from typing import Any, Protocol, final, runtime_checkable

from ...errors import RecordError
from ...filesystem.protocol import LargeFile
from .rows import Content, FileStep, FrameStep, NewRows, NewRun, RunInfo

_DIGEST = re.compile(r"(?:.*:)?([0-9a-f]{40})", re.DOTALL)
_PIECE = 1 << 20
"""Content is sealed in pieces of so many bytes, so that none has to be held whole."""
_LENGTH = 4
_SEALED = "sealed"
_MARK = f"{_SEALED}:"
_KEY_BYTES = 32
_GREETING = b"wink run store 1\n"
"""Before the key: tells a seal that opens anything, and gives nonsense, from the right one."""


@runtime_checkable
class Seal(Protocol):
    """Encrypts what a run store keeps: `SqliteRunStore("runs.db", seal=...)`.

    Use authenticated encryption, and a key that is not kept beside the store. Both methods are called from several
    threads at once; content is sealed in pieces of a megabyte. What they raise ends the operation with `RecordError`.
    """

    def seal(self, content: bytes, /) -> bytes:
        """The content in a form that only `open` understands; best another one each time."""
        ...

    def open(self, sealed: bytes, /) -> bytes:
        """What was sealed; raises any exception for bytes that were not sealed with the same key, or were changed."""
        ...


class RowForm(Protocol):
    """How rows stand in the tables of a store."""

    def rows(self, rows: NewRows) -> NewRows:
        """Rows as they are written. It is done before the transaction: a seal may take long."""
        ...

    def run(self, new: NewRun) -> NewRun:
        """A run as its row is written."""
        ...

    def name(self, digest: str) -> str:
        """What content with that digest is called in the store."""
        ...

    def content(self, stored: bytes) -> bytes:
        """Content that was read; `RecordError` when it is damaged."""
        ...

    def info(self, info: RunInfo) -> RunInfo:
        """A run that was read; `RecordError` when it is damaged."""
        ...

    @property
    def hides_names(self) -> bool:
        """Whether bodies must be opened to see which content they refer to."""
        ...

    def body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The body of a step that was read; `RecordError` when it is damaged."""
        ...

    def body_text(self, stored: str) -> str:
        """The same as JSON; `RecordError` when it is damaged."""
        ...

    def reference(self, stored: str) -> str:
        """A node or the name of content that was read; `RecordError` when it is damaged."""
        ...


@final
class PlainForm:
    """Rows as they are."""

    hides_names = False

    def rows(self, rows: NewRows) -> NewRows:
        """As `RowForm.rows`."""
        return rows

    def run(self, new: NewRun) -> NewRun:
        """As `RowForm.run`."""
        return new

    def name(self, digest: str) -> str:
        """As `RowForm.name`."""
        return digest

    def content(self, stored: bytes) -> bytes:
        """As `RowForm.content`."""
        return stored

    def info(self, info: RunInfo) -> RunInfo:
        """As `RowForm.info`."""
        return info

    def body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """As `RowForm.body`."""
        return body

    def body_text(self, stored: str) -> str:
        """As `RowForm.body_text`."""
        return stored

    def reference(self, stored: str) -> str:
        """As `RowForm.reference`."""
        return stored


@final
class SealedForm:
    """Rows whose bodies, requests, tags and content are sealed.

    A reference to content ends with its name in the store, so that unused content is found by the columns alone.
    """

    hides_names = True

    def __init__(self, seal: Seal, key: bytes) -> None:
        self._seal = seal
        self._key = key

    def rows(self, rows: NewRows) -> NewRows:
        """As `RowForm.rows`."""
        return NewRows(
            [replace(step, body=self._sealed_data(dict(step.body))) for step in rows.steps],
            [FileStep(file.path, file.seq, self._refer(file.before), self._refer(file.after)) for file in rows.files],
            {self.name(digest): self._sealed_content(content) for digest, content in rows.blobs.items()},
            rows.status,
            [FrameStep(frame.slice, frame.seq, self._refer(frame.blob)) for frame in rows.frames],
        )

    def run(self, new: NewRun) -> NewRun:
        """As `RowForm.run`."""
        return new._replace(
            request=None if new.request is None else json.dumps(self._sealed_data(new.request)),
            request_digest=new.request_digest and self._sealed_text(new.request_digest),
            tags=self._sealed_data(dict(new.tags)) if new.tags else {},
        )

    def name(self, digest: str) -> str:
        """As `RowForm.name`."""
        return blake2b(digest.encode("utf-8", "surrogatepass"), digest_size=20, key=self._key).hexdigest()

    def content(self, stored: bytes) -> bytes:
        """As `RowForm.content`."""
        return b"".join(self._opened_pieces(stored))

    def info(self, info: RunInfo) -> RunInfo:
        """As `RowForm.info`."""
        digest = info.request_digest
        return replace(
            info,
            request=None if info.request is None else self._opened_data(_parsed(info.request)),
            request_digest=digest and self._opened_text(digest),
            tags=self._opened_data(info.tags) if info.tags else {},
        )

    def body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """As `RowForm.body`."""
        return self._opened_data(body)

    def body_text(self, stored: str) -> str:
        """As `RowForm.body_text`."""
        return _json(self.body(_parsed(stored)))

    def reference(self, stored: str) -> str:
        """As `RowForm.reference`."""
        return stored if not stored else self._opened_text(stored.rpartition(":")[0])

    def _refer(self, plain: str | None) -> str | None:
        if not plain:  # nothing there, or the step itself has it
            return plain
        found = _DIGEST.fullmatch(plain)
        return f"{self._sealed_text(plain)}:{'' if found is None else self.name(found[1])}"

    def _sealed_data(self, data: Any) -> dict[str, Any]:
        return {_SEALED: self._sealed_text(_json(data))[len(_MARK) :]}

    def _opened_data(self, data: Any) -> Any:
        if not isinstance(data, Mapping) or [*data] != [_SEALED]:
            raise _not_sealed()
        return _parsed(self._opened_text(f"{_MARK}{data[_SEALED]}"))

    def _sealed_text(self, text: str) -> str:
        content = text.encode("utf-8", "surrogatepass")
        return _MARK + b64encode(_applied(self._seal.seal, content)).decode()

    def _opened_text(self, text: str) -> str:
        if not text.startswith(_MARK):
            raise _not_sealed()
        try:
            sealed = b64decode(text[len(_MARK) :], validate=True)
        except ValueError:
            raise _damaged() from None
        return self._open(sealed).decode("utf-8", "surrogatepass")

    def _sealed_content(self, content: Content) -> Content:
        if isinstance(content, bytes):
            return b"".join(self._sealed_pieces(content))
        return LargeFile(
            content.mode,
            content.size,
            lambda: chain.from_iterable(self._sealed_pieces(piece) for piece in content.pieces()),
        )

    def _sealed_pieces(self, content: bytes) -> Iterator[bytes]:
        view = memoryview(content)
        for start in range(0, len(view), _PIECE):
            sealed = _applied(self._seal.seal, bytes(view[start : start + _PIECE]))
            yield len(sealed).to_bytes(_LENGTH)
            yield sealed

    def _opened_pieces(self, stored: bytes) -> Iterator[bytes]:
        view, at = memoryview(stored), 0
        while at < len(view):
            end = at + _LENGTH + int.from_bytes(view[at : at + _LENGTH])
            yield self._open(bytes(view[at + _LENGTH : end]))
            at = end

    def _open(self, sealed: bytes) -> bytes:
        try:
            return _applied(self._seal.open, sealed)
        except RecordError as error:
            raise _damaged() from error


def new_seal(seal: Seal | None) -> str:
    """What a new store keeps of its seal: a key, sealed; empty for a store without one."""
    if seal is None:
        return ""
    return b64encode(_applied(seal.seal, _GREETING + secrets.token_bytes(_KEY_BYTES))).decode()


def form_of(seal: Seal | None, kept: str) -> RowForm:
    """How rows stand in the store that keeps this; `RecordError` when it was made with another seal, or without."""
    if not kept:
        if seal is not None:
            raise RecordError(
                "The run store was made without a seal, so what it holds can be read by anyone who has it. Open it "
                "without seal=, or make a new store with it."
            )
        return PlainForm()
    if seal is None:
        raise RecordError(
            "The run store is sealed. Open it with the seal= that it was made with; on the command line, with "
            "--seal MODULE:NAME."
        )
    try:
        key = _applied(seal.open, b64decode(kept))
    except RecordError as error:
        raise _wrong_seal() from error
    if not key.startswith(_GREETING) or len(key) != len(_GREETING) + _KEY_BYTES:
        raise _wrong_seal()
    return SealedForm(seal, key[len(_GREETING) :])


def _applied(method: Callable[[bytes], bytes], content: bytes) -> bytes:
    try:
        made = method(content)
    except Exception as error:
        raise RecordError(f"The seal of the run store failed: {type(error).__name__}.") from error
    if not isinstance(made, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's class
        raise RecordError(f"The seal of the run store gave a {type(made).__name__} instead of bytes.")
    return made


def _wrong_seal() -> RecordError:
    return RecordError(
        "The run store was sealed with another seal: this one does not open it. Pass the seal= that it was made with."
    )


def _damaged() -> RecordError:
    return RecordError(
        "The seal does not open a part of the record: it was changed, or is damaged. Restore the store from a backup."
    )


def _not_sealed() -> RecordError:
    return RecordError(
        "A part of the record is not sealed, although the run store is: another program wrote it. Restore the store "
        "from a backup."
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise _damaged() from None


_json = json.JSONEncoder(separators=(",", ":")).encode

__all__ = ["PlainForm", "RowForm", "Seal", "SealedForm", "form_of", "new_seal"]
