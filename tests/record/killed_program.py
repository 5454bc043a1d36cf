"""The program that test_killed and test_every_write run and kill: `killed_program.py kill SEED...` and others, below.

It works in the current directory. What happens outside the engine's reach (questions to the model, payments, mails) is
told to `told.txt`; the run that came to its end leaves `result.json`.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from weakincentives import MainLoop, Session, ToolInvoked
from weakincentives.adapters import ModelMessage, ModelRequest, ModelTurn, TurnAdapter
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.errors import RecordError
from weakincentives.prompt import (
    IdempotencyConfig,
    MarkdownSection,
    Prompt,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolResult,
)
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.messages import CallMessage
from weakincentives.runtime.record.rows import NewRows, RunInfo

HERE, TURNS = Path(), int(os.environ.get("TURNS", "10"))
TOLD = HERE / "told.txt"
ONCE = IdempotencyConfig(scope="session", lease=timedelta(seconds=2))


def tell(kind: str, text: str) -> None:
    """Something happened outside."""
    with TOLD.open("a") as file:
        file.write(f"{kind} {text}\n")


@dataclass(frozen=True)
class Item:
    name: str


@dataclass(frozen=True)
class Added:
    name: str


class Model(TurnAdapter):
    """Wants the same four calls in each turn; its text is another one whenever it is asked."""

    def ask(self, request: ModelRequest) -> ModelTurn:
        at = sum(isinstance(message, ModelMessage) for message in request.messages)
        if at == TURNS:
            return ModelTurn("done")
        made: list[tuple[str, dict[str, Any]]] = [
            ("add", {"name": f"i{at}"}),
            ("write_file", {"path": f"f{at % 3}.txt", "content": f"turn {at}", "overwrite": True}),
            ("pay", {"name": f"p{at}"}),
            ("mail", {"name": f"m{at}"}),
        ]
        calls = tuple(CallMessage(f"t{at}c{n}", name, json.dumps(args)) for n, (name, args) in enumerate(made))
        tell("asked", f"{at}")
        return ModelTurn(os.urandom(4).hex(), calls, stop_reason="tool_use")


class Counts:
    """A resource that is on record: how often each name was added."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    def snapshot(self) -> dict[str, int]:
        return dict(self.names)

    def restore(self, snapshot: dict[str, int], /) -> None:
        self.names = dict(snapshot)

    def record_delta(self, since: dict[str, int] | None, /) -> Any:
        if since is None:
            return {"all": self.names}
        return {name: count - since.get(name, 0) for name, count in self.names.items() if count != since.get(name)}

    def apply(self, delta: Any, /) -> None:
        if "all" in delta:
            self.names = {}
        for name, count in delta.get("all", delta).items():
            self.names[name] = self.names.get(name, 0) + count


def add(params: Item, *, context: ToolContext) -> ToolResult[Any]:
    names = context.resources.get(Counts).names
    names[params.name] = names.get(params.name, 0) + 1
    context.session[Added].append(Added(params.name))
    return ToolResult.ok(None, "Added.")


def pay(params: Item) -> ToolResult[str]:
    tell("paid", params.name)
    return ToolResult.ok("paid " + params.name)


def mail(params: Item) -> ToolResult[str]:
    tell("mailed", params.name)
    return ToolResult.ok("mailed " + params.name)


class Loop(MainLoop[str, Any]):
    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        session = Session(bus=self.bus)
        self.counts = Counts()
        root = HERE / "root"
        root.mkdir(exist_ok=True)
        files = VfsToolsSection(session=session, config=VfsConfig(root=root))
        tools: list[Tool[Any, Any]] = [
            Tool[Item, Any](name="add", description="a", handler=add, annotations=ToolAnnotations(open_world=False)),
            Tool[Item, str](name="pay", description="p", handler=pay, idempotency=ONCE),
            Tool[Item, str](name="mail", description="m", handler=mail),
        ]
        task = MarkdownSection(title="Task", template=request, tools=tools)
        return Prompt(name="killed", sections=[task, files]).bind(resources={Counts: self.counts}), session


class FailingStore(SqliteRunStore):  # pyright: ignore[reportGeneralTypeIssues] - final, but for this fault
    """Ends the process before or after the n-th write to the record, or fails it."""

    def __init__(self, path: Path, at: int, how: str) -> None:
        super().__init__(path)
        self._left, self._how = at, how

    def append(self, info: RunInfo, rows: NewRows) -> None:
        self._left -= 1
        if self._left == 0 and self._how == "fail":
            raise RecordError("disk full")
        if self._left == 0 and self._how == "before":
            os._exit(9)
        super().append(info, rows)
        if self._left == 0:
            os._exit(9)


class FileFaultStore(SqliteRunStore):  # pyright: ignore[reportGeneralTypeIssues] - final, but for this fault
    """Ends the process at the n-th file operation after a changed file is on record, or fails that operation."""

    OPERATIONS = frozenset(
        {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.listdir", "os.scandir"}
    )

    def __init__(self, path: Path, at: int, how: str) -> None:
        super().__init__(path)
        self._left, self._how = at, how
        self._is_armed = False
        sys.addaudithook(self._hear)

    def _hear(self, operation: str, _: tuple[object, ...]) -> None:
        if self._is_armed and operation in self.OPERATIONS:
            self._left -= 1
            if self._left == 0:
                if self._how == "exit":
                    os._exit(9)
                raise OSError(errno.ENOSPC, "No space left on device")

    def append(self, info: RunInfo, rows: NewRows) -> None:
        super().append(info, rows)
        # Until the next row: by then the call is kept and its undo state is gone. The second time a file is written.
        self._is_armed = any(
            step.tool == "write_file" and step.kind == "call" and step.turn == 2 for step in rows.steps
        )


def run_once(store: SqliteRunStore | None = None) -> None:
    """Begin the run, or go on with it."""
    store = SqliteRunStore(HERE / "runs.db") if store is None else store
    loop = Loop(Model(), config=MainLoopConfig(runs=store, effect_ledger=store.ledger(), record_types=(Added,)))
    response, session = loop.execute("go", run_id="run")
    result = {
        "text": response.text,
        "turns": response.turns,
        "counts": loop.counts.names,
        "added": [item.name for item in session[Added].all()],
        "events": [[event.call_id, event.tool_name, event.outcome] for event in session[ToolInvoked].all()],
    }
    (HERE / "result.json").write_text(json.dumps(result))


def forked(work: Callable[[], object]) -> int:
    """A process that does this; it exits with 0, or with 3 when it raised."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    return child


def lines() -> int:
    """How much was told so far."""
    return TOLD.read_bytes().count(b"\n") if TOLD.exists() else 0


def run_until_done(seed: int) -> tuple[int, int]:
    """Run in one process after another, each killed at a random moment, until one comes to the end."""
    return run_until(run_once, seed)


def run_until(work: Callable[[], object], seed: int) -> tuple[int, int]:
    """The same for any work."""
    chance, kills = random.Random(seed), 0
    while True:
        child = forked(work)
        until, begun = lines() + chance.randrange(0, 9), time.monotonic()
        while lines() < until and time.monotonic() < begun + 60:
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.0002)
        time.sleep(chance.uniform(0, 0.012))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return kills, os.waitstatus_to_exitcode(status)
        kills += 1


def run_with_fault(at: int, how: str) -> tuple[int, int]:
    """Run with a fault at one write to the record, or at one of a file after that, then without."""

    def fail() -> None:
        path = HERE / "runs.db"
        files = how.removeprefix("file-")
        run_once(FailingStore(path, at, how) if files == how else FileFaultStore(path, at, files))

    _, status = os.waitpid(forked(fail), 0)
    first = os.waitstatus_to_exitcode(status)
    _, status = os.waitpid(forked(run_once), 0)
    return first, os.waitstatus_to_exitcode(status)


def within(directory: str, work: Callable[[], tuple[int, int]]) -> None:
    """Do this in a directory of its own, and print how it ended."""
    Path(directory).mkdir()
    os.chdir(directory)
    print(directory, *work(), flush=True)  # noqa: T201 - read by the test
    os.chdir("..")


def main(how: str, *numbers: str) -> None:
    """`kill SEED...`, or one of `before`, `after`, `fail`, `file-exit`, `file-fail` and the numbers of operations."""
    within("warm", lambda: (0, run_once() or 0))  # imports what is imported late: otherwise every process would
    for number in numbers:
        if how == "kill":
            within(number, lambda seed=int(number): run_until_done(seed))
        else:
            within(number, lambda at=int(number): run_with_fault(at, how))


if __name__ == "__main__":
    main(*sys.argv[1:])
