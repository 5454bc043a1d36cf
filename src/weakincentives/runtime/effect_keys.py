"""Which row of the ledger a call is."""

from __future__ import annotations

from typing import NamedTuple

from ..prompt.idempotency import params_hash
from .call import Request
from .ledger.effect import EffectId, storable
from .ledger.purity import is_pure
from .run import Run

_REMEMBERED_KEYS = 256


class Asked(NamedTuple):
    """What a call is in the ledger, as its claim takes it."""

    effect_id: EffectId
    tool_name: str
    params_hash: str
    lease: float
    strict_params: bool


def asked_for(request: Request, run: Run) -> Asked | None:
    """The call's key and the hash of its params, worked out once for equal params; None when it needs no ledger.

    Raises what `IdempotencyConfig.key_for` raises.
    """
    tool, params = request.bound.tool, request.params
    config = tool.idempotency
    if config is None or config.strategy == "none":
        return None
    arguments = request.call.arguments
    # Equal arguments are equal params, unless the type runs code of its own; then what counts is what it made.
    same = arguments if type(arguments) is str and is_pure(tool.params_type) else params_hash(params).encode()
    text = (tool.name, same)
    known: Asked | None = run.asked.get(text)
    if known is not None and config.key_fn is None:
        return known
    key = config.key_for(tool.name, params)
    assert key is not None
    effect_id = EffectId(storable(key), run.session_id if config.scope == "session" else "")
    digest = params_hash(params) if known is None else known.params_hash
    lease = config.lease.total_seconds() + (tool.timeout or 0.0)
    asked = Asked(effect_id, tool.name, digest, lease, config.strategy == "custom")
    if len(run.asked) >= _REMEMBERED_KEYS:
        run.asked.clear()
    run.asked[text] = asked
    return asked


__all__ = ["Asked", "asked_for"]
