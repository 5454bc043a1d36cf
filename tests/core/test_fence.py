"""Handles of a call that is over change nothing."""

from __future__ import annotations

import threading
import time

import pytest

from weakincentives.errors import ReadOnlyError, StaleCallError
from weakincentives.fence import Fence, ReadOnlyGuard


def test_an_open_fence_lets_writes_through() -> None:
    """Writes pass while the call runs, nested ones too."""
    fence = Fence()
    with fence, fence:
        assert not fence.closed


def test_a_closed_fence_refuses_and_says_why() -> None:
    """The error names the reason and the remedy; the first reason stays."""
    fence = Fence()
    fence.close("it timed out after 2 s")
    fence.close("it returned")
    with pytest.raises(StaleCallError, match="it timed out after 2 s"), fence:
        pytest.fail("entered a closed fence")


def test_a_refused_write_leaves_the_fence_unlocked() -> None:
    """A late writer does not block other threads."""
    fence = Fence()
    fence.close()
    with pytest.raises(StaleCallError), fence:
        pass
    closed = threading.Thread(target=fence.close)
    closed.start()
    closed.join(60)
    assert not closed.is_alive()


def test_closing_waits_for_the_write_under_way() -> None:
    """After `close` returns no write is still happening, so a rollback can miss none."""
    fence, started, log = Fence(), threading.Event(), list[str]()

    def write() -> None:
        with fence:
            started.set()
            time.sleep(0.05)
            log.append("written")

    writer = threading.Thread(target=write)
    writer.start()
    started.wait()
    fence.close()
    log.append("closed")
    writer.join()
    assert log == ["written", "closed"]


def test_a_read_only_guard_refuses_every_write() -> None:
    """The error names whose handle it is."""
    with pytest.raises(ReadOnlyError, match="the session of tool 'peek' is read-only"):  # noqa: SIM117
        with ReadOnlyGuard("the session of tool 'peek'"):
            pytest.fail("entered a read-only guard")
