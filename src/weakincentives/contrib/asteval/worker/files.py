"""The files that the code may use, all of them on the other side: each use of one is a message there and back."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any, final

BUFFER = 64 * 1024
"""Bytes written to a file before they are sent: uses of files are counted, and lines are written one by one."""

Ask = Callable[[str, str, bytes], bytes]
"""Do something with a file on the other side: what, where, with which content; raises what `open` does."""


@final
class Files:
    """The files of the other side, as functions.

    What is written to an open file waits here, and is sent when there is enough of it, when the file is closed, before
    any other use of files, and by `flush` in the end: no reader can tell that it waited. Only a limit on what may be
    written shows later than it would without.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._waiting: dict[str, bytearray] = {}

    def read_text(self, path: str) -> str:
        """The whole file as text, which is UTF-8."""
        return self.read_bytes(path).decode()

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""
        return self._do("read", path, b"")

    def write_text(self, path: str, text: str) -> int:
        """Replace or create the file; gives the number of characters."""
        self.write_bytes(path, text.encode())
        return len(text)

    def write_bytes(self, path: str, data: bytes) -> int:
        """Replace or create the file; gives the number of bytes."""
        self._do("write", path, data)
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
            return io.BytesIO(self.read_bytes(path)) if binary else io.StringIO(self.read_text(path))
        self._do("write" if kind == "w" else "append", path, b"")
        return Written(self, path, binary)

    def append(self, path: str, data: bytes) -> None:
        """Add to a file that is open for writing, soon."""
        if len(self._waiting.get(path, b"")) + len(data) > BUFFER:
            self.flush_one(path)
        if len(data) > BUFFER:
            self._ask("append", path, data)
        elif data:
            self._waiting.setdefault(path, bytearray()).extend(data)

    def flush_one(self, path: str) -> None:
        """Send what waits for a file. What is refused is not sent again: `OSError` is raised once."""
        data = self._waiting.pop(path, None)
        if data is not None:
            self._ask("append", path, bytes(data))

    def flush(self) -> None:
        """Send all that waits."""
        for path in list(self._waiting):
            self.flush_one(path)

    def _do(self, what: str, path: object, data: bytes) -> bytes:
        if not isinstance(path, str):
            raise TypeError(f"a path is text, not {type(path).__name__}")
        self.flush()
        return self._ask(what, path, data)


@final
class Written:
    """A file that is open for writing."""

    def __init__(self, files: Files, path: str, binary: bool) -> None:
        self._files = files
        self._path = path
        self._binary = binary
        self._closed = False

    def write(self, data: Any) -> int:
        """Add to the file."""
        if self._closed:
            raise ValueError("I/O operation on closed file.")
        if isinstance(data, str) is self._binary:
            raise TypeError("write() takes bytes here" if self._binary else "write() takes text here")
        self._files.append(self._path, bytes(data) if self._binary else data.encode())
        return len(data)

    def writelines(self, lines: Any) -> None:
        """Add all of them."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Nothing to do: whoever reads the file finds all of it."""

    def close(self) -> None:
        """Send what is left. Twice is fine."""
        self._closed = True
        self._files.flush_one(self._path)

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


__all__ = ["Ask", "Files", "asker"]
