"""What of Python's syntax asteval does not know, or silently gets wrong: refused before anything runs, with a hint."""

from __future__ import annotations

import ast

_HINTS: dict[str, str] = {
    "Import": "there are no imports; sqrt, log, pi and others are there without a module",
    "ImportFrom": "there are no imports; sqrt, log, pi and others are there without a module",
    "ClassDef": "there are no classes; use dicts and functions",
    "AsyncFunctionDef": "there is no async",
    "Await": "there is no async",
    "AsyncFor": "there is no async",
    "AsyncWith": "there is no async",
    "Yield": "there are no generators; return a list",
    "YieldFrom": "there are no generators; return a list",
    "Global": "there is no global; return values, or change a list or dict",
    "Nonlocal": "there is no nonlocal; return values, or change a list or dict",
    "NamedExpr": "there is no :=; assign on a line of its own",
    "AnnAssign": "there are no annotated assignments; leave the type out",
    "Starred": "there is no * here; name the items one by one, or use indexes and slices",
    "Match": "there is no match; use if and elif",
    "TryStar": "there is no except*; use except",
    "TypeAlias": "there are no types",
    "TemplateStr": "there are no template strings; use f-strings",
}


def unsupported(tree: ast.AST) -> tuple[int | None, str] | None:
    """The first thing that asteval cannot do: its line and what to do instead."""
    found = [
        (node.lineno, hint)
        for node in ast.walk(tree)
        if (hint := _hint(node)) and isinstance(node, ast.stmt | ast.expr)
    ]
    return min(found) if found else None


def _hint(node: ast.AST) -> str | None:
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        return "there are no decorators"
    if isinstance(node, ast.FunctionDef | ast.Lambda) and (node.args.kwonlyargs or node.args.posonlyargs):
        return "there are no keyword-only or positional-only parameters"
    if isinstance(node, ast.Try) and any(
        handler.type and not isinstance(handler.type, ast.Name) for handler in node.handlers
    ):
        return "except takes one name of an exception, or none"
    if isinstance(node, ast.FunctionDef | ast.Lambda) and node.args.vararg and node.args.defaults:
        return "a function has defaults or *args, not both"
    if isinstance(node, ast.Delete) and not all(map(_deletable, node.targets)):
        return "del takes a name, or name[index]; use pop"
    if isinstance(node, ast.Dict) and None in node.keys:
        return "there is no ** in a dict; use update"
    return _HINTS.get(type(node).__name__)


def _deletable(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) or (isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name))


__all__ = ["unsupported"]
