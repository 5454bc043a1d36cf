"""G5: a tool with an `IdempotencyConfig` runs at most once per key, and an outcome that cannot be known is unknown."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from weakincentives.clock import SYSTEM_CLOCK
from weakincentives.dbc import require
from weakincentives.deadlines import Deadline
from weakincentives.errors import LeaseLostError, LedgerError, NoEffect, PromptEvaluationError, ToolValidationError
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolPolicy,
    ToolResult,
)
from weakincentives.runtime import (
    EffectLedger,
    IdempotencyConfig,
    Ledger,
    Session,
    SqliteEffectLedger,
    ToolCall,
    ToolInvoked,
    ToolReply,
)
from weakincentives.runtime.executor import ToolExecutor
from weakincentives.session import append_all

_ids = itertools.count()


@dataclass(frozen=True)
class Refund:
    order: str
    cents: int = 100
    secret: str = ""


@dataclass(frozen=True)
class Receipt:
    number: int
    order: str = ""


@dataclass
class World:
    """What lies outside: the effects that really happened."""

    effects: list[str] = field(default_factory=list[str])
    keys: list[str | None] = field(default_factory=list[str | None])

    def refund(self, params: Refund, *, context: ToolContext) -> ToolResult[Receipt]:
        self.effects.append(params.order)
        self.keys.append(context.idempotency_key)
        return ToolResult.ok(Receipt(len(self.effects), params.order), message="Refunded.")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    made: Ledger = EffectLedger() if request.param == "memory" else SqliteEffectLedger(tmp_path / "ledger.db")
    yield made
    made.close()


def refund_tool(handler: Callable[..., Any], config: IdempotencyConfig | None = None, **options: Any) -> Tool[Any, Any]:
    idempotency = IdempotencyConfig() if config is None else config
    return Tool[Refund, Receipt](
        name="refund", description="Refund an order.", handler=handler, idempotency=idempotency, **options
    )


def executor(
    tool: Tool[Any, Any],
    ledger: Ledger | None,
    *,
    session: Session | None = None,
    policies: tuple[ToolPolicy, ...] = (),
    **options: Any,
) -> ToolExecutor:
    section = MarkdownSection(title="Shop", template="", tools=[tool], policies=policies)
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="tests", key="once", sections=[section]))
    return ToolExecutor(
        prompt=prompt, session=Session() if session is None else session, effect_ledger=ledger, **options
    )


def refund(order: str = "A", cents: int = 100) -> ToolCall:
    return ToolCall(f"call-{next(_ids)}", "refund", {"order": order, "cents": cents})


def keeping() -> Session:
    """A session that keeps the receipts it is given."""
    session = Session()
    session[Receipt].register(Receipt, append_all)
    return session


def outcomes(session: Session) -> list[str]:
    return [event.outcome for event in session[ToolInvoked].all()]


# A second call


def test_the_second_call_is_answered_with_the_first_result(world: World, ledger: Ledger) -> None:
    """The handler runs once; the model reads the same text, the log says that it was a replay."""
    session = Session()
    with executor(refund_tool(world.refund), ledger, session=session) as run:
        first, second = run.execute(refund()), run.execute(refund())
    assert world.effects == ["A"]
    assert (first.text, first.outcome) == ('Refunded.\n{"number":1,"order":"A"}', "succeeded")
    assert (second.text, second.outcome, second.success, second.is_error) == (first.text, "replayed", True, False)
    assert outcomes(session) == ["succeeded", "replayed"]
    assert session[ToolInvoked].latest().success  # pyright: ignore[reportOptionalMemberAccess]


def test_other_params_are_another_call(world: World, ledger: Ledger) -> None:
    """By default every field counts."""
    with executor(refund_tool(world.refund), ledger) as run:
        assert [run.execute(refund(cents=cents)).outcome for cents in (1, 2, 1)] == [
            "succeeded", "succeeded", "replayed",
        ]  # fmt: skip
    assert len(world.effects) == 2


def test_a_replay_gives_the_typed_value_to_reducers_and_policies(world: World, ledger: Ledger) -> None:
    """As if the handler had run: a session that lost its state gets it back."""

    class Watch:
        seen: list[Any] = []  # noqa: RUF012

        def check(self, tool_name: str, params: Any, context: ToolContext) -> None:
            return None

        def on_result(self, tool_name: str, params: Any, result: Any, context: ToolContext) -> None:
            self.seen.append(result.value)

    session = keeping()
    with executor(refund_tool(world.refund), ledger, session=session, policies=(Watch(),)) as run:
        run.execute(refund())
        session.reset()
        run.execute(refund())
    assert session[Receipt].all() == (Receipt(1, "A"),)
    assert Watch.seen == [Receipt(1, "A")] * 2


def test_a_replay_that_cannot_be_told_is_undone(world: World, ledger: Ledger) -> None:
    """It is a call like any other: all or nothing."""
    session = keeping()
    with executor(refund_tool(world.refund), ledger, session=session) as run:
        run.execute(refund())
        session.reset()
        session.dispatcher.subscribe(ToolInvoked, _fail)
        assert run.execute(refund()).outcome == "undone"
    assert session[Receipt].all() == ()


def _fail(event: object) -> None:
    raise RuntimeError("subscriber")


def test_a_success_that_was_undone_is_replayed(world: World, ledger: Ledger) -> None:
    """The effect happened, whatever became of the call: a retry must not repeat it."""
    session = keeping()
    with executor(refund_tool(world.refund), ledger, session=session) as run:
        session.dispatcher.subscribe(ToolInvoked, _fail)
        assert run.execute(refund()).outcome == "undone"
        session.dispatcher.unsubscribe(ToolInvoked, _fail)
        assert session[Receipt].all() == ()
        assert run.execute(refund()).outcome == "replayed"
    assert session[Receipt].all() == (Receipt(1, "A"),)
    assert world.effects == ["A"]


def test_after_a_restart_the_result_is_typed_again(world: World, tmp_path: Path) -> None:
    """A new process with the same session id reads what the old one wrote."""
    for attempt in range(2):
        with (
            SqliteEffectLedger(tmp_path / "ledger.db") as ledger,
            executor(refund_tool(world.refund), ledger, session=Session(session_id="s-1")) as run,
        ):
            reply = run.execute(refund())
            assert reply.result.value == Receipt(1, "A")
            assert reply.outcome == ("succeeded", "replayed")[attempt]
    assert world.effects == ["A"]


def test_sessions_do_not_see_one_another_unless_the_scope_says_so(world: World, ledger: Ledger) -> None:
    """`scope="session"` is one session's; any other scope is everybody's."""
    for scope, expected in (("session", ["succeeded", "succeeded"]), ("shop", ["succeeded", "replayed"])):
        tool = refund_tool(world.refund, IdempotencyConfig(scope=scope))
        found: list[str] = []
        for _ in range(2):
            with executor(tool, ledger) as run:
                found.append(run.execute(refund()).outcome)
        assert found == expected
    assert len(world.effects) == 3


def test_handlers_get_a_key_that_is_unique_outside(world: World, ledger: Ledger) -> None:
    """Key and session for a session's key; the same at every try."""
    session = Session(session_id="s-7")
    with executor(refund_tool(world.refund), ledger, session=session) as run:
        run.execute(refund())
        effect = ledger.lookup(str(world.keys[0]).partition("@")[0])
        assert effect is not None
        assert world.keys == [f"{effect.idempotency_key}@s-7"]
        assert effect.idempotency_key.startswith("session:refund:")
    with executor(refund_tool(world.refund, IdempotencyConfig(scope="shop")), ledger) as run:
        run.execute(refund())
    assert "@" not in str(world.keys[1])


def test_a_tool_without_idempotency_has_no_key(world: World, ledger: Ledger) -> None:
    """Nothing is remembered of it."""
    tool = Tool[Refund, Receipt](name="refund", description="Refund.", handler=world.refund)
    with executor(tool, ledger) as run:
        assert [run.execute(refund()).outcome for _ in range(2)] == ["succeeded"] * 2
    assert world.keys == [None, None]
    assert ledger.entries() == []


def test_strategy_none_runs_every_call(world: World, ledger: Ledger) -> None:
    """And asks no ledger."""
    with executor(refund_tool(world.refund, IdempotencyConfig(strategy="none")), ledger) as run:
        assert [run.execute(refund()).outcome for _ in range(2)] == ["succeeded"] * 2
    assert ledger.entries() == []


def test_effects_expire(world: World) -> None:
    """After the ttl the call runs again."""
    from weakincentives.testing import FakeClock

    clock = FakeClock()
    with executor(
        refund_tool(world.refund, IdempotencyConfig(ttl=timedelta(hours=1))), EffectLedger(clock=clock)
    ) as run:
        run.execute(refund())
        clock.advance(timedelta(minutes=59))
        assert run.execute(refund()).outcome == "replayed"
        clock.advance(timedelta(minutes=2))
        assert run.execute(refund()).outcome == "succeeded"


# Keys


def test_another_order_under_the_same_custom_key_conflicts(world: World, ledger: Ledger) -> None:
    """The model reads which key, and what to do; nothing runs."""
    config = IdempotencyConfig(strategy="custom", key_fn=lambda p: f"order:{p.order}", scope="shop")
    session = Session()
    with executor(refund_tool(world.refund, config), ledger, session=session) as run:
        run.execute(refund("A", 100))
        reply = run.execute(refund("A", 200))
        assert run.execute(refund("A", 100)).outcome == "replayed"
    assert (reply.outcome, reply.success, reply.is_error) == ("conflict", False, False)
    assert reply.text == (
        "The key 'shop:order:A' was used before with other arguments, so 'refund' was not run.\n"
        "Repeat the arguments of the first call to get its result, or use another key for something new."
    )
    assert world.effects == ["A"]
    assert not session[ToolInvoked].all()[1].admitted


def test_fields_that_do_not_count_do_not_conflict(world: World, ledger: Ledger) -> None:
    """With `param_keys` the first call's result answers."""
    config = IdempotencyConfig(strategy="params", param_keys=("order",))
    with executor(refund_tool(world.refund, config), ledger) as run:
        assert [run.execute(refund("A", cents)).outcome for cents in (1, 2)] == ["succeeded", "replayed"]


def test_a_key_function_that_raises_keeps_the_handler_from_running(world: World, ledger: Ledger) -> None:
    """Without a key nothing can be promised."""
    config = IdempotencyConfig(strategy="custom", key_fn=lambda p: p.missing)
    with executor(refund_tool(world.refund, config), ledger) as run:
        reply = run.execute(refund())
    assert reply.outcome == "crashed"
    assert "missing" in reply.text
    assert world.effects == []


@dataclass(frozen=True)
class Stamped:
    """Params that are other ones each time, from the same text."""

    order: str
    stamp: int = field(default_factory=lambda: next(_ids))


def test_what_the_params_are_counts_not_their_text(world: World, ledger: Ledger) -> None:
    """A type that makes up a part of itself makes every call another one."""
    made: list[int] = []

    def stamped(params: Stamped) -> ToolResult[int]:
        made.append(params.stamp)
        return ToolResult.ok(params.stamp)

    tool = Tool[Stamped, int](name="refund", description="Refund.", handler=stamped, idempotency=IdempotencyConfig())
    with executor(tool, ledger) as run:
        assert [run.execute(ToolCall(f"s{n}", "refund", '{"order": "A"}')).outcome for n in range(2)] == [
            "succeeded"
        ] * 2
        assert run.execute(ToolCall("x", "refund", f'{{"order": "A", "stamp": {made[0]}}}')).outcome == "replayed"
    assert len(set(made)) == 2


def test_params_are_hashed_not_stored(world: World, tmp_path: Path) -> None:
    """No secret of the arguments is in the file."""
    with (
        SqliteEffectLedger(tmp_path / "ledger.db") as ledger,
        executor(refund_tool(world.refund), ledger) as run,
    ):
        run.execute(ToolCall("1", "refund", {"order": "A", "secret": "hunter2hunter2"}))
        written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"session:refund:" in written
    assert b"hunter2" not in written


# Failures


def _error(params: Refund) -> ToolResult[Receipt]:
    return ToolResult.error("No money.")


def _invalid(params: Refund) -> ToolResult[Receipt]:
    raise ToolValidationError("No such order.")


def _nothing(params: Refund) -> ToolResult[Receipt]:
    raise NoEffect("The bank was closed.")


@require(lambda params: params.order == "B", "only B")
def _contract(params: Refund) -> ToolResult[Receipt]:
    raise AssertionError("not reached")


@pytest.mark.parametrize("handler", [_error, _invalid, _nothing, _contract])
def test_what_the_handler_says_failed_may_be_tried_again(handler: Callable[..., Any], ledger: Ledger) -> None:
    """An expected failure is not recorded."""
    with executor(refund_tool(handler), ledger) as run:
        assert [run.execute(refund()).outcome for _ in range(3)] == ["failed"] * 3
    assert ledger.entries() == []


def _boom(params: Refund) -> ToolResult[Receipt]:
    raise ConnectionError("the line went dead, password=hunter2")


def test_an_unexpected_exception_leaves_the_outcome_unknown(ledger: Ledger) -> None:
    """Both answers say so, what not to do, and how to go on; it is not run again."""
    session = Session()
    with executor(refund_tool(_boom), ledger, session=session) as run:
        first, second = run.execute(refund()), run.execute(refund())
    assert first.text == (
        "Internal error: the line went dead, password=[masked]\n"
        "The outcome of 'refund' is unknown.\n"
        "It may have happened, so do not repeat it. Check first, with another tool or by asking a person, and go on "
        "from what you find."
    )
    assert second.text.startswith("The outcome of 'refund' is unknown: the handler raised ConnectionError: the line")
    assert "do not repeat it" in second.text
    assert "hunter2" not in second.text
    assert outcomes(session) == ["unknown", "unknown"]
    assert (first.is_error, second.is_error, second.success) == (True, True, False)
    (entry,) = ledger.entries()
    assert entry.state == "unknown"


def test_the_reply_to_an_unknown_outcome_does_not_say_that_nothing_was_changed(ledger: Ledger) -> None:
    """State was rolled back, but the effect outside may have happened."""

    def boom(params: Refund, *, context: ToolContext) -> ToolResult[Receipt]:
        context.session.dispatch(params)
        raise ConnectionError("the line went dead")

    with executor(refund_tool(boom), ledger) as run:
        reply = run.execute(refund())
    assert reply.outcome == "unknown"
    assert reply.text.splitlines()[-1] == "Rolled back: the Refund state."


def test_hidden_errors_stay_hidden(ledger: Ledger) -> None:
    """Also in the answer to the next call."""
    with executor(refund_tool(_boom), ledger, hide_errors=True) as run:
        assert "went dead" not in run.execute(refund()).text + run.execute(refund()).text


def test_retry_promises_that_it_may_be_run_again(ledger: Ledger) -> None:
    """Then an exception is a crash like any other, and a killed call is taken over."""
    calls: list[int] = []

    def flaky(params: Refund) -> ToolResult[Receipt]:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("dead")
        return ToolResult.ok(Receipt(1))

    with executor(refund_tool(flaky, IdempotencyConfig(on_exception="retry")), ledger) as run:
        assert [run.execute(refund()).outcome for _ in range(3)] == ["crashed", "succeeded", "replayed"]
    with executor(refund_tool(_boom, IdempotencyConfig(scope="shop")), ledger) as run:
        assert run.execute(refund()).outcome == "unknown"
    with executor(refund_tool(flaky, IdempotencyConfig(scope="shop", on_exception="retry")), ledger) as run:
        assert run.execute(refund()).outcome == "succeeded"


def test_an_async_call_that_ran_out_of_time_is_unknown(ledger: Ledger) -> None:
    """It was cancelled where it stood; how far it came is unknown."""

    async def slow(params: Refund) -> ToolResult[Receipt]:
        await asyncio.sleep(5)
        return ToolResult.ok(Receipt(1))

    with executor(refund_tool(slow, timeout=0.05), ledger) as run:
        first, second = run.execute(refund()), run.execute(refund())
    assert (first.outcome, second.outcome) == ("unknown", "unknown")
    assert first.text.startswith("Tool 'refund' did not finish within 0.05 s")
    assert "do not repeat it" in first.text
    assert "did not finish in time" in second.text


def test_a_deadline_before_the_handler_leaves_nothing(world: World, ledger: Ledger) -> None:
    """The time was used up while the key was worked out: nothing began, so nothing is in doubt."""

    def slow_key(params: Refund) -> str:
        time.sleep(0.15)
        return params.order

    config = IdempotencyConfig(strategy="custom", key_fn=slow_key)
    with executor(refund_tool(world.refund, config), ledger, deadline=Deadline.after(timedelta(seconds=0.1))) as run:
        assert run.execute(refund()).outcome == "deadline"
    assert world.effects == []
    assert ledger.entries() == []


def test_what_a_failed_call_did_through_another_stays_done(world: World, ledger: Ledger) -> None:
    """The ledger is never rolled back: the inner effect happened, so it is replayed."""
    inner = refund_tool(world.refund, IdempotencyConfig(scope="shop"))

    def outer(params: Refund, *, context: ToolContext) -> ToolResult[Receipt]:
        with executor(inner, ledger, session=session) as run:
            assert run.execute(refund()).outcome in {"succeeded", "replayed"}
        return ToolResult.error("Changed my mind.")

    session = keeping()
    tool = Tool[Refund, Receipt](name="refund", description="Both.", handler=outer)
    with executor(tool, None, session=session) as run:
        assert [run.execute(refund()).outcome for _ in range(2)] == ["failed", "failed"]
    assert world.effects == ["A"]
    assert session[Receipt].all() == ()
    assert outcomes(session) == ["succeeded", "failed", "replayed", "failed"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, PromptEvaluationError("over")])
def test_what_ends_the_run_leaves_the_call_unknown(error: Any, ledger: Ledger) -> None:
    """It propagates, and the next run does not repeat the call."""

    def stop(params: Refund) -> ToolResult[Receipt]:
        raise error

    tool = refund_tool(stop, IdempotencyConfig(scope="shop"))
    with executor(tool, ledger) as run, pytest.raises((KeyboardInterrupt, SystemExit, PromptEvaluationError)):
        run.execute(refund())
    with executor(tool, ledger) as run:
        assert run.execute(refund()).outcome == "unknown"


def test_a_cancelled_call_is_unknown(ledger: Ledger) -> None:
    """As far as it came, its effect may have happened."""

    async def main() -> None:
        started = asyncio.Event()

        async def slow(params: Refund) -> ToolResult[Receipt]:
            started.set()
            await asyncio.sleep(5)
            return ToolResult.ok(Receipt(1))

        async with executor(refund_tool(slow), ledger) as run:
            task = asyncio.ensure_future(run.aexecute(refund()))
            await asyncio.wait_for(started.wait(), 5)  # a claim takes its time on a busy disk
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert [entry.state for entry in ledger.entries()] == ["unknown"]


# Reconcile


def test_reconcile_that_finds_the_effect_answers_with_it(world: World, ledger: Ledger) -> None:
    """A handler that raised after its effect: the result is looked up at once, its half-done changes are undone."""

    def half(params: Refund, *, context: ToolContext) -> ToolResult[Receipt]:
        world.refund(params, context=context)
        context.session[str].append("left behind")
        raise ConnectionError("no answer")

    config = IdempotencyConfig(reconcile=lambda p: ToolResult.ok(Receipt(9, p.order), message="Found."))
    session = keeping()
    with executor(refund_tool(half, config), ledger, session=session) as run:
        first, second = run.execute(refund()), run.execute(refund())
    assert (first.outcome, first.result.value) == ("replayed", Receipt(9, "A"))
    assert (second.outcome, second.result.value) == ("replayed", Receipt(9, "A"))
    assert world.effects == ["A"]
    assert session[str].all() == ()
    assert session[Receipt].all() == (Receipt(9, "A"),) * 2


def test_reconcile_that_finds_nothing_lets_the_call_run(world: World, ledger: Ledger) -> None:
    """After a crash it says so; what was left in doubt by others runs now."""
    config = IdempotencyConfig(scope="shop", reconcile=lambda p: None)
    with executor(refund_tool(_boom, IdempotencyConfig(scope="shop")), ledger) as run:
        assert run.execute(refund()).outcome == "unknown"
    with executor(refund_tool(_boom, config), ledger) as run:
        assert run.execute(refund()).outcome == "crashed"
        assert ledger.entries() == []
    with executor(refund_tool(_boom, IdempotencyConfig(scope="shop")), ledger) as run:
        assert run.execute(refund()).outcome == "unknown"
    with executor(refund_tool(world.refund, config), ledger) as run:
        assert [run.execute(refund()).outcome for _ in range(2)] == ["succeeded", "replayed"]
    assert world.effects == ["A"]


def _cannot_tell(params: Refund) -> Any:
    return ToolResult[Receipt].error("The bank does not answer.")


def _lookup_raises(params: Refund) -> Any:
    raise ConnectionError("bank")


def _lookup_lies(params: Refund) -> Any:
    return "yes"


@pytest.mark.parametrize(
    ("reconcile", "text"),
    [
        (_cannot_tell, "is unknown: The bank does not answer."),
        (_lookup_raises, "is unknown: it could not be looked up."),
        (_lookup_lies, "is unknown: the lookup gave a str."),
    ],
)
def test_reconcile_that_cannot_tell_leaves_it_unknown(reconcile: Any, text: str, ledger: Ledger) -> None:
    """Only a result or None decides; the model may ask for another lookup."""
    with executor(refund_tool(_boom, IdempotencyConfig(reconcile=reconcile)), ledger) as run:
        for _ in range(2):
            reply = run.execute(refund())
            assert reply.outcome == "unknown"
            assert text in reply.text
            assert "Call it again with the same arguments to have that looked up first." in reply.text
    assert [entry.state for entry in ledger.entries()] == ["unknown"]


def test_reconcile_may_be_async_and_see_the_context(ledger: Ledger) -> None:
    """It gets what a handler gets, read-only: the key to look up, and a token that has risen."""
    seen: list[Any] = []

    def boom(params: Refund, *, context: ToolContext) -> ToolResult[Receipt]:
        seen.append((context.idempotency_key, context.fencing_token))
        raise ConnectionError

    async def look_up(params: Refund, *, context: ToolContext) -> ToolResult[Receipt] | None:
        seen.append((context.idempotency_key, context.fencing_token))
        return ToolResult.ok(Receipt(4))

    async def main() -> ToolReply:
        async with executor(refund_tool(boom, IdempotencyConfig(reconcile=look_up)), ledger) as run:
            return await run.aexecute(refund())

    assert asyncio.run(main()).result.value == Receipt(4)
    (first, token), (second, higher) = seen
    assert first == second
    assert higher > token


def test_a_lookup_is_bounded_like_the_call(ledger: Ledger) -> None:
    """One that hangs ends with the tool's timeout."""
    go = threading.Event()

    def hangs(params: Refund) -> None:
        go.wait(60)

    config = IdempotencyConfig(reconcile=hangs)
    with executor(refund_tool(_boom, config, timeout=0.05), ledger) as run:
        began = time.monotonic()
        assert run.execute(refund()).outcome == "unknown"
        assert time.monotonic() - began < 30
        go.set()


# Leases


class Slow:
    """A handler that stands in the middle of its effect until it is let go."""

    def __init__(self, world: World) -> None:
        self.entered, self.go = threading.Event(), threading.Event()
        self.world = world

    def __call__(self, params: Refund, *, context: ToolContext) -> ToolResult[Receipt]:
        self.entered.set()
        assert self.go.wait(10)
        return self.world.refund(params, context=context)


def in_thread(step: Callable[[], ToolReply]) -> tuple[threading.Thread, list[ToolReply]]:
    replies: list[ToolReply] = []
    thread = threading.Thread(target=lambda: replies.append(step()))
    thread.start()
    return thread, replies


def test_a_duplicate_of_a_running_call_waits_for_its_result(world: World, ledger: Ledger) -> None:
    """In another session, so that nothing but the ledger is between them."""
    slow = Slow(world)
    tool = refund_tool(slow, IdempotencyConfig(scope="shop"))
    with executor(tool, ledger) as one, executor(tool, ledger) as two:
        first, firsts = in_thread(lambda: one.execute(refund()))
        assert slow.entered.wait(60)
        second, seconds = in_thread(lambda: two.execute(refund()))
        time.sleep(0.05)
        assert seconds == []
        slow.go.set()
        first.join()
        second.join()
    assert (firsts[0].outcome, seconds[0].outcome) == ("succeeded", "replayed")
    assert seconds[0].result.value == Receipt(1, "A")
    assert world.effects == ["A"]


def test_a_duplicate_does_not_wait_for_ever(world: World, ledger: Ledger) -> None:
    """Its own time limit counts; then the model is told to come back."""
    slow = Slow(world)
    with (
        executor(refund_tool(slow, IdempotencyConfig(scope="shop")), ledger) as one,
        executor(refund_tool(world.refund, IdempotencyConfig(scope="shop"), timeout=0.1), ledger) as two,
        executor(
            refund_tool(world.refund, IdempotencyConfig(scope="shop")),
            ledger,
            deadline=Deadline(SYSTEM_CLOCK.now() + timedelta(seconds=0.3)),
        ) as three,
    ):
        first, _ = in_thread(lambda: one.execute(refund()))
        assert slow.entered.wait(60)
        reply = two.execute(refund())
        assert reply.outcome == "unknown"
        assert "still running elsewhere" in reply.text
        assert three.execute(refund()).outcome == "deadline"
        slow.go.set()
        first.join()
    assert world.effects == ["A"]


@pytest.mark.slow  # waits for a lease
def test_a_beat_keeps_the_lease(world: World, ledger: Ledger) -> None:
    """A call that takes longer than its lease stays its own as long as it beats."""

    def long(params: Refund, *, context: ToolContext) -> ToolResult[Receipt]:
        for _ in range(6):
            time.sleep(0.3)
            context.beat()
            (entry,) = ledger.entries()
            assert entry.lease_left > 0.3
        return world.refund(params, context=context)

    config = IdempotencyConfig(lease=timedelta(seconds=1.5))
    with executor(refund_tool(long, config), ledger) as run:
        assert run.execute(refund()).outcome == "succeeded"


def test_a_call_that_was_taken_over_records_nothing(world: World, ledger: Ledger) -> None:
    """It woke up after its lease: its beat and its record are refused, it is undone, the other's result stays."""
    slow = Slow(world)
    beats: list[BaseException] = []

    def zombie(params: Refund, *, context: ToolContext) -> ToolResult[Receipt]:
        result = slow(params, context=context)
        try:
            context.beat()
        except LeaseLostError as error:
            beats.append(error)
        return result

    short = IdempotencyConfig(scope="shop", lease=timedelta(seconds=0.1))
    taking = IdempotencyConfig(scope="shop", reconcile=lambda p: ToolResult.ok(Receipt(77), message="Looked up."))
    session = keeping()
    with (
        executor(refund_tool(zombie, short), ledger, session=session) as one,
        executor(refund_tool(world.refund, taking), ledger) as two,
    ):
        first, firsts = in_thread(lambda: one.execute(refund()))
        assert slow.entered.wait(60)
        time.sleep(0.15)
        assert two.execute(refund()).result.value == Receipt(77)
        slow.go.set()
        first.join()
        assert two.execute(refund()).result.value == Receipt(77)
    assert firsts[0].outcome == "unknown"
    assert "took longer than its lease" in firsts[0].text
    assert len(beats) == 1
    assert session[Receipt].all() == ()


def test_the_lease_covers_the_timeout(ledger: Ledger) -> None:
    """A tool that may run for an hour is not given up after a minute."""
    left: list[float] = []

    def look(params: Refund) -> ToolResult[Receipt]:
        left.extend(entry.lease_left for entry in ledger.entries())
        return ToolResult.ok(Receipt(1))

    with executor(refund_tool(look, timeout=3600), ledger) as run:
        run.execute(refund())
    assert 3600 < left[0] <= 3660


# Everywhere


def handle_in_process(params: Refund, *, context: ToolContext) -> ToolResult[Receipt]:
    return ToolResult.ok(Receipt(1, str(context.idempotency_key)))


def die_in_process(params: Refund) -> ToolResult[Receipt]:
    import os

    os._exit(1)


@pytest.mark.slow  # processes
def test_it_works_under_process_isolation(ledger: Ledger) -> None:
    """The key crosses the border; a worker that dies leaves the outcome unknown."""
    config = IdempotencyConfig(scope="shop")
    with executor(refund_tool(handle_in_process, config, isolation="process"), ledger) as run:
        reply = run.execute(refund())
        assert str(reply.result.value).startswith("Receipt(number=1, order='shop:refund:")
        assert run.execute(refund()).outcome == "replayed"
    with executor(refund_tool(die_in_process, config, isolation="process"), ledger) as run:
        assert run.execute(refund("dead")).outcome == "unknown"


def test_duplicates_in_one_turn_have_one_effect(world: World, ledger: Ledger) -> None:
    """Writing tools one after the other, read-only ones side by side."""
    for read_only in (False, True):
        tool = refund_tool(
            world.refund, IdempotencyConfig(scope=f"s{read_only}"), annotations=ToolAnnotations(read_only=read_only)
        )
        with executor(tool, ledger) as run:
            replies = run.execute_all([refund() for _ in range(4)])
        assert sorted(reply.outcome for reply in replies) == ["replayed"] * 3 + ["succeeded"]
        with executor(tool, ledger) as run:
            replies = asyncio.run(run.aexecute_all([refund() for _ in range(4)]))
        assert [reply.outcome for reply in replies] == ["replayed"] * 4
    assert world.effects == ["A", "A"]


def test_many_tasks_at_once_have_one_effect(ledger: Ledger) -> None:
    """Twenty sessions ask for the same thing; one handler runs."""
    effects: list[int] = []

    async def slow(params: Refund) -> ToolResult[Receipt]:
        await asyncio.sleep(0.02)
        effects.append(1)
        return ToolResult.ok(Receipt(1))

    tool = refund_tool(slow, IdempotencyConfig(scope="shop"))

    async def main() -> list[ToolReply]:
        runs = [executor(tool, ledger) for _ in range(20)]
        return await asyncio.gather(*(run.aexecute(refund()) for run in runs))

    replies = asyncio.run(main())
    assert sorted(reply.outcome for reply in replies) == ["replayed"] * 19 + ["succeeded"]
    assert effects == [1]


def test_a_claim_that_was_cancelled_is_given_back(world: World, tmp_path: Path) -> None:
    """The handler had not begun, so nothing is in doubt."""
    import sqlite3

    async def main(run: ToolExecutor, blocker: sqlite3.Connection) -> None:
        task = asyncio.ensure_future(run.aexecute(refund()))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.sleep(0.01)
        blocker.execute("ROLLBACK")
        with pytest.raises(asyncio.CancelledError):
            await task

    with SqliteEffectLedger(tmp_path / "ledger.db") as ledger:
        blocker = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        asyncio.run(main(executor(refund_tool(world.refund), ledger), blocker))
        blocker.close()
        assert ledger.entries() == []
    assert world.effects == []


# Ledgers that fail


def test_a_ledger_that_cannot_be_used_keeps_the_handler_from_running(world: World, tmp_path: Path) -> None:
    """The error comes before the effect and says what to do."""
    import sqlite3

    with (
        SqliteEffectLedger(tmp_path / "ledger.db", patience=0.05) as ledger,
        executor(refund_tool(world.refund), ledger) as run,
    ):
        blocker = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        reply = run.execute(refund())
        blocker.execute("ROLLBACK")
        blocker.close()
        assert (reply.outcome, reply.is_error) == ("crashed", True)
        assert reply.text.startswith("'refund' was not run. Internal error: The ledger ")
        assert "has been locked for 0.05 s" in reply.text
        assert world.effects == []
        assert run.execute(refund()).outcome == "succeeded"


def test_a_record_that_fails_is_not_silent(world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The call succeeded and says so, the log says that its record is missing, and it is not repeated later."""
    import sqlite3

    blocker = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, check_same_thread=False)
    config = IdempotencyConfig(lease=timedelta(seconds=0.05))

    def locking(params: Refund, *, context: ToolContext) -> ToolResult[Receipt]:
        blocker.execute("BEGIN IMMEDIATE")
        return world.refund(params, context=context)

    with (
        SqliteEffectLedger(tmp_path / "ledger.db", patience=0.05) as ledger,
        executor(refund_tool(locking, config), ledger) as run,
    ):
        assert run.execute(refund()).outcome == "succeeded"
        blocker.execute("ROLLBACK")
        blocker.close()
        assert "could not be recorded; it will count as unknown" in caplog.text
        time.sleep(0.06)
        assert run.execute(refund()).outcome == "unknown"
    assert world.effects == ["A"]


def test_a_value_without_a_json_form_is_missing_from_the_replay(ledger: Ledger) -> None:
    """The effect happened, so the call succeeds; its replay says what it lacks."""

    class Opaque:
        def render(self) -> str:
            return "opaque"

    tool = Tool[Refund, Any](
        name="refund",
        description="Refund.",
        handler=lambda params: ToolResult.ok(Opaque(), message="Done."),
        idempotency=IdempotencyConfig(),
    )
    with executor(tool, ledger) as run:
        assert run.execute(refund()).text == "Done.\nopaque"
        reply = run.execute(refund())
    assert reply.outcome == "replayed"
    assert reply.text.startswith("Done.\n[The value of the first run cannot be shown again: ")


def test_without_a_ledger_effects_are_remembered_for_the_session(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning says so; a second evaluation of the session still knows."""
    session = Session()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with executor(refund_tool(world.refund), None, session=session) as run:
                run.execute(refund())
    assert world.effects == ["A"]
    assert outcomes(session) == ["succeeded", "replayed"]
    assert [record for record in caplog.messages if "without an effect_ledger" in record] == [caplog.messages[0]]


def test_refusals_come_before_the_ledger(world: World, ledger: Ledger) -> None:
    """A policy, a repetition, bad arguments: nothing is claimed."""

    class Never:
        def check(self, tool_name: str, params: Any, context: ToolContext) -> str:
            assert context.idempotency_key is None
            return "No."

    with executor(refund_tool(world.refund), ledger, policies=(Never(),)) as run:
        assert run.execute(refund()).outcome == "refused"
        assert run.execute(ToolCall("x", "refund", {"order": 7})).outcome == "invalid"
    assert ledger.entries() == []


def test_errors_of_the_ledger_are_its_own() -> None:
    """So that callers can tell them from handlers' errors."""
    assert issubclass(LeaseLostError, LedgerError)
