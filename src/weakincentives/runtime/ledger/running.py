"""Claims of handlers that run in this process; of those that were given up on too, until they really end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from threading import Event, Thread

from ...errors import LeaseLostError, LedgerError
from .effect import EffectId
from .held import Held
from .protocol import Ledger

logger = logging.getLogger(__name__)

_BEATS_PER_LEASE = 3
_LONGEST_BEAT = 3600.0

_running: dict[tuple[int, EffectId], Held] = {}
"""By ledger and key. `Held` keeps its ledger alive, so that the ledger's id stays its own."""

os.register_at_fork(after_in_child=_running.clear)  # the handlers are the parent's, and so are the claims


def running_here(ledger: Ledger, effect_id: EffectId) -> Held | None:
    """The claim of a handler that was given up on and still runs in this process; None when there is none.

    Its call was given up on, or one around it; then it counts also when its lease has run out.
    """
    held = _running.get((id(ledger), effect_id)) if _running else None
    return held if held is not None and held.given_up else None


def begin_running(held: Held) -> None:
    """The handler of a claim is about to run."""
    _running[id(held.ledger), held.effect_id] = held


def end_running(held: Held) -> None:
    """How it ended is in the ledger; of a claim that is kept, nothing is known yet."""
    if not held.kept:
        _running.pop((id(held.ledger), held.effect_id), None)


def keep_claim(held: Held, settle: Callable[[], None]) -> bool:
    """Keep a claim, its lease extended, until its handler ends; then `settle` says in the ledger how it ended.

    Both happen in a thread that ends with the handler. Meanwhile `running_here` gives it, also when the lease is
    lost: another process may take the call over then, this one does not. False when the handler is not running.
    """
    ended = Event()
    if not held.watch.when_ended(ended.set):
        return False
    key = (id(held.ledger), held.effect_id)
    held.kept = True
    thread = Thread(target=_hold, args=(key, held, ended, settle), name="wink-lease", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is going down: the lease will run out, which means the same
        logger.warning("The claim of %s cannot be kept any longer", held.key)
        _running.pop(key, None)
    return True


def _hold(key: tuple[int, EffectId], held: Held, ended: Event, settle: Callable[[], None]) -> None:
    try:
        pause, beating = min(held.lease / _BEATS_PER_LEASE, _LONGEST_BEAT), True
        while not ended.wait(pause if beating else None):
            beating = _beat(held)
        settle()
    except Exception:
        logger.exception("How %s ended could not be recorded; it will count as unknown", held.key)
    finally:
        _running.pop(key, None)  # last: what is neither here nor in the ledger could run again


def _beat(held: Held) -> bool:
    """Extend the lease; False once it is lost for good."""
    try:
        held.beat()
    except LeaseLostError:
        logger.warning("The lease of %s is lost while its handler still runs", held.key)
        return False
    except LedgerError:
        logger.exception("The lease of %s could not be extended", held.key)
    return True


__all__ = ["begin_running", "end_running", "keep_claim", "running_here"]
