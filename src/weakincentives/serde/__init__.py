"""Typed data in and out: strict parsing, dumping and JSON schemas for the types users declare."""

from ..deprecation import FormerNames, former_names
from .dumping import dump, dump_json
from .parsing import error_text, parse, parser
from .schema import schema

__getattr__: FormerNames = former_names(
    __name__,
    {
        "MAX_INPUT_BYTES": "serde.parsing",
        "has_secrets": "serde.secret_fields",
        "without_secrets": "serde.secret_fields",
    },
)

__all__ = [
    "dump",
    "dump_json",
    "error_text",
    "parse",
    "parser",
    "schema",
]
