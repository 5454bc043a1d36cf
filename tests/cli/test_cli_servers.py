"""`--base-url`: models behind a server of one's own, asked over a real connection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.adapters.loopback import LoopbackServer

from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.cli import main
from weakincentives.testing import call, say

AGENTS = str(Path(__file__).with_name("agents.py"))
GREET = ["run", f"{AGENTS}:Greeter", "--request", '{"name": "Ada"}']


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.slow  # a server and the real client
@pytest.mark.parametrize("how", ["flag", "environment"])
def test_an_openai_compatible_server_needs_an_address_and_no_key(
    how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM, Ollama and llama.cpp speak Chat Completions: so they are asked, with the tools and the results."""
    with LoopbackServer(call("add", x=4), say("Hello, Ada!")) as server:
        options = ["--base-url", f"{server.url}/v1"]
        if how == "environment":
            monkeypatch.setenv("OPENAI_BASE_URL", options.pop())
            options.clear()
        code = main([*GREET, "--model", "openai:qwen3", *options])
        out, err = capsys.readouterr()
        assert (code, out) == (0, "Hello, Ada!\n"), err
        server.assert_complete()
    assert [request.path for request in server.received] == ["/v1/chat/completions"] * 2
    assert [request.body["model"] for request in server.received] == ["qwen3"] * 2
    assert [tool["function"]["name"] for tool in server.received[0].body["tools"]] == ["add"]
    last = server.received[1].body["messages"][-1]
    assert (last["role"], last["content"]) == ("tool", "OK\n5")
    assert "add(x=4)" in err


@pytest.mark.slow  # a server and the real client
def test_the_flag_counts_before_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was typed is nearer."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with LoopbackServer(say("Hello!")) as server:
        assert main([*GREET, "--model", "openai:m", "--base-url", f"{server.url}/v1"]) == 0
    assert capsys.readouterr().out == "Hello!\n"


@pytest.mark.slow  # a server and the real client
def test_a_server_that_speaks_messages(capsys: pytest.CaptureFixture[str]) -> None:
    """`anthropic:NAME` takes an address as well."""
    with LoopbackServer(say("Hello!")) as server:
        assert main([*GREET, "--model", "anthropic:m", "--base-url", server.url]) == 0
    assert [request.path for request in server.received] == ["/v1/messages"]
    assert capsys.readouterr().out == "Hello!\n"


@pytest.mark.slow  # a server and the real client
def test_the_demo_takes_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    """A model that does nothing does not pass, but it was asked."""
    with LoopbackServer(say("I did nothing.")) as server:
        assert main(["demo", "--plain", "--model", "openai:m", "--base-url", f"{server.url}/v1"]) == 1
        server.assert_complete()
    assert "I did nothing." in capsys.readouterr().out


@pytest.mark.slow  # loads the real client
def test_the_adapter_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address in the environment means Chat Completions; what is given in code counts before it."""
    assert OpenAIAdapter("m").api == "responses"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert OpenAIAdapter("m").api == "chat"
    assert OpenAIAdapter("m", api="responses").api == "responses"
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    assert OpenAIAdapter("m").api == "responses"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--model", "openai:m", "--base-url", "localhost:8000"], "is not an address; it begins with http://"),
        (["--model", "scripted", "--base-url", "http://x"], "--base-url goes with --model and one of: openai:NAME"),
        (["--model", "local", "--base-url", "http://x"], "--base-url goes with --model and one of: openai:NAME"),
        (["--base-url", "http://x"], "--base-url goes with --model"),
        (["--base-url", "http://x", "--dry-run"], "--base-url goes with --model"),
        (["--model", "openai:m"], "OPENAI_API_KEY is not set; run: export OPENAI_API_KEY=... (or name a server"),
    ],
)
def test_an_address_that_is_of_no_use_is_wrong_use(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says what to give."""
    assert main([*GREET, *arguments]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.slow  # a server and the real client
def test_json_traces_are_json_with_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    """Text comes in pieces here; every line is an object all the same."""
    with LoopbackServer(call("add", x=4), say("Hello, Ada!")) as server:
        assert main([*GREET, "--json", "--model", "openai:m", "--base-url", f"{server.url}/v1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["kind"] for line in lines] == ["turn", "call", "answer", "turn", "text", "usage"]
