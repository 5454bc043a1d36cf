"""Resources that write down what happens to them."""

from __future__ import annotations

from typing import Any


class Part:
    """Records its birth and its end in the log it was given."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.name = type(self).__name__
        log.append(f"make {self.name}")

    def close(self) -> None:
        self.log.append(f"close {self.name}")


class Config(Part): ...


class Client(Part): ...


class Report(Part): ...


class Tracer(Part): ...


class Span(Part): ...


class Builder(Part): ...


class Store:
    """State that can be restored."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def snapshot(self) -> int:
        return self.value

    def restore(self, snapshot: int, /) -> None:
        self.value = snapshot

    def release(self, snapshot: int, /) -> None:
        return None


class OtherStore(Store): ...


class Quiet:
    """Nothing to close, nothing to restore."""


def boom(*_: Any) -> Any:
    """A provider that fails."""
    raise ValueError("no route to host")
