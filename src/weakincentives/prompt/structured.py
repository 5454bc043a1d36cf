"""Typed final answers: the schema the model is shown, and reading what it answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

from ..errors import Failure, ParseError, PromptValidationError, SchemaError
from ..serde import dump_json, parse, schema

OutputT = TypeVar("OutputT")

_FENCED = re.compile(
    r"^[ \t]*```[ \t]*(?:json)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE | re.IGNORECASE
)
_JSON_STARTS = frozenset('{["-0123456789tfn')


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
    stripped = text.strip()
    if stripped[:1] in _JSON_STARTS:
        blocks = _FENCED.findall(stripped) if not _looks_like_json(stripped) else []
    else:
        blocks = _FENCED.findall(stripped)
    if len(blocks) > 1:
        raise ParseError(
            [Failure("", f"The answer has {len(blocks)} fenced blocks; it must be JSON alone, or one block of it")]
        )
    return blocks[0] if blocks else stripped


def _looks_like_json(text: str) -> bool:
    # Prose may begin with any letter or digit; JSON that does is a single word.
    return text[0] in '{["' or " " not in text


def _instructions(made: dict[str, Any]) -> str:
    return (
        "## Response Format\n\n"
        "Give your final answer as JSON that fits this schema, with nothing before or after it:\n\n"
        f"```json\n{dump_json(made, indent=2)}\n```"
    )


__all__ = ["OutputT", "StructuredOutput"]
