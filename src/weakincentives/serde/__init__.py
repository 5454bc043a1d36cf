"""Typed data in and out: strict parsing, dumping and JSON schemas for the types users declare."""

from .dump import dump, dump_json
from .explain import error_text
from .parse import MAX_INPUT_BYTES, parse, parser
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
