"""A chat on a web page: text as it comes, calls as they start and end, and a run that goes on after a lost connection.

    pip install weakincentives[openai] starlette uvicorn
    python examples/chat_server.py --model openai:gpt-5-mini     # without --model a small demonstration model answers

Leave while something is in the oven, by Stop or by closing the page: it is not there any more. "Go on" takes the run up
again. There is no login; it listens on 127.0.0.1.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from weakincentives import MainLoop, Session
from weakincentives.adapters import CallMessage, Finished, History, ModelRequest, ModelTurn, TurnAdapter, sse
from weakincentives.cli.models import make_adapter
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, ToolAnnotations, ToolContext, ToolResult, tool
from weakincentives.runtime import MainLoopConfig, SqliteRunStore

SECONDS_IN_THE_OVEN = 2.5

# The agent.


@dataclass(frozen=True)
class Item:
    name: str


@dataclass(frozen=True)
class Message:
    chat: str
    text: str


CLOSED = ToolAnnotations(open_world=False)  # what it changes is undone when the run is left


@tool(annotations=CLOSED)
def order(params: Item, *, context: ToolContext) -> ToolResult[None]:
    """Put a drink or a snack on the guest's table."""
    context.resources.get(Filesystem).write(f"table/{params.name}", "")
    return ToolResult.ok(None, message=f"{params.name} is on the table.")


@tool(annotations=CLOSED)
async def bake(params: Item, *, context: ToolContext) -> ToolResult[None]:
    """Bake something, which takes a while, and put it on the guest's table."""
    files = context.resources.get(Filesystem)
    files.write(f"oven/{params.name}", "")
    await asyncio.sleep(SECONDS_IN_THE_OVEN)
    if params.name == "souffle":
        return ToolResult.error("It collapsed. Offer a cake instead.")
    files.move(f"oven/{params.name}", f"table/{params.name}")
    return ToolResult.ok(None, message=f"{params.name} is baked and on the table.")


@dataclass
class Chat:
    """What is kept between messages, in this process: the table, and what was said."""

    files: InMemoryFilesystem = field(default_factory=InMemoryFilesystem)
    history: History | None = None
    messages: dict[str, tuple[Message, History | None]] = field(default_factory=dict)  # with what was said before
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)


class Cafe(MainLoop[Message, str]):
    def __init__(self, adapter: Any, store: SqliteRunStore) -> None:
        super().__init__(adapter, config=MainLoopConfig(runs=store))
        self.store = store
        self.chats: dict[str, Chat] = {}

    def prepare(self, request: Message) -> tuple[Prompt[str], Session]:
        guest = MarkdownSection[Message](title="Guest", template="${text}", tools=[order, bake])
        files = {Filesystem: self.chats[request.chat].files}
        return Prompt(name="cafe", sections=[guest]).bind(request, resources=files), Session(bus=self.bus)


class DemoModel(TurnAdapter):
    """Stands in for a model: orders what it knows the name of, and says its text word by word."""

    pause = 0.06
    drinks, baked = ("tea", "coffee", "juice"), ("cake", "bread", "souffle")

    def ask(self, request: ModelRequest) -> ModelTurn:
        last = request.messages[-1]
        if last.kind == "answer":
            return self.say(request, f"{last.text.splitlines()[0]} Anything else?")
        wanted = [name for name in (*self.drinks, *self.baked) if name in str(getattr(last, "text", "")).lower()]
        if not wanted:
            return self.say(request, f"We have {', '.join(self.drinks)}, and we bake {', '.join(self.baked)}.")
        calls = [
            CallMessage(f"call_{uuid4().hex[:8]}", "bake" if name in self.baked else "order", f'{{"name": "{name}"}}')
            for name in wanted
        ]
        return self.say(request, "Coming up. ", *calls)

    def say(self, request: ModelRequest, text: str, *calls: CallMessage) -> ModelTurn:
        for word in text.split(" "):
            time.sleep(self.pause)
            if request.on_text is not None and word:
                request.on_text(word + " ")
        return ModelTurn(text, calls, stop_reason="tool_use" if calls else "end_turn")


# The server.

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class EventResponse(StreamingResponse):
    """Closes its events before it ends, however it ends: the run that was left is undone by then."""

    media_type = "text/event-stream"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        events: Any = self.body_iterator
        async with aclosing(events):
            await super().__call__(scope, receive, send)


def make_app(cafe: Cafe) -> Starlette:
    async def page(request: Request) -> Response:
        name, kind = {
            "/": ("html", "text/html"),
            "/page.js": ("js", "text/javascript"),
            "/page.css": ("css", "text/css"),
        }[request.url.path]
        path = Path(__file__).with_name("chat_page") / f"page.{name}"
        return Response(path.read_text(), media_type=kind, headers=HEADERS)

    async def begin(request: Request) -> Response:
        """A message: the id of its run. Asking for the events of that begins it."""
        data = await request.json()  # not a form: another site's page cannot send this without being asked first
        chat_id = str(data["chat"])[:40]
        chat = cafe.chats.setdefault(chat_id, Chat())
        run_id = f"{chat_id}-{len(chat.messages) + 1}"
        chat.messages[run_id] = Message(chat_id, str(data["text"])[:4000]), chat.history
        return JSONResponse({"run": run_id}, headers=HEADERS)

    async def show(request: Request) -> Response:
        """What is there: for a page that was loaded again, and to see what was undone."""
        chat = cafe.chats.get(request.path_params["chat"], Chat())
        places = {place: [p.rsplit("/", 1)[-1] for p in chat.files.glob(f"{place}/*")] for place in ("table", "oven")}
        messages = [{"run": run_id, "text": message.text} for run_id, (message, _) in chat.messages.items()]
        return JSONResponse({**places, "messages": messages}, headers=HEADERS)

    async def events(request: Request) -> Response:
        """The events of a run: what is on record and the page has not seen, then what happens."""
        run_id = request.path_params["run"]
        chat = cafe.chats.get(run_id.rpartition("-")[0])
        if chat is None or run_id not in chat.messages:
            return Response("There is no such message.", 404, headers=HEADERS)
        after = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
        info = await asyncio.to_thread(cafe.store.info, run_id)
        is_over = info is not None and info.status in {"done", "failed"}
        if not is_over and run_id == list(chat.messages)[-1]:
            return EventResponse(sse(told(chat, run_id, after), keep_alive=5), headers=HEADERS)
        seen = int(after) if after.isdecimal() and len(after) < 10 else 0
        if info is None or (not is_over and seen):
            return Response(status_code=204, headers=HEADERS)  # nothing more: the browser asks no more
        return EventResponse(sse(cafe.store.open(run_id).events(after=seen)), headers=HEADERS)

    async def told(chat: Chat, run_id: str, after: str) -> AsyncIterator[Any]:
        message, history = chat.messages[run_id]
        stream = cafe.stream(message, run_id=run_id, after=after, history=history)
        async with chat.one_at_a_time, stream:  # a connection that was lost may not have ended yet
            async for event in stream:
                if isinstance(event, Finished):
                    chat.history = event.response.history
                yield event

    return Starlette(
        routes=[
            *(Route(path, page) for path in ("/", "/page.js", "/page.css")),
            Route("/messages", begin, methods=["POST"]),
            Route("/chats/{chat}", show),
            Route("/events/{run}", events),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo", help="demo, openai:NAME, anthropic:NAME, litellm:NAME")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--runs", help="a file for the runs; one that is removed at the end unless given")
    arguments = parser.parse_args()
    adapter = DemoModel() if arguments.model == "demo" else make_adapter(arguments.model)
    with tempfile.TemporaryDirectory() as folder, SqliteRunStore(arguments.runs or Path(folder, "runs.db")) as store:
        # Pages hold their connection open: without the limit Ctrl-C would wait for them.
        uvicorn.run(make_app(Cafe(adapter, store)), host="127.0.0.1", port=arguments.port, timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
