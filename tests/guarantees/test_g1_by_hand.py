"""G1, one answer, by hand: stepping through a conversation, or bringing calls twice, gives one answer and one event."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from tests.world import Go, World, fine, make_tool, ok, outcomes

from weakincentives.adapters import AnswerMessage, History, ModelMessage, ModelRequest
from weakincentives.errors import PromptEvaluationError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolInvoked, ToolResult
from weakincentives.runtime import PendingToolTracker, Session, ToolCall, ToolReply, transaction
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.testing import ScriptedAdapter, call, say


class Ran(list[str]):
    """A handler that notes what it did."""

    def __call__(self, params: Go) -> ToolResult[Any]:
        self.append(params.how)
        if params.how == "end":
            raise PromptEvaluationError("over")
        return ok(f"did {params.how}")


def note(ran: Ran) -> Tool[Go, Any]:
    def act(params: Go) -> ToolResult[Any]:
        return ran(params)

    return make_tool(act, max_repeats=None)


def prompt_with(*tools: Tool[Any, Any]) -> Prompt[str]:
    section = MarkdownSection(title="Task", template="Work.", tools=tools)
    return Prompt(PromptTemplate[str](ns="tests", key="by-hand", sections=[section]))


def read(messages: Sequence[Any]) -> list[tuple[str, str]]:
    """What a model reads of its calls."""
    return [(message.call_id, message.text) for message in messages if isinstance(message, AnswerMessage)]


def events(session: Session) -> list[tuple[str | None, str]]:
    return [(event.call_id, event.outcome) for event in session[ToolInvoked].all()]


# Ids that were answered.


def test_an_answered_id_is_never_run_again() -> None:
    """However many calls later an id comes back, nothing runs, nothing is recorded, and the answer is the first one."""
    ran = Ran()
    world = World(note(ran))
    first = world.call(arguments={"how": "once"}, call_id="mine")
    for _ in range(2_500):
        world.call(arguments={"how": "other"})
    again = world.call(arguments='{"number": 0, "how": "once"}', call_id="mine")
    assert again == first._replace(duplicate=True)
    assert ran.count("once") == 1
    assert sum(event.call_id == "mine" for event in world.events) == 1


def test_an_answered_id_that_was_undone_is_not_answered_with_success() -> None:
    """Nothing runs and nothing is recorded, but the answer says that what the call did is not there any more."""
    ran = Ran()
    world = World(note(ran))
    with transaction(world.session, validate=lambda: False):
        assert world.call(arguments={"how": "once"}, call_id="mine").success
    again = world.call(arguments={"how": "once"}, call_id="mine")
    assert (again.outcome, again.success, again.duplicate) == ("undone", False, True)
    assert "undone later" in again.text
    assert ran.count("once") == 1
    assert [event.outcome for event in world.events] == ["succeeded"]


def test_an_answered_id_that_was_undone_with_the_call_around_it() -> None:
    """The same for a call inside another one that failed."""
    inside = Session()

    def act(params: Go) -> ToolResult[Any]:
        if params.how == "inner":
            return ok()
        assert executor.execute(ToolCall("mine", "act", {"how": "inner"})).success
        return ToolResult.error("no")

    executor = ToolExecutor(prompt=prompt_with(make_tool(act)), session=inside)
    assert executor.execute(ToolCall("outer", "act", {"how": "outer"})).outcome == "failed"
    assert executor.execute(ToolCall("mine", "act", {"how": "inner"})).outcome == "undone"


@pytest.mark.parametrize("other", [("act", {"how": "two"}), ("unknown", {"how": "one"}), ("act", "{")])
def test_another_call_under_an_answered_id_gets_no_answer_of_it(other: tuple[str, Any]) -> None:
    """A different call that uses an answered id is not run, and is not given the answer to something else."""
    ran = Ran()
    world = World(note(ran))
    world.call(arguments={"how": "one"}, call_id="mine")
    reply = world.call(*other, call_id="mine")
    assert (reply.outcome, reply.duplicate) == ("invalid", True)
    assert reply.text == "The id 'mine' was used before, so this call was not run."
    assert (ran, outcomes(world.events)) == (["one"], ["succeeded"])


def test_an_id_that_is_still_running_is_not_run_again() -> None:
    """A second call with an id whose first is under way is refused at once, without an event."""
    inside, go = threading.Event(), threading.Event()

    def wait(params: Go) -> ToolResult[Any]:
        inside.set()
        assert go.wait(30)
        return ok()

    world = World(make_tool(wait))
    thread = threading.Thread(target=lambda: world.call(call_id="mine"))
    thread.start()
    assert inside.wait(30)
    reply = world.call(call_id="mine")
    go.set()
    thread.join(30)
    assert (reply.outcome, reply.duplicate) == ("invalid", True)
    assert outcomes(world.events) == ["succeeded"]


@pytest.mark.parametrize("way", ["execute_all", "aexecute_all"])
def test_a_turn_that_is_brought_again_runs_nothing(way: str) -> None:
    """The same calls once more give the same answers, in order, and leave no trace."""
    ran = Ran()
    world = World(note(ran))
    calls = [ToolCall(str(number), "act", {"how": str(number)}) for number in range(3)]

    def bring() -> list[ToolReply]:
        if way == "aexecute_all":
            return asyncio.run(world.executor.aexecute_all(calls))
        return world.executor.execute_all(calls)

    first = bring()
    assert bring() == [reply._replace(duplicate=True) for reply in first]
    assert (ran, len(world.events)) == (["0", "1", "2"], 3)


def test_a_call_that_was_answered_as_not_run_is_not_run_later() -> None:
    """The rest of a turn that ended the evaluation has its answer; bringing it again does not run it."""
    ran = Ran()
    world = World(note(ran))
    calls = [ToolCall("1", "act", {"how": "end"}), ToolCall("2", "act", {"how": "later"})]
    with pytest.raises(PromptEvaluationError):
        world.executor.execute_all(calls)
    reply = world.executor.execute(calls[1])
    assert (reply.outcome, reply.duplicate) == ("cancelled", True)
    assert (ran, outcomes(world.events)) == (["end"], ["crashed", "cancelled"])


def test_declining_an_answered_call_changes_nothing() -> None:
    """A call that has an event keeps it when it is declined; one that is declined is not run afterwards."""
    ran = Ran()
    world = World(note(ran))
    first = world.call(arguments={"how": "one"}, call_id="1")
    assert world.executor.decline(ToolCall("1", "act", {"how": "one"}), "No.").text == first.text
    world.executor.decline(ToolCall("2", "act", {"how": "two"}), "No.")
    assert world.call(arguments={"how": "two"}, call_id="2").text == "No."
    assert (ran, outcomes(world.events)) == (["one"], ["succeeded", "cancelled"])


def test_a_native_tool_with_an_answered_id_is_not_begun() -> None:
    """The tracker of native tools keeps to the same rule, for refusals too."""
    session = Session()
    tracker = PendingToolTracker(session=session)
    tracker.begin_tool_execution(tool_use_id="1", tool_name="Bash")
    tracker.end_tool_execution(tool_use_id="1", success=True)
    again = tracker.begin_tool_execution(tool_use_id="1", tool_name="Bash")
    refused = tracker.refuse(tool_use_id="1", tool_name="Bash", text="No.")
    assert again is not None
    assert again.duplicate
    assert refused.duplicate
    assert events(session) == [("1", "succeeded")]


# Models that use an id again.


def test_a_model_that_numbers_its_calls_anew_is_answered() -> None:
    """Ids that come back in later turns and conversations get a number of their own, so every call runs once."""
    ran, session = Ran(), Session()
    prompt = prompt_with(note(ran))
    for conversation in range(2):
        turns = [call("act", how=f"{conversation}.{turn}").with_id("call_0") for turn in range(3)]
        adapter = ScriptedAdapter(*turns, say("Done."))
        history = adapter.evaluate(prompt, session).history
        asked = [each.id for message in history.messages if isinstance(message, ModelMessage) for each in message.calls]
        assert asked == [call_id for call_id, _ in read(history.messages)]
        assert [text for _, text in read(history.messages)] == [f"did {conversation}.{turn}" for turn in range(3)]
    assert ran == [f"{conversation}.{turn}" for conversation in range(2) for turn in range(3)]
    ids = [event.call_id for event in session[ToolInvoked].all()]
    assert ids[0] == "call_0"
    assert len(set(ids)) == 6


def test_an_id_of_the_history_is_not_used_again() -> None:
    """A conversation that is continued in another session keeps its ids apart as well."""
    ran = Ran()
    prompt = prompt_with(note(ran))
    first = ScriptedAdapter(call("act", how="a").with_id("x"), say("So far.")).evaluate(prompt, Session())
    second = ScriptedAdapter(call("act", how="b").with_id("x"), say("Done."))
    history = second.evaluate(prompt, Session(), history=first.history).history
    ids = [call_id for call_id, _ in read(history.messages)]
    assert len(set(ids)) == 2
    assert ran == ["a", "b"]


@pytest.mark.parametrize("odd", ["", "i" * 3_000_000])
def test_an_id_that_no_provider_takes_back_is_made_up(odd: str) -> None:
    """A missing id, or one of megabytes, is replaced before anything is recorded or sent."""
    ran, session = Ran(), Session()
    asked: list[ModelRequest] = []

    def last(request: ModelRequest) -> Any:
        asked.append(request)
        return say("Done.")

    calls = [call("act", how="a").with_id(odd), call("act", how="b").with_id(odd)]
    ScriptedAdapter(calls, last).evaluate(prompt_with(note(ran)), session)
    assert ran == ["a", "b"]
    assert len(str(asked[0].messages)) < 10_000
    ids = [event.call_id for event in session[ToolInvoked].all()]
    assert len(set(ids)) == 2
    assert all(call_id and len(call_id) < 100 for call_id in ids)


def test_a_tool_name_of_megabytes_does_not_stay() -> None:
    """The call is answered as unknown, and neither the log nor the conversation holds more than its beginning."""
    session = Session()
    adapter = ScriptedAdapter(call("n" * 3_000_000), say("Done."))
    history = adapter.evaluate(prompt_with(), session).history
    assert len(history.to_json()) < 10_000
    (event,) = session[ToolInvoked].all()
    assert event.outcome == "unknown_tool"
    assert len(event.tool_name) < 300


# Manual mode.


def test_a_call_of_an_earlier_step_is_not_run_again() -> None:
    """A call that was handed out and answered steps ago gives its answer and runs nothing."""
    ran, session = Ran(), Session()
    prompt = prompt_with(note(ran))
    adapter = ScriptedAdapter(
        call("act", how="1").with_id("x"), call("act", how="2").with_id("x"), say("Done."), manual=True
    )
    first = adapter.evaluate(prompt, session)
    reply = first.tool_calls[0].execute()
    second = adapter.evaluate(prompt, session, tool_results=[reply])
    assert first.tool_calls[0].execute() == reply._replace(duplicate=True)
    adapter.evaluate(prompt, session, tool_results=[second.tool_calls[0].execute()])
    assert first.tool_calls[0].execute() == reply._replace(duplicate=True)
    assert ran == ["1", "2"]
    assert [outcome for _, outcome in events(session)] == ["succeeded", "succeeded"]


@pytest.mark.parametrize("text", ["Denied by Anna.", "no " * 1_000_000])
@pytest.mark.parametrize("continued", [False, True])
def test_a_denial_is_recorded(text: str, continued: bool) -> None:
    """A refusal given in `tool_results=` reaches the model and has one event, and the call is not run afterwards."""
    ran, session = Ran(), Session()
    prompt = prompt_with(note(ran))
    asked: list[ModelRequest] = []

    def last(request: ModelRequest) -> Any:
        asked.append(request)
        return say("Done.")

    adapter = ScriptedAdapter(call("act", how="x"), last, manual=True)
    step = adapter.evaluate(prompt, session)
    (open_call,) = step.tool_calls
    denied = ToolReply(open_call.id, text, ToolResult.error(text), "refused")
    history = step.history if continued else None
    adapter.evaluate(prompt, session, tool_results=[denied], history=history)
    ((call_id, shown),) = read(asked[0].messages)
    assert call_id == open_call.id
    assert shown.startswith(text[:1_000])
    assert len(shown) < 40_000
    (event,) = session[ToolInvoked].all()
    assert (event.outcome, event.tool_name, event.rendered_output) == ("refused", "act", shown)
    assert not event.success
    assert open_call.execute().duplicate
    assert ran == []


def test_an_answer_from_elsewhere_is_recorded_as_it_is_given() -> None:
    """The result of a call that was run by other means is recorded with its outcome and its value."""
    session = Session()
    adapter = ScriptedAdapter(call("act", how="x"), say("Done."), manual=True)
    prompt = prompt_with(make_tool(fine))
    (open_call,) = adapter.evaluate(prompt, session).tool_calls
    result: ToolResult[Any] = ToolResult.ok([1, 2], message="By hand.")
    adapter.evaluate(prompt, session, tool_results=[ToolReply(open_call.id, "By hand.", result, "succeeded")])
    (event,) = session[ToolInvoked].all()
    assert (event.outcome, event.success, event.result) == ("succeeded", True, result)


@pytest.mark.parametrize("given", ["nothing", "only the duplicate"])
def test_a_call_that_ran_is_not_said_to_be_not_run(given: str) -> None:
    """The model reads what became of a call that was executed, also when its reply was not handed back."""
    session = Session()
    adapter = ScriptedAdapter(call("act", how="x"), lambda request: say(read(request.messages)[0][1]), manual=True)
    prompt = prompt_with(note(Ran()))
    (open_call,) = adapter.evaluate(prompt, session).tool_calls
    open_call.execute()
    results = [] if given == "nothing" else [open_call.execute()]
    assert adapter.evaluate(prompt, session, tool_results=results).text == "did x"
    assert [outcome for _, outcome in events(session)] == ["succeeded"]


def test_an_abandoned_call_is_not_run_later() -> None:
    """A call that was handed out and recorded as not run stays so."""
    ran, session = Ran(), Session()
    adapter = ScriptedAdapter(call("act", how="x"), manual=True)
    (open_call,) = adapter.evaluate(prompt_with(note(ran)), session).tool_calls
    adapter.abandon(session)
    reply = open_call.execute()
    assert (reply.outcome, reply.duplicate, ran) == ("cancelled", True, [])
    assert [outcome for _, outcome in events(session)] == ["cancelled"]


# Histories with open calls.


def test_a_history_with_results_goes_on_where_it_was() -> None:
    """`history=` with open calls and `tool_results=` adds the answers and nothing else before the model is asked."""
    prompt = prompt_with(note(Ran()))
    adapter = ScriptedAdapter(call("act", how="x"), manual=True)
    session = Session()
    step = adapter.evaluate(prompt, session)
    reply = step.tool_calls[0].execute()
    other = ScriptedAdapter(say("Done."))
    kept = History.from_json(step.history.to_json())
    history = other.evaluate(prompt, session, history=kept, tool_results=[reply]).history
    assert list(other.requests[0].messages) == [*kept.messages, AnswerMessage(reply.call_id, reply.text)]
    assert sum("Work." in getattr(message, "text", "") for message in history.messages) == 1
    assert [outcome for _, outcome in events(session)] == ["succeeded"]
