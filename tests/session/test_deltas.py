"""What changed in a session, as data that another process can apply."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples

from weakincentives.errors import SessionFormatError
from weakincentives.persistent_map import changed_entries, entries_of, with_entry, without_entry
from weakincentives.session import Replace, Session, SlicePolicy, reducer, replace_latest
from weakincentives.session.deltas import adopt_id, apply_delta, dump_delta, show, type_finder, types_of
from weakincentives.session.encoding import encode_all


@dataclass(frozen=True)
class Item:
    name: str
    count: int = 0


@dataclass(frozen=True)
class Special(Item):
    extra: Any = None


@dataclass(frozen=True)
class Noticed:
    text: str
    slice_policy = SlicePolicy.LOG


@dataclass(frozen=True)
class Unwritable:
    value: object = field(default_factory=object)


FIND = type_finder([Item, Special, Noticed, Unwritable])


def through_text(delta: dict[str, Any]) -> dict[str, Any]:
    """As another process gets it."""
    return json.loads(json.dumps(delta))


class Whole(int):
    pass


@dataclass(frozen=True)
class Row:
    name: str
    count: int | None = 0
    done: bool = False


ROWS = type_finder([Row, Item, Special])
ODD: list[Any] = [
    Row(3), Row("a", "b"), Row("a", True), Row("a", 1.5), Row("a", Whole(3)), Row("a", 1, 1), Row("\ud800"),  # pyright: ignore[reportArgumentType]
    Row("a", None), Row("a", 10**30),
]  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.builds(Row, st.text(), st.none() | st.integers(), st.booleans()) | st.sampled_from(ODD), max_size=60)
)
def test_many_items_are_written_as_each_of_them_is(rows: list[Row]) -> None:
    """Or refused alike: that all of them are looked at together makes no difference, whatever stands in a field."""
    together, one_by_one = Session(), Session()
    together[Row].seed(rows)
    _, _, since = dump_delta(one_by_one, None, ROWS)
    try:
        each: list[Any] = []
        for row in rows:
            one_by_one[Row].append(row)
            delta, _, since = dump_delta(one_by_one, since, ROWS)
            each += delta["slices"][0][2][2]
    except SessionFormatError as error:
        with pytest.raises(SessionFormatError, match=re.escape(str(error))):
            dump_delta(together, None, ROWS)
    else:
        keep, replaced, added = dump_delta(together, None, ROWS)[0]["slices"][0][2]
        assert (keep, replaced, repr(added)) == (0, {}, repr(each))  # as text: 1 and True are equal


@dataclass
class Made:
    text: str

    def __post_init__(self) -> None:
        self.text += "!"


@dataclass(frozen=True)
class Open:
    value: Any


@dataclass(frozen=True)
class Many:
    values: tuple[int, ...]


@pytest.mark.parametrize("cls", [Made, Open, Many, Special, int, str])
def test_only_classes_of_plain_fields_are_written_together(cls: type[Any]) -> None:
    """Classes that change their values, or whose values have parts, are looked at one by one."""
    assert encode_all(cls, []) is None


def test_plain_items_are_written_together() -> None:
    """Those of the class itself; one of a subclass among them, and each is looked at."""
    items = [Item(f"i{n}", n) for n in range(20)]
    assert encode_all(Item, items) == [{"name": f"i{n}", "count": n} for n in range(20)]
    assert encode_all(Item, [*items, Special("s")]) is None
    session, copy = Session(), Session()
    session[Item].seed([*items, Special("s", 1, Item("inner"))])
    apply_delta(copy, through_text(dump_delta(session, None, ROWS)[0]), ROWS)
    assert copy[Item].all() == session[Item].all()


@pytest.mark.parametrize("seed", range(20))
def test_the_deltas_of_a_session_rebuild_it(seed: int) -> None:
    """However it was changed between two rows: slices, subclasses, open fields, logs, notes, clears."""
    chance = random.Random(seed)
    session, copy = Session(), Session()
    since = None
    for _ in range(12):
        for _ in range(chance.randrange(6)):
            match chance.randrange(8):
                case 0:
                    session[Item].clear(lambda item: item.count % 2 == 0)
                case 1:
                    session[Item].append(Special("s", chance.randrange(9), {"x": Item("inner"), "y": (1, 2)}))
                case 2:
                    session.dispatch(Noticed(f"n{chance.random()}"))
                case 3:
                    session.note(("wrote", f"f{chance.randrange(300)}"), chance.choice([None, "a", "b"]))
                case 4:
                    session.reset()
                case _:
                    session[Item].append(Item("i", chance.randrange(9)))
        delta, _, since = dump_delta(session, since, FIND)
        apply_delta(copy, through_text(delta), FIND)
        assert copy[Item].all() == session[Item].all()
        assert [type(item) for item in copy[Item].all()] == [type(item) for item in session[Item].all()]
        assert copy[Noticed].all() == session[Noticed].all()
        for number in range(300):
            assert copy.noted(("wrote", f"f{number}")) == session.noted(("wrote", f"f{number}"))


def test_nothing_changed_is_nothing() -> None:
    """A row of a call that changed nothing carries nothing."""
    session = Session()
    session[Item].append(Item("a"))
    _, _, since = dump_delta(session, None, FIND)
    assert dump_delta(session, since, FIND)[0] == {}


def test_a_slice_that_is_as_it_was_at_first_is_told_from_an_empty_one() -> None:
    """After a reset a slice shows its initial content again, whatever that will be."""
    session, copy = Session(), Session()
    session[Item].append(Item("a"))
    delta, _, since = dump_delta(session, None, FIND)
    apply_delta(copy, through_text(delta), FIND)
    session.reset()
    apply_delta(copy, through_text(dump_delta(session, since, FIND)[0]), FIND)
    assert dump_delta(copy, None, FIND)[0] == {}


@dataclass(frozen=True)
class Totals:
    value: int = 0

    @reducer(on=Noticed)
    def notice(self, event: Noticed) -> Replace[Totals]:
        return Replace([Totals(self.value + len(event.text))])


def test_an_emptied_slice_is_written_as_empty() -> None:
    """What it held at first is not what it holds, also where nothing was written before."""
    session, copy = Session(), Session()
    for one in (session, copy):
        one.install(Totals, initial=Totals(7))
    session[Totals].clear()
    apply_delta(copy, through_text(dump_delta(session, None, type_finder([Totals]))[0]), type_finder([Totals]))
    assert list(copy[Totals].all()) == []


@dataclass(frozen=True)
class Plan:
    steps: tuple[str, ...] = ()


def test_what_could_not_be_read_is_not_written() -> None:
    """A class that is not known, and a value that would not come back, are refused when they are written."""
    session = Session()
    session[Plan].append(Plan())
    with pytest.raises(SessionFormatError, match="Plan is not among the classes"):
        dump_delta(session, None, FIND)
    session = Session()
    session[Unwritable].append(Unwritable())
    with pytest.raises(SessionFormatError, match="Unwritable"):
        dump_delta(session, None, FIND)
    session = Session()
    session[Item].append(Special("s", 1, Plan()))
    with pytest.raises(SessionFormatError, match="Plan is not among the classes"):
        dump_delta(session, None, FIND)


def test_damaged_data_changes_nothing() -> None:
    """Of a delta that cannot be read nothing is applied."""
    session = Session()
    session[Item].append(Item("a"))
    good, _, _ = dump_delta(session, None, FIND)
    name = good["slices"][0][0]
    changes: list[Any] = [[1], [0, [], []], ["x", {}, []], [0, {}, [[{"name": 1}]]], [9, {}, []]]
    for change in changes:
        with pytest.raises((SessionFormatError, IndexError)):
            apply_delta(session, {"slices": [*good["slices"], [name, "state", change]]}, FIND)
        assert session[Item].all() == [Item("a")]


def test_a_session_shows_recorded_content() -> None:
    """What the program put there gives way; its reducers and subscribers stay, and so do slices that are left out."""
    recorded = Session(session_id="first")
    recorded[Item].append(Item("kept"))
    recorded.dispatch(Noticed("logged"))
    recorded.note(("wrote", "a"), "b")
    session = Session()
    session[Item].register(str, lambda view, event: replace_latest(view, Item(event)))
    session[Item].append(Item("seeded"))
    session.dispatch(Other("own"))
    show(session, recorded, skip=[Other])
    adopt_id(session, "first")
    assert session.session_id == "first"
    assert session[Item].all() == [Item("kept")]
    assert session[Noticed].all() == [Noticed("logged")]
    assert session[Other].all() == [Other("own")]
    assert session.noted(("wrote", "a")) == "b"
    assert Item in types_of(session)


@dataclass(frozen=True)
class Other:
    text: str
    slice_policy = SlicePolicy.LOG


def test_content_that_cannot_be_read_leaves_a_session_alone() -> None:
    """A class that is not known changes nothing."""
    session = Session(session_id="own")
    session[Item].append(Item("seeded"))
    with pytest.raises(SessionFormatError):
        apply_delta(session, {"slices": [["no.such:Class", "state", [0, {}, []]]]}, FIND)
    assert session[Item].all() == [Item("seeded")]


def test_changed_entries_of_large_mappings() -> None:
    """The same as comparing all entries."""
    chance = random.Random(1)
    before = entries_of({number: object() for number in range(5000)})
    after = before
    for _ in range(200):
        key = chance.randrange(6000)
        after = (
            without_entry(after, key) if key in after and chance.random() < 0.3 else with_entry(after, key, object())
        )
    expected = {key: value for key, value in after.items() if before.get(key) is not value}
    expected |= {key: None for key in before if key not in after}
    assert dict(changed_entries(before, after)) == expected
    assert len(changed_entries(before, after)) == len(expected)
