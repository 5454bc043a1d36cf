"""Masking credentials in text, and showing characters that would act on a terminal."""

from .redact import MASK, MAX_LEAVING_CHARS, leaving, redact
from .visible import visible, visible_line, writable

__all__ = ["MASK", "MAX_LEAVING_CHARS", "leaving", "redact", "visible", "visible_line", "writable"]
