"""`examples/chat_server.py` under uvicorn, with real connections and in a real browser."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.browser import browser, page
from tests.conftest import needs

pytestmark = pytest.mark.slow  # a server, and a browser

__all__ = ["browser", "page"]  # fixtures

SERVER = Path(__file__).parents[2] / "examples" / "chat_server.py"
WAIT = 60.0
CALLS = ['order {"name": "tea"}: succeeded', 'bake {"name": "cake"}: succeeded']


class Server:
    """The example as a program."""

    def __init__(self, folder: Path) -> None:
        is_there = find_spec("starlette") is not None and find_spec("uvicorn") is not None
        needs("starlette", present=is_there, install="pip install starlette uvicorn")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(  # uvicorn takes Ctrl-C also where it was ignored before
                [sys.executable, SERVER, "--port", str(self.port), "--runs", str(folder / "runs.db")], stderr=log,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
        self.wait_for(lambda: b"running on" in self.log.read_bytes())

    def wait_for(self, condition: Callable[[], object]) -> None:
        until = time.monotonic() + WAIT
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)

    def ask(self, path: str, data: Any = None, headers: dict[str, str] | None = None) -> Any:
        """A response that is read piece by piece."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        body = None if data is None else json.dumps(data)
        connection.request("GET" if data is None else "POST", path, body, headers or {})
        response: Any = connection.getresponse()
        response.connection = connection
        return response

    def whole(self, path: str, data: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any, bytes]:
        response = self.ask(path, data, headers)
        try:
            return response.status, response.headers, response.read()
        finally:
            cut(response)

    def say(self, chat: str, text: str) -> str:
        return json.loads(self.whole("/messages", {"chat": chat, "text": text})[2])["run"]

    def places(self, chat: str) -> tuple[list[str], list[str]]:
        found = json.loads(self.whole(f"/chats/{chat}")[2])
        return found["oven"], found["table"]

    def events(self, run: str, after: str) -> list[dict[str, str]]:
        response = self.ask(f"/events/{run}", headers={"Last-Event-ID": after})
        try:
            return events(response)
        finally:
            cut(response)


def cut(response: Any, *, reset: bool = False) -> None:
    """Close the connection; with `reset`, as a machine does that was switched off and on."""
    if response.connection.sock is not None:
        if reset:
            response.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        response.connection.close()
    response.close()


class Line:
    """A connection to the server that can be cut, as a network can."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[socket.socket] = []
        self.is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            if self.is_cut:
                one.close()
                continue
            other = socket.create_connection(("127.0.0.1", self._port))
            self._open += [one, other]
            Thread(target=self._pass, args=(one, other), daemon=True).start()
            Thread(target=self._pass, args=(other, one), daemon=True).start()

    @staticmethod
    def _pass(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while piece := one.recv(65536):
                other.sendall(piece)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self.is_cut = True
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            each.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("chat"))
    yield made
    made.process.send_signal(signal.SIGTERM)
    made.process.wait(WAIT)
    assert "Traceback" not in made.log.read_text()


def events(response: Any, *, until: str = "") -> list[dict[str, str]]:
    """What comes, up to an event of that name or the end."""
    found: list[dict[str, str]] = []
    fields: dict[str, str] = {}
    for line in response:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif fields:
            found.append(fields)
            if fields.get("event") == until:
                break
            fields = {}
    return found


def test_a_connection_that_is_cut_undoes_the_call_and_goes_on_from_there(server: Server) -> None:
    """In the middle of an answer; the page that comes back with the last id that it has gets the rest."""
    run = server.say("cut", "A tea and a cake.")
    response = server.ask(f"/events/{run}")
    first = events(response, until="call_finished")
    server.wait_for(lambda: server.places("cut") == (["cake"], ["tea"]))
    cut(response)
    server.wait_for(lambda: server.places("cut") == ([], ["tea"]))
    last = [event["id"] for event in first if "id" in event][-1]
    rest = server.events(run, last)
    names = [event["event"] for event in rest if "event" in event]
    assert names[:4] == ["run_started", "resumed", "call_started", "call_finished"]
    assert names[-1] == "finished"
    assert server.places("cut") == ([], ["cake", "tea"])
    again = [event["event"] for event in server.events(run, "0")]
    assert again.count("call_finished") == 2
    assert again[-1] == "finished"
    last = [event["id"] for event in rest if "id" in event][-1]
    assert server.events(run, last) == []


def test_connections_that_are_reset_while_text_is_written_leave_nothing(server: Server) -> None:
    """The client is gone without a word, at many moments; the run goes on whenever one asks again."""
    run = server.say("reset", "A tea, a coffee and a juice.")
    finished = False
    for number in range(12):
        response = server.ask(f"/events/{run}")
        for _ in range(number * 3):
            finished = finished or b"event: finished" in response.readline()
        cut(response, reset=True)
        if finished:
            break
    rest = server.events(run, "0")
    assert [event["event"] for event in rest if "event" in event][-1] == "finished"
    assert server.places("reset") == ([], ["coffee", "juice", "tea"])


def test_what_is_not_there_or_not_sent_by_the_page_is_refused(server: Server) -> None:
    """A run that is not known, and another site's name for this address."""
    assert server.whole("/events/none-1")[0] == 404
    assert server.whole("/", headers={"Host": "evil.example"})[0] == 400
    policy = server.whole("/")[1]["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_server_ends_although_a_page_is_connected(tmp_path: Path) -> None:
    """Ctrl-C with an open stream: the call is undone, and the program ends soon."""
    server = Server(tmp_path)
    response = server.ask(f"/events/{server.say('end', 'A cake.')}")
    events(response, until="call_started")
    server.process.send_signal(signal.SIGINT)
    server.process.wait(WAIT)
    cut(response)
    from weakincentives.runtime import SqliteRunStore

    with SqliteRunStore(tmp_path / "runs.db") as store:
        assert [info.run_id for info in store.interrupted()] == ["end-1"]
        assert [step.kind for step in store.open("end-1").steps()][-1] == "turn"


# In a browser.


def test_a_chat_in_a_browser(server: Server, page: Any) -> None:
    """Text, calls, and what is on the table; Stop undoes what is in the oven, and Go on takes it up again."""
    page.goto(server.url)
    page.fill("#text", "A tea and a cake, please.")
    page.click("#send")
    page.locator("#oven").get_by_text("cake").wait_for()
    page.click("#stop")
    page.locator("#oven").get_by_text("empty").wait_for()
    assert page.locator("#table").inner_text() == "tea"
    assert "left, undone" in page.locator(".call.ended").inner_text()
    page.click("#go-on")
    page.locator("#table").get_by_text(re.compile("cake, tea|tea, cake")).wait_for()
    page.get_by_text("Anything else?").wait_for()
    assert page.locator(".call.succeeded").all_inner_texts() == CALLS
    assert page.get_by_text("Coming up.").count() == 1
    page.reload()
    page.get_by_text("Anything else?").wait_for()
    assert page.locator(".call.succeeded").all_inner_texts() == CALLS
    assert page.locator(".you").all_inner_texts() == ["A tea and a cake, please."]


def test_a_page_that_lost_its_connection_goes_on_by_itself(server: Server, page: Any) -> None:
    """The browser asks again with the last id; the page ends as if nothing had been."""
    line = Line(server.port)
    page.goto(f"http://127.0.0.1:{line.port}/")
    page.fill("#text", "A bread.")
    page.click("#send")
    page.locator("#oven").get_by_text("bread").wait_for()
    line.cut()
    page.locator("#status").get_by_text("connecting again").wait_for()
    chat = page.evaluate("location.hash.slice(1)")
    server.wait_for(lambda: server.places(chat) == ([], []))
    line.is_cut = False
    page.get_by_text("Anything else?").wait_for()
    line.close()
    assert page.locator(".call").all_inner_texts() == ['bake {"name": "bread"}: succeeded']
    assert server.places(chat) == ([], ["bread"])


def test_what_a_model_or_a_guest_wrote_stays_text(server: Server, page: Any) -> None:
    """Markup is shown, and does nothing; a narrow page does not scroll sideways."""
    page.set_viewport_size({"width": 400, "height": 700})
    page.goto(server.url)
    hostile = "<img src=x onerror=document.title='no'><script>document.title='no'</script> " + "w" * 300
    page.fill("#text", hostile)
    page.click("#send")
    page.get_by_text("We have tea").wait_for()
    assert page.locator(".you").inner_text() == hostile
    assert page.title() == "Cafe"
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= 400")
