"""The shape of the pipeline: one short file, the order of its stages, and who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType

import weakincentives.runtime
from weakincentives import MarkdownSection, Prompt, PromptTemplate, Session, Tool, ToolContext, ToolResult
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.testing import ScriptedAdapter, call, say
from weakincentives.testing.scripted import Call, Say

RUNTIME = Path(weakincentives.runtime.__file__).parent

# The size of one call, to be lowered when it gets smaller.
MAX_FILES, MAX_LINES = 26, 5620
MAX_WALKED_FILES, MAX_HOPS = 28, 70  # 27 and 62 on Python 3.11; later versions report more calls

STAGES = [
    "admission", "transactions", "admission", "idempotent", "invoke", "idempotent", "finish", "finish", "finish",
    "finish",
]  # fmt: skip


ORDER = [
    "parse", "savepoint", "open", "gate", "recall", "invoke", "remember", "accept", "tell", "commit", "finish", "close",
    "close",
]  # fmt: skip


def tree(name: str) -> ast.Module:
    return ast.parse((RUNTIME / f"{name}.py").read_text())


def function(name: str, module: str) -> ast.AsyncFunctionDef | ast.FunctionDef:
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name == name:
            return node
    raise AssertionError(f"{module}.py has no function {name}")


def called(node: ast.AST) -> list[str]:
    """The names of what is called, in the order of the source; arguments before what they are passed to."""
    names: list[str] = []

    def visit(item: ast.AST) -> None:
        for child in ast.iter_child_nodes(item):
            visit(child)
        if isinstance(item, ast.Call):
            names.append(item.func.id if isinstance(item.func, ast.Name) else getattr(item.func, "attr", "?"))

    visit(node)
    return names


def imported(module: str) -> set[str]:
    """The sibling modules a module imports, and the names of all others."""
    found: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom):
            found.add(("." if node.level == 1 else "") + (node.module or ""))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_dispatch_is_short() -> None:
    """The file that holds the order of a call has at most 130 lines, and one function does it."""
    text = (RUNTIME / "dispatch.py").read_text()
    assert len(text.splitlines()) <= 130
    body = function("dispatch", "dispatch")
    assert body.end_lineno is not None
    assert body.end_lineno - body.lineno <= 55


def test_the_stages_come_in_this_order() -> None:
    """parse, open, gate, recall, invoke, remember, accept, tell, commit, finish; other ends are conclude and abort."""
    names = [name for name in called(function("dispatch", "dispatch")) if name in ORDER]
    assert names == ORDER
    assert {"conclude", "abort"} <= set(called(function("dispatch", "dispatch")))


def test_the_docstring_lists_the_stages_and_their_files() -> None:
    """The docstring of the file is the numbered list of stages, each with its file, and the files exist."""
    text = ast.get_docstring(tree("dispatch")) or ""
    for number, name in enumerate(STAGES, 1):
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"{number}. ")]
        assert f"({name}.py)" in line
        assert (RUNTIME / f"{name}.py").exists()


def test_dispatch_neither_logs_nor_knows_providers() -> None:
    """The pipeline imports no logging, no adapters and no metrics."""
    text = (RUNTIME / "dispatch.py").read_text()
    assert not {word for word in ("logging", "logger", "adapters", "json", "metrics") if word in text}


def test_stages_do_not_import_one_another() -> None:
    """A stage knows the values and the world of a call, not the stage before or after it.

    `finish` takes the savepoint it keeps or undoes, and the words for what went wrong, from `invoke`.
    """
    allowed = {"finish": {".invoke", ".transactions"}, "invoke": set[str](), "admission": set[str]()}
    for name, exceptions in allowed.items():
        others = {f".{stage}" for stage in [*STAGES, "dispatch"] if stage != name}
        assert imported(name) & others <= exceptions, name
    taken = [
        {alias.name for alias in node.names}
        for node in ast.walk(tree("finish"))
        if isinstance(node, ast.ImportFrom) and node.module == "invoke"
    ]
    assert taken == [{"internal_error", "interrupted"}]


def test_an_admitted_call_is_made_in_one_place() -> None:
    """Only the gate makes an `Admitted`, so a call that skips it cannot be typed."""
    makers = [path.stem for path in sorted(RUNTIME.rglob("*.py")) if "Admitted" in called(ast.parse(path.read_text()))]
    assert makers == ["admission"]
    assert called(tree("admission")).count("Admitted") == 1


def test_only_dispatch_knows_the_order() -> None:
    """No module but the pipeline and the tracker of native tools calls both the gate and what ends a call."""
    both = [
        path.stem
        for path in sorted(RUNTIME.rglob("*.py"))
        if {"gate", "accept"} <= set(called(ast.parse(path.read_text())))
    ]
    assert both == ["dispatch", "tracker"]


def test_each_value_after_the_handler_is_made_by_its_stage() -> None:
    """A stage needs what the stage before it returns, so that none can be left out; only `finish.py` makes them."""
    for kind in ("Accepted", "Told", "Committed"):
        makers = [path.stem for path in sorted(RUNTIME.rglob("*.py")) if kind in called(ast.parse(path.read_text()))]
        assert makers == ["finish"], kind
    takes = {"tell": "Accepted", "commit": "Told", "finish": "Committed"}
    for stage, kind in takes.items():
        first = function(stage, "finish").args.args[0].annotation
        assert isinstance(first, ast.Name)
        assert first.id == kind


def closure(start: str) -> set[str]:
    """Everything in the package of the engine that a module of it imports, directly or through others."""
    found, open_ends = set[str](), [start]
    while open_ends:
        name = open_ends.pop()
        if name not in found:
            found.add(name)
            open_ends.extend(_siblings(name))
    return found


def _siblings(name: str) -> Iterator[str]:
    package = name.split("/")[:-1]
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.ImportFrom) and node.level and node.level <= len(package) + 1:
            base = [*package[: len(package) + 1 - node.level], *(node.module or "").split(".")]
            base = [part for part in base if part]
            for candidate in ("/".join(base), *("/".join([*base, alias.name]) for alias in node.names)):
                if candidate and (RUNTIME / f"{candidate}.py").exists():
                    yield candidate
                elif candidate and (RUNTIME / candidate / "__init__.py").exists():
                    yield f"{candidate}/__init__"


def test_one_call_fits_into_so_many_files_and_lines() -> None:
    """All that `dispatch` imports within the engine, nothing left out. The figures may only fall."""
    sizes = {name: len((RUNTIME / f"{name}.py").read_text().splitlines()) for name in closure("dispatch")}
    assert len(sizes) <= MAX_FILES, sorted(sizes)
    assert sum(sizes.values()) <= MAX_LINES, sizes
    assert max(sizes.values()) <= 415, sizes


@dataclass(frozen=True)
class Add:
    """Params of the tool that is walked."""

    x: int


def walked_files() -> list[str]:
    """The files of our functions that one call enters, in order, from the model's answer to the next question."""
    package, walked = str(RUNTIME.parent), list[str]()

    def handler(params: Add, *, context: ToolContext) -> ToolResult[int]:
        return ToolResult.ok(params.x)

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(package) and not file.startswith(f"{package}/testing"):
            walked.append(file)

    def begin(_request: object) -> Call:
        asked = call("add", x=3)  # the model's part
        sys.setprofile(profile)
        return asked

    def end(_request: object) -> Say:
        sys.setprofile(before)
        return say("done")

    before = sys.getprofile()
    tool = Tool[Add, int](name="add", description="Add.", handler=handler)
    section = MarkdownSection(title="T", template="x", tools=[tool])
    prompt = Prompt(PromptTemplate[str](ns="a", key="b", sections=[section]))
    try:
        adapter = ScriptedAdapter(call("add", x=1), call("add", x=2), begin, end)
        adapter.evaluate(prompt.bind(resources={Filesystem: InMemoryFilesystem()}), Session())
    finally:
        sys.setprofile(before)
    return walked


def test_one_successful_call_walks_through_so_many_files() -> None:
    """Counted in an interpreter of its own: what other tests left behind is not part of a call. It may only fall."""
    out = subprocess.run([sys.executable, __file__], check=True, capture_output=True, text=True)
    walk = out.stdout.splitlines()
    assert "dispatch.py" in {Path(file).name for file in walk}
    assert len(set(walk)) <= MAX_WALKED_FILES, sorted(set(walk))
    assert sum(one != other for one, other in pairwise(walk)) <= MAX_HOPS


if __name__ == "__main__":
    sys.stdout.write("\n".join(walked_files()))
