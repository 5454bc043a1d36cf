"""Between text and the bytes that files hold, with errors that say what to do."""

from __future__ import annotations

import codecs

from ..errors import NotTextError

_BOMS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf-8-sig"}


def encode(content: str | bytes) -> bytes:
    """The bytes to store: text as UTF-8, line ends untouched. `NotTextError` for lone surrogates."""
    if type(content) is bytes:
        return content
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError as error:
            raise NotTextError(
                f"The text has a lone surrogate at position {error.start} and cannot be written as UTF-8; "
                "remove it, or pass bytes."
            ) from error
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"A file's content must be str or bytes, not {type(content).__name__}.")


def decode(data: bytes, path: str, encoding: str = "utf-8") -> str:
    """The file's text; `NotTextError` names the offending byte, or says that there is no such encoding."""
    try:
        return data.decode(encoding)
    except UnicodeError as error:
        where = f" (byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""
        hint = next((name for bom, name in _BOMS.items() if data.startswith(bom) and name != encoding), None)
        advice = f"pass encoding={hint!r}" if hint else "pass its real encoding= or use read_bytes"
        raise NotTextError(f"{path!a} is not {encoding} text{where}; {advice}.") from error
    except (LookupError, ValueError) as error:
        raise NotTextError(
            f"There is no text encoding named {encoding!a}; use one such as 'utf-8' or 'latin-1'."
        ) from error


def check_range(offset: int, limit: int | None) -> None:
    """Refuse a negative part of a file."""
    if offset < 0 or (limit is not None and limit < 0):
        raise ValueError(f"offset and limit must not be negative, got offset={offset}, limit={limit}.")


def check_chunk_size(chunk_size: int) -> None:
    """Refuse pieces of nothing."""
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}.")


__all__ = ["check_chunk_size", "check_range", "decode", "encode"]
