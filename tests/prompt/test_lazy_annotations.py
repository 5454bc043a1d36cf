"""Handlers may name types that only type checkers import; nothing looks at annotations in a way that raises."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.prompt.lazy_handlers import HANDLERS, Words

from weakincentives.errors import ContractError, PromptValidationError
from weakincentives.prompt import MarkdownSection, Tool, ToolContext, tool
from weakincentives.prompt.handlers import read_handler, resolved_hints
from weakincentives.signatures import annotations_of, signature_of


@pytest.mark.parametrize("name", ["plain", "renamed", "with_more", "checked"])
def test_a_handler_is_built_and_called(name: str) -> None:
    """An unresolvable context is known by its name, and the rest of the signature is understood."""
    build: Any = Tool[Words, str]
    built = build(name="say", description="Say it.", handler=HANDLERS[name])
    assert built.call(Words("hello"), ToolContext()).value == "hello"
    assert read_handler(HANDLERS[name]).params_type is Words


def test_one_unresolvable_name_hides_no_other() -> None:
    """What can be resolved is, also beside what cannot."""
    hints = resolved_hints(HANDLERS["with_more"])
    assert hints == {"params": Words, "context": ToolContext}


def test_contracts_on_such_handlers_answer_the_model() -> None:
    """A handler is known by its ToolResult, even if what that holds cannot be resolved."""
    answer = HANDLERS["checked"](Words(""), context=ToolContext())
    assert (answer.success, answer.message) == (False, "Precondition failed: text is empty")
    assert HANDLERS["untouched"]([1, 2]) == 2
    with pytest.raises(ContractError):
        HANDLERS["untouched"]([1, 2], [3])


def test_conditions_of_sections_may_be_annotated_so() -> None:
    """`enabled=` looks only at how many arguments there are."""
    assert MarkdownSection(title="A", template="", enabled=HANDLERS["visible"])


def test_the_decorator_reads_such_functions() -> None:
    """The context is found; an argument of an unknown type is refused by name."""
    made = cast(Any, tool(HANDLERS["shout"]))
    assert made.call(made.params_type(text="hi"), ToolContext()).value == "HI"
    with pytest.raises(PromptValidationError, match="annotation that cannot be resolved"):
        tool(HANDLERS["whisper"])


def test_what_has_no_annotations_or_signature() -> None:
    """Objects without annotations have none; a signature that is missing is still an error."""
    assert annotations_of(3) == {}
    assert annotations_of(print) == {}
    assert annotations_of(Words) in ({"text": str}, {"text": "str"})
    with pytest.raises((TypeError, ValueError)):
        signature_of(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="signature"):
        signature_of(dict)
