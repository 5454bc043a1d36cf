"""Claude models behind Anthropic's Messages API, or behind any server that speaks it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Unpack, cast, final

from ..content import Content, Image, shown_name
from ..loop.attachments import IMAGE_TYPES, PDF_TYPE, Accepts
from ..loop.request import ModelRequest, ModelTurn, RequestFailed, StopReason, ToolSpec
from ..runtime.messages import AnswerMessage, CallMessage, Message, ModelMessage
from .model_settings import ModelSettings, SettingKeywords
from .sdk_adapter import Accumulator, SdkAdapter, anthropic_usage, base64_of
from .sdk_errors import ProviderWords, load

# Anthropic Messages on the wire.


PROVIDER = "anthropic"
_PLAIN = frozenset({"text", "tool_use"})
_CHOICES = {"auto": {"type": "auto"}, "required": {"type": "any"}, "none": {"type": "none"}}
_STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
    "pause_turn": "pause",
}


def messages_arguments(request: ModelRequest, settings: ModelSettings) -> dict[str, Any]:
    """The body of a request, without model and max_tokens."""
    made: dict[str, Any] = {"messages": _messages(request.messages)}
    if request.system is not None:
        made["system"] = request.system
    if request.tools:
        made["tools"] = [_tool(spec) for spec in request.tools]
    choice = settings.choice(request)
    if choice is not None:
        made["tool_choice"] = _CHOICES.get(choice) or {"type": "tool", "name": choice}
    if request.on_text is not None:
        made["stream"] = True
    return made


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.text, "input_schema": spec.schema}


def _messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Roles alternate: the answers to a turn's calls, and what is said after them, are one message."""
    made: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if isinstance(message, ModelMessage) else "user"
        blocks = list(_blocks(message))
        if not blocks:
            continue  # an empty message is refused
        if made and made[-1]["role"] == role:
            made[-1]["content"].extend(blocks)
        else:
            made.append({"role": role, "content": blocks})
    return made


def _blocks(message: Message) -> Iterable[dict[str, Any]]:
    if isinstance(message, AnswerMessage):
        shown = [shown_block(content) for content in message.attachments]
        yield {
            "type": "tool_result",
            "tool_use_id": message.call_id,
            "content": [{"type": "text", "text": message.text}, *shown] if shown else message.text,
            "is_error": message.is_error,
        }
        return
    if isinstance(message, ModelMessage) and message.native and message.provider == PROVIDER:
        yield from message.native
        return
    if message.text.strip():
        yield {"type": "text", "text": message.text}
    if isinstance(message, ModelMessage):
        for call in message.calls:
            yield {"type": "tool_use", "id": call.id, "name": call.name, "input": _object(call.arguments)}
    else:
        yield from map(shown_block, message.attachments)


def shown_block(content: Content) -> dict[str, Any]:
    """An image or a document as a block of a message, or of a tool's result."""
    source = {"type": "base64", "media_type": content.media_type, "data": base64_of(content)}
    if isinstance(content, Image):
        return {"type": "image", "source": source}
    title = {} if content.name is None else {"title": shown_name(content)}
    return {"type": "document", "source": source, **title}


def _object(arguments: str) -> dict[str, Any]:
    """The arguments as the object the wire wants; what is not an object was answered as invalid already."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def read_messages(response: Any) -> ModelTurn:
    """The turn in a response."""
    texts: list[str] = []
    calls: list[CallMessage] = []
    for block in response.content:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "tool_use":
            calls.append(CallMessage(block.id or "", block.name or "", _json(block.input)))
    native: tuple[dict[str, Any], ...] = ()
    if any(block.type not in _PLAIN for block in response.content):  # signed thinking must go back as it came
        native = tuple(map(_native, response.content))
    reason: StopReason = "tool_use" if calls else _STOP_REASONS.get(response.stop_reason or "", "end_turn")
    return ModelTurn("".join(texts), tuple(calls), anthropic_usage(response.usage), reason, native)


def _native(block: Any) -> dict[str, Any]:
    dumped = block.model_dump(mode="json", exclude_unset=True, warnings=False)
    if block.type == "tool_use" and not isinstance(block.input, dict):
        dumped["input"] = {}  # not an object, so it was answered as invalid; it would not be accepted
    return dumped


def _json(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@final
class MessagesStream:
    """Puts the events of a stream together; argument text is kept as it was written, valid or not."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._blocks: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}
        self._stop_reason: str | None = None
        self._complete = False

    def feed(self, event: Any, /) -> None:
        """Take the next event."""
        kind = event.type
        if kind == "message_start":
            self._count(event.message.usage)
        elif kind == "content_block_start":
            block = event.content_block.model_dump(mode="json", exclude_unset=True)
            self._blocks[event.index] = {**block, "_json": ""}
        elif kind == "content_block_delta":
            self._delta(self._blocks[event.index], event.delta)
        elif kind == "message_delta":
            self._stop_reason = event.delta.stop_reason or self._stop_reason
            self._count(event.usage)
        elif kind == "message_stop":
            self._complete = True

    def _count(self, usage: Any) -> None:
        counted: Mapping[str, Any] = {} if usage is None else usage.model_dump(exclude_none=True)
        self._usage.update(counted)

    def _delta(self, block: dict[str, Any], delta: Any) -> None:
        if delta.type == "text_delta":
            block["text"] = block.get("text", "") + delta.text
            if self._request.on_text is not None:
                self._request.on_text(delta.text)
        elif delta.type == "input_json_delta":
            block["_json"] += delta.partial_json
        elif delta.type == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta.thinking
            if self._request.on_reasoning is not None:
                self._request.on_reasoning(delta.thinking)
        elif delta.type == "signature_delta":
            block["signature"] = delta.signature

    def turn(self) -> ModelTurn:
        """The whole; `RequestFailed` when the stream ended too soon."""
        if not self._complete:
            raise RequestFailed("connection", "the stream ended before the answer was complete")
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        texts: list[str] = []
        calls: list[CallMessage] = []
        native: list[dict[str, Any]] = []
        for block in blocks:
            written = block.pop("_json")
            if block["type"] == "text":
                texts.append(block.get("text", ""))
            elif block["type"] == "tool_use":
                arguments = written or _json(block.get("input") or {})
                calls.append(CallMessage(block.get("id") or "", block.get("name") or "", arguments))
                block["input"] = _object(arguments)
            native.append(block)
        if all(block["type"] in _PLAIN for block in blocks):
            native = []
        reason: StopReason = "tool_use" if calls else _STOP_REASONS.get(self._stop_reason or "", "end_turn")
        return ModelTurn("".join(texts), tuple(calls), anthropic_usage(self._usage), reason, tuple(native))


@final
class AnthropicAdapter(SdkAdapter):
    """Asks through the `anthropic` package.

    Construction raises ImportError without the package (`pip install 'weakincentives[anthropic]'`) and sends nothing.
    The key comes from ANTHROPIC_API_KEY unless it is given; your own server needs none.

    Args:
        model: its name.
        max_tokens: how much the model may write in one turn; the API requires it.
        cache: let the provider keep the beginning of the conversation, so that the next turn costs less.
        base_url: another server.
        extra: further fields of the request's body, such as `{"thinking": {"type": "adaptive"}}`.
        client: your own `anthropic.Anthropic`; `async_client` your own `anthropic.AsyncAnthropic`. Neither is closed
            here.
        options: `temperature`, `top_p`, `tool_choice`, `media_types`;
            those of every adapter: `max_turns`, `throttle`, ...
    """

    accepts: Accepts = Accepts(IMAGE_TYPES | {PDF_TYPE}, max_image=3_900_000, max_total=20 * 1024 * 1024, max_count=100)

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int = 16_384,
        cache: bool = True,
        base_url: str | None = None,
        api_key: str | None = None,
        extra: Mapping[str, Any] | None = None,
        client: Any = None,
        async_client: Any = None,
        **options: Unpack[SettingKeywords],
    ) -> None:
        provider = "Anthropic" if base_url is None else base_url
        words = ProviderWords(provider, "ANTHROPIC_API_KEY", "AnthropicAdapter", model)
        super().__init__(words, base_url, api_key, extra=extra, client=client, async_client=async_client, **options)
        self._sdk = load("anthropic", "anthropic")
        if self.model_settings.seed is not None:
            raise ValueError("seed= is not part of Anthropic's API; leave it out.")
        self._max_tokens = max_tokens
        self._cache = cache

    @property
    def name(self) -> str:
        """The name used in events and error messages."""
        return PROVIDER

    def make_client(self, *, is_async: bool) -> Any:
        """A new client with its retries off."""
        return self.sdk_client(self._sdk, "Anthropic", is_async=is_async)

    def send(self, client: Any, request: ModelRequest, timeout: float) -> Any:
        """Send the request."""
        made = messages_arguments(request, self.model_settings)
        # As fields of the body, since not every version of the package has arguments for them.
        further: dict[str, Any] = {"cache_control": {"type": "ephemeral"}} if self._cache else {}
        further |= {**self.model_settings.sampling, **self.extra}
        return client.messages.create(
            model=self.model, max_tokens=self._max_tokens, timeout=timeout, extra_body=further or None, **made
        )

    def read(self, response: Any, request: ModelRequest) -> ModelTurn:  # noqa: ARG002 - nothing to undo here
        """The turn in a response."""
        return read_messages(response)

    def accumulator(self, request: ModelRequest) -> Accumulator:
        """What puts a stream together."""
        return MessagesStream(request)
