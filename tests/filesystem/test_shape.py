"""The shape of an undo on disk: how many files a reader opens who follows a failing call that wrote one file."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import pytest

import weakincentives
from weakincentives import MarkdownSection, Prompt, PromptTemplate, Session, Tool, ToolContext, ToolResult
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.testing import ScriptedAdapter, call, say
from weakincentives.testing.scripted import Call, Say

PACKAGE = Path(weakincentives.__file__).parent

# What an undo of one file takes, to be lowered when it gets smaller: of the whole package, and of its files alone.
MAX_FILES, MAX_HOPS = 51, 265  # 50 and 254 on Python 3.11; later versions report more calls
MAX_FILESYSTEM_FILES = 14

# Without these it was not an undo on disk.
WALKED = {
    "runtime/dispatch.py", "filesystem/disk/filesystem.py", "filesystem/disk/journal.py", "filesystem/disk/undo_log.py",
    "filesystem/disk/reversal.py",
}  # fmt: skip


@dataclass(frozen=True)
class Text:
    """Params of the tool that is walked."""

    text: str


def walked_files(root: Path, state: Path) -> list[str]:
    """The files of our functions that the third failing call enters, in order, up to the next question."""
    walked = list[str]()

    def handler(params: Text, *, context: ToolContext) -> ToolResult[str]:
        assert context.filesystem is not None
        context.filesystem.write("a.txt", params.text)
        raise RuntimeError("it failed")

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(f"{PACKAGE}/") and not file.startswith(f"{PACKAGE}/testing/"):
            walked.append(Path(file).relative_to(PACKAGE).as_posix())

    def begin(_request: object) -> Call:
        sys.setprofile(profile)
        return call("save", text="3")

    def end(_request: object) -> Say:
        sys.setprofile(before)
        return say("done")

    before = sys.getprofile()
    tool = Tool[Text, str](name="save", description="Save.", handler=handler)
    section = MarkdownSection(title="T", template="x", tools=[tool])
    prompt = Prompt(PromptTemplate[str](ns="a", key="b", sections=[section]))
    try:
        adapter = ScriptedAdapter(call("save", text="1"), call("save", text="2"), begin, end)
        with HostFilesystem(root, state_dir=state) as fs:
            adapter.evaluate(prompt.bind(resources={Filesystem: fs}), Session())
            assert fs.list() == []
    finally:
        sys.setprofile(before)
    return walked


@pytest.mark.slow
def test_an_undo_on_disk_walks_through_so_many_files() -> None:
    """Counted in an interpreter of its own: what other tests left behind is not part of a call. It may only fall."""
    out = subprocess.run([sys.executable, __file__], check=True, capture_output=True, text=True)
    walk = out.stdout.splitlines()
    files = set(walk)
    assert files >= WALKED
    assert len(files) <= MAX_FILES, sorted(files)
    ours = {file for file in files if file.startswith("filesystem/")}
    assert len(ours) <= MAX_FILESYSTEM_FILES, sorted(ours)
    assert sum(one != other for one, other in pairwise(walk)) <= MAX_HOPS


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        (Path(folder) / "root").mkdir()
        sys.stdout.write("\n".join(walked_files(Path(folder, "root"), Path(folder, "state"))))
