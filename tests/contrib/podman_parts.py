"""What the tests of the sandbox share: whether there is a podman that works, and a section with an engine around it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.conftest import needs

from weakincentives.contrib.podman import Container, ContainerSpec, have_image
from weakincentives.contrib.podman.command import environment, podman
from weakincentives.contrib.podman.shell import ShellResult
from weakincentives.contrib.tools import PodmanSandboxConfig, PodmanSandboxSection
from weakincentives.deadlines import Deadline
from weakincentives.errors import SandboxError
from weakincentives.prompt import Prompt
from weakincentives.runtime import Session, ToolCall, ToolReply
from weakincentives.runtime.executor import ToolExecutor


def needs_podman() -> None:
    """Skip, or fail where it is required, unless containers can be started here."""
    problem = _problem()
    install = "apt-get install --no-install-recommends podman runc && wink sandbox image"
    needs("podman", present=problem is None, install=install if problem is None else f"{install} ({problem})")


@cache
def _problem() -> str | None:
    if shutil.which("podman") is None:
        return "no podman"
    try:
        if not have_image():
            return "no image"
        with tempfile.TemporaryDirectory() as folder:
            user = owned(Path(folder))
            container = Container(ContainerSpec(root=folder, user=user, rootless=os.geteuid() != 0))
            try:
                container.start()
            finally:
                container.close()
    except (OSError, SandboxError) as error:
        return str(error)
    return None


def owned(folder: Path) -> tuple[int, int]:
    """Give the folder to the user a container runs as."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 1000, 1000, follow_symlinks=False)
    return 1000, 1000


def containers(*filters: str) -> list[str]:
    """The names of all containers that podman knows."""
    line = podman("podman", "ps", "--all", "--format", "{{.Names}}", *(f"--filter={one}" for one in filters))
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def processes(name: str) -> int:
    """How many processes run in a container, by the kernel's own count."""
    line = podman("podman", "top", name, "pid")
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    return len(done.stdout.split("\n")) - 2


class Sandbox:
    """A section, called as a model calls it."""

    def __init__(self, section: PodmanSandboxSection | None = None, **config: Any) -> None:
        self.section = section or PodmanSandboxSection(config=PodmanSandboxConfig(**config))
        self.session = Session()
        self._prompt = Prompt(name="sandbox", sections=[self.section])
        self.executor = ToolExecutor(prompt=self._prompt, session=self.session)
        self._ids = itertools.count()

    def call(self, tool: str, **arguments: Any) -> ToolReply:
        return self.executor.execute(ToolCall(f"call_{next(self._ids)}", tool, json.dumps(arguments)))

    def sh(self, command: str, **more: Any) -> ToolReply:
        return self.call("shell_execute", command=command, **more)

    def done(self, command: str, **more: Any) -> ShellResult:
        """What came of a command that ended by itself."""
        reply = self.sh(command, **more)
        assert reply.result.success, reply.text
        value: object = reply.result.value
        assert isinstance(value, ShellResult)
        return value

    def ok(self, command: str, **more: Any) -> str:
        """What it said."""
        return self.done(command, **more).stdout

    def fails(self, command: str, **more: Any) -> str:
        reply = self.sh(command, **more)
        assert reply.outcome == "failed", reply.text
        return reply.text

    def python(self, code: str, **more: Any) -> ToolReply:
        return self.call("evaluate_python", code=code, **more)

    def until(self, deadline: Deadline) -> ToolExecutor:
        return ToolExecutor(prompt=self._prompt, session=self.session, deadline=deadline)

    @property
    def root(self) -> Path:
        return Path(self.section.container.spec.root)

    def files(self) -> dict[str, object]:
        """All that is in the workspace, with modes, owners and content; symlinks are not followed."""
        found: dict[str, object] = {}
        for path in sorted(self.root.rglob("*")):
            info = path.lstat()
            content: object = None
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file():
                content = path.read_bytes()
            found[str(path.relative_to(self.root))] = (info.st_mode, info.st_uid, info.st_gid, content)
        return found

    def close(self) -> None:
        self.executor.close()
        self.section.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
