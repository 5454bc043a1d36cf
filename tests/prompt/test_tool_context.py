from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from weakincentives.budget import Budget, BudgetTracker
from weakincentives.deadlines import Deadline
from weakincentives.errors import UnboundResourceError
from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory import InMemoryFilesystem
from weakincentives.prompt import SessionProtocol, ToolContext
from weakincentives.resources import ResourceRegistry
from weakincentives.run_context import Heartbeat, RunContext
from weakincentives.session import Session


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
