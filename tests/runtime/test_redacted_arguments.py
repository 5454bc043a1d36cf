"""Values of secret fields are in no event, reply, log line or saved session, also when they could not be parsed."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Secret, SecretBytes, SecretStr
from tests.world import Go, World

from weakincentives import MarkdownSection, ParseError, Prompt, Session, Tool, ToolResult, parse
from weakincentives.adapters import CallStarted, ProgressEvent
from weakincentives.cli.trace import CallViews
from weakincentives.prompt.events import ToolInvoked
from weakincentives.serde import schema
from weakincentives.serde.secret_fields import has_secrets, without_secrets
from weakincentives.testing import ScriptedAdapter, call, say

SECRET = "correct horse battery"
"""Of no shape that gives it away: only its field says what it is."""


def _refuse(value: SecretStr) -> SecretStr:
    if value.get_secret_value() == SECRET:
        raise ValueError(f"{value.get_secret_value()} is too well known; choose another")
    return value


@dataclass(frozen=True)
class Account:
    name: str
    pin: SecretStr
    more: list[Account] = field(default_factory=list["Account"])


@dataclass(frozen=True)
class Login:
    user: str
    password: SecretStr
    raw: SecretBytes | None = None
    number: Secret[int] | None = None
    accounts: list[Account] = field(default_factory=list[Account])
    tokens: dict[str, SecretStr] = field(default_factory=dict[str, SecretStr])
    chosen: Annotated[SecretStr, AfterValidator(_refuse)] | None = None


def log_in(params: Login) -> ToolResult[Any]:
    assert params.password.get_secret_value() == SECRET
    return ToolResult.ok(None, message="in")


LOGIN = Tool[Login, Any](name="login", description="Log in.", handler=log_in)

GOOD = {"user": "amy", "password": SECRET, "raw": SECRET, "tokens": {"a": SECRET}}
GOOD["accounts"] = [{"name": "one", "pin": SECRET, "more": [{"name": "two", "pin": SECRET}]}]  # pyright: ignore[reportArgumentType]

BAD: list[Any] = [
    {"user": "amy", "password": [SECRET]},
    {"user": "amy", "password": {"value": SECRET}},
    {"user": "amy", "pasword": SECRET},
    {"user": "amy", "password": "x", "number": SECRET},
    {"user": "amy", "password": "x", "raw": [SECRET]},
    {"user": "amy", "password": "x", "accounts": SECRET},
    {"user": "amy", "password": "x", "accounts": [SECRET]},
    {"user": "amy", "password": "x", "accounts": {"pin": SECRET}},
    {"user": "amy", "password": "x", "accounts": [{"name": "one", "pin": [SECRET]}]},
    {"user": "amy", "password": "x", "accounts": [{"name": "one", "pin": "x", "more": SECRET}]},
    {"user": "amy", "password": "x", "accounts": [{"name": "one", "pin": "x", "more": [{"pin": SECRET}]}]},
    {"user": "amy", "password": "x", "tokens": SECRET},
    {"user": "amy", "password": "x", "tokens": {"a": [SECRET]}},
    {"user": "amy", "password": "x", "chosen": SECRET},
    {"password": SECRET},
    [{"password": SECRET}],
    SECRET,
]
TEXTS = [
    *(json.dumps(arguments) for arguments in BAD),
    f'{{"user": "amy", "password": "{SECRET}"',
    f'{{"user": "amy", password: {SECRET}}}',
    f"password={SECRET}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_arguments_that_cannot_be_parsed_tell_no_secret(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the answer to the model, nor the event, the log or a saved session repeats the value."""
    caplog.set_level(logging.DEBUG)
    world = World(LOGIN)
    reply = world.call("login", text)
    assert reply.outcome == "invalid"
    (event,) = world.events
    assert SECRET not in reply.text + str(reply.result) + str(event) + caplog.text + world.session.to_json()


@pytest.mark.parametrize("arguments", BAD[:15])
def test_arguments_that_came_as_a_mapping_are_masked_as_well(arguments: dict[str, Any]) -> None:
    """Some providers give data instead of text; the event keeps data."""
    world = World(LOGIN)
    assert world.call("login", arguments).outcome == "invalid"
    (event,) = world.events
    assert isinstance(event.params, dict)
    assert SECRET not in str(event)


def told(*turns: Any) -> list[CallStarted]:
    events: list[ProgressEvent] = []
    prompt = Prompt[Any](name="door", sections=[MarkdownSection(title="Door", template="", tools=[LOGIN])])
    session = Session()
    ScriptedAdapter(*turns, say("Done.")).evaluate(prompt, session, on_event=events.append)
    assert SECRET not in session.to_json()
    assert SECRET not in str(events)
    return [event for event in events if isinstance(event, CallStarted)]


def test_whoever_watches_sees_no_secret() -> None:
    """`CallStarted` has marks for secrets, at any depth; everything else is as the model wrote it."""
    (event,) = told(call("login", **GOOD))
    shown = json.loads(event.arguments)
    assert shown["user"] == "amy"
    assert shown["password"] == shown["raw"] == shown["tokens"]["a"] == "[masked]"
    assert shown["accounts"] == [
        {"name": "one", "pin": "[masked]", "more": [{"name": "two", "pin": "[masked]"}]},
    ]
    for arguments in BAD:
        if isinstance(arguments, dict):
            told(call("login", **arguments))


def test_a_trace_shows_no_secret() -> None:
    """What `wink` prints of a call is made from the event."""
    (event,) = told(call("login", **GOOD))
    views = CallViews()
    views.started(event)
    assert "[masked]" in str(vars(views))
    assert SECRET not in str(vars(views))


def test_a_tool_without_secrets_is_told_as_it_is() -> None:
    """Text stays the very text that came; the type is asked once."""
    assert not has_secrets(Go)
    world = World(Tool[Go, Any](name="act", description="Act.", handler=lambda _: ToolResult.ok(None)))
    arguments = '{"text":   7}'
    world.call("act", arguments)
    assert world.events[0].params is arguments


def test_errors_still_say_what_came_for_other_fields() -> None:
    """Only values where a secret may be are left out; a validator's words stay, without the secret."""
    with pytest.raises(ParseError) as caught:
        parse(Login, json.dumps({"user": 12345, "password": 67890, "accounts": [{"name": 7, "pin": "x"}]}))
    text = str(caught.value)
    assert "user: Expected type string, got integer 12345" in text
    assert "password: Expected type string, got integer" in text
    assert "67890" not in text
    assert "accounts.0.name: Expected type string, got integer 7" in text
    with pytest.raises(ParseError, match="is too well known; choose another") as caught:
        parse(Login, json.dumps({"user": "amy", "password": "x", "chosen": SECRET}))
    assert SECRET not in str(caught.value)


@dataclass(frozen=True)
class Pair:
    first: SecretStr
    second: str

    def __post_init__(self) -> None:
        if self.second:
            raise RuntimeError(f"{self.first.get_secret_value()} does not go with {self.second}")


def test_what_an_exception_of_the_type_says_has_no_secret() -> None:
    """A `__post_init__` that raises anything is quoted to the model, but for the secret values."""
    with pytest.raises(ParseError, match="does not go with tea") as caught:
        parse(Pair, json.dumps({"first": SECRET, "second": "tea"}))
    assert SECRET not in str(caught.value)


def test_every_kind_of_secret_is_known_by_its_schema() -> None:
    """`Secret[int]` is marked as `SecretStr` is; a type that contains itself is followed."""
    assert schema(Login)["properties"]["number"]["anyOf"][0] == {"type": "integer", "writeOnly": True}
    assert has_secrets(Account)
    assert without_secrets(Account, {"name": "a", "pin": 1}) == {"name": "a", "pin": "[masked]"}
    assert without_secrets(Login, "") == "{}"


def test_the_same_call_again_gets_the_same_answer() -> None:
    """A call that was refused for its arguments is known again, although the event has marks in it."""
    world = World(LOGIN)
    first = world.call("login", json.dumps(BAD[0]), call_id="one")
    again = world.call("login", json.dumps(BAD[0]), call_id="one")
    assert (again.text, again.duplicate) == (first.text, True)
    assert len(world.session[ToolInvoked].all()) == 1
