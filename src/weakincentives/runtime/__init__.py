"""What runs a tool call, and the names of its surroundings under one roof."""

from ..errors import (
    BudgetExceededError,
    DeadlineExceededError,
    DispatchError,
    EndlessRequestsError,
    LeaseLostError,
    LedgerError,
    NoEffect,
    PromptEvaluationError,
    ReducerError,
    RollbackError,
    SessionBusyError,
    SessionError,
    SessionFormatError,
    SnapshotError,
    StaleCallError,
    ToolError,
    ToolValidationError,
    VisibilityExpansionRequired,
    WinkError,
)
from ..prompt.events import CallsUndone, Outcome, PromptExecuted, PromptRendered, ToolInvoked
from ..prompt.idempotency import IdempotencyConfig
from ..run_context import Heartbeat, RunContext
from ..session import InProcessDispatcher, Session
from .batch_progress import LoopProgress
from .blocks import tool_transaction, transaction
from .call import ToolCall, ToolReply
from .ledger import EffectId, EffectLedger, Ledger, LedgerEntry, PostgresEffectLedger, SqliteEffectLedger, ToolEffect
from .loop import LoopResponse, MainLoop, MainLoopConfig
from .loop_result import LoopResult, Retries
from .redaction import redact
from .snapshots import create_snapshot, release_snapshot, restore_snapshot
from .tracker import PendingToolTracker
from .transactions import CompositeSnapshot

__all__ = [
    "BudgetExceededError",
    "CallsUndone",
    "CompositeSnapshot",
    "DeadlineExceededError",
    "DispatchError",
    "EndlessRequestsError",
    "EffectId",
    "EffectLedger",
    "Heartbeat",
    "IdempotencyConfig",
    "InProcessDispatcher",
    "LeaseLostError",
    "Ledger",
    "LedgerEntry",
    "LedgerError",
    "LoopProgress",
    "LoopResponse",
    "LoopResult",
    "MainLoop",
    "MainLoopConfig",
    "NoEffect",
    "Outcome",
    "PendingToolTracker",
    "PostgresEffectLedger",
    "PromptEvaluationError",
    "PromptExecuted",
    "PromptRendered",
    "ReducerError",
    "Retries",
    "RollbackError",
    "RunContext",
    "Session",
    "SessionBusyError",
    "SessionError",
    "SessionFormatError",
    "SnapshotError",
    "SqliteEffectLedger",
    "StaleCallError",
    "ToolCall",
    "ToolEffect",
    "ToolError",
    "ToolInvoked",
    "ToolReply",
    "ToolValidationError",
    "VisibilityExpansionRequired",
    "WinkError",
    "create_snapshot",
    "redact",
    "release_snapshot",
    "restore_snapshot",
    "tool_transaction",
    "transaction",
]
