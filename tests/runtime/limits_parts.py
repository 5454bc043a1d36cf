"""What the tests of threads, processes, deadlines and turns share. Worker processes import handlers from here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from weakincentives.filesystem import Filesystem
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolResult,
)
from weakincentives.runtime import Session, ToolCall, ToolInvoked
from weakincentives.runtime.executor import ToolExecutor

SLACK = 15.0  # a machine may have eight times as much to do as it can; without the limit it would be for ever
"""What a reply may take beyond its limit."""


@dataclass(frozen=True)
class Count:
    value: int = 0


@dataclass(frozen=True)
class Text:
    text: str = ""


def make(handler: Any, name: str = "", *, read_only: bool = False, **options: Any) -> Tool[Any, Any]:
    """A tool of a handler; its name is the handler's."""
    annotations = ToolAnnotations(read_only=read_only)
    name = name or handler.__name__.strip("_")
    options = {"max_repeats": None, **options}
    return Tool(name=name, description="For tests.", handler=handler, annotations=annotations, **options)


def prompt_of(
    *tools: Any, fs: Filesystem | None = None, resources: Any = None, policies: Sequence[Any] = ()
) -> Prompt[Any]:
    """A prompt with these tools, made of handlers where needed, under these policies."""
    made: list[Tool[Any, Any]] = [tool if isinstance(tool, Tool) else make(tool) for tool in tools]
    section = MarkdownSection(title="Tools", template="", tools=made, policies=policies)
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="tests", key="limits", sections=[section]))
    bound = dict(resources or {})
    if fs is not None:
        bound[Filesystem] = fs
    return prompt.bind(resources=bound) if bound else prompt


def executor_of(*tools: Any, session: Session | None = None, **options: Any) -> ToolExecutor:
    """An executor of these tools on a session."""
    given = {key: options.pop(key) for key in ("fs", "resources", "policies") if key in options}
    return ToolExecutor(prompt=prompt_of(*tools, **given), session=session or Session(), **options)


def call(name: str, call_id: str = "1", /, **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, arguments)


def outcomes(session: Session) -> list[str]:
    """How the calls ended, in the order of the log."""
    return [event.outcome for event in session[ToolInvoked].all()]


def eventually(true: Callable[[], object], seconds: float = 60.0) -> bool:
    """Wait until it is so; AssertionError when it is not so for too long."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, f"not so after {seconds:g} s"
        time.sleep(0.005)
    return True


def start(function: Callable[[], object]) -> threading.Thread:
    """A daemon thread that runs the function."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


@contextmanager
def switching_often() -> Generator[None]:
    """Make races likely."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def ok(params: Text) -> ToolResult[str]:
    return ToolResult.ok(params.text)


# Nine ways to be stuck. Threads get an event that lets the ones that can return go; processes are killed.

release = threading.Event()


def stuck_sleep(params: Text, *, context: ToolContext) -> ToolResult[str]:
    while not release.is_set():
        time.sleep(0.05)
    return _late(context)


def stuck_busy(params: Text, *, context: ToolContext) -> ToolResult[str]:
    while not release.is_set():
        pass
    return _late(context)


def stuck_lock(params: Text, *, context: ToolContext) -> ToolResult[str]:
    release.wait()
    return _late(context)


def stuck_read(params: Text, *, context: ToolContext) -> ToolResult[str]:
    reader, writer = os.pipe()
    start(lambda: (release.wait(), os.close(writer)))
    os.read(reader, 1)
    os.close(reader)
    return _late(context)


def stuck_subprocess(params: Text, *, context: ToolContext) -> ToolResult[str]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as child:
        if params.text:
            with open(params.text, "w") as file:
                file.write(str(child.pid))
        start(lambda: (release.wait(), child.kill()))
        child.wait()
    return _late(context)


def stuck_catching(params: Text, *, context: ToolContext) -> ToolResult[str]:
    while not release.is_set():
        try:
            time.sleep(0.02)
        except BaseException:
            continue
    return _late(context)


def stuck_regex(params: Text) -> ToolResult[str]:
    re.match(r"(a+)+$", "a" * 64 + "b")
    return ToolResult.ok("done")


def stuck_power(params: Text) -> ToolResult[str]:
    return ToolResult.ok(str(7**7**10 % 10))


def stuck_c_loop(params: Text) -> ToolResult[str]:
    return ToolResult.ok(str(sum(range(10**12))))


def _late(context: ToolContext) -> ToolResult[str]:
    context.session[Count].append(Count(999))
    return ToolResult.ok("too late")


GIVES_WAY = (stuck_sleep, stuck_busy, stuck_lock, stuck_read, stuck_subprocess, stuck_catching)
"""They let other threads run, so a caller can give up on them."""

HOLDS_GIL = (stuck_regex, stuck_power, stuck_c_loop)
"""They do not: only killing their process helps."""


# For worker processes.


def tell(params: Text, *, context: ToolContext) -> ToolResult[str]:
    """What reached the worker: params, deadline, run context, process id."""
    run_id = "none" if context.run_context is None else context.run_context.run_id
    left = "none" if context.deadline is None else f"{context.deadline.remaining().total_seconds():.0f}"
    return ToolResult.ok(f"{params.text or '-'} {run_id} {left} {os.getpid()} {context.idempotency_key}")


def beats(params: Text, *, context: ToolContext) -> ToolResult[str]:
    """Beat three times, once from a thread."""
    context.beat()
    thread = threading.Thread(target=context.beat)
    thread.start()
    thread.join()
    context.beat()
    return ToolResult.ok("done")


_earlier: list[ToolContext] = []


def beats_for_an_earlier_call(params: Text, *, context: ToolContext) -> ToolResult[str]:
    """Keep the context; a later call of the same process beats with it."""
    if not _earlier:
        _earlier.append(context)
        return ToolResult.ok("kept")
    _earlier[0].beat()
    return ToolResult.ok("beaten")


async def tell_async(params: Text) -> ToolResult[str]:
    return ToolResult.ok(f"async {os.getpid()}")


def writes_there(params: Text, *, context: ToolContext) -> ToolResult[Count]:
    context.session[Count].append(Count(1))
    return ToolResult.ok(Count(2))


class OddError(Exception):
    """Pickles, but cannot be rebuilt."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


def fails(params: Text) -> ToolResult[Any]:
    """Fails in the way that is asked for."""
    from weakincentives.errors import DeadlineExceededError, ToolValidationError

    match params.text:
        case "value":
            raise ValueError("no such value")
        case "tool":
            raise ToolValidationError("say it otherwise")
        case "deadline":
            raise DeadlineExceededError("time is up")
        case "odd":
            raise OddError("this", "that")
        case "unpicklable":
            error = RuntimeError("holds a lock")
            error.lock = threading.Lock()  # pyright: ignore[reportAttributeAccessIssue]
            raise error
        case "result":
            return ToolResult.ok(threading.Lock())
        case "exit":
            os._exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case _:
            return ToolResult.error("as expected")


def child_of_ours(params: Text) -> ToolResult[str]:
    """Starts a process, writes its id to a file, and waits for ever."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    with open(params.text, "w") as file:
        file.write(str(child.pid))
    time.sleep(3600)
    return ToolResult.ok("")


def fd_count() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> set[int]:
    """The live processes below this one."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    after = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if after[0] != "Z":
                found[int(name)] = int(after[1])
    below, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, parent in found.items() if parent in below} - below
        below |= more
        grown = bool(more)
    return below - {os.getpid()}


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
