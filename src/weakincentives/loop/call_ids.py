"""Call ids as they must be: there, short, and each of its own in the session, whatever the provider sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, cast, final

from ..interrupts import WeakTable
from ..prompt.events import ToolInvoked
from ..prompt.policies import CallIndex
from ..runtime.call_memory import MAX_ID_CHARS
from ..runtime.messages import CallMessage, Message, ModelMessage
from ..session import Session
from ..session.session import root_of
from .request import ModelTurn

_MAX_NAME_CHARS = 128
_MAX_STEM_CHARS = 24
"""With a number after it an id stays short enough for every provider."""


@final
class CallIds:
    """Gives the calls of one conversation their ids.

    An id belongs to one call of the session, so that its event is the only one with it and a call that was answered is
    never run again. Local models and scripts number their calls anew in every turn or conversation; a call under an id
    that is in the log, or in the conversation so far, therefore gets another one before anything sees it.
    """

    __slots__ = ("_earlier", "_seen")

    def __init__(self, session: Session, history: Sequence[Message]) -> None:
        self._earlier = _ids_in_log(session)
        self._seen = {call.id for message in history if isinstance(message, ModelMessage) for call in message.calls}

    def sound(self, turn: ModelTurn, number: int) -> ModelTurn:
        """The turn with a proper id for every call, the same object when all were proper.

        Of a call that came twice in the turn one is dropped, since it must not run twice; a missing or huge id is made
        up. `native` is given the new ids; where ids do not tell its calls apart it is left out.
        """
        calls = turn.calls
        if len(calls) == 1 and (made := self._mended(calls[0], number)) is calls[0]:  # most turns are like this
            self._seen.add(made.id)
            return turn
        kept: list[CallMessage] = []
        renamed: dict[str, str] = {}
        for at, call in enumerate(calls):
            if call.id in renamed and call in calls[:at] and call.id:
                continue
            made = self._mended(call, number)
            renamed[call.id] = made.id
            kept.append(made)
            self._seen.add(made.id)
        mended = tuple(kept)
        if mended == calls:
            return turn
        native = _with_ids(turn.native, renamed) if len(renamed) == len(calls) and "" not in renamed else ()
        return turn._replace(calls=mended, native=native)

    def _mended(self, call: CallMessage, number: int) -> CallMessage:
        call_id, name = call.id, call.name
        if call_id and len(call_id) <= MAX_ID_CHARS and len(name) <= _MAX_NAME_CHARS and not self._is_used(call_id):
            return call
        if not call_id or len(call_id) > MAX_ID_CHARS:
            call_id = f"call_{number}"
        if self._is_used(call_id) or call_id != call.id:
            call_id = self._free(call_id[:_MAX_STEM_CHARS])
        return CallMessage(call_id, name[:_MAX_NAME_CHARS], call.arguments)

    def _is_used(self, call_id: str) -> bool:
        return call_id in self._seen or call_id in self._earlier

    def _free(self, stem: str) -> str:
        number = len(self._seen) + len(self._earlier) + 1
        while self._is_used(f"{stem}_{number}"):
            number += 1
        return f"{stem}_{number}"


def _with_ids(native: Any, renamed: Mapping[str, str]) -> Any:
    """A provider's own form of a turn, with other ids for its calls."""
    if isinstance(native, Mapping):
        items = cast(Mapping[str, Any], native).items()
        return {
            key: renamed.get(value, value) if key in _ID_KEYS and isinstance(value, str) else _with_ids(value, renamed)
            for key, value in items
        }
    if isinstance(native, tuple):
        return tuple(_with_ids(item, renamed) for item in cast(Sequence[Any], native))
    if isinstance(native, list):
        return [_with_ids(item, renamed) for item in cast(Sequence[Any], native)]
    return native


_ID_KEYS = ("id", "call_id")
_lock = Lock()
_indexes: WeakTable[Session, CallIndex[set[str]]] = WeakTable()


def _ids_in_log(session: Session) -> set[str]:
    """The ids of all calls in the session's log, worked out once for each of them. Not to be changed."""
    owner = root_of(session)
    with _lock:
        index = _indexes.get(owner)
        if index is None:
            index = CallIndex(set[str], _add)
            _indexes.put(owner, index)
    return index.ask(session, lambda ids: ids)


def _add(ids: set[str], event: ToolInvoked) -> None:
    if event.call_id is not None:
        ids.add(event.call_id)


__all__ = ["CallIds"]
