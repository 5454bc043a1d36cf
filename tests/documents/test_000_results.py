"""000, "ToolResult Semantics"."""

import logging
from dataclasses import dataclass

from weakincentives.results import ToolResult


@dataclass(slots=True, frozen=True)
class MyResult:
    answer: str

    def render(self) -> str:
        return self.answer


def test_toolresult_semantics():
    # Success with typed value (most common)
    done = ToolResult.ok(MyResult("42"), message="Done")
    assert (done.success, done.value, done.message) == (True, MyResult("42"), "Done")

    # Failure with no value
    failed = ToolResult.error("Something went wrong")
    assert (failed.success, failed.value) == (False, None)

    # Full form (when exclude_value_from_context is needed)
    full = ToolResult(
        message="Human-readable status",
        value={"large": "payload"},       # dataclass | mapping | sequence | str | None
        success=True,                     # if False, adapters treat as tool failure
        exclude_value_from_context=False, # hide large payloads from model context
    )
    assert full.render() == 'Human-readable status\n{"large":"payload"}'


def test_key_behaviors(caplog):
    @dataclass
    class NoRender:
        n: int

    assert ToolResult.ok(MyResult("42")).render() == "OK\n42"
    with caplog.at_level(logging.WARNING):
        assert ToolResult.ok(NoRender(1)).render() == 'OK\n{"n":1}'
    assert "has no render()" in caplog.text

    hidden = ToolResult(message="Read 1 MB", value=MyResult("x" * 10**6), exclude_value_from_context=True)
    assert hidden.render() == "Read 1 MB"
