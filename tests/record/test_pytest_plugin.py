"""A directory of recorded runs is a test suite; where there is none, the plugin costs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weakincentives.runtime import SqliteRunStore
from weakincentives.runtime.record import export_run

DESK = """
from dataclasses import dataclass
from weakincentives import MainLoop, Session
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult

@dataclass(frozen=True)
class Ticket:
    number: int

@dataclass(frozen=True)
class Note:
    text: str

def note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    return ToolResult.ok(params, message="REPLY")

class Desk(MainLoop[Ticket, str]):
    def prepare(self, request: Ticket):
        closed = ToolAnnotations(open_world=False)
        tools = [Tool[Note, Note](name="note", description="Note it.", handler=note, annotations=closed)]
        task = MarkdownSection(title="Task", template="WORDS", tools=tools)
        return Prompt(name="desk", sections=[task]), Session(bus=self.bus)
"""
RECORD = """
import sys
sys.path.insert(0, ".")
from desk import Desk, Ticket
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.testing import ScriptedAdapter, call, say
with SqliteRunStore("runs.db") as store:
    script = ScriptedAdapter(call("note", text="a"), say("Done."))
    Desk(script, config=MainLoopConfig(runs=store)).execute(Ticket(1), run_id="one")
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), *options]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_wink"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A directory with a program, its settings and two recorded runs of it."""
    write(tmp_path)
    subprocess.run([sys.executable, "-c", RECORD], cwd=tmp_path, check=True)
    with SqliteRunStore(tmp_path / "runs.db") as store:
        export_run(store, "one", tmp_path / "one.wink")
        export_run(store, "one", tmp_path / "two.wink", masked=False)
    (tmp_path / "wink.toml").write_text('loop = "desk:Desk"\n')
    return tmp_path


def write(folder: Path, reply: str = "Noted.", words: str = "Answer.") -> None:
    (folder / "desk.py").write_text(DESK.replace("REPLY", reply).replace("WORDS", words))


@pytest.mark.slow
def test_recorded_runs_are_tests(suite: Path) -> None:
    """They pass, or fail with what differs; updating accepts it."""
    passed = run_pytest(suite, "-v")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "one.wink::replay PASSED" in passed.stdout
    assert "2 passed" in passed.stdout
    write(suite, reply="Saved.")
    failed = run_pytest(suite)
    assert failed.returncode == 1
    assert "reply of note" in failed.stdout
    assert "+Saved." in failed.stdout
    assert "Traceback" not in failed.stdout
    before = (suite / "one.wink").read_bytes()
    updated = run_pytest(suite, "--wink-update", "one.wink")
    assert updated.returncode == 0
    assert "one.wink::replay: the file was replaced by the run as it is now." in updated.stdout
    assert (suite / "one.wink").read_bytes() != before
    assert run_pytest(suite, "one.wink").returncode == 0
    assert run_pytest(suite, "two.wink").returncode == 1
    assert sorted(path.name for path in suite.glob("*.wink*")) == ["one.wink", "two.wink"]


@pytest.mark.slow
def test_the_settings_are_heeded(suite: Path) -> None:
    """What is ignored; and a mistake in them is told in one line."""
    write(suite, reply="Saved.", words="Please answer.")
    (suite / "wink.toml").write_text('loop = "desk:Desk"\nignore = ["prompt"]\nnormalise = ["Noted|Saved"]\n')
    assert run_pytest(suite).returncode == 0
    (suite / "wink.toml").write_text('loop = "desk:Desk"\nignored = ["prompt"]\n')
    wrong = run_pytest(suite)
    assert wrong.returncode != 0
    assert "there is no setting 'ignored'" in wrong.stdout + wrong.stderr
    assert "Traceback" not in wrong.stdout
    assert "in _settings" not in wrong.stdout
    for text, said in (
        ('calls = "none"', 'calls is "run" or "serve", not \'none\''),
        ('normalise = ["("]', "'(' is not a regular expression"),
        ("ignore = [1]", "ignore is a list of texts"),
        ("loop", "cannot be read"),
    ):
        (suite / "wink.toml").write_text(f'loop = "desk:Desk"\n{text}\n')
        assert said in run_pytest(suite).stdout
    (suite / "wink.toml").write_text('loop = "desk:Table"\n')
    assert "desk:Table is not there" in run_pytest(suite).stdout
    (suite / "wink.toml").unlink()
    assert run_pytest(suite).returncode == 5  # nothing collected: a recording alone is no test


@pytest.mark.slow
def test_without_a_recording_nothing_is_imported(tmp_path: Path) -> None:
    """The plugin is loaded in every project of the environment."""
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    assert 'pytest_wink' in sys.modules\n"
        "    assert 'weakincentives' not in sys.modules and 'pydantic' not in sys.modules\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout


def test_pytest_finds_the_plugin() -> None:
    """By its entry point, and the wheel has it."""
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"wink": "pytest_wink"}
    assert "src/pytest_wink" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
