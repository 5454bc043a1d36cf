"""Searching: glob against pathlib, ignore rules against git, grep against its limits."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.conftest import examples

from weakincentives.errors import PatternError
from weakincentives.filesystem.memory.filesystem import InMemoryFilesystem
from weakincentives.filesystem.protocol import FileKind
from weakincentives.filesystem.search import search_names
from weakincentives.filesystem.search.globs import walk_glob
from weakincentives.filesystem.search.grep import grep_files

NAMES = ["a", "b", "ab", ".h", "a.py", "b.py", "A"]
names = st.sampled_from(NAMES)
trees = st.lists(st.tuples(st.lists(names, min_size=1, max_size=4), st.booleans()), max_size=8)
parts = st.sampled_from(["**", "*", "a", "b", "a*", "*.py", "?", "[ab]", "[!a]", ".*", "*b", "[", "."])
patterns = st.tuples(st.lists(parts, min_size=1, max_size=4), st.sampled_from(["", "", "/"])).map(
    lambda drawn: "/".join(drawn[0]) + drawn[1]
)


def grown(tree: list[tuple[list[str], bool]], root: Path) -> InMemoryFilesystem:
    """The same tree in memory and on disk; what is in the way of something else is left out."""
    fs = InMemoryFilesystem()
    for names_, is_file in tree:
        path = "/".join(names_)
        try:
            if is_file:
                if not fs.exists(path):
                    fs.write(path, path)
            else:
                fs.mkdir(path)
        except OSError:
            continue
    for path in fs.glob("**/*"):
        target = root / path
        if fs.stat(path).kind == "directory":
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(fs.read_bytes(path))
    return fs


def by_pathlib(root: Path, pattern: str) -> list[str]:
    """What pathlib finds; before Python 3.13 a trailing `**` gave directories only, which is asked differently."""
    asked = [pattern]
    meant = [part for part in pattern.split("/") if part != "."]
    if sys.version_info < (3, 13) and meant[-1] == "**":
        asked.append(pattern + "/*")
    return sorted({path.relative_to(root).as_posix() for each in asked for path in root.glob(each)})


@given(trees, patterns)
@settings(max_examples=examples(400))
@example([(["a", "b"], True), (["a.py"], True)], "**")
@example([(["a"], True)], "a/**")
@example([(["a", "b", "a", "b"], True)], "**/a/**/b")
def test_glob_finds_what_pathlib_finds(tree: list[tuple[list[str], bool]], pattern: str) -> None:
    """On any tree and pattern, the result is that of `pathlib.Path.glob` on the same files."""
    with tempfile.TemporaryDirectory() as folder:
        fs = grown(tree, Path(folder))
        if pattern.strip("./"):  # pathlib has no pattern "."
            assert fs.glob(pattern) == by_pathlib(Path(folder), pattern)


@given(trees, patterns)
def test_a_file_walk_is_in_path_order(tree: list[tuple[list[str], bool]], pattern: str) -> None:
    """Files come out of the walk sorted, so that a search may stop early and still give the first ones."""
    with tempfile.TemporaryDirectory() as folder:
        fs = grown(tree, Path(folder))
        if pattern.strip("./"):
            found = [path for path, kind in walk_glob(fs._tree(), pattern) if kind == "file"]
            assert found == sorted(found)


class CountingTree:
    """A wide tree that notes which directories were read."""

    def __init__(self) -> None:
        self.scanned: list[str] = []

    def kind(self, path: str, /) -> FileKind | None:
        return "file" if path.endswith(".py") else "directory"

    def scan(self, path: str, /) -> Iterable[tuple[str, FileKind]]:
        self.scanned.append(path)
        if path.count("/") < 1:
            return [(f"d{number}", "directory") for number in range(20)]
        return [("x.py", "file")]

    def chunks(self, path: str, /) -> Iterator[bytes]:
        return iter((b"",))


@pytest.mark.parametrize(
    ("pattern", "scanned"),
    [("d1/d2/x.py", 0), ("d1/d2/*.py", 1), ("d1/*/x.py", 1), ("d1/**/*.py", 21), ("*", 1)],
)
def test_glob_reads_only_directories_that_can_match(pattern: str, scanned: int) -> None:
    """A fixed prefix is followed directly; nothing beside it is read."""
    tree = CountingTree()
    list(walk_glob(tree, pattern))
    assert len(tree.scanned) == scanned


@pytest.mark.timing
def test_many_double_stars_cost_no_more_than_one_walk() -> None:
    """A pattern made to explode is walked with a set of positions, not by trying all ways."""
    fs = InMemoryFilesystem({"/".join(["a"] * 60) + "/b": "x"})
    start = time.process_time()
    assert fs.glob("/".join(["**", "a"] * 25) + "/c") == []
    assert fs.glob("*a" * 40 + "b") == []
    assert time.process_time() - start < 2


def test_patterns_of_the_wrong_kind_are_refused() -> None:
    """Empty, overlong and NUL patterns raise `PatternError`."""
    fs = InMemoryFilesystem({"a": "x"})
    for pattern in ("", "/", "x" * 5000, "a\0", None):
        with pytest.raises(PatternError):
            fs.glob(pattern)  # pyright: ignore[reportArgumentType]


def test_the_bare_root_is_a_pattern() -> None:
    """`.` and `/workspace` find the root itself."""
    fs = InMemoryFilesystem({"a": "x"})
    assert fs.glob(".") == ["."]
    assert fs.glob("/workspace") == ["."]


RULES = [
    "*",
    "!*/",
    "a",
    "/a",
    "a/",
    "!a",
    "*.py",
    "!*.py",
    "b/**",
    "**/b",
    "a/b",
    "**/a/**",
    "a/**/b",
    "**",
    "b/*",
    "!/b",
    "#a",
    "",
    "[ab]",
    "*a*b*",
    "\\!a",
    "a b",
    " ",
]
rules = st.lists(st.sampled_from(RULES), max_size=5).map("\n".join)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here; get it from the system's packages")
@given(trees, rules, st.lists(st.tuples(names, rules), max_size=2))
@settings(max_examples=examples(60))
def test_ignored_is_what_git_ignores(
    tree: list[tuple[list[str], bool]], top: str, nested: list[tuple[str, str]]
) -> None:
    """On any tree and rules, nested ones too, the files left over are those that git would add."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        extra = [([name, "x.py"], True) for name, _ in nested]
        fs = grown(tree + extra, root)
        fs.write(".gitignore", top)
        (root / ".gitignore").write_text(top)
        for name, text in nested:
            if fs.exists(name) and fs.stat(name).kind == "directory":
                fs.write(f"{name}/.gitignore", text)
                (root / name / ".gitignore").write_text(text)
        git = ["git", "-c", "core.excludesFile=/dev/null", "-C", folder]
        subprocess.run([*git, "init", "-q"], check=True)
        listed = subprocess.run(
            [*git, "ls-files", "-z", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
        ).stdout
        found = [path for path in fs.glob("**", gitignore=True) if fs.stat(path).kind == "file"]
        assert found == sorted(filter(None, listed.split("\0")))


@pytest.mark.timing
def test_strange_ignore_files_do_no_harm() -> None:
    """Invalid lines, other encodings and a directory of that name are passed over; explosive rules end soon."""
    fs = InMemoryFilesystem({"a.log": "", "b.txt": "", "a" * 250: "", "d/x.log": ""})
    explosive = "*a" * 60 + "*b"
    fs.write(".gitignore", b"!\n\\\n[z-a]\n\xff\xfe\n" + explosive.encode() + b"\n**/a/**/b/**/c/**/d\n*.log\n")
    fs.mkdir("d/.gitignore")
    start = time.process_time()
    assert fs.glob("*", gitignore=True) == [".gitignore", "a" * 250, "b.txt", "d"]
    assert fs.glob("d/*", gitignore=True) == ["d/.gitignore"]
    assert time.process_time() - start < 1


def test_grep_with_a_glob_that_has_a_slash_is_relative_to_the_path() -> None:
    """A bare name pattern counts at any depth, one with a slash from the directory searched."""
    fs = InMemoryFilesystem({"a.py": "x", "src/a.py": "x", "src/deep/a.py": "x", "src/a.txt": "x"})
    assert [match.path for match in fs.grep("x", glob="*.py")] == ["a.py", "src/a.py", "src/deep/a.py"]
    assert [match.path for match in fs.grep("x", path="src", glob="deep/*.py")] == ["src/deep/a.py"]
    assert [match.path for match in fs.grep("x", glob="src/*")] == ["src/a.py", "src/a.txt"]
    assert [match.path for match in fs.grep("x", path="src/a.txt")] == ["src/a.txt"]


def test_grep_numbers_lines_by_line_feeds_only() -> None:
    """Form feeds and Unicode separators do not end a line; a carriage return before the feed is dropped."""
    fs = InMemoryFilesystem({"a": "one\x0cone\u2028one\r\ntwo\n\nfour"})
    assert [(match.line, match.text) for match in fs.grep("two|four")] == [(2, "two"), (4, "four")]
    assert len(fs.grep("one")) == 1


def test_grep_sees_lines_that_span_pieces() -> None:
    """A very long line is searched in pieces and reported once; characters cut between pieces are whole."""
    fs = InMemoryFilesystem({"long": "x" * 3_000_000 + "needle\nneedle", "cut": "\u00e9" * 100_000 + "needle"})
    assert [(match.path, match.line) for match in fs.grep("needle")] == [("cut", 1), ("long", 1), ("long", 2)]
    assert len(fs.grep("x")) == 1


@pytest.mark.timing
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)+$", "(a|aa)+$", "(.*a){20}$", r"(?:(?:a*)*)*b"])
def test_no_pattern_outlives_the_time_limit(pattern: str) -> None:
    """Whatever the pattern does, the search ends near its limit, in an answer or a `PatternError`."""
    fs = InMemoryFilesystem({"a": ("a" * 3000 + "!\n") * 50})
    start = time.perf_counter()
    with suppress(PatternError):
        fs.grep(pattern, timeout=0.3)
    assert time.perf_counter() - start < 30


def test_the_time_limit_counts_the_whole_search() -> None:
    """Many harmless lines take time, too."""
    fs = InMemoryFilesystem({f"f{number}": "" for number in range(3000)})
    text = "line\n" * 20_000
    for number in range(3000):
        fs.write(f"f{number}", text)
    with pytest.raises(PatternError, match=r"longer than 0\.05 seconds"):
        fs.grep("nothing", timeout=0.05)


@pytest.mark.parametrize("pattern", ["(" * 5000, "a" * 20_000, "(?<n>a)(?<n", "\\", "[[:foo:]]", b"x", "(?i"])
def test_broken_patterns_are_answered_clearly(pattern: str) -> None:
    """What cannot be compiled raises `PatternError` with a reason, in ASCII."""
    with pytest.raises(PatternError) as caught:
        InMemoryFilesystem({"a": "x"}).grep(pattern)
    assert str(caught.value).isascii()


class VanishingTree(CountingTree):
    """Files and directories that are gone, or go while they are read."""

    def scan(self, path: str, /) -> Iterable[tuple[str, FileKind]]:
        if path == ".":
            return [("d", "directory"), ("x.py", "file")]
        raise FileNotFoundError(path)

    def chunks(self, path: str, /) -> Iterator[bytes]:
        yield b"x\n"
        raise FileNotFoundError(path)


def test_what_vanishes_during_a_search_is_passed_over() -> None:
    """A search goes on past directories and files that others delete; what was read of them counts."""
    tree = VanishingTree()
    assert [path for path, _ in walk_glob(tree, "**")] == [".", "d", "x.py"]
    assert search_names(tree, "x") == ["x.py"]
    found = grep_files(tree, ["x.py"], "x", ignore_case=False, max_matches=9, max_line_length=9, timeout=5)
    assert [match.line for match in found] == [1]


@given(st.text())
def test_search_takes_any_text(query: str) -> None:
    """It never raises, and finds exactly the paths that contain the text."""
    fs = InMemoryFilesystem({"src/Main.py": "", "\u00dcber.txt": "", "a b": ""})
    assert fs.search(query) == sorted(
        path for path in ("src/Main.py", "\u00dcber.txt", "a b") if query.casefold() in path.casefold()
    )
