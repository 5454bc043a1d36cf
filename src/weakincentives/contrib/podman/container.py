"""One container: started on first use, checked before it is used, ended with its owner."""

from __future__ import annotations

import json
import logging
import os
import secrets
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import IO, Any, Final, cast, final

from ...errors import SandboxError
from ...interrupts import Lock
from ..code.remote import BrokenPipeline, Pipeline
from ..code.wire import framed, unpack_bytes
from .command import environment, explained, find_podman, podman, run
from .leftovers import LABEL, owner, sweep, sweep_folders
from .spec import ARGUMENTS, ContainerSpec, boot_message, profile_text

_log = logging.getLogger(__name__)

START_SECONDS: Final = 60.0
"""Seconds until it must have started."""

REPLY_GRACE_SECONDS: Final = 6.0
"""Seconds beyond a request's own time until the whole container is ended; tidying up inside takes up to 4 of them."""

STOP_GRACE_SECONDS: Final = 1.0
"""Seconds it has to end by itself."""

CLOSED: Final = "The sandbox is closed. Make a new section."

MAX_REQUEST: Final = 256 * 1024 * 1024
_MAX_FACTS: Final = 1 << 20


@final
class SupervisorReply:
    """What the supervisor in the container answered: each field of the type asked for, `SandboxError` for any other."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """A string; empty when it is missing."""
        return self._typed(name, str, "")[:4000]

    def number(self, name: str) -> int:
        """An integer; 0 when it is missing."""
        return self._typed(name, int, 0)

    def data(self, name: str) -> bytes:
        """Bytes; none when they are missing."""
        return _unpacked(self._typed(name, str, ""))

    def files(self, name: str) -> dict[str, bytes]:
        """Bytes by path."""
        found = cast(dict[Any, Any], self._typed(name, dict, {}))
        if not all(isinstance(content, str) for content in found.values()):
            raise _nonsense(name)
        return {str(path): _unpacked(content) for path, content in found.items()}

    def _typed(self, name: str, kind: type[Any], missing: Any) -> Any:
        value = self._fields.get(name, missing)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _nonsense(name)
        return value


def _unpacked(text: str) -> bytes:
    try:
        return unpack_bytes(text)
    except ValueError:
        raise _nonsense("its data") from None


def _nonsense(what: str) -> SandboxError:
    return SandboxError(f"The container gave an answer that makes no sense ({what}). What it did is undone.")


@final
class Container:
    """Answers requests, one at a time; safe to call from any thread.

    It starts with the first request, and again after it was stopped or broke down. Its process 1 reads from a pipe of
    this process: whatever way this one ends, the pipe is closed, and the container ends and removes itself. Podman
    ends it after `spec.lease` seconds in any case; it is replaced before that.

    Between two requests nothing runs in it but its own process 1, and all places that can be written are empty, except
    for the workspace.
    """

    def __init__(self, spec: ContainerSpec) -> None:
        self.spec = spec
        self._pid = os.getpid()
        self._lock = Lock()
        self._running: _Running | None = None
        self._busy = False
        self._closed = False
        self._halts = 0

    @property
    def name(self) -> str | None:
        """Podman's name for it while it runs."""
        return None if self._running is None else self._running.name

    @property
    def ticket(self) -> int:
        """What a request may be tied to: once `halt` was called, one with an older ticket is refused.

        `SandboxError` when it is closed: its folder may be gone, so nothing may be looked for there.
        """
        if self._closed:
            raise SandboxError(CLOSED)
        return self._halts

    def request(self, message: dict[str, Any], seconds: float, most: int, ticket: int | None = None) -> dict[str, Any]:
        """Ask, and wait for the answer, at most that time and `REPLY_GRACE_SECONDS`; `most` bytes of it are taken.

        Without a `ticket` it gets one now.

        `SandboxError` when the container cannot be started or breaks down. It is ended then, so that nothing of the
        request goes on; the same on Ctrl-C.
        """
        ticket = self._halts if ticket is None else ticket
        with self._lock:
            self._busy = True
            try:
                self._check(ticket)
                running = self._started(seconds)
                self._check(ticket)  # starting takes a while
                return self._ask(running, message, seconds, most)
            finally:
                self._busy = False

    def start(self) -> str:
        """Start it unless it runs; podman's name for it. `SandboxError` as for a request."""
        with self._lock:
            self._check(self._halts)
            return self._started(0.0).name

    def halt(self) -> None:
        """Make sure that nothing runs in it, and that no request which began before this begins to run after it.

        A request that is under way ends with the whole container, and its caller gets a `SandboxError`.
        """
        self._halts += 1
        running = self._running
        if self._busy and running is not None:
            running.end()

    def stop(self) -> None:
        """End it; the next request starts another one."""
        with self._lock:
            self._drop(gently=True)

    def close(self) -> None:
        """End it for good. Twice is fine; in a forked process the parent's container goes on."""
        self._closed = True
        if os.getpid() != self._pid:
            return  # a thread of the parent's may have held the lock when it was forked
        self.halt()
        with self._lock:
            self._drop(gently=True)

    def _check(self, ticket: int) -> None:
        if self._closed:
            raise SandboxError(CLOSED)
        if ticket != self._halts:
            raise SandboxError("The call is over, so its command was not run.")

    def _ask(self, running: _Running, message: dict[str, Any], seconds: float, most: int) -> dict[str, Any]:
        number = running.next_number()
        body = json.dumps({**message, "id": number}).encode()
        if len(body) > MAX_REQUEST:
            raise SandboxError(f"The request is over {MAX_REQUEST:,} bytes. Pass less data in.")
        try:
            until = monotonic() + seconds + REPLY_GRACE_SECONDS
            running.pipeline.send(framed(body), until)
            answer = running.pipeline.receive(most, until)
            _check_number(answer, number)
        except BrokenPipeline as error:
            self._drop()
            raise SandboxError(
                f"The container broke down: {error}. What it did is undone; a new one starts with the next call."
            ) from error
        except BaseException:
            self._drop()
            raise
        if answer.get("clean") is not True or str(answer.get("how")) in {"broken", "stuck"}:
            _log.warning("Container %s could not be tidied up, so it is replaced", running.name)
            self._drop()
        return answer

    def _started(self, seconds: float) -> _Running:
        if self._running is not None and not self._running.lasts(seconds + REPLY_GRACE_SECONDS):
            self._drop(gently=True)
        if self._running is None:
            sweep(self.spec.program)
            sweep_folders()
            self._running = _Running(self.spec)
        return self._running

    def _drop(self, *, gently: bool = False) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.end(gently=gently)
            running.close()


@final
class _Running:
    """A started container with its pipes. Ended by `end`, with this object, or with the process."""

    def __init__(self, spec: ContainerSpec) -> None:
        self._spec = spec
        self._pid = os.getpid()
        self._number = 0
        self._ending = Lock()
        self.name = f"wink-{secrets.token_hex(8)}"
        self._lease = monotonic() + spec.lease
        find_podman(spec.program)
        with tempfile.TemporaryFile() as complaints, tempfile.NamedTemporaryFile("w", suffix=".json") as seccomp:
            seccomp.write(profile_text())
            seccomp.flush()
            line = podman(spec.program, *spec.arguments(self.name, {LABEL: owner()}, seccomp.name), *ARGUMENTS)
            self._client = subprocess.Popen(
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=environment(),
                bufsize=0,
                start_new_session=True,  # Ctrl-C in a terminal is for this process
                cwd="/proc",  # its monitor leaves a file "oom" where it was started, when memory runs out: not there
            )
            assert self._client.stdin is not None
            assert self._client.stdout is not None
            self.pipeline = Pipeline(self._client.stdin.fileno(), self._client.stdout.fileno())
            self._finalizer = weakref.finalize(self, _end, self._client, spec.program, self.name, self._pid, True)
            _all.add(self)
            try:
                self._boot(complaints)
            except BaseException:
                self.end()
                self.close()
                raise

    def next_number(self) -> int:
        """Of a request; `SandboxError` in a forked process."""
        if os.getpid() != self._pid:
            raise SandboxError("The sandbox was started before this process was forked. Make a section in the child.")
        self._number += 1
        return self._number

    def lasts(self, seconds: float) -> bool:
        """Whether its lease holds that long, and it has not ended by itself."""
        return os.getpid() != self._pid or (monotonic() + seconds < self._lease and self._client.poll() is None)

    def end(self, *, gently: bool = False) -> None:
        """End it and wait until it is gone; gently, by closing its pipe, when no other thread uses that."""
        with self._ending:
            if self._finalizer.detach() is not None:
                _end(self._client, self._spec.program, self.name, self._pid, gently)

    def close(self) -> None:
        """Close the pipes; no thread may be waiting on them."""
        for pipe in (self._client.stdin, self._client.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def forget(self) -> None:
        """In a forked child: an open pipe would keep the container alive when the owner is gone."""
        self._finalizer.detach()
        self.close()

    def _boot(self, complaints: IO[bytes]) -> None:
        until = monotonic() + START_SECONDS
        try:
            self.pipeline.send(boot_message(self._spec.paths), until)
            answer = self.pipeline.receive(_MAX_FACTS, until)
        except BrokenPipeline as error:
            self.end()
            complaints.seek(0)
            said = complaints.read(64 * 1024).decode(errors="replace")
            raise SandboxError(explained(said or str(error), self._spec.image)) from error
        shortcomings = self._spec.shortcomings(answer.get("facts") or {})
        if shortcomings:
            raise SandboxError(
                f"The container lacks required isolation, so it was not used: {'; '.join(shortcomings)}. "
                "Run podman as root, or on a machine with cgroups v2, and without settings that loosen it."
            )


def _check_number(answer: dict[str, Any], number: int) -> None:
    if answer.get("id") != number:
        raise BrokenPipeline("it answered something else")


def _end(client: subprocess.Popen[bytes], program: str, name: str, pid: int, gently: bool) -> None:
    """End the container and wait for the end of podman's process, which comes after the container's."""
    if os.getpid() != pid:
        return
    if gently and client.stdin is not None:
        with suppress(OSError):
            client.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            client.wait(STOP_GRACE_SECONDS)
    if client.poll() == 0:
        return
    with suppress(SandboxError):
        run(podman(program, "rm", "--force", "--time", "0", "--ignore", name))
    try:
        client.wait(5.0)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()
        _log.error("Podman did not say that container %s has ended; look for it with: podman ps", name)


_all: weakref.WeakSet[_Running] = weakref.WeakSet()


def _after_fork() -> None:
    for running in list(_all):
        running.forget()


os.register_at_fork(after_in_child=_after_fork)
