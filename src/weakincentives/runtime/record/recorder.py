"""One run under record: writes its rows as they happen, and serves those that an earlier process wrote.

Each row carries what changed in the session since the row before, by any code. So the record alone says what the
session held after a row; what the loop and reducers did to it afterwards, when they are run again, is overwritten by
the next row that is served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from time import time
from typing import Any, Literal, final

from ...budget import TokenUsage
from ...errors import NotResumableError, RecordError, RunFormatError, SessionFormatError
from ...interrupts import Lock, shielded
from ...prompt.events import CallsUndone, PromptExecuted, PromptRendered, ToolInvoked
from ...prompt.outline import SectionOutline, outline_data
from ...prompt.tool import Tool
from ...session import Session, Snapshot
from ...session.deltas import (
    FindType,
    adopt_id,
    apply_delta,
    apply_readable,
    dump_delta,
    dump_logged,
    load_logged,
    show,
    type_finder,
    types_of,
    unchecked,
)
from ...session.session import use_clock
from ...session.snapshots import SliceChange
from ...waiting import Waiting
from .contents import Attachments, contents_apart, contents_of, dump_attachments, load_attachments, referring
from .files import FileRecorder, FileRows, FilesToKeep, KeptFile, node_text
from .frames import FrameWriter
from .large_items import LargeItems
from .protocol import HeldRun, RunStore
from .resources import ResourceRecorder
from .rows import Content, FileStep, NewRows, RunStatus, Step, StepKind, digest_of, not_resumable
from .times import NotedClock
from .tools import check_tools, fingerprints, offered, versions

REBUILT: frozenset[type[Any]] = frozenset({ToolInvoked, PromptRendered, PromptExecuted, CallsUndone})
"""The engine's own events: running the loop again makes them again, so they are not part of what changed."""

_BLOB_CHARS = 16 * 1024
"""Longer texts are kept once, as blobs."""
_AS_ASKED = "it was recorded with resumable=False, so that values in it need not be readable"

UserRow = Literal["message", "interjection", "resume", "undo"]
"""What a `message` step is, in a conversation; other programs' changes of files have none of these."""

_BETWEEN = frozenset({"message", "resume", "undo"})
"""Those that come between two answers."""

_logger = logging.getLogger(__name__)


@final
class Recorder:
    """The rows of one run. Safe to use from any thread; rows are written one after another.

    Once a row could not be written, or `stop` was called, nothing more is: the run ends then, and what it says while it
    ends is not part of what happened.
    """

    def __init__(
        self,
        store: RunStore,
        held: HeldRun,
        types: Iterable[type[Any]] = (),
        accept_unrecorded: Iterable[str] = (),
        accept_changed: Iterable[str] = (),
        *,
        resumable: bool = True,
        not_resumable: str = "",
        keep_files: FilesToKeep = "changed",
        resources: ResourceRecorder | None = None,
        history: str = "",
    ) -> None:
        self.history: str = history
        self._keep_files: FilesToKeep = keep_files
        self.store: RunStore = store
        self.held: HeldRun = held
        self._types = tuple(types)
        self._accept_unrecorded = frozenset(accept_unrecorded)
        self._accept_changed = frozenset(accept_changed)
        self._resumable = resumable
        self._not_resumable = not_resumable
        self._unread: set[str] = set()
        self._lock = Lock()
        self._seq = 0
        self._turn = 0
        self._since: Snapshot | None = None
        self._stopped = False
        self._served: list[Step] = []
        self._begun: set[str | None] = set()  # calls of the turn that is served
        self._shown = Session()
        self._blobs: dict[str, Content] = {}
        self._own: dict[str, int] = {}  # the rows of calls, by the ids of their events
        self._tells_resumed = not held.is_new
        self._beside: list[Any] = []
        self.types: frozenset[type[Any]] = frozenset()
        self._find: FindType = type_finder(())
        self._writable: FindType = self._find  # the classes that may be written
        self._frames: FrameWriter | None = None
        self._large = LargeItems()
        self._session: Session = self._shown
        self._clock: NotedClock | None = None
        self.files: FileRecorder | None = None
        self.prompt: str | None = None
        self.system: str = ""
        self.attachments: Attachments = ()
        self._prompt_row: Mapping[str, Any] = {}
        self.messages: list[str] = []
        self.resources: ResourceRecorder | None = resources
        self.keeps_views: bool = False
        self.end: Step | None = None
        self.has_ended: bool = False  # whether the last row that was written ended something

    # The beginning.

    def open(self, session: Session, tools: Iterable[Tool[Any, Any]], prompt_name: str = "") -> None:
        """Begin the record of a session, or give the session what is on record; may wait for a disk or a server."""
        self._session = session
        tools = tuple(tools)
        self.types = frozenset({*types_of(session), *_types_of_tools(tools), *self._types})
        self._find = type_finder(self.types)
        steps = () if self.held.is_new else tuple(self.store.steps(self.held.info.run_id))
        wanted = self._not_resumable or ("" if self._resumable else _AS_ASKED)
        reason = not_resumable(steps[0]) if steps else wanted
        self.keeps_views = bool(reason)
        if steps and not self._is_over and (reason or self._not_resumable):
            raise refusal(self.run_id, reason or self._not_resumable)
        self._writable = unchecked if reason else self._find
        frames = FrameWriter(self._writable)
        if not steps or frames.resume(self.store.frames(self.run_id, until=steps[-1].seq), steps):
            self._frames = frames
        adopt_id(session, self.held.info.session_id)  # of an earlier process; of its own in a fork with fresh effects
        if not steps:
            body: dict[str, Any] = {
                "session_id": session.session_id,
                "prompt": prompt_name,
                "tools": fingerprints(tools),
                "schemas": self._as_blob(offered(tools)),  # the same in most runs of a store
                "versions": versions(),
            }
            if reason:
                body["not_resumable"] = reason
            if self._keep_files != "changed":
                body["files"] = self._keep_files
            if self.history:
                body["history"] = self.kept(self.history)
            if self.resources is not None and not reason:
                self.resources.check_readable()
            self._write("begin", body=body, status="paused" if self.is_conversation else None)
            return
        begin = steps[0]
        if begin.kind != "begin":
            raise RunFormatError(f"The record of {self.held.info.run_id!r} does not begin at its beginning.")
        if self.resources is not None:
            self.resources.read(steps, self._accept_unrecorded, is_over=self._is_over, run_id=self.run_id)
        if not self._is_over:
            check_tools(steps, tools, self._accept_changed)
        self.history = self.text(begin.body.get("history", ""))
        self._served = list(steps[:0:-1])
        self._seq = begin.seq
        self._show(begin, skip=self._not_begun_with)

    def watch(self, fs: Any) -> FileRecorder:
        """Record the changes of these files; may wait as `open` does. It makes what calls see of them.

        A run that begins keeps what is there, where it keeps all files. Those rows belong to its first step.
        """
        self.files = files = FileRecorder(fs, self._keep_files, self.store.max_file)
        if self._keep_files == "all" and self._seq == 1 and not self._served and not self._stopped:
            for rows, blobs in files.manifest():
                steps = [FileStep(path, 1, before, after) for path, before, after in rows]
                self.held.append(NewRows((), steps, blobs))
        return files

    async def restore_resources(self, waiting: Waiting) -> None:
        """Bring the resources that are not files to where the record ends; see `ResourceRecorder.restore`."""
        if self.resources is not None:
            try:
                await self.resources.restore(waiting, is_over=self._is_over, run_id=self.run_id)
            except BaseException:
                self._stopped = True
                raise

    def forget_resources(self) -> None:
        """Release what is remembered of resources, before they are closed; no row is written after that."""
        if self.resources is not None:
            self.resources.forget()

    def note_times(self) -> None:
        """Keep what handlers read from the session's clock, until the run is let go."""
        self._clock = NotedClock(self._session.clock, self.run_id)
        use_clock(self._session, self._clock)

    # Serving what is on record.

    @property
    def serving(self) -> bool:
        """Whether there are rows left that an earlier process wrote."""
        return self._next() is not None

    def next_turn(self) -> Step | None:
        """The next answer of the model that is on record, or None when there is none."""
        step = self._next_but_prompts()
        if step is None or step.kind != "turn":
            return None
        self._turn = step.turn
        return self._serve()

    def next_call(self, call_id: str) -> Step | None:
        """The recorded end of a call of this turn, or None when it has none; see `was_started`.

        Before its end there may be rows of attempts that were interrupted, and starts of calls that overlapped with it.
        """
        self._next()
        for step in reversed(self._served):
            if step.kind == "call" and step.call_id == call_id:
                while self._next() is not step:
                    self._serve()
                return self._serve()
            if step.kind not in ("message", "end", "started"):
                return None
        return None

    def events_in(self, step: Step) -> list[Any]:
        """The engine's own events of what a call did inside, such as calls of an agent that it asked."""
        self._own[step.body["event"]["id"]] = step.seq
        return load_logged(step.body.get("inside", ()), self._find)

    def was_started(self, call_id: str) -> bool:
        """Whether the record ends while this call ran; asked once `next_call` knows nothing of it."""
        while (step := self._next()) is not None and step.kind == "started":
            self._serve()
        return call_id in self._begun

    def serve_all(self) -> Iterator[Step]:
        """All rows that are left, one after another: for a run that has ended and that no loop runs again."""
        while self._next() is not None:
            yield self._serve()

    def next_end(self) -> Step | None:
        """The recorded end of the run, or None when it was interrupted."""
        step = self._next_but_prompts()
        if step is None or step.kind != "end":
            if step is not None:
                raise RunFormatError(
                    f"The record goes on with step {step.seq} ({step.kind}), which this loop does not come to. "
                    "Was the program changed since?"
                )
            return None
        self.end = self._serve()
        return self.end

    # The messages of a conversation.

    @property
    def is_conversation(self) -> bool:
        """Whether it has many messages, each with an end."""
        return self.held.info.is_conversation

    def next_message(self) -> Step | None:
        """What a user did next: sent a message, undid one, or asked for an answer again, as its `as` says.

        None at the end.
        """
        step = self._next()
        if step is None or step.body.get("as") in _BETWEEN:
            return step
        raise RunFormatError(
            f"The record goes on with step {step.seq} ({step.kind}) where a message should be. "
            "Was the program changed since?"
        )

    def serve_message(self) -> Step:
        """Go past the message that `next_message` gave."""
        return self._serve()

    def next_interjections(self) -> list[str]:
        """What the user said here while the message was answered."""
        texts: list[str] = []
        while (step := self._next()) is not None and step.body.get("as") == "interjection":
            texts.append(self.text(self._serve().body["text"]))
        return texts

    def coming_end(self) -> Step | None:
        """How the message ended, if its end comes next, or after what was said too late to be answered."""
        self._next_but_prompts()
        for step in reversed(self._served):
            if step.body.get("as") != "interjection":
                return step if step.kind == "end" else None
        return None

    async def write_user(self, kind: UserRow, text: str, waiting: Waiting, **more: Any) -> None:
        """Record what the user said or undid; a message is under way from then on, until its end."""
        if self._stopped:
            raise RecordError(f"The conversation {self.run_id!r} is not recorded any more, so it cannot go on here.")
        files: FileRows = more.pop("files", ())
        status: RunStatus = "paused" if kind == "undo" else "running"
        attachments: Attachments = more.pop("attachments", ())
        body = {"text": self.kept(text), "as": kind, **more}
        await self._in_turn(waiting, "message", body=body, files=files, status=status, attachments=attachments)

    @property
    def is_inside(self) -> bool:
        """Whether it happens inside a call of another run: what it did to files is undone when that is interrupted."""
        return self.held.info.is_inside

    @property
    def _not_begun_with(self) -> Collection[type[Any]]:
        """What the beginning does not hold: the events of the run around this one are on record there."""
        return REBUILT if self.is_inside else ()

    @property
    def is_over(self) -> bool:
        """Whether it had ended when it was taken; then there is nothing to be done or written."""
        return self._is_over

    @property
    def _is_over(self) -> bool:
        return self.held.info.status in {"done", "failed"}

    def _next(self) -> Step | None:
        """The row that is served next. Messages are gathered in `messages` until the model is asked.

        The end of an attempt that failed and was taken up again is passed.
        """
        while self._served:
            step = self._served[-1]
            if step.kind == "message" and "as" not in step.body:
                self.messages.append(self.text(step.body["text"]))
            elif step.kind != "end" or self.is_conversation or (self._is_over and len(self._served) == 1):
                return step
            self._serve()
        return None

    def _next_but_prompts(self) -> Step | None:
        while (step := self._next()) is not None and step.kind == "prompt":
            body = self._serve().body
            self.prompt, self.system = self.text(body["text"]), self.text(body.get("system", ""))
            self.attachments = load_attachments(step, self.store)
            self._prompt_row = {name: body[name] for name in ("tools", "sections") if name in body}
        return step

    def _serve(self) -> Step:
        step = self._served.pop()
        self._seq = step.seq
        if step.kind == "started":
            self._begun.add(step.call_id)
        elif step.kind == "turn":  # which may have calls with the same ids
            self._begun.clear()
        self._show(step)
        if self._unread and not self._served:
            names = ", ".join(sorted(self._unread))
            _logger.warning("Recorded values that cannot be read back are not in the session: %s", names)
        return step

    def _show(self, step: Step, skip: Iterable[type[Any]] = REBUILT) -> None:
        try:
            state, self._large = self._large.read(step.body.get("state", {}))
            if "contents" in step.body:
                with contents_of(self.store):
                    self._apply(state)
            else:
                self._apply(state)
            self._since = show(self._session, self._shown, skip=frozenset(skip))
        except (SessionFormatError, IndexError, KeyError, TypeError, ValueError) as error:
            raise RunFormatError(
                f"Step {step.seq} of the record cannot be read: {error}. "
                "Name the classes in MainLoopConfig(record_types=...), or use the program as it was."
            ) from error

    def _apply(self, state: Mapping[str, Any]) -> None:
        if self.keeps_views:
            apply_readable(self._shown, state, self._find, self._unread)
        else:
            apply_delta(self._shown, state, self._find)

    # Writing.

    @property
    def run_id(self) -> str:
        """Which run it is."""
        return self.held.info.run_id

    @property
    def attempt(self) -> int:
        """Which attempt at the run this is, from 1 on: the token counts the processes that took it, and a fork."""
        info = self.held.info
        return max(info.token - (info.forked_at is not None), 1)

    @property
    def step(self) -> int:
        """The last step that was written or served."""
        return self._seq

    @property
    def stopped(self) -> bool:
        """Whether nothing more is written."""
        return self._stopped

    def step_of(self, event_id: str) -> int | None:
        """The step of the call with that event; None when it is not on record."""
        return self._own.get(event_id)

    def stop(self) -> None:
        """Write nothing more: the run was interrupted, and what it does until it has ended is not part of it."""
        self._stopped = True

    def release(self) -> None:
        """Let other processes have the run."""
        self._stopped = True
        self.forget_resources()
        if self._clock is not None:
            self._clock.close()
            if self._session.clock is self._clock:
                use_clock(self._session, self._clock.original)
        self.held.release()

    async def write_prompt(
        self,
        said: tuple[str, str, Attachments],
        tool_names: Sequence[str],
        sections: Iterable[SectionOutline],
        waiting: Waiting,
    ) -> None:
        """Record what the model is told, if it differs from before in its text, its tools or its sections.

        `said` is the user's text, the system's, and what is shown besides.
        """
        told = {"tools": list(tool_names), "sections": outline_data(sections)}
        text, system, attachments = said
        before = (self.prompt, self.system, self.attachments)
        if self._stopped or (said == before and told == {**told, **self._prompt_row}):
            return
        kept = {"text": self.kept(text), **({"system": self.kept(system)} if system else {})}
        await self._in_turn(waiting, "prompt", body={**kept, **told}, attachments=attachments)
        self.prompt, self.system, self.attachments = said
        self._prompt_row = told

    async def write_message(self, text: str, files: Sequence[KeptFile], waiting: Waiting) -> None:
        """Record what the model is told in between, with files that changed meanwhile; it is in `messages` then."""
        if self._stopped:
            return
        blobs: dict[str, Content] = {}
        rows = [(file.path, file.recorded, node_text(file.node, blobs)) for file in files]
        self._blobs.update(blobs)
        await self._in_turn(waiting, "message", body={"text": self.kept(text)}, files=rows)
        self.messages.append(text)

    async def write_turn(self, body: Mapping[str, Any], usage: TokenUsage, waiting: Waiting) -> None:
        """Record what the model said, or more of the same turn when the body says that it `continues`."""
        if not self._stopped:
            self._turn += not body.get("continues", False)
            await self._in_turn(waiting, "turn", body=body, input_tokens=usage.input, output_tokens=usage.output)

    async def write_started(self, call_id: str, tool: str, waiting: Waiting, *, inside: bool = False) -> None:
        """Record that a call which may reach the world outside is about to run; or is about to run another, `inside`.

        Then what the call has changed so far is not part of the row, since it may still be undone.
        """
        if not self._stopped:
            await self._in_turn(waiting, "started", call_id=call_id, tool=tool, body={}, has_state=not inside)

    async def write_call(self, row: CallRow, waiting: Waiting) -> None:
        """Record how a call ended."""
        if self._stopped:
            return
        self._look_at_resources()

        def write() -> None:
            with self._lock:
                self._append(row)

        await self._waited(write, waiting)

    async def write_end(
        self, body: Mapping[str, Any], waiting: Waiting, *, failed: bool, usage: TokenUsage | None = None
    ) -> None:
        """Record the answer, or the error, that ended the run; `usage` is what its turns do not say."""
        if not self._stopped:
            used = TokenUsage() if usage is None else usage
            over = "paused" if self.is_conversation else "failed" if failed else "done"
            await self._in_turn(
                waiting, "end", body=body, status=over,
                input_tokens=used.input, output_tokens=used.output,
            )  # fmt: skip

    def kept(self, text: str) -> Any:
        """A text as a row holds it: itself, or the name of the blob that is written with the next row."""
        return text if len(text) <= _BLOB_CHARS else self._as_blob(text)

    def _as_blob(self, text: str) -> dict[str, str]:
        data = text.encode("utf-8", "surrogatepass")
        name = digest_of(data)
        self._blobs[name] = data
        return {"blob": name}

    def text(self, kept: Any) -> str:
        """The text that a row holds."""
        if isinstance(kept, str):
            return kept
        return self.store.blob(kept["blob"]).decode("utf-8", "surrogatepass")

    def keeping(self, blobs: dict[str, Content]) -> AbstractContextManager[None]:
        """See `contents_apart`."""
        return contents_apart(self.store, blobs)

    async def _in_turn(self, waiting: Waiting, kind: StepKind, *, has_state: bool = True, **columns: Any) -> None:
        if has_state:
            self._look_at_resources()

        def write() -> None:
            with self._lock:
                self._write(kind, has_state=has_state, **columns)

        await self._waited(write, waiting)

    def _look_at_resources(self) -> None:
        """Note what changed in them, in the thread that they are used in."""
        if self.resources is not None:
            try:
                files = self.files
                self.resources.look(None if files is None else files.fs, readable=not self.keeps_views)
            except BaseException:
                self._stopped = True
                raise

    async def _waited(self, write: Callable[[], None], waiting: Waiting) -> None:
        try:
            if self.store.blocks:
                await waiting.call(write)
            else:
                write()
        except RecordError:
            self._stopped = True
            raise
        except (TypeError, ValueError, RecursionError) as error:  # of json: what a provider or a program handed over
            self._stopped = True
            raise RunFormatError(f"The run cannot be recorded: {error}. Only JSON data can be on record.") from error

    def _write(
        self,
        kind: StepKind,
        *,
        body: Mapping[str, Any],
        status: Any = None,
        files: FileRows = (),
        has_state: bool = True,
        attachments: Attachments = (),
        **columns: Any,
    ) -> None:
        shown: dict[str, Content] = {}
        if has_state or self._since is None:
            state, _, now = self._changes(self._not_begun_with if kind == "begin" else REBUILT, shown)
        else:
            state, now = {}, self._since
        state, large = self._large.write(state)
        if attachments:
            with self.keeping(shown):
                body = {**body, "attachments": dump_attachments(attachments)}
        body = referring(body, shown)
        step = Step(
            seq=self._seq + 1, kind=kind, turn=self._turn, started=time(), body=self._with_state(body, state), **columns
        )
        steps = [FileStep(path, step.seq, before, after) for path, before, after in files]
        self._add(NewRows([step], steps, {**self._blobs, **shown} if shown else self._blobs, status), now, large)

    def _append(self, row: CallRow) -> None:
        shown: dict[str, Content] = dict(row.shown)
        state, rebuilt, now = self._changes(REBUILT, shown)
        state, large = self._large.write(state)
        event, seq = row.event, self._seq + 1
        own, others = self._inside(event, rebuilt)
        if own:
            with self.keeping(shown):
                row.body["inside"] = dump_logged(own, self._writable)
        times = None if self._clock is None else self._clock.taken(event.call_id or "")
        if times:
            row.body["times"] = times
        step = Step(
            seq=seq, kind="call", turn=self._turn, call_id=event.call_id, tool=event.tool_name, outcome=event.outcome,
            started=event.timestamp, duration=event.duration,
            body=referring(self._with_state(row.body, state), shown),
        )  # fmt: skip
        files = [FileStep(path, seq, before, after) for path, before, after in row.files]
        blobs = {**self._blobs, **row.blobs, **shown} if row.blobs or shown else self._blobs
        self._add(NewRows([step], files, blobs), now, large)
        self._own[event.event_id] = step.seq
        self._beside = others

    def _with_state(self, body: Mapping[str, Any], state: Mapping[str, Any]) -> Mapping[str, Any]:
        resources = () if self.resources is None else self.resources.take()
        if resources:
            body = {**body, "resources": resources}
        if self._tells_resumed:
            body = {**body, "resumed": self.attempt}
        return {**body, "state": state} if state else body

    def _inside(self, event: ToolInvoked, rebuilt: Iterable[SliceChange]) -> tuple[list[Any], list[Any]]:
        """The engine's own events that belong to a call's row, and those of calls that run beside it and go on."""
        added = [each for change in rebuilt for each in change.after[len(change.before) :]]
        found = [*self._beside, *(each for each in added if each.event_id not in self._own)]
        around = {each.event_id: getattr(each, "within", None) for each in found}
        own: list[Any] = []
        others: list[Any] = []
        for each in found:
            top = each.event_id
            while top in around and around[top] is not None:
                top = around[top]
            is_own = top in around or top == event.event_id or top in self._own
            (own if is_own else others).append(each)
        return own, others

    def _changes(
        self, skip: Collection[type[Any]], shown: dict[str, Content]
    ) -> tuple[dict[str, Any], list[SliceChange], Snapshot]:
        try:
            with self.keeping(shown):
                return dump_delta(self._session, self._since, self._writable, skip=skip)
        except SessionFormatError as error:
            raise RunFormatError(
                f"The run cannot be recorded: {error}. Hold plain data in it: a dataclass of JSON-like fields; or name "
                "its class in MainLoopConfig(record_types=...); or record with resumable=False, for looking at it only."
            ) from error

    def _add(self, rows: NewRows, now: Snapshot, large: LargeItems) -> None:
        step = rows.steps[-1]
        if self._frames is not None:
            with self.keeping({}):  # what stands in a frame stands in a step, too
                frames, blobs = self._frames.frames(step.seq, step.body.get("state", {}), now, large)
            if frames:
                rows = rows._replace(frames=frames, blobs={**rows.blobs, **blobs})
        with shielded():  # an interrupt between the commit and these notes would have the row written again
            self.held.append(rows)
            if self._frames is not None:
                self._frames.wrote(rows.frames)
            self._seq = step.seq
            self._tells_resumed = False
            self.has_ended = step.kind == "end"
            self._since = now
            self._large = large
            self._blobs = {}


@final
class CallRow:
    """How one call ended, ready to be written."""

    __slots__ = ("blobs", "body", "event", "files", "shown")

    def __init__(
        self,
        event: ToolInvoked,
        body: dict[str, Any],
        files: FileRows = (),
        blobs: Mapping[str, Content] | None = None,
    ) -> None:
        self.event: ToolInvoked = event
        self.body: dict[str, Any] = body
        self.files: FileRows = files
        self.blobs: Mapping[str, Content] = blobs or {}
        self.shown: dict[str, Content] = {}


def refusal(run_id: str, reason: str) -> NotResumableError:
    """What to raise instead of going on with such a run."""
    return NotResumableError(
        f"The run {run_id!r} did not come to its end and cannot go on: {reason}. "
        "See what it did with `wink show`, and begin anew with another run_id; a fork of it cannot go on either."
    )


def _types_of_tools(tools: Iterable[Tool[Any, Any]]) -> set[type[Any]]:
    return {
        cls
        for tool in tools
        for cls in (tool.params_type, tool.result_type, *getattr(tool.handler, "record_types", ()))
        if isinstance(cls, type)
    }


__all__ = ["REBUILT", "CallRow", "Recorder", "refusal"]
