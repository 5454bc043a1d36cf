"""A build and its tests in a container: what goes wrong leaves no trace, and only what passed is taken out.

The model is a script here, so that the example runs anywhere with podman; an adapter sends the same calls. It needs an
image, once: `wink sandbox image`.
"""

import json
import sys
import tempfile
from pathlib import Path

from weakincentives import Session
from weakincentives.contrib.tools import HostMount, PodmanSandboxConfig, PodmanSandboxSection
from weakincentives.errors import SandboxError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import ToolCall
from weakincentives.runtime.executor import ToolExecutor

PROJECT = {
    "tea.py": "def minutes(cups):\n    return cups + 3\n",
    "test_tea.py": (
        "import unittest\nfrom tea import minutes\n\n\nclass Tea(unittest.TestCase):\n"
        "    def test_two_cups(self):\n        self.assertEqual(minutes(2), 6)\n"
    ),
}

TEST = "python3 -m unittest -q"
BUILD = "mkdir -p build && python3 -m zipfile -c build/tea.zip tea.py && ls build"

DOWNLOAD = 'import urllib.request as u; u.urlopen("http://example.com")'

# What a model would send, one call after the other.
CALLS: list[tuple[str, dict[str, object]]] = [
    ("shell_execute", {"command": TEST}),  # tests that fail are a result like any other
    ("shell_execute", {"command": f"{BUILD} && {TEST}", "check": True}),  # and with check, nothing of it counts
    ("shell_execute", {"command": "sed -i s/6/5/ test_tea.py; rm tea.py; sleep 60", "timeout_seconds": 1.0}),
    ("shell_execute", {"command": f"python3 -c '{DOWNLOAD}' 2>&1 | tail -1"}),
    ("read_file", {"path": "tea.py"}),
    ("edit_file", {"path": "tea.py", "old_text": "cups + 3", "new_text": "cups * 3"}),
    ("shell_execute", {"command": f"{TEST} && {BUILD}", "check": True}),
    (
        "evaluate_python",
        {"code": "import zipfile\nzipfile.ZipFile('build/tea.zip').namelist()", "reads": ["build/tea.zip"]},
    ),
]


def main(folder: Path) -> None:
    project, out = folder / "project", folder / "out"
    project.mkdir()
    for name, content in PROJECT.items():
        (project / name).write_text(content)
    config = PodmanSandboxConfig(mounts=[HostMount(project)], allowed_roots=[folder], memory="512m", timeout=30.0)
    task = MarkdownSection(title="Task", template="Make the tests pass, and build tea.zip.")
    with PodmanSandboxSection(config=config) as sandbox:
        sandbox.start()
        prompt = Prompt(PromptTemplate[None](ns="examples", key="sandboxed-build", sections=[task, sandbox]))
        with ToolExecutor(prompt=prompt, session=Session()) as executor:
            for number, (tool, arguments) in enumerate(CALLS, 1):
                reply = executor.execute(ToolCall(f"call_{number}", tool, json.dumps(arguments)))
                files = ", ".join(sandbox.filesystem.search(""))
                print(f"{number}. {tool}: {reply.text}\n   files: {files}\n")
        print("taken out:", *sandbox.export(out, pattern="build/**"))
    print("the project itself is as it was:", (project / "tea.py").read_text() == PROJECT["tea.py"])


with tempfile.TemporaryDirectory() as temporary:
    try:
        main(Path(temporary))
    except SandboxError as error:
        sys.exit(str(error))
