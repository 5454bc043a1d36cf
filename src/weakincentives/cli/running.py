"""What `wink run` does: a user's loop or prompt, a model, perhaps a folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from time import monotonic
from typing import Any, cast

from ..adapters import PromptResponse
from ..errors import PromptEvaluationError, PromptRenderError, PromptValidationError, RollbackError, WinkError
from ..filesystem import Filesystem, HostFilesystem
from ..prompt import Prompt, PromptTemplate
from ..runtime import MainLoop
from ..serde import dump_json
from ..session import Session
from ..testing import ScriptedAdapter
from .loading import Loaded, last_line, make_loop, prompt_and_session
from .models import FORMS, make_adapter
from .output import show_error
from .requests import prompt_for, request_for
from .trace import Trace
from .usage import WrongUseError, existing_directory

logger = logging.getLogger(__name__)


class Running:
    """One request to what was loaded. A workspace is opened for the run and closed after it; what was written stays.

    `is_whole` is False once a run was cut off at the model's limit of tokens.
    """

    def __init__(self, loaded: Loaded, request: str | None, workspace: str | None) -> None:
        if workspace is not None:
            existing_directory(workspace, "--workspace: ")
        self._loaded = loaded
        self._request = request
        self._workspace = workspace
        self.is_whole = True

    def dry(self) -> str:
        """What the model would read."""
        prompt, session = prompt_and_session(self._loaded, self._request)
        try:
            prompt.install(session)
            rendered = prompt.render(session=session)
        except (PromptRenderError, PromptValidationError) as error:
            raise WrongUseError(f"{error} (give params with --request)") from None
        tools = ", ".join(tool.name for tool in rendered.tools) or "none"
        return f"{rendered.text}\n\n---\nTools: {tools}\nNobody was asked and nothing was run."

    def run(self, model: str | None, trace: Trace, base_url: str | None = None) -> str | None:
        """The answer, as text or as JSON where the prompt has an output type; None when there is none."""
        began = monotonic()
        with ExitStack() as stack:
            execute = self._prepared(model, base_url, stack, trace)
            try:
                response = execute()
            except (PromptRenderError, PromptValidationError) as error:
                raise WrongUseError(f"{error}") from None
            except (PromptEvaluationError, RollbackError) as error:
                show_error(f"wink run: {error}")
                return None
            except WinkError as error:
                show_error(f"wink run: {type(error).__name__}: {error}")
                return None
            except Exception as error:  # the user's prepare(), or an adapter of theirs
                logger.exception("The request was not answered")
                show_error(f"wink run: {type(error).__name__}: {error}{last_line(error)}")
                return None
            trace.usage(response.usage, response.turns, monotonic() - began)
        if response.stop_reason == "max_tokens":
            text = "what it wrote is printed, but is not the whole answer" if response.text else "there is no answer"
            show_error(f"wink run: the model was cut off at its limit of tokens, so {text}")
            self.is_whole = False
            return response.text or None
        if response.output is None or isinstance(response.output, str):
            return response.text
        return dump_json(response.output, computed=True)

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
            return lambda: adapter.evaluate(prompt, Session(), on_event=trace.event)
        cls = type(target) if isinstance(target, MainLoop) else target
        request = request_for(cls, self._request)
        if isinstance(target, MainLoop):
            loop = target
            if model is not None:
                loop.adapter = self._adapter(model, base_url, stack)
        else:
            loop = make_loop(self._loaded, self._adapter(model, base_url, stack))
        return lambda: cast("PromptResponse[Any]", loop.execute(request, resources=resources, on_event=trace.event)[0])

    def _adapter(self, model: str | None, base_url: str | None, stack: ExitStack) -> Any:
        if model is None:
            raise WrongUseError(f"{self._loaded.name} needs a model: --model with one of: {FORMS}")
        if model != "scripted":
            adapter = make_adapter(model, base_url)
            if hasattr(adapter, "close"):
                stack.callback(adapter.close)
            return adapter
        script = getattr(self._loaded.module, "SCRIPT", None)
        if not isinstance(script, Sequence) or isinstance(script, str):
            raise WrongUseError(
                "--model scripted plays the module's SCRIPT, a list of say(...) and call(...) from "
                "weakincentives.testing; it has none"
            )
        return ScriptedAdapter(*cast("Sequence[Any]", script))


__all__ = ["Running"]
