"""What every adapter must do, as a test suite for pytest: same script, same events, same end.

A subclass tests an adapter. It makes one whose model plays a script, a scripted server behind a real client, say:

    class TestMyAdapter(AdapterContract):
        def make(self, *turns: Turn, **options: Any) -> Adapter:
            return MyAdapter(base_url=my_server_playing(turns), **options)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import Any, ClassVar, TypeVar

from ..budget import Budget, TokenUsage
from ..deadlines import Deadline
from ..errors import PromptEvaluationError
from ..filesystem import Filesystem, InMemoryFilesystem
from ..loop.adapter import Adapter
from ..loop.response import history_of
from ..prompt import (
    MarkdownSection,
    Prompt,
    PromptExecuted,
    PromptRendered,
    PromptTemplate,
    SectionVisibility,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from ..runtime.messages import AnswerMessage, History, ModelMessage, UserMessage, open_calls
from ..runtime.progress import CallFinished, CallStarted, ProgressEvent, TextDelta, TurnStarted
from ..session import Session, append_all
from .contexts import execute_tool
from .filesystem_contract import raises
from .scripted import Turn, call, call_raw, say

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Note:
    """One line of the scenario's state."""

    text: str


@dataclass(frozen=True, slots=True)
class WriteParams:
    """What to write."""

    path: str = field(metadata={"description": "Where to write"})
    content: str = ""
    then: str = "ok"
    """What happens afterwards: ok, fail, crash, interrupt or wait."""


@dataclass(frozen=True, slots=True)
class ReadParams:
    """What to read."""

    path: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A typed answer."""

    passed: bool
    remarks: tuple[str, ...] = ()
    score: int = 3


@contextmanager
def _logged_errors(words: str) -> Generator[list[logging.LogRecord], None, None]:
    """The errors with these words that WINK logs meanwhile."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: found.append(record) if words in record.getMessage() else None
    logger = logging.getLogger("weakincentives")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


class Workshop:
    """One prompt with its session and files: what a contract test looks at afterwards."""

    def __init__(self, output: Any = Any, *, long_result: int = 0) -> None:
        self.session: Session = Session()
        self.files: InMemoryFilesystem = InMemoryFilesystem({"a.txt": "alpha"})
        self.started: Event = Event()
        self.go_on: Event = Event()
        self._long = long_result
        writing = Tool[WriteParams, Note](name="write", description="Write a file.", handler=self._write)
        reading = Tool[ReadParams, str](
            name="read",
            description="Read a file.",
            handler=self._read,
            annotations=ToolAnnotations(read_only=True),
            max_result_chars=1_000,
        )
        digging = Tool[None, str](name="dig", description="Dig.", handler=_dig)
        sections = [
            MarkdownSection(title="Work", key="work", template="Do the work.", tools=[writing, reading]),
            MarkdownSection(
                title="Manual",
                key="manual",
                template="Dig with care.",
                summary="How to dig.",
                visibility=SectionVisibility.SUMMARY,
                tools=[digging],
            ),
        ]
        template: PromptTemplate[Any] = PromptTemplate[output](ns="contract", key="workshop", sections=sections)
        self.prompt: Prompt[Any] = Prompt(template).bind(resources={Filesystem: self.files})

    def _write(self, params: WriteParams, *, context: ToolContext) -> ToolResult[Note]:
        assert context.filesystem is not None
        context.filesystem.write(params.path, params.content)
        context.session[Note].append(Note(params.path))
        if params.then == "fail":
            return ToolResult.error("It did not work.")
        if params.then == "crash":
            raise LookupError("no such shelf")
        if params.then == "interrupt":
            raise KeyboardInterrupt
        if params.then == "wait":
            self.started.set()
            self.go_on.wait(30)
        return ToolResult.ok(Note(params.path), message=f"Wrote {params.path}.")

    def _read(self, params: ReadParams, *, context: ToolContext) -> ToolResult[str]:
        assert context.filesystem is not None
        if not context.filesystem.exists(params.path):
            return ToolResult.error(f"File not found: {params.path}")
        return ToolResult.ok(context.filesystem.read(params.path) + "x" * self._long)

    @property
    def notes(self) -> list[str]:
        """The state."""
        return [note.text for note in self.session[Note].all()]

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """The log: tool and outcome, in order."""
        return [(event.tool_name, event.outcome) for event in self.session[ToolInvoked].all()]


def _dig(params: None) -> ToolResult[str]:  # noqa: ARG001 - the one signature
    return ToolResult.ok("gold")


def answers(history: History) -> list[tuple[str, str, bool]]:
    """The replies the model read."""
    found = [message for message in history.messages if isinstance(message, AnswerMessage)]
    return [(message.call_id, message.text, message.is_error) for message in found]


def assert_no_orphans(history: History | None) -> None:
    """AssertionError unless every call of the conversation has exactly one answer, before the next turn."""
    assert history is not None
    waiting: list[str] = []
    for message in history.messages:
        if isinstance(message, AnswerMessage):
            assert message.call_id in waiting, f"{message.call_id} was answered twice, or never asked"
            waiting.remove(message.call_id)
        else:
            assert not waiting, f"{waiting} were never answered"
            waiting = [each.id for each in message.calls] if isinstance(message, ModelMessage) else []
    assert not waiting, f"{waiting} were never answered"


class AdapterContract:
    """See the module. `usage` is what each turn of the model costs."""

    usage: ClassVar[TokenUsage] = TokenUsage(input=10, output=5, cached=2, reasoning=1)

    def make(self, *turns: Turn, **options: Any) -> Adapter:
        """An adapter whose model plays these turns, each for `usage`; the options are `Adapter`'s."""
        raise NotImplementedError

    def finish(self, adapter: Adapter) -> None:
        """Check that the whole script was played, where that can be known."""
        check = getattr(adapter, "assert_complete", None)
        if check is not None:
            check()

    def run(self, adapter: Adapter, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and close the adapter's connections in the same event loop."""

        async def whole() -> T:
            try:
                return await coroutine
            finally:
                close = getattr(adapter, "aclose", None)
                if close is not None:
                    await close()

        return asyncio.run(whole())

    # One conversation, looked at from all sides.

    SCRIPT: ClassVar[tuple[Turn, ...]] = (
        (say("Let me see."), call("read", path="a.txt")),
        (
            call("write", path="b.txt", content="beta"),
            call("write", path="c.txt", content="gamma", then="fail"),
            call("write", path="d.txt", content="delta", then="crash"),
            call("wipe", everything=True),
            call("write", path=7),
        ),
        call_raw("write", '{"path": '),
        (call("read", path="a.txt"), call("read", path="zzz"), call("read", path="b.txt")),
        say("All is done."),
    )
    OUTCOMES: ClassVar[list[tuple[str, str]]] = [
        ("read", "succeeded"),
        ("write", "succeeded"),
        ("write", "failed"),
        ("write", "crashed"),
        ("wipe", "unknown_tool"),
        ("write", "invalid"),
        ("write", "invalid"),
        ("read", "succeeded"),
        ("read", "failed"),
        ("read", "succeeded"),
    ]

    def check_script(self, shop: Workshop, response: Any, adapter: Adapter) -> None:
        """The end that the script has with every adapter."""
        assert response.text == "All is done."
        assert response.stop_reason == "end_turn"
        assert response.turns == 5
        assert response.output is None
        assert shop.outcomes == self.OUTCOMES
        assert shop.notes == ["b.txt"]
        assert sorted(shop.files.glob("**/*")) == ["a.txt", "b.txt"]
        replies = answers(response.history)
        assert [text.splitlines()[0] for _, text, _ in replies[:5]] == [
            "OK",
            "Wrote b.txt.",
            "It did not work.",
            "Internal error: no such shelf",
            "Unknown tool 'wipe'",
        ]
        assert replies[2][1].endswith("Rolled back: 1 file and the Note state. Nothing was changed.")
        assert [is_error for _, _, is_error in replies] == [False] * 3 + [True] + [False] * 6
        assert len({call_id for call_id, _, _ in replies}) == 10
        assert_no_orphans(response.history)
        total = sum([self.usage] * 5, TokenUsage())
        assert response.usage == total
        (rendered,) = shop.session[PromptRendered].all()
        assert rendered.adapter == adapter.name
        assert rendered.text == shop.prompt.render(session=shop.session).text
        (executed,) = shop.session[PromptExecuted].all()
        assert (executed.text, executed.stop_reason, executed.usage) == ("All is done.", "end_turn", total)
        self.finish(adapter)

    def test_a_script_ends_the_same_everywhere(self) -> None:
        """State, files, replies, events and usage are those of the script."""
        shop, adapter = Workshop(), self.make(*self.SCRIPT)
        self.check_script(shop, adapter.evaluate(shop.prompt, shop.session), adapter)

    def test_async_code_ends_the_same(self) -> None:
        """`aevaluate` does what `evaluate` does."""
        shop, adapter = Workshop(), self.make(*self.SCRIPT)
        response = self.run(adapter, adapter.aevaluate(shop.prompt, session=shop.session))
        self.check_script(shop, response, adapter)

    def test_progress_is_told(self) -> None:
        """Text as it comes, calls as they start and finish, what was undone; the end is still the same."""
        shop, adapter = Workshop(), self.make(*self.SCRIPT)
        events: list[ProgressEvent] = []
        response = adapter.evaluate(shop.prompt, shop.session, on_event=events.append)
        self.check_script(shop, response, adapter)
        self.check_progress(events)

    def test_progress_is_told_to_async_code(self) -> None:
        """The same events in the same order."""
        shop, adapter = Workshop(), self.make(*self.SCRIPT)
        events: list[ProgressEvent] = []
        response = self.run(adapter, adapter.aevaluate(shop.prompt, shop.session, on_event=events.append))
        self.check_script(shop, response, adapter)
        self.check_progress(events)

    def check_progress(self, events: list[ProgressEvent]) -> None:
        """What `on_event` is told of the script."""
        assert [event.number for event in events if isinstance(event, TurnStarted)] == [1, 2, 3, 4, 5]
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Let me see.All is done."
        started = [event.call_id for event in events if isinstance(event, CallStarted)]
        finished = [event for event in events if isinstance(event, CallFinished)]
        assert started == [event.call_id for event in finished]
        assert [(event.tool_name, event.outcome) for event in finished] == self.OUTCOMES
        failed = finished[2]
        assert failed.changes.files.added == ("c.txt",)
        assert not failed.kept
        assert finished[1].kept

    def test_a_broken_display_changes_nothing(self) -> None:
        """What `on_event` raises is logged, as an error once, and has no effect."""

        def broken(event: ProgressEvent) -> None:  # noqa: ARG001 - the one signature
            raise RuntimeError("no screen")

        shop, adapter = Workshop(), self.make(*self.SCRIPT)
        with _logged_errors("on_event raised") as errors:
            self.check_script(shop, adapter.evaluate(shop.prompt, shop.session, on_event=broken), adapter)
        assert len(errors) == 1

    # Ids.

    def test_missing_and_repeated_ids_are_mended(self) -> None:
        """A call without an id gets one, a call that came twice runs once, every call is answered."""
        shop = Workshop()
        adapter = self.make(
            (
                call("write", path="1").with_id(""),
                call("write", path="2").with_id("same"),
                call("write", path="2").with_id("same"),
                call("write", path="3").with_id("same"),
            ),
            say("Done."),
        )
        response = adapter.evaluate(shop.prompt, shop.session)
        assert shop.notes == ["1", "2", "3"]
        assert_no_orphans(response.history)
        self.finish(adapter)

    def test_ids_may_come_again_in_later_turns(self) -> None:
        """A model may number its calls anew in every turn: each runs, and has an id of its own in log and history."""
        shop = Workshop()
        adapter = self.make(call("write", path="1").with_id("x"), call("write", path="2").with_id("x"), say("Done."))
        history = adapter.evaluate(shop.prompt, shop.session).history
        assert shop.notes == ["1", "2"]
        assert_no_orphans(history)
        recorded = [event.call_id for event in shop.session[ToolInvoked].all()]
        assert recorded == [call_id for call_id, _, _ in answers(history)]
        assert len(set(recorded)) == 2

    # Exceptions.

    def test_an_interrupt_answers_every_call(self) -> None:
        """Ctrl-C in a handler undoes it, records the rest as not run, and the history can be continued."""
        shop = Workshop()
        adapter = self.make(
            (
                call("write", path="1"),
                call("write", path="2", then="interrupt"),
                call("write", path="3"),
            ),
            say("Where were we?"),
        )
        error = raises(KeyboardInterrupt, adapter.evaluate, shop.prompt, shop.session)
        assert shop.notes == ["1"]
        assert shop.outcomes == [("write", "succeeded"), ("write", "cancelled"), ("write", "cancelled")]
        history = history_of(error)
        assert_no_orphans(history)
        assert shop.session[PromptExecuted].all()[0].stop_reason == "error"
        response = adapter.evaluate(shop.prompt, shop.session, history=history)
        assert response.text == "Where were we?"
        assert_no_orphans(response.history)

    def test_cancelling_answers_every_call(self) -> None:
        """A cancelled task undoes its call, answers all, and leaves nothing behind."""
        shop = Workshop()
        adapter = self.make((call("write", path="1", then="wait"), call("write", path="2")), say("Never."))

        async def cancelled() -> History | None:
            deadline = Deadline.after(timedelta(minutes=1))  # handlers run in a thread, so the task can be cancelled
            task = asyncio.ensure_future(adapter.aevaluate(shop.prompt, shop.session, deadline=deadline))
            while not shop.started.is_set():  # noqa: ASYNC110 - it is set by a thread
                await asyncio.sleep(0.005)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError as error:
                return history_of(error)
            finally:
                shop.go_on.set()
            raise AssertionError("it was not cancelled")

        assert_no_orphans(self.run(adapter, cancelled()))
        assert shop.notes == []
        assert sorted(shop.files.glob("**/*")) == ["a.txt"]
        assert shop.outcomes == [("write", "cancelled"), ("write", "cancelled")]

    def test_a_deadline_inside_a_call_ends_the_evaluation(self) -> None:
        """The call is undone, the others are answered, and the error says why."""
        shop = Workshop()
        adapter = self.make(
            say("Ready."), (call("write", path="1", then="wait"), call("write", path="2")), say("Never.")
        )
        adapter.evaluate(shop.prompt, shop.session)  # what takes time only once should not take it from the deadline
        deadline = Deadline.after(timedelta(seconds=1))
        error = raises(PromptEvaluationError, adapter.evaluate, shop.prompt, shop.session, deadline=deadline)
        shop.go_on.set()
        assert isinstance(error, PromptEvaluationError)
        assert error.phase == "deadline"
        assert shop.outcomes == [("write", "deadline"), ("write", "deadline")]
        assert shop.notes == []
        assert_no_orphans(history_of(error))

    def test_a_budget_stops_calls_and_requests(self) -> None:
        """Once the tokens are spent no call runs and no request is sent."""
        shop = Workshop()
        adapter = self.make(call("write", path="1"), call("write", path="2"), say("Never."))
        budget = Budget(max_total_tokens=self.usage.total * 2 - 1)
        error = raises(PromptEvaluationError, adapter.evaluate, shop.prompt, shop.session, budget=budget)
        assert isinstance(error, PromptEvaluationError)
        assert error.phase == "budget"
        assert shop.outcomes == [("write", "succeeded"), ("write", "refused")]
        assert_no_orphans(history_of(error))

    def test_turns_are_bounded(self) -> None:
        """A model that never ends is stopped, with its calls answered."""
        shop = Workshop()
        adapter = self.make(*[call("write", path=str(number)) for number in range(4)], max_turns=3)
        error = raises(PromptEvaluationError, adapter.evaluate, shop.prompt, shop.session)
        assert "max_turns" in str(error)
        assert shop.notes == ["0", "1", "2"]
        assert_no_orphans(history_of(error))

    # Answers.

    def test_a_typed_answer_is_parsed(self) -> None:
        """What was wrong goes back to the model, which then gets it right."""
        shop = Workshop(Verdict)
        adapter = self.make(
            say("It looks fine."), say('{"passed": "yes"}'), say('{"passed": true, "remarks": ["neat"]}')
        )
        response = adapter.evaluate(shop.prompt, shop.session)
        assert response.output == Verdict(True, ("neat",))
        assert shop.session[PromptExecuted].all()[0].output == response.output
        self.finish(adapter)

    def test_a_typed_answer_goes_to_its_reducers_once(self) -> None:
        """As a tool's value does: only the final answer, before subscribers hear of it; its event is in the log."""
        shop = Workshop(Verdict)
        seen: list[tuple[Verdict, ...]] = []
        shop.session[Verdict].register(Verdict, append_all)
        shop.session.dispatcher.subscribe(PromptExecuted, lambda _: seen.append(tuple(shop.session[Verdict].all())))
        adapter = self.make(say('{"passed": "yes"}'), call("read", path="a.txt"), say('{"passed": true}'))
        adapter.evaluate(shop.prompt, shop.session)
        assert shop.session[Verdict].all() == [Verdict(True)]
        assert seen == [(Verdict(True),)]
        assert shop.session[PromptExecuted].count() == 1
        self.finish(adapter)

    def test_a_typed_answer_is_not_asked_for_without_end(self) -> None:
        """After a number of attempts the evaluation ends."""
        shop = Workshop(Verdict)
        adapter = self.make(say("No."), say("No."), say("No."), output_retries=1)
        error = raises(PromptEvaluationError, adapter.evaluate, shop.prompt, shop.session)
        assert isinstance(error, PromptEvaluationError)
        assert error.phase == "response"
        assert "passed" in str(error) or "JSON" in str(error)

    def test_a_refusal_to_give_a_typed_answer_ends_at_once(self) -> None:
        """The model is not asked again for what it declined."""
        shop = Workshop(Verdict)
        adapter = self.make(say("I would rather not.", stop_reason="refusal"))
        error = raises(PromptEvaluationError, adapter.evaluate, shop.prompt, shop.session)
        assert isinstance(error, PromptEvaluationError)
        self.check_refusal(error)
        assert shop.session[PromptExecuted].count() == 1
        self.finish(adapter)

    def check_refusal(self, error: PromptEvaluationError) -> None:
        """How the evaluation of a prompt ended that the model declined."""
        assert error.phase == "response"
        assert "declined to answer: I would rather not." in str(error)

    def test_a_truncated_typed_answer_is_asked_for_in_fewer_words(self) -> None:
        """The model learns that its answer was too long, not only that it is not JSON."""
        shop = Workshop(Verdict)
        adapter = self.make(say('{"passed": tr', stop_reason="max_tokens"), say('{"passed": true}'))
        response = adapter.evaluate(shop.prompt, shop.session)
        assert response.output == Verdict(True)
        told = [message.text for message in response.history.messages if isinstance(message, UserMessage)]
        assert "answer more briefly" in told[1]
        self.finish(adapter)

    def test_a_conversation_goes_on(self) -> None:
        """A history, carried over as text, is continued."""
        shop = Workshop()
        adapter = self.make(call("read", path="a.txt"), say("alpha"), say("As I said: alpha."))
        first = adapter.evaluate(shop.prompt, shop.session)
        kept = History.from_json(first.history.to_json())
        second = adapter.evaluate(shop.prompt, Session(), history=kept)
        assert second.text == "As I said: alpha."
        assert second.history.messages[: len(kept.messages)] == kept.messages
        assert_no_orphans(second.history)

    def test_opening_sections_keeps_the_transcript(self) -> None:
        """The call is answered, the prompt rendered anew with the section's tools, and the work goes on."""
        shop = Workshop()
        adapter = self.make(
            (
                call("write", path="1"),
                call("open_sections", section_keys=["manual"], reason="to dig"),
                call("write", path="2"),
            ),
            call("dig"),
            say("Gold."),
        )
        response = adapter.evaluate(shop.prompt, shop.session)
        assert shop.outcomes == [
            ("write", "succeeded"),
            ("open_sections", "expanded"),
            ("write", "cancelled"),
            ("dig", "succeeded"),
        ]
        assert shop.notes == ["1"]
        assert "Dig with care." in response.history.messages[0].text  # pyright: ignore[reportAttributeAccessIssue]
        assert any(text.startswith("Opened: manual") for _, text, _ in answers(response.history))
        self.check_opened(shop)
        assert_no_orphans(response.history)

    def check_opened(self, shop: Workshop) -> None:
        """The prompt was rendered again, with the tools of the section that was opened."""
        before, after = shop.session[PromptRendered].all()
        assert "dig" not in before.tool_names
        assert set(after.tool_names) > {"dig", "write"}
        assert "Dig with care." in after.text

    def test_a_long_result_can_be_read_on(self) -> None:
        """Once a result was cut the model is offered the tool to read the rest."""
        shop = Workshop(long_result=2_000)
        adapter = self.make(
            call("read", path="a.txt").with_id("r1"),
            call("read_tool_result", call_id="r1", offset=1_000, limit=100),
            say("Long."),
        )
        response = adapter.evaluate(shop.prompt, shop.session)
        assert shop.outcomes == [("read", "succeeded"), ("read_tool_result", "succeeded")]
        assert answers(response.history)[1][1].endswith("x" * 100)

    # Manual mode.

    def test_manual_mode_goes_step_by_step(self) -> None:
        """Calls are handed out, run by the caller and answered; what is left out is recorded as not run."""
        shop = Workshop()
        adapter = self.make(
            (call("write", path="1", then="fail"), call("write", path="2")),
            call("open_sections", section_keys=["manual"], reason="to dig"),
            say("Done."),
            manual=True,
        )
        first = adapter.evaluate(shop.prompt, shop.session)
        assert (first.stop_reason, [each.name for each in first.tool_calls]) == ("tool_use", ["write", "write"])
        assert first.tool_calls[0].params["path"] == "1"
        assert len(open_calls(first.history.messages)) == 2
        reply = execute_tool(first.tool_calls[0], session=shop.session)
        assert not reply.success
        second = adapter.evaluate(shop.prompt, session=shop.session, tool_results=[reply])
        assert shop.outcomes == [("write", "failed"), ("write", "cancelled")]
        opened = second.tool_calls[0].execute()
        third = adapter.evaluate(shop.prompt, shop.session, tool_results=[opened])
        assert third.text == "Done."
        assert third.stop_reason == "end_turn"
        assert_no_orphans(third.history)
        assert len(shop.session[PromptExecuted].all()) == 1
        self.finish(adapter)
