"""001, "ToolResult" and its rendering protocol; 004's older spelling."""

import pytest

from weakincentives.results import ToolRenderableResult, ToolResult


def test_result_rendering_protocol():
    class Answer:
        def render(self) -> str: return "42"

    assert isinstance(Answer(), ToolRenderableResult)
    assert ToolResult.ok(Answer()).render() == "OK\n42"


def test_failure_without_value():
    result = ToolResult(message="No filesystem", value=None, success=False)
    assert not result.success


def test_004_payload_says_where_it_went():
    with pytest.raises(TypeError, match="value="):
        ToolResult(message="Fetched entity abc.", payload=object())
