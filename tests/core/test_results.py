"""Tool results and the text the model reads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pytest

from weakincentives.results import ToolRenderableResult, ToolResult, render_value


@dataclass(frozen=True)
class Rendered:
    n: int

    def render(self) -> str:
        return f"<{self.n}>"


@dataclass(frozen=True)
class Plain:
    n: int
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Broken:
    def render(self) -> str:
        return 7  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Rendered(1), "<1>"),
        (Plain(1, ("a",)), '{"n":1,"tags":["a"]}'),
        ({"a": 1}, '{"a":1}'),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        ([Rendered(1), "two", 3], "<1>\ntwo\n3"),
        ((), ""),
        ("as it is", "as it is"),
        (None, ""),
        (7, "7"),
        (True, "true"),
        (1.5, "1.5"),
        (b"bytes", '"bytes"'),
        (frozenset({"x"}), "x"),
        (float("nan"), '"NaN"'),
    ],
)
def test_the_render_rules(value: object, text: str) -> None:
    """`render()`, JSON for dataclasses and mappings, lines for sequences, text as it is, nothing for None."""
    assert render_value(value) == text


def test_a_missing_render_is_logged_once_a_type(caplog: pytest.LogCaptureFixture) -> None:
    """The second value of the type is silent."""

    @dataclass
    class Silent:
        n: int

    with caplog.at_level(logging.WARNING):
        render_value(Silent(1))
        render_value([Silent(2), Silent(3)])
    name = f"{Silent.__module__}.{Silent.__qualname__}"
    expected = f"{name} has no render(), so the model reads JSON. Add one to choose the text."
    assert [r.getMessage() for r in caplog.records if "Silent" in r.getMessage()] == [expected]


def test_render_must_give_text() -> None:
    """A `render()` that returns something else is named."""
    with pytest.raises(TypeError, match=r"Broken\.render\(\) must return a str, got int"):
        render_value(Broken())


def test_a_value_without_json_form_is_shown_as_repr(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is lost, and the log says what to do."""
    value: Mapping[str, object] = {"f": len}
    assert render_value(value) == repr(value)
    assert "Give it a render()" in caplog.text


def test_the_reply_is_message_then_value() -> None:
    """Only the message when the value is empty or excluded."""
    assert ToolResult.ok(Rendered(1), message="Done").render() == "Done\n<1>"
    assert ToolResult.ok("", message="Done").render() == "Done"
    assert ToolResult.ok([], message="Done").render() == "Done"
    assert ToolResult.error("No.").render() == "No."
    assert ToolResult("Big", "x" * 99, exclude_value_from_context=True).render() == "Big"


def test_the_constructors() -> None:
    """`ok` and `error` are the full form with the usual fields."""
    assert ToolResult.ok(1) == ToolResult(message="OK", value=1, success=True)
    assert ToolResult.error("no") == ToolResult(message="no", value=None, success=False)
    assert isinstance(Rendered(1), ToolRenderableResult)


def test_removed_arguments_are_explained() -> None:
    """`payload` says where it went; a typo is named."""
    with pytest.raises(TypeError, match=r"payload=\) is now ToolResult\(value=\)"):
        ToolResult(message="m", payload=1)
    with pytest.raises(TypeError, match="'sucess'"):
        ToolResult(message="m", sucess=True)
