"""Values with `Secret` fields: what is saved of them has marks in the place of the secrets."""

from __future__ import annotations

from typing import Any

from pydantic import SecretBytes

from .encoding import Encoded, class_of, encode, parts_of, with_parts

_STARS = "**********"
"""What pydantic writes for a secret: only this comes back as it was."""


def encode_masked(value: Any) -> Encoded:
    """`encode`, with secrets masked: they do not come back, everything else does.

    A model may say how its secrets are written as JSON; they are masked all the same.
    """
    return encode(masked(value))


def masked(value: Any, above: tuple[int, ...] = ()) -> Any:
    """The value itself when there is no secret in it, else a copy in which each is a secret made of stars.

    A secret that is neither text nor bytes stays: there is no mark of its type, and pydantic writes it as stars, which
    do not come back, so that saving it is refused.

    >>> from pydantic import SecretStr
    >>> masked({"user": "amy", "pin": SecretStr("1234")})["pin"].get_secret_value()
    '**********'
    """
    kind: Any = class_of(value)
    if hasattr(kind, "get_secret_value"):
        return _masked_secret(kind, value)
    parts = None if id(value) in above else parts_of(value)
    if not parts:
        return value
    made = {key: masked(part, (*above, id(value))) for key, part in parts.items()}
    return with_parts(value, made) if any(made[key] is not part for key, part in parts.items()) else value


def _masked_secret(kind: Any, value: Any) -> Any:
    if isinstance(value, SecretBytes):
        return kind(_STARS.encode())
    return kind(_STARS) if isinstance(value.get_secret_value(), str) else value


__all__ = ["encode_masked", "masked"]
