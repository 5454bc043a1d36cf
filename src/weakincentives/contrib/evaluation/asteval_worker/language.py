"""What the code sees: the names it may use, its files, and what becomes of it."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, final

from .files import Ask, Files
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
UNFILTERED = Outcome(None, "", False, "The code was not run: system calls cannot be filtered here")


def evaluate(code: str, inputs: Mapping[str, Any], ask: Ask, *, output: int, recursion: int, value: int) -> Outcome:
    """Run the code in an interpreter of its own."""
    printed = Printed(output)
    files = Files(ask)
    interpreter = _interpreter(printed, files, recursion)
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
        else:
            files.flush()
            if not (tree.body and isinstance(tree.body[-1], ast.Expr)):
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


def _interpreter(printed: Printed, files: Files, recursion: int) -> Any:
    made = engine.Interpreter(use_numpy=False, writer=printed, err_writer=printed)
    for name in set(made.symtable) - ALLOWED:
        del made.symtable[name]
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


__all__ = ["ALLOWED", "NO_MEMORY", "UNFILTERED", "Outcome", "evaluate", "warm_up"]
