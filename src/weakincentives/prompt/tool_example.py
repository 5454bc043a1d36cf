"""One representative call of a tool, for the model and for whoever reads the tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

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


__all__ = ["ToolExample"]
