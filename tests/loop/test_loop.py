"""`MainLoop`: one request after another."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest

from weakincentives.budget import Budget, BudgetTracker, TokenUsage
from weakincentives.deadlines import Deadline
from weakincentives.errors import PromptEvaluationError, PromptValidationError
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Section, Tool, ToolContext, ToolResult
from weakincentives.prompt.idempotency import IdempotencyConfig
from weakincentives.resources import Binding
from weakincentives.run_context import Heartbeat, RunContext
from weakincentives.runtime import EffectLedger, InProcessDispatcher, MainLoop, MainLoopConfig, Session, ToolInvoked
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Params:
    text: str = "x"


class Client:
    """Something that WINK builds and closes."""

    def __init__(self, name: str = "built") -> None:
        self.name = name
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def _ask(params: Params, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok(context.resources.get(Client).name)


ask = Tool[Params, str](name="ask", description="Ask the client.", handler=_ask)


class Asking(MainLoop[str, Any]):
    """A loop whose tool asks a client."""

    template: PromptTemplate[Any] = PromptTemplate[Any](
        ns="tests", key="ask", sections=[MarkdownSection(title="Task", template="Ask.", tools=[ask])]
    )
    bound: Any = None

    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        prompt = Prompt(self.template)
        if self.bound is not None:
            prompt = prompt.bind(resources=self.bound)
        return prompt, Session(bus=self.bus, tags={"request": request})


def script(turns: int = 1) -> ScriptedAdapter:
    return ScriptedAdapter(*[turn for _ in range(turns) for turn in (call("ask"), say("done"))])


def answered(session: Session) -> list[str]:
    return [event.rendered_output for event in session[ToolInvoked].all()]


class Built:
    """Counts what a provider builds."""

    def __init__(self) -> None:
        self.clients: list[Client] = []

    def binding(self) -> Binding[Client]:
        return Binding(Client, lambda _: self._build())

    def _build(self) -> Client:
        self.clients.append(Client())
        return self.clients[-1]


def test_a_request_is_prepared_evaluated_and_answered_with_its_session() -> None:
    """`execute` gives the response and the session that `prepare` made."""
    response, session = Asking(adapter=script(), config=MainLoopConfig(resources={Client: Client("mine")})).execute("a")
    assert (response.text, response.turns, response.stop_reason) == ("done", 2, "end_turn")
    assert session.tags == {"request": "a"}
    assert answered(session) == ["OK\nmine"]


def test_what_wink_builds_lives_for_one_execute_and_is_closed_once() -> None:
    """A SINGLETON of the config is built when first asked for, anew for each request, and closed with it."""
    built = Built()
    loop = Asking(adapter=script(2), config=MainLoopConfig(resources={Client: built.binding()}))
    loop.execute("a")
    assert [client.closed for client in built.clients] == [1]
    loop.execute("b")
    assert [client.closed for client in built.clients] == [1, 1]


def test_nothing_is_built_that_nobody_asks_for() -> None:
    """A request whose tools need no resource builds none."""
    built = Built()
    Asking(adapter=ScriptedAdapter(say("done")), config=MainLoopConfig(resources={Client: built.binding()})).execute(
        "a"
    )
    assert built.clients == []


def test_an_instance_stays_its_owners() -> None:
    """What was handed in is not closed."""
    client = Client()
    Asking(adapter=script(), config=MainLoopConfig(resources={Client: client})).execute("a")
    assert client.closed == 0


def test_what_was_built_is_closed_when_the_request_fails() -> None:
    """Also a request that raises closes its resources, once."""
    built = Built()
    adapter = ScriptedAdapter(call("ask"), RuntimeError("the line is dead"))
    loop = Asking(adapter=adapter, config=MainLoopConfig(resources={Client: built.binding()}))
    with pytest.raises(PromptEvaluationError, match="the line is dead"):
        loop.execute("a")
    assert [client.closed for client in built.clients] == [1]


@pytest.mark.parametrize(
    ("of_template", "config", "bound", "request_", "expected"),
    [
        ("template", None, None, None, "template"),
        ("template", "config", None, None, "config"),
        ("template", "config", "prepare", None, "prepare"),
        ("template", "config", "prepare", "request", "request"),
        (None, "config", "prepare", None, "prepare"),
        (None, "config", None, "request", "request"),
    ],
)
def test_the_nearer_resource_wins(
    of_template: str | None, config: str | None, bound: str | None, request_: str | None, expected: str
) -> None:
    """The request's resource counts before `prepare`'s, that before the config's, that before the template's."""

    def given(name: str | None) -> dict[type[Client], Client] | None:
        return None if name is None else {Client: Client(name)}

    class Loop(Asking):
        template = PromptTemplate[Any](
            ns="tests", key="ask", sections=Asking.template.sections, resources=given(of_template) or {}
        )

    Loop.bound = given(bound)
    loop = Loop(adapter=script(), config=MainLoopConfig(resources=given(config)))
    _, session = loop.execute("a", resources=given(request_))
    assert answered(session) == [f"OK\n{expected}"]


def test_providers_take_part_in_the_order_too() -> None:
    """A provider that `prepare` binds counts before an instance of template and config."""

    class Loop(Asking):
        template = PromptTemplate[Any](
            ns="tests", key="ask", sections=Asking.template.sections, resources={Client: Client("template")}
        )
        bound: Any = MappingProxyType({Client: Binding(Client, lambda _: Client("prepare"))})

    _, session = Loop(adapter=script(), config=MainLoopConfig(resources={Client: Client("config")})).execute("a")
    assert answered(session) == ["OK\nprepare"]


def test_a_resource_that_a_section_brings_must_not_be_bound_by_the_config_too() -> None:
    """The error names both places."""

    class Files(MarkdownSection[Any]):
        def resources(self) -> dict[type[Any], object]:
            return {Filesystem: InMemoryFilesystem()}

    class Loop(Asking):
        def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
            inner: Section[Any] = Files(title="Files", template="")
            return Prompt(name="p", sections=[MarkdownSection(title="A", template="", children=[inner])]), Session()

    loop = Loop(adapter=script(), config=MainLoopConfig(resources={Filesystem: InMemoryFilesystem()}))
    with pytest.raises(PromptValidationError, match="bound twice"):
        loop.execute("a")


def test_limits_of_the_config_hold_and_a_request_may_set_its_own() -> None:
    """Budget and deadline reach the evaluation; those of `execute` stand in place of the config's."""
    adapter = ScriptedAdapter(call("ask"), say("done"), usage=TokenUsage(80, 40))
    config = MainLoopConfig(resources={Client: Client()}, budget=Budget(max_total_tokens=100))
    with pytest.raises(PromptEvaluationError) as caught:
        Asking(adapter=adapter, config=config).execute("a")
    assert caught.value.phase == "budget"
    adapter = ScriptedAdapter(call("ask"), say("done"), usage=TokenUsage(80, 40))
    response, _ = Asking(adapter=adapter, config=config).execute("a", budget=Budget(max_total_tokens=1000))
    assert response.usage.total == 240


def test_a_deadline_may_be_a_moment_or_a_span() -> None:
    """A `timedelta` counts from the beginning of each request."""
    seen: list[float | None] = []

    def look(request: Any) -> Any:
        seen.append(request.timeout)
        return say("done")

    loop = Asking(adapter=ScriptedAdapter(look, look), config=MainLoopConfig(deadline=timedelta(minutes=5)))
    loop.execute("a")
    loop.execute("b", deadline=Deadline.after(timedelta(minutes=1)))
    assert [round(seconds or 0, -1) for seconds in seen] == [300, 60]
    with pytest.raises(ValueError, match="leaves no time"):
        MainLoopConfig(deadline=timedelta(0))


def test_a_tracker_counts_all_requests_together() -> None:
    """`budget_tracker` of the config ends the request that passes the limit."""
    tracker = BudgetTracker(Budget(max_total_tokens=150))
    adapter = ScriptedAdapter(say("1"), say("2"), say("3"), usage=TokenUsage(80, 0))
    loop = Asking(adapter=adapter, config=MainLoopConfig(budget_tracker=tracker))
    loop.execute("a")
    loop.execute("b")
    with pytest.raises(PromptEvaluationError, match="used up"):
        loop.execute("c")


def test_ledger_heartbeat_run_context_and_listener_reach_the_evaluation() -> None:
    """Everything of the config is handed on."""
    runs: list[str] = []

    def pay(params: Params, *, context: ToolContext) -> ToolResult[str]:
        runs.append(params.text)
        return ToolResult.ok("paid")

    tool = Tool[Params, str](name="pay", description="Pay.", handler=pay, idempotency=IdempotencyConfig(scope="global"))

    class Loop(Asking):
        def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
            return Prompt(name="p", sections=[MarkdownSection(title="A", template="", tools=[tool])]), Session()

    heard: list[Any] = []
    heartbeat = Heartbeat()
    config = MainLoopConfig(effect_ledger=EffectLedger(), heartbeat=heartbeat, on_event=heard.append)
    loop = Loop(adapter=ScriptedAdapter(call("pay"), say("a"), call("pay"), say("b")), config=config)
    _, first = loop.execute("a")
    _, second = loop.execute("b", run_context=RunContext(request_id="r-2"))
    assert runs == ["x"]
    assert [event.outcome for event in (*first[ToolInvoked].all(), *second[ToolInvoked].all())] == [
        "succeeded",
        "replayed",
    ]
    assert heartbeat.count
    assert len(heard) >= 8
    contexts = [session[ToolInvoked].all()[0].run_context for session in (first, second)]
    assert contexts[0] is not None
    assert contexts[0].session_id == first.session_id
    assert contexts[1] is not None
    assert contexts[1].request_id == "r-2"


def test_events_reach_the_bus() -> None:
    """Subscribers of the loop's bus hear of every request's calls."""
    heard: list[str] = []
    bus = InProcessDispatcher()
    bus.subscribe(ToolInvoked, lambda event: heard.append(event.tool_name))
    loop = Asking(adapter=script(2), bus=bus, config=MainLoopConfig(resources={Client: Client()}))
    loop.execute("a")
    loop.execute("b")
    assert heard == ["ask", "ask"]


def test_a_session_that_does_not_use_the_bus_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A bus without subscribers is named in the log, with the fix."""

    class Loop(Asking):
        def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
            return Prompt(self.template), Session()

    with caplog.at_level(logging.WARNING):
        Loop(adapter=ScriptedAdapter(say("done")), bus=InProcessDispatcher()).execute("a")
    assert "use Session(bus=self.bus)" in caplog.text


def test_what_prepare_returns_is_checked() -> None:
    """A loop whose `prepare` gives something else says what is expected."""

    class Wrong(Asking):
        def prepare(self, request: str) -> Any:
            return Session(), "prompt"

    class Late(Asking):
        async def prepare(self, request: str) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return None

    with pytest.raises(TypeError, match=r"Wrong\.prepare\(\) must return \(Prompt, Session\), got \(Session, str\)"):
        Wrong(adapter=script()).execute("a")
    with pytest.raises(TypeError, match="got coroutine"):
        Late(adapter=script()).execute("a")


def test_wrong_construction_is_refused() -> None:
    """An adapter without evaluate and a config of another type raise TypeError; so does a base without prepare."""
    with pytest.raises(TypeError, match=r"needs an adapter with evaluate\(\)"):
        Asking(adapter="gpt")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="takes a MainLoopConfig"):
        Asking(adapter=script(), config={})  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="resources= takes a mapping"):
        MainLoopConfig(resources=[Client])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="abstract"):
        MainLoop(adapter=script())  # pyright: ignore[reportAbstractUsage]


def test_a_request_goes_on_from_a_history() -> None:
    """`history=`: what was said before stands before the prompt."""
    loop = Asking(script(2))
    first, _ = loop.execute("a", resources={Client: Client()})
    second, _ = loop.execute("b", resources={Client: Client()}, history=first.history)
    assert second.history.messages[: len(first.history.messages)] == first.history.messages
    assert len(second.history.messages) == 2 * len(first.history.messages)


def test_aexecute_is_the_same_for_async_code() -> None:
    """`aexecute` closes once too, and its sessions hold the same."""
    built = Built()
    loop = Asking(adapter=script(), config=MainLoopConfig(resources={Client: built.binding()}))
    response, session = asyncio.run(loop.aexecute("a"))
    assert response.text == "done"
    assert answered(session) == ["OK\nbuilt"]
    assert [client.closed for client in built.clients] == [1]


def test_an_adapter_without_aevaluate_says_so() -> None:
    """`aexecute` needs an adapter for async code."""

    class Plain:
        def evaluate(self, prompt: Any, session: Any, **options: Any) -> Any:
            return "answer"

    loop = Asking(adapter=Plain())
    assert loop.execute("a")[0] == "answer"
    with pytest.raises(TypeError, match=r"Plain has no aevaluate\(\)"):
        asyncio.run(loop.aexecute("a"))
