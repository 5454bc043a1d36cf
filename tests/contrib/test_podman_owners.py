"""Whose the folder and the container are: only the process that made them ends them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.contrib.podman_parts import needs_podman

from weakincentives.contrib.podman.leftovers import make_folder, sweep_folders
from weakincentives.contrib.tools import PodmanSandboxConfig, PodmanSandboxSection

pytestmark = pytest.mark.slow  # containers

FORKED = """
import os, sys, warnings
from pathlib import Path
from weakincentives.contrib.podman.shell import run_command
from weakincentives.contrib.tools import PodmanSandboxConfig, PodmanSandboxSection

warnings.simplefilter("ignore")
box = PodmanSandboxSection(config=PodmanSandboxConfig(files={{"a.txt": "one"}}))
root = Path(box.container.spec.root)
run_command(box.container, "echo two > b.txt")
child = os.fork()
if child == 0:
    {leaves}
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(sorted(os.listdir(root)), run_command(box.container, "cat a.txt b.txt").stdout)
box.close()
print(root.parent.exists())
"""


@pytest.mark.parametrize(
    "leaves",
    ["sys.exit(0)", "del box; os._exit(0)", "box.close(); os._exit(0)"],
    ids=["exits", "drops it", "closes it"],
)
def test_a_forked_child_leaves_its_parents_files(leaves: str) -> None:
    """A child that was forked and exits, drops or closes the section takes nothing from its parent."""
    needs_podman()
    code = FORKED.format(leaves=leaves)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "['a.txt', 'b.txt'] b'onetwo\\n'\nFalse\n", done.stderr


KILLED = """
import os, signal
from weakincentives.contrib.tools import PodmanSandboxConfig, PodmanSandboxSection
box = PodmanSandboxSection(config=PodmanSandboxConfig(files={"d/a.txt": "one"}))
print(box.container.spec.root, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for temporary files of this test alone."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def left_behind() -> Path:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=60, check=False)
    folder = Path(done.stdout.strip()).parent
    assert (folder / "workspace/d/a.txt").exists(), done.stderr
    return folder


def test_folders_of_the_dead_are_swept(temporary: Path) -> None:
    """The temporary workspace of an owner that was killed is removed; those of living ones and strangers stay."""
    dead, living = left_behind(), make_folder()
    strange, open_to_all = temporary / "wink-sandbox-strange", temporary / "wink-sandbox-open"
    strange.mkdir(0o700)
    open_to_all.mkdir()
    (open_to_all / "owner").write_bytes((dead / "owner").read_bytes())
    (temporary / "wink-sandbox-link").symlink_to(dead)
    assert sweep_folders() == [dead]
    assert not dead.exists()
    assert {path.name for path in temporary.iterdir()} == {
        living.name, "wink-sandbox-strange", "wink-sandbox-open", "wink-sandbox-link",
    }  # fmt: skip
    assert sweep_folders() == []


def test_a_start_sweeps(temporary: Path) -> None:
    """When a container starts, the folders of owners that were killed go with their containers."""
    needs_podman()
    dead = left_behind()
    with PodmanSandboxSection(config=PodmanSandboxConfig(files={"a.txt": "one"})) as box:
        box.start()
        assert not dead.exists()
        assert (Path(box.container.spec.root) / "a.txt").exists()
    assert list(temporary.iterdir()) == []
