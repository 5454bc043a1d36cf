"""How a crash is logged: one line that names the exception, the request and the run.

The traceback is logged only at DEBUG. For a handler that raised, the event of the call always has it, as
`ToolInvoked.error`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from .masking import redact, visible_line

_MAX_READ = 64 * 1024
"""What is read of an exception's text: some carry a whole file."""
_MAX_CHARS = 2000


def log_crash(
    logger: logging.Logger,
    what: str,
    error: BaseException,
    extra: Mapping[str, object] | None = None,
    *,
    level: int = logging.ERROR,
) -> None:
    """Log one line; credentials in the exception's text are masked, and it is cut when it is long.

    `extra` is `RunContext.log_extra()`, or nothing where no run is known.
    """
    if logger.isEnabledFor(level):
        traceback = error if logger.isEnabledFor(logging.DEBUG) else None
        text = f"{_text(error)}{ids_text(extra)}"
        logger.log(level, "%s: %s", what, text, exc_info=traceback, extra=extra, stacklevel=2)


def ids_text(extra: Mapping[str, object] | None) -> str:
    """The ids of request and run, for the end of a line; nothing where there are none."""
    if not extra:
        return ""
    return f" (request_id={extra.get('request_id', '')}, run_id={extra.get('run_id', '')})"


def _text(error: BaseException) -> str:
    try:
        said = str(error)[:_MAX_READ]
    except Exception:  # noqa: BLE001 - the exception's class is users' code
        said = ""
    name = type(error).__name__
    # Masked before it is cut: a cut might take the part away by which a credential is recognised.
    return visible_line(" ".join(redact(f"{name}: {said}" if said else name).split())[:_MAX_CHARS])
