"""A server on this machine that speaks OpenAI Chat, OpenAI Responses and Anthropic Messages, and misbehaves on demand.

It plays a script, as `ScriptedAdapter` does, in the format of whatever path it is asked on, and refuses what the real
services refuse: a conversation in which a call has no answer, or an answer no call.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, Self, cast

from weakincentives.budget import TokenUsage
from weakincentives.testing.scripted import Call, Say

USAGE = TokenUsage(input=10, output=5, cached=2, reasoning=1)


@dataclass(frozen=True)
class Status:
    """An error of the service."""

    code: int
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Raw:
    """A body as it stands, whatever it is."""

    body: str
    content_type: str = "application/json"


@dataclass(frozen=True)
class Slow:
    """The turn comes late, or when the server is closed."""

    seconds: float
    turn: Any


HALF = Say("This will not arrive in full, because the line goes dead in the middle of it.")


@dataclass(frozen=True)
class Drop:
    """The connection ends after so many bytes of the turn."""

    turn: Any = HALF
    after: int = 0


@dataclass(frozen=True)
class EndsEarly:
    """A stream that ends as if all were well, but before the answer is complete."""

    turn: Any = HALF


class Received(NamedTuple):
    path: str
    body: dict[str, Any]
    headers: dict[str, str]


class Spoken(NamedTuple):
    text: str
    calls: list[tuple[str, str, str]]
    stop_reason: str
    usage: TokenUsage


class LoopbackServer:
    """`with LoopbackServer(*turns) as server:`; `server.url` is for `base_url=`."""

    def __init__(self, *turns: Any) -> None:
        self._turns = turns
        self._lock = Lock()
        self.received: list[Received] = []
        self.closed = Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def next_turn(self, received: Received) -> tuple[int, Any]:
        with self._lock:
            number = len(self.received)
            self.received.append(received)
        if number >= len(self._turns):
            return number, Status(400, {"type": "invalid_request_error", "message": "The script is over."})
        return number, self._turns[number]

    def assert_complete(self) -> None:
        assert len(self.received) == len(self._turns), f"{len(self.received)} of {len(self._turns)} turns were played"

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    owner: LoopbackServer
    request_queue_size = 64


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet a response; without it each line waits for an acknowledgement

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = self.path.partition("?")[0]
        received = Received(path, body, {key.lower(): value for key, value in self.headers.items()})
        number, turn = cast("_Server", self.server).owner.next_turn(received)
        wire = next(wire for end, wire in WIRES.items() if path.endswith(end))
        try:
            problem = wire.problem(body)
            if problem is not None:
                turn = Status(400, {"type": "invalid_request_error", "message": problem})
            self.answer(wire, number, turn, bool(body.get("stream")))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self, wire: Wire, number: int, turn: Any, stream: bool) -> None:
        if isinstance(turn, Slow):
            cast("_Server", self.server).owner.closed.wait(turn.seconds)
            turn = turn.turn
        if isinstance(turn, Status):
            self.reply(turn.code, wire.error(turn.error), "application/json", turn.headers)
        elif isinstance(turn, Raw):
            self.reply(200, turn.body, turn.content_type)
        elif isinstance(turn, Drop):
            self.reply(200, *wire.body(spoken(turn.turn, number), stream), cut=turn.after)
        elif isinstance(turn, EndsEarly):
            text, kind = wire.body(spoken(turn.turn, number), stream)
            self.reply(200, "".join(text.splitlines(keepends=True)[:4]), kind)
        else:
            self.reply(200, *wire.body(spoken(turn, number), stream))

    def reply(
        self, code: int, text: str, content_type: str, headers: Mapping[str, str] | None = None, cut: int | None = None
    ) -> None:
        data = text.encode()
        self.send_response(code)
        for name, value in {"content-type": content_type, "content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data if cut is None else data[:cut])
        self.wfile.flush()
        if cut is not None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


def spoken(turn: Any, number: int) -> Spoken:
    """A turn of the script, with ids like those of `ScriptedAdapter`."""
    parts: list[Any] = list(cast("list[Any]", turn)) if isinstance(turn, list | tuple) else [turn]
    calls: list[tuple[str, str, str]] = []
    texts: list[str] = []
    reason = "end_turn"
    for part in parts:
        if isinstance(part, Call):
            position = len(calls)
            made = f"call_{number + 1}" if position == 0 else f"call_{number + 1}_{position + 1}"
            calls.append((made if part.id is None else part.id, part.name, part.arguments))
        else:
            texts.append(part.text)
            reason = part.stop_reason
    return Spoken("\n".join(texts), calls, "tool_use" if calls else reason, USAGE)


class Wire:
    """One format: bodies, streams, errors, and what is wrong with a request."""

    def body(self, said: Spoken, stream: bool) -> tuple[str, str]:
        if stream:
            return "".join(self.events(said)), "text/event-stream"
        return json.dumps(self.whole(said)), "application/json"

    def whole(self, said: Spoken) -> dict[str, Any]:
        raise NotImplementedError

    def events(self, said: Spoken) -> Iterator[str]:
        raise NotImplementedError

    def error(self, error: Mapping[str, Any]) -> str:
        return json.dumps({"error": {"message": "It failed.", "type": "api_error", **error}})

    def problem(self, body: Mapping[str, Any]) -> str | None:
        called, answered = self.ids(body)
        if called != answered:
            return f"Calls {called} were answered by {answered}."
        return next(self.wrong_parts(body), None)

    def wrong_parts(self, body: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong with images and files."""
        yield from ()

    def ids(self, body: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        raise NotImplementedError


def wrong_data(data: str, media_type: str, most: int = 20_000_000) -> Iterator[str]:
    """What is wrong with the base64 of an image or a file."""
    starts = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "application/pdf": b"%PDF-", "image/gif": b"GIF8"}
    if len(data) > most:
        yield f"image exceeds {most} bytes: {len(data)} bytes"
    elif media_type not in starts:
        yield f"unsupported media type {media_type}"
    elif not base64.b64decode(data, validate=True).startswith(starts[media_type]):
        yield f"the data is not {media_type}"


def wrong_url(url: str) -> Iterator[str]:
    """What is wrong with a data URL."""
    head, _, data = url.partition(";base64,")
    yield from wrong_data(data, head.removeprefix("data:"))


def pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), 7):
        yield text[start : start + 7]


class ChatWire(Wire):
    def whole(self, said: Spoken) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
        if said.calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for call_id, name, arguments in said.calls
            ]
        return {
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": self.reason(said)}],
            "usage": self.usage(said),
        }  # fmt: skip

    def reason(self, said: Spoken) -> str:
        reasons = {"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
        return reasons.get(said.stop_reason, "stop")

    def usage(self, said: Spoken) -> dict[str, Any]:
        usage = said.usage
        return {
            "prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.total,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        }  # fmt: skip

    def events(self, said: Spoken) -> Iterator[str]:
        def chunk(choices: list[dict[str, Any]], usage: Any = None) -> str:
            made = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
            return f"data: {json.dumps({**made, 'choices': choices, 'usage': usage})}\n\n"

        def delta(content: dict[str, Any], finish: str | None = None) -> str:
            return chunk([{"index": 0, "delta": content, "finish_reason": finish}])

        yield delta({"role": "assistant", "content": ""})
        yield delta({"reasoning_content": "Hm."})  # as servers of open models send it
        for piece in pieces(said.text):
            yield delta({"content": piece})
        for index, (call_id, name, arguments) in enumerate(said.calls):
            head = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
            yield delta({"tool_calls": [head]})
            for piece in pieces(arguments):
                yield delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield delta({}, self.reason(said))
        yield chunk([], self.usage(said))
        yield "data: [DONE]\n\n"

    def ids(self, body: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        called = [call["id"] for item in body["messages"] for call in item.get("tool_calls", ())]
        answered = [item["tool_call_id"] for item in body["messages"] if item["role"] == "tool"]
        return sorted(called), sorted(answered)

    def wrong_parts(self, body: Mapping[str, Any]) -> Iterator[str]:
        for item in body["messages"]:
            if isinstance(item["content"], list):
                if item["role"] != "user":
                    yield f"messages of the role {item['role']} take text only"
                for part in item["content"]:
                    if part["type"] == "image_url":
                        yield from wrong_url(part["image_url"]["url"])
                    elif part["type"] == "file":
                        yield from wrong_url(part["file"]["file_data"]) if part["file"]["filename"] else ["no name"]
                    elif part != {"type": "text", "text": part["text"]} or not part["text"]:
                        yield f"a wrong part: {part}"


class ResponsesWire(Wire):
    def whole(self, said: Spoken) -> dict[str, Any]:
        output: list[dict[str, Any]] = [{"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "x1"}]
        if said.text:
            content: dict[str, Any] = {"type": "output_text", "text": said.text, "annotations": []}
            output.append(
                {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [content]}
            )
        for call_id, name, arguments in said.calls:
            call = {"id": f"fc_{call_id}", "type": "function_call", "status": "completed"}
            output.append({**call, "call_id": call_id, "name": name, "arguments": arguments})
        cut = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}.get(said.stop_reason)
        usage = said.usage
        return {
            "id": "resp_1", "object": "response", "created_at": 1, "model": "scripted", "output": output,
            "status": "completed" if cut is None else "incomplete", "parallel_tool_calls": True, "tools": [],
            "tool_choice": "auto", "incomplete_details": None if cut is None else {"reason": cut}, "error": None,
            "usage": {
                "input_tokens": usage.input, "output_tokens": usage.output, "total_tokens": usage.total,
                "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            },
        }  # fmt: skip

    def events(self, said: Spoken) -> Iterator[str]:
        number = 0

        def event(kind: str, **fields: Any) -> str:
            nonlocal number
            number += 1
            return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': number, **fields})}\n\n"

        whole = self.whole(said)
        yield event("response.created", response={**whole, "output": [], "status": "in_progress", "usage": None})
        thought: dict[str, Any] = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
        yield event("response.reasoning_summary_text.delta", delta="Hm.", **thought)
        for piece in pieces(said.text):
            where: dict[str, Any] = {"item_id": "msg_1", "output_index": 1, "content_index": 0, "logprobs": []}
            yield event("response.output_text.delta", delta=piece, **where)
        for index, item in enumerate(whole["output"]):
            yield event("response.output_item.done", output_index=index, item=item)
        done = "response.completed" if whole["status"] == "completed" else "response.incomplete"
        yield event(done, response=whole)

    def ids(self, body: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        def found(kind: str) -> list[str]:
            return sorted(item["call_id"] for item in body["input"] if item.get("type") == kind)

        return found("function_call"), found("function_call_output")

    def wrong_parts(self, body: Mapping[str, Any]) -> Iterator[str]:
        for item in body["input"]:
            content: Any = item.get("content") if item.get("role") == "user" else item.get("output")
            parts = cast("list[Any]", content) if isinstance(content, list) else []
            for part in parts:
                if part["type"] == "input_image":
                    yield from wrong_url(part["image_url"])
                elif part["type"] == "input_file":
                    yield from wrong_url(part["file_data"]) if part["filename"] else ["no name"]
                elif part != {"type": "input_text", "text": part["text"]} or not part["text"]:
                    yield f"a wrong part: {part}"


class MessagesWire(Wire):
    def whole(self, said: Spoken) -> dict[str, Any]:
        return {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": self.content(said),
            "stop_reason": self.reason(said), "stop_sequence": None, "usage": self.usage(said),
        }  # fmt: skip

    def reason(self, said: Spoken) -> str:
        return {"pause": "pause_turn"}.get(said.stop_reason, said.stop_reason)

    def content(self, said: Spoken) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": "Hm.", "signature": "s1"}]
        if said.text:
            blocks.append({"type": "text", "text": said.text})
        for call_id, name, arguments in said.calls:
            try:
                given = json.loads(arguments or "{}")
            except ValueError:
                given = arguments  # no service sends this; the engine must answer it all the same
            blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": given})
        return blocks

    def usage(self, said: Spoken) -> dict[str, Any]:
        usage = said.usage
        return {
            "input_tokens": usage.input - usage.cached, "output_tokens": usage.output,
            "cache_read_input_tokens": usage.cached, "cache_creation_input_tokens": 0,
            "output_tokens_details": {"thinking_tokens": usage.reasoning},
        }  # fmt: skip

    def events(self, said: Spoken) -> Iterator[str]:
        def event(kind: str, **fields: Any) -> str:
            return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

        usage = self.usage(said)
        yield event(
            "message_start",
            message={**self.whole(said), "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}},
        )
        for index, block in enumerate(self.content(said)):
            head, deltas = self.pieces_of(block, said)
            yield event("content_block_start", index=index, content_block=head)
            for delta in deltas:
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        yield event("message_delta", delta={"stop_reason": self.reason(said), "stop_sequence": None}, usage=usage)
        yield event("message_stop")

    def pieces_of(self, block: dict[str, Any], said: Spoken) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        if block["type"] == "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        if block["type"] == "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        written = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(written)]
        return {**block, "input": {}}, deltas

    def error(self, error: Mapping[str, Any]) -> str:
        return json.dumps({"type": "error", "error": {"message": "It failed.", "type": "api_error", **error}})

    def problem(self, body: Mapping[str, Any]) -> str | None:
        roles = [item["role"] for item in body["messages"]]
        if roles != ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2) and roles[-1] == "user":
            return f"Roles do not alternate: {roles}"
        return super().problem(body)

    def ids(self, body: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        blocks = [
            block for item in body["messages"] if not isinstance(item["content"], str) for block in item["content"]
        ]
        called = [block["id"] for block in blocks if block["type"] == "tool_use"]
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        return sorted(called), sorted(answered)

    def wrong_parts(self, body: Mapping[str, Any]) -> Iterator[str]:
        for item in body["messages"]:
            blocks = [] if isinstance(item["content"], str) else list(item["content"])
            while blocks:
                block = blocks.pop(0)
                if block["type"] == "tool_result" and isinstance(block["content"], list):
                    blocks += block["content"]
                elif block["type"] in {"image", "document"}:
                    source = block["source"]
                    is_image = source["media_type"].startswith("image/")
                    if source["type"] != "base64" or is_image != (block["type"] == "image"):
                        yield f"a wrong source of a {block['type']}"
                    yield from wrong_data(source["data"], source["media_type"], (5 if is_image else 30) * 1024 * 1024)


WIRES: dict[str, Wire] = {
    "/chat/completions": ChatWire(),
    "/responses": ResponsesWire(),
    "/messages": MessagesWire(),
}
