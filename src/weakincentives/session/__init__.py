"""Sessions: state by type, changed by events, that can be taken back."""

from ..errors import DispatchError, ReducerError, SessionError, SessionFormatError, SnapshotError
from .encoding import OpaqueValue
from .events import Dispatcher, DispatchResult, EventHandler, InProcessDispatcher, SlicePolicy
from .operations import Append, Clear, Extend, Replace, SliceOp
from .protocols import SessionProtocol
from .reducers import Reducer, append_all, reducer, replace_latest, replace_latest_by, upsert_by
from .session import Session
from .slices import Slice
from .snapshots import SliceChange, Snapshot
from .vector import Vector

__all__ = [
    "Append",
    "Clear",
    "DispatchError",
    "DispatchResult",
    "Dispatcher",
    "EventHandler",
    "Extend",
    "InProcessDispatcher",
    "OpaqueValue",
    "Reducer",
    "ReducerError",
    "Replace",
    "Session",
    "SessionError",
    "SessionFormatError",
    "SessionProtocol",
    "Slice",
    "SliceChange",
    "SliceOp",
    "SlicePolicy",
    "Snapshot",
    "SnapshotError",
    "Vector",
    "append_all",
    "reducer",
    "replace_latest",
    "replace_latest_by",
    "upsert_by",
]
