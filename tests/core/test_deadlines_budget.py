"""Deadlines, budgets, heartbeats and run contexts."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from weakincentives.budget import Budget, BudgetTracker, TokenUsage
from weakincentives.clock import SYSTEM_CLOCK
from weakincentives.deadlines import Deadline
from weakincentives.errors import BudgetExceededError, DeadlineExceededError
from weakincentives.run_context import Heartbeat, RunContext
from weakincentives.testing import FakeClock


def test_a_deadline_counts_down_to_zero() -> None:
    """`remaining` shrinks and stops at zero; `check` raises from then on."""
    clock = FakeClock()
    deadline = Deadline.after(timedelta(seconds=10), clock=clock)
    clock.advance(4)
    assert deadline.remaining() == timedelta(seconds=6)
    deadline.check()
    clock.advance(6)
    assert deadline.expired
    assert deadline.remaining() == timedelta(0)
    with pytest.raises(DeadlineExceededError):
        deadline.check()


def test_a_deadline_must_be_aware_and_in_the_future() -> None:
    """A naive or past moment is refused with the fix."""
    with pytest.raises(ValueError, match="aware"):
        Deadline(datetime(2999, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="passed already"):
        Deadline(datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match="passed already"):
        Deadline.after(timedelta(0), clock=FakeClock())


def test_deadlines_compare_by_moment_in_any_zone() -> None:
    """Two spellings of one moment are one deadline."""
    moment = datetime(2999, 1, 1, 12, tzinfo=UTC)
    assert Deadline(moment) == Deadline(moment.astimezone(timezone(timedelta(hours=5))))


@pytest.mark.parametrize(
    ("budget", "dimension"),
    [
        (Budget(max_total_tokens=100), "total"),
        (Budget(max_input_tokens=50), "input"),
        (Budget(max_output_tokens=40), "output"),
    ],
)
def test_each_dimension_of_a_budget_is_enforced(budget: Budget, dimension: str) -> None:
    """Reaching a limit is allowed, passing it is not, and the error names the dimension."""
    tracker = BudgetTracker(budget)
    tracker.record("a", TokenUsage(input=50, output=40))
    tracker.check()
    tracker.record("b", TokenUsage(input=30, output=30))
    with pytest.raises(BudgetExceededError) as caught:
        tracker.check()
    assert caught.value.dimension == dimension


def test_a_budget_carries_its_deadline() -> None:
    """`check` also looks at the clock."""
    clock = FakeClock()
    tracker = BudgetTracker(Budget(deadline=Deadline.after(timedelta(seconds=1), clock=clock)))
    tracker.check()
    clock.advance(2)
    with pytest.raises(DeadlineExceededError):
        tracker.check()


def test_a_budget_must_limit_something_and_sensibly() -> None:
    """Empty budgets, zero limits and negative usage are mistakes."""
    with pytest.raises(ValueError, match="limits nothing"):
        Budget()
    with pytest.raises(ValueError, match="max_input_tokens"):
        Budget(max_input_tokens=0)
    with pytest.raises(ValueError, match="output"):
        TokenUsage(output=-1)


def test_recording_again_under_a_key_replaces() -> None:
    """Cumulative figures of one evaluation are not counted twice."""
    tracker = BudgetTracker(Budget(max_total_tokens=1000))
    tracker.record("turn", TokenUsage(input=10))
    tracker.record("turn", TokenUsage(input=25, cached=5, reasoning=0))
    tracker.record("other", TokenUsage(output=5))
    assert tracker.consumed == TokenUsage(input=25, output=5, cached=5)
    assert tracker.by_key["turn"].input == 25


def test_a_tracker_loses_nothing_between_threads() -> None:
    """8 threads record 1,000 usages each and all are counted."""
    tracker = BudgetTracker(Budget(max_total_tokens=10**9))

    def spend(worker: int) -> None:
        for turn in range(1000):
            tracker.record(f"{worker}-{turn}", TokenUsage(input=1, output=1))

    threads = [threading.Thread(target=spend, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tracker.consumed == TokenUsage(input=8000, output=8000)


def test_a_heartbeat_is_visible_to_a_watcher() -> None:
    """`elapsed` starts again at every beat, and listeners hear each one until taken off."""
    clock, heard = FakeClock(), list[str]()
    heartbeat = Heartbeat(clock=clock)
    remove = heartbeat.add_listener(lambda: heard.append("beat"))
    clock.advance(5)
    assert heartbeat.elapsed() == 5
    heartbeat.beat()
    assert heartbeat.elapsed() == 0
    remove()
    remove()
    heartbeat.beat()
    assert (heard, heartbeat.count) == (["beat"], 2)


def test_a_listener_that_raises_is_heard() -> None:
    """A lost lease reaches the work that depends on it."""
    heartbeat = Heartbeat()

    def lost() -> None:
        raise RuntimeError("lease lost")

    heartbeat.add_listener(lost)
    with pytest.raises(RuntimeError, match="lease lost"):
        heartbeat.beat()


def test_a_run_context_correlates_attempts() -> None:
    """A retry keeps the request's id, counts up and is a new run."""
    first = RunContext(session_id="s", worker_id="w")
    second = first.next_attempt()
    assert (second.request_id, second.attempt) == (first.request_id, 2)
    assert second.run_id != first.run_id
    assert second.log_extra() == {
        "run_id": second.run_id, "request_id": first.request_id, "session_id": "s", "attempt": 2, "worker_id": "w",
    }  # fmt: skip
    with pytest.raises(ValueError, match="counts from 1"):
        RunContext(attempt=0)


def test_the_fake_clock_behaves_like_a_clock() -> None:
    """Wall time may be set back, monotonic time never goes back."""
    clock = FakeClock()
    clock.advance(timedelta(seconds=3))
    clock.set(datetime(2000, 1, 1, tzinfo=UTC))
    assert (clock.now().year, clock.monotonic()) == (2000, 3.0)
    assert clock.time() == clock.now().timestamp()
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="aware"):
        FakeClock(datetime(2025, 1, 1))  # noqa: DTZ001


def test_the_system_clock_is_aware() -> None:
    """`now`, `time` and `monotonic` agree with the machine."""
    assert SYSTEM_CLOCK.now().tzinfo is UTC
    assert abs(SYSTEM_CLOCK.time() - SYSTEM_CLOCK.now().timestamp()) < 5
    assert SYSTEM_CLOCK.monotonic() <= SYSTEM_CLOCK.monotonic()


def test_only_the_clock_asks_for_the_time() -> None:
    """No other module of the package calls `datetime.now` or `time.time`."""
    from pathlib import Path

    import weakincentives

    root = Path(weakincentives.__path__[0])
    offenders = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path.name != "clock.py" and any(call in path.read_text() for call in ("datetime.now(", "time.time()"))
    ]
    assert [name for name in offenders if name != "deadlines.py"] == []  # whose message tells the user to write it
