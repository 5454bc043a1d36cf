"""Fakes and contract suites for users' own tests, so that they need no patching."""

from typing import TYPE_CHECKING

from ..deprecation import former_names
from ..lazy_names import FindName, lazy_names
from .clock import FakeClock
from .code_contract import EvalEscapes
from .contexts import execute_tool, make_context, make_context_with_files, make_session, make_vfs, transactional
from .filesystem_contract import FilesystemContract
from .ledger_contract import LedgerContract
from .run_store_contract import RunStoreContract
from .scripted import ScriptedAdapter, call, call_raw, say

if TYPE_CHECKING:
    from .divergences import Divergence
    from .replays import ReplayResult, replay

__getattr__: FindName = lazy_names(
    __name__,
    {".divergences": "Divergence", ".replays": "ReplayResult replay"},
    former_names(
        __name__,
        {
            "ESCAPES": "testing.code_escapes",
            "ESCAPING_CODE": "testing.code_escapes",
            "MadeContext": "testing.contexts",
            "Turn": "testing.scripted",
        },
        stacklevel=3,
    ),
)

__all__ = [
    "Divergence",
    "EvalEscapes",
    "FakeClock",
    "FilesystemContract",
    "LedgerContract",
    "ReplayResult",
    "RunStoreContract",
    "ScriptedAdapter",
    "call",
    "call_raw",
    "execute_tool",
    "make_context",
    "make_context_with_files",
    "make_session",
    "make_vfs",
    "replay",
    "say",
    "transactional",
]
