"""Runs on record: what was said and done, written as it happens, so that an interrupted run can go on."""

from typing import TYPE_CHECKING

from ...deprecation import former_names
from ...lazy_names import FindName, lazy_names
from .protocol import HeldRun, RunStore
from .reading import RecordedRun, RunDiff
from .rows import FileStep, NewRows, NewRun, RunInfo, RunStatus, Step, StepKind
from .runs import RunRecord

if TYPE_CHECKING:
    from .comparison import RunComparison, compare
    from .export import export_run
    from .postgres import PostgresRunStore
    from .seals import Seal
    from .sqlite import SqliteRunStore

__getattr__: FindName = lazy_names(
    __name__,
    {
        ".comparison": "RunComparison compare",
        ".export": "export_run",
        ".postgres": "PostgresRunStore",
        ".seals": "Seal",
        ".sqlite": "SqliteRunStore",
    },
    former_names(__name__, {}, stacklevel=3),
)

__all__ = [
    "NewRows",
    "FileStep",
    "HeldRun",
    "NewRun",
    "PostgresRunStore",
    "RecordedRun",
    "RunComparison",
    "RunDiff",
    "RunInfo",
    "RunRecord",
    "RunStatus",
    "RunStore",
    "Seal",
    "SqliteRunStore",
    "Step",
    "StepKind",
    "compare",
    "export_run",
]
