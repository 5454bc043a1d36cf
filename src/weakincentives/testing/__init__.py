"""Fakes and contract suites for users' own tests, so that nobody needs to patch."""

from .clock import FakeClock
from .escapes import ESCAPES
from .filesystem import FilesystemContract

__all__ = ["ESCAPES", "FakeClock", "FilesystemContract"]
