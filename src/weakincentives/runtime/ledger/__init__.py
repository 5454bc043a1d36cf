"""The effect ledger: what happened once is not done again. See `protocol.Ledger` for the contract."""

from .claims import Busy, Claim, Claimed, Conflict, Doubt, Replay
from .effect import EffectId, LedgerEntry, State, ToolEffect
from .memory import EffectLedger
from .postgres import PostgresEffectLedger
from .protocol import Ledger
from .sqlite import SqliteEffectLedger
from .values import StoredResult

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
