"""Which row of the ledger belongs to a call."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import SchemaError
from ..prompt.canonical import is_exact, serialised_hash
from ..prompt.idempotency import IdempotencyConfig, params_hash
from ..prompt.tool import Tool
from ..session.savepoints import outermost
from .ledger.effects import EffectId, LedgerEntry, storable_key
from .ledger.leases import running_here
from .ledger.protocol import is_same_tool
from .run import Run


class ClaimRequest(NamedTuple):
    """The arguments of `Ledger.claim` for one call."""

    effect_id: EffectId
    tool_name: str
    params_hash: str
    lease: float
    strict_params: bool


def claim_request(tool: Tool[Any, Any], params: Any, run: Run) -> ClaimRequest | None:
    """The call's key and the hash of its params; None when it needs no ledger.

    Raises what `key_fn` raises, and `SchemaError` when there is none and a value in the params cannot be compared.
    """
    config = tool.idempotency
    if config is None or config.strategy == "none":
        return None
    digest = _digest(params, config)
    key = config.key_of(tool.name, digest) if config.strategy == "auto" else config.key_for(tool.name, params)
    assert key is not None
    lease = config.lease.total_seconds() + (tool.timeout or 0.0)
    strict = config.strategy == "custom" and digest != ""
    return ClaimRequest(_effect_id(key, config, run), tool.name, digest, lease, strict)


def runs_here(asked: ClaimRequest, run: Run) -> bool:
    """Whether a handler of this very call, one that was given up on, still runs in this process."""
    held = running_here(run.ledger(), asked.effect_id)
    if held is None or held.tool_name != asked.tool_name:
        return False
    return not asked.strict_params or held.params_hash == asked.params_hash


def _digest(params: Any, config: IdempotencyConfig) -> str:
    """The hash of all params; empty when they cannot be compared, which a custom key does without."""
    try:
        return params_hash(params)
    except SchemaError:
        if config.strategy == "auto":
            raise
        return ""


def _effect_id(key: str, config: IdempotencyConfig, run: Run) -> EffectId:
    return EffectId(storable_key(key), outermost(run.session).session_id if config.scope == "session" else "")


class FormerKey(NamedTuple):
    """What a call was in the ledger of an earlier release. Not `exact`: other params may have had the same key."""

    asked: ClaimRequest
    exact: bool


def former_key(asked: ClaimRequest, tool: Tool[Any, Any], params: Any, run: Run) -> FormerKey | None:
    """The same call under its serialised key; None when it cannot have had one."""
    config = tool.idempotency
    digest = serialised_hash(params)
    if config is None or digest is None or (config.strategy == "custom" and not asked.strict_params):
        return None
    effect_id = asked.effect_id
    if config.strategy != "custom":
        counted = serialised_hash(config.counted(params)) if config.param_keys else digest
        if counted is None:
            return None
        effect_id = _effect_id(config.key_of(tool.name, counted), config, run)
    return FormerKey(asked._replace(effect_id=effect_id, params_hash=digest), is_exact(params, tool.parse))


# What a model reads of a call that the ledger does not let run, or whose outcome is not known.


INEXACT = "an earlier release recorded a call whose arguments it could not tell from these"


def unknown_text(name: str, why: str, config: IdempotencyConfig) -> str:
    """For a call that may have happened."""
    said = f"The outcome of '{name}' is unknown" + (f": {why.rstrip('.')}." if why else ".")
    if config.reconcile is not None:
        return f"{said}\nIt may have happened. Call it again with the same arguments to have that looked up first."
    return (
        f"{said}\nIt may have happened, so do not repeat it. Check first, with another tool or by asking a person, "
        "and go on from what you find."
    )


def running_text(name: str) -> str:
    """For a call whose handler was given up on and has not ended yet."""
    return (
        f"The outcome of '{name}' is unknown: it is still running in this process.\n"
        "It may yet happen, so do not repeat it in another way. Call it again later with the same arguments to get its "
        "result."
    )


def ended_text(name: str) -> str:
    """For a call whose handler succeeded after the call was given up on."""
    return (
        f"'{name}' ended just after that, and its effect happened.\n"
        "Call it again with the same arguments to get its result."
    )


def busy_text(name: str) -> str:
    """For a call that another process or thread is running."""
    return (
        f"The same call of '{name}' is still running elsewhere, so it was not started again.\n"
        "Its outcome is not known yet. Call it again later with the same arguments to get its result."
    )


def no_key_text(name: str, error: SchemaError) -> str:
    """For params that no key can be made of."""
    return (
        f"'{name}' was not run, because its calls cannot be told apart: {error}\n"
        'The author of the tool should say what makes two calls the same: use key_fn, with strategy="custom".'
    )


def conflict_text(name: str, entry: LedgerEntry) -> str:
    """For a key that belongs to another call."""
    if not is_same_tool(entry.tool_name, name):
        return (
            f"The key '{entry.id.key[:200]}' was used before by '{entry.tool_name}', so '{name}' was not run.\n"
            "Use another key: one key is one call of one tool."
        )
    return (
        f"The key '{entry.id.key[:200]}' was used before with other arguments, so '{name}' was not run.\n"
        "Repeat the arguments of the first call to get its result, or use another key for something new."
    )
