"""A random sequence of the sandbox's tools with failures leaves exactly the files of those that succeeded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partialmethod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contrib.podman_parts import Sandbox, needs_podman

from weakincentives.filesystem.disk.syscalls import Syscalls
from weakincentives.prompt import Prompt, PromptTemplate, ToolContext, ToolInvoked, ToolResult
from weakincentives.prompt.read_before_write import SeenFiles
from weakincentives.runtime import Session, ToolCall
from weakincentives.runtime.executor import ToolExecutor

pytestmark = pytest.mark.slow  # containers

PATHS = st.sampled_from(["a.txt", "d/b.txt", "d", "new.txt", "n/m.txt", "link", ".", "../x"])
TEXTS = st.sampled_from(["", "one", "two\n", "tea\n"])
COMMANDS = st.sampled_from(
    [
        "true",
        "echo more >> a.txt",
        "printf one > a.txt",
        "rm -f a.txt; mkdir -p a.txt",
        "rm -rf d; echo file > d",
        "mkdir -p d/e/f; touch d/e/f/g; chmod 700 d/e; chmod 400 d/e/f/g",
        "mv a.txt moved.txt; mv moved.txt n 2>/dev/null",
        "ln -sf /etc/passwd link; ln -sfn d dirlink; ln -f a.txt hard 2>/dev/null",
        "rm -f pipe; mkfifo pipe",
        "find . -mindepth 1 -delete",
        "chmod 711 .; chmod -R u+x d 2>/dev/null; cp -r d copy 2>/dev/null",
        "for n in 1 2 3; do echo $n > n$n; done; cat n1 n2 n3 > all; (sleep 5; echo late > late) &",
        "touch -d 2001-01-01 a.txt d 2>/dev/null",
        "cat a.txt 2>/dev/null || exit 3",
        "test -d d/e || exit 4",
        "echo lost > a.txt; mkdir .wink",
        "echo lost > a.txt; yes",
    ]
)
CODE = st.sampled_from(
    [
        "open('new.txt', 'w').write('from python')",
        "open('new.txt', 'a').write('more\\n')\n1 / 0",
        "import os\nos.system('echo x >> /workspace/a.txt; rm -rf /workspace/d')\n1 / 0",
        "import os\nos.system('echo x >> /workspace/a.txt')",
        "open('n/m.txt', 'w').write(open('a.txt').read())",
    ]
)
CALLS = st.one_of(
    st.tuples(st.just("read_file"), st.fixed_dictionaries({"path": PATHS})),
    st.tuples(
        st.just("write_file"), st.fixed_dictionaries({"path": PATHS, "content": TEXTS, "overwrite": st.booleans()})
    ),
    st.tuples(st.just("edit_file"), st.fixed_dictionaries({"path": PATHS, "old_text": TEXTS, "new_text": TEXTS})),
    st.tuples(st.sampled_from(["copy_file", "move_file"]), st.fixed_dictionaries({"src": PATHS, "dst": PATHS})),
    st.tuples(st.just("delete_file"), st.fixed_dictionaries({"path": PATHS, "recursive": st.booleans()})),
    st.tuples(st.just("shell_execute"), st.fixed_dictionaries({"command": COMMANDS, "check": st.booleans()})),
    st.tuples(
        st.just("shell_execute"),
        st.just({"command": "echo lost > lost; (echo x > y; sleep 9) & sleep 9", "timeout_seconds": 0.2}),
    ),
    st.tuples(
        st.just("evaluate_python"),
        st.fixed_dictionaries(
            {
                "code": CODE,
                "reads": st.lists(st.sampled_from(["a.txt", "new.txt"]), unique=True),
                "writes": st.lists(st.sampled_from(["new.txt", "n/m.txt"]), unique=True),
            }
        ),
    ),
)
STEPS = st.lists(st.tuples(CALLS, st.sampled_from(["", "", "", "policy", "subscriber"])), max_size=8)


class Late:
    """A policy that lets a call run and then fails it."""

    def __init__(self) -> None:
        self.armed = False

    def check(self, tool_name: str, params: Any, context: ToolContext) -> None:
        return None

    def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> None:
        if self.armed:
            raise RuntimeError("refused late")


def run(box: Sandbox, steps: list[Any], *, sabotage: bool) -> list[tuple[bool, Any, Any]]:
    """Whether each step succeeded, the files after it, and what is known of them."""
    session, late = Session(), Late()
    broken: list[str] = []

    def deaf(event: ToolInvoked) -> None:
        if broken and event.success:
            raise RuntimeError("cannot hear")

    session.dispatcher.subscribe(ToolInvoked, deaf)
    prompt = Prompt(PromptTemplate[Any](ns="box", key="box", sections=[box.section], policies=[late]))
    seen: list[tuple[bool, Any, Any]] = []
    with ToolExecutor(prompt=prompt, session=session) as executor:
        for index, ((tool, arguments), failure) in enumerate(steps):
            late.armed = sabotage and failure == "policy"
            broken[:] = ["x"] if sabotage and failure == "subscriber" else []
            reply = executor.execute(ToolCall(f"call_{index}", tool, json.dumps(arguments)))
            assert reply.outcome in {"succeeded", "failed", "refused", "crashed", "undone"}, reply.text
            seen.append((reply.result.success, box.files(), SeenFiles.of(session)))
    assert len(session[ToolInvoked].all()) == len(steps)
    return seen


def start(box: Sandbox) -> None:
    """The same files at the beginning of each example."""
    fs = box.section.filesystem
    for entry in list(fs.list()):
        fs.delete(entry.path, recursive=True)
    fs.write("a.txt", "one\ntwo\n")
    fs.write("d/b.txt", "bee\n")
    box.root.chmod(0o755)


def check(box: Sandbox, steps: list[Any]) -> None:
    start(box)
    before: tuple[Any, Any] = (box.files(), SeenFiles())
    trace = run(box, steps, sabotage=True)
    for success, files, known in trace:
        if not success:
            assert (files, known) == before, "a failed call left a trace"
        before = (files, known)
    kept = [step for step, (success, _, _) in zip(steps, trace, strict=True) if success]
    if any([call for call, _ in kept[n : n + 5]].count(kept[n][0]) == 5 for n in range(len(kept))):
        return  # the fifth identical call in a row is refused
    if any("ln -f a.txt hard" in str(step) for step in kept) and len(kept) < len(steps):
        return  # a file that was restored is a new one: hard links are not kept (docs/filesystem-disk.md)
    start(box)
    alone = run(box, kept, sabotage=False)
    assert all(success for success, _, _ in alone)
    assert box.files() == before[0], "the successful calls alone give other files"


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    needs_podman()
    with Sandbox(output=1000) as made:
        yield made


@settings(max_examples=25)
@given(steps=STEPS)
def test_rollback_is_exact(steps: list[Any], box: Sandbox) -> None:
    """Whatever fails, and however, files and knowledge are those of the calls that succeeded."""
    check(box, steps)


@pytest.mark.torture
@settings(max_examples=1000)
@given(steps=STEPS)
def test_rollback_is_exact_long(steps: list[Any], box: Sandbox) -> None:
    """The same, many times more."""
    check(box, steps)


def test_a_failing_command_walks_the_workspace_once_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once when it begins, and once to tell what changed and to undo it."""
    needs_podman()
    listed = Counter[int]()
    for way in ("names", "stats"):  # the two ways to list a directory

        def count(sys: Syscalls, fd: int, *, list_it: Any) -> Any:
            listed[sys.fstat(fd).st_ino] += 1
            return list_it(sys, fd)

        monkeypatch.setattr(Syscalls, way, partialmethod(count, list_it=getattr(Syscalls, way)))
    with Sandbox(files={f"d{n}/file": "as it was" for n in range(5)}) as box:
        box.ok("true")
        listed.clear()
        text = box.fails("echo changed > d1/file; rm d2/file; echo new > d3/new; exit 1", check=True)
        assert "3 files" in text
        assert [listed[(box.root / f"d{n}").stat().st_ino] for n in range(5)] == [2] * 5
        assert {path.read_text() for path in box.root.glob("*/*")} == {"as it was"}
