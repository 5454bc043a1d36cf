"""How an evaluation's own events reach the session: the log, the reducers, the subscribers, in this order."""

from __future__ import annotations

import logging

from ..crash_log import log_crash
from ..errors import ReducerError
from ..prompt.events import PromptExecuted, PromptRendered
from ..session import Session
from ..session.savepoints import unowned_recorder

logger = logging.getLogger(__name__)


def publish(session: Session, event: PromptRendered | PromptExecuted) -> None:
    """Record the event, route a typed answer to the reducers of its type, tell the subscribers.

    What fails there is logged. It keeps neither the event from the log nor the evaluation from going on: the answer was
    given, and its caller gets it. The event belongs to no call; what reducers make of the answer belongs to the call
    that the evaluation runs in, if there is one, and is undone with it.
    """
    extra = None if event.run_context is None else event.run_context.log_extra()
    try:
        unowned_recorder(session)(event)
    except ReducerError as error:
        log_crash(logger, f"A reducer failed on {type(event).__name__}", error, extra)
        session[type(event)].append(event)  # pyright: ignore[reportArgumentType]
    if isinstance(event, PromptExecuted) and event.output is not None:
        try:
            session.route(event.output)
        except ReducerError as error:
            log_crash(logger, f"A reducer failed on the output of the prompt {event.prompt_name!r}", error, extra)
    session.dispatcher.dispatch(event)  # which logs what subscribers raise


__all__ = ["publish"]
