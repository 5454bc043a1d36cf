"""Names are found where they are looked for, and are the same object everywhere."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import weakincentives
from weakincentives import errors

SOURCE = Path(weakincentives.__file__).parent
ERRORS = set(errors.__all__) - {"Failure"}


def raised_in(package: str) -> set[str]:
    """The errors that its modules make."""
    found: set[str] = set()
    for path in (SOURCE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
                found.add(node.func.id)
    return found


@pytest.mark.parametrize("package", ["prompt", "adapters", "runtime", "session", "resources"])
def test_a_package_exports_the_errors_it_raises(package: str) -> None:
    """`from weakincentives.runtime import LedgerError`, as well as from `weakincentives.errors`."""
    module = importlib.import_module(f"weakincentives.{package}")
    raised = raised_in(package)
    assert raised
    for name in raised:
        assert getattr(module, name) is getattr(errors, name), name
        assert name in module.__all__


@pytest.mark.parametrize("name", sorted(set(weakincentives.__all__) - {"__version__"}))
def test_a_name_of_the_root_is_its_packages_own(name: str) -> None:
    """The root has no objects of its own: each is the one of the package that its documentation names."""
    homes: dict[str, str] = vars(weakincentives)["_HOMES"]
    home = importlib.import_module(f"weakincentives.{homes[name]}")
    assert getattr(weakincentives, name) is getattr(home, name)
    assert name in home.__all__


def test_what_a_first_program_needs_is_at_the_root() -> None:
    """Without knowing where anything is defined, and without importing the engine before it is used."""
    wanted = "ToolExecutor, ToolCall, MainLoop, Filesystem, InMemoryFilesystem, ToolInvoked, Tool, Session, Prompt"
    code = (
        "import sys, weakincentives\n"
        "print([m for m in sys.modules if m.startswith('weakincentives.')])\n"
        f"from weakincentives import {wanted}\n"
        "print(ToolExecutor.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nToolExecutor\n"


@pytest.mark.parametrize("package", ["prompt", "adapters", "runtime", "session", "resources", "filesystem", "testing"])
def test_what_is_exported_is_there(package: str) -> None:
    """`__all__` is true and names nothing twice."""
    module = importlib.import_module(f"weakincentives.{package}")
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name), name
