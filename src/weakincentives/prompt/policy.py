"""Policies decide whether a tool call may run. They fail closed: a policy that raises refuses the call."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from inspect import isawaitable
from types import GeneratorType
from typing import Any, Protocol, cast, final, runtime_checkable

from ..crash_log import log_crash
from ..results import ToolResult
from ..session import SessionProtocol
from .tool import Tool
from .tool_context import ToolContext

logger: logging.Logger = logging.getLogger(__name__)


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

    `check` is pure: it gets a read-only context. It may be `async def`. It is asked while the call holds its locks, so
    what it saw is still true when the handler runs, and within the call's time limits. A policy that raises, takes too
    long, or returns anything else than is named here, refuses the call. `check` is all that a policy must have; what
    else it may have is declared, with its default, by `Policy`.
    """

    def check(
        self, tool_name: str, params: Any, context: ToolContext
    ) -> str | Decision | Awaitable[str | Decision | None] | None:
        """None or `Decision.allow()` lets the call pass; a text or `Decision.refuse(text)` stops it."""
        ...


@runtime_checkable
class ResultPolicy(ToolPolicy, Protocol):
    """A policy that learns from calls that succeeded."""

    def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> object:
        """Called inside the call's transaction, with its writable context; what it returns is ignored.

        May be `async def`. When it raises, or exceeds the call's time limits, the call fails and is undone. What it
        keeps belongs in a STATE slice, to be undone likewise.
        """
        ...


class Policy:
    """Everything that a policy may have beside `check`, each with its default. A policy need not be a subclass."""

    __slots__ = ()

    name: str = ""
    """The name used in refusals; the name of its class unless given."""

    overlaps: bool = False
    """Whether read-only calls may run at the same time under it.

    Not if it counts calls: it would be asked about all of them before any is on record.
    """

    def check_tool(self, tool: Tool[Any, Any]) -> None:
        """Raise `PromptValidationError` for a tool that it cannot govern; called when a template is built."""

    def install(self, session: SessionProtocol) -> None:
        """Prepare the session that evaluates the prompt, mostly by installing reducers. May be called again."""

    def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> object:
        """See `ResultPolicy`."""

    def listener(self) -> Callable[..., object] | None:
        """Its `on_result`; None when that is the default, so that no time limit is set up around nothing."""
        return None if type(self).on_result is Policy.on_result else self.on_result


@final
class _DuckTyped(Policy):
    """A policy of any class, with the defaults for what it does not have."""

    def __init__(self, given: object) -> None:
        self._given: Any = given
        name = getattr(given, "name", None)
        self.name = name if isinstance(name, str) else ""
        self.overlaps = getattr(given, "overlaps", False) is True

    def check_tool(self, tool: Tool[Any, Any]) -> None:
        if hasattr(self._given, "check_tool"):
            self._given.check_tool(tool)

    def install(self, session: SessionProtocol) -> None:
        if hasattr(self._given, "install"):
            self._given.install(session)

    def listener(self) -> Callable[..., object] | None:
        return getattr(self._given, "on_result", None)


def as_policy(given: object) -> Policy:
    """What a policy declares; the one place that looks for what an object of any class may have."""
    return given if isinstance(given, Policy) else _DuckTyped(given)


def policy_name(policy: object) -> str:
    """The name used in refusals: the policy's `name` if that is text, else its class."""
    return as_policy(policy).name or type(policy).__name__


Step = Callable[..., Any]
"""How a policy's method is called: `step(method, *arguments)` gives what it returned, or an awaitable of that."""


def is_awaitable(value: object) -> bool:
    """As `inspect.isawaitable`, in a fraction of its time."""
    return hasattr(type(value), "__await__") or (type(value) is GeneratorType and isawaitable(cast(object, value)))


async def evaluate_policies(
    policies: Iterable[ToolPolicy], tool_name: str, params: object, context: ToolContext, step: Step
) -> str | None:
    """The first refusal, with the name of the policy as its last line; None when all allow."""
    for policy in policies:
        try:
            verdict = step(policy.check, tool_name, params, context)
            if verdict is None or verdict is _ALLOW:
                continue
            if is_awaitable(verdict):
                verdict = await verdict
        except Exception as error:  # noqa: BLE001 - users' code, and a broken policy must not open the gate
            what = f"Policy {policy_name(policy)} raised on a call of {tool_name}, so the call was refused"
            log_crash(logger, what, error, None if context.run_context is None else context.run_context.log_extra())
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


async def notify_policies(  # noqa: PLR0917 - what `on_result` takes, and how it is called
    policies: Iterable[ToolPolicy],
    tool_name: str,
    params: object,
    result: ToolResult[Any],
    context: ToolContext,
    step: Step,
) -> None:
    """Tell the policies that listen of a success; what one raises passes through, so that the call is undone."""
    for policy in policies:
        listener = as_policy(policy).listener()
        if listener is not None:
            told = step(listener, tool_name, params, result, context)
            if told is not None and is_awaitable(told):
                await told


def may_overlap(policies: Iterable[ToolPolicy]) -> bool:
    """Whether read-only calls under these policies may run at the same time."""
    return all(as_policy(policy).overlaps is True for policy in policies)
