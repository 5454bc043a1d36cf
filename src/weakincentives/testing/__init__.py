"""Fakes and contract suites for users' own tests, so that nobody needs to patch."""

from .clock import FakeClock
from .filesystem import FilesystemContract

__all__ = ["FakeClock", "FilesystemContract"]
