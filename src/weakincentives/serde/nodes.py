"""Following a value through a JSON schema: what a part of the value may be, by the schema's nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

Nodes = Sequence[Mapping[str, Any]]


def branches(nodes: Nodes, definitions: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The nodes with references followed and alternatives spread out."""
    for node in nodes:
        reference = node.get("$ref")
        if isinstance(reference, str):
            node = definitions[reference.rpartition("/")[2]]
        alternatives = [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())]
        if alternatives:
            yield from branches(alternatives, definitions)
        else:
            yield node


def below(nodes: Nodes, key: int | str) -> Nodes:
    """The nodes of an item or a member; none where the schema does not know it."""
    found: list[Any] = []
    for node in nodes:
        prefix = node.get("prefixItems", ())
        if isinstance(key, int):
            found.append(prefix[key] if key < len(prefix) else node.get("items"))
        else:
            found.append(node.get("properties", {}).get(key) or node.get("additionalProperties"))
    return [cast(dict[str, Any], node) for node in found if isinstance(node, dict)]


__all__ = ["Nodes", "below", "branches"]
