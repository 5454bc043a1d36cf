"""How a model is to answer, by the names that providers share: temperature, top_p, seed, tool_choice."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, final

from ..loop.adapter import AdapterKeywords
from ..loop.request import ModelRequest, RequestFailed
from ..runtime.messages import AnswerMessage, UserMessage

ToolChoice = Literal["auto", "required", "none"]
"""Whether the model calls tools: as it likes, at least one, or none. A tool's name makes it call that one."""


class SettingKeywords(AdapterKeywords, total=False):
    """The named settings of adapters for model servers; see `ModelSettings` and `SdkAdapter`."""

    temperature: float | None
    top_p: float | None
    seed: int | None
    tool_choice: ToolChoice | str | None
    media_types: Collection[str] | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings of a model, by name. What is None is left to the provider.

    Attributes:
        temperature: 0 for the likeliest answers; providers allow up to 1 or 2.
        top_p: the share of likely tokens to choose from, above 0 and up to 1.
        seed: the same one makes equal answers likelier, where the provider takes one.
        tool_choice: "auto", "none", "required", or the name of a tool. "required" and a name hold for the first request
            after a message of a user: if they held for all, the model could never answer.
    """

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    tool_choice: str | None = None

    def __post_init__(self) -> None:
        for name, value, most in (("temperature", self.temperature, 2), ("top_p", self.top_p, 1)):
            if value is not None and not (_is_number(value) and 0 <= value <= most):
                raise ValueError(f"{name}= takes a number from 0 to {most}, got {value!r}.")
        if self.seed is not None and (not isinstance(self.seed, int) or isinstance(self.seed, bool)):
            raise ValueError(f"seed= takes a whole number, got {self.seed!r}.")
        if self.tool_choice is not None and (not isinstance(self.tool_choice, str) or not self.tool_choice):
            raise ValueError(
                f"tool_choice= takes 'auto', 'required', 'none' or the name of a tool, got {self.tool_choice!r}."
            )

    @property
    def sampling(self) -> dict[str, Any]:
        """Those that are set, without the choice of tools."""
        found = {"temperature": self.temperature, "top_p": self.top_p, "seed": self.seed}
        return {name: value for name, value in found.items() if value is not None}

    def choice(self, request: ModelRequest) -> str | None:
        """The choice of tools for a request; None leaves it to the provider.

        `RequestFailed` when it names a tool that the prompt does not offer.
        """
        choice = self.tool_choice
        if choice is None or not request.tools:
            return None
        if choice in {"auto", "none"}:
            return choice
        names = [spec.name for spec in request.tools]
        if choice != "required" and choice not in names:
            raise RequestFailed(
                "refused", f"tool_choice= names {choice!r}, which the prompt does not offer; it has: {', '.join(names)}"
            )
        for message in reversed(request.messages):
            if isinstance(message, UserMessage):
                break
            if isinstance(message, AnswerMessage):
                return None
        return choice


LEFT_TO_THE_PROVIDER = ModelSettings()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


__all__ = ["LEFT_TO_THE_PROVIDER", "ModelSettings", "SettingKeywords", "ToolChoice"]
