"""The host's side of a process that runs untrusted code: how it gets its program, and how its answers are read."""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast, final

from .wire import HEADER, framed

LOADER: Final = """\
import json, sys, types
read = open(0, 'rb', 0, closefd=False).read
def exactly(count):
    data = b''
    while len(data) < count:
        more = read(count - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data
def module(name):
    made = sys.modules[name] = types.ModuleType(name)
    return made
told = json.loads(exactly(int.from_bytes(exactly(4), 'big')))
for name, text in told['modules']:
    made, package = module(name), name.rpartition('.')[0]
    made.__package__ = package
    while package and package not in sys.modules:
        module(package).__path__, package = [], package.rpartition('.')[0]
    exec(compile(text, name, 'exec'), made.__dict__)
made.main(*told['arguments'])
"""
"""What such a process is started with, as `python -c`. It reads `program` from its standard input.

Modules have their own names there, in packages that are empty otherwise: they import one another as they do here.
"""


def program(sources: Mapping[str, Path], *arguments: object) -> bytes:
    """The first message to the process: its modules, in the order in which they need one another.

    `main` of the last one is called with the arguments.
    """
    modules = [(name, path.read_text(encoding="utf-8")) for name, path in sources.items()]
    return framed(json.dumps({"modules": modules, "arguments": arguments}).encode())


def sources(root: Path, package: str, *names: str) -> dict[str, Path]:
    """The files of modules, all in the folder `root`, by their full names."""
    return {f"{package}.{name}": root / f"{name}.py" for name in names}


class BrokenPipeline(Exception):  # noqa: N818 - the state of it
    """Nothing sensible comes from the other side any more; the text says why."""


class LatePipeline(BrokenPipeline):
    """The other side did not send or take a message in time."""


class ClosedPipeline(BrokenPipeline):
    """The other side is gone."""


@final
class Pipeline:
    """Sends messages and receives them. The other side is hostile: what it sends is bounded, JSON, and in time.

    Does not own its descriptors, which may be the same one.
    """

    __slots__ = ("_incoming", "_outgoing")

    def __init__(self, outgoing: int, incoming: int) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        for fd in (outgoing, incoming):
            os.set_blocking(fd, False)

    def send(self, message: bytes, until: float) -> None:
        """Send one message, framed, whole; `BrokenPipeline` when it is not taken in time."""
        rest = memoryview(message)
        with selectors.DefaultSelector() as selector:
            selector.register(self._outgoing, selectors.EVENT_WRITE)
            while rest:
                self._wait(selector, until)
                try:
                    rest = rest[os.write(self._outgoing, rest) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise ClosedPipeline("it is gone") from error

    def receive(self, most: int, until: float) -> dict[str, Any]:
        """The next message, an object; `BrokenPipeline` when it is too long, malformed or late."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._incoming, selectors.EVENT_READ)
            (length,) = HEADER.unpack(self._exactly(HEADER.size, selector, until))
            if length > most:
                raise BrokenPipeline(f"it announced {length:,} bytes where at most {most:,} are taken")
            data = self._exactly(length, selector, until)
        try:
            message: object = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BrokenPipeline("it sent something that is not JSON") from error
        if not isinstance(message, dict):
            raise BrokenPipeline("it sent something that is not an object")
        return cast(dict[str, Any], message)

    def _exactly(self, count: int, selector: selectors.BaseSelector, until: float) -> bytes:
        pieces: list[bytes] = []
        while count:
            self._wait(selector, until)
            try:
                piece = os.read(self._incoming, min(count, 1 << 20))
            except BlockingIOError:
                continue
            except ConnectionError:
                piece = b""
            if not piece:
                raise ClosedPipeline("it is gone")
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def _wait(self, selector: selectors.BaseSelector, until: float) -> None:
        seconds = until - monotonic()
        if seconds <= 0 or not selector.select(seconds):
            raise LatePipeline("it does not answer")
