"""`wink run --record`, `wink resume`, `wink diff` and `wink fork`: a run that is killed, and what is done with it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from weakincentives import Session
from weakincentives.cli.main import main
from weakincentives.contrib.tools import VfsToolsSection
from weakincentives.prompt import MarkdownSection, Prompt
from weakincentives.runtime import SqliteRunStore
from weakincentives.runtime.record import NewRows, NewRun, Step
from weakincentives.testing import ScriptedAdapter, call, say

KEPT = Path(__file__).parent.parent / "record" / "data" / "runs-1.db"

AGENT = """
import os, signal
from dataclasses import dataclass
from pathlib import Path
from weakincentives.filesystem import Filesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import MainLoop, Session
from weakincentives.testing import call, say

FLAG = Path(__file__).with_name("flag")
LOCAL = ToolAnnotations(open_world=False)

@dataclass(frozen=True)
class Order:
    number: int

@dataclass(frozen=True)
class Nothing:
    pass

def note(params: Order, *, context: ToolContext) -> ToolResult[str]:
    context.session[Order].append(params)
    context.resources.get(Filesystem).write("note.txt", "paid\\n")
    return ToolResult.ok("noted")

def die(params: Nothing, *, context: ToolContext) -> ToolResult[str]:
    if not FLAG.exists():
        FLAG.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return ToolResult.ok("alive")

TOOLS = [
    Tool[Order, str](name="note", description="Note it.", handler=note, annotations=LOCAL),
    Tool[Nothing, str](name="die", description="Die.", handler=die, annotations=LOCAL),
]

class Desk(MainLoop[Order, str]):
    def prepare(self, request: Order) -> tuple[Prompt[str], Session]:
        task = MarkdownSection(title="Task", template=f"Order {request.number}.", tools=TOOLS)
        return Prompt(name="desk", sections=[task]), Session(bus=self.bus)

prompt = Prompt[str](name="desk", sections=[MarkdownSection(title="Task", template="Order.", tools=TOOLS)])
SCRIPT = [say("Done.")] if FLAG.exists() else [[call("note", number=7), call("die")], say("not reached")]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "desk.py").write_text(AGENT)
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def wink(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weakincentives", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


BEGIN = (
    "run",
    "desk.py:Desk",
    "--request",
    '{"number": 7}',
    "--workspace",
    "files",
    "--record",
    "runs.db",
    "--run-id",
    "o-7",
)
RESUME = ("resume", "runs.db", "o-7", "desk.py:Desk", "--workspace", "files", "--model", "scripted")


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_with_one_command(here: Path) -> None:
    """The request is read back, what is on record is not done again, and the answer comes out."""
    assert wink(*BEGIN, "--model", "scripted").returncode == -signal.SIGKILL
    listed = wink("runs", "runs.db", "--interrupted")
    assert "interrupted" in listed.stdout
    assert "wink resume FILE RUN TARGET" in listed.stdout
    went_on = wink(*RESUME)
    assert (went_on.returncode, went_on.stdout) == (0, "Done.\n")
    assert "wink show runs.db o-7" in went_on.stderr
    assert (here / "files" / "note.txt").read_text() == "paid\n"
    with SqliteRunStore("runs.db") as store:
        run = store.open("o-7")
        assert [(step.tool, step.outcome) for step in run.calls()] == [("note", "succeeded"), ("die", "succeeded")]
    again = wink(*RESUME)
    assert (again.returncode, again.stdout) == (0, "Done.\n")


@pytest.mark.slow
def test_run_with_the_same_id_goes_on_too(here: Path) -> None:
    """Also for a prompt, whose request is not on record."""
    for target in (["desk.py:Desk", "--request", '{"number": 7}'], ["desk.py:prompt"]):
        (here / "flag").unlink(missing_ok=True)
        shutil.rmtree(here / "files")
        (here / "files").mkdir()
        more = ("--workspace", "files", "--record", f"{len(target)}.db", "--run-id", "o-7", "--model", "scripted")
        assert wink("run", *target, *more).returncode == -signal.SIGKILL
        went_on = wink("run", *target, *more)
        assert (went_on.returncode, went_on.stdout) == (0, "Done.\n"), went_on.stderr


@pytest.mark.slow
def test_files_that_were_changed_meanwhile_are_named_and_world_says_what_to_do(here: Path) -> None:
    """Without it the command fails and names both ways."""
    assert wink(*BEGIN, "--model", "scripted").returncode == -signal.SIGKILL
    note = here / "files" / "note.txt"
    note.write_text("mine\n")
    shutil.copytree(here, here.with_name("copy"))
    refused = wink(*RESUME)
    assert refused.returncode == 1
    assert "note.txt" in refused.stderr
    assert "--world keep" in refused.stderr
    assert wink(*RESUME, "--world", "keep").returncode == 0
    assert note.read_text() == "mine\n"
    os.chdir(here.with_name("copy"))
    assert wink(*RESUME, "--world", "restore").returncode == 0
    assert Path("files/note.txt").read_text() == "paid\n"


def test_what_cannot_be_resumed_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown run or file, a prompt in place of a loop, an id without a store, another request."""
    assert main(["resume", "none.db", "o-7", "desk.py:Desk"]) == 2
    assert main(["run", "desk.py:prompt", "--run-id", "o-7", "--model", "scripted"]) == 2
    assert "--record FILE" in capsys.readouterr().err
    (here / "flag").touch()
    assert (
        main(["run", "desk.py:Desk", "--request", '{"number": 1}', "--record", "runs.db", "--model", "scripted"]) == 0
    )
    capsys.readouterr()
    assert main(["resume", "runs.db", "o-7", "desk.py:Desk", "--model", "scripted"]) == 2
    assert "there is no run 'o-7'; `wink runs runs.db` lists them" in capsys.readouterr().err
    assert main(["resume", "runs.db", "o-7", "desk.py:prompt", "--model", "scripted"]) == 2
    assert "wink run desk.py:prompt --record" in capsys.readouterr().err
    assert (
        main(["run", "desk.py:Desk", "--record", "none/runs.db", "--request", '{"number": 1}', "--model", "scripted"])
        != 0
    )
    assert not Path("none").exists()


def test_two_steps_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Items of slices and lines of files; for programs as JSON; in both directions."""
    store = str(shutil.copy(KEPT, tmp_path / "runs.db"))
    assert main(["diff", store, "kept", "1", "10"]) == 0
    out = capsys.readouterr().out
    assert "Plan: 0 -> 1 items" in out
    assert "  +a note" in out
    assert main(["diff", store, "kept", "10", "1"]) == 0
    out = capsys.readouterr().out
    assert "Plan: 1 -> 0 items" in out
    assert "removed note.txt\n" in out
    assert "  -a note" in out
    assert main(["diff", store, "kept", "1", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"]["added"] == ["note.txt"]
    assert main(["diff", store, "kept", "2", "2"]) == 0
    assert "the same state and the same files" in capsys.readouterr().out
    assert main(["diff", store, "kept", "1", "99"]) == 2
    assert "has no step 99" in capsys.readouterr().err


def test_a_difference_of_line_breaks_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where that is all."""
    store = str(tmp_path / "runs.db")
    prompt = Prompt(name="p", sections=[MarkdownSection(title="Task", template="Write."), VfsToolsSection()])
    with SqliteRunStore(store) as opened:
        writes = [call("write_file", path="a.txt", content=text, overwrite=True) for text in ("a\n", "a\r\n", "a")]
        ScriptedAdapter(*writes, say("Done.")).evaluate(prompt, Session(), record=opened.run("one"))
        first, second, third = (step.seq for step in opened.open("one").calls())
    assert main(["diff", store, "one", str(first), str(second)]) == 0
    assert "  -a\n  +a\\u000d\n" in capsys.readouterr().out
    assert main(["diff", store, "one", str(first), str(third)]) == 0
    assert capsys.readouterr().out == "changed a.txt\n  @@ -1,2 +1 @@\n   a\n  -\n"


def test_a_run_is_forked_and_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The new one has the first steps and waits to be resumed; a taken name and a step that is not there fail."""
    store = str(shutil.copy(KEPT, tmp_path / "runs.db"))
    assert main(["fork", store, "kept", "5", "--as", "branch"]) == 0
    assert f"wink resume {store} branch TARGET" in capsys.readouterr().out
    assert main(["fork", store, "kept", "4", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["parent"], made["forked_at"]) == ("kept", 4)
    with SqliteRunStore(store) as opened:
        assert [len(opened.open(run_id).steps()) for run_id in ("kept", "branch", made["run_id"])] == [10, 5, 4]
    assert main(["fork", store, "kept", "5", "--as", "branch"]) == 2
    assert "already; choose another name with --as" in capsys.readouterr().err
    assert main(["fork", store, "kept", "99"]) == 2
    assert main(["fork", store, "none", "1"]) == 2


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[2J", "\udcff", "x" * 201])
def test_a_name_that_no_run_can_have_is_wrong_use(here: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes that are not UTF-8 among them; nothing is made."""
    shutil.copy(KEPT, here / "kept.db")
    record = ["--record", "kept.db", "--request", '{"number": 1}', "--model", "scripted"]
    for command in (
        ["run", "desk.py:Desk", "--run-id", name, *record], ["fork", "kept.db", "kept", "4", "--as", name],
        ["show", "kept.db", name], ["resume", "kept.db", name, "desk.py:Desk"],
    ):  # fmt: skip
        assert main(command) == 2
        err = capsys.readouterr().err
        assert "run id" in err or "there is no run" in err
        assert all(line.isprintable() for line in err.splitlines())
    with SqliteRunStore("kept.db") as opened:
        assert [info.run_id for info in opened.infos()] == ["kept"]


def test_of_a_long_item_the_part_that_differs_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a plan with many steps; for programs all of it, on one line."""
    store = str(tmp_path / "runs.db")
    plans: list[Any] = [{"steps": [{"n": n, "done": n < done} for n in range(40)]} for done in (20, 21)]
    steps = [
        Step(seq=1, kind="begin", body={"state": {"slices": [["m:Plan", "state", [0, {}, [[plans[0]]]]]]}}),
        Step(seq=2, kind="turn", body={"state": {"slices": [["m:Plan", "state", [1, {"0": [plans[1]]}, []]]]}}),
    ]
    with SqliteRunStore(store) as opened:
        held = opened.take("plan", NewRun("Desk", "s"))
        held.append(NewRows(steps, status="done"))
        held.release()
    assert main(["diff", store, "plan", "1", "2"]) == 0
    _, gone, come = capsys.readouterr().out.splitlines()
    assert '{"n": 20, "done": false}' in gone
    assert '{"n": 20, "done": true}' in come
    assert max(len(gone), len(come)) < 220
    for command in (["diff", store, "plan", "1", "2"], ["show", store, "plan", "2"]):
        assert main([*command, "--json"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert json.loads(line)["slices"]["m:Plan"]["after"] == [plans[1]]


@pytest.mark.slow
def test_what_was_added_to_a_long_slice_is_found_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also when its items are alike, as those of a log of polls are."""
    store = str(tmp_path / "runs.db")
    added = [[{"x": 1}] for _ in range(20_000)]
    steps = [
        Step(seq=1, kind="begin", body={"state": {"slices": [["m:Log", "log", [0, {}, added]]]}}),
        Step(seq=2, kind="turn", body={"state": {"slices": [["m:Log", "log", [20_000, {}, added]]]}}),
    ]
    with SqliteRunStore(store) as opened:
        held = opened.take("long", NewRun("Desk", "s"))
        held.append(NewRows(steps, status="done"))
        held.release()
    began = time.process_time()
    assert main(["diff", store, "long", "1", "2"]) == 0
    assert time.process_time() - began < 10  # 0.2 s, and 70 s when all items are compared with all
    assert "state m:Log: 20000 -> 40000 items" in capsys.readouterr().out


@pytest.mark.slow
def test_a_resource_that_is_not_on_record_is_accepted_by_name(here: Path) -> None:
    """The refusal names the option, and what to give it."""
    stock = "class Stock:\n    def snapshot(self): ...\n    def restore(self, snapshot): ...\n\n"
    agent = AGENT.replace("class Desk", f"{stock}class Desk")
    agent = agent.replace("sections=[task])", "sections=[task]).bind(resources={Stock: Stock()})")
    (here / "desk.py").write_text(agent)
    assert wink(*BEGIN, "--model", "scripted").returncode == -signal.SIGKILL
    refused = wink(*RESUME)
    assert refused.returncode == 1
    assert "--accept-unrecorded" in refused.stderr
    assert "Stock" in refused.stderr
    went_on = wink(*RESUME, "--accept-unrecorded", "Stock")
    assert (went_on.returncode, went_on.stdout) == (0, "Done.\n"), went_on.stderr


SPARE = """
def spare(params: Order) -> ToolResult[str]:
    return ToolResult.ok("")

TOOLS = [
    Tool[Order, str](name="spare", description="Keeps the class known.", handler=spare),"""


@pytest.mark.slow
def test_a_changed_tool_is_accepted_by_name(here: Path) -> None:
    """Where it cannot read its recorded calls any more."""
    assert wink(*BEGIN, "--model", "scripted").returncode == -signal.SIGKILL
    painted = "@dataclass(frozen=True)\nclass Painted:\n    number: int\n    colour: str\n\n"
    agent = AGENT.replace("def note(params: Order", f"{painted}def note(params: Painted")
    agent = agent.replace("Tool[Order", "Tool[Painted").replace("TOOLS = [", SPARE)
    (here / "desk.py").write_text(agent)
    refused = wink(*RESUME)
    assert refused.returncode == 1, refused.stderr
    assert "--accept-changed" in refused.stderr
    assert "note" in refused.stderr
    went_on = wink(*RESUME, "--accept-changed", "note")
    assert (went_on.returncode, went_on.stdout) == (0, "Done.\n"), went_on.stderr
