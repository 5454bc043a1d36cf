"""A failed undo is never committed: its files stay closed to calls until the undo has succeeded."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.filesystem.crash import Faulty
from tests.runtime.limits_parts import Count, Text, call, executor_of, outcomes

from weakincentives.errors import JournalError, RollbackError
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.runtime import Session, transaction


class FaultyForAWhile(Faulty):
    """System calls that fail from a moment on, until they are mended."""

    __slots__ = ("broken",)

    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    def rename(self, *args: Any, **kwargs: Any) -> Any:
        if self.broken:
            raise OSError(errno.EIO, "the disk is not well")
        return super().rename(*args, **kwargs)

    def unlink(self, *args: Any, **kwargs: Any) -> Any:
        if self.broken:
            raise OSError(errno.EIO, "the disk is not well")
        return super().unlink(*args, **kwargs)


def ok(params: Text, *, context: ToolContext) -> ToolResult[str]:
    assert context.filesystem is not None
    context.filesystem.write("later.txt", "later")
    return ToolResult.ok("")


@pytest.mark.parametrize("watch", [None, "scan"])
@pytest.mark.parametrize("reopened", [False, True])
def test_files_whose_undo_failed_refuse_calls_until_it_succeeds(tmp_path: Path, watch: Any, reopened: bool) -> None:
    """The run ends with `RollbackError`; later calls are refused, saying why; once the disk is well all is restored."""
    (tmp_path / "root").mkdir()
    root = tmp_path / "root"
    (root / "kept.txt").write_text("before")
    disk = FaultyForAWhile()
    fs = HostFilesystem(root, syscalls=disk, watch=watch)

    def breaks(params: Text, *, context: ToolContext) -> ToolResult[str]:
        assert context.filesystem is not None
        context.filesystem.write("kept.txt", "half done")
        context.filesystem.write("new.txt", "half done")
        context.session[Count].append(Count(1))
        disk.broken = True
        return ToolResult.error("no")

    session = Session()
    with executor_of(breaks, ok, session=session, resources={Filesystem: fs}) as executor:
        with pytest.raises(RollbackError) as raised:
            executor.execute(call("breaks", "1"))
        assert [type(cause) for cause in raised.value.causes.values()] == [JournalError]
        assert session[Count].count() == 0, "every other participant is restored"
        refused = executor.execute(call("ok", "2"))
        assert refused.outcome == "refused"
        assert "'ok' was not run" in refused.text
        with pytest.raises(JournalError):
            fs.write("other.txt", "by hand")
        disk.broken = False
        if not reopened:
            assert executor.execute(call("ok", "3")).success
            assert (root / "kept.txt").read_text() == "before"
            assert not (root / "new.txt").exists()
            assert (root / "later.txt").read_text() == "later"
    if reopened:
        disk.broken = True
        with pytest.raises(JournalError):
            fs.close()
        with HostFilesystem(root, watch=watch) as again:
            assert again.read("kept.txt") == "before"
            assert not again.exists("new.txt")
    assert outcomes(session)[:2] == ["crashed", "refused"]


def test_a_participant_that_could_not_be_restored_is_not_released() -> None:
    """To release a snapshot is to say that what happened since is kept or was undone: neither is true then."""
    steps: list[str] = []

    class Part:
        def __init__(self, name: str, fails: bool) -> None:
            self.name, self.fails = name, fails

        def snapshot(self) -> str:
            return self.name

        def restore(self, snapshot: str, /) -> None:
            steps.append(f"restore {snapshot}")
            if self.fails:
                raise OSError("no")

        def release(self, snapshot: str, /) -> None:
            steps.append(f"release {snapshot}")

    class One(Part):
        pass

    class Two(Part):
        pass

    def breaks(params: Text, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.error("no")

    resources = {One: One("one", True), Two: Two("two", False)}
    with executor_of(breaks, resources=resources) as executor, pytest.raises(RollbackError):
        executor.execute(call("breaks", "1"))
    assert steps == ["restore two", "restore one", "release two"]


KILLED = """
import os, sys
from tests.runtime.limits_parts import call, executor_of
from tests.runtime.test_failed_undo import ok
from weakincentives.filesystem import Filesystem, HostFilesystem
fs = HostFilesystem(sys.argv[1])
older = fs.snapshot()
with executor_of(ok, resources={Filesystem: fs}) as executor:
    assert executor.execute(call("ok", "1")).success
    os.kill(os.getpid(), 9)
"""


@pytest.mark.slow  # a process that is killed
def test_a_call_that_succeeded_survives_an_older_bare_snapshot(tmp_path: Path) -> None:
    """A bare snapshot keeps nothing open: what a call committed while it lives is final, also after `kill -9`."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], env={**os.environ, "PYTHONPATH": path}, check=False, timeout=60
    )
    assert done.returncode == -9
    with HostFilesystem(tmp_path) as again:
        assert again.read("later.txt") == "later"


def test_a_tool_cannot_restore_below_its_own_savepoint(tmp_path: Path) -> None:
    """A snapshot that is older than the call cannot be restored inside it: its own rollback would be lost."""
    fs = HostFilesystem(tmp_path)
    fs.write("a.txt", "one")
    older = fs.snapshot()
    fs.write("a.txt", "two")
    problems: list[str] = []

    def goes_back(params: Text, *, context: ToolContext) -> ToolResult[str]:
        assert context.filesystem is not None
        try:
            context.filesystem.restore(older)
        except Exception as error:
            problems.append(type(error).__name__)
        return ToolResult.error("no")

    with executor_of(goes_back, resources={Filesystem: fs}) as executor:
        assert executor.execute(call("goes_back", "1")).outcome == "failed"
    assert problems == ["SnapshotError"]
    assert fs.read("a.txt") == "two"


def test_a_transaction_around_calls_is_undone_after_a_crash_as_a_whole(tmp_path: Path) -> None:
    """Calls inside a transaction are final only when that is."""
    fs = HostFilesystem(tmp_path)
    session = Session()
    with executor_of(ok, session=session, resources={Filesystem: fs}) as executor:
        block = transaction(session, executor._resources)  # pyright: ignore[reportPrivateUsage]
        block.__enter__()
        assert executor.execute(call("ok", "1")).success
        assert (tmp_path / "later.txt").exists()
        block.__exit__(ValueError, ValueError(), None)
    assert not (tmp_path / "later.txt").exists()
