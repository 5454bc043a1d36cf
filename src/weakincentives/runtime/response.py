"""What an evaluation returns, and the event that ends its stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Generic, Literal, TypeVar, cast, final

from ..budget import TokenUsage
from ..errors import SchemaError, SessionError
from ..results import render_value
from ..serde import dump
from ..session import Session
from ..session.session import root_of
from .call import ToolCall, ToolReply
from .messages import CallMessage, History
from .progress import ProgressEvent, RunEvent

OutputT_co = TypeVar("OutputT_co", covariant=True)
OutputT = TypeVar("OutputT")

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "pause", "error"]
"""Why a model, or an evaluation, stopped.

end_turn: it had nothing more to say; tool_use: it waits for answers; max_tokens: it was cut; refusal: it declined;
pause: the provider wants to be asked again; error: only in `PromptExecuted`, of an evaluation that raised.
"""


@final
class OpenCall(ToolCall):
    """A call that manual mode returns, with the executor that runs it."""

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
    """The model's final answer; in manual mode also a turn with calls to run.

    Attributes:
        text: the text of its last turn.
        output: the text parsed into the prompt's output type. None where the prompt declares none, and in manual mode
            while there are calls to run; a final answer to a prompt that declares a type always has it.
        stop_reason: why it stopped; "tool_use" only in manual mode.
        tool_calls: in manual mode, the calls to run; each has `name`, `params` and `execute()`.
        usage: the tokens of all its turns together.
        history: the conversation, to be continued or kept.
        turns: how often the model was asked.
        run_id: the run that it is on record as, if it is.
        step: the last step of that record.
    """

    text: str
    output: OutputT_co = cast(Any, None)  # noqa: RUF009 - no call that is made again
    stop_reason: StopReason = "end_turn"
    tool_calls: tuple[OpenCall, ...] = ()
    usage: TokenUsage = TokenUsage()  # noqa: RUF009 - immutable
    history: History = field(default=History(), repr=False)
    turns: int = 0
    prompt_name: str = ""
    run_id: str | None = None
    step: int | None = field(default=None, compare=False, repr=False)


@final
@dataclass(frozen=True, slots=True)
class Finished(RunEvent, Generic[OutputT]):
    """The answer, the last event of a stream. A run that fails raises from the stream instead.

    The record of a conversation has one for each message that was answered.
    """

    response: PromptResponse[OutputT]

    def to_dict(self) -> dict[str, Any]:
        """The event as plain data: what the response says, without the conversation."""
        response = self.response
        return {
            "event": self.name(),
            "text": response.text,
            "output": plain_output(response.output),
            "stop_reason": response.stop_reason,
            "turns": response.turns,
            "usage": {each.name: getattr(response.usage, each.name) for each in fields(response.usage)},
            "run_id": self.run_id,
            "step": self.step,
            "turn": self.turn,
            "at": self.at,
        }


@final
@dataclass(frozen=True, slots=True)
class RunStarted(RunEvent):
    """The first event of a stream: the request was prepared, and the model will be asked."""

    prompt_name: str


@final
@dataclass(frozen=True, slots=True)
class MessageUndone(RunEvent):
    """A message of a conversation was undone: all that came from its `MessageReceived` on does not stand any more.

    Only a record tells it. `message` is the step of the message, which was the last one that stood.
    """

    message: int


@final
@dataclass(frozen=True, slots=True)
class Failed(RunEvent):
    """A message of a conversation was not answered; others may follow, or the same one is asked about again.

    Only a record tells it, and `sse` at the end of a run that fails: streams raise. `message` says why, with
    credentials masked; `error` names the exception's class, such as "CancelledError" of a message whose reader left.
    """

    message: str
    error: str = ""


StreamEvent = RunStarted | ProgressEvent | MessageUndone | Failed | Finished[OutputT]
"""What a stream gives: `RunStarted` first, `Finished` last. Only a record has `MessageUndone` and `Failed`."""


def plain_output(output: Any) -> Any:
    """A typed answer as plain data; as text where it has no such form."""
    try:
        return dump(output, computed=True)
    except SchemaError:
        return render_value(output)


__all__ = [
    "Failed", "Finished", "MessageUndone", "OpenCall", "PromptResponse", "RunStarted", "StopReason",
    "StreamEvent", "plain_output",
]  # fmt: skip
