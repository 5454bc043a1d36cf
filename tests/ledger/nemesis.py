"""Processes that do the same work while something kills and pauses them: run as a program, it prints what came of it.

Workers are forked, so that each has a fresh connection and dies alone. All of them walk along the same keys, so that
most calls have rivals. The outside world is one small file a key: a line for each effect that really happened.
"""

from __future__ import annotations

import fcntl
import gc
import itertools
import json
import logging
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from weakincentives.errors import NoEffect
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from weakincentives.runtime import (
    IdempotencyConfig,
    Ledger,
    PostgresEffectLedger,
    Session,
    SqliteEffectLedger,
    ToolCall,
    ToolReply,
)
from weakincentives.runtime.executor import ToolExecutor

LEASE = 0.25
WORKERS = 8


@dataclass(frozen=True)
class Plan:
    """What to do: `policy` is "unknown", "retry" or "reconcile"; `kills` and `pauses` are how many."""

    ledger: str
    policy: str
    kills: int
    pauses: int
    seed: int
    fenced: bool = False


@dataclass
class Report:
    """What came of it."""

    keys: int = 0
    effects: int = 0
    repeated: list[str] = field(default_factory=list[str])
    succeeded_without_effect: list[str] = field(default_factory=list[str])
    ran_twice: list[str] = field(default_factory=list[str])
    unknown: int = 0
    unknown_that_happened: int = 0
    without_effect: list[str] = field(default_factory=list[str])
    kills: int = 0
    pauses: int = 0
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    stderr: str = ""


@dataclass(frozen=True)
class Charge:
    account: str


class World:
    """The service outside. With fencing it refuses older tokens than the newest it has seen."""

    def __init__(self, directory: Path, fenced: bool) -> None:
        self.directory = directory
        self.fenced = fenced

    def charge(self, account: str, token: int) -> None:
        with open(self.directory / account, "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if self.fenced and self._newest(file) > token:
                raise NoEffect("An older claim.")
            file.write(f"E {token}\n")
            file.flush()

    def has_charged(self, account: str, token: int) -> bool:
        with open(self.directory / account, "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._newest(file)
            file.write(f"L {token}\n")
            file.flush()
        return self.effects(account) > 0

    def effects(self, account: str) -> int:
        try:
            return (self.directory / account).read_text().count("E ")
        except FileNotFoundError:
            return 0

    @staticmethod
    def _newest(file: Any) -> int:
        file.seek(0)
        return max((int(line.split()[1]) for line in file if line.strip()), default=0)


def open_ledger(name: str) -> Ledger:
    return PostgresEffectLedger(name) if "host=" in name else SqliteEffectLedger(name)


def executor(plan: Plan, world: World, ledger: Ledger, rng: random.Random) -> ToolExecutor:
    def nap() -> None:
        time.sleep(rng.choice((0.0, 0.001, 0.003, 0.006)))

    def charge(params: Charge, *, context: ToolContext) -> ToolResult[str]:
        nap()
        world.charge(params.account, context.fencing_token or 0)
        nap()
        return ToolResult.ok(params.account, message="Charged.")

    def look_up(params: Charge, *, context: ToolContext) -> ToolResult[str] | None:
        nap()
        if world.has_charged(params.account, context.fencing_token or 0):
            return ToolResult.ok(params.account, message="Charged.")
        return None

    lease = timedelta(seconds=LEASE)
    if plan.policy == "reconcile":
        config = IdempotencyConfig(scope="bank", lease=lease, reconcile=look_up)
    else:
        config = IdempotencyConfig(
            scope="bank", lease=lease, on_exception="retry" if plan.policy == "retry" else "unknown"
        )
    tool = Tool[Charge, str](name="charge", description="Charge.", handler=charge, idempotency=config, max_repeats=None)
    section = MarkdownSection(title="Bank", template="", tools=[tool])
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="tests", key="nemesis", sections=[section]))
    return ToolExecutor(prompt=prompt, session=Session(), effect_ledger=ledger)


def ask(run: ToolExecutor, number: int, ids: Any) -> ToolReply:
    return run.execute(ToolCall(f"c{next(ids)}", "charge", {"account": f"k{number:06}"}))


class Shared:
    """Where each worker is, and whether it is time to stop: memory that all of them see."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8 * (WORKERS + 1))

    def __getitem__(self, index: int) -> int:
        return struct.unpack_from("q", self._memory, 8 * index)[0]

    def __setitem__(self, index: int, value: int) -> None:
        struct.pack_into("q", self._memory, 8 * index, value)

    @property
    def front(self) -> int:
        return max(self[index] for index in range(WORKERS))


STOP = WORKERS


def work(plan: Plan, world: World, shared: Shared, index: int, seed: int, log: Path) -> None:
    """A worker's life: walk along the keys, saying before each what it will do and after it what came of it."""
    rng, ids = random.Random(seed), itertools.count()
    ledger = open_ledger(plan.ledger)
    run = executor(plan, world, ledger, rng)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    number = max(0, shared.front - 3)
    while not shared[STOP]:
        reply = ask(run, number, ids)
        os.write(out, f"k{number:06} {reply.outcome}\n".encode())
        number += 1
        shared[index] = max(shared[index], number)


def spawn(plan: Plan, world: World, shared: Shared, index: int, seed: int, log: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work(plan, world, shared, index, seed, log)
        status = 0
    finally:
        os._exit(status)


def torment(plan: Plan, world: World, directory: Path) -> tuple[Report, Path]:
    rng, shared, report = random.Random(plan.seed), Shared(), Report()
    log = directory / "outcomes"
    seeds = itertools.count(plan.seed * 1000)
    pids = [spawn(plan, world, shared, index, next(seeds), log) for index in range(WORKERS)]
    paused: dict[int, float] = {}
    while report.kills < plan.kills or report.pauses < plan.pauses:
        time.sleep(rng.uniform(0.005, 0.05))
        for pid, until in list(paused.items()):
            if time.monotonic() > until:
                os.kill(pid, signal.SIGCONT)
                del paused[pid]
        index = rng.randrange(WORKERS)
        if pids[index] in paused:
            continue
        kill = report.kills / max(1, plan.kills) <= report.pauses / max(1, plan.pauses) or not plan.pauses
        if kill and report.kills < plan.kills:
            os.kill(pids[index], signal.SIGKILL)
            os.waitpid(pids[index], 0)
            report.kills += 1
            pids[index] = spawn(plan, world, shared, index, next(seeds), log)
        elif len(paused) < WORKERS // 2:
            os.kill(pids[index], signal.SIGSTOP)
            paused[pids[index]] = time.monotonic() + rng.uniform(LEASE * 1.1, LEASE * 2.5)
            report.pauses += 1
    for pid in paused:
        os.kill(pid, signal.SIGCONT)
    shared[STOP] = 1
    failed = [status for status in (os.waitpid(pid, 0)[1] for pid in pids) if status]
    assert not failed, f"{len(failed)} workers failed"
    report.keys = shared.front
    return report, log


def examine(plan: Plan, world: World, report: Report, log: Path) -> None:
    """Ask for every key once more, and compare what is said with what happened."""
    time.sleep(LEASE * 1.5)
    ledger = open_ledger(plan.ledger)
    run = executor(plan, world, ledger, random.Random(0))
    ids = itertools.count()
    said = Counter(line for line in log.read_text().splitlines())
    report.outcomes = dict(Counter(line.split()[1] for line in said.elements()))
    for number in range(report.keys):
        key = f"k{number:06}"
        before = world.effects(key)
        reply = ask(run, number, ids)
        effects = world.effects(key)
        report.effects += effects
        if effects > 1:
            report.repeated.append(key)
        if said[f"{key} succeeded"] > 1:
            report.ran_twice.append(key)
        if reply.success and effects == 0:
            report.succeeded_without_effect.append(key)
        if reply.outcome == "unknown":
            report.unknown += 1
            report.unknown_that_happened += effects
            assert "do not repeat it" in reply.text, reply.text
            assert before == effects
        elif not reply.success:
            raise AssertionError(reply)
        if effects == 0:
            report.without_effect.append(key)
    ledger.close()


def warm_up(plan: Plan, directory: Path) -> None:
    """One call beforehand: otherwise each worker, after every kill, would first import what a call needs."""
    (directory / "warm").mkdir()
    ledger = open_ledger(str(directory / "warm.db"))
    executor(plan, World(directory / "warm", plan.fenced), ledger, random.Random(0)).execute(
        ToolCall("c0", "charge", {"account": "warm"})
    )
    ledger.close()
    gc.freeze()


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "world").mkdir()
        world = World(directory / "world", plan.fenced)
        open_ledger(plan.ledger).close()
        warm_up(plan, directory)
        report, log = torment(plan, world, directory)
        examine(plan, world, report, log)
    print(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
