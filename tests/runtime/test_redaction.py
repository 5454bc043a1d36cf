"""What a model reads of an exception has no credentials in it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.world import Go, World, make_tool

from weakincentives.prompt import ToolResult
from weakincentives.runtime import redact

SECRET = "s3cr3tVALUE42xyz"

TEXTS = [
    f"password={SECRET}",
    f"password: {SECRET}",
    f"Password = '{SECRET}'",
    f'"db_password": "{SECRET}"',
    f"PGPASSWORD={SECRET} psql",
    f"passwd={SECRET}&user=x",
    f"my.client-secret={SECRET}",
    f"client_secret: {SECRET}",
    f"api_key={SECRET}",
    f"apikey={SECRET}",
    f"X-Api-Key: {SECRET}",
    f"OPENAI_API_KEY={SECRET}",
    f"access_token={SECRET}",
    f"refresh-token={SECRET}",
    f"Authorization: Bearer {SECRET}",
    f"Authorization: Basic {SECRET}",
    f"{{'Authorization': 'Bearer {SECRET}'}}",
    f"authorization={SECRET}",
    f"bearer {SECRET}",
    f"postgres://app:{SECRET}@db.example.com/app",
    f"https://user:{SECRET}@example.com/x?y=z",
    f"sk-{SECRET}",
    f"sk-proj-{SECRET}",
    f"ghp_{SECRET}",
    f"github_pat_{SECRET}",
    f"xoxb-{SECRET}",
    f"AIza{SECRET}{SECRET}",
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJ{SECRET}.{SECRET}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_credentials_are_masked(text: str) -> None:
    """Passwords, tokens and keys in their usual shapes are masked, wherever they stand in a text."""
    for around in ("{}", "cannot connect: {} (attempt 2)", "first line\n{}\nlast line"):
        masked = redact(around.format(text))
        assert SECRET not in masked
        assert "[masked]" in masked


@pytest.mark.parametrize(
    "text",
    [
        "", "File not found: notes.txt", "KeyError: 'name'", "expected 3 items, got 4", "the token was empty",
        "line 7: unexpected ':'", "http://example.com:8080/path", "https://example.com/a@b", "user@example.com",
        "a basic test", "the bearer is here", "Skipped: no password given", "eyJust a word", "sk-short",
    ],
)  # fmt: skip
def test_other_text_stays(text: str) -> None:
    """Text without credentials is not touched."""
    assert redact(text) == text


def test_what_stands_around_a_credential_stays() -> None:
    """Only the value goes: the name, the host and the rest of the text are still there to act on."""
    text = "cannot connect to postgres://app:hunter2@db/app, password=hunter2, retry in 5 s"
    assert redact(text) == "cannot connect to postgres://[masked]@db/app, password=[masked], retry in 5 s"
    assert redact("Authorization: Bearer abcdefgh12345678, 401") == "Authorization: Bearer [masked], 401"


ODD = [
    "a.", "a-", "r", "eyJ", "eyJ-", "bearer ", "token ", "://a", "://a:", "x:", "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN ", "'password", 'password="', "password=", "password ", "sk-", "eyJaaaaaaaa.", "A ", "=", ":", " ",
]  # fmt: skip


@pytest.mark.timing
@pytest.mark.parametrize("piece", ODD)
def test_no_text_takes_long(piece: str) -> None:
    """Masking takes time in proportion to the text, whatever it repeats."""
    begun = time.process_time()
    redact(piece * (64 * 1024 // len(piece)))
    redact("://" + piece * (64 * 1024 // len(piece)))
    assert time.process_time() - begun < 3


def test_the_model_and_the_log_read_the_masked_text() -> None:
    """The reply is masked, and so is what the event keeps of the exception: events leave the process, too."""

    def leak(params: Go) -> ToolResult[Any]:
        raise ConnectionError(f"postgres://app:{SECRET}@db refused")

    world = World(make_tool(leak))
    reply = world.call()
    assert reply.text == "Internal error: postgres://[masked]@db refused"
    assert SECRET not in reply.result.message
    (event,) = world.events
    assert SECRET not in event.rendered_output
    assert str(event.error) == "postgres://[masked]@db refused"
    assert event.error is not None
    assert SECRET not in event.error.trace


def test_the_log_shows_hidden_characters_of_an_exception() -> None:
    """Text and trace of an exception are read in terminals: escape sequences in them are marks."""

    def attack(params: Go) -> ToolResult[Any]:
        raise RuntimeError("a\x1b]52;c;eA==\x07\u202e")

    world = World(make_tool(attack))
    world.call()
    error = world.events[0].error
    assert error is not None
    assert error.text == "a\\u001b]52;c;eA==\\u0007\\u202e"
    assert error.text in error.trace
    assert "\x1b" not in error.trace


def test_the_text_can_be_hidden_altogether() -> None:
    """With `hide_errors` the model reads only that something went wrong."""

    def leak(params: Go) -> ToolResult[Any]:
        raise ConnectionError("the database is at 10.0.0.7")

    world = World(make_tool(leak), hide_errors=True)
    assert world.call().text == "Internal error"
    assert "10.0.0.7" in str(world.events[0].error)


def test_what_a_handler_says_on_purpose_is_not_touched() -> None:
    """The text of `ToolResult.error` is the author's and stays as it is."""

    def say(params: Go) -> ToolResult[Any]:
        return ToolResult.error("Ask the user to set password=<new password>")

    assert World(make_tool(say)).call().text == "Ask the user to set password=<new password>"
