"""Saving a session although some of its values have no JSON form."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pydantic import BaseModel

from weakincentives.errors import SessionError, SessionFormatError
from weakincentives.prompt import ToolInvoked, ToolResult
from weakincentives.session import OpaqueValue, Session


@dataclass(frozen=True)
class Note:
    text: str


class Client:
    """A value without a JSON form."""

    def __init__(self, key: str) -> None:
        self.key = key


@dataclass(frozen=True)
class Holder:
    """A slice with open fields."""

    name: str
    value: Any = None
    more: tuple[Any, ...] = ()
    by_name: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Typed:
    """A slice whose field keeps only what its type says."""

    number: int
    client: Client | None = None


class Modelled(BaseModel):
    """A pydantic slice with an open field."""

    name: str
    value: Any = None


def test_an_opaque_value_is_refused_unless_it_may_be_marked() -> None:
    """`on_opaque="error"`, the default, names the type that cannot be saved."""
    session = Session()
    session[Holder].append(Holder("a", Client("secret")))
    with pytest.raises(SessionFormatError, match="Holder cannot be saved"):
        session.to_json()
    with pytest.raises(SessionFormatError, match="Holder cannot be saved"):
        session.to_json(on_opaque="error")
    with pytest.raises(ValueError, match="'error' or 'mark'"):
        session.to_json(on_opaque="skip")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        (Holder("a", Client("k")), Holder("a", OpaqueValue(f"{__name__}:Client"))),
        (Holder("a", more=(1, Client("k"), "x")), Holder("a", more=(1, OpaqueValue(f"{__name__}:Client"), "x"))),
        (
            Holder("a", by_name={"x": Client("k"), "y": [Client("l"), 2]}),
            Holder(
                "a",
                by_name={"x": OpaqueValue(f"{__name__}:Client"), "y": [OpaqueValue(f"{__name__}:Client"), 2]},
            ),
        ),
        (
            Holder("a", Holder("b", Client("k"), more=(3,))),
            Holder("a", Holder("b", OpaqueValue(f"{__name__}:Client"), more=(3,))),
        ),
        (Modelled(name="a", value=Client("k")), Modelled(name="a", value=OpaqueValue(f"{__name__}:Client"))),
        (Holder("a", Typed(1, Client("k"))), Holder("a", OpaqueValue(f"{__name__}:Typed"))),
    ],
    ids=["a field", "a tuple", "a dict", "nested", "a model", "a typed field"],
)
def test_what_a_mark_looks_like(saved: Any, loaded: Any) -> None:
    """The smallest part that cannot be saved is replaced by the name of its type; everything else comes back."""
    session = Session()
    kind = cast(type[Any], type(saved))
    session[kind].seed([saved, replaced(saved)])
    text = session.to_json(on_opaque="mark")
    assert '"k"' not in text
    back = Session.from_json(text, types=[Holder, Modelled])
    assert back[kind].all() == (loaded, replaced(saved))
    assert back.to_json() == text


def replaced(value: Any) -> Any:
    """The same without anything opaque."""
    return Modelled(name="whole") if isinstance(value, Modelled) else Holder("whole")


def test_what_cannot_be_marked_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """An item whose declared fields cannot hold a mark is left out, which both logs say."""
    session = Session()
    session[Note].append(Note("kept"))
    session[Typed].seed([Typed(1, Client("k"))])
    with caplog.at_level(logging.WARNING, logger="weakincentives"):
        text = session.to_json(on_opaque="mark")
    assert "Typed" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="weakincentives"):
        back = Session.from_json(text, types=[Note])
    assert back[Note].all() == (Note("kept"),)
    assert back[Typed].count() == 0
    assert "1 item" in caplog.text
    assert "Typed" in caplog.text


def test_the_log_is_saved_with_an_opaque_result() -> None:
    """One tool result that cannot be saved leaves the rest of the log as it was."""
    session = Session()
    session.record(ToolInvoked("a", params={"x": 1}, result=ToolResult.ok(Client("k"), message="Made."), call_id="1"))
    session.record(ToolInvoked("b", params={"y": Client("k")}, result=ToolResult.ok("fine"), call_id="2"))
    session.record(ToolInvoked("c", result=ToolResult.ok("fine"), call_id="3"))
    with pytest.raises(SessionFormatError):
        session.to_json()
    back = Session.from_json(session.to_json(on_opaque="mark"), types=[ToolInvoked, ToolResult])
    first, second, third = back[ToolInvoked].all()
    assert first.result == ToolResult.ok(OpaqueValue(f"{__name__}:Client"), message="Made.")
    assert (first.params, first.event_id) == ({"x": 1}, session[ToolInvoked].all()[0].event_id)
    assert second.params == {"y": OpaqueValue(f"{__name__}:Client")}
    assert third == session[ToolInvoked].all()[2]


def test_values_that_hold_themselves_are_marked() -> None:
    """A value that never ends is opaque where it begins again."""
    endless: list[Any] = [1]
    endless.append(endless)
    session = Session()
    session[Holder].append(Holder("a", endless))
    back = Session.from_json(session.to_json(on_opaque="mark"), types=[Holder])
    assert back[Holder].all() == (Holder("a", [1, OpaqueValue("builtins:list")]),)


def test_a_value_that_breaks_when_it_is_looked_at_is_marked() -> None:
    """A value whose own code raises is opaque; it does not keep the session from being saved."""

    class Hostile:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no comparison")

        __hash__ = None  # pyright: ignore[reportAssignmentType]

    class Table(dict[str, Any]):
        def __init__(self) -> None:
            super().__init__(x=Hostile())

    session = Session()
    session[Holder].append(Holder("a", Table(), more=(Hostile(),)))
    (item,) = Session.from_json(session.to_json(on_opaque="mark"), types=[Holder])[Holder].all()
    assert isinstance(item.value, OpaqueValue | dict)
    assert isinstance(item.more[0], OpaqueValue)


# Clearing a log.


def test_an_owner_clears_one_log() -> None:
    """`clear_log` empties the log of one type, or what satisfies a predicate, and nothing else."""
    session = Session()
    session[Note].append(Note("state"))
    for name in ("a", "b", "c"):
        session.record(ToolInvoked(name))
    seen = session[ToolInvoked].all()
    session.clear_log(ToolInvoked, lambda event: event.tool_name != "b")
    assert [event.tool_name for event in session[ToolInvoked].all()] == ["b"]
    before = session.snapshot()
    session.clear_log(ToolInvoked)
    assert session[ToolInvoked].count() == 0
    assert [change.slice_type for change in session.changes(before, logs=True)] == [ToolInvoked]
    assert session[Note].all() == (Note("state"),)
    assert len(seen) == 3
    session.record(ToolInvoked("d"))
    assert session[ToolInvoked].count() == 1


def test_only_the_owner_clears_a_log() -> None:
    """A guarded handle, as tools have it, may not; and only a LOG slice is a log."""
    session = Session()
    session.record(ToolInvoked("a"))

    class Guard:
        def __enter__(self) -> None: ...
        def __exit__(self, *exc: object) -> None: ...

    with pytest.raises(SessionError, match="owner"):
        session.guarded(Guard()).clear_log(ToolInvoked)
    with pytest.raises(SessionError, match=r"Note is a STATE slice; use session\[Note\]\.clear"):
        session.clear_log(Note)
    with pytest.raises(ZeroDivisionError):
        session.clear_log(ToolInvoked, lambda event: 1 / 0)
    assert session[ToolInvoked].count() == 1


def test_a_key_that_is_not_unicode_is_a_value_without_a_json_form() -> None:
    """A lone surrogate as the key of a mapping is refused as everything else that cannot be saved, and marked alike."""
    session = Session()
    session[Holder].append(Holder("a", {"\ud800": 1}))
    with pytest.raises(SessionFormatError, match="Holder cannot be saved"):
        session.to_json()
    assert "cannot be saved" not in session.to_json(on_opaque="mark")
