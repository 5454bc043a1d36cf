"""The policy that keeps a model from overwriting what it has not seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, cast, final, get_origin, get_type_hints

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from ..errors import PathRefusedError, PromptValidationError
from ..filesystem import Filesystem
from ..filesystem.paths import join, normalise
from ..filesystem.protocol import fingerprint
from ..filesystem.search.walk import FilesystemTree, walk_files
from ..persistent_map import entries_of, with_entry
from ..results import ToolResult
from ..session import SessionProtocol
from .policy import Policy
from .tool import Tool
from .tool_context import ToolContext

_Prints = Annotated[
    Mapping[str, str],
    PlainValidator(entries_of),
    PlainSerializer(dict, return_type=dict[str, str]),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]
"""Paths and the fingerprints of their content; sharing, so that noting one more file costs the same for any number."""


@final
@dataclass(frozen=True, slots=True)
class SeenFiles:
    """A STATE slice: the files that the model has read, by canonical path, with a fingerprint of what it read."""

    prints: _Prints = field(default_factory=dict[str, str], hash=False)

    @classmethod
    def of(cls, session: SessionProtocol) -> SeenFiles:
        """What is known in a session."""
        return session[SeenFiles].latest() or _NONE

    def knows(self, path: str, fs: Filesystem) -> bool:
        """Whether the file was read and is still what was read. `path` as the model wrote it."""
        known = self.prints.get(normalise(path))
        return known is not None and known == _print(fs, path)


_NONE = SeenFiles()


def is_known(path: str, session: SessionProtocol) -> bool:
    """Whether the model has read the file or written it. `path` as the model wrote it."""
    path = normalise(path)
    return session.noted((_WROTE, path)) is not None or path in SeenFiles.of(session).prints


_WROTE: Final = "what the model wrote"
"""With a path, the key under which a session notes what its model last wrote there, see `_state`.

A note and not a slice, since it changes with every write. Forgetting it only means that the file must be read.
"""


def _print(fs: Filesystem, path: str) -> str:
    """The file's fingerprint; empty when there is no such file, or none that can be read."""
    try:
        return fingerprint(fs, path)
    except OSError:
        return ""


_SMALL = 65536


def _state(fs: Filesystem, path: str) -> bytes | str | None:
    """What tells a file's content from any other: the content if it is small, which is quicker than a fingerprint.

    None when there is no such file, or none that can be read.
    """
    try:
        content = fs.read_bytes(path, limit=_SMALL + 1)
        return content if len(content) <= _SMALL else fingerprint(fs, path)
    except OSError:
        return None


def _is_directory(fs: Filesystem, path: str) -> bool:
    try:
        return fs.stat(path).kind == "directory"
    except OSError:
        return False


def _has_field(params_type: Any, name: str) -> bool:
    """Whether params of that type have the field, or an attribute of that name."""
    plain = get_origin(params_type) or params_type
    return hasattr(plain, name) or name in get_type_hints(plain)


def _note_transfer(params: Any, context: ToolContext) -> None:
    """What was known of `src`, a file or a tree, is known of `dst`; should that hold something else, `check` sees."""
    source, target = getattr(params, "src", None), getattr(params, "dst", None)
    if not isinstance(source, str) or not isinstance(target, str):
        return
    source, target = normalise(source), normalise(target)
    fs, session = context.filesystem, context.session
    prints = before = SeenFiles.of(session).prints
    for path in [target] if fs is None else walk_files(FilesystemTree(fs), target):
        origin = source if path == target else join(source, path[len(target) + 1 :])
        wrote, read = session.noted((_WROTE, origin)), prints.get(origin)
        if wrote is not None or session.noted((_WROTE, path)) is not None:
            session.note((_WROTE, path), wrote)
        if wrote is None and read is not None:
            prints = with_entry(prints, path, read)
    if prints is not before:
        session[SeenFiles].seed(SeenFiles(prints))


@final
class ReadBeforeWritePolicy(Policy):
    """A file must be read before it is overwritten, and again when it has changed since. New files may be written.

    `reads` and `writes` are the names of the tools it watches; `path_field` is where their params hold the path. What
    the model itself wrote it need not read again, and a copy of what it knows neither: `transfers` are the names of the
    tools that copy or move something from `src` to `dst`, as those two fields of their params are called. Without a
    filesystem nothing tells new files from old, so only what was read may be written.

    A prompt with a tool in `reads` or `writes` whose params have no `path_field` raises `PromptValidationError` when it
    is built.
    """

    __slots__ = ("path_field", "reads", "transfers", "writes")

    overlaps = True
    """Reading a file never makes it refuse the reading of another."""

    def __init__(
        self,
        *,
        reads: Collection[str] = ("read_file",),
        writes: Collection[str] = ("write_file", "edit_file"),
        transfers: Collection[str] = ("copy_file", "move_file"),
        path_field: str = "path",
    ) -> None:
        if isinstance(reads, str) or isinstance(writes, str) or isinstance(transfers, str):
            raise PromptValidationError(
                'ReadBeforeWritePolicy reads, writes and transfers take several names: ("read_file",).'
            )
        self.reads: tuple[str, ...] = tuple(reads)
        self.writes: tuple[str, ...] = tuple(writes)
        self.transfers: tuple[str, ...] = tuple(transfers)
        self.path_field: str = path_field

    def check_tool(self, tool: Tool[Any, Any]) -> None:
        """Refuse a tool whose every call would fail here; see `ToolPolicy`."""
        if tool.name in self.reads or tool.name in self.writes:
            kind: Any = tool.params_type
            if kind is None or not _has_field(kind, self.path_field):
                params = "no params" if kind is None else f"the params {getattr(kind, '__name__', kind)}"
                raise PromptValidationError(
                    f"ReadBeforeWritePolicy watches {tool.name!r}, which has {params}, without a field "
                    f"{self.path_field!r}. Name the field that holds the path: ReadBeforeWritePolicy(path_field=...).",
                    tool_name=tool.name,
                    dataclass_type=kind if isinstance(kind, type) else None,
                )

    def check(self, tool_name: str, params: Any, context: ToolContext) -> str | None:
        """Refuse to overwrite a file that was not read, or that is no longer what was read."""
        if tool_name not in self.writes:
            return None
        path: Any = getattr(params, self.path_field, None)
        if type(path) is not str:
            path = self._path(tool_name, params)
        try:
            canonical = normalise(path)
        except PathRefusedError:
            return None  # the filesystem refuses it too, and says why
        fs, session = context.filesystem, context.session
        wrote = session.noted((_WROTE, canonical))
        if wrote is not None and (fs is None or wrote == _state(fs, canonical)):
            return None
        read = SeenFiles.of(session).prints.get(canonical) if wrote is None else None
        if read is not None and (fs is None or read == _print(fs, canonical)):
            return None
        if fs is not None:
            if not fs.exists(canonical):
                return None
            if _is_directory(fs, canonical):
                return f"Cannot write to {path} - it is a directory, not a file\nGive the path of a file in it."
        problem = "without reading it first" if read is wrote is None else "- it has changed since it was read"
        return f"Cannot write to {path} {problem}\n{self._advice(tool_name, path)}"

    def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> None:
        """Note what the model now knows; undone with the call."""
        wrote = tool_name in self.writes
        if not result.success or not (wrote or tool_name in self.reads):
            if result.success and tool_name in self.transfers:
                _note_transfer(params, context)
            return
        path: Any = getattr(params, self.path_field, None)
        path = normalise(path if type(path) is str else self._path(tool_name, params))
        fs, session = context.filesystem, context.session
        if wrote:  # `check` has seen to it that what was there before was known, so all of what is there now is
            session.note((_WROTE, path), "" if fs is None else _state(fs, path))
            return
        content = "" if fs is None else _print(fs, path)
        if fs is not None and not content:
            return
        if session.noted((_WROTE, path)) is not None:
            session.note((_WROTE, path), None)
        prints = SeenFiles.of(session).prints
        if prints.get(path) != content:  # reading again what is known changes nothing
            session[SeenFiles].seed(SeenFiles(with_entry(prints, path, content)))

    def _path(self, tool_name: str, params: Any) -> str:
        """The path, where it is not simply an attribute; `TypeError` when there is none."""
        path: object = getattr(params, self.path_field, None)
        if not isinstance(path, str) and isinstance(params, Mapping):
            path = cast(Mapping[str, object], params).get(self.path_field)
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
