"""Files in memory against the simplest model there is: a dict that is copied for each snapshot."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from tests.conftest import examples

from weakincentives.filesystem import FileChanges
from weakincentives.filesystem.memory.filesystem import InMemoryFilesystem

EXAMPLES = int(os.environ.get("WINK_EXAMPLES", "2000"))

Model = dict[str, bytes | None]
"""Content by path; None for a directory. The root is not in it."""

paths = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
contents = st.sampled_from([b"", b"1", b"2", b"long" * 100])


def parents(path: str) -> list[str]:
    names = path.split("/")[:-1]
    return ["/".join(names[: length + 1]) for length in range(len(names))]


def below(model: Model, path: str) -> list[str]:
    return [other for other in model if other == path or other.startswith(path + "/")]


def blocked(model: Model, path: str) -> bool:
    """Whether a file stands where a directory would have to be."""
    return any(model.get(parent, b"" if parent in model else None) is not None for parent in parents(path))


def differences(old: Model, new: Model) -> FileChanges:
    def named(path: str, model: Model) -> str:
        return path if model[path] is not None else path + "/"

    was = {named(path, old): old[path] for path in old}
    now = {named(path, new): new[path] for path in new}
    return FileChanges(
        added=tuple(sorted(now.keys() - was.keys())),
        changed=tuple(sorted(path for path in was.keys() & now.keys() if was[path] != now[path])),
        removed=tuple(sorted(was.keys() - now.keys())),
    )


class Files(RuleBasedStateMachine):
    """Every rule does one thing to both and expects the same outcome, errors included."""

    snapshots: Bundle[tuple[Any, Model]] = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.fs = InMemoryFilesystem()
        self.model: Model = {}
        self.alive: list[tuple[Any, Model]] = []

    def put(self, path: str, content: bytes | None) -> None:
        for parent in parents(path):
            self.model.setdefault(parent, None)
        self.model[path] = content

    @rule(path=paths, content=contents)
    def write(self, path: str, content: bytes) -> None:
        if blocked(self.model, path):
            with pytest.raises(NotADirectoryError):
                self.fs.write(path, content)
        elif path in self.model and self.model[path] is None:
            with pytest.raises(IsADirectoryError):
                self.fs.write(path, content)
        else:
            self.fs.write(path, content)
            self.put(path, content)

    @rule(path=paths, content=contents)
    def append(self, path: str, content: bytes) -> None:
        if blocked(self.model, path):
            with pytest.raises(NotADirectoryError):
                self.fs.append(path, content)
        elif path in self.model and self.model[path] is None:
            with pytest.raises(IsADirectoryError):
                self.fs.append(path, content)
        else:
            self.fs.append(path, content)
            self.put(path, (self.model.get(path) or b"") + content)

    @rule(path=paths)
    def mkdir(self, path: str) -> None:
        if blocked(self.model, path):
            with pytest.raises(NotADirectoryError):
                self.fs.mkdir(path)
        elif self.model.get(path) is not None:
            with pytest.raises(FileExistsError):
                self.fs.mkdir(path)
        else:
            self.fs.mkdir(path)
            self.put(path, None)

    @rule(path=paths, recursive=st.booleans())
    def delete(self, path: str, recursive: bool) -> None:
        if path not in self.model:
            with pytest.raises((FileNotFoundError, NotADirectoryError)):
                self.fs.delete(path, recursive=recursive)
        elif len(below(self.model, path)) > 1 and not recursive:
            with pytest.raises(OSError, match="recursive=True"):
                self.fs.delete(path)
        else:
            self.fs.delete(path, recursive=recursive)
            for gone in below(self.model, path):
                del self.model[gone]

    @rule(source=paths, goal=paths, moved=st.booleans())
    def copy_or_move(self, source: str, goal: str, moved: bool) -> None:
        act = self.fs.move if moved else self.fs.copy
        into_itself = goal.startswith(source + "/")
        if source not in self.model or goal in self.model or blocked(self.model, goal) or into_itself:
            with pytest.raises(OSError):
                act(source, goal)
            return
        act(source, goal)
        taken = {path: self.model[path] for path in below(self.model, source)}
        for path in taken if moved else ():
            del self.model[path]
        for path, content in taken.items():
            self.put(goal + path[len(source) :], content)

    @rule(target=snapshots)
    def snapshot(self) -> tuple[Any, Model]:
        self.alive.append((self.fs.snapshot(), dict(self.model)))
        return self.alive[-1]

    @rule(pair=snapshots)
    def restore(self, pair: tuple[Any, Model]) -> None:
        self.fs.restore(pair[0])
        self.model = dict(pair[1])

    @rule(pair=consumes(snapshots))
    def release(self, pair: tuple[Any, Model]) -> None:
        self.alive = [other for other in self.alive if other is not pair]
        self.fs.release(pair[0])

    @rule(pair=consumes(snapshots))
    def drop(self, pair: tuple[Any, Model]) -> None:
        """The snapshot is simply forgotten."""
        self.alive = [other for other in self.alive if other is not pair]

    @invariant()
    def changes(self) -> None:
        for snapshot, model in self.alive:
            assert self.fs.changes(snapshot) == differences(model, self.model)

    @invariant()
    def same(self) -> None:
        found: Model = {}
        pending = ["."]
        while pending:
            for stat in self.fs.list(pending.pop()):
                found[stat.path] = self.fs.read_bytes(stat.path) if stat.kind == "file" else None
                if stat.kind == "directory":
                    pending.append(stat.path)
        assert found == self.model
        assert sorted(found) == self.fs.glob("**/*")


def run(count: int, steps: int) -> None:
    run_state_machine_as_test(
        Files,
        settings=settings(
            max_examples=count,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_random_histories_match_the_model() -> None:
    """Any mix of writes, deletes, moves, copies, snapshots, restores and releases gives the model's files."""
    run(examples(100), 30)


@pytest.mark.torture
def test_many_random_histories_match_the_model() -> None:
    """The same, at length; `WINK_EXAMPLES` says how often."""
    run(EXAMPLES, 50)
