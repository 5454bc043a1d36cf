"""Fakes and contract suites for users' own tests, so that nobody needs to patch."""

from .clock import FakeClock
from .engine import (
    MadeContext,
    execute_tool,
    make_context,
    make_context_with_files,
    make_session,
    make_vfs,
    transactional,
)
from .escapes import ESCAPES
from .evaluation import EvalEscapes
from .filesystem import FilesystemContract
from .ledger import LedgerContract
from .probes import ESCAPING_CODE
from .scripted import ScriptedAdapter, Turn, call, call_raw, say

__all__ = [
    "ESCAPES",
    "ESCAPING_CODE",
    "EvalEscapes",
    "FakeClock",
    "FilesystemContract",
    "LedgerContract",
    "MadeContext",
    "ScriptedAdapter",
    "Turn",
    "call",
    "call_raw",
    "execute_tool",
    "make_context",
    "make_context_with_files",
    "make_session",
    "make_vfs",
    "say",
    "transactional",
]
