"""The exception tree is complete, drawn, and survives pickling."""

from __future__ import annotations

import pickle
import re
from inspect import isclass
from typing import Any

import pytest

from weakincentives import errors
from weakincentives.budget import TokenUsage
from weakincentives.errors import (
    BudgetExceededError,
    DispatchError,
    Failure,
    ParseError,
    PromptEvaluationError,
    PromptRenderError,
    PromptValidationError,
    ResourceCycleError,
    RollbackError,
    VisibilityExpansionRequired,
    WinkError,
)

CLASSES = [cls for cls in vars(errors).values() if isclass(cls) and issubclass(cls, WinkError)]
PUBLIC = [cls for cls in CLASSES if not cls.__name__.startswith("_")]


class Params:
    """Stands for a user's dataclass."""


SAMPLES: list[WinkError] = [
    PromptValidationError("m", section_path=("a", "b"), tool_name="t", dataclass_type=Params, placeholder="p"),
    PromptRenderError("m", section_path=["a"]),
    PromptEvaluationError("m", prompt_name="p", phase="tool"),
    VisibilityExpansionRequired("m", section_keys=["a.b"], reason="r"),
    BudgetExceededError("m", dimension="total", consumed=TokenUsage(input=3)),
    PromptEvaluationError("m", prompt_name="p", phase="deadline", tool_name="t"),
    ResourceCycleError("m", cycle=(Params, int, Params)),
    DispatchError("m", causes=[ValueError("x")]),
    ParseError([Failure("a.b", "wrong", "type integer", "null")]),
    RollbackError("m", causes={"files": OSError("disk")}, tool_name="t"),
]


def state(error: WinkError) -> dict[str, Any]:
    return {key: repr(value) for key, value in vars(error).items()}


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_errors_with_attributes_survive_pickling(error: WinkError) -> None:
    """Message and every attribute arrive on the other side of a process boundary."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert state(copy) == state(error)


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda c: c.__name__)
def test_every_error_survives_pickling(cls: type[WinkError]) -> None:
    """Each class of the tree can cross a process boundary, also those that are OSErrors."""
    if cls is ParseError:
        error: WinkError = cls([Failure("", "x")])
    elif cls is RollbackError:
        error = cls("message", causes={})
    else:
        error = cls("message")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert str(copy) == str(error)


def test_the_drawn_tree_is_the_real_one() -> None:
    """The picture at the top of the module names exactly the public classes, each below its parent."""
    drawn: dict[str, str | None] = {}
    stack: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^(    [|` -]*)([A-Z]\w+)", line)
        if match is None:
            continue
        depth, name = len(match.group(1)), match.group(2)
        while stack and stack[-1][0] >= depth:
            stack.pop()
        drawn[name] = stack[-1][1] if stack else None
        stack.append((depth, name))
    assert set(drawn) == {cls.__name__ for cls in PUBLIC}
    for cls in PUBLIC:
        parent = drawn[cls.__name__]
        assert parent is None or parent in {base.__name__ for base in cls.__mro__[1:]}


def test_all_is_complete() -> None:
    """`__all__` lists every public class and nothing that is not there."""
    assert set(errors.__all__) == {cls.__name__ for cls in PUBLIC} | {"Failure"}


def test_errors_fit_the_builtin_families() -> None:
    """Callers may catch WINK's errors by the built-in class they expect."""
    assert issubclass(errors.UnboundResourceError, LookupError)
    assert issubclass(errors.FilesystemError, OSError)
    assert issubclass(errors.PathRefusedError, PermissionError)
    assert issubclass(errors.ReadOnlyError, PermissionError)
    assert issubclass(errors.ContractError, AssertionError)
    assert issubclass(errors.ParseError, ValueError)
    assert issubclass(errors.SchemaError, TypeError)
