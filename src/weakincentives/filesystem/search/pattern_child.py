"""The program that `pattern_worker.py` starts: compiles one pattern and searches one text after the other.

It imports nothing of the package. Its standard input is a socket: requests are a length and bytes, answers three
numbers: where the match is, and the seconds of processor time that it took.
The first request is the pattern, answered by 0 or 1 for one that cannot be compiled; the others are texts.
"""

from __future__ import annotations

import resource
import struct
import sys
import warnings
from contextlib import suppress
from socket import socket
from time import process_time

NO_MODULE = 3


def main() -> int:
    """Serve until the other end is closed."""
    memory, seconds = int(sys.argv[1]), int(sys.argv[2])
    try:
        import regex  # noqa: PLC0415 - its absence is an answer
    except ImportError:
        return NO_MODULE
    for kind, value in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds + 1), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # a Mac has no limit of memory; the time that is waited for it holds
            resource.setrlimit(kind, (value, value))
    warnings.simplefilter("ignore")
    with socket(fileno=0) as connection:
        try:
            compiled = regex.compile(_received(connection).decode(), regex.VERSION1)
        except (regex.error, MemoryError, RecursionError, OverflowError, ValueError):
            connection.sendall(struct.pack("<qqd", 1, 0, 0))
            return 0
        connection.sendall(struct.pack("<qqd", 0, 0, 0))
        while True:
            text = _received(connection).decode()
            began = process_time()
            found = compiled.search(text)
            spent = process_time() - began
            low, high = (-1, -1) if found is None else (_bytes(text, found.start()), _bytes(text, found.end()))
            connection.sendall(struct.pack("<qqd", low, high, spent))


def _bytes(text: str, end: int) -> int:
    return len(text[:end].encode())


def _received(connection: socket) -> bytes:
    (length,) = struct.unpack("<I", _exactly(connection, 4))
    return _exactly(connection, length)


def _exactly(connection: socket, length: int) -> bytes:
    pieces: list[bytes] = []
    while length:
        piece = connection.recv(min(length, 1 << 20))
        if not piece:
            raise SystemExit(0)
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


if __name__ == "__main__":
    sys.exit(main())
