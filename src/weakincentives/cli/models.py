"""The models a command line can name, one row each: `openai:NAME` and the like."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from importlib import import_module
from typing import Any, NamedTuple

from .output import UsageError


class Provider(NamedTuple):
    """Where an adapter is found, what installs it, and the variables with its key and the address of its server.

    `takes_url` says whether there may be another server.
    """

    module: str
    adapter: str
    extra: str
    key: str = ""
    url: str = ""
    needs_name: bool = True
    takes_url: bool = True


_ADAPTERS = "weakincentives.adapters"

PROVIDERS: dict[str, Provider] = {
    "openai": Provider(f"{_ADAPTERS}.openai", "OpenAIAdapter", "openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "anthropic": Provider(
        f"{_ADAPTERS}.anthropic", "AnthropicAdapter", "anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"
    ),
    "litellm": Provider(f"{_ADAPTERS}.litellm", "LiteLLMAdapter", "litellm"),
    "local": Provider(f"{_ADAPTERS}.local", "LocalAdapter", "local", needs_name=False, takes_url=False),
}

FORMS = "scripted, " + ", ".join(f"{name}:NAME" if row.needs_name else name for name, row in PROVIDERS.items())


def add_model_arguments(parser: ArgumentParser, *, default: str | None = None) -> None:
    """`--model` and `--base-url`, the same for every command that asks a model."""
    said = "" if default is None else f"{default} (default), "
    forms = FORMS if default is None else FORMS.removeprefix(f"{default}, ")
    parser.add_argument("--model", metavar="MODEL", default=default, help=said + forms)
    parser.add_argument(
        "--base-url",
        metavar="URL",
        help="the server of the model, such as http://localhost:11434/v1 for Ollama: with openai:NAME any that speaks "
        "Chat Completions (vLLM, Ollama, llama.cpp), which needs no key",
    )


def check_base_url(model: str | None, base_url: str | None) -> None:
    """`UsageError` for an address that is none, or that the model has no use for."""
    if base_url is None:
        return
    if not base_url.startswith(("http://", "https://")):
        raise UsageError(f"--base-url {base_url} is not an address; it begins with http:// or https://")
    row = PROVIDERS.get((model or "").partition(":")[0])
    if row is None or not row.takes_url:
        takers = ", ".join(f"{name}:NAME" for name, row in PROVIDERS.items() if row.takes_url)
        raise UsageError(f"--base-url goes with --model and one of: {takers}")


def make_adapter(model: str, base_url: str | None = None, **options: Any) -> Any:
    """The adapter of a model such as `openai:gpt-5`; the commands see to `scripted` themselves.

    The options are the adapter's. Close it when it is no longer needed, if it has `close`.
    `UsageError` for an unknown provider, a missing name, key or package.
    """
    check_base_url(model, base_url)
    provider, _, name = model.partition(":")
    row = PROVIDERS.get(provider)
    if row is None:
        raise UsageError(f"there is no model {model!r}; use one of: {FORMS}")
    if row.needs_name and not name:
        raise UsageError(f"--model {provider} needs a name: --model {provider}:NAME")
    has_own_server = base_url is not None or (row.url and os.environ.get(row.url))
    if row.key and not has_own_server and not os.environ.get(row.key):
        raise UsageError(f"{row.key} is not set; run: export {row.key}=... (or name a server with --base-url)")
    if base_url is not None:
        options["base_url"] = base_url
    try:
        adapter = getattr(import_module(row.module), row.adapter)
        return adapter(name, **options) if name else adapter(**options)
    except ImportError as error:
        if getattr(error, "name", None) == row.module:
            raise UsageError(f"this version of WINK has no adapter for {provider!r}") from None
        text = str(error)
        if "pip install" not in text:
            text = f"{text}. Install it: pip install 'weakincentives[{row.extra}]'"
        raise UsageError(text) from None
    except (ValueError, OSError) as error:
        raise UsageError(f"--model {model}: {error}") from None
