"""Records that keep what was read, or everything: they replay where none of these files are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weakincentives import MainLoop, Session
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.errors import WorldChangedError
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import MainLoopConfig, SqliteRunStore
from weakincentives.runtime.record import export_run
from weakincentives.runtime.record.files import FilesToKeep
from weakincentives.testing import ScriptedAdapter, call, replay, say


def look(fs: Filesystem) -> str:
    """Everything that a handler can ask for by name."""
    return "\n".join([
        fs.read("src/main.py"),
        str(fs.read_bytes("data.bin", limit=2)),
        str(b"".join(fs.stream("src/util.py"))),
        str([(match.path, match.line) for match in fs.grep("TODO")]),
        str([fs.exists("none.txt"), fs.exists("ignored/made.txt"), fs.stat("src").kind]),
        fs.sub("deep").read("er.txt"),
    ])  # fmt: skip


class Desk(MainLoop[str, Any]):
    """Looks around, changes a file, fails after reading one."""

    folder: Path
    words = ""

    def prepare(self, request: str) -> tuple[Prompt[Any], Session]:
        def see(params: None, *, context: ToolContext) -> ToolResult[str]:
            assert context.filesystem is not None
            return ToolResult.ok(look(context.filesystem))

        def copy(params: None, *, context: ToolContext) -> ToolResult[str]:
            assert context.filesystem is not None
            context.filesystem.copy("tree", "copied")
            return ToolResult.ok("Copied.")

        def fail(params: None, *, context: ToolContext) -> ToolResult[str]:
            assert context.filesystem is not None
            context.filesystem.write("src/main.py", "undone")
            raise LookupError(context.filesystem.read("read_by_failure.txt"))

        hints = {"see": {"read_only": True}, "copy": {}, "fail": {}}
        tools = [
            Tool[None, str](
                name=handler.__name__, description="Do it.", handler=handler,
                annotations=ToolAnnotations(open_world=False, **hints[handler.__name__]),
            )
            for handler in (see, copy, fail)
        ]  # fmt: skip
        task = MarkdownSection(title="Task", template=self.words or request, tools=tools)
        session = Session(bus=self.bus)
        files = VfsToolsSection(session=session, config=VfsConfig(root=self.folder))
        return Prompt(name="desk", sections=[task, files]), session


FILES = {
    "src/main.py": "print('TODO')\n",
    "src/util.py": "def f(): ...\n",
    "src/never.py": "nobody reads this\n",
    "data.bin": "\x00\x01",
    "deep/er.txt": "deep",
    "tree/a/leaf.txt": "leaf",
    "read_by_failure.txt": "read, then undone",
    ".gitignore": "ignored/\n",
    "ignored/made.txt": "made",
    "ignored/other.txt": "other",
    ".git/config": "[core]",
}
READS = (
    call("see"),
    call("fail"),
    [call("copy"), call("see")],
    call("write_file", path="copied/new.txt", content="new"),
    say("Done."),
)
LISTS = (call("list_directory", path="."), call("glob_files", pattern="**/*.py"), *READS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteRunStore]:
    with SqliteRunStore(tmp_path / "runs.db") as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for path, content in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


def desk(adapter: Any, folder: Path, **config: Any) -> Desk:
    made = Desk(adapter, config=MainLoopConfig(**config))
    made.folder = folder
    return made


def record(store: SqliteRunStore, folder: Path, files: FilesToKeep, *turns: Any) -> Any:
    desk(ScriptedAdapter(*turns), folder, runs=store, record_files=files).execute("Look.", run_id=files)
    return store.open(files)


def elsewhere(run: Any, tmp_path: Path, **options: Any) -> Any:
    """Replayed in an empty folder."""
    (tmp_path / "empty").mkdir(exist_ok=True)
    return replay(run, lambda adapter: desk(adapter, tmp_path / "empty"), **options)


def test_what_was_read_is_there_in_a_replay(store: SqliteRunStore, folder: Path, tmp_path: Path) -> None:
    """Also what a failed call read, what was copied, and that nothing was found; not what was only listed."""
    assert "src/main.py" in elsewhere(record(store, folder, "changed", *READS), tmp_path).capture.missing_files
    shutil.rmtree(folder / "copied")
    run = record(store, folder, "read", *READS)
    result = elsewhere(run, tmp_path)
    result.assert_same()
    assert result.capture.missing_files == ()
    kept = {file.path for file in store.files("read") if file.before is not None}
    assert {"src/main.py", "read_by_failure.txt", "tree/a/leaf.txt", "ignored/made.txt"} <= kept
    assert not {"src/never.py", "ignored/other.txt", ".git/config"} & kept
    assert not any((tmp_path / "empty").iterdir())


def test_everything_is_there_in_a_replay(store: SqliteRunStore, folder: Path, tmp_path: Path) -> None:
    """But for `.git` and what `.gitignore` names, unless it is read."""
    run = record(store, folder, "all", *LISTS)
    files = run.files_at(1)
    assert sorted(files.search("")) == sorted(path for path in FILES if not path.startswith(("ignored/", ".git/")))
    assert files.read("src/never.py") == FILES["src/never.py"]
    result = elsewhere(run, tmp_path, ignore=("reply:list_directory",))
    result.assert_same()
    assert run.files_at(run.steps()[-1].seq).read("copied/new.txt") == "new"
    assert run.diff(1, run.steps()[-1].seq).files.changed == ()
    assert store.verify() == []


def test_an_exported_run_has_them(store: SqliteRunStore, folder: Path, tmp_path: Path) -> None:
    """And one that is updated keeps them."""
    kinds: list[FilesToKeep] = ["read", "all"]
    for kind in kinds:
        record(store, folder, kind, call("see"), say("Done."))
        path = export_run(store, kind, tmp_path / f"{kind}.wink")
        elsewhere(path, tmp_path).assert_same()

        def reworded(adapter: Any) -> Desk:
            made = desk(adapter, tmp_path / "empty")
            made.words = "Please look."
            return made

        assert replay(path, reworded, update=True).updated
        replay(path, reworded).assert_same()


def test_each_content_is_kept_once(store: SqliteRunStore, folder: Path, tmp_path: Path) -> None:
    """A file that another program changes between two turns is changed in a replay as well."""
    reads = [call("read_file", path="src/util.py"), call("read_file", path="src/main.py")]

    class Meddling(ScriptedAdapter):
        def ask(self, request: Any) -> Any:
            turn = super().ask(request)
            if len(request.messages) > 3:
                (folder / "src/util.py").write_text("def g(): ...\n")
            return turn

    meddling = Meddling(reads, reads, call("edit_file", path="src/util.py", old_text="g", new_text="h"), say("Done."))
    desk(meddling, folder, runs=store, record_files="read").execute("Look.", run_id="r")
    rows = store.files("r", path="src/util.py")
    assert [(row.before == row.after) for row in rows] == [True, True, False]
    result = elsewhere(store.open("r"), tmp_path)
    result.assert_same()
    assert result.filesystem.read("src/util.py") == "def h(): ...\n"


def test_what_is_too_large_is_not_kept(folder: Path, tmp_path: Path) -> None:
    """Reading it is no reason to refuse a call; the replay says that it is missing."""
    with SqliteRunStore(tmp_path / "small.db", max_file=10_000) as store:
        (folder / "src/main.py").write_text("#" * 10_001)
        record(store, folder, "all", call("see"), say("Done."))
        assert "src/util.py" in store.open("all").files_at(1).search("")
        assert "src/main.py" not in store.open("all").files_at(1).search("")
        assert elsewhere(store.open("all"), tmp_path).capture.missing_files == ("src/main.py",)


def test_files_that_were_only_read_do_not_stop_a_resume(store: SqliteRunStore, folder: Path) -> None:
    """They are whoever's they are; those that the run changed still do."""

    class Stops(ScriptedAdapter):
        def ask(self, request: Any) -> Any:
            if len(request.messages) > 5:
                raise KeyboardInterrupt
            return super().ask(request)

    turns = (call("see"), call("write_file", path="new.txt", content="1"), call("see"), say("Done."))
    with pytest.raises(KeyboardInterrupt):
        desk(Stops(*turns), folder, runs=store, record_files="all").execute("Look.", run_id="r")
    count = len(store.files("r"))
    (folder / "src/util.py").write_text("other")
    (folder / "new.txt").write_text("2")
    rest = desk(ScriptedAdapter(*turns[2:]), folder, runs=store, record_files="all")
    with pytest.raises(WorldChangedError) as caught:
        rest.resume("r")
    assert caught.value.paths == ("new.txt",)
    (folder / "new.txt").write_text("1")
    rest.resume("r")
    added = [file.path for file in store.files("r")[count:]]
    assert added == ["src/util.py"]  # the others are on record as they are


def test_another_word_is_refused(store: SqliteRunStore) -> None:
    """With those that there are."""
    bad: Any = "some"
    with pytest.raises(ValueError, match="'changed', 'read' or 'all', got 'some'"):
        store.run("r", files=bad)
    with pytest.raises(ValueError, match="'changed', 'read' or 'all', got 'some'"):
        MainLoopConfig(record_files=bad)


def test_a_run_whose_process_ended_while_it_began_has_all_files(
    store: SqliteRunStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step was on record, its files were not."""
    with monkeypatch.context() as patch, HostFilesystem(folder):
        append = store.append

        def full(info: Any, rows: Any) -> None:
            if rows.files:
                raise KeyboardInterrupt
            append(info, rows)

        patch.setattr(store, "append", full)
        with pytest.raises(KeyboardInterrupt):
            desk(ScriptedAdapter(), folder, runs=store, record_files="all").execute("Look.", run_id="r")
    desk(ScriptedAdapter(say("Done.")), folder, runs=store, record_files="all").execute("Look.", run_id="r")
    assert store.open("r").files_at(1).read("src/util.py") == FILES["src/util.py"]
