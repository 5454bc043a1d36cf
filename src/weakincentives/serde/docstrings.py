"""Descriptions written as strings below the attributes they describe, where the source is at hand."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import lru_cache

_NONE: Mapping[str, str] = {}


def attribute_docs(cls: type) -> Mapping[str, str]:
    """What the source says of each attribute, inherited ones included; empty where there is no source."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        file = getattr(module, "__file__", None)
        if file is not None:
            docs.update(_docs_in(file).get(base.__qualname__, _NONE))
    return docs


def class_doc(cls: type) -> str | None:
    """The class's own docstring; not the signature that `@dataclass` writes, nor an inherited one."""
    doc = cls.__dict__.get("__doc__")
    if not doc or doc.startswith(f"{cls.__name__}("):
        return None
    return inspect.cleandoc(doc)


@lru_cache(maxsize=1024)
def _docs_in(file: str) -> Mapping[str, Mapping[str, str]]:
    """Attribute docstrings of every class in a file, by the class's qualified name."""
    try:
        with open(file, "rb") as source:  # noqa: PTH123 - the path is a module's, as Python gives it
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return {}
    found: dict[str, Mapping[str, str]] = {}
    _collect(tree, "", found)
    return found


def _collect(node: ast.AST, prefix: str, found: dict[str, Mapping[str, str]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            found[prefix + child.name] = _attributes(child)
            _collect(child, f"{prefix}{child.name}.", found)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            _collect(child, f"{prefix}{child.name}.<locals>.", found)
        elif isinstance(child, ast.stmt):
            _collect(child, prefix, found)


def _attributes(node: ast.ClassDef) -> Mapping[str, str]:
    docs: dict[str, str] = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            docs[statement.target.id] = inspect.cleandoc(following.value.value)
    return docs


__all__ = ["attribute_docs", "class_doc"]
