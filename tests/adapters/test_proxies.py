"""Requests through a proxy (`HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`) have the same limits as others."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.adapters import hostile_server as attacks
from tests.adapters.hostile_server import PAUSE, TICKS, HostileServer, Pieces, Reply, Request
from tests.adapters.test_hostile_server import MIB, PATIENCE, SECONDS, attacked, both_modes, every_wire, fails, run

from weakincentives.testing import say

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")]

ELSEWHERE = "http://model.invalid"
"""A server that only the proxy could know."""


def silent_tunnel(request: Request) -> Pieces:
    """A tunnel is promised, and nothing comes out of it."""
    del request
    yield b"HTTP/1.1 200 Connection established\r\n\r\n"
    for _ in range(TICKS):
        time.sleep(PAUSE)
        yield b""


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def behind(proxy: HostileServer, monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    """All requests go through it, but for those that `no_proxy` names."""
    for name, value in {"http_proxy": proxy.url, "https_proxy": proxy.url, **more}.items():
        monkeypatch.setenv(name, value)


@every_wire
@both_modes
def test_a_proxy_is_used(wire: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy of the environment gets the request, with the address of the server."""
    with HostileServer(Reply(say("By proxy."))) as proxy:
        behind(proxy, monkeypatch)
        assert run(attacked(wire, ELSEWHERE, request_timeout=PATIENCE), mode, False).text == "By proxy."
        assert proxy.requests[0].startswith(ELSEWHERE)


@every_wire
@both_modes
def test_no_proxy_is_used_for_the_servers_that_are_named(wire: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`NO_PROXY` keeps the requests to a server on this machine away from the proxy."""
    with HostileServer(Reply(say("By proxy."))) as proxy, HostileServer(Reply(say("Straight."))) as server:
        behind(proxy, monkeypatch, no_proxy="localhost")
        assert run(attacked(wire, server.url, request_timeout=PATIENCE), mode, False).text == "Straight."
        assert proxy.requests == []


@every_wire
@both_modes
@pytest.mark.parametrize(
    ("attack", "streaming"),
    [(attacks.slow_headers, False), (attacks.slow_body, True)],
    ids=["headers", "stream"],
)
def test_a_request_by_proxy_has_a_total_time(
    wire: str, mode: str, streaming: bool, attack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slowly the proxy answers."""
    with HostileServer(attack) as proxy:
        behind(proxy, monkeypatch)
        text = fails(attacked(wire, ELSEWHERE), mode, streaming)
    assert f"{SECONDS:g} seconds" in text


@every_wire
@both_modes
@pytest.mark.parametrize("attack", [attacks.slow_headers, silent_tunnel, attacks.never_reads], ids=lambda a: a.__name__)
def test_a_tunnel_has_a_total_time(wire: str, mode: str, attack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that does not open the tunnel to an https server, or opens one that leads nowhere, is given up on."""
    with HostileServer(attack) as proxy:
        behind(proxy, monkeypatch)
        text = fails(attacked(wire, ELSEWHERE.replace("http:", "https:")), mode, False)
    assert f"{SECONDS:g} seconds" in text


@every_wire
@both_modes
def test_an_answer_by_proxy_has_a_size(wire: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy cannot send more than a server could."""
    with HostileServer(attacks.endless) as proxy:
        behind(proxy, monkeypatch)
        text = fails(attacked(wire, ELSEWHERE, request_timeout=PATIENCE), mode, False)
        assert "larger than 1 MiB" in text
        assert proxy.sent < 64 * MIB


@every_wire
@both_modes
def test_a_proxy_leads_nowhere_else(wire: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect that comes by proxy is refused like one of the server itself."""
    with HostileServer(attacks.redirect("http://other.invalid/v1/messages")) as proxy:
        behind(proxy, monkeypatch)
        assert "redirect" in fails(attacked(wire, ELSEWHERE, request_timeout=PATIENCE), mode, False)
        assert len(proxy.requests) == 1
