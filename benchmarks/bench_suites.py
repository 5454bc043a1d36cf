"""The suites' tools through the engine, against the engine's plain call."""

from __future__ import annotations

import itertools
import json
import logging
import statistics
from collections.abc import Callable, Iterable
from typing import Any

from weakincentives.contrib.tools import PythonSection, VfsConfig, VfsToolsSection
from weakincentives.prompt import Prompt, Section
from weakincentives.runtime import Session, ToolCall
from weakincentives.runtime.executor import ToolExecutor

from .bench_engine import calling, executor
from .harness import ELAPSED, Row, interleave, ratio

FILES = {f"src/module_{n}.py": f"x = {n}\n" * 10 for n in range(100)}


def alternating(section: Section[Any], tool: str, *arguments: dict[str, Any]) -> Callable[[], object]:
    """Calls of one tool, its three or more arguments in turn: one or two that are repeated are refused."""
    target = ToolExecutor(prompt=Prompt(name="suite", sections=[section]), session=Session())
    ids, texts = itertools.count(), itertools.cycle([json.dumps(one) for one in arguments])

    def call() -> object:
        reply = target.execute(ToolCall(str(next(ids)), tool, next(texts)))
        assert reply.result.success, reply.text
        return reply

    return call


def reading() -> Callable[[], object]:
    vfs = VfsToolsSection(config=VfsConfig(files=FILES))
    return alternating(vfs, "read_file", *({"path": f"src/module_{n}.py"} for n in range(3)))


def writing() -> Callable[[], object]:
    vfs = VfsToolsSection(config=VfsConfig(files=FILES))
    return alternating(vfs, "write_file", *({"path": "src/new.py", "content": f"x = {n}\n"} for n in range(3)))


def python() -> Callable[[], object]:
    section = PythonSection()
    inputs = ({"code": "sum(prices)", "inputs": {"prices": [n, 2, 3]}} for n in range(3))
    return alternating(section, "evaluate_python", *inputs)


def run() -> Iterable[Row]:
    logging.getLogger("weakincentives").setLevel(logging.CRITICAL)
    plain = calling(executor(files=100))
    yield ratio("read_file, in memory / the engine's plain call, files bound", reading(), plain, 3.0)
    yield ratio("write_file, in memory / the engine's plain call, files bound", writing(), plain, 3.0)
    evaluated, plain = interleave(python(), calling(executor()), rounds=15, clock=ELAPSED)  # a worker process
    beyond = statistics.median(evaluated) - statistics.median(plain)
    yield Row("evaluate_python beyond the engine's plain call", beyond * 1e3, 3.0, "ms")
