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
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Literal, final

from ... import clock
from ...interrupts import Lock
from ..code import wire
from ..code.remote import LOADER, program, sources
from .worker import control

_log = logging.getLogger(__name__)

Bubblewrap = Literal["required", "available", "never"]
"""Whether workers run in bubblewrap: always (or not at all), where it works, or never."""

START_SECONDS = 20.0
"""A worker that is not ready by then is given up."""

END_SECONDS = 1.0
"""A worker that has not ended an evaluation by then is given up."""

WORKER = Path(control.__file__).parent
"""The modules that run in the worker."""

_INSTALL = "pip install 'weakincentives[asteval]'"
_OLDEST = (1, 0, 10)

_FORBIDDEN = re.compile("No permissions|Operation not permitted|Permission denied")
"""What bubblewrap says where it can never work."""

_BOOT = f"""\
import importlib.util, sys
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location("asteval", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["asteval"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["asteval"])
{LOADER}"""
"""Loads asteval by its folder: no other package of the environment can be found, numpy least of all."""


class WorkerLostError(Exception):
    """The worker does not do what it should."""


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
        parts = {"bubblewrap": self.bubblewrap, "a system call filter": self.system_calls, "resource limits": True}
        return ", ".join(part for part, holds in parts.items() if holds)


_reported: set[tuple[int, str]] = set()


def warn_once(text: str) -> None:
    """Log a warning, once per process: a program may make any number of sections."""
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
    """A worker that waits for evaluations, one at a time. It ends with `close`, with this object, with the process.

    `RuntimeError` when it does not start, with what it said.

    Args:
        bubblewrap: the path of the program, or None to run without it.
    """

    def __init__(self, bubblewrap: str | None) -> None:
        self.confinement: Confinement = Confinement(bubblewrap is not None, system_calls=False)
        self._channels: list[socket.socket] = []
        self._control, theirs = socket.socketpair()
        with theirs, TemporaryFile() as complaints:
            try:
                process = _spawner().submit(_spawn, bubblewrap, theirs, complaints).result()
            except BaseException:
                self._control.close()
                raise
            self._end = weakref.finalize(self, _end, process, self._control, self._channels, os.getpid())
            theirs.close()
            if not self._answers():
                self.close()
                complaints.seek(0)
                said = complaints.read(2000).decode(errors="replace").strip()
                raise RuntimeError(f"The worker for asteval does not start: {said or 'it said nothing'}")
        self._prepare()

    def _answers(self) -> bool:
        modules = {
            "weakincentives.clock": Path(clock.__file__),
            **sources(Path(wire.__file__).parent, wire.__package__ or "", "wire", "protocol", "files"),
            **sources(WORKER, control.__package__ or "", "control", "language", "main"),
        }
        self._control.settimeout(START_SECONDS)
        try:
            self._control.sendall(program(modules))
            return self._control.recv(len(control.READY), socket.MSG_WAITALL) == control.READY
        except OSError:
            return False

    @property
    def closed(self) -> bool:
        """Whether it has been ended."""
        return not self._end.alive

    def ready(self) -> bool:
        """Whether it can take an evaluation; one that cannot is closed."""
        if self.closed:
            return False
        try:
            self._control.setblocking(False)
            self._control.recv(1)  # it says nothing unless it is asked
        except BlockingIOError:
            return bool(self._channels)
        except OSError:
            pass
        self.close()
        return False

    def begin(self) -> socket.socket:
        """The channel to the next evaluation; it is the caller's to close, and `end` must follow."""
        return self._channels.pop()

    def end(self) -> int:
        """Have the evaluation's process killed, if it lives, and the next one made ready; how it ended.

        `WorkerLostError` when that is not known.
        """
        self._control.settimeout(END_SECONDS)
        try:
            self._control.sendall(control.KILL)
            status = self._control.recv(control.STATUS.size, socket.MSG_WAITALL)
        except OSError as error:
            raise WorkerLostError(str(error)) from error
        if len(status) != control.STATUS.size:
            raise WorkerLostError("it is gone")
        self._prepare()
        return control.STATUS.unpack(status)[0]

    def _prepare(self) -> None:
        # The worker forks now, so that the next evaluation need not wait for it.
        ours, theirs = socket.socketpair()
        self._channels.append(ours)
        with theirs:
            try:
                socket.send_fds(self._control, [control.START], [theirs.fileno()])
            except OSError as error:
                raise WorkerLostError(str(error)) from error

    def close(self) -> None:
        """Kill it with all its children. Calling it twice is fine."""
        self._end()


def _end(process: subprocess.Popen[bytes], control: socket.socket, channels: list[socket.socket], pid: int) -> None:
    for one in (control, *channels):
        one.close()
    if os.getpid() != pid:
        process.returncode = 0  # it belongs to the process this one was forked from, which waits for it
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@final
class AstevalPool:
    """The workers of one backend in one process. Each ends with its `AstevalWorker`, so none outlives the pool."""

    def __init__(self, bubblewrap: Bubblewrap, max_workers: int) -> None:
        self.pid: int = os.getpid()
        self.seats: threading.BoundedSemaphore = threading.BoundedSemaphore(max_workers)
        self.confinement: Confinement | None = None
        self._wanted: Bubblewrap = bubblewrap
        self._bubblewrap: Bubblewrap = bubblewrap
        self._lock = Lock()
        self._idle: list[AstevalWorker] = []
        self._busy: set[AstevalWorker] = set()

    def acquire(self) -> AstevalWorker:
        """A worker that is idle and alive, or a new one. `RuntimeError` when none can be started."""
        worker = None
        with self._lock:
            while self._idle and worker is None:
                candidate = self._idle.pop()
                worker = candidate if candidate.ready() else None
        worker = worker or self._started()
        with self._lock:
            self._busy.add(worker)
        return worker

    def release(self, worker: AstevalWorker) -> None:
        """Keep it if it lives."""
        with self._lock:
            self.confinement = worker.confinement
            self._busy.discard(worker)
            if not worker.closed:
                self._idle.append(worker)

    def close(self) -> None:
        """End all workers. What was learned about bubblewrap is forgotten: it may work by the next time."""
        with self._lock:
            workers, self._idle = [*self._idle, *self._busy], []
            self._bubblewrap = self._wanted
        for worker in workers:
            worker.close()

    def _started(self) -> AstevalWorker:
        """In bubblewrap, if possible: one that has worked is required from then on, one that failed is not tried again.

        It has failed after two tries, since a machine may be short of something for a moment, or after one where it has
        no permission.
        """
        path = None if self._bubblewrap == "never" else shutil.which("bwrap")
        if path is None:
            if self._bubblewrap == "required":
                raise RuntimeError("bubblewrap is required but not installed. Run: apt-get install bubblewrap")
            return AstevalWorker(None)
        try:
            try:
                worker = AstevalWorker(path)
            except RuntimeError as error:
                if _FORBIDDEN.search(str(error)):
                    raise
                _log.warning("bubblewrap did not start, it is tried once more: %s", error)
                worker = AstevalWorker(path)
        except RuntimeError as error:
            if self._bubblewrap == "required":
                raise RuntimeError(f"bubblewrap is required but does not work here: {error}") from error
            warn_once(f"bubblewrap does not work here; asteval runs without it until close() is called: {error}")
            self._bubblewrap = "never"
            return AstevalWorker(None)
        self._bubblewrap = "required"
        return worker


def _spawn(bubblewrap: str | None, control: socket.socket, complaints: IO[bytes]) -> subprocess.Popen[bytes]:
    found = find_spec("asteval")
    assert found is not None
    assert found.origin is not None
    asteval = Path(found.origin).parent
    python = Path(getattr(sys, "_base_executable", "") or sys.executable)
    command = [str(python), "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT, str(asteval)]
    if bubblewrap is not None:
        command = [bubblewrap, *_walls(python, asteval), "--", *command]
    return subprocess.Popen(  # noqa: S603 - our own words
        command,
        stdin=control.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=complaints,
        env={},
        cwd="/",
        start_new_session=True,
    )


def _walls(python: Path, asteval: Path) -> list[str]:
    """What bubblewrap is told: namespaces of its own, and of all files only Python, its libraries and asteval."""
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
    # Other packages of the environment are not for the worker.
    names = (f"python{sys.version_info.major}.{sys.version_info.minor}", "python3")
    above = [prefix / library / name for library in ("lib", "lib64") for name in names]
    packages = {(folder / name).resolve() for folder in above for name in ("site-packages", "dist-packages")}
    options += [part for folder in packages if folder.is_dir() for part in ("--tmpfs", str(folder))]
    for path in (python, python.resolve(), asteval):
        options += ["--ro-bind", str(path), str(path)]
    return [*options, "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]


_spawners: dict[int, ThreadPoolExecutor] = {}
_lock = Lock()


def fork_safe_lock() -> Lock:
    """For what this process makes once, but anew after a fork; free in a process that was just forked."""
    return _lock


def _spawner() -> ThreadPoolExecutor:
    """A thread that starts workers and lives as long as the process.

    The kernel kills a worker with the *thread* it was started by, and callers' threads come and go.
    """
    with fork_safe_lock():
        return _spawners.setdefault(os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="wink-asteval"))


def _fresh_lock() -> None:
    global _lock  # noqa: PLW0603 - its holder was not copied into the fork, so nothing would ever release it
    _lock = Lock()


os.register_at_fork(after_in_child=_fresh_lock)
