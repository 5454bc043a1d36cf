"""Many threads and tasks on one session: nothing is lost, and what fails takes back exactly its own."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.runtime.limits_parts import Count, call, executor_of, make, outcomes, start, switching_often

from weakincentives.filesystem import InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolResult
from weakincentives.resources import Binding
from weakincentives.runtime import Session, ToolInvoked
from weakincentives.runtime.executor import ToolExecutor

THREADS = 8


@dataclass(frozen=True)
class Step:
    number: int = 0
    fail: str = ""


def bump(params: Step, *, context: ToolContext) -> ToolResult[int]:
    """Reads, hesitates, writes: to slice and file. Fails halfway when asked to."""
    files = context.filesystem
    assert files is not None
    latest = context.session[Count].latest()
    value = 0 if latest is None else latest.value
    assert files.read("n") == str(value), "state and files went apart"
    context.session[Count].seed(Count(value + 1))
    if params.number % 3 == 0:
        time.sleep(0)
    if params.fail == "raise":
        raise ValueError("halfway")
    files.write("n", str(value + 1))
    return ToolResult.error("no") if params.fail else ToolResult.ok(value + 1)


async def abump(params: Step, *, context: ToolContext) -> ToolResult[int]:
    files = context.filesystem
    assert files is not None
    latest = context.session[Count].latest()
    value = 0 if latest is None else latest.value
    assert files.read("n") == str(value), "state and files went apart"
    context.session[Count].seed(Count(value + 1))
    await asyncio.sleep(0)
    files.write("n", str(value + 1))
    return ToolResult.error("no") if params.fail else ToolResult.ok(value + 1)


def hammer(calls: int, work: Callable[[ToolExecutor, int, str], None]) -> tuple[Session, InMemoryFilesystem]:
    session, fs = Session(), InMemoryFilesystem({"n": "0"})
    problems: list[BaseException] = []
    executor = executor_of(bump, abump, make(bump, "limited", timeout=30.0), session=session, fs=fs)

    def thread(number: int) -> None:
        chance = random.Random(number)
        try:
            for step in range(calls):
                work(executor, number * calls + step, chance.choice(["", "", "error", "raise"]))
        except BaseException as error:
            problems.append(error)

    with executor, switching_often():
        threads = [start(lambda n=n: thread(n)) for n in range(THREADS)]
        for each in threads:
            each.join(120)
            assert not each.is_alive(), "deadlock"
    assert not problems
    return session, fs


def check(session: Session, fs: InMemoryFilesystem, calls: int) -> None:
    ended = outcomes(session)
    latest = session[Count].latest()
    assert len(ended) == THREADS * calls
    assert latest is not None
    assert latest.value == ended.count("succeeded") == int(fs.read("n"))
    assert set(ended) <= {"succeeded", "failed", "crashed"}
    assert len(set(ended)) == 3
    ids = [event.call_id for event in session[ToolInvoked].all()]
    assert len(set(ids)) == len(ids)
    values = [event.result.value for event in session[ToolInvoked].all() if event.success and event.result]
    assert values == list(range(1, len(values) + 1)), "the log is not in the order of the effects"


def one_call(executor: ToolExecutor, number: int, fail: str) -> None:
    name = "limited" if number % 16 == 0 else "bump"
    executor.execute(call(name, str(number), number=number, fail=fail))


@pytest.mark.slow  # eight threads
@pytest.mark.parametrize("calls", [100, pytest.param(3000, marks=pytest.mark.torture)])
def test_threads_on_one_session_lose_nothing(calls: int) -> None:
    """Eight threads that read and add, with every other call undone halfway: the counter is exact at every step."""
    check(*hammer(calls, one_call), calls)


def test_threads_with_loops_of_their_own_share_a_session() -> None:
    """Sync and async callers, in different threads and loops, are serialised alike."""

    def work(executor: ToolExecutor, number: int, fail: str) -> None:
        if number % 3:
            return one_call(executor, number, fail)
        asyncio.run(_acall(executor, number, fail))
        return None

    check(*hammer(40, work), 40)


async def _acall(executor: ToolExecutor, number: int, fail: str) -> None:
    await executor.aexecute(call("abump", str(number), number=number, fail=fail))


def test_tasks_on_one_session_lose_nothing() -> None:
    """A hundred tasks that add across an await, a third of them undone: the counter is exact."""
    session, fs = Session(), InMemoryFilesystem({"n": "0"})

    async def main() -> None:
        async with executor_of(abump, session=session, fs=fs) as executor:
            await asyncio.gather(*(_acall(executor, n, "" if n % 3 else "error") for n in range(100)))

    asyncio.run(main())
    latest = session[Count].latest()
    assert latest is not None
    assert latest.value == 66 == int(fs.read("n"))


def test_cancelled_tasks_among_others_lose_nothing() -> None:
    """Tasks cancelled at random moments leave exactly the changes of those that succeeded."""
    session, fs = Session(), InMemoryFilesystem({"n": "0"})
    chance = random.Random(7)

    async def main() -> None:
        async with executor_of(abump, session=session, fs=fs) as executor:
            tasks = [asyncio.create_task(_acall(executor, n, "")) for n in range(200)]
            while not all(task.done() for task in tasks):
                await asyncio.sleep(0)
                chance.choice(tasks).cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    ended = outcomes(session)
    latest = session[Count].latest()
    assert (0 if latest is None else latest.value) == ended.count("succeeded") == int(fs.read("n"))
    assert ended.count("cancelled") > 0
    assert ended.count("succeeded") > 0
    ids = [event.call_id for event in session[ToolInvoked].all()]
    assert len(set(ids)) == len(ids)


def test_many_executors_in_many_threads() -> None:
    """Executors on different sessions do not wait for one another: all of them meet inside their handlers."""
    barrier = threading.Barrier(THREADS)

    def meet(params: Step, *, context: ToolContext) -> ToolResult[int]:
        context.session[Count].append(Count(1))
        return ToolResult.ok(barrier.wait(60))

    executors = [executor_of(meet) for _ in range(THREADS)]
    replies: list[bool] = []
    threads = [start(lambda e=e: replies.append(e.execute(call("meet")).success)) for e in executors]
    for thread in threads:
        thread.join(20)
    assert replies == [True] * THREADS


def test_a_first_call_from_many_threads_enters_the_resources_once() -> None:
    """However many threads make the first call, one close closes what was built."""
    closed: list[int] = []

    class Thing:
        def close(self) -> None:
            closed.append(1)

    def use(params: Step, *, context: ToolContext) -> ToolResult[int]:
        context.resources.get(Thing)
        return ToolResult.ok(1)

    with switching_often():
        for number in range(30):
            executor = executor_of(use, resources={Thing: Binding(Thing, lambda resolver: Thing())})
            barrier = threading.Barrier(4)
            threads = [
                start(lambda e=executor, b=barrier, n=n: (b.wait(60), e.execute(call("use", str(n))))) for n in range(4)
            ]
            for thread in threads:
                thread.join(10)
            executor.close()
            assert len(closed) == number + 1
