"""What the tests of interrupts share: Ctrl-C at each place where Python looks for signals, and what holds after."""

from __future__ import annotations

import dis
import gc
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from tests.runtime.limits_parts import eventually

from weakincentives.interrupts import MAIN
from weakincentives.runtime import Session, ToolInvoked
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.runtime.locks import lock_of
from weakincentives.session.session import root_of

_LOOKING = {
    "RESUME", "JUMP_BACKWARD", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "POP_JUMP_BACKWARD_IF_TRUE",
    "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE",
}  # fmt: skip
"""The instructions after which CPython runs signal handlers. It never does so between others."""


@contextmanager
def python_handler(number: int = signal.SIGINT) -> Generator[None]:
    """Python's own handler, also where the process was started with the signal ignored."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)


class _Interrupts:
    """Ctrl-C for the main thread, sent from another one; see `interrupted_when`."""

    def __init__(self, conditions: tuple[Callable[[], object], ...]) -> None:
        self.delivered = 0
        self._conditions = conditions

    def deliver(self, _signum: int, _frame: FrameType | None) -> None:
        self.delivered = self.delivered + 1  # no call from here on: the next one could be raised in its place
        raise KeyboardInterrupt

    def send(self, main: int) -> None:
        for number, condition in enumerate(self._conditions, 1):
            condition()
            signal.pthread_kill(main, signal.SIGINT)
            assert eventually(lambda number=number: self.delivered == number)


@contextmanager
def interrupted_when(*conditions: Callable[[], object]) -> Generator[_Interrupts]:
    """KeyboardInterrupt comes out of the block, which gets Ctrl-C when each of these has returned, one after the other.

    Each is sent only after the one before was delivered: two that are pending at once are one. Moments would not do: on
    a busy machine Ctrl-C would come before the block or after it, and end all tests.
    """
    main = threading.main_thread().ident
    assert main is not None
    assert threading.get_ident() == main
    interrupts = _Interrupts(conditions)
    sender = threading.Thread(target=interrupts.send, args=(main,))
    before = signal.signal(signal.SIGINT, interrupts.deliver)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come anywhere in the block
            sender.start()
            yield interrupts
        sender.join()
        assert interrupts.delivered == len(conditions)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def sigint() -> Iterator[None]:
    """For every test of a module that imports it: Python's own handler, and nothing left of a shield afterwards."""
    with python_handler():
        yield
        assert_at_rest()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _looks(frame: FrameType, offset: int) -> bool:
    code = frame.f_code.co_code
    name = dis.opname[code[offset]]
    return name in _LOOKING and not (name == "RESUME" and code[offset + 1] & 3 >= 2)  # not after `yield from`, `await`


class Injection:
    """Ctrl-C at the `number`-th place where Python would look for it, counted over all frames of the main thread."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.done = False
        self.depth = 0
        """How deep our own code was at that place."""
        self.place = ""
        self.silent: set[str] = set()
        """Functions that returned although no instruction of theirs was traced: their places are not counted."""
        self._last: dict[FrameType, int] = {}
        self._begun: set[FrameType] = set()

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code.co_name == "run" and frame.f_globals["__name__"] == __name__:
            return None
        if event == "call":
            # Python 3.13 takes note of `f_trace_opcodes` only in a frame that has its `f_trace`. By itself it would get
            # that when this returns, too late: functions that are called once would have no places.
            frame.f_trace = self.trace
            frame.f_trace_opcodes = True
            self._last[frame] = frame.f_lasti  # at RESUME, which looks for signals but has no event of its own
            self._begun.add(frame)
        elif event == "return":
            self._last.pop(frame, None)
            if frame in self._begun:
                self._begun.remove(frame)
                self.silent.add(frame.f_code.co_qualname)
        elif event == "exception":  # as when a generator is closed: it is left where it stood
            self._begun.discard(frame)
        elif event == "opcode":
            self._begun.discard(frame)
            before = self._last.get(frame)
            self._last[frame] = frame.f_lasti
            if before is not None and _looks(frame, before):
                self.left -= 1
                if self.left == 0:
                    self._interrupt(frame)
        return self.trace

    def _interrupt(self, frame: FrameType) -> None:
        sys.settrace(None)
        self.done, self.depth = True, MAIN.depth
        self.place = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        handler = signal.getsignal(signal.SIGINT)
        assert callable(handler)
        handler(signal.SIGINT, frame)

    def run(self, function: Callable[[], object]) -> bool:
        """Whether KeyboardInterrupt came out of it."""
        before = sys.gettrace()
        gc.disable()  # what earlier trials left behind is not part of this one
        sys._getframe().f_trace_opcodes = True  # pyright: ignore[reportPrivateUsage] # 3.12 asks before it traces
        sys.settrace(self.trace)
        try:
            function()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
            gc.enable()
            self._last.clear()
            self._begun.clear()
        return False


def interruptions(
    make: Callable[[], tuple[Callable[[], object], Callable[[Injection, bool], None]]], step: int = 1
) -> int:
    """Interrupt what `make` gives at each place, every time anew, and check it; how many places there were.

    The last trial is not interrupted. It must have traced every function that was called, or places were missed.
    """
    number = 1
    while True:
        function, check = make()
        injection = Injection(number)
        raised = injection.run(function)
        assert_at_rest(injection.place)
        check(injection, raised)
        if not injection.done:
            assert not injection.silent, injection.silent
            return number - 1
        number += step


def assert_at_rest(place: str = "") -> None:
    """Nothing of ours is under way in the main thread."""
    assert (MAIN.depth, MAIN.noted, MAIN.wake) == (0, [], None), place


def assert_free(*participants: Any) -> None:
    """Their locks are free."""
    for participant in participants:
        lock = lock_of(root_of(participant) if isinstance(participant, Session) else participant)
        assert lock.take_now(False), f"{type(participant).__name__} is locked"
        lock.release(False)


def events_of(session: Session, call_id: str) -> list[ToolInvoked]:
    return [event for event in session[ToolInvoked].all() if event.call_id == call_id]


def worker_threads() -> int:
    """Threads that are not idle workers of ours cannot be told from them, so all are counted."""
    return threading.active_count()


__all__ = [
    "Injection", "ToolExecutor", "assert_at_rest", "assert_free", "events_of", "interrupted_when", "interruptions",
    "python_handler", "sigint", "worker_threads",
]  # fmt: skip
