"""What newer interpreters change: lazy annotations, and private parts that may go."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from weakincentives import lazy_modules

pytestmark = pytest.mark.slow  # interpreters

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

PRIVATE = {
    ("event_loop.py", "asyncio.events._get_running_loop"),
    ("runtime/places.py", "sys._current_frames"),
    ("runtime/places.py", "threading._DummyThread"),
    ("signals.py", "_signal"),
    ("contrib/asteval/process.py", "sys._base_executable"),
    ("contrib/podman/image.py", "sys._base_executable"),
}
"""What nothing public does as well; each has a fallback."""

PUBLIC = {"os._exit", "argparse._SubParsersAction", "asyncio._set_running_loop"}
"""Documented or in `__all__` in spite of the name, or named in annotations alone, which nothing evaluates."""


def _imported(tree: ast.AST) -> dict[str, str]:
    """What the names of a module stand for, as far as they come from the standard library."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                (a.asname or a.name).split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "lazy_modules":
            names |= {a.name: vars(lazy_modules)[a.name].__name__ for a in node.names}
    return {name: path for name, path in names.items() if path.split(".")[0] in sys.stdlib_module_names}


def _private_uses(tree: ast.AST) -> Iterator[str]:
    """Every private part of the standard library that a module imports, names, or looks for by its name."""
    names = _imported(tree)
    for path in names.values():
        if any(part.startswith("_") and not part.startswith("__") for part in path.split(".")):
            yield path
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in names:
                yield f"{names[name]}.{attribute}"
            case ast.Call(
                func=ast.Name(id="getattr"), args=[ast.Name(id=name), ast.Constant(value=str(attribute)), *_]
            ):
                yield f"{names.get(name, '')}.{attribute}"
            case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(path))]):
                yield path
            case _:
                pass


def _is_private(use: str) -> bool:
    module, _, name = use.rpartition(".")
    if not name.startswith("_") or name.startswith("__") or use in PUBLIC:
        return False
    return module in sys.modules if module else name in sys.stdlib_module_names


@pytest.mark.slow
def test_private_parts_of_the_interpreter_are_few_and_known() -> None:
    """A private part of the standard library is used only where the list above says so, and all of it is used."""
    package = ROOT / "src" / "weakincentives"
    found = {
        (file.relative_to(package).as_posix(), use)
        for file in SOURCES
        for use in _private_uses(ast.parse(file.read_text()))
        if _is_private(use)
    }
    assert found == PRIVATE


def _reads_annotations(file: Path) -> bool:
    text = file.read_text()
    for node in ast.walk(ast.parse(text)) if "__annotations__" in text else ():
        match node:
            case ast.Attribute(attr="__annotations__", ctx=ast.Load()):
                return True
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value="__annotations__"), *_]):
                return True
            case _:
                pass
    return False


@pytest.mark.slow
def test_nobody_reads_annotations_directly() -> None:
    """From Python 3.14 on looking at `__annotations__` runs users' code, which may raise; see `signatures.py`."""
    files = [*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    assert [file.name for file in files if _reads_annotations(file)] == []
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    assert [page.name for page in pages if "__annotations__" in page.read_text()] == []


WITHOUT = """
import asyncio.events, signal, sys, threading
kept = asyncio.events._get_running_loop, threading._DummyThread
del asyncio.events._get_running_loop, sys._current_frames, sys._base_executable
sys.modules["_signal"] = None
if {all}:
    del threading._DummyThread
import weakincentives.runtime.places as places, weakincentives.signals as signals
asyncio.events._get_running_loop, threading._DummyThread = kept  # asyncio and threading themselves need them
"""

PROGRAMS = {
    "calls are made, undone and interrupted": """
from dataclasses import dataclass
from weakincentives.adapters import ToolExecutor
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolResult
from weakincentives.runtime import Session, ToolCall

@dataclass(frozen=True)
class Note:
    text: str

def handler(params, *, context):
    context.session.dispatch(params)
    if params.text == "interrupt":
        signal.raise_signal(signal.SIGINT)
    return ToolResult.ok(None)

async def waiting(params, *, context):
    await asyncio.sleep(0)
    return handler(params, context=context)

tools = [Tool[Note, None](name=f.__name__, description="Note it.", handler=f) for f in (handler, waiting)]
session = Session()
prompt = Prompt(PromptTemplate(ns="a", key="b", sections=[MarkdownSection(title="A", template="", tools=tools)]))
signal.signal(signal.SIGINT, signal.default_int_handler)
with ToolExecutor(prompt=prompt, session=session) as executor:
    for name in ("handler", "waiting"):
        assert executor.execute(ToolCall("1" + name, name, {"text": "kept"})).success
        try:
            executor.execute(ToolCall("2" + name, name, {"text": "interrupt"}))
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("not interrupted")
    assert asyncio.run(executor.aexecute(ToolCall("3", "waiting", {"text": "kept"}))).success
assert [note.text for note in session[Note].all()] == ["kept"] * 3
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
""",
    "code is evaluated in a process": """
from weakincentives.adapters import ToolExecutor
from weakincentives.contrib.tools import AstevalSection
from weakincentives.prompt import Prompt
from weakincentives.runtime import Session, ToolCall

executor = ToolExecutor(prompt=Prompt(name="a", sections=[AstevalSection()]), session=Session())
assert executor.execute(ToolCall("1", "evaluate_python", {"code": "6 * 7"})).text == "OK\\nValue: 42"
""",
    "where a loop runs, and where none does": """
async def inside():
    return places.running_loop() is asyncio.get_running_loop()
assert places.running_loop() is None
assert asyncio.run(inside())
""",
    "a thread that Python did not start is taken to be alive": """
import _thread
found, done = [], threading.Event()
def begin():
    place = places.Placed()
    place._task = place._loop = None
    place.place_here()
    found.append(place)
    done.set()
_thread.start_new_thread(begin, ())
assert done.wait(60)
assert not found[0].is_orphaned()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("without_all", [True, False], ids=["without all", "with foreign threads"])
def test_private_parts_have_fallbacks(name: str, without_all: bool) -> None:
    """Without the private parts of the interpreter that the engine uses, it does the same."""
    command = [sys.executable, "-c", WITHOUT.format(all=without_all) + PROGRAMS[name]]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
