"""The tool that evaluates code: what every suite with a backend offers to a model."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Self, cast

from ...filesystem import Filesystem
from ...filesystem.paths import normalise
from ...prompt import MarkdownSection, Tool, ToolAnnotations, ToolContext, ToolExample, ToolResult
from .protocol import EvalBackend, EvalFiles, EvalLimits, EvalResult

# Values that came out of evaluated code, as text of bounded length and cost.


MAX_DEPTH = 30


def shown(value: object, limit: int) -> str:
    """The value's representation, cut after `limit` characters; never fails and never builds more than it shows.

    >>> shown({"a": [1, 2], "b": (3,)}, 100)
    "{'a': [1, 2], 'b': (3,)}"
    >>> shown(list(range(10**6)), 10)
    '[0, 1, 2, ... [cut: the value is longer]'
    """
    pieces: list[str] = []
    room = limit
    for piece in _pieces(value, 0, limit):
        pieces.append(piece[:room])
        room -= len(piece)
        if room < 0:
            return "".join([*pieces, "... [cut: the value is longer]"])
    return "".join(pieces)


def _pieces(value: Any, depth: int, limit: int) -> Iterator[str]:
    kind = cast(type[Any], type(value))
    if depth > MAX_DEPTH:
        yield "..."
    elif kind is str or kind is bytes:
        # A cut one is longer than the limit still, so that the cut is seen.
        yield repr(value[: limit + 1])
    elif kind is dict:
        yield from _items("{", _pairs(value, depth, limit), "}")
    elif kind is list:
        yield from _items("[", _each(value, depth, limit), "]")
    elif kind is tuple:
        yield from _items("(", _each(value, depth, limit), ",)" if len(value) == 1 else ")")
    elif kind in {set, frozenset} and value:
        yield from _items("{", _each(value, depth, limit), "}")
    else:
        yield _leaf(value)


def _items(opening: str, items: Iterator[Iterator[str]], closing: str) -> Iterator[str]:
    yield opening
    for index, item in enumerate(items):
        if index:
            yield ", "
        yield from item
    yield closing


def _each(values: Sequence[Any] | AbstractSet[Any], depth: int, limit: int) -> Iterator[Iterator[str]]:
    for value in values:
        yield _pieces(value, depth + 1, limit)


def _pairs(values: Mapping[Any, Any], depth: int, limit: int) -> Iterator[Iterator[str]]:
    for key, value in values.items():
        yield _pair(key, value, depth, limit)


def _pair(key: Any, value: Any, depth: int, limit: int) -> Iterator[str]:
    yield from _pieces(key, depth + 1, limit)
    yield ": "
    yield from _pieces(value, depth + 1, limit)


def _leaf(value: object) -> str:
    if type(value) is int and value.bit_length() > 14_000:  # Python refuses to spell more than 4,300 digits
        return f"<an integer of {value.bit_length():,} bits>"
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - whatever a backend lets out
        return f"<a {type(value).__name__} that cannot be shown: {type(error).__name__}>"


MAX_CODE = 100_000
MAX_FILES = 100


@dataclass(frozen=True, slots=True)
class EvaluatePythonParams:
    """What to evaluate."""

    code: str
    """Python code. The value of its last expression comes back, and what it prints."""
    inputs: dict[str, Any] = field(
        default_factory=dict[str, Any], metadata={"description": "Values the code finds under these names."}
    )
    reads: tuple[str, ...] = field(default=(), metadata={"description": "Files the code may read."})
    writes: tuple[str, ...] = field(
        default=(), metadata={"description": "Files the code may write; one that exists must be in reads, too."}
    )


@dataclass(frozen=True, slots=True)
class PythonResult:
    """The result of an evaluation. `value` is its representation; empty when there is none."""

    value: str = ""
    stdout: str = ""
    truncated: bool = False
    written: tuple[str, ...] = ()

    def render(self) -> str:
        """What was printed, the value, and the files that were written."""
        parts: list[str] = []
        if self.stdout:
            parts.append(f"Printed:\n{self.stdout.rstrip()}")
        if self.truncated:
            parts.append("[more was printed, and dropped; print less]")
        if self.value:
            parts.append(f"Value: {self.value}")
        if self.written:
            parts.append(f"Wrote: {', '.join(self.written)}")
        return "\n".join(parts)


def instructions(prefix: str, backend: EvalBackend, limits: EvalLimits) -> str:
    """What a model is told about the tool: when to use it, what the backend can do, and the limits."""
    return (
        f"Use `{prefix}evaluate_python` to calculate, and to work on data and text, rather than doing it in your head. "
        "End the code with an expression: its value comes back. When the code fails, nothing it wrote is kept.\n\n"
        f"{backend.guide}\n"
        f"- Limits: {limits.seconds:g} seconds, {limits.memory // (1024 * 1024)} MB, {limits.recursion} nested calls, "
        f"{limits.output:,} characters of output."
    )


def evaluate_python_tool(
    name: str, backend: EvalBackend, limits: EvalLimits, accepts_overrides: bool, *, open_world: bool = False
) -> Tool[EvaluatePythonParams, PythonResult]:
    """The tool, over that backend. Files are written only when the code succeeded.

    `open_world` is whether the code reaches a network.
    """

    def evaluate_python(params: EvaluatePythonParams, *, context: ToolContext) -> ToolResult[PythonResult]:
        problem = _problem(params)
        if problem is not None:
            return ToolResult.error(problem)
        begun = backend.begin()
        context.require_active()  # after `begin`, so that a call which ends in between is noticed by one of the two
        try:
            files = _files(params, context.filesystem, limits)
        except _Unusable as error:
            return ToolResult.error(str(error))
        within = limits if context.deadline is None else limits.within(context.deadline.remaining().total_seconds())
        result = begun.evaluate(params.code, params.inputs, files, within)
        if result.error is not None:
            return ToolResult.error(_failure(result, name))
        problem = _write(result.written, context.filesystem)
        if problem is not None:
            return ToolResult.error(problem)
        value = "" if result.value is None else shown(result.value, limits.output)
        return ToolResult.ok(PythonResult(value, result.stdout, result.truncated, tuple(result.written)))

    return Tool[EvaluatePythonParams, PythonResult](
        name=name,
        description="Evaluate Python code in a sandbox; the value of the last expression and what it prints come back.",
        handler=evaluate_python,
        examples=[
            ToolExample(
                "Calculate with inputs",
                EvaluatePythonParams("print(len(prices))\nsum(prices) / len(prices)", {"prices": [3, 4, 8]}),
                PythonResult("5.0", "3\n"),
            )
        ],
        # It may replace files that it was allowed to write.
        annotations=ToolAnnotations(destructive=True, open_world=open_world),
        accepts_overrides=accepts_overrides,
    )


class _Unusable(Exception):  # noqa: N818 - the name of what is wrong with a file
    """Files that were named cannot be used; the text says what to do."""


def _problem(params: EvaluatePythonParams) -> str | None:
    if len(params.code) > MAX_CODE:
        return f"The code is over {MAX_CODE:,} characters\nPut data into a file and name it in reads."
    for name in params.inputs:
        if not name.isidentifier() or keyword.iskeyword(name):
            return f"The input name {name!r} is not a Python name\nUse letters, digits and _, such as 'total_price'."
    if len(params.reads) + len(params.writes) > MAX_FILES:
        return f"More than {MAX_FILES} files are named\nWork on fewer at a time."
    return None


def _files(params: EvaluatePythonParams, fs: Filesystem | None, limits: EvalLimits) -> EvalFiles:
    if not params.reads and not params.writes:
        return EvalFiles()
    if fs is None:
        raise _Unusable("There are no files in this prompt\nLeave reads and writes out; pass values in inputs.")
    contents = _contents(params.reads, fs, limits)
    writable: set[str] = set()
    for path in params.writes:
        canonical = _canonical(path)
        if canonical not in contents and fs.exists(path):
            raise _Unusable(
                f"File already exists: {path}\nName it in reads as well to let the code change it, or write another."
            )
        try:
            readonly = fs.is_readonly(path)
        except OSError as error:
            raise _Unusable(f"Cannot write {path}: {error.strerror or error}\nName another in writes.") from error
        if readonly:
            raise _Unusable(f"Cannot write {path}: it is read-only\nReturn the data as the value instead.")
        writable.add(canonical)
    return EvalFiles(contents, frozenset(writable))


def _contents(paths: Sequence[str], fs: Filesystem, limits: EvalLimits) -> Mapping[str, bytes]:
    contents: dict[str, bytes] = {}
    room = limits.file_bytes
    for path in paths:
        canonical = _canonical(path)
        try:
            contents[canonical] = data = fs.read_bytes(path, limit=room + 1)
        except FileNotFoundError:
            raise _Unusable(f"File not found: {path}\nName only files that exist in reads.") from None
        except OSError as error:
            raise _Unusable(f"Cannot read {path}: {error.strerror or error}\nName files in reads.") from error
        room -= len(data)
        if room < 0:
            raise _Unusable(f"The files in reads are over {limits.file_bytes:,} bytes together\nName fewer or smaller.")
    return contents


def _write(written: Mapping[str, bytes], fs: Filesystem | None) -> str | None:
    """Put the files in their places; what is wrong when that fails, and the call with all it wrote is undone then."""
    for path, content in written.items():
        assert fs is not None  # code that was given no files wrote none
        try:
            fs.write(path, content)
        except OSError as error:
            return (
                f"The code succeeded, but {path} cannot be written: {error.strerror or error}\nName another in writes."
            )
    return None


def _canonical(path: str) -> str:
    try:
        return normalise(path)
    except OSError as error:
        raise _Unusable(str(error)) from error


def _failure(result: EvalResult, name: str) -> str:
    text = f"The code failed; nothing was written. Correct it and call {name} again\n{result.error}"
    if result.stdout:
        printed = result.stdout[-4000:].rstrip()
        text += f"\nPrinted before that:\n{printed}"
    return text


class CodeSection(MarkdownSection[Any]):
    """One tool, `evaluate_python`, over a backend.

    Args:
        owned: whether the backend is the section's own, so that `close` ends it.
        tool_prefix: put before the name of the tool.
    """

    def __init__(
        self,
        backend: EvalBackend,
        limits: EvalLimits,
        *,
        owned: bool = True,
        accepts_overrides: bool,
        key: str,
        title: str,
        tool_prefix: str,
    ) -> None:
        self._owned = backend if owned else None
        super().__init__(
            title=title,
            template=instructions(tool_prefix, backend, limits).replace("$", "$$"),
            key=key,
            tools=[evaluate_python_tool(f"{tool_prefix}evaluate_python", backend, limits, accepts_overrides)],
            accepts_overrides=accepts_overrides,
        )

    def close(self) -> None:
        """End what evaluates the code, if it is the section's own; it starts again when it is used again."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
