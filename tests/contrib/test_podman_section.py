"""The sandbox's tools, called as a model calls them, in a real container."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.contrib.podman_parts import Sandbox, containers, needs_podman, owned, processes

from weakincentives.contrib.code import EvalLimits
from weakincentives.contrib.podman.shell import run_command
from weakincentives.contrib.tools import HostMount, PodmanSandboxConfig, PodmanSandboxSection
from weakincentives.deadlines import Deadline
from weakincentives.errors import PromptEvaluationError, PromptValidationError, SandboxError
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import Prompt, ToolInvoked
from weakincentives.runtime import ToolCall

pytestmark = pytest.mark.slow  # containers


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    needs_podman()
    with Sandbox(files={"a.txt": "one\n", "src/main.py": "print('main')\n"}, timeout=120.0) as made:
        yield made


# Commands


def test_a_command_works_on_the_files(box: Sandbox) -> None:
    """A command sees what the file tools wrote, and they see what it wrote, whatever the owner on the host."""
    box.call("write_file", path="given.txt", content="tea\n")
    assert box.ok("cat given.txt; tr a-z A-Z < given.txt > made.txt; echo more >> given.txt") == "tea\n"
    assert box.section.filesystem.read("made.txt") == "TEA\n"
    assert box.section.filesystem.read("given.txt") == "tea\nmore\n"
    box.call("read_file", path="made.txt")
    assert box.call("edit_file", path="made.txt", old_text="TEA", new_text="MILK").result.success
    assert box.ok("echo x >> made.txt; mkdir -p deep/er; touch deep/er/f; cat made.txt") == "MILK\nx\n"
    assert box.call("delete_file", path="deep", recursive=True).result.success


def test_exit_codes(box: Sandbox) -> None:
    """A non-zero exit is a normal result, told with both outputs; what the command did stays."""
    reply = box.sh("echo out; echo err >&2; touch kept.txt; exit 3")
    assert reply.text == "Exit code: 3\nout\nStandard error:\nerr"
    assert box.section.filesystem.exists("kept.txt")
    assert "Killed by SIGTERM" in box.sh("kill -TERM $$").text


def test_check(box: Sandbox) -> None:
    """With check=true a non-zero exit fails the call, and everything the command did is undone."""
    before = box.files()
    text = box.fails(
        "rm -rf src; echo lost > a.txt; chmod 700 .; mkdir d; ln -s / d/l; echo why >&2; exit 4", check=True
    )
    assert "The command failed, so what it did is undone\nExit code: 4\nStandard error:\nwhy" in text
    assert box.files() == before
    assert stat.S_IMODE(box.root.stat().st_mode) == 0o755
    assert box.sh("true", check=True).result.success


def test_where_and_with_what(box: Sandbox) -> None:
    """Directory, environment and standard input are as the call says; nothing of the host's environment is there."""
    os.environ["WINK_TEST_SECRET"] = "s3cret"
    try:
        told = box.ok("pwd; echo $NAME; cat; env", cwd="src", env={"NAME": "it's $HOME"}, stdin="from stdin\n")
    finally:
        del os.environ["WINK_TEST_SECRET"]
    assert told.startswith("/workspace/src\nit's $HOME\nfrom stdin\n")
    assert "s3cret" not in told
    assert box.ok("wc -c", stdin="x" * 3_000_000).strip() == "3000000"
    assert box.ok("exec < /dev/null; echo does not read", stdin="x" * 3_000_000) == "does not read\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"command": "  "}, "The command is empty"),
        ({"command": "a\0b"}, "has a NUL in it"),
        ({"command": "ls", "cwd": "../.."}, "Give cwd as a directory of the workspace"),
        ({"command": "ls", "cwd": "no/such"}, "There is no directory no/such to run it in"),
        ({"command": "ls", "cwd": "a.txt"}, "There is no directory a.txt"),
        ({"command": "ls", "env": {"A=B": "x"}}, "The environment variable 'A=B' cannot be set"),
        ({"command": "ls", "timeout_seconds": 121.0}, "timeout_seconds must be above 0 and at most 120"),
        ({"command": "ls", "timeout_seconds": 0.0}, "timeout_seconds must be above 0"),
    ],
)
def test_arguments_that_make_no_sense(box: Sandbox, arguments: dict[str, Any], text: str) -> None:
    """What cannot be run is refused with what to do instead."""
    reply = box.call("shell_execute", **arguments)
    assert reply.outcome == "failed"
    assert text in reply.text


def test_timeout(box: Sandbox) -> None:
    """A command that takes too long is stopped in time with all it started, and undone."""
    before = box.files()
    started = time.monotonic()
    text = box.fails("echo begun; touch late.txt; (sleep 100 &); sleep 100", timeout_seconds=0.3)
    assert time.monotonic() - started < 30
    assert text.startswith("The command did not end within 0.3 s, so it was stopped and what it did is undone")
    assert "begun" in text
    assert box.files() == before


def test_the_runs_deadline_stops_a_command(box: Sandbox) -> None:
    """The deadline of the run ends a command like its own timeout, and the files are as before."""
    before = box.files()
    started = time.monotonic()
    call = ToolCall("late", "shell_execute", '{"command": "touch late.txt; sleep 100"}')
    with box.until(Deadline.after(timedelta(seconds=0.5))) as executor:
        try:
            outcome = executor.execute(call).outcome
        except PromptEvaluationError:
            outcome = "deadline"
    assert outcome in {"deadline", "failed"}
    assert time.monotonic() - started < 30
    time.sleep(0.3)
    assert box.files() == before
    assert box.ok("echo again") == "again\n"


def test_output_is_cut(box: Sandbox) -> None:
    """The first bytes of a long output are kept, and the rest is counted."""
    reply = box.sh("seq 100000")
    assert reply.result.success
    value: Any = reply.result.value
    assert value.stdout.startswith("1\n2\n")
    assert len(value.stdout) == 30_000
    assert value.dropped == 588_895 - 30_000
    assert "558,895 more bytes of output were dropped" in reply.text


def test_a_flood_of_output(box: Sandbox) -> None:
    """A command that prints without end is stopped soon, and undone."""
    started = time.monotonic()
    assert "far too much" in box.fails("touch f.txt; yes")
    assert time.monotonic() - started < 30
    assert not box.section.filesystem.exists("f.txt")


def test_output_that_is_no_text(box: Sandbox) -> None:
    """Bytes that are no UTF-8 are shown as such, and names that are none do no harm."""
    assert box.ok(r"printf 'a\377b'") == "a\ufffdb"
    box.ok(r"touch $'bad\xff\xfename' $'line\nbreak'")
    assert box.call("list_directory").text.encode()
    assert box.call("glob_files", pattern="**").text.encode()
    assert box.ok(r"rm -f bad* line*") == ""


def test_nothing_is_left_running(box: Sandbox) -> None:
    """What a command leaves running is ended with the call, also what ignores signals and left its session."""
    code = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        while True:
            open('/workspace/beat', 'a').write('x')
            time.sleep(0.002)
    time.sleep(100)
time.sleep(0.1)
"""
    box.call("write_file", path="daemon.py", content=code)
    box.ok("python3 daemon.py; (trap '' TERM; while true; do echo x >> beat; sleep 0.01; done) & sleep 0.1")
    size = (box.root / "beat").stat().st_size
    assert size > 5
    name = box.section.container.name
    assert name is not None
    assert processes(name) == 1
    time.sleep(0.2)
    assert (box.root / "beat").stat().st_size == size
    assert box.python("import subprocess\nsubprocess.Popen(['sleep', '100'])\n1").result.success
    assert processes(name) == 1


def test_only_the_workspace_is_kept(box: Sandbox) -> None:
    """Whatever a call leaves elsewhere in the container is gone with it, however it is nested and protected."""
    deep = "cd /tmp; for n in $(seq 300); do mkdir d; chmod 700 d; cd d; done; touch f; chmod 500 .; cd /tmp; chmod 0 d"
    box.ok(f"echo x > /tmp/x; echo x > /dev/shm/y; mkfifo /tmp/p; {deep}")
    assert box.ok("ls -A /tmp /dev/shm") == "/dev/shm:\n\n/tmp:\n"
    assert box.done("python3 -c 'import os; os.mkfifo(\"/dev/mqueue/x\")'").exit_code != 0


def test_what_cannot_be_kept(box: Sandbox) -> None:
    """Sockets, and a name that could pass for the host's own journal, are undone with a reason."""
    bind = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'"
    assert "/workspace/sock is a socket or device" in box.fails(bind)
    assert box.ok(f"{bind}; rm sock; echo fine") == "fine\n"
    assert "the name .wink is reserved" in box.fails("mkdir .wink; echo forged > .wink/journal")
    assert "the name .wink is reserved" in box.python("import os\nos.symlink('/', '/workspace/.wink')").text
    for name in (".wink-0123456789abcdef", ".lib.wink", ".WINK"):
        assert f"the name {name} is reserved" in box.fails(f"mkdir -p below/{name}; echo forged > below/{name}/journal")
    assert "is reserved" in box.fails("touch $(printf '.w\\342\\200\\213ink')")
    assert not box.section.filesystem.exists("sock")
    assert not (box.root / ".wink").is_symlink()
    assert not (box.root / "below").exists()


_MAKE_IPC = """
import ctypes
libc = ctypes.CDLL(None)
made = [libc.semget(0, 1, 0o1600), libc.semget(0x77696e6b, 3, 0o1666), libc.shmget(0x77696e6b, 4096, 0o1666)]
assert made[0] >= 0 and made[1] >= 0, made
"""


def test_no_means_of_communication_outlives_a_call(box: Sandbox) -> None:
    """Semaphores, segments and queues of a call are gone when the next one begins, also when it gave them away."""
    give_away = "buffer = (ctypes.c_char * 256)()\nlibc.semctl(made[1], 0, 2, buffer)\n"
    give_away += "ctypes.c_uint.from_buffer(buffer, 4).value = 4242\nlibc.semctl(made[1], 0, 1, buffer)\n"
    lines = "wc -l < /proc/sysvipc/sem; wc -l < /proc/sysvipc/shm; wc -l < /proc/sysvipc/msg; ls /dev/mqueue /dev/shm"
    empty = box.ok(lines)
    for code in (_MAKE_IPC, _MAKE_IPC + give_away):
        box.ok(f"python3 - <<'END'\n{code}\nEND")
        assert box.ok(lines) == empty
        box.ok(f"python3 - <<'END' &\n{code}\nimport time; time.sleep(60)\nEND\nsleep 0.3")
        assert box.ok(lines) == empty
        assert box.python(code.strip()).result.success
        assert box.ok(lines) == empty
        assert not box.python(f"{code}\nimport os\nos._exit(3)").result.success
        assert box.ok(lines) == empty
        for end, more in (("exit 3", {"check": True}), ("kill -9 $$", {}), ("sleep 60", {"timeout_seconds": 1})):
            box.sh(f"python3 - <<'END'\n{code}\nEND\n{end}", **more)
            assert box.ok(lines) == empty


# Python


def test_python(box: Sandbox) -> None:
    """Code runs in full Python on the files it names, and what it wrote is there only when it succeeded."""
    code = "import statistics, subprocess\nopen('n/out.txt', 'w').write(open('a.txt').read() * 2)\nstatistics.mean(xs)"
    reply = box.python(code, inputs={"xs": [1, 2, 6]}, reads=["a.txt"], writes=["n/out.txt"])
    assert reply.text == "OK\nValue: 3\nWrote: n/out.txt"
    assert box.ok("cat n/out.txt") == "one\none\n"
    failed = box.python("open('lost.txt', 'w').write('x')\n[][1]", writes=["lost.txt"])
    assert 'File "<code>", line 2' in failed.text
    assert "IndexError: list index out of range" in failed.text
    assert not box.section.filesystem.exists("lost.txt")
    assert "Permission denied: 'other.txt'" in box.python("open('other.txt', 'w')", writes=["lost.txt"]).text
    assert box.python("1", writes=["lost.txt"]).text == "OK\nValue: 1"


@pytest.mark.parametrize("above", ["n", "n/m", "."])
def test_no_file_is_served_through_a_symlinked_directory(box: Sandbox, above: str) -> None:
    """Process 1 opens what code may write by name; the code cannot choose for it where that name leads."""
    code = f"""
import os
here = os.getcwd()
for where, _, _ in os.walk('.'): os.chmod(where, 0o700)
os.chdir('/tmp')
os.makedirs('/tmp/other/m', exist_ok=True); os.makedirs('/tmp/other/n/m', exist_ok=True)
for name in ('out', 'm/out', 'n/m/out'): open('/tmp/other/' + name, 'w').write('served')
target = os.path.normpath(os.path.join(here, {above!r}))
os.rename(target, '/tmp/aside')
os.symlink('/tmp/other', target)
"""
    reply = box.python(code, writes=["n/m/out"])
    assert not reply.result.success
    assert reply.text.splitlines()[1].startswith("n/m/out is not a file that can be read (")
    assert "bytes" not in reply.text
    assert not box.section.filesystem.exists("n/m/out")


def test_values_of_python(box: Sandbox) -> None:
    """Values come out as they would be shown, of whatever type they are."""
    shown = {
        "{1: (2.5, b'x', {3}), 'd': [None, True, -10**30]}": "{1: (2.5, b'x', {3}), 'd': [None, True, -1"
        + "0" * 30
        + "]}",
        "float('nan')": "nan",
        "'\\ud800'": r"'\\ud800'",
        "range(3)": "range(0, 3)",
        "import datetime\ndatetime.date(2025, 1, 2)": "datetime.date(2025, 1, 2)",
        "x = []\nx.append(x)\nlen(x)": "1",
        "class A:\n    def __repr__(self): return 7\n1": "1",
    }
    for code, value in shown.items():
        assert box.python(code).text == f"OK\nValue: {value}", code
    assert "cut: the value is longer" in box.python("list(range(10**6))").text
    assert box.python("x = []\nx.append(x)\nx").text.startswith("OK\nValue: [[[[[")
    assert "TypeError" in box.python("class A:\n    def __repr__(self): return 7\nA()").text


def test_python_that_reaches_the_workspace(box: Sandbox) -> None:
    """Code can do what a command can, and it is undone like one."""
    before = box.files()
    assert "ZeroDivisionError" in box.python("open('/workspace/a.txt', 'w').write('lost')\n1 / 0").text
    assert box.files() == before
    assert box.python("open('/workspace/a.txt').read()").text == "OK\nValue: 'one\\n'"


def test_python_that_comes_too_late(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is not started when the run's deadline passed while its files were read."""
    box.section.start()
    before = box.files()
    reading = HostFilesystem.read_bytes
    read = threading.Event()

    def slow(self: HostFilesystem, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        time.sleep(1.0)
        try:
            return reading(self, path, offset=offset, limit=limit)
        finally:
            read.set()

    def unhurried(self: EvalLimits, seconds: float) -> EvalLimits:
        return self  # as when the time is up just after it was looked at

    monkeypatch.setattr(HostFilesystem, "read_bytes", slow)
    monkeypatch.setattr(EvalLimits, "within", unhurried)
    code = "open('/workspace/late.txt', 'w').close()"
    call = ToolCall("slow", "evaluate_python", json.dumps({"code": code, "reads": ["a.txt"]}))
    with box.until(Deadline.after(timedelta(seconds=0.3))) as executor:
        assert executor.execute(call).outcome == "deadline"
    assert read.wait(10)
    time.sleep(0.5)
    assert box.files() == before


def test_python_that_is_killed() -> None:
    """Code that computes for too long, or is killed, is told so."""
    needs_podman()
    limits = EvalLimits(seconds=0.5, sleep=200.0, memory=256 << 20)
    with Sandbox(evaluation=limits) as box:
        assert "Stopped: it took longer than 0.5 s" in box.python("while True: pass").text
        killed = box.python("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)").text
        assert "it was killed, as it seems for want of memory" in killed
        assert "the process ended before the code did" in box.python("import os\nos._exit(3)").text


# The section


def test_a_workspace_that_is_full_already(tmp_path: Path) -> None:
    """What is wrong with a workspace before a command is not blamed on it; the limits to raise are named."""
    needs_podman()
    with Sandbox(disk="1m", max_files=20) as box:
        (box.root / "big").write_bytes(b"x" * (2 << 20))
        text = box.fails("touch made")
        assert text.startswith("The command was not run: before it began, the workspace holds more than 1,048,576")
        assert "raise disk= or max_files=" in text
        assert "It was not run: before it began, the workspace holds more" in box.python("1").text
        assert box.call("delete_file", path="big").result.success
        assert box.sh("true").result.success


@pytest.mark.parametrize(
    ("limits", "text"),
    [({"disk": "1m"}, "holds more than 1,048,576 bytes"), ({"max_files": 2}, "holds more than 2 files")],
)
def test_a_folder_that_is_too_big(tmp_path: Path, limits: dict[str, Any], text: str) -> None:
    """A folder that holds more than it may is refused when the section is made, with the limits to raise."""
    for number in range(3):
        (tmp_path / str(number)).write_bytes(b"x" * 500_000)
    owned(tmp_path)
    with pytest.raises(PromptValidationError, match=r"Raise disk= or max_files=") as caught:
        PodmanSandboxSection(config=PodmanSandboxConfig(root=tmp_path, **limits))
    assert text in str(caught.value)


def test_a_folder_with_a_socket(tmp_path: Path) -> None:
    """A folder with something in it that could not be restored is refused."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        owned(tmp_path)
        with pytest.raises(PromptValidationError, match="is a socket or device"):
            PodmanSandboxSection(config=PodmanSandboxConfig(root=tmp_path))


@pytest.mark.parametrize("network", ["none", "podman"])
def test_what_is_said_of_the_network(network: str) -> None:
    """Instructions, descriptions and annotations say that there is a network when there is one, and only then."""
    with PodmanSandboxSection(config=PodmanSandboxConfig(network=network)) as section:
        text = Prompt(name="x", sections=[section]).render().text
        tools = {tool.name: tool for tool in section.tools}
    isolated = network == "none"
    shell, python = tools["shell_execute"], tools["evaluate_python"]
    assert ("There is no network" in text) is isolated
    assert ("Nothing can be downloaded" in text) is isolated
    assert ("without network" in text) is isolated
    assert ("without network" in shell.description) is isolated
    assert shell.annotations.open_world is not isolated
    assert python.annotations.open_world is not isolated


def test_policies_and_resources(box: Sandbox) -> None:
    """Its files are the prompt's `Filesystem`, and one that was not read, or changed since, is not overwritten."""
    assert box.section.resources() == {Filesystem: box.section.filesystem}
    box.ok("echo theirs > policy.txt")
    refused = box.call("write_file", path="policy.txt", content="mine", overwrite=True)
    assert refused.outcome == "refused"
    box.call("read_file", path="policy.txt")
    box.ok("echo changed > policy.txt")
    assert box.call("edit_file", path="policy.txt", old_text="changed", new_text="x").outcome == "refused"


def test_the_prompt_tells_what_there_is(box: Sandbox) -> None:
    """The instructions name the tools, the limits and what is not kept; a prefix is everywhere."""
    text = Prompt(name="x", sections=[box.section]).render().text
    for part in ("`shell_execute`", "`evaluate_python`", "There is no network", "20 seconds", "512 MB", "`/tmp`"):
        assert part in text
    with PodmanSandboxSection(tool_prefix="box_") as prefixed:
        assert all(tool.name.startswith("box_") for tool in prefixed.tools)
        assert "`box_shell_execute`" in Prompt(name="x", sections=[prefixed]).render().text
        assert len(prefixed.policies) == 1
    with PodmanSandboxSection(config=PodmanSandboxConfig(read_before_write=False)) as free:
        assert free.policies == ()


def test_examples_hold(box: Sandbox, tmp_path: Path) -> None:
    """Every tool's example gives what it says, so that `wink check` is content."""
    (tmp_path / "agent.py").write_text(
        "from weakincentives.contrib.tools import PodmanSandboxSection\n"
        "from weakincentives.prompt import Prompt\n"
        "prompt = Prompt(name='box', sections=[PodmanSandboxSection()])\n"
    )
    wink = "import sys; from weakincentives.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", wink, "check", "agent.py:prompt"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note" not in done.stdout


def test_the_log_says_what_was_undone(box: Sandbox) -> None:
    """The event of a failed command names the files that were restored."""
    box.fails("echo x > undone.txt; exit 1", check=True)
    event = box.session[ToolInvoked].all()[-1]
    assert event.outcome == "failed"
    assert event.changes is not None
    assert "undone.txt" in str(event.changes)


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    """A root is worked on itself, as its owner, and stays when the section is closed."""
    needs_podman()
    root = tmp_path / "project"
    root.mkdir()
    (root / "old.txt").write_text("old\n")
    (root / "old.txt").chmod(0o640)
    user = owned(root)
    with Sandbox(root=root) as box:
        box.ok("echo new > new.txt; echo more >> old.txt; id -u")
        box.call("write_file", path="by_host.txt", content="x")
        assert box.ok("echo y >> by_host.txt; cat by_host.txt") == "xy\n"
        before = box.files()
        box.fails("rm old.txt by_host.txt; exit 1", check=True)
        assert box.files() == before
    assert (root / "old.txt").read_text() == "old\nmore\n"
    for name in ("old.txt", "new.txt", "by_host.txt"):
        assert ((root / name).stat().st_uid, (root / name).stat().st_gid) == user


def test_mounts_and_export(tmp_path: Path) -> None:
    """Folders are copied in, others can be read in place, and what was made can be taken out."""
    needs_podman()
    project, data = tmp_path / "project", tmp_path / "data"
    for folder in (project, data):
        folder.mkdir()
        folder.chmod(0o755)
    (project / "main.py").write_text("print(open('/data/big.txt').read())\n")
    (data / "big.txt").write_text("big")
    mounts = [HostMount(project, into="src")]
    with Sandbox(mounts=mounts, read_only_mounts={"/data": data}, allowed_roots=[tmp_path]) as box:
        assert box.section.mounted[0].files == 1
        assert box.ok("python3 src/main.py | tee out.txt") == "big\n"
        assert "Read-only file system" in box.done("echo x > /data/big.txt; touch /data/y").stderr
        box.ok("ln -s /etc/passwd link")
        assert sorted(box.section.export(tmp_path / "taken")) == ["out.txt", "src/main.py"]
        root = box.root
    assert (tmp_path / "taken/out.txt").read_text() == "big\n"
    assert not (tmp_path / "taken/link").is_symlink()
    assert not root.parent.exists()
    assert (data / "big.txt").read_text() == "big"


def test_closing(tmp_path: Path) -> None:
    """A closed section has no container and no folder, its tools fail and say so, and closing again does nothing."""
    needs_podman()
    box = Sandbox()
    box.ok("true")
    name, root = box.section.container.name, box.root
    assert name in containers()
    with box.section:
        pass
    box.section.close()
    assert name not in containers()
    assert not root.parent.exists()
    said = "The sandbox is closed. Make a new section."
    for reply in (box.sh("true"), box.python("1"), box.call("read_file", path="a"), box.call("list_directory")):
        assert reply.outcome == "failed"
        assert reply.text == said


def test_dropping(tmp_path: Path) -> None:
    """A section without references takes its container and folder with it."""
    needs_podman()
    section = PodmanSandboxSection()
    section.start()
    name, root = section.container.name, Path(section.container.spec.root)
    del section
    assert name not in containers()
    assert not root.exists()


def test_a_command_is_ended_before_files_are_put_back(box: Sandbox) -> None:
    """Restoring the files while a command runs ends it first, so that it writes nothing afterwards."""
    fs = box.section.filesystem
    before = fs.snapshot()
    errors: list[Exception] = []

    def run() -> None:
        try:
            run_command(box.section.container, "while true; do echo x >> racing.txt; done", seconds=20)
        except SandboxError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not fs.exists("racing.txt"):
        time.sleep(0.01)
    fs.restore(before)
    fs.release(before)
    assert not fs.exists("racing.txt")
    time.sleep(0.2)
    assert not fs.exists("racing.txt")
    thread.join(10)
    assert "The container broke down" in str(errors)
    assert box.ok("echo alive") == "alive\n"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"memory": "lots"}, "memory= must be a number of bytes or text such as '512m'"),
        ({"memory": "1m"}, "memory= must be at least"),
        ({"cpus": 0}, "cpus= must be a finite, positive number"),
        ({"timeout": float("inf")}, "timeout= must be a finite, positive number"),
        ({"timeout": 60.0, "lease": 60}, "lease= must be well above timeout="),
        ({"evaluation": EvalLimits(seconds=300.0), "lease": 300}, "lease= must be well above timeout= and the time of"),
        ({"pids": 2}, "pids= must be at least 16"),
        ({"memory": "64m"}, "evaluation= takes more than three quarters of memory="),
        ({"mounts": "/srv"}, "mounts= takes a sequence"),
        ({"root": "/srv", "files": {"a": "b"}}, "root= works on that folder itself"),
        ({"image": "--privileged"}, "image= and network= must be names"),
        ({"read_only_mounts": {"/workspace/x": "/srv"}}, "use a path of its own, such as /data"),
        ({"read_only_mounts": {"/a/../etc": "/srv"}}, "use a path of its own, such as /data"),
        ({"read_only_mounts": {"/data": "/srv"}}, "is not in allowed_roots= (allowed: none)"),
        ({"mounts": ["/srv"]}, "it is not inside an allowed root"),
    ],
)
def test_configs_that_cannot_be(config: dict[str, Any], text: str) -> None:
    """A config that makes no sense is refused when the section is made, with what to do."""
    with pytest.raises(PromptValidationError) as caught:
        PodmanSandboxSection(config=PodmanSandboxConfig(**config))
    assert text in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a folder of root's")
def test_a_folder_of_roots(tmp_path: Path) -> None:
    """A folder that belongs to root is refused: a container never runs as root."""
    (tmp_path / "mine").mkdir()
    with pytest.raises(PromptValidationError, match="chown -R 1000:1000"):
        PodmanSandboxSection(config=PodmanSandboxConfig(root=tmp_path / "mine"))
    with PodmanSandboxSection(config=PodmanSandboxConfig(root=tmp_path / "new")):
        assert (tmp_path / "new").stat().st_uid == 1000


def test_a_folder_whose_journal_would_be_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with no private place for old files and none beside it is refused: the container could change them."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "open"))
    with pytest.raises(PromptValidationError, match="where the container could change it"):
        PodmanSandboxSection(config=PodmanSandboxConfig(root=tmp_path / ("x" * 245)))


def test_a_folder_that_cannot_be_mounted(tmp_path: Path) -> None:
    """A path with a colon in it is refused, since podman would read it as two."""
    with pytest.raises(PromptValidationError, match="has a colon in it"):
        PodmanSandboxSection(config=PodmanSandboxConfig(root=tmp_path / "a:b"))
