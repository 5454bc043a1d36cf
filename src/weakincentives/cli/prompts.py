"""The prompt behind whatever a command line names, for commands that look at it."""

from __future__ import annotations

from typing import Any, cast

from ..errors import PromptRenderError, PromptValidationError
from ..prompt import Prompt, PromptTemplate
from ..runtime import MainLoop
from ..session import Session
from .loading import Loaded, last_line
from .requests import prompt_for, request_for
from .usage import FailedError, WrongUseError


class NoModel:
    """Stands where an adapter would, for loops that are only looked at."""

    name = "none"

    def evaluate(self, *_: Any, **options: Any) -> Any:  # noqa: ARG002 - the signature of an adapter
        """Nobody is asked."""
        raise WrongUseError("this command asks no model")


def make_loop(loaded: Loaded, adapter: Any) -> MainLoop[Any, Any]:
    """The loop that was named, made with the adapter when it is a class. `WrongUseError` when that raises."""
    target = cast(object, loaded.target)
    if isinstance(target, MainLoop):
        return cast("MainLoop[Any, Any]", target)
    cls = cast("type[MainLoop[Any, Any]]", target)
    try:
        return cls(adapter=adapter)
    except Exception as error:  # noqa: BLE001 - users' code
        raise WrongUseError(f"{loaded.name}(adapter=...) raised {type(error).__name__}: {error}") from None


def prompt_and_session(loaded: Loaded, request: str | None) -> tuple[Prompt[Any], Session]:
    """The prompt a request leads to; `FailedError` when `prepare` raises, as in a run."""
    target = loaded.target
    if isinstance(target, PromptTemplate | Prompt):
        return prompt_for(target, request), Session()
    loop = make_loop(loaded, NoModel())
    asked = request_for(type(loop), request)
    try:
        prompt, session = loop.prepare(asked)
        return prompt.bind(resources=loop.config.resources), session
    except (PromptRenderError, PromptValidationError) as error:
        raise WrongUseError(f"{loaded.name}.prepare(): {error}") from None
    except Exception as error:  # noqa: BLE001 - users' code
        text = f"{loaded.name}.prepare() raised {type(error).__name__}: {error}{last_line(error)}"
        raise FailedError(text) from None


__all__ = ["NoModel", "make_loop", "prompt_and_session"]
