"""The files, and all else that is not about Linux, on a machine that has nothing of Linux.

The machine is this one, with the calls taken away: in a process of its own where our code asks for them
(`tests/other_machine.py`), and where the kernel lets us by a filter that answers "no such call" (`ENOSYS`).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # interpreters

CONTRACT = [
    "tests/filesystem/test_host.py",
    "tests/filesystem/test_host_confined.py",
    "tests/filesystem/test_copies.py",
]
"""What is asked of a filesystem, what tries to get out of one, and trees that go to the limits."""


KILLED = [
    "tests/filesystem/test_host_scan.py::test_a_killed_transaction_is_rolled_back_with_what_others_did",
    "tests/filesystem/test_host_states.py::test_a_kill_undoes_the_open_call_only",
]
"""What is left when a process is killed, there as here."""

_ONE_WAY = "not TestByDirectoryHandles and not handles"
"""Without `openat2` there is no other way than by directory handles, so it need not be asked for."""


def _run(folder: Path, *arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    program = ["-c", code] if code else ["-m", "pytest"]
    options = ["-n", "0", "-p", "no:cacheprovider", "-m", "not torture", "--basetemp", str(folder / "pytest-inner")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, *program, *options, *arguments],
        env={**environment, "XDG_STATE_HOME": str(folder / "state")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_files_need_nothing_of_linux(tmp_path: Path) -> None:
    """The contract, recovery, and every attempt to get out, without `openat2`, `/proc`, `renameat2` and `O_PATH`."""
    done = _run(tmp_path, "-p", "tests.other_machine", *CONTRACT, *KILLED, "-k", _ONE_WAY)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "passed" in done.stdout or "%]" in done.stdout


_IMPORT_ALL = """
import tests.other_machine, importlib, pkgutil, weakincentives
for found in pkgutil.walk_packages(weakincentives.__path__, "weakincentives."):
    if not found.name.endswith("__main__") and ".inside" not in found.name:
        importlib.import_module(found.name)
"""


def test_every_module_can_be_imported() -> None:
    """Whatever needs Linux says so when it is used, and not before."""
    done = subprocess.run([sys.executable, "-c", _IMPORT_ALL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


_NEEDS_LINUX = """
import sys
import tests.other_machine
from weakincentives.contrib.asteval.process import check_installed
from weakincentives.contrib.podman.command import find_podman
for use in (check_installed, find_podman):
    try:
        use()
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_what_needs_linux_says_so_when_it_is_used() -> None:
    """And names what does without."""
    done = subprocess.run([sys.executable, "-c", _NEEDS_LINUX], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["RuntimeError", "SandboxError"], done.stderr
    for line in lines:
        assert "needs Linux" in line
        assert "this is darwin" in line
        assert "PythonSection" in line


_WHOLE_RUN = """
import sys
import tests.other_machine
from pathlib import Path
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.prompt import Prompt, PromptTemplate
from weakincentives.runtime import Session, SqliteEffectLedger
from weakincentives.testing import ScriptedAdapter, call, say

folder = Path(sys.argv[1])
(folder / "root").mkdir()
(folder / "root" / "a.txt").write_text("old")
with VfsToolsSection(config=VfsConfig(root=folder / "root", watch="scan")) as vfs:
    script = [
        call("read_file", path="a.txt"),
        call("write_file", path="a.txt", content="new"),
        call("edit_file", path="a.txt", old_text="missing", new_text="x"),
        say("Done."),
    ]
    prompt = Prompt(PromptTemplate(ns="t", key="t", sections=[vfs]))
    with SqliteEffectLedger(folder / "ledger.sqlite") as ledger:
        response = ScriptedAdapter(*script).evaluate(prompt, Session(), effect_ledger=ledger)
    print(response.text)
print((folder / "root" / "a.txt").read_text())
print(sorted(path.name for path in (folder / "root").iterdir()))
from weakincentives.runtime.ledger import sqlite_file
print(sqlite_file.BOOT == tests.other_machine.BOOT)
"""


def test_a_whole_run_needs_nothing_of_linux(tmp_path: Path) -> None:
    """Session, ledger, adapter and files on disk, with a call that fails and is undone; a lease knows its boot."""
    done = subprocess.run(
        [sys.executable, "-c", _WHOLE_RUN, str(tmp_path)],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["Done.", "new", "['a.txt']", "True"]


_DURABLE = """
import sys
import tests.other_machine as machine
from weakincentives.filesystem import HostFilesystem
with HostFilesystem(sys.argv[1], state_dir=sys.argv[2], durable=True) as fs:
    held = fs.savepoint()
    fs.write("a/b.txt", "x")
    fs.copy("a", "c")
    fs.release(held)
print(len(machine.full_syncs))
"""


def test_a_durable_write_waits_for_the_drive(tmp_path: Path) -> None:
    """Where the system has `F_FULLFSYNC`, `fsync` alone is not enough."""
    (tmp_path / "root").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _DURABLE, str(tmp_path / "root"), str(tmp_path / "state")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) >= 5


# --- by the kernel

_ABSENT = {
    "x86_64": (0xC000003E, (437, 316, 332, 303, 304, 326, 157)),
    "aarch64": (0xC00000B7, (437, 276, 291, 264, 265, 285, 167)),
}
"""The processor's name for itself, and its numbers of `openat2`, `renameat2`, `statx`, `name_to_handle_at`,
`open_by_handle_at`, `copy_file_range` and `prctl`."""

_ENOSYS = 0x00050000 | 38


def _filter() -> bytes:
    """A program for the kernel that answers ENOSYS to those calls, and lets all others pass."""
    audit, numbers = _ABSENT[platform.machine()]

    def statement(code: int, value: int) -> bytes:
        return struct.pack("HBBI", code, 0, 0, value)

    def jump(value: int, equal: int, other: int) -> bytes:
        return struct.pack("HBBI", 0x15, equal, other, value)

    program = [statement(0x20, 4), jump(audit, 1, 0), statement(0x06, 0x7FFF0000), statement(0x20, 0)]
    program += [jump(number, len(numbers) - index, 0) for index, number in enumerate(numbers)]
    return b"".join([*program, statement(0x06, 0x7FFF0000), statement(0x06, _ENOSYS)])


def take_calls_away() -> None:
    """In the child, before it becomes another program: from here on the kernel does not know these calls."""
    code = ctypes.create_string_buffer(_filter())
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, header, 0, 0):
        os._exit(77)


_UNDER_A_FILTER = """
import os, sys
from tests.filesystem.test_other_machines import take_calls_away
take_calls_away()
os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
"""

_PROBE = """
import os, sys
from tests.filesystem.test_other_machines import take_calls_away
take_calls_away()
from weakincentives.filesystem.disk.syscalls import Syscalls
print(Syscalls().has_openat2, Syscalls().born(os.open("/", os.O_RDONLY)))
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in _ABSENT, reason="the filter is known for two processors"
)
def test_files_need_no_call_that_the_kernel_may_lack(tmp_path: Path) -> None:
    """The same contract under a kernel that answers ENOSYS to `openat2`, `renameat2`, `statx`, `prctl` and the like."""
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=False)
    if probe.returncode == 77:
        pytest.skip("this machine lets no process filter its calls")
    assert probe.stdout.split() == ["False", "0"], probe.stderr
    done = _run(tmp_path, *CONTRACT, "-k", _ONE_WAY, code=_UNDER_A_FILTER)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
