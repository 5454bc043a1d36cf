"""A replay closes the network for its own handlers, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context

import pytest

from weakincentives.testing.no_network import network

FUNCTIONS = ("connect", "connect_ex", "sendto", "sendmsg")


@pytest.fixture
def port() -> Generator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_nothing_is_left_behind(port: int) -> None:
    """After the last block sockets are as they were; while one is open, others can still connect."""
    before = socket.getaddrinfo, {name: getattr(socket.socket, name) for name in FUNCTIONS}
    with network(closed=True):
        with pytest.raises(PermissionError, match="A replay opens no connection"):
            socket.create_connection(("127.0.0.1", port))
        with pytest.raises(PermissionError), socket.socket() as one:
            one.connect_ex(("127.0.0.1", port))
        with pytest.raises(PermissionError), socket.socket(type=socket.SOCK_DGRAM) as one:
            one.sendto(b"x", ("127.0.0.1", port))
        with network(closed=False):
            socket.create_connection(("127.0.0.1", port)).close()
        with pytest.raises(PermissionError):
            socket.getaddrinfo("localhost", port)
    assert (socket.getaddrinfo, {name: getattr(socket.socket, name) for name in FUNCTIONS}) == before
    assert not {*FUNCTIONS} & {*vars(socket.socket)}
    socket.create_connection(("127.0.0.1", port)).close()


def test_only_its_own_threads_and_tasks(port: int) -> None:
    """Another thread connects meanwhile, also when its own block ends first; one with the block's context does not."""
    failed: list[BaseException] = []

    def connect() -> None:
        try:
            with network(closed=False):
                socket.create_connection(("127.0.0.1", port)).close()
        except BaseException as error:
            failed.append(error)
            raise

    async def open_connection() -> None:
        await asyncio.open_connection("127.0.0.1", port)

    with network(closed=True):
        other = threading.Thread(target=connect)
        other.start()
        other.join()
        assert failed == []
        with pytest.raises(PermissionError):
            asyncio.run(open_connection())
        context = copy_context()
    with pytest.raises(PermissionError), network(closed=True):
        context.run(socket.create_connection, ("127.0.0.1", port))


def test_threads_and_pools_that_it_starts_are_closed_too(port: int) -> None:
    """Also a pool that had its threads before. Once the block is over they connect again, and so do other jobs."""

    def connect() -> BaseException | None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except PermissionError as error:
            return error
        return None

    def connect_again(_: int) -> BaseException | None:
        return connect()

    async def in_executor() -> BaseException | None:
        return await asyncio.get_running_loop().run_in_executor(None, connect)

    class Connecting(threading.Thread):
        def run(self) -> None:
            found.append(connect())

    found: list[BaseException | None] = []
    goes_on = threading.Event()

    def connect_later() -> None:
        goes_on.wait(60)
        found.append(connect())

    with ThreadPoolExecutor(1) as old, ThreadPoolExecutor(1) as new:
        assert old.submit(connect).result() is None
        with network(closed=True):
            for thread in (threading.Thread(target=lambda: found.append(connect())), Connecting()):
                thread.start()
                thread.join()
            assert [type(error) for error in found] == [PermissionError, PermissionError]
            assert isinstance(old.submit(connect).result(), PermissionError)
            assert isinstance(new.submit(connect).result(), PermissionError)
            assert [type(error) for error in new.map(connect_again, range(2))] == [PermissionError] * 2
            assert isinstance(asyncio.run(in_executor()), PermissionError)
            context = Context()  # whose caller is not in the block
            assert context.run(new.submit, connect).result() is None
            with network(closed=False):
                assert new.submit(connect).result() is None
            later = threading.Thread(target=connect_later)
            later.start()
        goes_on.set()
        later.join()
        assert found[2:] == [None]
        assert (old.submit(connect).result(), new.submit(connect).result()) == (None, None)


def test_names_are_not_looked_up_and_datagrams_not_sent(port: int) -> None:
    """But what has no address goes to the other end of a pair, as between a program and its child."""
    with network(closed=True):
        for look_up in (socket.gethostbyname, socket.gethostbyname_ex, socket.gethostbyaddr):
            with pytest.raises(PermissionError):
                look_up("localhost")
        with pytest.raises(PermissionError):
            socket.getnameinfo(("127.0.0.1", port), 0)
        with pytest.raises(PermissionError), socket.socket(type=socket.SOCK_DGRAM) as one:
            one.sendmsg([b"x"], [], 0, ("127.0.0.1", port))
        one, other = socket.socketpair()
        with one, other:
            one.sendmsg([b"x"])
            assert other.recv(1) == b"x"


def test_another_library_may_stand_in_front(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """What it has put there meanwhile stays, and calls what was there before."""
    asked: list[object] = []
    monkeypatch.setattr(socket, "getaddrinfo", socket.getaddrinfo)  # which is there again after this test
    with network(closed=True):
        ours = socket.getaddrinfo

        def counting(*arguments: object) -> object:
            asked.append(arguments)
            return ours(*arguments)  # pyright: ignore[reportArgumentType, reportUnknownVariableType]

        monkeypatch.setattr(socket, "getaddrinfo", counting)
    assert socket.getaddrinfo is counting
    socket.create_connection(("127.0.0.1", port)).close()
    assert len(asked) == 1


TRACED = """
import sys, threading
from weakincentives.testing.no_network import network

with network(closed=True):
    pass
failed = []
sys.unraisablehook = failed.append
threading.settrace(lambda *_: None)
sys.setswitchinterval(1e-6)

def starting(times):
    for _ in range(times):
        one = threading.Thread(target=int)
        one.start()
        one.join()

threads = [threading.Thread(target=starting, args=(150,)) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.setswitchinterval(0.005)
print(len(failed))
"""


def test_threads_start_under_a_tracer_afterwards() -> None:
    """As in a test suite whose coverage is measured: an audit hook made some of them fail on Python 3.11."""
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "0\n", done.stderr
