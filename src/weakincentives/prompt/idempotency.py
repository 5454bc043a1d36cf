"""When two calls count as the same call, so that the effect happens only once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol, cast, get_args

from ..errors import PromptValidationError
from ..lazy_modules import hashlib
from ..results import ToolResult
from .canonical import canonical

Strategy = Literal["auto", "params", "custom", "none"]
OnException = Literal["unknown", "retry"]
Found = ToolResult[Any] | Awaitable[ToolResult[Any] | None] | None


class ReconcileInContext(Protocol):
    """A lookup in the form that handlers have."""

    def __call__(self, params: Any, /, *, context: Any) -> Found:
        """Ask what became of the call."""
        ...


Reconcile = Callable[[Any], Found] | Callable[[Any, Any], Found] | ReconcileInContext
"""Asks the outside world what became of a call in doubt. Takes what a handler takes: `(params)`, `(params, context)`
or `(params, *, context)`, `def` or `async def`.

A successful result means that the effect happened and gave this; None, that it certainly did not happen, so that the
call runs now. A failed result, or an exception, leaves it in doubt; its text is told the model.
"""

_DIGITS = 32  # 128 bits: equal keys mean equal calls


@dataclass(slots=True, frozen=True, kw_only=True)
class IdempotencyConfig:
    """How a tool's calls are recognised and how long they are remembered.

    Attributes:
        strategy: "auto" takes all params, "params" the fields in `param_keys`, "custom" asks `key_fn`, "none" runs
            every call.
        ttl: how long a success is remembered; None for ever.
        scope: the first part of every key. "session" also keeps the calls of two sessions apart.
        param_keys: the fields that make two calls the same; for "params" only.
        key_fn: params to text; for "custom" only. Different params under one key are a conflict.
        on_exception: what an unexpected exception of the handler means: "unknown" leaves the outcome in doubt, so
            that the call is not run again; "retry" promises that it may be.
        reconcile: looks up the outcome of a call in doubt; without it such a call is reported as unknown.
        lease: how long a call may go without a `context.beat()` before others take its process for dead; a tool's
            timeout is added to it.

    `PromptValidationError` for a combination that makes no sense.

    >>> IdempotencyConfig(strategy="custom", key_fn=lambda p: f"order:{p['id']}").key_for("create_order", {"id": 7})
    'session:order:7'
    """

    strategy: Strategy = "auto"
    ttl: timedelta | None = timedelta(hours=24)
    scope: str = "session"
    param_keys: tuple[str, ...] = ()
    key_fn: Callable[[Any], str] | None = None
    on_exception: OnException = "unknown"
    reconcile: Reconcile | None = field(default=None)
    lease: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        _one_of("strategy", self.strategy, get_args(Strategy))
        _one_of("on_exception", self.on_exception, get_args(OnException))
        self._check_ttl()
        if not isinstance(self.lease, timedelta) or self.lease <= timedelta(0):
            raise PromptValidationError(f"IdempotencyConfig lease must be a positive timedelta, got {self.lease!r}.")
        if not isinstance(self.scope, str) or not self.scope or ":" in self.scope:
            raise PromptValidationError(f"IdempotencyConfig scope must be text without ':', got {self.scope!r}.")
        self._check_keys()
        if self.reconcile is not None and not callable(self.reconcile):
            raise PromptValidationError("IdempotencyConfig reconcile must be a function of the params.")
        if self.reconcile is not None and self.on_exception == "retry":
            raise PromptValidationError(
                'IdempotencyConfig reconcile= settles calls in doubt, but on_exception="retry" leaves none. Drop one.'
            )

    def _check_ttl(self) -> None:
        if self.ttl is None:
            return
        if not isinstance(self.ttl, timedelta):
            raise PromptValidationError(f"IdempotencyConfig ttl must be a timedelta or None, got {self.ttl!r}.")
        if self.ttl <= timedelta(0):
            raise PromptValidationError(f"IdempotencyConfig ttl must be positive, got {self.ttl!r}; None is for ever.")

    def _check_keys(self) -> None:
        if isinstance(self.param_keys, str):
            raise PromptValidationError(f"IdempotencyConfig param_keys must be a tuple: write ({self.param_keys!r},).")
        object.__setattr__(self, "param_keys", tuple(self.param_keys))
        if self.strategy == "params" and not self.param_keys:
            raise PromptValidationError('IdempotencyConfig strategy="params" needs param_keys=("field", ...).')
        if self.strategy != "params" and self.param_keys:
            raise PromptValidationError('IdempotencyConfig param_keys= is for strategy="params" only.')
        if self.strategy == "custom" and not callable(self.key_fn):
            raise PromptValidationError('IdempotencyConfig strategy="custom" needs key_fn=, a function of the params.')
        if self.strategy != "custom" and self.key_fn is not None:
            raise PromptValidationError('IdempotencyConfig key_fn= is for strategy="custom" only.')

    def key_for(self, tool_name: str, params: object) -> str | None:
        """The key of a call, the same in every process; None when nothing is remembered.

        Raises what `key_fn` raises, `TypeError` when that is not text, `SchemaError` for a value in the params that
        cannot be compared.
        """
        if self.strategy == "none":
            return None
        if self.strategy == "custom":
            assert self.key_fn is not None
            key = self.key_fn(params)
            if not isinstance(key, str) or not key:
                raise TypeError(f"key_fn of {tool_name} must return text that is not empty, got {key!r}.")
            return f"{self.scope}:{key}"
        return self.key_of(tool_name, params_hash(self.counted(params)))

    def key_of(self, tool_name: str, digest: str) -> str:
        """The key of a call whose `counted` params have this hash."""
        return f"{self.scope}:{tool_name}:{digest}"

    def counted(self, params: object) -> object:
        """What of the params makes two calls the same: all of them, or the fields in `param_keys`."""
        return {name: _field(params, name) for name in self.param_keys} if self.param_keys else params


def params_hash(params: object) -> str:
    """A short hash of the params' values; `SchemaError` when there is a value that has no canonical form."""
    return hashlib.sha256(canonical(params)).hexdigest()[:_DIGITS]


def _field(params: object, name: str) -> object:
    if isinstance(params, Mapping):
        return cast(Mapping[str, object], params)[name]
    return getattr(params, name)


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise PromptValidationError(f"IdempotencyConfig {name} must be one of {', '.join(choices)}, got {value!r}.")
