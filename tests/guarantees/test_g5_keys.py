"""G5: two calls are one exactly when their params are equal and their tool is the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr, field_serializer

from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolResult
from weakincentives.runtime import (
    EffectLedger,
    IdempotencyConfig,
    Ledger,
    Session,
    SqliteEffectLedger,
    ToolCall,
    ToolInvoked,
)
from weakincentives.runtime.executor import ToolExecutor

_ids = itertools.count()


class Card(BaseModel):
    """Params of which JSON does not show everything."""

    holder: str = "Ada"
    number: str = Field(default="", exclude=True)
    code: str = ""

    @field_serializer("code")
    def mask(self, value: str) -> str:
        return "***"


class Account(BaseModel):
    pin: SecretStr = SecretStr("")


@dataclass(frozen=True)
class Payment:
    amount: Decimal = Decimal(0)
    at: datetime | None = None
    tags: frozenset[str] = frozenset()


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    made: Ledger = EffectLedger() if request.param == "memory" else SqliteEffectLedger(tmp_path / "ledger.db")
    yield made
    made.close()


def make_tool(cls: Any, handler: Callable[..., Any], name: str = "pay", **options: Any) -> Tool[Any, Any]:
    options = {"idempotency": IdempotencyConfig(scope="shop"), **options}
    return Tool[cls, int](name=name, description="Pay.", handler=handler, max_repeats=None, **options)


def executor(ledger: Ledger, *tools: Tool[Any, Any], session: Session | None = None, **options: Any) -> ToolExecutor:
    section = MarkdownSection(title="Shop", template="", tools=list(tools))
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="tests", key="keys", sections=[section]))
    return ToolExecutor(prompt=prompt, session=session or Session(), effect_ledger=ledger, **options)


def call(arguments: str = "{}", name: str = "pay") -> ToolCall:
    return ToolCall(f"call-{next(_ids)}", name, arguments)


@dataclass
class World:
    effects: list[Any] = field(default_factory=list[Any])

    def pay(self, params: Any) -> ToolResult[int]:
        self.effects.append(params)
        return ToolResult.ok(len(self.effects))


@pytest.mark.parametrize(
    ("cls", "one", "two"),
    [
        (Card, '{"number": "4111"}', '{"number": "4222"}'),
        (Card, '{"code": "1"}', '{"code": "2"}'),
        (Account, '{"pin": "1"}', '{"pin": "2"}'),
    ],
)
def test_what_json_hides_counts(cls: Any, one: str, two: str, ledger: Ledger) -> None:
    """Two cards are two calls, and each is one."""
    world = World()
    with executor(ledger, make_tool(cls, world.pay)) as run:
        assert [run.execute(call(text)).outcome for text in (one, two, one, two)] == [
            "succeeded", "succeeded", "replayed", "replayed",
        ]  # fmt: skip
    assert len(world.effects) == 2


@pytest.mark.parametrize(
    "texts",
    [
        ('{"amount": "10"}', '{"amount": "10.0"}', '{"amount": "10.00"}', '{"amount": "1e1"}'),
        ('{"at": "2025-07-01T12:00:00Z"}', '{"at": "2025-07-01T14:00:00+02:00"}'),
        ('{"tags": ["a", "b", "c"]}', '{"tags": ["c", "a", "b"]}'),
        ('{"amount": "1"}', '{"at": null, "amount": "1", "tags": []}'),
    ],
)
def test_what_is_equal_is_one_call(texts: tuple[str, ...], ledger: Ledger) -> None:
    """However it is written."""
    world = World()
    with executor(ledger, make_tool(Payment, world.pay)) as run:
        outcomes = [run.execute(call(text)).outcome for text in texts]
    assert outcomes == ["succeeded"] + ["replayed"] * (len(texts) - 1)
    assert len(world.effects) == 1


def test_another_tool_under_one_custom_key_conflicts(ledger: Ledger) -> None:
    """It is told whose key it is; its handler does not run, the other's result is not its own."""
    world, other = World(), World()
    config = IdempotencyConfig(strategy="custom", scope="shop", key_fn=lambda _: "order:7")
    pay = make_tool(Payment, world.pay, idempotency=config)
    ship = make_tool(Payment, other.pay, name="ship", idempotency=config)
    session = Session()
    with executor(ledger, pay, ship, session=session) as run:
        assert run.execute(call()).outcome == "succeeded"
        reply = run.execute(call(name="ship"))
        assert run.execute(call()).outcome == "replayed"
    assert (reply.outcome, reply.success, reply.is_error) == ("conflict", False, False)
    assert reply.text == (
        "The key 'shop:order:7' was used before by 'pay', so 'ship' was not run.\n"
        "Use another key: one key is one call of one tool."
    )
    assert (len(world.effects), len(other.effects)) == (1, 0)
    assert [event.outcome for event in session[ToolInvoked].all()] == ["succeeded", "conflict", "replayed"]


class Opaque:
    """Equal to itself alone."""


def test_params_that_cannot_be_compared_are_invalid(ledger: Ledger) -> None:
    """Where the annotation did not show it; the text says what the tool lacks, and nothing runs."""

    @dataclass
    class Anything:
        what: Any = field(default_factory=Opaque)

    world = World()
    with executor(ledger, make_tool(Anything, world.pay)) as run:
        reply = run.execute(call())
        assert run.execute(call('{"what": [1, "a"]}')).outcome == "succeeded"
    assert reply.outcome == "invalid"
    assert "Two values of the class Opaque cannot be compared." in reply.text
    assert "use key_fn" in reply.text
    assert len(world.effects) == 1


def test_a_custom_key_does_without_comparing_params(ledger: Ledger) -> None:
    """Its function alone says what is the same."""

    @dataclass
    class Anything:
        what: Any = field(default_factory=Opaque)

    world = World()
    config = IdempotencyConfig(strategy="custom", scope="shop", key_fn=lambda _: "k")
    with executor(ledger, make_tool(Anything, world.pay, idempotency=config)) as run:
        assert [run.execute(call()).outcome for _ in range(2)] == ["succeeded", "replayed"]


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def _mute(params: Any) -> Any:
    raise Mute


def test_an_exception_without_text_leaves_the_outcome_unknown(ledger: Ledger) -> None:
    """As any other, with its class for the operator; it does not leave `execute`, nor count as cancelled."""
    session = Session()
    with executor(ledger, make_tool(Payment, _mute), session=session) as run:
        replies = [run.execute(call()) for _ in range(2)]
    assert [reply.outcome for reply in replies] == ["unknown", "unknown"]
    assert [event.outcome for event in session[ToolInvoked].all()] == ["unknown", "unknown"]
    (entry,) = ledger.entries()
    assert (entry.state, entry.why) == ("unknown", "the handler raised Mute")


@pytest.mark.parametrize("raising", ["handler", "lookup", "key"])
def test_no_text_anywhere_is_no_reason_to_stop(raising: str, ledger: Ledger) -> None:
    """A handler, a lookup and a key function may all raise such a thing."""
    config = IdempotencyConfig(scope="shop", reconcile=_mute)
    if raising == "key":
        config = IdempotencyConfig(scope="shop", strategy="custom", key_fn=_mute)
    session = Session()
    with executor(ledger, make_tool(Payment, _mute, idempotency=config), session=session) as run:
        outcomes = [run.execute(call()).outcome for _ in range(2)]
    assert outcomes == (["crashed"] * 2 if raising == "key" else ["unknown"] * 2)
    assert [event.outcome for event in session[ToolInvoked].all()] == outcomes


@dataclass(eq=False)
class Incomparable:
    """A value that raises, without a text, when it is compared."""

    number: int = 1

    def __eq__(self, other: object) -> bool:
        raise Mute

    __hash__ = None  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]


def test_a_value_that_cannot_be_compared_is_recorded_all_the_same(ledger: Ledger) -> None:
    """The effect happened, so the call succeeds, and a replay does not repeat it."""
    paid: list[int] = []

    def pay(params: Any) -> ToolResult[Incomparable]:
        paid.append(1)
        return ToolResult("Paid.", Incomparable(), exclude_value_from_context=True)

    tool = Tool[Payment, Incomparable](
        name="pay", description="Pay.", handler=pay, idempotency=IdempotencyConfig(scope="shop")
    )
    with executor(ledger, tool) as run:
        assert [run.execute(call()).outcome for _ in range(2)] == ["succeeded", "replayed"]
    assert paid == [1]


@pytest.mark.parametrize("ttl", [timedelta.max, timedelta(days=3_000_000)])
def test_a_ttl_beyond_the_calendar_is_for_ever(ttl: timedelta, ledger: Ledger) -> None:
    """The call succeeds and is remembered."""
    world = World()
    config = IdempotencyConfig(scope="shop", ttl=ttl, lease=timedelta.max)
    with executor(ledger, make_tool(Payment, world.pay, idempotency=config)) as run:
        assert [run.execute(call()).outcome for _ in range(2)] == ["succeeded", "replayed"]
    (entry,) = ledger.entries()
    assert entry.effect is not None
    assert entry.effect.expires_at is None
