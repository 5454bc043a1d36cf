"""What the parts of the filesystem suite share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from ..filesystem import Filesystem


def raises(
    expected: type[BaseException] | tuple[type[BaseException], ...],
    call: Callable[..., object],
    *args: object,
    **kwargs: object,
) -> BaseException:
    """The error that the call raises; an `AssertionError` when it raises none. A stream is read to its end."""
    try:
        result = call(*args, **kwargs)
        if isinstance(result, Iterator):
            for _ in result:  # pyright: ignore[reportUnknownVariableType]
                pass
    except expected as error:
        return error
    shown = ", ".join([ascii(arg)[:80] for arg in args] + [f"{key}={value!a}" for key, value in kwargs.items()])
    raise AssertionError(f"{getattr(call, '__name__', call)}({shown}) did not raise {expected}")


def state(fs: Filesystem) -> dict[str, tuple[object, ...]]:
    """Everything that a rollback must bring back, by path: kind, mode, time and bytes."""
    found: dict[str, tuple[object, ...]] = {}
    for path in fs.glob("**"):
        stat = fs.stat(path)
        content = fs.read_bytes(path) if stat.kind == "file" else None
        found[path] = (stat.kind, stat.mode, stat.modified if stat.kind == "file" else None, content)
    return found


class FilesystemSuite:
    """What the parts of the suite share: `make()` gives an empty, writable filesystem each time."""

    any_order: ClassVar[bool] = False
    """Whether snapshots may be restored in any order, and again after an older one was; else newest first."""

    owned_savepoints: ClassVar[bool] = True
    """Whether restoring a savepoint undoes its owner's writes alone; else it restores everything, whoever wrote it."""

    _made: list[Filesystem]

    def make(self) -> Filesystem:
        """An empty filesystem of its own for each test; what has a `close` is closed when the test is over."""
        raise NotImplementedError("Return an empty, writable filesystem from make().")

    def setup_method(self) -> None:
        """Called by pytest before each test."""
        self._made = []

    def teardown_method(self) -> None:
        """Called by pytest after each test."""
        for fs in reversed(self._made):
            close = getattr(fs, "close", None)
            if close is not None:
                close()

    def filled(self, *paths: str, **files: str) -> Filesystem:
        """A filesystem with a file for each path (holding its own name), and one each for the keywords."""
        fs = self.make()
        self._made.append(fs)
        for path in paths:
            fs.write(path, path)
        for path, content in files.items():
            fs.write(path, content)
        return fs


__all__ = ["FilesystemSuite", "raises", "state"]
