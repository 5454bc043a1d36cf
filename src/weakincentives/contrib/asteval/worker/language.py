"""What the code sees: the names it may use, its files, and what becomes of it."""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, final

from .files import Ask, Files
from .frames import TooBigError, pack

ast.unparse(ast.Constant(0))  # from Python 3.14 on this imports a module, which the confined process cannot do later

# What of Python's syntax asteval does not know, or silently gets wrong: refused before anything runs, with a hint.


_HINTS: dict[str, str] = {
    "Import": "there are no imports; sqrt, log, pi and others are there without a module",
    "ImportFrom": "there are no imports; sqrt, log, pi and others are there without a module",
    "ClassDef": "there are no classes; use dicts and functions",
    "AsyncFunctionDef": "there is no async",
    "Await": "there is no async",
    "AsyncFor": "there is no async",
    "AsyncWith": "there is no async",
    "Yield": "there are no generators; return a list",
    "YieldFrom": "there are no generators; return a list",
    "Global": "there is no global; return values, or change a list or dict",
    "Nonlocal": "there is no nonlocal; return values, or change a list or dict",
    "NamedExpr": "there is no :=; assign on a line of its own",
    "AnnAssign": "there are no annotated assignments; leave the type out",
    "Starred": "there is no * here; name the items one by one, or use indexes and slices",
    "Match": "there is no match; use if and elif",
    "TryStar": "there is no except*; use except",
    "TypeAlias": "there are no types",
    "TemplateStr": "there are no template strings; use f-strings",
}


def unsupported(tree: ast.AST) -> tuple[int | None, str] | None:
    """The first thing that asteval cannot do: its line and what to do instead."""
    found = [
        (node.lineno, hint)
        for node in ast.walk(tree)
        if (hint := _hint(node)) and isinstance(node, ast.stmt | ast.expr)
    ]
    return min(found) if found else None


def _hint(node: ast.AST) -> str | None:
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        return "there are no decorators"
    if isinstance(node, ast.FunctionDef | ast.Lambda) and (node.args.kwonlyargs or node.args.posonlyargs):
        return "there are no keyword-only or positional-only parameters"
    if isinstance(node, ast.Try) and any(
        handler.type and not isinstance(handler.type, ast.Name) for handler in node.handlers
    ):
        return "except takes one name of an exception, or none"
    if isinstance(node, ast.FunctionDef | ast.Lambda) and node.args.vararg and node.args.defaults:
        return "a function has defaults or *args, not both"
    if isinstance(node, ast.Delete) and not all(map(_deletable, node.targets)):
        return "del takes a name, or name[index]; use pop"
    if isinstance(node, ast.Dict) and None in node.keys:
        return "there is no ** in a dict; use update"
    return _HINTS.get(type(node).__name__)


def _deletable(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) or (isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name))


# `try`, `raise` and `assert` as Python means them: asteval's own lose some exceptions without a word.


class _Handled(NamedTuple):
    """An exception that is being handled, and what asteval noted of it: its line, before all."""

    exception: BaseException
    noted: list[Any]


@final
class Trying:
    """Handlers for the three statements, over one interpreter."""

    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter
        self._handled: list[_Handled] = []

    def on_raise(self, node: ast.Raise) -> None:
        """What the expression gives is raised, and known to handlers as what it is.

        Without an expression it is the exception that is being handled, also by a caller, with the line it came from.
        """
        interpreter = self._interpreter
        try:
            if node.exc:
                raise interpreter.run(node.exc)  # noqa: TRY301
            if not self._handled:
                raise RuntimeError("No active exception to reraise")  # noqa: TRY301
            interpreter.error = list(self._handled[-1].noted)
            raise self._handled[-1].exception  # noqa: TRY301
        except Exception as error:  # noqa: BLE001 - whatever the code raises
            interpreter.raise_exception(node, exc=type(error), msg=str(error))

    def on_assert(self, node: ast.Assert) -> None:
        """Any expression may say what is wrong."""
        interpreter = self._interpreter
        if interpreter.run(node.test):
            return
        try:
            raise AssertionError(*([interpreter.run(node.msg)] if node.msg else []))  # noqa: TRY301
        except AssertionError as error:
            interpreter.raise_exception(node, exc=AssertionError, msg=str(error))

    def on_try(self, node: ast.Try) -> None:
        """The first handler that fits, then `else`, and `finally` in any case."""
        try:
            self._guarded(node)
        except Exception as failure:
            with self._handling(self._original(failure)):
                self._finally(node)
            raise
        self._finally(node)

    def _guarded(self, node: ast.Try) -> None:
        try:
            self._block(node.body)
        except Exception as failure:
            handled = self._original(failure)
            with self._handling(handled):
                handler = self._chosen(node, handled.exception)
                if handler is None:
                    raise
                self._forget()
                if handler.name:
                    self._interpreter.symtable[handler.name] = handled.exception
                self._block(handler.body)
            return
        self._block(node.orelse)

    def _original(self, failure: Exception) -> _Handled:
        """What the code raised: asteval passes on others in its place."""
        noted: list[Any] = list(self._interpreter.error)
        held = [error.exc_info[1] for error in noted if error.exc_info[1] is not None]
        return _Handled(held[0] if held else failure, noted)

    @contextmanager
    def _handling(self, handled: _Handled) -> Generator[None, None, None]:
        self._handled.append(handled)
        try:
            yield
        finally:
            self._handled.pop()

    def _chosen(self, node: ast.Try, exception: BaseException) -> ast.ExceptHandler | None:
        """The first that fits; what is no exception's name is an error of its own once it is come to, as in Python."""
        for handler in node.handlers:
            try:
                if handler.type is None or isinstance(exception, self._kind(handler.type)):
                    return handler
            except (NameError, TypeError) as error:
                self._forget()
                self._interpreter.raise_exception(handler, exc=type(error), msg=str(error))
        return None

    def _kind(self, wanted: ast.expr) -> type[BaseException]:
        """The code's own names, then all exceptions of Python, also those that it has no other use for."""
        name = wanted.id if isinstance(wanted, ast.Name) else ""
        known = self._interpreter.symtable
        kind = known[name] if name in known else getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            return kind
        if name in known:
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
        raise NameError(f"name {name!r} is not defined")

    def _finally(self, node: ast.Try) -> None:
        """With no error in the way, which would keep anything from running; it is put back afterwards."""
        interpreter = self._interpreter
        kept = (interpreter.error, interpreter.error_msg, interpreter.retval, interpreter._interrupt)
        self._forget()
        interpreter.retval = None
        self._block(node.finalbody)
        if interpreter.retval is None:
            interpreter.error, interpreter.error_msg, interpreter.retval, interpreter._interrupt = kept

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._interpreter.run(statement)

    def _forget(self) -> None:
        self._interpreter.error, self._interpreter.error_msg = [], None
        self._interpreter._interrupt = None


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
