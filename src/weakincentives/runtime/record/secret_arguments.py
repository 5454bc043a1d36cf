"""Secret arguments of recorded calls: the record has them as the model wrote them, and they leave it masked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast, final

from ...errors import RecordError
from ...masking import MASK
from ...prompt.tool import Tool
from ...serde.secret_fields import schema_has_secrets, without_secrets_of
from .protocol import RunStore
from .rows import RunInfo, Step


class RunToMask(Protocol):
    """What is needed of a `RecordedRun`."""

    @property
    def store(self) -> RunStore:
        """Where it is."""
        ...

    @property
    def info(self) -> RunInfo:
        """As a listing shows it."""
        ...

    def text(self, kept: Any) -> str:
        """A text of a step's body."""
        ...


@final
class SecretArguments:
    """Masks the fields of a run's calls that are secret by their type (`SecretStr`).

    The record says which: it has the schemas of the tools. Where these are damaged, all arguments are masked. `tools`
    are those of the program, for older records, which have no schemas.
    """

    def __init__(self, run: RunToMask, tools: Iterable[Tool[Any, Any]] = ()) -> None:
        recorded = _recorded_schemas(run)
        self._is_damaged = recorded is None
        schemas = {**(recorded or {}), **{tool.name: tool.schema() for tool in tools}}
        self._schemas = {name: schema for name, schema in schemas.items() if _has_secrets(schema)}

    def masked(self, step: Step) -> Mapping[str, Any]:
        """The body of a step with its secret arguments masked. Credentials are left: they are known by their shape."""
        body = step.body
        if step.kind != "turn" or not (self._schemas or self._is_damaged):
            return body
        calls = [[call_id, name, self.arguments(name, kept)] for call_id, name, kept in body["calls"]]
        return {**body, "calls": calls, **({"native": self._native(body["native"])} if "native" in body else {})}

    def arguments(self, tool: str, kept: Any) -> Any:
        """The arguments of one call."""
        if self._is_damaged:
            return MASK
        if tool not in self._schemas:
            return kept
        schema = self._schemas[tool]
        return without_secrets_of(cast("dict[str, Any]", schema), kept) if isinstance(schema, dict) else MASK

    def _native(self, item: Any) -> Any:
        """What the provider sent, which has the same arguments beside the name of their tool."""
        if isinstance(item, list | tuple):
            return [self._native(part) for part in cast("list[Any]", item)]
        if not isinstance(item, dict):
            return item
        members = cast("dict[str, Any]", item)
        name = members.get("name")
        if isinstance(name, str) and (name in self._schemas or self._is_damaged):
            return {key: self.arguments(name, part) if key in _ARGUMENTS else part for key, part in members.items()}
        return {key: self._native(part) for key, part in members.items()}


_ARGUMENTS = frozenset({"arguments", "input"})


def _recorded_schemas(run: RunToMask) -> dict[str, Any] | None:
    """The schemas of the tools' params, by the names of the tools; None when they cannot be read."""
    begin = next(iter(run.store.steps(run.info.run_id, until=1)), None)
    kept = None if begin is None else begin.body.get("schemas")
    if kept is None:
        return {}
    try:
        return {name: told["params"] for name, told in json.loads(run.text(kept)).items()}
    except (RecordError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None


def _has_secrets(schema: Any) -> bool:
    try:
        return schema_has_secrets(schema)
    except (AttributeError, KeyError, TypeError, RecursionError):  # a record that another program wrote
        return True


__all__ = ["SecretArguments"]
