"""Invariants: a condition of an object that holds whenever its callers can look."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from threading import local
from types import FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any, TypeVar, cast

from .errors import ContractError
from .predicates import problem_of

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


__all__ = ["invariant"]
