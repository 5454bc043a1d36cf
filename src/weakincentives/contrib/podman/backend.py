"""Evaluating code in a container: full Python, in a process that is forked for it and killed afterwards."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final, cast, final

from ...errors import SandboxError
from ..code.protocol import EvalBackend, EvalFiles, EvalLimits, EvalResult
from ..code.wire import decode, pack_bytes
from .container import Container, SupervisorReply
from .shell import ENVIRONMENT, FLOOD_FACTOR, check_room, disk_bounds, over_limit_advice

GUIDE: Final = """\
The code runs as full CPython in a container {network}. Its current directory holds the files you name in `reads`
and `writes`, and no others can be made there.

- All of the standard library is there, and what the image has installed.{downloads}
- `/tmp` can be used for anything, and is emptied afterwards.
- Each call starts afresh: nothing is kept from one to the next but the files that were written."""


@final
class ContainerBackend(EvalBackend):
    """An `EvalBackend` in a container; each evaluation is a fork of an interpreter that is already running there.

    The container is its owner's: `close()` does not end it. The code can do what a command in it can: it reaches the
    workspace under `/workspace`, too.

    With a `ticket` of the container's, no code is started once the container was halted.
    """

    def __init__(self, container: Container, ticket: int | None = None) -> None:
        self._container = container
        self._ticket = ticket

    def begin(self) -> ContainerBackend:
        """The backend for one call: once files are restored because the call is over, it starts no code any more."""
        return ContainerBackend(self._container, self._container.ticket)

    @property
    def guide(self) -> str:
        """See `EvalBackend.guide`."""
        if self._container.spec.network == "none":
            return GUIDE.format(network="without network", downloads=" Nothing can be downloaded.")
        return GUIDE.format(network="with a network", downloads="")

    def evaluate(self, code: str, inputs: Mapping[str, Any], files: EvalFiles, limits: EvalLimits) -> EvalResult:
        """See `EvalBackend.evaluate`. `SandboxError` when the container cannot be started or breaks down.

        Also when the disk has too little room, and when the container was halted since the ticket was given out.
        """
        ticket = self._container.ticket if self._ticket is None else self._ticket
        try:
            json.dumps(dict(inputs))
        except (TypeError, ValueError, RecursionError) as error:  # before a container is started for nothing
            return EvalResult(error=f"An input cannot enter the container: {error}")
        check_room(self._container.spec)
        started = monotonic()
        seconds = limits.seconds + limits.sleep
        message = {
            "act": "evaluate",
            "code": code,
            "inputs": dict(inputs),
            "contents": {path: pack_bytes(data) for path, data in files.contents.items()},
            "writable": sorted(files.writable),
            "limits": {name: getattr(limits, name) for name in ("seconds", "memory", "recursion", "output")}
            | {"file_bytes": limits.file_bytes},
            "seconds": seconds,
            "output": 4 * limits.output,
            "flood": FLOOD_FACTOR * 4 * limits.output,
            "result": _most_of_result(limits),
            "env": dict(ENVIRONMENT),
            **disk_bounds(self._container.spec),
        }
        most = 2 * (4 * limits.output + _most_of_result(limits) + limits.file_bytes) + 1_000_000
        answer = SupervisorReply(self._container.request(message, seconds, most, ticket))
        return _result(answer, limits, files, monotonic() - started)


def _most_of_result(limits: EvalLimits) -> int:
    # A character takes up to six bytes in JSON, and every item some brackets.
    return 12 * limits.output + 100_000


def _result(answer: SupervisorReply, limits: EvalLimits, files: EvalFiles, duration: float) -> EvalResult:
    said = answer.data("stdout").decode(errors="replace")
    stdout = said[: limits.output]
    truncated = len(said) > limits.output or answer.number("stdout_bytes") > 4 * limits.output
    value, error = None, _stopped(answer, limits)
    if error is None:
        value, error = _outcome(answer, limits)
    written: dict[str, bytes] = {}
    if error is None:
        written = answer.files("written")
        if not set(written) <= files.writable or sum(map(len, written.values())) > limits.file_bytes:
            raise SandboxError("The container sent files that it was not asked for.")
    return EvalResult(value, stdout, error, truncated, duration, written)


def _stopped(answer: SupervisorReply, limits: EvalLimits) -> str | None:
    """Why the code did not come to its end, or None when it did."""
    how = answer.text("how")
    reasons = {
        "timeout": f"Stopped: it took longer than {limits.seconds + limits.sleep:g} s",
        "flood": "Stopped: it printed without end",
        "disk": f"Stopped: {answer.text('why')}",
        "before": f"It was not run: {over_limit_advice(answer.text('why'))}",
        "files": answer.text("why"),
        "broken": f"It could not be started: {answer.text('why')}",
        "stuck": "Stopped: its processes could not be ended",
    }
    return None if how == "exit" else reasons.get(how, "Stopped")


def _killed(code: int, limits: EvalLimits) -> str:
    """Why the process reported nothing."""
    if code == -signal.SIGXCPU:
        return f"Stopped: it took longer than {limits.seconds:g} s"
    if code == -signal.SIGKILL:
        return "Stopped: it was killed, as it seems for want of memory"
    return "Stopped: the process ended before the code did (os._exit or a crash)"


def _outcome(answer: SupervisorReply, limits: EvalLimits) -> tuple[Any, str | None]:
    """The value and the error that the code's own process reported: for display, not to be trusted."""
    data = answer.data("result")
    if not data:
        return None, _killed(answer.number("code"), limits)
    try:
        told: object = json.loads(data)
        outcome = cast(dict[str, Any], told) if isinstance(told, dict) else {}
        error = outcome.get("error")
        if isinstance(error, str):
            return None, error[:8000]
        return decode(outcome.get("value")), None
    except (ValueError, RecursionError):
        return None, "The result cannot leave the container: it is not plain data"
