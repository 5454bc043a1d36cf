"""Results that were cut can be read on with `read_tool_result`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.world import Go, World, make_tool, ok

from weakincentives.prompt import ToolResult
from weakincentives.prompt.tree import BoundTool
from weakincentives.runtime.truncation import TruncatedResults

TEXT = "".join(f"line {number}\n" for number in range(1000))


def long(params: Go) -> ToolResult[Any]:
    return ok(TEXT) if params.how == "" else ToolResult.error(TEXT)


def world_with_a_cut() -> World:
    world = World(make_tool(long, max_result_chars=1000))
    assert world.call().text.startswith(TEXT[:1000])
    return world


def test_the_rest_can_be_read_piece_by_piece() -> None:
    """Reading on from the offset named in each reply gives the whole text."""
    world = world_with_a_cut()
    read, offset, head = TEXT[:1000], 1000, ""
    while offset < len(TEXT):
        reply = world.call("read_tool_result", {"call_id": "call-1", "offset": offset, "limit": 3000})
        head, part = reply.text.split("\n", 1)
        assert head.startswith(f"Characters {offset} to ")
        read, offset = read + part, offset + len(part)
    assert read == TEXT
    assert head.endswith(", the end")


@given(offset=st.integers(0, 20_000), limit=st.integers(1, 16_384))
def test_any_part_can_be_read(offset: int, limit: int) -> None:
    """Any offset and limit within bounds gives exactly that part, or says how long the text is."""
    tools: dict[str, BoundTool] = {}
    cuts = TruncatedResults(tools)
    cuts.truncate("id", TEXT, 100)
    tool = tools["read_tool_result"].tool
    result: ToolResult[Any] = tool.call(
        tool.parse({"call_id": "id", "offset": offset, "limit": limit}), None  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    if offset < len(TEXT):
        assert result.value is not None
        assert result.value.text == TEXT[offset : offset + limit]
    else:
        assert result.message == f"The result has {len(TEXT)} characters\nUse an offset below that"


def test_wrong_requests_are_told_what_to_do() -> None:
    """An unknown id names those that can be read; limits out of range are refused like any wrong argument."""
    world = world_with_a_cut()
    reply = world.call("read_tool_result", {"call_id": "other"})
    assert reply.text == "No cut result with the id 'other'\nResults that can be read: call-1"
    for wrong in ({"offset": -1}, {"limit": 0}, {"limit": 10**6}, {"offset": "1"}):
        assert world.call("read_tool_result", {"call_id": "call-1", **wrong}).outcome == "invalid"


def test_failures_can_be_read_on_too() -> None:
    """A long failure is cut and can be read on like a success."""
    world = World(make_tool(long, max_result_chars=1000))
    assert "[Cut: 1000 of " in world.call(arguments={"how": "fail"}).text
    assert world.call("read_tool_result", {"call_id": "call-1", "offset": 1000, "limit": 10}).success


def test_the_tool_is_offered_once_something_was_cut() -> None:
    """Before the first cut the tool does not exist, afterwards it is among the tools, read-only."""
    world = World(make_tool(long, max_result_chars=1000))
    assert [tool.name for tool in world.executor.tools] == ["act"]
    assert world.call("read_tool_result", {"call_id": "x"}).outcome == "unknown_tool"
    world.call()
    offered = world.executor.tools[-1]
    assert (offered.name, offered.annotations.read_only) == ("read_tool_result", True)


def test_reading_is_itself_capped() -> None:
    """What `read_tool_result` returns is never cut again."""
    world = World(make_tool(long, max_result_chars=1000))
    world.call()
    reply = world.call("read_tool_result", {"call_id": "call-1", "limit": 16_384})
    assert len(reply.text) > 8_000
    assert "[Cut" not in reply.text


def test_the_oldest_texts_go() -> None:
    """At most 64 texts and 32 million characters are kept; the oldest go first."""
    cuts = TruncatedResults({})
    for number in range(100):
        cuts.truncate(f"id-{number}", "x" * 200, 100)
    assert list(cuts._texts) == [f"id-{number}" for number in range(36, 100)]
    cuts.truncate("huge", "x" * (33 * 1024 * 1024), 100)
    assert list(cuts._texts) == ["huge"]
    cuts.truncate("again", "y" * 200, 100)
    assert list(cuts._texts) == ["again"]
    assert cuts._chars == 200
