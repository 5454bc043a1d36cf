"""State and files that can be restored: a step that fails leaves nothing behind."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from weakincentives import Session
from weakincentives.filesystem import HostFilesystem


@dataclass(frozen=True)
class Step:
    title: str


with tempfile.TemporaryDirectory() as folder:
    root = Path(folder, "project")
    root.mkdir()
    (root / "config.ini").write_text("debug = no\n")
    session, files = Session(), HostFilesystem(root)
    session.dispatch(Step("look around"))

    state, disk = session.snapshot(), files.snapshot()
    try:
        session.dispatch(Step("rewrite the configuration"))
        files.write("config.ini", "debug = YES PLEASE\n")
        files.write("build/notes.txt", "half done")
        raise RuntimeError("the new configuration does not parse")
    except RuntimeError as error:
        print(f"failed: {error}")
        print(f"about to undo: {files.changes(disk)}")
        files.restore(disk)
        session.restore(state)
    files.release(disk)

    print("steps:", [step.title for step in session[Step].all()])
    print("files:", sorted(path.name for path in root.iterdir()), repr((root / "config.ini").read_text()))
    files.close()
