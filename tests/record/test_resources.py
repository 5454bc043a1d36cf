"""Resources of a run that are not files: what they hold is on record, and comes back with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from weakincentives import MainLoop, Session
from weakincentives.cli import main
from weakincentives.errors import NotResumableError, PromptEvaluationError, RecordError, RunFormatError
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.resources import Binding, Recordable, Scope, Snapshotable
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.record import export_run
from weakincentives.runtime.record.resources import resource_rows
from weakincentives.runtime.record.rows import NewRows, Step
from weakincentives.testing import ScriptedAdapter, call, replay, say


@dataclass(frozen=True)
class Add:
    item: str


class Basket:
    """Items in their order."""

    def __init__(self, *items: str) -> None:
        self.items = list(items)
        self.released = 0
        self.taken = 0

    def snapshot(self) -> tuple[str, ...]:
        self.taken += 1
        return tuple(self.items)

    def restore(self, snapshot: tuple[str, ...], /) -> None:
        self.items = list(snapshot)

    def release(self, snapshot: tuple[str, ...], /) -> None:
        self.released += 1

    def record_delta(self, since: tuple[str, ...] | None, /) -> Any:
        if since is None:
            return {"all": self.items}
        if since == tuple(self.items):
            return None
        return {"keep": len(since), "added": self.items[len(since) :]}

    def apply(self, delta: Any, /) -> None:
        if "all" in delta:
            self.items = list(delta["all"])
        else:
            self.items = [*self.items[: delta["keep"]], *delta["added"]]


class OtherBasket(Basket):
    """Another one in the same run."""


class Till:
    """Snapshots, and no way onto the record."""

    def __init__(self) -> None:
        self.sum = 0

    def snapshot(self) -> int:
        return self.sum

    def restore(self, snapshot: int, /) -> None:
        self.sum = snapshot


BASKET = f"{Basket.__module__}:Basket"
OTHER = f"{OtherBasket.__module__}:OtherBasket"
TILL = f"{Till.__module__}:Till"
CLOSED = ToolAnnotations(open_world=False)


class Killed(KeyboardInterrupt):
    """Stands for the end of the process."""


def agent(
    resources: dict[Any, Any],
    handler: Callable[[Add, ToolContext], None] | None = None,
    *,
    is_async: bool = False,
) -> Prompt[str]:
    """Puts items into the basket; "fails" and "killed" end their call after they were put there."""

    def add(params: Add, *, context: ToolContext) -> ToolResult[str]:
        basket = context.resources.get(Basket)
        basket.items.append(params.item)
        if handler is not None:
            handler(params, context)
        if params.item == "fails":
            raise ValueError("failed")
        if params.item == "killed":
            raise Killed
        return ToolResult.ok(",".join(basket.items))

    async def add_async(params: Add, *, context: ToolContext) -> ToolResult[str]:
        await asyncio.sleep(0)
        await context.resources.aget(Basket)
        return add(params, context=context)

    def look(params: Add, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok(",".join(context.resources.get(Basket).items))

    tools = [
        Tool[Add, str](
            name="add", description="Add.", handler=add_async if is_async else add, annotations=CLOSED, blocking=False
        ),
        Tool[Add, str](name="look", description="Look.", handler=look, annotations=CLOSED),
    ]
    return Prompt(name="shop", sections=[MarkdownSection(title="Task", template="Shop.", tools=tools)]).bind(
        resources=resources
    )


def given(store: SqliteRunStore, run_id: str = "r") -> list[tuple[str, str, Any]]:
    """What the rows of the run say of resources."""
    return [row for step in store.open(run_id).steps() for row in resource_rows(step)]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with SqliteRunStore(tmp_path / "runs.db", durable=False) as opened:
        yield opened


def killed(_: object) -> Any:
    """A turn in which the process ends."""
    raise Killed


def broken(_: object) -> Any:
    """A turn for which there is no answer."""
    raise ValueError("no model")


def run(store: SqliteRunStore, prompt: Prompt[str], *script: Any, run_id: str = "r", **how: Any) -> Any:
    return ScriptedAdapter(*script).evaluate(prompt, Session(), record=store.run(run_id, **how))


def test_a_basket_is_recordable() -> None:
    """By its methods."""
    assert isinstance(Basket(), Recordable)
    assert isinstance(Till(), Snapshotable)
    assert not isinstance(Till(), Recordable)


def test_what_a_call_changed_is_in_its_row(store: SqliteRunStore) -> None:
    """All of it at first, then what changed; a call that failed changed nothing."""
    prompt = agent({Basket: Basket("at first")})
    run(store, prompt, call("add", item="a"), call("add", item="fails"), call("add", item="b"), say("Done."))
    assert given(store) == [
        (BASKET, "whole", {"all": ["at first"]}),
        (BASKET, "delta", {"keep": 1, "added": ["a"]}),
        (BASKET, "delta", {"keep": 2, "added": ["b"]}),
    ]
    steps = store.open("r").steps()
    assert "resources" in steps[0].body
    assert ["resources" in step.body for step in steps if step.kind == "call"] == [True, False, True]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_built", [False, True])
def test_a_resumed_run_has_what_its_resources_held(store: SqliteRunStore, is_async: bool, is_built: bool) -> None:
    """Handed in, or built inside of a call; in plain code and in async code."""

    def resources(*items: str) -> dict[Any, Any]:
        return {Basket: Binding(Basket, lambda _: Basket(*items)) if is_built else Basket(*items)}

    def evaluate(prompt: Prompt[str], *script: Any) -> Any:
        adapter = ScriptedAdapter(*script)
        if is_async:
            return asyncio.run(adapter.aevaluate(prompt, Session(), record=store.run("r")))
        return adapter.evaluate(prompt, Session(), record=store.run("r"))

    script = [call("add", item="a"), call("add", item="b"), call("add", item="killed")]
    with pytest.raises(Killed):
        evaluate(agent(resources("first"), is_async=is_async), *script)
    assert given(store)[0] == ((BASKET, "unbuilt", None) if is_built else (BASKET, "whole", {"all": ["first"]}))

    seen: list[str] = []
    prompt = agent(
        resources("other", "beginning"),
        lambda _, context: seen.append(",".join(context.resources.get(Basket).items)),
        is_async=is_async,
    )
    with pytest.raises(Killed):  # the call that was killed is made again, in what was there before it
        evaluate(prompt)
    assert seen == ["first,a,b,killed"]


def test_drift_between_calls_is_on_record(store: SqliteRunStore) -> None:
    """What the program does to a resource between calls is in the next row."""
    basket = Basket()
    adapter = ScriptedAdapter(call("add", item="a"), call("add", item="killed"))
    ask = adapter.ask

    def ask_and_meddle(request: Any) -> Any:
        basket.items.append("between")
        return ask(request)

    adapter.ask = ask_and_meddle  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(Killed):
        adapter.evaluate(agent({Basket: basket}), Session(), record=store.run("r"))
    again = Basket()
    with pytest.raises(Killed):
        run(store, agent({Basket: again}))
    assert again.items == ["between", "a", "between"]


def test_two_of_a_class_are_told_apart_by_what_they_are_bound_as(store: SqliteRunStore) -> None:
    """Each gets its own back."""

    def both(params: Add, context: ToolContext) -> None:
        context.resources.get(OtherBasket).items.append(params.item * 2)

    with pytest.raises(Killed):
        run(
            store, agent({Basket: OtherBasket(), OtherBasket: OtherBasket("x")}, both),
            call("add", item="a"), call("add", item="killed"),
        )  # fmt: skip
    one, other = OtherBasket(), OtherBasket()
    with pytest.raises(Killed):
        run(store, agent({Basket: one, OtherBasket: other}, both))
    assert (one.items, other.items) == (["a"], ["x", "aa"])


def test_one_that_is_bound_as_two_types_is_recorded_once(store: SqliteRunStore) -> None:
    """Under one name, whichever is asked for first."""
    basket = OtherBasket()
    run(store, agent({OtherBasket: basket, Basket: basket}), call("add", item="a"), say("Done."))
    assert {name for name, _, _ in given(store)} == {BASKET}


def test_resources_of_a_call_are_not_on_record(store: SqliteRunStore) -> None:
    """They are made anew for each call."""
    prompt = agent({Basket: Binding(Basket, lambda _: Basket(), scope=Scope.TOOL_CALL)})
    with pytest.raises(Killed):
        run(store, prompt, call("add", item="a"), call("add", item="killed"))
    assert given(store) == []
    with pytest.raises(Killed):
        run(store, prompt)


def test_one_that_was_built_in_a_failed_call_is_built_anew(store: SqliteRunStore) -> None:
    """Nothing of it is on record; the next call records all of its own."""
    prompt = agent({Basket: Binding(Basket, lambda _: Basket("new"))})
    run(store, prompt, call("add", item="fails"), call("add", item="a"), say("Done."))
    assert given(store) == [(BASKET, "unbuilt", None), (BASKET, "whole", {"all": ["new", "a"]})]


def test_a_fork_has_what_was_there_at_its_step(store: SqliteRunStore) -> None:
    """Also where the very object went on since."""
    basket = Basket("first")
    prompt = agent({Basket: basket})
    run(store, prompt, call("add", item="a"), call("add", item="b"), say("Done."))
    assert basket.items == ["first", "a", "b"]
    steps = [step.seq for step in store.open("r").steps() if step.kind == "call"]
    run(store, prompt, call("add", item="c"), say("Done."), run_id=store.fork("r", at=steps[0]))
    assert basket.items == ["first", "a", "c"]


def test_a_run_that_is_over_brings_back_what_is_as_at_its_beginning(store: SqliteRunStore) -> None:
    """A resource that was made anew; one that is used elsewhere by now is left alone."""
    run(store, agent({Basket: Basket("first")}), call("add", item="a"), say("Done."))
    anew, used = Basket("first"), Basket("first", "and more")
    for basket in (anew, used):
        assert run(store, agent({Basket: basket})).text == "Done."
    assert (anew.items, used.items) == (["first", "a"], ["first", "and more"])


def test_one_whose_state_is_not_on_record_is_named(store: SqliteRunStore) -> None:
    """When it begins; resuming refuses with the fix, unless it is accepted."""
    till = Till()
    with pytest.raises(Killed):
        run(store, agent({Basket: Basket(), Till: till}), call("add", item="killed"))
    assert given(store) == [(BASKET, "whole", {"all": []}), (TILL, "unrecorded", None)]
    with pytest.raises(NotResumableError) as refused:
        run(store, agent({Basket: Basket(), Till: till}))
    assert TILL in str(refused.value)
    assert f"accept_unrecorded={[TILL]!r}" in str(refused.value)
    assert "record_delta" in str(refused.value)
    with pytest.raises(NotResumableError):
        run(store, agent({Basket: Basket(), Till: till}), accept_unrecorded=["Other"])
    for name in ("Till", TILL):
        with pytest.raises(Killed):
            run(store, agent({Basket: Basket(), Till: till}), accept_unrecorded=[name])


def test_one_that_is_not_there_any_more_is_named(store: SqliteRunStore) -> None:
    """Not bound, or no longer recordable."""

    class Plain(Basket):
        record_delta = None  # pyright: ignore[reportAssignmentType]

    def other(_: Add, context: ToolContext) -> None:
        context.resources.get(OtherBasket, None)

    first = agent({Basket: Basket(), OtherBasket: OtherBasket()}, other)
    with pytest.raises(Killed):
        run(store, first, call("add", item="a"), call("add", item="killed"))
    with pytest.raises(NotResumableError, match="OtherBasket"):
        run(store, agent({Basket: Basket()}, other))
    with pytest.raises(NotResumableError, match="Basket"):
        run(store, agent({Basket: Plain(), OtherBasket: OtherBasket()}, other))
    with pytest.raises(Killed):
        run(store, agent({Basket: Basket()}, other), accept_unrecorded=["OtherBasket"])


class Broken(Basket):
    """Breaks once it holds "broken"."""

    def record_delta(self, since: tuple[str, ...] | None, /) -> Any:
        if "broken" in self.items:
            raise OSError("no delta")
        return super().record_delta(since)


def test_a_call_whose_delta_cannot_be_had_is_undone(store: SqliteRunStore) -> None:
    """The run ends with the reason; a later process goes on with it."""
    basket = Broken("first")
    with pytest.raises(RecordError, match=r"Basket could not be recorded: OSError: no delta"):
        run(store, agent({Basket: basket}), call("add", item="a"), call("add", item="broken"))
    assert basket.items == ["first", "a"]
    assert [step.kind for step in store.open("r").steps()].count("call") == 1
    again = Basket()
    assert run(store, agent({Basket: again}), say("Done.")).text == "Done."
    assert again.items == ["first", "a", "broken"]


@pytest.mark.parametrize(
    ("delta", "problem"),
    [
        ((1, 2), "a tuple"),
        ({"a": [0, {1, 2}]}, "set"),
        ({"a": {1: 2}}, "the key 1 at ['a']"),
        ({"a": [b""]}, "bytes"),
        (float("nan"), "JSON"),
        (object(), "object"),
        ({"a": [0, (1,)]}, "a tuple at ['a'][1]"),
    ],
)
def test_a_delta_that_would_not_come_back_is_refused(store: SqliteRunStore, delta: Any, problem: str) -> None:
    """When it is written: the call is undone, and the error says what and where."""

    class Odd(Basket):
        def record_delta(self, since: tuple[str, ...] | None, /) -> Any:
            return delta if "odd" in self.items else super().record_delta(since)

    basket = Odd()
    with pytest.raises(RunFormatError) as refused:
        run(store, agent({Basket: basket}), call("add", item="odd"))
    assert problem in str(refused.value)
    assert basket.items == []
    response = run(store, agent({Basket: Odd()}), call("add", item="odd"), say("D."), run_id="v", resumable=False)
    assert response.text == "D."
    assert [what for _, what, _ in given(store, "v")][:2] == ["whole", "view"]


def test_what_cannot_be_recorded_at_first_begins_no_run(store: SqliteRunStore) -> None:
    """Nothing is asked."""
    with pytest.raises(RecordError, match="no delta"):
        run(store, agent({Basket: Broken("broken")}))
    assert store.infos() == []


def test_one_that_does_not_take_its_delta_is_left_as_it_was(store: SqliteRunStore) -> None:
    """So are those before it, and the run can still be resumed."""

    class Refusing(OtherBasket):
        def apply(self, delta: Any, /) -> None:
            super().apply(delta)
            if "added" in delta:
                raise ValueError("not that")

    def other(params: Add, context: ToolContext) -> None:
        context.resources.get(OtherBasket).items.append(params.item)

    with pytest.raises(Killed):
        run(store, agent({Basket: Basket(), OtherBasket: OtherBasket()}, other),
            call("add", item="a"), call("add", item="killed"))  # fmt: skip
    one, two = Basket("live"), Refusing("live")
    with pytest.raises(RunFormatError, match=r"OtherBasket does not take what step \d+ .* ValueError: not that"):
        run(store, agent({Basket: one, OtherBasket: two}, other))
    assert (one.items, two.items) == (["live"], ["live"])
    with pytest.raises(Killed):
        run(store, agent({Basket: one, OtherBasket: OtherBasket()}, other))
    assert one.items == ["a"]


def test_refusing_what_only_the_beginning_says_does_not_end_the_run(store: SqliteRunStore) -> None:
    """It was interrupted before the model was asked, and still is."""

    class Refusing(Basket):
        def apply(self, delta: Any, /) -> None:
            raise ValueError("not that")

    with pytest.raises(Killed):
        run(store, agent({Basket: Basket()}), killed)
    with pytest.raises(RunFormatError):
        run(store, agent({Basket: Refusing()}))
    assert run(store, agent({Basket: Basket()}), say("Done.")).text == "Done."


DAMAGED: list[Any] = [
    [[BASKET, "delta", {"keep": 0, "added": ["x"]}]],
    [[BASKET, "strange", {}]],
    [[BASKET, ["whole"], {}]],
    [[BASKET]],
    [[{"a": 1}, "whole", {}]],
    7,
    {"a": "b"},
    [[BASKET, "whole", {"nothing": 1}]],
]


@pytest.mark.parametrize("rows", DAMAGED)
def test_a_damaged_record_of_a_resource_is_said_to_be_so(store: SqliteRunStore, rows: Any) -> None:
    """Nothing is run, and the resource is as it was."""
    with pytest.raises(Killed):
        run(store, agent({}), killed)
    info = store.info("r")
    assert info is not None
    held = store.take("r", None)  # pyright: ignore[reportArgumentType] - it is there
    held.append(NewRows([Step(seq=2, kind="message", body={"text": "x", "resources": rows})]))
    held.release()
    basket = Basket("live")
    with pytest.raises(RunFormatError):
        run(store, agent({Basket: basket}))
    assert basket.items == ["live"]


def test_a_record_cannot_name_what_the_program_does_not_bind(store: SqliteRunStore) -> None:
    """Nothing is imported for a name in a record."""
    with pytest.raises(Killed):
        run(store, agent({}), killed)
    held = store.take("r", None)  # pyright: ignore[reportArgumentType]
    held.append(NewRows([Step(seq=2, kind="message", body={"text": "x", "resources": [["os:system", "whole", "ls"]]})]))
    held.release()
    with pytest.raises(NotResumableError, match="os:system"):
        run(store, agent({}))


def test_the_records_own_snapshots_are_released(store: SqliteRunStore) -> None:
    """Each one that is taken."""
    basket = Basket()
    run(store, agent({Basket: basket}), call("add", item="a"), call("add", item="fails"), say("Done."))
    assert basket.taken == basket.released


def test_deltas_are_copies(store: SqliteRunStore) -> None:
    """What a resource does later to a list that it gave does not change what is on record."""

    class Sharing(Basket):
        def record_delta(self, since: tuple[str, ...] | None, /) -> Any:
            return {"all": self.items}

    run(store, agent({Basket: Sharing()}), call("add", item="a"), say("Done."))
    rows = [data["all"] for _, _, data in given(store)]
    assert rows[0] == []
    assert json.loads(json.dumps(rows)) == rows


def test_calls_inside_a_call_are_part_of_its_row(store: SqliteRunStore) -> None:
    """What they changed comes back with it."""

    def inner(params: Add, context: ToolContext) -> None:
        if params.item == "outer":
            basket = context.resources.get(Basket)
            prompt = agent({Basket: basket})
            ScriptedAdapter(call("add", item="in"), call("add", item="fails"), say("Done.")).evaluate(
                prompt, context.session
            )

    with pytest.raises(Killed):
        run(store, agent({Basket: Basket()}, inner), call("add", item="outer"), call("add", item="killed"))
    assert [data for _, what, data in given(store) if what == "delta"] == [{"keep": 0, "added": ["outer", "in"]}]
    again = Basket()
    with pytest.raises(Killed):
        run(store, agent({Basket: again}, inner))
    assert again.items == ["outer", "in"]


def test_a_failed_run_that_is_tried_again_has_its_resources(store: SqliteRunStore) -> None:
    """As of the step where it failed."""
    with pytest.raises(PromptEvaluationError):
        run(store, agent({Basket: Basket()}), call("add", item="a"), broken)
    again = Basket()
    assert run(store, agent({Basket: again}), say("Done."), retry=True).text == "Done."
    assert again.items == ["a"]


def test_a_loop_accepts_what_its_config_names(store: SqliteRunStore) -> None:
    """Also in `execute`, which goes on with a run without being told to; `resume` takes more names."""

    class Shop(MainLoop[str, str]):
        def prepare(self, request: str) -> tuple[Prompt[str], Session]:
            return agent({Basket: Basket(), Till: Till()}), Session()

    config = MainLoopConfig(runs=store)
    with pytest.raises(Killed):
        Shop(ScriptedAdapter(call("add", item="killed")), config=config).execute("x", run_id="r")
    with pytest.raises(NotResumableError, match="Till"):
        Shop(ScriptedAdapter(), config=config).execute("x", run_id="r")
    accepting = MainLoopConfig(runs=store, accept_unrecorded=("Till",))
    with pytest.raises(Killed):
        Shop(ScriptedAdapter(), config=accepting).execute("x", run_id="r")
    with pytest.raises(Killed):
        Shop(ScriptedAdapter(), config=config).resume("r", accept_unrecorded=["Till"])
    with pytest.raises(Killed):
        asyncio.run(Shop(ScriptedAdapter(), config=config).aresume("r", accept_unrecorded=["Till"]))


def test_a_replay_has_what_resources_held(store: SqliteRunStore) -> None:
    """At first, and after calls that are served; a handler that changes something else is found."""

    def more(_: Add, context: ToolContext) -> None:
        context.resources.get(Basket).items.append("more")

    script = (call("add", item="a"), call("add", item="b"), call("look", item=""), say("Done."))
    run(store, agent({Basket: Basket("first")}), *script)
    recorded = store.open("r")
    for how in ("run", "serve"):
        prompt = agent({Basket: Basket("other")})
        assert replay(recorded, (prompt, Session()), calls=how).divergences == ()  # pyright: ignore[reportArgumentType]
    found = replay(recorded, (agent({Basket: Basket()}, more), Session())).divergences
    assert ("state", f"{BASKET} (resource)") in {(one.kind, one.path) for one in found}


def test_an_exported_run_is_masked(store: SqliteRunStore, tmp_path: Path) -> None:
    """What resources say of themselves as well."""
    key = "sk-ant-" + "a1B2" * 12
    run(store, agent({Basket: Basket(key)}), say("Done."))
    with SqliteRunStore(export_run(store, "r", tmp_path / "r.wink")) as copy:
        assert key not in str(given(copy))
        assert "masked" in str(given(copy))


def test_a_step_shows_what_it_says_of_resources(
    store: SqliteRunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On one line each."""
    run(store, agent({Basket: Basket()}), call("add", item="a"), say("Done."))
    step = store.open("r").calls()[0].seq
    assert main(["show", str(tmp_path / "runs.db"), "r", str(step)]) == 0
    assert f'resource {BASKET}: delta {{"keep": 0, "added": ["a"]}}' in capsys.readouterr().out


def test_a_run_begins_with_all_that_it_began_with(store: SqliteRunStore) -> None:
    """State, notes, resources, versions and the fingerprints of its tools."""
    session = Session()
    session[Add].append(Add("there"))
    session.note("a key", 1)
    ScriptedAdapter(say("Done.")).evaluate(agent({Basket: Basket("x")}), session, record=store.run("r"))
    begin = store.open("r").step(1)
    assert set(begin.body) == {"session_id", "prompt", "state", "resources", "tools", "schemas", "versions"}
    assert set(begin.body["state"]) == {"slices", "notes"}
    assert set(begin.body["tools"]) == {"add", "look"}
    assert begin.body["resources"] == [[BASKET, "whole", {"all": ["x"]}]]
