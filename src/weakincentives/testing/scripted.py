"""A model that follows a script: for tests, demonstrations and documentation. Deterministic, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack, cast

from ..budget import TokenUsage
from ..interrupts import Lock
from ..loop.adapter import AdapterKeywords, TurnAdapter
from ..loop.attachments import IMAGE_TYPES, PDF_TYPE, Accepts
from ..loop.request import ModelRequest, ModelTurn, StopReason
from ..runtime.messages import CallMessage
from ..serde import dump_json


class Part:
    """What a turn is made of: `say(...)` or `call(...)`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Say(Part):
    """Text of a turn; see `say`."""

    text: str
    usage: TokenUsage = TokenUsage()  # noqa: RUF009 - immutable
    stop_reason: StopReason = "end_turn"


@dataclass(frozen=True, slots=True)
class Call(Part):
    """A tool call of a turn; see `call`."""

    name: str
    arguments: str
    id: str | None = None

    def with_id(self, call_id: str) -> Call:
        """The same call under this id instead of a fresh one."""
        return replace(self, id=call_id)


def say(text: str, *, usage: TokenUsage | None = None, stop_reason: StopReason = "end_turn") -> Say:
    """The model says this. Alone in a turn it is the final answer.

    `usage` are the tokens of the whole turn, also where calls stand beside it. A turn that names none costs what
    `ScriptedAdapter(usage=)` says, or nothing.
    """
    return Say(text, usage or TokenUsage(), stop_reason)


def call(name: str, /, **arguments: Any) -> Call:
    """The model calls this tool with these arguments."""
    return Call(name, dump_json(arguments))


def call_raw(name: str, arguments: str, /) -> Call:
    """The model calls this tool and writes these arguments, valid or not."""
    return Call(name, arguments)


Turn = Part | Sequence[Part] | BaseException | Callable[[ModelRequest], Any]
"""One turn: something to say, a call, several of them at once, an exception to raise, or a function of the request that
gives one of these. `SCRIPT: list[Turn] = [...]` types a script that holds more than single parts."""


class ScriptedAdapter(TurnAdapter):
    r"""Plays its turns one after another, whatever it is asked, and remembers what it was asked.

    Asking it once more than it has turns raises AssertionError. It is one script: evaluations that share it take turns.
    It takes images and PDFs; for a model that does not, set `accepts = Accepts()` in a subclass.

    Args:
        turns: see `Turn`.
        usage: the tokens of every turn that says nothing else.
        options: those of every adapter: `max_turns`, `manual`, ...

    >>> from weakincentives.prompt import MarkdownSection, Prompt
    >>> from weakincentives.session import Session
    >>> prompt = Prompt(name="greeter", sections=[MarkdownSection(title="Task", template="Say hello.")])
    >>> adapter = ScriptedAdapter(say("Hello!"))
    >>> adapter.evaluate(prompt, Session()).text
    'Hello!'
    >>> adapter.assert_complete()
    >>> adapter.requests[0].messages[0].text
    '## 1. Task\n\nSay hello.'
    """

    accepts: Accepts = Accepts(IMAGE_TYPES | {PDF_TYPE})

    def __init__(self, *turns: Turn, usage: TokenUsage | None = None, **options: Unpack[AdapterKeywords]) -> None:
        super().__init__(**options)
        self._turns = turns
        self._usage = usage or TokenUsage()
        self._script = Lock()
        self.requests: list[ModelRequest] = []

    @property
    def name(self) -> str:
        """The name used in events and error messages."""
        return "scripted"

    def ask(self, request: ModelRequest) -> ModelTurn:
        """The next turn."""
        with self._script:
            number = len(self.requests)
            self.requests.append(request)
        if number >= len(self._turns):
            raise AssertionError(f"The script ends after turn {len(self._turns)}, but the model was asked once more.")
        return self._play(self._turns[number], number, request)

    async def aask(self, request: ModelRequest) -> ModelTurn:
        """The next turn; it needs no thread."""
        return self.ask(request)

    def assert_complete(self) -> None:
        """AssertionError unless every turn was played."""
        if len(self.requests) < len(self._turns):
            rest = self._turns[len(self.requests) :]
            raise AssertionError(f"{len(rest)} of {len(self._turns)} turns were not played, next: {rest[0]!r}")

    def _play(self, turn: Turn, number: int, request: ModelRequest) -> ModelTurn:
        if isinstance(turn, Call):
            return ModelTurn("", (_message(turn, number, 0),), self._usage, "tool_use")
        if isinstance(turn, Say):
            return ModelTurn(turn.text, (), turn.usage if turn.usage.total else self._usage, turn.stop_reason)
        if isinstance(turn, BaseException):
            raise turn
        if callable(turn):
            return self._play(turn(request), number, request)
        return self._several(list(cast(Iterable[Part], turn)), number)

    def _several(self, parts: list[Part], number: int) -> ModelTurn:
        said = [part for part in parts if isinstance(part, Say)]
        calls = [part for part in parts if isinstance(part, Call)]
        if len(said) + len(calls) != len(parts):
            raise TypeError("A turn of several parts holds say(...) and call(...) and nothing else.")
        usage = sum((part.usage for part in said), TokenUsage())
        return ModelTurn(
            "\n".join(part.text for part in said),
            tuple(_message(part, number, position) for position, part in enumerate(calls)),
            usage if usage.total else self._usage,
            "tool_use" if calls else "end_turn",
        )


def _message(part: Call, number: int, position: int) -> CallMessage:
    made = f"call_{number + 1}" if position == 0 else f"call_{number + 1}_{position + 1}"
    return CallMessage(made if part.id is None else part.id, part.name, part.arguments)
