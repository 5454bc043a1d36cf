"""What every `Filesystem` must do, as a test suite for pytest.

A three-line subclass tests an implementation:

    class TestMyFilesystem(FilesystemContract):
        def make(self) -> Filesystem:
            return MyFilesystem()
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

from ..errors import (
    FilesystemError,
    NotTextError,
    PathRefusedError,
    PatternError,
    ReadOnlyError,
    SnapshotError,
    StaleCallError,
)
from ..fence import Fence
from ..filesystem import FileChanges, Filesystem, InMemoryFilesystem
from ..filesystem.protocol import fingerprint
from ..filesystem.views import GuardedFilesystem
from ..types import Snapshotable
from .code_escapes import ESCAPES
from .filesystem_savepoints import FilesystemSuite, SavepointSuite, raises, state


class _Files(FilesystemSuite):
    def test_it_is_a_filesystem_and_can_be_taken_back(self) -> None:
        """An implementation satisfies both protocols."""
        fs = self.filled()
        assert isinstance(fs, Filesystem)
        assert isinstance(fs, Snapshotable)

    def test_text_and_bytes_come_back_as_written(self) -> None:
        """Nothing is translated: line ends, NUL bytes and empty files stay."""
        fs = self.filled()
        for content in ("", "hello", "a\r\nb\rc\n", "\ufeffbom", "gr\u00fc\u00dfe \U0001f600"):
            fs.write("text.txt", content)
            assert fs.read("text.txt") == content
            assert fs.read_bytes("text.txt") == content.encode()
        for data in (b"", b"\x00\xff\xfe", bytes(range(256))):
            fs.write("data.bin", data)
            assert fs.read_bytes("data.bin") == data

    def test_text_in_another_encoding_is_read_when_it_is_named(self) -> None:
        """`read` takes the encoding; bytes that are not text in it, and an unknown encoding, raise `NotTextError`."""
        fs = self.filled()
        fs.write("latin.txt", "gr\u00fc\u00dfe".encode("latin-1"))
        assert fs.read("latin.txt", encoding="latin-1") == "gr\u00fc\u00dfe"
        error = raises(NotTextError, fs.read, "latin.txt")
        assert "latin.txt" in str(error)
        assert isinstance(error, OSError)
        raises(NotTextError, fs.read, "latin.txt", encoding="no-such-encoding")

    def test_text_that_cannot_be_encoded_is_not_written(self) -> None:
        """A lone surrogate raises `NotTextError`, another type `TypeError`; the old content stays."""
        fs = self.filled(**{"a.txt": "old"})
        raises(NotTextError, fs.write, "a.txt", "\ud800")
        raises(NotTextError, fs.append, "a.txt", "\ud800")
        raises(TypeError, fs.write, "a.txt", 5)
        assert fs.read("a.txt") == "old"

    def test_a_part_of_a_file_can_be_read(self) -> None:
        """`offset` and `limit` count bytes; beyond the end there is nothing; negative ones raise."""
        fs = self.filled(**{"a.txt": "0123456789"})
        assert fs.read_bytes("a.txt", offset=3) == b"3456789"
        assert fs.read_bytes("a.txt", offset=3, limit=4) == b"3456"
        assert fs.read_bytes("a.txt", limit=0) == b""
        assert fs.read_bytes("a.txt", offset=50, limit=4) == b""
        raises(ValueError, fs.read_bytes, "a.txt", offset=-1)
        raises(ValueError, fs.read_bytes, "a.txt", limit=-1)

    def test_a_fingerprint_is_that_of_the_content(self) -> None:
        """It changes with any write, is the same for equal bytes anywhere, and comes back with a rollback."""
        fs = self.filled("b.txt", **{"a.txt": "old"})
        before, old = fs.snapshot(), fingerprint(fs, "a.txt")
        fs.write("a.txt", "new")
        assert fingerprint(fs, "a.txt") not in {old, fingerprint(fs, "b.txt")}
        fs.append("a.txt", "er")
        assert fingerprint(fs, "a.txt") == fingerprint(InMemoryFilesystem({"x": "newer"}), "x")
        fs.restore(before)
        fs.release(before)
        assert fingerprint(fs, "a.txt") == old
        fs.write("big.bin", b"x" * 200_000)
        assert fingerprint(fs, "big.bin") == fingerprint(InMemoryFilesystem({"x": b"x" * 200_000}), "x")
        raises(FileNotFoundError, fingerprint, fs, "missing.txt")
        fs.mkdir("directory")
        raises(IsADirectoryError, fingerprint, fs, "directory")

    def test_big_files_are_streamed_in_pieces(self) -> None:
        """No piece is larger than asked for, none is empty, and together they are the file."""
        fs = self.filled()
        content = bytes(range(256)) * 12_000
        fs.write("big.bin", content)
        pieces = list(fs.stream("big.bin", chunk_size=100_000))
        assert b"".join(pieces) == content
        assert all(0 < len(piece) <= 100_000 for piece in pieces)
        assert fs.stat("big.bin").size == len(content)
        fs.write("empty", "")
        assert list(fs.stream("empty")) == []
        raises(ValueError, fs.stream, "big.bin", chunk_size=0)

    def test_write_makes_parents_and_replaces(self) -> None:
        """Missing directories are made on the way; a second write replaces the whole file."""
        fs = self.filled()
        fs.write("a/b/c.txt", "long content")
        fs.write("a/b/c.txt", "short")
        assert fs.read("a/b/c.txt") == "short"
        assert fs.stat("a/b").kind == "directory"

    def test_append_adds_or_creates(self) -> None:
        """Appending to a missing file creates it, parents included."""
        fs = self.filled()
        fs.append("logs/a.txt", "one\n")
        fs.append("logs/a.txt", b"two\n")
        assert fs.read("logs/a.txt") == "one\ntwo\n"

    def test_directories_can_be_made_and_listed(self) -> None:
        """`mkdir` makes parents and may be repeated; `list` gives the children only, sorted by name."""
        fs = self.filled("d/z.txt", "d/a.txt", "d/sub/deep.txt", "top.txt")
        fs.mkdir("d/empty/inner")
        fs.mkdir("d/empty")
        assert [stat.path for stat in fs.list("d")] == ["d/a.txt", "d/empty", "d/sub", "d/z.txt"]
        assert [stat.kind for stat in fs.list("d")] == ["file", "directory", "directory", "file"]
        assert [stat.path for stat in fs.list()] == ["d", "top.txt"]
        assert list(fs.list("d/empty/inner")) == []

    def test_stat_tells_kind_size_mode_and_time(self) -> None:
        """Size counts bytes; the root is a directory named "."."""
        fs = self.filled()
        fs.write("d/a.txt", "\u00fc")
        stat = fs.stat("d/a.txt")
        assert (stat.path, stat.kind, stat.size, stat.readonly) == ("d/a.txt", "file", 2, False)
        assert stat.mode & 0o600 == 0o600
        assert stat.mode < 0o10000
        assert stat.modified > 0
        assert fs.stat("/").path == "."
        assert fs.stat(".").kind == "directory"

    def test_delete_removes_files_and_empty_directories(self) -> None:
        """A directory with something in it needs `recursive=True`."""
        fs = self.filled("d/sub/a.txt", "b.txt")
        fs.mkdir("empty")
        fs.delete("b.txt")
        fs.delete("empty")
        raises(OSError, fs.delete, "d")
        assert fs.exists("d/sub/a.txt")
        fs.delete("d", recursive=True)
        assert list(fs.list()) == []

    def test_copy_and_move_take_files_and_trees(self) -> None:
        """Targets' parents are made; a copy is independent of its source; a move leaves nothing behind."""
        fs = self.filled("d/a.txt", "d/sub/b.txt")
        fs.mkdir("d/empty")
        fs.copy("d/a.txt", "new/place/a.txt")
        fs.copy("d", "e")
        fs.write("d/a.txt", "changed")
        assert fs.read("new/place/a.txt") == "d/a.txt"
        assert fs.read("e/a.txt") == "d/a.txt"
        fs.move("e", "moved/f")
        assert fs.glob("moved/f/**/*") == ["moved/f/a.txt", "moved/f/empty", "moved/f/sub", "moved/f/sub/b.txt"]
        assert not fs.exists("e")
        fs.move("moved/f/a.txt", "a.txt")
        assert fs.read("a.txt") == "d/a.txt"

    def test_copy_and_move_never_replace(self) -> None:
        """An existing target, also the source itself, raises `FileExistsError` and both stay."""
        fs = self.filled("a.txt", "b.txt", "d/c.txt")
        for method in (fs.copy, fs.move):
            raises(FileExistsError, method, "a.txt", "b.txt")
            raises(FileExistsError, method, "a.txt", "d")
            raises(FileExistsError, method, "d", "a.txt")
            raises(FileExistsError, method, "a.txt", "a.txt")
            raises(FileNotFoundError, method, "missing", "x")
            raises(NotADirectoryError, method, "a.txt", "b.txt/x")
            raises(NotADirectoryError, method, "a.txt", "a.txt/x")
            raises(PathRefusedError, method, "d", "d/inside")
        raises(PathRefusedError, fs.move, ".", "x")
        assert fs.read("a.txt") == "a.txt"
        assert fs.glob("**/*") == ["a.txt", "b.txt", "d", "d/c.txt"]

    def test_a_copy_or_move_of_what_is_missing_names_it(self) -> None:
        """The source and not the target, which is missing as it should be; with a file in the way, what is below it."""
        fs = self.filled("file.txt")
        for method in (fs.copy, fs.move):
            for source in ("missing.txt", "no/such/missing.txt", "file.txt/below"):
                error = raises((FileNotFoundError, NotADirectoryError), method, source, "new/target.txt")
                assert isinstance(error, OSError)
                assert error.filename == source
        assert fs.glob("**/*") == ["file.txt"]

    def test_what_is_below_a_file_is_not_read_only(self) -> None:
        """A file in the way is another reason than protection: `is_readonly` is False, and the write says which."""
        fs = self.filled("file.txt", "d/a.txt")
        for path in ("file.txt/child", "file.txt/child/deeper", "no/such/place", "d", "."):
            assert not fs.is_readonly(path)
        raises(NotADirectoryError, fs.write, "file.txt/child", "x")

    def test_errors_are_those_of_an_operating_system(self) -> None:
        """Missing, wrong kind, in the way: each has its own `OSError`, and nothing is changed by it."""
        fs = self.filled("a.txt", "d/b.txt")
        before = state(fs)
        for missing in (fs.read, fs.read_bytes, fs.stream, fs.stat, fs.list, fs.delete, fs.sub):
            raises(FileNotFoundError, missing, "missing")
            raises(FileNotFoundError, missing, "missing/deeper")
        for path_in_file in (fs.read, fs.read_bytes, fs.stream, fs.stat, fs.list, fs.delete, fs.mkdir):
            raises(NotADirectoryError, path_in_file, "a.txt/x")
        for file_wanted in (fs.read, fs.read_bytes, fs.stream):
            raises(IsADirectoryError, file_wanted, "d")
        for written in (fs.write, fs.append):
            raises(IsADirectoryError, written, "d", "x")
            raises(IsADirectoryError, written, ".", "x")
            raises(NotADirectoryError, written, "a.txt/x", "x")
            raises(NotADirectoryError, written, "a.txt/x/y", "x")
        raises(NotADirectoryError, fs.list, "a.txt")
        raises(NotADirectoryError, fs.sub, "a.txt")
        raises(FileExistsError, fs.mkdir, "a.txt")
        raises(PathRefusedError, fs.delete, ".", recursive=True)
        assert not fs.exists("missing")
        assert not fs.exists("a.txt/x")
        assert state(fs) == before

    def test_threads_lose_nothing(self) -> None:
        """Eight threads that write their own files and append to a shared one all find everything there."""
        fs = self.filled()
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for step in range(20):
                    fs.write(f"own/{number}/{step}.txt", f"{number}.{step}")
                    fs.append("shared.txt", f"{number}.{step}\n")
                    assert fs.read(f"own/{number}/{step}.txt") == f"{number}.{step}"
            except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
                failures.append(error)

        threads = [Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(fs.glob("own/*/*.txt")) == 160
        assert sorted(fs.read("shared.txt").split()) == sorted(f"{n}.{s}" for n in range(8) for s in range(20))


class _Paths(FilesystemSuite):
    def test_a_leading_slash_and_workspace_mean_the_root(self) -> None:
        """All spellings name the same file, and results are always relative."""
        fs = self.filled("src/a.txt")
        for spelling in ("/src/a.txt", "/workspace/src/a.txt", "./src//a.txt", "src/./a.txt", "//src/a.txt"):
            assert fs.read(spelling) == "src/a.txt"
            assert fs.stat(spelling).path == "src/a.txt"
        for root in ("", ".", "/", "/workspace", "/workspace/", "./", "//"):
            assert fs.stat(root).path == "."
            assert [stat.path for stat in fs.list(root)] == ["src"]
        fs.write("/workspace/b.txt", "b")
        assert fs.glob("/workspace/*.txt") == ["b.txt"]
        assert fs.glob("*.txt", path="/workspace") == ["b.txt"]

    def test_names_in_any_script_work(self) -> None:
        """Spaces, quotes, backslashes, percent signs, dots and all of Unicode are ordinary in names."""
        fs = self.filled()
        names = ["with space", "\u65e5\u672c\u8a9e", "\U0001f600.txt", "a\\b", "100%", "%41", "'q\"", "~", "...", "-x"]
        names += [".hidden", "a*b", "[c]", "x" * 255, "\u00e9" * 127, "e\u0301", "\u202etxt.exe"]
        for name in names:
            fs.write(f"d/{name}", name)
        assert [stat.path for stat in fs.list("d")] == sorted(f"d/{name}" for name in names)
        for name in names:
            assert fs.read(f"d/{name}") == name
            assert f"d/{name}" in fs.search(name)

    def test_every_escape_is_refused_by_every_method(self) -> None:
        """Each attack path raises `PathRefusedError` wherever a path is taken, and nothing is changed by it."""
        fs = self.filled("a/b.txt")
        before = state(fs)
        one_path = (fs.read, fs.read_bytes, fs.stream, fs.stat, fs.list, fs.delete, fs.mkdir, fs.sub, fs.is_readonly)
        for path in ESCAPES:
            for method in one_path:
                raises(PathRefusedError, method, path)
            for written in (fs.write, fs.append):
                raises(PathRefusedError, written, path, "x")
            for pair in (fs.copy, fs.move):
                raises(PathRefusedError, pair, path, "target")
                raises(PathRefusedError, pair, "a/b.txt", path)
            raises(PathRefusedError, fs.glob, "*", path=path)
            raises(PathRefusedError, fs.grep, "x", path=path)
            raises(PathRefusedError, fs.delete, path, recursive=True)
            assert not fs.exists(path)
            fs.search(path)
        assert state(fs) == before

    def test_every_escape_is_refused_below_a_sub_directory(self) -> None:
        """A sub view cannot be left, and what is beside it stays out of reach."""
        fs = self.filled("outside.txt", "sub/inside.txt")
        sub = fs.sub("sub")
        for path in ESCAPES:
            raises(PathRefusedError, sub.read, path)
            raises(PathRefusedError, sub.write, path, "x")
            assert not sub.exists(path)
        assert state(fs).keys() == {".", "outside.txt", "sub", "sub/inside.txt"}

    def test_what_is_no_text_is_no_path(self) -> None:
        """Bytes, numbers and None raise `PathRefusedError`, not something from deep inside."""
        fs = self.filled()
        for path in (b"a.txt", 5, None, ("a",)):
            raises(PathRefusedError, fs.read, path)
            raises(PathRefusedError, fs.write, path, "x")

    def test_patterns_cannot_go_up(self) -> None:
        """A glob with `..` is refused, an empty one is a `PatternError`."""
        fs = self.filled("a/b.txt")
        for pattern in ("..", "../*", "a/../*", "**/../*", "/workspace/../*"):
            raises(PathRefusedError, fs.glob, pattern)
        raises(PatternError, fs.glob, "")


class _Searches(FilesystemSuite):
    def test_glob_finds_as_pathlib_does(self) -> None:
        """`*` stays within a part, `**` crosses them, a trailing slash wants directories; results are sorted."""
        fs = self.filled("a.py", "b.txt", "src/c.py", "src/deep/d.py", "src/.hidden.py")
        fs.mkdir("src/empty")
        assert fs.glob("*.py") == ["a.py"]
        assert fs.glob("**/*.py") == ["a.py", "src/.hidden.py", "src/c.py", "src/deep/d.py"]
        assert fs.glob("src/*") == ["src/.hidden.py", "src/c.py", "src/deep", "src/empty"]
        assert fs.glob("src/*/") == ["src/deep", "src/empty"]
        assert fs.glob("src/**/d.py") == ["src/deep/d.py"]
        assert fs.glob("?.[pt]*") == ["a.py", "b.txt"]
        assert fs.glob("*.py", path="src") == ["src/.hidden.py", "src/c.py"]
        assert fs.glob("[!a].txt") == ["b.txt"]
        assert fs.glob("nothing/*") == []
        raises(FileNotFoundError, fs.glob, "*", path="missing")
        raises(NotADirectoryError, fs.glob, "*", path="a.py")

    def test_glob_can_leave_out_what_git_ignores(self) -> None:
        """Rules of nested `.gitignore` files count, and later and deeper ones win."""
        fs = self.filled("a.log", "keep.log", "src/b.log", "src/c.py", "build/x.py", "src/gen/y.py", ".git/config")
        fs.write(".gitignore", "*.log\n!keep.log\nbuild/\n# comment\n")
        fs.write("src/.gitignore", "gen/\n!b.log\n")
        found = fs.glob("**/*", gitignore=True)
        assert found == [".gitignore", "keep.log", "src", "src/.gitignore", "src/b.log", "src/c.py"]
        assert fs.glob("build/*", gitignore=True) == []
        assert fs.glob("build/*") == ["build/x.py"]
        assert [match.path for match in fs.grep("y", gitignore=True)] == ["src/c.py"]

    def test_grep_gives_path_line_and_text(self) -> None:
        """Matches come in path order; the pattern sees one line at a time."""
        fs = self.filled(**{"b.txt": "two\none two\r\nthree", "a/x.py": "two = 2\n", "a.txt": "nothing"})
        matches = fs.grep("two")
        assert [(match.path, match.line, match.text) for match in matches] == [
            ("a/x.py", 1, "two = 2"),
            ("b.txt", 1, "two"),
            ("b.txt", 2, "one two"),
        ]
        assert [match.line for match in fs.grep("^two$", path="b.txt")] == [1]
        assert [match.path for match in fs.grep("TWO", ignore_case=True, path="a")] == ["a/x.py"]
        assert [match.path for match in fs.grep("two", glob="*.py")] == ["a/x.py"]
        assert fs.grep("TWO") == []
        raises(FileNotFoundError, fs.grep, "x", path="missing")

    def test_grep_is_capped(self) -> None:
        """The number of matches and the length of their text have limits; the matching part is in the text."""
        fs = self.filled()
        fs.write("many.txt", "hit\n" * 500)
        fs.write("long.txt", "x" * 5000 + "needle" + "y" * 5000)
        assert len(fs.grep("hit", max_matches=7)) == 7
        assert list(fs.grep("hit", max_matches=0)) == []
        (match,) = fs.grep("needle", max_line_length=50)
        assert len(match.text) == 50
        assert "needle" in match.text

    def test_grep_skips_binary_files_and_reads_any_text(self) -> None:
        """A NUL byte marks a binary file; UTF-16 with its mark is text; stray bytes do not hide a line."""
        fs = self.filled()
        fs.write("a.bin", b"needle\x00\x01")
        fs.write("b.txt", "needle".encode("utf-16"))
        fs.write("c.txt", b"\xff needle")
        assert [match.path for match in fs.grep("needle")] == ["b.txt", "c.txt"]

    def test_grep_stops_a_pattern_that_would_take_for_ever(self) -> None:
        """An explosive pattern is answered or stopped; no time left and an invalid pattern raise `PatternError`."""
        fs = self.filled()
        fs.write("a.txt", "a" * 5000 + "!")
        with suppress(PatternError):
            assert list(fs.grep(r"(a|aa)+$", timeout=5)) == []
        error = raises(PatternError, fs.grep, "b", timeout=0)
        assert "longer than 0 seconds" in str(error)
        for pattern in ("(", "[a", "*", "(?P<x>a)(?P<x"):
            raises(PatternError, fs.grep, pattern)

    def test_search_finds_files_by_name(self) -> None:
        """Any part of the path counts, ignoring case; directories are not files; the limit cuts the sorted list."""
        fs = self.filled("src/Main.py", "src/util.py", "docs/main.md")
        assert fs.search("MAIN") == ["docs/main.md", "src/Main.py"]
        assert fs.search("src/") == ["src/Main.py", "src/util.py"]
        assert fs.search("", limit=2) == ["docs/main.md", "src/Main.py"]
        assert fs.search("main", limit=0) == []
        assert fs.search("main", limit=-1) == []
        assert fs.search("docs") == ["docs/main.md"]

    def test_search_never_raises(self) -> None:
        """Whatever the text is, it is only compared."""
        fs = self.filled("a(b.txt")
        assert fs.search("(") == ["a(b.txt"]
        for text in ("[", "*", "\\", "\0", "\ud800", "..", "x" * 100_000, "%", "(?P<"):
            assert list(fs.search(text)) == []


class _Rollback(FilesystemSuite):
    def _changed(self, fs: Filesystem) -> None:
        fs.write("kept.txt", "other")
        fs.append("d/appended.txt", "more")
        fs.delete("gone.txt")
        fs.delete("tree", recursive=True)
        fs.delete("empty")
        fs.move("d/moved.txt", "elsewhere/moved.txt")
        fs.copy("d", "copied")
        fs.mkdir("new/dir")
        fs.write("gone.txt/now/a/directory.txt", "x")
        fs.write("empty", "now a file")

    def _original(self) -> Filesystem:
        fs = self.filled("kept.txt", "d/appended.txt", "gone.txt", "tree/a/b.txt", "tree/c.txt", "d/moved.txt")
        fs.mkdir("empty")
        fs.mkdir("tree/hollow")
        return fs

    def test_restore_brings_everything_back(self) -> None:
        """Bytes, modes, times, deleted trees and empty directories are as before; what was added is gone."""
        fs = self._original()
        before = state(fs)
        snapshot = fs.snapshot()
        self._changed(fs)
        assert state(fs) != before
        fs.restore(snapshot)
        assert state(fs) == before
        fs.release(snapshot)
        assert state(fs) == before

    def test_a_snapshot_can_be_restored_again(self) -> None:
        """Restoring does not use a snapshot up."""
        fs = self._original()
        before = state(fs)
        snapshot = fs.snapshot()
        for _ in range(3):
            self._changed(fs)
            fs.restore(snapshot)
            assert state(fs) == before
        fs.release(snapshot)

    def test_a_released_snapshot_leaves_its_changes(self) -> None:
        """`release` keeps what was done; doing it twice is fine."""
        fs = self.filled("a.txt")
        snapshot = fs.snapshot()
        fs.write("a.txt", "new")
        fs.release(snapshot)
        fs.release(snapshot)
        assert fs.read("a.txt") == "new"

    def test_snapshots_nest(self) -> None:
        """Newest first, each brings back its own moment; an outer one undoes what an inner one kept."""
        fs = self.filled(**{"a.txt": "0"})
        outer = fs.snapshot()
        fs.write("a.txt", "1")
        inner = fs.snapshot()
        fs.write("a.txt", "2")
        fs.restore(inner)
        assert fs.read("a.txt") == "1"
        fs.write("b.txt", "kept")
        fs.release(inner)
        assert fs.read("b.txt") == "kept"
        fs.restore(outer)
        assert fs.read("a.txt") == "0"
        assert not fs.exists("b.txt")
        fs.release(outer)

    def test_snapshots_go_back_and_forth_where_that_is_promised(self) -> None:
        """Any moment can be restored from any other, where the implementation says so."""
        if not self.any_order:
            return
        fs = self.filled()
        moments: list[tuple[Any, dict[str, tuple[object, ...]]]] = []
        for number in range(5):
            fs.write(f"f{number}.txt", str(number))
            fs.write("same.txt", str(number))
            moments.append((fs.snapshot(), state(fs)))
        for index in (0, 4, 2, 3, 1, 1, 4, 0):
            snapshot, expected = moments[index]
            fs.restore(snapshot)
            assert state(fs) == expected
            assert fs.changes(snapshot) == FileChanges()

    def test_a_foreign_snapshot_is_refused(self) -> None:
        """One of another filesystem, or something else altogether, raises and changes nothing."""
        fs, other = self.filled("a.txt"), self.filled("b.txt")
        snapshot = other.snapshot()
        for wrong in (snapshot, object(), None):
            raises((SnapshotError, FilesystemError), fs.restore, wrong)
            raises((SnapshotError, FilesystemError), fs.changes, wrong)
        assert fs.glob("*") == ["a.txt"]
        other.release(snapshot)

    def test_changes_tells_what_differs(self) -> None:
        """Added, changed and removed paths are sorted; directories end in a slash; a move is both."""
        fs = self.filled("a.txt", "b.txt", "d/c.txt", "m.txt")
        snapshot = fs.snapshot()
        assert not fs.changes(snapshot)
        fs.write("a.txt", "other")
        fs.delete("b.txt")
        fs.write("new/x.txt", "x")
        fs.mkdir("hollow")
        fs.delete("d", recursive=True)
        fs.move("m.txt", "n.txt")
        assert fs.changes(snapshot) == FileChanges(
            added=("hollow/", "n.txt", "new/", "new/x.txt"),
            changed=("a.txt",),
            removed=("b.txt", "d/", "d/c.txt", "m.txt"),
        )
        fs.restore(snapshot)
        assert not fs.changes(snapshot)
        fs.release(snapshot)

    def test_what_was_undone_by_hand_is_no_change(self) -> None:
        """A file that came and went, or moved away and back, does not differ."""
        fs = self.filled("a.txt", "d/b.txt")
        snapshot = fs.snapshot()
        fs.write("t/temporary.txt", "x")
        fs.delete("t", recursive=True)
        fs.move("a.txt", "away.txt")
        fs.move("away.txt", "a.txt")
        fs.move("d", "e")
        fs.move("e", "d")
        assert fs.changes(snapshot) == FileChanges()
        fs.release(snapshot)

    def test_changes_counts_from_its_own_snapshot(self) -> None:
        """Nested snapshots see what happened since each; an inner rollback takes its part away from the outer."""
        fs = self.filled()
        outer = fs.snapshot()
        fs.write("one.txt", "1")
        inner = fs.snapshot()
        fs.write("two.txt", "2")
        assert fs.changes(inner).added == ("two.txt",)
        assert fs.changes(outer).added == ("one.txt", "two.txt")
        fs.restore(inner)
        assert fs.changes(outer).added == ("one.txt",)
        fs.release(inner)
        fs.write("three.txt", "3")
        assert fs.changes(outer).added == ("one.txt", "three.txt")
        fs.release(outer)


class _Views(FilesystemSuite):
    def _writes(self, fs: Filesystem) -> list[Callable[[], object]]:
        return [
            lambda: fs.write("a.txt", "x"),
            lambda: fs.write("new/x.txt", "x"),
            lambda: fs.append("a.txt", "x"),
            lambda: fs.delete("a.txt"),
            lambda: fs.delete("d", recursive=True),
            lambda: fs.mkdir("made"),
            lambda: fs.copy("a.txt", "copied.txt"),
            lambda: fs.move("a.txt", "moved.txt"),
        ]

    def test_a_read_only_view_reads_and_refuses_every_write(self) -> None:
        """Each write raises `ReadOnlyError`, a `PermissionError`; views of the view refuse, too."""
        fs = self.filled("a.txt", "d/b.txt")
        before = state(fs)
        view = fs.readonly()
        assert isinstance(view, Filesystem)
        for refusing in (view, view.readonly(), view.sub(".")):
            for write in self._writes(refusing):
                assert isinstance(raises(ReadOnlyError, write), PermissionError)
        raises(ReadOnlyError, fs.sub("d").readonly().write, "b.txt", "x")
        raises(ReadOnlyError, fs.readonly().sub("d").write, "b.txt", "x")
        assert state(fs) == before
        assert view.read("a.txt") == "a.txt"
        assert view.is_readonly("a.txt")
        assert not fs.is_readonly("a.txt")
        assert view.stat("a.txt").readonly
        assert all(stat.readonly for stat in view.list())

    def test_a_read_only_view_restores_only_what_did_not_change(self) -> None:
        """It can take part in a rollback, where there is nothing to do; more than that is refused."""
        fs = self.filled("a.txt")
        view = fs.readonly()
        snapshot = view.snapshot()
        view.restore(snapshot)
        fs.write("a.txt", "new")
        assert view.changes(snapshot).changed == ("a.txt",)
        raises(ReadOnlyError, view.restore, snapshot)
        assert fs.read("a.txt") == "new"
        view.release(snapshot)

    def test_a_sub_view_has_its_own_root(self) -> None:
        """Paths go in and come out relative to it, also through a second one; its root cannot be removed."""
        fs = self.filled("p/a.txt", "p/q/b.py", "outside.txt")
        sub = fs.sub("p")
        assert isinstance(sub, Filesystem)
        assert sub.read("/workspace/a.txt") == "p/a.txt"
        assert [stat.path for stat in sub.list()] == ["a.txt", "q"]
        assert sub.stat("q/b.py").path == "q/b.py"
        assert sub.stat(".").path == "."
        assert sub.glob("**") == [".", "a.txt", "q", "q/b.py"]
        assert [match.path for match in sub.grep("b")] == ["q/b.py"]
        assert sub.search("p") == ["q/b.py"]
        assert sub.sub("q").glob("*") == ["b.py"]
        assert list(sub.stream("a.txt")) == [b"p/a.txt"]
        sub.write("new.txt", "x")
        sub.move("new.txt", "q/moved.txt")
        assert fs.read("p/q/moved.txt") == "x"
        raises(PathRefusedError, sub.delete, ".", recursive=True)
        raises(PathRefusedError, sub.move, ".", "x")
        raises(FileNotFoundError, sub.read, "outside.txt")

    def test_a_sub_view_rolls_back_its_own_changes(self) -> None:
        """`changes` tells what is in it; a change outside makes restoring raise, as it would reach above."""
        fs = self.filled("p/a.txt", "outside.txt")
        sub = fs.sub("p")
        snapshot = sub.snapshot()
        sub.write("new/b.txt", "x")
        assert sub.changes(snapshot).added == ("new/", "new/b.txt")
        sub.restore(snapshot)
        assert sub.glob("**/*") == ["a.txt"]
        fs.write("outside.txt", "changed")
        assert not sub.changes(snapshot)
        raises(PathRefusedError, sub.restore, snapshot)
        assert fs.read("outside.txt") == "changed"
        sub.release(snapshot)

    def test_a_guarded_view_writes_only_while_its_fence_is_open(self) -> None:
        """Once closed, every write raises `StaleCallError`, through views of the view as well; reads go on."""
        fs = self.filled("a.txt", "d/b.txt")
        fence = Fence()
        view = GuardedFilesystem(fs, fence)
        assert isinstance(view, Filesystem)
        sub = view.sub("d")
        view.write("c.txt", "x")
        sub.write("e.txt", "x")
        before = state(fs)
        fence.close()
        for write in (*self._writes(view), *self._writes(view.sub("."))):
            raises(StaleCallError, write)
        raises(StaleCallError, sub.write, "late.txt", "x")
        raises(StaleCallError, view.snapshot)
        raises(ReadOnlyError, view.readonly().write, "late.txt", "x")
        assert state(fs) == before
        assert view.read("c.txt") == "x"
        assert sub.glob("*") == ["b.txt", "e.txt"]


class FilesystemContract(_Files, _Paths, _Searches, _Rollback, SavepointSuite, _Views):
    """Subclass it with a `make()` that returns an empty, writable filesystem, and pytest runs the whole suite.

    `make()` is called once or more in each test; a filesystem with a `close` method is closed afterwards. Set
    `any_order = True` when snapshots may be restored in any order. Savepoints are tested where there is a `savepoint`
    method; set `owned_savepoints = False` when restoring one undoes what anybody wrote.
    """
