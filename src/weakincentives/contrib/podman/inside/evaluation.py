"""Evaluating code, in a process that was forked for it and is killed afterwards."""

from __future__ import annotations

import ast
import base64
import io
import json
import linecache
import os
import resource
import sys
import traceback
from typing import Any, cast

NAME = "<code>"
MAX_DEPTH = 40
RESULT = 3
"""The descriptor that takes the result."""


def evaluate(code: str, inputs: dict[str, Any], directory: str, limits: dict[str, Any]) -> None:
    """Run the code and write what came of it, as JSON, to its descriptor."""
    os.chdir(directory)
    sys.path.insert(0, "")
    sys.stdin = open(0)
    sys.stdout = _stream(1)
    sys.stderr = _stream(2)
    linecache.cache[NAME] = (len(code), None, code.splitlines(True), NAME)
    outcome: dict[str, Any] = {}
    try:
        body = ast.parse(code, NAME)
        final = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
        names: dict[str, Any] = {"__name__": "__main__", **inputs}
        program = compile(body, NAME, "exec")
        _limit(limits)
        exec(program, names)
        value = eval(compile(ast.Expression(final.value), NAME, "eval"), names) if isinstance(final, ast.Expr) else None
        outcome["value"] = Encoder(int(limits["output"])).encode(value)
    except BaseException as error:
        outcome = {"error": _explained(error)}
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    _write(json.dumps(outcome).encode())


class Encoder:
    """A value as JSON: what JSON has no form for is a list that begins with a letter.

    Stops when it has said enough: nobody reads more than `limit` characters.
    """

    def __init__(self, limit: int) -> None:
        self._room = limit + 100

    def encode(self, value: Any, depth: int = 0) -> Any:
        """The value; of a type that is not known here, its representation."""
        kind = cast(Any, type(value))
        self._room -= 2
        if self._room < 0 or depth > MAX_DEPTH:
            return ["o", "..."]
        if value is None or kind is bool:
            return value
        if kind is int:
            self._room -= value.bit_length() // 4
            return value if -(2**53) < value < 2**53 else ["i", format(value, "x")]
        if kind is float:
            return ["f", repr(value)]
        if kind is str:
            return self._text(value)
        if kind is bytes:
            cut = value[: max(0, self._room) + 1]
            self._room -= len(cut)
            return ["b", base64.b64encode(cut).decode("ascii")]
        if kind in (list, tuple, set, frozenset):
            return [{list: "l", tuple: "t", set: "s", frozenset: "z"}[kind], self._items(value, depth)]
        if kind is dict:
            return ["d", [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in self._some(value.items())]]
        text = repr(value)
        return ["o", self._text(text if type(text) is str else "...")]

    def _items(self, values: Any, depth: int) -> list[Any]:
        return [self.encode(item, depth + 1) for item in self._some(values)]

    def _some(self, values: Any) -> Any:
        for item in values:
            yield item
            if self._room < 0:
                return

    def _text(self, value: str) -> str:
        cut = value[: max(0, self._room) + 1]
        self._room -= len(cut)
        return cut.encode("utf-8", "backslashreplace").decode("utf-8")


def _stream(fd: int) -> io.TextIOWrapper:
    # A line at a time, so that what is written to both comes out in order.
    return io.TextIOWrapper(open(fd, "wb"), encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _limit(limits: dict[str, Any]) -> None:
    for what, most in (
        (resource.RLIMIT_AS, _size() + int(limits["memory"])),
        (resource.RLIMIT_FSIZE, int(limits["file_bytes"])),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    # At the first it is SIGXCPU that ends it, so that it can be told from want of memory.
    seconds = int(limits["seconds"]) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    sys.setrecursionlimit(int(limits["recursion"]) + 20)


def _size() -> int:
    """Bytes of address space in use."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _explained(error: BaseException) -> str:
    """The lines of the code that led there, and the error; the end of it when it is long."""
    # The code may have run into a limit that making this text would run into again.
    sys.setrecursionlimit(1000)
    try:
        if isinstance(error, RecursionError) or error.__traceback__ is None:
            frames: list[str] = []
        else:
            found = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == NAME]
            frames = traceback.format_list(found[-10:])
        text = "".join(frames) + "".join(traceback.format_exception_only(type(error), error))
    except BaseException as second:
        text = f"{type(error).__name__} (it cannot be shown: {type(second).__name__})"
    text = text.strip("\n").encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= 4000 else "...\n" + text[-4000:]


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(RESULT, rest) :]
