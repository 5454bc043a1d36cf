"""The container itself: how it starts, what it is checked for, how it ends, and what is left of it."""

from __future__ import annotations

import base64
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contrib.podman_parts import Sandbox, containers, needs_podman, owned, processes

from weakincentives.contrib.code import EvalFiles, EvalLimits
from weakincentives.contrib.code.wire import decode
from weakincentives.contrib.podman import Container, ContainerBackend, ContainerSpec
from weakincentives.contrib.podman import container as container_module
from weakincentives.contrib.podman import spec as seccomp
from weakincentives.contrib.podman.command import environment, explained, podman
from weakincentives.contrib.podman.inside.processes import Capture
from weakincentives.contrib.podman.leftovers import LABEL, is_gone, owner, sweep
from weakincentives.contrib.podman.shell import run_command
from weakincentives.errors import SandboxError

pytestmark = pytest.mark.slow  # containers

TIGHT: dict[str, Any] = {
    "pid": 1, "uid": 1000, "gid": 1000, "memory": 512 << 20, "swap": 0, "pids": 128, "cpus": 1.0,
    "capabilities": {"CapEff": "0000000000000000", "CapBnd": "0000000000000000"},
    "opened": [], "no_new_privileges": "1", "seccomp": "2",
    "interfaces": ["lo"], "read_only": {"/": True, "/data": True}, "mounts": ["/workspace", "/tmp", "/dev/shm"],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    owned(tmp_path)
    tmp_path.chmod(0o755)
    return tmp_path


def spec(folder: Path, **more: Any) -> ContainerSpec:
    return ContainerSpec(root=str(folder), user=owned(folder), rootless=os.geteuid() != 0, **more)


@pytest.fixture
def running(folder: Path) -> Iterator[Container]:
    needs_podman()
    made = Container(spec(folder))
    yield made
    made.close()


# What it is checked for


def test_a_tight_container_has_no_shortcomings() -> None:
    """What is asked for and in force is not complained about."""
    assert ContainerSpec(root="/x", user=(1000, 1000), read_only={"/data": "/y"}).shortcomings(TIGHT) == []


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ({"memory": None}, "memory is limited to None"),
        ({"memory": 1 << 40}, "memory is limited to 1099511627776"),
        ({"swap": None}, "swap is limited to None"),
        ({"swap": 4096}, "swap is limited to 4096"),
        ({"pids": None}, "processes are limited to None"),
        ({"pids": 4096}, "processes are limited to 4096"),
        ({"cpus": None}, "cpus are limited to None"),
        ({"cpus": 2.0}, "cpus are limited to 2.0"),
        ({"uid": 0, "gid": 0}, "it runs as root"),
        ({"uid": 1001}, "it runs as user 1001"),
        ({"pid": 4711}, "it shares the machine's processes"),
        (
            {"capabilities": {"CapEff": "0", "CapBnd": "00000000a80425fb"}},
            "it has capabilities (CapBnd=00000000a80425fb)",
        ),
        ({"capabilities": None}, "it has capabilities (all=unknown)"),
        ({"no_new_privileges": "0"}, "it can gain privileges"),
        ({"seccomp": "0"}, "system calls are not filtered"),
        ({"opened": ["mounts"]}, "it can get into ['mounts']"),
        ({"opened": None}, "it can get into None"),
        ({"interfaces": ["eth0", "lo"]}, "it has a network"),
        ({"read_only": {"/": False, "/data": True}}, "/ can be written"),
        ({"read_only": {"/": True}}, "/data can be written"),
        ({"mounts": None}, "what can be written is not known"),
        ({"mounts": ["/workspace", "/var/lib"]}, "/var/lib can be written"),
    ],
)
def test_every_shortcoming_is_named(facts: dict[str, Any], complaint: str) -> None:
    """Each limit that is not in force is a complaint of its own; one that is unknown is not in force."""
    wanted = ContainerSpec(root="/x", user=(1000, 1000), read_only={"/data": "/y"})
    assert any(complaint in found for found in wanted.shortcomings({**TIGHT, **facts}))
    assert len(wanted.shortcomings({})) >= 10


def loosening(tmp_path: Path, old: str, new: str) -> str:
    """A podman that is real but for one argument."""
    script = tmp_path / "loose-podman"
    script.write_text(
        f"#!{sys.executable}\nimport os, sys\nargs = []\n"
        f"for arg in sys.argv[1:]:\n    args += {new!r}.split() if arg == {old!r} else [arg]\n"
        f"os.execv({shutil.which('podman')!r}, ['podman', *args])\n"
    )
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("--cap-drop", "--cap-add CHOWN --cap-drop", "it has capabilities"),
        ("no-new-privileges", "no-new-privileges=false", "it can gain privileges"),
        ("--read-only", "--read-only=false", "/ can be written"),
        ("--read-only", "--read-only --tmpfs /more", "/more can be written"),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="a loose container can be made by root only")
def test_a_loose_container_is_not_used(tmp_path: Path, folder: Path, old: str, new: str, complaint: str) -> None:
    """A container that turns out to be less tight than asked for is refused and removed before anything runs in it."""
    needs_podman()
    loose = Container(spec(folder, program=loosening(tmp_path, old, new)))
    with pytest.raises(SandboxError, match="lacks required isolation") as caught:
        loose.start()
    assert complaint in str(caught.value)
    assert loose.name is None
    assert containers(f"label={LABEL}={owner()}") == []


@pytest.fixture
def willful_image() -> Iterator[str]:
    """An image that would start a file of the workspace, and has a place of its own that can be written."""
    needs_podman()
    name = f"localhost/wink-test-willful:{os.getpid()}"

    def do(*arguments: str) -> str:
        line = podman("podman", *arguments)
        return subprocess.run(line, env=environment(), capture_output=True, text=True, check=True).stdout.strip()

    made = do("create", "--network", "none", "localhost/wink-python:latest", "true")
    changes = ('ENTRYPOINT ["python3", "/workspace/first.py"]', "VOLUME /data", "WORKDIR /workspace")
    try:
        do("commit", "--quiet", *(f"--change={change}" for change in changes), made, name)
        yield name
    finally:
        do("rm", "--force", made)
        do("rmi", "--force", "--ignore", name)


def test_what_an_image_wants_is_not_asked(willful_image: str, folder: Path) -> None:
    """Process 1 is the sandbox's own whatever the image would start, and the image's volumes cannot be written."""
    (folder / "first.py").write_text("open('/workspace/started', 'w')\n")
    owned(folder)
    made = Container(spec(folder, image=willful_image))
    try:
        told = run_command(made, "grep -z first.py /proc/1/cmdline; touch /data/x; grep -c /data /proc/mounts; pwd")
    finally:
        made.close()
    assert told.stdout == b"0\n/workspace\n"
    assert b"/data/x" in told.stderr
    assert os.listdir(folder) == ["first.py"]


def test_it_is_tight(running: Container) -> None:
    """Inside, the kernel says: no capabilities, no new privileges, filtered calls, one interface, nothing writable."""
    told = run_command(running, "cat /proc/self/status; cat /proc/net/dev; cat /proc/mounts").stdout.decode()
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in told
    assert "eth" not in told
    writes = (
        "for d in / /etc /usr /var /root /home /proc /sys /proc/sys/kernel /sys/fs/cgroup /dev; do touch $d/x; done"
    )
    done = run_command(running, f"{writes}; touch /dev/null/x; find / -xdev -writable -not -path '/proc/*' -type d")
    assert done.stderr.decode().count("touch:") == 12
    assert set(done.stdout.decode().split()) <= {"/workspace", "/tmp"}
    hooks = "echo x > /proc/sys/kernel/core_pattern; echo c > /proc/sysrq-trigger; echo 1 > /sys/kernel/uevent_helper"
    assert run_command(running, hooks).stderr.decode().count("\n") == 3


# How it ends


def test_it_restarts_after_it_was_ended(running: Container) -> None:
    """A container that was ended from outside is noticed, and the next call gets a new one."""
    first = running.start()
    subprocess.run(podman("podman", "kill", first), env=environment(), capture_output=True, check=True)
    assert running._running is not None
    running._running._client.wait(10)
    assert run_command(running, "echo hi").stdout == b"hi\n"
    assert running.name != first
    running.stop()
    assert running.name is None
    assert run_command(running, "echo hi").stdout == b"hi\n"


def test_it_is_killed_in_the_middle(running: Container) -> None:
    """When it is killed during a command, that call fails and the next one works."""
    line = podman("podman", "kill", running.start())
    kill = threading.Timer(0.3, lambda: subprocess.run(line, env=environment(), capture_output=True, check=True))
    kill.start()
    with pytest.raises(SandboxError, match="broke down"):
        run_command(running, "sleep 20")
    kill.join()
    assert run_command(running, "echo hi").stdout == b"hi\n"


def test_a_container_that_does_not_answer(running: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stopped is ended for good when its time is over, and a new one takes its place."""
    name = running.start()
    monkeypatch.setattr(container_module, "REPLY_GRACE_SECONDS", 0.5)
    subprocess.run(podman("podman", "pause", name), env=environment(), capture_output=True, check=True)
    started = time.monotonic()
    with pytest.raises(SandboxError, match="it does not answer"):
        run_command(running, "echo hi", seconds=0.5)
    assert time.monotonic() - started < 60
    assert name not in containers()
    monkeypatch.undo()
    assert run_command(running, "echo hi").stdout == b"hi\n"


def test_it_is_replaced_before_its_lease_is_over(folder: Path) -> None:
    """Podman ends a container after its lease; one whose lease would end during a call is replaced before."""
    needs_podman()
    made = Container(spec(folder, lease=300))
    try:
        first = made.start()
        run_command(made, "true", seconds=1)
        assert made.name == first
        run_command(made, "true", seconds=299)
        assert made.name != first
    finally:
        made.close()


def test_it_is_halted_while_it_starts(running: Container, folder: Path) -> None:
    """A request that was waiting for the start when everything was halted is not run any more."""
    errors: list[str] = []

    def run() -> None:
        try:
            run_command(running, "touch ran")
        except SandboxError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    ticket = running.ticket
    thread.start()
    time.sleep(0.05)
    running.halt()
    thread.join(20)
    assert errors == ["The call is over, so its command was not run."]
    with pytest.raises(SandboxError, match="The call is over"):
        run_command(running, "touch ran", ticket=ticket)
    assert os.listdir(folder) == []
    assert run_command(running, "echo hi").stdout == b"hi\n"


def test_an_evaluation_is_tied_to_its_call(running: Container, folder: Path) -> None:
    """Code whose call began before everything was halted is not run after it."""
    begun = ContainerBackend(running).begin()
    running.halt()
    code = "open('/workspace/late.txt', 'w').close()"
    with pytest.raises(SandboxError, match="The call is over"):
        begun.evaluate(code, {}, EvalFiles(), EvalLimits())
    assert os.listdir(folder) == []
    assert ContainerBackend(running).begin().evaluate(code, {}, EvalFiles(), EvalLimits()).error is None


def test_output_that_stays_open() -> None:
    """The last of an output is taken without waiting for its end, which may never come."""
    capture = Capture(100)
    os.write(capture.write_end, b"said")
    thread = threading.Thread(target=capture.finish, daemon=True)
    thread.start()
    thread.join(60)
    stuck = thread.is_alive()
    capture.started()
    thread.join(60)
    capture.close()
    assert not stuck
    assert capture.kept == b"said"


INTERRUPTED = """
import json, os, signal, threading
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.contrib.tools import PodmanSandboxConfig, PodmanSandboxSection
from weakincentives.prompt import Prompt
from weakincentives.runtime import Session, ToolCall

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where this process was started
with PodmanSandboxSection(config=PodmanSandboxConfig(files={"a.txt": "one"})) as box:
    box.start()
    with ToolExecutor(prompt=Prompt(name="x", sections=[box]), session=Session()) as executor:
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        arguments = {"command": "rm a.txt; (while true; do echo x >> late; done) & sleep 30"}
        try:
            executor.execute(ToolCall("1", "shell_execute", json.dumps(arguments)))
        except KeyboardInterrupt:
            print("interrupted", box.container.name, os.listdir(box.container.spec.root))
        again = executor.execute(ToolCall("2", "shell_execute", json.dumps({"command": "ls"})))
        print(again.text)
"""


def test_ctrl_c() -> None:
    """An interrupt in the middle of a command ends it, everything it did is undone, and the sandbox works on."""
    needs_podman()
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "interrupted None ['a.txt']\nExit code: 0\na.txt\n", done.stderr


OWNER = """
import sys, time
from weakincentives.contrib.tools import PodmanSandboxConfig, PodmanSandboxSection
from weakincentives.contrib.podman.shell import run_command
box = PodmanSandboxSection(config=PodmanSandboxConfig(root=sys.argv[1]))
box.start()
print(box.container.name, flush=True)
{then}
"""


def owner_process(folder: Path, then: str) -> subprocess.Popen[str]:
    code = OWNER.format(then=then)
    return subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)


def gone_within(name: str, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if name not in containers():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    "then",
    [
        "time.sleep(100)",
        "run_command(box.container, 'touch busy; while true; do echo x >> w; sleep 0.01; done')",
        "import os\nif os.fork() == 0:\n    time.sleep(20)\nelse:\n    time.sleep(100)",
    ],
    ids=["idle", "in a command", "with a forked child"],
)
def test_kill_9_of_the_owner(folder: Path, then: str) -> None:
    """When its owner is killed, idle or in the middle of a command, the container ends and removes itself."""
    needs_podman()
    root = folder / "ws"
    with owner_process(root, then) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert name in containers()
        time.sleep(0.3)
        process.kill()
        assert gone_within(name, 10)
    sizes = [path.stat().st_size for path in root.glob("w")]
    time.sleep(0.1)
    assert [path.stat().st_size for path in root.glob("w")] == sizes


def test_the_end_of_the_program(folder: Path) -> None:
    """A program that ends without closing its section leaves nothing, neither does one that is interrupted."""
    needs_podman()
    for then in ("sys.exit(0)", "raise KeyboardInterrupt"):
        with owner_process(folder / "ws", f"sys.stderr.close()\n{then}") as process:
            assert process.stdout is not None
            name = process.stdout.readline().strip()
            process.wait(20)
            assert name not in containers()


def test_orphans_are_swept(folder: Path) -> None:
    """Containers of owners that are gone are removed when another starts; those of living ones stay."""
    needs_podman()
    dead = owner().rpartition(":")[0] + ":1"
    names = (f"wink-test-orphan-{os.getpid()}", f"wink-test-living-{os.getpid()}")
    for name, whose in zip(names, (dead, owner()), strict=True):
        line = podman("podman", "run", "-d", "--rm", "--name", name, "--network", "none", "--label", f"{LABEL}={whose}")
        line += ["localhost/wink-python:latest", "sleep", "60"]
        subprocess.run(line, env=environment(), capture_output=True, check=True)
    try:
        sweep("podman")
        assert names[0] not in containers()
        assert names[1] in containers()
    finally:
        rm = podman("podman", "rm", "-f", "-t", "0", "--ignore", *names)
        subprocess.run(rm, env=environment(), capture_output=True, check=True)


def test_whose_a_container_is() -> None:
    """An owner is gone when its process is, also when another has its number now; another machine's is not known."""
    machine, pid, started = owner().split(":")
    assert not is_gone(owner())
    assert is_gone(f"{machine}:{pid}:{int(started) + 1}")
    assert is_gone(f"{machine}:99999999:1")
    assert not is_gone("elsewhere:99999999:1")
    assert not is_gone(f"{machine}0:99999999:1")
    assert str(os.stat("/proc/self/ns/pid").st_ino) in machine
    assert not is_gone("nonsense")


def test_it_is_not_used_in_a_forked_process(running: Container) -> None:
    """A forked child can neither use nor end its parent's container."""
    name = running.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the test has threads, the child uses none
        child = os.fork()
    if child == 0:
        code = 1
        try:
            run_command(running, "true")
        except SandboxError as error:
            code = 0 if "forked" in str(error) else 2
        finally:
            running.close()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert name in containers()
    assert run_command(running, "echo hi").stdout == b"hi\n"


def test_a_hundred_commands_leak_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a hundred calls that succeed, fail, time out and break there are no more processes, files or handles."""
    needs_podman()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Sandbox() as box:
        box.ok("true")
        box.python("1")
        gc.collect()
        mine = f"label={LABEL}={owner()}"
        name = box.section.container.name
        before = (len(os.listdir("/proc/self/fd")), containers(mine), os.listdir(tmp_path))
        for n in range(25):
            box.ok(f"echo {n} > out.txt; (sleep 100 &)")
            box.fails(f"echo {n}; exit 1", check=True)
            box.fails(f"sleep 5; echo {n}", timeout_seconds=0.01)
            box.python(f"{n} / 0")
        gc.collect()
        assert box.section.container.name == name
        assert name is not None
        assert processes(name) == 1
        after = (len(os.listdir("/proc/self/fd")), containers(mine), os.listdir(tmp_path))
        assert after == before
        assert os.listdir(box.root) == ["out.txt"]
    assert os.listdir(tmp_path) == []


# What is not there


def test_no_podman(folder: Path) -> None:
    """Without podman the first command fails, and says how to install it; the file tools work."""
    with Sandbox(podman="no-such-podman") as box:
        text = box.fails("true")
        assert "no-such-podman is not installed" in text
        assert "apt-get install --no-install-recommends podman runc" in text
        assert box.call("write_file", path="a.txt", content="x").result.success
        assert "is not installed" in box.python("1").text
        with pytest.raises(SandboxError, match="apt-get install"):
            box.section.start()


def test_no_image() -> None:
    """Without its image the first command fails, and says how to get it."""
    needs_podman()
    with Sandbox(image="localhost/no-such-image:latest") as box:
        assert (
            "podman does not have the image localhost/no-such-image:latest. Build it with: podman build"
            in box.fails("true")
        )
    assert "Get it with: podman pull docker.io/x" in explained("Error: docker.io/x: image not known", "docker.io/x")


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("Error: localhost/wink-python:latest: image not known", "Build it with: wink sandbox image"),
        ("Error: write /var/tmp/x: no space left on device", "Free some with: podman system prune"),
        ("Error: OCI runtime: error setting rlimit type 7: operation not permitted", "may not set limits"),
        ('Error: runc: exec: "python3": executable file not found in $PATH', "has no python3"),
        ("Error: OCI runtime error: crun: cgroups in hybrid mode not supported", "apt-get install runc"),
        ("Error: newuidmap: write to uid_map failed", "/etc/subuid"),
        ('Error: exec: "runc": executable file not found in $PATH', "podman cannot start the container"),
        ("Error: crun: executable file `python3` not found in $PATH", "has no python3"),
        ("Error: no such file: /opt/python3/seccomp.json", "podman cannot start the container"),
        ("Error: something else", "(podman: something else)"),
        ("", "it said nothing"),
    ],
)
def test_complaints_of_podman(said: str, meaning: str) -> None:
    """What podman complains about is told with what to do, and its own words."""
    assert meaning in explained(said, "localhost/wink-python:latest")


def test_no_space(tmp_path: Path) -> None:
    """A command is not begun when the disk could not hold what it may write and what it takes to go back."""
    free = shutil.disk_usage("/tmp").free
    with Sandbox(disk=free, podman="no-such-podman") as box:
        text = box.fails("true")
        assert "bytes left, and a sandbox needs twice its limit" in text
        assert "lower disk=" in text
        assert "bytes left, and a sandbox needs twice its limit" in box.python("1").text


# What comes out of it is not believed


FAKE = """\
#!{python}
import json, os, struct, sys, time
TIGHT = {facts!r}
def frame(message):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    os.write(1, struct.pack(">I", len(body)) + body)
if "ps" in sys.argv:
    print("[]")
elif "rm" in sys.argv:
    os.kill(int(open(__file__ + ".pid").read()), 9)
elif "run" in sys.argv:
    with open(__file__ + ".pid", "w") as file:
        file.write(str(os.getpid()))
    os.read(0, 1 << 20)
    {boot}
    while True:
        data = os.read(0, 1 << 20)
        if not data:
            break
        {answer}
"""


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile of system calls for the stand-in, so that these tests need no podman."""
    place = tmp_path / "seccomp.json"
    place.write_text(json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["read", "write"]}]}))
    monkeypatch.setattr(seccomp, "PLACES", (str(place),))


def fake(tmp_path: Path, boot: str = 'frame({"facts": TIGHT})', answer: str = "pass") -> str:
    script = tmp_path / "fake-podman"
    text = FAKE.format(python=sys.executable, facts={**TIGHT, "uid": _uid(), "gid": _gid()}, boot=boot, answer=answer)
    script.write_text(text)
    script.chmod(0o755)
    return str(script)


def _uid() -> int:
    return os.geteuid() or 1000


def _gid() -> int:
    return os.getegid() or 1000


@pytest.mark.usefixtures("profile")
@pytest.mark.parametrize(
    "boot",
    [
        'os.write(1, b"\\xff\\xff\\xff\\xff")',
        'frame(b"not json")',
        'frame(b"[" * 100000)',
        'frame(["no", "object"])',
        'frame({"facts": None})',
        'frame({"facts": {"memory": "lots"}})',
        "sys.exit(7)",
    ],
)
def test_a_container_that_lies_at_the_start(tmp_path: Path, folder: Path, boot: str) -> None:
    """Whatever it says when it starts that is not what must be said, it is not used."""
    made = Container(spec(folder, program=fake(tmp_path, boot=boot)))
    with pytest.raises(SandboxError) as raised:
        made.start()
    assert "profile of system calls" not in str(raised.value)
    assert made.name is None
    made.close()


@pytest.mark.usefixtures("profile")
@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ('os.write(1, b"\\xff\\xff\\xff\\xff")', "announced 4,294,967,295 bytes"),
        ('frame(b"not json")', "not JSON"),
        ('frame(b"[" * 100000)', "not JSON"),
        ('frame({"id": 7, "how": "exit", "clean": True})', "something else"),
        ('frame({"id": 1, "how": "exit", "clean": True, "stdout": 7})', "makes no sense"),
        ('frame({"id": 1, "how": "exit", "clean": True, "stdout": "*"})', "makes no sense"),
        ('frame({"id": 1, "how": ["exit"], "clean": True})', "makes no sense"),
        ('frame({"id": 1, "how": "exit", "clean": True, "code": "0"})', "makes no sense"),
        ("sys.exit(7)", "it is gone"),
        ('os.write(1, b"\\0")', "does not answer"),
    ],
)
def test_a_container_that_lies_later(
    tmp_path: Path, folder: Path, answer: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answer that is too long, malformed, of the wrong type, for another request or late fails the call."""
    monkeypatch.setattr(container_module, "REPLY_GRACE_SECONDS", 0.3)
    made = Container(spec(folder, program=fake(tmp_path, answer=answer)))
    with pytest.raises(SandboxError, match=complaint):
        run_command(made, "true", seconds=1)
    made.close()


@pytest.mark.usefixtures("profile")
@pytest.mark.parametrize("written", ['{"../../etc/x": ""}', '{"out.txt": "' + "eHg=" * 400_000 + '"}'])
def test_files_that_were_not_asked_for(tmp_path: Path, folder: Path, written: str) -> None:
    """Files under other names, or too big ones, are not taken from an evaluation."""
    ok = json.dumps(base64.b64encode(b'{"value": 1}').decode())
    answer = f'frame({{"id": 1, "how": "exit", "clean": True, "result": {ok}, "written": {written}}})'
    made = Container(spec(folder, program=fake(tmp_path, answer=answer)))
    files = EvalFiles({}, frozenset({"out.txt"}))
    with pytest.raises(SandboxError):
        ContainerBackend(made).evaluate("1", {}, files, EvalLimits(seconds=1, file_bytes=1000))
    made.close()


NONE: list[Any] = [
    ["x", "y"], ["l"], ["l", 7], ["i", "zz"], ["f", "one"], ["b", "*"], ["d", [[1]]], ["d", [[["l", []], 1]]],
    ["s", [["l", []]]], {"a": 1}, 1.5, [[], []], [{}, []], ["i", 7],
]  # fmt: skip


@pytest.mark.parametrize("data", NONE)
def test_values_that_are_none(data: Any) -> None:
    """What is no value in the agreed form is refused, and nothing of it is run."""
    with pytest.raises(ValueError):
        decode(data)
    nested: Any = 1
    for _ in range(100):
        nested = ["l", [nested]]
    with pytest.raises(ValueError, match="too deeply"):
        decode(nested)


def test_an_input_that_cannot_enter(folder: Path) -> None:
    """An input that has no form in JSON is the caller's error, told as the result."""
    made = Container(spec(folder))
    result = ContainerBackend(made).evaluate("1", {"x": object()}, EvalFiles(), EvalLimits())
    assert result.error is not None
    made.close()
