"""004: "`ToolResult` Dataclass", "`Tool` Dataclass" and the handlers of "Validation and Error Handling"."""

from dataclasses import dataclass, field

import pytest

from weakincentives.errors import PromptValidationError
from weakincentives.prompts import Tool, ToolResult


@dataclass
class LookupParams:
    entity_id: str = field(metadata={"description": "Global identifier to fetch"})
    include_related: bool = field(default=False)


@dataclass
class LookupResult:
    entity_id: str
    document_url: str


def lookup_handler(params: LookupParams) -> ToolResult[LookupResult]:
    result = LookupResult(entity_id=params.entity_id, document_url="https://example.com")
    message = f"Fetched entity {result.entity_id}."
    return ToolResult(message=message, value=result)


def test_toolresult_dataclass():
    """`payload` is `value` now; the error says so."""
    assert lookup_handler(LookupParams("e1")).value.entity_id == "e1"
    with pytest.raises(TypeError, match="value="):
        ToolResult(message="m", payload=1)


def test_tool_dataclass():
    """A handler of one argument is enough, and it is optional."""
    lookup_tool = Tool[LookupParams, LookupResult](
        name="lookup_entity",
        description="Fetch structured information for a given entity id.",
        handler=lookup_handler,
    )
    params = lookup_tool.parse('{"entity_id": "e1"}')
    assert lookup_tool.call(params, None).message == "Fetched entity e1."
    assert Tool[LookupParams, LookupResult](name="x", description="y", handler=None).handler is None


def test_validation_and_error_handling_handlers():
    """A handler that does not take the params dataclass is refused with tool and dataclass."""

    def no_params() -> ToolResult[LookupResult]:
        raise NotImplementedError

    def other_params(params: LookupResult) -> ToolResult[LookupResult]:
        raise NotImplementedError

    for handler in (no_params, other_params):
        with pytest.raises(PromptValidationError) as caught:
            Tool[LookupParams, LookupResult](name="lookup_entity", description="Fetch.", handler=handler)
        assert caught.value.tool_name == "lookup_entity"
    assert caught.value.dataclass_type is LookupParams
