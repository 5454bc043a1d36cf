"""001: "Idempotency Ledger": the configuration, the ledger and its operations, the execution flow, the record."""

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from uuid import UUID

from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolResult
from weakincentives.runtime import Session, ToolCall
from weakincentives.testing import FakeClock


@dataclass(frozen=True)
class Params:
    order_id: str = "123"
    note: str = ""


@dataclass(frozen=True)
class Result:
    number: int


class Shop:
    def __init__(self):
        self.orders = []

    def __call__(self, params: Params) -> ToolResult[Result]:
        self.orders.append(params.order_id)
        return ToolResult.ok(Result(len(self.orders)), message="Created.")


def prompt_with(tool):
    section = MarkdownSection(title="Orders", template="", tools=[tool])
    return Prompt(PromptTemplate(ns="docs", key="ledger", sections=[section]))


def test_idempotency_configuration():
    handler = Shop()

    from weakincentives.runtime import IdempotencyConfig

    tool = Tool[Params, Result](
        name="create_order",
        description="Create a new order",
        handler=handler,
        idempotency=IdempotencyConfig(
            strategy="auto",        # Key strategy
            ttl=timedelta(hours=1), # Cache duration
            scope="session",        # Key namespace
        ),
    )

    assert tool.idempotency.key_for("create_order", Params()).startswith("session:create_order:")


def test_effect_ledger():
    params, tool_result = Params(), ToolResult.ok(Result(1), message="Created.")

    def block(ledger):
        # Check for cached result
        effect = ledger.lookup("session:create_order:abc123")
        if effect is not None:
            # Reuse cached result
            return effect.result_message

        # After tool execution, record result
        ledger.record(
            idempotency_key="session:create_order:abc123",
            tool_name="create_order",
            params=params,
            result=tool_result,
            ttl=timedelta(hours=1),
        )

    from weakincentives.runtime import EffectLedger

    ledger = EffectLedger()
    assert block(ledger) is None
    assert block(ledger) == "Created."


def test_ledger_operations():
    """The table of methods."""
    from weakincentives.runtime import EffectLedger

    clock = FakeClock()
    ledger = EffectLedger(clock=clock)

    def record(key, tool_name="create_order", **options):
        ledger.record(
            idempotency_key=key, tool_name=tool_name, params=Params(), result=ToolResult.ok(Result(1)), **options
        )

    for key in ("a", "b", "c"):
        record(key, ttl=None)
    record("d", tool_name="other", ttl=timedelta(minutes=1))
    ledger.invalidate("a")
    assert ledger.lookup("a") is None
    ledger.invalidate_by_tool("create_order")
    assert [ledger.lookup(key) for key in "abc"] == [None, None, None]
    assert ledger.lookup("d") is not None
    clock.advance(timedelta(minutes=2))
    assert ledger.prune_expired() == 1
    record("e")
    ledger.clear()
    assert ledger.lookup("e") is None


def test_integration_with_tool_execution():
    from weakincentives.runtime import EffectLedger, IdempotencyConfig
    from weakincentives.adapters.tool_executor import ToolExecutor

    handler = Shop()
    tool = Tool[Params, Result](
        name="create_order", description="Create a new order", handler=handler, idempotency=IdempotencyConfig()
    )

    ledger = EffectLedger()

    executor = ToolExecutor(
        prompt=prompt_with(tool),
        session=Session(),
        effect_ledger=ledger,
    )

    # Tools with idempotency config will now check/update the ledger
    replies = [executor.execute(ToolCall(str(n), "create_order", {"order_id": "9"})) for n in range(2)]
    assert handler.orders == ["9"]
    assert [reply.result for reply in replies] == [ToolResult.ok(Result(1), message="Created.")] * 2
    assert replies[1].outcome == "replayed"


def test_tool_execution_context():
    """It takes the ledger as well."""
    from weakincentives.adapters import ToolExecutionContext
    from weakincentives.runtime import EffectLedger, IdempotencyConfig

    handler, ledger = Shop(), EffectLedger()
    tool = Tool[Params, Result](
        name="create_order", description="Create a new order", handler=handler, idempotency=IdempotencyConfig()
    )
    context = ToolExecutionContext(prompt=prompt_with(tool), session=Session(), effect_ledger=ledger)
    for n in range(2):
        with context.executor() as executor:
            executor.execute(ToolCall(str(n), "create_order", {}))
    assert handler.orders == ["123"]


def test_tool_effect_record():
    @dataclass
    class ToolEffect:
        idempotency_key: str           # Computed key
        tool_name: str                 # Tool that was executed
        params_hash: str               # Hash of serialized params
        result_message: str            # ToolResult.message
        result_value: dict | list | None  # Serialized ToolResult.value
        result_success: bool           # ToolResult.success
        created_at: datetime           # When recorded
        expires_at: datetime | None    # When entry expires
        effect_id: UUID                # Unique identifier

    from weakincentives.runtime import EffectLedger
    from weakincentives.runtime import ToolEffect as Ours

    printed = [field.name for field in fields(ToolEffect)]
    assert [field.name for field in fields(Ours)][: len(printed)] == printed
    ledger = EffectLedger()
    ledger.record(
        idempotency_key="k", tool_name="t", params=Params(), result=ToolResult.ok(Result(5), message="Made.")
    )
    effect = ledger.lookup("k")
    assert (effect.result_message, effect.result_value, effect.result_success) == ("Made.", {"number": 5}, True)
    assert isinstance(effect.effect_id, UUID)


def test_ttl_and_expiration():
    """None never expires; the default is 24 hours; expired entries are removed on lookup."""
    from weakincentives.runtime import EffectLedger

    clock = FakeClock()
    ledger = EffectLedger(clock=clock)
    ledger.record(idempotency_key="day", tool_name="t", params=None, result=ToolResult.ok(1))
    ledger.record(idempotency_key="ever", tool_name="t", params=None, result=ToolResult.ok(1), ttl=None)
    effect = ledger.lookup("day")
    assert effect.expires_at - effect.created_at == timedelta(hours=24)
    clock.advance(timedelta(hours=25))
    assert ledger.lookup("day") is None
    assert ledger.prune_expired() == 0
    assert ledger.lookup("ever") is not None


def test_only_successful_executions_are_cached():
    from weakincentives.runtime import EffectLedger

    ledger = EffectLedger()
    ledger.record(idempotency_key="k", tool_name="t", params=None, result=ToolResult.error("No."))
    assert ledger.lookup("k") is None
