"""`wink demo`: the maintenance agent, and the check of its own ending."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.loopback import LoopbackServer
from tests.conftest import needs

from weakincentives._demo import script as demo_script
from weakincentives._demo.play import play
from weakincentives._demo.project import BROKEN, files_in, repaired
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.cli import main
from weakincentives.testing import ScriptedAdapter, call, say

pytestmark = pytest.mark.slow  # programs and containers


def test_the_demo_ends_as_it_should(capsys: pytest.CaptureFixture[str]) -> None:
    """The agent is refused, rolled back, successful; everything is verified and the exit code is 0."""
    assert main(["demo", "--plain"]) == 0
    out = capsys.readouterr().out
    assert "REFUSED  write_file(path=shop/discounts.py" in out
    assert "Cannot write to shop/discounts.py without reading it first" in out
    assert "UNDONE   patch_and_test(edits=[3])  [undone: shop/cart.py, shop/discounts.py]" in out
    assert "Nothing was changed: 2 files were restored." in out
    assert "ok    the tests pass now: 4 tests passed." in out
    assert "ok    the plan is completed" in out
    assert "WRONG" not in out
    assert "What to try next:" in out
    assert out.isascii()


def test_the_demo_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line is an object; one answer for each call, and all checks hold."""
    assert main(["demo", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    calls = [line["call_id"] for line in lines if line["kind"] == "call"]
    answers = [line["call_id"] for line in lines if line["kind"] == "answer"]
    assert calls == answers
    assert len(set(calls)) == len(calls) == 14
    undone = [line for line in lines if line["kind"] == "answer" and line["outcome"] == "failed"]
    assert [line["changes"]["files"] for line in undone] == [["shop/cart.py", "shop/discounts.py"]]
    assert all(line["ok"] for line in lines if line["kind"] == "check")


def test_the_demo_leaves_the_project_repaired(tmp_path: Path) -> None:
    """In a folder that is kept, exactly the repaired project is left, and no journal beside it."""
    played = play(None, lambda _: None, tmp_path)
    assert played.ok
    assert files_in(tmp_path / "tea-shop") == repaired()
    assert [path.name for path in tmp_path.iterdir()] == ["tea-shop"]


@pytest.mark.parametrize(
    ("turns", "wrong"),
    [
        ([say("I did nothing.")], {"the tests pass now"}),
        (
            [
                call("read_file", path="tests/test_cart.py"),
                call("write_file", path="tests/test_cart.py", content="import unittest\n"),
                say("No tests, no failures."),
            ],
            {"the tests pass now", "the tests themselves are untouched"},
        ),
    ],
)
def test_a_model_that_does_not_do_the_job_is_found_out(
    turns: list[Any], wrong: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verification looks at the disk and not at what the model says."""
    played = play(ScriptedAdapter(*turns), lambda _: None)
    failed = {text.partition(":")[0] for text, ok in played.checks if not ok}
    assert wrong <= failed
    assert not played.ok


def test_a_demo_that_goes_wrong_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also an evaluation that raises is told, checked and counted as a failure."""
    from weakincentives._demo.play import play as module

    broken = ScriptedAdapter(call("run_tests"), RuntimeError("the line is dead"))
    monkeypatch.setattr(sys.modules[module.__module__], "scripted_model", lambda: broken)
    assert main(["demo", "--plain"]) == 1
    captured = capsys.readouterr()
    assert "the line is dead" in captured.err
    assert "WRONG the plan is completed" in captured.out
    assert "did not end as it should" in captured.out


def test_the_script_is_not_sound_by_chance() -> None:
    """The script is ten turns long and the project is broken at the beginning."""
    assert len(demo_script.scripted_model()._turns) == 10
    assert files_differ(BROKEN, repaired()) == {"CHANGELOG.md", "shop/cart.py", "shop/discounts.py"}


def files_differ(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}


def test_the_older_demonstrations_are_still_there(capsys: pytest.CaptureFixture[str]) -> None:
    """`wink demo arguments` and `wink demo deployment` show what they did."""
    assert main(["demo", "arguments"]) == 0
    out = capsys.readouterr().out
    assert """| {"error": "Invalid parameters for tool 'search_files'", "details": {"limit": "Expected""" in out
    assert "did you mean 'limit'?" in out
    assert main(["demo", "deployment"]) == 0
    assert "You deploy billing." in capsys.readouterr().out


def test_the_demo_of_arguments_shows_what_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    """Name, description and schema of the tool, and every answer, are those that a server gets, to the letter."""
    from weakincentives._demo.arguments import BAD, GOOD, TOOL
    from weakincentives.prompt import MarkdownSection, Prompt
    from weakincentives.runtime import Session
    from weakincentives.testing.scripted import Call

    assert main(["demo", "arguments"]) == 0
    out = capsys.readouterr().out
    calls = [Call("search_files", text) for text in (*GOOD, *(text for _, text in BAD))]
    prompt = Prompt[Any](name="demo", sections=[MarkdownSection(title="S", template="", tools=[TOOL])])
    with (
        LoopbackServer(*calls, say("Done.")) as server,
        OpenAIAdapter("m", base_url=f"{server.url}/v1", strict=False) as adapter,
    ):
        adapter.evaluate(prompt, Session())
    (tool,) = server.received[0].body["tools"]
    assert f"  name: {tool['function']['name']}\n  description: {tool['function']['description']}\n" in out
    schema = json.dumps(tool["function"]["parameters"], indent=2).replace("\n", "\n    ")
    assert schema in out
    answers = [message["content"] for message in server.received[-1].body["messages"] if message["role"] == "tool"]
    assert len(answers) == len(calls)
    blocks = out.split("\n\n")
    for made, answer in zip(calls, answers, strict=True):
        shown = "".join(f"\n    | {line}" for line in answer.split("\n"))
        (block,) = [block for block in blocks if block.endswith(shown) and block.startswith(f"  {made.arguments}")]
        assert block.partition("\n")[2] == shown.lstrip("\n")


def test_the_picture_is_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--svg` draws the trace in colour into a file, each time the same; the one in the documentation is current."""
    pytest.importorskip("rich")
    file = tmp_path / "demo.svg"
    assert main(["demo", "--svg", str(file)]) == 0
    text = file.read_text()
    assert text.startswith("<svg")
    assert "patch_and_test" in text
    assert str(tmp_path) not in text
    drawn = Path(__file__).parents[2] / "docs" / "images" / "demo.svg"
    assert drawn.read_text() == text, "draw it anew: wink demo --svg docs/images/demo.svg"
    assert "drawn into" in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`wink demo | head -1` ends quietly."""
    program = f"{sys.executable} -c 'from weakincentives.cli import main; raise SystemExit(main())' demo | head -1"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "WINK: an agent repairs a broken project\n"
    assert done.stderr == ""


@pytest.mark.timing
def test_the_demo_is_quick() -> None:
    """It takes less than 3 s of one processor, the start of the interpreter and of the project's tests included."""
    program = [sys.executable, "-c", "from weakincentives.cli import main; raise SystemExit(main())", "demo", "--plain"]
    before = os.times()
    subprocess.run(program, capture_output=True, check=True)
    after = os.times()
    took = after.children_user + after.children_system - before.children_user - before.children_system
    assert took < 3


@pytest.mark.parametrize(("package", "variable", "path"), [("openai", "OPENAI", "/v1"), ("anthropic", "ANTHROPIC", "")])
def test_the_demo_with_a_providers_real_client(
    package: str, variable: str, path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--model openai:NAME` and `anthropic:NAME` do the same job through the provider's own package, with its usage."""
    present = importlib.util.find_spec(package) is not None
    needs(package, present=present, install=f"pip install 'weakincentives[{package}]'")
    from tests.adapters.loopback import LoopbackServer

    with LoopbackServer(*demo_script.scripted_model()._turns) as server:
        monkeypatch.setenv(f"{variable}_API_KEY", "none")
        monkeypatch.setenv(f"{variable}_BASE_URL", f"{server.url}{path}")
        assert main(["demo", "--plain", "--model", f"{package}:some-model"]) == 0
        server.assert_complete()
    out = capsys.readouterr().out
    assert "REFUSED  write_file" in out
    assert "UNDONE   patch_and_test" in out
    assert "ok    the tests pass now: 4 tests passed." in out
    assert "tokens in," in out


def test_the_errand_for_small_models(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--model local` gets a smaller job; a model that repeats itself is undone, and one that never ends is stopped."""
    from weakincentives.cli import models

    calm = ScriptedAdapter(
        call("add_item", name="milk"), call("add_item", name="milk"), call("read_list"), say("Done.")
    )
    restless = ScriptedAdapter(*[call("add_item", name=f"tea {number}") for number in range(9)], max_turns=8)
    for adapter in (calm, restless):

        def make_adapter(_: str, made: ScriptedAdapter = adapter, **options: Any) -> ScriptedAdapter:
            return made

        monkeypatch.setattr(models, "make_adapter", make_adapter)
        assert main(["demo", "--plain", "--model", "local"]) == 0
        out = capsys.readouterr().out
        assert "WRONG" not in out
        assert "a small model runs an errand" in out
        if adapter is calm:
            assert "UNDONE   add_item(name=milk)  [undone: the item]" in out
            assert "put there: milk" in out
