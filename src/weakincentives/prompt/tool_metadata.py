"""What a tool says about its own behaviour, in the words of the Model Context Protocol."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from ..errors import PromptValidationError


@dataclass(slots=True, frozen=True)
class ToolAnnotations:
    """Hints with MCP's meanings and defaults: without any, a tool is taken to be the dangerous kind.

    Attributes:
        read_only: the tool changes nothing. WINK takes it at its word: the call gets read-only handles and may run
            beside other read-only calls.
        destructive: it may destroy or overwrite, not only add. None means yes, unless it is read-only.
        idempotent: calling it again with the same arguments changes nothing more. This is a hint for clients;
            `IdempotencyConfig` is what makes WINK run a call once.
        open_world: it talks to a world outside, such as the web.
        starts_programs: whether files may change by other means than `context.filesystem` during its calls, as by
            programs that it starts. False says that they do not, nor in calls that it makes: WINK takes it at its word,
            and files with `watch="scan"` are then not searched for changes. This is WINK's own and no hint of MCP.

    A `Tool` refuses to be both read-only and destructive.

    >>> ToolAnnotations(read_only=True).destructive
    False
    >>> ToolAnnotations().hints()["destructiveHint"]
    True
    """

    read_only: bool = False
    destructive: bool | None = None
    idempotent: bool = False
    open_world: bool = True
    starts_programs: bool = True

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, bool) and not (item.name == "destructive" and value is None):
                raise PromptValidationError(f"ToolAnnotations {item.name} must be True or False, got {value!r}.")
        if self.destructive is None:
            object.__setattr__(self, "destructive", not self.read_only)

    def hints(self) -> dict[str, bool]:
        """The annotations as MCP spells them."""
        return {
            "readOnlyHint": self.read_only,
            "destructiveHint": bool(self.destructive),
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }


# One representative call of a tool, for the model and for readers of the code.


ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")


@dataclass(slots=True, frozen=True)
class ToolExample(Generic[ParamsT, ResultT]):
    """What to send and what comes back. The `Tool` it is given to checks it.

    Attributes:
        description: 1 to 200 characters.
        input: an instance of the tool's params type; None for a tool without parameters.
        output: what the tool's result holds as its `value`.
    """

    description: str
    input: ParamsT
    output: ResultT
