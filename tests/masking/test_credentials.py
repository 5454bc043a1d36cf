"""Credentials of every usual shape are masked, ordinary text is not, and no text takes long.

The lists in `data/` are in base64, so that tools that look for secrets in a repository leave the made-up ones alone.
The first pair is one text per line (with a tab and the secret), the second pair is JSON.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weakincentives.masking import MAX_LEAVING_CHARS, leaving, redact

DATA = Path(__file__).parent / "data"


def decoded(name: str) -> str:
    return base64.b64decode((DATA / f"{name}.b64").read_bytes()).decode()


def positives() -> list[tuple[str, str]]:
    lines = [line.split("\t") for line in decoded("first-positive").splitlines()]
    return [(text, secret) for text, secret in [*lines, *json.loads(decoded("second-positive"))]]


def ordinary() -> list[str]:
    return [*decoded("first-ordinary").splitlines(), *json.loads(decoded("second-ordinary"))]


POSITIVES = positives()
ORDINARY = ordinary()


def test_at_most_one_credential_in_a_hundred_is_missed() -> None:
    """The lists hold 479 texts with a credential; the few that are missed are known."""
    missed = [text for text, secret in POSITIVES if secret in redact(text)]
    assert len(POSITIVES) == 479
    assert len(missed) <= 4, missed


def test_at_most_one_ordinary_text_in_a_hundred_is_changed() -> None:
    """The lists hold 480 texts that only speak of passwords, tokens and keys."""
    changed = [(text, redact(text)) for text in ORDINARY if redact(text) != text]
    assert len(ORDINARY) == 480
    assert len(changed) <= 4, changed


@pytest.mark.parametrize("around", ["cannot connect: {} (attempt 2)", "first line\n{}\nlast line", "\t{}\r\n"])
def test_a_credential_is_found_wherever_it_stands(around: str) -> None:
    """Text before and after a credential does not hide it."""
    missed = [text for text, secret in POSITIVES if secret in redact(around.format(text))]
    assert len(missed) <= 12, missed


def test_masking_twice_changes_nothing() -> None:
    """What is masked stays as it is."""
    for text in [*(text for text, _ in POSITIVES), *ORDINARY]:
        once = redact(text)
        assert redact(once) == once


PIECES = [
    "password", "pass", "token", "secret", "api_key", "key", "=", ":", " ", "\n", '"', "'", "\\", "[masked]",
    "://", "@", "a", "hunter2", "sk-", "Bearer ", "Authorization", "cookie", ";", "-p", "-u ", "curl",
    "mysql", "-----BEGIN ", "<", ">", "PRIVATE KEY-----", "-----END ", "A1b2C3d4E5f6G7h8", "\u200b", ",",
    "is ", "&", "?", "[", "]", "{", "}", "İ", "\ud800",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_any_text_can_be_masked_once_and_for_all(pieces: list[str]) -> None:
    """Nothing raises, and masking twice changes nothing, whatever the text is made of."""
    once = redact("".join(pieces))
    assert redact(once) == once


@pytest.mark.torture
@settings(max_examples=20_000, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_any_text_can_be_masked_once_and_for_all_at_length(pieces: list[str]) -> None:
    """The same with many more texts."""
    once = redact("".join(pieces))
    assert redact(once) == once


def test_a_character_without_width_hides_no_keyword() -> None:
    """The text is searched as a reader sees it; what stays keeps its invisible characters."""
    assert redact("a\u200bb pass\u200bword=hunter2 c\u200bd") == "a\u200bb pass\u200bword=[masked] c\u200bd"


def test_text_that_leaves_is_cut_first() -> None:
    """More than 256 KiB is never read; what was left out is said."""
    text = leaving("x" * (MAX_LEAVING_CHARS + 1000))
    assert len(text) < MAX_LEAVING_CHARS + 100
    assert text.endswith("[... 1000 more characters]")
    assert leaving("password=hunter2") == "password=[masked]"


LONG = [
    "a.", "eyJ", "eyJ-", "bearer ", "token ", "://a", "://a:", "://a:b@", "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN ", "'password", 'password="', "password=", "password:", "password is ", "sk-", "eyJaaaaaaaa.",
    "key key ", "cookie: a=b; ", "cookie:a=", "passpass", "pass.", "token-", " -u curl:", "mysql -p", ":AA",
    "-us", "1Q~", "<password>", "password\\\\\\", "secret='\\'", "AKIA", "sig=a1", "identified by '",
    "PuTTY-User-Key-File-", "token: aA1aaaaaaaaaaaaaaa\n", "passw\u200bord:x1 ", "sig:", "sig1:", "sig=", "pwd ",
    'pwd="', "=>pwd", "=authorization", "credential%3D'", "$6$A", "secret_a1",
]  # fmt: skip


def seconds(text: str) -> float:
    begun = time.process_time()
    redact(text)
    return time.process_time() - begun


@pytest.mark.parametrize("piece", LONG)
def test_masking_a_repeated_text_twice_changes_nothing(piece: str) -> None:
    """What one mask uncovers is masked in the same call, also where it uncovers the next, and that the one after it."""
    once = redact(piece * (8 * 1024 // len(piece)))
    assert redact(once) == once


def test_the_quotes_before_a_name_are_counted_from_the_last_quoted_value() -> None:
    """A quote that was opened before the text was cut does not hide what follows; one around a value is not counted."""
    cut = 'client_secret": "kd94hf93k423kf44zzz", API_TOKEN = "t0k3n-9a8b7c6d5e4f"'
    assert redact(f'"{cut}').count("[masked]") == 2
    assert redact(cut).count("[masked]") == 2
    assert redact("failed (dsn='host=db password=xyzzy42 dbname=a'), pwd: 'Kiwi 5'").count("[masked]") == 2


@pytest.mark.timing
@pytest.mark.parametrize("piece", LONG)
def test_time_is_in_proportion_to_the_text(piece: str) -> None:
    """Four times the text takes about four times as long, not sixteen, whatever it repeats."""
    small, large = 64 * 1024, 256 * 1024
    first = min(seconds(piece * (small // len(piece))) for _ in range(3))
    second = min(seconds(piece * (large // len(piece))) for _ in range(3))
    assert second < 5 * first + 0.1


@pytest.mark.torture
@pytest.mark.parametrize("piece", LONG)
def test_ten_megabytes_are_masked(piece: str) -> None:
    """Ten megabytes of the worst text take seconds of the processor; the limit is for a busy one."""
    assert seconds(piece * (10 * 1024 * 1024 // len(piece))) < 30
