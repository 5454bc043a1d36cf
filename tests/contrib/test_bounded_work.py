"""Work that is proportional to the answer: huge and sparse files, nearly equal text, long lines, calls given up."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from difflib import unified_diff
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weakincentives.contrib.files.diffs import MAX_COMPARED_BYTES, unified
from weakincentives.contrib.files.edits import EditRefusedError, apply_edit, nearest
from weakincentives.contrib.files.pages import read_page
from weakincentives.contrib.files.reading import GrepFilesParams
from weakincentives.contrib.files.tracked import KEPT_BYTES, KEPT_TOTAL, OriginalFiles, TrackedFilesystem
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.deadlines import Deadline
from weakincentives.errors import StaleCallError
from weakincentives.fence import Owner, enter_owner, leave_owner
from weakincentives.filesystem import FileKind, Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.filesystem.disk.syscalls import Syscalls
from weakincentives.filesystem.protocol import fingerprint
from weakincentives.filesystem.search.globs import walk_glob
from weakincentives.filesystem.search.walk import walk_files
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.resources import ResourceRegistry
from weakincentives.runtime import Session, ToolCall, ToolReply
from weakincentives.runtime.executor import ToolExecutor

GIGABYTE = 1 << 30
TERABYTE = 1 << 40
PATIENT = 60
"""Seconds: reading a terabyte takes an hour, and this machine may be busy."""


@dataclass(frozen=True)
class Nothing:
    """No parameters."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with a sparse file of 1 TiB."""
    folder = tmp_path / "root"
    folder.mkdir()
    make_sparse(folder / "huge")
    return folder


def make_sparse(path: Path, size: int = TERABYTE, text: bytes = b"first\nsecond\n") -> None:
    """A file with a few bytes of data and a hole; skipped where the disk allows no such size."""
    with path.open("wb") as file:
        file.write(text)
        try:
            file.truncate(size)
        except OSError as error:
            pytest.skip(f"the disk here has no files of 1 TiB: {error}")
    if path.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("the disk here has no sparse files")


class Tools:
    """The file tools on a real folder."""

    def __init__(self, root: Path, *, deadline: Deadline | None = None) -> None:
        self.vfs = VfsToolsSection(config=VfsConfig(root=root))
        self.executor = ToolExecutor(
            prompt=Prompt(name="files", sections=[self.vfs]), session=Session(), deadline=deadline
        )
        self._ids = itertools.count()

    def call(self, tool: str, **arguments: Any) -> ToolReply:
        began = monotonic()
        reply = self.executor.execute(ToolCall(f"call_{next(self._ids)}", tool, json.dumps(arguments)))
        assert monotonic() - began < PATIENT, f"{tool} took too long"
        return reply


def test_delete_move_and_copy_read_nothing_of_a_huge_file(root: Path) -> None:
    """The three tools take a sparse file of 1 TiB as quickly as a small one, and a copy has its holes."""
    tools = Tools(root)
    assert tools.call("copy_file", src="huge", dst="copies/huge").result.success
    copy = (root / "copies/huge").stat()
    assert copy.st_size == TERABYTE
    assert copy.st_blocks * 512 < 64 << 20
    with (root / "copies/huge").open("rb") as file:
        assert file.read(16) == b"first\nsecond\n\0\0\0"
    assert tools.call("move_file", src="huge", dst="moved").result.success
    assert tools.call("delete_file", path="moved").result.success
    assert tools.call("delete_file", path="copies", recursive=True).result.success
    assert os.listdir(root) == []


def test_edit_and_write_refuse_a_huge_file_with_its_size(root: Path) -> None:
    """What would have to be held is refused, and the message says how large it is and what to do."""
    tools = Tools(root)
    read = tools.call("read_file", path="huge", limit=1)
    assert "binary" in read.text.lower()
    for tool, arguments in [
        ("edit_file", {"old_text": "first", "new_text": "1st"}),
        ("write_file", {"content": "x", "overwrite": True}),
    ]:
        reply = tools.call(tool, path="huge", **arguments)
        assert not reply.result.success
        assert reply.outcome in {"failed", "refused"}
    section = VfsToolsSection(config=VfsConfig(root=root, read_before_write=False))
    executor = ToolExecutor(prompt=Prompt(name="files", sections=[section]), session=Session())
    for number, (tool, arguments) in enumerate(
        [
            ("edit_file", {"old_text": "first", "new_text": "1st"}),
            ("write_file", {"content": "x", "overwrite": True}),
        ]
    ):
        reply = executor.execute(ToolCall(f"c{number}", tool, json.dumps({"path": "huge", **arguments})))
        assert "1,099,511,627,776 bytes" in reply.text
        assert "Use a program for it" in reply.text
    assert (root / "huge").stat().st_size == TERABYTE


@pytest.mark.slow
def test_lines_far_into_a_huge_file_are_refused_with_the_bytes_read(tmp_path: Path) -> None:
    """Counting lines ends after 256 MiB; lines before that are found."""
    path = tmp_path / "lines.txt"
    with path.open("wb") as file:
        file.write((b"x" * 99 + b"\n") * 10_500)  # more than is read at once
        file.write(b"y" * 10_000)
    make_text_then_hole(path)
    tools = Tools(tmp_path)
    assert "10500" in tools.call("read_file", path="lines.txt", offset=10_500, limit=1).text
    reply = tools.call("read_file", path="lines.txt", offset=1_000_000)
    assert not reply.result.success
    assert "bytes into 'lines.txt', which is too far" in reply.text


def make_text_then_hole(path: Path) -> None:
    """Let the file go on for 1 TiB."""
    try:
        os.truncate(path, TERABYTE)
    except OSError as error:
        pytest.skip(f"the disk here has no files of 1 TiB: {error}")


def test_fingerprints_diffs_and_changes_read_nothing_of_a_huge_file(root: Path) -> None:
    """Each is told by size and time; a rollback brings back the fingerprint, a rewrite is a change."""
    began = monotonic()
    with HostFilesystem(root) as host:
        fs = TrackedFilesystem(host)
        before = fingerprint(fs, "huge")
        snapshot = fs.snapshot()
        fs.copy("huge", "other")
        fs.delete("huge")
        fs.move("other", "huge")
        assert fs.changes(snapshot).changed == ("huge",)
        fs.append("huge", "end")
        assert fingerprint(fs, "huge") != before
        assert fs.differences().changed == ("huge",)
        assert fs.diff() == f"Big file huge differs ({TERABYTE:,} -> {TERABYTE + 3:,} bytes)\n"
        assert fs.read_bytes("huge", offset=TERABYTE) == b"end"
        assert len(fs.read_bytes("huge", limit=5 << 20)) == 5 << 20
        fs.restore(snapshot)
        assert fingerprint(fs, "huge") == before
        assert not fs.differences()
    assert monotonic() - began < PATIENT


def test_a_copy_keeps_data_between_holes(tmp_path: Path) -> None:
    """Whatever the holes, the copy has the same bytes; also where the kernel copies nothing itself."""
    path = tmp_path / "holes"
    with path.open("wb") as file:
        for place in (0, 3 << 20, (9 << 20) + 123):
            file.seek(place)
            file.write(os.urandom(100_000))
        file.truncate(12 << 20)
    with HostFilesystem(tmp_path) as fs:
        fs.copy("holes", "copy")
        fs.append("copy", b"end")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes() + b"end"


def test_a_copy_without_room_is_refused_before_it_begins(tmp_path: Path) -> None:
    """A file with more data than the disk has room for raises `OSError` at once; nothing is left."""

    class Full(Syscalls):
        def free(self, fd: int) -> int:
            del fd
            return 4096

        def copy_range(self, source: int, target: int, count: int, offset: int) -> int:
            raise AssertionError((source, target, count, offset))

    (tmp_path / "big").write_bytes(os.urandom(2 << 20))
    with HostFilesystem(tmp_path, syscalls=Full()) as fs, pytest.raises(OSError, match="No space left"):
        fs.copy("big", "copy")
    assert sorted(os.listdir(tmp_path)) == ["big"]


class Slow(Syscalls):
    """A disk that copies 4 KiB in a tenth of a second."""

    __slots__ = ("copied",)

    def __init__(self) -> None:
        super().__init__()
        self.copied: list[int] = []

    def copy_range(self, source: int, target: int, count: int, offset: int) -> int:
        self.copied.append(offset)
        sleep(0.1)
        return super().copy_range(source, target, min(count, 4096), offset)


@pytest.mark.slow
def test_a_copy_that_the_deadline_ends_is_stopped_and_undone(tmp_path: Path) -> None:
    """The call does not wait for the rest of the file: the loop notices within a step, and nothing is left."""
    (tmp_path / "big").write_bytes(os.urandom(32 << 20))  # 8,192 steps, 13 minutes
    section = VfsToolsSection(config=VfsConfig(shared=True))
    slow = Slow()
    with HostFilesystem(tmp_path, syscalls=slow) as fs:
        prompt = Prompt(name="files", sections=[section]).bind(resources={Filesystem: fs})
        executor = ToolExecutor(prompt=prompt, session=Session(), deadline=Deadline.after(timedelta(seconds=2)))
        began = monotonic()
        reply = executor.execute(ToolCall("c", "copy_file", json.dumps({"src": "big", "dst": "copy"})))
        assert reply.outcome == "deadline"
        assert monotonic() - began < PATIENT
        assert slow.copied
    assert os.listdir(tmp_path) == ["big"]


def test_ctrl_c_ends_a_copy_under_way(tmp_path: Path) -> None:
    """A write is not interruptible, but one that may take minutes stops at its next step, and the call is undone."""
    (tmp_path / "big").write_bytes(os.urandom(32 << 20))
    slow = Slow()
    with HostFilesystem(tmp_path, syscalls=slow) as fs:
        prompt = Prompt(name="files", sections=[VfsToolsSection(config=VfsConfig(shared=True))])
        executor = ToolExecutor(prompt=prompt.bind(resources={Filesystem: fs}), session=Session())

        def interrupt() -> None:
            while not slow.copied:
                sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        began = monotonic()
        with pytest.raises(KeyboardInterrupt):
            executor.execute(ToolCall("c", "copy_file", json.dumps({"src": "big", "dst": "copy"})))
        thread.join()
        assert monotonic() - began < PATIENT
    assert os.listdir(tmp_path) == ["big"]


@pytest.mark.slow
def test_a_search_has_no_more_time_than_the_run() -> None:
    """`grep_files` stops at the run's deadline by itself, not only when the call no longer waits for it."""
    text = "".join(random.Random(5).choices("ab", k=1_000_000))
    fs = InMemoryFilesystem({f"{number}.txt": text for number in range(20)})
    (tool,) = [tool for tool in VfsToolsSection().tools if tool.name == "grep_files"]
    context = ToolContext(
        resources=ResourceRegistry.build({Filesystem: fs}), deadline=Deadline.after(timedelta(seconds=1))
    )
    result: Any = tool.call(GrepFilesParams("(a|b){1,900}a(a|b){900}c"), context)
    assert not result.success
    found = re.search(r"took longer than ([\d.e-]+) seconds", result.message)
    assert found is not None
    assert float(found[1]) <= 1


def test_no_nearest_match_takes_longer_than_its_limit() -> None:
    """Nearly equal text of any size: the answer comes in about a quarter of a second of work, with the best places."""
    rng = random.Random(3)
    line = "".join(rng.choices("abcdefgh ", k=2000))
    content = "\n".join(line[:number] + "#" + line[number:] for number in range(300))
    wanted = [line[:number] + "?" + line[number:] for number in range(100, 109)]
    began = monotonic()
    with pytest.raises(EditRefusedError, match=r"not found in a\.txt"):
        apply_edit("a.txt", content, "\n".join(wanted), "new")
    assert monotonic() - began < 30
    many = "\n".join([f"value_{number} = compute({number})" for number in range(200_000)])
    began = monotonic()
    found = nearest(many, ["value_77 = compute( 77)", "value_78 = komputed(78)"])
    assert monotonic() - began < 30
    assert found.compared > 0
    with pytest.raises(EditRefusedError, match=r"only its first [\d,]+ lines were compared"):
        apply_edit("a.txt", many, "value_77 = komputer(77)", "new")


def test_the_nearest_place_is_found_whatever_surrounds_it() -> None:
    """The window that differs in few characters comes first; lines that are far from it do not count."""
    lines = [f"def function_{number}(argument):\n    return argument + {number}\n" for number in range(500)]
    content = "\n".join(lines)
    found = nearest(content, ["def function_321(argumnt):", "   return argument + 321"], seconds=60)
    assert content.split("\n")[found.starts[0]] == "def function_321(argument):"
    assert nearest(content, ["completely different text", "zzz"], seconds=60).starts == ()
    assert nearest("", ["x"]).starts == ()
    assert nearest("abc\n", ["", " "]).starts == ()


def test_a_replacement_that_would_explode_is_refused() -> None:
    """A short text in many places, replaced by a long one, is counted before it is made."""
    with pytest.raises(EditRefusedError, match="too large"):
        apply_edit("a.txt", "a" * 1_000_000, "a", "b" * 10_000, every=True)


def test_the_diff_of_huge_lines_is_bounded() -> None:
    """Long lines are compared by hash and shown cut; files that differ throughout are named in one line."""
    one, two = b"x" * 500_000 + b"1\n", b"x" * 500_000 + b"2\n"
    text = unified("a", b"same\n" + one, b"same\n" + two)
    assert len(text) < 30_000
    assert text.count("cut: the line has 500,001 characters") >= 1
    huge = os.urandom(MAX_COMPARED_BYTES * 2).hex().encode()
    assert "too much differs" in unified("a", huge, huge[::-1])
    assert "too much differs" in unified("a", None, huge)
    assert "Binary" in unified("a", b"\0" + huge, huge)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 70_000), st.sampled_from(["new\n", "", "a\nb\n"])), min_size=1, max_size=3))
def test_a_big_file_has_the_same_diff_as_difflib_gives(edits: list[tuple[int, str]]) -> None:
    """Only the part that differs is looked at, and the line numbers are those of the whole file."""
    lines = [f"line number {number} of this big file\n" for number in range(70_000)]
    changed = list(lines)
    base = edits[0][0]
    for at, text in edits:
        place = min(len(changed) - 1, base + at % 50)
        changed[place : place + 1] = [text]
    after = "".join(changed).splitlines(keepends=True)
    low = max(0, base - 100)
    expected = list(unified_diff(lines[low : base + 200], after[low : base + 200 + len(after) - len(lines)], n=3))
    found = unified("a", "".join(lines).encode(), "".join(after).encode(), max_lines=None, max_chars=None)
    body = [line for line in found.split("\n")[2:] if not line.startswith("@@")]
    assert body == [line.rstrip("\n") for line in expected[2:] if not line.startswith("@@")]
    heads = [line for line in found.split("\n") if line.startswith("@@")]
    for head, other in zip(heads, [line for line in expected if line.startswith("@@")], strict=True):
        start = int(head.split(" ")[1][1:].split(",")[0])
        assert start == int(other.split(" ")[1][1:].split(",")[0]) + low


def test_originals_of_many_files_are_bounded() -> None:
    """A tree of any size may go: contents are kept up to a total, of the rest only that they changed."""
    fs = InMemoryFilesystem({f"d/{number}": b"x" * KEPT_BYTES for number in range(KEPT_TOTAL // KEPT_BYTES + 5)})
    originals = OriginalFiles()
    originals.note_tree(fs, "d")
    fs.write("d/0", b"y")
    fs.write("d/68", b"y" * KEPT_BYTES)
    assert originals.differences(fs).changed == ("d/0", "d/68")
    assert sum(len(kept.content or b"") for kept in originals._kept.values() if kept) <= KEPT_TOTAL
    fs.write("d/68", b"x" * KEPT_BYTES)
    assert originals.differences(fs).changed == ("d/0",)


EDIT_PROGRAM = """
    import resource
    from weakincentives.contrib.files.edits import EditRefusedError, apply_edit
    from weakincentives.contrib.files.diffs import unified
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = "\\n" * (32 << 20)
    try:
        apply_edit("a", text, "absent", "x")
    except EditRefusedError:
        pass
    assert "1" in unified("a", text.encode(), b"x\\n" + text.encode())
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.slow  # an interpreter
def test_lines_of_nothing_take_no_memory() -> None:
    """A file of line breaks is not cut into millions of lines, neither for a search nor for a diff."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(EDIT_PROGRAM)], capture_output=True, text=True, check=True, timeout=200
    )
    assert int(done.stdout) < 300  # of which the texts themselves are 130 MB


class SlowReading(Syscalls):
    """A disk of a million files, one of them endless, that answers slowly: reading all of it takes hours."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def _wait(self) -> None:
        self.asked += 1
        sleep(0.01)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        self._wait()
        return super().pread(fd, min(count, 1 << 16), offset)

    def read(self, fd: int, count: int) -> bytes:
        self._wait()
        return super().read(fd, min(count, 1 << 16))

    def names(self, fd: int) -> list[str]:
        return super().names(fd) * 100_000

    def kinds(self, fd: int) -> list[tuple[str, int]]:
        return super().kinds(fd) * 100_000

    def stat(self, name: str, *, dir_fd: int) -> os.stat_result:
        self._wait()
        return super().stat(name, dir_fd=dir_fd)


READS: dict[str, Callable[[Filesystem], object]] = {
    "read": lambda fs: fs.read("big"),
    "read_bytes": lambda fs: fs.read_bytes("big"),
    "a part": lambda fs: fs.read_bytes("big", offset=1, limit=GIGABYTE),
    "stream": lambda fs: sum(len(piece) for piece in fs.stream("big")),
    "lines": lambda fs: read_page(fs, "big", offset=1_000_000),
    "grep": lambda fs: fs.grep("nothing", path="big", timeout=10_000),
    "grep in a tree": lambda fs: fs.grep("nothing", timeout=10_000),
    "list": lambda fs: fs.list(),
    "glob": lambda fs: [fs.glob("**/*") for _ in range(10_000)],
    "search": lambda fs: [fs.search("nothing") for _ in range(10_000)],
}


@pytest.mark.slow
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", READS)
def test_a_read_that_was_given_up_on_ends(tmp_path: Path, name: str, read_only: bool) -> None:
    """A call that times out is answered at once; its thread stops reading, whether or not the tool is read-only."""
    (tmp_path / "small").touch()
    with (tmp_path / "big").open("wb") as file:
        file.write(b"text\n" * 4000)
        file.truncate(GIGABYTE)
    raised: list[BaseException] = []
    ended = threading.Event()

    def handler(_: Nothing, context: ToolContext) -> ToolResult[None]:
        assert context.filesystem is not None
        try:
            READS[name](context.filesystem)
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            ended.set()
        return ToolResult.ok(None)

    tool = Tool[Nothing, None](
        name="look", description="Look.", handler=handler, timeout=0.2, annotations=ToolAnnotations(read_only=read_only)
    )
    with HostFilesystem(tmp_path, syscalls=SlowReading()) as fs:
        section = MarkdownSection(title="Look", template="", tools=[tool])
        prompt = Prompt(name="files", sections=[section]).bind(resources={Filesystem: fs})
        executor = ToolExecutor(prompt=prompt, session=Session())
        assert executor.execute(ToolCall("c", "look", "{}")).outcome == "timeout"
        assert ended.wait(PATIENT), "it reads on"
    assert [type(error) for error in raised] == [StaleCallError]


@pytest.mark.slow  # waits for a time limit
def test_a_read_that_was_given_up_on_ends_though_an_earlier_call_goes_on(tmp_path: Path) -> None:
    """Read-only calls of a turn are answered in their order, but each stops when its own time is over."""
    with (tmp_path / "big").open("wb") as file:
        file.truncate(GIGABYTE)
    ended = threading.Event()

    def long(_: Nothing, context: ToolContext) -> ToolResult[None]:
        del context
        return ToolResult.ok(None) if ended.wait(PATIENT) else ToolResult.error("the other call did not end")

    def short(_: Nothing, context: ToolContext) -> ToolResult[None]:
        assert context.filesystem is not None
        try:
            context.filesystem.read_bytes("big")
        finally:
            ended.set()
        return ToolResult.ok(None)

    reads = ToolAnnotations(read_only=True)
    tools = [
        Tool[Nothing, None](name="long", description="Wait.", handler=long, timeout=10 * PATIENT, annotations=reads),
        Tool[Nothing, None](name="short", description="Read.", handler=short, timeout=0.2, annotations=reads),
    ]
    with HostFilesystem(tmp_path, syscalls=SlowReading()) as fs:
        section = MarkdownSection(title="Look", template="", tools=tools)
        prompt = Prompt(name="files", sections=[section]).bind(resources={Filesystem: fs})
        executor = ToolExecutor(prompt=prompt, session=Session())
        replies = executor.execute_all([ToolCall("1", "long", "{}"), ToolCall("2", "short", "{}")])
    assert [reply.outcome for reply in replies] == ["succeeded", "timeout"]


class OneDirectory:
    """A tree that is one large directory; the call is given up on while that is being read."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def kind(self, path: str, /) -> FileKind | None:
        return "directory" if path == "." else "file"

    def scan(self, path: str, /) -> Iterable[tuple[str, FileKind]]:
        del path
        self._owner.ended = (self,)
        return [(f"file{number}", "file") for number in range(10_000)]

    def chunks(self, path: str, /) -> Iterator[bytes]:
        raise NotImplementedError


def test_a_walk_that_was_given_up_on_ends_within_one_directory() -> None:
    """However many names it holds."""
    owner = Owner()
    token = enter_owner(owner)
    try:
        with pytest.raises(StaleCallError):
            list(walk_files(OneDirectory(owner)))
        owner.ended = ()
        found = walk_glob(OneDirectory(owner), "**")
        assert next(found) == (".", "directory")
        with pytest.raises(StaleCallError):
            next(found)
    finally:
        leave_owner(token)


def test_a_file_larger_than_the_memory_is_not_read(root: Path) -> None:
    """It is refused before the first byte, with its size and what to do; parts of it are read."""
    with HostFilesystem(root) as fs:
        with pytest.raises(MemoryError, match=r"'huge' has 1,099,511,627,776 bytes to read.*stream\(\)"):
            fs.read_bytes("huge")
        with pytest.raises(MemoryError, match="limit="):
            fs.read("huge")
        assert fs.read_bytes("huge", offset=6, limit=6) == b"second"
        assert len(fs.read_bytes("huge", offset=TERABYTE - 20_000_000)) == 20_000_000
        assert next(iter(fs.stream("huge"))).startswith(b"first")


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 20_000_003])
def test_a_long_file_is_read_as_it_is(tmp_path: Path, size: int) -> None:
    """Whatever the pieces it is read in; also its parts."""
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    with HostFilesystem(tmp_path) as fs:
        assert fs.read_bytes("file") == data
        assert fs.read_bytes("file", offset=5) == data[5:]
        assert fs.read_bytes("file", offset=7, limit=9 << 20) == data[7 : 7 + (9 << 20)]
        assert fs.read_bytes("file", limit=size) == data
