"""Code and commands that try to get out of the container, to hang it or to fill the machine, in a real one."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from tests.contrib.podman_parts import Sandbox, needs_podman, owned, processes

from weakincentives.contrib.code import EvalBackend
from weakincentives.contrib.podman import Container, ContainerBackend, ContainerSpec
from weakincentives.contrib.podman.inside.scratch import Bounds, over
from weakincentives.contrib.podman.shell import run_command
from weakincentives.testing import EvalEscapes

pytestmark = pytest.mark.slow  # containers

_shared: list[Container] = []


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    needs_podman()
    with tempfile.TemporaryDirectory() as folder:
        user = owned(Path(folder))
        _shared.append(Container(ContainerSpec(root=folder, user=user, rootless=os.geteuid() != 0)))
        yield
        _shared.pop().close()


class TestContainer(EvalEscapes):
    def make(self) -> EvalBackend:
        return ContainerBackend(_shared[0])


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    needs_podman()
    with Sandbox(disk="64m", memory="384m", tmp="32m", pids=64, max_files=2000, timeout=120.0) as made:
        yield made


def quiet(box: Sandbox) -> None:
    """Nothing runs any more, and it still works."""
    name = box.section.container.name
    if name is not None:
        assert processes(name) == 1
    assert box.ok("echo alive") == "alive\n"


# Planted files: the host never follows or opens them


def test_planted_symlinks(box: Sandbox, tmp_path: Path) -> None:
    """Symlinks that a command planted lead no tool out of the workspace, neither to read nor to write nor to delete."""
    secret = tmp_path / "secret.txt"
    secret.write_text("s3cret")
    box.ok(f"ln -s {secret} file; ln -s {tmp_path} dir; ln -s / root; ln -s loop loop; ln -s ../../.. up")
    for path in ("file", "dir/secret.txt", f"root{secret}", "loop", "up/etc/passwd", "file/x"):
        assert not box.call("read_file", path=path).result.success
        assert not box.call("write_file", path=path, content="planted", overwrite=True).result.success
        assert not box.call("edit_file", path=path, old_text="s3cret", new_text="x").result.success
        assert not box.call("copy_file", src=path, dst="copied").result.success
        assert not box.python("open('x')", reads=[path]).result.success
        assert not box.python("1", writes=[f"{path}/new"]).result.success
    assert not box.call("write_file", path="dir/planted", content="x").result.success
    assert not box.call("delete_file", path="dir/secret.txt").result.success
    assert "s3cret" not in box.call("grep_files", pattern="s3cret").text
    assert "secret.txt" not in box.call("glob_files", pattern="**/*.txt").text
    assert box.call("delete_file", path="dir", recursive=True).result.success
    assert secret.read_text() == "s3cret"
    assert os.listdir(tmp_path) == ["secret.txt"]
    box.ok("rm -f file root loop up")


def test_planted_fifos(box: Sandbox) -> None:
    """A FIFO that a command planted makes no tool wait, neither does putting files back."""
    box.ok("mkfifo pipe; mkdir d; mkfifo d/pipe")
    started = time.monotonic()
    assert not box.call("read_file", path="pipe").result.success
    assert not box.call("write_file", path="pipe", content="x", overwrite=True).result.success
    assert not box.python("1", reads=["d/pipe"]).result.success
    box.call("grep_files", pattern="x")
    box.fails("rm -rf pipe d; exit 1", check=True)
    assert time.monotonic() - started < 30
    assert box.ok("test -p pipe && test -p d/pipe && rm -rf pipe d && echo gone") == "gone\n"


def test_files_swapped_while_the_host_reads(box: Sandbox, tmp_path: Path) -> None:
    """A name that turns from file to symlink and back is never read through."""
    (tmp_path / "secret.txt").write_text("s3cret")
    tmp_path.chmod(0o755)
    swap = f"mkdir -p real; echo ok > real/secret.txt; ln -sfn {tmp_path} link; while true; do "
    swap += "mv -T real tmp; mv -T link real; mv -T real link; mv -T tmp real; done"
    thread = Thread(target=lambda: run_command(box.section.container, swap, seconds=2))
    thread.start()
    seen: set[str] = set()
    while thread.is_alive():
        try:
            seen.add(box.section.filesystem.read("real/secret.txt"))
        except OSError:
            seen.add("refused")
    assert seen <= {"ok\n", "refused", ""}
    assert "refused" in seen
    box.ok("rm -rf real link tmp")


def test_directories_swapped_while_they_are_counted(tmp_path: Path) -> None:
    """A file or a symlink in place of a directory, or above one, stops no command and leads nowhere else."""
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    (elsewhere / "below" / ".wink").mkdir(parents=True)
    over_there = Bounds(1 << 30, 1000, 0, False)
    assert "is reserved" in str(over(str(elsewhere), over_there, False))
    for name in range(20):
        (work / f"{name}" / "below").mkdir(parents=True)
    ends = time.monotonic() + 1.0

    def swap() -> None:
        aside = tmp_path / "aside"
        while time.monotonic() < ends:
            for name in work.iterdir():
                for stand_in in (lambda name=name: name.symlink_to(elsewhere), lambda name=name: name.touch()):
                    name.rename(aside)
                    stand_in()
                    name.unlink()
                    aside.rename(name)

    swapping = Thread(target=swap)
    swapping.start()
    found = {over(str(work), over_there, False) for _ in iter(lambda: time.monotonic() < ends, False)}
    swapping.join()
    assert found == {None}


def test_deep_and_many_directories(box: Sandbox) -> None:
    """Trees deeper than any path, and too many files, are undone like everything else."""
    before = box.files()
    nest = 'python3 -c \'import os\nfor n in range(2100): os.mkdir("d"); os.chdir("d")\''
    text = box.fails(nest)
    assert "cannot be looked into" in text or "more than 2,000 files" in text
    assert box.files() == before
    assert "more than 2,000 files" in box.fails("for n in $(seq 2500); do : > $n; done")
    assert box.files() == before


# Filling, flooding and staying


def test_fork_bomb(box: Sandbox) -> None:
    """A fork bomb is held by the limit of processes and gone after the call."""
    started = time.monotonic()
    assert "did not end within" in box.fails(":(){ :|:& };:; sleep 100", timeout_seconds=0.5)
    assert time.monotonic() - started < 60
    quiet(box)
    assert not box.python("import os\nwhile True:\n    os.fork()").result.success
    quiet(box)


def test_memory_hog(box: Sandbox) -> None:
    """A program that takes all memory is killed, and the container lives on."""
    box.done("true")
    name, beside = box.section.container.name, set(os.listdir())
    reply = box.done("python3 -c 'x = []\nwhile True: x.append(bytearray(10**7))'")
    assert reply.exit_code in {137, -9}
    assert box.sh("exec tail /dev/zero").text.startswith("Killed, as it seems for want of memory")
    assert box.done("cat /dev/zero > /tmp/fill").exit_code == 1  # the size of /tmp
    assert "MemoryError" in box.python("bytearray(10**9)").text
    quiet(box)
    assert box.section.container.name == name
    assert "oom" not in set(os.listdir()) - beside, "the monitor of podman leaves it where it is started"


def large_and_deleted(root: Path) -> list[str]:
    """What programs still hold open on the disk of a folder although it was deleted: it takes up space unseen."""
    disk, found = root.stat().st_dev, list[str]()
    for opened in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            stat = opened.stat()
            if stat.st_dev == disk and not stat.st_nlink and stat.st_size > 16 << 20:
                found.append(str(opened.readlink()))
    return [name for name in found if name.startswith(("/workspace/", str(root)))]


def test_disk_filler(box: Sandbox) -> None:
    """What fills the workspace is stopped at its limit and undone: one file, many, holes, deleted but open ones."""
    before = box.files()
    assert "the workspace holds more than" in box.fails("dd if=/dev/zero of=big bs=1M count=100000; echo more > more")
    assert "the workspace holds more than" in box.fails("for n in $(seq 200); do head -c 2000000 /dev/zero > $n; done")
    assert "the workspace holds more than" in box.fails("truncate -s 40M a b c")
    limited = "python3 -c \"\nf = open('x', 'wb'); import os; os.unlink('x')\nwhile True: f.write(bytes(10**6))\""
    assert box.done(limited).exit_code != 0  # a file has the same limit, named or not
    assert box.files() == before
    patience = time.monotonic() + 60
    while held := large_and_deleted(box.root):
        assert time.monotonic() < patience, held
        time.sleep(0.1)
    quiet(box)


def test_the_rest_of_the_disk_is_kept(box: Sandbox) -> None:
    """Files that are deleted but still open count for nothing in the workspace, so the disk itself is watched."""
    with tempfile.TemporaryDirectory() as folder:
        assert over(folder, Bounds(1000, 10, 0, False), False) is None
        assert "has less than" in str(over(folder, Bounds(1000, 10, 1 << 60, False), False))


def test_output_floods(box: Sandbox) -> None:
    """Floods on either output, from many processes, of Python too, end soon and fill nothing."""
    started = time.monotonic()
    assert "far too much" in box.fails("yes >&2")
    assert "far too much" in box.fails("for n in 1 2 3; do yes $n & done; wait")
    assert "printed without end" in box.python("while True:\n    print('x' * 10000)").text
    assert time.monotonic() - started < 60
    quiet(box)


def test_children_that_stay(box: Sandbox) -> None:
    """Children in sessions of their own that ignore every signal they can are ended with the call, or its time."""
    stay = """python3 -c "
import os, signal, time
for depth in range(5):
    if os.fork() == 0:
        os.setsid()
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: time.sleep(1)
" """
    box.ok(stay)
    quiet(box)
    box.fails(f"{stay}; exit 1", check=True)
    quiet(box)
    box.fails(f"{stay}; sleep 100", timeout_seconds=0.5)
    quiet(box)


# The machine


def test_process_1_is_out_of_reach(box: Sandbox) -> None:
    """A command can neither kill, trace, read nor write the container's own process."""
    probes = "for s in KILL TERM INT HUP STOP SEGV; do kill -$s 1; done; cat /proc/1/mem /proc/1/environ /proc/1/maps"
    done = box.done(f"{probes}; ls /proc/1/fd; echo x > /proc/1/fd/201; echo x > /proc/1/oom_score_adj; echo end")
    assert done.stdout == "end\n"
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
(libc.ptrace(16, 1, 0, 0), libc.ptrace(0x4206, 1, 0, 0), libc.process_vm_readv(1, 0, 0, 0, 0, 0))
"""
    assert "Value: (-1, -1, " in box.python(code).text
    spoof = """
import os
for fd in range(3, 1000):
    try: os.write(fd, b'\\0\\0\\0\\2{}' * 100)
    except OSError: pass
"""
    box.python(spoof)
    quiet(box)


@pytest.mark.parametrize(
    "slower",
    [
        "setpriority(os.PRIO_PROCESS, 1, 19)",
        "setpriority(os.PRIO_PGRP, 1, 19)",
        "setpriority(os.PRIO_USER, 0, 19)",
        "sched_setaffinity(1, {min(os.sched_getaffinity(0))})",
        "sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))",
    ],
)
def test_process_1_cannot_be_slowed_for_the_next_call(box: Sandbox, slower: str) -> None:
    """It runs as the user of the commands, who may give it less of the processors: such a container is replaced."""
    look = "import os\nos.getpriority(0, 0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))"
    before = box.python(look).text
    box.python(f"import os\nos.{slower}")
    assert box.python(look).text == before


def test_process_1_keeps_its_share_of_the_disk(box: Sandbox) -> None:
    """What it could not find out about itself afterwards is refused."""
    ioprio_set = {"x86_64": 251, "aarch64": 30}[os.uname().machine]
    sched_setattr = {"x86_64": 314, "aarch64": 274}[os.uname().machine]
    code = f"import ctypes\ncall = ctypes.CDLL(None).syscall\ncall({ioprio_set}, 1, 1, 3 << 13), "
    code += f"call({sched_setattr}, 1)"
    assert "Value: (-1, -1)" in box.python(code).text


def test_privileges(box: Sandbox) -> None:
    """Namespaces, mounts, devices, set-user-id programs and kernel interfaces are refused."""
    code = """
import ctypes, os, resource, socket
libc = ctypes.CDLL(None, use_errno=True)
tried = {}
def attempt(name, act):
    try: tried[name] = act()
    except OSError as error: tried[name] = error.errno
attempt('setuid', lambda: os.setuid(0))
attempt('chroot', lambda: os.chroot('/tmp'))
attempt('mknod', lambda: os.mknod('/tmp/sda', 0o60660, os.makedev(8, 0)))
attempt('kmsg', lambda: os.open('/dev/kmsg', os.O_RDONLY))
attempt('kcore', lambda: os.open('/proc/kcore', os.O_RDONLY) and os.read(os.open('/proc/kcore', os.O_RDONLY), 1))
attempt('chown', lambda: os.chown('/tmp', 0, 0))
attempt('prlimit', lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3)) and 0)
tried['unshare'] = libc.unshare(0x10000000 | 0x20000)
attempt('vsock', lambda: socket.socket(40, socket.SOCK_STREAM) and 0)
attempt('alg', lambda: socket.socket(38, socket.SOCK_SEQPACKET) and 0)
attempt('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW) and 0)
tried['clone'] = libc.syscall(56, 0x10000000, 0, 0, 0, 0)
tried['mount'] = libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)
tried['bpf'] = libc.syscall(321, 0, 0, 0)
tried['keyctl'] = libc.syscall(250, 0, 0, 0)
sorted(name for name, result in tried.items() if result in (None, 0))
"""
    text = box.python(code).text
    assert text == "OK\nValue: []"
    assert box.ok("cp /bin/sh /tmp/sh; chmod u+s /tmp/sh; /tmp/sh -pc 'id -u'").strip() != "0"


def test_network(box: Sandbox) -> None:
    """Nothing of the host or beyond can be reached, by name, address or socket file."""
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        listener.setblocking(False)
        port = listener.getsockname()[1]
        addresses = ["127.0.0.1", "10.0.2.2", "169.254.169.254", "8.8.8.8", socket.gethostname()]
        code = f"""
import socket
reached = []
for address in {addresses!r}:
    try:
        socket.create_connection((address, {port}), timeout=0.3)
        reached.append(address)
    except OSError:
        pass
for kind in (socket.SOCK_RAW,):
    try:
        socket.socket(socket.AF_INET, kind, 1)
        reached.append('raw')
    except OSError:
        pass
reached
"""
        assert box.python(code).text == "OK\nValue: []"
        with pytest.raises(BlockingIOError):
            listener.accept()
    found = box.ok("find / -xdev -type s 2>/dev/null; ls /run /var/run 2>/dev/null | grep -i -e docker -e podman; true")
    assert found == ""


def test_writes_to_every_mount(box: Sandbox) -> None:
    """Of all that is mounted, only the workspace and the scratch directories take a file; programs start elsewhere."""
    script = """
while read -r _ where _ options _; do
    if (: > "$where/probe") 2>/dev/null; then echo "$where"; rm -f "$where/probe"; fi
done < /proc/mounts
"""
    assert set(box.ok(script).split()) <= {"/workspace", "/tmp", "/dev/shm"}
    assert "Permission denied" in box.done("cp /bin/true prog; ./prog; rm prog").stderr
    mounts = {line.split()[1]: line.split()[3].split(",") for line in box.ok("cat /proc/mounts").splitlines()}
    for path in ("/workspace", "/tmp", "/dev/shm"):
        assert {"nosuid", "nodev"} <= set(mounts[path])
    assert "noexec" in mounts["/workspace"]


def test_proc_and_sys(box: Sandbox) -> None:
    """Kernel settings cannot be changed, and the host's processes are not seen."""
    assert box.ok("ls -d /proc/[0-9]* | wc -l").strip() in {"2", "3", "4", "5"}
    script = """
for f in $(find /proc/sys /sys -type f -writable 2>/dev/null | head -300); do
    if (cat $f > /tmp/was && cat /tmp/was > $f) 2>/dev/null; then echo "$f"; fi
done
"""
    assert box.ok(script) == ""
