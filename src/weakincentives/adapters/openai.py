"""Models behind OpenAI's API, or behind any server that speaks it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Unpack, final

from ..content import Content, Image, shown_name
from ..loop.attachments import IMAGE_TYPES, PDF_TYPE, Accepts
from ..loop.request import FailureKind, ModelRequest, ModelTurn, RequestFailed, StopReason, ToolSpec
from ..runtime.messages import AnswerMessage, CallMessage, Message, ModelMessage, UserMessage
from .chat_format import ChatStream, chat_arguments, read_chat
from .model_settings import ModelSettings, SettingKeywords
from .sdk_adapter import Accumulator, SdkAdapter, data_url, openai_usage
from .sdk_errors import ProviderWords, load
from .strict import strict_schema, without_nulls

Api = Literal["responses", "chat"]

# OpenAI Responses on the wire. Nothing is stored there: the whole conversation is sent, reasoning encrypted.


PROVIDER = "openai"
_CHOICES = frozenset({"auto", "required", "none"})
_PLAIN = frozenset({"message", "function_call"})


def responses_arguments(
    request: ModelRequest, settings: ModelSettings, *, strict: bool, native_output: bool
) -> dict[str, Any]:
    """The body of a request, without the model."""
    made: dict[str, Any] = {
        "input": [item for message in request.messages for item in _items(message)],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        **settings.sampling,
    }
    if request.system is not None:
        made["instructions"] = request.system
    if request.tools:
        made["tools"] = [_tool(spec, strict=strict) for spec in request.tools]
    choice = settings.choice(request)
    if choice is not None:
        made["tool_choice"] = choice if choice in _CHOICES else {"type": "function", "name": choice}
    schema = strict_schema(request.output_schema) if native_output and request.output_schema else None
    if schema is not None:
        made["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}}
    if request.on_text is not None:
        made["stream"] = True
    return made


def _items(message: Message) -> Iterable[dict[str, Any]]:
    if isinstance(message, AnswerMessage):
        yield {"type": "function_call_output", "call_id": message.call_id, "output": _content(message)}
    elif not isinstance(message, ModelMessage):
        yield {"role": "user", "content": _content(message)}
    elif message.native and message.provider == PROVIDER:
        yield from message.native
    else:
        if message.text or not message.calls:
            yield {"role": "assistant", "content": message.text}
        for call in message.calls:
            arguments = call.arguments or "{}"
            yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}


def _content(message: UserMessage | AnswerMessage) -> str | list[dict[str, Any]]:
    if not message.attachments:
        return message.text
    text = [{"type": "input_text", "text": message.text}] if message.text else []
    return [*text, *map(_shown, message.attachments)]


def _shown(content: Content) -> dict[str, Any]:
    if isinstance(content, Image):
        return {"type": "input_image", "image_url": data_url(content), "detail": "auto"}
    return {"type": "input_file", "filename": shown_name(content), "file_data": data_url(content)}


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


_REASONING = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


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
        elif event.type in _REASONING and self._request.on_reasoning is not None:
            self._request.on_reasoning(event.delta)
        elif event.type in {"response.completed", "response.incomplete", "response.failed"}:
            self._response = event.response
        elif event.type == "error":
            raise _failed(event)

    def turn(self) -> ModelTurn:
        """The whole; `RequestFailed` when the stream ended too soon."""
        if self._response is None:
            raise RequestFailed("connection", "the stream ended before the answer was complete")
        return read_responses(self._response, self._request)


@final
class OpenAIAdapter(SdkAdapter):
    """Asks through the `openai` package: the Responses API, or Chat Completions.

    Construction raises ImportError without the package (`pip install 'weakincentives[openai]'`) and sends nothing. The
    key comes from OPENAI_API_KEY unless it is given; your own server needs none.

    Args:
        model: its name.
        api: "responses", or "chat"; without it, Chat Completions when there is a `base_url`, since other servers
            know that one best.
        base_url: another server, such as vLLM, Ollama or llama.cpp; without it, what OPENAI_BASE_URL says.
        strict: have the server enforce the tools' schemas. Optional fields become nullable for that and come
            back as their defaults; a schema with no strict form is sent as it is.
        native_output: likewise for the final answer of a typed prompt.
        max_tokens: how much the model may write in one turn.
        extra: further fields of the request's body, such as `{"user": "ada"}`.
        client: your own `openai.OpenAI`; `async_client` your own `openai.AsyncOpenAI`. Neither is closed here.
        options: `temperature`, `top_p`, `seed`, `tool_choice`, `media_types`;
            those of every adapter: `max_turns`, `throttle`, ...
    """

    accepts: Accepts = Accepts(IMAGE_TYPES | {PDF_TYPE}, max_count=500)

    def __init__(
        self,
        model: str,
        *,
        api: Api | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        strict: bool = True,
        native_output: bool = True,
        max_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
        client: Any = None,
        async_client: Any = None,
        **options: Unpack[SettingKeywords],
    ) -> None:
        if base_url is None and client is None and async_client is None:
            base_url = os.environ.get("OPENAI_BASE_URL") or None  # the SDK reads it, too, but not which API to speak
        words = ProviderWords("OpenAI" if base_url is None else base_url, "OPENAI_API_KEY", "OpenAIAdapter", model)
        if base_url is not None and api != "responses" and options.get("media_types") is None:
            options["media_types"] = IMAGE_TYPES  # few other servers take files
        super().__init__(words, base_url, api_key, extra=extra, client=client, async_client=async_client, **options)
        self._sdk = load("openai", "openai")
        self.api: Api = api or ("responses" if base_url is None else "chat")
        if self.api not in {"responses", "chat"}:
            raise ValueError(f"api must be 'responses' or 'chat', got {api!r}.")
        if self.api == "responses" and self.model_settings.seed is not None:
            raise ValueError("seed= is not part of OpenAI's Responses API; use api='chat', or leave it out.")
        self._strict = strict
        self._native_output = native_output
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        """The name used in events and error messages."""
        return PROVIDER

    def make_client(self, *, is_async: bool) -> Any:
        """A new client with its retries off."""
        return self.sdk_client(self._sdk, "OpenAI", is_async=is_async)

    def send(self, client: Any, request: ModelRequest, timeout: float) -> Any:
        """Send the request."""
        options = {"strict": self._strict, "native_output": self._native_output}
        if self.api == "chat":
            made = chat_arguments(request, self.model_settings, **options)
            limit = {} if self._max_tokens is None else {"max_completion_tokens": self._max_tokens}
            create = client.chat.completions.create
        else:
            made = responses_arguments(request, self.model_settings, **options)
            limit = {} if self._max_tokens is None else {"max_output_tokens": self._max_tokens}
            create = client.responses.create
        return create(model=self.model, timeout=timeout, extra_body=self.extra or None, **made, **limit)

    def read(self, response: Any, request: ModelRequest) -> ModelTurn:
        """The turn in a response."""
        return read_chat(response, request) if self.api == "chat" else read_responses(response, request)

    def accumulator(self, request: ModelRequest) -> Accumulator:
        """What puts a stream together."""
        return ChatStream(request) if self.api == "chat" else ResponsesStream(request)
