from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from weakincentives.errors import PromptValidationError, SchemaError
from weakincentives.prompt import IdempotencyConfig
from weakincentives.prompt.canonical import serialised_hash
from weakincentives.prompt.idempotency import params_hash
from weakincentives.results import ToolResult
from weakincentives.serde import dump


@dataclass(frozen=True)
class Order:
    order_id: str
    note: str = ""


def test_auto_keys_have_scope_tool_and_hash() -> None:
    """The key is `scope:tool:hash`, the same for equal params and another for different ones."""
    config = IdempotencyConfig()
    key = config.key_for("create_order", Order("1"))
    assert key is not None
    scope, tool, digest = key.split(":")
    assert (scope, tool, len(digest)) == ("session", "create_order", 32)
    assert key == config.key_for("create_order", Order("1"))
    assert len({key, config.key_for("create_order", Order("2")), config.key_for("other", Order("1"))}) == 3


def test_params_keys_look_at_the_named_fields_only() -> None:
    """Other fields may differ; mappings work like dataclasses."""
    config = IdempotencyConfig(strategy="params", param_keys=("order_id",), scope="shop")
    key = config.key_for("create_order", Order("1", "a"))
    assert key == config.key_for("create_order", Order("1", "b")) == config.key_for("create_order", {"order_id": "1"})
    assert key is not None
    assert key.startswith("shop:create_order:")
    assert key != config.key_for("create_order", Order("2", "a"))


def test_custom_keys_are_the_functions_words() -> None:
    """`scope:key_fn(params)`, without the tool's name."""
    config = IdempotencyConfig(strategy="custom", key_fn=lambda p: f"order:{p.order_id}:token")
    assert config.key_for("create_order", Order("123")) == "session:order:123:token"


def test_no_strategy_no_key() -> None:
    """With "none" nothing is remembered."""
    assert IdempotencyConfig(strategy="none").key_for("x", Order("1")) is None


@pytest.mark.parametrize("answer", ["", None, 7])
def test_a_key_function_must_give_text(answer: Any) -> None:
    """An empty or wrong answer would make all calls one."""
    with pytest.raises(TypeError, match="create_order"):
        IdempotencyConfig(strategy="custom", key_fn=lambda _: answer).key_for("create_order", Order("1"))


def test_values_that_cannot_be_compared_have_no_hash() -> None:
    """What cannot be compared cannot be recognised again, however deep it is."""
    for value in (object(), {"a": [object()]}, Order("1", cast(Any, lambda: 1))):
        with pytest.raises(SchemaError, match="cannot be compared"):
            params_hash(value)


@pytest.mark.slow  # interpreters
def test_keys_are_the_same_in_every_process() -> None:
    """A key does not depend on hash seeds or the order of keys."""
    code = (
        "from weakincentives.prompt import IdempotencyConfig\n"
        "print(IdempotencyConfig().key_for('t', {'b': [1, 2.5], 'a': 'ü', 'c': None}))"
    )
    key = IdempotencyConfig().key_for("t", {"c": None, "a": "ü", "b": [1, 2.5]})
    for seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == key


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.lists(st.booleans())))
def test_equal_params_have_equal_hashes(params: dict[str, Any]) -> None:
    """The order of keys makes no difference; one more key does."""
    assert params_hash(params) == params_hash(dict(reversed(params.items())))
    assert params_hash(params) != params_hash({**params, "one more key": 1})


def test_dates_count() -> None:
    """Values with a JSON form of their own are told apart."""
    one, two = datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 1, 2, tzinfo=UTC)
    assert params_hash(one) != params_hash(two)


@dataclass(frozen=True)
class Card:
    token: SecretStr


class Day(Secret[date]):
    """A secret with a mask of its own."""

    def _display(self) -> str:
        return "****/**/**"


class Account(BaseModel):
    name: str
    pin: Secret[int]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Card(SecretStr("a")), Card(SecretStr("b"))),
        (Account(name="x", pin=Secret(1)), Account(name="x", pin=Secret(2))),
        (
            {"cards": [Card(SecretStr("a")), Card(SecretStr("b"))]},
            {"cards": [Card(SecretStr("b")), Card(SecretStr("a"))]},
        ),
        ({"a": SecretStr("x"), "b": SecretStr("y")}, {"a": SecretStr("y"), "b": SecretStr("x")}),
        ({"all": {SecretStr("a"), SecretStr("b")}}, {"all": {SecretStr("a"), SecretStr("c")}}),
        ((SecretBytes(b"a"),), (SecretBytes(b"b"),)),
        ({"d": deque([SecretStr("a")])}, {"d": deque([SecretStr("b")])}),
        ({SecretStr("a"): 1}, {SecretStr("b"): 1}),
        ({"born": Day(date(2000, 1, 1))}, {"born": Day(date(2001, 1, 1))}),
        (Card(SecretStr("a")), Card(SecretStr("**********"))),
    ],
)
def test_secrets_count(one: Any, two: Any) -> None:
    """Params that differ only in a secret are not the same, although both are masked wherever they are shown."""
    assert dump(one) == dump(two)
    assert params_hash(one) == params_hash(copy.deepcopy(one)) != params_hash(two)


def test_the_pairing_of_secrets_counts() -> None:
    """Two sets of pairs are the same only if the pairs are."""
    one = {(SecretStr("a"), 1), (SecretStr("b"), 2)}
    two = {(SecretStr("a"), 2), (SecretStr("b"), 1)}
    assert params_hash(one) == params_hash(set(one)) != params_hash(two)


def test_the_order_of_a_secret_mapping_does_not_count() -> None:
    """What is equal has one hash, also inside a secret."""
    assert params_hash(Secret({"a": 1, "b": 2})) == params_hash(Secret({"b": 2, "a": 1}))


@pytest.mark.slow
def test_sets_have_the_same_key_in_every_process() -> None:
    """The order in which a set lists its items, another one in each process, is not part of the key."""
    program = (
        "from weakincentives.prompt.idempotency import params_hash\n"
        "print(params_hash({'tags': frozenset('abcdefgh'), 'more': [{1, 2}, {'x', 'y'}]}))"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(1, 4)
    }
    assert len(keys) == 1


def test_params_keep_their_hash() -> None:
    """Ledgers outlive a release: the hash of a value never changes, nor the one that rows of version 1 have."""
    assert params_hash({"b": [1, "x"], "a": None}) == "afc2b7fcaee0da021332fdae98967f74"
    assert serialised_hash({"b": [1, "x"], "a": None}) == "c22cb7b0353770e2b38094af641143eb"


def test_defaults() -> None:
    """A day for everybody; None remembers for ever."""
    assert IdempotencyConfig().ttl == timedelta(hours=24)
    assert IdempotencyConfig(ttl=None).ttl is None


def look_up(params: Any) -> ToolResult[Any] | None:
    return None


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"strategy": "params"}, "needs param_keys"),
        ({"strategy": "custom"}, "needs key_fn"),
        ({"strategy": "auto", "param_keys": ("a",)}, 'strategy="params"'),
        ({"strategy": "auto", "key_fn": str}, 'strategy="custom"'),
        ({"strategy": "params", "param_keys": "order_id"}, "('order_id',)"),
        ({"strategy": "sometimes"}, "auto, params, custom, none"),
        ({"on_exception": "ignore"}, "unknown, retry"),
        ({"ttl": timedelta(0)}, "ttl must be positive"),
        ({"ttl": 60}, "timedelta"),
        ({"scope": ""}, "scope"),
        ({"scope": "a:b"}, "scope"),
        ({"reconcile": "later"}, "reconcile"),
        ({"reconcile": look_up, "on_exception": "retry"}, "Drop one"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(options: Any, fix: str) -> None:
    """The error names the field and what to write."""
    with pytest.raises(PromptValidationError) as caught:
        IdempotencyConfig(**options)
    assert fix in str(caught.value)
