"""The ledger of those who gave none."""

from __future__ import annotations

import logging
from threading import Lock

from ...session import Session
from ...session.session import root_of
from ...weak_table import WeakTable
from .memory import EffectLedger

logger = logging.getLogger(__name__)

_lock = Lock()
_ledgers: WeakTable[Session, EffectLedger] = WeakTable()


def session_ledger(session: Session) -> EffectLedger:
    """The in-memory ledger that lives as long as the session; a warning is logged when it is made."""
    owner = root_of(session)
    with _lock:
        ledger = _ledgers.get(owner)
        if ledger is None:
            ledger = EffectLedger(clock=owner.clock)
            _ledgers.put(owner, ledger)
            logger.warning(
                "A tool with an IdempotencyConfig was called without an effect_ledger, so effects are remembered in "
                "memory, for this session alone. Pass effect_ledger=SqliteEffectLedger(path) to remember them."
            )
    return ledger


__all__ = ["session_ledger"]
