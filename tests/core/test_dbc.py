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


class Account:
    """Promises nothing itself."""

    def __init__(self, balance: int = 0) -> None:
        self.balance = balance

    def withdraw(self, amount: int) -> str:
        self.balance -= amount
        return "Account"

    async def withdraw_later(self, amount: int) -> None:
        await asyncio.sleep(0)
        self.balance -= amount


@invariant(lambda self: self.balance >= 0, "never negative")
class Savings(Account):
    @classmethod
    def empty(cls) -> Savings:
        return cls(0)


def test_inherited_methods_keep_the_invariant() -> None:
    """What a class inherits can break its promise as well as what it defines; the base class promises nothing."""
    savings = Savings(1)
    assert savings.withdraw(1) == "Account"
    with pytest.raises(ContractError, match=r"Account\.withdraw: Invariant failed: never negative"):
        savings.withdraw(1)
    with pytest.raises(ContractError, match=r"Account\.__init__"):
        Savings(-1)
    with pytest.raises(ContractError):
        asyncio.run(Savings(1).withdraw_later(2))
    assert Savings.empty().balance == 0
    assert Account(-1).balance == -1


def test_the_methods_of_built_in_types_keep_it_too() -> None:
    """A list is changed by methods that are not written in Python."""

    @invariant(lambda self: len(self) < 3, "short")
    class Short(list[int]):
        pass

    short = Short([1, 2])
    with pytest.raises(ContractError, match="append: Invariant failed: short"):
        short.append(3)
    with pytest.raises(ContractError):
        Short([1, 2, 3])


def test_subclasses_inherit_the_promise() -> None:
    """Methods that a subclass adds, overrides or gets from another base are checked; hooks of the class still run."""
    seen: list[str] = []

    @invariant(lambda self: self.balance >= 0, "never negative")
    class Kept(Account):
        def __init_subclass__(cls, **options: Any) -> None:
            super().__init_subclass__(**options)
            seen.append(cls.__name__)

    class Mixin:
        balance: int

        def lose(self) -> None:
            self.balance = -5

    class Sub(Kept, Mixin):
        def __init__(self) -> None:
            super().__init__(-1)  # broken in between, mended below
            self.balance = 3

        def withdraw(self, amount: int) -> str:
            return f"Sub, {super().withdraw(amount)}"

        def spend(self) -> None:
            self.balance -= 10

    assert seen == ["Sub"]
    assert Sub().withdraw(1) == "Sub, Account"
    for broken in (lambda: Sub().withdraw(4), lambda: Sub().spend(), lambda: Sub().lose()):
        with pytest.raises(ContractError, match="never negative"):
            broken()


def test_a_class_may_have_several_invariants() -> None:
    """Each is kept, in subclasses too."""

    @invariant(lambda self: self.balance >= 0, "never negative")
    @invariant(lambda self: self.balance < 100, "never rich")
    class Kept(Account):
        pass

    class Sub(Kept):
        def earn(self, amount: int) -> None:
            self.balance += amount

    with pytest.raises(ContractError, match="never rich"):
        Sub(1).earn(200)
    with pytest.raises(ContractError, match="never negative"):
        Sub(1).earn(-2)
    with pytest.raises(ContractError, match="never rich"):
        Sub(1).withdraw(-200)


def test_a_class_keeps_its_place_among_several_bases() -> None:
    """Checking an inherited method does not hide the override of a sibling class."""

    class Fees(Account):
        def withdraw(self, amount: int) -> str:
            return f"Fees, {super().withdraw(amount + 1)}"

    class Both(Savings, Fees):
        pass

    both = Both(5)
    assert both.withdraw(1) == "Fees, Account"
    assert both.balance == 3


def test_dataclasses_keep_an_invariant_above_them() -> None:
    """Slots make a class anew; decorated above it, the generated `__init__` is checked, inherited methods too."""

    @invariant(lambda self: self.low <= self.high, "low <= high")
    @dataclass(slots=True)
    class Span:
        low: int
        high: int

    @dataclass(slots=True)
    @invariant(lambda self: self.low > 0, "positive")
    class Positive(Span):
        more: int = 0

        def move(self, low: int) -> None:
            self.low = low

    with pytest.raises(ContractError):
        Span(2, 1)
    positive = Positive(1, 2)
    with pytest.raises(ContractError, match="positive"):
        positive.move(0)
    with pytest.raises(ContractError, match="low <= high"):
        positive.move(5)


@pytest.mark.parametrize(("text", "said"), [("not on Sundays", "not on Sundays"), ("", "the message")])
def test_a_predicate_may_say_why(text: str, said: str) -> None:
    """`(False, "text")` is not true, and its text is what the caller or the model reads."""

    @require(lambda params: (params.limit > 0, text), "the message")
    def handler(params: Params, *, context: object = None) -> ToolResult[int]:
        return ToolResult.ok(params.limit)

    @ensure(lambda result: (result > 0, text), "the message")
    def double(n: int) -> int:
        return n * 2

    @invariant(lambda self: (self.balance >= 0, text), "the message")
    class Kept(Account):
        pass

    assert handler(Params(limit=1)).success
    assert handler(Params(limit=0)) == ToolResult.error(f"Precondition failed: {said}")
    assert double(1) == 2
    with pytest.raises(ContractError, match=f"double: Postcondition failed: {said}"):
        double(0)
    with pytest.raises(ContractError, match=f"Invariant failed: {said}"):
        Kept(1).withdraw(2)


def test_other_tuples_are_true_when_there_is_something_in_them() -> None:
    """Only a verdict with its text is read as one."""

    @require(lambda names: names, "some names")
    def count(names: tuple[object, ...]) -> int:
        return len(names)

    assert count(("a", "b")) == 2
    assert count((0, "b")) == 2
    assert count((False, None)) == 2
    with pytest.raises(ContractError):
        count(())
