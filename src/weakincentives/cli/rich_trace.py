"""The trace in colour, live: a spinner while something runs. Needs the extra `cli`."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import Literal, TextIO, final

from ..adapters import (
    CallFinished,
    CallStarted,
    MessageReceived,
    ProgressEvent,
    ReasoningDelta,
    Resumed,
    Retrying,
    SectionsOpened,
    TextDelta,
    TurnStarted,
)
from ..budget import TokenUsage
from ..masking import writable
from .output import shown, shown_line
from .trace import CallView, CallViews, turn_of, usage_text

try:
    from rich.console import Console, RenderableType
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.status import Status
    from rich.table import Table
    from rich.text import Text
except ImportError as _error:
    raise ImportError("The coloured trace needs rich. Install it: pip install 'weakincentives[cli]'") from _error


_WIDTH = 100
_STYLES = {
    "ok": "green",
    "refused": "magenta",
    "undone": "yellow",
    "failed": "red",
    "said": "default",
    "note": "cyan",
    "dim": "bright_black",
    "plus": "green",
    "minus": "red",
}
_MARKS = {"ok": "✓", "refused": "✗", "undone": "↺", "failed": "✗"}
_ASCII_MARKS = {"ok": "+", "refused": "x", "undone": "<", "failed": "x"}


@final
class RichTrace:
    """Colours for a terminal; `recording` draws for a picture instead, which `svg` gives."""

    def __init__(self, stream: TextIO | None = None, *, recording: bool = False) -> None:
        if recording:
            self._console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
        else:
            self._console = Console(file=stream, highlight=False)
            if os.environ.get("FORCE_COLOR") and self._console.color_system is None:  # TERM=dumb, as CI runs have it
                self._console = Console(file=stream, highlight=False, color_system="standard")
        # Rich takes a pipe for a terminal where FORCE_COLOR is set; a spinner in a file would only be noise.
        self._live = self._console.file.isatty() and not recording
        # Rich draws its own boxes in ASCII on such a terminal; marks and texts are ours to care for.
        has_signs = self._console.encoding.lower().startswith("utf")
        self._marks = _MARKS if has_signs else _ASCII_MARKS
        self._overflow: Literal["ellipsis", "crop"] = "ellipsis" if has_signs else "crop"
        self._timed = not recording  # the same trace is the same picture
        self._status: Status | None = None
        self._views = CallViews()
        self._text: list[str] = []
        self._path: tuple[str, ...] = ()

    def svg(self, title: str) -> str:
        """What was shown, as a picture."""
        return self._console.export_svg(title=shown_line(title), clear=False, unique_id="wink")

    def heading(self, title: str, text: str) -> None:
        """See `Trace`."""
        words = self._words(" ".join(text.split()))  # its line breaks are those of plain text
        width = min(self._console.width, _WIDTH - 1)
        heading = self._words(shown_line(title), "bold")
        self._console.print(Panel(words, title=heading, title_align="left", border_style="cyan", width=width))

    def event(self, event: ProgressEvent) -> None:
        """See `Trace`."""
        if isinstance(event, ReasoningDelta):  # the trace shows what is done and said
            return
        if not isinstance(event, TextDelta) or event.path != self._path:
            self._said()
        self._path = event.path
        match event:
            case TurnStarted(number):
                if not event.path:
                    self._console.print()
                self._print(self._words(f"{turn_of(event.path)}turn {number}", "bold cyan"), 0)
                self._wait("asking the model")
            case TextDelta(text):
                self._text.append(text)
            case CallStarted():
                self._views.started(event)
                self._wait(f"running {shown_line(event.tool_name)}")
            case CallFinished():
                self._stop()
                self._call(self._views.finished(event))
            case Retrying(reason, attempt, delay):
                self._note(f"attempt {attempt} failed, waiting {delay:.1f} s: {shown_line(reason)}")
            case MessageReceived(text):
                self._note(f"message: {shown_line(text)}")
            case Resumed(attempt):
                self._note(f"goes on after step {event.step}, attempt {attempt}")
            case SectionsOpened(keys):
                self._note(f"opened sections: {', '.join(keys)}")

    def usage(self, usage: TokenUsage, turns: int, seconds: float) -> None:
        """See `Trace`."""
        self._said()
        self._stop()
        text = usage_text(usage, turns, seconds if self._timed else None)
        self._console.print(Text(f"\n{text}", style="bright_black"))

    def checks(self, title: str, checks: Iterable[tuple[str, bool]]) -> None:
        """See `Trace`."""
        self._stop()
        self._console.print(self._words(f"\n{title}", "bold"))
        for text, ok in checks:
            mark = Text(f" {self._marks['ok' if ok else 'failed']} ", style="bold green" if ok else "bold red")
            self._console.print(mark + self._words(text, "default" if ok else "red"))

    def closing(self, lines: Iterable[str]) -> None:
        """See `Trace`."""
        self._console.print()
        for line in lines:
            command, hash_sign, text = shown_line(line).partition("  # ")
            row = Table.grid()
            width = len(command) + 2 if hash_sign else None  # never shortened: it is there to be copied
            row.add_column(width=width, overflow=self._overflow)
            row.add_column(overflow=self._overflow)
            row.add_row(self._words(command, "cyan" if line.startswith(" ") else ""), self._words(text, "bright_black"))
            self._console.print(row)

    # Inside.

    def _call(self, view: CallView) -> None:
        style = _STYLES[view.tone]
        head = Text.assemble(
            (f"{self._marks[view.tone]} ", f"bold {style}"),
            (self._clean(view.tool), "bold"),
            (self._clean(f"  {view.arguments}"), "default"),
        )
        note = view.changed and f"changed {view.changed}"
        if view.tone != "ok":
            note = ": ".join(part for part in (view.verdict, view.changed) if part)
        row = Table.grid(expand=True, padding=(0, 1))
        row.add_column(ratio=1, no_wrap=True, overflow=self._overflow)
        row.add_column(justify="right", no_wrap=True, overflow=self._overflow)
        took = f"  {view.milliseconds:,.0f} ms" if self._timed and view.milliseconds >= 1 else ""
        noted = (self._clean(note), f"bold {style}" if view.tone != "ok" else "green")
        row.add_row(head, Text.assemble(noted, (took, "bright_black")))
        self._print(row, 2)
        for line in view.body:
            self._print(self._words(line.text, _STYLES[line.tone]), 6)

    def _said(self) -> None:
        text = "".join(self._text).strip()
        self._text.clear()
        if text:
            self._stop()
            self._print(self._words(text, "italic"), 2)

    def _note(self, text: str) -> None:
        self._stop()
        self._print(self._words(text, _STYLES["note"]), 2)

    def _print(self, what: RenderableType, indent: int) -> None:
        """What a sub-agent does is indented below the call that it works in."""
        self._console.print(Padding(what, (0, 0, 0, indent + 4 * len(self._path))))

    def _words(self, text: str, style: str = "") -> Text:
        """Text of any origin, as this terminal can show it."""
        return Text(self._clean(text), style=style)

    def _clean(self, text: str) -> str:
        return writable(shown(text), self._console.file)

    def _wait(self, text: str) -> None:
        if not self._live:
            return
        if self._status is None:
            self._status = self._console.status(self._words(text, "bright_black"))
            self._status.start()
        else:
            self._status.update(self._words(text, "bright_black"))

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
