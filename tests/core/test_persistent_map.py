"""The persistent map behaves as a dict that is copied before each change."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from weakincentives.persistent_map import SMALL, MapTree, entries_of, with_entry, without_entry

SIZES = [0, 1, SMALL - 1, SMALL, SMALL + 1, 32 * 32, 5000]


class Colliding:
    """A key whose hash is chosen: equal only to a key of the same number."""

    def __init__(self, number: int, bits: int) -> None:
        self.number = number
        self.bits = bits

    def __hash__(self) -> int:
        return self.bits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Colliding) and other.number == self.number

    def __repr__(self) -> str:
        return f"Colliding({self.number}, {self.bits})"


HASHES: dict[str, Callable[[int], object]] = {
    "strings": str,
    "numbers": int,
    "negative hashes": lambda n: Colliding(n, -n - 2),
    "one hash for all": lambda n: Colliding(n, 7),
    "four hashes that differ in the last bits": lambda n: Colliding(n, (n % 4) << 28),
    "hashes that differ where it does not count": lambda n: Colliding(n, n << 30),
    "hashes with equal low bits": lambda n: Colliding(n, n << 20),
    "hashes that share the first place": lambda n: Colliding(n, n << 6 | 5),
    "the lowest hash": lambda n: Colliding(n, -(2**61) + 5),
    "later hashes that share the first place": lambda n: Colliding(n, n if n <= SMALL else n << 6 | 5),
}


@pytest.mark.parametrize("kind", HASHES)
@pytest.mark.parametrize("size", SIZES[:-1])
def test_a_map_holds_what_was_set(size: int, kind: str) -> None:
    """Grown entry by entry or made at once, and shrunk again, it is what a dict would be, whatever the hashes are."""
    keys = [HASHES[kind](number) for number in range(min(size, 200) if "hash" in kind else size)]
    model = {key: number for number, key in enumerate(keys)}
    grown: Mapping[object, int] = {}
    for number, key in enumerate(keys):
        grown = with_entry(grown, key, number)
    for built in (grown, entries_of(model), entries_of(list(model.items()))):
        assert len(built) == len(model)
        assert dict(built) == dict(built.items()) == model == built
        assert sorted(built.values()) == list(model.values())
        assert all(built[key] == built.get(key) == number and key in built for key, number in model.items())
        assert set(built) == set(built.keys()) == set(model)
    for key in keys:
        grown = without_entry(grown, key)
        assert key not in grown
    assert len(grown) == 0
    assert not grown
    assert list(grown) == list(grown.items()) == []


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_change_leaves_the_old_map_as_it_was(size: int) -> None:
    """Setting a new key, setting one again and deleting one are seen in the result alone."""
    model = {str(number): number for number in range(size)}
    built = entries_of(model)
    for key in [*model][:: max(1, size // 50)]:
        assert with_entry(built, key, -1)[key] == -1
        assert key not in without_entry(built, key)
        assert with_entry(built, f"new {key}", 1)[f"new {key}"] == 1
        assert (len(with_entry(built, key, -1)), len(without_entry(built, key))) == (size, size - 1)
        assert built == model


@pytest.mark.parametrize("size", SIZES)
def test_what_is_missing(size: int) -> None:
    """A missing key raises KeyError when it is asked for or deleted, and has the default."""
    built = entries_of({str(number): number for number in range(size)})
    with pytest.raises(KeyError, match="nothing"):
        built["nothing"]
    with pytest.raises(KeyError, match="nothing"):
        without_entry(built, "nothing")
    assert built.get("nothing") is None
    assert built.get("nothing", 7) == 7
    assert "nothing" not in built
    with pytest.raises(TypeError, match="unhashable"):
        built.get([])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("size", SIZES)
def test_equality_hash_copies_and_pickles(size: int) -> None:
    """Equal content is equal, whichever way it came about, in one process and in the next."""
    model = {str(number): number for number in range(size)}
    built = entries_of(model)
    again = without_entry(with_entry(entries_of({key: model[key] for key in reversed(model)}), "x", 0), "x")
    assert built == again == model == built
    assert isinstance(built, MapTree) is (size > SMALL)
    assert not isinstance(built, MapTree) or hash(built) == hash(again)
    assert built != with_entry(built, "0", -1)
    assert built != "text"
    for other in (copy.copy(built), copy.deepcopy(built), pickle.loads(pickle.dumps(built)), entries_of(built)):
        assert other == built
        assert type(other) is type(built)
    assert repr(built) == repr(dict(built)) if size <= SMALL else repr(built).startswith("MapTree({")


def test_a_pickled_map_is_read_where_strings_hash_otherwise() -> None:
    """Where a key is depends on its hash, and that is another in each process."""
    built = entries_of({f"file {number}": number for number in range(1000)})
    program = (
        "import pickle, sys\n"
        "built = pickle.loads(sys.stdin.buffer.read())\n"
        "assert all(built[f'file {number}'] == number for number in range(1000))\n"
        "assert len(built) == 1000"
    )
    subprocess.run([sys.executable, "-c", program], input=pickle.dumps(built), check=True)


def test_a_map_that_shrinks_keeps_nothing_of_what_it_was() -> None:
    """Lists without an entry go, so that going through the rest costs what it costs in a map made of it."""
    built = entries_of({number: number for number in range(20_000)})
    for number in range(20_000):
        if number % 64:  # all but those whose hashes share the first place
            built = without_entry(built, number)
    assert len(built) == 313
    nodes: list[list[Any]] = [cast(Any, built)._root]
    for node in nodes:
        nodes += [below for below in node if type(below) is list]
    assert len(nodes) == 2


class MapMachine(RuleBasedStateMachine):
    """Any number of maps, each beside a dict: every change makes another pair, and no change is seen in an old one."""

    @initialize(kind=st.sampled_from(list(HASHES)), size=st.sampled_from([0, SMALL - 3, SMALL, SMALL + 3, 500]))
    def begin(self, kind: str, size: int) -> None:
        self.key = HASHES[kind]
        model = {self.key(number): number for number in range(min(size, 200) if "hash" in kind else size)}
        self.versions: list[tuple[Mapping[object, int], dict[object, int]]] = [(entries_of(model), model)]

    def _pick(self, data: st.DataObject) -> tuple[Mapping[object, int], dict[object, int]]:
        return self.versions[data.draw(st.integers(0, len(self.versions) - 1))]

    @rule(data=st.data(), numbers=st.lists(st.integers(0, 1000), min_size=1), value=st.integers())
    def put(self, data: st.DataObject, numbers: list[int], value: int) -> None:
        built, model = self._pick(data)
        model = dict(model)
        for number in numbers:
            built = with_entry(built, self.key(number), value)
            model[self.key(number)] = value
        self.versions.append((built, model))

    @rule(data=st.data(), count=st.integers(1, 400), step=st.integers(1, 5))
    def drop(self, data: st.DataObject, count: int, step: int) -> None:
        built, model = self._pick(data)
        model = dict(model)
        for key in list(model)[::step][:count]:
            built = without_entry(built, key)
            del model[key]
        self.versions.append((built, model))

    @invariant()
    def the_last_is_its_dict(self) -> None:
        built, model = self.versions[-1]
        assert dict(built.items()) == model
        assert len(built) == len(model)
        assert all(built[key] is value for key, value in model.items())

    def teardown(self) -> None:
        for built, model in getattr(self, "versions", ()):
            assert dict(built) == model
            assert len(built) == len(model)


MapMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=10, deadline=None)


class TestMap(MapMachine.TestCase):
    """Any steps."""


@pytest.mark.torture
class TestMapLong(MapMachine.TestCase):
    """The same for longer."""

    settings = settings(max_examples=1500, stateful_step_count=60, deadline=None)


@settings(max_examples=30)
@given(*[st.dictionaries(st.sampled_from("abc"), st.integers(0, 1))] * 2)
def test_two_maps_are_equal_as_dicts_are(one: dict[str, int], two: dict[str, int]) -> None:
    """Equality with maps and with dicts is that of dicts."""
    assert (entries_of(one) == entries_of(two)) is (one == two)
    assert (entries_of(one) == two) is (one == two)
