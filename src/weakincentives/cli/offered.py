"""The tools that a model would be offered, with the request or, where they do not depend on it, without one."""

from __future__ import annotations

from typing import Any

from ..adapters.tool_spec import ToolSpec, tool_spec
from ..errors import WinkError
from ..prompt import Prompt, PromptTemplate
from ..session import Session
from .loading import Loaded
from .prompts import NoModel, make_loop, prompt_and_session
from .requests import request_type
from .stand_ins import NoStandInError, stand_in
from .usage import WrongUseError

Offered = tuple[Prompt[Any], list[ToolSpec]]


def offered_tools(loaded: Loaded, request: str | None) -> Offered:
    """The prompt and its tools; `WrongUseError` when a request is needed to know them.

    Without a request a loop prepares two made-up ones that differ in every field. If both lead to the same tools, the
    tools do not depend on it.
    """
    try:
        prompt, session = prompt_and_session(loaded, request)
    except WrongUseError:
        found = None if request is not None else _for_any_request(loaded)
        if found is None:
            raise
        return found
    try:
        return prompt, _specs(prompt, session)
    except WinkError as error:
        raise WrongUseError(f"{error} (give params with --request)") from None


def _for_any_request(loaded: Loaded) -> Offered | None:
    if isinstance(loaded.target, PromptTemplate | Prompt):
        return None
    loop = make_loop(loaded, NoModel())
    found: list[Offered] = []
    try:
        for which in (0, 1):
            prompt, session = loop.prepare(stand_in(request_type(type(loop)), which))
            found.append((prompt, _specs(prompt, session)))
    except NoStandInError:
        return None
    except Exception:  # noqa: BLE001 - users' code, which may rightly refuse what was made up
        return None
    return found[0] if found[0][1] == found[1][1] else None


def _specs(prompt: Prompt[Any], session: Session) -> list[ToolSpec]:
    return [tool_spec(tool) for tool in prompt.tools(session=session)]


__all__ = ["offered_tools"]
