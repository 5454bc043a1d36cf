"""The persistent vector behaves as a tuple that grows for free."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weakincentives.session import Vector
from weakincentives.session.vector import EMPTY

SIZES = [0, 1, 31, 32, 33, 64, 65, 1023, 1024, 1025, 1056, 1057, 32768, 32769, 33825, 40000]


def _grown(size: int) -> Vector[int]:
    vector: Vector[int] = EMPTY
    for number in range(size):
        vector = vector.append(number)
    return vector


@pytest.mark.parametrize("size", SIZES)
def test_appending_and_extending_agree(size: int) -> None:
    """A vector grown item by item equals one made at once, around every carry."""
    grown, made = _grown(size), Vector(range(size))
    assert list(grown) == list(made) == list(range(size))
    assert list(reversed(grown)) == list(reversed(range(size)))
    assert len(grown) == size
    assert grown.latest() == (size - 1 if size else None)


@pytest.mark.parametrize("size", SIZES[1:])
def test_every_index_finds_its_item(size: int) -> None:
    """Indexing, from the front and from the back, finds what iteration shows."""
    for vector in (Vector(range(size)), _grown(size)):
        assert [vector[i] for i in range(size)] == list(range(size))
        assert [vector[-i] for i in range(1, size + 1)] == list(reversed(range(size)))


@pytest.mark.parametrize("index", [3, -4, 100])
def test_an_index_outside_raises(index: int) -> None:
    """An index outside of the vector raises IndexError naming it."""
    with pytest.raises(IndexError, match=str(index)):
        Vector([1, 2, 3])[index]
    with pytest.raises(IndexError, match=str(index)):
        Vector([1, 2, 3]).set(index, 0)


@given(st.integers(0, 3000), st.data())
def test_setting_one_item_leaves_the_old_vector(size: int, data: st.DataObject) -> None:
    """`set` changes one place in a new vector and nothing in the old one."""
    vector = Vector(range(size + 1))
    index = data.draw(st.integers(-size - 1, size))
    model = list(range(size + 1))
    model[index] = -7
    assert list(vector.set(index, -7)) == model
    assert list(vector) == list(range(size + 1))


@given(st.lists(st.one_of(st.integers(1, 3), st.integers(0, 100).map(lambda n: [0] * n)), max_size=30), st.data())
def test_old_versions_never_change(steps: list[int | list[int]], data: st.DataObject) -> None:
    """However a family of vectors branches, every member keeps its own items."""
    family: list[tuple[Vector[int], list[int]]] = [(EMPTY, [])]
    for step in steps:
        vector, model = family[data.draw(st.integers(0, len(family) - 1))]
        if isinstance(step, int):
            family.append((vector.append(step), [*model, step]))
        else:
            family.append((vector.extend(step), [*model, *step]))
    for vector, model in family:
        assert list(vector) == model
        assert vector == model


@given(st.integers(0, 200), st.slices(200))
def test_slicing_gives_the_tuple_a_tuple_would(size: int, part: slice) -> None:
    """A slice of a vector is the same slice of a tuple."""
    assert Vector(range(size))[part] == tuple(range(size))[part]


def test_it_is_equal_to_lists_and_tuples_and_hashes_as_a_tuple() -> None:
    """Vectors compare with sequences by their items, in both directions."""
    vector = Vector([1, 2])
    assert vector == [1, 2]
    assert (1, 2) == vector  # noqa: SIM300 - the other direction is the point
    assert vector != [1, 2, 3]
    assert vector != [2, 1]
    assert vector != {1, 2}
    assert hash(vector) == hash((1, 2))


def test_nothing_added_or_removed_is_the_same_object() -> None:
    """Operations without effect return the very same vector, so that nothing counts as changed."""
    vector = Vector([1, 2])
    assert vector.extend([]) is vector
    assert vector.without(lambda number: number > 2) is vector
    assert vector.without(lambda number: number > 1) == [1]


def test_it_survives_pickling_and_copying() -> None:
    """A vector that crossed a process boundary is equal to the original."""
    vector = Vector(range(100))
    assert pickle.loads(pickle.dumps(vector)) == vector
    assert copy.deepcopy(vector) == vector
    assert 99 in vector
    assert 100 not in vector


def test_its_repr_is_short() -> None:
    """A long vector shows its ends and its size."""
    assert repr(Vector([1, 2])) == "Vector([1, 2])"
    assert repr(Vector(range(1000))) == "Vector([0, ... 1000 items ..., 999])"
