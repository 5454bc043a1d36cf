"""A call that this process holds in a ledger, until it says how it ended."""

from __future__ import annotations

from datetime import timedelta
from typing import final

from ...fence import Owner
from ..handler_watch import HandlerWatch
from .effect import EffectId, ToolEffect
from .protocol import Ledger
from .values import StoredResult


@final
class Held:
    """The newest token of a row, and what can be said with it. See `Ledger` for what each step means and raises.

    `tool_name` and `params_hash` say which call it is, where several share a key.
    `watch` sees the handler that runs under it, so that the claim is not given up before the handler has ended;
    `kept` says that its call did not wait for that. `owner` is the call's savepoint.
    """

    __slots__ = ("effect_id", "kept", "lease", "ledger", "owner", "params_hash", "token", "tool_name", "watch")

    def __init__(  # noqa: PLR0917 - what a claim took, and what it got
        self, ledger: Ledger, effect_id: EffectId, token: int, lease: float, tool_name: str, params_hash: str
    ) -> None:
        self.ledger = ledger
        self.tool_name = tool_name
        self.params_hash = params_hash
        self.effect_id = effect_id
        self.token = token
        self.lease = lease
        self.watch = HandlerWatch()
        self.kept = False
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
        """Begin the lease anew."""
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


__all__ = ["Held"]
