"""Masking credentials in text, and showing characters that would act on a terminal."""

from .data import leaving_data, masked_data
from .redact import MASK, MAX_LEAVING_CHARS, leaving, redact
from .visible import visible, visible_line, writable

__all__ = [
    "MASK",
    "MAX_LEAVING_CHARS",
    "leaving",
    "leaving_data",
    "masked_data",
    "redact",
    "visible",
    "visible_line",
    "writable",
]
