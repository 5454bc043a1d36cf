"""What a filesystem with a `savepoint` method must do: undo by owner, while several calls write at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from ..errors import ConflictError
from ..fence import Owner, enter_owner, leave_owner
from ..filesystem import Filesystem

# What the parts of the filesystem suite share.


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
    """Everything that a rollback must restore, by path: kind, mode, time and bytes."""
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
    """Whether restoring a savepoint undoes its owner's writes alone; else it restores everything."""

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


def open_call(around: Owner | None = None) -> Owner:
    """An owner that stands for a call which is under way, inside another one if that is given."""
    owner = Owner()
    owner.around = around
    owner.holder = owner  # set for as long as the call is open
    return owner


@contextmanager
def written_by(owner: Owner | None) -> Generator[None]:
    """What is written inside belongs to that call; with None to no call."""
    token = enter_owner(owner)
    try:
        yield
    finally:
        leave_owner(token)


def _write_in_a_call(fs: Any, around: Owner, path: str) -> Any:
    """A savepoint of a call inside another, which then wrote to `a.txt` and made the path."""
    inner = open_call(around)
    savepoint = fs.savepoint(inner)
    with written_by(inner):
        fs.write("a.txt", "inner")
        fs.write(path, "x")
    return savepoint


class SavepointSuite(FilesystemSuite):
    """A part of `FilesystemContract`. A filesystem without a `savepoint` method passes: its snapshots are used."""

    def _with_savepoints(self, *paths: str) -> Any:
        """A filesystem, or None when it has no savepoints."""
        fs: Any = self.filled(*paths)
        return fs if hasattr(fs, "savepoint") else None

    def test_a_savepoint_undoes_what_its_owner_wrote(self) -> None:
        """The owner's changes are undone, completely; a file that another call wrote meanwhile stays."""
        if (fs := self._with_savepoints("a.txt", "d/b.txt", "gone.txt")) is None:
            return
        before, call = state(fs), open_call()
        savepoint = fs.savepoint(call)
        with written_by(call):
            fs.write("a.txt", "changed")
            fs.delete("gone.txt")
            fs.move("d/b.txt", "e/b.txt")
            fs.write("new/c.txt", "x")
        with written_by(open_call()):
            fs.write("theirs.txt", "x")
        fs.restore(savepoint)
        fs.release(savepoint)
        assert fs.exists("theirs.txt") is self.owned_savepoints
        if self.owned_savepoints:
            fs.delete("theirs.txt")
        assert state(fs) == before

    def test_a_released_savepoint_keeps_what_was_written(self) -> None:
        """Release is the commit; it may be repeated."""
        if (fs := self._with_savepoints("a.txt")) is None:
            return
        call = open_call()
        savepoint = fs.savepoint(call)
        with written_by(call):
            fs.write("a.txt", "changed")
            fs.write("new.txt", "x")
        after = state(fs)
        fs.release(savepoint)
        fs.release(savepoint)
        assert state(fs) == after

    def test_an_inner_savepoint_undoes_its_own_part(self) -> None:
        """What the call around it wrote before stays; so does what that writes afterwards."""
        if (fs := self._with_savepoints("a.txt")) is None:
            return
        outer = open_call()
        around = fs.savepoint(outer)
        with written_by(outer):
            fs.write("a.txt", "outer")
            fs.write("outer.txt", "x")
        inside = _write_in_a_call(fs, outer, "inner.txt")
        fs.restore(inside)
        fs.release(inside)
        assert fs.read("a.txt") == "outer"
        assert sorted(fs.glob("*.txt")) == ["a.txt", "outer.txt"]
        with written_by(outer):
            fs.write("later.txt", "x")
        fs.release(around)
        assert sorted(fs.glob("*.txt")) == ["a.txt", "later.txt", "outer.txt"]

    def test_an_inner_savepoint_that_was_kept_is_undone_with_the_outer_one(self) -> None:
        """A call inside another belongs to it."""
        if (fs := self._with_savepoints("a.txt")) is None:
            return
        before, outer = state(fs), open_call()
        around = fs.savepoint(outer)
        fs.release(_write_in_a_call(fs, outer, "d/inner.txt"))
        fs.restore(around)
        fs.release(around)
        assert state(fs) == before

    def test_a_write_that_would_stand_in_the_way_of_an_undo_is_refused(self) -> None:
        """At, above and below what an open call changed, a write of another call raises and changes nothing."""
        if (fs := self._with_savepoints("d/a.txt", "free.txt")) is None or not self.owned_savepoints:
            return
        before, call, other = state(fs), open_call(), open_call()
        savepoint = fs.savepoint(call)
        with written_by(call):
            fs.write("d/a.txt", "changed")
            fs.write("new/deep/b.txt", "x")
        changed = state(fs)
        for owner in (other, None):
            with written_by(owner):
                raises(ConflictError, fs.write, "d/a.txt", "theirs")
                raises(ConflictError, fs.append, "new/deep/b.txt", "theirs")
                raises(ConflictError, fs.delete, "d", recursive=True)
                raises(ConflictError, fs.move, "new", "old")
                raises(ConflictError, fs.write, "new/deep/c.txt", "theirs")
        assert state(fs) == changed
        fs.restore(savepoint)
        fs.release(savepoint)
        assert state(fs) == before
        with written_by(other):
            fs.write("d/a.txt", "theirs")
        assert fs.read("d/a.txt") == "theirs"
