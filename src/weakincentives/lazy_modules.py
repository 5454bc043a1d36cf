"""Modules of the standard library that many programs never need: imported when something in them is first used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _LazyModule(ModuleType):
    """Stands for a module. What was used once is kept here, and found as quickly as in the module itself."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import asyncio
    import asyncio.events as asyncio_events
    import difflib
    import hashlib
else:
    asyncio = _LazyModule("asyncio")
    asyncio_events = _LazyModule("asyncio.events")
    difflib = _LazyModule("difflib")
    hashlib = _LazyModule("hashlib")


__all__ = ["asyncio", "asyncio_events", "difflib", "hashlib"]
