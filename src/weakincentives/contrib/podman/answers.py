"""What a container answered, taken apart with suspicion."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, cast, final

from ...errors import SandboxError


@final
class Answer:
    """Fields of an answer, of the type that is asked for; `SandboxError` for any other."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """A string; empty when it is missing."""
        return self._typed(name, str, "")[:4000]

    def number(self, name: str) -> int:
        """An integer; 0 when it is missing."""
        return self._typed(name, int, 0)

    def data(self, name: str) -> bytes:
        """Bytes; none when they are missing."""
        return _unpacked(self._typed(name, str, ""))

    def files(self, name: str) -> dict[str, bytes]:
        """Bytes by path."""
        found = cast(dict[Any, Any], self._typed(name, dict, {}))
        if not all(isinstance(content, str) for content in found.values()):
            raise _nonsense(name)
        return {str(path): _unpacked(content) for path, content in found.items()}

    @staticmethod
    def packed(data: bytes) -> str:
        """Bytes, so that JSON takes them."""
        return base64.b64encode(data).decode("ascii")

    def _typed(self, name: str, kind: type[Any], missing: Any) -> Any:
        value = self._fields.get(name, missing)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _nonsense(name)
        return value


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _nonsense("its data") from None


def _nonsense(what: str) -> SandboxError:
    return SandboxError(f"The container answered nonsense ({what}). What it did is undone.")


__all__ = ["Answer"]
