"""`MainLoop.stream_results`, retries, and what a batch logs and raises."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any, cast

import pytest
from pydantic import BaseModel
from tests.runtime.limits_parts import eventually

from weakincentives.errors import EndlessRequestsError, PromptEvaluationError
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from weakincentives.runtime import LoopResult, MainLoop, MainLoopConfig, Retries, Session, ToolInvoked
from weakincentives.testing import ScriptedAdapter, call, say
from weakincentives.threads import abandoned_count

WAIT = 60.0


class Question(BaseModel):
    text: str = "Where is o-7?"


class Steps(MainLoop[str, Any]):
    """The name of a request says what its tool does: `wait` until `go`, `boom` raises; `say` has no call."""

    def __init__(self, **config: Any) -> None:
        self.go = threading.Event()
        self.waiting = threading.Event()
        self.sessions: dict[str, Session] = {}
        self.prepared: list[str] = []
        super().__init__(adapter=ScriptedAdapter(*[self.play] * 10_000), config=MainLoopConfig(**config))

    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        self.prepared.append(request)
        if request.startswith("unprepared"):
            raise LookupError("no such request")

        def act(params: None, *, context: ToolContext) -> ToolResult[str]:
            if context.filesystem is not None:
                context.filesystem.write(f"{request}.txt", request)
            if request.startswith("wait"):
                self.waiting.set()
                self.go.wait(WAIT)
            if request.startswith("boom"):
                raise ValueError("the tool failed\nwith password=hunter2xyz")
            return ToolResult.ok(request)

        tool = Tool[None, str](name="act", description="Act.", handler=act)
        self.sessions[request] = Session()
        prompt = Prompt[Any](name="steps", sections=[MarkdownSection(title="A", template=request, tools=[tool])])
        return prompt, self.sessions[request]

    def play(self, request: Any) -> Any:
        text = request.messages[0].text.split()[-1]
        if text.startswith("dead"):
            raise RuntimeError("the line is dead")
        done = text.startswith("say") or len(request.messages) > 1
        return say(f"answer to {text}") if done else call("act")


def names(results: list[LoopResult[str, Any]]) -> list[str]:
    return [result.request for result in results]


# Results as they come.


def test_a_result_is_given_while_others_still_run() -> None:
    """What is quick does not wait for what is slow, and the slow one goes on while a result is handled."""
    loop = Steps()
    results = loop.stream_results(["wait", "a", "b"], concurrency=2)
    assert names([next(results), next(results)]) == ["a", "b"]
    loop.go.set()
    assert eventually(lambda: loop.sessions["wait"][ToolInvoked].count() == 1)  # nobody asks for a result meanwhile
    assert names(list(results)) == ["wait"]


def test_a_result_is_given_while_others_still_run_in_async_code() -> None:
    """`astream_results` gives the same in the event loop that runs."""
    loop = Steps()

    async def main() -> list[str]:
        seen: list[str] = []
        async for result in loop.astream_results(["wait", "a", "b"], concurrency=2):
            seen.append(result.request)
            if len(seen) == 2:
                loop.go.set()
        return seen

    assert asyncio.run(main()) == ["a", "b", "wait"]


def test_one_at_a_time_a_request_begins_when_its_result_is_asked_for() -> None:
    """With a concurrency of 1 nothing happens behind the caller's back."""
    loop = Steps()
    results = loop.stream_results(iter(["a", "dead", "c"]))
    assert loop.prepared == []
    assert next(results).ok
    assert loop.prepared == ["a"]
    assert [result.ok for result in results] == [False, True]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_requests_that_never_end_are_streamed(concurrency: int) -> None:
    """No more of them are taken than there is room for, and nothing is kept."""
    taken: list[int] = []

    def source() -> Iterator[str]:
        for number in itertools.count():
            taken.append(number)
            yield f"r{number}"

    results = Steps().stream_results(source(), concurrency=concurrency)
    assert len([next(results) for _ in range(20)]) == 20
    assert len(taken) <= 20 + concurrency
    results.close()
    assert len(taken) <= 20 + concurrency


def test_an_asynchronous_source_holds_no_result_back() -> None:
    """While the next request is waited for, results of those before it are given."""
    loop = Steps()

    async def main() -> list[str]:
        more = asyncio.Event()
        seen: list[str] = []

        async def source() -> AsyncIterator[str]:
            yield "a"
            await more.wait()
            yield "b"

        async for result in loop.astream_results(source(), concurrency=4):
            seen.append(result.request)
            more.set()
        assert names(await loop.arun(source())) == ["a", "b"]
        return seen

    assert asyncio.run(main()) == ["a", "b"]
    with pytest.raises(TypeError, match=r"use arun\(\) or astream_results\(\)"):
        loop.run(aiter_of("a"))  # pyright: ignore[reportArgumentType]


async def aiter_of(*requests: str) -> AsyncIterator[str]:
    for request in requests:
        yield request


@pytest.mark.parametrize("is_async", [False, True])
def test_leaving_early_undoes_what_is_running(is_async: bool) -> None:
    """A call that was running is recorded as cancelled and leaves nothing behind."""
    files = InMemoryFilesystem()
    loop = Steps(resources={Filesystem: files})

    async def main() -> None:
        async with aclosing(loop.astream_results(["wait", "say"], concurrency=2)) as results:
            assert (await anext(results)).request == "say"
            await asyncio.to_thread(loop.waiting.wait)

    begun = time.monotonic()
    try:
        if is_async:
            asyncio.run(main())
        else:
            results = loop.stream_results(["wait", "say"], concurrency=2)
            assert next(results).request == "say"
            loop.waiting.wait()
            results.close()
        assert time.monotonic() - begun < WAIT / 2
    finally:
        loop.go.set()
    assert eventually(lambda: abandoned_count() == 0)
    assert [event.outcome for event in loop.sessions["wait"][ToolInvoked].all()] == ["cancelled"]
    assert not files.exists("wait.txt")
    assert not [thread for thread in threading.enumerate() if thread.name == "wink-batch"]


def test_an_error_of_the_source_is_raised_and_ends_what_runs() -> None:
    """It is no request's failure."""
    loop = Steps()

    def source() -> Iterator[str]:
        yield "wait"
        raise OSError("the queue is gone")

    try:
        with pytest.raises(OSError, match="the queue is gone"):
            list(loop.stream_results(source(), concurrency=2))
    finally:
        loop.go.set()
    assert eventually(lambda: abandoned_count() == 0)


def test_streaming_is_refused_where_it_would_block_or_makes_no_sense() -> None:
    """At once, not with the first result."""
    with pytest.raises(ValueError, match="concurrency must be 1 or more"):
        Steps().stream_results(["a"], concurrency=0)

    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"async for result in loop\.astream_results"):
            Steps().stream_results(["a"], concurrency=2)

    asyncio.run(main())


@pytest.mark.parametrize("one", ["Where is o-7?", b"raw", {"text": "Where is o-7?"}, Question(), 7, None])
def test_one_request_is_not_taken_for_many(one: Any) -> None:
    """Text would be asked letter by letter, a mapping key by key; nothing runs, and the message says what to write."""
    loop = Steps()
    message = rf"{type(one).__name__} is one request; pass a list: \[request\]"
    with pytest.raises(TypeError, match=message):
        loop.run(one)
    with pytest.raises(TypeError, match=message):
        loop.run(one, concurrency=2)
    with pytest.raises(TypeError, match=message):
        loop.stream_results(one)

    async def main() -> None:
        with pytest.raises(TypeError, match=message):
            await loop.arun(one)
        with pytest.raises(TypeError, match=message):
            loop.astream_results(one)

    asyncio.run(main())
    assert loop.prepared == []


@pytest.mark.parametrize("number", ["2", 1.5, None, True])
def test_a_concurrency_that_is_no_number_is_refused(number: Any) -> None:
    """With the name of the option, not with an error of a comparison."""
    with pytest.raises(TypeError, match="concurrency must be an int, got"):
        Steps().stream_results(["a"], concurrency=number)


def test_an_asynchronous_source_is_for_the_asynchronous_methods() -> None:
    """The message names them."""

    async def source() -> AsyncIterator[str]:
        yield "say"

    with pytest.raises(TypeError, match=r"async_generator is asynchronous; use arun\(\) or astream_results\(\)"):
        list(Steps().stream_results(cast("Any", source())))


def test_a_handler_that_exits_ends_the_stream_in_the_callers_thread() -> None:
    """`SystemExit` is the program's, not the background thread's."""

    class Exits(Steps):
        def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
            raise SystemExit(3)

    with pytest.raises(SystemExit):
        list(Exits().stream_results(["a", "b"], concurrency=2))


# Endless requests.


@pytest.mark.parametrize("endless", [itertools.count(), itertools.cycle(["a"]), itertools.repeat("a")])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_collecting_what_never_ends_is_refused(endless: Any, concurrency: int) -> None:
    """Iterators that are known never to end are refused before anything runs."""
    loop = Steps()
    with pytest.raises(ValueError, match=r"never ends; use stream_results\(\)"):
        loop.run(endless, concurrency=concurrency)
    assert loop.prepared == []
    assert len(loop.run(itertools.repeat("a", 3), concurrency=concurrency)) == 3


@pytest.mark.parametrize("concurrency", [1, 2])
def test_collecting_stops_when_there_are_too_many(concurrency: int) -> None:
    """Of what cannot be counted only so many results are collected; the error has them, so none of them is lost."""
    loop = Steps()
    with pytest.raises(EndlessRequestsError, match=r"Use stream_results\(\)") as caught:
        loop.run((f"r{number}" for number in itertools.count()), concurrency=concurrency, max_requests=4)
    assert len(caught.value.results) == 5
    assert names(caught.value.results) == sorted(names(caught.value.results))
    assert len(loop.prepared) <= 5 + concurrency
    assert len(loop.run((f"r{number}" for number in range(4)), concurrency=concurrency, max_requests=4)) == 4


# Retries.


class Flaky(Steps):
    """Fails as often as it is told to, in `prepare` or when the model is asked."""

    def __init__(self, failures: dict[str, int], **config: Any) -> None:
        super().__init__(**config)
        self.failures = dict(failures)

    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        if self._fails("prepare"):
            raise LookupError("not now")
        return super().prepare(request)

    def play(self, request: Any) -> Any:
        if self._fails("request"):
            raise RuntimeError("the line is dead")
        if self._fails("tool"):
            raise PromptEvaluationError("no more", phase="tool")
        return super().play(request)

    def _fails(self, phase: str) -> bool:
        left = self.failures.get(phase, 0)
        self.failures[phase] = left - 1
        return left > 0


@pytest.mark.parametrize("concurrency", [1, 2])
def test_failed_requests_are_tried_again_by_phase(concurrency: int) -> None:
    """Each phase has its own number of further attempts; an attempt has the same request id and a new run id."""
    loop = Flaky({"prepare": 1, "request": 2})
    seen: list[str] = []
    retries = Retries(prepare=1, request=2, delay=0.01)
    loop.config = MainLoopConfig(on_event=lambda _: None)
    results = loop.run(["a"], concurrency=concurrency, retries=retries, progress=lambda told: seen.append(str(told)))
    assert [(result.ok, result.attempts, result.phase) for result in results] == [(True, 4, None)]
    assert seen == ["1 of 1 done"]  # a request is over once
    assert results[0].session is loop.sessions["a"]
    event = loop.sessions["a"][ToolInvoked].latest()
    assert event is not None
    assert event.run_context == results[0].run_context


@pytest.mark.parametrize(
    ("failures", "retries", "phase", "attempts"),
    [
        ({"request": 2}, Retries(request=1, delay=0), "request", 2),
        ({"request": 1}, Retries(response=5, prepare=5, delay=0), "request", 1),
        ({"tool": 1}, Retries(request=5, delay=0), "tool", 1),
        ({"prepare": 9}, Retries(prepare=3, delay=0), "prepare", 4),
        ({"request": 1}, None, "request", 1),
    ],
)
def test_only_the_named_phases_are_tried_again(
    failures: dict[str, int], retries: Retries | None, phase: str, attempts: int
) -> None:
    """The result of the last attempt is the result."""
    (result,) = Flaky(failures).run(["a"], retries=retries)
    assert (result.ok, result.phase, result.attempts) == (False, phase, attempts)


def test_retries_take_no_nonsense() -> None:
    """Negative numbers are refused, and waits grow."""
    with pytest.raises(ValueError, match="0 or more"):
        Retries(request=-1)
    begun = time.monotonic()
    (result,) = Flaky({"request": 2}).run(["a"], retries=Retries(request=2, delay=0.05))
    assert result.ok
    assert result.duration <= time.monotonic() - begun
    assert result.duration >= 0.15


# What is raised and logged.


@pytest.mark.parametrize("concurrency", [1, 2])
def test_tracebacks_begin_where_it_failed(concurrency: int) -> None:
    """No exception of ours that was already handled stands at the top of it."""
    for result in Steps().run(["dead", "unprepared"], concurrency=concurrency):
        assert result.error is not None
        text = "".join(traceback.format_exception(result.error))
        assert "no running event loop" not in text


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("request_", ["boom", "dead", "unprepared"])
def test_a_crash_is_one_line_with_its_ids(request_: str, concurrency: int, caplog: pytest.LogCaptureFixture) -> None:
    """A reader of the log finds the request and the run; the traceback is for those who ask for it."""
    caplog.set_level(logging.INFO, "weakincentives")
    (result,) = Steps().run([request_], concurrency=concurrency)
    crashes = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(crashes) == 1
    text = logging.Formatter().format(crashes[0])
    assert len(text.splitlines()) == 1
    assert {"boom": "ValueError: the tool failed", "dead": "the line is dead"}.get(request_, "no such request") in text
    assert "hunter2" not in text
    assert text.endswith(f"(request_id={result.run_context.request_id}, run_id={result.run_context.run_id})")
    assert vars(crashes[0])["run_id"] == result.run_context.run_id

    caplog.clear()
    caplog.set_level(logging.DEBUG, "weakincentives")
    Steps().run([request_], concurrency=concurrency)
    (crash,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "Traceback" in logging.Formatter().format(crash)


def test_a_successful_call_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """At INFO, with tool, time and ids; nothing above it."""
    caplog.set_level(logging.INFO, "weakincentives")
    (result,) = Steps().run(["a"])
    (line,) = [record for record in caplog.records if "act" in record.getMessage()]
    assert line.levelno == logging.INFO
    assert line.getMessage().startswith("Call of act succeeded in ")
    assert line.getMessage().endswith(
        f"(request_id={result.run_context.request_id}, run_id={result.run_context.run_id})"
    )
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_a_deadline_is_a_phase() -> None:
    """A `timedelta` begins anew with each attempt, so that trying again makes sense."""
    loop = Steps(deadline=timedelta(milliseconds=50))
    try:
        (result,) = loop.run(["wait"], retries=Retries(deadline=1, delay=0))
    finally:
        loop.go.set()
    assert (result.ok, result.phase, result.attempts) == (False, "deadline", 2)
    assert eventually(lambda: abandoned_count() == 0)
