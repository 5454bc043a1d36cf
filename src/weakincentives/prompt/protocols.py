"""What a handler may rely on of the prompt and the adapter that its call belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

OutputT_co = TypeVar("OutputT_co", covariant=True)


@runtime_checkable
class PromptProtocol(Protocol[OutputT_co]):
    """The prompt being executed. `Prompt` is the implementation."""

    @property
    def ns(self) -> str:
        """The namespace of its template."""
        ...

    @property
    def key(self) -> str:
        """The key of its template within the namespace."""
        ...

    @property
    def name(self) -> str:
        """What events and errors call it."""
        ...

    @property
    def output_type(self) -> type[OutputT_co] | None:
        """The type its final answer is parsed into, if there is one."""
        ...


@runtime_checkable
class RenderedPromptProtocol(Protocol[OutputT_co]):
    """What the model was sent. `RenderedPrompt` is the implementation."""

    @property
    def text(self) -> str:
        """The rendered sections."""
        ...

    @property
    def tools(self) -> Sequence[Any]:
        """The enabled tools, in declaration order."""
        ...

    @property
    def output_type(self) -> type[OutputT_co] | None:
        """The type its final answer is parsed into, if there is one."""
        ...


@runtime_checkable
class ProviderAdapterProtocol(Protocol[OutputT_co]):
    """Whoever talks to the model and runs its tool calls."""

    @property
    def evaluate(self) -> Callable[..., Any]:
        """`evaluate(prompt, session, **options)` runs the whole tool loop for a prompt.

        The response's `output` is of the prompt's output type. The options are each adapter's own, by name.
        """
        ...


__all__ = ["PromptProtocol", "ProviderAdapterProtocol", "RenderedPromptProtocol"]
