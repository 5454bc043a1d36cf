"""The examples of the suites run as a user would run them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contrib.podman_parts import needs_podman

EXAMPLES = Path(__file__).parents[2] / "examples"
WINK = "import sys; from weakincentives.cli import main; sys.exit(main())"


def run(*command: str | Path) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow  # a program
def test_file_organiser() -> None:
    """It plans, what fails leaves nothing behind, the plan is done, and the folder changes only with the export."""
    out = run(EXAMPLES / "file_organiser.py")
    assert "failed     move_file: File already exists: invoices/2025-03.txt" in out
    assert "refused    edit_file: Cannot write to todo.txt without reading it first" in out
    assert "Status: completed, 3 of 3 steps done\n- [x] 1. Invoices by month\n    note: Both were" in out
    assert "-- sort the invoices" in out
    assert out.endswith(
        "Now it has: ['invoices/2025-03.txt', 'invoices/2025-04.txt', 'pictures/IMG_0042.jpg', 'todo.txt']\n"
    )


@pytest.mark.slow
def test_file_organiser_works_on_a_copy(tmp_path: Path) -> None:
    """As a loop, `wink` runs and checks it, and the folder is as it was."""
    for name in ("invoice-march.txt", "invoice-april.txt", "IMG_0042.jpg"):
        (tmp_path / name).write_text(f"Invoice {name}\n")
    (tmp_path / "todo.txt").write_text("- sort the invoices\n- call Ana\n")
    target, request = EXAMPLES / "file_organiser.py", json.dumps({"path": str(tmp_path)})
    out = run("-c", WINK, "run", target, "--model", "scripted", "--request", request)
    assert out.startswith("Invoices and pictures have folders of their own")
    checked = run("-c", WINK, "check", target, "--request", request)
    assert checked.count("\nok ") == 1 + 4 + 10, checked
    assert checked.endswith("all is well\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "IMG_0042.jpg", "invoice-april.txt", "invoice-march.txt", "todo.txt"
    ]  # fmt: skip


@pytest.mark.slow  # a program
def test_data_question() -> None:
    """Code that fails leaves no file, code that pries finds nothing, and the last attempt answers."""
    out = run(EXAMPLES / "data_question.py")
    first, second, third, last = out.split("attempt ")[1:]
    assert "No module named 'pandas'" in first
    assert "KeyError" in second
    assert "(report.md does not exist)" in second
    assert "not supported" in third
    assert "Value: 'north'\nWrote: report.md" in last
    assert "- north: 2150.75\n- south: 1900.75" in last


@pytest.mark.slow
def test_sandboxed_build() -> None:
    """What fails or takes too long is undone, nothing is downloaded, and only what was built is taken out."""
    needs_podman()
    out = run(EXAMPLES / "sandboxed_build.py")
    steps = out.split("shell_execute: ")[1:]
    assert steps[0].startswith("Exit code: 1\n")
    assert "The command failed, so what it did is undone" in steps[1]
    assert "did not end within 1 s" in steps[2]
    assert all("files: tea.py, test_tea.py\n" in step for step in steps[:4])
    assert "URLError" in steps[3]
    assert "Ran 1 test" in steps[4]
    assert "Value: ['tea.py']" in out
    assert "taken out: build/tea.zip\nthe project itself is as it was: True" in out
