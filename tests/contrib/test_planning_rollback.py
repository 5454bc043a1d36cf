"""The promise, for planning: whatever fails on the way, the state is that of the successful calls alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples

from weakincentives.adapters import ToolExecutor
from weakincentives.contrib.planning import AddStep, SetupPlan, UpdateStep, install_plan
from weakincentives.contrib.tools import Plan, PlanningConfig, PlanningToolsSection
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolInvoked, ToolResult
from weakincentives.runtime import ToolCall
from weakincentives.serde import dump_json
from weakincentives.session import Session

titles = st.text("ab \n", max_size=4) | st.just("x" * 501)
events = st.one_of(
    st.builds(SetupPlan, st.text("ob ", max_size=3), st.lists(titles, max_size=4).map(tuple)),
    st.builds(AddStep, st.lists(titles, max_size=3).map(tuple)),
    st.builds(
        UpdateStep,
        st.integers(-1, 12),
        st.none() | titles,
        st.none() | st.sampled_from(["pending", "in_progress", "done"]),
        st.none() | st.text("n ", max_size=3),
    ),
    st.none(),  # read the plan
)
faults = st.sampled_from(["none", "none", "none", "policy", "subscriber", "handler", "broken JSON", "unknown field"])

_NAMES: dict[Any, str] = {
    SetupPlan: "planning_setup_plan",
    AddStep: "planning_add_step",
    UpdateStep: "planning_update_step",
}


class Faulty:
    """A policy, a subscriber and a tool that fail after the change was made, when told to."""

    def __init__(self) -> None:
        self.fault = "none"
        self.event: Any = None

    def check(self, tool_name: str, params: object, context: object) -> str | None:
        return None

    def on_result(self, tool_name: str, params: object, result: object, context: object) -> None:
        if self.fault == "policy":
            raise RuntimeError("a policy failed")

    def hear(self, event: ToolInvoked) -> None:
        if self.fault == "subscriber":
            raise RuntimeError("a subscriber failed")

    def tool(self) -> Tool[Any, Any]:
        def handler(params: None, *, context: ToolContext) -> ToolResult[str]:
            install_plan(context.session)
            context.session.dispatch(SetupPlan("half done", ("a", "b")))
            if self.event is not None:
                context.session.dispatch(self.event)
            raise RuntimeError("the handler failed")

        return Tool[None, str](name="breaks", description="Changes the plan, then fails.", handler=handler)


def state(session: Session) -> Any:
    plan = session[Plan].latest()
    # The bookkeeping is left out of comparisons, so it is compared by hand.
    return None if plan is None else (plan, plan.last_step_id, plan.revision, session[Plan].count())


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(events, faults), max_size=20))
def test_failed_planning_calls_leave_no_trace(steps: list[tuple[Any, str]]) -> None:
    """A random sequence with failures of every kind gives exactly the plan that the successful calls give alone."""
    faulty = Faulty()
    session, alone = Session(), Session()
    install_plan(alone)
    prompt = Prompt(
        name="p",
        sections=[
            PlanningToolsSection(policies=[faulty]),
            MarkdownSection(title="More", template="", tools=[faulty.tool()]),
        ],
    )
    session.dispatcher.subscribe(ToolInvoked, faulty.hear)
    ids = count()
    with ToolExecutor(prompt=prompt, session=session) as executor:
        for event, fault in steps:
            faulty.fault, faulty.event = fault, event
            name = "breaks" if fault == "handler" else _NAMES.get(type(event), "planning_read_plan")
            arguments = "{}" if event is None or fault == "handler" else dump_json(event)
            if fault == "broken JSON":
                arguments = "{" + arguments
            elif fault == "unknown field":
                arguments = '{"surprise": 1}'
            before = session.snapshot()
            # A marker keeps equal calls apart: the fifth in a row would be refused, which is another promise.
            reply = executor.execute(ToolCall(str(next(ids)), name, arguments + " " * (next(ids) % 7)))
            if reply.outcome == "succeeded":
                assert fault == "none"
                if event is not None:
                    alone.dispatch(event)
            else:
                assert session.changes(before) == ()
            assert state(session) == state(alone)
    assert session[ToolInvoked].count() == len(steps)


@settings(max_examples=examples(50))
@given(st.lists(events, max_size=15))
def test_the_ids_of_a_session_are_given_once(changes: list[Any]) -> None:
    """Whatever is set up, added and replaced, no step id ever stands for two steps, and the status fits the steps."""
    session = Session()
    section = PlanningToolsSection(session=session)
    tools = {tool.params_type: tool for tool in section.tools}
    given_out: set[int] = set()
    for number, event in enumerate(change for change in changes if change is not None):
        prompt = Prompt(name="p", sections=[section])
        before = session[Plan].latest()
        with ToolExecutor(prompt=prompt, session=session) as executor:
            reply = executor.execute(ToolCall(str(number), tools[type(event)].name, dump_json(event)))
        plan = session[Plan].latest()
        if plan is None or not reply.result.success:
            continue
        old = set[int]() if before is None or isinstance(event, SetupPlan) else {step.step_id for step in before.steps}
        new = [step.step_id for step in plan.steps if step.step_id not in old]
        assert not given_out.intersection(new)
        given_out.update(new)
        assert new == sorted(new)
        done = bool(plan.steps) and all(step.status == "done" for step in plan.steps)
        assert plan.status == ("completed" if done else "active")


def test_reads_and_changes_from_many_threads_lose_nothing() -> None:
    """Calls of several evaluations on one session add every step, however they mix with reads of the plan."""
    session = Session()
    prompt = Prompt(name="p", sections=[PlanningToolsSection(config=PlanningConfig(max_steps=1000))])
    with ToolExecutor(prompt=prompt, session=session) as executor:
        executor.execute(ToolCall("0", "planning_setup_plan", {"objective": "x"}))

    def work(worker: int) -> None:
        with ToolExecutor(prompt=prompt, session=session) as executor:
            for number in range(30):
                executor.execute(ToolCall(f"r{number}", "planning_read_plan", "{}" + " " * (number % 3)))
                reply = executor.execute(ToolCall(f"a{number}", "planning_add_step", {"steps": [f"{worker}.{number}"]}))
                assert reply.outcome == "succeeded"

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    plan = session[Plan].latest()
    assert plan is not None
    assert {step.title for step in plan.steps} == {f"{worker}.{number}" for worker in range(4) for number in range(30)}
    assert [step.step_id for step in plan.steps] == list(range(1, 121))
