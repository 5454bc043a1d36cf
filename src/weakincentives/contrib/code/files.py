"""The files that evaluated code may read and write, and its output, within limits.

The asteval worker is sent this module as source text, so it imports nothing but the standard library and `protocol`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from .protocol import EvalFiles, EvalLimits


@final
class CodeFiles:
    """A table of files for one evaluation; nothing of it reaches the real ones.

    Errors are those code expects of `open`: `FileNotFoundError` for what was not given, `PermissionError` for writing
    where it was not allowed, `OSError` when the limits are exceeded. Directories exist as far as some file, given or
    writable, is in them.
    """

    def __init__(self, files: EvalFiles, limits: EvalLimits) -> None:
        self._contents: dict[str, bytes | bytearray] = dict(files.contents)
        self._writable = files.writable
        self._limit = limits.file_bytes
        self._changed: dict[str, int] = {}
        self._directories = {"."}
        for path in (*self._contents, *self._writable):
            while "/" in path:
                path = path.rpartition("/")[0]
                self._directories.add(path)

    @property
    def written(self) -> Mapping[str, bytes]:
        """What was written, whole."""
        return {path: bytes(self._contents[path]) for path in sorted(self._changed)}

    def is_file(self, path: str) -> bool:
        """Whether there is such a file."""
        return path in self._contents

    def is_directory(self, path: str) -> bool:
        """Whether some file is in there."""
        return path in self._directories

    def size(self, path: str) -> int:
        """In bytes."""
        return len(self.read(path))

    def read(self, path: str) -> bytes:
        """The file's content."""
        if path in self._directories:
            raise IsADirectoryError(f"[Errno 21] Is a directory: {path!r}")
        try:
            return bytes(self._contents[path])
        except KeyError:
            known = ", ".join(sorted(self._contents)[:20]) or "none"
            raise FileNotFoundError(
                f"[Errno 2] No such file: {path!r}. The code sees only the files named in reads: {known}"
            ) from None

    def write(self, path: str, data: bytes) -> None:
        """Replace or create the file."""
        self._change(path, len(data))
        self._contents[path] = bytearray(data)

    def append(self, path: str, data: bytes) -> None:
        """Add to the file, or create it."""
        old = self._contents.get(path, b"")
        self._change(path, len(old) + len(data))
        if not isinstance(old, bytearray):
            old = self._contents[path] = bytearray(old)
        old += data

    def check_writable(self, path: str) -> None:
        """Raise what writing there would."""
        if path in self._directories:
            raise IsADirectoryError(f"[Errno 21] Is a directory: {path!r}")
        if path not in self._writable:
            allowed = ", ".join(sorted(self._writable)) or "none"
            raise PermissionError(
                f"[Errno 13] Permission denied: {path!r}. The code may write only the files named in writes: {allowed}"
            )

    def children(self, path: str) -> list[str]:
        """The paths of what is in a directory, sorted."""
        if path not in self._directories:
            raise FileNotFoundError(f"[Errno 2] No such directory: {path!r}")
        skip = 0 if path == "." else len(path) + 1
        return [one for one in self.below(path) if "/" not in one[skip:]]

    def below(self, path: str) -> list[str]:
        """The paths of all that is in a directory and in those below it, sorted; the directory itself is not."""
        prefix = "" if path == "." else f"{path}/"
        known = {*self._contents, *self._directories} - {"."}
        return sorted(one for one in known if one.startswith(prefix))

    def _change(self, path: str, size: int) -> None:
        self.check_writable(path)
        if sum(self._changed.values()) - self._changed.get(path, 0) + size > self._limit:
            raise OSError(f"[Errno 27] Too much written: at most {self._limit:,} bytes in all")
        self._changed[path] = size


@final
class PrintedText:
    """Keeps what is printed, up to a limit; the rest is dropped as it comes."""

    def __init__(self, limit: int) -> None:
        self._room = limit
        self._pieces: list[str] = []
        self.truncated: bool = False

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
