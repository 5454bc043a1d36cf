"""A server on this machine that attacks its client: it never ends, unpacks to gigabytes, or leads elsewhere.

It speaks HTTP by hand, one attack for each request, over TLS where it is given a certificate. `Reply` is the one
that is no attack; its connection stays open for the next request.
"""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Self

import pytest
from tests.adapters.loopback import WIRES, spoken

PAUSE = 0.05
"""Between two bytes of a slow answer: far less than any timeout of a single read."""

TICKS = 3_600
"""So often it comes: for three minutes, so that a test without a limit fails instead of hanging."""

Pieces = Iterator[bytes]


@dataclass(frozen=True)
class Request:
    path: str
    body: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Reply:
    """An honest answer."""

    turn: Any

    def __call__(self, request: Request) -> Pieces:
        wire = next(wire for end, wire in WIRES.items() if request.path.endswith(end))
        text, kind = wire.body(spoken(self.turn, 0), bool(request.body.get("stream")))
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(text.encode())}\r\n\r\n"
        yield head.encode() + text.encode()


def _kind(request: Request) -> bytes:
    return b"text/event-stream" if request.body.get("stream") else b"application/json"


def slow_body(request: Request) -> Pieces:
    """One byte at a time; for a stream, comments, which keep it alive."""
    yield b"HTTP/1.1 200 OK\r\ncontent-type: " + _kind(request) + b"\r\ncontent-length: 1000000\r\n\r\n"
    for _ in range(TICKS):
        time.sleep(PAUSE)
        yield b": still here\n\n" if request.body.get("stream") else b" "


def slow_headers(request: Request) -> Pieces:
    """One header at a time."""
    yield b"HTTP/1.1 200 OK\r\n"
    for _ in range(TICKS):
        time.sleep(PAUSE)
        yield b"x-more: 1\r\n"


def early_hints(request: Request) -> Pieces:
    """Provisional answers without end."""
    for _ in range(TICKS):
        time.sleep(PAUSE)
        yield b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"


def slow_error(request: Request) -> Pieces:
    """An error with a body that never ends."""
    yield b"HTTP/1.1 500 Oh\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n"
    for _ in range(TICKS):
        time.sleep(PAUSE)
        yield b" "


def endless(request: Request) -> Pieces:
    """As much as the client takes."""
    yield b"HTTP/1.1 200 OK\r\ncontent-type: " + _kind(request) + b"\r\ntransfer-encoding: chunked\r\n\r\n"
    for _ in range(5000):  # 320 MB
        yield b"10000\r\n" + b" " * 0x10000 + b"\r\n"


@cache
def _bomb() -> bytes:
    """Made once: packing it takes a second."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(b" " * (1 << 20)) for _ in range(300)) + packer.flush()


def gzip_bomb(request: Request) -> Pieces:
    """300 KB that unpack to 300 MB."""
    packed = _bomb()
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-type: " + _kind(request)
    yield head + b"\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed


def unknown_encoding(request: Request) -> Pieces:
    """Packed in a way that was not asked for."""
    yield b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def packed(turn: Any) -> Callable[[Request], Pieces]:
    """An honest answer, packed although that was not asked for."""

    def answer(request: Request) -> Pieces:
        head, _, body = next(Reply(turn)(request)).partition(b"\r\n\r\n")
        kind = head.split(b"\r\n")[1]
        packer = zlib.compressobj(wbits=31)
        data = packer.compress(body) + packer.flush()
        yield b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n" + kind
        yield b"\r\ncontent-length: %d\r\n\r\n" % len(data) + data

    return answer


def redirect(url: str, code: int = 307) -> Callable[[Request], Pieces]:
    """Leads to another address."""

    def answer(request: Request) -> Pieces:
        yield f"HTTP/1.1 {code} Moved\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n".encode()

    return answer


def never_reads(request: Request) -> Pieces:
    """Marks a connection on which the request itself is not read."""
    yield from ()


class HostileServer:
    """`with HostileServer(*attacks) as server:`; each request meets the next attack, the last one again and again."""

    def __init__(self, *attacks: Callable[[Request], Pieces], certificate: Path | None = None) -> None:
        self._attacks = attacks
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self._closing = Event()
        self._lock = Lock()
        self.requests: list[str] = []
        self.connections = 0
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://localhost:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(0.2)
            with suppress(OSError):
                made = connection if self._tls is None else self._shaken(connection)
                with made:
                    while not self._closing.is_set() and self._one(made):
                        pass

    def _shaken(self, connection: socket.socket) -> ssl.SSLSocket:
        assert self._tls is not None
        connection.settimeout(10)
        made = self._tls.wrap_socket(connection, server_side=True)
        made.settimeout(0.2)
        return made

    def _one(self, connection: socket.socket) -> bool:
        """Read a request and play its attack; whether another may follow on this connection."""
        with self._lock:
            number = len(self.requests)
            attack = self._attacks[min(number, len(self._attacks) - 1)]
        if attack is never_reads:
            self._closing.wait(60)
            return False
        request = self._read(connection)
        if request is None:
            return False
        with self._lock:
            self.requests.append(request.path)
        for piece in attack(request):
            if self._closing.is_set():
                return False
            self._send(connection, piece)
        return True

    def _send(self, connection: socket.socket, piece: bytes) -> None:
        view = memoryview(piece)
        while view and not self._closing.is_set():
            try:
                count = connection.send(view)
            except TimeoutError:
                continue
            self.sent += count
            view = view[count:]

    def _read(self, connection: socket.socket) -> Request | None:
        data = b""
        while b"\r\n\r\n" not in data:
            more = self._receive(connection)
            if not more:
                return None
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        while len(body) < int(headers.get("content-length", 0)):
            more = self._receive(connection)
            if not more:
                return None
            body += more
        return Request(lines[0].split(" ")[1].partition("?")[0], json.loads(body or b"{}"))

    def _receive(self, connection: socket.socket) -> bytes:
        while not self._closing.is_set():
            try:
                return connection.recv(1 << 16)
            except TimeoutError:
                continue
        return b""


def make_certificate(folder: Path) -> Path:
    """A key and a certificate for localhost, signed by itself, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate; apt install openssl")
    made = folder / "localhost.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    made.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return made
