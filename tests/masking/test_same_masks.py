"""Telling most texts by one look changes no mask: the result is that of asking every rule about every text."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples
from tests.masking import every_rule
from tests.masking.test_credentials import LONG, ORDINARY, PIECES, POSITIVES

from weakincentives.masking import masked_data, prefixes, redact

VALUES = [
    "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6", "0123456789abcdef" * 4, "A1B2C3D4E5F6G7H8", "aB3" * 30, "a", "1", ".", "-", "_",
    "/", "$", " ", "\n", '"', "'", "\\", "(", ")", "@", "%", "=", ":", "é", "ß", "\u200b", "K", "İ", "[masked]",
    "The service reads its settings", "src/app/main.py", "services/", "webhooks/12345/", "user", "PRIVATE KEY-----",
]  # fmt: skip
# Where one rule alone finds something, by one of the marks that it is asked for.
BY_ONE_RULE = [
    "basic dXNlcjpodW50ZXIyMzQ1", "bearer q8Zk2LmX7vTn4RwP", "cookie: sid=abcdef123456; a=b", "app:hunter2@tcp(db)",
    "app:hunter2@unix(db)", "//app:hunter2@db", "x:/app:hunter2@db",
    "x:\\/\\/app:hunter2@db", "x%3a%2f%2fapp%3ahunter2%40db",
    "mysql -phunter2x", "xfreerdp /p:hunter2x", "identified by 'hunter2x'", "requirepass hunter2x",
    "unseal key 1: " + "aB3" * 15, "*:*:*:app:hunter2x", "db:5432:db:app:hunter2x", "echo app:hunter2x | chpasswd",
    "123456789:AA" + "aB3" * 11, "0123456789abcdef0123456789abcdef-us12", "abc8Q~" + "aB3" * 11,
]  # fmt: skip
TEXTS = [text for text, _ in POSITIVES] + ORDINARY + BY_ONE_RULE
PARTS = [*every_rule.LITERALS, *VALUES, *PIECES]
MADE = st.lists(st.integers(0, len(PARTS) - 1).map(PARTS.__getitem__), max_size=12).map("".join)
ENDS = st.integers(0, 12)
CUT = st.tuples(st.integers(0, len(TEXTS) - 1), ENDS, ENDS).map(lambda at: TEXTS[at[0]][at[1] :][: -at[2] or None])
DATA = st.recursive(
    st.one_of(MADE, CUT, st.none(), st.integers()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MADE | CUT, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("around", ["{}", " {}", '{{"text": "{}"}}', "Please read this first.\n{}\nThat is all."])
def test_known_texts_are_masked_as_by_every_rule(around: str) -> None:
    """All credentials and all ordinary texts of the lists, wherever they stand."""
    for text in (around.format(text) for text in TEXTS):
        assert redact(text) == every_rule.redact(text)


@pytest.mark.parametrize("text", BY_ONE_RULE)
def test_a_rule_is_asked_about_all_that_it_finds(text: str) -> None:
    """Also where nothing else in the text would have any rule asked."""
    assert redact(text) == every_rule.redact(text) != text


@pytest.mark.parametrize("piece", LONG)
def test_repeated_text_is_masked_as_by_every_rule(piece: str) -> None:
    """What looks like a beginning inside a credential is part of it, and the same for both."""
    text = piece * (2048 // len(piece))
    assert redact(text) == every_rule.redact(text)


@settings(max_examples=examples(600), deadline=None)
@given(st.one_of(MADE, CUT, st.tuples(CUT, MADE, CUT).map("".join)))
def test_any_text_is_masked_as_by_every_rule(text: str) -> None:
    """Texts made of what the rules look for, of values, and of parts of credentials."""
    assert redact(text) == every_rule.redact(text)


@settings(max_examples=examples(300), deadline=None)
@given(DATA)
def test_any_data_is_masked_as_by_every_rule(data: object) -> None:
    """Names and values of JSON data."""
    assert masked_data(data) == every_rule.masked_data(data)


@pytest.mark.torture
@pytest.mark.timeout(1200)
@settings(max_examples=10_000, deadline=None)
@given(st.one_of(MADE, CUT, st.tuples(CUT, MADE, CUT).map("".join)), DATA)
def test_any_text_is_masked_as_by_every_rule_at_length(text: str, data: object) -> None:
    """The same with many more."""
    assert redact(text) == every_rule.redact(text)
    assert masked_data(data) == every_rule.masked_data(data)


def test_no_beginning_hides_another_of_its_kind() -> None:
    """One that does not count, behind a letter, never overlaps with one that does: each place is judged by itself."""
    for literal, _ in every_rule.RULES:
        for shift in range(1, len(literal)):
            if literal.startswith(literal[shift:]):
                assert literal[shift - 1].isalnum()
    assert all(len(literal) >= 2 for literal, _ in every_rule.RULES)
    assert sum(map(len, prefixes._RULES.values())) == len(every_rule.RULES)
