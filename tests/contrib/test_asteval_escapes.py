"""The calculator survives everything that tries to get out of it, also if asteval itself kept nobody in."""

from __future__ import annotations

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

def evaluate(code, inputs, ask, *, output, recursion, value):
    """All of Python, as if asteval kept nobody in."""
    import sys
    printed, files = Printed(output), Files(ask)
    names = {"open": files.open, "print": printed.print, "__name__": "__main__", **inputs}
    result, error = None, None
    sys.stdout = sys.stderr = printed
    sys.setrecursionlimit(1000)
    try:
        tree = ast.parse(code)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "code", "exec"), names)
        if last is not None:
            result = eval(compile(ast.Expression(last.value), "code", "eval"), names)
        files.flush()
    except BaseException as failure:
        error = f"{type(failure).__name__}: {failure}"[:4000]
    packed = None
    if error is None:
        try:
            packed = pack(result, value)
        except TooBigError as problem:
            error = str(problem)
    return Outcome(packed, printed.text(), printed.truncated, error)
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
import gc, socket, sys
frames = sys.modules["wink_worker.frames"]
channel = [o for o in gc.get_objects() if type(o) is socket.socket and o.fileno() >= 0][-1]
"""

WRONG_ANSWERS = [
    "import sys\nprint(sys._getframe())",
    "channel.sendall(b'\\xff\\xff\\xff\\xff')",
    "channel.sendall(b'\\0\\0\\0\\x02[]')",
    "channel.sendall(b'\\0\\0\\0\\x02{}')",
    "channel.sendall(b'\\0\\0\\0\\x01{')",
    "channel.sendall(b'\\0\\0\\0\\x07garbage')",
    "data = b'[' * 100000\nchannel.sendall(len(data).to_bytes(4, 'big') + data)",
    "frames.send(channel, {'do': 'delete', 'path': 'x', 'data': ''})",
    "frames.send(channel, {'do': 'read', 'path': 7, 'data': ''})",
    "frames.send(channel, {'do': 'read', 'path': 'x', 'data': '%%'})",
    "frames.send(channel, {'do': 'read'})",
    "frames.send(channel, {'result': True})",
    "frames.send(channel, {'result': True, 'stdout': 7, 'error': None, 'value': None})",
    "frames.send(channel, {'result': True, 'stdout': '', 'error': [], 'value': None})",
    "frames.send(channel, {'result': True, 'stdout': '', 'error': None, 'value': {'int': 'x'}})",
    "frames.send(channel, {'result': True, 'stdout': '', 'error': None, 'value': {'os': 'x'}})",
    "frames.send(channel, {'result': True, 'stdout': '', 'error': None, 'value': {'set': [[]]}})",
    "frames.send(channel, {'result': True, 'stdout': '', 'error': None, 'value': {'bytes': '%'}})",
    "frames.send(channel, {'result': True, 'stdout': '', 'error': None, 'value': {'a': 1, 'b': 2}})",
    "x = 1\nfor n in range(500): x = [x]\nframes.send(channel, {'result': 1, 'stdout': '', 'value': x})",
    "import os\nos._exit(0)",
    "import os\nos._exit(7)",
    "channel.close()",
    "frames.send(channel, {'result': True, 'stdout': 'x' * 10**6, 'error': None, 'value': 1})",
    "frames.send(channel, {'result': True, 'stdout': '', 'error': 'x' * 10**6, 'value': 1})",
    "while True: frames.send(channel, {'do': 'read', 'path': 'nope', 'data': ''})",
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
            with (broken / module).open("a") as file:
                file.write(code)
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
    also: ClassVar[Mapping[str, str]] = {"confine.py": UNFILTERED}


class Unconfined(Raw):
    bubblewrap = "never"
    also: ClassVar[Mapping[str, str]] = {"confine.py": UNFILTERED + UNLIMITED}


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
