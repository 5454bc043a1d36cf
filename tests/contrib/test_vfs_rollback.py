"""A random sequence of file tools with failures leaves exactly the files of those that succeeded."""

from __future__ import annotations

import json
import tempfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples

from weakincentives.contrib.python import MontyBackend
from weakincentives.contrib.tools import PythonSection, VfsConfig, VfsToolsSection
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import Prompt, PromptTemplate, ToolContext, ToolInvoked, ToolResult
from weakincentives.prompt.read_before_write import SeenFiles
from weakincentives.runtime import Session, ToolCall
from weakincentives.runtime.executor import ToolExecutor

START: dict[str, str | bytes] = {"a.txt": "one\ntwo\n", "d/b.txt": "bee\n", "d/e/c.bin": b"\0\1"}

PATHS = st.sampled_from(["a.txt", "d/b.txt", "d/e/c.bin", "d", "d/e", "new.txt", "n/m.txt", ".", "../x", "a.txt/x"])
TEXTS = st.sampled_from(["", "one", "two\n", "bee", "tea\n", "x" * 50])

CALLS = st.one_of(
    st.tuples(st.just("read_file"), st.fixed_dictionaries({"path": PATHS})),
    st.tuples(
        st.just("write_file"), st.fixed_dictionaries({"path": PATHS, "content": TEXTS, "overwrite": st.booleans()})
    ),
    st.tuples(
        st.just("edit_file"),
        st.fixed_dictionaries({"path": PATHS, "old_text": TEXTS, "new_text": TEXTS, "replace_all": st.booleans()}),
    ),
    st.tuples(st.sampled_from(["copy_file", "move_file"]), st.fixed_dictionaries({"src": PATHS, "dst": PATHS})),
    st.tuples(st.just("delete_file"), st.fixed_dictionaries({"path": PATHS, "recursive": st.booleans()})),
)

PYTHON = st.tuples(
    st.just("evaluate_python"),
    st.fixed_dictionaries(
        {
            "code": st.sampled_from(
                [
                    "open('new.txt', 'w').write('from python')",
                    "open('a.txt', 'a').write('more\\n')",
                    "open('new.txt', 'w').write('lost')\nraise ValueError('no')",
                    "open('a.txt', 'w').write('lost')\nopen('n/m.txt', 'w').write('lost')\n1 / 0",
                    "open('n/m.txt', 'w').write(open('a.txt').read())",
                ]
            ),
            "reads": st.lists(st.sampled_from(["a.txt", "new.txt"]), unique=True),
            "writes": st.lists(st.sampled_from(["a.txt", "new.txt", "n/m.txt", "d/b.txt/x"]), unique=True),
        }
    ),
)

STEPS = st.lists(st.tuples(st.one_of(CALLS, PYTHON), st.sampled_from(["", "", "policy", "subscriber"])), max_size=12)

Seen = tuple[bool, Any, Any]
"""Whether a step succeeded, the files after it, and what is known of them."""


class Late:
    """A policy that lets a call run and then fails it."""

    def __init__(self) -> None:
        self.armed = False

    def check(self, tool_name: str, params: Any, context: ToolContext) -> None:
        return None

    def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> None:
        if self.armed:
            raise RuntimeError("refused late")


def state(fs: Filesystem) -> dict[str, bytes | None]:
    return {path: fs.read_bytes(path) if fs.stat(path).kind == "file" else None for path in fs.glob("**")}


def run(vfs: VfsToolsSection, steps: list[Any], backend: MontyBackend, *, sabotage: bool) -> list[Seen]:
    """What was seen after each step; with `sabotage`, some of them fail late."""
    session, late = Session(), Late()
    broken: list[str] = []

    def deaf(event: ToolInvoked) -> None:
        if broken and event.success:
            raise RuntimeError("cannot hear")

    session.dispatcher.subscribe(ToolInvoked, deaf)
    sections = [vfs, PythonSection(backend=backend)]
    prompt = Prompt(PromptTemplate[Any](ns="files", key="files", sections=sections, policies=[late]))
    seen: list[Seen] = []
    with ToolExecutor(prompt=prompt, session=session) as executor:
        for index, ((tool, arguments), failure) in enumerate(steps):
            late.armed = sabotage and failure == "policy"
            broken[:] = ["x"] if sabotage and failure == "subscriber" else []
            reply = executor.execute(ToolCall(f"call_{index}", tool, json.dumps(arguments)))
            assert reply.outcome in {"succeeded", "failed", "refused", "crashed", "undone"}, reply.text
            seen.append((reply.result.success, state(vfs.filesystem), SeenFiles.of(session)))
    assert len(session[ToolInvoked].all()) == len(steps)
    return seen


def fresh(where: str, folder: str) -> VfsToolsSection:
    if where == "memory":
        return VfsToolsSection(config=VfsConfig(files=START))
    vfs = VfsToolsSection(config=VfsConfig(root=folder))
    for path, content in START.items():
        vfs.filesystem.write(path, content)
    return vfs


def check(where: str, steps: list[Any], backend: MontyBackend) -> None:
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        with fresh(where, first) as vfs:
            before: tuple[Any, Any] = (state(vfs.filesystem), SeenFiles())
            trace = run(vfs, steps, backend, sabotage=True)
        for success, files, known in trace:
            if not success:
                assert (files, known) == before, "a failed call left a trace"
            before = (files, known)
        kept = [step for step, (success, _, _) in zip(steps, trace, strict=True) if success]
        with fresh(where, second) as vfs:
            alone = run(vfs, kept, backend, sabotage=False)
            assert all(success for success, _, _ in alone)
            assert state(vfs.filesystem) == before[0], "the successful calls alone give other files"
            assert {*vfs.changes().added, *vfs.changes().changed, *vfs.changes().removed} == differing(
                before[0], START if where == "memory" else {}
            )


def differing(files: dict[str, bytes | None], start: dict[str, str | bytes]) -> set[str]:
    """Which files differ; on disk the start was written through the section, so that all of it is added."""
    then = {path: content if isinstance(content, bytes) else content.encode() for path, content in start.items()}
    now = {path: content for path, content in files.items() if content is not None}
    return {path for path in {*then, *now} if then.get(path) != now.get(path)}


@pytest.fixture(scope="module")
def backend() -> Any:
    made = MontyBackend()
    yield made
    made.close()


@settings(max_examples=examples(150))
@given(steps=STEPS)
def test_in_memory(steps: list[Any], backend: MontyBackend) -> None:
    """In memory, a failed call of any file or Python tool leaves files and knowledge as they were."""
    check("memory", steps, backend)


@settings(max_examples=examples(40))
@given(steps=STEPS)
def test_on_disk(steps: list[Any], backend: MontyBackend) -> None:
    """The same in a real folder."""
    check("disk", steps, backend)


@pytest.mark.torture
@settings(max_examples=5000)
@given(steps=STEPS)
def test_in_memory_long(steps: list[Any], backend: MontyBackend) -> None:
    """The same, many times more."""
    check("memory", steps, backend)


@pytest.mark.torture
@settings(max_examples=1000)
@given(steps=STEPS)
def test_on_disk_long(steps: list[Any], backend: MontyBackend) -> None:
    """The same on disk, many times more."""
    check("disk", steps, backend)


def test_python_without_a_section_of_files() -> None:
    """Python works on whatever `Filesystem` the prompt binds."""
    fs = InMemoryFilesystem({"in.txt": "tea"})
    with PythonSection() as python:
        prompt = Prompt(name="python", sections=[python]).bind(resources={Filesystem: fs})
        with ToolExecutor(prompt=prompt, session=Session()) as executor:
            arguments = {
                "code": "open('out.txt', 'w').write(open('in.txt').read().upper())",
                "reads": ["in.txt"],
                "writes": ["out.txt"],
            }
            assert executor.execute(ToolCall("1", "evaluate_python", json.dumps(arguments))).result.success
    assert fs.read("out.txt") == "TEA"
