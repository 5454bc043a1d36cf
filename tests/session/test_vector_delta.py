"""How one vector became another, found without looking at what they share."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weakincentives.session.vector import EMPTY, Vector, VectorDelta

SIZES = (0, 1, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 1056, 1057, 2048, 32 * 1024, 32 * 1024 + 33, 40_000)


class Item:
    """An object that is equal to nothing but itself."""


def edited(vector: Vector[Item], edits: int, chance: random.Random) -> Vector[Item]:
    """A vector after some random edits."""
    for _ in range(edits):
        match chance.randrange(8):
            case 0 if vector:
                vector = vector.set(chance.randrange(len(vector)), Item())
            case 1:
                vector = vector.extend([Item() for _ in range(chance.choice((1, 31, 33, 1025)))])
            case 2 if vector:
                gone = vector[chance.randrange(len(vector))]
                vector = vector.without(lambda item, gone=gone: item is gone)
            case 3 if chance.randrange(20) == 0:
                vector = EMPTY
            case _:
                vector = vector.append(Item())
    return vector


@pytest.mark.parametrize("seed", range(40))
def test_a_delta_turns_the_one_into_the_other(seed: int) -> None:
    """Whatever was edited, the very same objects are in the same places."""
    chance = random.Random(seed)
    before: Vector[Item] = Vector(Item() for _ in range(chance.choice(SIZES)))
    for _ in range(5):
        after = edited(before, chance.randrange(40), chance)
        delta = after.delta(before)
        assert list(before.patched(delta)) == list(after)
        expected = {i: b for i, (a, b) in enumerate(zip(before, after, strict=False)) if a is not b}
        assert delta.replaced == expected
        before = after


@pytest.mark.parametrize("size", SIZES)
def test_an_append_is_one_added_item(size: int) -> None:
    """Also where the tail is full and every level above it."""
    before = Vector(object() for _ in range(size))
    item = object()
    assert before.append(item).delta(before) == VectorDelta(size, {}, (item,))
    assert before.delta(before.append(item)) == VectorDelta(size, {}, ())


@given(st.lists(st.integers(), max_size=200), st.lists(st.integers(), max_size=200))
def test_vectors_that_share_nothing(one: list[int], other: list[int]) -> None:
    """Unrelated vectors have a delta as well."""
    before, after = Vector(one), Vector(other)
    assert before.patched(after.delta(before)) == other


def test_a_delta_looks_only_at_what_differs() -> None:
    """Of a hundred thousand items, a delta of one change looks at a few hundred places."""
    before = Vector(object() for _ in range(100_000))
    after = before.set(50_000, object()).append(object())
    looks = 0
    node: Any = cast("Any", Vector)._node

    def counted(self: Vector[object], start: int, height: int) -> object:
        nonlocal looks
        looks += 1
        return node(self, start, height)

    patch = pytest.MonkeyPatch()
    with patch.context() as context:
        context.setattr(Vector, "_node", counted)
        delta = after.delta(before)
    assert list(delta.replaced) == [50_000]
    assert len(delta.added) == 1
    assert looks < 500


def test_a_delta_for_another_vector_is_refused() -> None:
    """A delta that keeps more than there is raises, instead of leaving a hole."""
    with pytest.raises(IndexError, match="keeps 3 items of a vector of 2"):
        Vector([1, 2]).patched(VectorDelta(3, {}, ()))
