"""The script that says which dependencies have no wheels, asked about a small index of its own."""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow  # pip, and a server

ROOT = Path(__file__).parents[2]

PROJECT = """
[project]
name = "ours"
dependencies = ["everywhere>=1", "compiled; python_version < '3.15'", "other; python_version >= '3.15'"]
[project.optional-dependencies]
most = ["ours[extra]", "stable[more]>=2"]
linux = ["linuxonly; sys_platform == 'linux'"]
all = ["nowhere"]
"""
PINS = "everywhere==1.0\ncompiled==3.1\nstable==2.0\n"

WHEELS: dict[str, dict[str, list[str]]] = {
    "everywhere": {"everywhere-1.0-py3-none-any.whl": ["deeper>1"], "everywhere-2.0-cp39-cp39-win32.whl": []},
    "deeper": {"deeper-1-py3-none-any.whl": [], "deeper-3-py2.py3-none-any.whl": ["everywhere"]},
    "compiled": {
        f"compiled-3.1-cp3{minor}-cp3{minor}-{system}.whl": []
        for minor in (11, 12, 13, 14)
        for system in ("manylinux_2_28_x86_64", "manylinux2014_aarch64", "macosx_11_0_arm64")
    },
    "other": {"other-1-py3-none-any.whl": []},
    "stable": {
        f"stable-2.0-cp39-abi3-{system}.whl": ["cheap; extra == 'more'", "never; extra == 'less'"]
        for system in ("manylinux_2_17_x86_64.manylinux2014_x86_64", "manylinux_2_17_aarch64", "macosx_11_0_arm64")
    },
    "cheap": {"cheap-1-py3-none-any.whl": []},
    "linuxonly": {
        "linuxonly-1-cp311-abi3-manylinux_2_17_x86_64.whl": [],
        "linuxonly-1-cp311-abi3-manylinux_2_17_aarch64.whl": [],
    },
}


class Quiet(SimpleHTTPRequestHandler):
    """Logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass


def _page(index: Path, name: str, requires_python: str = "&gt;=3.9") -> None:
    folder = index / "simple" / name
    folder.mkdir(parents=True, exist_ok=True)
    links = [
        f'<a href="../../files/{f}#sha256=0" data-requires-python="{requires_python}">{f}</a>' for f in WHEELS[name]
    ]
    (folder / "index.html").write_text(f'<html>{"<br/>".join(links)}<a href="{name}-1.tar.gz">source</a></html>')


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Path, Path, str]]:
    """A project, an index and its address. Half of the wheels have their metadata beside them."""
    project, folder = tmp_path / "project", tmp_path / "index"
    project.mkdir()
    (folder / "files").mkdir(parents=True)
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "constraints.txt").write_text(PINS)
    for name, wheels in WHEELS.items():
        _page(folder, name)
        for number, (file, needs) in enumerate(wheels.items()):
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n" + "".join(
                f"Requires-Dist: {n}\n" for n in needs
            )
            content = io.BytesIO()
            with zipfile.ZipFile(content, "w") as wheel:
                wheel.writestr(f"{name}-1.dist-info/METADATA", text)
            (folder / "files" / file).write_bytes(content.getvalue())
            if number % 2:
                (folder / "files" / f"{file}.metadata").write_text(text)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield project, folder, f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


def check(project: Path, address: str, *options: str) -> tuple[int, str]:
    """Run the script as one does, with pip's own way to name an index."""
    environment = {**os.environ, "PIP_INDEX_URL": address, "PIP_CONFIG_FILE": os.devnull, "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, str(ROOT / "scripts" / "check_wheels.py"), "--root", str(project), *options]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def test_nothing_is_missing(index: tuple[Path, Path, str]) -> None:
    """Pure wheels, stable ABIs and markers count; what needs what is followed, in circles too."""
    project, _, address = index
    assert check(project, address) == (0, "7 packages looked at, 0 without a wheel somewhere\n")


def test_what_is_missing_is_named(index: tuple[Path, Path, str]) -> None:
    """Package, version, Python, system and the extra that needs it; several levels down as well."""
    project, folder, address = index
    (project / "constraints.txt").write_text(PINS.replace("3.1", "3.2"))
    _page(folder, "deeper", "&lt;3.14")
    code, text = check(project, address, "--python", "3.13", "--python", "3.14")
    assert code == 1
    assert text.splitlines() == [
        *(f"compiled==3.2: no wheel for CPython 3.{v} on {s} (needed by core)" for v in (13, 14) for s in SYSTEMS),
        *(f"deeper>1: no wheel for CPython 3.14 on {s} (needed by core)" for s in SYSTEMS),
        "5 packages looked at, 2 without a wheel somewhere",
    ]
    assert check(project, address, "--group", "linux")[0] == 0


SYSTEMS = ("Linux ARM64", "Linux x86-64", "macOS ARM64")


def test_an_index_that_does_not_answer_is_told_from_a_missing_wheel(index: tuple[Path, Path, str]) -> None:
    """Exit code 2, and what went wrong."""
    project, _, address = index
    code, text = check(project, f"{address}/elsewhere")
    assert (code, text.startswith("The index cannot be asked: ")) == (2, True)


def test_a_project_that_the_index_does_not_know_has_no_wheels(index: tuple[Path, Path, str]) -> None:
    """It is a missing wheel like any other, since the index answers for the rest."""
    project, folder, address = index
    (folder / "simple" / "deeper" / "index.html").unlink()
    (folder / "simple" / "deeper").rmdir()
    code, text = check(project, address, "--python", "3.13")
    assert code == 1
    assert "deeper>1: no wheel for CPython 3.13 on Linux x86-64 (needed by core)" in text


def test_a_group_that_does_not_exist_is_not_fine(index: tuple[Path, Path, str]) -> None:
    """Nothing was looked at, so nothing is known; the message names the groups that there are."""
    project, _, address = index
    code, text = check(project, address, "--group", "nosuch")
    assert code == 2
    assert "there is no group nosuch; choose from: core, " in text


IMPORTS = {"pydantic-monty": "pydantic_monty", "claude-agent-sdk": "claude_agent_sdk", "google-re2": "re2"}


_OURS = {"test", "dev", "docs", "all"}
"""Extras for people who work on the project, and the one that names all others."""


def test_every_extra_brings_something_that_is_used() -> None:
    """Each package of the core and of an extra is imported or loaded by its name somewhere."""
    named: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Import(names=names):
                    named |= {alias.name.split(".")[0] for alias in names}
                case ast.ImportFrom(module=str(module), level=0):
                    named.add(module.split(".")[0])
                case ast.Constant(value=str(text)):
                    named.add(text.split(".")[0])
                case _:
                    pass
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    needed = {Requirement(t).name for group, ts in groups.items() if group not in _OURS for t in ts}
    assert {name for name in needed if IMPORTS.get(name, name) not in named} == set()


def test_the_supported_versions_are_the_same_everywhere() -> None:
    """Classifiers, the workflow, the local run and the script name the same versions of Python."""
    versions = ["3.11", "3.12", "3.13", "3.14", "3.15"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c]
    assert named == versions
    listed = ", ".join(f'"{version}"' for version in versions)
    assert f"python: [{listed}]" in (ROOT / ".github/workflows/test.yml").read_text()
    assert f"PYTHONS = ({listed})" in (ROOT / "scripts/check_wheels.py").read_text()
    taken = re.findall(r"\btests_on (3\.\d+)", (ROOT / ".ci/run").read_text())
    assert taken == versions[1:]  # in turn
