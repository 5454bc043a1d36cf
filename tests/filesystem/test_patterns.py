"""Patterns: one language for both engines, and limits of time and memory that no pattern escapes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import time
from random import Random
from time import monotonic

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples

from weakincentives.errors import PatternError
from weakincentives.filesystem.memory.filesystem import InMemoryFilesystem

ENGINES = ("re2", "regex")
MEGABYTE = 1 << 20


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both engines in turn; without re2 in the table of modules, importing it fails as where it has no wheel."""
    pytest.importorskip(request.param, reason=f"{request.param} has no wheel here")
    if request.param == "regex":
        monkeypatch.setitem(sys.modules, "re2", None)
    return request.param


in_each_engine = pytest.mark.parametrize(
    "engine", ["re2", pytest.param("regex", marks=pytest.mark.slow)], indirect=True
)
"""For tests of many patterns: regex searches in a process of its own, which is started for each."""

TEXT = (
    "def brew(cups):\n    return cups * 3\n\nTODO: tea, coffee; and 12.5 EUR\nfoo-bar_baz fooBAR FOO\n\ttab\n"
    "path/to/file.py:120:error\naaa!\nab\nabab\nx{3} [y] (z) a+b=c $5 ^top\\n | pipe\nemail@example.org\n"
    "caf\u00e9 \u00fcber \u0394\u03b1 \u4e2d\u6587 \U0001f600\n2026-11-16T14:00:00Z\n#define X_1 0xFF\n\x0cfeed\x0b\n"
    "'quoted' \"double\" `tick`\nlast line"
)
LINES = TEXT.split("\n")

# Patterns that `re` reads in the same way, apart from ASCII classes.
CORPUS = [
    r"def \w+", r"\bfoo\b", r"\Bo\b", r"^\s*$", r"^$", r"TODO|FIXME", r"(?i)todo", r"(?i:foo)BAR", r"(?i:a)B(?-i:C)",
    r"^\t", r"[a-z]+\.py:\d+", r"(a|aa)+!", r"(ab){2}", r"(ab){,2}$", r"a{2,}", r"a{1,2}?!", r"x\{3\}", r"x{3}",
    r"[\[\]]", r"a\nb|TODO", r"[\n]|ab", r"[^\W\d]+_", r"[\w.]+@[\w.]+", r"\$\d", r"\^top", r"\\n", r"\|", r"caf.$",
    "\u00fcber", r"\u00e9",
    r"\U0001f600", r"\x41|\x66", r"[\u0370-\u03ff]+", r"\d{4}-\d{2}-\d{2}T", r"0x[0-9A-F]+", r"(?P<a>foo)(?P<b>-)",
    r"(?:foo|bar)[-_]", r"\Adef|line\Z", r".", r".*", r"(?s).+cups", r"(?m)^    return", r"[^a]", r"[]a]", r"[^]a]",
    r"[a-]b", r"[\s\S]", r"\f|\v", r"[\b]", r"\S+\s+\S+", r"\D\W", r"^(?:(?!))?", r"", r"a|", r"|z", r"()", r"(a*)*",
    r"(?:a*)+$", r"'[^']*'", r"`\w+`", r"\"", r"[.]py", r"\0", r"\.", r"-", r"\-", r"/", r"[+*?(){}|^$]", r"x?{3}",
    r"(^d|e$)", r"(?:$)", r"^^", r"\t\b", r"[A-Z]{2,3}", r"[\d\-x]", r"[\w-]+\b$", r"(((((t)))))ab", "e\u0301|\u4e2d",
]  # fmt: skip
REFUSED_IN_CORPUS = {r"^(?:(?!))?", r"x?{3}"}

# What only this language has, and the lines of TEXT it finds (their beginnings).
OWN = {
    r"\p{Greek}": [12], r"\p{Han}+": [12], r"\pL\pN": [13], r"\P{L}{9}": [13], r"[[:upper:]]{4}": [3], r"\z": "all",
    r"[[:punct:]]{2}": [0], r"\x{1f600}": [12], r"(?<n>tab)": [5], r"\p{^L}{9}": [13], r"[^[:space:]]{20}": [6, 13],
    r"(?-m)^last line$": [17], r"(?i)\u00dcBER": [12], r"\w\W\w\W\w\W": [10], r"(?i)DELTA|\u0394\u0391": [12],
}  # fmt: skip


def lines_found(pattern: str) -> list[int]:
    """The lines of TEXT in which it is found, by number from 0."""
    fs = InMemoryFilesystem({"a.txt": TEXT})
    return [match.line - 1 for match in fs.grep(pattern, timeout=60)]


@in_each_engine
@pytest.mark.parametrize("pattern", CORPUS)
def test_both_engines_find_what_re_finds(engine: str, pattern: str) -> None:
    """Line by line, with ASCII classes, on every pattern of the corpus."""
    del engine
    if pattern in REFUSED_IN_CORPUS:
        with pytest.raises(PatternError):
            lines_found(pattern)
        return
    expected = re.compile(pattern.replace(r"\z", r"\Z"), 0)
    ascii_only = re.compile(pattern, re.ASCII) if not re.search(r"\\[uU]|[^\x00-\x7f]|caf", pattern) else expected
    assert lines_found(pattern) == [number for number, line in enumerate(LINES) if ascii_only.search(line)]


@pytest.mark.parametrize("pattern", OWN)
def test_both_engines_know_the_rest_of_the_language(engine: str, pattern: str) -> None:
    r"""Unicode properties, POSIX classes in ASCII, `\x{...}` and `\z` mean the same in both."""
    del engine
    expected = OWN[pattern]
    assert lines_found(pattern) == (list(range(len(LINES))) if expected == "all" else expected)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"(?=a)", "lookahead"), (r"(?!a)", "lookahead"), (r"(?<=a)b", "lookbehind"), (r"(?<!a)b", "lookbehind"),
        (r"(a)\1", "backreferences"), (r"(?P<x>a)(?P=x)", "backreferences"), (r"\g<1>", "backreferences"),
        (r"\k<x>", "backreferences"), (r"(?>a)", "atomic"), (r"a++", "possessive"), (r"a*+", "possessive"),
        (r"a{2}+", "possessive"), (r"(?x) a b", "flags"), (r"(?L)a", "flags"), (r"(a)?(?(1)b|c)", "conditionals"),
        (r"\N{DASH}", "by name"), (r"\h", r"\\h"), (r"\R", r"\\R"), (r"\X", r"\\X"),
        (r"\Qa\E", r"\\Q"), (r"\C", r"\\C"),
        (r"a{1001}", "1,000"), (r"a{2,5000}", "1,000"), (r"(?:a{40}){40}", "1,000"), (r"((a{9}b){9}c){90}", "1,000"),
        (r"(?#x)a", "comments"), (r"(?R)", "recursion"),
    ],
)  # fmt: skip
def test_what_the_language_lacks_is_named(engine: str, pattern: str, what: str) -> None:
    """Each refusal says what is missing and what to do, in ASCII, and is the same for both engines."""
    del engine
    with pytest.raises(PatternError, match=what) as caught:
        lines_found(pattern)
    assert "simpler pattern" in str(caught.value)
    assert str(caught.value).isascii()


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "(a", "[", "[a", "[]", "[z-a]", r"[\d-z]", "*", "a**", "a|*", "(*a)", "(?", "(?)", "(?P<1>a)",
        "(?P<x>a)(?P<x>b)", "\\", r"\y", r"\p{Nothing}", r"\pQ", r"\p{Alphabetic}", "[[:foo:]]", r"\x", r"\u12",
        r"\x{110000}", r"\ud800", "\ud800", "a{3,2}", "(?i", "(?-)a", "a{2}{3}", "x" * 1001,
    ],
)  # fmt: skip
def test_what_is_no_pattern_is_refused_by_both(engine: str, pattern: str) -> None:
    """Broken patterns raise `PatternError` in ASCII, whichever engine is here."""
    del engine
    with pytest.raises(PatternError) as caught:
        lines_found(pattern)
    assert str(caught.value).isascii()


@settings(max_examples=examples(300), deadline=None)
@given(st.text(alphabet="ab|()[]^$.*+?{},-12\\dwsAzb:iP<>=!\u00e9", max_size=14))
def test_any_text_is_a_pattern_or_a_clear_refusal(pattern: str) -> None:
    """No text breaks the reader; what it accepts, RE2 compiles, and `re` agrees where it knows the syntax."""
    pytest.importorskip("re2", reason="re2 has no wheel here")
    try:
        found = lines_found(pattern)
    except PatternError:
        return
    try:
        expected = re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, FutureWarning):  # the last: of sets that `re` may read otherwise one day
        return
    if "\\" not in pattern.replace("\\\\", "") and "[[" not in pattern and "\u00e9" not in pattern:
        assert found == [number for number, line in enumerate(LINES) if expected.search(line)]


BOMBS = [
    "(?:(?:a{1000}){1000}){1000}", "((a{100}){100}){100}", "(a+)+$", "(a|aa)+$", "(a|a?)+$", "(.*a){20}$", "(.*)*b",
    "((a*)*)*b", "(x+x+)+y", r"(\w+\s?)*$", "a?" * 100 + "a" * 100, "(" * 400 + "a" + ")" * 400, "(a?){500}(a){500}",
    "(?:.?){1000}", r"(\pL{100}){10}" * 60, r"[\pL\pN]{1000}" * 60, "x{1000}" * 130, "(?i)" + r"\pL{500}" * 50,
    "(.{1,500}){2}b", ".*.*.*.*.*.*.*.*b", "(a|b|ab)*c", "|".join(["a" * n for n in range(1, 40)]),
    "^(([a-z])+.)+[A-Z]",
    "(?:a{0,30}){0,30}b", "((((a{2}){2}){2}){2}){2}" * 30, ".{1000}" * 100 + "b", "(a|b)*a(a|b){900}c",
]  # fmt: skip

BOMB_PROGRAM = """
    import resource, sys, time
    if sys.argv[1] == "regex":
        sys.modules["re2"] = None
    from weakincentives.errors import PatternError
    from weakincentives.filesystem.memory import InMemoryFilesystem
    fs = InMemoryFilesystem({"a": ("a" * 3000 + "!\\n") * 20, "b": "ab" * 100_000, "c": "\u00e9" * 50_000})
    fs.grep("nothing")
    limit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for pattern in sys.stdin.read().split("\\0"):
        began = time.monotonic()
        try:
            fs.grep(pattern, timeout=1)
        except PatternError:
            pass
        took = time.monotonic() - began
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - limit
        print(f"{took:.2f} {grown >> 20} {pattern[:60]}", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("which", ENGINES)
def test_no_bomb_takes_the_machine(which: str) -> None:
    """Each pattern ends soon after its second, in a process that never grows by more than 64 MB."""
    pytest.importorskip(which, reason=f"{which} has no wheel here")
    bombs = BOMBS if which == "re2" else BOMBS[::3]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BOMB_PROGRAM), which],
        input="\0".join(bombs), capture_output=True, text=True, check=True, timeout=280,
    )  # fmt: skip
    results = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert len(results) == len(bombs)
    assert max(float(took) for took, _, _ in results) < 20, done.stdout
    assert max(int(grown) for _, grown, _ in results) < 64, done.stdout


@pytest.mark.slow
def test_the_worker_is_stopped_by_memory() -> None:
    """What needs more than the limit is refused, by text or by the end of the process; none is left behind."""
    pytest.importorskip("regex", reason="regex has no wheel here")
    from weakincentives.filesystem.search import pattern_worker

    matcher = pattern_worker.WorkerMatcher("(?:ab?)+c", ignore_case=False, deadline=monotonic() + 120)
    try:
        with pytest.raises(PatternError, match="too much memory"):
            matcher.search(b"ab" * (80 * MEGABYTE), 0, 160 * MEGABYTE)
    finally:
        matcher.close()


@pytest.mark.slow
def test_the_worker_is_killed_at_the_deadline() -> None:
    """A pattern that backtracks without end raises `TimeoutError` at its wall-clock limit."""
    pytest.importorskip("regex", reason="regex has no wheel here")
    from weakincentives.filesystem.search import pattern_worker

    began = monotonic()
    matcher = pattern_worker.WorkerMatcher("(a|aa)+$", ignore_case=False, deadline=began + 3)
    process = matcher._process
    try:
        with pytest.raises(TimeoutError):
            matcher.search(b"a" * 5000 + b"!", 0, 5001)
    finally:
        matcher.close()
    assert monotonic() - began < 60
    assert process.returncode is not None


STOPPED_PROGRAM = """
    import signal, sys, time
    signal.alarm(120)  # it must not run for ever, should the test be killed or the limit not hold
    if sys.argv[1] == "regex":
        sys.modules["re2"] = None
    from weakincentives.errors import PatternError
    from weakincentives.filesystem.search.grep import grep_files

    class Endless:
        def chunks(self, path, /):
            print("begun", flush=True)
            while True:
                yield b"some line of text\\n" * 1000

    began = time.process_time()
    try:
        grep_files(Endless(), ["a"], "nothing", ignore_case=False, max_matches=1, max_line_length=9, timeout=20)
    except PatternError as error:
        print(time.process_time() - began, error, flush=True)
"""


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("which", ENGINES)
def test_the_time_limit_is_wall_time_also_while_the_process_is_stopped(which: str) -> None:
    """SIGSTOP does not stop the clock: after SIGCONT the search is over, though it has used little processor time."""
    pytest.importorskip(which, reason=f"{which} has no wheel here")
    command = [sys.executable, "-c", textwrap.dedent(STOPPED_PROGRAM).replace("timeout=20", "timeout=4"), which]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(5)
        process.send_signal(signal.SIGCONT)
        used, text = process.stdout.readline().split(" ", 1)
        assert "took longer than 4 seconds" in text
        assert float(used) < 3
        assert process.wait(60) == 0


def test_lines_longer_than_a_piece_are_searched_whole(engine: str) -> None:
    """A match may span what one read gives; `$` is the end of the line, not of what was read."""
    del engine
    line = "a" * 100_000 + "start" + "b" * 300_000 + "end"
    fs = InMemoryFilesystem({"x": f"first\n{line}\nlast\n"})
    assert [match.line for match in fs.grep("start.*end$", timeout=60)] == [2]
    assert fs.grep("b$", timeout=60) == []
    assert [match.line for match in fs.grep("^a|^last", timeout=60)] == [2, 3]


def test_a_slow_pattern_on_one_long_line_still_ends() -> None:
    """The longest line does not keep the clock from being read."""
    fs = InMemoryFilesystem({"x": "".join(Random(5).choices("ab", k=1_000_000))})
    began = monotonic()
    with pytest.raises(PatternError, match="took longer"):
        fs.grep("(a|b)*a(a|b){900}c", timeout=0.5)
    assert monotonic() - began < 30


@pytest.mark.parametrize("count", [1, 3])
def test_line_numbers_and_ends_survive_pieces(engine: str, count: int) -> None:
    """CRLF, bytes that are no UTF-8, marks and empty lines are as when each line is looked at by itself."""
    del engine
    data = (b"one\r\n\r\ntwo \xff three\n" + b"x" * 20_000 + b"\n") * count
    fs = InMemoryFilesystem({"a": b"\xef\xbb\xbf" + data, "b": "one\r\ntwo\r\n".encode("utf-16")})
    for pattern in ("^one$", "^$", "two . three", "^x+$", "two$"):
        expected = [
            number
            for number, line in enumerate(data.decode(errors="replace").split("\n")[:-1], 1)
            if re.search(pattern, line.removesuffix("\r"))
        ]
        assert [match.line for match in fs.grep(pattern, path="a", timeout=60)] == expected
    assert [(match.line, match.text) for match in fs.grep("^...$", path="b", timeout=60)] == [(1, "one"), (2, "two")]


def test_nothing_of_a_pattern_is_kept() -> None:
    """The engine's cache, which would hold the tables of 128 patterns, is empty after a search."""
    re2 = pytest.importorskip("re2", reason="re2 has no wheel here")
    InMemoryFilesystem({"a": "x"}).grep("x")
    assert re2._Regexp._make.cache_info().currsize == 0


def test_a_glob_has_a_limit_of_parts() -> None:
    """More parts than a path has directories are refused; the rest is walked with a set of positions."""
    fs = InMemoryFilesystem({"/".join(["a"] * 60) + "/b": "x"})
    assert fs.glob("/".join(["*"] * 61)) == ["/".join(["a"] * 60) + "/b"]
    with pytest.raises(PatternError, match="64 parts"):
        fs.glob("/".join(["*"] * 65))


def test_an_enormous_ignore_file_is_bounded() -> None:
    """A file of many rules, or of one endless rule, counts with its beginning; the search ends."""
    fs = InMemoryFilesystem({"a.log": "", "z": ""})
    fs.write(".gitignore", "*.log\n" + "*a*b*c?\n" * 120_000)
    fs.write("d/.gitignore", "*a" * 400_000)
    began = monotonic()
    assert fs.glob("**", gitignore=True) == [".", ".gitignore", "d", "d/.gitignore", "z"]
    assert monotonic() - began < 60
