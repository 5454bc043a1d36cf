"""OpenAI Chat Completions on the wire; LiteLLM and most servers that call themselves compatible speak it too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

from ..content import Content, Image, shown_name
from ..loop.request import ModelRequest, ModelTurn, RequestFailed, StopReason, ToolSpec
from ..runtime.messages import AnswerMessage, CallMessage, Message, ModelMessage, UserMessage
from ..serde.schema import copied
from .model_settings import LEFT_TO_THE_PROVIDER, ModelSettings
from .sdk_adapter import data_url, openai_usage
from .strict import strict_schema, without_nulls

_STOP_REASONS: dict[str, StopReason] = {"length": "max_tokens", "content_filter": "refusal"}


def chat_arguments(
    request: ModelRequest, settings: ModelSettings = LEFT_TO_THE_PROVIDER, *, strict: bool, native_output: bool
) -> dict[str, Any]:
    """The body of a request, without the model."""
    made: dict[str, Any] = {"messages": list(_messages(request)), **settings.sampling}
    if request.tools:
        made["tools"] = [_tool(spec, strict=strict) for spec in request.tools]
    choice = settings.choice(request)
    if choice is not None:
        named = {"type": "function", "function": {"name": choice}}
        made["tool_choice"] = choice if choice in {"auto", "required", "none"} else named
    schema = strict_schema(request.output_schema) if native_output and request.output_schema else None
    if schema is not None:
        made["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": True},
        }
    if request.on_text is not None:
        made.update(stream=True, stream_options={"include_usage": True})
    return made


def _messages(request: ModelRequest) -> Iterable[dict[str, Any]]:
    if request.system is not None:
        yield {"role": "system", "content": request.system}
    shown: list[dict[str, Any]] = []  # by the results of this turn, whose messages take text alone
    for message in request.messages:
        if isinstance(message, AnswerMessage):
            if message.attachments:
                shown.append({"type": "text", "text": f"Shown by the result of the call {message.call_id}:"})
                shown += map(_shown, message.attachments)
        elif shown:
            if isinstance(message, UserMessage):  # two messages of a user in a row are refused by some models
                yield {"role": "user", "content": [*shown, *_parts(message)]}
                shown = []
                continue
            yield {"role": "user", "content": shown}
            shown = []
        yield _message(message)
    if shown:
        yield {"role": "user", "content": shown}


def _parts(message: UserMessage) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": message.text}] if message.text else []
    return [*text, *map(_shown, message.attachments)]


def _shown(content: Content) -> dict[str, Any]:
    if isinstance(content, Image):
        return {"type": "image_url", "image_url": {"url": data_url(content)}}
    return {"type": "file", "file": {"filename": shown_name(content), "file_data": data_url(content)}}


def _message(message: Message) -> dict[str, Any]:
    if isinstance(message, AnswerMessage):
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    if not isinstance(message, ModelMessage):
        return {"role": "user", "content": _parts(message) if message.attachments else message.text}
    made: dict[str, Any] = {"role": "assistant", "content": message.text or (None if message.calls else "")}
    if message.calls:
        made["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}
            for call in message.calls
        ]
    return made


def _tool(spec: ToolSpec, *, strict: bool) -> dict[str, Any]:
    projected = strict_schema(spec.schema) if strict else None
    schema = projected or copied(spec.schema)  # LiteLLM rewrites it in place for some providers
    function: dict[str, Any] = {"name": spec.name, "description": spec.text, "parameters": schema}
    if projected is not None:
        function["strict"] = True
    return {"type": "function", "function": function}


def read_chat(response: Any, request: ModelRequest) -> ModelTurn:
    """The turn in a response."""
    choice = response.choices[0]
    message = choice.message
    calls = tuple(
        CallMessage(call.id or "", call.function.name or "", call.function.arguments or "")
        for call in message.tool_calls or ()
    )
    refusal = getattr(message, "refusal", None)
    text = message.content or refusal or ""
    return chat_turn(text, calls, choice.finish_reason, response.usage, request, refused=bool(refusal))


def chat_turn(
    text: str,
    calls: Iterable[CallMessage],
    finish_reason: str | None,
    usage: Any,
    request: ModelRequest,
    *,
    refused: bool = False,
) -> ModelTurn:
    """The turn, with nulls taken out that stand for optional values left out."""
    schemas = {spec.name: spec.schema for spec in request.tools}
    sound = tuple(
        CallMessage(call.id, call.name, without_nulls(schemas.get(call.name, {}), call.arguments)) for call in calls
    )
    reason: StopReason = "refusal" if refused else _STOP_REASONS.get(finish_reason or "", "end_turn")
    if request.output_schema is not None and not sound:
        text = without_nulls(request.output_schema, text)
    return ModelTurn(text, sound, openai_usage(usage), "tool_use" if sound else reason)


@final
class ChatStream:
    """Puts the pieces of a stream together."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, list[str]] = {}
        self._finish_reason: str | None = None
        self._usage: Any = None

    def feed(self, chunk: Any, /) -> None:
        """Take the next piece."""
        self._usage = getattr(chunk, "usage", None) or self._usage
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        self._finish_reason = choice.finish_reason or self._finish_reason
        delta = choice.delta
        if delta is None:
            return
        if delta.content:
            self._text.append(delta.content)
            if self._request.on_text is not None:
                self._request.on_text(delta.content)
        # Not part of the protocol, but what servers of open models send.
        reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if isinstance(reasoning, str) and self._request.on_reasoning is not None:
            self._request.on_reasoning(reasoning)
        if getattr(delta, "refusal", None):
            self._refusal.append(delta.refusal)
        for piece in delta.tool_calls or ():
            self._add(piece)

    def _add(self, piece: Any) -> None:
        # Some servers leave out the index; a new id begins a new call then.
        index = piece.index if piece.index is not None else len(self._calls) - (0 if piece.id else 1)
        call = self._calls.setdefault(max(index, 0), ["", "", ""])
        call[0] = call[0] or piece.id or ""
        if piece.function is not None:
            call[1] += piece.function.name or ""
            call[2] += piece.function.arguments or ""

    def turn(self) -> ModelTurn:
        """The whole; `RequestFailed` when the stream ended too soon."""
        if self._finish_reason is None:
            raise RequestFailed("connection", "the stream ended before the answer was complete")
        calls = [CallMessage(*self._calls[index]) for index in sorted(self._calls)]
        text = "".join(self._text or self._refusal)
        refused = bool(self._refusal and not self._text)
        return chat_turn(text, calls, self._finish_reason, self._usage, self._request, refused=refused)


__all__ = ["ChatStream", "chat_arguments", "chat_turn", "read_chat"]
