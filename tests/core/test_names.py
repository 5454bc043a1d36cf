"""Names are found where they are looked for, and are the same object everywhere."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest
from tests.public_names import HOMES, MOST_NAMES, MOST_WITH_SEVERAL_PATHS, SINGLE_HOMES

import weakincentives
from weakincentives import errors
from weakincentives.deprecation import FORMER_NAMES

SOURCE = Path(weakincentives.__file__).parent
ROOT = Path(__file__).parents[2]
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
    if package == "adapters":  # whose `evaluate` is the loop's; endless requests are the business of `MainLoop`
        raised |= raised_in("loop") - {"EndlessRequestsError"}
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


@pytest.mark.slow  # an interpreter
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


@pytest.mark.slow  # an interpreter
def test_a_synchronous_program_does_not_import_asyncio() -> None:
    """With every name at the root used and a call made, asyncio is not imported."""
    code = (
        "import sys, weakincentives as w\n"
        "for name in w.__all__: getattr(w, name)\n"
        "tool = w.Tool[None, None](name='t', description='T.', handler=lambda params, context: w.ToolResult.ok(None))\n"
        "prompt = w.Prompt(name='p', sections=[w.MarkdownSection(title='W', template='', tools=[tool])])\n"
        "with w.ToolExecutor(prompt=prompt, session=w.Session()) as run:\n"
        "    print(run.execute(w.ToolCall('1', 't', '{}')).text, 'asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "OK False\n"


@pytest.mark.parametrize("package", ["prompt", "adapters", "runtime", "session", "resources", "filesystem", "testing"])
def test_what_is_exported_is_there(package: str) -> None:
    """`__all__` is true and names nothing twice."""
    module = importlib.import_module(f"weakincentives.{package}")
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name), name


def test_completion_offers_what_is_imported_on_first_use() -> None:
    """`dir()` of a fresh package lists every public name, also those that were not looked up yet."""
    code = (
        "import importlib\n"
        f"for home in {['', *(f'.{home}' for home in HOMES)]}:\n"
        "    module = importlib.import_module('weakincentives' + home)\n"
        "    print(sorted(set(module.__all__) - set(dir(module))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()) == {"[]"}


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
    taught = set(names) - set(errors.__all__) | set(SINGLE_HOMES.values())
    assert len(taught) <= MOST_NAMES
    assert sum(len(modules) > 1 for modules in names.values()) <= MOST_WITH_SEVERAL_PATHS


@pytest.mark.parametrize("path", SINGLE_HOMES)
def test_what_needs_an_extra_is_in_a_module_of_its_own(path: str) -> None:
    """Read and not imported, since the extra may be missing: the class is defined or imported in that module."""
    body = ast.parse((SOURCE / path).read_bytes()).body
    defined = {node.name for node in body if isinstance(node, ast.ClassDef)}
    imported = {alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert SINGLE_HOMES[path] in defined | imported


def former_names() -> list[tuple[str, str, str]]:
    """Package, name and present home of each name that a package of the documentation exported once."""
    documented()
    return [(package, name, home) for package, homes in FORMER_NAMES.items() for name, home in homes.items()]


def test_a_former_name_can_still_be_imported_with_a_warning() -> None:
    """Until 1.0: the old path gives the object of the new one, and the warning says where that is."""
    assert former_names()
    for package, name, home in former_names():
        module, _, renamed = home.partition(":")
        present = importlib.import_module(f"weakincentives.{module}")
        with pytest.warns(DeprecationWarning, match=f"Import {renamed or name} from weakincentives.{module}") as told:
            found = getattr(importlib.import_module(package), name)
        assert told[0].filename == __file__  # a warning about code of ours would not be shown
        assert found is getattr(present, renamed or name)
        assert name not in importlib.import_module(package).__all__


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    """A table of former names does not answer for other names."""
    for package in {package for package, _, _ in former_names()}:
        with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
            vars(importlib.import_module(package))["__getattr__"]("no_such_name")


def test_using_the_names_at_the_root_imports_nothing_that_few_programs_need() -> None:
    """Databases, process pools, and the parts of pydantic that most types do without: found on first use."""
    program = (
        "import sys, weakincentives as w; [getattr(w, name) for name in w.__all__]\n"
        "from weakincentives import filesystem, prompt, runtime\n"
        "print(*sorted(sys.modules))"
    )
    # A tracer of coverage imports sqlite3 and more into every program.
    untraced = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True, env=untraced
    ).stdout
    unneeded = {
        "ctypes", "email", "importlib.metadata", "multiprocessing", "pickle", "pydantic.fields", "pydantic.networks",
        "pydantic.root_model", "pydantic.types", "sqlite3", "weakincentives.filesystem.disk.filesystem",
        "weakincentives.prompt.overrides", "weakincentives.runtime.tracker",
    }  # fmt: skip
    assert not unneeded.intersection(loaded.split())


def test_the_documentation_uses_no_former_name() -> None:
    """Neither the pages nor the examples."""
    former = {(package, name) for package, name, _ in former_names()}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    for page in pages:
        for package, names in re.findall(r"from (weakincentives[\w.]*) import \(?([\w, \n]+)", page.read_text()):
            used = {(package, name.strip()) for name in re.split(r"[,\n]", names)}
            assert not used & former, page


def classes_of_one_name() -> dict[str, list[str]]:
    """Classes, private ones included, that several modules define, by name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(SOURCE).as_posix())
    return {name: paths for name, paths in found.items() if len(paths) > 1}


@pytest.mark.slow  # parses every module
def test_no_class_takes_the_name_of_another() -> None:
    """A reader who searches for a class finds one."""
    assert classes_of_one_name() == {}
