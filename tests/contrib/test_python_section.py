"""The tool that evaluates Python, called as a model calls it."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from weakincentives.contrib.code import EvalBackend, EvalFiles, EvalLimits, EvalResult
from weakincentives.contrib.code.tool import shown
from weakincentives.contrib.python import MontyBackend
from weakincentives.contrib.tools import PythonConfig, PythonSection
from weakincentives.deadlines import Deadline
from weakincentives.errors import PathRefusedError
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import Prompt, ToolContext
from weakincentives.runtime import Session, ToolCall, ToolReply
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.testing import make_context


@pytest.fixture(scope="module")
def backend() -> Iterator[MontyBackend]:
    made = MontyBackend()
    yield made
    made.close()


class Python:
    """A section with an executor around it."""

    def __init__(
        self, backend: EvalBackend, files: Mapping[str, str] | None = None, limits: EvalLimits | None = None
    ) -> None:
        self.fs = InMemoryFilesystem(files or {})
        config = PythonConfig(limits=EvalLimits() if limits is None else limits)
        section = PythonSection(config=config, backend=backend)
        prompt = Prompt(name="python", sections=[section]).bind(resources={Filesystem: self.fs})
        self.executor = ToolExecutor(prompt=prompt, session=Session())
        self._ids = itertools.count()

    def call(self, code: str, **more: Any) -> ToolReply:
        arguments = json.dumps({"code": code, **more})
        return self.executor.execute(ToolCall(str(next(self._ids)), "evaluate_python", arguments))

    def ok(self, code: str, **more: Any) -> str:
        reply = self.call(code, **more)
        assert reply.result.success, reply.text
        return reply.text

    def fails(self, code: str, **more: Any) -> str:
        reply = self.call(code, **more)
        assert reply.outcome == "failed", reply.text
        return reply.text


# The tool


def test_the_tool_describes_itself(backend: MontyBackend) -> None:
    """Name, parameters, annotations and instructions are there, and the example holds."""
    section = PythonSection(backend=backend)
    [tool] = section.tools
    assert tool.name == "evaluate_python"
    assert list(tool.schema()["properties"]) == ["code", "inputs", "reads", "writes"]
    assert all(described["description"] for described in tool.schema()["properties"].values())
    assert tool.schema()["required"] == ["code"]
    assert not tool.annotations.read_only
    assert not tool.annotations.open_world
    for example in tool.examples:
        result: Any = tool.call(example.input, make_context())
        assert result.value == example.output
    text = section.render_body(None)
    for missing in ("yield", "inheritance", "del", "statistics", "numpy"):
        assert missing in text
    assert "2 seconds, 64 MB" in text


def test_value_and_output_come_back(backend: MontyBackend) -> None:
    """The value of the last expression and what was printed are both shown."""
    python = Python(backend)
    assert python.ok("print('tea')\n1 + 1") == "OK\nPrinted:\ntea\nValue: 2"
    assert python.ok("x = 1") == "OK"
    assert python.ok("a * b", inputs={"a": [1, {"b": None}], "b": 2}) == "OK\nValue: [1, {'b': None}, 1, {'b': None}]"


def test_errors_show_the_line_and_what_was_printed(backend: MontyBackend) -> None:
    """A failure names the line, the exception and what came before it."""
    text = Python(backend).fails("print('start')\nx = 0\n1 / x")
    assert text.startswith("The code failed; nothing was written. Correct it and call evaluate_python again\n")
    assert "line 3" in text
    assert "ZeroDivisionError" in text
    assert text.endswith("Printed before that:\nstart")
    assert "SyntaxError" in Python(backend).fails("1 +")
    assert "class inheritance" in Python(backend).fails("class A(dict):\n    pass")


@pytest.mark.parametrize("name", ["a b", "1", "class", ""])
def test_inputs_need_names(backend: MontyBackend, name: str) -> None:
    """An input that no code could name is refused."""
    assert "is not a Python name" in Python(backend).fails("1", inputs={name: 1})


def test_too_much_code_or_too_many_files_are_refused(backend: MontyBackend) -> None:
    """Sizes are checked before anything runs."""
    assert "over 100,000 characters" in Python(backend).fails("1" * 100_001)
    assert "More than 100 files" in Python(backend).fails("1", reads=[str(n) for n in range(101)])


# Files


def test_files_pass_through_the_prompts_filesystem(backend: MontyBackend) -> None:
    """Named files can be read and written with open and pathlib; the reply names what was written."""
    python = Python(backend, {"in.csv": "city,cups\nBern,2\nOslo,3\n"})
    text = python.ok(
        "import csv, json\n"
        "from pathlib import Path\n"
        "with open('in.csv') as file:\n"
        "    rows = list(csv.DictReader(file))\n"
        "Path('out/total.json').write_text(json.dumps({'cups': sum(int(row['cups']) for row in rows)}))\n"
        "len(rows)",
        reads=["in.csv"],
        writes=["/workspace/out/total.json"],
    )
    assert text == "OK\nValue: 2\nWrote: out/total.json"
    assert python.fs.read("out/total.json") == '{"cups": 5}'


def test_code_sees_only_what_was_named(backend: MontyBackend) -> None:
    """Other files do not exist for it, and it writes nowhere else."""
    python = Python(backend, {"a/x.txt": "1", "a/y.txt": "2"})
    look = "import os\nfrom pathlib import Path\n"
    text = python.ok(
        look + "(os.listdir('a'), os.path.exists('a/y.txt'), len(list(Path('.').rglob('*'))))", reads=["a/x.txt"]
    )
    assert text == "OK\nValue: (['x.txt'], False, 2)"
    assert "only the files named in reads: a/x.txt" in python.fails("open('a/y.txt').read()", reads=["a/x.txt"])
    assert "only the files named in writes: none" in python.fails("open('a/x.txt', 'w')", reads=["a/x.txt"])
    assert python.fs.read("a/x.txt") == "1"


def test_files_are_read_and_written_in_every_way(backend: MontyBackend) -> None:
    """Bytes, text, appending, stat, directories and updates behave as they do elsewhere."""
    python = Python(backend, {"d/in.bin": "abc", "log.txt": "one\n"})
    code = """
from pathlib import Path
p, log, out = Path('d/in.bin'), Path('log.txt'), Path('new/out.txt')
out.parent.mkdir(parents=True, exist_ok=True)
facts = [p.exists(), p.is_file(), p.is_dir(), Path('d').is_dir(), p.stat().st_size, p.read_bytes()]
facts += [out.exists(), p.is_symlink()]
with open('log.txt', 'a') as file:
    file.write('two\\n')
with open('log.txt', 'ab') as file:
    file.write(b'three\\n')
out.write_bytes(b'x')
with open('new/out.txt') as file:
    facts.append(file.read())
facts
"""
    text = python.ok(code, reads=["d/in.bin", "log.txt"], writes=["log.txt", "new/out.txt"])
    assert "Value: [True, True, False, True, 3, b'abc', False, False, 'x']" in text
    assert python.fs.read("log.txt") == "one\ntwo\nthree\n"
    assert python.fs.read("new/out.txt") == "x"
    assert "Is a directory" in python.fails("open('d').read()", reads=["d/in.bin"])
    assert "Is a directory" in python.fails("open('d', 'w')", reads=["d/in.bin"])
    assert "No such directory" in python.fails("import os\nos.listdir('nope')")


def test_an_existing_file_is_only_changed_when_it_is_also_read(backend: MontyBackend) -> None:
    """Overwriting blindly is refused with what to do."""
    python = Python(backend, {"a.txt": "1"})
    assert python.fails("open('a.txt', 'w').write('2')", writes=["a.txt"]).startswith(
        "File already exists: a.txt\nName it in reads as well"
    )
    python.ok("open('a.txt', 'w').write('2')", reads=["a.txt"], writes=["a.txt"])
    assert python.fs.read("a.txt") == "2"


def test_files_that_cannot_be_used_are_refused(backend: MontyBackend) -> None:
    """Missing, escaping, too big, directory and read-only files fail before the code runs."""
    python = Python(backend, {"d/x": "1", "big": "x" * 2000}, EvalLimits(file_bytes=1000))
    assert "File not found: nope" in python.fails("1", reads=["nope"])
    assert "goes up with '..'" in python.fails("1", reads=["../x"])
    assert "goes up with '..'" in python.fails("1", writes=["a/../../x"])
    assert "over 1,000 bytes together" in python.fails("1", reads=["big"])
    assert "Cannot read d" in python.fails("1", reads=["d"])
    assert "Too much written" in python.fails("open('out', 'w').write('x' * 2000)", writes=["out"])
    assert not python.fs.exists("out")
    [tool] = PythonSection(backend=backend).tools
    assert tool.params_type is not None
    for context, problem in (
        (ToolContext(), "There are no files in this prompt"),
        (make_context(fs=InMemoryFilesystem().readonly()), "it is read-only"),
    ):
        result: Any = tool.call(tool.params_type(code="1", writes=("x",)), context)
        assert not result.success
        assert problem in result.message


# Limits


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": 0},
        {"seconds": float("inf")},
        {"memory": -1},
        {"sleep": float("nan")},
        {"output": None},
        {"recursion": True},
    ],
)
def test_limits_are_always_set(wrong: dict[str, Any]) -> None:
    """No limit can be left out or made endless."""
    with pytest.raises(ValueError, match="must be a finite, positive number"):
        EvalLimits(**wrong)


def test_the_deadline_shortens_the_limits(backend: MontyBackend) -> None:
    """An evaluation ends with the run, whatever its own limits are."""
    section = PythonSection(config=PythonConfig(limits=EvalLimits(seconds=30)), backend=backend)
    [tool] = section.tools
    assert tool.params_type is not None
    context = ToolContext(deadline=Deadline.after(timedelta(seconds=0.3)))
    started = time.monotonic()
    result: Any = tool.call(tool.params_type(code="while True: pass"), context)
    assert "time limit exceeded" in result.message
    assert time.monotonic() - started < 20
    assert EvalLimits(seconds=2, sleep=1).within(5) == EvalLimits(seconds=2, sleep=1)
    assert EvalLimits(seconds=2, sleep=1).within(2.5).sleep == 0.5
    assert EvalLimits(seconds=2, sleep=1).within(-1).seconds == 0.01


@pytest.mark.parametrize(
    ("code", "limits", "said"),
    [
        ("while True: pass", {"seconds": 0.1}, "TimeoutError"),
        ("[0] * 10**7", {"memory": 10**6}, "MemoryError"),
        ("def f(n): return n and f(n - 1)\nf(50)", {"recursion": 20}, "RecursionError"),
        ("import time\ntime.sleep(0.3)", {"sleep": 0.1}, "sleep limit exceeded"),
        ("for n in range(50): open('x')", {"host_calls": 10}, "suspension"),
    ],
)
def test_each_limit_holds(backend: MontyBackend, code: str, limits: dict[str, Any], said: str) -> None:
    """Each limit stops the code and says which one it was."""
    python = Python(backend, {"x": ""}, EvalLimits(**limits))
    assert said in python.fails(code, reads=["x"])


def test_output_is_cut(backend: MontyBackend) -> None:
    """Too much printed text or a long value is cut and says so; the code goes on."""
    python = Python(backend, limits=EvalLimits(output=100))
    text = python.ok("for n in range(1000): print(n)\n'done'")
    assert "[more was printed, and dropped; print less]\nValue: 'done'" in text
    assert len(text) < 300
    assert python.ok("list(range(1000))").endswith("... [cut: the value is longer]")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (dict[str, int](), "{}"), (list[int](), "[]"),
        ((), "()"), ((1,), "(1,)"), (set[int](), "set()"), ({1}, "{1}"), ("a'b", '"a\'b"'),
        (b"\0", "b'\\x00'"), (-(2**60), str(-(2**60))),
        ({"a": {"b": [None, True]}}, "{'a': {'b': [None, True]}}"), (frozenset({1}), "{1}"), (1.5, "1.5"),
    ],
)  # fmt: skip
def test_values_are_shown_as_python(value: object, expected: str) -> None:
    """Plain values look as they would at Python's prompt."""
    assert shown(value, 1000) == expected


def test_values_that_cannot_be_shown() -> None:
    """Deep, endless and failing values end as text all the same."""
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert "..." in shown(deep, 1000)
    endless: list[Any] = []
    endless.append(endless)
    assert "..." in shown(endless, 1000)

    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(Bad(), 100) == "<a Bad that cannot be shown: RuntimeError>"
    assert len(shown("x" * 10**6, 10)) < 60
    assert shown(2**20_000, 100) == "<an integer of 20,001 bits>"


# The backend


def test_the_same_code_gives_the_same_result_when_deterministic() -> None:
    """With a fixed clock and seed two evaluations agree on time and chance; without, they do not."""
    code = (
        "import random, time, datetime\n"
        "(random.random(), random.Random().random(), time.time(), str(datetime.datetime.now()))"
    )
    with PythonSection(config=PythonConfig(deterministic=True)) as fixed, PythonSection() as free:
        results: list[list[Any]] = []
        for section in (fixed, free):
            runs = [section.backend.evaluate(code, {}, EvalFiles(), EvalLimits()).value for _ in range(2)]
            results.append(runs)
    assert results[0][0] == results[0][1]
    assert results[0][0][3] == "2025-01-01 00:00:00"
    assert results[1][0] != results[1][1]


def test_evaluations_do_not_see_one_another(backend: MontyBackend) -> None:
    """Each one starts afresh, also when many run at the same time."""
    python = Python(backend)
    python.ok("leftover = 1")
    assert "NameError" in python.fails("leftover")

    def one(n: int) -> Any:
        code = "x = n\nfor i in range(1000): x += 1\nx"
        return backend.evaluate(code, {"n": n}, EvalFiles(), EvalLimits()).value

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(one, range(40))) == [n + 1000 for n in range(40)]


def children() -> set[str]:
    found: set[str] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # a process may end between any two looks
            if path.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(path.parent.name)
    return found


def test_workers_end_with_their_owner() -> None:
    """No worker is started before it is needed, and none is left by `close`, by the section's end, or by `with`."""
    before = children()
    section = PythonSection()
    assert children() == before
    assert section.backend.evaluate("1", {}, EvalFiles(), EvalLimits()).value == 1
    assert len(children() - before) == 1
    section.close()
    section.close()
    assert children() == before
    assert section.backend.evaluate("2", {}, EvalFiles(), EvalLimits()).value == 2
    del section
    gc.collect()
    assert children() == before


def test_a_backend_that_is_handed_in_stays_its_owners(backend: MontyBackend) -> None:
    """Closing the section leaves it alone."""

    class Counting(EvalBackend):
        closed = 0

        @property
        def guide(self) -> str:
            return "Counts."

        def evaluate(self, code: str, inputs: Mapping[str, Any], files: EvalFiles, limits: EvalLimits) -> EvalResult:
            return EvalResult(len(code))

        def close(self) -> None:
            self.closed += 1

    mine = Counting()
    with PythonSection(backend=mine) as section:
        assert "Counts." in section.render_body(None)
    assert mine.closed == 0


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Monty the section can be built, and its first use says what to install."""
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    section = PythonSection()
    with pytest.raises(ImportError, match=r"pip install 'weakincentives\[python\]'"):
        section.backend.evaluate("1", {}, EvalFiles(), EvalLimits())


def test_a_crashed_worker_is_replaced(backend: MontyBackend) -> None:
    """When a worker is killed from outside the call fails, and the next one works."""
    own = MontyBackend()
    before = children()
    own.evaluate("1", {}, EvalFiles(), EvalLimits())
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(own.evaluate, "while True: pass", {}, EvalFiles(), EvalLimits(seconds=20))
        while not running.done():
            time.sleep(0.2)  # it may not have begun: an idle worker that is killed is replaced unseen
            for worker in children() - before:
                with suppress(ProcessLookupError):
                    os.kill(int(worker), 9)
        assert running.result().error == "Stopped: the interpreter crashed"
    assert own.evaluate("2", {}, EvalFiles(), EvalLimits()).value == 2
    own.close()


def test_several_sections_in_one_prompt(backend: MontyBackend) -> None:
    """Different keys and prefixes live side by side, also with a backend of their own."""
    first = PythonSection(backend=backend)
    second = PythonSection(session=Session(), key="strict", tool_prefix="strict_", accepts_overrides=True)
    prompt = Prompt(name="two", sections=[first, second])
    assert [tool.name for tool in prompt.tools()] == ["evaluate_python", "strict_evaluate_python"]
    assert "`strict_evaluate_python`" in second.render_body(None)
    assert (first.accepts_overrides, second.accepts_overrides) == (False, True)
    second.close()


def test_a_path_the_filesystem_refuses_late_undoes_the_call(backend: MontyBackend) -> None:
    """When a file cannot be written after all, nothing of the call stays."""

    class Stubborn(InMemoryFilesystem):
        __slots__ = ()

        def write(self, path: str, content: str | bytes) -> None:
            if path == "second.txt":
                raise PathRefusedError("no")
            super().write(path, content)

    fs = Stubborn()
    prompt = Prompt(name="p", sections=[PythonSection(backend=backend)]).bind(resources={Filesystem: fs})
    with ToolExecutor(prompt=prompt, session=Session()) as executor:
        arguments = {
            "code": "open('first.txt', 'w').write('1')\nopen('second.txt', 'w').write('2')",
            "writes": ["first.txt", "second.txt"],
        }
        reply = executor.execute(ToolCall("1", "evaluate_python", json.dumps(arguments)))
    assert reply.outcome == "failed"
    assert "second.txt cannot be written" in reply.text
    assert fs.search("") == []


@pytest.mark.slow  # an interpreter
def test_a_forked_process_is_told_so(backend: MontyBackend) -> None:
    """A child forked after the first evaluation gets an error that says what to do; the parent goes on."""
    assert backend.evaluate("1", {}, EvalFiles(), EvalLimits()).value == 1
    code = """
import os, sys
from weakincentives.contrib.evaluation import *
used, fresh = MontyBackend(), MontyBackend()
evaluate = lambda backend: backend.evaluate("1 + 1", {}, EvalFiles(), EvalLimits()).value
assert evaluate(used) == 2
child = os.fork()
if child == 0:
    for backend in (used, fresh):
        try:
            evaluate(backend)
        except RuntimeError as error:
            print("spawn" in str(error), flush=True)
    used.close()
    del used
    os._exit(0)
os.waitpid(child, 0)
print(evaluate(used), evaluate(fresh))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "True", "2", "2"]


def test_what_cannot_cross_is_told(backend: MontyBackend) -> None:
    """An input that the interpreter has no form for fails that evaluation."""
    result = backend.evaluate("x", {"x": object()}, EvalFiles(), EvalLimits())
    assert result.error is not None
    assert "cannot leave or enter" in result.error
