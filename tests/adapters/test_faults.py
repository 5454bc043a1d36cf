"""What services and networks do wrong, with the real clients: waited out where that helps, explained elsewhere."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from tests.adapters.loopback import Drop, EndsEarly, LoopbackServer, Raw, Slow, Status
from tests.adapters.wires import CONNECTORS, connected

from weakincentives.adapters import Retrying, Throttle, history_of
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.deadlines import Deadline
from weakincentives.errors import PromptEvaluationError
from weakincentives.testing import call, say
from weakincentives.testing.adapter_contract import Workshop, assert_no_orphans

pytestmark = pytest.mark.slow  # servers

every_wire = pytest.mark.parametrize("wire", CONNECTORS)
both_ways = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])


def failing(wire: str, *turns: Any, streaming: bool = False, **options: Any) -> tuple[PromptEvaluationError, int]:
    shop = Workshop()
    limits = {"deadline": options.pop("deadline")} if "deadline" in options else {}
    with connected(wire, *turns, **options) as (adapter, server):
        with pytest.raises(PromptEvaluationError) as caught:
            adapter.evaluate(shop.prompt, shop.session, on_event=(lambda _: None) if streaming else None, **limits)
        return caught.value, len(server.received)


@every_wire
@both_ways
@pytest.mark.parametrize(
    "fault",
    [
        Status(429, {"type": "rate_limit_error"}),
        Status(500),
        Status(503),
        Status(529, {"type": "overloaded_error"}),
        Status(408),
        Drop(),
        Drop(after=40),
    ],
    ids=["429", "500", "503", "529", "408", "dropped", "dropped half-way"],
)
def test_what_passes_is_waited_out(wire: str, fault: Any, streaming: bool) -> None:
    """Busy services and broken connections are asked again; the conversation is what it would have been."""
    shop = Workshop()
    events: list[Any] = []
    with connected(wire, fault, call("write", path="1"), fault, fault, say("Done.")) as (adapter, server):
        response = adapter.evaluate(shop.prompt, shop.session, on_event=events.append if streaming else None)
        server.assert_complete()
    assert response.text == "Done."
    assert response.turns == 2
    assert shop.notes == ["1"]
    assert_no_orphans(response.history)
    if streaming:
        assert [event.attempt for event in events if isinstance(event, Retrying)] == [1, 1, 2]


SECRETS = ("sk-proj-a1B2c3D4e5F6g7H8i9J0kLmN", "hunter2-of-the-proxy")


@every_wire
@both_ways
@pytest.mark.parametrize("code", [429, 500])
def test_what_a_service_says_is_masked(wire: str, code: int, streaming: bool) -> None:
    """Services quote the key they were sent, and proxies their own: neither is in a `Retrying` event or the error."""
    said = f"Incorrect API key provided: {SECRETS[0]}; upstream http://gate:{SECRETS[1]}@proxy:3128 refused"
    fault = Status(code, {"type": "api_error", "message": said})
    shop = Workshop()
    events: list[Any] = []
    with connected(wire, fault, fault, say("Done.")) as (adapter, server):
        adapter.evaluate(shop.prompt, shop.session, on_event=events.append)
        server.assert_complete()
    reasons = [event.reason for event in events if isinstance(event, Retrying)]
    assert len(reasons) == 2
    assert all("[masked]" in reason for reason in reasons)
    caught, _ = failing(wire, *[fault] * 12, streaming=streaming)
    assert "[masked]" in str(caught)
    assert not any(secret in f"{events}{caught}{caught!r}" for secret in SECRETS)


@every_wire
def test_a_stream_that_ends_early_is_asked_for_again(wire: str) -> None:
    """Half an answer is no answer, also when the connection was closed politely."""
    shop = Workshop()
    with connected(wire, EndsEarly(), say("Whole.")) as (adapter, server):
        assert adapter.evaluate(shop.prompt, shop.session, on_event=lambda _: None).text == "Whole."
        server.assert_complete()


@every_wire
def test_retry_after_is_honoured(wire: str) -> None:
    """Nothing is sent before the time that the service named, in whichever way."""
    late = Status(429, {"type": "rate_limit_error"}, {"retry-after": "0.3"})
    precise = Status(429, {"type": "rate_limit_error"}, {"retry-after-ms": "200"})
    shop = Workshop()
    with connected(wire, late, precise, say("Done.")) as (adapter, server):
        start = time.monotonic()
        adapter.evaluate(shop.prompt, shop.session)
        assert time.monotonic() - start >= 0.5
        server.assert_complete()


@every_wire
def test_a_date_is_understood_as_retry_after(wire: str) -> None:
    """A service may name a moment instead of a duration; one too far away ends the evaluation."""
    moment = format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)
    error, sent = failing(wire, Status(429, {"type": "rate_limit_error"}, {"retry-after": moment}), say("Never."))
    assert sent == 1
    assert error.phase == "request"


@every_wire
def test_waiting_never_passes_the_deadline(wire: str) -> None:
    """When the service wants more time than there is, the evaluation ends at once and says so."""
    fault = Status(429, {"type": "rate_limit_error"}, {"retry-after": "30"})
    error, sent = failing(wire, fault, say("Never."), deadline=Deadline.after(timedelta(seconds=29)))
    assert (error.phase, sent) == ("deadline", 1)


@every_wire
@both_ways
def test_a_slow_service_does_not_outlast_the_deadline(wire: str, streaming: bool) -> None:
    """The evaluation ends at its deadline, whatever the service does."""
    shop = Workshop()
    on_event: Any = print if streaming else None
    with connected(wire, say("Ready."), Slow(60, say("Late.")), say("Never.")) as (adapter, _):
        adapter.evaluate(shop.prompt, shop.session, on_event=on_event)  # the first time takes longer
        start = time.monotonic()
        deadline = Deadline.after(timedelta(seconds=0.5))
        with pytest.raises(PromptEvaluationError) as caught:
            adapter.evaluate(shop.prompt, shop.session, deadline=deadline, on_event=on_event)
        assert time.monotonic() - start < 30
    assert caught.value.phase == "deadline"


@every_wire
def test_a_request_that_takes_too_long_is_repeated(wire: str) -> None:
    """The adapter's own timeout ends a request, not the evaluation."""
    shop = Workshop()
    in_time = [say("In time.")] * 5  # on a busy machine some of them take too long as well
    with connected(wire, Slow(60, say("Late.")), *in_time, request_timeout=0.5) as (adapter, _):
        assert adapter.evaluate(shop.prompt, shop.session).text == "In time."


@every_wire
def test_attempts_are_counted(wire: str) -> None:
    """Six requests and no more: the client's own retries are off."""
    error, sent = failing(wire, *[Status(500)] * 9)
    assert sent == 6
    assert "after 6 attempts" in str(error)
    assert error.phase == "request"
    error, sent = failing(wire, *[Status(500)] * 9, throttle=Throttle(max_attempts=1))
    assert sent == 1


@every_wire
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Status(401, {"type": "authentication_error", "message": "Incorrect API key sk-abcdefghijklmnopqrstuvwx"}),
         ["_API_KEY", "api_key="]),
        (Status(404, {"type": "not_found_error", "code": "model_not_found", "message": "No such model."}),
         ["scripted", "No such model.", "base_url="]),
        (Status(400, {"type": "invalid_request_error", "code": "context_length_exceeded",
                      "message": "prompt is too long: 9 tokens > 8 maximum"}), ["too long", "history=", "9 tokens"]),
        (Status(413, {"type": "request_too_large"}), ["too long"]),
        (Status(400, {"type": "invalid_request_error", "message": "Unknown field x."}), ["Unknown field x."]),
        (Status(429, {"type": "insufficient_quota", "code": "insufficient_quota", "message": "Pay first."}),
         ["Pay first."]),
    ],
    ids=["key", "model", "context", "size", "request", "quota"],
)  # fmt: skip
def test_what_waiting_does_not_mend_is_explained(wire: str, fault: Status, words: list[str]) -> None:
    """One request, and an error that names the fix; keys are masked."""
    error, sent = failing(wire, fault, say("Never."))
    assert sent == 1
    assert error.phase == "request"
    assert error.prompt_name == "workshop"
    for word in words:
        assert word in str(error)
    assert "abcdefghijklmnop" not in str(error)
    assert_no_orphans(history_of(error))


@every_wire
@pytest.mark.parametrize("body", ["{", "[]", "{}", '{"choices": []}', "null", "<html>Bad gateway</html>"])
def test_malformed_answers_end_the_evaluation(wire: str, body: str) -> None:
    """A body that makes no sense is an error of the response, not of ours."""
    error, _ = failing(wire, Raw(body), say("Never."))
    assert error.phase == "response"
    assert "cannot be read" in str(error)


@every_wire
def test_a_malformed_stream_ends_the_evaluation(wire: str) -> None:
    """The same for a stream."""
    error, _ = failing(wire, *[Raw("data: {oops\n\n", "text/event-stream")] * 6, streaming=True)
    assert error.phase in {"response", "request"}


def test_an_overloaded_stream_is_asked_again() -> None:
    """Anthropic tells of overload within a stream that began well."""
    body = 'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}}\n\n'
    shop = Workshop()
    with connected("messages", Raw(body, "text/event-stream"), say("Done.")) as (adapter, _):
        assert adapter.evaluate(shop.prompt, shop.session, on_event=lambda _: None).text == "Done."


def test_a_failed_response_is_sorted_by_its_code() -> None:
    """OpenAI's Responses may fail with a status of 200."""
    failed = '{"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "status": "failed", "error": {"code": "%s", "message": "Oh."}, "parallel_tool_calls": true, "tool_choice": "auto", "tools": []}'  # noqa: E501
    shop = Workshop()
    with connected("responses", Raw(failed % "server_error"), say("Done.")) as (adapter, _):
        assert adapter.evaluate(shop.prompt, shop.session).text == "Done."
    error, sent = failing("responses", Raw(failed % "invalid_prompt"), say("Never."))
    assert (sent, "invalid_prompt: Oh." in str(error)) == (1, True)


@pytest.mark.parametrize(
    ("adapter", "variable"),
    [
        (lambda: OpenAIAdapter("gpt"), "OPENAI_API_KEY"),
        (lambda: AnthropicAdapter("claude"), "ANTHROPIC_API_KEY"),
    ],
)
def test_a_missing_key_names_its_variable(adapter: Any, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent, and the message says where the key should be."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    shop = Workshop()
    with pytest.raises(PromptEvaluationError, match=variable) as caught, adapter() as made:
        made.evaluate(shop.prompt, shop.session)
    assert "api_key=" in str(caught.value)


@every_wire
def test_nobody_there(wire: str) -> None:
    """A server that is not there is tried a few times; the message says who could not be reached."""
    with LoopbackServer() as server:
        url = server.url
    shop = Workshop()
    with (
        CONNECTORS[wire](url, throttle=Throttle(base=0.0, max_attempts=2)) as adapter,
        pytest.raises(PromptEvaluationError, match="cannot be reached") as caught,
    ):
        adapter.evaluate(shop.prompt, shop.session)
    assert url in str(caught.value)
