"""Policies: who may be called when, asked before every call and answered closed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

from ..results import ToolResult
from .tool_context import ToolContext

logger = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy says of a call. Kinds other than allow and refuse are refused until they are built.

    >>> Decision.refuse("Tests have not run. Call run_tests first.").allowed
    False
    """

    kind: str
    text: str = ""

    @classmethod
    def allow(cls) -> Decision:
        """Let the call go on to the next policy."""
        return _ALLOW

    @classmethod
    def refuse(cls, text: str) -> Decision:
        """Stop the call; the model reads the text, so it says what to call next."""
        return cls("refuse", text)

    @property
    def allowed(self) -> bool:
        """Whether the call may go on."""
        return self.kind == "allow"


_ALLOW = Decision("allow")


@runtime_checkable
class ToolPolicy(Protocol):
    """A rule about calls, declared on a section (for its subtree) or a template.

    `check` is pure: it gets a read-only context. A policy that raises, or returns anything else than is named
    here, refuses the call. A policy may also have `on_result` (see `ResultPolicy`).

    Read-only calls of one turn overlap only under policies that say `overlaps = True`: one that counts calls would be
    asked about all of them before any is on record.
    """

    def check(self, tool_name: str, params: Any, context: ToolContext) -> str | Decision | None:
        """None or `Decision.allow()` lets the call pass; a text or `Decision.refuse(text)` stops it."""
        ...


@runtime_checkable
class ResultPolicy(ToolPolicy, Protocol):
    """A policy that learns from calls that succeeded."""

    def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> object:
        """Called inside the call's transaction, with its writable context; what it returns is ignored.

        When it raises, the call fails and is undone. What it keeps belongs in a STATE slice, to be undone likewise.
        """
        ...


def policy_name(policy: object) -> str:
    """What refusals call a policy: its `name` if that is text, else its class."""
    name = getattr(policy, "name", None)
    return name if isinstance(name, str) and name else type(policy).__name__


def evaluate_policies(
    policies: Iterable[ToolPolicy], tool_name: str, params: object, context: ToolContext
) -> str | None:
    """The first refusal, with the name of the policy as its last line; None when all allow."""
    for policy in policies:
        try:
            verdict = policy.check(tool_name, params, context)
        except Exception:  # policies are users' code, and a broken one must not open the gate
            logger.exception(
                "Policy %s raised on a call of %s, so the call was refused.", policy_name(policy), tool_name
            )
            return _refusal(policy, f"Cannot call '{tool_name}' - a policy could not be checked.")
        if verdict is None or verdict is _ALLOW:
            continue
        text = _text_of(policy, verdict, tool_name)
        if text is not None:
            return _refusal(policy, text)
    return None


def _text_of(policy: object, verdict: object, tool_name: str) -> str | None:
    """The refusal in a verdict; None when it allows."""
    if isinstance(verdict, str):
        return verdict.strip() or f"Cannot call '{tool_name}' - a policy does not allow it."
    if isinstance(verdict, Decision):
        if verdict.allowed:
            return None
        if verdict.kind == "refuse":
            return verdict.text.strip() or f"Cannot call '{tool_name}' - a policy does not allow it."
    logger.error(
        "Policy %s returned %r on a call of %s, so the call was refused. Return None, text or a Decision.",
        policy_name(policy),
        verdict,
        tool_name,
    )
    return f"Cannot call '{tool_name}' - a policy gave no answer that is understood."


def _refusal(policy: object, text: str) -> str:
    return f"{text}\nRefused by {policy_name(policy)}."


def notify_policies(
    policies: Iterable[ToolPolicy], tool_name: str, params: object, result: ToolResult[Any], context: ToolContext
) -> None:
    """Tell the policies that listen of a success; what one raises passes through, so that the call is undone."""
    for policy in policies:
        listener = getattr(policy, "on_result", None)
        if listener is not None:
            listener(tool_name, params, result, context)


__all__ = ["Decision", "ResultPolicy", "ToolPolicy", "evaluate_policies", "notify_policies", "policy_name"]
