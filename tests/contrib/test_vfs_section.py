"""Where the files of a section come from, and how they are taken out."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import needs

from weakincentives.contrib.files import TrackedFilesystem, TrackedMemory
from weakincentives.contrib.tools import HostMount, VfsConfig, VfsToolsSection
from weakincentives.errors import PathRefusedError, PromptValidationError
from weakincentives.filesystem import FileChanges, Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.testing import FilesystemContract


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, content in {
        "src/main.py": "print('hi')\n",
        "src/data.bin": "x" * 500,
        "node_modules/lib/index.js": "js",
        ".gitignore": "*.log\n",
        "debug.log": "noise",
        "README.md": "# Hi\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def mounted(project: Path, **options: Any) -> VfsToolsSection:
    return VfsToolsSection(config=VfsConfig(mounts=[HostMount(project, **options)], allowed_roots=[project.parent]))


def paths(vfs: VfsToolsSection) -> list[str]:
    return list(vfs.filesystem.search(""))


class TestTrackedInMemory(FilesystemContract):
    any_order = True

    def make(self) -> Filesystem:
        return TrackedMemory().begin()


class TestTracked(FilesystemContract):
    any_order = True

    def make(self) -> Filesystem:
        return TrackedFilesystem(InMemoryFilesystem())


@pytest.mark.parametrize("tracked", [TrackedMemory().begin, lambda: TrackedFilesystem(InMemoryFilesystem())])
def test_what_is_tracked(tracked: Callable[[], TrackedMemory | TrackedFilesystem]) -> None:
    """All ways of changing files are seen, through views too; what was undone is not a difference."""
    fs = tracked()
    fs.write("a/1", "one\n")
    fs.append("a/2", "two\n")
    before = fs.snapshot()
    fs.copy("a", "b")
    fs.sub("b").write("3", "three\n")
    fs.move("a", "c")
    fs.delete("b/1")
    assert fs.differences().added == ("b/2", "b/3", "c/1", "c/2")
    fs.restore(before)
    assert fs.differences().added == ("a/1", "a/2")
    assert fs.diff().count("+++ b/") == 2
    fs.close()


def test_what_is_there_before_tracking_begins_is_no_change() -> None:
    """Only what comes after `begin` differs."""
    fs = TrackedMemory({"a": "1"})
    fs.write("b", "2")
    assert (fs.differences(), fs.diff()) == (FileChanges(), "")
    fs.begin().write("a", "3")
    assert fs.differences() == FileChanges(changed=("a",))


# Mounts


def test_a_mount_copies_a_folder(project: Path) -> None:
    """All files arrive; what is changed afterwards on either side does not reach the other."""
    vfs = mounted(project, into="code")
    assert paths(vfs) == [
        "code/.gitignore", "code/README.md", "code/debug.log", "code/node_modules/lib/index.js",
        "code/src/data.bin", "code/src/main.py",
    ]  # fmt: skip
    vfs.filesystem.write("code/README.md", "changed")
    (project / "src/main.py").write_text("changed")
    assert (project / "README.md").read_text() == "# Hi\n"
    assert vfs.filesystem.read("code/src/main.py") == "print('hi')\n"
    [copied] = vfs.mounted
    assert (copied.files, copied.skipped) == (6, ())
    assert "6 files in `code`" in vfs.render_body(None)


def test_a_mount_may_be_just_a_path(project: Path) -> None:
    """A path stands for a mount of everything into the root."""
    vfs = VfsToolsSection(config=VfsConfig(mounts=[project], allowed_roots=[project]))
    assert "src/main.py" in paths(vfs)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"include": ["*.py"]}, ["src/main.py"]),
        ({"include": ["src/**"], "exclude": ["*.bin"]}, ["src/main.py"]),
        ({"include": ["src"]}, ["src/data.bin", "src/main.py"]),
        ({"exclude": ["node_modules", "src/*.py", ".*", "*.log"]}, ["README.md", "src/data.bin"]),
        ({"gitignore": True, "exclude": ["node_modules", "src"]}, [".gitignore", "README.md"]),
    ],
)
def test_globs_choose_what_is_copied(project: Path, options: dict[str, Any], expected: list[str]) -> None:
    """Some include and no exclude must match; a glob without a slash counts at any depth."""
    assert paths(mounted(project, **options)) == expected


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_bytes": 100}, r"over 100 bytes together.*max_bytes="),
        ({"max_file_bytes": 100}, r"'src/data.bin' is over 100 bytes.*max_file_bytes="),
    ],
)
def test_too_much_is_refused(project: Path, options: dict[str, Any], problem: str) -> None:
    """A mount beyond its limits is refused when the section is built, and told how to fit."""
    with pytest.raises(PromptValidationError, match=problem):
        mounted(project, **options)


def test_mounts_stay_inside_the_allowed_roots(project: Path, tmp_path: Path) -> None:
    """Without allowed roots, outside of them, and through `..` or a symlink nothing can be mounted."""
    (project / "link").symlink_to("/etc")
    for mount, roots in (
        (project, []),
        (project, [project / "src"]),
        (project / "..", [project]),
        (project / "link", [project]),
        (tmp_path / "project2", [project]),
    ):
        with pytest.raises(PromptValidationError, match=r"not inside an allowed root.*allowed_roots="):
            VfsToolsSection(config=VfsConfig(mounts=[mount], allowed_roots=roots))
    with pytest.raises(PromptValidationError, match="it is not a folder"):
        VfsToolsSection(config=VfsConfig(mounts=[project / "README.md"], allowed_roots=[project]))


def test_symlinks_in_a_mount_are_not_followed(project: Path, tmp_path: Path) -> None:
    """A symlink, to a file or a folder, inside or outside, is left out and named."""
    (tmp_path / "secret.txt").write_text("secret")
    (project / "src/secret").symlink_to(tmp_path / "secret.txt")
    (project / "up").symlink_to(tmp_path)
    (project / "inner").symlink_to("README.md")
    vfs = mounted(project)
    assert vfs.mounted[0].skipped == ("inner", "src/secret", "up")
    assert not any("secret" in path for path in paths(vfs))
    assert not vfs.filesystem.grep("secret")


def test_configs_that_cannot_be(project: Path, tmp_path: Path) -> None:
    """Contradictions are refused with what to leave out."""
    for wrong in (
        {"root": tmp_path, "files": {"a": "b"}},
        {"root": tmp_path, "mounts": [project]},
        {"shared": True, "root": tmp_path},
        {"mounts": str(project)},
        {"mounts": HostMount(project)},
        {"allowed_roots": project},
    ):
        with pytest.raises(PromptValidationError):
            VfsConfig(**wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(PromptValidationError, match=r"include=\('\*.py',\)"):
        HostMount(project, include="*.py")
    with pytest.raises(PromptValidationError, match="must be positive"):
        HostMount(project, max_bytes=0)


# A real folder


def test_a_root_is_worked_on_itself(tmp_path: Path) -> None:
    """With root= the tools change that folder, which is made when it is missing."""
    root = tmp_path / "made" / "here"
    with VfsToolsSection(config=VfsConfig(root=root)) as vfs:
        vfs.filesystem.write("a/b.txt", "1")
        assert (root / "a/b.txt").read_text() == "1"
        assert vfs.changes().added == ("a/b.txt",)
    with pytest.raises(ValueError, match="closed"):
        vfs.filesystem.read("a/b.txt")
    vfs.close()


def test_a_read_only_root_is_not_made(tmp_path: Path) -> None:
    """A root that is only read must exist, and nothing is left in it."""
    with pytest.raises(FileNotFoundError):
        VfsToolsSection(config=VfsConfig(root=tmp_path / "none", read_only=True))
    (tmp_path / "x").write_text("1")
    with VfsToolsSection(config=VfsConfig(root=tmp_path, read_only=True)) as vfs:
        assert vfs.filesystem.read("x") == "1"
        with pytest.raises(PermissionError):
            vfs.filesystem.write("x", "2")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_config_may_be_used_again() -> None:
    """Two sections of one config do not share files."""
    config = VfsConfig(files={"a.txt": "1"})
    first, second = VfsToolsSection(config=config), VfsToolsSection(config=config)
    first.filesystem.write("a.txt", "2")
    assert second.filesystem.read("a.txt") == "1"


# Looking back, taking out


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_the_diff_tells_everything(where: str, tmp_path: Path) -> None:
    """Added, changed, removed, moved, binary, big and empty files are all in the diff; what was undone is not."""
    files: dict[str, str | bytes] = {
        "same.txt": "same\n", "old.txt": "one\ntwo", "gone.txt": "gone\n", "tree/a.txt": "a\n", "tree/b.txt": "b\n",
        "bin": b"\0\1", "big": "x" * 1_100_000, "void": "", "back.txt": "1\n",
    }  # fmt: skip
    if where == "memory":
        vfs = VfsToolsSection(config=VfsConfig(files=files))
    else:
        with HostFilesystem(tmp_path) as before:
            for path, content in files.items():
                before.write(path, content)
        vfs = VfsToolsSection(config=VfsConfig(root=tmp_path))
    assert vfs.diff() == ""
    fs = vfs.filesystem
    moment = fs.snapshot()
    fs.write("undone.txt", "x")
    fs.delete("same.txt")
    fs.restore(moment)
    fs.release(moment)
    fs.write("back.txt", "2\n")
    fs.write("back.txt", "1\n")
    fs.append("old.txt", "\nthree\n")
    fs.delete("gone.txt")
    fs.move("tree", "moved")
    fs.copy("moved/a.txt", "copy.txt")
    fs.write("bin", b"\0\2\3")
    fs.append("big", "y")
    fs.delete("void")
    fs.write("new/deep.txt", "new\n")
    changes = vfs.changes()
    assert changes.added == ("copy.txt", "moved/a.txt", "moved/b.txt", "new/deep.txt")
    assert changes.changed == ("big", "bin", "old.txt")
    assert changes.removed == ("gone.txt", "tree/a.txt", "tree/b.txt", "void")
    assert vfs.diff() == (
        "Big file big differs (1,100,000 -> 1,100,001 bytes)\n"
        "Binary file bin changed (2 -> 3 bytes)\n"
        "--- /dev/null\n+++ b/copy.txt\n@@ -0,0 +1 @@\n+a\n"
        "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
        "--- /dev/null\n+++ b/moved/a.txt\n@@ -0,0 +1 @@\n+a\n"
        "--- /dev/null\n+++ b/moved/b.txt\n@@ -0,0 +1 @@\n+b\n"
        "--- /dev/null\n+++ b/new/deep.txt\n@@ -0,0 +1 @@\n+new\n"
        "--- a/old.txt\n+++ b/old.txt\n@@ -1,2 +1,3 @@\n one\n-two\n\\ No newline at end of file\n+two\n+three\n"
        "--- a/tree/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
        "--- a/tree/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"
        "Empty file void removed\n"
    )
    vfs.close()


def test_the_diff_can_be_applied(tmp_path: Path) -> None:
    """`patch` makes of the old files what the section holds."""
    needs("patch", present=shutil.which("patch") is not None, install="apt-get install patch")
    old = "".join(f"line {n}\n" for n in range(200))
    files = {"a.txt": old, "b.txt": "no newline", "gone.txt": "x\n"}
    for path, content in files.items():
        (tmp_path / path).write_text(content)
    vfs = VfsToolsSection(config=VfsConfig(files=files))
    fs = vfs.filesystem
    fs.write("a.txt", old.replace("line 20\n", "twenty\n").replace("line 150\n", "").replace("line 199\n", "end"))
    fs.write("b.txt", "no newline\n")
    fs.delete("gone.txt")
    fs.write("new.txt", "new\n")
    subprocess.run(["patch", "-p1", "-s"], cwd=tmp_path, input=vfs.diff(), text=True, check=True)
    for path in ("a.txt", "b.txt", "new.txt"):
        assert (tmp_path / path).read_text() == fs.read(path)
    assert not (tmp_path / "gone.txt").exists()


def test_export_writes_what_changed(project: Path, tmp_path: Path) -> None:
    """Only added and changed files are written; what is there otherwise stays, and removed ones are named."""
    vfs = mounted(project)
    vfs.filesystem.write("src/main.py", "print('ho')\n")
    vfs.filesystem.write("docs/new.md", "new")
    vfs.filesystem.delete("README.md")
    found = vfs.export(project)
    assert (found.added, found.changed, found.removed) == (("docs/new.md",), ("src/main.py",), ("README.md",))
    assert (project / "src/main.py").read_text() == "print('ho')\n"
    assert (project / "docs/new.md").read_text() == "new"
    assert (project / "README.md").exists()
    vfs.export(tmp_path / "out" / "all", everything=True)
    exported = sorted(path.name for path in (tmp_path / "out" / "all").rglob("*") if path.is_file())
    assert exported == [".gitignore", "data.bin", "debug.log", "index.js", "main.py", "new.md"]


def test_export_is_all_or_nothing_and_stays_inside(tmp_path: Path) -> None:
    """A symlink in the target is not followed: nothing of the export is written then."""
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (target / "b").symlink_to(outside)
    vfs = VfsToolsSection()
    vfs.filesystem.write("a.txt", "1")
    vfs.filesystem.write("b/c.txt", "2")
    with pytest.raises(PathRefusedError):
        vfs.export(target)
    assert [path.name for path in target.iterdir()] == ["b"]
    assert list(outside.iterdir()) == []
