"""Design by contract: conditions written beside the function they protect. Always on.

On a tool handler a broken contract is an expected failure: the call returns `ToolResult.error(...)` and the model
reads the message. On any other function it raises `ContractError`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from threading import local
from types import FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Annotated, Any, ParamSpec, TypeVar, cast, get_args, get_origin

from .errors import ContractError
from .results import ToolResult
from .signatures import signature_of

# What the answers of users' predicates mean.


def problem_of(answer: object, message: str) -> str | None:
    """What a predicate's answer means: `(False, "text")` is not true, as any other tuple with something in it is."""
    if isinstance(answer, tuple) and len(cast("tuple[object, ...]", answer)) == 2:
        verdict, text = cast("tuple[object, object]", answer)
        if isinstance(verdict, bool) and isinstance(text, str):
            return None if verdict else text or message
    return None if answer else message


# Invariants: a condition of an object that holds whenever its callers can look.


C = TypeVar("C", bound=type)


def invariant(predicate: Callable[[Any], object], message: str) -> Callable[[C], C]:
    """Keep `predicate(self)` true after construction and after every public method; else `ContractError`.

    Inherited methods count, and so do those of subclasses, which inherit the promise. A method called by another
    method of the same object is not checked on its own: only what callers can see counts. Above `@dataclass`, not
    below it: what decorates the class later, such as a generated `__init__`, is not seen. A predicate may return
    `(False, "text")`, as for `require`.

    >>> @invariant(lambda self: self.balance >= 0, "the balance is never negative")
    ... class Account:
    ...     def __init__(self) -> None:
    ...         self.balance = 10
    ...     def withdraw(self, amount: int) -> None:
    ...         self.balance -= amount
    >>> Account().withdraw(11)
    Traceback (most recent call last):
    ...
    weakincentives.errors.ContractError: Account.withdraw: Invariant failed: the balance is never negative
    """

    def decorate(cls: C) -> C:
        _cover(cls, predicate, message)
        _cover_subclasses(cls, predicate, message)
        return cls

    return decorate


def _cover(cls: type, predicate: Callable[[Any], object], message: str) -> None:
    """Check the invariant after each method of the class that callers can see."""
    for name in {name for base in cls.__mro__ if base is not object for name in vars(base)}:
        if name.startswith("_") and name != "__init__":
            continue
        method = inspect.getattr_static(cls, name)  # as it was defined: class and static methods are not functions
        if not isinstance(method, _METHODS) or predicate in getattr(method, "__invariants__", ()):
            continue  # the latter is of a base class that promises the same
        kept = _keeping(method if name in vars(cls) else _inherited(name, method), predicate, message)
        cast(Any, kept).__invariants__ = (predicate, *getattr(method, "__invariants__", ()))
        setattr(cls, name, kept)


def _inherited(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that calls the next one of its name, so that a class keeps its place among several bases."""

    @functools.wraps(method)
    def call_next(self: object, *args: object, **kwargs: object) -> Any:
        owner = next(base for base in type(self).__mro__ if _leads_to(vars(base).get(name), call_next))
        return getattr(cast(Any, super)(owner, self), name)(*args, **kwargs)

    return call_next


def _leads_to(member: object, function: object) -> bool:
    found: Any = member
    while found is not None and found is not function:
        found = getattr(found, "__wrapped__", None)
    return found is not None


def _cover_subclasses(cls: type, predicate: Callable[[Any], object], message: str) -> None:
    own = vars(cls).get("__init_subclass__")

    def init_subclass(subclass: type, **options: Any) -> None:
        if own is not None:
            own.__get__(None, subclass)(**options)
        else:
            owner = next(base for base in subclass.__mro__ if _leads_to(vars(base).get("__init_subclass__"), hook))
            super(owner, subclass).__init_subclass__(**options)
        _cover(subclass, predicate, message)

    cast(Any, init_subclass).__wrapped__ = own  # of a further invariant of the class, perhaps
    hook = cast(Any, classmethod)(init_subclass)
    cast(Any, cls).__init_subclass__ = hook


_METHODS = (FunctionType, MethodDescriptorType, WrapperDescriptorType)
"""Methods written in Python, and those of built-in types such as `list`."""

_busy = local()


def _keeping(method: Callable[..., Any], predicate: Callable[[Any], object], message: str) -> Callable[..., Any]:
    def enter(key: tuple[int, int]) -> bool:
        inside = cast(set[tuple[int, int]], _busy.__dict__.setdefault("inside", set()))
        if key in inside:
            return False
        inside.add(key)
        return True

    def check(subject: object) -> None:
        problem = problem_of(predicate(subject), message)
        if problem is not None:
            raise ContractError(f"{method.__qualname__}: Invariant failed: {problem}")

    if inspect.iscoroutinefunction(inspect.unwrap(method)):

        @functools.wraps(method)
        async def kept_async(self: object, *args: object, **kwargs: object) -> Any:
            result = await method(self, *args, **kwargs)
            check(self)
            return result

        return kept_async

    @functools.wraps(method)
    def kept(self: object, *args: object, **kwargs: object) -> Any:
        key = (id(self), id(predicate))
        if not enter(key):
            return method(self, *args, **kwargs)
        try:
            result = method(self, *args, **kwargs)
        finally:
            _busy.inside.discard(key)
        check(self)
        return result

    return kept


logger: logging.Logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
Predicate = (
    Callable[[], object]
    | Callable[[Any], object]
    | Callable[[Any, Any], object]
    | Callable[[Any, Any, Any], object]
    | Callable[[Any, Any, Any, Any], object]
)
"""By the number of arguments, so that type checkers accept a plain lambda."""

_TOOL_RESULT = re.compile(r"""^['"]?((\w+\.)*(Annotated|Awaitable)\[\s*)*(\w+\.)*ToolResult\b""")


def require(predicate: Predicate, message: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse calls for which `predicate` is not true.

    The predicate's parameters name the arguments it wants; a name the function does not have is a `TypeError` when
    it is decorated. A predicate that raises counts as not true; one that returns `(False, "text")` fails with that
    text instead of `message`. Stacked conditions are checked in source order.

    >>> @require(lambda count: count > 0, "count must be positive")
    ... def repeat(text: str, count: int) -> str:
    ...     return text * count
    >>> repeat("ab", 0)
    Traceback (most recent call last):
    ...
    weakincentives.errors.ContractError: repeat: Precondition failed: count must be positive
    """
    return _contract("Precondition", predicate, message)


def ensure(predicate: Predicate, message: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse results for which `predicate` is not true; it may name `result` beside the arguments.

    The effects of the call have happened by then: on a tool handler the runtime undoes them.
    """
    return _contract("Postcondition", predicate, message)


@dataclass(frozen=True, slots=True)
class _Condition:
    kind: str
    predicate: Predicate
    names: tuple[str, ...]
    message: str

    def problem(self, arguments: Mapping[str, object]) -> str | None:
        """What is wrong; None when the condition holds."""
        return problem_of(cast(Any, self.predicate)(*(arguments[name] for name in self.names)), self.message)


@dataclass(frozen=True, slots=True)
class _Contract:
    """A function and its conditions, in source order."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    defaults: Mapping[str, object]
    signature: inspect.Signature | None  # only for functions with *args or **kwargs
    is_handler: bool
    before: tuple[_Condition, ...] = ()
    after: tuple[_Condition, ...] = ()

    def arguments(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        if self.signature is not None:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return dict(bound.arguments)
        return {**self.defaults, **dict(zip(self.names, args, strict=False)), **kwargs}

    def broken(self, conditions: tuple[_Condition, ...], arguments: Mapping[str, object]) -> _Broken | None:
        for condition in conditions:
            try:
                problem = condition.problem(arguments)
            except Exception as error:  # noqa: BLE001 - the predicate is the user's code
                return _Broken(self, condition.kind, condition.message, error)
            if problem is not None:
                return _Broken(self, condition.kind, problem, None)
        return None


@dataclass(frozen=True, slots=True)
class _Broken:
    contract: _Contract
    kind: str
    problem: str
    cause: Exception | None

    def answer(self) -> Any:
        """What the call gives instead of its result."""
        text = f"{self.kind} failed: {self.problem}"
        name = self.contract.function.__qualname__
        if not self.contract.is_handler:
            raise ContractError(f"{name}: {text}") from self.cause
        if self.cause is not None:
            logger.warning("A condition of %s raised.", name, exc_info=self.cause)
        return ToolResult.error(text)


def _contract(kind: str, predicate: Predicate, message: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        contract = cast(_Contract | None, getattr(function, "__contract__", None)) or _read(function)
        condition = _Condition(kind, predicate, _wanted(kind, predicate, contract), message)
        if kind == "Precondition":
            contract = replace(contract, before=(condition, *contract.before))
        else:
            contract = replace(contract, after=(condition, *contract.after))
        return cast(Callable[P, R], _wrap(contract))

    return decorate


def _read(function: Callable[..., Any]) -> _Contract:
    signature = signature_of(function)
    parameters = signature.parameters.values()
    variadic = any(p.kind in {p.VAR_POSITIONAL, p.VAR_KEYWORD} for p in parameters)
    return _Contract(
        function=function,
        names=tuple(signature.parameters),
        defaults={p.name: p.default for p in parameters if p.default is not p.empty},
        signature=signature if variadic else None,
        is_handler=_is_handler(signature),
    )


def _is_handler(signature: inspect.Signature) -> bool:
    returns = signature.return_annotation
    if returns is signature.empty:
        return tuple(signature.parameters) == ("params", "context")
    if isinstance(returns, str):
        return _TOOL_RESULT.match(returns) is not None
    while get_origin(returns) in (Annotated, Awaitable):
        returns = get_args(returns)[0]
    return returns is ToolResult or get_origin(returns) is ToolResult


def _wanted(kind: str, predicate: Predicate, contract: _Contract) -> tuple[str, ...]:
    if inspect.iscoroutinefunction(predicate):
        raise TypeError(
            f"A condition of {contract.function.__qualname__} is async; conditions must be plain functions."
        )
    offered = (*contract.names, "result") if kind == "Postcondition" else contract.names
    wanted = tuple(signature_of(predicate).parameters)
    unknown = [name for name in wanted if name not in offered]
    if unknown:
        raise TypeError(
            f"A condition of {contract.function.__qualname__} asks for {', '.join(unknown)}; "
            f"it can have: {', '.join(offered)}."
        )
    return wanted


def _wrap(contract: _Contract) -> Callable[..., Any]:
    function, before, after = contract.function, contract.before, contract.after

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def checked_async(*args: object, **kwargs: object) -> Any:
            arguments = contract.arguments(args, kwargs)
            broken = contract.broken(before, arguments)
            if broken is not None:
                return broken.answer()
            result = await function(*args, **kwargs)
            broken = contract.broken(after, {**arguments, "result": result})
            return result if broken is None else broken.answer()

        wrapper = checked_async
    else:

        @functools.wraps(function)
        def checked(*args: object, **kwargs: object) -> Any:
            arguments = contract.arguments(args, kwargs)
            broken = contract.broken(before, arguments)
            if broken is not None:
                return broken.answer()
            result = function(*args, **kwargs)
            broken = contract.broken(after, {**arguments, "result": result})
            return result if broken is None else broken.answer()

        wrapper = checked

    cast(Any, wrapper).__contract__ = contract  # further conditions join it
    return wrapper


def pure(function: Callable[P, R]) -> Callable[P, R]:
    """Raise `ContractError` when the function changes one of its arguments.

    Arguments are copied before the call and compared after it, so keep them small; one that cannot be copied is not
    checked. Other side effects are not seen.

    >>> @pure
    ... def total(numbers: list[int]) -> int:
    ...     numbers.append(0)
    ...     return sum(numbers)
    >>> total([1, 2])
    Traceback (most recent call last):
    ...
    weakincentives.errors.ContractError: total is declared pure but changed its argument 'numbers'
    """
    signature = signature_of(function)

    def unchanged(bound: Mapping[str, object], before: Mapping[str, object]) -> None:
        for name, value in bound.items():
            if name in before and before[name] != value:
                raise ContractError(f"{function.__qualname__} is declared pure but changed its argument {name!r}")

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def checked_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            bound = signature.bind(*args, **kwargs).arguments
            before = _copies(bound)
            result = await function(*args, **kwargs)
            unchanged(bound, before)
            return result

        return cast(Callable[P, R], checked_async)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs).arguments
        before = _copies(bound)
        result = function(*args, **kwargs)
        unchanged(bound, before)
        return result

    return checked


def _copies(arguments: Mapping[str, object]) -> dict[str, object]:
    copies: dict[str, object] = {}
    for name, value in arguments.items():
        try:
            copied = copy.deepcopy(value)
            if copied == value:  # else the type has no equality to compare by
                copies[name] = copied
        except Exception:  # noqa: BLE001, S112 - users' types refuse copies in many ways
            continue
    return copies


__all__ = ["ensure", "invariant", "pure", "require"]
