"""Random programs of tools: what the record says of any step is what was there, and a run can part from it anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples

from weakincentives import Session, ToolInvoked
from weakincentives.adapters import ModelMessage, ModelRequest, ModelTurn, TurnAdapter
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import SqliteRunStore
from weakincentives.runtime.messages import CallMessage
from weakincentives.runtime.record.files import FilesToKeep
from weakincentives.runtime.record.rows import NewRows, RunInfo
from weakincentives.session import SlicePolicy, append_all
from weakincentives.testing import replay

# The program: one tool of each kind does what its arguments say.


@dataclass(frozen=True)
class Do:
    what: str
    n: int


@dataclass(frozen=True)
class Item:
    n: int


@dataclass(frozen=True)
class Line:
    n: int
    slice_policy = SlicePolicy.LOG


@dataclass(frozen=True)
class Called:
    tool: str


@dataclass(frozen=True)
class Meddled:
    """Only a changed program makes it, and nothing reads it: a change of what is read would change later calls."""

    n: int


TYPES = (Item, Line, Called, Do, Meddled)


def change(what: str, n: int, context: ToolContext) -> None:
    """One change of state, notes or files; those that cannot be made raise."""
    items, fs = context.session[Item], context.filesystem
    assert fs is not None
    path = f"d{n % 2}/{n % 3}.txt"
    match what:
        case "add":
            items.append(Item(n))
        case "replace":
            there = list(items.all())
            there[n % len(there)] = Item(-n)
            items.seed(there)
        case "drop":
            items.seed(list(items.all())[:-1])
        case "clear":
            items.clear()
        case "log":
            context.session.dispatch(Line(n))
        case "note":
            context.session.note(f"note {n % 3}", n)
        case "write":
            fs.write(path, f"content {n}")
        case "append":
            fs.append(path, f"more {n}")
        case "delete":
            fs.delete(path)
        case "remove":
            fs.delete("d0", recursive=True)
        case "move":
            fs.move("d1", f"moved{n}")
        case "mkdir":
            fs.mkdir(f"d0/empty{n}")
        case _:
            raise LookupError(what)


Meddle = Callable[[int, ToolContext], str | None]
"""What a changed program does in its n-th call besides, and what it says instead."""


class World:
    """The program with its state and files, as it is made anew in every process."""

    def __init__(self, meddle: Meddle | None = None) -> None:
        self.session = Session(session_id="s")
        self.session[Called].register(ToolInvoked, lambda view, event: append_all(view, Called(event.tool_name)))
        self.fs = InMemoryFilesystem({"at first.txt": "here"})
        self.calls = 0

        def act(params: Do, *, context: ToolContext) -> ToolResult[Any]:
            self.calls += 1
            change(params.what, params.n, context)
            change("log", params.n, context)
            said = None if meddle is None else meddle(self.calls, context)
            if params.what == "note" and params.n % 2:
                change("fail", 0, context)
            return ToolResult.ok(Do(params.what, params.n), message=said or f"{params.what} {params.n}")

        def look(params: Do, *, context: ToolContext) -> ToolResult[Any]:
            assert context.filesystem is not None
            return ToolResult.ok(f"{context.session[Item].count()} {context.filesystem.search('txt')}")

        closed = ToolAnnotations(open_world=False)
        tools = [
            Tool[Do, Any](name="act", description="Act.", handler=act, annotations=closed),
            Tool[Do, Any](name="mail", description="Mail.", handler=act, annotations=ToolAnnotations(idempotent=True)),
            Tool[Do, Any](name="look", description="Look.", handler=look, annotations=ToolAnnotations(read_only=True)),
        ]
        sections = [MarkdownSection(title="Task", template="Do it.", tools=tools)]
        self.prompt: Prompt[Any] = Prompt(name="p", sections=sections).bind(resources={Filesystem: self.fs})

    def held(self) -> dict[str, Any]:
        """What a reader of the record must find."""
        held = {cls: list(self.session[cls].all()) for cls in (Item, Line, Called)}
        notes = {key: self.session.noted(key) for key in ("note 0", "note 1", "note 2")}
        return {"slices": held, "notes": notes, "files": laid_out(self.fs)}

    def run(self, store: SqliteRunStore, run_id: str, script: Script, files: FilesToKeep = "changed") -> Any:
        record = store.run(run_id, types=TYPES, files=files)
        return Model(script).evaluate(self.prompt, self.session, record=record)


def laid_out(fs: Filesystem) -> dict[str, str]:
    """Every file with its content, every directory."""
    return {path: fs.read(path) if fs.stat(path).kind == "file" else "directory" for path in fs.glob("**/*")}


Script = list[list[tuple[str, str, int]]]


class Model(TurnAdapter):
    """Makes the calls of its script, turn by turn."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    def ask(self, request: ModelRequest) -> ModelTurn:
        at = sum(isinstance(message, ModelMessage) for message in request.messages)
        if at == len(self.script):
            return ModelTurn("Done.")
        calls = tuple(
            CallMessage(f"t{at}c{number}", tool, json.dumps({"what": what, "n": n}))
            for number, (tool, what, n) in enumerate(self.script[at])
        )
        return ModelTurn("", calls, stop_reason="tool_use")


CHANGES = (
    "add",
    "add",
    "replace",
    "drop",
    "clear",
    "note",
    "write",
    "append",
    "delete",
    "remove",
    "move",
    "mkdir",
    "x",
)
ONE = st.tuples(st.sampled_from(["act", "act", "mail", "look"]), st.sampled_from(CHANGES), st.integers(0, 9))
SCRIPTS = st.lists(st.lists(ONE, min_size=1, max_size=3), max_size=6)
ONE_BY_ONE = st.lists(
    st.tuples(
        st.just("act"), st.sampled_from(["add", "replace", "drop", "clear", "write", "append", "mkdir"]),
        st.integers(0, 9),
    ).map(lambda one: [one]),
    max_size=8,
)  # fmt: skip


def spied(store: SqliteRunStore, world: World) -> dict[int, dict[str, Any]]:
    """What is there at the moment at which a step is on record, by its number."""
    append, seen = store.append, dict[int, dict[str, Any]]()

    def look(info: RunInfo, rows: NewRows) -> None:
        append(info, rows)
        if rows.steps:
            seen[rows.steps[-1].seq] = world.held()

    store.append = look  # pyright: ignore[reportAttributeAccessIssue]
    return seen


@settings(max_examples=examples(40), deadline=None)
@given(script=SCRIPTS)
def test_what_a_step_held_is_what_a_spy_saw(script: Script, tmp_path_factory: pytest.TempPathFactory) -> None:
    """State, logs, notes and files of every step, whatever was undone in between."""
    with SqliteRunStore(tmp_path_factory.mktemp("spy") / "runs.db", durable=False) as store:
        world = World()
        moments = spied(store, world)
        world.run(store, "r", script, files="all")
        run = store.open("r", types=TYPES)
        assert set(moments) == {step.seq for step in run.steps()}
        for seq, seen in moments.items():
            state = run.state_at(seq)
            assert {cls: list(state[cls].all()) for cls in (Item, Line, Called)} == seen["slices"], seq
            assert {key: state.noted(key) for key in seen["notes"]} == seen["notes"], seq
            assert laid_out(run.files_at(seq)) == seen["files"], seq
        assert store.verify() == []


@settings(max_examples=examples(25), deadline=None)
@given(script=SCRIPTS, data=st.data())
def test_a_fork_with_the_same_script_ends_the_same(
    script: Script, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Wherever it parts: the conversation, the state, the files and the outcomes of all calls."""
    with SqliteRunStore(tmp_path_factory.mktemp("fork") / "runs.db", durable=False) as store:
        world = World()
        response = world.run(store, "r", script)
        whole = world.held()
        events = [(event.call_id, event.outcome, event.changes) for event in world.session[ToolInvoked].all()]
        at = data.draw(st.sampled_from([step.seq for step in store.open("r").steps()]))
        again = World()
        continued = again.run(store, store.fork("r", at=at), script)
        assert continued.history == response.history
        assert again.held() == whole
        assert [(event.call_id, event.outcome, event.changes) for event in again.session[ToolInvoked].all()] == events


@settings(max_examples=examples(25), deadline=None)
@given(script=SCRIPTS, files=st.sampled_from(["changed", "read", "all"]))
def test_the_same_program_goes_as_it_did(
    script: Script, files: FilesToKeep, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Served or run."""
    with SqliteRunStore(tmp_path_factory.mktemp("same") / "runs.db", durable=False) as store:
        World().run(store, "r", script, files)
        ways: list[dict[str, Any]] = [{}, {"calls": "serve"}, {"run": ("*",)}]
        for options in ways:
            again = World()
            result = replay(store.open("r"), (again.prompt, again.session), types=TYPES, **options)
            assert result.divergences == (), options


def _says(_: ToolContext) -> str:
    return "Something else."


def _adds(context: ToolContext) -> None:
    context.session[Meddled].append(Meddled(1000))


def _writes(context: ToolContext) -> None:
    assert context.filesystem is not None
    context.filesystem.write("meddled.txt", "x")


def _fails(_: ToolContext) -> None:
    raise OSError("disk")


MUTANTS: dict[str, Callable[[ToolContext], str | None]] = {
    "reply": _says, "state": _adds, "files": _writes, "outcome": _fails,
}  # fmt: skip


@settings(max_examples=examples(40), deadline=None)
@given(script=ONE_BY_ONE, kind=st.sampled_from(sorted(MUTANTS)), chosen=st.integers(0, 100))
def test_a_mutated_handler_is_the_only_divergence(
    script: Script, kind: str, chosen: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Exactly one that does not follow from another: that call, of that kind. Later ones are tainted."""
    script = [[("act", "add", 1)], *script]
    with SqliteRunStore(tmp_path_factory.mktemp("mutant") / "runs.db", durable=False) as store:
        World().run(store, "r", script)
        run = store.open("r")
        made = [number for number, step in enumerate(run.calls(), 1) if step.outcome == "succeeded"]
        number = made[chosen % len(made)]
        step = run.calls()[number - 1]
        ran = _runs_before(run.calls(), number)

        def meddle(calls: int, context: ToolContext) -> str | None:
            return MUTANTS[kind](context) if calls == ran else None

        again = World(meddle)
        found = replay(run, (again.prompt, again.session), types=TYPES).divergences
        own = [(item.kind, item.step) for item in found if not item.tainted]
        assert own == [(kind, step.seq)]
        assert all(item.step >= step.seq for item in found)


def _runs_before(calls: Any, number: int) -> int:
    """The handler of every admitted call runs, also of those that fail."""
    return sum(step.outcome in {"succeeded", "crashed"} for step in calls[:number])
