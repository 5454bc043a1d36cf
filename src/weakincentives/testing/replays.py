"""A recorded run as a test: the model says again what it said, handlers run for real, and what differs is reported."""

from __future__ import annotations

import copy
import os
import shlex
import tempfile
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast, final

from ..errors import NotResumableError, RecordError
from ..filesystem import Filesystem
from ..loop.adapter import AdapterKeywords
from ..loop.main_loop import MainLoop
from ..loop.settings import AdapterSettings
from ..masking import redact, visible_line
from ..prompt.prompt import Prompt
from ..prompt.template import PromptTemplate
from ..runtime.ledger import EffectLedger
from ..runtime.record.export import MASKED_TAG, reading_copy, write_run
from ..runtime.record.reading import RecordedRun
from ..runtime.record.resources import unrecorded_in
from ..runtime.record.rows import Step
from ..runtime.record.runs import RunRecord
from ..runtime.record.sqlite import SqliteRunStore
from ..session import Session
from .divergences import Comparison, Divergence, Normaliser, checked_ignore
from .no_network import network
from .recorded_model import Fault, RecordedModel, Recording, ReplayedFiles

AnyLoop = MainLoop[Any, Any]
Target = AnyLoop | Callable[[Any], AnyLoop] | Prompt[Any] | PromptTemplate[Any] | tuple[Prompt[Any], Session]
"""What is replayed: a loop, its class, a function that makes one with an adapter, or a prompt, also with a session."""

_SHOWN = 5


@final
@dataclass(frozen=True, slots=True)
class CaptureReport:
    """What the record could not hold, and therefore what the replay does not show.

    Attributes:
        served: tools that were answered from the record, with the number of calls.
        not_made: recorded steps whose end cannot be made again, such as a timeout of a tool that is served.
        missing_files: paths that were asked for and that the record does not hold.
        unrecorded: resources whose state is not on record.
        environment: what the run was recorded on and what it was replayed on, where they differ.
        masked: whether there were credentials that were masked in the file, so that handlers got marks in their place.
        notes: what else there is to know.
    """

    served: Mapping[str, int]
    not_made: Mapping[int, str]
    missing_files: tuple[str, ...]
    unrecorded: tuple[str, ...]
    environment: Mapping[str, tuple[str, str]]
    masked: bool
    notes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"served from the record: {visible_line(name)} ({count} call{'' if count == 1 else 's'})"
            for name, count in sorted(self.served.items())
        ]
        lines += [f"not compared: step {seq} ended as '{how}'" for seq, how in sorted(self.not_made.items())]
        lines += [f"not on record: the file {visible_line(path)}; pass files=" for path in self.missing_files]
        lines += [f"not on record: the state of {name}" for name in self.unrecorded]
        lines += [f"recorded with {name} {old}, replayed with {new}" for name, (old, new) in self.environment.items()]
        if self.masked:
            lines.append("credentials were masked in the file: handlers got [masked] in their place")
        return "\n".join([*lines, *map(visible_line, self.notes)]) or "nothing"


@final
@dataclass(frozen=True, slots=True)
class ReplayResult:
    """How a replay went.

    Attributes:
        run_id: the run that was replayed.
        divergences: what is not as it was, in order.
        capture: what the record could not hold.
        steps: the steps of the run as it is now; see `call`.
        session: the session at its end.
        filesystem: the files at its end, if the prompt binds any.
        updated: whether the file was replaced by the run as it is now.
        source: the file, as it was named.
    """

    run_id: str
    divergences: tuple[Divergence, ...]
    capture: CaptureReport
    steps: tuple[Step, ...]
    session: Session
    filesystem: Filesystem | None
    updated: bool = False
    source: str = ""
    _calls: Mapping[int, Step] = field(default_factory=dict[int, Step], repr=False)
    _turns_differ: bool = field(default=False, repr=False)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.divergences

    def call(self, step: int) -> Step:
        """The call that is step number `step` on record, as it went now. KeyError when it was not made."""
        return self._calls[step]

    def assert_same(self) -> None:
        """AssertionError with the first five divergences, unless there are none."""
        if not self.divergences:
            return
        shown = "\n".join(map(str, self.divergences[:_SHOWN]))
        more = len(self.divergences) - _SHOWN
        rest = f"\n... and {more} more." if more > 0 else ""
        command = f"`wink replay {shlex.quote(self.source)} APP`" if self.source else "print(replay(...))"
        raise AssertionError(f"{self._summary()}\n{shown}{rest}\n{command} shows all.\n{self._captured()}")

    def __str__(self) -> str:
        return "\n".join([*map(str, self.divergences), self._summary(), self._captured()])

    def _summary(self) -> str:
        if self.same:
            return f"The run {self.run_id!r} goes as it did."
        count = len(self.divergences)
        return f"The run {self.run_id!r} goes differently now: {count} divergence{'' if count == 1 else 's'}."

    def _captured(self) -> str:
        lines = str(self.capture).splitlines()
        return "\n".join(["What this replay does not show:", *(f"  {line}" for line in lines)])


def replay(
    recorded: str | os.PathLike[str] | RecordedRun,
    target: Target,
    *,
    calls: Literal["run", "serve"] = "run",
    run: Collection[str] = (),
    ignore: Iterable[str] = (),
    normalise: Iterable[Normaliser] = (),
    faults: Mapping[int, Fault] | None = None,
    request: Any = None,
    types: Iterable[type[Any]] = (),
    files: Mapping[str, str | bytes] | None = None,
    update: bool = False,
) -> ReplayResult:
    r"""Run a recorded run again with today's program, and say what differs.

    The model comes from the record, turn by turn; no model is asked. The loop, the engine, policies, reducers and
    handlers are the ordinary ones, in a fresh world: state, notes and files as they were when the run began. A folder
    gives way to files in memory, and effects go to a ledger in memory. Tools that are open-world or have an
    `IdempotencyConfig` are not run: they are answered with what is on record, through today's policies and reducers.
    Opening a connection raises, unless `run` names a tool.

    Args:
        recorded: a file that `export_run` wrote, or a run of a store. Neither is changed, unless `update` says so.
        target: see `Target`. A loop is not changed.
        calls: "serve" runs no handler at all.
        run: names of tools that run although they would be served; "*" for all. Their effects happen.
        ignore: kinds of divergences, patterns of paths, or of `kind:path`, that do not count.
        normalise: functions and patterns that are applied to all texts on both sides: times, ids.
        faults: calls, by the numbers of their steps, that fail when they have done their work: "timeout", or an
            exception that they raise. The replay ends at the turn after the last of them; they are not compared.
        request: the request, for a loop whose request was not recorded.
        types: classes of values in the session that neither a slice nor a tool names.
        files: content of files that the record does not hold.
        update: replace the file by the run as it is now, if it makes the same turns and calls.

    Raises `RecordError` when the record cannot be read, `ValueError` for a fault that is not at a call or a tool to
    `run` that does not exist, and what `prepare` raises. What ends the run itself is a divergence.
    """
    if calls not in ("run", "serve"):
        raise ValueError(f"calls= is 'run' or 'serve', got {calls!r}.")
    if isinstance(run, str):
        raise TypeError(f"run= takes several names, such as ({run!r},).")
    if update and (faults or isinstance(recorded, RecordedRun)):
        raise ValueError("update= is for a file that is replayed without faults.")
    checks = _Checks(checked_ignore(ignore), tuple(normalise), dict(faults or {}))
    with _opened(recorded) as found, tempfile.TemporaryDirectory(prefix="wink-replay-") as folder:
        if found.info.is_conversation:
            raise NotResumableError(
                f"The run {found.info.run_id!r} is a conversation, which cannot be replayed yet. "
                "Read it with store.open(), or go on with it with loop.conversation(id=...)."
            )
        then = Recording(found)
        options = _adapter_options(target, then)
        model = RecordedModel(
            then, serve=calls == "serve", run=frozenset(run), faults=checks.faults, types=types, files=files, **options
        )
        with SqliteRunStore(Path(folder) / "runs.db") as store:
            with network(closed=not run):
                _run_again(target, model, store, then, request, tuple(types))
            now = Recording(store.open(found.info.run_id))
            result = _compared(then, now, model, checks, "" if isinstance(recorded, RecordedRun) else str(recorded))
            if update and _may_update(result, then):
                info = replace(found.info, status=store.open(found.info.run_id).info.status)
                masked = MASKED_TAG in info.tags
                write_run(store, info, cast("str", recorded), masked=masked, overwrite=True, inside=found.store)
                result = replace(result, updated=True)
    return result


@final
@dataclass(frozen=True, slots=True)
class _Checks:
    ignore: tuple[str, ...]
    normalise: tuple[Normaliser, ...]
    faults: dict[int, Fault]


@contextmanager
def _opened(recorded: str | os.PathLike[str] | RecordedRun) -> Generator[RecordedRun]:
    """The run. A file is read from a copy: opening a store makes files beside it, and a test must leave none."""
    if isinstance(recorded, RecordedRun):
        yield recorded
        return
    path = Path(recorded)
    if not path.is_file():
        raise RecordError(f"There is no file {path}.")
    with reading_copy(path) as store:
        infos = store.infos()
        known = {info.run_id for info in infos}
        infos = [info for info in infos if not (info.is_inside and info.parent in known)]
        if len(infos) != 1:
            raise RecordError(
                f"{path} holds {len(infos)} runs, but a replay is of one: write it into a file of its own with "
                "`wink export` or export_run, or pass store.open(run_id)."
            )
        yield store.open(infos[0].run_id)


def _adapter_options(target: Target, then: Recording) -> AdapterKeywords:
    """The settings of the loop's own adapter, where it has one; and as many turns as there were."""
    settings = getattr(getattr(target, "adapter", None), "settings", None)
    if not isinstance(settings, AdapterSettings):
        settings = AdapterSettings()
    options = {item.name: getattr(settings, item.name) for item in fields(settings)}
    options["max_turns"] = max(settings.max_turns, len(then.turns))
    return cast(AdapterKeywords, {**options, "manual": False})


def _run_again(  # noqa: PLR0917 - what a replay has gathered
    target: Target,
    model: RecordedModel,
    store: SqliteRunStore,
    then: Recording,
    request: Any,
    types: tuple[type[Any], ...],
) -> None:
    run_id = then.run.info.run_id
    try:
        pair = _prompt(target)
        if pair is not None:
            prompt, session = pair
            resumable = not then.run.not_resumable
            record = RunRecord(store, run_id, types=types, resumable=resumable, files=then.files_kept)
            with prompt.resources:
                model.evaluate(prompt, session, record=record, effect_ledger=EffectLedger())
            return
        loop = _loop(target, model, store, types)
        # As it was recorded, for a file that is replaced by this run.
        loop.config = replace(loop.config, resumable=not then.run.not_resumable, record_files=then.files_kept)
        loop.execute(_request(loop, then) if request is None else request, run_id=run_id)
    except Exception:
        info = store.info(run_id)
        if info is None or info.status == "running":  # it did not come to its end, so nothing tells what happened
            raise


def _prompt(target: Any) -> tuple[Prompt[Any], Session] | None:
    """The prompt and its session, where it is a prompt that is replayed."""
    if type(target) is tuple:
        return cast("tuple[Prompt[Any], Session]", target)
    if isinstance(target, PromptTemplate):
        target = Prompt(cast("PromptTemplate[Any]", target))
    return (cast("Prompt[Any]", target), Session()) if isinstance(target, Prompt) else None


def _loop(target: Any, model: RecordedModel, store: SqliteRunStore, types: tuple[type[Any], ...]) -> AnyLoop:
    if isinstance(target, MainLoop):
        made: object = copy.copy(cast(object, target))
    else:
        made = target(model) if callable(target) else target
    if not isinstance(made, MainLoop):
        raise TypeError(
            f"replay() takes a MainLoop, its class, a function that makes one with an adapter, or a prompt, "
            f"got {type(cast(object, target)).__name__}."
        )
    loop = cast(AnyLoop, made)
    config = loop.config
    loop.adapter = model
    loop.config = replace(
        config,
        runs=store,
        effect_ledger=EffectLedger(),
        deadline=config.deadline if isinstance(config.deadline, timedelta) else None,  # a moment has passed
        budget_tracker=None,
        record_types=(*config.record_types, *types),
    )
    return loop


def _request(loop: AnyLoop, then: Recording) -> Any:
    try:
        return loop._recorded_request(then.run.info)  # pyright: ignore[reportPrivateUsage]
    except NotResumableError as error:
        raise NotResumableError(f"{str(error).partition(' Pass it')[0]} Pass it: replay(..., request=...).") from None


def _compared(then: Recording, now: Recording, model: RecordedModel, checks: _Checks, source: str) -> ReplayResult:
    is_masked = MASKED_TAG in then.run.info.tags
    failed = {seq: then.calls[call_id].turn for call_id, seq in _seqs(then).items() if seq in checks.faults}
    comparison = Comparison(
        then,
        now,
        ignore=checks.ignore,
        normalise=(redact, *checks.normalise) if is_masked else checks.normalise,
        served=model.served_steps,
        not_made=model.not_made,
        until_turn=max(failed.values()) if failed else None,
        failed=failed,
        ran_out=model.ran_out,
    )
    fs = model.filesystem
    capture = CaptureReport(
        served=dict(model.served),
        not_made=dict(model.not_made),
        missing_files=tuple(sorted(fs.missed)) if isinstance(fs, ReplayedFiles) else (),
        unrecorded=tuple(sorted(unrecorded_in(then.steps) | set(model.unread))),
        environment={
            name: (old, now.versions.get(name, "none"))
            for name, old in then.versions.items()
            if now.versions.get(name) != old
        },
        masked=int(then.run.info.tags.get(MASKED_TAG, "0")) > 0,
        notes=tuple(model.notes),
    )
    seqs = _seqs(then)
    made = {seqs[call_id]: step for call_id, step in now.calls.items() if call_id in seqs}
    session = Session() if model.session is None else model.session
    divergences = comparison.run()
    return ReplayResult(
        run_id=then.run.info.run_id,
        divergences=divergences,
        capture=capture,
        steps=now.steps,
        session=session,
        filesystem=fs,
        source=source,
        _calls=made,
        _turns_differ=comparison.turns_differ,
    )


def _seqs(recording: Recording) -> dict[str, int]:
    return {call_id: step.seq for call_id, step in recording.calls.items()}


def _may_update(result: ReplayResult, then: Recording) -> bool:
    """Whether what is new are replies and changes alone; a turn that the model never had cannot be made up."""
    turns_differ = result._turns_differ  # pyright: ignore[reportPrivateUsage]
    may = not turns_differ and then.end is not None and not result.capture.not_made and not then.run.not_resumable
    return bool(result.divergences) and may


__all__ = ["CaptureReport", "ReplayResult", "Target", "replay"]
