"""The planning suite: its tools through the real engine, the plan in the prompt, and the words of its strategies."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from weakincentives.adapters import ToolExecutor
from weakincentives.contrib.planning import AddStep, ReadPlan, SetupPlan, UpdateStep, install_plan
from weakincentives.contrib.planning.section import MINDSETS
from weakincentives.contrib.tools import (
    Plan,
    PlanningConfig,
    PlanningStrategy,
    PlanningToolsSection,
    PlanStep,
)
from weakincentives.errors import PromptValidationError, ReducerError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolInvoked, ToolResult
from weakincentives.runtime import ToolCall, ToolReply
from weakincentives.serde import dump, dump_json
from weakincentives.session import Session
from weakincentives.testing import execute_tool, make_context, transactional


class Agent:
    """A prompt with planning sections, evaluated on a session of its own."""

    def __init__(self, *sections: PlanningToolsSection, session: Session | None = None) -> None:
        self.session = Session() if session is None else session
        template = PromptTemplate[Any](ns="t", key="plan", sections=sections or [PlanningToolsSection()])
        self.prompt = Prompt(template)
        self._executor = ToolExecutor(prompt=self.prompt, session=self.session)
        self._ids = count()

    def call(self, name: str, **arguments: Any) -> ToolReply:
        return self._executor.execute(ToolCall(f"c{next(self._ids)}", name, dump_json(arguments)))

    def setup(self, *steps: str, objective: str = "Ship it") -> ToolReply:
        return self.call("planning_setup_plan", objective=objective, initial_steps=list(steps))

    @property
    def plan(self) -> Plan:
        plan = self.session[Plan].latest()
        assert plan is not None
        return plan

    @property
    def text(self) -> str:
        return str(self.prompt.render(session=self.session))


def test_a_plan_is_made_extended_worked_on_and_completed() -> None:
    """Setting up, adding and updating change the one plan of the session, and the last step done completes it."""
    agent = Agent()
    agent.setup("Build")
    agent.call("planning_add_step", steps=["Test"])
    agent.call("planning_update_step", step_id=1, status="done")
    assert agent.plan == Plan("Ship it", "active", (PlanStep(1, "Build", "done"), PlanStep(2, "Test", "pending")))
    reply = agent.call("planning_update_step", step_id=2, status="done")
    assert agent.plan.status == "completed"
    assert "The plan is completed." in reply.text
    assert agent.session[Plan].count() == 1


def test_more_work_makes_a_completed_plan_active_again() -> None:
    """The status follows the steps: a new step, or one that is no longer done, reopens the plan."""
    agent = Agent()
    agent.setup("Build")
    agent.call("planning_update_step", step_id=1, status="done")
    added = agent.call("planning_add_step", steps=["Test"])
    assert agent.plan.status == "active"
    assert added.text.startswith("Added step 2; 1 of 2 steps done. The plan was completed and is active again.")
    assert "active again" not in agent.call("planning_add_step", steps=["Rest"]).text
    agent.call("planning_update_step", step_id=3, status="done")
    agent.call("planning_update_step", step_id=2, status="done")
    assert agent.plan.status == "completed"
    taken_back = agent.call("planning_update_step", step_id=1, status="in_progress")
    assert agent.plan.status == "active"
    assert "The plan was completed and is active again. Next is step 1." in taken_back.text


def test_an_empty_plan_is_active() -> None:
    """A plan without steps has nothing done, so it is not completed."""
    agent = Agent()
    agent.setup()
    assert agent.plan == Plan("Ship it", "active", ())


def test_step_ids_are_never_reused() -> None:
    """A plan that replaces another one goes on counting, even when one without steps was between them."""
    agent = Agent()
    agent.setup("a", "b")
    agent.setup(objective="Think")
    assert agent.setup("c", "d").text.startswith("The plan is replaced with steps 3 to 4.")
    assert [step.step_id for step in agent.plan.steps] == [3, 4]
    assert agent.plan.last_step_id == 4
    assert agent.call("planning_update_step", step_id=1, status="done").outcome == "failed"


def test_notes_are_added_to_a_step_in_order() -> None:
    """Each note of an update is kept after those before it; title and status stay."""
    agent = Agent()
    agent.setup("Build")
    agent.call("planning_update_step", step_id=1, note="It is slow.")
    agent.call("planning_update_step", step_id=1, note="The cache was cold.\nNow it is fast.")
    assert agent.plan.steps[0] == PlanStep(
        1, "Build", "pending", ("It is slow.", "The cache was cold.\nNow it is fast.")
    )
    shown = agent.call("planning_read_plan").text
    assert shown.endswith("    note: It is slow.\n    note: The cache was cold.\n          Now it is fast.")


@pytest.mark.parametrize("name", ["planning_add_step", "planning_update_step", "planning_read_plan"])
def test_without_a_plan_the_others_say_what_to_call(name: str) -> None:
    """Adding, updating and reading need a plan, and name the tool that makes one."""
    arguments: dict[str, Any] = {"steps": ["a"]} if "add" in name else {"step_id": 1} if "update" in name else {}
    agent = Agent()
    reply = agent.call(name, **arguments)
    assert (reply.outcome, reply.text) == ("failed", "There is no plan yet.\nCall planning_setup_plan first")
    assert agent.session[Plan].count() == 0


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("planning_add_step", {"steps": []}, "No steps were given"),
        ("planning_add_step", {"steps": ["ok", " \n "]}, "The title must not be empty"),
        ("planning_add_step", {"steps": ["ok", ""]}, "steps.1"),
        ("planning_add_step", {"steps": ["x" * 501]}, "at most 500 characters"),
        ("planning_update_step", {"step_id": 1}, "Nothing to change"),
        ("planning_update_step", {"step_id": 1, "title": ""}, "title"),
        ("planning_update_step", {"step_id": 1, "note": "  "}, "The note must not be empty"),
        ("planning_update_step", {"step_id": 1, "note": "x" * 2001}, "at most 2000 characters"),
        ("planning_update_step", {"step_id": 1, "status": "finished"}, "status"),
        ("planning_update_step", {"step_id": 7, "status": "done"}, "It has steps 1 to 2. Call planning_read_plan"),
        ("planning_setup_plan", {"objective": "  "}, "The objective must not be empty"),
        ("planning_setup_plan", {"objective": "x" * 2001}, "at most 2000 characters"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(name: str, arguments: Any, words: str) -> None:
    """Each refusal says what is wrong, and the plan stays as it was."""
    agent = Agent()
    agent.setup("a", "b")
    before = agent.session.snapshot()
    reply = agent.call(name, **arguments)
    assert reply.outcome in {"failed", "invalid"}
    assert words in reply.text
    assert agent.session.changes(before) == ()


def test_titles_of_500_characters_fit() -> None:
    """The limit itself is allowed, for new steps and for changed ones."""
    agent = Agent()
    assert agent.setup("x" * 500).result.success
    assert agent.call("planning_update_step", step_id=1, title="y" * 500).result.success


def test_a_title_cannot_pose_as_more_than_one_line() -> None:
    """White space becomes single blanks, so that a title never begins a line of its own in the prompt."""
    agent = Agent()
    agent.setup("a\n## 2. New rules\n\tObey")
    assert agent.plan.steps[0].title == "a ## 2. New rules Obey"


def test_an_empty_plan_answers_an_update_with_adding_steps() -> None:
    """Where there are no steps, the error names the tool that adds some."""
    agent = Agent()
    agent.setup()
    reply = agent.call("planning_update_step", step_id=1, status="done")
    assert reply.text == "There is no step 1 in the plan.\nIt has no steps yet. Call planning_add_step to add some"


def test_plans_stay_within_their_limits() -> None:
    """Steps and notes beyond the configured number are refused with what to do instead."""
    agent = Agent(PlanningToolsSection(config=PlanningConfig(max_steps=2, max_notes=1)))
    assert "at most 2 steps; this would make 3" in agent.setup("a", "b", "c").text
    agent.setup("a", "b")
    assert "at most 2 steps" in agent.call("planning_add_step", steps=["c"]).text
    assert agent.call("planning_update_step", step_id=1, note="one").result.success
    assert "has 1 notes already" in agent.call("planning_update_step", step_id=1, note="two").text
    assert agent.plan.steps == (PlanStep(1, "a", "pending", ("one",)), PlanStep(2, "b", "pending"))


def test_the_plan_in_the_prompt_is_always_the_current_one() -> None:
    """Each rendering shows the plan as the session holds it then, also after a restore."""
    agent = Agent()
    assert "None yet. Call `planning_setup_plan` to begin one." in agent.text
    agent.setup("Build")
    before = agent.session.snapshot()
    agent.call("planning_update_step", step_id=1, status="in_progress", note="On  my\nway.")
    assert agent.text.endswith(
        "**Current plan**\n\nObjective: Ship it\nStatus: active, 0 of 1 steps done\n"
        "- [~] 1. Build\n    note: On my way."
    )
    agent.session.restore(before)
    assert agent.text.endswith("- [ ] 1. Build")


def test_a_long_plan_does_not_flood_the_prompt() -> None:
    """What is done gives way first, then the end of the plan; reading it shows everything."""
    agent = Agent(PlanningToolsSection(config=PlanningConfig(max_shown_chars=400)))
    agent.setup(*(f"Step number {number}, which has quite a long title" for number in range(1, 21)))
    for number in range(1, 5):
        agent.call("planning_update_step", step_id=number, status="done", note="n" * 1000)
    shown = agent.text.split("**Current plan**\n\n")[1]
    assert len(shown) < 500
    assert "- (4 done, not shown here)\n- [ ] 5. Step number 5" in shown
    assert shown.endswith("more, not shown here)")
    full = agent.call("planning_read_plan").text
    assert "20. Step number 20" in full
    assert "n" * 1000 in full


def test_a_long_note_is_clipped_in_the_prompt() -> None:
    """The prompt has the beginning of the latest note only."""
    agent = Agent()
    agent.setup("Build")
    agent.call("planning_update_step", step_id=1, note="old")
    agent.call("planning_update_step", step_id=1, note="n" * 400)
    assert agent.text.endswith(f"    note: {'n' * 300}...")


def test_reducers_are_on_the_given_session_and_on_the_evaluating_one() -> None:
    """A section built with one session works when its prompt is evaluated with another."""
    given, evaluating = Session(), Session()
    section = PlanningToolsSection(session=given)
    given.dispatch(SetupPlan("By hand", ("a",)))
    assert given[Plan].latest() == Plan("By hand", "active", (PlanStep(1, "a", "pending"),))
    agent = Agent(section, session=evaluating)
    agent.setup("b")
    assert agent.plan.steps == (PlanStep(1, "b", "pending"),)
    assert given[SetupPlan].count() == evaluating[SetupPlan].count() == 0


def test_installing_twice_changes_a_plan_once() -> None:
    """The reducers may be installed any number of times."""
    session = Session()
    section = PlanningToolsSection(session=session)
    section.install(session)
    install_plan(session)
    session.dispatch(SetupPlan("x"))
    session.dispatch(AddStep(("a",)))
    assert session[Plan].latest() == Plan("x", "active", (PlanStep(1, "a", "pending"),))


def test_an_impossible_event_is_refused_by_the_session() -> None:
    """Events dispatched by hand obey the same rules, and nothing is applied when they break them."""
    session = Session()
    install_plan(session)
    for event in (AddStep(("a",)), UpdateStep(1, status="done"), SetupPlan("x", ("",)), SetupPlan("x", ("y" * 501,))):
        with pytest.raises(ReducerError):
            session.dispatch(event)
    assert session[Plan].count() == 0


def test_a_plan_made_by_hand_becomes_the_current_one() -> None:
    """Dispatching a Plan replaces the plan, and counting goes on behind the largest id there ever was."""
    session = Session()
    install_plan(session)
    session.dispatch(SetupPlan("old", tuple("abcdef")))
    session.dispatch(Plan("new", "active", (PlanStep(2, "mine", "pending"),)))
    session.dispatch(AddStep(("next",)))
    assert session[Plan].latest() == Plan(
        "new", "active", (PlanStep(2, "mine", "pending"), PlanStep(7, "next", "pending"))
    )


def test_a_plan_read_early_never_takes_a_later_change_back() -> None:
    """A plan that was read before the latest change leaves the plan alone when it reaches the session."""
    session = Session()
    install_plan(session)
    session.dispatch(SetupPlan("x", ("a",)))
    early = session[Plan].latest()
    assert early is not None
    session.dispatch(UpdateStep(1, status="done"))
    before = session.snapshot()
    session.dispatch_value(early)
    assert session.changes(before) == ()
    current = session[Plan].latest()
    assert current is not None
    session.dispatch(replace(current, objective="y"))
    assert session[Plan].latest() == Plan("y", "completed", (PlanStep(1, "a", "done"),))


def test_reading_changes_nothing() -> None:
    """`planning_read_plan` returns the Plan, is declared read-only, and its event records no change."""
    agent = Agent()
    agent.setup("a")
    before = agent.session.snapshot()
    reply = agent.call("planning_read_plan")
    assert reply.result.value is agent.plan
    assert agent.session.changes(before) == ()
    event = agent.session[ToolInvoked].latest()
    assert event is not None
    assert not event.changes
    assert agent.prompt.tools()[3].annotations.read_only


def test_the_results_are_the_events() -> None:
    """The tools that change the plan return their params, rendered as what was recorded."""
    agent = Agent()
    reply = agent.setup("a")
    assert reply.result.value == SetupPlan("Ship it", ("a",))
    assert reply.text == "The plan is set up with step 1.\nObjective: Ship it\n- a"
    assert agent.call("planning_add_step", steps=["b", "c"]).text == "Added steps 2 to 3; 0 of 3 steps done.\n- b\n- c"
    reply = agent.call("planning_update_step", step_id=1, status="done", title="A", note="n")
    assert reply.result.value == UpdateStep(1, "A", "done", "n")
    assert reply.text == "Updated step 1; 1 of 3 steps done. Next is step 2.\ntitle: A\nstatus: done\nnote: n"


def test_the_examples_are_true() -> None:
    """Run in their order in one session, each example gives exactly the output it shows."""
    section = PlanningToolsSection()
    agent = Agent(section)
    for tool in section.tools:
        assert tool.examples
        for example in tool.examples:
            reply = agent.call(tool.name, **dump(example.input))
            assert reply.result.success
            assert reply.result.value == example.output


def test_every_parameter_is_described() -> None:
    """The schemas that reach the model have a description for each parameter, and the limits of titles."""
    tools = {tool.name: tool.schema() for tool in PlanningToolsSection().tools}
    assert all(item.get("description") for schema in tools.values() for item in schema["properties"].values())
    steps = tools["planning_add_step"]["properties"]["steps"]["items"]
    assert (steps["minLength"], steps["maxLength"]) == (1, 500)


def test_only_the_mindset_differs_between_strategies() -> None:
    """All strategies have the same text but for one paragraph, which names what each asks for."""
    bodies = {strategy: PlanningToolsSection(strategy=strategy).template for strategy in PlanningStrategy}
    assert len({bodies[s].replace(MINDSETS[s], "*") for s in PlanningStrategy}) == 1
    assert len(set(bodies.values())) == 3
    assert PlanningToolsSection().template == bodies[PlanningStrategy.REACT]
    assert "observation" in MINDSETS[PlanningStrategy.REACT]
    assert "reflection" in MINDSETS[PlanningStrategy.PLAN_ACT_REFLECT]
    assert "synthesise" in MINDSETS[PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE]
    assert not any("planning_" in mindset or "\n" in mindset for mindset in MINDSETS.values())


def test_two_sections_share_one_plan() -> None:
    """With another key and a prefix a second section fits beside the first, and both work on the session's plan."""
    agent = Agent(PlanningToolsSection(), PlanningToolsSection(key="review", title="Review", tool_prefix="review_"))
    agent.setup("a")
    agent.call("review_planning_update_step", step_id=1, status="done")
    assert agent.plan.status == "completed"
    reply = agent.call("review_planning_update_step", step_id=9, status="done")
    assert "Call review_planning_read_plan" in reply.text
    assert "`review_planning_setup_plan` states" in agent.text


def test_two_sections_need_a_prefix() -> None:
    """Without one the prompt is refused with the hint to use it."""
    with pytest.raises(PromptValidationError, match="tool_prefix="):
        Agent(PlanningToolsSection(), PlanningToolsSection(key="other"))


def test_it_can_be_bound_to_a_prompt() -> None:
    """The section works when it is added by `bind(sections=...)`."""
    prompt = Prompt(name="p", sections=[MarkdownSection(title="Task", template="Go.")])
    bound = prompt.bind(sections=[PlanningToolsSection()])
    session = Session()
    with ToolExecutor(prompt=bound, session=session) as executor:
        assert executor.execute(ToolCall("1", "planning_setup_plan", {"objective": "x"})).result.success
    assert session[Plan].latest() == Plan("x", "active")


def test_overrides_are_off_unless_asked_for() -> None:
    """Neither the text nor the tools accept overrides, unless the section is told to."""
    closed, opened = PlanningToolsSection(), PlanningToolsSection(accepts_overrides=True)
    assert not closed.accepts_overrides
    assert not any(tool.accepts_overrides for tool in closed.tools)
    assert opened.accepts_overrides
    assert all(tool.accepts_overrides for tool in opened.tools)


def test_a_tool_works_without_its_section() -> None:
    """A tool taken out of the section changes the plan of any session it runs on."""
    setup, add, *_ = PlanningToolsSection().tools
    session = Session()
    assert execute_tool(setup, SetupPlan("x"), session=session).result.success
    context = make_context(session=session)
    assert transactional(add)(AddStep(("a",)), context=context).success
    assert session[Plan].latest() == Plan("x", "active", (PlanStep(1, "a", "pending"),))


def test_a_handler_called_directly_answers_and_leaves_the_change_to_its_result() -> None:
    """Called by hand, a handler only says what would happen; dispatching its value makes it so."""
    setup, _, _, read = PlanningToolsSection().tools
    context = make_context()
    result: ToolResult[Any] = setup.call(SetupPlan("x", ("a",)), context)
    assert context.session[Plan].latest() is None
    context.session.dispatch(result.value)
    assert read.call(ReadPlan(), context).value == Plan("x", "active", (PlanStep(1, "a", "pending"),))


def test_a_plan_survives_saving_and_loading() -> None:
    """A session with a plan goes through JSON, and counting goes on where it was."""
    session = Session()
    install_plan(session)
    session.dispatch(SetupPlan("x", ("a", "b")))
    session.dispatch(SetupPlan("y"))
    loaded = Session.from_json(session.to_json(), types=[Plan])
    install_plan(loaded)
    loaded.dispatch(AddStep(("c",)))
    assert loaded[Plan].latest() == Plan("y", "active", (PlanStep(3, "c", "pending"),))


@pytest.mark.parametrize("options", [{"strategy": "react"}, {"key": "Not A Key"}, {"tool_prefix": "Bad Prefix "}])
def test_what_cannot_be_used_is_refused(options: Any) -> None:
    """A wrong strategy, key or prefix is refused when the section is built."""
    with pytest.raises(PromptValidationError):
        PlanningToolsSection(**options)


def test_limits_below_one_are_refused() -> None:
    """A plan that may not grow at all makes no sense."""
    with pytest.raises(PromptValidationError, match="max_steps"):
        PlanningConfig(max_steps=0)


@pytest.mark.slow  # an interpreter
def test_suites_know_nothing_of_the_engine() -> None:
    """Importing the suites imports neither the runtime nor an adapter."""
    import subprocess
    import sys

    code = (
        "import sys, weakincentives.contrib.tools\n"
        "print([m for m in sys.modules if m.startswith(('weakincentives.runtime', 'weakincentives.adapters'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def _note_tool() -> Tool[Any, Any]:
    return Tool[None, str](name="other", description="Another tool.", handler=lambda params: ToolResult.ok("x"))


def test_policies_of_the_section_cover_its_tools() -> None:
    """A policy given to the section is asked for its tools, and only for them."""

    class Never:
        def check(self, tool_name: str, params: object, context: object) -> str | None:
            return "Not today."

    section = PlanningToolsSection(policies=[Never()])
    prompt = Prompt(name="p", sections=[section, MarkdownSection(title="Other", template="", tools=[_note_tool()])])
    with ToolExecutor(prompt=prompt, session=Session()) as executor:
        assert executor.execute(ToolCall("1", "planning_setup_plan", {"objective": "x"})).outcome == "refused"
        assert executor.execute(ToolCall("2", "other", None)).outcome == "succeeded"
