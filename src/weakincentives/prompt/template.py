"""The prompt template: sections, policies and the type of the answer, checked when it is built."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import PromptValidationError
from .policy import ToolPolicy
from .prompt_resources import Bindings, as_bindings, merged
from .section import Section
from .structured import StructuredOutput
from .tree import lay_out
from .type_forms import OutputT, specialise

_NS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){0,7}")
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


class PromptTemplate(Generic[OutputT]):
    """An agent, declared: what `Prompt(template)` renders. It never changes and may be shared by any number of prompts.

    `PromptTemplate[Review](...)` makes the answer a `Review`: its schema and how to answer become part of the text,
    and `Prompt.parse_output` reads the answer. `PromptTemplate[str]`, or no type, leaves the answer as text.

    Attributes:
        ns, key: where overrides of this prompt are found; letters, digits, `_`, `-` and `.`, and `/` in `ns`.
        name: how events and errors call it; the key unless given.
        policies: asked for every tool, after those of the sections.
        output_instructions: whether the text says how to answer; adapters that send the schema themselves need not.

    `PromptValidationError` for equal keys or tool names, a reserved tool name, a resource type bound twice, or an
    output type without a schema.
    """

    output_type: type[OutputT] | None = None

    if not TYPE_CHECKING:

        def __class_getitem__(cls, argument: Any) -> Any:
            if isinstance(argument, TypeVar):
                return super().__class_getitem__(argument)
            return cls if argument in (None, Any) else specialise(cls, "output_type", argument)

    def __init__(
        self,
        *,
        ns: str,
        key: str,
        name: str | None = None,
        sections: Iterable[Section[Any]] = (),
        policies: Iterable[ToolPolicy] = (),
        resources: Bindings | None = None,
        output_instructions: bool = True,
        accepts_overrides: bool = True,
    ) -> None:
        _check("ns", ns, _NS, "agents/review")
        _check("key", key, _KEY, "review")
        self.ns = ns
        self.key = key
        self.name = name or key
        self.sections = checked_sections(sections, f"PromptTemplate {key!r}")
        self.policies = tuple(policies)
        for policy in self.policies:
            if isinstance(policy, type) or not callable(getattr(policy, "check", None)):
                raise PromptValidationError(
                    f"PromptTemplate {key!r}: policies= takes instances with check(), got {policy!r}."
                )
        self.accepts_overrides = accepts_overrides
        self.output_instructions = output_instructions
        self.structured_output: StructuredOutput[OutputT] | None = (
            None
            if self.output_type is None or self.output_type is str
            else StructuredOutput.of(self.output_type, prompt_name=self.name)
        )
        self.tree = lay_out(self.sections, self.policies)
        self.resources = as_bindings(resources)
        merged(self.resources, self.tree.resources, {})

    def __repr__(self) -> str:
        return f"<PromptTemplate {self.ns}/{self.key}: {len(self.tree.nodes)} sections, {len(self.tree.tools)} tools>"


def checked_sections(sections: Iterable[Section[Any]], owner: str) -> tuple[Section[Any], ...]:
    """The sections, if that is what they are."""
    if isinstance(sections, Section):
        raise PromptValidationError(f"{owner}: sections= takes a sequence; write sections=[...] around it.")
    kept = tuple(sections)
    for section in kept:
        if not isinstance(section, Section):
            raise PromptValidationError(f"{owner}: sections= takes Section instances, got {section!r}.")
    return kept


def _check(field: str, value: object, pattern: re.Pattern[str], example: str) -> None:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise PromptValidationError(
            f"PromptTemplate: {field}={value!r} is not usable as a name. Use letters, digits, '_', '-' and '.', "
            f"such as {example!r}."
        )


__all__ = ["PromptTemplate", "checked_sections"]
