"""What the code sees: asteval's part of Python, the names it may use, its files."""

from __future__ import annotations

import ast
import builtins
import io
import json
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, cast, final

from ...code.files import CodeFiles, PrintedText
from ...code.protocol import EvalFiles, EvalLimits
from ...code.wire import Encoder, TooBigError, decode, unpack_bytes

ast.unparse(ast.Constant(0))  # from Python 3.14 on this imports a module, which the confined process cannot do later

try:
    engine: Any = import_module("asteval.asteval")  # it has no types
except ImportError as _missing:
    raise ImportError("The calculator needs asteval. Install it: pip install 'weakincentives[asteval]'") from _missing

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

MAX_ERROR = 4000
"""Characters of an error message."""


@final
class CodeRun:
    """One evaluation, from the request that the host sends."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._code: str = request["code"]
        self._inputs: dict[str, Any] = decode(request["inputs"])
        self._room: int = request["room"]
        limits = EvalLimits(**request["limits"])
        contents = {path: unpack_bytes(text) for path, text in request["files"].items()}
        self.files: CodeFiles = CodeFiles(EvalFiles(contents, frozenset(request["writable"])), limits)
        self._limits = limits

    def run(self) -> dict[str, Any]:
        """Run the code in an interpreter of its own. The fields of the answer: value, stdout, truncated, error."""
        printed = PrintedText(int(self._limits.output))
        value, error = None, None
        try:
            tree = ast.parse(self._code)
            refused = unsupported(tree)
            if refused is not None:
                error = _located(self._code, refused[0], f"SyntaxError: {refused[1]}")
            else:
                value = self._run(tree, printed)
        except Exception as failure:  # noqa: BLE001 - whatever the code raised
            error = _explained(self._code, failure)
        answer = {"stdout": printed.text(), "truncated": printed.truncated}
        if error is None:
            try:
                return {**answer, "value": Encoder(self._room).encode(value), "error": None}
            except TooBigError as problem:
                error = f"The value cannot come back: {problem}. End with a part of it, or write it to a file."
        return {**answer, "value": None, "error": error}

    def _run(self, tree: ast.Module, printed: PrintedText) -> Any:
        interpreter = _Calculator(printed, int(self._limits.recursion))
        interpreter.symtable.update(print=printed.print, pow=pow, **OpenFiles(self.files, self._limits).functions())
        interpreter.symtable.update(self._inputs)
        value = interpreter.run(tree)
        return value if tree.body and isinstance(tree.body[-1], ast.Expr) else None  # only an expression has a value


def warm_up() -> None:
    """Do all that an evaluation does, so that the next one finds its pages in memory and its code prepared."""
    request: dict[str, Any] = {"code": "x = [1]\nx[0] + len(x)", "inputs": ["d", []], "files": {}, "writable": []}
    json.dumps(CodeRun({**request, "limits": {}, "room": 100}).run())


class _Calculator(engine.Interpreter):
    """asteval, with exceptions that are Python's own.

    asteval notes errors in a list, passes on other exceptions in their place, and loses some. Here the exception that
    the code raised passes through all handlers, with the line it came from.
    """

    retval: Any
    _interrupt: Any

    def __init__(self, printed: PrintedText, recursion: int) -> None:
        engine.Interpreter.__init__(self, use_numpy=False, writer=printed, err_writer=printed)
        for name in set(self.symtable) - ALLOWED:
            del self.symtable[name]
        # A generator expression gives its list: what asteval knows, and what nearly all uses of one mean.
        self.node_handlers["generatorexp"] = self.on_listcomp
        engine.Procedure.__call__ = _bounded(_call_procedure, recursion)

    def run(self, node: Any, expr: Any = None, lineno: Any = None, with_raise: bool = True) -> Any:
        """Evaluate a node: `None` for none, and nothing after a `return`, `break` or `continue`."""
        del expr, lineno, with_raise
        if node is None:
            return None
        if isinstance(node, str):  # for `del name[index]` asteval asks for the value of the name as text
            node = ast.parse(node, mode="eval").body
        if self.retval is not None:
            return self.retval
        if isinstance(self._interrupt, ast.Break | ast.Continue):
            return self._interrupt
        try:
            value = self.node_handlers.get(type(node).__name__.lower(), self.unimplemented)(node)
        except Exception as error:
            if not hasattr(error, "wink_line"):  # the innermost node is the first to see it
                error.wink_line = getattr(node, "lineno", None)  # pyright: ignore[reportAttributeAccessIssue]
            raise
        return list(cast("Iterable[Any]", value)) if isinstance(value, enumerate) else value

    def raise_exception(self, node: Any, exc: Any = None, msg: Any = "", expr: Any = None, lineno: Any = None) -> None:
        """Called by asteval. Without a type it is in a handler, to pass on what it caught with other words."""
        del node, expr, lineno
        active = sys.exc_info()[1]
        if exc is None and active is not None:
            raise active
        raise (exc or RuntimeError)(str(msg))

    def on_raise(self, node: ast.Raise) -> None:
        """Without an expression, raises what is being handled: this code then runs in a handler of `on_try`."""
        active = sys.exc_info()[1]
        if node.exc is not None:
            raise self.run(node.exc)
        raise RuntimeError("No active exception to reraise") if active is None else active

    def on_assert(self, node: ast.Assert) -> None:
        """Any expression may say what is wrong."""
        if not self.run(node.test):
            raise AssertionError(*([self.run(node.msg)] if node.msg else []))

    def on_try(self, node: ast.Try) -> None:
        """The first handler that fits, then `else`, and `finally` in any case."""
        try:
            self._guarded(node)
        except Exception:
            self._finally(node)
            if self.retval is None:  # a `return` in `finally` takes the place of the exception
                raise
        else:
            self._finally(node)

    def _guarded(self, node: ast.Try) -> None:
        try:
            self._block(node.body)
        except Exception as error:
            handler = next((each for each in node.handlers if self._fits(each, error)), None)
            if handler is None:
                raise
            if handler.name:
                self.symtable[handler.name] = error
            self._block(handler.body)
        else:
            self._block(node.orelse)

    def _finally(self, node: ast.Try) -> None:
        """Run also after a `return` or `break`, which are in force again afterwards."""
        kept, self.retval, self._interrupt = (self.retval, self._interrupt), None, None
        self._block(node.finalbody)
        if self.retval is None and self._interrupt is None:
            self.retval, self._interrupt = kept

    def _fits(self, handler: ast.ExceptHandler, error: Exception) -> bool:
        """By the code's own names, then all exceptions of Python, also those that it has no other use for."""
        if handler.type is None:
            return True
        name = handler.type.id if isinstance(handler.type, ast.Name) else ""
        kind = self.symtable.get(name, getattr(builtins, name, None))
        if isinstance(kind, type) and issubclass(kind, BaseException):
            return isinstance(error, kind)
        problem: Exception = NameError(f"name {name!r} is not defined")
        if name in self.symtable:
            problem = TypeError("catching classes that do not inherit from BaseException is not allowed")
        problem.wink_line = handler.lineno  # pyright: ignore[reportAttributeAccessIssue]
        raise problem

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.run(statement)


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
class OpenFiles:
    """The functions through which the code uses its files; each use counts against `host_calls`."""

    def __init__(self, files: CodeFiles, limits: EvalLimits) -> None:
        self._files = files
        self._most = int(limits.host_calls)
        self._uses = 0

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By the names that the code finds them under."""
        functions = (self.open, self.read_text, self.read_bytes, self.write_text, self.write_bytes)
        return {function.__name__: function for function in functions}

    def read_text(self, path: str) -> str:
        """The whole file as text, which is UTF-8."""
        return self.read_bytes(path).decode()

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""
        return self._files.read(self._used(path))

    def write_text(self, path: str, text: str) -> int:
        """Replace or create the file; gives the number of characters."""
        self.write_bytes(path, text.encode())
        return len(text)

    def write_bytes(self, path: str, data: bytes) -> int:
        """Replace or create the file; gives the number of bytes."""
        self._files.write(self._used(path), data)
        return len(data)

    def open(self, path: str, mode: str = "r", encoding: str | None = None, newline: str | None = None) -> Any:
        """As Python's, for reading, writing or appending; files that are written to need not be closed."""
        del newline
        if encoding is not None and encoding.lower() not in {"utf-8", "utf8", "ascii"}:
            raise ValueError("only UTF-8 files can be opened as text; use mode 'rb' or 'wb'")
        kind, binary = mode.replace("t", "").replace("b", ""), "b" in mode
        if kind not in {"r", "w", "a"} or len(mode) > 2:
            raise ValueError(f"invalid mode: {mode!r}; use r, w, a, rb, wb or ab")
        if kind == "r":
            content = self.read_bytes(path)
            return io.BytesIO(content) if binary else io.StringIO(content.decode())
        canonical = self._used(path)
        (self._files.write if kind == "w" else self._files.append)(canonical, b"")
        raw = Appending(self._files, canonical)
        return raw if binary else io.TextIOWrapper(raw, encoding="utf-8", newline="", write_through=True)  # pyright: ignore[reportArgumentType] - nothing of a buffer is used

    def _used(self, path: object) -> str:
        """The canonical path. The code sees a table of files, so a path that is not canonical is just not in it."""
        if not isinstance(path, str):
            raise TypeError(f"a path is text, not {type(path).__name__}")
        self._uses += 1
        if self._uses > self._most:
            raise RuntimeError(f"too many uses of files: at most {self._most}")
        parts = [part for part in path.split("/") if part not in {"", "."}]
        if ".." in parts:
            raise PermissionError(
                f"[Errno 13] Permission denied: {path!r} goes up with '..'; give the path from the root, without '..'."
            )
        if path.startswith("/") and parts[:1] == ["workspace"]:
            del parts[0]
        return "/".join(parts) or "."


@final
class Appending(io.RawIOBase):
    """A file that is open for writing. What is written can be read at once."""

    def __init__(self, files: CodeFiles, path: str) -> None:
        super().__init__()
        self._files = files
        self._path = path

    def writable(self) -> bool:
        """As of a file."""
        return True

    def write(self, data: Any, /) -> int:
        """Add to the file; `TypeError` for text."""
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        added = bytes(memoryview(data))
        self._files.append(self._path, added)
        return len(added)


def _explained(code: str, failure: Exception) -> str:
    """What went wrong, and at which line."""
    line, text = getattr(failure, "wink_line", None), str(failure)
    if isinstance(failure, SyntaxError) and failure.lineno:
        line, text = failure.lineno, failure.msg
    elif isinstance(failure, MemoryError):
        text = "memory limit exceeded"
    return _located(code, line, f"{type(failure).__name__}: {text}")


def _located(code: str, line: int | None, text: str) -> str:
    lines = code.splitlines()
    where = f"line {line}: {lines[line - 1].strip()[:200]}\n" if line and line <= len(lines) else ""
    return where + (text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]}...")


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
