"""Whose the folder and the container are: nobody but the process that made them ends them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.contrib.podman_parts import needs_podman

FORKED = """
import os, sys, warnings
from pathlib import Path
from weakincentives.contrib.podman.work import run_command
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
