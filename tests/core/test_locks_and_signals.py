"""`with lock:` on the main thread, where a signal may raise between any two bytecodes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from weakincentives.interrupts import Lock, RLock

INTERRUPTS = 300


def is_free(lock: Any) -> bool:
    """Whether another thread could take it; the same thread could take a re-entrant one again."""
    from concurrent.futures import ThreadPoolExecutor

    def take() -> bool:
        taken = lock.acquire(blocking=False)
        if taken:
            lock.release()
        return bool(taken)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(take).result()


@pytest.mark.parametrize("make", [Lock, RLock], ids=["lock", "rlock"])
def test_an_interrupt_leaves_no_lock_taken(make: Callable[[], Any]) -> None:
    """On Python 3.14 a bare lock stays taken after a third of these."""
    lock = make()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    hits = 0
    end = time.monotonic() + 60
    try:
        while hits < INTERRUPTS and time.monotonic() < end:
            try:
                # Again after a while: an exception that is raised in a finalizer is dropped, and the loop has no end.
                signal.setitimer(signal.ITIMER_REAL, 2e-5, 0.25)
                while True:
                    with lock:
                        pass
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                hits += 1
            assert is_free(lock)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert hits > INTERRUPTS // 10


@pytest.mark.parametrize("make", [Lock, RLock], ids=["lock", "rlock"])
def test_a_lock_keeps_other_threads_out(make: Callable[[], Any]) -> None:
    """Until the block is left, by an exception too."""
    lock = make()
    with lock:
        assert not is_free(lock)
    assert is_free(lock)
    with pytest.raises(ZeroDivisionError), lock:
        _ = 1 / 0
    assert is_free(lock)
