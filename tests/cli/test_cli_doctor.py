"""`wink doctor`: what a machine has and lacks, and how to get it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from weakincentives.cli import main
from weakincentives.cli.commands.doctor import EXTRAS, extras

pytestmark = pytest.mark.slow  # a process for each test

ROOT = Path(__file__).parents[2]
SECRET = "sk-proj-0123456789abcdefghijklmnop"
DSN = "http://user:hunter2xyz@127.0.0.1:8000/v1"


def doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it as a stranger would: a process of its own, with an environment of its own."""
    base = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    line = [sys.executable, "-m", "weakincentives", "doctor", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, env={**base, **environment})


def found(*arguments: str, **environment: str) -> dict[str, dict[str, Any]]:
    done = doctor("--json", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return {finding["name"]: finding for finding in map(json.loads, done.stdout.splitlines())}


def test_every_thing_has_a_purpose_and_what_is_missing_a_command() -> None:
    """Podman, bubblewrap, PostgreSQL, keys, extras, the model and the filesystem are all told of."""
    findings = found()
    assert {"Python", "pydantic", "podman", "bubblewrap", "PostgreSQL", "SmolLM2-135M", "locks", "openat2"} <= {
        *findings
    }
    assert {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", *EXTRAS} <= {*findings}
    for finding in findings.values():
        assert finding["purpose"]
        assert finding["state"] in {"ok", "missing", "broken"}
        assert bool(finding["get"]) == (finding["state"] != "ok") or finding["detail"] == "needs Linux", finding


def test_on_a_bare_machine_it_says_what_to_install(tmp_path: Path) -> None:
    """With nothing on the PATH and a new home all programs are missing, each with its command; WINK works."""
    done = doctor(str(tmp_path), PATH="", HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    for name, command in (
        ("podman", "podman"), ("bubblewrap", "bubblewrap"), ("SmolLM2-135M", "wink model fetch"),
        ("OPENAI_API_KEY", "export OPENAI_API_KEY=..."),
    ):  # fmt: skip
        assert re.search(rf"missing {name} .*?-> [^>]*{re.escape(command)}", text), name
    assert "WINK works here." in text
    assert list(tmp_path.iterdir()) == []


def test_it_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """Whatever is missing; nothing but ASCII."""
    for environment in ({}, {"PATH": ""}):
        out = doctor(HOME=str(tmp_path), **environment).stdout
        assert out.isascii()
        assert max(map(len, out.splitlines())) <= 80, max(out.splitlines(), key=len)


@pytest.mark.parametrize("path", [os.environ["PATH"], ""])
def test_what_only_linux_has_is_not_to_be_got_elsewhere(path: str) -> None:
    """No command for what would refuse to work when it is there; nothing of that kind is said to be fine."""
    code = "import tests.other_machine; from weakincentives.cli import main; main(['doctor', '--json'])"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=ROOT
    )
    findings = {finding["name"]: finding for finding in map(json.loads, done.stdout.splitlines())}
    for name in ("podman", "bubblewrap", "asteval", "openat2", "extended attributes"):
        assert findings[name]["state"] == "missing", name
        assert findings[name]["detail"] == "needs Linux", name
        assert findings[name]["get"] == "", name
    assert "sandbox image" not in findings
    assert findings["locks"]["state"] == "ok"


def test_patterns_need_one_of_two_packages(tmp_path: Path) -> None:
    """Which of them a machine has depends on its wheels, so neither is needed by itself."""
    name = "google-re2 or regex"
    assert found()[name]["state"] == "ok"
    code = (
        "import sys; sys.modules['re2'] = sys.modules['regex'] = None\n"
        "from weakincentives.cli import main; sys.exit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert f"missing  {name}" in done.stdout


def test_an_extra_that_does_not_bring_its_package_here_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM has no release for Python 3.15: the command would install something else."""
    monkeypatch.setattr(sys, "version_info", (3, 15, 0, "final", 0))
    monkeypatch.setitem(sys.modules, "litellm", None)
    (litellm,) = (finding for finding in extras() if finding.name == "litellm")
    assert (litellm.state, litellm.detail) == ("missing", "needs Python 3.14 or older")
    assert "pip install" not in litellm.get
    assert "openai:NAME --base-url" in litellm.get


def test_no_key_is_ever_printed() -> None:
    """That it is set is all there is to say."""
    done = doctor(OPENAI_API_KEY=SECRET, ANTHROPIC_API_KEY=SECRET, OPENAI_BASE_URL=DSN)
    assert done.returncode == 0
    assert "ok       OPENAI_API_KEY (is set)" in done.stdout
    assert "ok       OPENAI_BASE_URL (is set)" in done.stdout
    for part in (SECRET, "hunter2", SECRET[:12], "127.0.0.1"):
        assert part not in done.stdout + done.stderr
    assert SECRET not in json.dumps(found(OPENAI_API_KEY=SECRET))


def test_what_everything_needs_decides_the_exit_code(tmp_path: Path) -> None:
    """A core package that is missing is a failure; the rest of the report is there all the same."""
    code = (
        "import sys, importlib.metadata as m; real = m.version\n"
        "def version(name):\n"
        "    if name == 'pydantic': raise m.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "m.version = version; sys.modules['pydantic'] = None\n"
        "from weakincentives.cli import main; sys.exit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "missing  pydantic - part of WINK itself\n           -> pip install" in done.stdout
    assert "WINK cannot work without: pydantic." in done.stdout
    assert "Files in " in done.stdout


def test_a_program_that_does_not_run_is_broken(tmp_path: Path) -> None:
    """That it lies there is not enough."""
    for name in ("podman", "bwrap"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    findings = found(PATH=str(tmp_path))
    assert findings["podman"]["state"] == "broken"
    if sys.platform == "linux":
        assert findings["bubblewrap"]["state"] == "broken"
        assert findings["bubblewrap"]["get"].startswith("sudo sysctl ")


def test_a_directory_is_tried_and_left_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is not there is wrong use."""
    assert main(["doctor", str(tmp_path)]) == 0
    assert f"Files in {tmp_path}\n  ok       writing" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert main(["doctor", str(tmp_path / "nowhere")]) == 2
    assert "there is no directory" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_said_to_be(tmp_path: Path) -> None:
    """Nothing else of it is tried, and WINK works elsewhere."""
    tmp_path.chmod(0o500)
    assert found(str(tmp_path))["writing"]["state"] == "broken"


def test_every_extra_is_told_of() -> None:
    """The table names the extras that there are, and what each of them brings."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*declared} - {"all", "test", "dev", "docs", "viewer", "otel"} == {*EXTRAS}
    for name, extra in EXTRAS.items():
        assert re.match(rf"{extra.package}\b", declared[name][0]), name
