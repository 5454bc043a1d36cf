"""Nothing that a model, a tool, a file name or an error says acts on the terminal; no encoding makes `wink` fail."""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from weakincentives.adapters import CallFinished, CallStarted, Retrying, SectionsOpened, TextDelta, TurnStarted
from weakincentives.budget import TokenUsage
from weakincentives.cli.commands.run import make_trace
from weakincentives.cli.main import _run, main  # pyright: ignore[reportPrivateUsage]
from weakincentives.cli.rich_trace import RichTrace
from weakincentives.cli.trace import EventLines, JsonTrace, PlainTrace, Trace
from weakincentives.filesystem import FileChanges
from weakincentives.prompt import Prompt
from weakincentives.prompt.changes import Changes
from weakincentives.runtime import Session
from weakincentives.testing import ScriptedAdapter, say

pytestmark = pytest.mark.slow  # programs and containers

HOSTILE = [
    "\x1b]52;c;ZXZpbA==\x07", "\x1b[2J", "\x1bP$qm\x1b\\", "\x9b31m", "\x90q\x9c", "\x85", "\r", "\x08", "\x00", "\x7f",
    "\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\u2028", "\u00ad", "\ud800", "\udfff", "\U000e0041", "\u3164",
]  # fmt: skip
ALL = "".join(HOSTILE)

AGENT = """
from __future__ import annotations

from dataclasses import dataclass

from weakincentives.errors import ToolValidationError
from weakincentives.prompt import MarkdownSection, PromptTemplate, Tool, ToolResult
from weakincentives.testing import call, say

ALL = {text}


@dataclass(frozen=True)
class Word:
    word: str


def echo(params: Word) -> ToolResult[None]:
    return ToolResult.ok(None, ALL + params.word)


def fail(params: Word) -> ToolResult[None]:
    raise RuntimeError(f"{{ALL}} password=hunter2")


def wrong(params: Word) -> ToolResult[None]:
    raise ToolValidationError(ALL)


TOOLS = [
    Tool[Word, None](name=handler.__name__, description="Does it.", handler=handler) for handler in (echo, fail, wrong)
]
AGENT = PromptTemplate(ns="t", key="t", sections=[MarkdownSection(title="T", key="t", template=ALL, tools=TOOLS)])
WORD = ALL.encode("utf-8", "replace").decode()
SCRIPT = [
    call("echo", word=WORD), call("fail", word=WORD), call("wrong", word=WORD), call("no" + ALL, word=WORD),
    say(ALL + " token=s3cr3tVALUE42xyz postgres://app:hunter2@db"),
]
"""


HOW = [["--plain"], ["--json"], ["--plain", "--verbose"]]
COMMANDS = [["tools"], ["tools", "--json"], ["check"], ["run", "--dry-run"]]
ENCODINGS = ["utf-8:strict", "ascii:strict", "latin-1:strict"]

EACH = """
import gc, json, os, sys
import weakincentives.runtime, weakincentives.testing
from weakincentives.cli import main, rich_trace
from weakincentives.cli.commands import check, run, tools
gc.freeze()
for number, arguments in enumerate(json.loads(sys.argv[1])):
    child = os.fork()
    if child == 0:
        for descriptor in (1, 2):
            os.dup2(os.open(f"{number}.{descriptor}", os.O_WRONLY | os.O_CREAT), descriptor)
        sys.argv[1:] = arguments
        sys.exit(main())
    with open(f"{number}.code", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""
"""Runs each of these commands in a process of its own, which need not import everything."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], tuple[int, bytes, bytes]]:
    """What `wink` says of the agent, by the encoding of its streams and the words after the name of the agent."""
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "agent.py").write_text(AGENT.format(text=ascii(ALL)))
    agent = f"{folder / 'agent.py'}:AGENT"
    asked = [["run", "--model", "scripted", *how] for how in HOW] + COMMANDS
    said: dict[tuple[str, ...], tuple[int, bytes, bytes]] = {}
    for encoding in ENCODINGS:
        commands = json.dumps([[one[0], agent, *one[1:]] for one in asked])
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        subprocess.run([sys.executable, "-c", EACH, commands], cwd=folder, env=environment, check=True)
        for number, one in enumerate(asked):
            out, err = ((folder / f"{number}.{descriptor}").read_bytes() for descriptor in (1, 2))
            said[encoding, *one] = int((folder / f"{number}.code").read_text()), out, err
            for name in ("1", "2", "code"):
                (folder / f"{number}.{name}").unlink()
    return said


def hidden(text: str) -> list[str]:
    """The characters that cannot be seen; line breaks and tabs are fine."""
    classes = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return [c for c in text if (unicodedata.category(c) in classes or c == "\u3164") and c not in "\n\t"]


def wink(*arguments: str, encoding: str = "utf-8:strict") -> tuple[int, str]:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([*WINK, *arguments], capture_output=True, env=environment, check=False)
    return done.returncode, done.stdout.decode() + done.stderr.decode()


WINK = [sys.executable, "-c", "import sys; from weakincentives.cli import main; sys.exit(main())"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("how", HOW)
def test_a_run_shows_marks_and_never_fails(shown: Any, how: list[str], encoding: str) -> None:
    """Traces, logs and errors of a run show marks and masks; the answer, when it is piped, is only masked."""
    code, out, err = shown[encoding, "run", "--model", "scripted", *how]
    assert code == 0
    trace = err.decode(encoding.partition(":")[0])
    assert not hidden(trace)
    assert "\\u001b]52;c;" in trace
    for text in (trace, out.decode("utf-8", "replace")):
        assert "hunter2" not in text
        assert "s3cr3tVALUE42xyz" not in text
    if "--json" in how:
        assert all(isinstance(json.loads(line), dict) for line in trace.splitlines())


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_marks(shown: Any, command: list[str], encoding: str) -> None:
    """Commands that look at an agent show marks for what is in its texts."""
    code, out, err = shown[encoding, *command]
    text = out.decode() + err.decode()
    assert code == 0, text
    assert text
    assert not hidden(text)


@pytest.mark.parametrize(
    "arguments",
    [["run", "\x1b]52;c;a\x07.py"], ["nonsense\x1b[2J"], ["run", "a.py", "--\x1b[2J"], ["digest", "\x1b[2J"]],
)  # fmt: skip
def test_wrong_use_is_told_with_marks(arguments: list[str]) -> None:
    """What was typed is repeated with marks, also by the parser of the command line."""
    code, text = wink(*arguments)
    assert code == 2
    assert not hidden(text)


def test_names_of_files_are_shown_with_marks(tmp_path: Path) -> None:
    """A digest names files that hold escape sequences or bytes that are not text."""
    (tmp_path / "a\x1b]52;c;eA==\x07.py").write_text("x = 1\n")
    with suppress(OSError):  # a filesystem that takes only Unicode
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.md")).write_text("# \x1b[2J\u202e\n")
    code, text = wink("digest", str(tmp_path), encoding="ascii:strict")
    assert code == 0, text
    assert not hidden(text)


EVENTS = [
    TurnStarted(1),
    TextDelta(f"{ALL}[bold]x[/nonsense]"),
    CallStarted("1", f"t{ALL}\nok  fake", f'{{"a": "{ALL}", "password": "hunter2"}}'),
    CallFinished(
        "1", f"t{ALL}\nok  fake", "crashed", f"{ALL}\n--- a/x\n+++ b/x{ALL}\n+{ALL}", 0.1,
        Changes(files=FileChanges(added=(f"f{ALL}\nok  fake",))), False,
    ),
    Retrying(f"{ALL} api_key=s3cr3tVALUE42xyz", 1, 0.5),
    SectionsOpened((ALL,)),
]  # fmt: skip


def played(trace: Trace) -> None:
    trace.heading(f"T{ALL}", ALL)
    for event in EVENTS:
        trace.event(event)
    trace.checks(f"c{ALL}", [(ALL, True), (ALL, False)])
    trace.closing([f" wink{ALL}  # {ALL}"])


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("kind", [PlainTrace, JsonTrace, RichTrace])
def test_every_trace_shows_marks(kind: type[PlainTrace | JsonTrace | RichTrace], encoding: str) -> None:
    """Every kind of event, in every kind of trace, on a stream of any encoding that refuses what it cannot write."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    played(kind(stream))
    stream.flush()
    text = stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert not hidden(text)
    assert "\\u001b]52;c;" in text
    assert "hunter2" not in text
    assert "s3cr3tVALUE42xyz" not in text
    assert "\nok  fake" not in text


def test_a_picture_shows_marks() -> None:
    """An SVG is well-formed XML whatever was said, and shows the marks."""
    trace = RichTrace(recording=True)
    played(trace)
    svg = trace.svg(f"<title>{ALL}")
    assert not hidden(svg)
    ET.fromstring(svg)
    assert "\\u001b]52;c;" in svg


def test_text_that_comes_in_pieces_is_masked() -> None:
    """A credential whose pieces come one by one is masked in the JSON trace, too, and no text is lost."""
    stream = io.StringIO()
    trace = JsonTrace(stream)
    text = "word " * 600 + "password=hunter2hunter2 " + "more " * 600
    for at in range(0, len(text), 7):
        trace.event(TextDelta(text[at : at + 7]))
    assert stream.getvalue()  # it is shown while it comes
    trace.event(TurnStarted(2))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert "".join(line["text"] for line in lines if line["kind"] == "text") == text.replace(
        "hunter2hunter2", "[masked]"
    )


def test_colours_can_be_asked_for_and_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    """FORCE_COLOR colours what goes to a file, without a spinner; NO_COLOR and `--plain` count before it."""

    def shown(*, plain: bool = False, **environment: str) -> str:
        for name in ("FORCE_COLOR", "NO_COLOR"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TERM", "dumb")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        stream = io.StringIO()
        trace = make_trace(plain=plain, as_json=False, stream=stream)
        trace.event(TurnStarted(1))
        trace.event(CallStarted("a", "add", "{}"))
        trace.usage(TokenUsage(), 1, 0.1)
        return stream.getvalue()

    coloured = shown(FORCE_COLOR="1")
    assert "\x1b[" in coloured
    assert "turn 1" in coloured
    assert "asking the model" not in coloured  # which a spinner says
    assert "\x1b" not in shown()
    assert "\x1b" not in shown(FORCE_COLOR="")
    assert "\x1b" not in shown(FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b" not in shown(FORCE_COLOR="1", plain=True)


@pytest.mark.parametrize("command", ["check", "run", "digest", "doctor", "ledger list", "state forget", "state clean"])
def test_a_name_that_is_too_long_is_an_error_of_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the system says of a name is said as every other error is, without a traceback."""
    assert main([*command.split(), "a" * 300]) in {1, 2}
    said = capsys.readouterr().err
    assert said.startswith(f"wink {command}: ")
    assert said.count("\n") == 1


def test_an_error_that_no_command_expects_is_masked_and_made_visible(capsys: pytest.CaptureFixture[str]) -> None:
    """Python's own traceback would show the exception as it is."""

    def fail(_: argparse.Namespace) -> int:
        raise RuntimeError(f"{HOSTILE[0]} password=hunter2")

    assert _run(argparse.Namespace(run=fail, command="check")) == 1
    said = capsys.readouterr().err
    assert "RuntimeError: \\u001b]52;" in said
    assert "hunter2" not in said


INSIDE = ("research", "look up")
WITHIN: list[Any] = [
    TurnStarted(1),
    TextDelta("let me ask"),
    CallStarted("c", "research", '{"topic": "outer"}'),
    TurnStarted(1, path=INSIDE[:1]),
    TextDelta("inner ", path=INSIDE[:1]),
    TextDelta("text", path=INSIDE[:1]),
    CallStarted("c", "note", '{"text": "inner"}', path=INSIDE[:1]),
    TextDelta("deep", path=INSIDE),
    CallFinished("c", "note", "succeeded", "Noted.", kept=True, path=INSIDE[:1]),
    CallFinished("c", "research", "succeeded", "Answered.", kept=True),
    TextDelta("outer"),
]


@pytest.mark.parametrize("kind", [PlainTrace, RichTrace])
def test_what_a_sub_agent_does_is_indented(kind: type[PlainTrace | RichTrace]) -> None:
    """Below the call that it works in, each agent's text apart, each call with its own arguments."""
    stream = io.StringIO()
    trace = kind(stream)
    for event in WITHIN:
        trace.event(event)
    trace.usage(TokenUsage(), 1, 0.0)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]

    def indent(text: str) -> int:
        line = next(line for line in lines if text in line)
        return len(line) - len(line.lstrip())

    assert indent("research: turn 1") == 4
    assert indent("inner text") == indent("let me ask") + 4
    assert indent("deep") == indent("let me ask") + 8
    assert indent("note") == indent("topic=outer") + 4
    assert any("note" in line and "text=inner" in line for line in lines)
    assert indent("tokens") == 0


def test_the_lines_of_a_sub_agents_events_have_its_path() -> None:
    """As JSON, too, text of two agents is never one line, and the last line is the run's own."""
    stream, other = io.StringIO(), io.StringIO()
    trace, lines = JsonTrace(stream), EventLines(other)
    for event in WITHIN:
        trace.event(event)
        lines.event(event)
    trace.usage(TokenUsage(), 1, 0.0)
    lines.finished(ScriptedAdapter(say("outer")).evaluate(Prompt(name="p", sections=[]), Session()))
    traced = [json.loads(line) for line in stream.getvalue().splitlines()]
    said = [(one["text"], one.get("path")) for one in traced if one["kind"] == "text"]
    assert said == [("let me ask", None), ("inner text", ["research"]), ("deep", list(INSIDE)), ("outer", None)]
    told = [json.loads(line) for line in other.getvalue().splitlines()]
    said = [(one["text"], one.get("path")) for one in told if one["event"] == "text_delta"]
    assert said == [("let me ask", None), ("inner text", ["research"]), ("deep", list(INSIDE)), ("outer", None)]
    assert (told[-1]["event"], told[-1].get("path")) == ("finished", None)
