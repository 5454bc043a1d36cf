"""Policies that need nothing but the log of calls: order, rate and quota.

Each keeps an index of what it needs to know, so that a check costs the same in a session of 10 calls and of 100,000.
Rate and quota count calls that were admitted (`ToolInvoked.admitted`): a refused call does not use anything up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil
from operator import itemgetter
from typing import Any, Generic, TypeVar, final

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import PromptValidationError
from ..interrupts import Lock, WeakTable
from ..session import SessionProtocol
from ..session.log_reader import LogReader, core_of
from ..session.state import SessionState
from .events import CallsUndone, ToolInvoked
from .policy import Policy
from .tool_context import ToolContext

# What a session's calls amount to, kept up to date instead of counted anew.
#
# The log of calls only grows, so what is derived from it can go on from where it stopped. This is a cache, not state:
# nothing of it is restored, saved or forked, and it is made again from the log when that was emptied.


S = TypeVar("S")
A = TypeVar("A")


@final
class CallCounts(Generic[S]):
    """An index over the `ToolInvoked` events of sessions. Safe to use from any thread.

    `start` makes an empty index, `add` puts one event into it. Asking costs as much as the calls since the last time.
    An index is forgotten with its session.
    """

    __slots__ = ("_add", "_known", "_lock", "_start")

    def __init__(self, start: Callable[[], S], add: Callable[[S, ToolInvoked], object]) -> None:
        self._start = start
        self._add = add
        self._lock = Lock()
        self._known: WeakTable[SessionState, _Index[S]] = WeakTable()

    def ask(self, session: SessionProtocol, question: Callable[[S], A]) -> A:
        """The answer of `question` to the index as it is now; it must not keep or change the index."""
        core = core_of(session)
        with self._lock:  # around the reading, so that no thread comes with older events than the last one
            known = self._known.get(core)
            if known is None:
                known = _Index(self._start())
                self._known.put(core, known)
            try:
                events = known.reader.more(core)
                if events is None:  # the log was emptied
                    known.index = self._start()
                    events = known.reader.more(core) or ()
                for event in events:
                    self._add(known.index, event)
            except BaseException:
                # An interrupt may have come between reading an event and counting it: all are counted again.
                known.reader.start_over()
                known.index = self._start()
                raise
            return question(known.index)


@final
class _Index(Generic[S]):
    __slots__ = ("index", "reader")

    def __init__(self, index: S) -> None:
        self.reader: LogReader[ToolInvoked] = LogReader(ToolInvoked)
        self.index: S = index


def recorded_call(session: SessionProtocol, call_id: str) -> ToolInvoked | None:
    """The newest event of a call with this id; None when the log has none. Looks from the end of the log."""
    for event in reversed(session[ToolInvoked].all()):
        if event.call_id == call_id:
            return event
    return None


def was_undone(session: SessionProtocol, call: ToolInvoked) -> bool:
    """Whether a call that succeeded was undone later: by the end of the call around it, a transaction or a snapshot."""
    if not call.success:
        return False
    for event in reversed(session[ToolInvoked].all()):
        if event is call:
            break
        if call.event_id in event.undone_calls:
            return True
    return any(call.event_id in event.undone_calls for event in session[CallsUndone].all())


_MINUTE = 60.0


@final
class SequentialDependencyPolicy(Policy):
    """Tools that may be called only after others have succeeded in the session.

    `PromptValidationError` for names in a bare string, and for tools that wait for one another.

    >>> policy = SequentialDependencyPolicy(dependencies={"deploy": ["test", "build"]})
    >>> print(policy.check("deploy", None, ToolContext()))
    Cannot call 'deploy' - missing required tools: test, build
    Call these tools first, then retry deploy.
    """

    __slots__ = ("_index", "dependencies")

    overlaps = True
    """Calls of read-only tools do not change what it answers."""

    def __init__(self, dependencies: Mapping[str, Collection[str]]) -> None:
        self.dependencies: Mapping[str, tuple[str, ...]] = {
            name: _ordered(name, required) for name, required in dependencies.items()
        }
        _refuse_circles(self.dependencies)
        self._index: CallCounts[set[str]] = CallCounts(set, _add_success)

    def check(self, tool_name: str, params: Any, context: ToolContext) -> str | None:
        """Refuse a call whose required tools have not all succeeded."""
        del params
        required = self.dependencies.get(tool_name)
        if not required:
            return None
        missing = self._index.ask(context.session, lambda done: [name for name in required if name not in done])
        if not missing:
            return None
        these = "this tool" if len(missing) == 1 else "these tools"
        return (
            f"Cannot call '{tool_name}' - missing required tools: {', '.join(missing)}\n"
            f"Call {these} first, then retry {tool_name}."
        )

    def __repr__(self) -> str:
        return f"SequentialDependencyPolicy({dict(self.dependencies)!r})"


def _add_success(done: set[str], event: ToolInvoked) -> None:
    if event.success:
        done.add(event.tool_name)


def _ordered(name: str, required: Collection[str]) -> tuple[str, ...]:
    if isinstance(required, str):
        raise PromptValidationError(
            f"SequentialDependencyPolicy: the tools required by {name!r} are a bare string. "
            f"Write frozenset({{{required!r}}})."
        )
    # Sets have no order of their own; the same refusal should read the same every time.
    return tuple(sorted(required)) if isinstance(required, set | frozenset) else tuple(required)


def _refuse_circles(dependencies: Mapping[str, Iterable[str]]) -> None:
    cleared: set[str] = set()

    def follow(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " -> ".join((*path[path.index(name) :], name))
            raise PromptValidationError(
                f"SequentialDependencyPolicy: these tools wait for one another, so none can be called: {circle}. "
                "Remove one of the dependencies."
            )
        if name not in cleared:
            for required in dependencies.get(name, ()):
                follow(required, (*path, name))
            cleared.add(name)

    for name in dependencies:
        follow(name, ())


@final
class RateLimitPolicy(Policy):
    """A maximum number of calls of each tool in any 60 seconds.

    `clock` says what time it is; without one, the session's does.
    """

    __slots__ = ("_clock", "_index", "max_calls_per_minute")

    def __init__(self, max_calls_per_minute: int, *, clock: Clock | None = None) -> None:
        self.max_calls_per_minute: int = _limit("RateLimitPolicy max_calls_per_minute", max_calls_per_minute)
        self._clock = clock
        self._index: CallCounts[dict[str, deque[float]]] = CallCounts(dict, self._add)

    def _add(self, times: dict[str, deque[float]], event: ToolInvoked) -> None:
        if event.admitted:
            recent = times.get(event.tool_name)
            if recent is None:  # only the newest calls can be too many
                recent = times[event.tool_name] = deque(maxlen=self.max_calls_per_minute)
            recent.append(event.timestamp)

    def check(self, tool_name: str, params: Any, context: ToolContext) -> str | None:
        """Refuse a call when the last minute already had the maximum."""
        del params
        session = context.session

        def oldest_when_full(times: dict[str, deque[float]]) -> float | None:
            recent = times.get(tool_name)
            return None if recent is None or len(recent) < self.max_calls_per_minute else min(recent)

        oldest = self._index.ask(session, oldest_when_full)
        if oldest is None:
            return None
        clock: Clock = self._clock or getattr(session, "clock", SYSTEM_CLOCK)
        now = clock.time()
        if oldest <= now - _MINUTE:
            return None
        wait = max(1, ceil(min(oldest + _MINUTE - now, _MINUTE)))
        return (
            f"Rate limit exceeded: {self.max_calls_per_minute} calls to {tool_name} in last minute\n"
            f"Maximum: {self.max_calls_per_minute} calls per minute\n"
            f"Wait {wait} {'second' if wait == 1 else 'seconds'} before retrying"
        )

    def __repr__(self) -> str:
        return f"RateLimitPolicy(max_calls_per_minute={self.max_calls_per_minute})"


@final
class QuotaPolicy(Policy):
    """A maximum number of calls in a session: of all tools together, or of those in `tools`.

    The policy stops the tools of the section it stands on; what it counts is the session's.

    >>> session_of_one_call = ToolContext()
    >>> _ = session_of_one_call.session.dispatch(ToolInvoked(tool_name="search", success=True))
    >>> print(QuotaPolicy(max_calls=1).check("search", None, session_of_one_call))
    Quota exceeded: 1/1 calls used
    Do not call search again; go on with what you have.
    """

    __slots__ = ("_index", "max_calls", "tools")

    def __init__(self, max_calls: int, *, tools: Collection[str] | None = None) -> None:
        self.max_calls: int = _limit("QuotaPolicy max_calls", max_calls)
        if isinstance(tools, str):
            raise PromptValidationError(f"QuotaPolicy tools is a bare string. Write frozenset({{{tools!r}}}).")
        self.tools: frozenset[str] | None = None if tools is None else frozenset(tools)
        self._index: CallCounts[list[int]] = CallCounts(lambda: [0], self._add)

    def _add(self, counted: list[int], event: ToolInvoked) -> None:
        if event.admitted and (self.tools is None or event.tool_name in self.tools):
            counted[0] += 1

    def check(self, tool_name: str, params: Any, context: ToolContext) -> str | None:
        """Refuse a call once the quota is used up."""
        del params
        if self.tools is not None and tool_name not in self.tools:
            return None
        calls = self._index.ask(context.session, itemgetter(0))
        if calls < self.max_calls:
            return None
        return (
            f"Quota exceeded: {calls}/{self.max_calls} calls used\n"
            f"Do not call {tool_name} again; go on with what you have."
        )

    def __repr__(self) -> str:
        return f"QuotaPolicy(max_calls={self.max_calls})"


def _limit(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PromptValidationError(f"{what} must be a whole number of 1 or more, got {value!r}.")
    return value
