"""What is fuzzed. Each target takes bytes and raises when something happens that is not documented."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal

from weakincentives.adapters import AnswerMessage, CallMessage, History, ModelMessage, UserMessage
from weakincentives.errors import (
    JournalError,
    ParseError,
    PathRefusedError,
    PatternError,
    PromptValidationError,
    SessionFormatError,
)
from weakincentives.filesystem import HostFilesystem, InMemoryFilesystem
from weakincentives.filesystem.paths import normalise, reserved
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from weakincentives.prompt.overrides import LocalPromptOverridesStore
from weakincentives.runtime import Session, ToolCall
from weakincentives.runtime.executor import ToolExecutor

from .source import Source

PARTS = ["/", "..", ".", "a", "b.txt", "/workspace/", "%2e", "%252e", "\\", "\u2024", "\uff0e", ".wink", ".A.wink-",
         "0123456789abcdef", "\u200b", " ", "\0", "\ud800", "e\u0301", "x" * 90]  # fmt: skip
SYNTAX = ["a", "b", ".", "*", "+", "?", "(", ")", "[", "]", "{9}", "{1,9}", "{99}", "|", "^", "$", "\\", "\\b", "\\w", "(?:",
          "(?=", "(?i)", "(?P<n>", "(?P=n)", "**", "/", "[!", "-", "]]", "\\1", "\\Z", "\\u0061", "\\p{L}", "\n"]  # fmt: skip


class Colour(Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    """Nested."""

    count: int
    names: tuple[str, ...] = ()
    more: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Arguments:
    """Of many types."""

    text: str
    inner: Inner
    colour: Colour = Colour.RED
    either: int | str | None = None
    mode: Literal["r", "w"] = "r"
    several: tuple[Inner, ...] = ()


def arguments(data: bytes) -> None:
    """Whatever a model sends as arguments, the call is answered."""
    source = Source(data)
    valid = {"text": "x", "inner": {"count": 1, "names": ["a"], "more": {"a": 1.5}}, "several": [{"count": 2}]}
    text = source.changed(valid) if source.number(4) else source.rest()
    reply = _executor().execute(ToolCall(f"c{next(_numbers)}", "try", text.decode("utf-8", "surrogateescape")))
    assert reply.outcome != "crashed", reply
    reply.text.encode()


@cache
def _executor() -> ToolExecutor:
    def handler(params: Arguments, *, context: ToolContext) -> ToolResult[None]:
        del context
        assert isinstance(params, Arguments)
        assert isinstance(params.inner.count, int)
        return ToolResult("fine", None)

    tool = Tool[Arguments, None](name="try", description="Try it.", handler=handler)
    section: Any = MarkdownSection(title="T", key="t", template="x", tools=[tool])
    return ToolExecutor(prompt=Prompt(name="fuzz", sections=[section]), session=Session())


_numbers = iter(range(1 << 62))


def paths(data: bytes) -> None:
    """A path is refused, or has one canonical form that stays below the root and is no undo state."""
    path = Source(data).text(PARTS)
    try:
        canonical = normalise(path)
    except PathRefusedError:
        return
    assert normalise(canonical) == canonical
    parts = [] if canonical == "." else canonical.split("/")
    assert not any(part in {"", ".", ".."} or reserved(part) for part in parts)
    root = _folder("paths")
    for fs in (InMemoryFilesystem(), _host(root / "root")):
        with suppress(OSError):
            fs.write(path, "x")
            assert fs.read(canonical) == "x"
        with suppress(OSError):
            fs.delete(path, recursive=True)
    assert {found.name for found in root.iterdir() if not reserved(found.name)} == {"outside", "root"}
    assert (root / "outside").read_text() == "outside"


@cache
def _host(root: Path) -> HostFilesystem:
    return HostFilesystem(root)


def patterns(data: bytes) -> None:
    """A pattern is refused, or searched with inside its time."""
    source = Source(data)
    fs = _patterns()
    searches: list[Callable[[str], object]] = [
        lambda text: fs.grep(text, timeout=2.0),
        fs.glob,
        lambda text: fs.glob("**", path=text),
        fs.search,
    ]
    for search in searches:
        with suppress(PatternError, PathRefusedError, FileNotFoundError, NotADirectoryError):
            search(source.text(SYNTAX, 16))


@cache
def _patterns() -> InMemoryFilesystem:
    return InMemoryFilesystem(
        {"a/b.txt": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\nab\n\u00e9\n", "b": b"\xff\x00", "c": "a" * 5000}
    )


def journal(data: bytes) -> None:
    """State that is damaged after a crash changes nothing outside the root, and leaves each file old or new."""
    source = Source(data)
    top = _folder("journal")
    shutil.rmtree(top)
    (top / "root").mkdir(parents=True)
    (top / "outside").write_text("outside")
    for name in "abc":
        (top / "root" / name).write_text("old")
    watch: Any = source.pick([None, "scan"])
    os.environ["XDG_STATE_HOME"] = str(top / "state")
    if (child := os.fork()) == 0:
        try:
            _crash(top / "root", watch)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    files = sorted(
        path for path in top.rglob("*") if path.is_file() and path.parent.name != "root" and path.name != "outside"
    )
    for _ in range(source.number(4)):
        if files:
            _damage(source.pick(files), source)
    with suppress(JournalError), HostFilesystem(top / "root", watch=watch) as fs:
        fs.write("d", "later")
    assert (top / "outside").read_text() == "outside"
    for path in (top / "root").rglob("*"):
        if path.is_file() and not any(reserved(part) for part in path.parts):
            assert path.name in "abcdmn", path
    assert {path.name for path in top.iterdir() if not reserved(path.name)} <= {"outside", "root", "state"}


def _crash(root: Path, watch: Any) -> None:
    fs = HostFilesystem(root, watch=watch)
    fs.savepoint()
    fs.write("a", "new")
    fs.delete("b")
    fs.move("c", "m")
    fs.write("n", "new")


def _damage(path: Path, source: Source) -> None:
    with suppress(OSError):
        content = bytearray(path.read_bytes())
        at = source.number(len(content) + 1)
        piece = source.pick(
            [b"", b"\0", b"\xff" * 8, b"../outside", b'"/etc/passwd"', bytes(content[:64]), bytes(content)]
        )
        content[at : at + source.number(len(content) - at + 1)] = piece
        path.write_bytes(content)


def overrides(data: bytes) -> None:
    """A file of overrides is usable, or damaged and said to be."""
    prompt = _overridden()
    folder = _folder("overrides")
    store = LocalPromptOverridesStore(folder / "store")
    file = folder / "store/ns/key@latest.json"
    if not _seeded:
        store.seed(prompt)
        _seeded.append(file.read_bytes())
    source = Source(data)
    file.write_bytes(source.changed(json.loads(_seeded[0])) if source.number(4) else source.rest())
    with suppress(PromptValidationError):
        store.resolve(prompt.descriptor, "latest")


_seeded: list[bytes] = []


@cache
def _overridden() -> Any:
    section: Any = MarkdownSection(title="T", key="t", template="Say hi.", accepts_overrides=True)
    return Prompt(PromptTemplate(ns="ns", key="key", sections=[section]))


def history(data: bytes) -> None:
    """A saved conversation is read, or refused with `ParseError`; one that is read is written again."""
    source = Source(data)
    messages = (
        UserMessage("Hello"),
        ModelMessage("", (CallMessage("1", "look", "{}"),)),
        AnswerMessage("1", "seen"),
    )
    text = source.changed(json.loads(History(messages).to_json())) if source.number(4) else source.rest()
    with suppress(ParseError):
        read = History.from_json(text.decode("utf-8", "surrogateescape"))
        assert History.from_json(read.to_json()) == read
        _ = read.open_calls


@dataclass(frozen=True)
class Item:
    """In a slice."""

    number: int
    name: str = ""
    inner: Inner | None = None
    anything: object = None


def session(data: bytes) -> None:
    """A saved session is loaded, or refused with `SessionFormatError`; one that is loaded can be saved again."""
    source = Source(data)
    text = source.changed(_saved()) if source.number(4) else source.rest()
    with suppress(SessionFormatError):
        loaded = Session.from_json(text, types=[Item, Inner, Colour])
        Session.from_json(loaded.to_json(), types=[Item, Inner, Colour])


@cache
def _saved() -> Any:
    made = Session(tags={"a": "b"})
    made[Item].seed([Item(1, "x", Inner(2, ("y",), {"z": 1.0}), (1, {2}, b"3", Colour.BLUE)), Item(2)])
    return json.loads(made.to_json())


@cache
def _folder(name: str) -> Path:
    """A folder of this process with something outside a root; it goes with the directory that `TMPDIR` names."""
    top = Path(tempfile.mkdtemp(prefix=f"wink-fuzz-{name}-"))
    (top / "root").mkdir()
    (top / "outside").write_text("outside")
    return top


def clear() -> None:
    """Forget folders and what is open in them."""
    if _host.cache_info().currsize:
        _host(_folder("paths") / "root").close()
    _host.cache_clear()
    _folder.cache_clear()
    _seeded.clear()


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (arguments, paths, patterns, journal, overrides, history, session)
}

__all__ = ["TARGETS", "clear"]
