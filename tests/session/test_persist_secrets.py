"""What is saved of a session, and what events show, holds no secret that was declared as one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import BaseModel, Secret, SecretBytes, SecretStr, field_serializer

from weakincentives.errors import SessionFormatError
from weakincentives.prompt import IdempotencyConfig, ToolInvoked
from weakincentives.prompt.canonical import canonical
from weakincentives.session import Session


@dataclass(frozen=True)
class Login:
    user: str
    password: SecretStr


@dataclass(frozen=True)
class Pair:
    logins: tuple[Login, ...]
    other: object = None


class Plain(BaseModel):
    """A model that writes its secrets as JSON for a reason of its own."""

    user: str
    key: SecretStr
    raw: SecretBytes = SecretBytes(b"hunter2")

    @field_serializer("key", when_used="json")
    def _key(self, value: SecretStr) -> str:
        return value.get_secret_value()


@dataclass(frozen=True)
class Pin:
    pin: Secret[int]


SECRET = SecretStr("hunter2")


@pytest.mark.parametrize("on_opaque", ["error", "mark"])
@pytest.mark.parametrize(
    "value",
    [Login("amy", SECRET), Pair((Login("amy", SECRET),), {"k": Login("amy", SECRET)}), Plain(user="amy", key=SECRET)],
)
def test_secrets_are_masked_in_a_saved_session(value: object, on_opaque: str) -> None:
    """A session with secrets is saved, without them; everything else comes back, and the session keeps its own."""
    session = Session()
    session[type(value)].append(value)
    text = session.to_json(on_opaque=on_opaque)  # type: ignore[arg-type]
    assert "hunter2" not in text
    assert "amy" in text
    types: list[type] = [type(value), Login]
    (loaded,) = Session.from_json(text, types=types)[type(value)].all()
    assert loaded != value
    assert "amy" in repr(loaded)
    assert session[type(value)].all()[0] is value


def test_a_secret_that_no_mark_fits_is_refused() -> None:
    """A secret number has no mark of its type: saving says so, or leaves the value out when asked to."""
    session = Session()
    session[Pin].append(Pin(Secret(987654321)))
    with pytest.raises(SessionFormatError):
        session.to_json()
    assert "987654321" not in session.to_json(on_opaque="mark")


def test_keys_are_made_of_the_secrets() -> None:
    """Two calls with different secrets are two effects, although both are shown as stars."""
    assert canonical(Login("amy", SECRET)) != canonical(Login("amy", SecretStr("hunter3")))
    config = IdempotencyConfig()
    assert config.key_for("t", Login("amy", SECRET)) != config.key_for("t", Login("amy", SecretStr("hunter3")))


def test_an_event_shows_no_secret() -> None:
    """The event of a call holds the params for reducers; its text and its saved form hold no secret."""
    event = ToolInvoked(tool_name="t", params=Login("amy", SECRET), result=None, success=True)
    session = Session()
    session[ToolInvoked].append(event)
    text = session.to_json(on_opaque="mark")
    assert "hunter2" not in text
    assert "hunter2" not in repr(event)
    assert '"user": "amy"' in text
