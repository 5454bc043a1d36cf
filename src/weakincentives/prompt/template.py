"""The prompt template: sections, policies and the type of the answer, checked when it is built."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from ..errors import Failure, ParseError, PromptValidationError, SchemaError
from ..resources import ResourceRegistry
from ..serde import dump_json, parse, schema
from .policy import ToolPolicy
from .prompt_resources import Bindings, as_bindings, merged
from .section import Section
from .tree import SectionTree, build_section_tree
from .type_forms import OutputT, bind_type_arguments

# Typed final answers: the schema the model is shown, and reading what it answers.


_FENCE = re.compile(r"\s*(`{3,})\s*([^`]*)")


@final
@dataclass(frozen=True, slots=True)
class StructuredOutput(Generic[OutputT]):
    """The type of a prompt's answer. It is made once, with the template, and shared; treat `schema` as read-only.

    Attributes:
        output_type: what `parse` gives.
        schema: its JSON schema.
        instructions: the text that tells the model how to answer.
    """

    output_type: type[OutputT]
    schema: dict[str, Any]
    instructions: str

    @staticmethod
    def of(output_type: Any, *, prompt_name: str) -> StructuredOutput[Any]:
        """`PromptValidationError` when the type has no JSON schema."""
        try:
            made = schema(output_type)
        except SchemaError as error:
            raise PromptValidationError(
                f"The output type of prompt {prompt_name!r} has no JSON form: {error}", dataclass_type=output_type
            ) from error
        return StructuredOutput(output_type, made, _instructions(made))

    def parse(self, text: str) -> OutputT:
        """The answer as a value: `text` is JSON, or holds exactly one fenced block of it.

        Strict, like tool arguments: nothing is coerced. `ParseError` lists everything that is wrong.
        """
        return parse(self.output_type, _json_in(text))


def _json_in(text: str) -> str:
    # No line of JSON begins with a fence: line breaks inside its strings are escaped.
    blocks = _fenced(text)
    named = [body for language, body in blocks if language == "json"]
    found = named or [body for language, body in blocks if not language]
    if len(found) > 1:
        raise ParseError(
            [Failure("", f"The answer has {len(found)} fenced blocks; it must be JSON alone, or one block of it")]
        )
    return found[0] if found else text.strip()


def _fenced(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a markdown text: language and content. One that is not closed goes to the end."""
    blocks: list[tuple[str, str]] = []
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        opening = _FENCE.fullmatch(line)
        if opening is not None:
            content: list[str] = []
            for inner in lines:
                closing = _FENCE.fullmatch(inner)
                if closing is not None and len(closing[1]) >= len(opening[1]) and not closing[2]:
                    break
                content.append(inner)
            blocks.append((opening[2].strip().lower(), "".join(content)))
    return blocks


def _instructions(made: dict[str, Any]) -> str:
    return (
        "## Response Format\n\n"
        "Give your final answer as JSON that fits this schema, with nothing before or after it:\n\n"
        f"```json\n{dump_json(made, indent=2)}\n```"
    )


_NS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){0,7}")
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


class PromptTemplate(Generic[OutputT]):
    """An agent, declared: what `Prompt(template)` renders. It never changes and may be shared by any number of prompts.

    `PromptTemplate[Review](...)` makes the answer a `Review`: its schema and how to answer become part of the text,
    and `Prompt.parse_output` reads the answer. `PromptTemplate[str]`, or no type, leaves the answer as text.

    Attributes:
        ns, key: where overrides of this prompt are found; letters, digits, `_`, `-` and `.`, and `/` in `ns`.
        name: the name used in events and error messages; the key unless given.
        policies: asked for every tool, after those of the sections.
        registry: what the template and its sections bind.
        output_instructions: whether the text says how to answer; adapters that send the schema themselves need not.
        validate: looks at each final answer, in the output type or as text. It returns None when the answer will do, or
            what is wrong with it: the model reads that and answers again, as often as the adapter's `output_retries`
            allows. It should be pure: going on with a recorded run calls it again. What it raises ends the evaluation.

    `PromptValidationError` for equal keys or tool names, a reserved tool name, a resource type bound twice, or an
    output type without a schema.
    """

    output_type: type[OutputT] | None = None

    if not TYPE_CHECKING:

        def __class_getitem__(cls, argument: Any) -> Any:
            if isinstance(argument, TypeVar):
                return super().__class_getitem__(argument)
            return cls if argument in (None, Any) else bind_type_arguments(cls, "output_type", argument)

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
        validate: Callable[[OutputT], str | None] | None = None,
    ) -> None:
        _check("ns", ns, _NS, "agents/review")
        _check("key", key, _KEY, "review")
        self.ns = ns
        self.key = key
        self.name: str = name or key
        self.sections: tuple[Section[Any], ...] = checked_sections(sections, f"PromptTemplate {key!r}")
        self.policies: tuple[ToolPolicy, ...] = tuple(policies)
        for policy in self.policies:
            if isinstance(policy, type) or not callable(getattr(policy, "check", None)):
                raise PromptValidationError(
                    f"PromptTemplate {key!r}: policies= takes instances with check(), got {policy!r}."
                )
        self.accepts_overrides = accepts_overrides
        self.output_instructions = output_instructions
        if validate is not None and not callable(validate):
            raise PromptValidationError(f"PromptTemplate {key!r}: validate= takes a function, got {validate!r}.")
        self.validate: Callable[[Any], str | None] | None = validate
        self.structured_output: StructuredOutput[OutputT] | None = (
            None
            if self.output_type is None or self.output_type is str
            else StructuredOutput.of(self.output_type, prompt_name=self.name)
        )
        self.tree: SectionTree = build_section_tree(self.sections, self.policies)
        self.resources: dict[Any, object] = as_bindings(resources)
        self.registry: ResourceRegistry = merged(self.resources, self.tree.resources, {})

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
