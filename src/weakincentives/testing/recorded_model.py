"""A model that says again what is on record, and the world around it: state and files as they were at first.

Handlers run for real, but for tools whose effects leave the machine: those are answered with what is on record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, Unpack, cast, final

from ..clock import Clock
from ..errors import RunFormatError, SessionFormatError, ToolError, VisibilityExpansionRequired, WinkError
from ..filesystem import Filesystem, InMemoryFilesystem
from ..filesystem.views import WrapperFilesystem
from ..interrupts import Lock
from ..loop.adapter import AdapterKeywords, TurnAdapter
from ..loop.recorded import turn_of
from ..loop.request import ModelRequest, ModelTurn
from ..loop.response import PromptResponse
from ..loop.subagent import is_subagent
from ..prompt.prompt import Prompt
from ..prompt.tool import Tool
from ..prompt.tool_context import ToolContext
from ..resources import ResourceContext
from ..results import ToolResult
from ..runtime.call import ToolReply
from ..runtime.options import RunKeywords
from ..runtime.record.calls import result_of
from ..runtime.record.contents import contents_of
from ..runtime.record.files import FilesToKeep, node_of
from ..runtime.record.reading import RecordedRun
from ..runtime.record.resources import apply_rows
from ..runtime.record.rows import FileStep, Step
from ..runtime.record.times import NotedClock, handling
from ..session import Session, SlicePolicy
from ..session.deltas import FindType, adopt_id, apply_delta, apply_readable, load_logged, show, type_finder, types_of
from ..waiting import OutOfTime
from .driven_runs import as_our_steps, is_driven, native_calls
from .no_network import network

OutputT = TypeVar("OutputT")

Fault = Literal["timeout"] | Exception
"""How a call fails that is made to fail."""

_SERVABLE = frozenset({"succeeded", "replayed", "failed", "crashed", "expanded"})
"""Outcomes that a handler can bring about; others are the engine's, such as a timeout."""
_ORDERED = frozenset({"turn", "started", "call"})
_CRASHED = "Internal error: "
_SOME_TIME = 60.0
_TRIED = 32
"""So many items that a call added to a slice may be its reducer's."""


class EndOfRecord(WinkError):  # noqa: N818 - the end, not a fault
    """The model is asked once more than it was then; a replay ends here."""


class UnknownToolError(WinkError, ValueError):
    """A tool that is to be run is neither in the prompt nor on record."""


@final
class Recording:
    """A run on record, laid out for a replay."""

    def __init__(self, run: RecordedRun) -> None:
        self.run: RecordedRun = run
        steps = tuple(run.whole_steps())
        self.native_calls: tuple[Step, ...] = native_calls(steps)
        self.steps: tuple[Step, ...] = as_our_steps(steps) if is_driven(steps) else steps
        if not self.steps or self.steps[0].kind != "begin":
            raise RunFormatError(f"The record of {run.info.run_id!r} does not begin at its beginning.")
        self.turns: tuple[Step, ...] = tuple(step for step in self.steps if step.kind == "turn")
        self.calls: Mapping[str, Step] = {step.call_id or "": step for step in self.steps if step.kind == "call"}
        self.end: Step | None = self.steps[-1] if self.steps[-1].kind == "end" else None
        self.files: dict[int, list[FileStep]] = {}
        for file in run.store.files(run.info.run_id):
            self.files.setdefault(file.seq, []).append(file)

    @property
    def versions(self) -> Mapping[str, str]:
        """What the program ran on, by what it is; empty in older records."""
        return self.steps[0].body.get("versions", {})

    def schemas(self) -> Mapping[str, Any]:
        """What the model read of each tool, by name; empty in older records."""
        kept = self.steps[0].body.get("schemas")
        return {} if kept is None else json.loads(self.run.text(kept))

    @property
    def files_kept(self) -> FilesToKeep:
        """Which files the record keeps."""
        return self.steps[0].body.get("files", "changed")

    def written_by_others(self) -> tuple[dict[int, dict[str, str | None]], list[str]]:
        """What other programs did to files while the run was under way or down, by the turn before which it is made.

        A file that is not as the run left it when the run comes to it again was changed in between. Where a call of the
        same turn had changed it before, no turn is right: these paths are the second part.
        """
        known: dict[str, str | None] = {}
        found: dict[int, dict[str, str | None]] = {}
        unclear: list[str] = []
        touched: set[str] = set()
        turn = 0
        for step in self.steps:
            if step.kind == "turn":
                turn += 1
                touched.clear()
            is_message = step.kind == "message"
            at_ask = is_message and self._is_before_turn(step)
            for file in self.files.get(step.seq) or ():
                seen = file.after if is_message else file.before
                if known.get(file.path, file.before) == seen:
                    pass
                elif file.path in touched and not at_ask:
                    unclear.append(file.path)
                else:
                    found.setdefault(turn + at_ask, {})[file.path] = seen
                known[file.path] = file.after
                touched.add(file.path)
        return found, unclear

    def _is_before_turn(self, message: Step) -> bool:
        later = (step.kind for step in self.steps[message.seq :])
        return next((kind for kind in later if kind in _ORDERED), "turn") == "turn"

    def paths(self) -> dict[str, str | None]:
        """Every path that the run changed, with what was there at first."""
        first: dict[str, str | None] = {}
        for seq in sorted(self.files):
            for file in self.files[seq]:
                first.setdefault(file.path, file.before)
        return first


@final
class ReplayedFiles(InMemoryFilesystem):
    """Files in memory in the place of a folder; they note which paths were asked for in vain."""

    __slots__ = ("_known", "missed")

    def __init__(self, known: Collection[str]) -> None:
        super().__init__()
        self._known = known
        self.missed: set[str] = set()

    def _file(self, path: str) -> Any:
        try:
            return super()._file(path)
        except FileNotFoundError:
            self._miss(path)
            raise

    def exists(self, path: str) -> bool:
        """As `Filesystem.exists`."""
        found = super().exists(path)
        if not found:
            self._miss(path)
        return found

    def _miss(self, path: str) -> None:
        path = path.removeprefix("/workspace/").lstrip("/")
        if path not in self._known:
            self.missed.add(path)


@final
class RecordedClock:
    """Gives handlers the times that they read when the run was recorded, call by call.

    One that asks more often than then, or did not ask then, gets the last of these, or the time at which its call
    began. Other code gets the time of the turn. Safe to use from any thread.
    """

    def __init__(self, recording: Recording, clock: Clock) -> None:
        self._recording = recording
        self._clock = clock
        self._given: Counter[tuple[str, str]] = Counter()
        self._now = recording.run.info.created
        self._turns: dict[int, float] = {}
        for step in recording.calls.values():
            self._turns[step.turn] = min(step.started, self._turns.get(step.turn, step.started))
        self._guard = Lock()

    def begin_turn(self, turn: Step) -> None:
        """The model was asked."""
        self._now = self._turns.get(turn.turn, self._now)

    def now(self) -> datetime:
        """The time then, aware, in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    def time(self) -> float:
        """The time then as seconds since the epoch."""
        step = self._recording.calls.get(handling() or "")
        return self._next("time", self._now if step is None else step.started)

    def monotonic(self) -> float:
        """What was read then; where nothing was, today's."""
        return self._next("monotonic", self._clock.monotonic())

    def _next(self, which: str, otherwise: float) -> float:
        call_id = handling() or ""
        step = self._recording.calls.get(call_id)
        readings: Sequence[float] = () if step is None else step.body.get("times", {}).get(which, ())
        if not readings:
            return otherwise
        with self._guard:
            at = self._given[call_id, which]
            self._given[call_id, which] += 1
        return readings[min(at, len(readings) - 1)]


@final
class RecordedModel(TurnAdapter):
    """Says the recorded turns, one after another; `evaluate` makes the world that they were said in. It is used once.

    Args:
        recording: what is said.
        serve: whether no handler runs at all.
        run: names of tools that run although their effects leave the machine; "*" for all.
        faults: calls that fail, by the numbers of their steps.
        types: classes of values in the session that neither a slice nor a tool names.
        files: content of files that the record does not hold.
        options: as of every adapter.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        serve: bool,
        run: Collection[str],
        faults: Mapping[int, Fault],
        types: Iterable[type[Any]] = (),
        files: Mapping[str, str | bytes] | None = None,
        **options: Unpack[AdapterKeywords],
    ) -> None:
        super().__init__(**options)
        self._recording = recording
        self._serve = serve
        self._run = run
        self._faults = {recording_call_id(recording, seq): checked_fault(seq, fault) for seq, fault in faults.items()}
        self._last_turn = max((_turn_of_call(recording, seq) for seq in faults), default=len(recording.turns))
        self._types = tuple(types)
        self._given = dict(files or {})
        self._asked = 0
        self._begun = False
        self._served_state = Session()
        self._served_until = 0
        self._natives_until = 0
        self._unread: set[str] = set()
        self._find: FindType = type_finder(())
        self._guard = Lock()
        self._clock: RecordedClock | None = None
        self._resources: ResourceContext | None = None
        self.filesystem: Filesystem | None = None
        self.session: Session | None = None
        self.served: Counter[str] = Counter()
        self.served_steps: set[int] = set()
        self.not_made: dict[int, str] = {}
        self.notes: list[str] = []
        self._by_others, unclear = recording.written_by_others()
        self.notes += [
            f"{path} was changed by another program during a turn; the replay leaves that out." for path in unclear
        ]

    @property
    def name(self) -> str:
        """The name used in events and error messages."""
        return "replay"

    @property
    def ran_out(self) -> bool:
        """Whether it was asked once more than there are turns on record."""
        return self._asked > len(self._recording.turns)

    def ask(self, request: ModelRequest) -> ModelTurn:  # noqa: ARG002 - whatever it is asked
        """The next turn on record."""
        at = self._asked
        self._asked += 1
        if at >= len(self._recording.turns):
            raise EndOfRecord("The model is asked once more than it was when the run was recorded.")
        if at >= self._last_turn:
            raise EndOfRecord("The replay ends at the turn after the last call that was made to fail.")
        self._serve_native_calls(self._recording.turns[at])
        self._set_clock(self._recording.turns[at])
        for path, node in sorted(self._by_others.get(self._asked, {}).items()):
            if self.filesystem is not None and not self.filesystem.is_readonly("."):
                self._put(self.filesystem, path, node)
        return turn_of(self._recording.turns[at])

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        *,
        tool_results: Iterable[ToolReply] | None = None,
        **options: Unpack[RunKeywords],
    ) -> PromptResponse[OutputT]:
        """See `Adapter.evaluate`."""
        if self._begun:
            raise ToolError(
                "What a model said inside a call is not on record, so this call cannot be replayed. Declare its tool "
                "as ToolAnnotations(open_world=True), then it is answered with what is on record."
            )
        self._begun = True
        prompt.install(session)
        self._check_names({tool.name for tool in _all_tools(prompt)} | {*self._recording.schemas()})
        self._set_state(prompt, session)
        resources = self._set_files(prompt)
        prompt = prompt.substituting({tool.name: self._in_place_of(tool) for tool in _all_tools(prompt)}, resources)
        self.session = session
        self._resources = prompt.resources.context
        apply_rows(self._resources, self._recording.steps[0])
        return super().evaluate(prompt, session, tool_results=tool_results, **options)

    def _check_names(self, known: Collection[str]) -> None:
        unknown = sorted({*self._run} - {*known, "*"})
        if unknown:
            listed = ", ".join(sorted(known)) or "none"
            raise UnknownToolError(f"There is no tool {unknown[0]!r} that could be run. The tools are: {listed}.")

    def _serve_native_calls(self, turn: Step) -> None:
        """Change files and state as another program's own tools did before this turn; they cannot be run."""
        for step in self._recording.native_calls:
            if self._natives_until < step.seq <= turn.seq:
                self._natives_until = step.seq
                self.served[f"{step.tool}, native"] += 1
                for file in sorted(self._recording.files.get(step.seq, ()), key=lambda file: file.path):
                    if self.filesystem is not None:
                        self._put(self.filesystem, file.path, file.after)
                if self.session is not None:
                    with contents_of(self._recording.run.store):
                        apply_readable(self.session, step.body.get("state", {}), self._find, self._unread)

    # The world at first.

    def _set_state(self, prompt: Prompt[Any], session: Session) -> None:
        begin = self._recording.steps[0]
        named = {cls for tool in _all_tools(prompt) for cls in (tool.params_type, tool.result_type)}
        named |= {*types_of(session), *self._types}
        self._find = type_finder(cls for cls in named if isinstance(cls, type))
        self._advance_state(begin.seq)
        adopt_id(session, begin.body["session_id"])
        show(session, self._served_state)

    def _set_files(self, prompt: Prompt[Any]) -> dict[Any, object]:
        """Give the prompt's files the content that they had at first; a folder gives way to files in memory."""
        fs: Any = prompt.resources.get(Filesystem, None)
        if fs is None:
            return {}
        paths = self._recording.paths()
        inside = fs
        while isinstance(inside, WrapperFilesystem):
            inside = inside._fs  # pyright: ignore[reportPrivateUsage] - there is no other way through a view
        if fs.is_readonly("."):
            if not isinstance(inside, InMemoryFilesystem):
                self.notes.append("Files were read as they are today: they are bound read-only.")
            self.filesystem = fs
            return {}
        resources: dict[Any, object] = {}
        if not isinstance(inside, InMemoryFilesystem):
            fs = ReplayedFiles(frozenset(paths))
            resources = {Filesystem: fs}
        for path, content in self._given.items():
            fs.write(path, content)
        for path in sorted((path for path in paths if paths[path] is None), reverse=True):
            fs.put_node(path, None)
        for path in sorted(path for path in paths if paths[path] is not None):
            self._put(fs, path, paths[path])
        self.filesystem = fs
        return resources

    def _put(self, fs: Any, path: str, kept: str | None) -> None:
        with network(closed=False):  # the store may be on a server
            node = node_of(kept, self._recording.run.store)
        if node is not None and node.kind == "symlink":
            self.notes.append(f"{path} was a symlink, which files in memory cannot be; it is left out.")
        else:
            fs.put_node(path, node)

    def _set_clock(self, turn: Step) -> None:
        """Have the time of this turn; the engine has its own clock, which is today's."""
        session = self.session
        if self._clock is None and session is not None and isinstance(session.clock, NotedClock):
            self._clock = session.clock.clock = RecordedClock(self._recording, session.clock.clock)
        if self._clock is not None:
            self._clock.begin_turn(turn)

    # Tools.

    def _in_place_of(self, tool: Tool[Any, Any]) -> Tool[Any, Any]:
        has_effects = tool.annotations.open_world or tool.idempotency is not None
        is_named = tool.name in self._run or "*" in self._run
        if self._serve or is_subagent(tool) or (has_effects and not is_named):
            plain: dict[str, Any] = {"idempotency": None, "isolation": None, "timeout": None, "blocking": False}
            served = tool.replace(handler=self._answering(tool), **plain)
            return self._failing(served, tool)
        return self._failing(tool, tool)

    def _failing(self, tool: Tool[Any, Any], declared: Tool[Any, Any]) -> Tool[Any, Any]:
        """The tool, with calls that are made to fail: after they have done their work, the worst moment for it."""
        ids = {call_id for call_id in self._faults if self._recording.calls[call_id].tool == tool.name}
        if not ids:
            return tool

        def fail(context: ToolContext) -> None:
            fault = self._faults.get(context.call_id or "")
            if isinstance(fault, Exception):
                raise fault
            if fault is not None:
                raise OutOfTime

        async def fail_later(params: Any, *, context: ToolContext) -> ToolResult[Any]:
            result = await cast("Awaitable[ToolResult[Any]]", tool.call(params, context))
            fail(context)
            return result

        def fail_now(params: Any, *, context: ToolContext) -> ToolResult[Any]:
            result: Any = tool.call(params, context)
            fail(context)
            return result

        times_out = any(self._faults[call_id] == "timeout" for call_id in ids)
        timeout = (declared.timeout or _SOME_TIME) if times_out else tool.timeout
        return tool.replace(handler=fail_later if tool.is_async else fail_now, isolation=None, timeout=timeout)

    def _answering(self, tool: Tool[Any, Any]) -> Any:
        def answer(params: Any, *, context: ToolContext) -> ToolResult[Any]:  # noqa: ARG001 - whatever is asked
            return self._recorded_result(tool, context)

        return answer

    def _recorded_result(self, tool: Tool[Any, Any], context: ToolContext) -> ToolResult[Any]:
        """End a call as the record says, with what it changed; the engine does the rest, as it does for handlers."""
        step = self._recording.calls.get(context.call_id or "")
        if step is None or step.tool != tool.name:
            raise ToolError(f"'{tool.name}' was not run: it is served from the record, and this call is not on it.")
        with self._guard:
            self.served[tool.name] += 1
            self.served_steps.add(step.seq)
        outcome = step.outcome or ""
        with contents_of(self._recording.run.store):
            result = result_of(step, tool)
        if outcome not in _SERVABLE:
            self.not_made[step.seq] = outcome
        elif "view" in step.body:
            self.not_made[step.seq] = f"{outcome}, with a value of which there is only a JSON view"
        if not tool.annotations.read_only:
            self._change_state(step, result, context)
            if self._resources is not None and outcome in {"succeeded", "replayed"}:
                apply_rows(self._resources, step)
        if outcome == "expanded":
            raise VisibilityExpansionRequired(result.message, section_keys=step.body["sections"])
        if outcome not in _SERVABLE or outcome == "crashed":
            raise RuntimeError(result.message.removeprefix(_CRASHED))
        if outcome != "failed":
            for file in sorted(self._recording.files.get(step.seq, ()), key=lambda file: file.path):
                fs: Any = context.filesystem
                if fs is not None and file.before != file.after:
                    self._put(fs, file.path, file.after)
        return result

    def _change_state(self, step: Step, result: ToolResult[Any], context: ToolContext) -> None:
        """What the handler itself did to the session. What reducers make of the result, they make again.

        Of a call that failed that is what it logged: the rest was undone.
        """
        changed = step.body.get("state", {})
        is_kept = step.outcome in {"succeeded", "replayed"}
        with self._guard:
            self._advance_state(step.seq)
        session = context.session
        reduced: set[type[Any]] = set()
        if result.value is not None and is_kept:
            tried = session.fork()
            before = tried.snapshot()
            tried.dispatch_value(result.value)
            reduced = {change.slice_type for change in tried.changes(before, logs=True)}
        for name, policy, change in changed.get("slices", ()):
            if name in self._unread:
                continue
            cls = self._find(name)
            items = self._served_state[cls].all()
            if cls in reduced:
                own = _own_part(session, cls, items, change, result.value)
                if own is None:
                    continue
                items = own
            if policy == SlicePolicy.LOG.value:
                for item in items[session[cls].count() :]:
                    session[cls].append(item)
            elif not is_kept:
                continue
            elif change is None:
                session[cls].clear()
            elif list(session[cls].all()) != list(items):
                session[cls].seed(list(items))
        for key, value in changed.get("notes", ()) if is_kept else ():
            try:
                with contents_of(self._recording.run.store):
                    noted = None if value is None else load_logged([value], self._find)[0]
                    known = load_logged([key], self._find)[0]
                session.note(known, noted)
            except SessionFormatError:
                if "notes" not in self._unread:  # a record that was to be readable
                    raise

    def _advance_state(self, seq: int) -> None:
        """Have what the session held after this step."""
        try:
            for step in self._recording.steps:
                if self._served_until < step.seq <= seq:
                    self._apply(step.body.get("state", {}))
                    self._served_until = step.seq
        except (SessionFormatError, IndexError, KeyError, TypeError, ValueError) as error:
            raise RunFormatError(
                f"The record cannot be read: {error}. "
                "Name its class in MainLoopConfig(record_types=...), or pass types=."
            ) from error

    def _apply(self, state: Mapping[str, Any]) -> None:
        with contents_of(self._recording.run.store):
            if self._recording.run.not_resumable:
                apply_readable(self._served_state, state, self._find, self._unread)
            else:
                apply_delta(self._served_state, state, self._find)

    @property
    def unread(self) -> tuple[str, ...]:
        """The slices that could not be read from the record, so that the replay goes without them."""
        return tuple(sorted(self._unread))


def _own_part(
    session: Session, cls: type[Any], items: Sequence[Any], change: Any, value: object
) -> Sequence[Any] | None:
    """What the handler itself did to a slice that a reducer of its result changed as well.

    The record has what both did together. What the handler left is taken to be a beginning of that, with which today's
    reducers come to the same; None when there is none: then the reducers do something else today.
    """
    keep = 0 if change is None else min([change[0], *map(int, change[1])])  # so many items are as they were
    for length in range(len(items), max(keep, len(items) - _TRIED) - 1, -1):
        tried = session.fork()
        there = tried[cls].count()
        if list(tried[cls].all()) == list(items[:there]) and there <= length:
            for item in items[there:length]:
                tried[cls].append(item)
        else:
            tried[cls].seed(list(items[:length]))
        tried.dispatch_value(value)
        if list(tried[cls].all()) == list(items):
            return items[:length]
    return None


def _all_tools(prompt: Prompt[Any]) -> list[Tool[Any, Any]]:
    """Every tool that the prompt declares, also in sections that are closed."""
    return [bound.tool for bound in prompt._tree.tools.values()]  # pyright: ignore[reportPrivateUsage]


def recording_call_id(recording: Recording, seq: int) -> str:
    """The id of the call that a step is; `ValueError` for another step."""
    for call_id, step in recording.calls.items():
        if step.seq == seq:
            return call_id
    known = ", ".join(f"{step.seq} ({step.tool})" for step in recording.calls.values()) or "none"
    raise ValueError(f"faults= names step {seq}, which is not a call. The calls of this run: {known}.")


def checked_fault(seq: int, fault: object) -> Fault:
    """How the call at that step fails; `TypeError` for what is not a way to fail."""
    if isinstance(fault, Exception) or fault == "timeout":
        return cast("Fault", fault)
    raise TypeError(f"faults= says how step {seq} fails: 'timeout', or an exception such as OSError(); got {fault!r}.")


def _turn_of_call(recording: Recording, seq: int) -> int:
    return next(step.turn for step in recording.calls.values() if step.seq == seq)


__all__ = ["EndOfRecord", "Fault", "RecordedClock", "RecordedModel", "Recording", "ReplayedFiles", "UnknownToolError"]
