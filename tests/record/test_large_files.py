"""Large files on record: read by pieces, copied, and never held whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from weakincentives import MainLoop, Session
from weakincentives.errors import RecordError
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.filesystem.protocol import LARGE, LargeFile, large_file
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.resources import ResourceRegistry
from weakincentives.runtime import MainLoopConfig, PostgresRunStore, SqliteRunStore
from weakincentives.runtime.record import FileStep, NewRows, NewRun, Step
from weakincentives.runtime.record.rows import digest_of
from weakincentives.runtime.record.sql import SqlRunStore
from weakincentives.testing import ScriptedAdapter, call, say

from .sealing import SEAL

NEW = NewRun("Desk", "a session")
OLD, NEXT = b"old content " * 200_000, b"new content " * 200_000


@dataclass(frozen=True)
class Make:
    """Another program that a tool starts makes or changes a file."""

    path: str
    source: str


class Desk(MainLoop[str, str]):
    """Its one tool copies a file, through the API or as a program beside it does."""

    fs: HostFilesystem
    outside: bool = False

    def prepare(self, request: str) -> tuple[Prompt[str], Session]:
        def make(params: Make, *, context: ToolContext) -> ToolResult[None]:
            if self.outside:
                subprocess.run(["cp", params.source, params.path], cwd=self.fs.root, check=True)
            else:
                assert context.filesystem is not None
                if context.filesystem.exists(params.path):
                    context.filesystem.delete(params.path)
                context.filesystem.copy(params.source, params.path)
            return ToolResult.ok(None, message="Made.")

        tool = Tool[Make, None](
            name="make", description="Copy.", handler=make, annotations=ToolAnnotations(open_world=False)
        )
        task = MarkdownSection(title="Task", template="Copy.", tools=[tool])
        files = ResourceRegistry.build({Filesystem: self.fs})
        return Prompt(name="desk", sections=[task]).bind(resources=files), Session(bus=self.bus)


def copied(store: SqlRunStore, fs: HostFilesystem, *sources: str, outside: bool, run_id: str = "r") -> None:
    calls = [call("make", path="made", source=source) for source in sources]
    desk = Desk(ScriptedAdapter(*calls, say("Done.")), config=MainLoopConfig(runs=store))
    desk.fs, desk.outside = fs, outside
    desk.execute("", run_id=run_id)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "one").write_bytes(OLD)
    (root / "two").write_bytes(NEXT)
    return root


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("watch", ["writes", "scan"])
def test_large_files_are_recorded_before_and_after(tmp_path: Path, root: Path, watch: str, sealed: bool) -> None:
    """Whether the API wrote them or another program; and a program that later writes in place changes no record."""
    outside = watch == "scan"
    with (
        HostFilesystem(root, watch="scan" if outside else None) as fs,
        SqliteRunStore(tmp_path / "runs.db", seal=SEAL if sealed else None) as store,
    ):
        copied(store, fs, "one", "two", outside=outside)
        first, second = (f"file:644:{digest_of(content)}" for content in (OLD, NEXT))
        assert [(file.before, file.after) for file in store.files("r")] == [(None, first), (first, second)]
        with (root / "made").open("r+b") as file:
            file.write(b"in place")
        assert store.verify() == []
        last = store.open("r").steps()[-1].seq
        assert store.open("r").files_at(last).read_bytes("made") == NEXT
        assert store.blob(digest_of(OLD)) == OLD


def test_a_large_file_is_seen_through_views_and_snapshots(root: Path) -> None:
    """And a small one, a directory or nothing is not one."""
    with HostFilesystem(root) as fs:
        (root / "small").write_bytes(b"x" * LARGE)
        snapshot = fs.snapshot()
        fs.write("one", b"short")
        (root / "directory").mkdir()
        for view, path in ((fs, "one"), (fs.readonly(), "one"), (fs.sub("."), "one")):
            assert large_file(view, path) is None
            found = large_file(view, path, snapshot)
            assert found is not None
            assert (found.mode, found.size, b"".join(found.pieces())) == (0o644, len(OLD), OLD)
        for path in ("small", "directory", "nothing", "one/below"):
            assert large_file(fs, path) is None
            assert large_file(fs, path, snapshot) is None
        fs.restore(snapshot)
        assert large_file(fs, "one") is not None


@pytest.fixture(params=["sqlite", "sealed", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlRunStore]:
    """Each kind of store."""
    if request.param == "postgres":
        made: SqlRunStore = PostgresRunStore(request.getfixturevalue("postgres"))
    else:
        made = SqliteRunStore(tmp_path / "runs.db", seal=SEAL if request.param == "sealed" else None)
    with made:
        yield made


def rows(content: LargeFile, digest: str) -> NewRows:
    return NewRows([Step(seq=1, kind="begin")], [FileStep("a", 1, None, f"file:644:{digest}")], {digest: content})


def test_a_file_that_changes_while_it_is_recorded_is_refused(store: SqlRunStore, tmp_path: Path) -> None:
    """Nothing is added: the record would have a name for content that it does not hold."""

    def file(content: bytes) -> LargeFile:
        return LargeFile(0o644, len(content), lambda: iter([content[:LARGE], content[LARGE:]]))

    def gone() -> Iterator[bytes]:
        yield OLD[:LARGE]
        raise FileNotFoundError(2, "No such file or directory")

    held = store.take("r", NEW)
    with pytest.raises(RecordError, match="changed by another program"):
        held.append(rows(file(NEXT), digest_of(OLD)))
    with pytest.raises(RecordError, match="cannot be read to be recorded"):
        held.append(rows(LargeFile(0o644, len(OLD), gone), digest_of(OLD)))
    assert list(store.steps("r")) == []
    assert not [*tmp_path.rglob("*.new")]
    held.append(rows(file(OLD), digest_of(OLD)))
    held.append(rows(file(OLD), digest_of(OLD)))
    assert store.blob(digest_of(OLD)) == OLD
    assert store.verify() == []
    held.release()


CHILD = """
import sys
from pathlib import Path
from tests.record.sealing import SEAL
from tests.record.test_large_files import copied
from weakincentives.filesystem import HostFilesystem
from weakincentives.runtime import SqliteRunStore

def most_memory():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024

path, watch, sealed = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "True"
outside = watch == "scan"
fs = HostFilesystem(path / "root", watch="scan" if outside else None)
store = SqliteRunStore(path / "runs.db", durable=False, seal=SEAL if sealed else None)
copied(store, fs, "one", "two", outside=outside)  # all that is imported and made once
before = most_memory()
copied(store, fs, "huge", "one", outside=outside, run_id="large")
print(len(store.files("large")), most_memory() - before)
"""


@pytest.mark.slow  # writes and reads hundreds of megabytes
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="says how much memory a process took")
@pytest.mark.parametrize(
    ("watch", "sealed", "size"), [("writes", False, 200), ("scan", False, 200), ("writes", True, 80)]
)
def test_recording_a_large_file_takes_little_memory(
    tmp_path: Path, root: Path, watch: str, sealed: bool, size: int
) -> None:
    """200 MB, made and then replaced, in less than 40 MB more than a run with small files."""
    with (root / "huge").open("wb") as file:
        for number in range(size):
            file.write(f"{number}".encode().ljust(1 << 20, b"."))
    command = [sys.executable, "-c", CHILD, str(tmp_path), watch, str(sealed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    recorded, megabytes = map(int, done.stdout.split())
    assert recorded == 2
    assert megabytes < 40, megabytes
