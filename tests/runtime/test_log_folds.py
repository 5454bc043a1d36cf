"""The log tells which calls stand: what succeeded, less what later events say was undone, is the state."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.limits_parts import call, executor_of, make

from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.prompt import CallsUndone, ToolInvoked, ToolResult
from weakincentives.runtime import Session, create_snapshot, restore_snapshot, transaction
from weakincentives.runtime.executor import ToolExecutor


@dataclass(frozen=True)
class Done:
    """A STATE slice: each call that ran adds its own name."""

    name: str


@dataclass(frozen=True)
class Plan:
    """What a call does: add its name, make other calls, in a block or not, and fail or not."""

    name: str = ""
    fails: bool = False
    block: str = "none"
    inner: list[Plan] = field(default_factory=list)


numbers = itertools.count()


class World:
    """Calls that make calls, on one session."""

    def __init__(self, fs: Filesystem) -> None:
        self.session = Session()
        self.fs = fs
        self.executor: ToolExecutor = executor_of(
            make(self.act, "act"), session=self.session, resources={Filesystem: fs}
        )

    def act(self, params: Plan, *, context: Any) -> ToolResult[None]:
        context.session[Done].append(Done(params.name))
        context.filesystem.write(f"{params.name}.txt", "")
        self.block(params, context.session, context.resources)
        return ToolResult.error("no") if params.fails else ToolResult.ok(None)

    def block(self, plan: Plan, session: Any, resources: Any) -> None:
        if plan.block == "none":
            self.run(plan.inner)
        elif plan.block == "restored":
            before = create_snapshot(session, resources)
            self.run(plan.inner)
            restore_snapshot(session, resources, before)
        else:
            with suppress(ZeroDivisionError), transaction(session, resources):
                self.run(plan.inner)
                if plan.block == "undone":
                    raise ZeroDivisionError

    def run(self, plans: list[Plan]) -> None:
        for plan in plans:
            number = next(numbers)
            named = Plan(f"n{number}", plan.fails, plan.block, plan.inner)
            self.executor.execute(call("act", f"c{number}", **_plain(named)))

    def folded(self) -> list[str]:
        """The names of the calls that stand, by the log alone."""
        calls = self.session[ToolInvoked].all()
        undone = {one for event in (*calls, *self.session[CallsUndone].all()) for one in event.undone_calls}
        return sorted(event.params.name for event in calls if event.success and event.event_id not in undone)


def _plain(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "fails": plan.fails,
        "block": plan.block,
        "inner": [_plain(inner) for inner in plan.inner],
    }


blocks = st.sampled_from(["none", "none", "none", "kept", "undone", "restored"])
plans = st.recursive(
    st.builds(Plan, fails=st.booleans(), block=blocks),
    lambda inner: st.builds(Plan, fails=st.booleans(), block=blocks, inner=st.lists(inner, max_size=3)),
    max_leaves=8,
)


def check(fs: Filesystem, tree: list[Plan], outer: str) -> None:
    world = World(fs)
    with world.executor:
        world.block(Plan(block=outer, inner=tree), world.session, world.executor._resources)  # pyright: ignore[reportPrivateUsage]
    standing = sorted(item.name for item in world.session[Done].all())
    assert world.folded() == standing
    assert sorted(entry.path.removesuffix(".txt") for entry in fs.list(".")) == standing


@settings(deadline=None)
@given(st.lists(plans, max_size=3), blocks)
def test_folding_the_log_gives_the_state_and_the_files(tree: list[Plan], outer: str) -> None:
    """Whatever calls make calls, in transactions and under snapshots or not, and whichever of them fail."""
    check(InMemoryFilesystem(), tree, outer)


@pytest.mark.parametrize("outer", ["none", "kept", "undone", "restored"])
@pytest.mark.parametrize("block", ["none", "kept", "undone", "restored"])
@pytest.mark.parametrize("fails", [False, True])
def test_folding_the_log_gives_the_files_on_disk(tmp_path: Path, outer: str, block: str, fails: bool) -> None:
    """The same with a journal underneath."""
    leaf = Plan()
    check(HostFilesystem(tmp_path), [leaf, Plan(fails=fails, block=block, inner=[leaf, Plan(inner=[leaf])])], outer)


def test_an_event_names_the_call_around_it() -> None:
    """`within` is the id of the outer call's event, also of a call that was refused; outside of calls it is None."""
    held: list[ToolExecutor] = []

    def outer(params: Plan, *, context: Any) -> ToolResult[None]:
        assert held[0].execute(call("inner", "2")).success
        assert held[0].execute(call("missing", "3")).outcome == "unknown_tool"
        return ToolResult.error("no")

    def inner(params: Plan, *, context: Any) -> ToolResult[None]:
        return ToolResult.ok(None)

    session = Session()
    heard: list[ToolInvoked] = []
    session.dispatcher.subscribe(ToolInvoked, heard.append)
    with executor_of(outer, inner, session=session) as executor:
        held.append(executor)
        executor.execute(call("outer", "1"))
        assert executor.execute(call("inner", "4")).success
    nested, missing, around, alone = session[ToolInvoked].all()
    assert nested.within == missing.within == around.event_id
    assert around.undone_calls == (nested.event_id,)
    assert (around.within, alone.within, alone.undone_calls, nested.undone_calls) == (None, None, (), ())
    assert [event.event_id for event in heard] == [event.event_id for event in (nested, missing, around, alone)]


def test_a_saved_log_keeps_who_was_undone_with_whom() -> None:
    """The links are data of the event: they are saved and loaded with the session."""
    event = ToolInvoked(tool_name="a", success=False, within="x-1", undone_calls=("x-2", "x-3"))
    session = Session()
    session.dispatch(event)
    session.dispatch(CallsUndone(undone_calls=("x-9",)))
    loaded = Session.from_json(session.to_json(), types=[ToolInvoked, CallsUndone])
    (again,) = loaded[ToolInvoked].all()
    assert (again.within, again.undone_calls) == ("x-1", ("x-2", "x-3"))
    (undone,) = loaded[CallsUndone].all()
    assert undone.undone_calls == ("x-9",)
