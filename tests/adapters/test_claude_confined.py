"""What Claude Code's own tools can reach: the real Claude Code, with a server on this machine as the model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.loopback import LoopbackServer
from tests.conftest import needs

from weakincentives.adapters.claude_agent_sdk import ClaudeAgentSDKAdapter, launcher
from weakincentives.adapters.claude_agent_sdk.native import check_native_tools
from weakincentives.errors import PromptEvaluationError
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext
from weakincentives.results import ToolResult
from weakincentives.runtime import Session, ToolInvoked
from weakincentives.testing import call, say

pytestmark = pytest.mark.slow  # a program of 200 MB

KEY = "a-key-that-no-command-may-see"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    (tmp_path / "secret.txt").write_text("hunter2\n")
    (folder / "link").symlink_to(tmp_path / "secret.txt")
    return folder


@pytest.fixture
def files(root: Path) -> Iterator[HostFilesystem]:
    needs(
        "claude-cli",
        present=find_spec("claude_agent_sdk") is not None and find_spec("mcp") is not None,
        install="pip install 'weakincentives[claude-agent-sdk]'",
    )
    with HostFilesystem(root, watch="scan") as made:
        yield made


class Run:
    """One evaluation that makes these calls, and what the model was told of each."""

    def __init__(self, tmp_path: Path, files: HostFilesystem, *calls: Any, tools: Any = (), **options: Any) -> None:
        self.session = Session()
        self.told: dict[str, str] = {}
        section = MarkdownSection(title="Task", template="Do it.", tools=tools)
        prompt = Prompt(PromptTemplate(ns="t", key="c", sections=[section])).bind(resources={Filesystem: files})
        with LoopbackServer(*calls, say("Done.")) as server:
            env = {
                "ANTHROPIC_BASE_URL": server.url,
                "ANTHROPIC_API_KEY": KEY,
                "CLAUDE_CONFIG_DIR": str(tmp_path / "config"),
                "CLAUDE_CODE_MAX_RETRIES": "0",
            }
            ClaudeAgentSDKAdapter("claude-sonnet-4-5", env=env, **options).evaluate(prompt, self.session)
            self.keys = {received.headers.get("x-api-key") for received in server.received}
            for received in server.received:
                for message in received.body["messages"]:
                    for block in message["content"] if isinstance(message["content"], list) else ():
                        if block["type"] == "tool_result":
                            self.told[block["tool_use_id"]] = str(block["content"])

    @property
    def outcomes(self) -> dict[str | None, str]:
        return {event.call_id: event.outcome for event in self.session[ToolInvoked].all()}


def bash(command: str, call_id: str = "n1", **options: Any) -> Any:
    return call("Bash", command=command, description="Run", **options).with_id(call_id)


def test_what_a_command_leaves_running_ends_with_its_call(tmp_path: Path, root: Path, files: HostFilesystem) -> None:
    """In the background, in a session of its own, as a daemon: it is gone before the next call begins."""
    loop = "while :; do sleep 0.1; date >> late.txt; done"
    daemon = (
        f"import os; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); "
        f"os.execvp('sh', ['sh', '-c', '{loop}'])"
    )
    started = [
        bash(f"({loop}) & echo started", "n1"),
        bash(f"setsid sh -c '{loop}' > /dev/null 2>&1 & echo started", "n2"),
        bash(f"nohup sh -c '{loop}' > /dev/null 2>&1 & disown; echo started", "n3"),
        bash(f'{sys.executable} -c "{daemon}" > /dev/null 2>&1; echo started', "n4"),
    ]
    for one in started:
        (root / "late.txt").unlink(missing_ok=True)
        run = Run(tmp_path, files, one, bash("rm -f late.txt; sleep 1; ls", "after"), native_tools=["Bash"])
        assert set(run.outcomes.values()) == {"succeeded"}
        assert "late.txt" not in run.told["after"]
        time.sleep(0.5)
        assert not (root / "late.txt").exists()


def test_what_a_failed_command_leaves_running_does_not_write_after_the_undo(
    tmp_path: Path, root: Path, files: HostFilesystem
) -> None:
    """The processes end first, then the files are restored."""
    run = Run(tmp_path, files, bash("(sleep 1; echo x > late.txt) & echo y > early.txt; exit 3"), native_tools=["Bash"])
    assert run.outcomes == {"n1": "failed"}
    time.sleep(1.5)
    assert not (root / "late.txt").exists()
    assert not (root / "early.txt").exists()


def test_a_command_that_takes_too_long_does_not_go_on_in_the_background(
    tmp_path: Path, root: Path, files: HostFilesystem
) -> None:
    """Claude Code's own limit for a command ends it, whatever it is waiting for."""
    slow = f"{sys.executable} -c \"import time; time.sleep(4); open('late.txt', 'w')\""
    run = Run(tmp_path, files, bash(slow, timeout=1000), bash("sleep 6; ls", "n2"), native_tools=["Bash"])
    assert run.outcomes["n1"] == "failed"
    assert "late.txt" not in run.told["n2"]


def test_commands_do_not_see_the_environment(
    tmp_path: Path, root: Path, files: HostFilesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither this process's variables nor the key; what `env=` names for them they see."""
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    run = Run(tmp_path, files, bash("env; tr '\\0' '\\n' < /proc/$PPID/environ"), native_tools=["Bash"])
    assert run.outcomes == {"n1": "succeeded"}
    assert "PATH=" in run.told["n1"]
    assert "hunter2" not in run.told["n1"]
    assert KEY not in run.told["n1"]
    assert run.keys == {KEY}  # the service gets it all the same


@pytest.mark.parametrize("outside", ["{up}/secret.txt", "../secret.txt", "link", "~/x", " {up}/secret.txt", "a\x00b"])
def test_reading_is_held_to_the_root(tmp_path: Path, root: Path, files: HostFilesystem, outside: str) -> None:
    """No spelling of a path reads a file beside the root, nor does a link."""
    target = outside.format(up=tmp_path)
    run = Run(
        tmp_path,
        files,
        call("Read", file_path=target).with_id("n1"),
        call("Read", file_path=str(root / "a.txt")).with_id("n2"),
        native_tools=["Read"],
    )
    assert "hunter2" not in str(run.told)
    assert run.outcomes["n1"] != "succeeded"
    assert run.outcomes["n2"] == "succeeded"


def test_searching_is_held_to_the_root(tmp_path: Path, root: Path, files: HostFilesystem) -> None:
    """The folder to search, and the pattern."""
    run = Run(
        tmp_path,
        files,
        call("Glob", pattern="*.txt", path=str(tmp_path)).with_id("n1"),
        call("Glob", pattern=f"{tmp_path}/*.txt").with_id("n2"),
        call("Glob", pattern="../*.txt").with_id("n3"),
        call("Grep", pattern="hunter", path=str(tmp_path), output_mode="content").with_id("n4"),
        call("Grep", pattern="hunter", path="..", output_mode="content").with_id("n5"),
        call("Glob", pattern="*.txt").with_id("n6"),
        native_tools=["Glob", "Grep"],
    )
    assert [run.outcomes[f"n{number}"] for number in range(1, 6)] == ["refused"] * 5
    assert run.outcomes["n6"] == "succeeded"
    assert "hunter2" not in str(run.told)


def test_no_native_tool_is_there_unless_it_is_named(tmp_path: Path, root: Path, files: HostFilesystem) -> None:
    """The default is closed, and a tool that is not known is refused when the adapter is made."""
    run = Run(tmp_path, files, bash("echo x > b.txt"), call("Read", file_path=str(root / "a.txt")).with_id("n2"))
    assert set(run.outcomes.values()) == {"unknown_tool"}
    assert not (root / "b.txt").exists()
    with pytest.raises(ValueError, match="not known"):
        check_native_tools(["CronCreate"])


def test_a_turn_has_a_number_of_calls(tmp_path: Path, root: Path, files: HostFilesystem) -> None:
    """More calls in one turn than allowed end the evaluation."""

    def look(params: None, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok("x")

    tool = Tool[None, str](name="look", description="Look.", handler=look)
    calls = [call("mcp__wink__look").with_id(f"c{number}") for number in range(6)]
    with pytest.raises(PromptEvaluationError, match="max_calls_per_turn="):
        Run(tmp_path, files, calls, tools=[tool], max_calls_per_turn=5)


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the launcher collects descendants on Linux")


_ELSEWHERE = """
import ctypes, os, runpy, sys
class Library:
    def __init__(self, *_, **__): pass
ctypes.CDLL = Library
def refuse(event, arguments):
    if event in {"open", "os.listdir"} and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(arguments[0])
sys.addaudithook(refuse)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def _start_launcher(folder: Path, script: str, *, elsewhere: bool = False) -> tuple[subprocess.Popen[bytes], Path]:
    pids = folder / "pids"
    launched = ["-c", _ELSEWHERE, launcher.__file__] if elsewhere else [launcher.__file__]
    command = [sys.executable, "-I", "-S", *launched, str(pids), "PATH", "/bin/sh", "-c", script]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
    return process, pids


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _wait_until(condition: Any) -> None:
    late = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < late, "it did not come about"
        time.sleep(0.02)


@needs_linux
@pytest.mark.parametrize("end", ["by itself", "told to"])
def test_nothing_outlives_the_launcher(tmp_path: Path, end: str) -> None:
    """However Claude Code ends, a daemon that one of its commands started ends with it; its exit code is passed on."""
    script = "setsid sh -c 'echo $$ > daemon; exec sleep 600' & " + ("exit 7" if end == "by itself" else "sleep 600")
    wait = "while [ ! -s daemon ]; do sleep 0.02; done; "
    process, pids = _start_launcher(tmp_path, script.replace("& ", f"& {wait}"))
    with process:
        if end == "told to":
            _wait_until(
                lambda: pids.exists() and (tmp_path / "daemon").exists() and (tmp_path / "daemon").read_text().strip()
            )
            os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == (7 if end == "by itself" else 143)
    assert not _alive(int((tmp_path / "daemon").read_text()))


@needs_linux
def test_the_launcher_passes_a_secret_on_in_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program finds it behind the descriptor; its environment has neither it nor what was not allowed."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OTHER_SECRET", "hunter2")
    process, _ = _start_launcher(tmp_path, "env; cat <&$CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR")
    output = process.communicate(timeout=30)[0].decode()
    assert output.endswith(KEY)
    assert output.count(KEY) == 1
    assert "hunter2" not in output


@pytest.mark.skipif(not Path("/bin/ps").exists(), reason="the list of processes comes from /bin/ps")
@pytest.mark.parametrize("end", ["by itself", "told to"])
def test_without_linux_what_is_below_the_program_ends_with_it(tmp_path: Path, end: str) -> None:
    """Neither `prctl` nor `/proc` is needed: a command that is told to end takes along what it still waits for."""
    script = "sh -c 'echo $$ > child; exec sleep 600' & while [ ! -s child ]; do sleep 0.02; done; "
    process, pids = _start_launcher(tmp_path, script + ("exit 7" if end == "by itself" else "wait"), elsewhere=True)
    with process:
        if end == "told to":
            _wait_until(lambda: pids.exists() and (tmp_path / "child").exists() and (tmp_path / "child").read_text())
            os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == (7 if end == "by itself" else 143)
    if end == "told to":
        _wait_until(lambda: not _alive(int((tmp_path / "child").read_text())))
    else:  # only Linux gives us the children of what has ended
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


@pytest.mark.skipif(not Path("/bin/ps").exists(), reason="the list of processes comes from /bin/ps")
def test_without_linux_the_end_of_the_starter_is_noticed(tmp_path: Path) -> None:
    """The program ends although the system tells nobody."""
    pids = tmp_path / "pids"
    command = [sys.executable, "-I", "-S", "-c", _ELSEWHERE, launcher.__file__, str(pids), "PATH", "/bin/sleep", "600"]
    starter = (
        "import subprocess, sys, time, os\n"
        "subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
    )
    subprocess.run([sys.executable, "-c", starter, str(pids), *command], check=True, timeout=60)
    _wait_until(lambda: not any(_alive(int(pid)) for pid in pids.read_text().split()))
