"""The calculator, called as a model calls it."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import needs

from weakincentives.contrib.asteval import AstevalBackend
from weakincentives.contrib.asteval import process as asteval_process
from weakincentives.contrib.code import EvalFiles, EvalLimits
from weakincentives.contrib.code.wire import Encoder, RemoteValue, TooBigError, decode
from weakincentives.contrib.tools import AstevalConfig, AstevalSection
from weakincentives.deadlines import Deadline
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import Prompt, PromptTemplate, ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import Session, ToolCall, ToolReply
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.testing import make_context

pytestmark = pytest.mark.slow  # an interpreter for each test


@pytest.fixture(scope="module")
def shared() -> Iterator[AstevalSection]:
    with AstevalSection() as section:
        yield section


class Calculator:
    """A section with an executor around it."""

    def __init__(self, section: AstevalSection, files: Mapping[str, str | bytes] | None = None) -> None:
        self.fs = InMemoryFilesystem(files or {})
        prompt = Prompt(name="calculator", sections=[section]).bind(resources={Filesystem: self.fs})
        self.executor = ToolExecutor(prompt=prompt, session=Session())
        self._ids = itertools.count()

    def call(self, code: str, **more: Any) -> ToolReply:
        return self.executor.execute(
            ToolCall(str(next(self._ids)), "evaluate_python", json.dumps({"code": code, **more}))
        )

    def ok(self, code: str, **more: Any) -> str:
        reply = self.call(code, **more)
        assert reply.result.success, reply.text
        return reply.text.removeprefix("OK\n")

    def fails(self, code: str, **more: Any) -> str:
        reply = self.call(code, **more)
        assert reply.outcome == "failed", reply.text
        return reply.text


def value(section: AstevalSection, code: str, limits: EvalLimits | None = None, **inputs: Any) -> Any:
    result = section.backend.evaluate(code, inputs, EvalFiles(), EvalLimits() if limits is None else limits)
    assert result.error is None, result.error
    return result.value


def error(section: AstevalSection, code: str, limits: EvalLimits | None = None, **inputs: Any) -> str:
    result = section.backend.evaluate(code, inputs, EvalFiles(), EvalLimits() if limits is None else limits)
    assert result.error is not None, result
    return result.error


# The tool


def test_the_tool_describes_itself(shared: AstevalSection) -> None:
    """Name, parameters and instructions are there, the example holds, and what is missing is said plainly."""
    [tool] = shared.tools
    assert tool.name == "evaluate_python"
    assert list(tool.schema()["properties"]) == ["code", "inputs", "reads", "writes"]
    for example in tool.examples:
        result: Any = tool.call(example.input, make_context())
        assert result.value == example.output
    text = shared.render_body(None)
    for missing in ("`import`", "classes", "`yield`", "numpy", "`str.format`", "closures"):
        assert missing in text
    assert "2 seconds, 64 MB" in text


def test_every_name_that_is_promised_is_there(shared: AstevalSection) -> None:
    """The names that the instructions list exist, and no other name of asteval does."""
    guide = shared.backend.guide
    listed = guide[guide.index("- There:") : guide.index("- Missing:")].replace("- There:", "")
    names = [word.strip(" \n.") for word in listed.replace("(gives the name)", "").replace(";", ",").split(",")]
    names = [name.removeprefix("and without a module before them: ") for name in names]
    names = [" ".join(name.split()).removeprefix("and without a module before them: ") for name in names]
    assert len(names) > 60
    for name in names:
        assert value(shared, f"type({name})")
    for name in ("dir", "id", "hash", "bytearray", "getattr", "eval", "exec", "compile", "__import__", "globals"):
        assert "is not defined" in error(shared, name)


@pytest.mark.parametrize(
    ("limit", "within", "beyond"),
    [
        ("262,144", "len('x' * 262144)", "len('x' * 262145)"),
        ("262,144", "len('x' * 262143 + 'y')", "len('x' * 262144 + 'y')"),
        ("10,000", "2 ** 10000 > 0", "2 ** 10001 > 0"),
        ("1,000", "1 << 1000 > 0", "1 << 1001 > 0"),
    ],
)
def test_the_limits_of_asteval_are_told(shared: AstevalSection, limit: str, within: str, beyond: str) -> None:
    """The instructions name the limits that asteval has of its own, and they are what they are said to be."""
    guide = shared.backend.guide
    assert limit in guide[guide.index("- Limits of its own") : guide.index("- It is slow")]
    assert value(shared, within)
    assert "RuntimeError" in error(shared, beyond)
    assert value(shared, "len(''.join(['x' * 200000, 'y' * 200000]))") == 400_000


@pytest.mark.parametrize(
    "code",
    [
        "x = [1, 2, 3]\ndel x[0]\nx",
        "x = [1, 2, 3, 4]\ndel x[1:3]\nx",
        "x = {'a': 1, 'b': 2}\ndel x['a']\nx",
        "x, y = [1, 2], [3, 4]\ndel x[0], y[-1]\n[x, y]",
        "def f(x):\n    del x[0]\n    return x\nf([1, 2])",
    ],
)
def test_items_can_be_deleted(shared: AstevalSection, code: str) -> None:
    """By their index or key, as in Python; the hint for other uses of `del` promises it."""
    names: dict[str, Any] = {}
    body, _, last = code.rpartition("\n")
    exec(body, names)
    assert value(shared, code) == eval(last, names)
    assert "is not defined" in error(shared, "del y[0]")


def test_value_and_output_come_back(shared: AstevalSection) -> None:
    """The value of the last expression and what was printed are both shown."""
    calculator = Calculator(shared)
    assert calculator.ok("print('tea', 2, sep='-', end='!')\n1 + 1") == "Printed:\ntea-2!\nValue: 2"
    assert calculator.ok("x = 1") == "OK"
    assert calculator.ok("assert 1") == "OK"
    assert calculator.ok("a * b", inputs={"a": [1, {"b": None}], "b": 2}) == "Value: [1, {'b': None}, 1, {'b': None}]"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("sum(n for n in range(5))", 10),
        ("def mean(xs):\n    return sum(xs) / len(xs)\nmean([1, 2, 6])", 3.0),
        ("sorted(['b', 'a'], key=lambda s: -ord(s))", ["b", "a"]),
        ("{w: len(w) for w in 'a bb'.split()}", {"a": 1, "bb": 2}),
        ("x = 0\nwhile True:\n    x += 1\n    if x > 3:\n        break\nx", 4),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    x = 'caught'\nx", "caught"),
        ("x = [1]\ntry:\n    x[9] = 1\nexcept IndexError:\n    x = 'caught'\nx", "caught"),
        ("try:\n    raise ValueError('a')\nexcept Exception as error:\n    x = f'got {error}'\nx", "got a"),
        ("try:\n    assert 0, 'no'\nexcept AssertionError as error:\n    x = str(error)\nx", "no"),
        ("try:\n    int('a')\nexcept ValueError as error:\n    x = str(error)[:7]\nx", "invalid"),
        ("x = []\ntry:\n    1 / 0\nexcept KeyError:\n    x.append(1)\nexcept:\n    x.append(2)\nfinally:\n    x.append(3)\nx", [2, 3]),  # noqa: E501
        ("def f():\n    try:\n        return 1\n    finally:\n        x.append(2)\nx = []\n(f(), x)", (1, [2])),
        ("x = 0\nfor n in range(3):\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        continue\n    x += 1\nx", 0),  # noqa: E501
        ("def f():\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        return 'z'\n    return 'n'\nf()", "z"),  # noqa: E501
        ("x = 1\ntry:\n    x = 2\nexcept ValueError:\n    x = 3\nelse:\n    x += 5\nx", 7),
        ("x = []\ntry:\n    try:\n        int('a')\n    except ValueError as error:\n        x.append(error)\n        raise\nexcept ValueError as error:\n    x.append(error)\nx[0] == x[1] and str(x[1])[:7]", "invalid"),  # noqa: E501
        ("def f():\n    raise\ntry:\n    try:\n        [][1]\n    except IndexError:\n        try:\n            1 / 0\n        except ZeroDivisionError:\n            y = 1\n        f()\nexcept IndexError:\n    x = 'outer'\nx", "outer"),  # noqa: E501
        ("x = []\ntry:\n    try:\n        1 / 0\n    finally:\n        try:\n            raise\n        except ZeroDivisionError:\n            x.append(1)\nexcept ZeroDivisionError:\n    x.append(2)\nx", [1, 2]),  # noqa: E501
        ("x = 0\ntry:\n    raise\nexcept RuntimeError as error:\n    x = str(error)\nx", "No active exception to reraise"),  # noqa: E501
        ("try:\n    try:\n        1 / 0\n    except Nope:\n        x = 1\nexcept NameError as error:\n    x = str(error)\nx", "name 'Nope' is not defined"),  # noqa: E501
        ("Mine = ValueError\ntry:\n    int('a')\nexcept Mine:\n    x = 'mine'\nx", "mine"),
        ("try:\n    x = 1\nexcept Nope:\n    x = 2\nx", 1),
        ("try:\n    1 / 0\nexcept ArithmeticError:\n    x = 1\nexcept Nope:\n    x = 2\nx", 1),
        ("f'{3.14159:.2f} {\"a\"!r:>5}'", "3.14   'a'"),
        ("(1, {2}, b'x', 10**30, -2**70, 2j, None, True)", (1, {2}, b"x", 10**30, -(2**70), 2j, None, True)),
        ("round(sqrt(2) * 100)", 141),
        ("factorial(5)", 120),
    ],
)  # fmt: skip
def test_it_calculates(shared: AstevalSection, code: str, expected: Any) -> None:
    """Ordinary code of the kind that models write gives the value Python gives."""
    assert value(shared, code) == expected


@pytest.mark.parametrize(
    ("code", "line", "hint"),
    [
        ("import math\nmath.sqrt(2)", 1, "there are no imports; sqrt"),
        ("x = 1\nfrom math import pi", 2, "there are no imports"),
        ("class A:\n    pass", 1, "there are no classes"),
        ("def f():\n    yield 1\nf()", 2, "there are no generators"),
        ("def f():\n    global x\n    x = 1", 2, "there is no global"),
        ("(x := 1)", 1, "there is no :="),
        ("x: int = 1", 1, "there are no annotated assignments"),
        ("max(*[1, 2])", 1, "there is no * here"),
        ("a, *b = [1, 2]", 1, "there is no * here"),
        ("match 1:\n    case 1: pass", 1, "there is no match"),
        ("try:\n    1\nexcept (KeyError, ValueError):\n    2", 1, "except takes one name"),
        ("x = {**{}}", 1, "there is no ** in a dict"),
        ("@print\ndef f(): pass", 2, "there are no decorators"),
        ("def f(*, a): pass", 1, "keyword-only"),
        ("async def f(): pass", 1, "there is no async"),
        ("def f(a=1, *b): pass", 1, "defaults or *args, not both"),
        ("x = {'a': [1]}\ndel x['a'][0]", 2, "use pop"),
    ],
)
def test_what_asteval_lacks_is_refused_before_it_runs(shared: AstevalSection, code: str, line: int, hint: str) -> None:
    """Syntax that asteval does not know, or gets wrong, is named with its line and what to do instead."""
    message = error(shared, f"{code}\nwhile True: pass")
    assert message.startswith(f"line {line}: ")
    assert hint in message


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 0\n1 / x", "line 2: 1 / x\nZeroDivisionError: division by zero"),
        ("def f(a):\n    return 1 / a\nf(0)", "line 2: return 1 / a\nZeroDivisionError: division by zero"),
        ("1 +", "line 1: 1 +\nSyntaxError: invalid syntax"),
        ("tea", "line 1: tea\nNameError: name 'tea' is not defined"),
        ("raise ValueError('no tea')", "line 1: raise ValueError('no tea')\nValueError: no tea"),
        ("int('x')", "line 1: int('x')\nValueError: invalid literal for int() with base 10: 'x'"),
        ("{}['k']", "line 1: {}['k']\nKeyError: 'k'"),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise", "line 2: 1 / 0\nZeroDivisionError: division by zero"),
        ("try:\n    1 / 0\nexcept Nope:\n    2", "line 3: except Nope:\nNameError: name 'Nope' is not defined"),
        (
            "try:\n    1 / 0\nexcept len:\n    2",
            "line 3: except len:\nTypeError: catching classes that do not inherit from BaseException is not allowed",
        ),
        ("raise", "line 1: raise\nRuntimeError: No active exception to reraise"),
        ("'\\ud800' + 1", None),
        ("raise ValueError('\\ud800')", None),
        ("raise KeyboardInterrupt", None),
        ("raise 7", None),
    ],
)
def test_errors_name_the_line(shared: AstevalSection, code: str, expected: str | None) -> None:
    """A failure gives the line, the exception and its text, once, and can be encoded."""
    message = error(shared, code)
    message.encode()
    assert expected is None or message == expected


def test_a_failed_call_shows_what_was_printed(shared: AstevalSection) -> None:
    """The reply says what to do, why it failed, and what came before."""
    text = Calculator(shared).fails("print('start')\n1 / 0")
    assert text.startswith("The code failed; nothing was written. Correct it and call evaluate_python again\nline 2: ")
    assert text.endswith("Printed before that:\nstart")


# Files


def test_files_pass_through_the_prompts_filesystem(shared: AstevalSection) -> None:
    """Named files can be read and written in every way; the reply names what was written."""
    calculator = Calculator(shared, {"in.csv": "city,cups\nBern,2\nOslo,3\n", "log.txt": "one\n", "b": b"\0\xff"})
    code = """
total = 0
for line in read_text('in.csv').splitlines()[1:]:
    total += int(line.split(',')[1])
write_text('/workspace/out/total.txt', f'{total}')
with open('log.txt', 'a') as file:
    file.write('two\\n')
    file.writelines(['three\\n'])
write_bytes('copy', read_bytes('b') + open('b', 'rb').read())
out = open('new.bin', 'wb')
out.write(b'x')
out.close()
lines = [line for line in open('in.csv')]
(total, len(lines), open('out/total.txt').read())
"""
    writes = ["out/total.txt", "log.txt", "copy", "new.bin"]
    text = calculator.ok(code, reads=["in.csv", "log.txt", "b"], writes=writes)
    assert text == "Value: (5, 3, '5')\nWrote: copy, log.txt, new.bin, out/total.txt"
    assert calculator.fs.read("log.txt") == "one\ntwo\nthree\n"
    assert calculator.fs.read_bytes("copy") == b"\0\xff\0\xff"
    assert calculator.fs.read("out/total.txt") == "5"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("read_text('a/y.txt')", "FileNotFoundError: [Errno 2] No such file: 'a/y.txt'. The code sees only the files"),
        (
            "write_text('a/x.txt', '')",
            "PermissionError: [Errno 13] Permission denied: 'a/x.txt'. The code may write only",
        ),
        ("read_text('a')", "IsADirectoryError"),
        ("read_text('../up')", "PermissionError"),
        ("read_text(0)", "a path is text, not int"),
        ("open('a/x.txt', 'r+')", "invalid mode"),
        ("open('a/x.txt', encoding='latin-1')", "only UTF-8"),
        ("open('a/../a/x.txt')", "without '..'"),
        ("open('out', 'wb').write('text')", "a bytes-like object is required"),
        ("open('out', 'w').write(b'bytes')", "write() argument must be str"),
        ("write_text('out', 'x' * 2000)", "Too much written"),
    ],
)
def test_files_that_cannot_be_used_say_why(code: str, said: str) -> None:
    """The code gets the errors that Python's own functions raise, and nothing is written."""
    with AstevalSection(config=AstevalConfig(limits=EvalLimits(file_bytes=1000))) as section:
        calculator = Calculator(section, {"a/x.txt": "1", "a/y.txt": "2"})
        assert said in calculator.fails(code, reads=["a/x.txt"], writes=["out"])
        assert sorted(calculator.fs.search("")) == ["a/x.txt", "a/y.txt"]


LINES = "for n in range(1500):\n    file.write(f'{n}\\n')\n"


@pytest.mark.parametrize(
    "code",
    [
        f"file = open('out', 'w')\n{LINES}file.close()",
        f"file = open('out', 'w')\n{LINES}",
        f"file = open('out', 'w')\n{LINES}file = None\n'done'",
        "with open('out', 'w') as f:\n    for n in range(1500):\n        f.write(f'{n}\\n')\n        f.flush()",
        f"file = open('out', 'w')\nother = open('./out', 'a')\n{LINES}assert len(read_text('out')) == 6390",
    ],
)
def test_lines_are_written_one_by_one(shared: AstevalSection, code: str) -> None:
    """A file takes more writes than there may be uses of files, whether or not it is closed in the end."""
    calculator = Calculator(shared)
    assert "Wrote: out" in calculator.ok(code, writes=["out"])
    assert calculator.fs.read("out") == "".join(f"{n}\n" for n in range(1500))


def test_what_is_written_can_be_read_at_once(shared: AstevalSection) -> None:
    """Reading, replacing and appending find what was written before, in order, though no file was closed."""
    calculator = Calculator(shared, {"a": "0"})
    code = """
one, two, seen = open('a', 'a'), open('a', 'a'), []
one.write('1')
two.write('2')
one.write('3')
seen.append(read_text('a'))
one.write('x' * 70000)
two.write('y' * 40000)
one.write('z' * 40000)
seen.append(len(open('a').read()))
one.write('lost')
write_text('a', 'new')
two.write('er')
one.close()
one.close()
try:
    one.write('no')
except ValueError as error:
    seen.append(str(error))
seen
"""
    text = calculator.ok(code, reads=["a"], writes=["a"])
    assert text == "Value: ['0123', 150004, 'I/O operation on closed file.']\nWrote: a"
    assert calculator.fs.read("a") == "newer"


@pytest.mark.parametrize(
    "code",
    [
        "file = open('out', 'w')\nfile.write('x' * 2000)",
        "file = open('out', 'w')\nfile.write('x' * 2000)\nfile.close()",
        "file = open('out', 'w')\nfile.write('x' * 70000)",
        "file = open('out', 'w')\nfile.write('x' * 2000)\nread_text('out')",
    ],
)
def test_what_is_written_is_held_to_the_limits(code: str) -> None:
    """Too much is refused when it is written, and then nothing of it is kept."""
    with AstevalSection(config=AstevalConfig(limits=EvalLimits(file_bytes=1000))) as section:
        calculator = Calculator(section, {"a": "1"})
        assert "OSError: [Errno 27] Too much written" in calculator.fails(code, writes=["out"])
        filled = "file = open('out', 'w')\nfile.write('x' * 2000)\n"
        caught = filled.replace("file.write", "try:\n    file.write") + "except OSError:\n    x = 'full'\nx"
        assert calculator.ok(caught, writes=["out"]) == "Value: 'full'\nWrote: out"
        assert "division" in calculator.fails(
            "file = open('a', 'w')\nfile.write('2')\n1 / 0", reads=["a"], writes=["a"]
        )
        assert calculator.fs.read("a") == "1"


def test_errors_of_files_can_be_caught(shared: AstevalSection) -> None:
    """Code that expects a file to be missing can go on."""
    assert value(shared, "try:\n    read_text('nope')\nexcept OSError:\n    x = 'none'\nx") == "none"


# Limits


@pytest.mark.parametrize(
    ("code", "limits", "said"),
    [
        ("while True: pass", {"seconds": 0.1}, "time limit exceeded: at most 0.1 seconds"),
        ("sum(range(10**13))", {"seconds": 0.1}, "time limit exceeded"),
        ("[0] * 10**7", {"memory": 10**6}, "MemoryError: memory limit exceeded"),
        ("x = []\nwhile True: x.append('y' * 10**5)", {"memory": 10**7}, "MemoryError: memory limit exceeded"),
        ("def f(n): return n and f(n - 1)\nf(50)", {"recursion": 20}, "RecursionError: maximum recursion depth"),
        ("for n in range(50): read_text('x')", {"host_calls": 10}, "RuntimeError: too many uses of files: at most 10"),
        ("list(range(10**6))", {}, "The value cannot come back: it is too big"),
        ("x = []\nx.append(x)\nx", {}, "The value cannot come back: it is nested too deeply"),
    ],
)
def test_each_limit_holds(code: str, limits: dict[str, Any], said: str) -> None:
    """Each limit stops the code and says which one it was."""
    with AstevalSection(config=AstevalConfig(limits=EvalLimits(**limits))) as section:
        started = time.monotonic()
        assert said in Calculator(section, {"x": ""}).fails(code, reads=["x"])
        assert time.monotonic() - started < 60


def test_recursion_up_to_the_limit_works(shared: AstevalSection) -> None:
    """As many nested calls as are allowed are possible."""
    assert value(shared, "def f(n): return n and f(n - 1)\nf(199)") == 0
    assert "RecursionError" in error(shared, "def f(n): return n and f(n - 1)\nf(200)")


def test_output_is_cut(shared: AstevalSection) -> None:
    """Too much printed text or a long value is cut and says so; the code goes on."""
    with AstevalSection(config=AstevalConfig(limits=EvalLimits(output=100))) as section:
        calculator = Calculator(section)
        text = calculator.ok("for n in range(1000): print(n)\n'done'")
        assert "[more was printed, and dropped; print less]\nValue: 'done'" in text
        assert calculator.ok("list(range(1000))").endswith("... [cut: the value is longer]")


def test_the_deadline_shortens_the_limits() -> None:
    """An evaluation ends with the run, whatever its own limits are."""
    with AstevalSection(config=AstevalConfig(limits=EvalLimits(seconds=30))) as section:
        [tool] = section.tools
        assert tool.params_type is not None
        context = ToolContext(deadline=Deadline.after(timedelta(seconds=0.5)))
        started = time.monotonic()
        result: Any = tool.call(tool.params_type(code="while True: pass"), context)
        assert "time limit exceeded" in result.message
        assert time.monotonic() - started < 20


# What crosses


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(
    PLAIN | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4)
    | st.lists(inner, max_size=4).map(tuple)
    | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    | st.frozensets(st.integers() | st.text(), max_size=1),
    max_leaves=20,
)  # fmt: skip


@given(value=VALUES)
def test_values_survive_the_way(value: Any) -> None:
    """Plain values are the same, and of the same types, on the other side."""
    sent = json.loads(json.dumps(Encoder(1 << 20).encode(value), allow_nan=False))
    assert repr(decode(sent)) == repr(value)


@given(packed=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=2) | st.tuples(
        st.sampled_from([*"ifcbodltszx"]), inner | st.lists(inner, max_size=4)
    ).map(list),
    max_leaves=10,
))  # fmt: skip
def test_anything_may_come(packed: Any) -> None:
    """Whatever JSON a worker sends is a plain value or refused, nothing else."""
    try:
        found = decode(packed)
    except ValueError:
        return
    assert isinstance(
        found,
        type(None) | bool | int | float | complex | str | bytes | list | tuple | set | frozenset | dict | RemoteValue,
    )


def test_what_has_no_form_is_shown(shared: AstevalSection) -> None:
    """A value that cannot be sent arrives as its representation; an input that cannot fails the evaluation."""
    assert repr(value(shared, "range(3)")) == "range(0, 3)"
    assert "Procedure" in repr(value(shared, "lambda x: x"))
    assert "a value of type object cannot be sent" in error(shared, "x", x=object())
    with pytest.raises(TooBigError):
        Encoder(50).encode("x" * 100)


def test_inputs_of_every_kind_arrive(shared: AstevalSection) -> None:
    """Text with any character, big numbers, bytes and nested containers come back as they went in."""
    given: dict[str, Any] = {
        "a": "\0\n\u2028\U0001f375",
        "b": 2**200,
        "c": [b"\xff", (1.5, {"k": frozenset({1})})],
        "d": float("inf"),
    }
    assert value(shared, "(a, b, c, d)", **given) == tuple(given.values())


# The section


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without asteval, or with one that has known holes, the first use says what to install."""
    section = AstevalSection()
    monkeypatch.setattr(asteval_process, "version", "1.0.9".format)
    with pytest.raises(ImportError, match=r"asteval 1.0.9 has known holes.*pip install 'weakincentives\[asteval\]'"):
        value(section, "1")
    monkeypatch.setitem(sys.modules, "asteval", None)
    with pytest.raises(ImportError, match=r"pip install 'weakincentives\[asteval\]'"):
        value(section, "1")


def test_bubblewrap_is_used_required_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The section says what holds the code; where bubblewrap is required and missing, nothing is evaluated."""
    with AstevalSection(config=AstevalConfig(bubblewrap="never")) as section:
        assert section.backend.confinement is None
        assert value(section, "1 + 1") == 2
        assert section.backend.confinement is not None
        assert not section.backend.confinement.bubblewrap
        assert "resource limits" in str(section.backend.confinement)
    with AstevalSection() as section:
        assert value(section, "1 + 1") == 2
        assert section.backend.confinement is not None
        assert section.backend.confinement.bubblewrap is (shutil.which("bwrap") is not None)
    monkeypatch.setenv("PATH", "/nowhere")
    with AstevalSection(config=AstevalConfig(bubblewrap="required")) as section:
        with pytest.raises(RuntimeError, match="apt-get install bubblewrap"):
            value(section, "1 + 1")
        reply = Calculator(section).call("1 + 1")
        assert reply.outcome == "crashed"
    with AstevalSection() as section:
        assert value(section, "1 + 1") == 2
    with pytest.raises(ValueError, match="must be required, available or never"):
        AstevalBackend(bubblewrap="yes")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="at least 1"):
        AstevalBackend(max_workers=0)


def test_a_missing_bubblewrap_is_said_once_when_a_section_is_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before any code runs, and not where the user left it out himself or asked for it to be required."""
    monkeypatch.setattr(asteval_process, "_reported", set[tuple[int, str]]())
    monkeypatch.setenv("PATH", "/nowhere")
    for config in (AstevalConfig(bubblewrap="never"), AstevalConfig(confinement="required")):
        AstevalSection(config=config)
    assert caplog.records == []
    for _ in range(3):
        AstevalSection()
    assert len(caplog.records) == 1
    assert "bubblewrap is not installed" in caplog.text
    assert "confinement='required'" in caplog.text


def test_a_missing_filter_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """It shows with the first evaluation, whichever section that is in."""
    monkeypatch.setattr(asteval_process, "_reported", set[tuple[int, str]]())

    def said() -> list[str]:  # beside what is said of a bubblewrap that is missing
        return [record.levelname for record in caplog.records if "System calls cannot be filtered" in record.message]

    with AstevalSection() as section:
        assert value(section, "1 + 1") == 2
    assert said() == []
    monkeypatch.setattr(asteval_process, "WORKER", unfiltered_worker(tmp_path))
    for _ in range(2):
        with AstevalSection() as section:
            assert [value(section, code) for code in ("1 + 1", "2 + 2")] == [2, 4]
    assert said() == ["WARNING"]


def unfiltered_worker(folder: Path) -> Path:
    """A copy of the worker, as on a machine whose system calls it does not know."""
    broken = folder / "worker"
    shutil.copytree(asteval_process.WORKER, broken)
    with (broken / "main.py").open("a") as file:
        file.write("\n\ndef filter_calls():\n    return False\n")
    return broken


def test_confinement_that_is_required(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No code runs without bubblewrap, and none without the filter; with both it does."""
    required = AstevalConfig(confinement="required")
    with pytest.raises(ValueError, match="cannot be 'never'"):
        AstevalBackend(confinement="required", bubblewrap="never")
    with pytest.raises(ValueError, match="must be required or available"):
        AstevalBackend(confinement="no")  # pyright: ignore[reportArgumentType]
    with monkeypatch.context() as patched, AstevalSection(config=required) as section:
        patched.setenv("PATH", "/nowhere")
        with pytest.raises(RuntimeError, match="bubblewrap is required"):
            value(section, "1 + 1")
    needs("bwrap", present=shutil.which("bwrap") is not None, install="apt-get install bubblewrap")
    with AstevalSection(config=required) as section:
        assert value(section, "1 + 1") == 2
        assert str(section.backend.confinement) == "bubblewrap, a system call filter, resource limits"
    broken = unfiltered_worker(tmp_path)
    with (broken / "language.py").open("a") as file:
        # Code that runs is noticed: nothing is answered then. The worker tries out some of its own before.
        file.write("\n\n_sound = CodeRun.run\n\ndef _run(self):\n    import os\n")
        file.write("    return os._exit(7) if self._code == '1 + 1' else _sound(self)\n\nCodeRun.run = _run\n")
    monkeypatch.setattr(asteval_process, "WORKER", broken)
    with AstevalSection(config=required) as section:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="filter of system calls, which does not work here"):
                value(section, "1 + 1")


def test_a_bubblewrap_that_does_not_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    """Where it is required its own words are told; where it is not, the worker runs without it, which is said once."""
    monkeypatch.setattr(asteval_process, "_reported", set[tuple[int, str]]())
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    section = AstevalSection(config=AstevalConfig(bubblewrap="required"))
    with pytest.raises(RuntimeError, match=r"does not work here.*No permissions to create new namespace"):
        value(section, "1")
    for _ in range(2):
        with AstevalSection() as section:
            assert value(section, "1 + 1") == 2
            assert section.backend.confinement is not None
            assert not section.backend.confinement.bubblewrap
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No permissions to create new namespace" in caplog.text


def faulty_bubblewrap(folder: Path, *, failures: int, complaint: str) -> Path:
    """A bubblewrap that fails some times and then does without walls; the file counts how often it was started."""
    started, program = folder / "started", folder / "bwrap"
    program.write_text(
        f"#!/bin/sh\necho >> {started}\n"
        f'if [ "$(/usr/bin/wc -l < {started})" -le {failures} ]; then echo "{complaint}" >&2; exit 1; fi\n'
        'while [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
    )
    program.chmod(0o755)
    return started


@pytest.mark.parametrize(
    ("failures", "complaint", "tries", "works"),
    [
        (1, "bwrap: Creating new namespace failed: Resource temporarily unavailable", 2, True),
        (2, "bwrap: Creating new namespace failed: Resource temporarily unavailable", 2, False),
        (1, "bwrap: setting up uid map: Permission denied", 1, False),
    ],
)
def test_bubblewrap_gets_a_second_chance(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    failures: int,
    complaint: str,
    tries: int,
    works: bool,
) -> None:
    """One failure that may pass does not switch it off; giving it up is a warning, and holds until `close`."""
    monkeypatch.setattr(asteval_process, "_reported", set[tuple[int, str]]())
    started = faulty_bubblewrap(tmp_path, failures=failures, complaint=complaint)
    monkeypatch.setenv("PATH", str(tmp_path))
    with AstevalSection(config=AstevalConfig(max_workers=2)) as section, ThreadPoolExecutor(1) as threads:
        assert value(section, "1 + 1") == 2
        assert section.backend.confinement is not None
        assert section.backend.confinement.bubblewrap is works
        assert len(started.read_text()) == tries
        warned = [record for record in caplog.records if record.levelname == "WARNING"]
        assert len(warned) == failures
        assert complaint in warned[-1].getMessage()
        assert ("runs without it" in warned[-1].getMessage()) is not works
        stuck = threads.submit(error, section, "while True: pass", EvalLimits(seconds=0.5))
        time.sleep(0.2)
        assert value(section, "1 + 1") == 2  # in another worker
        stuck.result()
        assert len(started.read_text()) == (tries + 1 if works else tries)
        section.close()
        assert value(section, "1 + 1") == 2
        assert section.backend.confinement.bubblewrap


def test_several_sections_in_one_prompt(shared: AstevalSection) -> None:
    """Different keys and prefixes live side by side."""
    second = AstevalSection(Session(), key="strict", title="Strict", tool_prefix="strict_", accepts_overrides=True)
    prompt = Prompt(name="two", sections=[shared, second])
    assert [tool.name for tool in prompt.tools()] == ["evaluate_python", "strict_evaluate_python"]
    assert "`strict_evaluate_python`" in second.render_body(None)
    assert (shared.accepts_overrides, second.accepts_overrides) == (False, True)


# Rollback

START = {"a.txt": "one\n", "d/b.txt": "bee\n"}

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "write_text('new.txt', 'from asteval')",
                "open('a.txt', 'a').write('more\\n')",
                "write_text('new.txt', 'lost')\nraise ValueError('no')",
                "write_text('a.txt', 'lost')\nwrite_text('n/m.txt', 'lost')\n1 / 0",
                "write_text('n/m.txt', read_text('a.txt'))",
                "write_text('n/m.txt', 'lost')\n[0] * 10**9",
                "write_text('d/b.txt', 'lost')\n'x' * 10",
            ]
        ),
        st.lists(st.sampled_from(["a.txt", "new.txt", "d/b.txt"]), unique=True),
        st.lists(st.sampled_from(["a.txt", "new.txt", "n/m.txt", "d/b.txt", "d/b.txt/x"]), unique=True),
        st.sampled_from(["", "", "policy", "subscriber"]),
    ),
    max_size=8,
)


class Late:
    """A policy that lets a call run and then fails it."""

    armed = False

    def check(self, tool_name: str, params: Any, context: ToolContext) -> None:
        return None

    def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> None:
        if self.armed:
            raise RuntimeError("refused late")


def state(fs: InMemoryFilesystem) -> dict[str, bytes | None]:
    return {path: fs.read_bytes(path) if fs.stat(path).kind == "file" else None for path in fs.glob("**")}


def run(section: AstevalSection, steps: list[Any], *, sabotage: bool) -> list[tuple[bool, Any]]:
    """Whether each step succeeded, and the files after it; with `sabotage`, some of them fail late."""
    fs, session, late = InMemoryFilesystem(START), Session(), Late()
    deaf = False

    def listen(event: ToolInvoked) -> None:
        if deaf and event.success:
            raise RuntimeError("cannot hear")

    session.dispatcher.subscribe(ToolInvoked, listen)
    template = PromptTemplate[Any](ns="asteval", key="asteval", sections=[section], policies=[late])
    seen: list[tuple[bool, Any]] = []
    with ToolExecutor(prompt=Prompt(template).bind(resources={Filesystem: fs}), session=session) as executor:
        for index, (code, reads, writes, failure) in enumerate(steps):
            late.armed, deaf = sabotage and failure == "policy", sabotage and failure == "subscriber"
            arguments = json.dumps({"code": code, "reads": reads, "writes": writes})
            reply = executor.execute(ToolCall(f"call_{index}", "evaluate_python", arguments))
            assert reply.outcome in {"succeeded", "failed", "refused", "crashed", "undone"}, reply.text
            seen.append((reply.result.success, state(fs)))
    assert len(session[ToolInvoked].all()) == len(steps)
    return seen


def check(section: AstevalSection, steps: list[Any]) -> None:
    before: Any = state(InMemoryFilesystem(START))
    trace = run(section, steps, sabotage=True)
    for success, files in trace:
        assert success or files == before, "a failed call left a trace"
        before = files
    kept = [step for step, (success, _) in zip(steps, trace, strict=True) if success]
    alone = run(section, kept, sabotage=False)
    assert all(success for success, _ in alone)
    assert (alone[-1][1] if alone else state(InMemoryFilesystem(START))) == before


@settings(max_examples=60)
@given(steps=STEPS)
def test_failed_calls_leave_no_trace(steps: list[Any], shared: AstevalSection) -> None:
    """A random sequence with failures of every kind leaves exactly the files of the calls that succeeded."""
    check(shared, steps)


@pytest.mark.torture
@settings(max_examples=2000)
@given(steps=STEPS)
def test_failed_calls_leave_no_trace_long(steps: list[Any], shared: AstevalSection) -> None:
    """The same, many times more."""
    check(shared, steps)
