"""`wink demo`: the maintenance agent, and the check of its own ending."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import needs

from weakincentives._demo.play import play, scripted_model
from weakincentives._demo.project import BROKEN, files_in, repaired
from weakincentives.cli import main
from weakincentives.testing import ScriptedAdapter, call, say

pytestmark = pytest.mark.slow  # programs and containers


@pytest.fixture(autouse=True)
def _temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """The record of a demonstration is left among the temporary files: here in a folder of the test."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_the_demo_is_on_record_and_says_how_to_look_at_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The commands that it prints work as they stand, and nothing else is left behind; as JSON it leaves nothing."""
    assert main(["demo", "--json"]) == 0
    assert list((tmp_path / "tmp").iterdir()) == []
    capsys.readouterr()
    assert main(["demo", "--plain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("  wink ") and "runs.db" in line]
    outputs: list[str] = []
    for command in commands:
        assert main(command[1:]) == 0
        outputs.append(capsys.readouterr().out)
    whole, step, diff = outputs
    assert whole.endswith("Run demo: done.\n")
    assert "Rolled back: 2 files. Nothing was changed." in step
    assert "changed shop/cart.py" in diff
    (folder,) = (tmp_path / "tmp").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in folder.iterdir()) == ["runs.db", "runs.db-owners"]


def test_the_demo_ends_as_it_should(capsys: pytest.CaptureFixture[str]) -> None:
    """The agent is refused, rolled back, successful; everything is verified and the exit code is 0."""
    assert main(["demo", "--plain"]) == 0
    out = capsys.readouterr().out
    assert "REFUSED  write_file(path=shop/discounts.py" in out
    assert "Cannot write to shop/discounts.py without reading it first" in out
    assert "UNDONE   patch_and_test(edits=[3])  [undone: shop/cart.py, shop/discounts.py]" in out
    assert "Rolled back: 2 files. Nothing was changed." in out
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
    place = tmp_path / "place"
    place.mkdir()
    played = play(None, lambda _: None, place)
    assert played.ok
    assert files_in(place / "tea-shop") == repaired()
    assert [path.name for path in place.iterdir()] == ["tea-shop"]


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
    assert len(scripted_model()._turns) == 10
    assert files_differ(BROKEN, repaired()) == {"CHANGELOG.md", "shop/cart.py", "shop/discounts.py"}


def files_differ(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}


def test_the_trace_is_plain_where_rich_is_missing() -> None:
    """Colours are an extra: without it, the demonstration is told in plain lines, also where colours are asked for."""
    code = (
        "import sys; sys.modules['rich.console'] = None; from weakincentives.cli import main; sys.exit(main(['demo']))"
    )
    environment = {**os.environ, "FORCE_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "ok    the plan is completed" in done.stdout
    assert done.stdout.isascii()


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

    with LoopbackServer(*scripted_model()._turns) as server:
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
            assert "UNDONE   add_item(name=milk)  [undone: the Item state]" in out
            assert "put there: milk" in out
