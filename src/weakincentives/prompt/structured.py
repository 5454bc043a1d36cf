"""Typed final answers: the schema the model is shown, and reading what it answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Generic, final

from ..errors import Failure, ParseError, PromptValidationError, SchemaError
from ..serde import dump_json, parse, schema
from .type_forms import OutputT

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


__all__ = ["StructuredOutput"]
