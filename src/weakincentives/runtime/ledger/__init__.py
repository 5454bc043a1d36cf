"""The effect ledger: what happened once is not done again. See `protocol.Ledger` for the contract."""

from .effects import EffectId, LedgerEntry, State, StoredResult, ToolEffect
from .memory import EffectLedger
from .postgres import PostgresEffectLedger
from .protocol import Busy, Claim, Claimed, Conflict, Doubt, Ledger, Replay
from .sqlite import SqliteEffectLedger

__all__ = [
    "Busy",
    "Claim",
    "Claimed",
    "Conflict",
    "Doubt",
    "EffectId",
    "EffectLedger",
    "Ledger",
    "LedgerEntry",
    "PostgresEffectLedger",
    "Replay",
    "SqliteEffectLedger",
    "State",
    "StoredResult",
    "ToolEffect",
]
