"""Contracts on handlers answer the model; contracts elsewhere raise."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from weakincentives.dbc import ensure, invariant, pure, require
from weakincentives.errors import ContractError
from weakincentives.results import ToolResult


@dataclass(frozen=True)
class Params:
    limit: int = 10
    query: str = "tea"


@require(lambda params: 1 <= params.limit <= 100, "limit must be between 1 and 100")
@require(lambda params: len(params.query.strip()) > 0, "query cannot be empty")
def search(params: Params, *, context: object = None) -> ToolResult[str]:
    return ToolResult.ok(params.query)


def test_a_handler_answers_with_the_message() -> None:
    """A broken precondition is a failed result, also when the handler is called directly."""
    assert search(Params()).success
    assert search(Params(limit=0)) == ToolResult.error("Precondition failed: limit must be between 1 and 100")
    assert search(Params(query=" ")).message == "Precondition failed: query cannot be empty"


def test_stacked_conditions_report_in_source_order() -> None:
    """With several broken the uppermost is reported, for both kinds."""
    assert search(Params(limit=0, query="")).message.endswith("limit must be between 1 and 100")

    @ensure(lambda result: result > 10, "first")
    @ensure(lambda result: result > 5, "second")
    def one() -> int:
        return 1

    with pytest.raises(ContractError, match="first"):
        one()


def test_a_plain_function_raises() -> None:
    """The error is an AssertionError that names function, kind and message."""

    @require(lambda a, b: a < b, "a must be below b")
    def span(a: int, b: int = 5) -> int:
        return b - a

    assert span(1) == 4
    assert span(a=1, b=3) == 2
    with pytest.raises(AssertionError, match=r"span: Precondition failed: a must be below b"):
        span(9)


def test_a_postcondition_sees_result_and_arguments() -> None:
    """`result` may be named beside any argument."""

    @ensure(lambda result, n: result == n * 2, "doubles")
    def double(n: int) -> int:
        return n * 2 if n < 10 else 0

    assert double(3) == 6
    with pytest.raises(ContractError, match="Postcondition failed: doubles"):
        double(10)


def test_a_handler_s_postcondition_answers_too() -> None:
    """A result that breaks its promise becomes a failed one."""

    @ensure(lambda result: result.success or result.value is None, "Failed results must have value=None")
    def handler(params: Params, *, context: object) -> ToolResult[int]:
        return ToolResult("bad", 1, success=False)

    answer = handler(Params(), context=None)
    assert answer == ToolResult.error("Postcondition failed: Failed results must have value=None")


@pytest.mark.parametrize("annotated", [True, False])
def test_a_handler_is_known_by_annotation_or_signature(annotated: bool) -> None:
    """`(params, *, context)` without annotations is a handler."""
    namespace: dict[str, Any] = {"ToolResult": ToolResult}
    returns = " -> ToolResult[int]" if annotated else ""
    exec(f"def handler(params, *, context){returns}: return ToolResult.ok(1)", namespace)
    checked = require(lambda params: False, "never")(namespace["handler"])
    assert checked(1, context=None).message == "Precondition failed: never"


def test_a_condition_that_raises_is_broken(caplog: pytest.LogCaptureFixture) -> None:
    """The cause is kept for functions and logged for handlers."""

    @require(lambda x: x.missing, "x has it")
    def plain(x: object) -> None: ...

    with pytest.raises(ContractError) as caught:
        plain(1)
    assert isinstance(caught.value.__cause__, AttributeError)

    @require(lambda params: params.missing, "has it")
    def handler(params: Params, *, context: object) -> ToolResult[None]:
        return ToolResult.ok(None)

    assert handler(Params(), context=None).message == "Precondition failed: has it"
    assert "AttributeError" in caplog.text


def test_async_functions_are_checked() -> None:
    """Conditions hold around the awaited call."""

    @require(lambda n: n > 0, "positive")
    @ensure(lambda result: result < 10, "small")
    async def work(n: int) -> int:
        await asyncio.sleep(0)
        return n * 3

    assert asyncio.run(work(2)) == 6
    with pytest.raises(ContractError, match="positive"):
        asyncio.run(work(0))
    with pytest.raises(ContractError, match="small"):
        asyncio.run(work(5))


def test_conditions_work_with_variadic_functions() -> None:
    """`*args` and `**kwargs` are bound as Python binds them."""

    @require(lambda numbers, scale: len(numbers) < 3 and scale > 0, "few")
    def total(*numbers: int, scale: int = 1) -> int:
        return sum(numbers) * scale

    assert total(1, 2, scale=2) == 6
    with pytest.raises(ContractError):
        total(1, 2, 3)


def test_wrong_conditions_are_refused_when_decorating() -> None:
    """Unknown names and async conditions are mistakes found at once."""
    with pytest.raises(TypeError, match="asks for quantity; it can have: a"):

        @require(lambda quantity: True, "x")
        def unknown(a: int) -> None: ...

    async def later(a: int) -> bool:
        return True

    with pytest.raises(TypeError, match="async"):

        @require(later, "x")
        def waits(a: int) -> None: ...


def test_decorating_again_leaves_the_first_function_alone() -> None:
    """Each decorated function has its own conditions."""

    def base(n: int) -> int:
        return n

    positive = require(lambda n: n > 0, "positive")(base)
    small = require(lambda n: n < 10, "small")(positive)
    assert positive(11) == 11
    with pytest.raises(ContractError, match="small"):
        small(11)
    assert small.__name__ == "base"


def test_pure_refuses_changed_arguments() -> None:
    """Sync and async; what cannot be copied or compared is not checked."""

    @pure
    def clean(items: list[int], lock: object) -> int:
        return len(items)

    @pure
    async def dirty(items: list[int]) -> None:
        items.clear()

    import threading

    assert clean([1], threading.Lock()) == 1
    with pytest.raises(ContractError, match="changed its argument 'items'"):
        asyncio.run(dirty([1]))


@invariant(lambda self: self.low <= self.high, "low <= high")
class Range:
    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def shift(self, by: int) -> None:
        self.move_low(by)  # broken in between, mended below
        self.high += by

    def move_low(self, by: int) -> None:
        self.low += by

    async def later(self, low: int) -> None:
        self.low = low

    def _private(self) -> None:
        self.low = 10**9


def test_invariants_hold_where_callers_can_see() -> None:
    """After construction and public methods; not between methods of the object itself."""
    span = Range(1, 2)
    span.shift(10)
    assert (span.low, span.high) == (11, 12)
    with pytest.raises(ContractError, match=r"Range\.move_low: Invariant failed: low <= high"):
        span.move_low(5)
    with pytest.raises(ContractError, match=r"Range.__init__"):
        Range(3, 1)
    with pytest.raises(ContractError):
        asyncio.run(Range(1, 2).later(7))
