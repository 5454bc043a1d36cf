"""`with transaction(...)`: several steps or calls, all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, final

from ..interrupts import finalizer
from ..prompt.changes import Changes
from ..session import Session
from ..signals import shielded_run
from .nesting import keep_inside, record_undone
from .transactions import CompositeSnapshot, Resources, Savepoint, savepoint_here


@final
class _CloseWhenDropped:
    """Closes a savepoint whose `with` was left without `__exit__`: an interrupt may be raised before its first line."""

    __slots__ = ("_savepoint",)

    def __init__(self, savepoint: Savepoint) -> None:
        self._savepoint = savepoint

    @finalizer
    def __del__(self) -> None:
        self._savepoint.close()


@final
class Transaction:
    """Several steps, all or nothing: `with transaction(session, resources): ...`.

    Leaving with an exception, or when `validate()` is not true, undoes everything since it was entered, calls of tools
    included; LOG slices stay. The value of the `with` is the `CompositeSnapshot`.
    """

    __slots__ = ("_closing", "_moment", "_savepoint", "_tag", "_validate", "committed")

    _moment: CompositeSnapshot

    def __init__(self, session: Session, resources: Resources | None, tag: str, validate: Callable[[], object] | None):
        self._savepoint = savepoint_here(session, resources)
        self._tag = tag
        self._validate = validate
        self.committed: bool | None = None
        """Whether the changes stayed; None while it is open."""

    def __enter__(self) -> Self:
        try:
            with shielded_run():
                self._savepoint.open()
                self._begin()
        except BaseException:  # also an interrupt that waited until it was open
            self._savepoint.close()
            raise
        return self

    def _begin(self) -> None:
        self._moment = self._savepoint.snapshot(self._tag)
        self._savepoint.outlive_task()
        self._closing = _CloseWhenDropped(self._savepoint)

    async def __aenter__(self) -> Self:
        try:
            with shielded_run():
                await self._savepoint.aopen()
                self._begin()
        except BaseException:  # as above
            self._savepoint.close()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            with shielded_run():
                self._leave(error)
        finally:
            self._savepoint.close()  # if an interrupt came first

    def _leave(self, error: BaseException | None) -> None:
        try:
            self.committed = error is None and (self._validate is None or bool(self._validate()))
        except BaseException:
            self.committed = False
            raise
        finally:
            savepoint = self._savepoint
            if self.committed:
                savepoint.keep()
            try:
                savepoint.close()
            finally:
                if self.committed:
                    keep_inside(savepoint)
                else:
                    record_undone(savepoint.session, savepoint.inner_calls)
                savepoint.inner_calls = ()
            self._closing = None  # here, where an interrupt waits: in `__del__` it would be swallowed

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)

    @property
    def snapshot(self) -> CompositeSnapshot:
        """The moment it was entered, for `restore_snapshot` in the middle; `SessionError` while it is not open."""
        self._savepoint.snapshot()  # raises while it is not open
        return self._moment

    def changes(self) -> Changes:
        """What differs from the moment it was entered."""
        return self._savepoint.changes()


def transaction(
    session: Session,
    resources: Resources | None = None,
    *,
    tag: str = "",
    validate: Callable[[], object] | None = None,
) -> Transaction:
    """All or nothing over several steps or calls; also `async with`. See `Transaction`.

    >>> session = Session()
    >>> with transaction(session, validate=lambda: session[int].count() < 2):
    ...     session[int].append(1)
    ...     session[int].append(2)
    >>> session[int].count()
    0
    """
    return Transaction(session, resources, tag, validate)


@final
class _ToolTransaction:
    __slots__ = ("_transaction",)

    def __init__(self, made: Transaction) -> None:
        self._transaction = made

    def __enter__(self) -> CompositeSnapshot:
        self._transaction.__enter__()
        return self._transaction.snapshot

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._transaction.__exit__(kind, error, trace)


def tool_transaction(session: Session, resources: Resources | None = None, *, tag: str = "") -> _ToolTransaction:
    """Undo everything on an exception.

    Used as `with tool_transaction(session, resources, tag="...") as snapshot: ...`.

    The snapshot can be restored by hand with `restore_snapshot` before the block ends.
    """
    return _ToolTransaction(transaction(session, resources, tag=tag))


__all__ = ["Transaction", "tool_transaction", "transaction"]
