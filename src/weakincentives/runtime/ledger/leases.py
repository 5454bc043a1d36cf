"""A call that this process holds in a ledger, until it says how it ended."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import timedelta
from threading import Event, Thread
from typing import final

from ...errors import LeaseLostError, LedgerError
from ...fence import Owner
from ..handler_watch import HandlerWatch
from .effects import EffectId, StoredResult, ToolEffect
from .protocol import Ledger


@final
class LedgerLease:
    """The newest token of a row, and what can be said with it. See `Ledger` for what each step means and raises.

    `tool_name` and `params_hash` say which call it is, where several share a key.
    `watch` sees the handler that runs under it, so that the claim is not released before the handler has ended;
    `kept` says that its call did not wait for that. `owner` is the call's savepoint.
    """

    __slots__ = ("effect_id", "kept", "lease", "ledger", "owner", "params_hash", "token", "tool_name", "watch")

    def __init__(  # noqa: PLR0917 - what a claim took, and what it got
        self, ledger: Ledger, effect_id: EffectId, token: int, lease: float, tool_name: str, params_hash: str
    ) -> None:
        self.ledger: Ledger = ledger
        self.tool_name: str = tool_name
        self.params_hash: str = params_hash
        self.effect_id: EffectId = effect_id
        self.token: int = token
        self.lease: float = lease
        self.watch: HandlerWatch = HandlerWatch()
        self.kept: bool = False
        self.owner: Owner | None = None

    @property
    def given_up(self) -> bool:
        """Whether its call, or one around that, ended before the handler did."""
        owner = self.owner
        while owner is not None and not owner.ended:
            owner = owner.around
        return self.kept or owner is not None

    @property
    def key(self) -> str:
        """The key with its session, as services outside should see it."""
        return self.effect_id.text

    def beat(self) -> None:
        """Renew the lease."""
        self.ledger.extend(self.effect_id, self.token, self.lease)

    def finish(self, result: StoredResult, ttl: timedelta | None) -> ToolEffect:
        """It happened."""
        return self.ledger.finish(self.effect_id, self.token, result, ttl)

    def forget(self) -> bool:
        """It did not happen."""
        return self.ledger.forget(self.effect_id, self.token)

    def doubt(self, why: str) -> bool:
        """It may have happened."""
        return self.ledger.doubt(self.effect_id, self.token, why)


# Claims of handlers that run in this process, abandoned ones included, until they end.


logger: logging.Logger = logging.getLogger(__name__)

_BEATS_PER_LEASE = 3
_LONGEST_BEAT = 3600.0

_running: dict[tuple[int, EffectId], LedgerLease] = {}
"""By ledger and key. `LedgerLease` keeps its ledger alive, so that the ledger's id stays its own."""

os.register_at_fork(after_in_child=_running.clear)  # the handlers are the parent's, and so are the claims


def running_here(ledger: Ledger, effect_id: EffectId) -> LedgerLease | None:
    """The claim of an abandoned handler that still runs in this process; None when there is none.

    Its call was abandoned, or one around it; then it counts also when its lease has run out.
    """
    held = _running.get((id(ledger), effect_id)) if _running else None
    return held if held is not None and held.given_up else None


def begin_running(held: LedgerLease) -> None:
    """The handler of a claim is about to run."""
    _running[id(held.ledger), held.effect_id] = held


def end_running(held: LedgerLease) -> None:
    """The ledger says how it ended; for a claim that is kept, that is not known yet."""
    if not held.kept:
        _running.pop((id(held.ledger), held.effect_id), None)


def keep_claim(held: LedgerLease, settle: Callable[[], None]) -> bool:
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


def _hold(key: tuple[int, EffectId], held: LedgerLease, ended: Event, settle: Callable[[], None]) -> None:
    try:
        pause, beating = min(held.lease / _BEATS_PER_LEASE, _LONGEST_BEAT), True
        while not ended.wait(pause if beating else None):
            beating = _beat(held)
        settle()
    except Exception:
        logger.exception("How %s ended could not be recorded; it will count as unknown", held.key)
    finally:
        _running.pop(key, None)  # last: what is neither here nor in the ledger could run again


def _beat(held: LedgerLease) -> bool:
    """Extend the lease; False once it is lost for good."""
    try:
        held.beat()
    except LeaseLostError:
        logger.warning("The lease of %s is lost while its handler still runs", held.key)
        return False
    except LedgerError:
        logger.exception("The lease of %s could not be extended", held.key)
    return True
