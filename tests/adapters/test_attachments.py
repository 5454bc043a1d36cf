"""Images and documents on the wire: the SDKs' own clients against a server that checks what it is sent."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from typing import Any

import pytest
from tests.adapters.loopback import Status
from tests.adapters.wires import CONNECTORS, connected

from weakincentives import Prompt, Session, Tool, ToolResult
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.content import Document, Image
from weakincentives.errors import PromptEvaluationError
from weakincentives.loop.attachments import PDF_TYPE
from weakincentives.prompt import MarkdownSection
from weakincentives.runtime.messages import UserMessage
from weakincentives.testing import call, say

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
PHOTO = Image(PNG, name="photo](x).png")
SCREEN = Image(b"\xff\xd8\xff" + bytes(40))
BILL = Document(b"%PDF-1.7 ...", name="bill.pdf")
NOTE = Document(b"hello", "text/plain", "note.txt")
LARGE = Image(b"\x89PNG\r\n\x1a\n" + bytes(4 * 1024 * 1024))
WIRES = sorted(CONNECTORS)


@dataclass(frozen=True)
class Asked:
    photo: Image
    bill: Document


@dataclass(frozen=True)
class Url:
    url: str


def shoot(params: Url) -> ToolResult[list[Any]]:
    return ToolResult.ok([LARGE if params.url == "large" else SCREEN, NOTE], message="Taken.")


def made_prompt(asked: Asked | None = None) -> Prompt[Any]:
    tool = Tool[Url, list[Any]](name="shoot", description="Take a picture.", handler=shoot)
    section = MarkdownSection[Asked](title="Task", template="See ${photo}.", tools=[tool])
    return Prompt(name="p", sections=[section]).bind(asked or Asked(PHOTO, BILL))


def base64_of(content: Image | Document) -> str:
    return base64.b64encode(content.data).decode()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wire", WIRES)
class TestOnTheWire:
    def test_prompts_and_results(self, wire: str, streamed: bool) -> None:
        """What the provider takes is sent once in each place where it stands, and the service accepts the form."""
        told: list[Any] = []
        on_event = told.append if streamed else None
        turns = [call("shoot", url="a"), call("shoot", url="b")]
        with connected(wire, turns, say("Seen."), media_types=["image/png", "image/jpeg", PDF_TYPE]) as (
            adapter,
            server,
        ):
            response = adapter.evaluate(made_prompt(), Session(), on_event=on_event)
            assert response.text == "Seen."
            body = json.dumps(server.received[1].body)
            counts = [body.count(base64_of(content)) for content in (PHOTO, BILL, SCREEN)]
            assert counts == [1, 1, 2]
            assert body.count("```text\\\\nhello\\\\n```") + body.count("```text\\nhello\\n```") == 2
            assert "](" not in body

    def test_a_model_that_reads_text(self, wire: str, streamed: bool) -> None:
        """With `media_types=()` nothing but text is sent, and the model is told of each."""
        told: list[Any] = []
        on_event = told.append if streamed else None
        with connected(wire, call("shoot", url="a"), say("Read."), media_types=()) as (adapter, server):
            adapter.evaluate(made_prompt(), Session(), on_event=on_event)
            body = json.dumps(server.received[1].body)
            assert "base64" not in body
            assert "is not shown: this model is not sent image/png." in body
            assert "is not shown: this model is not sent image/jpeg." in body


@pytest.mark.parametrize("wire", WIRES)
class TestErrors:
    def test_a_refusal_names_the_setting(self, wire: str) -> None:
        """When the service refuses the request, the error says what it held and which setting to change."""
        refusal = Status(400, {"type": "invalid_request_error", "message": "This model does not support images."})
        with connected(wire, refusal) as (adapter, _):
            with pytest.raises(PromptEvaluationError, match="does not support images") as caught:
                adapter.evaluate(made_prompt(), Session())
            assert "image/png" in str(caught.value)
            assert "with media_types= of " in str(caught.value)

    def test_one_of_text_does_not(self, wire: str) -> None:
        """An error of a request without images says nothing of them."""
        with connected(wire, Status(400, {"message": "No."}), media_types=()) as (adapter, _):
            with pytest.raises(PromptEvaluationError) as caught:
                adapter.evaluate(made_prompt(), Session())
            assert "media_types" not in str(caught.value)

    def test_async(self, wire: str) -> None:
        """The same holds for async code."""
        refusal = Status(400, {"message": "No."})
        with connected(wire, refusal) as (adapter, _), pytest.raises(PromptEvaluationError, match="media_types="):
            asyncio.run(adapter.aevaluate(made_prompt(), Session()))


class TestLimits:
    def test_a_prompt_above_the_limit_is_not_sent(self) -> None:
        """Anthropic takes 5 MB of base64; more is an error before anything is sent."""
        said = r"4 MB\] cannot be sent: at most 3\.7 MB may be sent"
        with (
            connected("messages", say("Never.")) as (adapter, server),
            pytest.raises(PromptEvaluationError, match=said),
        ):
            adapter.evaluate(made_prompt(Asked(LARGE, BILL)), Session())
        assert server.received == []

    def test_a_scan_may_be_larger(self) -> None:
        """The limit of images is not that of documents."""
        scan = Document(b"%PDF-1.7" + bytes(5 * 1024 * 1024))
        with connected("messages", say("Seen.")) as (adapter, _):
            assert adapter.evaluate(made_prompt(Asked(PHOTO, scan)), Session()).text == "Seen."

    def test_a_result_above_the_limit_is_a_line(self) -> None:
        """The model is told of what is too large; the call has succeeded."""
        with connected("messages", call("shoot", url="large"), say("Smaller, please.")) as (adapter, server):
            adapter.evaluate(made_prompt(), Session())
            assert "4 MB] is not shown: at most 3.7 MB may be sent" in json.dumps(server.received[1].body)


class TestForms:
    def test_chat_results_follow_all_answers_of_a_turn(self) -> None:
        """Messages of the role `tool` take text alone, so what they show comes in a user's message after them."""
        with connected("chat", [call("shoot", url="a"), call("shoot", url="b")], say("Seen.")) as (adapter, server):
            response = adapter.evaluate(made_prompt(), Session())
            messages = server.received[1].body["messages"]
            assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
            kinds = [part["type"] for part in messages[-1]["content"]]
            assert kinds == ["text", "image_url", "text", "image_url"]
            assert messages[-1]["content"][0]["text"] == "Shown by the result of the call call_1:"
        with connected("chat", say("More.")) as (adapter, server):
            history = [*response.history.messages[:-1], UserMessage("Go on.")]
            adapter.evaluate(
                Prompt(name="q", sections=[MarkdownSection(title="T", template="X")]), Session(), history=history
            )
            roles = [message["role"] for message in server.received[0].body["messages"]]
            assert roles == ["user", "assistant", "tool", "tool", "user", "user"]

    def test_anthropic_documents_have_titles(self) -> None:
        """A PDF is a document block with its name, also inside the result of a tool."""
        with connected("messages", say("Seen.")) as (adapter, server):
            adapter.evaluate(made_prompt(), Session())
            blocks = server.received[0].body["messages"][0]["content"]
            assert [block["type"] for block in blocks] == ["text", "image", "document"]
            assert blocks[2]["title"] == "bill.pdf"

    def test_defaults(self) -> None:
        """OpenAI and Anthropic are sent PDFs; other servers, which mostly refuse files, only images."""
        own = OpenAIAdapter("gpt-5", api_key="k")
        other = OpenAIAdapter("qwen", base_url="http://127.0.0.1:9/v1")
        named = OpenAIAdapter("qwen", base_url="http://127.0.0.1:9/v1", media_types=[PDF_TYPE])
        assert PDF_TYPE in own.accepts.media_types
        assert PDF_TYPE in AnthropicAdapter("claude", api_key="k").accepts.media_types
        assert "image/png" in other.accepts.media_types
        assert PDF_TYPE not in other.accepts.media_types
        assert named.accepts.media_types == {PDF_TYPE}
