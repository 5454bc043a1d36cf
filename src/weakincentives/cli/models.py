"""The models a command line can name, one row each: `openai:NAME` and the like."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, NamedTuple

from .usage import WrongUseError


class Provider(NamedTuple):
    """Where an adapter is found, what installs it, and the variables one of which holds its key."""

    module: str
    adapter: str
    extra: str
    keys: tuple[str, ...] = ()
    needs_name: bool = True


PROVIDERS: dict[str, Provider] = {
    "openai": Provider("weakincentives.adapters.openai", "OpenAIAdapter", "openai", ("OPENAI_API_KEY",)),
    "anthropic": Provider("weakincentives.adapters.anthropic", "AnthropicAdapter", "anthropic", ("ANTHROPIC_API_KEY",)),
    "litellm": Provider("weakincentives.adapters.litellm", "LiteLLMAdapter", "litellm"),
    "local": Provider("weakincentives.adapters.local", "LocalAdapter", "local", needs_name=False),
}

FORMS = "scripted, " + ", ".join(f"{name}:NAME" if row.needs_name else name for name, row in PROVIDERS.items())


def make_adapter(model: str, **options: Any) -> Any:
    """The adapter of a model such as `openai:gpt-5`; the commands see to `scripted` themselves.

    The options are the adapter's. Close it when it is no longer needed, if it has `close`.
    `WrongUseError` for an unknown provider, a missing name, key or package.
    """
    provider, _, name = model.partition(":")
    row = PROVIDERS.get(provider)
    if row is None:
        raise WrongUseError(f"there is no model {model!r}; use one of: {FORMS}")
    if row.needs_name and not name:
        raise WrongUseError(f"--model {provider} needs a name: --model {provider}:NAME")
    if row.keys and not any(os.environ.get(key) for key in row.keys):
        raise WrongUseError(f"{row.keys[0]} is not set; run: export {row.keys[0]}=...")
    try:
        adapter = getattr(import_module(row.module), row.adapter)
        return adapter(name, **options) if name else adapter(**options)
    except ImportError as error:
        if getattr(error, "name", None) == row.module:
            raise WrongUseError(f"this version of WINK has no adapter for {provider!r}") from None
        text = str(error)
        if "pip install" not in text:
            text = f"{text}. Install it: pip install 'weakincentives[{row.extra}]'"
        raise WrongUseError(text) from None
    except (ValueError, OSError) as error:
        raise WrongUseError(f"--model {model}: {error}") from None


__all__ = ["FORMS", "PROVIDERS", "Provider", "make_adapter"]
