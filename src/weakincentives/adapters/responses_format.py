"""OpenAI Responses on the wire. Nothing is stored there: the whole conversation is sent, reasoning encrypted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

from ..loop.request import ModelRequest, ModelTurn, StopReason, ToolSpec
from ..loop.throttle import FailureKind, RequestFailed
from ..runtime.messages import AnswerMessage, CallMessage, Message, ModelMessage
from .sdk_adapter import openai_usage
from .strict import strict_schema, without_nulls

PROVIDER = "openai"
_PLAIN = frozenset({"message", "function_call"})


def responses_arguments(request: ModelRequest, *, strict: bool, native_output: bool) -> dict[str, Any]:
    """The body of a request, without the model."""
    made: dict[str, Any] = {
        "input": [item for message in request.messages for item in _items(message)],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if request.system is not None:
        made["instructions"] = request.system
    if request.tools:
        made["tools"] = [_tool(spec, strict=strict) for spec in request.tools]
    schema = strict_schema(request.output_schema) if native_output and request.output_schema else None
    if schema is not None:
        made["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}}
    if request.on_text is not None:
        made["stream"] = True
    return made


def _items(message: Message) -> Iterable[dict[str, Any]]:
    if isinstance(message, AnswerMessage):
        yield {"type": "function_call_output", "call_id": message.call_id, "output": message.text}
    elif not isinstance(message, ModelMessage):
        yield {"role": "user", "content": message.text}
    elif message.native and message.provider == PROVIDER:
        yield from message.native
    else:
        if message.text or not message.calls:
            yield {"role": "assistant", "content": message.text}
        for call in message.calls:
            arguments = call.arguments or "{}"
            yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}


def _tool(spec: ToolSpec, *, strict: bool) -> dict[str, Any]:
    projected = strict_schema(spec.schema) if strict else None
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.text,
        "parameters": projected or spec.schema,
        "strict": projected is not None,  # left out it would mean true
    }


def read_responses(response: Any, request: ModelRequest) -> ModelTurn:
    """The turn in a response; `RequestFailed` for one that says it failed."""
    if response.status == "failed":
        raise _failed(response.error)
    schemas = {spec.name: spec.schema for spec in request.tools}
    texts: list[str] = []
    calls: list[CallMessage] = []
    refused = False
    for item in response.output:
        if item.type == "message":
            for part in item.content:
                refused = refused or part.type == "refusal"
                texts.append(part.refusal if part.type == "refusal" else part.text)
        elif item.type == "function_call":
            arguments = without_nulls(schemas.get(item.name, {}), item.arguments or "")
            calls.append(CallMessage(item.call_id or "", item.name or "", arguments))
    text = "".join(texts)
    if request.output_schema is not None and not calls:
        text = without_nulls(request.output_schema, text)
    native: tuple[dict[str, Any], ...] = ()
    if any(item.type not in _PLAIN for item in response.output):  # reasoning must go back as it came
        native = tuple(item.model_dump(mode="json", exclude_unset=True, warnings=False) for item in response.output)
    return ModelTurn(text, tuple(calls), openai_usage(response.usage), _reason(response, calls, refused), native)


def _reason(response: Any, calls: list[CallMessage], refused: bool) -> StopReason:
    if calls:
        return "tool_use"
    details = getattr(response, "incomplete_details", None)
    cut = getattr(details, "reason", None)
    if refused or cut == "content_filter":
        return "refusal"
    return "max_tokens" if cut == "max_output_tokens" else "end_turn"


def _failed(error: Any) -> RequestFailed:
    code, text = getattr(error, "code", None) or "", getattr(error, "message", None) or "the response failed"
    kinds: dict[str, FailureKind] = {"rate_limit_exceeded": "throttled", "server_error": "server"}
    return RequestFailed(kinds.get(code, "refused"), f"{code}: {text}" if code else text)


@final
class ResponsesStream:
    """Passes text on and keeps the response that the last event carries."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._response: Any = None

    def feed(self, event: Any, /) -> None:
        """Take the next event."""
        if event.type == "response.output_text.delta" and self._request.on_text is not None:
            self._request.on_text(event.delta)
        elif event.type in {"response.completed", "response.incomplete", "response.failed"}:
            self._response = event.response
        elif event.type == "error":
            raise _failed(event)

    def turn(self) -> ModelTurn:
        """The whole; `RequestFailed` when the stream ended too soon."""
        if self._response is None:
            raise RequestFailed("connection", "the stream ended before the answer was complete")
        return read_responses(self._response, self._request)


__all__ = ["PROVIDER", "ResponsesStream", "read_responses", "responses_arguments"]
