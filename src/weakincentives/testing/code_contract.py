"""What every evaluator of untrusted code must survive, as a test suite for pytest.

A three-line subclass tests a backend:

    class TestMyBackend(EvalEscapes):
        def make(self) -> EvalBackend:
            return MyBackend()
"""

from __future__ import annotations

import os
import resource
import secrets
import socket
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, ClassVar

from ..contrib.code import EvalBackend, EvalLimits
from ..contrib.code.tool import PythonResult
from ..contrib.python.section import PythonConfig, PythonSection
from ..filesystem import Filesystem, InMemoryFilesystem
from ..prompt import Prompt, ToolInvoked
from ..runtime import ToolCall, ToolReply
from ..runtime.executor import ToolExecutor
from ..serde import dump_json
from ..session import Session
from .code_escapes import ESCAPING_CODE


@dataclass(frozen=True, slots=True)
class _Host:
    """Things that must not be touched: a secret in a file and in the environment, a folder, a port."""

    token: str
    folder: Path
    listener: socket.socket

    def aim(self, code: str) -> str:
        aims = {
            "@SECRET@": str(self.folder / "secret.txt"),
            "@FOLDER@": str(self.folder),
            "@VARIABLE@": _VARIABLE,
            "@PORT@": str(self.listener.getsockname()[1]),
        }
        for name, value in aims.items():
            code = code.replace(name, value)
        return code

    def check(self, told: str, code: str) -> None:
        """Nothing was told, changed, planted or called."""
        assert self.token not in told, f"a secret got out of: {code}"
        assert os.environ[_VARIABLE] == self.token, f"the environment was changed by: {code}"
        assert (self.folder / "secret.txt").read_text() == self.token, f"the secret was changed by: {code}"
        assert [path.name for path in self.folder.iterdir()] == ["secret.txt"], f"files were planted by: {code}"
        try:
            connection, _ = self.listener.accept()
        except BlockingIOError:
            return
        connection.close()
        raise AssertionError(f"a connection was made by: {code}")


_VARIABLE = "WINK_ESCAPE_PROBE"


@contextmanager
def _host() -> Generator[_Host]:
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listener:
        (Path(folder) / "secret.txt").write_text(token)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        os.environ[_VARIABLE] = token
        try:
            yield _Host(token, Path(folder), listener)
        finally:
            del os.environ[_VARIABLE]


class EvalEscapes:
    """Each probe runs through the whole engine: nothing leaves, the host lives, the call ends in time with one reply.

    `make()` gives the backend, which is closed when the test is over.
    """

    limits: ClassVar[EvalLimits] = EvalLimits(seconds=0.3, sleep=0.1, output=5000, file_bytes=1_000_000)
    patience: ClassVar[float] = 5.0
    """Seconds a call may take beyond its limits, for a busy machine."""
    host_memory: ClassVar[int] = 600 * 1024 * 1024
    """Bytes by which the host may grow during one kind of attack."""

    _backend: EvalBackend

    def make(self) -> EvalBackend:
        """The backend to be tested."""
        raise NotImplementedError("Return a backend from make().")

    def setup_method(self) -> None:
        """Called by pytest before each test."""
        self._backend = self.make()

    def teardown_method(self) -> None:
        """Called by pytest after each test."""
        self._backend.close()

    def test_it_evaluates(self) -> None:
        """Values, inputs, printed text and files pass in and out: the probes do not fail for want of an evaluator."""
        with _host() as host:
            code = "print(name)\nopen('out.txt', 'w').write(open('given.txt').read() + name)\n1 + 1"
            reply, fs = self._call(code, host, {"name": "tea"})
        assert reply.result.success, reply.text
        assert reply.result.value == PythonResult("2", "tea\n", False, ("out.txt",))
        assert fs.read("out.txt") == "giventea"

    def test_it_is_a_backend(self) -> None:
        """It satisfies the protocol and tells models what they can write."""
        assert isinstance(self._backend, EvalBackend)
        assert self._backend.guide.strip()

    def test_files(self) -> None:
        """No file of the host can be read, changed, listed or planted, nor one of the workspace that was not named."""
        self._probe("files")

    def test_environment(self) -> None:
        """Variables, arguments and the process itself are out of reach."""
        self._probe("environment")

    def test_network(self) -> None:
        """No connection is made."""
        self._probe("network")

    def test_processes(self) -> None:
        """No process or thread is started or killed, no native code called."""
        self._probe("processes")

    def test_memory(self) -> None:
        """The host does not run out of memory."""
        self._probe("memory")

    def test_loops(self) -> None:
        """Endless loops and recursion end, also those in native code that never let go of an interpreter lock."""
        self._probe("loops")

    def test_integers(self) -> None:
        """Huge integers neither hang nor fill anything."""
        self._probe("integers")

    def test_output(self) -> None:
        """A flood of output, a huge value and a huge error are cut."""
        self._probe("output")

    def test_sleeps(self) -> None:
        """Sleeping is bounded, also all sleeps together."""
        self._probe("sleeps")

    def test_attributes(self) -> None:
        """No chain of attributes leads to the host's objects."""
        self._probe("attributes")

    def test_formats(self) -> None:
        """Format strings neither reach attributes nor fill the memory."""
        self._probe("formats")

    def test_syntax(self) -> None:
        """Source text that breaks parsers, and values that break code which shows them, end like all others."""
        self._probe("syntax")

    def _probe(self, kind: str) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with _host() as host:
            for template in ESCAPING_CODE[kind]:
                code = host.aim(template)
                shown = template if len(template) < 200 else f"{template[:200]}..."
                reply, fs = self._call(code, host)
                host.check(f"{reply.text}{reply.result!r}", shown)
                assert len(reply.text) < self.limits.output * 3 + 10_000, f"the reply is too long for: {shown}"
                assert fs.read("given.txt") == "given", f"a file that may only be read was changed by: {shown}"
                assert set(fs.search("")) <= {"given.txt", "out.txt"}, f"a file was made by: {shown}"
            again, _ = self._call("1 + 1", host)
            patience = monotonic() + 60  # on a busy machine the time limit of a call may pass before it begins
            while again.result.value != PythonResult("2") and monotonic() < patience:
                again, _ = self._call("1 + 1", host)
            assert again.result.value == PythonResult("2"), f"it does not work any more: {again.text}"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        assert grown < self.host_memory, f"the host grew by {grown:,} bytes"

    def _call(
        self, code: str, host: _Host, inputs: dict[str, Any] | None = None
    ) -> tuple[ToolReply, InMemoryFilesystem]:
        """One call through the engine, in a thread, so that one that hangs is seen."""
        fs, session = InMemoryFilesystem({"given.txt": "given"}), Session()
        section = PythonSection(config=PythonConfig(limits=self.limits), backend=self._backend)
        prompt = Prompt(name="escapes", sections=[section]).bind(resources={Filesystem: fs})
        arguments = {"code": code, "inputs": inputs or {}, "reads": ["given.txt"], "writes": ["out.txt"]}
        replies: list[ToolReply] = []

        def run() -> None:
            with ToolExecutor(prompt=prompt, session=session) as executor:
                replies.append(executor.execute(ToolCall("call_1", "evaluate_python", dump_json(arguments))))

        thread = Thread(target=run, daemon=True)
        started = monotonic()
        thread.start()
        allowed = self.limits.seconds + self.limits.sleep + self.patience
        thread.join(allowed)
        took = monotonic() - started
        assert took < allowed, f"it did not end within {allowed:g} s: {code[:200]}"
        assert len(replies) == 1, f"it was not answered once: {code[:200]}"
        assert [event.call_id for event in session[ToolInvoked].all()] == ["call_1"], f"not one event: {code[:200]}"
        assert replies[0].outcome in {"succeeded", "failed"}, f"{replies[0].outcome} {replies[0].text}: {code[:200]}"
        host.check("", code[:200])
        return replies[0], fs
