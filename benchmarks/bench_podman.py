"""Commands and evaluations in a container through the engine, against podman's own `exec`."""

from __future__ import annotations

import itertools
import json
import logging
import secrets
import statistics
import subprocess
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from weakincentives.contrib.podman import DEFAULT_IMAGE
from weakincentives.contrib.podman.command import environment, podman
from weakincentives.contrib.tools import PodmanSandboxConfig, PodmanSandboxSection
from weakincentives.errors import SandboxError
from weakincentives.prompt import Prompt
from weakincentives.runtime import Session, ToolCall
from weakincentives.runtime.executor import ToolExecutor

from .harness import ELAPSED, Row, interleave, ratio

FILES = {f"src/part_{n // 100}/module_{n}.py": f"x = {n}\n" * 100 for n in range(1000)}
IDS = itertools.count()


def calling(executor: ToolExecutor, tool: str, key: str, texts: Iterable[str]) -> Callable[[], object]:
    arguments = itertools.cycle([json.dumps({key: text}) for text in texts])

    def call() -> object:
        reply = executor.execute(ToolCall(str(next(IDS)), tool, next(arguments)))
        assert reply.result.success, reply.text
        return reply

    return call


@contextmanager
def bare() -> Generator[Callable[[], object]]:
    """What one pays without any of this: `podman exec` of `true` in a container that does nothing else."""
    name = f"wink-bench-{secrets.token_hex(4)}"

    def run(*arguments: str) -> None:
        line = podman("podman", *arguments)
        subprocess.run(line, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, check=True)

    run("run", "-d", "--rm", "--name", name, "--network", "none", "--timeout", "600", DEFAULT_IMAGE, "sleep", "600")
    try:
        yield lambda: run("exec", name, "true")
    finally:
        run("rm", "--force", "--time", "0", name)


def run() -> Iterable[Row]:
    logging.getLogger("weakincentives").setLevel(logging.CRITICAL)
    with PodmanSandboxSection(config=PodmanSandboxConfig(files=FILES)) as section:
        try:
            section.start()
        except SandboxError as error:
            print(f"left out: podman. {error}")
            return
        with (
            ToolExecutor(prompt=Prompt(name="box", sections=[section]), session=Session()) as executor,
            bare() as floor,
        ):
            shell = calling(executor, "shell_execute", "command", ("true", "true ", "true  "))
            yield ratio(
                "shell_execute true, 1,000 files / a bare podman exec", shell, floor, 1.3, rounds=10, clock=ELAPSED
            )
            python = calling(executor, "evaluate_python", "code", ("1 + 1", "1 + 2", "1 + 3"))
            [evaluated] = interleave(python, rounds=20, clock=ELAPSED)
            yield Row("evaluate_python in a container, 1,000 files", statistics.median(evaluated) * 1e3, 50.0, "ms")
    with (
        PodmanSandboxSection() as section,
        ToolExecutor(prompt=Prompt(name="box", sections=[section]), session=Session()) as executor,
    ):
        python = calling(executor, "evaluate_python", "code", ("1 + 1", "1 + 2", "1 + 3"))
        [evaluated] = interleave(python, rounds=20, clock=ELAPSED)
        yield Row("evaluate_python in a container", statistics.median(evaluated) * 1e3, 10.0, "ms")
