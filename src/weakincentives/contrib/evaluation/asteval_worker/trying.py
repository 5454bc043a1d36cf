"""`try`, `raise` and `assert` as Python means them: asteval's own lose some exceptions without a word."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple, final


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


__all__ = ["Trying"]
