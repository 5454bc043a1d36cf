"""`try`, `raise` and `assert` as Python means them: asteval's own lose some exceptions without a word."""

from __future__ import annotations

import ast
import builtins
from typing import Any, final


@final
class Trying:
    """Handlers for the three statements, over one interpreter."""

    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter

    def on_raise(self, node: ast.Raise) -> None:
        """What the expression gives is raised, and known to handlers as what it is."""
        interpreter = self._interpreter
        try:
            raise interpreter.run(node.exc) if node.exc else RuntimeError("there is nothing to raise")  # noqa: TRY301
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
        finally:
            self._finally(node)

    def _guarded(self, node: ast.Try) -> None:
        interpreter = self._interpreter
        try:
            self._block(node.body)
        except Exception as failure:
            held = [error.exc_info[1] for error in interpreter.error if error.exc_info[1] is not None]
            original = held[0] if held else failure
            for handler in node.handlers:
                if _fits(original, handler.type):
                    self._forget()
                    if handler.name:
                        interpreter.symtable[handler.name] = original
                    self._block(handler.body)
                    return
            raise
        self._block(node.orelse)

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


def _fits(error: BaseException, wanted: ast.expr | None) -> bool:
    if wanted is None:
        return True
    kind = getattr(builtins, wanted.id, None) if isinstance(wanted, ast.Name) else None
    return isinstance(kind, type) and isinstance(error, kind)


__all__ = ["Trying"]
