"""Named settings and the system's role, as the servers of providers see them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest
from tests.adapters.loopback import LoopbackServer
from tests.conftest import needs

from weakincentives import Session
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.claude_agent_sdk import ClaudeAgentSDKAdapter
from weakincentives.adapters.litellm import LiteLLMAdapter
from weakincentives.adapters.local import LocalAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.errors import PromptEvaluationError
from weakincentives.loop.adapter import TurnAdapter
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SectionVisibility,
    Tool,
    ToolContext,
    ToolResult,
)
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Order:
    number: int


def look_up(params: Order, *, context: ToolContext) -> ToolResult[Order]:
    return ToolResult.ok(params, message="Found.")


LOOK_UP = Tool[Order, Order](name="look_up", description="Look an order up.", handler=look_up)
TEMPLATE = PromptTemplate[Any](
    ns="tests",
    key="roles",
    system=[
        MarkdownSection(title="You", template="Be kind.", tools=[LOOK_UP]),
        MarkdownSection(title="Refunds", template="Never.", summary="When?", visibility=SectionVisibility.SUMMARY),
    ],
    sections=[MarkdownSection(title="Ticket", template="It broke.")],
)


def responses(url: str, **options: Any) -> OpenAIAdapter:
    return OpenAIAdapter("m", base_url=url, api="responses", **options)


def chat(url: str, **options: Any) -> OpenAIAdapter:
    return OpenAIAdapter("m", base_url=url, api="chat", **options)


def anthropic(url: str, **options: Any) -> AnthropicAdapter:
    return AnthropicAdapter("m", base_url=url.removesuffix("/v1"), **options)


def litellm(url: str, **options: Any) -> LiteLLMAdapter:
    needs("litellm", present=find_spec("litellm") is not None, install="pip install 'weakincentives[litellm]'")
    return LiteLLMAdapter("openai/m", base_url=url, api_key="none", **options)


Connect = Callable[..., TurnAdapter]
each = pytest.mark.parametrize("connect", [responses, chat, anthropic, litellm])


def sent(connect: Connect, *turns: Any, template: PromptTemplate[Any] = TEMPLATE, **options: Any) -> list[Any]:
    """The bodies of the requests that these turns took."""
    with LoopbackServer(*turns) as server, closing(connect(server.url + "/v1", **options)) as adapter:
        adapter.evaluate(Prompt(template), Session())
        return [request.body for request in server.received]


def said_by(body: Any, role: str) -> str:
    """What one role says in a request, whatever the API."""
    if role == "system":
        outside = str(body.get("instructions") or body.get("system") or "")
        return outside or "".join(m["content"] for m in body["messages"] if m["role"] == "system")
    return "".join(str(m["content"]) for m in body.get("messages") or body["input"] if m.get("role") == role)


@each
def test_each_role_says_its_own_sections(connect: Connect) -> None:
    """The system's sections follow the adapter's own words; the user's are a message, with numbers of their own."""
    (body,) = sent(connect, say("Sorry."), system="Answer in English.")
    assert said_by(body, "system").startswith("Answer in English.\n\n## 1. You\n\nBe kind.\n\n## 2. Refunds\n\nWhen?")
    assert "## 1. Ticket" in said_by(body, "user")
    assert "Be kind" not in said_by(body, "user")


@each
def test_a_section_that_is_opened_stays_in_its_role(connect: Connect) -> None:
    """What the model opens of the system's sections is said there from then on."""
    bodies = sent(connect, call("open_sections", section_keys=["refunds"], reason="asked"), say("No."))
    assert ["Never." in said_by(body, "system") for body in bodies] == [False, True]
    assert "Never." not in said_by(bodies[1], "user")


def test_a_prompt_without_a_message_needs_a_history() -> None:
    """There is nothing to answer, so nothing is sent."""
    template = PromptTemplate[Any](ns="tests", key="silent", system=[MarkdownSection(title="You", template="Be kind.")])
    with pytest.raises(PromptEvaluationError, match="has only system= sections"):
        sent(chat, say("Hm."), template=template)


@each
def test_how_to_answer_is_said_by_the_system(connect: Connect) -> None:
    """A user's message stays a user's message."""
    typed = PromptTemplate[Order](
        ns="tests", key="typed", system=TEMPLATE.system[1:], sections=[MarkdownSection(title="Ticket", template="7?")]
    )
    (body,) = sent(connect, say('{"number": 7}'), template=typed)
    assert "## Response Format" in said_by(body, "system")
    assert "## Response Format" not in said_by(body, "user")


@each
def test_named_settings_are_sent(connect: Connect) -> None:
    """By the provider's own names; those that are not given are not sent."""
    (body,) = sent(connect, say("Hi."), temperature=0.5, top_p=0.9)
    assert (body["temperature"], body["top_p"]) == (0.5, 0.9)
    assert "seed" not in body
    assert "tool_choice" not in body


@pytest.mark.parametrize("connect", [chat, litellm])
def test_a_seed_is_sent_where_there_is_one(connect: Connect) -> None:
    """Chat Completions have one."""
    (body,) = sent(connect, say("Hi."), seed=7)
    assert body["seed"] == 7


@pytest.mark.parametrize("connect", [responses, anthropic])
def test_a_seed_is_refused_where_there_is_none(connect: Connect) -> None:
    """Left out silently it would promise what does not hold."""
    with pytest.raises(ValueError, match="seed="):
        connect("http://127.0.0.1:1/v1", seed=7)


@each
@pytest.mark.parametrize("choice", ["required", "look_up"])
def test_a_forced_call_is_forced_once(connect: Connect, choice: str) -> None:
    """After the first call's answer the model may answer."""
    first, second = sent(connect, call("look_up", number=7), say("Found."), tool_choice=choice)
    assert first["tool_choice"] in [
        "required", {"type": "any"}, {"type": "function", "name": "look_up"}, {"type": "tool", "name": "look_up"},
        {"type": "function", "function": {"name": "look_up"}},
    ]  # fmt: skip
    assert ("look_up" in str(first["tool_choice"])) == (choice == "look_up")
    assert "tool_choice" not in second


@each
def test_calls_can_be_switched_off(connect: Connect) -> None:
    """In each request."""
    (body,) = sent(connect, say("Hi."), tool_choice="none")
    assert body["tool_choice"] in ["none", {"type": "none"}]


@each
def test_a_tool_that_is_not_offered_cannot_be_chosen(connect: Connect) -> None:
    """The error names the tools that there are."""
    with pytest.raises(PromptEvaluationError, match=r"names 'lookup', .* it has: look_up, open_sections"):
        sent(connect, say("Hi."), tool_choice="lookup")


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1},
        {"temperature": "hot"},
        {"temperature": True},
        {"top_p": 2},
        {"seed": 1.5},
        {"tool_choice": ""},
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any]) -> None:
    """When the adapter is built; the error says what it takes."""
    with pytest.raises(ValueError, match=f"{next(iter(options))}= takes"):
        chat("http://127.0.0.1:1/v1", **options)


class _OfAProgram(ScriptedAdapter):
    """A user's own adapter."""


_OWN = "A setting of the provider's own goes into extra={%r: ...}."


@pytest.mark.parametrize(
    ("make", "name", "told"),
    [
        (OpenAIAdapter, "reasoning_effort", _OWN % "reasoning_effort"),
        (OpenAIAdapter, "max_turn", "Did you mean max_turns=? " + _OWN % "max_turn"),
        (AnthropicAdapter, "top_k", "Did you mean top_p=? " + _OWN % "top_k"),
        (LiteLLMAdapter, "drop_params", _OWN % "drop_params"),
        (ClaudeAgentSDKAdapter, "permission_mode", _OWN % "permission_mode"),
        (LocalAdapter, "max_token", "Did you mean max_tokens=?"),
        (_OfAProgram, "max_turn", "Did you mean max_turns=?"),
    ],
)
def test_an_unknown_setting_is_refused_by_the_adapter_that_was_named(make: Any, name: str, told: str) -> None:
    """The error names it, the setting and where it belongs, before a provider's package is looked for."""
    with pytest.raises(TypeError) as caught:
        make("a-model", **{name: 1})
    assert str(caught.value) == f"{make.__name__}() does not take {name}=. {told}"


def test_an_adapter_without_extra_says_what_it_takes() -> None:
    """There is nowhere else to look."""
    options: dict[str, Any] = {"temperature": 1}
    with pytest.raises(TypeError, match=r"^ScriptedAdapter\(\) does not take temperature=. It takes: .*usage"):
        ScriptedAdapter(**options)
