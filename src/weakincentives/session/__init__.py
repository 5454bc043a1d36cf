"""Sessions: state by type, changed by events, that can be restored."""

from ..deprecation import FormerNames, former_names
from ..errors import DispatchError, ReducerError, SessionError, SessionFormatError, SnapshotError
from .encoding import OpaqueValue
from .events import Dispatcher, DispatchResult, InProcessDispatcher, SlicePolicy
from .reducers import (
    Append,
    Clear,
    Extend,
    Reducer,
    Replace,
    SliceOp,
    append_all,
    reducer,
    replace_latest,
    replace_latest_by,
    upsert_by,
)
from .session import Session
from .slices import SessionProtocol, Slice
from .snapshots import Snapshot
from .vector import Vector

__getattr__: FormerNames = former_names(
    __name__, {"EventHandler": "session.events", "SliceChange": "session.snapshots"}
)

__all__ = [
    "Append",
    "Clear",
    "DispatchError",
    "DispatchResult",
    "Dispatcher",
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
