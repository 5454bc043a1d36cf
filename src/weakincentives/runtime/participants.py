"""The resources that take part in a transaction: remembered, restored and released together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from operator import methodcaller
from typing import Any, final

from ..crash_log import log_crash
from ..errors import RollbackError
from ..fence import Guard, Owner
from ..filesystem import FileChanges, Filesystem, GuardedFilesystem
from ..filesystem.ownership import open_savepoint
from ..resources import ResourceContext, ToolScope
from .redaction import text_of

# The resources of one call, as its handler sees them.


_MISSING: Any = object()


@final
class CallResources:
    """A tool scope whose filesystems are fenced: what a handler gets here writes nothing once its call is over."""

    __slots__ = ("_guard", "_guarded", "_scope", "_shared")

    def __init__(self, scope: ToolScope, guard: Guard, shared: ResourceContext) -> None:
        self._shared = shared
        self._scope = scope
        self._guard = guard
        self._guarded: dict[Any, Any] | None = None

    def get(self, resource_type: Any, /, default: Any = _MISSING) -> Any:
        """The resource, built on first use; see `ResourceContext.get`."""
        found = self._scope.get(resource_type) if default is _MISSING else self._scope.get(resource_type, default)
        return self._fenced(resource_type, found)

    async def aget(self, resource_type: Any, /, default: Any = _MISSING) -> Any:
        """Like `get`, for async code."""
        if default is _MISSING:
            return self._fenced(resource_type, await self._scope.aget(resource_type))
        return self._fenced(resource_type, await self._scope.aget(resource_type, default))

    def __contains__(self, resource_type: object, /) -> bool:
        return resource_type in self._scope

    def __repr__(self) -> str:
        return repr(self._shared)

    def _fenced(self, resource_type: Any, found: Any) -> Any:
        if not is_filesystem(found.__class__):
            return found
        if self._guarded is None:
            self._guarded = {}
        guarded = self._guarded.get(resource_type)
        if guarded is None:
            guarded = self._guarded[resource_type] = GuardedFilesystem(found, self._guard)
        return guarded


def unfenced(resources: CallResources) -> tuple[ResourceContext, Guard]:
    """What outlives the call, and the call's guard: for a transaction inside it, whose undo must pass the guard."""
    return resources._shared, resources._guard  # pyright: ignore[reportPrivateUsage] # a friend of the class


_OPERATIONS = tuple(name for name in vars(Filesystem) if not name.startswith("_"))


@cache
def is_filesystem(kind: type[Any]) -> bool:
    """Whether objects of a class are filesystems, by what they can do and not by their name."""
    return all(hasattr(kind, name) for name in _OPERATIONS)


logger = logging.getLogger(__name__)

Parts = tuple[tuple[Any, Any], ...]
"""The resources that take part, each with its snapshot."""

LogExtra = Mapping[str, object] | None
"""What log records carry: the run's ids."""


def files_behind(part: Any) -> Any:
    """The filesystem that a view shows, or the participant itself: all views of one root share its lock."""
    while is_filesystem(part.__class__):
        behind = getattr(part, "_fs", None)
        if behind is None or not is_filesystem(behind.__class__):
            break
        part = behind
    return part


def savepoints_of(parts: Iterable[Any], owner: Owner, for_all: bool) -> Parts:
    """Each participant with what undoes a savepoint of that owner, on disk also after a crash.

    When one of them cannot be had, all are released and it raises.
    """
    return snapshots_of(parts, partial(_savepoint_of, owner, for_all))


def _savepoint_of(owner: Owner, for_all: bool, part: Any) -> Any:
    return open_savepoint(part, owner, for_all=for_all) if is_filesystem(part.__class__) else part.snapshot()


def snapshots_of(parts: Iterable[Any], take: Callable[[Any], Any] = methodcaller("snapshot")) -> Parts:
    """Each participant with a snapshot; when one of them cannot be had, all are released and it raises."""
    taken: list[tuple[Any, Any]] = []
    try:
        for part in parts:
            taken.append((part, take(part)))  # noqa: PERF401 - what was taken must be known when one raises
    except BaseException:
        release_parts(tuple(taken))
        raise
    return tuple(taken)


def restore_all(  # noqa: PLR0917 - all that takes part
    restore_session: Callable[[], None],
    context: ResourceContext | None,
    parts: Parts,
    mark: int,
    log_extra: LogExtra,
    failed: list[Any],
) -> None:
    """Restore the session, the participants and what was born since; those that could not be are added to `failed`.

    Every participant is tried even when one fails; then `RollbackError` holds all causes.
    """
    causes: dict[str, BaseException] = {}
    interrupt = _attempt(causes, "session", restore_session, log_extra)
    for part, taken in reversed(parts):
        known = len(causes)
        step = _attempt(causes, type(part).__name__, lambda part=part, taken=taken: part.restore(taken), log_extra)
        interrupt = interrupt or step
        if len(causes) > known:
            failed.append(part)
    if context is not None and context.mark() != mark:
        interrupt = _attempt(causes, "resources", lambda: context.discard(mark), log_extra) or interrupt
    if causes:
        listed = "; ".join(f"{name}: {text_of(error)}" for name, error in causes.items())
        raise RollbackError(
            f"{len(causes)} of {len(parts) + 1} participants could not be restored ({listed}). "
            "What they hold is not to be trusted: stop the run and look at them. Files keep what their undo needs and "
            "refuse further calls until it succeeds, here or when they are opened next.",
            causes=causes,
        )
    if interrupt is not None:
        raise interrupt


def _attempt(
    causes: dict[str, BaseException], name: str, step: Callable[[], None], log_extra: LogExtra
) -> BaseException | None:
    """Every participant gets its turn, whatever the others did.

    Ctrl-C in the middle does not stop the round: what it broke off is done once more, and the interrupt returned.
    """
    interrupt: BaseException | None = None
    for _ in range(2):
        try:
            step()
        except Exception as error:  # noqa: BLE001 - participants are users' code
            log_crash(logger, f"The {name} could not be restored", error, log_extra)
            causes[name if name not in causes else f"{name} {len(causes) + 1}"] = error
            return interrupt
        except BaseException as error:  # noqa: BLE001 - raised when the round is over
            interrupt = error
        else:
            return interrupt
    assert interrupt is not None
    causes[name if name not in causes else f"{name} {len(causes) + 1}"] = interrupt
    return interrupt


def release_parts(parts: Parts, log_extra: LogExtra = None) -> None:
    """Each is released, whatever the others did; an interrupt among them is raised after the last."""
    interrupt: BaseException | None = None
    for part, taken in reversed(parts):
        release = getattr(part, "release", None)
        if release is None:
            continue
        try:
            release(taken)
        except Exception as error:  # noqa: BLE001 - users' code; what is released is not needed any more
            log_crash(logger, f"A snapshot of {type(part).__name__} could not be released", error, log_extra)
        except BaseException as error:  # noqa: BLE001 - raised when the round is over
            interrupt = error if interrupt is None else interrupt
    if interrupt is not None:
        raise interrupt


def file_changes(parts: Parts, log_extra: LogExtra) -> FileChanges | None:
    """What the participants that are filesystems changed since; None when nothing did."""
    found: FileChanges | None = None
    for part, taken in parts:
        changes = getattr(part, "changes", None)
        if changes is None:
            continue
        try:
            changed = changes(taken)
        except Exception as error:  # noqa: BLE001 - participants are users' code, and this is only for the log
            log_crash(logger, f"The changes of {type(part).__name__} could not be told", error, log_extra)
            continue
        if isinstance(changed, FileChanges) and changed:
            found = changed if found is None else FileChanges(
                (*found.added, *changed.added), (*found.changed, *changed.changed), (*found.removed, *changed.removed)
            )  # fmt: skip
    return found
