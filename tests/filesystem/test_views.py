"""Views beyond the contract: how they compose, and what they leave alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import permutations

import pytest

from weakincentives.errors import ReadOnlyError, StaleCallError
from weakincentives.fence import Fence, ReadOnlyGuard
from weakincentives.filesystem import Filesystem, GuardedFilesystem, ReadOnlyFilesystem, SubFilesystem
from weakincentives.filesystem.memory import InMemoryFilesystem
from weakincentives.testing import FilesystemContract

METHODS = [name for name in vars(Filesystem) if not name.startswith("_")]


class TestGuardedFilesystem(FilesystemContract):
    any_order = True

    def make(self) -> Filesystem:
        return GuardedFilesystem(InMemoryFilesystem(), Fence())


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
