"""What a hostile or broken model server can do to the real clients: it costs the limits of one request, and no more."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.adapters import hostile_server as attacks
from tests.adapters.hostile_server import HostileServer, Reply
from tests.adapters.wires import CONNECTORS

from weakincentives.adapters import History, RequestFailed, Throttle, UserMessage
from weakincentives.adapters.anthropic import AnthropicAdapter
from weakincentives.adapters.litellm import LiteLLMAdapter
from weakincentives.adapters.openai import OpenAIAdapter
from weakincentives.adapters.sdk_clients import Guard, unpacker
from weakincentives.deadlines import Deadline
from weakincentives.errors import PromptEvaluationError
from weakincentives.prompt import ToolInvoked
from weakincentives.testing import ScriptedAdapter, call, say
from weakincentives.testing.adapter_contract import Workshop

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")]

SECONDS = 0.6
"""What a request may take here."""
PATIENCE = 120.0
"""What a test may take on a busy machine. The attacks last longer."""
LONGER = (1.5, 5.0, 15.0)
"""The times of a request of which the first must be answered: on a busy machine the shorter ones may be over before."""
MIB = 1 << 20

WIRES: dict[str, Callable[..., Any]] = dict(CONNECTORS)


def litellm(model: str, path: str = "") -> Callable[..., Any]:
    def connect(url: str, **options: Any) -> Any:
        return LiteLLMAdapter(model, base_url=f"{url}{path}", api_key="k", **options)

    return connect


if find_spec("litellm") is not None:  # one for each of the ways in which it asks
    WIRES["litellm-openai"] = litellm("openai/m", "/v1")
    WIRES["litellm-anthropic"] = litellm("anthropic/m")
    WIRES["litellm-deepinfra"] = litellm("deepinfra/m", "/v1")

every_wire = pytest.mark.parametrize("wire", WIRES)
both_ways = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
both_modes = pytest.mark.parametrize("mode", ["sync", "async"])


def run(adapter: Any, mode: str, streaming: bool, **options: Any) -> Any:
    shop = Workshop()
    on_event: Any = print if streaming else None
    if mode == "sync":
        with adapter:
            return adapter.evaluate(shop.prompt, shop.session, on_event=on_event, **options)

    async def awaited() -> Any:
        async with adapter:
            return await adapter.aevaluate(shop.prompt, shop.session, on_event=on_event, **options)

    return asyncio.run(awaited())


def fails(adapter: Any, mode: str, streaming: bool, **options: Any) -> str:
    """The text of the failure, which must come long before the attack ends."""
    start = time.monotonic()
    with pytest.raises(PromptEvaluationError) as caught:
        run(adapter, mode, streaming, **options)
    assert time.monotonic() - start < PATIENCE
    return str(caught.value)


def attacked(wire: str, url: str, **options: Any) -> Any:
    options = {"request_timeout": SECONDS, "max_answer_bytes": MIB, "throttle": Throttle(max_attempts=1), **options}
    return WIRES[wire](url, **options)


@every_wire
@both_modes
@pytest.mark.parametrize(
    ("attack", "streaming"),
    [
        (attacks.slow_body, False),
        (attacks.slow_body, True),
        (attacks.slow_headers, False),
        (attacks.early_hints, True),
        (attacks.slow_error, False),
    ],
    ids=["body", "stream", "headers", "hints", "error"],
)
def test_a_request_has_a_total_time(wire: str, mode: str, streaming: bool, attack: Any) -> None:
    """However many bytes come, and however often: when the time is over, so is the request."""
    with HostileServer(attack) as server:
        text = fails(attacked(wire, server.url), mode, streaming)
    assert "not complete after 0.6 seconds" in text or "within 0.6 seconds" in text


@every_wire
@both_modes
@both_ways
def test_an_answer_has_a_size(wire: str, mode: str, streaming: bool) -> None:
    """An answer without end is dropped at the limit, and not asked for again."""
    with HostileServer(attacks.endless) as server:
        adapter = attacked(wire, server.url, request_timeout=PATIENCE, throttle=Throttle(base=0.0))
        assert "larger than 1 MiB" in fails(adapter, mode, streaming)
        assert len(server.requests) == 1
        assert server.sent < 32 * MIB  # what the limit lets in, and what the kernel took for us


@every_wire
@both_modes
@both_ways
def test_a_packed_answer_has_the_same_size(wire: str, mode: str, streaming: bool) -> None:
    """What unpacks to 300 MB never stands in memory."""
    with HostileServer(attacks.gzip_bomb) as server:
        adapter = attacked(wire, server.url, request_timeout=PATIENCE)
        tracemalloc.start()
        try:
            assert "larger than 1 MiB" in fails(adapter, mode, streaming)
            assert tracemalloc.get_traced_memory()[1] < 100 * MIB  # imports included
        finally:
            tracemalloc.stop()


@every_wire
@both_modes
@both_ways
def test_a_packed_answer_is_unpacked(wire: str, mode: str, streaming: bool) -> None:
    """A server that packs without being asked is understood; a way of packing that was not asked for is not."""
    with HostileServer(attacks.packed(say("Packed."))) as server:
        adapter = attacked(wire, server.url, request_timeout=PATIENCE)
        assert run(adapter, mode, streaming).text == "Packed."
    with HostileServer(attacks.unknown_encoding) as server:
        adapter = attacked(wire, server.url, request_timeout=PATIENCE)
        assert "not asked for: 'br'" in fails(adapter, mode, streaming)


def test_what_follows_a_packed_answer_is_not_kept() -> None:
    """zlib would keep it, and copy all of it with each further piece."""
    packer, packed = zlib.compressobj(wbits=31), unpacker("gzip")
    guard = Guard(60.0, MIB)
    assert b"".join(guard.unpacked(packer.compress(b"{}") + packer.flush(), packed)) == b"{}"
    for _ in range(3):
        assert list(guard.unpacked(b"more", packed)) == []
    assert packed.unused_data == b""
    with pytest.raises(RequestFailed, match="larger than 1 MiB"):
        list(guard.unpacked(bytes(MIB), packed))


@every_wire
@both_modes
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_other_server_gets_the_conversation(wire: str, mode: str, code: int) -> None:
    """A redirect to another host is an error that names it, with its port; nothing is sent there."""
    with HostileServer(Reply(say("Mine now."))) as thief:
        where = thief.url.replace("localhost", "127.0.0.1")
        with HostileServer(attacks.redirect(f"{where}/v1/chat/completions", code)) as server:
            said = fails(attacked(wire, server.url, request_timeout=PATIENCE), mode, False)
        assert f"'{where}'" in said
        assert (thief.connections, len(server.requests)) == (0, 1)


@every_wire
@both_modes
def test_a_redirect_to_the_same_server_is_followed_once(wire: str, mode: str) -> None:
    """A server may move its own address; it may not lead in circles."""
    path = "/v1/moved/messages" if "messages" in wire or "anthropic" in wire else "/v1/moved/chat/completions"
    if wire == "responses":
        path = "/v1/moved/responses"
    with HostileServer(attacks.redirect(path), Reply(say("Moved."))) as server:
        assert run(attacked(wire, server.url, request_timeout=PATIENCE), mode, False).text == "Moved."
        assert server.requests[1] == path
    with HostileServer(attacks.redirect(path)) as server:
        assert "redirected" in fails(attacked(wire, server.url, request_timeout=PATIENCE), mode, False)
        assert len(server.requests) == 2


@every_wire
@both_modes
def test_a_request_that_nobody_reads_has_the_same_time(wire: str, mode: str) -> None:
    """A server that does not take the request is given up on, though nothing waits for an answer yet."""
    history = History((UserMessage("long " * 4 * MIB),))
    with HostileServer(attacks.never_reads) as server:
        text = fails(attacked(wire, server.url, request_timeout=1.5), mode, False, history=history)
    assert "1.5 seconds" in text or "did not answer in time" in text


@pytest.mark.parametrize("wire", CONNECTORS)
@both_modes
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    ("attack", "streaming"), [(attacks.slow_headers, False), (attacks.slow_body, True)], ids=["headers", "stream"]
)
def test_a_connection_that_is_used_again_has_the_same_time(
    wire: str, mode: str, streaming: bool, tls: bool, attack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over TLS, and on a connection that served an honest answer before."""
    certificate = attacks.make_certificate(tmp_path) if tls else None
    if certificate is not None:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    requests, connections, text, seconds = 0, 0, "", 0.0
    for seconds in LONGER:
        with HostileServer(Reply(call("read", path="a.txt")), attack, certificate=certificate) as server:
            text = fails(attacked(wire, server.url, request_timeout=seconds), mode, streaming)
            requests, connections = len(server.requests), server.connections
        if requests == 2:
            break
    assert requests == 2
    if not (wire == "chat" and streaming):  # after a stream of this format the client closes the connection
        assert connections == 1
    assert f"{seconds:g} seconds" in text


@pytest.mark.parametrize("wire", CONNECTORS)
def test_a_connection_lives_on_after_its_request(wire: str) -> None:
    """The end of one request's time does not touch the request that uses its connection next."""
    for seconds in LONGER:
        with (
            HostileServer(Reply(say("One.")), Reply(say("Two."))) as server,
            attacked(wire, server.url, request_timeout=seconds) as adapter,
        ):
            shop = Workshop()
            try:
                assert adapter.evaluate(shop.prompt, shop.session).text == "One."
                time.sleep(seconds + 0.2)
                assert adapter.evaluate(shop.prompt, shop.session).text == "Two."
            except PromptEvaluationError:
                if seconds != LONGER[-1]:
                    continue
                raise
            assert server.connections == 1
            return


@pytest.mark.parametrize("wire", CONNECTORS)
@both_modes
def test_the_deadline_is_a_total_time_too(wire: str, mode: str) -> None:
    """It ends the evaluation where the limit of the request alone would not."""
    with HostileServer(attacks.slow_headers) as server:
        adapter = attacked(wire, server.url, request_timeout=600)
        fails(adapter, mode, False, deadline=Deadline.after(timedelta(seconds=SECONDS)))


@both_modes
@both_ways
@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_a_client_of_ones_own_has_the_same_time(package: str, mode: str, streaming: bool) -> None:
    """Sizes and redirects are its owner's; the time of a request and the calls of a turn are the adapter's."""
    sdk: Any = pytest.importorskip(package)
    adapters: dict[str, Any] = {"openai": OpenAIAdapter, "anthropic": AnthropicAdapter}
    names = {"openai": ("OpenAI", "AsyncOpenAI"), "anthropic": ("Anthropic", "AsyncAnthropic")}[package]
    with HostileServer(attacks.slow_body) as server:
        made = {"base_url": server.url, "api_key": "k"}
        client = getattr(sdk, names[0])(**made)

        async def main() -> str:
            async with getattr(sdk, names[1])(**made) as asynchronous:
                shop = Workshop()
                adapter = adapters[package](
                    "m", async_client=asynchronous, request_timeout=SECONDS, throttle=Throttle(max_attempts=1)
                )
                with pytest.raises(PromptEvaluationError) as caught:
                    await adapter.aevaluate(shop.prompt, shop.session, on_event=print if streaming else None)
                return str(caught.value)

        if mode == "sync":
            adapter = adapters[package]("m", client=client, request_timeout=SECONDS, throttle=Throttle(max_attempts=1))
            text = fails(adapter, mode, streaming)
        else:
            text = asyncio.run(main())
        client.close()
    assert "within 0.6 seconds" in text


def evaluated(adapter: Any, mode: str, shop: Workshop) -> Any:
    if mode == "sync":
        return adapter.evaluate(shop.prompt, shop.session)

    async def awaited() -> Any:
        try:
            return await adapter.aevaluate(shop.prompt, shop.session)
        finally:
            if not isinstance(adapter, ScriptedAdapter):
                await adapter.aclose()

    return asyncio.run(awaited())


@pytest.mark.parametrize("wire", ["scripted", *CONNECTORS])
@both_modes
def test_a_turn_has_a_number_of_calls(wire: str, mode: str) -> None:
    """Of a turn with more calls than that none runs, and the evaluation says how to allow it."""
    turn = [call("write", path=str(number)).with_id(f"c{number}") for number in range(257)]
    shop = Workshop()
    with HostileServer(Reply(turn)) as server:
        adapter: Any = ScriptedAdapter(turn) if wire == "scripted" else WIRES[wire](server.url)
        with pytest.raises(PromptEvaluationError, match=r"257 calls in one turn.*max_calls_per_turn=") as caught:
            evaluated(adapter, mode, shop)
        if wire != "scripted":
            adapter.close()
    assert caught.value.phase == "response"
    assert shop.session[ToolInvoked].all() == ()
    assert shop.notes == []


def test_a_turn_may_have_as_many_calls_as_the_limit() -> None:
    """The limit itself is allowed, and a higher one can be set."""
    cases: list[tuple[int, dict[str, Any]]] = [(256, {}), (300, {"max_calls_per_turn": 300})]
    for count, options in cases:
        shop = Workshop()
        turn = [call("write", path=str(number)) for number in range(count)]
        ScriptedAdapter(turn, say("Done."), **options).evaluate(shop.prompt, shop.session)
        assert len(shop.notes) == count


@pytest.mark.parametrize(
    "options",
    [
        {"request_timeout": 0},
        {"request_timeout": float("nan")},
        {"request_timeout": float("inf")},
        {"max_answer_bytes": 0},
        {"max_calls_per_turn": 0},
    ],
    ids=str,
)
def test_a_limit_that_is_none_is_refused(options: dict[str, Any]) -> None:
    """When the adapter is made."""
    with pytest.raises(ValueError, match=next(iter(options))):
        ScriptedAdapter(say("Never."), **options)


def test_limits_are_what_the_documentation_says() -> None:
    """Ten minutes, 32 MiB, 256 calls."""
    settings = ScriptedAdapter(say("x")).settings
    assert (settings.request_timeout, settings.max_answer_bytes, settings.max_calls_per_turn) == (600.0, 32 * MIB, 256)


def test_an_error_of_the_server_is_cut() -> None:
    """Megabytes of text in an error do not become megabytes of exception, and patterns are not run over them."""
    from weakincentives.adapters.sdk_errors import ProviderWords, failure_of, is_missing_key

    openai: Any = pytest.importorskip("openai")
    words = ProviderWords("A", "B", "C", "D")
    text = "api key missing " * MIB
    start = time.monotonic()
    error = openai.OpenAIError(text)
    assert not is_missing_key(error)
    failure = failure_of(error, words)
    assert isinstance(failure, RequestFailed)
    assert len(str(failure)) < 5000
    assert time.monotonic() - start < PATIENCE
