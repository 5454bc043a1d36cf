"""Fakes and contract suites for users' own tests, so that nobody needs to patch."""

from .clock import FakeClock
from .code_contract import EvalEscapes
from .code_escapes import ESCAPES, ESCAPING_CODE
from .contexts import (
    MadeContext,
    execute_tool,
    make_context,
    make_context_with_files,
    make_session,
    make_vfs,
    transactional,
)
from .filesystem_contract import FilesystemContract
from .ledger_contract import LedgerContract
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
