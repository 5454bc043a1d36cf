"""The program that test_restore runs in an empty directory: a restore that ends at its n-th file operation, for each n.

It prints how each ended, how the resume after it did, and the files then, after a second restore where that refused.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

from weakincentives import Session
from weakincentives.adapters import ModelMessage, ModelRequest
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.errors import WorldChangedError
from weakincentives.prompt import MarkdownSection, Prompt
from weakincentives.runtime import SqliteRunStore
from weakincentives.testing import ScriptedAdapter, call, say

ROOT = Path("root")
OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.chmod"}
LEFT: list[int] = []


def hear(operation: str, arguments: tuple[Any, ...]) -> None:
    name = str(arguments[0]) if arguments else ""
    if LEFT and operation in OPERATIONS and "runs.db" not in name and not name.endswith((".py", ".pyc", ".so")):
        LEFT[0] -= 1
        if LEFT[0] == 0:
            os._exit(9)


def work(how: str, at: int) -> None:
    """`begin` is interrupted; `restore` writes what is on record over what is there; `resume` does not; nor `warm`."""
    ROOT.mkdir(exist_ok=True)
    session = Session()
    files = VfsToolsSection(session=session, config=VfsConfig(root=ROOT))
    prompt = Prompt(name="files", sections=[MarkdownSection(title="T", template="x"), files])
    written = [call("write_file", path=f"{name}.txt", content=f"{name} written") for name in ("a", "sub/b", "c", "d")]
    again = [call("write_file", path="c.txt", content="c again", overwrite=True), call("delete_file", path="d.txt")]

    def turn(request: ModelRequest) -> Any:
        if LEFT and how == "restore":
            LEFT.clear()
        said = sum(isinstance(one, ModelMessage) for one in request.messages)
        if said == 2 and how == "begin":
            os._exit(0)
        return [written, again, say("done")][said]

    if how == "restore":
        sys.addaudithook(hear)
        LEFT.append(at)
    with SqliteRunStore("runs.db", durable=False) as store:
        world: Any = "restore" if how == "restore" else "check"
        try:
            ScriptedAdapter(turn, turn, turn).evaluate(prompt, session, record=store.run("run", world=world))
        except WorldChangedError:
            sys.exit(4)


def forked(how: str, at: int = 0) -> int:
    """How a process ends that does this in the current directory."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            work(how, at)
            code = 0
        except SystemExit as ended:
            code = int(str(ended.code))
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def files() -> dict[str, str | None]:
    found = sorted(ROOT.rglob("*"))
    return {str(one.relative_to(ROOT)): one.read_text() if one.is_file() else None for one in found}


def main() -> None:
    warm = Path("warm")
    warm.mkdir()
    os.chdir(warm)
    work("warm", 0)  # imports what is imported late: otherwise every process would
    os.chdir("..")
    gc.freeze()
    first = Path("first").absolute()
    first.mkdir()
    os.chdir(first)
    forked("begin")
    (ROOT / "a.txt").write_text("another program's")
    shutil.rmtree(ROOT / "sub")
    (ROOT / "sub").write_text("a file in the place of a directory")
    (ROOT / "c.txt").unlink()
    (ROOT / "d.txt").write_text("back again")
    for at in range(1, 400):
        here = first.with_name(str(at))
        shutil.copytree(first, here)
        os.chdir(here)
        ended = forked("restore", at)
        after = forked("resume") if ended else 0
        if after == 4:
            forked("restore")
        print(json.dumps([ended, after, files()]), flush=True)  # noqa: T201 - read by the test
        if ended != 9:
            break


if __name__ == "__main__":
    main()
