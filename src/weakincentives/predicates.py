"""What the answers of users' predicates mean."""

from __future__ import annotations

from typing import cast


def problem_of(answer: object, message: str) -> str | None:
    """What a predicate's answer means: `(False, "text")` is not true, as any other tuple with something in it is."""
    if isinstance(answer, tuple) and len(cast("tuple[object, ...]", answer)) == 2:
        verdict, text = cast("tuple[object, object]", answer)
        if isinstance(verdict, bool) and isinstance(text, str):
            return None if verdict else text or message
    return None if answer else message


__all__ = ["problem_of"]
