"""What an evaluation gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast, final

from ..budget import TokenUsage
from ..errors import SessionError
from ..runtime.call import ToolCall, ToolReply
from ..runtime.messages import CallMessage, History
from ..session import Session
from ..session.session import root_of
from .request import StopReason

OutputT_co = TypeVar("OutputT_co", covariant=True)


@final
class OpenCall(ToolCall):
    """A call that manual mode hands out: it knows who runs it."""

    _session: Session
    _run: Callable[[ToolCall], ToolReply]

    @classmethod
    def of(cls, call: CallMessage, session: Session, run: Callable[[ToolCall], ToolReply]) -> OpenCall:
        """The call, for its owner to run."""
        made = cls(call.id, call.name, call.arguments)
        made._session, made._run = session, run
        return made

    def execute(self, *, session: Session | None = None) -> ToolReply:
        """Run it through the engine and answer it, once; `tool_results=` takes the reply.

        `SessionError` when `session` is not the one it was asked on.
        """
        if session is not None and root_of(session) is not root_of(self._session):
            raise SessionError(f"The call {self.id!r} was asked on another session; pass the one given to evaluate().")
        return self._run(ToolCall(*self))


@final
@dataclass(frozen=True, slots=True)
class PromptResponse(Generic[OutputT_co]):
    """The model's final answer; in manual mode, also its wish to call tools.

    Attributes:
        text: what it said last.
        output: the text parsed into the prompt's output type. None where the prompt declares none, and in manual mode
            while there are calls to run; a final answer to a prompt that declares a type always has it.
        stop_reason: why it stopped; "tool_use" only in manual mode.
        tool_calls: in manual mode, what it wants to be run; each has `name`, `params` and `execute()`.
        usage: the tokens of all its turns together.
        history: the conversation, to be continued or kept.
        turns: how often the model was asked.
    """

    text: str
    output: OutputT_co = cast(Any, None)  # noqa: RUF009 - no call that is made again
    stop_reason: StopReason = "end_turn"
    tool_calls: tuple[OpenCall, ...] = ()
    usage: TokenUsage = TokenUsage()  # noqa: RUF009 - immutable
    history: History = field(default=History(), repr=False)
    turns: int = 0
    prompt_name: str = ""


__all__ = ["OpenCall", "PromptResponse"]
