"""Runs of Claude Code on record: the real one, with a server on this machine as the model."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.adapters import claude_program
from tests.adapters.claude_program import Note, adapter_at, prompt_for
from tests.adapters.loopback import LoopbackServer, Status
from tests.conftest import needs

from weakincentives import MainLoop, Session, ToolInvoked
from weakincentives.adapters import history_of
from weakincentives.adapters.claude_agent_sdk import ClaudeAgentSDKAdapter
from weakincentives.cli.main import main
from weakincentives.errors import NotResumableError, PromptEvaluationError, RecordError, RunBusyError
from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    SectionVisibility,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolResult,
)
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.record import RecordedRun, compare, export_run
from weakincentives.testing import call, replay, say

pytestmark = pytest.mark.slow  # a program of 200 MB

WINK = "mcp__wink__"


@pytest.fixture(autouse=True)
def _claude() -> None:
    needs(
        "claude-cli",
        present=find_spec("claude_agent_sdk") is not None and find_spec("mcp") is not None,
        install="pip install 'weakincentives[claude-agent-sdk]'",
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


@pytest.fixture
def files(root: Path) -> Iterator[HostFilesystem]:
    with HostFilesystem(root, watch="scan") as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteRunStore]:
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as made:
        yield made


def keep(text: str, call_id: str) -> Any:
    return call(WINK + "keep", text=text).with_id(call_id)


def write(root: Path, name: str, content: str, call_id: str) -> Any:
    return call("Write", file_path=str(root / name), content=content).with_id(call_id)


def bash(command: str, call_id: str) -> Any:
    return call("Bash", command=command, description="Run").with_id(call_id)


def rows(run: RecordedRun) -> list[tuple[str, str | None, str | None]]:
    """Its steps; what Claude Code says in several pieces counts as one."""
    return [(step.kind, step.call_id, step.outcome) for step in run.steps() if not step.body.get("continues")]


def names(root: Path) -> list[str]:
    return sorted(item.name for item in root.iterdir() if not item.name.startswith("."))


def test_turns_calls_and_native_tools_are_on_record(
    tmp_path: Path, root: Path, files: HostFilesystem, store: SqliteRunStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours and its own, in order, each after the turn that made it; state, files and prompt of every step."""
    session = Session()
    turns = (
        [say("First."), keep("one", "c1"), write(root, "b.txt", "two\n", "n1"), keep("two", "c2")],
        [bash("echo three > c.txt; rm a.txt", "n2"), bash("echo no > d.txt; exit 3", "n3")],
        say("Done."),
    )
    with LoopbackServer(*turns) as server:
        adapter = adapter_at(server.url, tmp_path)
        response = adapter.evaluate(prompt_for(files), session, record=store.run("r"))
    assert response.run_id == "r"
    run = store.open("r", types=[Note])
    assert rows(run) == [
        ("begin", None, None),
        ("prompt", None, None),
        ("turn", None, None),
        ("started", "c1", None),
        ("call", "c1", "succeeded"),
        ("call", "n1", "succeeded"),  # only below the root, so nothing of it could be left after a crash
        ("started", "c2", None),
        ("call", "c2", "succeeded"),
        ("turn", None, None),
        ("started", "n2", None),
        ("call", "n2", "succeeded"),
        ("started", "n3", None),
        ("call", "n3", "failed"),
        ("turn", None, None),
        ("end", None, None),
    ]
    said = [step for step in run.steps() if step.kind == "turn"]
    assert "".join(step.body["text"] for step in said) == "First.Done."
    assert [item[0] for step in said for item in step.body["calls"]] == ["c1", "n1", "c2", "n2", "n3"]
    assert {step.call_id: step.turn for step in run.calls()} == {"c1": 1, "n1": 1, "c2": 1, "n2": 2, "n3": 2}
    at = {step.call_id: step.seq for step in run.calls()}
    for step in said:
        assert all(step.seq < at[item[0]] for item in step.body["calls"])
    assert [step.call_id for step in run.calls() if step.body.get("native")] == ["n1", "n2", "n3"]
    end = run.steps()[-1]
    assert (end.body["text"], end.body["turns"], end.input_tokens) == ("Done.", 3, response.usage.input)
    assert run.info.status == "done"
    assert run.prompt_at(end.seq) == "## 1. Task\n\nDo it."
    assert run.state_at(at["n1"])[Note].all() == (Note("one"),)
    assert run.state_at(end.seq)[Note].all() == session[Note].all() == (Note("one"), Note("two"))
    assert run.files_at(end.seq).read("b.txt") == "two\n"
    changed = run.diff(at["n1"], end.seq).files
    assert (changed.added, changed.removed) == (("c.txt",), ("a.txt",))
    assert store.verify() == []

    assert main(["show", str(store.path), "r"]) == 0
    assert main(["show", str(store.path), "r", str(at["n2"])]) == 0
    assert main(["runs", str(store.path)]) == 0
    shown = capsys.readouterr().out
    assert "Write (native): succeeded" in shown
    assert "added c.txt" in shown
    path = export_run(store, "r", tmp_path / "r.wink")
    with SqliteRunStore(path) as exported:
        found = compare(store.open("r"), exported.open("r"))
    assert [line.is_same for line in found.calls] == [True] * 5
    assert "echo three" in found.calls[3].arguments


def test_one_that_has_ended_gives_its_answer(
    tmp_path: Path, root: Path, files: HostFilesystem, store: SqliteRunStore
) -> None:
    """Claude Code is not started: there is none. Session, response and conversation are as they were."""
    turns = [keep("one", "c1"), write(root, "b.txt", "two\n", "n1")], say("Done.")
    first = Session()
    with LoopbackServer(*turns) as server:
        response = adapter_at(server.url, tmp_path).evaluate(prompt_for(files), first, record=store.run("r"))
    (root / "b.txt").write_text("by another program\n")
    steps = store.open("r").steps()
    session = Session()
    nothing = adapter_at("http://127.0.0.1:9", tmp_path, cli_path=tmp_path / "nothing")
    again = nothing.evaluate(prompt_for(files), session, record=store.run("r"))
    assert (again.text, again.turns, again.usage, again.run_id) == ("Done.", 2, response.usage, "r")
    assert session.session_id == first.session_id
    assert session[Note].all() == (Note("one"),)
    events, before = session[ToolInvoked].all(), first[ToolInvoked].all()
    assert [(e.call_id, e.outcome, e.params, e.changes) for e in events] == [
        (e.call_id, e.outcome, e.params, e.changes) for e in before
    ]
    assert (root / "b.txt").read_text() == "by another program\n"
    assert store.open("r").steps() == steps


def test_it_is_replayed_by_its_calls(tmp_path: Path, root: Path, files: HostFilesystem, store: SqliteRunStore) -> None:
    """Our handlers run in the order of then, between what its own tools did to files; a changed one diverges."""

    def read(params: Note, *, context: ToolContext) -> ToolResult[str]:
        assert context.filesystem is not None
        return ToolResult.ok(context.filesystem.read(params.text))

    def changed(params: Note, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok(str(read(params, context=context).value).upper() if params.text == "b.txt" else "three\n")

    def prompt(handler: Any, fs: Any) -> Prompt[Any]:
        local = ToolAnnotations(open_world=False)
        tool = Tool[Note, str](name="look", description="Look.", handler=handler, annotations=local)
        task = MarkdownSection(title="Task", template="Do it.", tools=[tool])
        return Prompt(name="p", sections=[task]).bind(resources={Filesystem: fs})

    def look(name: str, call_id: str) -> Any:
        return call(WINK + "look", text=name).with_id(call_id)

    turns = (
        [
            write(root, "b.txt", "two\n", "n1"),
            look("b.txt", "c1"),
            bash("echo three > b.txt", "n2"),
            look("b.txt", "c2"),
        ],
        bash("mv b.txt c.txt", "n3"),
        [look("c.txt", "c3"), look("b.txt", "c4")],
        say("Done."),
    )
    with LoopbackServer(*turns) as server:
        adapter_at(server.url, tmp_path).evaluate(prompt(read, files), Session(), record=store.run("r"))
    path = export_run(store, "r", tmp_path / "r.wink")
    for calls in ("run", "serve"):
        result = replay(path, prompt(read, InMemoryFilesystem()), calls=calls)
        result.assert_same()
        assert {"Bash, native": 2, "Write, native": 1}.items() <= dict(result.capture.served).items()
        assert result.filesystem is not None
        assert (result.filesystem.exists("b.txt"), result.filesystem.read("c.txt")) == (False, "three\n")
    result = replay(path, prompt(changed, InMemoryFilesystem()))
    seqs = {step.call_id: step.seq for step in store.open("r").calls()}
    assert [(item.kind, item.step) for item in result.divergences if not item.tainted] == [("reply", seqs["c1"])]
    assert not replay(path, prompt(changed, InMemoryFilesystem()), update=True).updated


class Desk(MainLoop[Note, str]):
    files: HostFilesystem

    def prepare(self, request: Note) -> tuple[Prompt[str], Session]:
        return prompt_for(self.files), Session(bus=self.bus)


def test_a_loop_has_runs_of_it(tmp_path: Path, files: HostFilesystem, store: SqliteRunStore) -> None:
    """`execute` with the id of one that has ended, and `resume`, give the answer; a failed one raises its error."""
    with LoopbackServer(keep("one", "c1"), say("Done."), Status(401)) as server:
        desk = Desk(adapter_at(server.url, tmp_path), config=MainLoopConfig(runs=store))
        desk.files = files
        assert desk.execute(Note("x"), run_id="good")[0].text == "Done."
        with pytest.raises(PromptEvaluationError) as caught:
            desk.execute(Note("x"), run_id="bad")
        asked = len(server.received)
        assert desk.execute(Note("x"), run_id="good")[0].text == "Done."
        assert desk.resume("good")[0].text == "Done."
        with pytest.raises(PromptEvaluationError) as again:
            desk.execute(Note("x"), run_id="bad")
        with pytest.raises(NotResumableError, match="inside Claude Code"):
            desk.resume("bad", retry=True)
        assert len(server.received) == asked
    assert (str(again.value), again.value.phase) == (str(caught.value), "request")
    assert {info.run_id: info.status for info in store.infos()} == {"good": "done", "bad": "failed"}
    assert [step.kind for step in store.open("bad").steps()] == ["begin", "end"]


def test_what_the_evaluation_ends_is_on_record(tmp_path: Path, store: SqliteRunStore) -> None:
    """A call ends it while another one runs: that is cancelled, which is part of what happened, and so is the error."""
    begun = asyncio.Event()

    async def fail(params: Note) -> ToolResult[str]:
        await begun.wait()
        raise PromptEvaluationError(params.text, phase="tool")

    async def wait(params: Note) -> ToolResult[str]:
        begun.set()
        await asyncio.sleep(300)
        return ToolResult.ok(params.text)

    reads = ToolAnnotations(read_only=True)  # so that they overlap
    tools = [
        Tool[Note, str](name="fail", description="Fail.", handler=fail, annotations=reads),
        Tool[Note, str](name="wait", description="Wait.", handler=wait, annotations=reads),
    ]
    prompt = Prompt(name="p", sections=[MarkdownSection(title="Task", template="Do it.", tools=tools)])
    turn = [call(WINK + "fail", text="enough").with_id("c1"), call(WINK + "wait", text="x").with_id("c2")]
    with LoopbackServer(turn, say("Never.")) as server, pytest.raises(PromptEvaluationError, match="enough"):
        ClaudeAgentSDKAdapter(
            env={
                "ANTHROPIC_BASE_URL": server.url,
                "ANTHROPIC_API_KEY": "not-a-key",
                "CLAUDE_CONFIG_DIR": str(tmp_path / "config"),
            }
        ).evaluate(prompt, Session(), record=store.run("r"))
    run = store.open("r")
    assert rows(run)[-2:] == [("call", "c2", "cancelled"), ("end", None, None)]
    assert (run.info.status, run.steps()[-1].body["message"]) == ("failed", "enough")


def test_cancelling_interrupts_it(tmp_path: Path, root: Path, files: HostFilesystem, store: SqliteRunStore) -> None:
    """As everywhere the call under way is undone and the run has no end; but it cannot go on."""
    with LoopbackServer(keep("one", "c1"), bash("echo x > b.txt; sleep 60", "n1")) as server:
        adapter = adapter_at(server.url, tmp_path)

        async def run() -> None:
            made = asyncio.ensure_future(adapter.aevaluate(prompt_for(files), Session(), record=store.run("r")))
            while not (root / "b.txt").exists():  # noqa: ASYNC110 - another program makes it
                await asyncio.sleep(0.02)
            with pytest.raises(RunBusyError):
                await adapter.aevaluate(prompt_for(files), Session(), record=store.run("r"))
            made.cancel()
            await made

        with pytest.raises(asyncio.CancelledError) as caught:
            asyncio.run(run())
        assert history_of(caught.value) is not None
        assert names(root) == ["a.txt"]
        run_on_record = store.open("r")
        assert rows(run_on_record)[-1] == ("started", "n1", None)
        assert [info.run_id for info in store.interrupted()] == ["r"]
        with pytest.raises(NotResumableError, match=r"inside Claude Code.*`wink show`.*another run_id"):
            adapter.evaluate(prompt_for(files), Session(), record=store.run("r"))
    assert store.open("r").steps() == run_on_record.steps()


@pytest.mark.parametrize("which", ["ours", "native"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_a_process_that_ends_in_the_middle_of_a_call(
    tmp_path: Path, root: Path, end: signal.Signals, which: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files are as they were before the call; what had ended before is on record, and the call as one that began."""
    held = root / "held.txt"
    last = (
        call(WINK + "hold", text="x").with_id("last")
        if which == "ours"
        else bash(f"echo x > {held}; sleep 300", "last")
    )
    with LoopbackServer([keep("one", "c1"), write(root, "b.txt", "two\n", "n1")], last) as server:
        command = [sys.executable, claude_program.__file__, str(tmp_path), server.url]
        with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
            late = time.monotonic() + 120
            while not held.exists():
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < late
                time.sleep(0.02)
            process.send_signal(end)
            _, said = process.communicate(timeout=60)
    if end == signal.SIGINT:
        assert "KeyboardInterrupt" in said
        assert names(root) == ["a.txt", "b.txt"]
    with HostFilesystem(root, watch="scan") as files, SqliteRunStore(tmp_path / "runs.db") as store:
        assert names(root) == ["a.txt", "b.txt"]
        run = store.open("r")
        assert rows(run)[-3:] == [("call", "n1", "succeeded"), ("turn", None, None), ("started", "last", None)]
        seq = run.steps()[-1].seq
        assert run.data_at(seq)["__main__:Note"] == [{"text": "one"}]
        assert run.files_at(seq).read("b.txt") == "two\n"
        assert [info.run_id for info in store.interrupted()] == ["r"]
        with pytest.raises(NotResumableError, match="inside Claude Code"):
            adapter_at("http://127.0.0.1:9", tmp_path).evaluate(prompt_for(files), Session(), record=store.run("r"))
        assert store.verify() == []
    assert main(["show", str(tmp_path / "runs.db"), "r"]) == 0
    assert "It cannot go on: its turns happen inside Claude Code" in capsys.readouterr().out


def test_a_native_tool_that_cannot_be_recorded_is_undone(tmp_path: Path, root: Path, files: HostFilesystem) -> None:
    """A file that is larger than the store takes: the call did not happen, and the evaluation ends with the error."""
    session = Session()
    with (
        LoopbackServer(keep("one", "c1"), bash("head -c 200000 /dev/zero > big", "n1"), say("Never.")) as server,
        SqliteRunStore(tmp_path / "small.db", max_file=100_000) as small,
    ):
        with pytest.raises(RecordError, match="max_file"):
            adapter_at(server.url, tmp_path).evaluate(prompt_for(files), session, record=small.run("r"))
        assert rows(small.open("r"))[-1] == ("started", "n1", None)
    assert [(event.call_id, event.outcome) for event in session[ToolInvoked].all()] == [
        ("c1", "succeeded"),
        ("n1", "undone"),
    ]
    assert names(root) == ["a.txt"]


def test_opened_sections_are_a_new_prompt(tmp_path: Path, files: HostFilesystem, store: SqliteRunStore) -> None:
    """What the model is told then, with the tools it may call; and calls that Claude Code answers by itself."""
    tool = Tool[Note, str](name="keep", description="Keep a note.", handler=claude_program.keep)
    hidden = MarkdownSection(
        title="Archive", template="Notes go here.", summary="An archive.", tools=[tool],
        visibility=SectionVisibility.SUMMARY,
    )  # fmt: skip
    turns = (
        call("Nothing", x=1).with_id("c0"),
        call(WINK + "open_sections", section_keys=["archive"], reason="to write").with_id("c1"),
        keep("later", "c2"),
        say("Done."),
    )
    prompt = Prompt(name="p", sections=[hidden]).bind(resources={Filesystem: files})
    with LoopbackServer(*turns) as server:
        adapter_at(server.url, tmp_path).evaluate(prompt, Session(), record=store.run("r"))
    run = store.open("r")
    prompts = [step for step in run.steps() if step.kind == "prompt"]
    assert [step.body["tools"] for step in prompts] == [["open_sections", "read_section"], ["keep"]]
    assert "Notes go here." in (run.prompt_at(run.steps()[-1].seq) or "")
    assert [(step.call_id, step.outcome) for step in run.calls()] == [
        ("c0", "unknown_tool"),
        ("c1", "expanded"),
        ("c2", "succeeded"),
    ]
