"""Random histories of files on disk, compared with a naive model after every step."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.conftest import examples

from weakincentives.errors import FilesystemError, SnapshotError
from weakincentives.filesystem import FileChanges
from weakincentives.filesystem.disk.filesystem import HostFilesystem

EXAMPLES = int(os.environ.get("WINK_EXAMPLES", "2000"))
SHARED = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
contents = st.binary(max_size=3)

Model = dict[str, bytes | None]
"""Every path below the root: a file's bytes, or None for a directory."""


class _Failure(Exception):
    """What the model says must fail."""


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _below(model: Model, path: str) -> list[str]:
    return [other for other in model if other == path or other.startswith(path + "/")]


def _make_parents(model: Model, path: str) -> None:
    for above in _above(path):
        if model.get(above, None) is not None:
            raise _Failure
    for above in _above(path):
        model.setdefault(above, None)


def _check_parents(model: Model, path: str) -> None:
    if any(above not in model or model[above] is not None for above in _above(path)):
        raise _Failure


def write(model: Model, path: str, content: bytes) -> None:
    if path in model and model[path] is None:
        raise _Failure
    _make_parents(model, path)
    model[path] = content


def append(model: Model, path: str, content: bytes) -> None:
    if path in model and model[path] is None:
        raise _Failure
    _make_parents(model, path)
    model[path] = (model.get(path) or b"") + content


def mkdir(model: Model, path: str) -> None:
    if model.get(path) is not None:
        raise _Failure
    _make_parents(model, path)
    model[path] = None


def delete(model: Model, path: str, recursive: bool) -> None:
    _check_parents(model, path)
    below = _below(model, path)
    if path not in model or (len(below) > 1 and not recursive):
        raise _Failure
    for other in below:
        del model[other]


def transfer(model: Model, source: str, target: str, keep: bool) -> None:
    _check_parents(model, source)
    if source not in model or target in model:
        raise _Failure
    if target.startswith(source + "/"):
        raise _Failure
    _make_parents(model, target)
    for other in _below(model, source):
        model[target + other[len(source) :]] = model[other]
        if not keep:
            del model[other]


def _difference(before: Model, after: Model) -> FileChanges:
    def shown(path: str, model: Model) -> str:
        return f"{path}/" if model[path] is None else path

    old = {shown(path, before) for path in before}
    new = {shown(path, after) for path in after}
    changed = {path for path in old & new if not path.endswith("/") and before[path] != after[path]}
    return FileChanges(tuple(sorted(new - old)), tuple(sorted(changed)), tuple(sorted(old - new)))


def _attributes(root: Path) -> dict[str, tuple[int, ...]]:
    """Modes and times of everything, which only a rollback brings back."""
    found: dict[str, tuple[int, ...]] = {}
    for path in [root, *root.rglob("*")]:
        info = path.lstat()
        found[str(path.relative_to(root))] = (stat.S_IMODE(info.st_mode), info.st_mtime_ns)
    return found


class DiskHistory(RuleBasedStateMachine):
    """Writes, deletes, moves, snapshots, restores, releases and crashes in any order."""

    watch: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp(dir=SHARED))
        self.root = self.folder / "root"
        self.root.mkdir()
        self.fs = HostFilesystem(self.root, watch=self.watch)
        self.model: Model = {}
        self.stack: list[tuple[Any, Model, dict[str, tuple[int, ...]], bool]] = []
        self.over: list[Any] = []

    def teardown(self) -> None:
        self.fs.close()
        shutil.rmtree(self.folder)

    def both(self, change: Callable[[Model], None], call: Callable[[], object]) -> None:
        copy = dict(self.model)
        try:
            change(copy)
        except _Failure:
            with pytest.raises(OSError):
                call()
        else:
            call()
            self.model = copy

    @rule(path=paths, content=contents)
    def write(self, path: str, content: bytes) -> None:
        self.both(lambda model: write(model, path, content), lambda: self.fs.write(path, content))

    @rule(path=paths, content=contents)
    def append(self, path: str, content: bytes) -> None:
        self.both(lambda model: append(model, path, content), lambda: self.fs.append(path, content))

    @rule(path=paths)
    def mkdir(self, path: str) -> None:
        self.both(lambda model: mkdir(model, path), lambda: self.fs.mkdir(path))

    @rule(path=paths, recursive=st.booleans())
    def delete(self, path: str, recursive: bool) -> None:
        self.both(lambda model: delete(model, path, recursive), lambda: self.fs.delete(path, recursive=recursive))

    @rule(source=paths, destination=paths)
    def copy(self, source: str, destination: str) -> None:
        self.both(lambda model: transfer(model, source, destination, True), lambda: self.fs.copy(source, destination))

    @rule(source=paths, destination=paths)
    def move(self, source: str, destination: str) -> None:
        self.both(lambda model: transfer(model, source, destination, False), lambda: self.fs.move(source, destination))

    @precondition(lambda self: len(self.stack) < 4)
    @rule(savepoint=st.booleans())
    def snapshot(self, savepoint: bool) -> None:
        attributes = _attributes(self.root)
        taken = self.fs.savepoint() if savepoint else self.fs.snapshot()
        self.stack.append((taken, dict(self.model), attributes, savepoint))

    @precondition(lambda self: self.stack)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.stack) - 1))
        snapshot, model, attributes, savepoint = self.stack[index]
        if not savepoint and any(newer for *_, newer in self.stack[index + 1 :]):
            with pytest.raises(SnapshotError, match="still open"):
                self.fs.restore(snapshot)
            return
        self.fs.restore(snapshot)
        self.over += [inner for inner, *_ in self.stack[index + 1 :]]
        del self.stack[index + 1 :]
        self.model = dict(model)
        assert _attributes(self.root) == attributes

    @precondition(lambda self: self.stack)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.stack) - 1))
        self.fs.release(self.stack[index][0])
        self.over.append(self.stack.pop(index)[0])

    @precondition(lambda self: self.stack)
    @rule(data=st.data())
    def changes(self, data: st.DataObject) -> None:
        snapshot, model, *_ = self.stack[data.draw(st.integers(0, len(self.stack) - 1))]
        assert self.fs.changes(snapshot) == _difference(model, self.model)

    @precondition(lambda self: self.over)
    @rule()
    def use_one_that_is_over(self) -> None:
        with pytest.raises(SnapshotError):
            self.fs.restore(self.over[-1])
        self.fs.release(self.over[-1])

    @rule()
    def open_again(self) -> None:
        self.fs.close()
        self.over.clear()
        self.stack.clear()
        self.fs = HostFilesystem(self.root, watch=self.watch)

    @rule()
    def crash(self) -> None:
        """The process ends without a word; the next one finds the state of the oldest live savepoint."""
        transactions = self.fs._scope
        transactions.closed = True
        self.fs._disk.closed = True
        state = transactions.disk._state
        if state is not None:
            for fd in {state._tx_fd, state.fd, state.entry}:
                os.close(fd)
        transactions.disk._lock.forget()
        os.close(transactions.disk.root_fd)
        attributes = _attributes(self.root)
        for _, model, then, savepoint in reversed(self.stack):
            if savepoint:
                self.model, attributes = model, then
        self.stack.clear()
        self.over.clear()
        self.fs = HostFilesystem(self.root, watch=self.watch)
        assert _attributes(self.root) == attributes

    @invariant()
    def the_disk_is_as_the_model_says(self) -> None:
        found: Model = {}
        for path in self.root.rglob("*"):
            found[str(path.relative_to(self.root))] = None if path.is_dir() else path.read_bytes()
        assert found == self.model


class WatchedHistory(DiskHistory):
    """The same with `watch="scan"`, where another program writes, too."""

    watch = "scan"

    @rule(path=paths, content=contents)
    def another_program_writes(self, path: str, content: bytes) -> None:
        try:
            write(self.model, path, content)
        except _Failure:
            return
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(content)

    @rule(path=paths)
    def another_program_deletes(self, path: str) -> None:
        try:
            delete(self.model, path, recursive=True)
        except _Failure:
            return
        target = self.root / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()


def _run(machine: type[DiskHistory], count: int, steps: int) -> None:
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        machine, settings=settings(max_examples=count, stateful_step_count=steps, deadline=None)
    )


def test_the_model_refuses_what_the_disk_refuses() -> None:
    """Every error of the filesystem is an `OSError`, which the comparison below relies on."""
    assert issubclass(FilesystemError, OSError)


def test_random_histories_on_disk() -> None:
    """Whatever is done in whatever order, the files are what a dictionary would hold; crashes included."""
    _run(DiskHistory, examples(60), 30)


def test_random_histories_with_other_writers() -> None:
    """The same when another program writes to the root, with `watch="scan"`."""
    _run(WatchedHistory, examples(25), 20)


@pytest.mark.torture
def test_many_random_histories_on_disk() -> None:
    """Thousands of histories."""
    _run(DiskHistory, EXAMPLES, 40)


@pytest.mark.torture
def test_many_random_histories_with_other_writers() -> None:
    """Hundreds of watched histories."""
    _run(WatchedHistory, max(200, EXAMPLES // 5), 30)
