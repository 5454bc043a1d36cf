"""The shape of the pipeline: one short file, the order of its stages, and who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import weakincentives.runtime

RUNTIME = Path(weakincentives.runtime.__file__).parent
STAGES = ["admission", "admission", "transactions", "admission", "idempotent", "invoke", "idempotent", "finish"]


ORDER = [
    "parse", "screen", "savepoint", "open_now", "open", "gate", "claim", "start", "invoke", "record", "settle",
    "close", "close",
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
            if names[-1] == "make" and isinstance(item.args[0], ast.Name):  # a tuple type, made quickly
                names[-1] = item.args[0].id

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
    """parse, screen, open, gate, claim, start or invoke, record, settle; what ends earlier is concluded or aborted."""
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

    `settle` takes the savepoint it keeps or undoes, and the text for what went wrong, from `invoke`.
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
    assert taken == [{"internal_error"}]


def test_an_admitted_call_is_made_in_one_place() -> None:
    """Only the gate makes an `Admitted`, so a call that skips it cannot be typed."""
    makers = [path.stem for path in sorted(RUNTIME.rglob("*.py")) if "Admitted" in called(ast.parse(path.read_text()))]
    assert makers == ["admission"]
    assert called(tree("admission")).count("Admitted") == 1


def test_only_dispatch_knows_the_order() -> None:
    """No module but the pipeline and the tracker of native tools calls both the gate and the settling."""
    both = [
        path.stem
        for path in sorted(RUNTIME.rglob("*.py"))
        if {"gate", "settle"} <= set(called(ast.parse(path.read_text())))
    ]
    assert both == ["dispatch", "tracker"]


def test_every_stage_is_a_small_module() -> None:
    """The files to open to follow one call have a thousand lines or so together, and none is large."""
    sizes = {
        name: len((RUNTIME / f"{name}.py").read_text().splitlines())
        for name in ["dispatch", "call", "admission", "transactions", "invoke", "accept", "finish"]
    }
    assert sum(sizes.values()) <= 1_420, sizes
    assert max(sizes.values()) <= 400, sizes
