"""Sessions: state by type, changed by events, that can be taken back."""

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
    "DispatchResult",
    "Dispatcher",
    "EventHandler",
    "Extend",
    "InProcessDispatcher",
    "OpaqueValue",
    "Reducer",
    "Replace",
    "Session",
    "SessionProtocol",
    "Slice",
    "SliceChange",
    "SliceOp",
    "SlicePolicy",
    "Snapshot",
    "Vector",
    "append_all",
    "reducer",
    "replace_latest",
    "replace_latest_by",
    "upsert_by",
]
