"""What an evaluation returns: its response, or the conversation kept with an exception; and answers to open calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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

_HISTORY = "wink_history"
_MAX_LISTED = 20


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


# The conversation up to an exception, so that it can be continued after one.


def attach_history(error: BaseException, history: History) -> None:
    """Keep the conversation with the exception that ended it; an inner evaluation's is not overwritten."""
    error.__dict__.setdefault(_HISTORY, history)


def history_of(error: BaseException) -> History | None:
    """The conversation that ended with this exception, every call answered; None when there was none.

    Works for whatever `evaluate` raised, `KeyboardInterrupt` and cancellation included.
    """
    found = error.__dict__.get(_HISTORY)
    return found if isinstance(found, History) else None


# What `tool_results=` was given: answers of the engine, or given in its place.


def by_call(results: Iterable[ToolReply]) -> dict[str, ToolReply]:
    """The answers by the ids of their calls; of several the one that is not a duplicate."""
    replies: dict[str, ToolReply] = {}
    for reply in results:
        if not reply.duplicate or reply.call_id not in replies:
            replies[reply.call_id] = reply
    return replies


def check_open(replies: Mapping[str, ToolReply], calls: Iterable[CallMessage], *, where: str) -> None:
    """Raise ValueError when there are answers to calls that are not open; duplicates of old ones do no harm.

    `where` names the conversation in the message. Called before anything is recorded, closed or sent.
    """
    known = [call.id for call in calls]
    given = [reply.call_id for reply in replies.values() if not reply.duplicate]
    unknown = sorted(set(given).difference(known))
    if unknown:
        raise ValueError(
            f"tool_results= holds answers to calls that are not open: {_listed(unknown)}. "
            f"Open in {where}: {_listed(known) or 'none'}. "
            "Leave these answers out, or continue the conversation that made the calls."
        )


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _MAX_LISTED} more" if len(ids) > _MAX_LISTED else ""
    return ", ".join(call_id[:100] for call_id in ids[:_MAX_LISTED]) + more
