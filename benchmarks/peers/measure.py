"""Measures one thing of one framework, in that framework's environment: `python -m benchmarks.peers.measure agno sync`.

Prints one number. CPU time of all threads, as a multiple of the floor, which is timed in between: a busy machine slows
both. The garbage collector is on, as it is for users.
"""

import asyncio
import gc
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from time import process_time
from typing import Any

from . import work

ENOUGH = 2.0
"""Seconds of CPU after which no further sample is taken."""
SAMPLES = 9
TOGETHER = 64


def cpu(run: Callable[[], object], times: int) -> float:
    start = process_time()
    for _ in range(times):
        run()
    return process_time() - start


def in_floors(run: Callable[[], object], calls: int, enough: float) -> float:
    """The CPU time of a call among the `calls` that one `run` makes, as a multiple of the floor's."""
    began = process_time()
    run()
    first = process_time() - began
    if first < enough:
        first = cpu(run, 1)
    batch = max(1, int(0.05 / max(first, 1e-6)))
    floors = max(200, int(max(0.02, min(first * batch, 0.2)) / (cpu(work.by_hand, 200) / 200)))
    samples: list[float] = []
    if first >= enough:
        samples.append(first / calls / (cpu(work.by_hand, floors) / floors))
    while not samples or (len(samples) < SAMPLES and process_time() - began < enough):
        spent = cpu(run, batch) / batch
        samples.append(spent / calls / (cpu(work.by_hand, floors) / floors))
    return statistics.median(samples)


def awaited_in_floors(run: Callable[[], Any], calls: int, enough: float) -> float:
    """The same for conversations that are awaited, in one event loop."""
    with asyncio.Runner() as runner:
        return in_floors(lambda: runner.run(run()), calls, enough)


def kept_bytes(make: Callable[[int], Callable[[], object]]) -> float:
    """What a turn leaves behind: memory in use after 110 turns less that after 10, the result of each being held."""

    def kept(turns: int) -> int:
        run = make(turns)
        run()
        gc.collect()
        tracemalloc.start()
        held = run()
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del held
        return size

    few = kept(10)
    return (kept(110) - few) / 100


def measure(name: str, what: str, enough: float = ENOUGH) -> float:
    conversation = import_module(f"benchmarks.peers.{name}").conversation
    kind, _, number = what.partition("-")
    match kind:
        case "sync":
            return in_floors(conversation(1, asynchronous=False), 1, enough)
        case "async":
            return awaited_in_floors(conversation(1, asynchronous=True), 1, enough)
        case "turns":
            return in_floors(conversation(int(number), asynchronous=False), int(number), enough)
        case "memory":
            return kept_bytes(lambda turns: conversation(turns, asynchronous=False))
        case "together":
            one = conversation(1, asynchronous=True)

            async def together() -> None:
                await asyncio.gather(*(one() for _ in range(TOGETHER)))

            return awaited_in_floors(together, TOGETHER, enough)
        case _:
            raise ValueError(what)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{measure(sys.argv[1], sys.argv[2])}\n")
    except NotImplementedError as error:
        sys.stdout.write(f"{error}\n")
