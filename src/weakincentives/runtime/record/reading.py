"""Looking at a run: its steps, and what the session and the files held after any of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, final

from ...errors import RecordError, RunFormatError, SessionFormatError
from ...filesystem import FileChanges, Filesystem, InMemoryFilesystem
from ...filesystem.paths import addressable
from ...prompt.outline import SectionOutline, outline_from
from ...session import Session
from ...session.deltas import apply_delta, type_finder
from ..response import StreamEvent
from .contents import Attachments, contents_of, load_attachments
from .events import recorded_events
from .files import last_nodes, node_of
from .frames import state_changes
from .large_items import LargeItems
from .protocol import RunStore
from .rows import RunInfo, Step, not_resumable

Slices = Mapping[str, Sequence[Any]]
"""What slices hold, as plain data, by the names of their classes."""


@final
@dataclass(frozen=True, slots=True)
class RunDiff:
    """What differs between two steps of a run.

    Attributes:
        slices: the slices that hold something else, each with its items before and after as plain data.
        files: the paths that hold something else.
    """

    slices: Mapping[str, tuple[Sequence[Any], Sequence[Any]]]
    files: FileChanges


@final
class RecordedPrompt(str):
    """What a model had been told: the text, with its sections and the tools that it was offered.

    Attributes:
        sections: as a tree; empty in records that do not have them.
        tools: the names of the tools.
        system: what it had been told in the system's role.
        attachments: the images and documents that it was shown.
    """

    __slots__ = ("attachments", "sections", "system", "tools")

    def __new__(
        cls,
        text: str,
        sections: tuple[SectionOutline, ...],
        tools: tuple[str, ...],
        system: str = "",
        attachments: Attachments = (),
    ) -> Self:
        """A text that knows where it is from."""
        made = super().__new__(cls, text)
        made.sections = sections
        made.tools = tools
        made.system = system
        made.attachments = attachments
        return made

    attachments: Attachments
    sections: tuple[SectionOutline, ...]
    tools: tuple[str, ...]
    system: str


@final
class RecordedRun:
    """A run to be looked at: `store.open("ticket-4711")`. Nothing is changed, and it may be under way.

    A step is named by its number, `Step.seq`; its state is that after the step. `RecordError` for a run or a step that
    is not there.
    """

    def __init__(self, store: RunStore, run_id: str, types: Iterable[type[Any]] = ()) -> None:
        info = store.info(run_id)
        if info is None:
            raise RecordError(f"There is no run {run_id!r} in this store.")
        self._store = store
        self._find = type_finder(types)
        self.info: RunInfo = info

    @property
    def store(self) -> RunStore:
        """The store that it is in; its owner closes it."""
        return self._store

    @property
    def not_resumable(self) -> str:
        """Why it could not go on if it were interrupted; empty when it can."""
        return next((not_resumable(step) for step in self._store.steps(self.info.run_id, until=1)), "")

    def steps(self) -> Sequence[Step]:
        """All its steps, in order."""
        return tuple(self._store.steps(self.info.run_id))

    def calls(self) -> Sequence[Step]:
        """Its calls, in the order in which they took effect."""
        return tuple(self._store.steps(self.info.run_id, kinds=("call",)))

    def events(self, after: int = 0) -> Iterator[StreamEvent[Any]]:
        """What a listener was told of the run, from the first step above `after` on: `for event in run.events()`.

        The types are those of a stream, in the same order: `RunStarted` first, `Finished` last. Go on where a reader
        was with `run.events(after=event.step)`. Each turn's text is one `TextDelta`; reasoning and `Retrying` are not
        on record. The `output` of the answer is plain data and it has no `history`. Calls of a sub-agent with a run of
        its own are there, with its `path`, once the call around them is on record.

        Of a conversation it gives every message, as `MessageReceived`, with `Finished` or `Failed` where it ended and
        `MessageUndone` where it was undone; a message that failed does not end the iteration.

        It ends without `Finished` when the run is under way or was interrupted; a run that failed raises its
        `PromptEvaluationError` at the end. `RecordError` when the store cannot be read, `RunFormatError` for a step
        that cannot: what was given until then stands.
        """
        return recorded_events(self, after)

    def inside(self, run_id: str) -> RecordedRun | None:
        """A run that happened inside a call of this one; None when it is not in the store."""
        return None if self._store.info(run_id) is None else RecordedRun(self._store, run_id)

    def whole_steps(self) -> Iterator[Step]:
        """All its steps, in order, with whole items where a row says only what changed in a large one."""
        large = LargeItems()
        for step in self._store.steps(self.info.run_id):
            if "state" in step.body:
                try:
                    state, large = large.read(step.body["state"])
                except SessionFormatError as error:
                    raise RunFormatError(f"Step {step.seq} of {self.info.run_id!r} cannot be read: {error}.") from error
                yield replace(step, body={**step.body, "state": state})
            else:
                yield step

    def step(self, seq: int) -> Step:
        """One step."""
        found = tuple(self._store.steps(self.info.run_id, after=seq - 1, until=seq))
        if not found:
            raise RecordError(f"The run {self.info.run_id!r} has no step {seq}.")
        return found[0]

    def text(self, kept: Any) -> str:
        """A text of a step's body: short ones stand there, long ones are kept beside it."""
        return kept if isinstance(kept, str) else self._store.blob(kept["blob"]).decode("utf-8", "surrogatepass")

    def prompt_at(self, seq: int) -> RecordedPrompt | None:
        """What the model had been told by then, as a text with its `sections` and `tools`; None before the first."""
        self.step(seq)
        prompts = tuple(self._store.steps(self.info.run_id, until=seq, kinds=("prompt",)))
        return self._prompt(prompts[-1]) if prompts else None

    def _prompt(self, step: Step) -> RecordedPrompt:
        body = step.body
        try:
            sections = outline_from(body.get("sections", []))
            return RecordedPrompt(
                self.text(body["text"]), sections, tuple(body["tools"]), self.text(body.get("system", "")),
                load_attachments(step, self._store),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise RunFormatError(f"Step {step.seq} of {self.info.run_id!r} cannot be read: {error}.") from error

    def data_at(self, seq: int) -> Slices:
        """What the slices held, as plain data: no class of the program is needed."""
        self.step(seq)
        slices: dict[str, list[Any]] = {}
        for _, state in state_changes(self._store, self.info.run_id, seq):
            for name, _, change in state.get("slices", ()):
                if change is None:
                    slices.pop(name, None)
                    continue
                keep, replaced, added = change
                items = slices.setdefault(name, [])
                del items[keep:]
                for index, item in replaced.items():
                    items[int(index)] = item[0]
                items.extend(item[0] for item in added)
        return slices

    def state_at(self, seq: int) -> Session:
        """A session with what was there then: `run.state_at(7)[Plan].latest()`.

        `RunFormatError` when a slice's class was not named: `store.open(run_id, types=[Plan])`; and when it holds
        values of a run that was recorded with `resumable=False` and of which there is only a JSON view: `data_at` has
        them.
        """
        self.step(seq)
        session = Session(session_id=self.info.session_id)
        for number, state in state_changes(self._store, self.info.run_id, seq):
            try:
                with contents_of(self._store):
                    apply_delta(session, state, self._find)
            except SessionFormatError as error:
                raise RunFormatError(
                    f"Step {number} cannot be read: {error}. "
                    "Name its class in open(types=...), or use data_at(), which has plain data."
                ) from error
        return session

    def files_at(self, seq: int) -> Filesystem:
        """The files that the run had changed by then, as they were; read-only.

        Those it never changed are there only where the record keeps them; see `FilesToKeep`.
        """
        self.step(seq)
        fs = InMemoryFilesystem()
        nodes = last_nodes(self._store.files(self.info.run_id, until=seq, last=True))
        for path in sorted(nodes):
            node = node_of(nodes[path], self._store)
            if node is not None and node.kind != "symlink" and addressable(path):
                fs.put_node(path, node)
        return fs.readonly()

    def fork(self, *, at: int, new_id: str | None = None, effects: Literal["shared", "fresh"] = "shared") -> str:
        """A new run that shares the steps up to `at` with this one, and its id; see `RunStore.fork`."""
        return self._store.fork(self.info.run_id, at=at, new_id=new_id, effects=effects)

    def diff(self, before: int, after: int) -> RunDiff:
        """What differs between two steps."""
        old, new = self.data_at(before), self.data_at(after)
        slices = {
            name: (tuple(old.get(name, ())), tuple(new.get(name, ())))
            for name in sorted({*old, *new})
            if list(old.get(name, ())) != list(new.get(name, ()))
        }
        return RunDiff(slices, self._changed_files(before, after))

    def _changed_files(self, before: int, after: int) -> FileChanges:
        steps = self._store.files(self.info.run_id, until=max(before, after))
        first = {step.path: step.before for step in reversed(steps)}  # what the run began with
        old = {**first, **last_nodes(step for step in steps if step.seq <= before)}
        new = {**first, **last_nodes(step for step in steps if step.seq <= after)}
        differing = sorted(path for path in first if old[path] != new[path])
        return FileChanges(
            tuple(path for path in differing if old[path] is None),
            tuple(path for path in differing if old[path] is not None and new[path] is not None),
            tuple(path for path in differing if new[path] is None),
        )


__all__ = ["RecordedRun", "RunDiff"]
