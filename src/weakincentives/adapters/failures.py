"""How a request to a model can fail, sorted by what helps: waiting, or a person."""

from __future__ import annotations

from typing import Literal

FailureKind = Literal[
    "throttled", "overloaded", "timeout", "connection", "server", "key", "model", "context", "refused", "malformed"
]
"""throttled, overloaded, timeout, connection, server: waiting may help; key: it is missing or wrong; model: it does not
exist; context: the conversation is too long; refused: the request was; malformed: the answer makes no sense."""

_WAITING_HELPS: frozenset[str] = frozenset({"throttled", "overloaded", "timeout", "connection", "server"})


class RequestFailed(Exception):  # noqa: N818 - between an adapter and the loop; users see PromptEvaluationError
    """Raised by `ProviderAdapter.ask`. The loop waits and asks again where that helps, or ends the evaluation.

    Attributes:
        retry_after: seconds the provider asked to wait, or None.
    """

    def __init__(self, kind: FailureKind, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.retry_after = retry_after

    @property
    def waiting_helps(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in _WAITING_HELPS


__all__ = ["FailureKind", "RequestFailed"]
