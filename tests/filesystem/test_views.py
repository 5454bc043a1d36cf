"""Views beyond the contract: how they compose, and what they leave alone."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from tests.runtime.limits_parts import Text, call, executor_of

from weakincentives.errors import PathRefusedError, ReadOnlyError, StaleCallError
from weakincentives.fence import Fence, ReadOnlyGuard
from weakincentives.filesystem import FileChanges, Filesystem, ReadOnlyFilesystem, SubFilesystem
from weakincentives.filesystem.memory.filesystem import InMemoryFilesystem
from weakincentives.filesystem.views import GuardedFilesystem, NotingFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import Session
from weakincentives.testing import FilesystemContract

METHODS = [name for name in vars(Filesystem) if not name.startswith("_")]


class TestGuardedFilesystem(FilesystemContract):
    any_order = True

    def make(self) -> Filesystem:
        return GuardedFilesystem(InMemoryFilesystem(), Fence())


class TestNotingFilesystem(FilesystemContract):
    """Taking note of what is read changes nothing about it."""

    def make(self) -> Filesystem:
        noted: list[str] = []
        return NotingFilesystem(InMemoryFilesystem(), Fence(), noted.append)


def test_what_is_asked_for_by_name_is_noted() -> None:
    """Canonically, also through a view of a directory, and when there is nothing; a refused path is not."""
    noted: list[str] = []
    fs = InMemoryFilesystem({"a/b.txt": "here", "a/c.txt": "x", "d.txt": "y"})
    view = NotingFilesystem(fs, Fence(), noted.append)
    view.read("/workspace/a//b.txt")
    view.sub("a").read_bytes("c.txt")
    view.exists("none")
    view.grep("here")
    assert (len(view.list(".")), len(view.glob("**/*")), len(view.search("d"))) == (2, 4, 1)
    with pytest.raises(PathRefusedError):
        view.read("../x")
    view.copy("a", "e")
    assert noted == ["a/b.txt", "a", "a/c.txt", "none", "a/b.txt", "a", "a/b.txt", "a/c.txt"]


@pytest.mark.parametrize("view", [GuardedFilesystem, ReadOnlyFilesystem, SubFilesystem, InMemoryFilesystem])
@pytest.mark.parametrize("method", METHODS)
def test_views_have_the_signatures_of_the_protocol(view: type, method: str) -> None:
    """No parameter is lost or renamed on the way through a view."""
    wanted = inspect.signature(getattr(Filesystem, method)).parameters.values()
    given = inspect.signature(getattr(view, method)).parameters.values()
    assert [(p.name, p.kind, p.default) for p in given] == [(p.name, p.kind, p.default) for p in wanted]


Wrap = Callable[[Filesystem], Filesystem]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_views_compose_in_any_order(order: tuple[int, ...]) -> None:
    """Guarded, sub and read-only views keep their promise whichever is outermost."""
    fs = InMemoryFilesystem({"d/a.txt": "x"})
    fence = Fence()
    wraps: list[Wrap] = [
        lambda inner: GuardedFilesystem(inner, fence),
        lambda inner: inner.sub("d"),
        lambda inner: inner.sub("."),
    ]
    view: Filesystem = fs
    for index in order:
        view = wraps[index](view)
    view.write("b.txt", "y")
    assert fs.read("d/b.txt") == "y"
    with pytest.raises(ReadOnlyError):
        view.readonly().write("c.txt", "z")
    fence.close("it timed out")
    with pytest.raises(StaleCallError, match="timed out"):
        view.write("c.txt", "z")
    assert view.read("b.txt") == "y"


def test_a_guard_that_refuses_keeps_writes_out() -> None:
    """Any context manager can be the guard; entering it decides."""
    fs = InMemoryFilesystem({"a": "x"})
    view = GuardedFilesystem(fs, ReadOnlyGuard("This tool"))
    with pytest.raises(ReadOnlyError, match="This tool is read-only"):
        view.write("a", "y")
    assert view.read("a") == "x"


class Prepared(InMemoryFilesystem):
    """Does something to the files already when it is asked for the changes before a restore, as those on disk may."""

    prepared = 0

    def changes_before_restore(self, since: Any, /) -> FileChanges:
        self.prepared += 1
        return self.changes(since)


def test_a_view_that_may_not_write_does_not_prepare_a_restore() -> None:
    """Directories are opened and containers are halted for a restore: not by a call that is over, nor by a reader."""
    fs, fence = Prepared({"a": "x"}), Fence()
    view = GuardedFilesystem(fs, fence)
    snapshot = view.snapshot()
    fs.write("a", "y")
    assert view.changes_before_restore(snapshot).changed == ("a",)
    assert fs.prepared == 1
    assert ReadOnlyFilesystem(fs).changes_before_restore(snapshot).changed == ("a",)
    fence.close("it timed out")
    with pytest.raises(StaleCallError, match="timed out"):
        view.changes_before_restore(snapshot)
    assert fs.prepared == 1
    assert view.changes(snapshot).changed == ("a",)


def test_a_guard_is_left_when_the_write_raises() -> None:
    """A failing write does not keep the fence locked, so that closing it goes through."""
    fence = Fence()
    view = GuardedFilesystem(InMemoryFilesystem(), fence)
    with pytest.raises(FileNotFoundError):
        view.delete("missing")
    fence.close()
    assert fence.closed


def test_views_say_what_they_show() -> None:
    """A view's representation names what it wraps."""
    fs = InMemoryFilesystem({"d/a": "x"})
    assert repr(fs.sub("d").readonly()).startswith("ReadOnlyFilesystem(SubFilesystem(<InMemoryFilesystem")


def test_a_sub_view_of_a_view_does_not_stack() -> None:
    """Sub views of sub views go straight to the filesystem below."""
    fs = InMemoryFilesystem({"a/b/c": "x"})
    assert repr(fs.sub("a").sub("b")) == repr(fs.sub("a/b"))


class Counting(InMemoryFilesystem):
    """A user's own filesystem, with a method that the protocol does not have."""

    def words(self, path: str) -> int:
        return len(self.read(path).split())


def test_a_method_of_somebodys_own_filesystem_is_not_passed_on() -> None:
    """It could write past the guard, so a view does not have it; the error names the way out."""
    fs = Counting({"a.txt": "one two"})
    guarded = GuardedFilesystem(fs, Fence())
    for view in (guarded, GuardedFilesystem(guarded, Fence()), ReadOnlyFilesystem(fs)):
        hidden: Any = view
        with pytest.raises(AttributeError) as caught:
            hidden.words("a.txt")
        assert str(caught.value) == (
            f"Counting.words cannot be used here: this view ({type(view).__name__}) has the methods of Filesystem "
            "alone, because it could not guard what others write. Make words a function that takes a Filesystem, or "
            "bind an object of its own for it, which is then neither fenced nor undone."
        )
        assert not hasattr(view, "words")
        with pytest.raises(AttributeError, match="object has no attribute 'paragraphs'"):
            hidden.paragraphs("a.txt")
        with pytest.raises(AttributeError, match="object has no attribute '_private'"):
            _ = hidden._private
    assert copy.copy(guarded).read("a.txt") == "one two"


def test_a_handler_that_asks_for_somebodys_own_filesystem() -> None:
    """It gets the call's handle, whose error the log keeps for the developer."""
    session = Session()

    def count(params: Text, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok(str(context.resources.get(Counting).words(params.text)))

    executor = executor_of(count, session=session, resources={Counting: Counting({"a.txt": "one two"})})
    with executor:
        reply = executor.execute(call("count", text="a.txt"))
    assert reply.outcome == "crashed"
    assert "Make words a function that takes a Filesystem" in reply.text
