"""What runs a tool call, and the names of its surroundings under one roof."""

from typing import TYPE_CHECKING, Any

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
from .blocks import create_snapshot, release_snapshot, restore_snapshot, tool_transaction, transaction
from .call import ToolCall, ToolReply
from .ledger import EffectId, EffectLedger, Ledger, LedgerEntry, PostgresEffectLedger, SqliteEffectLedger, ToolEffect
from .redaction import redact
from .tracker import PendingToolTracker
from .transactions import CompositeSnapshot

if TYPE_CHECKING:
    from ..loop import LoopProgress, LoopResponse, LoopResult, MainLoop, MainLoopConfig, Retries

_OF_THE_LOOP = frozenset({"LoopProgress", "LoopResponse", "LoopResult", "MainLoop", "MainLoopConfig", "Retries"})


def __getattr__(name: str) -> Any:
    """The loop lies above the runtime; the documents import it from here, so it is looked up when it is asked for."""
    if name not in _OF_THE_LOOP:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .. import loop  # noqa: PLC0415 - importing it above would be a cycle

    return getattr(loop, name)


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
