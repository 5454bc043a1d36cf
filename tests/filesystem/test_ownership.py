"""Files that several calls write at once: an undo restores what the call itself changed, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.conftest import examples
from tests.filesystem.crash import Faulty, abandon
from tests.filesystem.test_host_model import EXAMPLES, SHARED, Model, append, delete, mkdir, transfer, write
from tests.filesystem.test_host_model import _Failure as Impossible

from weakincentives.errors import ConflictError, SnapshotError
from weakincentives.fence import Owner, enter_owner, leave_owner
from weakincentives.filesystem import HostFilesystem, InMemoryFilesystem
from weakincentives.testing.filesystem_savepoints import SavepointSuite

names = st.sampled_from(["a", "b", "c", "d"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
contents = st.binary(max_size=2)
indexes = st.integers(0, 9)


class _Call:
    """What stands for a call in an owner: the message of a conflict names its tool."""

    def __init__(self, tool_name: str) -> None:
        self.tool_name = tool_name


class _Holder:
    def __init__(self, tool_name: str) -> None:
        self.call = _Call(tool_name)


def opened(around: Owner | None = None, tool: str = "a_tool") -> Owner:
    """An owner whose savepoint is open."""
    owner = Owner()
    owner.around = around
    owner.holder = _Holder(tool)
    return owner


@contextmanager
def by(owner: Owner | None) -> Generator[None]:
    """What is written inside belongs to the owner."""
    token = enter_owner(owner)
    try:
        yield
    finally:
        leave_owner(token)


@pytest.fixture(params=["memory", "journal"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemoryFilesystem({"kept.txt": "kept", "dir/one.txt": "1"})
        return
    (tmp_path / "root").mkdir()
    with HostFilesystem(tmp_path / "root") as host:
        host.write("kept.txt", "kept")
        host.write("dir/one.txt", "1")
        yield host
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_an_undo_leaves_what_others_wrote(fs: Any) -> None:
    """Of two writers, one in a call that fails, the other's files stay."""
    call = opened()
    savepoint = fs.savepoint(call)
    with by(call):
        fs.write("mine.txt", "x")
        fs.write("kept.txt", "changed")
    fs.write("theirs.txt", "x")
    fs.write("dir/two.txt", "2")
    with by(call):
        fs.write("mine2.txt", "x")
    assert fs.changes(savepoint).added == ("mine.txt", "mine2.txt")
    fs.restore(savepoint)
    fs.release(savepoint)
    assert fs.glob("**/*.txt") == ["dir/one.txt", "dir/two.txt", "kept.txt", "theirs.txt"]
    assert fs.read("kept.txt") == "kept"


@pytest.mark.parametrize(
    "target", ["made/deep/file.txt", "made", "made/other.txt", "moved.txt", "dir", "dir/one.txt/x"]
)
def test_a_write_that_overlaps_with_an_open_call_is_refused(fs: Any, target: str) -> None:
    """At, above and below what the call changed; the error names the path and the tool, and nothing was written."""
    call = opened(tool="build")
    savepoint = fs.savepoint(call)
    with by(call):
        fs.write("made/deep/file.txt", "x")
        fs.move("dir/one.txt", "moved.txt")
    attempts: list[Callable[[], object]] = [
        lambda: fs.write(target, "x"),
        lambda: fs.append(target, "x"),
        lambda: fs.move("kept.txt", target),
        lambda: fs.copy("kept.txt", target),
    ]
    if fs.exists(target):
        attempts += [
            lambda: fs.delete(target, recursive=True),
            lambda: fs.move(target, "away"),
            lambda: fs.copy(target, "away"),
        ]
    before = fs.glob("**")
    for attempt in attempts:
        with pytest.raises(ConflictError, match=f"'{target}' was changed by the call of the tool 'build'"):
            attempt()
    assert fs.glob("**") == before
    with by(call):
        fs.write("made/other.txt", "its own")
    fs.restore(savepoint)
    fs.release(savepoint)
    fs.write("made", "free again")


def test_what_an_outer_call_writes_while_an_inner_one_fails_stays(fs: Any) -> None:
    """The outer call's own thread goes on writing; the inner call's failure is not its failure."""
    outer = opened()
    around = fs.savepoint(outer)
    with by(outer):
        fs.write("outer1.txt", "x")
    inner = opened(outer)
    inside = fs.savepoint(inner)
    with by(inner):
        fs.write("inner.txt", "x")
        fs.write("outer1.txt", "by the inner one")
    with by(outer):
        fs.write("outer2.txt", "x")
        with pytest.raises(ConflictError):
            fs.write("outer1.txt", "x")
    with by(inner):
        fs.write("outer2.txt", "by the inner one, on top")
    fs.restore(inside)
    fs.release(inside)
    assert not fs.exists("inner.txt")
    assert fs.read("outer1.txt") == "x"
    assert fs.read("outer2.txt") == "x"
    fs.restore(around)
    fs.release(around)
    assert fs.glob("**/*.txt") == ["dir/one.txt", "kept.txt"]


def test_an_inner_call_that_was_kept_is_undone_with_the_outer_one(fs: Any) -> None:
    """Its writes are inside the outer owner."""
    outer = opened()
    around = fs.savepoint(outer)
    inner = opened(outer)
    inside = fs.savepoint(inner)
    with by(inner):
        fs.write("inner.txt", "x")
    fs.release(inside)
    fs.write("theirs.txt", "x")
    fs.restore(around)
    fs.release(around)
    assert fs.glob("*.txt") == ["kept.txt", "theirs.txt"]


def test_an_undo_beside_another_open_call(fs: Any) -> None:
    """What the other one began with, and what it writes afterwards, is its own as before."""
    outer = opened()
    around = fs.savepoint(outer)
    one, other = opened(outer), opened(outer)
    first = fs.savepoint(one)
    with by(one):
        fs.write("one.txt", "x")
        fs.write("dir/one.txt", "x")
    second = fs.savepoint(other)
    fs.restore(first)
    fs.release(first)
    with by(other):
        fs.write("other.txt", "x")
    assert fs.changes(second).added == ("other.txt",)
    fs.restore(second)
    fs.release(second)
    assert fs.glob("**/*.txt") == ["dir/one.txt", "kept.txt"]
    assert fs.read("dir/one.txt") == "1"
    fs.release(around)


def test_a_savepoint_for_all_owns_writes_outside_of_calls(fs: Any) -> None:
    """It stands for a harness that runs tools of its own, in contexts of its own."""
    call = opened()
    savepoint = fs.savepoint(call, for_all=True)
    fs.write("native.txt", "x")
    fs.write("kept.txt", "x")
    assert fs.changes(savepoint).added == ("native.txt",)
    fs.restore(savepoint)
    fs.release(savepoint)
    assert fs.glob("*.txt") == ["kept.txt"]


def test_a_savepoint_opened_by_hand_owns_everything(fs: Any) -> None:
    """Outside of calls there is no other writer to spare."""
    savepoint = fs.savepoint()
    with by(opened()):
        fs.write("call.txt", "x")
    fs.write("none.txt", "x")
    fs.restore(savepoint)
    fs.release(savepoint)
    assert fs.glob("*.txt") == ["kept.txt"]


def test_a_snapshot_inside_a_call_goes_back_over_its_own_writes(fs: Any) -> None:
    """Others' writes stay, and the call can still be undone as a whole."""
    call = opened()
    savepoint = fs.savepoint(call)
    with by(call):
        fs.write("first.txt", "x")
        inside = fs.snapshot()
        fs.write("second.txt", "x")
        fs.write("first.txt", "y")
    fs.write("theirs.txt", "x")
    with by(call):
        fs.restore(inside)
    assert fs.glob("*.txt") == ["first.txt", "kept.txt", "theirs.txt"]
    assert fs.read("first.txt") == "x"
    with by(call):
        fs.write("second.txt", "again")
        fs.restore(inside)
    assert fs.glob("*.txt") == ["first.txt", "kept.txt", "theirs.txt"]
    fs.restore(savepoint)
    fs.release(savepoint)
    assert fs.glob("*.txt") == ["kept.txt", "theirs.txt"]


def test_a_snapshot_older_than_an_open_call_is_not_restored(fs: Any) -> None:
    """It would take the call's own undo away: a clear error, and the call can still be undone."""
    older = fs.snapshot()
    fs.write("kept.txt", "older")
    call = opened()
    savepoint = fs.savepoint(call)
    with by(call):
        fs.write("kept.txt", "call")
        with pytest.raises(SnapshotError, match="older than a call"):
            fs.restore(older)
    fs.restore(savepoint)
    assert fs.read("kept.txt") == "older"
    fs.release(savepoint)
    fs.restore(older)
    assert fs.read("kept.txt") == "kept"


def test_somebody_elses_undo_does_not_touch_an_open_call(fs: Any) -> None:
    """Restoring a snapshot is a write: where it would undo an open call's work it is refused."""
    call = opened()
    savepoint = fs.savepoint(call)
    elsewhere = fs.snapshot()
    with by(call):
        fs.write("mine.txt", "x")
    with pytest.raises(ConflictError):
        fs.restore(elsewhere)
    assert fs.exists("mine.txt")
    fs.release(savepoint)
    fs.restore(elsewhere)
    assert not fs.exists("mine.txt")


def test_a_dropped_savepoint_keeps_nothing(fs: Any) -> None:
    """One without references counts as released: what it kept is freed, and others may write."""
    call = opened()
    savepoint = fs.savepoint(call)
    with by(call):
        fs.write("mine.txt", "x")
    del savepoint
    fs.write("mine.txt", "y")
    if isinstance(fs, InMemoryFilesystem):
        assert (fs._writes._writes, fs._writes.open) == ([], [])
    else:
        assert fs._scope.undo.entries == []


def test_one_file_written_often_is_kept_once(fs: Any) -> None:
    """The old content of a file is remembered once for each savepoint, however often it is written."""
    call = opened()
    savepoint = fs.savepoint(call)
    with by(call):
        for number in range(50):
            fs.append("kept.txt", str(number))
    if isinstance(fs, InMemoryFilesystem):
        assert len(fs._writes._writes) == 1
    else:
        assert len(fs._scope.undo.entries) == 1
    fs.restore(savepoint)
    assert fs.read("kept.txt") == "kept"


def test_a_kill_leaves_what_others_wrote(tmp_path: Path) -> None:
    """The open call is undone by the next process; what others wrote meanwhile is not, recorded or not."""
    (tmp_path / "root").mkdir()
    for recorded in (False, True):
        syscalls = Faulty()
        fs = HostFilesystem(tmp_path / "root", syscalls=syscalls)
        older = fs.snapshot() if recorded else None
        call = opened()
        savepoint = fs.savepoint(call)
        with by(call):
            fs.write("mine1.txt", "x")
        fs.write("theirs.txt", str(recorded))
        fs.move("theirs.txt", f"made/for/{recorded}.txt")
        with by(call):
            fs.write("mine2.txt", "x")
        assert (savepoint, older) is not None
        abandon(fs, syscalls)
        with HostFilesystem(tmp_path / "root") as again:
            assert again.glob("**/*.txt") == [f"made/for/{done}.txt" for done in (False, True) if done <= recorded]


# --- a model: what is left is what a sequential fold over the others' writes gives


class _Op(NamedTuple):
    number: int
    owner: Owner | None
    change: Callable[[Model], None]
    touched: tuple[str, ...]


class _Save:
    def __init__(self, snapshot: Any, owner: Owner, number: int, *, for_all: bool) -> None:
        self.snapshot = snapshot
        self.owner = owner
        self.number = number
        self.for_all = for_all

    def covers(self, owner: Owner | None) -> bool:
        return self.for_all if owner is None else owner.inside(self.owner)

    def owns(self, op: _Op) -> bool:
        return op.number >= self.number and self.covers(op.owner)


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _topmost(model: Model, path: str) -> str:
    parts = path.split("/")
    for count in range(1, len(parts)):
        if "/".join(parts[:count]) not in model:
            return "/".join(parts[:count])
    return path


class SharedFiles(RuleBasedStateMachine):
    """Calls that nest and overlap, others that write in between; undo, keep, crash at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.fs: Any = self.make()
        self.ops: list[_Op] = []
        self.count = 0
        self.open: list[_Save] = []
        self.bare: list[_Save] = []
        self.was_touched: list[tuple[_Save, str]] = []

    def make(self) -> Any:
        return InMemoryFilesystem()

    def fold(self, ops: list[_Op]) -> Model:
        model: Model = {}
        for op in ops:
            op.change(model)
        return model

    @property
    def model(self) -> Model:
        return self.fold(self.ops)

    def writer(self, index: int) -> Owner | None:
        choices: list[Owner | None] = [None, *(save.owner for save in self.open)]
        return choices[index % len(choices)]

    def attempt(
        self, index: int, change: Callable[[Model], None], call: Callable[[], object], asked: list[str], made: list[str]
    ) -> None:
        """Do it in both worlds as that writer; it must be refused exactly when it overlaps with another's call."""
        owner = self.writer(index)
        model = self.model
        touched = tuple(_topmost(model, path) for path in made)
        must = any(
            _overlap(path, other)
            for save in self.open
            if not save.covers(owner)
            for op in self.ops
            if save.owns(op)
            for other in op.touched
            for path in asked
        )
        may = any(
            not save.covers(owner) and any(_overlap(path, old) for path in asked) for save, old in self.was_touched
        )
        after = dict(model)
        try:
            change(after)
        except Impossible:
            with by(owner), pytest.raises(OSError):
                call()
            return
        try:
            with by(owner):
                call()
        except ConflictError:
            assert must or may
            return
        assert not must or after == model, "a write that overlaps with an open call was let through"
        if after != model or touched:
            self.ops.append(_Op(self.count, owner, change, touched))
            self.count += 1

    @rule(index=indexes, path=paths, content=contents)
    def write(self, index: int, path: str, content: bytes) -> None:
        self.attempt(
            index, lambda model: write(model, path, content), lambda: self.fs.write(path, content), [path], [path]
        )

    @rule(index=indexes, path=paths, content=contents)
    def append(self, index: int, path: str, content: bytes) -> None:
        self.attempt(
            index, lambda model: append(model, path, content), lambda: self.fs.append(path, content), [path], [path]
        )

    @rule(index=indexes, path=paths)
    def mkdir(self, index: int, path: str) -> None:
        made = [] if path in self.model else [path]
        self.attempt(index, lambda model: mkdir(model, path), lambda: self.fs.mkdir(path), [path], made)

    @rule(index=indexes, path=paths)
    def delete(self, index: int, path: str) -> None:
        self.attempt(
            index, lambda model: delete(model, path, True), lambda: self.fs.delete(path, recursive=True), [path], [path]
        )

    @rule(index=indexes, source=paths, goal=paths, keep=st.booleans())
    def transfer(self, index: int, source: str, goal: str, keep: bool) -> None:
        act = self.fs.copy if keep else self.fs.move
        made = [goal] if keep else [source, goal]
        self.attempt(
            index, lambda model: transfer(model, source, goal, keep), lambda: act(source, goal),
            [source, goal], made,
        )  # fmt: skip

    @precondition(lambda self: len(self.open) < 4)
    @rule(index=indexes, for_all=st.booleans())
    def begin(self, index: int, for_all: bool) -> None:
        owner = opened(self.writer(index))
        for_all = for_all and not self.open
        self.open.append(_Save(self.fs.savepoint(owner, for_all=for_all), owner, self.count, for_all=for_all))

    @precondition(lambda self: self.open)
    @rule(index=indexes)
    def snapshot(self, index: int) -> None:
        save = self.open[index % len(self.open)]
        with by(save.owner):
            taken = self.fs.snapshot()
        self.bare.append(_Save(taken, save.owner, self.count, for_all=save.for_all))

    @precondition(lambda self: self.bare)
    @rule(index=indexes)
    def restore_bare(self, index: int) -> None:
        bare = self.bare[index % len(self.bare)]
        if bare.owner.holder is None or any(save.number > bare.number for save in self.open):
            return
        own = [op for op in self.ops if bare.owns(op)]
        try:
            with by(bare.owner):
                self.fs.restore(bare.snapshot)
        except (ConflictError, SnapshotError):
            return  # of an inner call that is open, or over
        self.was_touched += [(save, path) for save in self.open for op in own if save.owns(op) for path in op.touched]
        self.ops = [op for op in self.ops if op not in own]
        self.bare = [other for other in self.bare if other.number <= bare.number]

    @precondition(lambda self: self.open)
    @rule(index=indexes)
    def undo(self, index: int) -> None:
        save = self.open[index % len(self.open)]
        self.fs.restore(save.snapshot)
        self.ops = [op for op in self.ops if not save.owns(op)]
        for inner in [inner for inner in self.open if inner is not save and inner.number >= save.number]:
            if inner.owner.inside(save.owner):
                self.end(inner)
        self.bare = [bare for bare in self.bare if not bare.owner.inside(save.owner)]
        self.end(save)

    @precondition(lambda self: self.open)
    @rule(index=indexes)
    def keep(self, index: int) -> None:
        self.end(self.open[index % len(self.open)])

    def end(self, save: _Save) -> None:
        self.open.remove(save)
        save.owner.holder = None
        self.fs.release(save.snapshot)
        self.was_touched = [(other, path) for other, path in self.was_touched if other is not save]

    @precondition(lambda self: self.open)
    @rule(index=indexes)
    def changes(self, index: int) -> None:
        save = self.open[index % len(self.open)]
        before = self.fold([op for op in self.ops if not save.owns(op)])
        after = self.model
        found = self.fs.changes(save.snapshot)
        shown = {path.rstrip("/") for path in (*found.added, *found.changed, *found.removed)}
        differ = {
            path for path in {*before, *after} if (path in before, before.get(path)) != (path in after, after.get(path))
        }
        assert shown == differ

    def content(self) -> Model:
        found: Model = {}
        for path in self.fs.glob("**"):
            if path != ".":
                found[path] = None if self.fs.stat(path).kind == "directory" else self.fs.read_bytes(path)
        return found

    @invariant()
    def the_files_are_as_the_model_says(self) -> None:
        assert self.content() == self.model


class SharedDisk(SharedFiles):
    """The same on disk, where the process may also be killed."""

    def make(self) -> Any:
        self.folder = Path(mkdtemp(dir=SHARED))
        (self.folder / "root").mkdir()
        return HostFilesystem(self.folder / "root")

    def teardown(self) -> None:
        self.fs.close()
        shutil.rmtree(self.folder)

    @rule()
    def crash(self) -> None:
        """The process ends without a word: calls that are open are undone, and nothing else."""
        transactions = self.fs._scope
        transactions.closed = self.fs._disk.closed = True
        state = transactions.disk._state
        if state is not None:
            for fd in {state._tx_fd, state.fd, state.entry}:
                os.close(fd)
        transactions.disk._lock.forget()
        os.close(transactions.disk.root_fd)
        self.ops = [op for op in self.ops if not any(save.owns(op) for save in self.open)]
        for save in self.open:
            save.owner.holder = None
        self.open.clear()
        self.bare.clear()
        self.was_touched.clear()
        self.fs = HostFilesystem(self.folder / "root")


def _run(machine: type[SharedFiles], count: int, steps: int) -> None:
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        machine,
        settings=settings(
            max_examples=count,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


@pytest.mark.parametrize("machine", [SharedFiles, SharedDisk])
def test_random_schedules_of_several_writers(machine: type[SharedFiles]) -> None:
    """Whatever overlaps with whatever, the files are what a fold over the writes that were kept gives."""
    _run(machine, examples(60), 30)


@pytest.mark.torture
@pytest.mark.parametrize("machine", [SharedFiles, SharedDisk])
def test_many_random_schedules_of_several_writers(machine: type[SharedFiles]) -> None:
    """Thousands of schedules."""
    _run(machine, EXAMPLES, 50)


class Careless:
    """Files in memory whose savepoints know no owner: restoring one undoes what anybody wrote."""

    def __init__(self) -> None:
        self._files = InMemoryFilesystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def savepoint(self, owner: Owner | None = None, *, for_all: bool = False) -> Any:
        return self._files.snapshot()


class Forgetful(Careless):
    """Whose savepoints undo nothing."""

    def restore(self, snapshot: Any, /) -> None:
        pass


@pytest.mark.parametrize(
    ("make", "noticed"),
    [
        (Careless, {"undoes_what_its_owner_wrote", "stand_in_the_way"}),
        (Forgetful, {"undoes_what_its_owner_wrote", "its_own_part", "with_the_outer_one", "stand_in_the_way"}),
        (InMemoryFilesystem, set[str]()),
    ],
)
def test_the_contract_notices_savepoints_that_do_not_hold(make: Callable[[], Any], noticed: set[str]) -> None:
    """The suite for users' own filesystems fails on savepoints that undo too much, or nothing."""
    failed: set[str] = set()
    for name in [name for name in vars(SavepointSuite) if name.startswith("test_")]:
        suite = SavepointSuite()
        suite.make = make
        suite.setup_method()
        try:
            getattr(suite, name)()
        except AssertionError:
            failed.add(name)
    assert {part for part in noticed if any(part in name for name in failed)} == noticed
    assert len(failed) == len(noticed)
