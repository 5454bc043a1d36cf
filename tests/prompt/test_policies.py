from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies import asked, told

from weakincentives.errors import PromptValidationError
from weakincentives.prompt import (
    CallsUndone,
    Decision,
    Outcome,
    QuotaPolicy,
    RateLimitPolicy,
    SequentialDependencyPolicy,
    ToolContext,
    ToolInvoked,
    ToolPolicy,
    ToolResult,
)
from weakincentives.prompt.policies import CallCounts
from weakincentives.prompt.policy import Policy, ResultPolicy, as_policy, may_overlap
from weakincentives.session import Session, SessionProtocol
from weakincentives.testing import FakeClock


def context_of(*events: ToolInvoked, clock: FakeClock | None = None) -> ToolContext:
    session = Session(clock=clock)
    for event in events:
        session.dispatch(event)
    return ToolContext(session=session)


def called(name: str, outcome: Outcome = "succeeded", at: float = 0.0) -> ToolInvoked:
    return ToolInvoked(tool_name=name, outcome=outcome, timestamp=at, duration=0.1)


class Says:
    """A policy that says what it is told."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict

    def check(self, tool_name: str, params: Any, context: ToolContext) -> Any:
        if isinstance(self.verdict, BaseException):
            raise self.verdict
        return self.verdict


# Asking.


@pytest.mark.parametrize("verdict", [None, Decision.allow(), Decision("allow")])
def test_none_and_allow_let_a_call_pass(verdict: Any) -> None:
    """A policy has nothing to say, or says yes."""
    assert asked((Says(verdict), Says(None)), "deploy", None, ToolContext()) is None


@pytest.mark.parametrize("verdict", ["Not now.\n", Decision.refuse("Not now.")])
def test_text_and_refuse_stop_a_call(verdict: Any) -> None:
    """The model reads the policy's text, then its name."""
    assert asked((Says(verdict),), "deploy", None, ToolContext()) == "Not now.\nRefused by Says."


@pytest.mark.parametrize(
    "verdict",
    ["", "  ", Decision.refuse(""), Decision("ask", "Sure?"), True, False, 0, object(), RuntimeError("secret")],
)
def test_whatever_is_not_understood_refuses(verdict: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Empty texts, unknown decisions, other values and exceptions refuse, and leak nothing to the model."""
    with caplog.at_level(logging.ERROR):
        text = asked((Says(verdict),), "deploy", None, ToolContext())
    assert text is not None
    assert "'deploy'" in text
    assert text.endswith("Refused by Says.")
    assert "secret" not in text


def test_a_policy_that_raises_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The developer finds what the model is not told."""
    asked((Says(RuntimeError("secret")),), "deploy", None, ToolContext())
    assert "secret" in caplog.text
    assert "Says" in caplog.text


def test_an_interrupt_is_no_verdict() -> None:
    """Ctrl-C in a policy passes through."""
    with pytest.raises(KeyboardInterrupt):
        asked((Says(KeyboardInterrupt()),), "deploy", None, ToolContext())


def test_the_first_refusal_wins() -> None:
    """Policies are asked in order, and none after a refusal."""
    never = Says(AssertionError("asked"))
    assert asked((Says(None), Says("One."), never), "x", None, ToolContext()) == "One.\nRefused by Says."


def test_a_policy_may_have_a_name() -> None:
    """`name` is what refusals call it."""
    policy = Says("No.")
    cast(Any, policy).name = "office hours"
    assert asked((policy,), "x", None, ToolContext()) == "No.\nRefused by office hours."


def test_policies_that_listen_are_told_of_results() -> None:
    """`on_result` is optional, and what it raises passes through."""
    heard: list[str] = []

    class Listens(Says):
        def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> None:
            heard.append(tool_name)
            if params == "bad":
                raise ValueError("bad")

    listening = Listens(None)
    assert isinstance(listening, ResultPolicy)
    assert not isinstance(Says(None), ResultPolicy)
    told((Says(None), listening), "a", None, ToolResult.ok(1), ToolContext())
    assert heard == ["a"]
    with pytest.raises(ValueError, match="bad"):
        told((listening,), "a", "bad", ToolResult.ok(1), ToolContext())


class Bare(Policy):
    """A policy that declares what it must and nothing else."""

    def check(self, tool_name: str, params: Any, context: ToolContext) -> str | None:
        return f"Not {tool_name}."


class Learns(Bare):
    """One that overrides each default."""

    name = "school"
    overlaps = True

    def __init__(self) -> None:
        self.heard: list[object] = []

    def install(self, session: SessionProtocol) -> None:
        self.heard.append(session)

    def on_result(self, tool_name: str, params: Any, result: ToolResult[Any], context: ToolContext) -> None:
        self.heard.append(tool_name)


class LearnsToo(Says):
    """The same abilities on a class of its own."""

    name = "school"
    overlaps = True
    install = Learns.install
    on_result = Learns.on_result

    def __init__(self) -> None:
        super().__init__("Not x.")
        self.heard: list[object] = []


@pytest.mark.parametrize("policy", [Bare(), Says("Not x.")])
def test_what_a_policy_does_not_declare_has_a_default(policy: Any) -> None:
    """Whether it is a subclass of `Policy` or not: its class is its name, calls do not overlap, it is told nothing."""
    declared = as_policy(policy)
    assert asked((policy,), "x", None, ToolContext()) == f"Not x.\nRefused by {type(policy).__name__}."
    assert not may_overlap((policy,))
    assert declared.listener() is None
    declared.install(Session())
    declared.check_tool(cast(Any, None))


@pytest.mark.parametrize("make", [Learns, LearnsToo])
def test_what_a_policy_declares_is_used(make: Any) -> None:
    """A subclass of `Policy` and a class of its own are treated alike."""
    policy, session = make(), Session()
    assert asked((policy,), "x", None, ToolContext()) == "Not x.\nRefused by school."
    assert may_overlap((policy,))
    as_policy(policy).install(session)
    told((policy,), "x", None, ToolResult.ok(1), ToolContext())
    assert policy.heard == [session, "x"]


@pytest.mark.parametrize("policy", [SequentialDependencyPolicy({}), RateLimitPolicy(1), QuotaPolicy(1), Says(None)])
def test_policies_follow_the_protocol(policy: Any) -> None:
    """Whatever has `check` is a policy."""
    assert isinstance(policy, ToolPolicy)
    assert repr(policy)


# Order.


deploy_policy = SequentialDependencyPolicy(
    dependencies={"deploy": frozenset({"test", "build"}), "release": frozenset({"deploy"})}
)


def test_a_call_waits_for_all_it_depends_on() -> None:
    """The refusal names what is missing and what to call next."""
    assert deploy_policy.check("deploy", None, context_of()) == (
        "Cannot call 'deploy' - missing required tools: build, test\nCall these tools first, then retry deploy."
    )
    assert deploy_policy.check("deploy", None, context_of(called("test"))) == (
        "Cannot call 'deploy' - missing required tools: build\nCall this tool first, then retry deploy."
    )
    assert deploy_policy.check("deploy", None, context_of(called("test"), called("build"))) is None
    assert deploy_policy.check("release", None, context_of(called("test"), called("build"))) is not None
    assert deploy_policy.check("anything", None, context_of()) is None


@pytest.mark.parametrize("outcome", ["failed", "refused", "crashed", "undone", "timeout", "unknown"])
def test_only_success_counts_for_order(outcome: Outcome) -> None:
    """A call that failed in any way has not happened."""
    assert deploy_policy.check("deploy", None, context_of(called("test"), called("build", outcome))) is not None


def test_a_replayed_call_counts_for_order() -> None:
    """A success that was remembered is a success."""
    assert deploy_policy.check("release", None, context_of(called("deploy", "replayed"))) is None


def test_dependencies_given_in_order_are_named_in_order() -> None:
    """A list keeps its order in the text."""
    policy = SequentialDependencyPolicy({"deploy": ["test", "build"]})
    assert "missing required tools: test, build" in str(policy.check("deploy", None, context_of()))


@pytest.mark.parametrize(
    ("dependencies", "words"),
    [
        ({"a": {"a"}}, "a -> a"),
        ({"x": {"a"}, "a": {"b"}, "b": {"c"}, "c": {"a"}}, "a -> b -> c -> a"),
        ({"a": "b"}, "frozenset({'b'})"),
    ],
)
def test_dependencies_that_cannot_be_met_are_refused(dependencies: Any, words: str) -> None:
    """Circles and bare strings are refused when the policy is built."""
    with pytest.raises(PromptValidationError) as caught:
        SequentialDependencyPolicy(dependencies)
    assert words in str(caught.value)


# Rate.


def test_a_tool_may_be_called_so_often_a_minute() -> None:
    """The limit is for each tool, over the last 60 seconds of the session's clock."""
    clock = FakeClock()
    policy, start = RateLimitPolicy(max_calls_per_minute=2), clock.time()
    context = context_of(called("api", at=start), called("api", at=start + 10), clock=clock)
    clock.advance(20)
    assert policy.check("api", None, context) == (
        "Rate limit exceeded: 2 calls to api in last minute\nMaximum: 2 calls per minute\n"
        "Wait 40 seconds before retrying"
    )
    assert policy.check("other", None, context) is None
    clock.advance(40)
    assert policy.check("api", None, context) is None
    context.session.dispatch(called("api", at=clock.time()))
    assert "Wait 10 seconds" in str(policy.check("api", None, context))


def test_a_rate_limit_may_have_its_own_clock() -> None:
    """`clock=` wins over the session's."""
    own = FakeClock()
    policy = RateLimitPolicy(1, clock=own)
    context = context_of(called("api", at=own.time()))
    assert policy.check("api", None, context) is not None
    own.advance(60)
    assert policy.check("api", None, context) is None


# Quota.


def test_a_session_has_so_many_calls() -> None:
    """All tools' calls count together, or those that are named."""
    context = context_of(called("a"), called("b"))
    assert QuotaPolicy(max_calls=3).check("a", None, context) is None
    assert QuotaPolicy(max_calls=2).check("a", None, context) == (
        "Quota exceeded: 2/2 calls used\nDo not call a again; go on with what you have."
    )
    only_a = QuotaPolicy(max_calls=1, tools={"a"})
    assert only_a.check("a", None, context) is not None
    assert only_a.check("b", None, context) is None


@pytest.mark.parametrize("outcome", ["refused", "invalid", "unknown_tool", "conflict"])
def test_calls_that_were_not_admitted_use_nothing_up(outcome: Outcome) -> None:
    """A refused call does not count against rate or quota: otherwise refusals would feed themselves."""
    clock = FakeClock()
    context = context_of(*(called("a", outcome, at=clock.time()) for _ in range(5)), clock=clock)
    assert QuotaPolicy(1).check("a", None, context) is None
    assert RateLimitPolicy(1).check("a", None, context) is None


@pytest.mark.parametrize("outcome", ["failed", "crashed", "timeout", "replayed", "undone"])
def test_admitted_calls_count_whatever_came_of_them(outcome: Outcome) -> None:
    """A call that failed was a call."""
    clock = FakeClock()
    context = context_of(called("a", outcome, at=clock.time()), clock=clock)
    assert QuotaPolicy(1).check("a", None, context) is not None
    assert RateLimitPolicy(1).check("a", None, context) is not None


@pytest.mark.parametrize(
    "make",
    [lambda: QuotaPolicy(0), lambda: RateLimitPolicy(-1), lambda: QuotaPolicy(cast(Any, True)),
     lambda: RateLimitPolicy(cast(Any, "3")), lambda: QuotaPolicy(1, tools="abc")],
)  # fmt: skip
def test_limits_that_make_no_sense_are_refused(make: Callable[[], object]) -> None:
    """Limits are whole numbers from 1 on, and tools are several names."""
    with pytest.raises(PromptValidationError):
        make()


# The index behind them.


def test_a_restore_does_not_give_calls_back() -> None:
    """The log stays when state is restored, so the count does too."""
    context = context_of(called("a"))
    policy, before = QuotaPolicy(2), context.session.snapshot()
    assert policy.check("a", None, context) is None
    context.session.dispatch(called("a"))
    context.session.restore(before)
    assert policy.check("a", None, context) is not None


def test_one_policy_keeps_sessions_apart() -> None:
    """The same policy object serves any number of sessions, forks and emptied logs."""
    policy = QuotaPolicy(2)
    session = Session()
    session.dispatch(called("a"))
    session.dispatch(called("a"))
    assert policy.check("a", None, ToolContext(session=session)) is not None
    fork = session.fork()
    assert policy.check("a", None, ToolContext(session=fork)) is not None
    assert policy.check("a", None, ToolContext(session=Session())) is None
    session.reset(logs=True)
    assert policy.check("a", None, ToolContext(session=session)) is None
    for _ in range(3):
        session.dispatch(called("b"))
    assert "3/2" in str(policy.check("a", None, ToolContext(session=session)))
    session.reset(logs=True)
    for _ in range(3):
        session.dispatch(called("a", "refused"))
    assert policy.check("a", None, ToolContext(session=session)) is None


class Names(list[str]):
    """A list that can be referred to weakly."""


def test_an_index_goes_with_its_session() -> None:
    """Every session is counted on its own, and what was counted is not kept any longer than the session."""
    made: list[ref[Names]] = []

    def start() -> Names:
        names = Names()
        made.append(ref(names))
        return names

    index: CallCounts[Names] = CallCounts(start, lambda names, event: names.append(event.tool_name))
    contexts = [context_of(*[called("a")] * number) for number in range(5)]
    for _ in range(2):
        assert [index.ask(context.session, len) for context in contexts] == [0, 1, 2, 3, 4]
    assert len(made) == 5
    del contexts
    gc.collect()
    assert [names() for names in made] == [None] * 5


def test_an_interrupted_count_begins_again() -> None:
    """What interrupts the counting leaves no call out, and none counted twice."""
    interrupt: list[BaseException] = []

    def add(names: list[str], event: ToolInvoked) -> None:
        names.append(event.tool_name)
        if event.tool_name == "c" and interrupt:
            raise interrupt.pop()

    index: CallCounts[list[str]] = CallCounts(list, add)
    context = context_of(called("a"), called("b"))
    assert index.ask(context.session, len) == 2
    for name in "bcd":
        context.session.dispatch(called(name))
    interrupt.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        index.ask(context.session, len)
    assert index.ask(context.session, "".join) == "abbcd"


def test_checks_from_many_threads_agree() -> None:
    """The index may be asked while others record calls."""
    policy, context = QuotaPolicy(10_000), context_of()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(200):
                context.session.dispatch(called("a"))
                assert policy.check("a", None, context) is None
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert "800/800" in str(QuotaPolicy(800).check("a", None, context))
    policy.max_calls = 800
    assert "800/800" in str(policy.check("a", None, context))


def test_a_check_reads_only_what_is_new() -> None:
    """The log is not scanned again: each event is added to the index once."""
    seen: list[str] = []
    index: CallCounts[list[str]] = CallCounts(lambda: seen, lambda names, event: names.append(event.tool_name))
    context = context_of(*(called(f"t{number}") for number in range(100)))
    for _ in range(10):
        assert index.ask(context.session, len) == 100
    context.session.dispatch(called("last"))
    assert index.ask(context.session, len) == 101
    assert len(seen) == 101


def test_threads_add_each_event_once() -> None:
    """A late caller with an older view does not make the index start again."""
    added: list[str] = []
    index: CallCounts[list[str]] = CallCounts(list, lambda _, event: added.append(event.event_id))
    session = Session()

    def work() -> None:
        for _ in range(300):
            session.dispatch(called("a"))
            index.ask(session, len)

    def look() -> None:  # what is read is taken out of what is fresh
        for _ in range(600):
            session[ToolInvoked].all()

    threads = [threading.Thread(target=job) for job in (work, work, look, work, work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(added) == len(set(added)) == 1200


STEPS = [
    "succeeded", "failed", "refused", "replayed", "restore", "reset", "clear", "fork", "check", "look", "again",
    "other", "guarded",
]  # fmt: skip


@given(st.lists(st.sampled_from(STEPS)))
def test_the_index_agrees_with_counting(steps: list[Any]) -> None:
    """Whatever happens to a session between checks, the answer is that of scanning its log."""
    quota, order = QuotaPolicy(3), SequentialDependencyPolicy({"deploy": ["a"]})
    session = Session()
    start = session.snapshot()
    for step in [*steps, "check"]:
        if step == "restore":
            session.restore(start)
        elif step == "reset":
            session.reset(logs=True)
        elif step == "clear":
            session.clear_log(ToolInvoked, lambda event: event.success)
        elif step == "fork":
            session = session.fork()
            start = session.snapshot()
        elif step == "look":
            session[ToolInvoked].all()
        elif step == "again" and (event := session[ToolInvoked].latest()) is not None:
            session.dispatch(event)
        elif step in {"again", "other"}:
            session.dispatch(CallsUndone(undone_calls=()))
            session.dispatch("state")
        elif step == "guarded":  # another handle of the same session
            handle = session.guarded(nullcontext())
            one, other = (quota.check("a", None, ToolContext(session=each)) for each in (session, handle))
            assert one == other
        elif step == "check":
            context, log = ToolContext(session=session), session[ToolInvoked].all()
            assert (quota.check("a", None, context) is None) == (sum(event.admitted for event in log) < 3)
            assert (order.check("deploy", None, context) is None) == any(event.success for event in log)
        else:
            session.dispatch(called("a", cast(Outcome, step)))
