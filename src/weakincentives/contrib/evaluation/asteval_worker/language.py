"""What the code sees: the names it may use, its files, and what becomes of it."""

from __future__ import annotations

import ast
import base64
import io
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, final

from .frames import TooBigError, pack
from .syntax import unsupported
from .trying import Trying

try:
    engine: Any = import_module("asteval.asteval")  # it has no types
except ImportError as missing:
    raise ImportError("The calculator needs asteval. Install it: pip install 'weakincentives[asteval]'") from missing

ALLOWED = frozenset(
    (  # noqa: SIM905 - words read better without quotes
        "abs all any bin bool bytes chr complex dict divmod enumerate filter float format frozenset hex int isinstance "
        "len list map max min oct ord range repr reversed round set slice sorted str sum tuple type zip "
        "acos asin atan atan2 ceil cos cosh degrees e exp factorial floor fmod fsum hypot isinf isnan log log10 pi pow "
        "radians sin sinh sqrt tan tanh trunc "
        "ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError NameError "
        "NotImplementedError OSError OverflowError RuntimeError StopIteration TypeError ValueError ZeroDivisionError"
    ).split()
)
"""Of the names that asteval offers; every other one is taken away."""

ERROR = 4000
Ask = Callable[[str, str, bytes], bytes]
"""Do something with a file on the other side: what, where, with which content; raises what `open` does."""


class Outcome(NamedTuple):
    """As it is sent back."""

    value: Any
    stdout: str
    truncated: bool
    error: str | None

    def message(self) -> dict[str, Any]:
        """As a frame."""
        return {"result": True, **self._asdict()}


NO_MEMORY = Outcome(None, "", False, "MemoryError: memory limit exceeded")


def evaluate(code: str, inputs: Mapping[str, Any], ask: Ask, *, output: int, recursion: int, value: int) -> Outcome:
    """Run the code in an interpreter of its own."""
    printed = Printed(output)
    interpreter = _interpreter(printed, ask, recursion)
    interpreter.symtable.update(inputs)
    result, error = None, None
    try:
        tree = ast.parse(code)
        refused = unsupported(tree)
        if refused is None:
            result = interpreter.run(tree, expr=code, lineno=0, with_raise=True)
        if refused is not None:
            error = _located(code, refused[0], f"SyntaxError: {refused[1]}")
        elif interpreter.error:
            error = _explained(interpreter, code, None)
        elif not (tree.body and isinstance(tree.body[-1], ast.Expr)):
            result = None  # only an expression has a value
    except Exception as failure:  # noqa: BLE001 - whatever the code raised
        error = _explained(interpreter, code, failure)
    packed = None
    if error is None:
        try:
            packed = pack(result, value)
        except TooBigError as problem:
            error = f"The value cannot come back: {problem}. End with a part of it, or write it to a file."
    return Outcome(packed, printed.text(), printed.truncated, error)


def warm_up() -> None:
    """Do all that an evaluation does, so that the next one finds its pages in memory and its code prepared."""

    def nowhere(*_: object) -> bytes:
        return b""

    outcome = evaluate("x = [1]\nx[0] + len(x)", {}, nowhere, output=1, recursion=1, value=100)
    json.dumps(outcome.message())


def _interpreter(printed: Printed, ask: Ask, recursion: int) -> Any:
    made = engine.Interpreter(use_numpy=False, writer=printed, err_writer=printed)
    for name in set(made.symtable) - ALLOWED:
        del made.symtable[name]
    files = Files(ask)
    made.symtable.update(
        print=printed.print,
        pow=pow,
        open=files.open,
        read_text=files.read_text,
        read_bytes=files.read_bytes,
        write_text=files.write_text,
        write_bytes=files.write_bytes,
    )
    # A generator expression gives its list: what asteval knows, and what nearly all uses of one mean.
    made.node_handlers["generatorexp"] = made.on_listcomp
    trying = Trying(made)
    made.node_handlers.update({"try": trying.on_try, "raise": trying.on_raise, "assert": trying.on_assert})
    engine.Procedure.__call__ = _bounded(_call_procedure, recursion)
    return made


_call_procedure: Any = engine.Procedure.__call__


def _bounded(call: Callable[..., Any], limit: int) -> Callable[..., Any]:
    """Calls of the code's own functions, not too deep."""
    depth = 0

    def bounded(*args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        if depth >= limit:
            raise RecursionError(f"maximum recursion depth exceeded: at most {limit} nested calls")
        depth += 1
        try:
            return call(*args, **kwargs)
        finally:
            depth -= 1

    return bounded


@final
class Printed:
    """Keeps what is printed, up to a limit; the rest is dropped as it comes."""

    def __init__(self, limit: int) -> None:
        self._room = limit
        self._pieces: list[str] = []
        self.truncated = False

    def write(self, text: str) -> int:
        """As of a file."""
        kept = text[: self._room]
        self.truncated = self.truncated or len(kept) < len(text)
        if kept:
            self._room -= len(kept)
            self._pieces.append(kept)
        return len(text)

    def flush(self) -> None:
        """As of a file."""

    def print(self, *values: object, sep: str = " ", end: str = "\n", file: object = None, flush: bool = False) -> None:
        """As Python's; there is only one place to print to."""
        del file, flush
        self.write(sep.join([str(value) for value in values]) + end)

    def text(self) -> str:
        """All that was kept."""
        return "".join(self._pieces)


@final
class Files:
    """The files of the other side, as functions."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def read_text(self, path: str) -> str:
        return self.read_bytes(path).decode()

    def read_bytes(self, path: str) -> bytes:
        return self._ask("read", _text(path), b"")

    def write_text(self, path: str, text: str) -> int:
        self.write_bytes(path, text.encode())
        return len(text)

    def write_bytes(self, path: str, data: bytes) -> int:
        self._ask("write", _text(path), data)
        return len(data)

    def open(self, path: str, mode: str = "r", encoding: str | None = None, newline: str | None = None) -> Any:
        """As Python's, for reading, writing or appending; what is written is there at once."""
        del newline
        if encoding is not None and encoding.lower() not in {"utf-8", "utf8", "ascii"}:
            raise ValueError("only UTF-8 files can be opened as text; use mode 'rb' or 'wb'")
        kind, binary = mode.replace("t", "").replace("b", ""), "b" in mode
        if kind not in {"r", "w", "a"} or len(mode) > 2:
            raise ValueError(f"invalid mode: {mode!r}; use r, w, a, rb, wb or ab")
        if kind == "r":
            return io.BytesIO(self.read_bytes(path)) if binary else io.StringIO(self.read_text(path))
        self._ask("write" if kind == "w" else "append", _text(path), b"")
        return Written(lambda data: self._ask("append", path, data), binary)


def _text(path: object) -> str:
    if not isinstance(path, str):
        raise TypeError(f"a path is text, not {type(path).__name__}")
    return path


@final
class Written:
    """A file that is open for writing."""

    def __init__(self, append: Callable[[bytes], object], binary: bool) -> None:
        self._append = append
        self._binary = binary

    def write(self, data: Any) -> int:
        """Add to the file."""
        if isinstance(data, str) is self._binary:
            raise TypeError("write() takes bytes here" if self._binary else "write() takes text here")
        self._append(bytes(data) if self._binary else data.encode())
        return len(data)

    def writelines(self, lines: Any) -> None:
        """Add all of them."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """It is there already."""

    def close(self) -> None:
        """Nothing is left to be written."""

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error for error in (FileNotFoundError, IsADirectoryError, PermissionError, OSError, RuntimeError)
}


def asker(exchange: Callable[[dict[str, Any]], dict[str, Any]]) -> Ask:
    """An `Ask` over something that sends a message and gives the answer to it."""

    def ask(what: str, path: str, data: bytes) -> bytes:
        answer = exchange({"do": what, "path": path, "data": base64.b64encode(data).decode()})
        if "error" in answer:
            kind, text = answer["error"]
            raise _ERRORS.get(kind, OSError)(text)
        return base64.b64decode(answer["data"])

    return ask


def _explained(interpreter: Any, code: str, failure: Exception | None) -> str:
    """What went wrong first, and at which line."""
    errors: list[Any] = list(interpreter.error)
    line = next((error.lineno for error in errors if error.lineno), None)
    original: BaseException | None = errors[0].exc_info[1] if errors else failure
    if isinstance(original, SyntaxError) and original.lineno:
        kind, text, line = type(original).__name__, original.msg, original.lineno
    elif isinstance(original, MemoryError):
        kind, text = "MemoryError", "memory limit exceeded"
    elif original is not None:
        kind, text = type(original).__name__, str(original)
    else:
        kind, text = errors[0].exc.__name__, errors[0].msg
    return _located(code, line, f"{kind}: {text}")


def _located(code: str, line: int | None, text: str) -> str:
    lines = code.splitlines()
    where = f"line {line}: {lines[line - 1].strip()[:200]}\n" if line and line <= len(lines) else ""
    return where + (text if len(text) <= ERROR else f"{text[:ERROR]}...")


__all__ = ["ALLOWED", "NO_MEMORY", "Ask", "Outcome", "asker", "evaluate"]
