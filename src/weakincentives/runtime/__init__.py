"""The engine that runs tool calls, and the names that programs import with it."""

from typing import TYPE_CHECKING

from ..deprecation import former_names
from ..errors import (
    BudgetExceededError,
    DeadlineExceededError,
    DispatchError,
    EndlessRequestsError,
    LeaseLostError,
    LedgerError,
    NoEffect,
    NotResumableError,
    PromptEvaluationError,
    RecordError,
    ReducerError,
    RollbackError,
    RunBusyError,
    RunConflictError,
    RunFormatError,
    SessionBusyError,
    SessionError,
    SessionFormatError,
    SnapshotError,
    StaleCallError,
    ToolError,
    ToolValidationError,
    VisibilityExpansionRequired,
    WinkError,
    WorldChangedError,
)
from ..lazy_names import FindName, lazy_names
from ..prompt.events import Outcome, PromptExecuted, PromptRendered, ToolInvoked
from ..prompt.idempotency import IdempotencyConfig
from ..run_context import Heartbeat, RunContext
from ..session import InProcessDispatcher, Session
from .blocks import create_snapshot, release_snapshot, restore_snapshot, tool_transaction, transaction
from .call import ToolCall, ToolReply
from .ledger import EffectId, EffectLedger, Ledger, LedgerEntry, ToolEffect
from .options import RunOptions
from .redaction import redact
from .transactions import CompositeSnapshot

if TYPE_CHECKING:
    from ..loop import LoopProgress, LoopResult, MainLoop, MainLoopConfig, Retries
    from .jsonl_log import JsonlLog
    from .ledger import PostgresEffectLedger, SqliteEffectLedger
    from .record import PostgresRunStore, RecordedRun, RunStore, SqliteRunStore
    from .tracker import PendingToolTracker

# The loop lies above the runtime; the documents import it from here, so it is looked up when it is asked for.
__getattr__: FindName = lazy_names(
    __name__,
    {
        "..loop": "LoopProgress LoopResult MainLoop MainLoopConfig Retries",
        ".jsonl_log": "JsonlLog",
        ".ledger": "PostgresEffectLedger SqliteEffectLedger",
        ".record": "PostgresRunStore RecordedRun RunStore SqliteRunStore",
        ".tracker": "PendingToolTracker",
    },
    former_names(__name__, {"CallsUndone": "prompt", "LoopResponse": "adapters:PromptResponse"}, stacklevel=3),
)

__all__ = [
    "BudgetExceededError",
    "CompositeSnapshot",
    "DeadlineExceededError",
    "DispatchError",
    "EffectId",
    "EffectLedger",
    "EndlessRequestsError",
    "Heartbeat",
    "IdempotencyConfig",
    "InProcessDispatcher",
    "JsonlLog",
    "LeaseLostError",
    "Ledger",
    "LedgerEntry",
    "LedgerError",
    "LoopProgress",
    "LoopResult",
    "MainLoop",
    "MainLoopConfig",
    "NoEffect",
    "NotResumableError",
    "Outcome",
    "PendingToolTracker",
    "PostgresEffectLedger",
    "PostgresRunStore",
    "PromptEvaluationError",
    "PromptExecuted",
    "PromptRendered",
    "RecordError",
    "RecordedRun",
    "ReducerError",
    "Retries",
    "RollbackError",
    "RunBusyError",
    "RunConflictError",
    "RunContext",
    "RunFormatError",
    "RunOptions",
    "RunStore",
    "Session",
    "SessionBusyError",
    "SessionError",
    "SessionFormatError",
    "SnapshotError",
    "SqliteEffectLedger",
    "SqliteRunStore",
    "StaleCallError",
    "ToolCall",
    "ToolEffect",
    "ToolError",
    "ToolInvoked",
    "ToolReply",
    "ToolValidationError",
    "VisibilityExpansionRequired",
    "WinkError",
    "WorldChangedError",
    "create_snapshot",
    "redact",
    "release_snapshot",
    "restore_snapshot",
    "tool_transaction",
    "transaction",
]
