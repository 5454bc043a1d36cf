"""The events of a run, rebuilt from its record: those that its listeners were told while it ran.

An event has its step's number if it is the last one of that step, else that of the step before. So a reader that has
seen an event has seen everything up to its `step`, and goes on after that number. Events told live follow the same
rule; there the step was often not on record yet when they were told.

A conversation is told message by message; see `MessageReceived`, `MessageUndone` and `Failed`.

What a record does not have is not there: pieces of text (each turn's text is one event), reasoning, and requests that
failed and were sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol, final

from ...budget import TokenUsage
from ...errors import PromptEvaluationError, RunFormatError, SessionFormatError
from ...masking import leaving
from ...prompt.changes import NO_CHANGES, Changes
from ...session.deltas import type_finder
from ...session.encoding import decode
from ..progress import (
    CallFinished,
    CallStarted,
    MessageReceived,
    Resumed,
    SectionsOpened,
    TextDelta,
    TurnStarted,
)
from ..redaction import redact
from ..response import Failed, Finished, MessageUndone, PromptResponse, RunStarted, StreamEvent
from ..turn import opened_text
from .rows import Step
from .secret_arguments import RunToMask, SecretArguments

_NO_TYPES = type_finder(())


class RunToTell(RunToMask, Protocol):
    """What is needed of a `RecordedRun`."""

    def inside(self, run_id: str) -> RunToTell | None:
        """The run of an agent inside a call; None when it is not in the store."""
        ...


def recorded_events(
    run: RunToTell, after: int = 0, until: int | None = None, *, raises: bool = True
) -> Iterator[StreamEvent[Any]]:
    """The events of the steps above `after`, up to `until`; see `RecordedRun.events`. `raises`: how the run failed."""
    told = _ToldSteps(run, after)
    last = None
    for step in run.store.steps(run.info.run_id, after=after, until=until):
        yield from told.events(step)
        last = step
    if raises and last is not None and run.info.status == "failed" and last.kind == "end" and "error" in last.body:
        raise error_of(last)


@final
class _ToldSteps:
    """Goes through the steps of one run, from a step on."""

    def __init__(self, run: RunToTell, after: int) -> None:
        self._run = run
        self._secrets = SecretArguments(run)
        self._told: int | None = after if after > 0 else None
        begin = next(iter(run.store.steps(run.info.run_id, until=1)), None)
        self._prompt = str(run.info.loop if begin is None else begin.body.get("prompt", run.info.loop))
        self._at = run.info.created
        self._arguments: dict[str, Any] = {}
        self._turns = _Turns()
        if run.info.is_conversation:
            for step in run.store.steps(run.info.run_id, until=after - 1, kinds=("message",)):
                self._turns.note(step)
        for step in run.store.steps(run.info.run_id, after=after - 1, until=after):
            self._turns.note(step)
        for step in _turn_before(run, after):
            self._note_calls(step)

    def events(self, step: Step) -> Iterator[StreamEvent[Any]]:
        """What the step tells; nothing of a kind that is not known here. `RunFormatError` when it cannot be read."""
        try:
            self._turns.note(step)
            events = [*self._resumed(step), *self._of_kind(step)]
        except (AttributeError, KeyError, TypeError, ValueError, SessionFormatError) as error:
            raise RunFormatError(f"Step {step.seq} of {self._run.info.run_id!r} cannot be read: {error}.") from error
        self._at = max(self._at, step.started + step.duration)
        common: dict[str, Any] = {"run_id": self._run.info.run_id, "step": self._told}
        for event in events[:-1]:
            yield replace(event, **common)
        for event in events[-1:]:
            yield replace(event, **{**common, "step": step.seq})
        self._told = step.seq

    def _resumed(self, step: Step) -> Iterable[StreamEvent[Any]]:
        if "resumed" in step.body:
            asked = step.kind == "turn" and not step.body.get("continues")
            yield Resumed(int(step.body["resumed"]), turn=self._turns.number - asked, at=self._at)

    def _of_kind(self, step: Step) -> Iterable[StreamEvent[Any]]:
        if step.kind == "begin":
            return [RunStarted(self._prompt, turn=step.turn, at=self._at)]
        if step.kind == "message":
            return self._message(step)
        if step.kind == "turn":
            return self._turn(step)
        if step.kind == "call":
            return self._call(step)
        if step.kind == "end":
            return self._end(step)
        return []

    def _message(self, step: Step) -> Iterable[StreamEvent[Any]]:
        where: dict[str, Any] = {"turn": self._turns.number, "at": step.started or self._at}
        kind = step.body.get("as")
        if kind in {"message", "interjection"}:
            yield MessageReceived(self._run.text(step.body["text"]), kind == "interjection", **where)
        elif kind == "undo":
            yield MessageUndone(int(step.body["of"]), **where)

    def _end(self, step: Step) -> Iterable[StreamEvent[Any]]:
        if "error" not in step.body:
            yield self._finished(step)
        elif self._run.info.is_conversation:
            error = error_of(step)
            where: dict[str, Any] = {"turn": self._turns.number, "at": step.started or self._at}
            yield Failed(redact(str(error)), str(step.body["error"]), **where)

    def _turn(self, step: Step) -> Iterable[StreamEvent[Any]]:
        self._note_calls(step)
        number = self._turns.number
        if not step.body.get("continues"):
            yield TurnStarted(number, turn=number, at=self._at)
        text = step.body["text"]
        if text:
            yield TextDelta(str(text), turn=number, at=step.started or self._at)

    def _note_calls(self, step: Step) -> None:
        self._arguments.update({call_id: arguments for call_id, _, arguments in step.body["calls"]})

    def _call(self, step: Step) -> Iterable[StreamEvent[Any]]:
        body, call_id, tool = step.body, step.call_id or "", step.tool or ""
        where: dict[str, Any] = {"turn": self._turns.number, "at": step.started + step.duration}
        yield CallStarted(call_id, tool, self._shown(tool, call_id), turn=self._turns.number, at=step.started)
        yield from self._inside(tool, body.get("agent"))
        text = self._run.text(body["text"])
        if step.outcome == "expanded":
            sections = tuple(map(str, body["sections"]))
            text = opened_text(sections)
            yield SectionsOpened(sections, **where)
        told: Mapping[str, Any] = body["event"]
        changes: Changes = decode(Changes, told["changes"], [], _NO_TYPES) if "changes" in told else NO_CHANGES
        outcome: Any = step.outcome
        kept = outcome in {"succeeded", "replayed"}
        yield CallFinished(call_id, tool, outcome, text, step.duration, changes, kept, **where)

    def _shown(self, tool: str, call_id: str) -> str:
        """The arguments as listeners were shown them."""
        kept = self._arguments.pop(call_id, "")
        shown = self._secrets.arguments(tool, kept)
        return str(shown) if shown is kept else leaving(str(shown))

    def _inside(self, name: str, run_id: Any) -> Iterable[StreamEvent[Any]]:
        """What an agent did inside a call: as it was told then, with the agent's name in `path`."""
        run = None if run_id is None else self._run.inside(str(run_id))
        for event in () if run is None else recorded_events(run, raises=False):
            if not isinstance(event, RunStarted | Finished):
                yield replace(event, path=(name, *event.path))

    def _finished(self, step: Step) -> Finished[Any]:
        body = step.body
        response: PromptResponse[Any] = PromptResponse(
            self._run.text(body["text"]), body.get("output"), body["stop"], usage=self._usage(step),
            turns=int(body["turns"]), prompt_name=self._prompt, run_id=self._run.info.run_id, step=step.seq,
        )  # fmt: skip
        return Finished(response, turn=response.turns, at=step.started or self._at)

    def _usage(self, step: Step) -> TokenUsage:
        if "usage" in step.body:
            return TokenUsage(*step.body["usage"])
        usage = TokenUsage()  # of an older record
        for turn in self._run.store.steps(self._run.info.run_id, until=step.seq, kinds=("turn",)):
            usage += TokenUsage(*turn.body["usage"])
        return usage


@final
class _Turns:
    """Counts the turns of each message that stands, as listeners were told them; rows count those of the whole run."""

    def __init__(self) -> None:
        self._of_messages = [0]
        self._turn = 0

    @property
    def number(self) -> int:
        """That of the last turn."""
        return self._of_messages[-1]

    def note(self, step: Step) -> None:
        self._of_messages[-1] += step.turn - self._turn
        self._turn = step.turn
        if step.body.get("as") == "message":
            self._of_messages.append(0)
        elif step.body.get("as") == "undo" and len(self._of_messages) > 1:
            self._of_messages.pop()


def _turn_before(run: RunToTell, after: int) -> Iterable[Step]:
    """The rows of the last turn up to a step: calls that ended later were made there. Most are near."""
    reach = 16
    while after > 0:
        start = max(0, after - reach)
        rows = list(run.store.steps(run.info.run_id, after=start, until=after, kinds=("turn",)))
        if start == 0 or (rows and rows[0].turn < rows[-1].turn):
            return [row for row in rows if row.turn == rows[-1].turn]
        reach *= 4
    return ()


def error_of(end: Step) -> PromptEvaluationError:
    """What ended a run, to be raised again."""
    body = end.body
    message = str(body.get("message") or "The run has ended.")
    return PromptEvaluationError(
        message, prompt_name=body.get("prompt"), phase=body.get("phase") or "response", tool_name=body.get("tool")
    )


__all__ = ["RunToTell", "error_of", "recorded_events"]
