"""The worker processes of `AstevalBackend`: how one is started, used and ended."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, final

from .worker import frames as protocol

_log = logging.getLogger(__name__)

START_SECONDS = 20.0
"""A worker that is not ready by then is given up."""

END_SECONDS = 1.0
"""A worker that has not ended an evaluation by then is given up."""

WORKER = Path(protocol.__file__).parent
"""The package that runs in the worker."""

_INSTALL = "pip install 'weakincentives[asteval]'"
_OLDEST = (1, 0, 10)

_FORBIDDEN = re.compile("No permissions|Operation not permitted|Permission denied")
"""What bubblewrap says where it can never work."""

_BOOT = """
import importlib.util, sys
for name, folder in (("asteval", sys.argv[1]), ("wink_worker", sys.argv[2])):
    spec = importlib.util.spec_from_file_location(name, folder + "/__init__.py", submodule_search_locations=[folder])
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
from wink_worker.main import main
main()
"""
"""Loads the two packages by their folders: no other package of the environment can be found, numpy least of all."""


class WorkerLostError(Exception):
    """The worker does not do what it should; the text says why, where that is known."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What holds the code besides asteval itself. Resource limits and an empty environment always do.

    Attributes:
        bubblewrap: namespaces of its own, in which there are no files but Python's, no network, no other processes.
        system_calls: the code's process can make only the few system calls that calculating needs.
    """

    bubblewrap: bool
    system_calls: bool

    def __str__(self) -> str:
        parts = ["resource limits"]
        if self.system_calls:
            parts.insert(0, "a system call filter")
        if self.bubblewrap:
            parts.insert(0, "bubblewrap")
        return ", ".join(parts)


_reported: set[tuple[int, str]] = set()


def report_unconfined() -> None:
    """Log, once in a process, that code will run without bubblewrap because it is not installed."""
    if shutil.which("bwrap") is None:
        _report(
            "bubblewrap is not installed, so code in asteval is held by resource limits and, where there is one, a "
            "system call filter. Install it (apt-get install bubblewrap), or pass confinement='required' to run "
            "nothing without it."
        )


def _report(text: str) -> None:
    """Log a warning, once in a process: a program may make any number of sections."""
    if (os.getpid(), text) not in _reported:
        _reported.add((os.getpid(), text))
        _log.warning("%s", text)


def check_installed() -> None:
    """`ImportError` naming what to install; `RuntimeError` on a system that cannot confine the interpreter."""
    if sys.platform != "linux":
        raise RuntimeError(
            f"AstevalSection needs Linux, whose kernel confines the interpreter, and this is {sys.platform}. "
            "Use PythonSection, which runs everywhere."
        )
    try:
        found = find_spec("asteval")
    except ValueError:  # it is kept from being imported
        found = None
    if found is None:
        raise ImportError(f"AstevalSection needs asteval. Install it: {_INSTALL}")
    with suppress(PackageNotFoundError):
        number = version("asteval")
        if tuple(int(part) for part in re.findall(r"\d+", number)[:3]) < _OLDEST:
            raise ImportError(f"asteval {number} has known holes. Install a newer one: {_INSTALL}")


@final
class AstevalWorker:
    """A worker that waits for evaluations, one at a time. It ends with `close`, with this object, with the process."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, *, bubblewrap: bool) -> None:
        self.confinement = Confinement(bubblewrap, system_calls=False)
        self._control = control
        self._channels: list[socket.socket] = []
        self._status_due = False
        self._end = weakref.finalize(self, _end, process, control, self._channels, os.getpid())

    @classmethod
    def start(cls, bubblewrap: str) -> tuple[AstevalWorker, Any]:
        """A new one, and how the next should be started: where bubblewrap does not work it is not tried again.

        That takes two failures in a row, or one that says that there is no permission. `RuntimeError` when none can be
        started.
        """
        if bubblewrap == "never":
            return cls._started(None), "never"
        program = shutil.which("bwrap")
        if program is None and bubblewrap == "available":
            return cls._started(None), bubblewrap
        if program is None:
            raise RuntimeError("bubblewrap is required but not installed. Run: apt-get install bubblewrap")
        try:
            return cls._walled(program), "required"
        except RuntimeError as error:
            if bubblewrap == "required":
                raise RuntimeError(f"bubblewrap is required but does not work here: {error}") from error
            _report(f"bubblewrap does not work here; asteval runs without it until close() is called: {error}")
            return cls._started(None), "never"

    @classmethod
    def _walled(cls, program: str) -> AstevalWorker:
        """In bubblewrap, at the second try if need be: a machine may be short of something for a moment."""
        try:
            return cls._started(program)
        except RuntimeError as error:
            if _FORBIDDEN.search(str(error)):
                raise
            _log.warning("bubblewrap did not start, it is tried once more: %s", error)
            return cls._started(program)

    @classmethod
    def _started(cls, program: str | None) -> AstevalWorker:
        ours, theirs = socket.socketpair()
        with theirs, TemporaryFile() as complaints:
            try:
                process = _spawner().submit(_spawn, program, theirs, complaints).result()
            except BaseException:
                ours.close()
                raise
            made = cls(process, ours, bubblewrap=program is not None)
            theirs.close()
            ours.settimeout(START_SECONDS)
            try:
                ready = ours.recv(len(protocol.READY), socket.MSG_WAITALL)
            except OSError:
                ready = b""
            if ready != protocol.READY:
                made.close()
                complaints.seek(0)
                said = complaints.read(2000).decode(errors="replace").strip()
                raise RuntimeError(f"The worker for asteval does not start: {said or 'it said nothing'}")
        made._prepare()
        return made

    @property
    def closed(self) -> bool:
        """Whether it has been ended."""
        return not self._end.alive

    def ready(self) -> bool:
        """Whether it can take an evaluation; one that cannot is closed."""
        if self.closed:
            return False
        try:
            if self._status_due:
                self._status(END_SECONDS)
            self._control.setblocking(False)
            self._control.recv(1)  # it says nothing unless it is asked
        except BlockingIOError:
            return bool(self._channels)
        except (OSError, WorkerLostError):
            pass
        self.close()
        return False

    def begin(self) -> socket.socket:
        """The channel to the next evaluation; it is the caller's to close, and `end` must follow."""
        return self._channels.pop()

    def end(self, *, answered: bool) -> int | None:
        """Have the evaluation's process killed, if it lives, and the next one made ready.

        How it ended, unless it has answered: then nobody needs to wait. `WorkerLostError` when that is not known.
        """
        try:
            self._control.settimeout(END_SECONDS)
            self._control.sendall(protocol.KILL)
        except OSError as error:
            raise WorkerLostError(str(error)) from error
        self._status_due = True
        status = None if answered else self._status(END_SECONDS)
        self._prepare()
        return status

    def _prepare(self) -> None:
        ours, theirs = socket.socketpair()
        self._channels.append(ours)
        with theirs:
            try:
                socket.send_fds(self._control, [protocol.START], [theirs.fileno()])
            except OSError as error:
                raise WorkerLostError(str(error)) from error

    def _status(self, seconds: float) -> int:
        self._control.settimeout(seconds)
        try:
            status = self._control.recv(protocol.STATUS.size, socket.MSG_WAITALL)
        except OSError as error:
            raise WorkerLostError(str(error)) from error
        if len(status) != protocol.STATUS.size:
            raise WorkerLostError("it is gone")
        self._status_due = False
        return protocol.STATUS.unpack(status)[0]

    def note(self, *, filtered: bool) -> None:
        """Remember what an evaluation said of its confinement."""
        if self.confinement.system_calls is not filtered:
            self.confinement = replace(self.confinement, system_calls=filtered)
        if not filtered:
            _report(
                "System calls cannot be filtered here, so code in asteval is held by resource limits and, where it "
                "works, bubblewrap. Use Linux on x86-64 or arm64, or pass confinement='required' to run nothing then."
            )

    def close(self) -> None:
        """Kill it with all its children. Twice is fine."""
        self._end()


def _end(process: subprocess.Popen[bytes], control: socket.socket, channels: list[socket.socket], pid: int) -> None:
    for one in (control, *channels):
        one.close()
    if os.getpid() != pid:
        process.returncode = 0  # it belongs to the process this one was forked from; nobody waits for it here
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _spawn(program: str | None, control: socket.socket, complaints: IO[bytes]) -> subprocess.Popen[bytes]:
    found = find_spec("asteval")
    assert found is not None
    assert found.origin is not None
    asteval, worker = Path(found.origin).parent, WORKER
    python = Path(getattr(sys, "_base_executable", "") or sys.executable)
    command = [str(python), "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT, str(asteval), str(worker)]
    if program is not None:
        command = [program, *_walls(python, asteval, worker), "--", *command]
    return subprocess.Popen(  # noqa: S603 - our own words
        command,
        stdin=control.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=complaints,
        env={},
        cwd="/",
        start_new_session=True,
    )


def _walls(python: Path, *folders: Path) -> list[str]:
    """What bubblewrap is told: namespaces of its own, and of all files only Python, its libraries and the folders."""
    options = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    options += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox", "--chdir", "/"]
    shown: list[Path] = []
    for path in (Path(f"{above}/{name}") for above in ("/usr", "") for name in ("lib", "lib32", "lib64", "libx32")):
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            shown.append(path)
    prefix = Path(sys.base_prefix)
    shown += [prefix / name for name in {"lib", sys.platlibdir} if (prefix / name).is_dir()]
    for path in dict.fromkeys(shown):
        options += ["--ro-bind", str(path), str(path)]
    options += [part for hidden in _packages(prefix) for part in ("--tmpfs", str(hidden))]
    for path in (python, python.resolve(), *folders):
        options += ["--ro-bind", str(path), str(path)]
    return [*options, "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]


def _packages(prefix: Path) -> set[Path]:
    """Where other packages are, which are not for the worker."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    above = [prefix / name / version for name in ("lib", "lib64") for version in (python, "python3")]
    found = {folder / name for folder in above for name in ("site-packages", "dist-packages")}
    return {folder.resolve() for folder in found if folder.is_dir()}


_spawners: dict[int, ThreadPoolExecutor] = {}
_lock = threading.Lock()


def fork_safe_lock() -> threading.Lock:
    """The lock of this process: in a forked one, what another thread of the parent held at that moment is gone."""
    return _lock


def _fresh_lock() -> None:
    global _lock  # noqa: PLW0603 - its holder was not copied, so nothing would ever release it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_fresh_lock)


def _spawner() -> ThreadPoolExecutor:
    """A thread that starts workers and lives as long as the process.

    The kernel kills a worker with the *thread* it was started by, and callers' threads come and go.
    """
    with fork_safe_lock():
        pid = os.getpid()
        if pid not in _spawners:
            _spawners[pid] = ThreadPoolExecutor(1, thread_name_prefix="wink-asteval")
        return _spawners[pid]


__all__ = [
    "AstevalWorker", "Confinement", "WorkerLostError", "check_installed", "fork_safe_lock", "report_unconfined",
]  # fmt: skip
