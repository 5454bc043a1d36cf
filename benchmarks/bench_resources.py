"""Resources: what a handler pays for `get`, and what every tool call pays for having a scope at all."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any, Self

from weakincentives.resources import Binding, ResourceRegistry, Scope

from .harness import Row, interleave, ratio


class Config: ...


class Client: ...


class Tracer: ...


class Plain:
    """The floor: a dictionary behind a method."""

    def __init__(self, found: dict[type[Any], object]) -> None:
        self.found = found

    def get(self, key: type[Any]) -> object:
        return self.found[key]


class ByHand:
    """The floor of a scope with one fresh resource: make it, use it, drop it."""

    def __enter__(self) -> Self:
        self.found: dict[type[Any], object] = {}
        return self

    def get(self, key: type[Any]) -> object:
        found = self.found[key] = Tracer()
        return found

    def __exit__(self, *_: object) -> None:
        self.found.clear()


def micros(name: str, subject: Any, budget: float, note: str = "") -> Row:
    (samples,) = interleave(subject)
    return Row(name, statistics.median(samples) * 1e6, budget, "us", note)


def run() -> Iterator[Row]:
    many = [type(f"Other{index}", (), {}) for index in range(1000)]
    registry = ResourceRegistry.of(
        Binding(Config, lambda r: Config()),
        Binding(Tracer, lambda r: Tracer(), scope=Scope.TOOL_CALL),
        *(Binding[Any](other, lambda r, other=other: other()) for other in many),
    )
    small = ResourceRegistry.of(Binding(Config, lambda r: Config())).open()
    plain = Plain({Config: Config()})
    guarded = Client()
    with registry.open() as ctx, small, ctx.tool_scope(overrides={Client: guarded}) as scope:
        for key in (Config, *many):
            ctx.get(key)
        small.get(Config)

        yield ratio(
            "get of a built SINGLETON",
            lambda: ctx.get(Config),
            lambda: plain.get(Config),
            2.0,
            note="dict lookup in a method",
        )
        yield ratio(
            "get of a SINGLETON in a tool scope",
            lambda: scope.get(Config),
            lambda: plain.get(Config),
            3.0,
            note="dict lookup in a method",
        )
        yield ratio(
            "get among 1,001 built resources", lambda: ctx.get(Config), lambda: small.get(Config), 1.2, note="among 1"
        )

        def empty_scope() -> None:
            with small.tool_scope():
                pass

        overrides = {Client: guarded}

        def whole_call() -> None:
            mark = small.mark()
            small.snapshotables()
            with small.tool_scope(overrides=overrides) as tools:
                tools.get(Client)
            if small.mark() != mark:
                small.discard(mark)

        def crowded_call() -> None:
            mark = ctx.mark()
            ctx.snapshotables()
            with ctx.tool_scope(overrides=overrides) as tools:
                tools.get(Client)
            if ctx.mark() != mark:
                ctx.discard(mark)

        def fresh() -> None:
            with ctx.tool_scope() as tools:
                tools.get(Tracer)

        def fresh_by_hand() -> None:
            with ByHand() as tools:
                tools.get(Tracer)

        yield micros("tool scope entered and left, nothing bound to it", empty_scope, 1.0)
        yield micros("all a call asks: mark, snapshotables, scope, one get", whole_call, 2.0)
        yield ratio("the same with 1,001 resources alive", crowded_call, whole_call, 1.2, note="with 1 alive")
        yield micros("tool scope with one TOOL_CALL resource built", fresh, 25.0)
        yield ratio("the same, against building it by hand", fresh, fresh_by_hand, 40.0)
