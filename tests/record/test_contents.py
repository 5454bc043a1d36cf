"""Images and documents on record: kept once, as blobs, and there again when a run is resumed, replayed or exported."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from weakincentives import MainLoop, Prompt, Session, Tool, ToolContext, ToolInvoked, ToolResult
from weakincentives.content import Document, Image
from weakincentives.errors import ParseError
from weakincentives.prompt import MarkdownSection
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.messages import AnswerMessage, UserMessage
from weakincentives.runtime.record import export_run
from weakincentives.serde import parse
from weakincentives.session import append_all
from weakincentives.testing import ScriptedAdapter, call, replay, say

from .sealing import SEAL

PHOTO = Image(b"\x89PNG\r\n\x1a\n" + b"photo" * 9, name="photo.png")
SCREEN = Image(b"\x89PNG\r\n\x1a\n" + b"screen" * 9000, name="screen.png")
SECRET = "sk-ant-api03-" + "A1b2C3d4" * 10
LETTER = Document(f"The key is {SECRET}.".encode(), "text/plain", "letter.txt")


@dataclass(frozen=True)
class Asked:
    photo: Image


@dataclass(frozen=True)
class Url:
    url: str


@dataclass(frozen=True)
class Page:
    url: str
    screen: Image
    other: object = None

    def render(self) -> str:
        return f"The page {self.url}."


def visit(params: Url, *, context: ToolContext) -> ToolResult[Page]:
    if params.url == "inner":
        context.session[Url].append(params)
    return ToolResult.ok(Page(params.url, SCREEN, [LETTER]))


class Program:
    """A prompt and a session as a new process makes them."""

    def __init__(self) -> None:
        tool = Tool[Url, Page](name="visit", description="Open a page.", handler=visit)
        section = MarkdownSection[Asked](title="Task", template="Find ${photo}.", tools=[tool])
        self.prompt = Prompt(name="finder", sections=[section]).bind(Asked(PHOTO))
        self.session = Session()
        self.session[Page].register(Page, append_all)

    def run(self, store: SqliteRunStore, *turns: Any, run_id: str = "r") -> ScriptedAdapter:
        adapter = ScriptedAdapter(*turns)
        adapter.evaluate(self.prompt, self.session, record=store.run(run_id))
        return adapter


@pytest.fixture(params=["plain", "sealed"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    seal = SEAL if request.param == "sealed" else None
    with SqliteRunStore(tmp_path / "runs.db", seal=seal) as made:
        yield made


TURNS = (call("visit", url="a"), call("visit", url="b"), say("There."))


def shown(adapter: ScriptedAdapter, at: int) -> list[Any]:
    messages = adapter.requests[at].messages
    return [message.attachments for message in messages if isinstance(message, UserMessage | AnswerMessage)]


def test_each_is_kept_once_and_rows_have_its_name(tmp_path: Path) -> None:
    """A screenshot that two calls return, and that state and log hold, is one blob; no row has its bytes."""
    path = tmp_path / "runs.db"
    with SqliteRunStore(path) as store:
        Program().run(store, *TURNS)
        bodies = "".join(str(step.body) for step in store.steps("r"))
        assert "iVBORw0KGgo" not in bodies
        assert "blob:" in bodies
        assert store.verify() == []
        contents = [next(iter(step.body["contents"]))["blob"] for step in store.steps("r", kinds=("call",))]
        assert len(set(contents)) == 1
        assert store.blob(contents[0]) in {SCREEN.data, LETTER.data}
    with closing(sqlite3.connect(path)) as connection:
        sizes = [size for (size,) in connection.execute("SELECT size FROM wink_blobs")]
    assert sizes.count(len(SCREEN.data)) == sizes.count(len(PHOTO.data)) == 1


@pytest.mark.parametrize("at", [1, 2])
def test_a_resumed_run_shows_the_model_the_same(store: SqliteRunStore, at: int) -> None:
    """After an interrupt the next process sends the recorded images, and has them in state and log."""
    first = Program()
    with pytest.raises(KeyboardInterrupt):
        first.run(store, *TURNS[:at], KeyboardInterrupt())
    second = Program()
    second.prompt = second.prompt.bind(Asked(Image(b"\xff\xd8\xff another", name="photo.png")))
    adapter = second.run(store, *TURNS[at:])
    adapter.assert_complete()
    assert shown(adapter, 0) == [(PHOTO,), *[(SCREEN,)] * at]  # the letter is sent as text
    assert [page.screen for page in second.session[Page].all()] == [SCREEN] * 2
    assert [event.result.value for event in second.session[ToolInvoked].all() if event.result] == [
        Page(url, SCREEN, [LETTER]) for url in ("a", "b")
    ]


@pytest.mark.parametrize("calls", ["run", "serve"])
def test_a_replay_goes_as_it_did(store: SqliteRunStore, calls: Any) -> None:
    """Replays read the images of the record, and find no difference."""
    Program().run(store, *TURNS)
    again = Program()
    result = replay(store.open("r"), (again.prompt, again.session), types=[Page], calls=calls)
    result.assert_same()
    assert again.session[Page].count() == 2


def test_looking_at_a_run(store: SqliteRunStore) -> None:
    """Prompt and state at a step have the images; plain data has their names."""
    Program().run(store, *TURNS)
    run = store.open("r", types=[Page])
    last = run.steps()[-1].seq
    prompt = run.prompt_at(last)
    assert prompt is not None
    assert prompt.attachments == (PHOTO,)
    assert run.state_at(last)[Page].latest() == Page("b", SCREEN, [LETTER])
    assert "blob:" in str(run.data_at(last))
    with pytest.raises(ParseError, match="kept in a run record"):
        parse(Image, {"data": "blob:" + "0" * 40})


@pytest.mark.parametrize("masked", [True, False])
def test_exports_bring_them_along(store: SqliteRunStore, tmp_path: Path, masked: bool) -> None:
    """An exported file has all of them; in a masked one, credentials in text are masked and images are as they were."""
    Program().run(store, *TURNS)
    export_run(store, "r", tmp_path / "one.wink", masked=masked)
    with SqliteRunStore(tmp_path / "one.wink") as copy:
        assert copy.verify() == []
        run = copy.open("r", types=[Page])
        page = run.state_at(run.steps()[-1].seq)[Page].latest()
        assert page is not None
        assert page.screen == SCREEN
        letter: Any = page.other
        assert (SECRET in letter[0].text) is not masked
    assert (SECRET.encode() in (tmp_path / "one.wink").read_bytes()) is not masked


def test_pruning_keeps_what_a_fork_refers_to(store: SqliteRunStore) -> None:
    """Content goes with the last run that refers to it, and no sooner."""
    Program().run(store, *TURNS)
    with pytest.raises(KeyboardInterrupt):
        Program().run(store, TURNS[0], KeyboardInterrupt(), run_id="other")
    store.prune(timedelta(0))
    assert store.info("r") is None
    assert store.verify() == []
    adapter = Program().run(store, *TURNS[1:], run_id="other")
    assert shown(adapter, 0) == [(PHOTO,), (SCREEN,)]


def test_ended_runs_and_ids_of_calls(store: SqliteRunStore) -> None:
    """A run that has ended gives its answer again, with the images in the history."""
    Program().run(store, *TURNS)
    again = Program()
    response = ScriptedAdapter().evaluate(again.prompt, again.session, record=store.run("r"))
    answers = [message for message in response.history.messages if isinstance(message, AnswerMessage)]
    assert [answer.attachments for answer in answers] == [(SCREEN, LETTER)] * 2
    assert isinstance(response.history.messages[0], UserMessage)
    assert response.history.messages[0].attachments == (PHOTO,)


@dataclass(frozen=True)
class Scanned:
    scan: Document


class Clerk(MainLoop[Scanned, str]):
    def prepare(self, request: Scanned) -> tuple[Prompt[str], Session]:
        section = MarkdownSection[Scanned](title="Task", template="Enter ${scan}.")
        return Prompt[str](name="clerk", sections=[section]).bind(request), Session()


@pytest.mark.slow  # 17 MB of base64
def test_a_request_with_a_large_scan_is_resumed(tmp_path: Path) -> None:
    """The request of a loop is read back from the record, however large the scan in it is."""
    scan = Document(b"%PDF-1.7" + bytes(13 * 1024 * 1024), name="scan.pdf")
    with SqliteRunStore(tmp_path / "runs.db") as store:
        config = MainLoopConfig(runs=store)
        with pytest.raises(KeyboardInterrupt):
            Clerk(adapter=ScriptedAdapter(KeyboardInterrupt()), config=config).execute(Scanned(scan), run_id="r")
        adapter = ScriptedAdapter(say("Entered."))
        Clerk(adapter=adapter, config=config).resume("r")
        assert shown(adapter, 0) == [(scan,)]
