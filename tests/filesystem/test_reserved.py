"""Names that undo state is kept under: no spelling of them is visible or writable through any filesystem."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weakincentives.contrib.files.mounts import HostMount, copy_in, export_files
from weakincentives.contrib.tools import PodmanSandboxConfig, PodmanSandboxSection, VfsConfig, VfsToolsSection
from weakincentives.errors import PathRefusedError, PromptValidationError
from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.filesystem.paths import normalise
from weakincentives.filesystem.reserved import reserved
from weakincentives.filesystem.search.walk import FilesystemTree, walk_files
from weakincentives.filesystem.views import SubFilesystem

ID = "0123456789abcdef"
STATE = [".wink", ".root.wink", f".wink-{ID}", f".root.wink-{ID}", ".a.b.wink", ".\u00fcber.wink"]
SPELLINGS = [
    *STATE,
    ".WINK",
    ".Wink-0123456789ABCDEF",
    ".w\u200bink",
    "\ufeff.wink",
    ".wink\ufe0f",
    "\u115f.wink",
    ".win\u00adk",
    ".wi\u034fnk-" + ID,
    "\uff0ewink",
    "\u2024wink",
    ".\uff37\uff29\uff2e\uff2b",
    ".\U0001d430\U0001d422\U0001d427\U0001d424",
    ".win\u212a",
    ".root\uff0ewink",
    ".wink.",
    ".wink ",
    ".wink. . ",
    ".x.wink\u2024",
]
ORDINARY = [
    "wink",
    "wink.py",
    ".winks",
    ".winking",
    "a.wink",
    ".wink-1",
    f".wink-{ID}0",
    f"wink-{ID}",
    ".wink.py",
    ".twink",
    ".wink-" + "g" * 16,
    ".w_ink",
    "\u00e9.wink",
]


@pytest.mark.parametrize("name", SPELLINGS, ids=ascii)
@pytest.mark.parametrize("path", ["{}", "{}/journal", "a/{}", "/workspace/{}/x", "a/{}/b"])
def test_every_spelling_is_refused_at_every_place(name: str, path: str) -> None:
    """Asked twice, since paths that were asked for are remembered."""
    assert reserved(name)
    for _ in range(2):
        with pytest.raises(PathRefusedError, match="reserved for undo state") as caught:
            normalise(path.format(name))
        assert str(caught.value).isascii()


@pytest.mark.parametrize("name", ORDINARY, ids=ascii)
def test_similar_names_are_ordinary(name: str) -> None:
    """Only what could be taken for undo state is kept from users."""
    assert not reserved(name)
    assert normalise(f"{name}/a") == f"{name}/a"


@given(st.lists(st.sampled_from("\u200b\u200d\ufeff\u00ad\u2060\ufe0f\U000e0100\u115f\u3164"), max_size=6), st.data())
def test_characters_that_are_not_shown_make_no_new_name(marks: list[str], data: st.DataObject) -> None:
    """Wherever they are put, and in whichever case the letters are."""
    name = data.draw(st.sampled_from(STATE))
    for mark in marks:
        at = data.draw(st.integers(0, len(name)))
        name = name[:at] + mark + name[at:]
    assert reserved("".join(data.draw(st.sampled_from([c.upper(), c.lower()])) for c in name))


@pytest.fixture(params=["memory", "disk", "scan", "view"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filesystem]:
    """Each kind of filesystem, with a file in it."""
    if request.param == "memory":
        yield InMemoryFilesystem({"a/b.txt": "text"})
        return
    (tmp_path / "root/below/a").mkdir(parents=True)
    for place in ("root", "root/below"):
        (tmp_path / place / "a").mkdir(exist_ok=True)
        (tmp_path / place / "a/b.txt").write_text("text")
    with HostFilesystem(tmp_path / "root", watch="scan" if request.param == "scan" else None) as host:
        yield SubFilesystem(host, "below") if request.param == "view" else host


@pytest.mark.parametrize("name", [".wink", f".Root.wink-{ID}", ".w\u200bink"], ids=ascii)
def test_every_operation_refuses_alike(fs: Filesystem, name: str) -> None:
    """Reading, writing, listing, searching, copying and moving, to and from there."""
    attempts: list[Callable[[str], object]] = [
        fs.read,
        fs.read_bytes,
        fs.list,
        fs.stat,
        fs.delete,
        fs.mkdir,
        fs.is_readonly,
        lambda path: fs.write(path, "x"),
        lambda path: fs.copy("a/b.txt", path),
        lambda path: fs.move("a/b.txt", path),
        lambda path: fs.copy(path, "c"),
        lambda path: fs.move(path, "c"),
        lambda path: fs.glob("**", path=path),
        lambda path: list(fs.grep("x", path=path)),
    ]
    for place in (name, f"a/{name}/journal"):
        for attempt in attempts:
            with pytest.raises(PathRefusedError, match="reserved"):
                attempt(place)
        assert not fs.exists(place)
    assert fs.read("a/b.txt") == "text"


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder with undo state in it, as another program made it."""
    root = tmp_path / "checkout"
    for name in (".wink", f"src/.lib.wink-{ID}", "src/.WINK"):
        (root / name).mkdir(parents=True)
        (root / name / "journal").write_text("needle")
    (root / "src/main.py").write_text("needle")
    return root


def test_what_others_planted_is_shown_nowhere(planted: Path) -> None:
    """Lists, globs, greps, searches and walks pass it by; a copy of the tree does not have it."""
    with HostFilesystem(planted) as fs:
        assert [stat.path for stat in fs.list()] == ["src"]
        assert [stat.path for stat in fs.list("src")] == ["src/main.py"]
        assert fs.glob("**") == [".", "src", "src/main.py"]
        assert fs.glob("**/.*") == fs.glob(".wink/*") == []
        assert {match.path for match in fs.grep("needle")} == {"src/main.py"}
        assert not fs.search("journal")
        assert list(walk_files(FilesystemTree(fs))) == ["src/main.py"]
        fs.copy("src", "copied")
        assert sorted(path.name for path in (planted / "copied").iterdir()) == ["main.py"]


def test_mounts_leave_it_out_and_cannot_be_of_it(planted: Path) -> None:
    """Neither as part of a mounted folder, nor as the folder, nor by a symlink to it."""
    target = InMemoryFilesystem()
    assert copy_in(HostMount(planted), target, [planted]).files == 1
    assert list(walk_files(FilesystemTree(target))) == ["src/main.py"]
    (planted.parent / "link").symlink_to(planted / "src/.WINK")
    for folder in (planted / ".wink", planted.parent / "link"):
        with pytest.raises(PromptValidationError, match="undo state"):
            copy_in(HostMount(folder), target, [planted.parent])
    with pytest.raises(PathRefusedError, match="reserved"):
        copy_in(HostMount(planted / "src", into=".wink"), target, [planted])


class _Loose(InMemoryFilesystem):
    """A filesystem of another's making, which has a file of such a name."""

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return b"planted"


def test_exports_leave_it_out_and_say_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The rest is written; what was left out is returned, and named in a warning."""
    left = export_files(_Loose(), ["a", "b/.wink/journal", ".W\u0131nk", f".x.WINK-{ID}"], tmp_path / "out")
    assert left == ("b/.wink/journal", f".x.WINK-{ID}")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".W\u0131nk", "a"]
    assert "b/.wink/journal" in caplog.text


def test_sections_say_what_an_export_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Undo state in a folder is shown by no method, so the result and a warning name it; the rest is exported."""
    root = tmp_path / "root"
    for name in (".wink", f"d/.x.wink-{ID}/deep/.wink"):
        (root / name).mkdir(parents=True)
        (root / name / "journal").write_text("old")
    (root / "d" / "a.txt").write_text("a")
    (root / "d" / ".WINK").write_text("a file")
    (root / "link").symlink_to(tmp_path)
    with VfsToolsSection(config=VfsConfig(root=root)) as vfs:
        vfs.filesystem.write("new.txt", "new")
        assert vfs.export(tmp_path / "changed").left_out == ()
        found = vfs.export(tmp_path / "all", everything=True)
    assert found.left_out == (".wink", "d/.WINK", f"d/.x.wink-{ID}")
    assert found.added == ("new.txt",)
    assert "d/.WINK" in caplog.text
    exported = [str(path.relative_to(tmp_path / "all")) for path in (tmp_path / "all").rglob("*") if path.is_file()]
    assert sorted(exported) == ["d/a.txt", "new.txt"]


def test_a_sandbox_says_what_an_export_left_out(tmp_path: Path) -> None:
    """Its paths are those that were written. A folder with undo state is refused; here it is put there later."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("a")
    if os.geteuid() == 0:
        for path in (root, root / "a.txt"):
            os.chown(path, 1000, 1000)
    with PodmanSandboxSection(config=PodmanSandboxConfig(root=root)) as section:
        (root / f".x.wink-{ID}").mkdir()
        found = section.export(tmp_path / "out")
    assert found == ("a.txt",)
    assert found.left_out == (f".x.wink-{ID}",)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.txt"]


def test_nothing_is_exported_into_it(tmp_path: Path) -> None:
    """Not by name, not through a symlink, and no directory is made on the way."""
    (tmp_path / ".wink").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / ".wink")
    for folder in (".wink", "link", f".new.wink-{ID}/deeper"):
        with pytest.raises(PathRefusedError, match="undo state"):
            export_files(InMemoryFilesystem({"journal": "x"}), ["journal"], tmp_path / folder)
    assert list((tmp_path / ".wink").iterdir()) == []
    assert not (tmp_path / f".new.wink-{ID}").exists()
