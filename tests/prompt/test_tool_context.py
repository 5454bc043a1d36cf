from __future__ import annotations

import copy
import inspect
from datetime import timedelta
from typing import Any

import pytest

from weakincentives.budget import Budget, BudgetTracker
from weakincentives.deadlines import Deadline
from weakincentives.errors import StaleCallError, UnboundResourceError
from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory.filesystem import InMemoryFilesystem
from weakincentives.prompt import IdempotencyConfig, SessionProtocol, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.prompt.tool_context import ContextChanges
from weakincentives.resources import ResourceRegistry
from weakincentives.run_context import Heartbeat, RunContext
from weakincentives.runtime import EffectLedger
from weakincentives.session import Session
from weakincentives.testing import execute_tool


class Client:
    pass


def test_every_field_has_a_default() -> None:
    """An empty context has a session of its own and nothing else."""
    context = ToolContext()
    assert isinstance(context.session, SessionProtocol)
    assert context.session is not ToolContext().session
    nothing = (
        context.prompt, context.rendered_prompt, context.adapter, context.deadline, context.heartbeat,
        context.run_context, context.call_id, context.tool_name, context.idempotency_key, context.filesystem,
        context.budget_tracker,
    )  # fmt: skip
    assert nothing == (None,) * 11
    with pytest.raises(UnboundResourceError):
        context.resources.get(Client)
    assert Client not in context.resources


def test_a_context_takes_a_session_and_a_registry() -> None:
    """Tests hand in what their handler uses, by name."""
    session, client = Session(), Client()
    context = ToolContext(session=session, resources=ResourceRegistry.build({Client: client}))
    assert context.session is session
    assert context.resources.get(Client) is client


def test_a_context_keeps_all_it_is_given() -> None:
    """Every argument can be read back."""
    deadline, run, tracker = Deadline.after(timedelta(hours=1)), RunContext(), BudgetTracker(Budget(max_total_tokens=1))
    context = ToolContext(
        deadline=deadline,
        run_context=run,
        budget_tracker=tracker,
        call_id="c1",
        tool_name="deploy",
        idempotency_key="session:deploy:1",
    )
    assert (context.deadline, context.run_context, context.budget_tracker) == (deadline, run, tracker)
    assert (context.call_id, context.tool_name, context.idempotency_key) == ("c1", "deploy", "session:deploy:1")


def test_common_resources_have_short_cuts() -> None:
    """`filesystem` and `budget_tracker` are the bound resources."""
    fs, tracker = InMemoryFilesystem(), BudgetTracker(Budget(max_total_tokens=1))
    context = ToolContext(resources=ResourceRegistry.build({Filesystem: fs, BudgetTracker: tracker}))
    assert context.filesystem is fs
    assert context.budget_tracker is tracker


def test_beating_reaches_the_heartbeat_if_there_is_one() -> None:
    """`beat()` works with and without a heartbeat."""
    heartbeat = Heartbeat()
    ToolContext(heartbeat=heartbeat).beat()
    ToolContext().beat()
    assert heartbeat.count == 1


def test_contexts_cannot_be_changed() -> None:
    """Setting, adding and deleting fields raises; the context stays a ToolContext."""
    context: Any = ToolContext()
    for name in ("session", "surprise"):
        with pytest.raises(AttributeError):
            setattr(context, name, None)
    with pytest.raises(AttributeError):
        del context.session
    assert type(context) is ToolContext


def test_a_replaced_context_keeps_all_else() -> None:
    """`replace` changes what it is told and takes everything else over; the first context stays as it was."""
    first = ToolContext(call_id="c1", tool_name="deploy", heartbeat=Heartbeat(), run_context=RunContext())
    second = first.replace(tool_name="check", session=Session())
    assert (second.call_id, second.tool_name, second.run_context) == ("c1", "check", first.run_context)
    assert second.session is not first.session
    assert first.tool_name == "deploy"
    assert first.replace().session is first.session
    assert first.replace(tool_name=None).tool_name is None
    unknown: Any = {"tools": 1}
    with pytest.raises(TypeError, match="no field 'tools'"):
        first.replace(**unknown)


def test_every_argument_can_be_replaced() -> None:
    """What the constructor takes, `replace` takes."""
    taken = set(inspect.signature(ToolContext.__init__).parameters) - {"self"}
    assert taken == ContextChanges.__optional_keys__
    for name in taken:
        change: Any = {name: None}
        assert isinstance(ToolContext().replace(**change), ToolContext)


@pytest.mark.skipif(not hasattr(copy, "replace"), reason="copy.replace is new in Python 3.13")
def test_copy_replace_works() -> None:
    """The standard library's way to change a frozen value."""
    replace: Any = vars(copy)["replace"]
    assert replace(ToolContext(), call_id="c2").call_id == "c2"


def test_a_replaced_context_beats_for_both() -> None:
    """The first context's heartbeat goes on; another one is beaten too, the same one once."""
    first, other = Heartbeat(), Heartbeat()
    context = ToolContext(heartbeat=first)
    context.replace(call_id="c").beat()
    assert first.count == 1
    context.replace(heartbeat=other).replace(tool_name="x").beat()
    assert (first.count, other.count) == (2, 1)
    context.replace(heartbeat=None).beat()
    assert first.count == 3


def test_a_context_prints_like_a_dataclass() -> None:
    """The fields that are set, by name and in order; a long value is cut, a resource never shown."""
    text = repr(ToolContext(call_id="c1", tool_name="t" * 1000, resources=ResourceRegistry.build({str: "password"})))
    assert text.startswith("ToolContext(session=<Session ")
    assert "resources=ResourceRegistry(str), call_id='c1', tool_name='ttt" in text
    assert "password" not in text
    assert "None" not in text
    assert len(text) < 500


def test_the_context_of_a_running_call_can_be_replaced() -> None:
    """Its handles end with the call, its heartbeat too, and it prints like any other."""
    kept: list[ToolContext] = []

    def look(params: None, *, context: ToolContext) -> ToolResult[int]:
        other = context.replace(tool_name="other")
        assert repr(other).startswith("ToolContext(prompt=<Prompt ")
        assert "tool_name='look'" in repr(context)
        assert "resources=ResourceContext(" in repr(context)
        assert " object at 0x" not in repr(context)
        other.session[int].append(1)
        other.beat()
        assert (other.call_id, other.tool_name) == (context.call_id, "other")
        kept.append(other)
        return ToolResult.ok(1)

    session = Session()
    assert execute_tool(Tool[None, int](name="look", description="Look.", handler=look), session=session).success
    assert session[int].latest() == 1
    with pytest.raises(StaleCallError):
        kept[0].session[int].append(2)
    with pytest.raises(StaleCallError):
        kept[0].beat()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_handler_can_ask_whether_its_call_is_active(read_only: bool) -> None:
    """`require_active` passes while the call runs, and raises once it is over, also in a copy of the context."""
    kept: list[ToolContext] = []

    def look(params: None, *, context: ToolContext) -> ToolResult[int]:
        kept.extend((context, context.replace(tool_name="other")))
        for each in kept:
            each.require_active()
        return ToolResult.ok(1)

    looking = Tool[None, int](
        name="look", description="Look.", handler=look, annotations=ToolAnnotations(read_only=read_only)
    )
    assert execute_tool(looking).success
    for each in kept:
        with pytest.raises(StaleCallError, match=r"This call is over \(it returned\)"):
            each.require_active()
    ToolContext().require_active()  # one that was made by hand belongs to no call


def test_a_replaced_context_keeps_the_claim() -> None:
    """An idempotent call has its fencing token and key in every context made of its own."""
    seen: list[Any] = []

    def pay(params: None, *, context: ToolContext) -> ToolResult[None]:
        other = context.replace(deadline=None)
        seen.append((other.fencing_token, other.idempotency_key))
        seen.append((context.fencing_token, context.idempotency_key))
        return ToolResult.ok(None)

    paying = Tool[None, None](name="pay", description="Pay.", handler=pay, idempotency=IdempotencyConfig())
    assert execute_tool(paying, effect_ledger=EffectLedger()).success
    assert seen[0] == seen[1]
    assert seen[0][0] is not None
