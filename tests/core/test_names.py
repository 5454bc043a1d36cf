"""Names are found where they are looked for, and are the same object everywhere."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest
from tests.public_names import HOMES, MOST_NAMES, MOST_WITH_SEVERAL_PATHS

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


def documented() -> list[ModuleType]:
    """The modules that documentation may import from: the root, and each home of public names."""
    return [weakincentives, *(importlib.import_module(f"weakincentives.{home}") for home in HOMES)]


def exported() -> dict[str, list[ModuleType]]:
    """The public names, each with the documented modules that export it."""
    found: dict[str, list[ModuleType]] = defaultdict(list)
    for module in documented():
        for name in module.__all__:
            found[name].append(module)
    del found["__version__"]
    return found


def test_a_public_name_has_one_meaning() -> None:
    """No two public classes of one name: wherever a name can be imported from, it is the same object."""
    for name, modules in exported().items():
        assert len({id(getattr(module, name)) for module in modules}) == 1, (name, modules)


def test_a_public_name_has_one_documented_home() -> None:
    """`tests/public_names.py` lists every public name exactly once, below a module that exports it."""
    listed = [name for names in HOMES.values() for name in names.split()]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(exported())
    for home, names in HOMES.items():
        module = importlib.import_module(f"weakincentives.{home}")
        assert set(names.split()) <= set(module.__all__), home


def test_public_names_do_not_become_more() -> None:
    """What a user may have to learn shrinks; see the ratchets in `tests/public_names.py`."""
    names = exported()
    assert len(names) <= MOST_NAMES
    assert sum(len(modules) > 1 for modules in names.values()) <= MOST_WITH_SEVERAL_PATHS


def classes_of_one_name() -> dict[str, list[str]]:
    """Classes without an underscore that several modules define, by name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(SOURCE).as_posix())
    return {name: paths for name, paths in found.items() if len(paths) > 1}


KNOWN_TWINS = {
    *("Answer", "Awaiting", "Binding", "Blocking", "Done", "Entry", "Failure", "Given", "Job", "Limits", "Listing"),
    *("Mark", "Plan", "Savepoints", "Scan", "Shown", "Step", "Tree", "Verdict", "Waiting", "Workspace"),
}
"""A ratchet: names that two modules use for different things. Remove a name here when it has one meaning."""


def test_no_class_takes_the_name_of_another() -> None:
    """A reader who searches for a class finds one; the names that still have two meanings are known."""
    assert set(classes_of_one_name()) <= KNOWN_TWINS
