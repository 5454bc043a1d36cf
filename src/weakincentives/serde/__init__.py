"""Typed data in and out: strict parsing, dumping and JSON schemas for the types users declare."""

from .codec import MAX_INPUT_BYTES, dump, dump_json, parse, parser
from .explain import error_text
from .schema import schema
from .secret_fields import has_secrets, without_secrets

__all__ = [
    "MAX_INPUT_BYTES",
    "dump",
    "dump_json",
    "error_text",
    "has_secrets",
    "parse",
    "parser",
    "schema",
    "without_secrets",
]
