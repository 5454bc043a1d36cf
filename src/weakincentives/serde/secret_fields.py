"""Fields whose type is a secret (`SecretStr`, `SecretBytes`, `Secret[...]`): what is shown of values sent for them.

A field is known as secret by its schema: `writeOnly`, or the format `password`. Only values that came as JSON are
looked at here; a parsed secret masks itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from pydantic_core import from_json

from ..errors import SchemaError
from ..masking import MASK, leaving
from .schema import Nodes, below, branches, shared_schema

_LEAST = 4
"""Shorter values are not looked for in texts: masking every `1` would reveal them."""


@lru_cache(maxsize=4096)
def has_secrets(cls: Any) -> bool:
    """Whether the type has a secret field, at any depth. False for a type without a schema, which nothing is sent for.

    >>> from dataclasses import dataclass
    >>> from pydantic import SecretStr
    >>> @dataclass
    ... class Login:
    ...     user: str
    ...     password: SecretStr
    >>> has_secrets(Login), has_secrets(str)
    (True, False)
    """
    try:
        return schema_has_secrets(shared_schema(cls))
    except SchemaError:
        return False


def schema_has_secrets(root: Mapping[str, Any]) -> bool:
    """`has_secrets` for a schema."""
    return SecretFields(root.get("$defs", {})).among([root])


def without_secrets(cls: Any, arguments: object) -> Any:
    """The arguments with a mark for each value of a secret field: text for text, a `dict` for a mapping.

    What is not a member of an object with secrets is masked, too, since a name may be misspelled; text that is not JSON
    is masked as a whole. Credentials in what is left are masked by their shape.
    """
    shown = without_secrets_of(shared_schema(cls), arguments)
    return leaving(shown) if isinstance(shown, str) else shown


def without_secrets_of(root: Mapping[str, Any], arguments: object) -> Any:
    """`without_secrets` for a schema; nothing else is masked, and nothing is cut."""
    fields = SecretFields(root.get("$defs", {}))
    try:
        if isinstance(arguments, str | bytes):
            shown: Any = fields.masked(from_json(arguments or "{}"), [root])
            return json.dumps(shown, ensure_ascii=False)
        return fields.masked(dict(cast("Mapping[str, Any]", arguments)), [root]) if arguments else arguments
    except Exception:  # noqa: BLE001 - not JSON, or a mapping class of users
        return MASK


def unsaid(cls: Any, said: str, text: str | bytes) -> str:
    """What a validator says of JSON text, without the secrets in it."""
    if not has_secrets(cls):
        return said
    root = shared_schema(cls)
    return SecretFields(root.get("$defs", {})).unsaid(said, from_json(text), [root])


class SecretFields:
    """The secrets of one schema. `definitions` are those that its references name."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def among(self, nodes: Nodes) -> bool:
        """Whether one of the nodes is a secret, or has one in it."""
        return any(map(self._holds, nodes))

    def _holds(self, node: Mapping[str, Any], above: frozenset[str] = frozenset()) -> bool:
        if _is_secret(node):
            return True
        reference = node.get("$ref")
        if isinstance(reference, str):
            name = reference.rpartition("/")[2]
            return name not in above and self._holds(self._definitions[name], above | {name})
        inner = [
            *node.get("properties", {}).values(), node.get("additionalProperties"), node.get("items"),
            *node.get("prefixItems", ()), *node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ()),
        ]  # fmt: skip
        return any(isinstance(part, dict) and self._holds(cast("dict[str, Any]", part), above) for part in inner)

    def masked(self, value: Any, nodes: Nodes) -> Any:
        """The value with its secrets masked; one of another kind than the schema says is masked as a whole."""
        if not self.among(nodes):
            return value
        if any(map(_is_secret, nodes)) or not isinstance(value, dict | list):
            return MASK
        nodes = branches(nodes, self._definitions)
        if any(map(_is_secret, nodes)):
            return MASK
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return [self.masked(item, below(nodes, index) or nodes) for index, item in enumerate(items)]
        members = cast("dict[str, Any]", value)
        return {key: self._member(item, below(nodes, key)) for key, item in members.items()}

    def _member(self, value: Any, nodes: Nodes) -> Any:
        return self.masked(value, nodes) if nodes else MASK

    def unsaid(self, text: str, value: Any, nodes: Nodes) -> str:
        """The text of a user's validator without the secrets of the value that it speaks of."""
        for secret in sorted(set(self._secrets(value, nodes)), key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text

    def _secrets(self, value: Any, nodes: Nodes) -> Iterator[str]:
        if isinstance(value, dict):
            for key, item in cast("dict[str, Any]", value).items():
                inner = below(branches(nodes, self._definitions), key)
                yield from self._secrets(item, inner) if self.among(inner) else ()
        elif isinstance(value, list):
            for index, item in enumerate(cast("list[Any]", value)):
                yield from self._secrets(item, below(branches(nodes, self._definitions), index))
        elif len(str(value)) >= _LEAST and self.among(nodes):
            yield str(value)


def _is_secret(node: Mapping[str, Any]) -> bool:
    return node.get("writeOnly") is True or node.get("format") == "password"
