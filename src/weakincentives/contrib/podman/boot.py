"""How the container's process 1 gets its program: as text, over its input; nothing of the host is mounted for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...filesystem import reserved

_MODULES: Final = ("reserved", "wire", "facts", "scratch", "ipc", "processes", "evaluation", "main")
"""In the order in which they need one another."""

_LOADER: Final = """\
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
told = json.loads(exactly(int.from_bytes(exactly(4), 'big')))
sys.modules['inside'] = types.ModuleType('inside')
for name, text in told['modules']:
    made = sys.modules['inside.' + name] = types.ModuleType('inside.' + name)
    made.__package__ = 'inside'
    exec(compile(text, name, 'exec'), made.__dict__)
sys.modules['inside.main'].main(told['paths'])
"""

PYTHON: Final = "python3"
"""The container's process 1, whatever the image would start by itself."""

ARGUMENTS: Final = ("-I", "-c", _LOADER)
"""What it is started with: it waits for the message below."""


def program(paths: Sequence[str]) -> bytes:
    """The first message; `paths` are the places that the container reports on."""
    folder = Path(__file__).parent / "inside"
    files = {name: folder / f"{name}.py" for name in _MODULES}
    files["reserved"] = Path(reserved.__file__)  # the one on the host imports from there
    modules = [(name, file.read_text(encoding="utf-8")) for name, file in files.items()]
    return json.dumps({"modules": modules, "paths": list(paths)}).encode()


__all__ = ["ARGUMENTS", "PYTHON", "program"]
