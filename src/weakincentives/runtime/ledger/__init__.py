"""The effect ledger: what happened once is not done again. See `protocol.Ledger` for the contract.

The ledgers in databases are found on first use: their drivers are slow to import, and many programs need none.
"""

from typing import TYPE_CHECKING

from ...deprecation import former_names
from ...lazy_names import FindName, lazy_names
from .effects import EffectId, EffectState, LedgerEntry, StoredResult, ToolEffect
from .memory import EffectLedger
from .protocol import Busy, Claim, Claimed, Conflict, Ledger, Replay, UnknownOutcome

if TYPE_CHECKING:
    from .postgres import PostgresEffectLedger
    from .sqlite import SqliteEffectLedger

_former_name = former_names(
    __name__, {"Doubt": "runtime.ledger:UnknownOutcome", "State": "runtime.ledger:EffectState"}, stacklevel=3
)
__getattr__: FindName = lazy_names(
    __name__, {".postgres": "PostgresEffectLedger", ".sqlite": "SqliteEffectLedger"}, _former_name
)

__all__ = [
    "Busy",
    "Claim",
    "Claimed",
    "Conflict",
    "EffectId",
    "EffectLedger",
    "EffectState",
    "Ledger",
    "LedgerEntry",
    "PostgresEffectLedger",
    "Replay",
    "SqliteEffectLedger",
    "StoredResult",
    "ToolEffect",
    "UnknownOutcome",
]
