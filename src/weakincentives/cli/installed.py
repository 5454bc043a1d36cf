"""Which Python packages and keys are here: the core, what each extra brings, what each provider asks for."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from typing import NamedTuple

from .finding import Finding, needs_linux
from .models import PROVIDERS


class Extra(NamedTuple):
    """What `pip install 'weakincentives[NAME]'` brings."""

    package: str
    module: str
    purpose: str


EXTRAS = {
    "openai": Extra("openai", "openai", "models of OpenAI, and servers that speak its API"),
    "anthropic": Extra("anthropic", "anthropic", "Claude models"),
    "litellm": Extra("litellm", "litellm", "most other providers"),
    "claude-agent-sdk": Extra("claude-agent-sdk", "claude_agent_sdk", "Claude Code as the model's harness"),
    "local": Extra("xllamacpp", "xllamacpp", "a model in this process, without key or network"),
    "python": Extra("pydantic-monty", "pydantic_monty", "PythonSection: models run Python"),
    "asteval": Extra("asteval", "asteval", "AstevalSection: models run arithmetic"),
    "postgres": Extra("psycopg", "psycopg", "effect ledgers in PostgreSQL"),
    "cli": Extra("rich", "rich", "colours in the terminal"),
}

_OLDEST = (3, 11)
_NO_LITELLM = (3, 15)
_PATTERN_ENGINES = (("re2", "google-re2"), ("regex", "regex"))


def core() -> Iterator[Finding]:
    """Python itself and the packages that everything needs."""
    here = ".".join(map(str, sys.version_info[:3]))
    new_enough = sys.version_info >= _OLDEST
    yield Finding(
        "Needed by everything", "Python", "ok" if new_enough else "broken", "3.11 or newer", here,
        "" if new_enough else "install Python 3.11 or newer", needed=True,
    )  # fmt: skip
    for package in _core_packages():
        found = _version(package)
        yield Finding(
            "Needed by everything", package, "missing" if found is None else "ok", "part of WINK itself", found or "",
            "" if found else "pip install --force-reinstall weakincentives", needed=True,
        )  # fmt: skip

    engine = next((package for module, package in _PATTERN_ENGINES if _can_be_found(module)), "")
    yield Finding(
        "Needed by everything", "google-re2 or regex", "ok" if engine else "missing", "grep with patterns of models",
        f"{engine} {_version(engine)}" if engine else "", "" if engine else "pip install regex", needed=True,
    )  # fmt: skip


def _core_packages() -> list[str]:
    """As the metadata of the installed WINK says; without any, the one that is always there."""
    try:
        declared = requires("weakincentives") or []
    except PackageNotFoundError:
        return ["pydantic"]
    # One with a marker is not needed on every machine: which one it is, pip has decided.
    plain = [line for line in declared if ";" not in line]
    return [match[0] for line in plain if (match := re.match(r"[A-Za-z0-9._-]+", line))]


def extras() -> Iterator[Finding]:
    """What `pip install 'weakincentives[...]'` could add."""
    for name, extra in EXTRAS.items():
        found = _version(extra.package) if _can_be_found(extra.module) else None
        if name == "asteval" and sys.platform != "linux":
            yield needs_linux("Extras", name, extra.purpose)
        elif found:
            yield Finding("Extras", name, "ok", extra.purpose, found)
        elif name == "litellm" and sys.version_info >= _NO_LITELLM:
            get = "--model openai:NAME --base-url URL, with the provider's address"
            yield Finding("Extras", name, "missing", extra.purpose, "needs Python 3.14 or older", get)
        else:
            yield Finding("Extras", name, "missing", extra.purpose, "", f"pip install 'weakincentives[{name}]'")


def keys() -> Iterator[Finding]:
    """Whether the variables of the providers are set. What they hold is looked at by nobody here."""
    for name, row in PROVIDERS.items():
        if row.key:
            is_set = bool(os.environ.get(row.key))
            get = "" if is_set else f"export {row.key}=..."
            purpose = f"--model {name}:NAME and its adapter"
            yield Finding("Keys", row.key, "ok" if is_set else "missing", purpose, "is set" if is_set else "", get)
        if row.url and os.environ.get(row.url):
            yield Finding("Keys", row.url, "ok", f"another server for {name}:NAME, which needs no key", "is set")


def _can_be_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # it is kept from being imported
        return False


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


__all__ = ["EXTRAS", "Extra", "core", "extras", "keys"]
