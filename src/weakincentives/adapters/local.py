"""A real model in this process: no key and no network. It is small, and so are its abilities."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import Any, Unpack, final

from ..budget import TokenUsage
from ..interrupts import Lock
from ..loop.adapter import AdapterKeywords, TurnAdapter
from ..loop.request import ModelRequest, ModelTurn, RequestFailed
from ..runtime.messages import AnswerMessage, UserMessage
from ..waiting import AWAITING, BLOCKING, OutOfTime, Waiting, drive
from .local_envelope import AnswerText, chat_messages, read_envelope, response_schema
from .local_weights import have_weights, verified_weights, weights_path
from .sdk_adapter import openai_usage
from .sdk_errors import load

_SMALL_MACHINE = 2
"""On so few cores two threads wait for each other whenever anything else runs, and are slower than one."""


class LocalAdapter(TurnAdapter):
    """Runs a GGUF file with llama.cpp, in this process.

    The model is loaded with the first request, the fetched one after its SHA-256 was compared, and freed by
    `close`, or with the adapter. One request at a time; others wait. At the deadline, or after `request_timeout`, a
    request is given up on: it ends between two tokens, or when its prompt is read, and the next one waits for that.
    Tool calls are always of a tool that is there and fit its schema, one per turn; whether they make sense is up to
    the weights. llama.cpp opens a port on 127.0.0.1 for itself; it is locked with a random key.

    Args:
        model: a GGUF file; without it the small model that `wink model fetch` brings.
        context: how many tokens conversation and answer may have together; memory grows with it.
        max_tokens: how long one turn may be. A call that is cut is not run: it ends the evaluation with
            `stop_reason="max_tokens"` and no text, since what was written of it is not an answer.
        max_calls: after so many calls in a row the model may only answer, since small ones do not know when to end;
            None leaves it to `max_turns`.
        temperature: 0 always takes the likeliest token, so the same conversation has the same answer.
        seed: for temperatures above 0.
        threads: None for one on machines of up to two cores, else half of them.

    Raises:
        ImportError: llama.cpp is not installed.
        FileNotFoundError: there is no such file, or the small model was not fetched yet.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        context: int = 4096,
        max_tokens: int = 512,
        max_calls: int | None = None,
        temperature: float = 0.0,
        seed: int = 0,
        threads: int | None = None,
        **options: Unpack[AdapterKeywords],
    ) -> None:
        super().__init__(**options)
        if min(context, max_tokens, 1 if max_calls is None else max_calls, 1 if threads is None else threads) < 1:
            raise ValueError("context, max_tokens, max_calls and threads must be 1 or more.")
        self._llama = load("xllamacpp", "local")
        self.model: Path = _file(model)
        self._fetched = model is None
        self._context = context
        self._max_calls = max_calls
        # Without a penalty on phrases that come again (DRY), small models say the same thing until they are cut.
        self._sampling = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed, "dry_multiplier": 0.8}
        self._threads = threads or _default_threads()
        self._loading = Lock()
        self._server: Any = None

    @property
    def name(self) -> str:
        """The name used in events and error messages."""
        return "local"

    def ask(self, request: ModelRequest) -> ModelTurn:
        """Generate one turn, in a thread that is left to itself when the time is over and stops at its next token."""
        return drive(self._within(BLOCKING, request))

    async def aask(self, request: ModelRequest) -> ModelTurn:
        """Like `ask`, for async code; cancelling it stops at the next token."""
        return await self._within(AWAITING, request)

    async def _within(self, waiting: Waiting, request: ModelRequest) -> ModelTurn:
        stop, seconds = Event(), self.settings.request_timeout
        try:
            # Loading the model and reading a long prompt take their time before the first token.
            return await waiting.within(seconds, lambda: self._generate(request, stop), is_async=False)
        except OutOfTime:
            raise _too_slow(seconds) from None
        finally:
            stop.set()

    def close(self) -> None:
        """Free the model's memory; the next request loads it again. See `TurnAdapter.close`."""
        super().close()
        with self._loading:
            self._server = None

    def _generate(self, request: ModelRequest, stop: Event) -> ModelTurn:
        server = self._loaded()
        schema = response_schema(request, may_call=self._may_call(request))
        body: dict[str, Any] = {
            "messages": chat_messages(request),
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._sampling,
        }
        if schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
        reading = _Reading(request, stop, self.settings.request_timeout)
        try:
            server.handle_chat_completions(body, reading.take)
        except (ValueError, RuntimeError) as error:
            raise RequestFailed("refused", f"llama.cpp refused the request: {error}") from error
        return reading.turn()

    def _may_call(self, request: ModelRequest) -> bool:
        if self._max_calls is None:
            return True
        since = takewhile(lambda message: not isinstance(message, UserMessage), reversed(request.messages))
        return sum(isinstance(message, AnswerMessage) for message in since) < self._max_calls

    def _loaded(self) -> Any:
        with self._loading:
            if self._server is None:
                # A file of the user's own is not known; the small model must be what was published.
                with _checked_weights() if self._fetched else nullcontext(self.model) as file:
                    try:
                        self._server = self._llama.Server(self._parameters(file))
                    except (ValueError, RuntimeError) as error:
                        text = f"llama.cpp could not load {self.model}: {error}. Give it a GGUF file of a chat model."
                        raise RequestFailed("model", text) from error
            return self._server

    def _parameters(self, file: Path) -> Any:
        made = self._llama.CommonParams()
        made.model.path = str(file)
        made.n_ctx = self._context
        made.n_parallel = 1
        made.cpuparams.n_threads = made.cpuparams_batch.n_threads = self._threads
        made.warmup = made.ui = made.endpoint_slots = False
        made.cache_ram_mib = 0  # the conversation in use is kept without it; others would cost gigabytes
        made.verbosity = 0
        made.api_keys = [secrets.token_urlsafe(32)]
        return made


@final
class _Reading:
    """Takes the pieces of one turn. It is called from C++, where an exception would be lost: it is kept instead."""

    def __init__(self, request: ModelRequest, stop: Event, seconds: float) -> None:
        self._request = request
        self._stop = stop
        self._seconds = seconds
        self._expires = time.monotonic() + seconds
        self._raw: list[str] = []
        self._answer = AnswerText()
        self._usage = TokenUsage()
        self._finish: str | None = None
        self._error: BaseException | None = None

    def take(self, chunk: Mapping[str, Any]) -> bool:
        """Read a piece; True asks llama.cpp to stop."""
        try:
            self._take(chunk)
        except BaseException as error:  # noqa: BLE001 - also Ctrl-C: raised again by `turn`
            self._error = self._error or error
        return self._error is not None

    def _take(self, chunk: Mapping[str, Any]) -> None:
        if "error" in chunk:
            raise _failure(chunk["error"])
        if self._stop.is_set():
            raise asyncio.CancelledError
        if self._request.out_of_time is not None and self._request.out_of_time():
            raise RequestFailed("timeout", "the deadline passed while the model was writing")
        if time.monotonic() > self._expires:  # it would be as slow the next time
            raise _too_slow(self._seconds)
        for choice in chunk.get("choices", ()):
            self._piece(choice.get("delta", {}).get("content") or "")
            self._finish = choice.get("finish_reason") or self._finish
        if chunk.get("usage"):
            self._usage = openai_usage(chunk["usage"])

    def _piece(self, text: str) -> None:
        if not text:
            return
        self._raw.append(text)
        plain = not self._request.tools
        said = text if plain else self._answer.feed(text)
        on_text: Callable[[str], object] | None = self._request.on_text
        if on_text is not None and said:
            on_text(said)

    def turn(self) -> ModelTurn:
        """What was written; raises what went wrong meanwhile."""
        if self._error is not None:
            raise self._error
        text = "".join(self._raw)
        cut = self._finish == "length"
        if not self._request.tools:
            return ModelTurn(text, (), self._usage, "max_tokens" if cut else "end_turn")
        found = read_envelope(text, f"call_{len(self._request.messages)}")
        if found is None:
            if not cut:
                raise RequestFailed("malformed", f"the model wrote neither a call nor an answer: {text[:200]!r}")
            return ModelTurn(self._answer.text, (), self._usage, "max_tokens")  # nothing of a call that was cut
        if isinstance(found, str):
            return ModelTurn(found, (), self._usage, "end_turn")
        return ModelTurn("", (found,), self._usage, "tool_use")


def _too_slow(seconds: float) -> RequestFailed:
    return RequestFailed(
        "refused", f"the model was still reading or writing after {seconds:g} seconds. request_timeout= allows more"
    )


def _failure(error: Mapping[str, Any]) -> RequestFailed:
    message = str(error.get("message", error))
    if error.get("type") == "exceed_context_size_error":
        return RequestFailed("context", f"{message}. Give LocalAdapter a larger context=, or the model less to read.")
    return RequestFailed("refused", f"llama.cpp refused the request: {message}")


@contextmanager
def _checked_weights() -> Generator[Path]:
    try:
        with verified_weights() as file:
            yield file
    except OSError as error:
        raise RequestFailed("model", f"{error}. Fetch it again: wink model fetch --force") from error
    except ValueError as error:
        raise RequestFailed("model", str(error)) from error


def _file(model: str | os.PathLike[str] | None) -> Path:
    if model is None:
        if not have_weights():
            raise FileNotFoundError(f"The small model is not in {weights_path().parent}. Get it with: wink model fetch")
        return weights_path()
    path = Path(model)
    if not path.is_file():
        raise FileNotFoundError(f"There is no model file {str(path)!r}. Give the path of a GGUF file.")
    return path


def _default_threads() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if cores <= _SMALL_MACHINE else cores // 2
