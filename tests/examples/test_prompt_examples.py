"""The examples that show what a model is sent, to the letter."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.loopback import LoopbackServer

from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.cli import main
from weakincentives.runtime import Session
from weakincentives.testing import say
from weakincentives.testing.scripted import Call

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.slow  # programs


def run(name: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_deployment() -> None:
    """The rendered prompt with its params, every tool's schema, and two constructions that are refused."""
    out = run("deployment.py")
    assert "    ## 1. Deployment\n\n    You deploy billing. Follow this workflow:" in out
    assert '"description": "Target environment."' in out
    assert all(f"  {name}: " in out for name in ("run_tests", "build", "deploy", "health_check"))
    assert "did you mean ${name}?" in out
    assert "'deploy' is declared twice: in section 'deployment' and in section 'emergency'" in out


def test_arguments() -> None:
    """Name, description and schema of the tool, and every answer, are those that a server gets, to the letter."""
    out = run("arguments.py")
    assert """| {"error": "Invalid parameters for tool 'search_files'", "details": {"limit": "Expected""" in out
    assert "did you mean 'limit'?" in out
    example = runpy.run_path(str(EXAMPLES / "arguments.py"))
    calls = [Call("search_files", text) for text in (*example["GOOD"], *(text for _, text in example["BAD"]))]
    with (
        LoopbackServer(*calls, say("Done.")) as server,
        OpenAIAdapter("m", base_url=f"{server.url}/v1", strict=False) as adapter,
    ):
        adapter.evaluate(example["PROMPT"], Session())
    (tool,) = server.received[0].body["tools"]
    assert f"  name: {tool['function']['name']}\n  description: {tool['function']['description']}\n" in out
    schema = json.dumps(tool["function"]["parameters"], indent=2).replace("\n", "\n    ")
    assert schema in out
    answers = [message["content"] for message in server.received[-1].body["messages"] if message["role"] == "tool"]
    assert len(answers) == len(calls)
    blocks = out.split("\n\n")
    for made, answer in zip(calls, answers, strict=True):
        shown = "".join(f"\n    | {line}" for line in answer.split("\n"))
        (block,) = [block for block in blocks if block.endswith(shown) and block.startswith(f"  {made.arguments}")]
        assert block.partition("\n")[2] == shown.lstrip("\n")


def test_the_tools_of_an_example_are_shown_as_they_are_sent(capsys: pytest.CaptureFixture[str]) -> None:
    """`wink tools` prints the schema that a model is sent."""
    assert main(["tools", str(EXAMPLES / "arguments.py"), "--json"]) == 0
    [spec] = json.loads(capsys.readouterr().out)
    example: dict[str, Any] = runpy.run_path(str(EXAMPLES / "arguments.py"))
    assert (spec["name"], spec["schema"]) == (example["TOOL"].name, example["TOOL"].schema())
