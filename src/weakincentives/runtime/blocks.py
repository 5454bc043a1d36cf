"""`with transaction(...)`: several steps or calls, all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, final

from ..prompt.changes import Changes
from ..session import Session
from .transactions import CompositeSnapshot, Resources, savepoint_here


@final
class Transaction:
    """Several steps, all or nothing: `with transaction(session, resources): ...`.

    Leaving with an exception, or when `validate()` is not true, undoes everything since it was entered, calls of tools
    included; LOG slices stay. The value of the `with` is the `CompositeSnapshot`.
    """

    __slots__ = ("_moment", "_savepoint", "_tag", "_validate", "committed")

    _moment: CompositeSnapshot

    def __init__(self, session: Session, resources: Resources | None, tag: str, validate: Callable[[], object] | None):
        self._savepoint = savepoint_here(session, resources)
        self._tag = tag
        self._validate = validate
        self.committed: bool | None = None
        """Whether the changes stayed; None while it is open."""

    def __enter__(self) -> Self:
        self._savepoint.open()
        self._moment = self._savepoint.snapshot(self._tag)
        return self

    async def __aenter__(self) -> Self:
        await self._savepoint.aopen()
        self._moment = self._savepoint.snapshot(self._tag)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.committed = error is None and (self._validate is None or bool(self._validate()))
        except BaseException:
            self.committed = False
            raise
        finally:
            if self.committed:
                self._savepoint.keep()
            self._savepoint.close()

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
