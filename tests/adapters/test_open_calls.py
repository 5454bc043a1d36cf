"""Conversations that were interrupted: what a model reads of calls that have no answer is never a lie."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.wires import CONNECTORS, connected

from weakincentives.adapters import (
    AnswerMessage,
    CallMessage,
    History,
    ModelMessage,
    TurnAdapter,
    UserMessage,
    history_of,
)
from weakincentives.errors import PromptEvaluationError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolAnnotations, ToolResult
from weakincentives.runtime import (
    EffectLedger,
    IdempotencyConfig,
    Ledger,
    PromptExecuted,
    PromptRendered,
    Session,
    SqliteEffectLedger,
    ToolInvoked,
    ToolReply,
    create_snapshot,
    restore_snapshot,
)
from weakincentives.session import append_all
from weakincentives.testing import ScriptedAdapter, call, say
from weakincentives.testing.adapter_contract import Workshop, assert_no_orphans


@dataclass(frozen=True)
class Order:
    number: str


@dataclass(frozen=True)
class Receipt:
    number: str


class Shop:
    """A tool that pays once, one that pays every time and one that only looks; `paid` is the world outside."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        once = IdempotencyConfig(scope="shop")
        tools = [
            Tool[Order, Receipt](name="pay", description="Pay.", handler=self.pay, idempotency=once),
            Tool[Order, Receipt](name="send", description="Send.", handler=self.pay),
            Tool[Order, Receipt](
                name="look", description="Look.", handler=self.pay, annotations=ToolAnnotations(read_only=True)
            ),
        ]
        section = MarkdownSection(title="Shop", template="Sell things.", tools=tools)
        self.prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="tests", key="shop", sections=[section]))

    def pay(self, params: Order) -> ToolResult[Receipt]:
        self.paid.append(params.number)
        if params.number == "broken":
            raise ConnectionError("the line went dead")
        return ToolResult.ok(Receipt(params.number), message=f"Paid {params.number}.")


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    made: Ledger = EffectLedger() if request.param == "memory" else SqliteEffectLedger(tmp_path / "ledger.db")
    yield made
    made.close()


def interrupted(
    shop: Shop,
    tool: str,
    ledger: Ledger | None = None,
    *,
    run: bool = True,
    number: str = "A",
    session: Session | None = None,
) -> Any:
    """The history of a process that ended after it ran the call and before anything was told of it; its session."""
    session = session or Session()
    adapter = ScriptedAdapter(call(tool, number=number).with_id("c1"), manual=True)
    step = adapter.evaluate(shop.prompt, session, effect_ledger=ledger)
    if run:
        step.tool_calls[0].execute()
    return History.from_json(step.history.to_json()), session


def continued(
    adapter: TurnAdapter, shop: Shop, session: Session, way: str = "evaluate", **options: Any
) -> tuple[str, History]:
    """What the model reads of the open call, and the whole conversation."""
    if way == "aevaluate":
        history = asyncio.run(adapter.aevaluate(shop.prompt, session, **options)).history
    else:
        history = adapter.evaluate(shop.prompt, session, **options).history
    assert_no_orphans(history)
    (answer,) = [message for message in history.messages if isinstance(message, AnswerMessage)]
    return answer.text, history


def outcomes(session: Session) -> list[str]:
    return [event.outcome for event in session[ToolInvoked].all()]


UNKNOWN = (
    "The outcome of 'send' is unknown: the conversation was interrupted before it was recorded.\n"
    "It may have happened, so do not repeat it. Check first, with another tool or by asking a person, "
    "and go on from what you find."
)


UNDONE = (
    "This call succeeded, but what it changed was undone later.\nCheck what is there now before you call 'send' again."
)


@pytest.mark.parametrize("way", ["evaluate", "aevaluate"])
def test_the_log_of_the_session_knows_a_call_that_ran(way: str) -> None:
    """A call that is in the session's log is answered with what it gave, and gets no second event."""
    shop = Shop()
    history, session = interrupted(shop, "send")
    text, _ = continued(ScriptedAdapter(say("On.")), shop, session, way, history=history)
    assert text.startswith("Paid A.")
    assert outcomes(session) == ["succeeded"]
    assert shop.paid == ["A"]


def test_a_call_that_was_undone_since_is_said_to_be_undone() -> None:
    """A success in the log is no answer any more once a transaction around it, or a snapshot, has undone it."""
    shop, session = Shop(), Session()
    before = create_snapshot(session)
    history, session = interrupted(shop, "send", session=session)
    restore_snapshot(session, None, before)
    text, _ = continued(ScriptedAdapter(say("On.")), shop, session, history=history)
    assert text == UNDONE
    assert outcomes(session) == ["succeeded"]


def test_a_call_that_failed_is_said_to_have_failed() -> None:
    """The log is asked about failures too."""
    shop = Shop()
    history, session = interrupted(shop, "send", number="broken")
    text, _ = continued(ScriptedAdapter(say("On.")), shop, session, history=history)
    assert text == "Internal error: the line went dead"
    assert outcomes(session) == ["crashed"]


@pytest.mark.parametrize("way", ["evaluate", "aevaluate"])
def test_the_ledger_knows_a_call_that_another_process_ran(ledger: Ledger, way: str) -> None:
    """With only the ledger left the answer is the recorded one: an event, and the value goes to its reducers."""
    shop, session = Shop(), Session()
    session[Receipt].register(Receipt, append_all)
    history, _ = interrupted(shop, "pay", ledger)
    text, _ = continued(ScriptedAdapter(say("On.")), shop, session, way, history=history, effect_ledger=ledger)
    assert text.startswith("Paid A.")
    assert outcomes(session) == ["replayed"]
    (event,) = session[ToolInvoked].all()
    assert event.result is not None
    assert (event.success, event.result.value, event.call_id) == (True, Receipt("A"), "c1")
    assert session[Receipt].all() == (Receipt("A"),)
    assert shop.paid == ["A"]


def test_the_ledger_knows_a_call_in_doubt(ledger: Ledger) -> None:
    """An effect that may have happened is said to be unknown."""
    shop, session = Shop(), Session()
    history, _ = interrupted(shop, "pay", ledger, number="broken")
    text, _ = continued(ScriptedAdapter(say("On.")), shop, session, history=history, effect_ledger=ledger)
    assert text.startswith("The outcome of 'pay' is unknown")
    assert outcomes(session) == ["unknown"]


@pytest.mark.parametrize("run", [True, False])
@pytest.mark.parametrize("way", ["evaluate", "aevaluate"])
def test_where_nothing_is_known_the_outcome_is_unknown(run: bool, way: str) -> None:
    """Without a log or a ledger it is unknown whether the call ran, and the model is told so."""
    shop, session = Shop(), Session()
    history, _ = interrupted(shop, "send", run=run)
    text, _ = continued(ScriptedAdapter(say("On.")), shop, session, way, history=history)
    assert text == UNKNOWN
    assert outcomes(session) == ["unknown"]


def test_a_call_that_only_reads_may_be_repeated() -> None:
    """The result of a read-only tool is lost, which is all there is to say."""
    shop, session = Shop(), Session()
    history, _ = interrupted(shop, "look")
    text, _ = continued(ScriptedAdapter(say("On.")), shop, session, history=history)
    assert "unknown" not in text
    assert "not run" not in text
    assert text.endswith("It only reads: call it again if its result is still needed.")
    assert outcomes(session) == ["cancelled"]


def test_a_tool_that_is_gone_may_have_had_effects() -> None:
    """Of a tool that the prompt no longer has nothing is known either."""
    shop, session = Shop(), Session()
    history = History((UserMessage("Hi"), ModelMessage("", (CallMessage("c1", "gone", "{}"),))))
    text, _ = continued(ScriptedAdapter(say("On.")), shop, session, history=history)
    assert text.startswith("The outcome of 'gone' is unknown")


def test_not_run_is_said_where_that_is_certain() -> None:
    """A call of the conversation that this adapter holds open was not run when it is left out."""
    shop, session = Shop(), Session()
    adapter = ScriptedAdapter(call("send", number="A"), say("On."), manual=True)
    step = adapter.evaluate(shop.prompt, session)
    text, _ = continued(adapter, shop, session, history=step.history)
    assert text == "This call was not run, because the conversation went on without it."
    assert outcomes(session) == ["cancelled"]


def test_another_conversation_of_the_session_answers_nothing() -> None:
    """The event of another conversation's call is not taken for this one's, although the model uses the same ids."""
    shop, session = Shop(), Session()
    ScriptedAdapter(call("send", number="A"), say("Done.")).evaluate(shop.prompt, session)
    step = ScriptedAdapter(call("send", number="A"), manual=True).evaluate(shop.prompt, session)
    text, _ = continued(ScriptedAdapter(say("On.")), shop, session, history=step.history)
    assert text == UNKNOWN


def test_several_open_calls_are_each_answered_by_what_is_known(ledger: Ledger) -> None:
    """In the model's order: one is given, one is in the ledger, of one nothing is known."""
    shop, session = Shop(), Session()
    calls = [call(tool, number=tool).with_id(tool) for tool in ("look", "pay", "send")]
    adapter = ScriptedAdapter(calls, manual=True)
    step = adapter.evaluate(shop.prompt, Session(), effect_ledger=ledger)
    step.tool_calls[1].execute()
    given = ToolReply("look", "Denied.", ToolResult.error("Denied."), "refused")
    response = ScriptedAdapter(say("On.")).evaluate(
        shop.prompt, session, history=step.history, tool_results=[given], effect_ledger=ledger
    )
    read = [message for message in response.history.messages if isinstance(message, AnswerMessage)]
    assert [message.call_id for message in read] == ["look", "pay", "send"]
    assert [message.text.split("\n")[0] for message in read][:2] == ["Denied.", "Paid pay."]
    assert read[2].text == UNKNOWN
    assert outcomes(session) == ["refused", "replayed", "unknown"]


def test_an_evaluation_that_cannot_begin_does_not_lie_either() -> None:
    """When it ends before the calls were answered, they are answered by what is known all the same."""
    shop = Shop()
    history, session = interrupted(shop, "send")

    class Mute(ScriptedAdapter):
        def ask(self, request: Any) -> Any:
            raise PromptEvaluationError("no line")

    with pytest.raises(PromptEvaluationError) as caught:
        Mute().evaluate(shop.prompt, session, history=history)
    kept = history_of(caught.value)
    assert kept is not None
    (answer,) = [message for message in kept.messages if isinstance(message, AnswerMessage)]
    assert answer.text.startswith("Paid A.")


@pytest.mark.slow
@pytest.mark.parametrize("wire", CONNECTORS)
def test_a_provider_is_sent_a_whole_conversation(wire: str) -> None:
    """On every wire: results continue the conversation, the prompt stands in it once, and nothing is recorded twice."""
    shop = Workshop()
    with connected(wire, call("write", path="1"), say("Done.")) as (adapter, server):
        manual = ScriptedAdapter(call("write", path="1"), manual=True)
        step = manual.evaluate(shop.prompt, shop.session)
        reply = step.tool_calls[0].execute()
        kept = History.from_json(step.history.to_json())
        response = adapter.evaluate(shop.prompt, shop.session, history=kept, tool_results=[reply])
        assert response.text == "Done."
        assert_no_orphans(response.history)
        sent = str(server.received[0].body)
        assert sent.count("Do the work.") == 1
        assert sent.count("Wrote 1.") == 1
    assert shop.outcomes == [("write", "succeeded"), ("write", "succeeded")]
    assert len({event.call_id for event in shop.session[ToolInvoked].all()}) == 2


def test_a_prompt_that_is_continued_is_not_rendered_for_the_log() -> None:
    """The prompt was said before, so the log says so once; sections opened later are shown in its place."""
    shop = Workshop()
    adapter = ScriptedAdapter(call("write", path="1"), manual=True)
    step = adapter.evaluate(shop.prompt, shop.session)
    reply = step.tool_calls[0].execute()
    opening = call("open_sections", section_keys=["manual"], reason="to dig")
    other = ScriptedAdapter(opening, call("dig"), say("Done."))
    response = other.evaluate(shop.prompt, shop.session, history=step.history, tool_results=[reply])
    assert shop.session[PromptRendered].count() == 2  # the first step, and the sections
    assert shop.session[PromptExecuted].count() == 1
    users = [message for message in response.history.messages if isinstance(message, UserMessage)]
    assert len(users) == 1
    assert "Dig with care." in users[0].text
    assert_no_orphans(response.history)


def test_without_results_the_prompt_follows_the_answers() -> None:
    """`history=` alone is a new question in an old conversation: the prompt is said after the answers."""
    shop = Shop()
    history, session = interrupted(shop, "send")
    _, whole = continued(ScriptedAdapter(say("On.")), shop, session, history=history)
    kinds = [message.kind for message in whole.messages]
    assert kinds == ["user", "model", "answer", "user", "model"]


def test_a_history_without_a_prompt_is_given_one() -> None:
    """Results for a conversation that begins with the model's turn do not keep the prompt from being said."""
    shop, session = Shop(), Session()
    history = History((ModelMessage("", (CallMessage("c1", "send", '{"number": "A"}'),)),))
    given = ToolReply("c1", "Sent.", ToolResult.ok(None, message="Sent."), "succeeded")
    _, whole = continued(ScriptedAdapter(say("On.")), shop, session, history=history, tool_results=[given])
    assert [message.kind for message in whole.messages] == ["model", "answer", "user", "model"]


@pytest.mark.parametrize("way", ["evaluate", "aevaluate"])
@pytest.mark.parametrize("answered", [False, True])
def test_an_answer_to_a_call_that_is_not_open_is_refused(way: str, answered: bool) -> None:
    """Ids that the history does not have open are named, with those that are; nothing is recorded, closed or sent."""
    shop = Shop()
    session = Session()
    stepper = ScriptedAdapter(call("send", number="A").with_id("c1"), say("On."), manual=True)
    step = stepper.evaluate(shop.prompt, session)
    reply = step.tool_calls[0].execute()
    history = step.history
    if answered:
        history = History((*history.messages, AnswerMessage("c1", "Paid A.")))
        wrong, is_open = [reply], "none"
    else:
        wrong, is_open = [reply, reply._replace(call_id="c9"), reply._replace(call_id="c8")], "c1"
    ids = "c1" if answered else "c8, c9"
    with pytest.raises(ValueError) as caught:
        continued(stepper, shop, session, way, history=history, tool_results=iter(wrong))
    assert str(caught.value) == (
        f"tool_results= holds answers to calls that are not open: {ids}. Open in history=: {is_open}. "
        "Leave these answers out, or continue the conversation that made the calls."
    )
    assert len(stepper.requests) == 1
    assert outcomes(session) == ["succeeded"]
    # The conversation of manual mode is as open as before.
    assert stepper.evaluate(shop.prompt, session, tool_results=[reply]).text == "On."


def test_a_history_without_calls_takes_no_results() -> None:
    """Results without any open call are an error too, and an empty list of them is not."""
    shop, history = Shop(), History((UserMessage("Hello"), ModelMessage("Good day.")))
    adapter = ScriptedAdapter(say("On."))
    many = [ToolReply(f"c{number:02}", "x", ToolResult.ok("x"), "succeeded") for number in range(30)]
    with pytest.raises(ValueError, match=r"c00, .*, c19 and 10 more\. Open in history=: none\."):
        adapter.evaluate(shop.prompt, Session(), history=history, tool_results=many)
    assert adapter.requests == []
    assert adapter.evaluate(shop.prompt, Session(), history=history, tool_results=[]).text == "On."


def test_a_repeated_answer_to_an_older_call_does_no_harm() -> None:
    """What `execute` says of a call that ran before is marked as a duplicate, and may be handed back again."""
    shop = Shop()
    history, session = interrupted(shop, "send")
    older = ToolReply("c0", "x", ToolResult.ok("x"), "succeeded", duplicate=True)
    text, _ = continued(ScriptedAdapter(say("On.")), shop, session, history=history, tool_results=[older])
    assert text.startswith("Paid A.")
