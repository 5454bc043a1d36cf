"""What an agent does, line by line: for people, for pipes, and as JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from time import time
from typing import Any, Literal, NamedTuple, Protocol, TextIO, cast, final

from ..adapters import (
    CallFinished,
    CallStarted,
    Finished,
    MessageReceived,
    ProgressEvent,
    PromptResponse,
    ReasoningDelta,
    Resumed,
    Retrying,
    SectionsOpened,
    TextDelta,
    TurnStarted,
)
from ..budget import TokenUsage
from ..masking import leaving_data, writable
from ..prompt.changes import Changes
from ..runtime.progress import RunEvent
from .output import json_text, shown, shown_line

Tone = Literal["ok", "refused", "undone", "failed", "said", "note", "dim", "plus", "minus"]

_NOT_ADMITTED = frozenset({"refused", "invalid", "unknown_tool", "conflict"})
_BODY, _BODY_FAILED, _BODY_DIFF, _LINE = 5, 9, 16, 150
_KEPT_BACK = 512
_BOOKKEEPING = frozenset({"SeenFiles"})


class Line(NamedTuple):
    """One line below a call: how it reads and what it says."""

    tone: Tone
    text: str


class CallView(NamedTuple):
    """A call that is over, ready to be shown."""

    tone: Tone
    verdict: str
    tool: str
    arguments: str
    milliseconds: float
    changed: str
    body: tuple[Line, ...]


class Trace(Protocol):
    """Shows what happens. `event` is an adapter's `on_event`."""

    def heading(self, title: str, text: str) -> None:
        """Say what is about to happen."""
        ...

    def event(self, event: ProgressEvent) -> None:
        """Show one event."""
        ...

    def usage(self, usage: TokenUsage, turns: int, seconds: float) -> None:
        """Say what it took."""
        ...

    def checks(self, title: str, checks: Iterable[tuple[str, bool]]) -> None:
        """Show what was verified."""
        ...

    def closing(self, lines: Iterable[str]) -> None:
        """Say what to do next."""
        ...


@final
class CallViews:
    """Makes views of calls that are over: remembers what each was asked with."""

    def __init__(self) -> None:
        self._arguments: dict[tuple[tuple[str, ...], str], str] = {}

    def started(self, event: CallStarted) -> None:
        """Remember the arguments."""
        self._arguments[event.path, event.call_id] = event.arguments

    def finished(self, event: CallFinished) -> CallView:
        """The view of a call."""
        tone, verdict = _verdict(event)
        changed = what_changed(event.changes)
        arguments = summary(self._arguments.pop((event.path, event.call_id), ""))
        body = tuple(_body(event, tone))
        return CallView(tone, verdict, shown_line(event.tool_name), arguments, event.duration * 1000, changed, body)


def what_changed(changes: Changes) -> str:
    """The files and slices of a call by name; what the engine keeps for its own use is left out."""
    files = changes.files
    names = [*files.added, *files.changed, *files.removed]
    names = [shown_line(name) for name in names[:4]] + names[4:]
    listed = names if len(names) <= 3 else [*names[:2], f"{len(names) - 2} more"]
    slices = Changes(tuple(delta for delta in changes.slices if delta.name not in _BOOKKEEPING)).describe()
    return ", ".join([*listed, *([slices] if slices else [])])


def _verdict(event: CallFinished) -> tuple[Tone, str]:
    if event.kept:
        return "ok", "replayed" if event.outcome == "replayed" else "ok"
    if event.outcome in _NOT_ADMITTED:
        return "refused", event.outcome.replace("_", " ")
    return ("undone", "undone") if event.changes else ("failed", event.outcome)


def _body(event: CallFinished, tone: Tone) -> Iterable[Line]:
    """What the model read, shortened: of a diff only the lines that differ, and always what was rolled back."""
    lines = shown(event.text).split("\n")
    last = lines.pop() if lines and lines[-1].startswith(("Rolled back: ", "Nothing was changed.")) else ""
    start = next((number for number, line in enumerate(lines) if line.startswith("--- ")), len(lines))
    text = [Line("dim", line.rstrip()) for line in lines[:start] if line.strip()]
    yield from _cut_off(text, _BODY if tone == "ok" else _BODY_FAILED)
    yield from _cut_off(list(_diff(lines[start:])), _BODY_DIFF)
    if last and event.changes:
        yield Line("undone", last)


def _diff(lines: list[str]) -> Iterable[Line]:
    for line in lines:
        if line.startswith("+++ "):
            yield Line("note", line.removeprefix("+++ ").removeprefix("b/"))
        elif line.startswith("+"):
            yield Line("plus", line)
        elif line.startswith("-") and not line.startswith("--- "):
            yield Line("minus", line)


def _cut_off(lines: list[Line], limit: int) -> Iterable[Line]:
    whole = len(lines) <= limit + 1  # a line that says "1 more" would take as much room
    yield from (Line(line.tone, _cut(line.text, _LINE)) for line in (lines if whole else lines[:limit]))
    if not whole:
        yield Line("dim", f"... {len(lines) - limit} more lines")


def summary(arguments: str, limit: int = 72) -> str:
    """The arguments of a call on one line, long ones cut."""
    try:
        data = leaving_data(json.loads(arguments or "{}"))
    except ValueError:
        return _cut(shown(arguments), limit)
    if not isinstance(data, dict):
        return _cut(shown(arguments), limit)
    members = cast("dict[str, Any]", data)
    return _cut(shown(", ".join(f"{key}={_short(value)}" for key, value in members.items())), limit)


def _short(value: Any) -> str:
    if isinstance(value, str):
        return _cut(value if value and not any(map(str.isspace, value)) else json.dumps(value), 40)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return f"[{len(items)}]" if len(str(items)) > 30 else json.dumps(items)
    return _cut(json.dumps(value, ensure_ascii=False), 40)


def _cut(text: str, limit: int) -> str:
    text = text.replace("\n", "\\n")
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def turn_of(path: tuple[str, ...]) -> str:
    """Whose turn begins: the sub-agent's name, or nothing."""
    return f"{shown_line(path[-1])}: " if path else ""


def usage_text(usage: TokenUsage, turns: int, seconds: float | None) -> str:
    """What a run took, in words."""
    tokens = f"{usage.input:,} tokens in, {usage.output:,} out" if usage.total else "no tokens"
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    took = "" if seconds is None else f", {seconds:.1f} s"
    return f"{turns} {'turn' if turns == 1 else 'turns'}, {tokens}{cached}{took}"


@final
class Pipe:
    """Where lines go until the reader has gone, as with `wink demo | head`; then they are dropped quietly."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._open = True

    def put(self, text: str) -> None:
        """Write one line of any origin."""
        self._write(shown(text))

    def put_json(self, data: dict[str, Any]) -> None:
        """Write one line of JSON."""
        self._write(json_text(data))

    def _write(self, text: str) -> None:
        if not self._open:
            return
        try:
            print(writable(text, self._stream), file=self._stream, flush=True)
        except BrokenPipeError:
            self._open = False
            # What is still in the buffer would be written, and fail, once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@final
class PlainTrace:
    """ASCII lines, for pipes and for where `rich` is missing."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._pipe = Pipe(stream)
        self._views = CallViews()
        self._text: list[str] = []
        self._path: tuple[str, ...] = ()

    def heading(self, title: str, text: str) -> None:
        """See `Trace`."""
        title = shown_line(title)
        self._put(f"{title}\n{'=' * len(title)}\n{text}\n")

    def event(self, event: ProgressEvent) -> None:
        """See `Trace`."""
        if isinstance(event, ReasoningDelta):  # the trace shows what is done and said
            return
        if not isinstance(event, TextDelta) or event.path != self._path:
            self._said()
        self._path = event.path
        match event:
            case TurnStarted(number):
                self._put(f"{turn_of(event.path)}turn {number}")
            case TextDelta(text):
                self._text.append(text)
            case CallStarted():
                self._views.started(event)
            case CallFinished():
                self._call(self._views.finished(event))
            case Retrying(reason, attempt, delay):
                self._put(f"  attempt {attempt} failed, waiting {delay:.1f} s: {shown_line(reason)}")
            case MessageReceived(text):
                self._put(f"  message: {shown_line(text)}")
            case Resumed(attempt):
                self._put(f"  goes on after step {event.step}, attempt {attempt}")
            case SectionsOpened(keys):
                self._put(f"  opened sections: {', '.join(keys)}")

    def usage(self, usage: TokenUsage, turns: int, seconds: float) -> None:
        """See `Trace`."""
        self._said()
        self._path = ()
        self._put(f"\n{usage_text(usage, turns, seconds)}")

    def checks(self, title: str, checks: Iterable[tuple[str, bool]]) -> None:
        """See `Trace`."""
        self._put(f"\n{title}")
        for text, ok in checks:
            self._put(f"  {'ok' if ok else 'WRONG':5} {text}")

    def closing(self, lines: Iterable[str]) -> None:
        """See `Trace`."""
        self._put("")
        for line in lines:
            self._put(line)

    def _put(self, text: str) -> None:
        """A line; what a sub-agent does is indented below the call that it works in."""
        self._pipe.put("    " * len(self._path) + text)

    def _call(self, view: CallView) -> None:
        changed = f"  [{'changed' if view.tone == 'ok' else 'undone'}: {view.changed}]" if view.changed else ""
        self._put(
            f"  {view.verdict.upper() if view.tone != 'ok' else view.verdict:8} {view.tool}({view.arguments}){changed}"
        )
        for line in view.body:
            self._put(f"           {line.text}")

    def _said(self) -> None:
        text = "".join(self._text).strip()
        self._text.clear()
        for line in shown(text).split("\n") if text else ():
            self._put(f"  > {line}")


@final
class HeldText:
    """Text that comes in pieces, up to a space: the end is held back, since it may be half of a credential."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, text: str) -> str:
        """Take the next piece; what can be masked and shown by now."""
        self._text += text
        if len(self._text) < 2 * _KEPT_BACK:
            return ""
        end = self._text.rfind("\n", 0, -_KEPT_BACK) + 1 or self._text.rfind(" ", 0, -_KEPT_BACK) + 1
        said, self._text = self._text[:end], self._text[end:]
        return said

    def rest(self) -> str:
        """All that is left."""
        said, self._text = self._text, ""
        return said


@final
class EventLines:
    """The events of a run as they are in a stream, one line of JSON each; their texts are masked."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._pipe = Pipe(stream)
        self._held = HeldText()
        self._last: ProgressEvent | None = None
        self._outer: ProgressEvent | None = None

    def event(self, event: ProgressEvent) -> None:
        """See `Trace`."""
        last = self._last
        if last is not None and (type(event) is not type(last) or event.path != last.path):
            self._say_rest()
        self._last = event
        if not event.path:
            self._outer = event
        if isinstance(event, TextDelta | ReasoningDelta):
            self._say(event, self._held.add(event.text))
        else:
            self._put(event)

    def finished(self, response: PromptResponse[Any]) -> None:
        """The run has this answer."""
        self._say_rest()
        last = self._outer
        run_id = response.run_id if last is None else last.run_id  # None: a run on record that had ended
        self._put(Finished(response, run_id=run_id, step=response.step, turn=response.turns, at=time()))

    def _say_rest(self) -> None:
        if isinstance(self._last, TextDelta | ReasoningDelta):
            self._say(self._last, self._held.rest())

    def _say(self, event: TextDelta | ReasoningDelta, text: str) -> None:
        if text:
            self._put(replace(event, text=text))

    def _put(self, event: RunEvent) -> None:
        self._pipe.put_json(event.to_dict())

    def heading(self, title: str, text: str) -> None:
        """See `Trace`; nothing here, since these lines are events only."""

    def usage(self, usage: TokenUsage, turns: int, seconds: float) -> None:
        """See `Trace`; the last event has it."""

    def checks(self, title: str, checks: Iterable[tuple[str, bool]]) -> None:
        """See `Trace`."""

    def closing(self, lines: Iterable[str]) -> None:
        """See `Trace`."""


@final
class JsonTrace:
    """One JSON object a line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._pipe = Pipe(stream)
        self._text = HeldText()
        self._path: tuple[str, ...] = ()

    def heading(self, title: str, text: str) -> None:
        """See `Trace`."""
        self._put("start", title=title, text=text)

    def event(self, event: ProgressEvent) -> None:
        """See `Trace`."""
        if isinstance(event, ReasoningDelta):
            return
        if event.path != self._path or not isinstance(event, TextDelta):
            self._said(self._text.rest())
            self._path = event.path
        if isinstance(event, TextDelta):
            self._said(self._text.add(event.text))
            return
        fields: dict[str, Any] = {name: getattr(event, name) for name in type(event).__match_args__}
        if isinstance(event, CallFinished):
            files = event.changes.files
            fields["changes"] = {
                "slices": [delta.name for delta in event.changes.slices],
                "files": [*files.added, *files.changed, *files.removed],
            }
        self._put(_KINDS[type(event)], **fields)

    def usage(self, usage: TokenUsage, turns: int, seconds: float) -> None:
        """See `Trace`."""
        self._said(self._text.rest())
        self._path = ()
        self._put("usage", input=usage.input, output=usage.output, cached=usage.cached, turns=turns, seconds=seconds)

    def checks(self, title: str, checks: Iterable[tuple[str, bool]]) -> None:
        """See `Trace`."""
        del title
        for text, ok in checks:
            self._put("check", text=text, ok=ok)

    def closing(self, lines: Iterable[str]) -> None:
        """See `Trace`."""
        del lines

    def _said(self, text: str) -> None:
        if text:
            self._put("text", text=text)

    def _put(self, kind: str, **fields: Any) -> None:
        self._pipe.put_json({"kind": kind, **fields, **({"path": list(self._path)} if self._path else {})})


_KINDS: dict[type[Any], str] = {
    TurnStarted: "turn",
    TextDelta: "text",
    MessageReceived: "message",
    Resumed: "resumed",
    Retrying: "retry",
    CallStarted: "call",
    CallFinished: "answer",
    SectionsOpened: "opened",
}
