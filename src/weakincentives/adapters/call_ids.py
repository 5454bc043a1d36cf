"""Call ids as they must be: there, and each of its own within a turn, whatever the provider sent."""

from __future__ import annotations

from .exchange import ModelTurn
from .transcript import CallMessage


def with_sound_ids(turn: ModelTurn, number: int) -> ModelTurn:
    """The turn with a proper id for every call, the same object when all were proper.

    A call that came twice is dropped, since it must not run twice; a different one under a used id gets its own; a
    missing id is made up. What was mended can no longer go back as it came, so `native` is left out.
    """
    calls = turn.calls
    if len(calls) == 1 and calls[0].id:
        return turn
    seen: dict[str, CallMessage] = {}
    for position, call in enumerate(calls, 1):
        known = seen.get(call.id)
        if known == call and call.id:
            continue
        if not call.id or known is not None:
            call = CallMessage(_free(call.id or f"call_{number}", position, seen), call.name, call.arguments)
        seen[call.id] = call
    kept = tuple(seen.values())
    return turn if kept == calls else turn._replace(calls=kept, native=())


def _free(stem: str, position: int, seen: dict[str, CallMessage]) -> str:
    made = f"{stem}_{position}"
    while made in seen:
        made += "_"
    return made


__all__ = ["with_sound_ids"]
