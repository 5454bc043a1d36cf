"""The loop with the scripted model: limits, resources, histories, manual mode, long conversations."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from weakincentives.adapters import (
    AnswerMessage,
    CallFinished,
    History,
    ModelMessage,
    ModelRequest,
    ModelTurn,
    RequestFailed,
    SectionsOpened,
    TextDelta,
    Throttle,
    TurnAdapter,
    UserMessage,
    history_of,
)
from weakincentives.budget import Budget, BudgetTracker, TokenUsage
from weakincentives.deadlines import Deadline
from weakincentives.errors import (
    PromptEvaluationError,
    PromptValidationError,
    SessionError,
    VisibilityExpansionRequired,
)
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptExecuted,
    PromptRendered,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from weakincentives.resources import Binding
from weakincentives.run_context import Heartbeat, RunContext
from weakincentives.runtime import EffectLedger, IdempotencyConfig
from weakincentives.session import Session, append_all
from weakincentives.testing import FakeClock, ScriptedAdapter, call, call_raw, execute_tool, say
from weakincentives.testing.adapter_contract import Workshop, answers, assert_no_orphans


@dataclass(frozen=True)
class Empty:
    """No parameters."""


def prompt_with(*tools: Tool[Any, Any], **bindings: Any) -> Prompt[Any]:
    section = MarkdownSection(title="Task", template="Go.", tools=list(tools))
    return Prompt(PromptTemplate[Any](ns="loop", key="task", sections=[section]))


# Options.


def test_an_unknown_option_is_refused() -> None:
    """A misspelt option is an error, not a silence."""
    with pytest.raises(TypeError, match="deadlin"):
        ScriptedAdapter(say("x")).evaluate(prompt_with(), Session(), deadlin=None)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("options", [{"max_turns": 0}, {"output_retries": -1}, {"max_expansions": -1}])
def test_settings_are_checked(options: dict[str, int]) -> None:
    """Settings that make no sense are refused when the adapter is made."""
    with pytest.raises(ValueError, match="max_turns"):
        ScriptedAdapter(**options)  # pyright: ignore[reportArgumentType]


def test_correlation_and_heartbeat_reach_handlers_and_events() -> None:
    """The run's ids are in every event, and the heart beats at every request and call."""
    seen: list[Any] = []

    def look(params: Empty, *, context: ToolContext) -> ToolResult[str]:
        seen.append((context.run_context, context.adapter, context.prompt))
        context.beat()
        return ToolResult.ok("seen")

    prompt = prompt_with(Tool[Empty, str](name="look", description="Look.", handler=look))
    session, run, heartbeat = Session(), RunContext(request_id="r1"), Heartbeat()
    adapter = ScriptedAdapter(call("look"), say("Done."))
    adapter.evaluate(prompt, session, run_context=run, heartbeat=heartbeat)
    assert seen == [(run, adapter, prompt)]
    assert heartbeat.count == 4
    for cls in (PromptRendered, PromptExecuted, ToolInvoked):
        assert [event.run_context for event in session[cls].all()] == [run]


def test_the_system_text_is_sent_beside_the_conversation() -> None:
    """Constant words stand above every conversation."""
    adapter = ScriptedAdapter(say("Yes."), system="Be brief.")
    adapter.evaluate(prompt_with(), Session())
    assert adapter.requests[0].system == "Be brief."


def test_a_ledger_spans_evaluations() -> None:
    """An effect that happened in one evaluation is not repeated in the next."""
    charged: list[str] = []

    def charge(params: Empty, *, context: ToolContext) -> ToolResult[str]:
        charged.append("once")
        return ToolResult.ok("charged")

    tool = Tool[Empty, str](
        name="charge", description="Charge.", handler=charge, idempotency=IdempotencyConfig(scope="global")
    )
    ledger = EffectLedger()
    sessions = Session(), Session()
    for session in sessions:
        ScriptedAdapter(call("charge"), say("Done.")).evaluate(prompt_with(tool), session, effect_ledger=ledger)
    assert charged == ["once"]
    assert [session[ToolInvoked].all()[0].outcome for session in sessions] == ["succeeded", "replayed"]


# Resources.


class Lamp:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_resources_live_for_the_evaluation() -> None:
    """What was built for it is closed at its end; a block around it keeps them for longer."""
    lamps: list[Lamp] = []

    def build(_: Any) -> Lamp:
        lamps.append(Lamp())
        return lamps[-1]

    def shine(params: Empty, *, context: ToolContext) -> ToolResult[int]:
        return ToolResult.ok(context.resources.get(Lamp).closed)

    tool = Tool[Empty, int](name="shine", description="Shine.", handler=shine)
    prompt = prompt_with(tool).bind(resources={Lamp: Binding(Lamp, build)})
    adapter = ScriptedAdapter(call("shine"), say("1"), call("shine"), say("2"), call("shine"), say("3"))
    adapter.evaluate(prompt, Session())
    assert [lamp.closed for lamp in lamps] == [1]
    with prompt.resources:
        adapter.evaluate(prompt, Session())
        adapter.evaluate(prompt, Session())
        assert [lamp.closed for lamp in lamps] == [1, 0]
    assert [lamp.closed for lamp in lamps] == [1, 1]


def test_resources_are_closed_when_it_fails() -> None:
    """Also when the model cannot be asked."""
    lamp: list[Lamp] = []

    def build(_: Any) -> Lamp:
        lamp.append(Lamp())
        return lamp[-1]

    def shine(params: Empty, *, context: ToolContext) -> ToolResult[int]:
        return ToolResult.ok(context.resources.get(Lamp).closed)

    prompt = prompt_with(Tool[Empty, int](name="shine", description="Shine.", handler=shine))
    prompt = prompt.bind(resources={Lamp: Binding(Lamp, build)})
    with pytest.raises(PromptEvaluationError):
        ScriptedAdapter(call("shine"), RequestFailed("refused", "no")).evaluate(prompt, Session())
    assert lamp[0].closed == 1


# Asking.


def test_failed_requests_are_repeated() -> None:
    """Waiting helps against a busy service; the turn is counted once."""
    busy = RequestFailed("throttled", "slow down", retry_after=0.0)
    adapter = ScriptedAdapter(busy, busy, say("Now."), throttle=Throttle(base=0.0))
    response = adapter.evaluate(prompt_with(), Session())
    assert (response.text, response.turns, len(adapter.requests)) == ("Now.", 1, 3)


def test_other_exceptions_of_an_adapter_become_errors_of_the_request() -> None:
    """A bug in an adapter ends the evaluation with its text, credentials masked."""
    adapter = ScriptedAdapter(OSError("no route, password=hunter2"))
    with pytest.raises(PromptEvaluationError, match="no route") as caught:
        adapter.evaluate(prompt_with(), Session())
    assert caught.value.phase == "request"
    assert "hunter2" not in str(caught.value)


def test_an_interrupt_while_asking_passes() -> None:
    """Ctrl-C ends the evaluation; the conversation so far is kept with it."""
    session = Session()
    with pytest.raises(KeyboardInterrupt) as caught:
        ScriptedAdapter(KeyboardInterrupt()).evaluate(prompt_with(), session)
    history = history_of(caught.value)
    assert history is not None
    assert len(history.messages) == 1
    assert session[PromptExecuted].all()[0].stop_reason == "error"


@pytest.mark.parametrize("attempt", range(1, 9))
def test_waits_double_within_bounds(attempt: int) -> None:
    """Each wait is between half and all of its length, and never longer than the limit."""
    failure = RequestFailed("overloaded", "busy")
    lengths = {random: Throttle(8, 1.0, 10.0, lambda r=random: r).wait(attempt, failure) for random in (0.0, 1.0)}
    if attempt == 8:
        assert lengths == {0.0: None, 1.0: None}
    else:
        whole = min(2.0 ** (attempt - 1), 10.0)
        assert lengths == {0.0: whole / 2, 1.0: whole}


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1.0, 1e99])
def test_a_wait_that_cannot_be_meant_is_ignored(seconds: float) -> None:
    """Whichever adapter passes it on: the request is sent again as if nothing had been said."""
    shop = Workshop()
    busy = RequestFailed("throttled", "slow down", retry_after=seconds)
    adapter = ScriptedAdapter(busy, say("Done."), throttle=Throttle(base=0.0))
    assert adapter.evaluate(shop.prompt, shop.session).text == "Done."


def test_a_wish_to_wait_is_never_shortened() -> None:
    """`retry-after` is a lower bound; one beyond the limit is not waited for."""
    throttle = Throttle(base=0.1, max_wait=60, random=lambda: 0.0)
    assert throttle.wait(1, RequestFailed("throttled", "x", retry_after=7.0)) == 7.0
    assert throttle.wait(1, RequestFailed("throttled", "x", retry_after=61.0)) is None
    assert throttle.wait(1, RequestFailed("key", "x", retry_after=1.0)) is None
    with pytest.raises(ValueError, match="max_attempts"):
        Throttle(max_attempts=0)


def test_stop_reasons_are_passed_on() -> None:
    """An answer that was cut or refused says so; a pause is asked again."""
    adapter = ScriptedAdapter(
        say("Hm", stop_reason="pause"),
        say("Cut", stop_reason="max_tokens"),
        say("No.", stop_reason="refusal"),
    )
    assert adapter.evaluate(prompt_with(), Session()).stop_reason == "max_tokens"
    assert adapter.evaluate(prompt_with(), Session()).stop_reason == "refusal"
    assert len(adapter.requests) == 3


def test_a_refusal_is_no_typed_answer() -> None:
    """The model is not pressed: the evaluation ends with its words."""
    prompt = Prompt(PromptTemplate[int](ns="loop", key="n", sections=[MarkdownSection(title="N", template="N?")]))
    with pytest.raises(PromptEvaluationError, match="I would rather not"):
        ScriptedAdapter(say("I would rather not.", stop_reason="refusal")).evaluate(prompt, Session())


def test_text_is_an_output_where_it_is_declared() -> None:
    """`PromptTemplate[str]` gives the text as output."""
    prompt = Prompt(PromptTemplate[str](ns="loop", key="s", sections=[MarkdownSection(title="S", template="S?")]))
    assert ScriptedAdapter(say("words")).evaluate(prompt, Session()).output == "words"


# Limits.


def test_the_earliest_deadline_counts() -> None:
    """Of the call, the budget and the tracker; nothing is asked once it has passed."""
    clock = FakeClock()
    late = Deadline.after(timedelta(hours=1), clock=clock)
    soon = Deadline.after(timedelta(minutes=1), clock=clock)

    def wait(request: ModelRequest) -> Any:
        assert request.timeout == 60.0
        clock.advance(61)
        return call("write", path="1")

    shop = Workshop()
    adapter = ScriptedAdapter(wait, say("Never."))
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(shop.prompt, shop.session, deadline=late, budget_tracker=BudgetTracker(Budget(deadline=soon)))
    assert caught.value.phase == "deadline"
    assert shop.outcomes == [("write", "deadline")]
    assert len(adapter.requests) == 1


def test_a_tracker_is_shared() -> None:
    """Two evaluations spend from one budget."""
    tracker = BudgetTracker(Budget(max_total_tokens=25))
    adapter = ScriptedAdapter(say("1"), say("2"), say("3"), usage=TokenUsage(10, 5))
    adapter.evaluate(prompt_with(), Session(), budget_tracker=tracker)
    adapter.evaluate(prompt_with(), Session(), budget_tracker=tracker)
    with pytest.raises(PromptEvaluationError, match="25 total tokens") as caught:
        adapter.evaluate(prompt_with(), Session(), budget_tracker=tracker)
    assert caught.value.phase == "budget"
    assert tracker.consumed == TokenUsage(20, 10)


def test_opening_without_end_is_bounded() -> None:
    """A handler that always asks for sections is stopped."""

    def more(params: Empty) -> ToolResult[str]:
        raise VisibilityExpansionRequired("more", section_keys=("manual",), reason="why not")

    prompt = prompt_with(Tool[Empty, str](name="more", description="More.", handler=more))
    adapter = ScriptedAdapter(*[call("more")] * 9, max_expansions=2)
    events: list[Any] = []
    with pytest.raises(PromptEvaluationError, match="max_expansions") as caught:
        adapter.evaluate(prompt, Session(), on_event=events.append)
    assert sum(isinstance(event, SectionsOpened) for event in events) == 2
    assert_no_orphans(history_of(caught.value))


# Histories.


def test_open_calls_of_a_history_are_answered() -> None:
    """No provider takes a conversation with a call that has no answer, so there is none."""
    adapter = ScriptedAdapter(call("write", path="1"), say("On."), manual=True)
    shop = Workshop()
    kept = adapter.evaluate(shop.prompt, shop.session).history
    assert [each.name for each in kept.open_calls] == ["write"]
    elsewhere = ScriptedAdapter(say("On."))
    assert_no_orphans(elsewhere.evaluate(shop.prompt, Session(), history=kept).history)
    adapter.abandon(shop.session)


def test_results_answer_a_history() -> None:
    """A conversation of manual mode may go on in another process, with its results."""
    shop = Workshop()
    adapter = ScriptedAdapter(call("write", path="1"), manual=True)
    step = adapter.evaluate(shop.prompt, shop.session)
    reply = step.tool_calls[0].execute()
    adapter.abandon(shop.session)
    other = ScriptedAdapter(say("On."), manual=True)
    kept = History.from_json(step.history.to_json())
    response = other.evaluate(shop.prompt, Session(), history=kept, tool_results=[reply])
    assert answers(response.history)[0][1].startswith("Wrote 1.")


def test_a_history_of_another_provider_is_understood() -> None:
    """What is native to one provider is left alone by others."""
    history = History((UserMessage("Hi"), ModelMessage("Hello", native=({"type": "x"},), provider="other")))
    adapter = ScriptedAdapter(say("Again."))
    response = adapter.evaluate(prompt_with(), Session(), history=history.messages)
    assert response.history.messages[:2] == history.messages
    assert History.from_json(response.history.to_json()) == response.history


def test_requests_remember_what_they_were() -> None:
    """A recorded request shows the conversation of its moment, not of the end."""
    shop = Workshop()
    adapter = ScriptedAdapter(
        call("write", path="1"), call("open_sections", section_keys=["manual"], reason="x"), say("Done.")
    )
    adapter.evaluate(shop.prompt, shop.session)
    first, second, third = (request.messages for request in adapter.requests)
    assert [len(first), len(second), len(third)] == [1, 3, 5]
    assert "Dig with care." not in second[0].text
    assert "Dig with care." in third[0].text
    assert isinstance(second[-1], AnswerMessage)
    assert list(third[1:3]) == list(second[1:3])
    with pytest.raises(IndexError):
        first[1]
    assert repr(first) == "<1 messages>"


# Manual mode.


def test_manual_mode_is_strict_about_results() -> None:
    """Answers that were not asked for, or to no conversation, are refused; the open one stays open."""
    shop = Workshop()
    adapter = ScriptedAdapter(call("write", path="1"), call("write", path="2"), say("Done."), manual=True)
    with pytest.raises(ValueError, match="none open"):
        adapter.evaluate(shop.prompt, shop.session, tool_results=[])
    first = adapter.evaluate(shop.prompt, shop.session)
    reply = execute_tool(first.tool_calls[0], session=shop.session)
    with pytest.raises(ValueError, match="not open: other"):
        adapter.evaluate(shop.prompt, shop.session, tool_results=[reply._replace(call_id="other")])
    with pytest.raises(SessionError, match="another session"):
        first.tool_calls[0].execute(session=Session())
    again = first.tool_calls[0].execute()
    assert again.duplicate
    second = adapter.evaluate(shop.prompt, shop.session, tool_results=[reply, again])
    assert second.tool_calls[0].params == {"path": "2"}
    adapter.abandon(shop.session)
    adapter.abandon(shop.session)
    assert shop.outcomes[-1] == ("write", "cancelled")


def test_beginning_anew_ends_the_open_conversation() -> None:
    """Its calls are recorded as not run and its resources closed."""
    shop = Workshop()
    adapter = ScriptedAdapter(call("write", path="1"), say("New."), manual=True)
    adapter.evaluate(shop.prompt, shop.session)
    assert shop.prompt.resources.is_open
    assert adapter.evaluate(shop.prompt, shop.session).text == "New."
    assert shop.outcomes == [("write", "cancelled")]
    assert not shop.prompt.resources.is_open


def test_manual_mode_works_in_async_code() -> None:
    """The same steps, awaited."""
    shop = Workshop()
    adapter = ScriptedAdapter(call("write", path="1"), say("Done."), manual=True)

    async def steps() -> str:
        first = await adapter.aevaluate(shop.prompt, shop.session)
        replies = [each.execute() for each in first.tool_calls]
        return (await adapter.aevaluate(shop.prompt, shop.session, tool_results=replies)).text

    assert asyncio.run(steps()) == "Done."
    assert shop.notes == ["1"]


def test_every_adapter_is_a_context_manager() -> None:
    """Leaving it ends the open conversations of manual mode: their calls are recorded, their resources closed."""
    shop = Workshop()
    with ScriptedAdapter(call("write", path="1"), say("New."), manual=True) as adapter:
        assert adapter.evaluate(shop.prompt, shop.session).tool_calls
        assert shop.prompt.resources.is_open
    assert not shop.prompt.resources.is_open
    assert shop.outcomes == [("write", "cancelled")]
    assert adapter.evaluate(shop.prompt, shop.session).text == "New."  # it can be used again


def test_every_adapter_is_an_async_context_manager() -> None:
    """Leaving it awaits the end of what is open, on the event loop on which it was opened."""
    ended: list[object] = []

    class Connection:
        async def aclose(self) -> None:
            ended.append(asyncio.get_running_loop())

    async def connect(_: object) -> Connection:
        return Connection()

    async def main() -> object:
        shop = Workshop()
        prompt = shop.prompt.bind(resources={Connection: Binding(Connection, connect, eager=True)})
        async with ScriptedAdapter(call("write", path="1"), manual=True) as adapter:
            assert (await adapter.aevaluate(prompt, shop.session)).tool_calls
            assert not ended
        assert shop.outcomes == [("write", "cancelled")]
        assert not prompt.resources.is_open
        return asyncio.get_running_loop()

    loop = asyncio.run(main())
    assert ended == [loop]


def test_between_the_steps_of_manual_mode_signals_are_the_callers() -> None:
    """The conversation stays open there, but it is the caller's program that runs."""
    shop = Workshop()
    adapter = ScriptedAdapter(call("write", path="1"), say("Done."), manual=True)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        first = adapter.evaluate(shop.prompt, shop.session)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        replies = [each.execute() for each in first.tool_calls]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert adapter.evaluate(shop.prompt, shop.session, tool_results=replies).text == "Done."
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


# Surroundings.


def test_failing_reducers_and_subscribers_do_not_stop_it(caplog: pytest.LogCaptureFixture) -> None:
    """Events about the evaluation are recorded all the same, and the log says what failed."""
    session = Session()

    def broken(view: Any, event: Any) -> Any:
        raise ValueError("broken reducer")

    def deaf(event: object) -> None:
        raise ValueError("broken subscriber")

    session[int].register(PromptRendered, broken)
    session.dispatcher.subscribe(PromptExecuted, deaf)
    with caplog.at_level(logging.ERROR):
        assert ScriptedAdapter(say("Fine.")).evaluate(prompt_with(), session).text == "Fine."
    assert len(session[PromptRendered].all()) == len(session[PromptExecuted].all()) == 1
    assert "reducer failed on PromptRendered" in caplog.text
    assert "failed on PromptExecuted" in caplog.text


def test_an_evaluation_may_run_inside_a_tool() -> None:
    """A handler asks another model on its own session; when it fails, the inner changes are undone with it."""
    inner_shop = Workshop()

    def delegate(params: Empty, *, context: ToolContext) -> ToolResult[str]:
        inner = ScriptedAdapter(call("write", path="1"), say("Inner."))
        return ToolResult.error(inner.evaluate(inner_shop.prompt, context.session).text)  # pyright: ignore[reportArgumentType]

    prompt = prompt_with(Tool[Empty, str](name="delegate", description="Delegate.", handler=delegate))
    session = Session()
    response = ScriptedAdapter(call("delegate"), say("Outer.")).evaluate(prompt, session)
    assert response.text == "Outer."
    assert [event.tool_name for event in session[ToolInvoked].all()] == ["write", "delegate"]


@dataclass(frozen=True)
class Verdict:
    passed: bool


def judge(output: Any = Verdict) -> Prompt[Any]:
    section = MarkdownSection(title="Judge", template="Is it fine?")
    return Prompt(PromptTemplate[output](ns="loop", key="judge", sections=[section]))


def checked(validate: Callable[[Any], Any] | str, output: Any = Verdict) -> Prompt[Any]:
    section, given = MarkdownSection(title="Judge", template="Is it fine?"), cast("Any", validate)
    return Prompt(PromptTemplate[output](ns="loop", key="judge", sections=[section], validate=given))


def test_an_answer_that_is_not_accepted_is_asked_for_again() -> None:
    """The model reads what `validate=` says; only the answer that was accepted reaches reducers and the caller."""
    seen: list[Any] = []

    def must_pass(verdict: Verdict) -> str | None:
        seen.append(verdict)
        return None if verdict.passed else "a verdict without a reason must pass."

    session = Session()
    session[Verdict].register(Verdict, append_all)
    adapter = ScriptedAdapter(say('{"passed": false}'), say('{"passed": true}'))
    response = adapter.evaluate(checked(must_pass), session)
    assert response.output == Verdict(True)
    assert seen == [Verdict(False), Verdict(True)]
    assert session[Verdict].all() == [Verdict(True)]
    repair = response.history.messages[2]
    assert repair.text == (
        "The answer was not accepted: a verdict without a reason must pass.\n"
        "Give the whole answer again, as JSON and nothing else."
    )


def test_plain_text_is_validated_too() -> None:
    """Where the prompt declares no type, or `str`."""
    for output in (None, str):
        prompt = checked(lambda text: None if "!" in text else "Say it with force.", output)
        response = ScriptedAdapter(say("Fine."), say("Fine!")).evaluate(prompt, Session())
        assert response.text == "Fine!"
        assert response.history.messages[2].text.endswith("Say it with force.\nGive the whole answer again.")


def test_an_answer_that_is_never_accepted_ends_the_evaluation() -> None:
    """With what was wrong; and so does a validator that raises, or returns something else than a text."""
    with pytest.raises(PromptEvaluationError, match=r"not accepted, 3 times in a row: no\.") as caught:
        ScriptedAdapter(*[say('{"passed": true}')] * 3).evaluate(checked(lambda _: "no."), Session())
    assert caught.value.phase == "response"
    with pytest.raises(PromptEvaluationError, match=r"validate= of the prompt raised ZeroDivisionError"):
        ScriptedAdapter(say('{"passed": true}')).evaluate(checked(lambda _: 1 / 0), Session())
    with pytest.raises(PromptEvaluationError, match=r"None or a text for the model, got bool"):
        ScriptedAdapter(say('{"passed": true}')).evaluate(checked(lambda _: False), Session())
    with pytest.raises(PromptValidationError, match="validate= takes a function"):
        checked("not empty")


def test_the_items_of_a_list_go_to_their_reducers() -> None:
    """A prompt whose answer is a list routes each of its items, as a tool's list does."""
    session = Session()
    session[Verdict].register(Verdict, append_all)
    ScriptedAdapter(say('[{"passed": true}, {"passed": false}]')).evaluate(judge(list[Verdict]), session)
    assert session[Verdict].all() == [Verdict(True), Verdict(False)]


def test_an_answer_without_a_reducer_is_only_in_its_event() -> None:
    """Nothing is kept in a slice that was not asked for; nor is an answer that was never given."""
    session = Session()
    ScriptedAdapter(say('{"passed": true}')).evaluate(judge(), session)
    assert session[Verdict].count() == 0
    assert [event.output for event in session[PromptExecuted].all()] == [Verdict(True)]
    session[Verdict].register(Verdict, append_all)
    with pytest.raises(PromptEvaluationError):
        ScriptedAdapter(say("No."), output_retries=0).evaluate(judge(), session)
    assert session[Verdict].count() == 0


def test_a_failing_reducer_of_the_answer_does_not_take_it_from_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """It changes nothing and is logged; the answer stays in its event, which is recorded once."""
    session = Session()

    def broken(view: Any, event: Any) -> Any:
        raise ValueError("broken reducer")

    session[Verdict].register(Verdict, broken)
    heard: list[PromptExecuted] = []
    session.dispatcher.subscribe(PromptExecuted, heard.append)
    with caplog.at_level(logging.ERROR):
        assert ScriptedAdapter(say('{"passed": true}')).evaluate(judge(), session).output == Verdict(True)
    assert "A reducer failed on the output of the prompt 'judge'" in caplog.text
    assert [event.output for event in session[PromptExecuted].all()] == [event.output for event in heard]
    assert session[Verdict].count() == 0


@pytest.mark.parametrize("kept", [True, False])
def test_an_answer_inside_a_call_is_undone_with_it(kept: bool) -> None:
    """What reducers make of an inner answer is a change of the call around it; that it was given stays in the log."""

    def delegate(params: Empty, *, context: ToolContext) -> ToolResult[str]:
        ScriptedAdapter(say('{"passed": true}')).evaluate(judge(), context.session)  # pyright: ignore[reportArgumentType]
        assert context.session[Verdict].all() == [Verdict(True)]
        return ToolResult.ok("done") if kept else ToolResult.error("No.")

    session = Session()
    session[Verdict].register(Verdict, append_all)
    prompt = prompt_with(Tool[Empty, str](name="delegate", description="Delegate.", handler=delegate))
    ScriptedAdapter(call("delegate"), say("Outer.")).evaluate(prompt, session)
    assert session[Verdict].all() == ([Verdict(True)] if kept else [])
    assert [event.output for event in session[PromptExecuted].all()] == [Verdict(True), None]


class OnlySync(TurnAdapter):
    """The least an adapter has to do."""

    def ask(self, request: ModelRequest) -> ModelTurn:
        if request.on_text is not None:
            request.on_text("Stre")
            request.on_text("amed.")
        return ModelTurn("Streamed.")


def test_an_adapter_only_has_to_ask() -> None:
    """`aevaluate` runs `ask` in a thread; streamed text is not told twice."""
    events: list[Any] = []
    adapter = OnlySync()
    response = asyncio.run(adapter.aevaluate(prompt_with(), Session(), on_event=events.append))
    assert (response.text, adapter.name) == ("Streamed.", "OnlySync")
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Stre", "amed."]


def test_calls_that_end_an_evaluation_are_told() -> None:
    """A display sees how the last calls ended, too."""
    shop = Workshop()
    events: list[Any] = []
    turn = (call("write", path="1", then="interrupt"), call("write", path="2"))
    with pytest.raises(KeyboardInterrupt):
        ScriptedAdapter(turn).evaluate(shop.prompt, shop.session, on_event=events.append)
    finished = {event.call_id: event for event in events if isinstance(event, CallFinished)}
    assert {event.outcome for event in finished.values()} == {"cancelled"}
    assert finished["call_1"].changes.files.added == ("1",)


# What is not a prompt.


def test_what_is_not_a_prompt_is_refused_with_the_fix() -> None:
    """A template and a text are the two that people try."""
    template: Any = PromptTemplate[str](ns="tests", key="x", sections=[MarkdownSection(title="Task")])
    with pytest.raises(TypeError, match=r"takes a Prompt, got a PromptTemplate.*; write Prompt\(template\)"):
        ScriptedAdapter(say("x")).evaluate(template, Session())
    text: Any = "Hello!"
    with pytest.raises(TypeError, match=r"takes a Prompt, got a str; make one: Prompt\(name="):
        ScriptedAdapter(say("x")).evaluate(text, Session())


# The script.


def test_a_script_knows_its_end() -> None:
    """Asking too often and stopping too early are both errors of the test."""
    adapter = ScriptedAdapter(say("1"), say("2"))
    adapter.evaluate(prompt_with(), Session())
    with pytest.raises(AssertionError, match="1 of 2 turns were not played"):
        adapter.assert_complete()
    adapter.evaluate(prompt_with(), Session())
    adapter.assert_complete()
    with pytest.raises(AssertionError, match="asked once more"):
        adapter.evaluate(prompt_with(), Session())
    with pytest.raises(PromptEvaluationError, match="say"):
        ScriptedAdapter([say("x"), "y"]).evaluate(prompt_with(), Session())  # pyright: ignore[reportArgumentType]


# Long conversations.


def turns(count: int) -> Iterator[Any]:
    for number in range(count):
        yield call("write", path=f"{number % 10}.txt", content=str(number))


def test_a_conversation_of_a_thousand_turns() -> None:
    """Every call is recorded and answered once, and the end is that of the script."""
    shop = Workshop()
    adapter = ScriptedAdapter(*turns(1_000), say("Done."), max_turns=1_001)
    response = adapter.evaluate(shop.prompt, shop.session)
    adapter.assert_complete()
    assert len(shop.outcomes) == len(shop.notes) == 1_000
    assert shop.files.read("9.txt") == "999"
    assert len(response.history.messages) == 2_002
    assert_no_orphans(response.history)
    gc.collect()


@pytest.mark.slow  # a thousand turns
def test_a_thousand_turns_with_faults_in_them() -> None:
    """Busy services, broken arguments, crashes and unknown tools on the way do not lose a call."""
    script: list[Any] = []
    for number in range(250):
        script += [
            RequestFailed("overloaded", "busy"),
            (call("write", path=f"{number}"), call("write", path="x", then="crash")),
            call_raw("write", "{"),
            (call("nothing"), call("read", path="a.txt"), call("read", path=f"{number}")),
            call("write", path="x", then="fail"),
        ]
    shop = Workshop()
    adapter = ScriptedAdapter(*script, say("Done."), max_turns=1_001, throttle=Throttle(base=0.0))
    logging.getLogger("weakincentives").setLevel(logging.CRITICAL)
    try:
        response = adapter.evaluate(shop.prompt, shop.session)
    finally:
        logging.getLogger("weakincentives").setLevel(logging.NOTSET)
    assert response.turns == 1_001
    assert shop.notes == [str(number) for number in range(250)]
    assert len(shop.outcomes) == 250 * 7
    assert_no_orphans(response.history)


@dataclass(frozen=True)
class Note:
    text: str


def test_ids_are_unique_also_beside_an_agent_inside_a_call() -> None:
    """Scripts and local models number their calls from 1; each event has an id of its own all the same."""

    def note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(params)

    noting = Tool[Note, Note](name="note", description="Note.", handler=note)
    inner = ScriptedAdapter(call("note", text="a"), call("note", text="b"), say("Done."))
    sub = Prompt(name="sub", sections=[MarkdownSection(title="Task", template="Note.", tools=[noting])])

    def delegate(params: Note, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok(inner.evaluate(sub, context.session).text)

    tool = Tool[Note, str](name="delegate", description="Delegate.", handler=delegate)
    prompt = Prompt(name="outer", sections=[MarkdownSection(title="Task", template="Go.", tools=[tool, noting])])
    session = Session()
    ScriptedAdapter(call("delegate", text="x"), call("note", text="c"), say("End.")).evaluate(prompt, session)
    ids = [event.call_id for event in session[ToolInvoked].all()]
    assert len(ids) == len(set(ids)) == 4
