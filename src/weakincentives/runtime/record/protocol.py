"""The contract of a run store, written once; `weakincentives.testing.RunStoreContract` checks it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Literal, Protocol, runtime_checkable

from ..ledger.protocol import Ledger
from .rows import FileStep, FrameStep, NewRows, NewRun, RunInfo, RunStatus, Step, StepKind


class HeldRun(Protocol):
    """A run that this process has: only it may add to the run, until it lets go or is taken for dead.

    Letting go of it twice does nothing. It is safe to use from any thread.
    """

    @property
    def info(self) -> RunInfo:
        """The run as it was when it was taken; `token` is that of the holder."""
        ...

    @property
    def is_new(self) -> bool:
        """Whether taking it began it."""
        ...

    def append(self, rows: NewRows, /) -> None:
        """Add rows in one transaction; they last when this returns.

        `RunBusyError` when another process has taken the run, `RecordError` when it cannot be written; nothing was
        added then. Adding the same rows twice is the same as once.
        """
        ...

    def release(self) -> None:
        """Let other processes have it."""
        ...


@runtime_checkable
class RunStore(Protocol):
    """Keeps what happened in runs, for ever or until it is pruned. Safe to use from any thread.

    Rows are only ever added. `RecordError` says that the store cannot be used, and what to do.
    """

    @property
    def blocks(self) -> bool:
        """Whether its methods wait for a disk or a server, so that async code calls them in a thread."""
        ...

    @property
    def max_file(self) -> int:
        """Bytes of the largest content that it takes."""
        ...

    def take(self, run_id: str, new: NewRun | None = None, /, *, retry: bool = False) -> HeldRun:
        """Begin the run, or take one that is not over and that no process has, or one that is over, to read it.

        With `retry`, a run that failed is not over: it is running again.

        `RunBusyError` names the process that has it. `RecordError` for an id that is unknown when `new` is None.
        """
        ...

    def fork(
        self, run_id: str, /, *, at: int, new_id: str | None = None, effects: Literal["shared", "fresh"] = "shared"
    ) -> str:
        """A new run with the steps of another one up to `at`; its id. The other one stays as it is.

        Both have the same session, so an effect that a ledger keeps for a session is replayed in the new run whichever
        of them had it, also after `at`. With `effects="fresh"` the new run has a session of its own: such an effect
        happens again there.

        `RecordError` for a step that is not there, or an id that is taken.
        """
        ...

    def info(self, run_id: str, /) -> RunInfo | None:
        """The run, or None."""
        ...

    def infos(self, *, status: RunStatus | None = None, limit: int | None = None) -> Sequence[RunInfo]:
        """The runs, the one that was written to last first."""
        ...

    def interrupted(self) -> Sequence[RunInfo]:
        """Runs that are not over and that no process has, the oldest first; without those inside a call of another."""
        ...

    def steps(
        self, run_id: str, /, *, after: int = 0, until: int | None = None,
        kinds: Collection[StepKind] | None = None, seqs: Collection[int] | None = None,
    ) -> Iterable[Step]:  # fmt: skip
        """The rows of a run in order: those with a number above `after`, up to `until`, of these kinds and numbers."""
        ...

    def files(
        self, run_id: str, /, *, until: int | None = None, path: str | None = None, last: bool = False
    ) -> Sequence[FileStep]:
        """What steps did to files, in order; of one path, or of all; only the `last` step of each path."""
        ...

    def frames(self, run_id: str, /, *, until: int) -> Sequence[FrameStep]:
        """Which steps changed slices: of each slice the last that has it whole, and those after it.

        Up to the last step, at most that one, with a row of the empty name; without such a row there are none.
        """
        ...

    def blob(self, digest: str, /) -> bytes:
        """The content with that digest; `RecordError` when it is missing or damaged."""
        ...

    def prune(self, older_than: timedelta, *, interrupted: bool = False, dry_run: bool = False) -> Sequence[RunInfo]:
        """Remove the runs that ended, and were written to last, longer ago than that; they are returned.

        Content that no other run refers to goes with them: forks keep what they share. So do conversations that no
        process has. With `interrupted`, runs whose process is gone are removed as well. A run that a process has is
        never removed, nor one that waits for a decision. One inside a call of another is removed when that is over.
        With `dry_run` nothing is.
        """
        ...

    def verify(self) -> Sequence[str]:
        """Read everything there is, and say what is wrong, each in a sentence; empty when nothing is.

        Every content has its digest, every row can be read, the steps of a run have no holes, and what they refer to is
        there. Runs may be under way meanwhile.
        """
        ...

    def ledger(self) -> Ledger:
        """An effect ledger in the same database; the caller closes it."""
        ...

    def close(self) -> None:
        """Release the database; runs that are held are let go. The store opens again when it is used."""
        ...


__all__ = ["HeldRun", "RunStore"]
