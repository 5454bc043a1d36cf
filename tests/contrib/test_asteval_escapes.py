"""The calculator survives everything that tries to get out of it, also if asteval itself confined nothing."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from tests.conftest import needs

from weakincentives.contrib.asteval import AstevalBackend
from weakincentives.contrib.asteval import process as asteval_process
from weakincentives.contrib.asteval.backend import Bubblewrap
from weakincentives.contrib.code import EvalBackend, EvalFiles, EvalLimits
from weakincentives.testing import EvalEscapes

pytestmark = pytest.mark.slow  # an interpreter for each test


def need_bubblewrap() -> None:
    needs("bwrap", present=shutil.which("bwrap") is not None, install="apt-get install bubblewrap")


class TestInBubblewrap(EvalEscapes):
    def make(self) -> EvalBackend:
        need_bubblewrap()
        return AstevalBackend(bubblewrap="required")


class TestWithLimitsOnly(EvalEscapes):
    def make(self) -> EvalBackend:
        return AstevalBackend(bubblewrap="never")


RAW = '''

def _run(self):
    """All of Python, as if asteval held nothing back."""
    printed, files = PrintedText(int(self._limits.output)), OpenFiles(self.files, self._limits)
    names = {"open": files.open, "print": printed.print, "__name__": "__main__", **self._inputs}
    result, error = None, None
    sys.stdout = sys.stderr = printed
    sys.setrecursionlimit(1000)
    try:
        tree = ast.parse(self._code)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "code", "exec"), names)
        if last is not None:
            result = eval(compile(ast.Expression(last.value), "code", "eval"), names)
    except BaseException as failure:
        error = f"{type(failure).__name__}: {failure}"[:4000]
    packed = None
    if error is None:
        try:
            packed = Encoder(self._room).encode(result)
        except TooBigError as problem:
            error = str(problem)
    return {"value": packed, "stdout": printed.text(), "truncated": printed.truncated, "error": error}


CodeRun.run = _run
'''


SYSTEM_CALLS = [
    "import os\nos.open('/etc/passwd', os.O_RDONLY)",
    "import os\nos.listdir('/')",
    "import os\nos.mkdir('/tmp/planted')",
    "import os\nos.stat('/')",
    "import os\nos.fork()",
    "import os\nos.execv('/bin/true', ['true'])",
    "import os\nos.kill(os.getppid(), 9)",
    "import os\nos.kill(-1, 9)",
    "import os\nos.pipe()",
    "import os\nos.dup(0)",
    "import os\nos.chmod('/tmp', 0o777)",
    "import socket\nsocket.socket()",
    "import socket\nsocket.socketpair()",
    "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))",
    "import resource\nresource.prlimit(1, resource.RLIMIT_CPU)",
    "import ctypes\nassert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0",
    "import _thread\n_thread.start_new_thread(print, ())",
]

FIND_CHANNEL = """
import os, sys
wire = sys.modules["weakincentives.contrib.code.wire"]
channel = sys.modules["weakincentives.contrib.asteval.worker.main"].CHANNEL
"""

WRONG_ANSWERS = [
    "import sys\nprint(sys._getframe())",
    "os.write(channel, b'\\xff\\xff\\xff\\xff')",
    "os.write(channel, b'\\0\\0\\0\\x02[]')",
    "os.write(channel, b'\\0\\0\\0\\x02{}')",
    "os.write(channel, b'\\0\\0\\0\\x01{')",
    "os.write(channel, b'\\0\\0\\0\\x07garbage')",
    "data = b'[' * 100000\nos.write(channel, len(data).to_bytes(4, 'big') + data)",
    "wire.send(channel, {'do': 'delete', 'path': 'x', 'data': ''})",
    "wire.send(channel, {'do': 'read', 'path': 7, 'data': ''})",
    "wire.send(channel, {'do': 'read', 'path': 'x', 'data': '%%'})",
    "wire.send(channel, {'do': 'read'})",
    "wire.send(channel, {'result': True})",
    "wire.send(channel, {'result': True, 'stdout': 7, 'error': None, 'value': None})",
    "wire.send(channel, {'result': True, 'stdout': '', 'error': [], 'value': None})",
    "wire.send(channel, {'result': True, 'stdout': '', 'error': None, 'value': ['i', 'x']})",
    "wire.send(channel, {'result': True, 'stdout': '', 'error': None, 'value': ['os', 'x']})",
    "wire.send(channel, {'result': True, 'stdout': '', 'error': None, 'value': ['s', [['l', []]]]})",
    "wire.send(channel, {'result': True, 'stdout': '', 'error': None, 'value': ['b', '%']})",
    "wire.send(channel, {'result': True, 'stdout': '', 'error': None, 'value': ['l', [], 2]})",
    "x = 1\nfor n in range(500): x = ['l', [x]]\nwire.send(channel, {'result': 1, 'stdout': '', 'value': x})",
    "import os\nos._exit(0)",
    "import os\nos._exit(7)",
    "os.close(channel)",
    "wire.send(channel, {'stdout': '', 'error': None, 'value': None, 'written': []})",
    "wire.send(channel, {'stdout': '', 'error': None, 'value': None, 'written': {'out': 7}})",
    "wire.send(channel, {'stdout': '', 'error': None, 'value': None, 'written': {'out': 'eA=='}})",
    "wire.send(channel, {'result': True, 'stdout': 'x' * 10**6, 'error': None, 'value': 1})",
    "wire.send(channel, {'result': True, 'stdout': '', 'error': 'x' * 10**6, 'value': 1})",
    "while True: wire.send(channel, {'do': 'read', 'path': 'nope', 'data': ''})",
    "import ctypes\nctypes.string_at(0)",
]


class Raw(EvalEscapes):
    """A worker that runs all of Python instead of asteval: what holds now holds by itself."""

    bubblewrap: ClassVar[Bubblewrap]
    also: ClassVar[Mapping[str, str]] = {}
    """What else is broken: code for the end of a module."""

    def make(self) -> EvalBackend:
        if self.bubblewrap == "required":
            need_bubblewrap()
        self.sound = asteval_process.WORKER
        self.folder = tempfile.TemporaryDirectory()
        broken = Path(self.folder.name) / "worker"
        shutil.copytree(self.sound, broken)
        for module, code in {"language.py": RAW, **self.also}.items():
            source = (broken / module).read_text()
            for name in re.findall(r"^def (\w+)", code if module in self.also else "", re.MULTILINE):
                assert f"\ndef {name}(" in source, f"{module} has no {name} to break"
            (broken / module).write_text(source + code)
        asteval_process.WORKER = broken
        return AstevalBackend(bubblewrap=self.bubblewrap)

    def teardown_method(self) -> None:
        asteval_process.WORKER = self.sound
        super().teardown_method()
        self.folder.cleanup()

    def test_system_calls(self) -> None:
        """What is not needed for calculating fails in the kernel."""
        for code in SYSTEM_CALLS:
            result = self._backend.evaluate(code, {}, EvalFiles(), EvalLimits())
            assert result.error is not None, code
            assert "Stopped" not in result.error, code
        assert self._backend.evaluate("1 + 1", {}, EvalFiles(), EvalLimits()).value == 2

    def test_nothing_is_inherited(self) -> None:
        """The environment is empty, and so is the command line but for our own words."""
        result = self._backend.evaluate("import os\ndict(os.environ)", {}, EvalFiles(), EvalLimits())
        assert result.error is None
        assert set(result.value) <= {"LC_CTYPE", "PWD"}

    def test_nothing_is_kept(self) -> None:
        """What one evaluation does to the interpreter, the next does not see."""
        change = "import builtins, sys\nbuiltins.marked = sys.marked = 7\nmarked"
        assert self._backend.evaluate(change, {}, EvalFiles(), EvalLimits()).value == 7
        look = "import builtins, sys\n(hasattr(builtins, 'marked'), hasattr(sys, 'marked'))"
        assert self._backend.evaluate(look, {}, EvalFiles(), EvalLimits()).value == (False, False)

    def test_wrong_answers(self) -> None:
        """Whatever a worker answers, the call ends with a short result, and the next one works."""
        limits = EvalLimits(seconds=0.5, output=100)
        for code in WRONG_ANSWERS:
            result = self._backend.evaluate(FIND_CHANNEL + code, {}, EvalFiles(), limits)
            assert len(result.stdout) <= 100, code
            assert len(result.error or "") <= 5000, code
            assert result.written == {}, code
            assert self._backend.evaluate("1 + 1", {}, EvalFiles(), EvalLimits()).value == 2, code


class TestRawPythonInBubblewrap(Raw):
    bubblewrap = "required"


class TestRawPythonWithLimitsOnly(Raw):
    bubblewrap = "never"


UNFILTERED = "\n\ndef filter_calls():\n    return False\n"
UNLIMITED = "\n\ndef limit_code(*_):\n    pass\n"


class Unfiltered(Raw):
    bubblewrap = "required"
    also: ClassVar[Mapping[str, str]] = {"main.py": UNFILTERED}


class Unconfined(Raw):
    bubblewrap = "never"
    also: ClassVar[Mapping[str, str]] = {"main.py": UNFILTERED + UNLIMITED}


@pytest.mark.parametrize("kind", ["files", "environment", "network", "attributes"])
def test_bubblewrap_and_limits_hold_without_the_filter(kind: str) -> None:
    """Where system calls cannot be filtered, there is still nothing to be found behind the walls."""
    suite = Unfiltered()
    suite.setup_method()
    try:
        getattr(suite, f"test_{kind}")()
    finally:
        suite.teardown_method()


@pytest.mark.parametrize(
    ("kind", "complaint"), [("attributes", "files were planted by"), ("network", "a connection was made by")]
)
def test_the_probes_find_what_is_not_confined(kind: str, complaint: str) -> None:
    """Without walls, limits and filter the same probes get out: it is these that hold them."""
    suite = Unconfined()
    suite.setup_method()
    try:
        with pytest.raises(AssertionError, match=complaint):
            getattr(suite, f"test_{kind}")()
    finally:
        suite.teardown_method()
