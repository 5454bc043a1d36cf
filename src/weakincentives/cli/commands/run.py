"""`wink run TARGET`: one request to an agent of yours, with a trace of what it does; `wink resume` goes on with one."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TextIO, cast
from uuid import uuid4

from ...adapters import PromptResponse
from ...errors import (
    PromptEvaluationError,
    PromptRenderError,
    PromptValidationError,
    RecordError,
    RollbackError,
    RunBusyError,
    RunConflictError,
    WinkError,
    WorldChangedError,
)
from ...filesystem import Filesystem, HostFilesystem
from ...prompt import Prompt, PromptTemplate
from ...runtime import MainLoop
from ...runtime.record.files import World
from ...runtime.record.sql import SqlRunStore
from ...serde import dump_json
from ...session import Session
from ...testing import ScriptedAdapter
from ..loading import Loaded, last_line, load, make_loop, prompt_and_session, prompt_for, read_request, request_for
from ..models import FORMS, check_base_url, make_adapter
from ..output import UsageError, existing_directory, show, show_answer, show_error
from ..run_stores import existing_run, existing_store, new_run_id, open_store
from ..trace import EventLines, JsonTrace, PlainTrace, Trace

_log = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> int:
    """Run it: the trace goes to stderr, the answer to stdout; 1 when there is no answer, or only a part of one."""
    loaded = load(arguments.target)
    request = read_request(arguments.request)
    check_base_url(arguments.model, arguments.base_url)
    if arguments.run_id is not None and arguments.record is None:
        raise UsageError("--run-id names a run on record: give the store with --record FILE")
    run_id = uuid4().hex if arguments.run_id is None else new_run_id("--run-id", arguments.run_id)
    if arguments.dry_run:
        show(Running(loaded, request, arguments.workspace).dry())
        return 0
    with ExitStack() as stack:
        recorded = None
        if arguments.record is not None:
            store = stack.enter_context(_store(arguments.record, arguments.seal))
            recorded = Recorded(store, arguments.record, run_id)
        return _answered(Running(loaded, request, arguments.workspace, recorded), arguments)


def run_resume(arguments: argparse.Namespace) -> int:
    """Go on with a run on record, as `run` does; the request is read back from there unless it is given."""
    loaded = load(arguments.target)
    if isinstance(loaded.target, PromptTemplate | Prompt):
        raise UsageError(
            f"{loaded.name} is a prompt: go on with `wink run {arguments.target} --record FILE --run-id RUN`, "
            "with the options that it was begun with"
        )
    check_base_url(arguments.model, arguments.base_url)
    with existing_store(arguments.store, arguments.seal) as store:
        existing_run(store, arguments.store, arguments.run_id)
        recorded = Recorded(
            store, arguments.store, arguments.run_id, resumes=True, world=arguments.world, retry=arguments.retry,
            accept_unrecorded=tuple(arguments.accept_unrecorded), accept_changed=tuple(arguments.accept_changed),
        )  # fmt: skip
        request = read_request(arguments.request)
        return _answered(Running(loaded, request, arguments.workspace, recorded), arguments)


def _answered(running: Running, arguments: argparse.Namespace) -> int:
    if arguments.events:
        lines = EventLines()
        if running.run(arguments.model, lines, arguments.base_url) is None or running.response is None:
            return 1
        lines.finished(running.response)
        return 0 if running.is_whole else 1
    trace = make_trace(plain=arguments.plain, as_json=arguments.json, stream=sys.stderr)
    answer: Any = running.run(arguments.model, trace, arguments.base_url)
    if answer is None:
        return 1
    show_answer(answer)
    return 0 if running.is_whole else 1


def _store(where: str, seal: str | None) -> SqlRunStore:
    try:
        return open_store(where, seal)
    except (ImportError, RecordError) as error:
        raise UsageError(f"--record: {error}") from None


class Recorded(NamedTuple):
    """Where a run is recorded, and how it goes on."""

    store: SqlRunStore
    path: str
    run_id: str
    resumes: bool = False
    world: World = "check"
    retry: bool = False
    accept_unrecorded: tuple[str, ...] = ()
    accept_changed: tuple[str, ...] = ()

    def hint(self, error: BaseException | None) -> str:
        """What to do next, now that the run is over or has broken off."""
        where = f"{shlex.quote(self.path)} {shlex.quote(self.run_id)}"
        info = self.store.info(self.run_id)
        if info is None or isinstance(error, RunBusyError | RunConflictError):
            return ""
        if isinstance(error, WorldChangedError):
            return "To go on: --world keep takes these files as they are, --world restore writes what is on record."
        for option in ("accept_unrecorded", "accept_changed"):
            if self.resumes and f"{option}=" in str(error):
                return f"To go on all the same: --{option.replace('_', '-')} NAME, once for each of them."
        is_open = info.status == "running"
        return f"{'To look at it' if is_open else 'On record'}: wink show {where}"


class Running:
    """One request to what was loaded. A workspace is opened for the run and closed after it; what was written stays.

    `is_whole` is False once a run was cut off at the model's limit of tokens.
    """

    def __init__(
        self, loaded: Loaded, request: str | None, workspace: str | None, recorded: Recorded | None = None
    ) -> None:
        if workspace is not None:
            existing_directory(workspace, "--workspace: ")
        self._loaded = loaded
        self._request = request
        self._workspace = workspace
        self._recorded = recorded
        self.is_whole: bool = True
        self.response: PromptResponse[Any] | None = None

    def dry(self) -> str:
        """What the model would read."""
        prompt, session = prompt_and_session(self._loaded, self._request)
        try:
            prompt.install(session)
            rendered = prompt.render(session=session)
        except (PromptRenderError, PromptValidationError) as error:
            raise UsageError(f"{error} (give params with --request)") from None
        tools = ", ".join(tool.name for tool in rendered.tools) or "none"
        text = f"System:\n\n{rendered.system}\n\n---\n{rendered.text}" if rendered.system else rendered.text
        return f"{text}\n\n---\nTools: {tools}\nNobody was asked and nothing was run."

    def run(self, model: str | None, trace: Trace, base_url: str | None = None) -> str | None:
        """The answer, as text or as JSON where the prompt has an output type; None when there is none."""
        began = monotonic()
        with ExitStack() as stack:
            execute = self._prepared(model, base_url, stack, trace)
            try:
                response = self.response = execute()
            except (PromptRenderError, PromptValidationError) as error:
                raise UsageError(f"{error}") from None
            except (PromptEvaluationError, RollbackError) as error:
                return self._failed(f"{error}", error)
            except WinkError as error:
                return self._failed(f"{type(error).__name__}: {error}", error)
            except Exception as error:  # noqa: BLE001 - the user's prepare(), or an adapter of theirs
                _log.exception("The request was not answered")
                return self._failed(f"{type(error).__name__}: {error}{last_line(error)}", error)
            trace.usage(response.usage, response.turns, monotonic() - began)
            self._say_where(trace, None)
        if response.stop_reason == "max_tokens":
            text = "what it wrote is printed, but is not the whole answer" if response.text else "there is no answer"
            show_error(f"wink run: the model was cut off at its limit of tokens, so {text}")
            self.is_whole = False
            return response.text or None
        if response.output is None or isinstance(response.output, str):
            return response.text
        return dump_json(response.output, computed=True)

    def _failed(self, text: str, error: BaseException) -> None:
        command = "resume" if self._recorded is not None and self._recorded.resumes else "run"
        show_error(f"wink {command}: {text}")
        hint = "" if self._recorded is None else self._recorded.hint(error)
        if hint:
            show_error(hint)

    def _say_where(self, trace: Trace, error: BaseException | None) -> None:
        if self._recorded is not None:
            trace.closing([self._recorded.hint(error)])

    def _prepared(
        self, model: str | None, base_url: str | None, stack: ExitStack, trace: Trace
    ) -> Callable[[], PromptResponse[Any]]:
        target = self._loaded.target
        resources: dict[Any, object] = {}
        if self._workspace is not None:
            resources[Filesystem] = stack.enter_context(HostFilesystem(self._workspace))
        if isinstance(target, PromptTemplate | Prompt):
            prompt = prompt_for(target, self._request).bind(resources=resources)
            adapter = self._adapter(model, base_url, stack)
            more = self._record_options(stack)
            return lambda: adapter.evaluate(prompt, Session(), on_event=trace.event, **more)
        cls = type(target) if isinstance(target, MainLoop) else target
        recorded = self._recorded
        reads_back = recorded is not None and recorded.resumes and self._request is None
        request = None if reads_back else request_for(cls, self._request)
        if isinstance(target, MainLoop):
            loop = target
            if model is not None:
                loop.adapter = self._adapter(model, base_url, stack)
        else:
            loop = make_loop(self._loaded, self._adapter(model, base_url, stack))
        if recorded is None:
            return lambda: loop.execute(request, resources=resources, on_event=trace.event)[0]
        if loop.config.effect_ledger is None:
            ledger = stack.enter_context(closing(recorded.store.ledger()))
            loop.config = replace(loop.config, effect_ledger=ledger)
        loop.config = replace(loop.config, runs=recorded.store)
        run_id = recorded.run_id
        if recorded.resumes:
            resume = partial(loop.resume, run_id, request=request, resources=resources, on_event=trace.event)
            return lambda: resume(
                world=recorded.world,
                retry=recorded.retry,
                accept_unrecorded=recorded.accept_unrecorded,
                accept_changed=recorded.accept_changed,
            )[0]
        return lambda: loop.execute(request, run_id=run_id, resources=resources, on_event=trace.event)[0]

    def _record_options(self, stack: ExitStack) -> dict[str, Any]:
        if self._recorded is None:
            return {}
        ledger = stack.enter_context(closing(self._recorded.store.ledger()))
        return {"record": self._recorded.store.run(self._recorded.run_id), "effect_ledger": ledger}

    def _adapter(self, model: str | None, base_url: str | None, stack: ExitStack) -> Any:
        if model is None:
            raise UsageError(f"{self._loaded.name} needs a model: --model with one of: {FORMS}")
        if model != "scripted":
            adapter = make_adapter(model, base_url)
            if hasattr(adapter, "close"):
                stack.callback(adapter.close)
            return adapter
        script = getattr(self._loaded.module, "SCRIPT", None)
        if not isinstance(script, Sequence) or isinstance(script, str):
            raise UsageError(
                "--model scripted plays the module's SCRIPT, a list of say(...) and call(...) from "
                "weakincentives.testing; it has none"
            )
        return ScriptedAdapter(*cast("Sequence[Any]", script))


def make_trace(*, plain: bool, as_json: bool, stream: TextIO | None = None) -> Trace:
    """JSON or plain lines when asked for; `rich` on a terminal that has its signs, where it is installed.

    A non-empty FORCE_COLOR asks for colours where there is no terminal, as in the log of a CI run. NO_COLOR counts
    before it; on a terminal `rich` minds it.
    """
    target = sys.stdout if stream is None else stream
    if as_json:
        return JsonTrace(target)
    if not plain and _in_colour(target):
        try:
            from ..rich_trace import RichTrace  # noqa: PLC0415 - an extra
        except ImportError:
            return PlainTrace(target)
        return RichTrace(target)
    return PlainTrace(target)


def _in_colour(target: TextIO) -> bool:
    if os.environ.get("FORCE_COLOR") and not os.environ.get("NO_COLOR"):
        return True
    return target.isatty() and (target.encoding or "").lower().startswith("utf")
