"""The real Claude Code, offline: a server on this machine plays the model, and everything else is as it is."""

from __future__ import annotations

import asyncio
import base64
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.hostile_server import HostileServer, slow_body, slow_headers
from tests.adapters.loopback import LoopbackServer, Status
from tests.conftest import needs

from weakincentives.adapters import (
    AnswerMessage,
    CallFinished,
    CallStarted,
    ModelMessage,
    PromptResponse,
    TextDelta,
    history_of,
    subagent,
)
from weakincentives.adapters.claude_agent_sdk import ClaudeAgentSDKAdapter, driver
from weakincentives.budget import Budget
from weakincentives.content import Document, Image
from weakincentives.deadlines import Deadline
from weakincentives.errors import PromptEvaluationError
from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.prompt import (
    Decision,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SectionVisibility,
    Tool,
    ToolContext,
)
from weakincentives.results import ToolResult
from weakincentives.runtime import PromptExecuted, PromptRendered, Session, ToolInvoked
from weakincentives.testing import ScriptedAdapter, call, say

pytestmark = pytest.mark.slow  # a program of 200 MB

WINK = "mcp__wink__"


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Verdict:
    fine: bool


def _keep(params: Note, *, context: ToolContext) -> ToolResult[str]:
    context.session[Note].append(params)
    if params.text == "bad":
        return ToolResult.error("That is a bad note.")
    if params.text == "boom":
        raise RuntimeError("disk on fire")
    return ToolResult.ok(params.text.upper(), message="Kept.")


KEEP = Tool[Note, str](name="keep", description="Keep a note.", handler=_keep)


def _need_claude() -> None:
    needs(
        "claude-cli",
        present=find_spec("claude_agent_sdk") is not None and find_spec("mcp") is not None,
        install="pip install 'weakincentives[claude-agent-sdk]'",
    )


@pytest.fixture(autouse=True)
def _claude(request: pytest.FixtureRequest) -> None:
    if request.node.name != "test_a_missing_sdk_names_the_command":
        _need_claude()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


@pytest.fixture
def files(root: Path) -> Iterator[HostFilesystem]:
    with HostFilesystem(root, watch="scan") as made:
        yield made


def _adapter(server: LoopbackServer, tmp_path: Path, **options: Any) -> ClaudeAgentSDKAdapter:
    return _claude_at(server.url, tmp_path, **options)


def _prompt(*tools: Tool[Any, Any], text: str = "Do it.", **options: Any) -> Prompt[Any]:
    section = MarkdownSection(title="Task", template=text, tools=tools)
    return Prompt(PromptTemplate(ns="t", key="claude", sections=[section], **options))


def _outcomes(session: Session) -> list[tuple[str | None, str, str]]:
    return [(event.call_id, event.tool_name, event.outcome) for event in session[ToolInvoked].all()]


def _results(server: LoopbackServer) -> dict[str, Any]:
    """What the model was told about each call."""
    found: dict[str, Any] = {}
    for received in server.received:
        for message in received.body["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else ():
                if block["type"] == "tool_result":
                    found[block["tool_use_id"]] = block
    return found


def _all_answered(history: Any) -> None:
    calls = [c.id for item in history.messages if isinstance(item, ModelMessage) for c in item.calls]
    answers = [item.call_id for item in history.messages if isinstance(item, AnswerMessage)]
    assert sorted(calls) == sorted(answers)


@dataclass(frozen=True)
class Conversation:
    """An evaluation, what was seen of it, and what the model was sent."""

    response: PromptResponse[Any]
    session: Session
    seen: list[Any]
    sent: dict[str, Any]
    told: dict[str, Any]


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Conversation:
    """One start of Claude Code for all tests that only look; `evaluate` is called where an event loop is busy."""
    _need_claude()
    session = Session()
    seen: list[Any] = []
    turns = (
        [say("Let me see."), call(WINK + "keep", text="good").with_id("c1")],
        [call(WINK + "keep", text="bad").with_id("c2"), call(WINK + "keep", text="boom").with_id("c3")],
        call("Nonsense", a=1).with_id("c4"),
        say("My name is Ada."),
    )

    async def main(adapter: ClaudeAgentSDKAdapter) -> PromptResponse[Any]:
        return adapter.evaluate(_prompt(KEEP, text="Say hi."), session, on_event=seen.append)

    with LoopbackServer(*turns) as server:
        adapter = _adapter(server, tmp_path_factory.mktemp("claude"), system="Be brief.")
        response = asyncio.run(main(adapter))
        return Conversation(response, session, seen, server.received[0].body, _results(server))


def test_calls_go_through_the_engine(conversation: Conversation) -> None:
    """A kept, a failed and a crashed call: each recorded once and answered once, only the crash marked as an error."""
    response, session, told = conversation.response, conversation.session, conversation.told
    assert response.text == "My name is Ada."
    assert response.turns == 4
    assert response.usage.input == 40
    assert _outcomes(session)[:3] == [("c1", "keep", "succeeded"), ("c2", "keep", "failed"), ("c3", "keep", "crashed")]
    assert session[Note].all() == (Note("good"),)
    assert told["c1"]["content"][0]["text"].rstrip() == "Kept.\nGOOD"
    assert not told["c1"].get("is_error")
    assert not told["c2"].get("is_error")
    assert told["c3"]["is_error"] is True
    assert "disk on fire" in str(told["c3"]["content"])
    assert session[PromptRendered].count() == session[PromptExecuted].count() == 1
    _all_answered(response.history)


@dataclass(frozen=True)
class Bill:
    scan: Document


def test_images_and_files_are_shown(tmp_path: Path) -> None:
    """A prompt's PDF is a block of its message, a result's image a block of the result; a PDF there is a line."""
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    screen, scan = Image(base64.b64decode(dot), name="s.png"), Document(b"%PDF-1.7 ...", name="bill.pdf")

    def look(params: Note) -> ToolResult[list[Any]]:
        return ToolResult.ok([screen, scan], message=params.text)

    tool = Tool[Note, list[Any]](name="look", description="Look.", handler=look)
    section = MarkdownSection[Bill](title="Task", template="See ${scan}.", tools=[tool])
    prompt: Prompt[Any] = Prompt(name="claude", sections=[section]).bind(Bill(scan))
    with LoopbackServer(call(WINK + "look", text="Seen.").with_id("c1"), say("Done.")) as server:
        response = _adapter(server, tmp_path).evaluate(prompt, Session())
        told = _results(server)["c1"]["content"]
    first = server.received[0].body["messages"][0]["content"]
    assert [block["title"] for block in first if block["type"] == "document"] == ["bill.pdf"]
    assert [block["type"] for block in told] == ["text", "image"]
    assert f"{scan} is not shown" in told[0]["text"]
    answers = [item.attachments for item in response.history.messages if isinstance(item, AnswerMessage)]
    assert answers == [(screen, scan)]


def test_what_the_model_is_told_of_our_tools(conversation: Conversation) -> None:
    """Name, description, schema of our tools, the rendered prompt, and none of the native tools unless asked for."""
    body = conversation.sent
    tools = {tool["name"]: tool for tool in body["tools"]}
    assert tools.keys() == {WINK + "keep", WINK + "read_tool_result"}
    assert tools[WINK + "keep"]["description"] == "Keep a note."
    assert tools[WINK + "keep"]["input_schema"]["properties"] == {"text": {"type": "string"}}
    assert "Say hi." in str(body["messages"])
    assert "Be brief." in str(body["system"])


def test_a_call_of_nothing_is_recorded_too(conversation: Conversation) -> None:
    """A tool that is not there is answered by Claude Code itself; the log has the call all the same."""
    last = [(event.call_id, event.tool_name, event.success) for event in conversation.session[ToolInvoked].all()][3:]
    assert last == [("c4", "Nonsense", False)]
    _all_answered(conversation.response.history)


def test_progress_is_told(conversation: Conversation) -> None:
    """Text as it comes, calls as they start and end."""
    seen = conversation.seen
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "Let me see.My name is Ada."
    assert [event.call_id for event in seen if isinstance(event, CallStarted)] == ["c1", "c2", "c3", "c4"]
    assert [(event.call_id, event.outcome, event.kept) for event in seen if isinstance(event, CallFinished)] == [
        ("c1", "succeeded", True),
        ("c2", "failed", False),
        ("c3", "crashed", False),
        ("c4", "unknown_tool", False),
    ]


def test_an_earlier_conversation_is_told_as_text(tmp_path: Path, conversation: Conversation) -> None:
    """`history=` reaches the model, and the new history holds both."""
    first = conversation.response.history
    with LoopbackServer(say("Ada, as I said.")) as server:
        prompt = _prompt(text="Who again?")
        second: PromptResponse[Any] = _adapter(server, tmp_path).evaluate(prompt, Session(), history=first)
        said = str(server.received[0].body["messages"])
    assert "My name is Ada." in said
    assert "Who again?" in said
    assert len(second.history.messages) == len(first.messages) + 2


def test_native_tools_are_calls_like_ours(tmp_path: Path, root: Path, files: HostFilesystem) -> None:
    """Reads of one turn succeed; a native write stays; a command that fails half-way is undone, as the model reads."""
    session = Session()
    target = root / "b.txt"
    with LoopbackServer(
        [call("Read", file_path=str(root / "a.txt")).with_id("r1"), call("Glob", pattern="*.txt").with_id("r2")],
        call("Write", file_path=str(target), content="two\n").with_id("n1"),
        call("Bash", command="echo three > c.txt; rm a.txt; exit 3", description="Break").with_id("n2"),
        call("Bash", command="echo four > d.txt", description="Make").with_id("n3"),
        say("Done."),
    ) as server:
        adapter = _adapter(server, tmp_path, native_tools=["Write", "Bash", "Read", "Glob"])
        prompt = _prompt().bind(resources={Filesystem: files})
        response: PromptResponse[Any] = adapter.evaluate(prompt, session)
        told = _results(server)
        everything = str([received.body["messages"] for received in server.received])
    outcomes = _outcomes(session)
    assert sorted(outcomes[:2]) == [("r1", "Read", "succeeded"), ("r2", "Glob", "succeeded")]  # they overlap
    assert outcomes[2:] == [("n1", "Write", "succeeded"), ("n2", "Bash", "failed"), ("n3", "Bash", "succeeded")]
    assert sorted(item.name for item in root.iterdir()) == ["a.txt", "b.txt", "d.txt"]
    assert (root / "a.txt").read_text() == "one\n"
    assert target.read_text() == "two\n"
    written, broken, _ = session[ToolInvoked].all()[2:]
    assert written.changes.files is not None
    assert written.changes.files.added == ("b.txt",)
    assert broken.changes.files is not None
    assert set(broken.changes.files.added) == {"c.txt"}
    assert "3" in str(told["n2"]["content"])
    assert "Rolled back: 2 files. Nothing was changed." in everything
    _all_answered(response.history)


class _NoRemoval:
    name = "no-removal"

    def check(self, tool_name: str, params: Any, context: ToolContext) -> Decision | None:
        refuse = tool_name == "Bash" and "rm " in str(params)
        return Decision.refuse("Removing files is not allowed.") if refuse else None


def test_policies_are_asked_before_native_tools(tmp_path: Path, root: Path, files: HostFilesystem) -> None:
    """Policies refuse a native tool with a reason the model reads; WINK refuses what it cannot undo."""
    session = Session()
    with LoopbackServer(
        call("Bash", command="rm a.txt", description="Remove").with_id("n1"),
        call("Bash", command="sleep 100", description="Wait", run_in_background=True).with_id("n2"),
        call("Write", file_path=str(tmp_path / "outside.txt"), content="x").with_id("n3"),
        say("I see."),
    ) as server:
        adapter = _adapter(server, tmp_path, native_tools=["Bash", "Write"])
        adapter.evaluate(_prompt(policies=[_NoRemoval()]).bind(resources={Filesystem: files}), session)
        told = _results(server)
    assert _outcomes(session) == [("n1", "Bash", "refused"), ("n2", "Bash", "refused"), ("n3", "Write", "refused")]
    assert "Removing files is not allowed." in str(told["n1"]["content"])
    assert "run_in_background" in str(told["n2"]["content"])
    assert "where nothing can be undone" in str(told["n3"]["content"])
    assert not (tmp_path / "outside.txt").exists()
    assert (root / "a.txt").exists()


def test_a_failing_subscriber_undoes_a_native_tool(tmp_path: Path, root: Path, files: HostFilesystem) -> None:
    """What could not be reported did not happen: the file is gone again and the model is told."""
    session = Session()

    def deaf(event: ToolInvoked) -> None:
        raise RuntimeError("no ears")

    session.dispatcher.subscribe(ToolInvoked, deaf)
    with LoopbackServer(
        call("Write", file_path=str(root / "b.txt"), content="two").with_id("n1"), say("Hm.")
    ) as server:
        adapter = _adapter(server, tmp_path, native_tools=["Write"])
        adapter.evaluate(_prompt().bind(resources={Filesystem: files}), session)
        everything = str([received.body["messages"] for received in server.received])
    assert _outcomes(session) == [("n1", "Write", "undone")]
    assert not (root / "b.txt").exists()
    assert "could not be delivered" in everything


def test_the_deadline_ends_a_native_tool_and_undoes_it(tmp_path: Path, root: Path, files: HostFilesystem) -> None:
    """A command under way at the deadline is stopped, undone and recorded; nothing it started writes later."""
    for seconds in (7, 20, 60):  # a busy machine may not come to the call in time; then there is nothing to see yet
        session = Session()
        command = f"echo early > early.txt; sleep {seconds + 2}; echo late > late.txt"
        with LoopbackServer(call("Bash", command=command, description="Slow").with_id("n1"), say("Never.")) as server:
            adapter = _adapter(server, tmp_path, native_tools=["Bash"])
            prompt = _prompt().bind(resources={Filesystem: files})
            started = time.monotonic()
            with pytest.raises(PromptEvaluationError) as caught:
                adapter.evaluate(prompt, session, deadline=Deadline.after(timedelta(seconds=seconds)))
        if _outcomes(session):
            break
    assert caught.value.phase == "deadline"
    assert _outcomes(session) == [("n1", "Bash", "deadline")]
    assert [item.name for item in root.iterdir()] == ["a.txt"]
    time.sleep(max(0.0, started + 2 * seconds + 3 - time.monotonic()))
    assert [item.name for item in root.iterdir()] == ["a.txt"]
    history = history_of(caught.value)
    assert history is not None
    _all_answered(history)


def test_the_deadline_ends_our_call_and_undoes_it(tmp_path: Path) -> None:
    """A call of ours that is under way at the deadline is undone with that outcome, and the evaluation ends."""
    for seconds in (7, 20, 60):  # as above
        session = Session()
        ended = threading.Event()

        def wait(params: Note, *, context: ToolContext, ended: threading.Event = ended) -> ToolResult[str]:
            context.session[Note].append(params)
            ended.wait(120)
            return ToolResult.ok("late")

        tool = Tool[Note, str](name="wait", description="Wait.", handler=wait)
        turns = call(WINK + "wait", text="x").with_id("c1"), say("Never.")
        deadline = Deadline.after(timedelta(seconds=seconds))
        with LoopbackServer(*turns) as server, pytest.raises(PromptEvaluationError) as caught:
            _adapter(server, tmp_path).evaluate(_prompt(tool), session, deadline=deadline)
        ended.set()
        if _outcomes(session):
            break
    assert caught.value.phase == "deadline"
    assert _outcomes(session) == [("c1", "wait", "deadline")]
    assert session[Note].all() == ()


def test_cancelling_undoes_our_call_under_way(tmp_path: Path) -> None:
    """Cancelled in the middle of a call: it is undone, recorded and answered, and the cancellation passes."""
    session = Session()
    begun = asyncio.Event()

    async def wait(params: Note, *, context: ToolContext) -> ToolResult[str]:
        context.session[Note].append(params)
        begun.set()
        await asyncio.sleep(30)
        return ToolResult.ok("late")

    tool = Tool[Note, str](name="wait", description="Wait.", handler=wait)

    async def main(adapter: ClaudeAgentSDKAdapter) -> BaseException:
        task = asyncio.ensure_future(adapter.aevaluate(_prompt(tool), session))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value

    with LoopbackServer(call(WINK + "wait", text="x").with_id("c1"), say("Never.")) as server:
        error = asyncio.run(main(_adapter(server, tmp_path)))
    assert _outcomes(session) == [("c1", "wait", "cancelled")]
    assert session[Note].all() == ()
    history = history_of(error)
    assert history is not None
    _all_answered(history)


def test_a_typed_answer_is_asked_for_again(tmp_path: Path) -> None:
    """An answer that is not of the type goes back with what is wrong; the second is taken."""
    template = PromptTemplate[Verdict](ns="t", key="v", sections=[MarkdownSection(title="Task", template="Fine?")])
    with LoopbackServer(say("Yes!"), say('{"fine": true}')) as server:
        response = _adapter(server, tmp_path).evaluate(Prompt(template), Session())
        second = str(server.received[1].body["messages"])
    assert response.output == Verdict(True)
    assert "could not be read" in second
    with (
        LoopbackServer(say("Yes!"), say("No!")) as server,
        pytest.raises(PromptEvaluationError, match="not valid as Verdict"),
    ):
        _adapter(server, tmp_path, output_retries=1).evaluate(Prompt(template), Session())


def _claude_at(url: str, tmp_path: Path, **options: Any) -> ClaudeAgentSDKAdapter:
    env = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "not-a-key",
        "CLAUDE_CONFIG_DIR": str(tmp_path / "config"),
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    return ClaudeAgentSDKAdapter("claude-sonnet-4-5", env=env, **options)


def test_a_request_has_a_time_until_its_answer_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`request_timeout` reaches Claude Code, which gives up on a server that does not begin to answer."""
    monkeypatch.setattr(driver, "_MARGIN", 60.0)  # on a busy machine it may ask late
    with HostileServer(slow_headers) as server:
        adapter, deadline = _claude_at(server.url, tmp_path, request_timeout=3), Deadline.after(timedelta(seconds=120))
        with pytest.raises(PromptEvaluationError, match="timed out") as caught:
            adapter.evaluate(_prompt(), Session(), deadline=deadline)
    assert caught.value.phase == "request"
    assert server.requests == ["/v1/messages"]


def test_an_answer_that_never_ends_is_ended(tmp_path: Path) -> None:
    """Claude Code bounds only the time until it begins; we bound the whole."""
    with HostileServer(slow_body) as server:
        adapter = _claude_at(server.url, tmp_path, request_timeout=2)
        with pytest.raises(PromptEvaluationError, match=r"within 2 s.*request_timeout=") as caught:
            adapter.evaluate(_prompt(), Session())
    assert caught.value.phase == "request"


def test_time_that_calls_take_is_not_the_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool may take longer than an answer; afterwards the time begins anew."""
    monkeypatch.setattr(driver, "_MARGIN", 0.0)

    def wait(params: Note) -> ToolResult[str]:
        time.sleep(1.5 * float(params.text))
        return ToolResult.ok("", message="Waited.")

    tool = Tool[Note, str](name="wait", description="Wait.", handler=wait)
    for seconds in (4, 12, 36):  # a busy machine may need longer for an honest answer
        with LoopbackServer(call(WINK + "wait", text=str(seconds)), say("Done.")) as server:
            try:
                response = _adapter(server, tmp_path, request_timeout=seconds).evaluate(_prompt(tool), Session())
            except PromptEvaluationError:
                continue
        assert response.text == "Done."
        return
    raise AssertionError("The time of the call was counted.")


@pytest.mark.parametrize(("seconds", "told"), [(600, "600000"), (0.0001, "1"), (1e8, "2147483647")])
def test_no_time_is_lost_on_the_way_to_claude_code(seconds: float, told: str) -> None:
    """Its timers hold 31 bits, and 0 is its default."""
    assert ClaudeAgentSDKAdapter(request_timeout=seconds).env["API_TIMEOUT_MS"] == told


def test_the_turn_cap_ends_it(tmp_path: Path) -> None:
    """More turns than allowed end with the name of the argument to raise."""
    turns = [call(WINK + "keep", text=str(number)) for number in range(5)]
    session = Session()
    with LoopbackServer(*turns) as server, pytest.raises(PromptEvaluationError, match="max_turns=") as caught:
        _adapter(server, tmp_path, max_turns=2).evaluate(_prompt(KEEP), session)
    history = history_of(caught.value)
    assert history is not None
    _all_answered(history)


@pytest.mark.parametrize(("code", "hint"), [(401, "ANTHROPIC_API_KEY"), (404, "model="), (500, "500")])
def test_errors_of_the_service_name_the_fix(tmp_path: Path, code: int, hint: str) -> None:
    """What the service refuses becomes an error of phase "request" that says what to do."""
    turns = [Status(code, {"type": "api_error", "message": "It failed."})] * 12
    session = Session()
    with LoopbackServer(*turns) as server, pytest.raises(PromptEvaluationError, match=hint) as caught:
        _adapter(server, tmp_path).evaluate(_prompt(KEEP), session)
    assert caught.value.phase == "request"
    assert [event.stop_reason for event in session[PromptExecuted].all()] == ["error"]


def test_the_budget_refuses_calls_and_ends_it(tmp_path: Path) -> None:
    """Once the tokens are spent the evaluation ends with phase "budget"."""
    template = PromptTemplate[Verdict](ns="t", key="v", sections=[MarkdownSection(title="Task", template="Fine?")])
    with (
        LoopbackServer(say("Yes!"), say("Yes!"), say("Yes!")) as server,
        pytest.raises(PromptEvaluationError) as caught,
    ):
        _adapter(server, tmp_path).evaluate(Prompt(template), Session(), budget=Budget(max_total_tokens=12))
    assert caught.value.phase == "budget"


def test_the_budget_is_looked_at_before_every_call(tmp_path: Path) -> None:
    """A model that goes on calling is stopped when its tokens are spent, not when it stops by itself."""
    session = Session()
    turns = [call(WINK + "keep", text=str(number)) for number in range(20)]
    with LoopbackServer(*turns) as server:
        with pytest.raises(PromptEvaluationError) as caught:
            _adapter(server, tmp_path).evaluate(_prompt(KEEP), session, budget=Budget(max_input_tokens=35))
        assert len(server.received) < 8
    assert caught.value.phase == "budget"
    history = history_of(caught.value)
    assert history is not None
    _all_answered(history)


def test_sections_are_opened(tmp_path: Path) -> None:
    """Opening a section answers with the prompt as it reads now; its tools work from then on, and not before."""
    session = Session()
    hidden = MarkdownSection(
        title="Archive",
        template="Notes go here.",
        summary="An archive.",
        tools=[KEEP],
        visibility=SectionVisibility.SUMMARY,
    )
    prompt = Prompt(PromptTemplate(ns="t", key="open", sections=[hidden]))
    with LoopbackServer(
        call(WINK + "keep", text="early").with_id("c1"),
        call(WINK + "open_sections", section_keys=["archive"], reason="to write").with_id("c2"),
        call(WINK + "keep", text="later").with_id("c3"),
        say("Done."),
    ) as server:
        _adapter(server, tmp_path).evaluate(prompt, session)
        told = _results(server)
    assert [outcome for _, _, outcome in _outcomes(session)] == ["unknown_tool", "expanded", "succeeded"]
    assert "Notes go here." in str(told["c2"]["content"])
    assert session[Note].all() == (Note("later"),)


def test_a_call_that_was_left_open_is_told_as_it_is(tmp_path: Path) -> None:
    """Of a call that a history left open the model reads what the log knows of it, or that the outcome is unknown."""
    session = Session()
    manual = ScriptedAdapter([call("keep", text="a"), call("keep", text="b")], manual=True)
    step = manual.evaluate(_prompt(KEEP), session)
    step.tool_calls[0].execute()
    with LoopbackServer(say("Both.")) as server:
        response = _adapter(server, tmp_path).evaluate(_prompt(KEEP), session, history=step.history)
        said = str(server.received[0].body["messages"])
    assert said.count("Kept.") == 1
    assert said.count("is unknown: the conversation was interrupted") == 1
    _all_answered(response.history)
    assert [event.outcome for event in session[ToolInvoked].all()] == ["succeeded", "unknown"]


def test_native_tools_that_write_need_watched_files(tmp_path: Path, root: Path) -> None:
    """Without a filesystem that sees other programs' changes nothing could be undone, so it is refused."""
    with LoopbackServer() as server:
        adapter = _adapter(server, tmp_path, native_tools=["Bash"])
        with pytest.raises(ValueError, match='watch="scan"'):
            adapter.evaluate(_prompt(), Session())
        with HostFilesystem(root) as unwatched, pytest.raises(ValueError, match='watch="scan"'):
            adapter.evaluate(_prompt().bind(resources={Filesystem: unwatched}), Session())


def test_what_cannot_be_undone_is_refused_at_once(tmp_path: Path) -> None:
    """Subagents and manual mode are refused when the adapter is built; a single turn cannot be asked for."""
    with LoopbackServer() as server:
        with pytest.raises(ValueError, match="Task"):
            _adapter(server, tmp_path, native_tools=["Task"])
        with pytest.raises(ValueError, match="manual"):
            _adapter(server, tmp_path, manual=True)
        adapter = _adapter(server, tmp_path)
        assert not hasattr(adapter, "ask")
        with pytest.raises(ValueError, match="manual mode"):
            adapter.evaluate(_prompt(), Session(), tool_results=[])


def test_a_missing_sdk_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, building the adapter says how to install it."""
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    with pytest.raises(ImportError, match=r"pip install 'weakincentives\[claude-agent-sdk\]'"):
        ClaudeAgentSDKAdapter()


@dataclass(frozen=True)
class Topic:
    topic: str


@pytest.mark.parametrize("driven", ["outer", "inner"])
def test_a_sub_agent_is_undone_with_its_call(driven: str, tmp_path: Path) -> None:
    """Whichever of the two agents is Claude Code: one that came to no answer leaves nothing."""

    def write(params: Note, *, context: ToolContext) -> ToolResult[None]:
        context.resources.get(Filesystem).write(f"{params.text}.txt", "")
        return ToolResult.ok(None)

    tool = Tool[Note, None](name="write", description="Write.", handler=write)
    task = MarkdownSection[Topic](title="Task", template="Do ${topic}.", tools=[tool])
    template = PromptTemplate[Any](ns="t", key="writer", sections=[task])
    ask = [call(f"{WINK}ask" if driven == "outer" else "ask", topic=topic) for topic in ("cats", "dogs")]
    writes = [call(f"{WINK}write" if driven == "inner" else "write", text=text) for text in ("a", "b")]
    refused = Status(401, {"type": "api_error", "message": "No."})
    inner: list[Any] = [writes[0], say("Written."), writes[1], *[refused] * 12]
    outer: list[Any] = [*ask, say("Done.")]
    if driven == "outer":
        inner = [*inner[:3], ConnectionError("gone")]
    fs, session = InMemoryFilesystem(), Session(session_id="s")
    with LoopbackServer(*(outer if driven == "outer" else inner)) as server:
        claude = _adapter(server, tmp_path, native_tools=())
        other = ScriptedAdapter(*(inner if driven == "outer" else outer))
        adapter, around = (other, claude) if driven == "outer" else (claude, other)
        asking = subagent(name="ask", description="Ask.", prompt=template, params=Topic, adapter=adapter)
        response = around.evaluate(_prompt(asking).bind(resources={Filesystem: fs}), session)
    assert response.text == "Done."
    assert list(fs.search("txt")) == ["a.txt"]
    events = session[ToolInvoked].all()
    assert [(event.tool_name, event.outcome) for event in events] == [
        ("write", "succeeded"), ("ask", "succeeded"), ("write", "succeeded"), ("ask", "failed"),
    ]  # fmt: skip
    assert [event.within for event in events] == [events[1].event_id, None, events[3].event_id, None]
    assert events[3].undone_calls == (events[2].event_id,)
