"""A recorded run as a test: unchanged code goes as it did, and each change is named once."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples

from weakincentives import MainLoop, Session, ToolInvoked
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.errors import NotResumableError, RecordError, WinkError
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import (
    IdempotencyConfig,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    QuotaPolicy,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolResult,
)
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.record import export_run
from weakincentives.session import append_all
from weakincentives.testing import ReplayResult, ScriptedAdapter, call, replay, say

from .test_resume import Booking, Model, Note, Seen, World, script

TYPES = (Booking, Seen, Note)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with SqliteRunStore(tmp_path / "runs.db") as made:
        yield made


def kinds(result: ReplayResult) -> list[tuple[str, int, str]]:
    return [(found.kind, found.step, found.path) for found in result.divergences]


def test_everything_a_run_can_do_goes_as_it_did(store: SqliteRunStore) -> None:
    """Overlapping reads, refusals, a crash, opened sections, cut results, an answer that had to be repeated."""
    world = World()
    world.run(store, "whole", Model(script()))
    for calls in ("run", "serve"):
        again = World()
        result = replay(store.open("whole"), (again.prompt, again.session), types=TYPES, calls=calls)
        result.assert_same()
        assert again.seen()["bookings"] == world.seen()["bookings"]
        assert again.seen()["files"] == world.seen()["files"]
        upto = 4 if calls == "run" else 3  # what a call that failed had changed is not on record
        assert [event[:upto] for event in again.seen()["events"]] == [event[:upto] for event in world.seen()["events"]]
        assert ("mail" in again.ran, "book one" in again.ran) == (False, calls == "run")
        assert result.capture.served["mail"] == 1
        assert result.same


@pytest.mark.slow
def test_an_interrupted_run_is_replayed_as_far_as_it_went(store: SqliteRunStore) -> None:
    """From every step at which its record may end."""
    World().run(store, "whole", Model(script()))
    for step in store.open("whole").steps():
        run_id = store.fork("whole", at=step.seq)
        again = World()
        result = replay(store.open(run_id), (again.prompt, again.session), types=TYPES)
        assert kinds(result) == [], step


# One agent with a choice of mistakes.


@dataclass(frozen=True)
class Ticket:
    number: int


@dataclass(frozen=True)
class Amount:
    value: int


@dataclass(frozen=True)
class Refunded:
    value: int


@dataclass(frozen=True)
class Total:
    value: int


@dataclass
class Behaviour:
    """What the program does today."""

    reply: str = "Noted."
    store: int = 0
    file: str = ""
    fails: bool = False
    words: str = "Answer the ticket."
    policies: Sequence[Any] = ()
    extra_tool: bool = False
    charged: list[int] = field(default_factory=list[int])
    noted: list[int] = field(default_factory=list[int])


TODAY = [Behaviour()]
"""One item, which tests replace."""


class Desk(MainLoop[Ticket, str]):
    def prepare(self, request: Ticket) -> tuple[Prompt[str], Session]:
        today = TODAY[0]
        session = Session(bus=self.bus)
        session[Total].register(Refunded, lambda view, event: append_all(view, Total(event.value)))

        def note(params: Amount, *, context: ToolContext) -> ToolResult[Amount]:
            today.noted.append(params.value)
            context.session[Amount].append(Amount(params.value + today.store))
            assert context.filesystem is not None
            context.filesystem.write(f"{params.value}.txt", f"amount {params.value}{today.file}")
            if today.fails:
                raise LookupError("no such amount")
            return ToolResult.ok(params, message=today.reply)

        def charge(params: Amount, *, context: ToolContext) -> ToolResult[Refunded]:
            today.charged.append(params.value)
            context.session[Amount].append(Amount(-params.value))
            return ToolResult.ok(Refunded(params.value), message="Charged.")

        def once(params: Amount) -> ToolResult[Refunded]:
            today.charged.append(params.value)
            return ToolResult.ok(Refunded(params.value), message="Once.")

        closed = ToolAnnotations(open_world=False)
        tools: list[Tool[Any, Any]] = [
            Tool[Amount, Amount](name="note", description="Note it.", handler=note, annotations=closed),
            Tool[Amount, Refunded](name="charge", description="Charge it.", handler=charge),
            Tool[Amount, Refunded](
                name="once", description="Once.", handler=once, annotations=closed, idempotency=IdempotencyConfig()
            ),
        ]
        if today.extra_tool:
            tools.append(Tool[Amount, Amount](name="other", description="Other.", handler=note))
        task = MarkdownSection(
            title="Task", template=f"{today.words} {request.number}", tools=tools, policies=today.policies
        )
        files = VfsToolsSection(session=session, config=VfsConfig(files={"read.me": "hello"}))
        return Prompt(name="desk", sections=[task, files]), session


SCRIPT = (
    call("note", value=1),
    call("charge", value=2),
    [call("note", value=3), call("once", value=4)],
    call("once", value=4),
    call("read_file", path="read.me"),
    say("Done."),
)
CONFIG = MainLoopConfig(record_types=(Amount, Total, Refunded))


def recorded(store: SqliteRunStore, *turns: Any, run_id: str = "run") -> Any:
    TODAY[0] = Behaviour()
    config = MainLoopConfig(runs=store, record_types=(Amount, Total, Refunded), effect_ledger=store.ledger())
    Desk(ScriptedAdapter(*(turns or SCRIPT)), config=config).execute(Ticket(7), run_id=run_id)
    return store.open(run_id)


def again(run: Any, today: Behaviour | None = None, /, **options: Any) -> ReplayResult:
    TODAY[0] = today or Behaviour()
    return replay(run, lambda adapter: Desk(adapter, config=CONFIG), **options)


def step_of(run: Any, tool: str, n: int = 0) -> int:
    return [step.seq for step in run.calls() if step.tool == tool][n]


def test_effects_are_served_and_the_rest_runs(store: SqliteRunStore) -> None:
    """Open-world and idempotent tools are answered from the record, with what they changed; state is the same."""
    run = recorded(store)
    today = Behaviour()
    result = again(run, today)
    assert kinds(result) == []
    assert (today.charged, today.noted) == ([], [1, 3])
    assert dict(result.capture.served) == {"charge": 1, "once": 2}
    assert "served from the record: charge (1 call)" in str(result)
    last = run.steps()[-1].seq
    whole = store.open("run", types=[Amount, Total, Refunded]).state_at(last)
    assert list(result.session[Amount].all()) == list(whole[Amount].all())
    assert list(result.session[Total].all()) == list(whole[Total].all())
    named = Behaviour()
    assert kinds(again(run, named, run=("once",))) == []
    assert named.charged == [4]
    assert kinds(again(run, named, run=("*",))) == []
    nothing = Behaviour()
    assert kinds(again(run, nothing, calls="serve")) == []
    assert (nothing.charged, nothing.noted) == ([], [])


def test_each_change_of_the_program_is_named(store: SqliteRunStore) -> None:
    """By kind, step and what it is about."""
    run = recorded(store)
    first, second = step_of(run, "note"), step_of(run, "note", 1)
    amount = f"{Amount.__module__}:Amount"
    assert kinds(again(run, Behaviour(reply="Saved."))) == [("reply", first, "note"), ("reply", second, "note")]
    assert kinds(again(run, Behaviour(store=9))) == [("state", first, amount), ("state", second, amount)]
    assert kinds(again(run, Behaviour(file="!"))) == [("files", first, "1.txt"), ("files", second, "3.txt")]
    failing = again(run, Behaviour(fails=True))
    assert [found[:2] for found in kinds(failing)] == [("outcome", first), ("outcome", second)]
    assert "crashed" in failing.divergences[0].present
    charge = step_of(run, "charge")
    assert kinds(again(run, Behaviour(policies=[QuotaPolicy(1, tools=["note", "charge"])])))[0] == (
        "decision", charge, "charge",
    )  # fmt: skip
    turn = next(step.seq for step in run.steps() if step.kind == "turn")
    worded = again(run, Behaviour(words="Please answer"))
    assert kinds(worded) == [("prompt", turn, "prompt")]
    assert "-Answer the ticket. 7" in worded.divergences[0].diff
    assert kinds(again(run, Behaviour(words="x", extra_tool=True))) == [
        ("prompt", turn, "prompt"), ("tools", turn, "tools"),
    ]  # fmt: skip


def test_what_the_model_would_have_read_taints_what_follows(store: SqliteRunStore) -> None:
    """The turn's other calls were decided on before; those of later turns were not."""
    run = recorded(store, [call("note", value=1), call("note", value=2)], call("note", value=3), say("Done."))
    result = again(run, Behaviour(reply="Saved."))
    assert [found.tainted for found in result.divergences] == [False, False, True]
    worded = again(run, Behaviour(words="Other", reply="Saved."))
    assert [found.tainted for found in worded.divergences] == [False, True, True, True]


def test_what_does_not_matter_can_be_ignored(store: SqliteRunStore) -> None:
    """Kinds, paths, or texts that differ each time."""
    run = recorded(store)
    assert kinds(again(run, Behaviour(reply="Saved."), ignore=("reply",))) == []
    assert kinds(again(run, Behaviour(file="!"), ignore=("*.txt",))) == []
    assert kinds(again(run, Behaviour(file="!"), ignore=("files:3.*",))) == [("files", step_of(run, "note"), "1.txt")]
    assert kinds(again(run, Behaviour(reply="Noted 17."), normalise=(r" \d+",))) != []
    assert kinds(again(run, Behaviour(reply="Noted 17."), normalise=(re.compile(r"( \d+)?\."),))) == []
    assert kinds(again(run, Behaviour(reply="NOTED."), normalise=(str.lower,))) == []
    assert kinds(again(run, Behaviour(store=9), normalise=(r'"value": -?\d+',))) == []
    with pytest.raises(TypeError, match="several"):
        again(run, ignore="reply")
    with pytest.raises(TypeError, match="several"):
        again(run, run="note")
    with pytest.raises(ValueError, match="'run' or 'serve'"):
        again(run, calls="skip")


@pytest.mark.parametrize("calls", ["run", "serve"])
def test_a_tool_to_run_that_does_not_exist_is_refused(calls: str, store: SqliteRunStore) -> None:
    """Before anything runs: its real namesake would be served, as if its effect were tested."""
    run = recorded(store)
    today = Behaviour()
    with pytest.raises(ValueError, match=r"no tool 'chrage' .* The tools are: charge, .*note, once") as caught:
        again(run, today, run=("note", "chrage"), calls=calls)
    assert isinstance(caught.value, WinkError)  # which the command and the pytest plugin show without a traceback
    assert (today.noted, today.charged) == ([], [])
    again(run, run=("*", "charge")).assert_same()


def test_assert_same_shows_the_first_five(store: SqliteRunStore) -> None:
    """And how many more there are, and how to see them."""
    run = recorded(store, *[call("note", value=n) for n in range(8)], say("Done."))
    again(run).assert_same()
    with pytest.raises(AssertionError) as caught:
        again(run, Behaviour(reply="Saved.")).assert_same()
    text = str(caught.value)
    assert "goes differently now: 8 divergences." in text
    assert text.count("reply of note") == 5
    assert "... and 3 more." in text
    assert "+Saved." in text


def test_a_call_can_be_made_to_fail(store: SqliteRunStore) -> None:
    """After its work, which is undone; the replay ends at the turn after it."""
    run = recorded(store)
    second = step_of(run, "note", 1)
    result = again(run, faults={second: OSError("disk full")})
    assert result.same
    assert result.call(second).outcome == "crashed"
    assert "disk full" in result.call(second).body["text"]
    assert result.filesystem is not None
    assert result.filesystem.exists("1.txt")
    assert not result.filesystem.exists("3.txt")
    assert Amount(3) not in result.session[Amount].all()
    assert [event.outcome for event in result.session[ToolInvoked].all()][-1] == "succeeded"  # `once`, same turn
    assert sum(step.kind == "turn" for step in result.steps) == 3
    late = again(run, faults={second: "timeout", step_of(run, "charge"): "timeout"})
    assert [late.call(step).outcome for step in (step_of(run, "charge"), second)] == ["timeout", "timeout"]
    with pytest.raises(ValueError, match="step 1, which is not a call"):
        again(run, faults={1: "timeout"})
    for fault in (OSError, "disk full", None, KeyboardInterrupt()):  # which would be another failure than is meant
        with pytest.raises(TypeError, match=f"how step {second} fails"):
            again(run, faults={second: fault})


def test_another_number_of_turns_is_named(store: SqliteRunStore) -> None:
    """A loop that asks once more, and one that ends before its time."""
    run = recorded(store, call("note", value=1), say("Done."))

    class Strict(Desk):
        def prepare(self, request: Ticket) -> Any:
            prompt, session = super().prepare(request)
            from weakincentives import PromptTemplate

            return Prompt(PromptTemplate[Total](ns="tests", key="d", name="desk", sections=prompt.sections)), session

    TODAY[0] = Behaviour()
    result = replay(run, lambda adapter: Strict(adapter, config=CONFIG), ignore=("prompt",))
    assert [found.kind for found in result.divergences] == ["extra"]
    shorter = replay(
        run, lambda adapter: Desk(adapter, config=MainLoopConfig(record_types=(Amount,), budget=_tiny())),
    )  # fmt: skip
    assert shorter.same


def _tiny() -> Any:
    from weakincentives.budget import Budget

    return Budget(max_total_tokens=1_000)


def test_a_folder_gives_way_to_files_in_memory(store: SqliteRunStore, tmp_path: Path) -> None:
    """The real one is not touched; what the record does not hold is named, and can be given."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "kept.txt").write_text("old")
    (folder / "read.txt").write_text("only read")
    (folder / "run.sh").write_text("#!/bin/sh")
    (folder / "run.sh").chmod(0o755)

    def prompt(fs: Filesystem) -> Prompt[Any]:
        files = VfsToolsSection(config=VfsConfig(shared=True))
        task = MarkdownSection(title="Task", template="Work.")
        return Prompt(name="folder", sections=[task, files]).bind(resources={Filesystem: fs})

    turns = (
        call("read_file", path="kept.txt"),
        call("write_file", path="kept.txt", content="new"),
        call("read_file", path="run.sh"),
        call("edit_file", path="run.sh", old_text="sh", new_text="bash"),
        call("read_file", path="read.txt"),
        say("Done."),
    )
    with HostFilesystem(folder) as fs:
        ScriptedAdapter(*turns).evaluate(prompt(fs), Session(), record=store.run("r"))
    (folder / "kept.txt").write_text("later")
    run = store.open("r")
    with HostFilesystem(folder) as fs:
        result = replay(run, prompt(fs))
        assert kinds(result) == [("outcome", step_of(run, "read_file", 2), "read_file")]
        assert result.capture.missing_files == ("read.txt",)
        assert "not on record: the file read.txt" in str(result)
        whole = replay(run, prompt(fs), files={"read.txt": "only read"})
        assert kinds(whole) == []
        assert whole.filesystem is not None
        assert whole.filesystem.read("kept.txt") == "new"
    assert (folder / "kept.txt").read_text() == "later"
    assert stat.S_IMODE((folder / "run.sh").stat().st_mode) == 0o755


def test_a_file_is_replayed_and_left_as_it_is(store: SqliteRunStore, tmp_path: Path) -> None:
    """Nothing is made beside it; masked or not."""
    recorded(store)
    for masked in (True, False):
        path = export_run(store, "run", tmp_path / f"{masked}.wink", masked=masked)
        before = path.read_bytes()
        result = again(path)
        result.assert_same()
        assert result.capture.masked is False  # there was nothing to mask
        assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir() if "wink" in p.name) == ["False.wink", "True.wink"]
    with pytest.raises(RecordError, match="no file"):
        again(tmp_path / "none.wink")
    recorded(store, run_id="second")
    with pytest.raises(RecordError, match="holds 2 runs"):
        again(tmp_path / "runs.db")


def test_a_masked_file_says_what_handlers_got(store: SqliteRunStore, tmp_path: Path) -> None:
    """Texts are compared with credentials masked on both sides, so that a mask alone is no divergence."""

    @dataclass(frozen=True)
    class Key:
        key: str

    def use(params: Key, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok(f"used {params.key}")

    tool = Tool[Key, str](name="use", description="Use it.", handler=use, annotations=ToolAnnotations(open_world=False))
    prompt: Prompt[Any] = Prompt(name="p", sections=[MarkdownSection(title="Task", template="Do.", tools=[tool])])
    token = "ghp_" + "a1B2c3D4e5" * 4
    ScriptedAdapter(call("use", key=token), say("Done.")).evaluate(prompt, Session(), record=store.run("run"))
    result = replay(export_run(store, "run", tmp_path / "run.wink"), prompt)
    result.assert_same()
    assert result.capture.masked
    assert "handlers got [masked]" in str(result)


def test_a_file_can_be_updated(store: SqliteRunStore, tmp_path: Path) -> None:
    """With new replies and changes, never with new turns."""
    recorded(store)
    path = export_run(store, "run", tmp_path / "run.wink")
    today = Behaviour(reply="Saved.", store=2)
    assert again(path, today, update=True).updated
    again(path, today).assert_same()
    assert not again(path, today, update=True).updated
    with SqliteRunStore(path) as copy:
        assert copy.open("run").info.request is not None
    with pytest.raises(ValueError, match="update="):
        again(store.open("run"), today, update=True)


def test_a_request_that_is_not_on_record_is_given(store: SqliteRunStore) -> None:
    """A loop that declares no type of request needs it."""

    class Untyped(MainLoop[Any, str]):
        def prepare(self, request: Any) -> Any:
            task = MarkdownSection(title="Task", template=f"Say {request}.")
            return Prompt(name="untyped", sections=[task]), Session()

    Untyped(ScriptedAdapter(say("Hi.")), config=MainLoopConfig(runs=store)).execute("hi", run_id="u")
    with pytest.raises(NotResumableError, match=r"replay\(..., request=...\)"):
        replay(store.open("u"), Untyped)
    replay(store.open("u"), Untyped, request="hi").assert_same()
    loop = Untyped(ScriptedAdapter())
    replay(store.open("u"), loop, request="hi").assert_same()
    assert isinstance(loop.adapter, ScriptedAdapter)  # the program's own loop stays as it was
    assert kinds(replay(store.open("u"), Untyped, request="ho"))[0][0] == "prompt"


# Random programs.

NUMBERS = st.integers(0, 30)
PARTS: list[st.SearchStrategy[Any]] = [
    NUMBERS.map(lambda n: call("note", value=n)),
    NUMBERS.map(lambda n: call("charge", value=n)),
    st.integers(0, 3).map(lambda n: call("once", value=n)),
    NUMBERS.map(lambda n: call("read_file", path=f"{n}.txt")),
    NUMBERS.map(lambda n: call("delete_file", path=f"{n}.txt")),
    st.just(call("note", value="wrong")),
    st.just(call("no_such_tool")),
]
STEPS = st.lists(st.lists(st.one_of(PARTS), min_size=1, max_size=3), max_size=6)


@settings(max_examples=examples(40), deadline=None)
@given(turns=STEPS)
def test_unchanged_code_has_no_divergence(turns: list[list[Any]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever the program of tools, with state, files and effects."""
    with SqliteRunStore(tmp_path_factory.mktemp("replay") / "runs.db") as store:
        run = recorded(store, *turns, say("Done."))
        for options in ({}, {"calls": "serve"}, {"run": ("once",)}):
            assert kinds(again(run, **options)) == []


@settings(max_examples=examples(40), deadline=None)
@given(turns=STEPS, what=st.sampled_from(["reply", "state", "files"]), chosen=st.integers(0, 100))
def test_a_changed_handler_is_the_only_divergence(
    turns: list[list[Any]], what: str, chosen: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One call does another thing: exactly that one is named, with its kind and step. No other depends on it."""
    turns = [[part for part in turn if part.name != "read_file"] for turn in turns]
    turns = [*filter(None, turns), [call("note", value=99)]]
    with SqliteRunStore(tmp_path_factory.mktemp("replay") / "runs.db") as store:
        run = recorded(store, *turns, say("Done."))
        made = [step for step in run.calls() if step.tool == "note" and step.outcome == "succeeded"]
        changed = made[chosen % len(made)]
        number = made.index(changed)

        class Once(Behaviour):
            """Wrong in one call only."""

            def __getattribute__(self, name: str) -> Any:
                wrong = object.__getattribute__(self, "noted")
                if len(wrong) == number + 1:
                    if name == "reply" and what == "reply":
                        return "Something else."
                    if name == "store" and what == "state":
                        return 1000
                    if name == "file" and what == "files":
                        return "!"
                return object.__getattribute__(self, name)

        found = again(run, Once()).divergences
        assert [(item.kind, item.step) for item in found] == [(what, changed.seq)]


def test_what_is_printed_acts_on_no_terminal(store: SqliteRunStore) -> None:
    """Escape sequences and hidden characters are marked, credentials masked; the divergence itself has the text."""
    run = recorded(store)
    hostile = "\x1b[2J\u202e\x85\u2028\rpassword=hunter2xyz"
    result = again(run, Behaviour(reply=hostile, file=hostile))
    assert result.divergences[0].present.startswith(hostile)
    with pytest.raises(AssertionError) as raised:
        result.assert_same()
    for printed in (str(result), str(raised.value)):
        assert all(line.isprintable() for line in printed.split("\n"))
        assert "hunter2xyz" not in printed
        assert "\\u001b[2J\\u202e" in printed


@pytest.mark.parametrize("present", ["amount 1\n", "amount 1\r\n", "amount 1\r"])
def test_a_difference_of_line_breaks_can_be_seen(store: SqliteRunStore, present: str) -> None:
    """A file that got one at its end is not the same."""
    run = recorded(store, call("note", value=1), say("Done."))
    (found,) = again(run, Behaviour(file=present.removeprefix("amount 1"))).divergences
    assert (found.kind, found.path) == ("files", "1.txt")
    shown = str(found).splitlines()
    assert any(line.strip().startswith("+") for line in shown[4:]), shown
    assert ("\r" in present) == any("\\u000d" in line for line in shown)


def test_what_is_not_a_program_is_named(store: SqliteRunStore) -> None:
    """And not called."""
    run = recorded(store)
    with pytest.raises(TypeError, match=r"takes a MainLoop, its class, .* got list"):
        replay(run, [])  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Verdict:
    verdict: str


@dataclass(frozen=True)
class Rated:
    verdict: str
    stars: int


def test_a_turn_that_is_ignored_is_not_made_up_either(store: SqliteRunStore, tmp_path: Path) -> None:
    """Today's program asks once more, which nobody has answered: the file stays, whatever is ignored."""

    review, rate = [MarkdownSection(title="Task", template=words) for words in ("Review it.", "Rate it.")]
    then = PromptTemplate[Verdict](ns="tests", key="review", sections=[review])
    now = PromptTemplate[Rated](ns="tests", key="review", sections=[rate])
    script = ScriptedAdapter(say('{"verdict": "fine"}'))
    script.evaluate(Prompt(then), Session(), record=store.run("review"))
    path = export_run(store, "review", tmp_path / "review.wink")
    before = path.read_bytes()
    for ignore in ((), ("extra",), ("missing", "extra")):
        result = replay(path, now, ignore=ignore, update=True)
        assert "prompt" in [found.kind for found in result.divergences]
        assert not result.updated
        assert path.read_bytes() == before
