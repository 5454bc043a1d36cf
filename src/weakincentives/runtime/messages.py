"""The messages of a conversation so far, independent of the provider."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from ..content import Content
from ..serde import dump_json, parse


@final
@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message to the model: a rendered prompt, or what was wrong with its last answer; then its attachments."""

    text: str
    attachments: tuple[Content, ...] = ()
    kind: Literal["user"] = "user"


@final
@dataclass(frozen=True, slots=True)
class CallMessage:
    """One call as the model made it; `arguments` is the JSON text it wrote, valid or not."""

    id: str
    name: str
    arguments: str


@final
@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One turn of the model: text, calls, or both.

    Attributes:
        native: the turn as the provider sent it, for parts that must be sent back unchanged (signed thinking, say).
        provider: whose format `native` is; other adapters leave it alone and use text and calls.
    """

    text: str = ""
    calls: tuple[CallMessage, ...] = ()
    native: tuple[dict[str, Any], ...] = ()
    provider: str = ""
    kind: Literal["model"] = "model"


@final
@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """The answer to one call, and what its result shows. `is_error` only when something unexpected happened."""

    call_id: str
    text: str
    is_error: bool = False
    attachments: tuple[Content, ...] = ()
    kind: Literal["answer"] = "answer"


Message = UserMessage | ModelMessage | AnswerMessage


@final
@dataclass(frozen=True, slots=True)
class History:
    """A conversation that can be kept and continued: `adapter.evaluate(prompt, session, history=history)`.

    It never changes. `to_json` and `from_json` carry it over to another process; any adapter can continue it.

    >>> history = History((UserMessage("Hello"), ModelMessage("Good day.")))
    >>> History.from_json(history.to_json()) == history
    True
    """

    messages: tuple[Message, ...] = ()

    def to_json(self) -> str:
        """The whole conversation as JSON text."""
        return dump_json(self)

    @classmethod
    def from_json(cls, text: str) -> History:
        """Read what `to_json` wrote; `ParseError` lists what is wrong with anything else."""
        return parse(cls, text, max_bytes=None)  # the program's own text; images make it long

    @classmethod
    def of(cls, history: History | Iterable[Message] | None) -> History:
        """A history of what `evaluate` takes as one."""
        return history if isinstance(history, History) else cls(tuple(history or ()))

    @property
    def open_calls(self) -> tuple[CallMessage, ...]:
        """The calls of the last turn that were not answered; there are some in manual mode, and after a crash."""
        return open_calls(self.messages)


def open_calls(messages: Sequence[Message]) -> tuple[CallMessage, ...]:
    """The calls at the end that have no answer yet, in the model's order."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, AnswerMessage):
            answered.add(message.call_id)
            continue
        calls = message.calls if isinstance(message, ModelMessage) else ()
        return tuple(call for call in calls if call.id not in answered)
    return ()


@final
class Transcript:
    """The growing list of messages of one evaluation; the prompt stands at one place in it and can be replaced.

    `system` is what is said apart from it, in the system's role.

    What `upto_now` handed out never changes: messages are only added, and replacing the prompt starts a new list.
    """

    __slots__ = ("_items", "_prompt_at", "_shows", "system")

    def __init__(self, earlier: Iterable[Message] = ()) -> None:
        self.system: str = ""
        self._items: list[Message] = list(earlier)
        self._prompt_at: int | None = None
        self._shows = any(not isinstance(message, ModelMessage) and message.attachments for message in self._items)

    def set_prompt(self, text: str, system: str = "", attachments: tuple[Content, ...] = ()) -> None:
        """Say the prompt, or say it anew at the same place; without text and attachments, only what the system says."""
        self.system = system
        if not text and system and (self.prompt.text or not (attachments or self.prompt.attachments)):
            return
        message = UserMessage(text, attachments)
        self._shows = self._shows or bool(attachments)
        if self._prompt_at is None:
            self._prompt_at = len(self._items)
            self._items.append(message)
        else:
            self._items = list(self._items)
            self._items[self._prompt_at] = message

    @property
    def prompt(self) -> UserMessage:
        """The prompt as the model reads it now; empty before it was said."""
        message = None if self._prompt_at is None else self._items[self._prompt_at]
        return message if isinstance(message, UserMessage) else UserMessage("")

    def adopt_prompt(self, text: str) -> bool:
        """Take a message of the earlier conversation for the prompt: the newest with this text, else the newest one.

        False when there is no message of a user.
        """
        said = {at: message.text for at, message in enumerate(self._items) if isinstance(message, UserMessage)}
        same = [at for at, known in said.items() if known == text]
        self._prompt_at = (same or [*said] or [None])[-1]
        return self._prompt_at is not None

    def add(self, message: Message) -> None:
        """Append a message."""
        self._items.append(message)
        self._shows = self._shows or (not isinstance(message, ModelMessage) and bool(message.attachments))

    def cut(self, length: int) -> None:
        """Forget all but the first messages."""
        self._items = self._items[:length]
        if self._prompt_at is not None and self._prompt_at >= length:
            self._prompt_at = None

    def upto_now(self) -> Messages:
        """The messages so far, without copying them."""
        return Messages(self._items, len(self._items), self._shows)

    def history(self) -> History:
        """The messages so far, as a value."""
        return History(tuple(self._items))

    def open_calls(self) -> tuple[CallMessage, ...]:
        """See the function of this name."""
        return open_calls(self._items)


@final
class Messages(Sequence[Message]):
    """The first messages of a list that only grows: a request's view of it. `shows`: whether there are attachments."""

    __slots__ = ("_items", "_length", "shows")

    def __init__(self, items: list[Message], length: int, shows: bool) -> None:
        self._items, self._length = items, length
        self.shows: bool = shows

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return self._items[: self._length][index] if isinstance(index, slice) else self._items[self._at(index)]

    def _at(self, index: int) -> int:
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError("There are fewer messages.")
        return at

    def __repr__(self) -> str:
        return f"<{self._length} messages>"


__all__ = [
    "AnswerMessage", "CallMessage", "History", "Message", "Messages", "ModelMessage", "Transcript", "UserMessage",
    "open_calls",
]  # fmt: skip
