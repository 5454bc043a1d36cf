"""The policy that keeps a model from overwriting what it has not seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, Any, cast, final

from immutables import Map
from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from ..errors import PathRefusedError, PromptValidationError
from ..filesystem import Filesystem
from ..filesystem.paths import normalise
from ..results import ToolResult
from ..session import SessionProtocol
from .tool_context import ToolContext


def _as_map(saved: Any) -> Map[str, str]:
    return Map(saved)


def _no_prints() -> Map[str, str]:
    return Map()


_Prints = Annotated[
    Map[str, str],
    PlainValidator(_as_map),
    PlainSerializer(dict, return_type=dict[str, str]),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]
"""Paths and the fingerprints of their content; sharing, so that noting one more file costs the same for any number."""


@final
@dataclass(frozen=True, slots=True)
class SeenFiles:
    """A STATE slice: the files whose content the model knows, by canonical path, with a fingerprint of that content."""

    prints: _Prints = field(default_factory=_no_prints)

    @classmethod
    def of(cls, session: SessionProtocol) -> SeenFiles:
        """What is known in a session."""
        return session[SeenFiles].latest() or _NONE

    def knows(self, path: str, fs: Filesystem) -> bool:
        """Whether the file was seen and is still what was seen. `path` as the model wrote it."""
        known = self.prints.get(normalise(path))
        return known is not None and known == fingerprint(fs, path)


_NONE = SeenFiles()


def fingerprint(fs: Filesystem, path: str) -> str:
    """What changes when the file's content does; empty when there is no such file."""
    try:
        head = fs.read_bytes(path, limit=_WHOLE_BYTES)
        if len(head) < _WHOLE_BYTES:
            return blake2b(head, digest_size=16).hexdigest()
        digest = blake2b(digest_size=16)
        for piece in fs.stream(path):
            digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest()


_WHOLE_BYTES = 65536
"""Smaller files are read at once: this is asked at each call that reads or writes."""


@final
class ReadBeforeWritePolicy:
    """A file must be read before it is overwritten, and again when it has changed since. New files may be written.

    `reads` and `writes` are the names of the tools it watches; `path_field` is where their params hold the path. What
    the model itself wrote it need not read again. Without a filesystem nothing tells new files from old, so only what
    was read may be written.
    """

    __slots__ = ("path_field", "reads", "writes")

    def __init__(
        self,
        *,
        reads: Collection[str] = ("read_file",),
        writes: Collection[str] = ("write_file", "edit_file"),
        path_field: str = "path",
    ) -> None:
        if isinstance(reads, str) or isinstance(writes, str):
            raise PromptValidationError('ReadBeforeWritePolicy reads and writes take several names: ("read_file",).')
        self.reads = tuple(reads)
        self.writes = tuple(writes)
        self.path_field = path_field

    def check(self, tool_name: str, params: Any, context: ToolContext) -> str | None:
        """Refuse to overwrite a file that was not read, or that is no longer what was read."""
        if tool_name not in self.writes:
            return None
        path = self._path(tool_name, params)
        try:
            known = SeenFiles.of(context.session).prints.get(normalise(path))
        except PathRefusedError:
            return None  # the filesystem refuses it too, and says why
        fs = context.filesystem
        if known is not None and (fs is None or known == fingerprint(fs, path)):
            return None
        if fs is not None and not fs.exists(path):
            return None
        problem = "without reading it first" if known is None else "- it has changed since it was read"
        return f"Cannot write to {path} {problem}\n{self._advice(tool_name, path)}"

    def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> None:
        """Note what the model has now seen; undone with the call."""
        if not result.success or (tool_name not in self.reads and tool_name not in self.writes):
            return
        path, fs = self._path(tool_name, params), context.filesystem
        content = "" if fs is None else fingerprint(fs, path)
        if fs is not None and not content:
            return
        prints, canonical = SeenFiles.of(context.session).prints, normalise(path)
        if prints.get(canonical) != content:  # reading again what is known changes nothing
            context.session[SeenFiles].seed(SeenFiles(prints.set(canonical, content)))

    def _path(self, tool_name: str, params: Any) -> str:
        if isinstance(params, Mapping):
            path = cast(Mapping[str, object], params).get(self.path_field)
        else:
            path = getattr(params, self.path_field, None)
        if not isinstance(path, str):
            raise TypeError(
                f"The params of {tool_name} have no text {self.path_field!r}. Name the field that holds the path: "
                "ReadBeforeWritePolicy(path_field=...)."
            )
        return path

    def _advice(self, tool_name: str, path: str) -> str:
        if not self.reads:
            return f"There is no tool to read it with, so {tool_name} can only make new files."
        return f"Call {self.reads[0]}({self.path_field}={path!r}) first, then retry {tool_name}."

    def __repr__(self) -> str:
        return f"ReadBeforeWritePolicy(reads={self.reads!r}, writes={self.writes!r})"


__all__ = ["ReadBeforeWritePolicy", "SeenFiles", "fingerprint"]
