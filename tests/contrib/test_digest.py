"""The workspace digest: what it finds, that it is always the same, and that it stays small."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weakincentives.cli import main
from weakincentives.contrib.tools import DigestConfig, WorkspaceDigest, build_digest, refresh_digest
from weakincentives.errors import PathRefusedError, PromptValidationError
from weakincentives.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from weakincentives.session import Session
from weakincentives.testing import FakeClock

PYPROJECT = """
[project]
name = "teapot"
description = "Brews tea."

[project.scripts]
brew = "teapot.cli:main"
"""

PROJECT = {
    "README.md": "\n# Teapot\n\nIt brews.",
    "pyproject.toml": PYPROJECT,
    "Makefile": "test: build\n\tpytest\nNAME := x\nbuild:\n\ttrue\n",
    "src/teapot/__init__.py": "",
    "src/teapot/__main__.py": "print('tea')\n" * 20,
    "src/teapot/cli.py": "def main(): ...\n" * 50,
    "tests/test_cli.py": "def test(): ...\n",
    "docs/guide.md": "Pour.",
    "assets/logo.png": b"\x89PNG\0\0",
}


def body(files: Any, **limits: int) -> str:
    return build_digest(InMemoryFilesystem(files), config=DigestConfig(**limits)).body


def part(text: str, title: str) -> str:
    """The lines of one list of a digest."""
    return text.partition(f"**{title}**\n\n")[2].partition("\n\n")[0]


def test_a_project_is_described() -> None:
    """Languages, entry points, key files with what they say, and the layout with sizes are all there."""
    digest = build_digest(InMemoryFilesystem(PROJECT))
    assert digest.summary == (
        "9 files in 5 directories, 1.2 KB; mostly Python. Entry points: `brew`, `src/teapot/__main__.py`."
    )
    assert part(digest.body, "Languages").startswith("- Python: 4 files, 1.1 KB\n- TOML: 1 file, 98 B\n")
    assert part(digest.body, "Entry points") == (
        "- `brew`: runs teapot.cli:main (pyproject.toml)\n- `src/teapot/__main__.py`"
    )
    assert part(digest.body, "Key files") == (
        "- `Makefile`: targets: test, build\n- `README.md`: Teapot\n- `pyproject.toml`: teapot: Brews tea."
    )
    assert "- `src/` (3 files, 1.1 KB)\n  - `teapot/` (3 files, 1.1 KB)" in part(digest.body, "Layout")
    assert (digest.files, digest.size) == (9, sum(len(content) for content in PROJECT.values()))


def test_other_manifests_are_understood() -> None:
    """package.json, Cargo.toml and go.mod tell their names, and package.json what it starts."""
    package = {"name": "web", "bin": "cli.js", "main": "lib.js", "scripts": {"start": "node .", "lint": "x"}}
    text = body(
        {
            "package.json": json.dumps(package),
            "Cargo.toml": '[package]\nname = "core"\n',
            "go.mod": "module example.org/tool\n\ngo 1.22\n",
            "cmd/tool/main.go": "package main",
        }
    )
    assert part(text, "Key files") == (
        "- `Cargo.toml`: core\n- `go.mod`: module example.org/tool\n- `package.json`: web"
    )
    assert part(text, "Entry points") == (
        "- `web`: runs cli.js (package.json)\n- `npm run start`: runs node . (package.json)\n"
        "- `lib.js`: main of package.json\n- `cmd/tool/main.go`"
    )


def test_tests_and_examples_start_nothing() -> None:
    """Files named like entry points do not count in tests, examples and vendored code."""
    files = dict.fromkeys(["tests/main.py", "examples/app.py", "vendor/x/main.go", "a/b/c/d/e/main.py"], "x")
    assert "Entry points" not in body(files)


@pytest.mark.parametrize(
    ("name", "content", "remark"),
    [
        ("pyproject.toml", "[project\nname =", "not readable"),
        ("pyproject.toml", "project = 3", ""),
        ("pyproject.toml", "x = " + "[" * 5000, "not readable"),
        ("package.json", "[" * 100_000, "not readable"),
        ("package.json", '{"name": 7, "bin": [1], "scripts": "x"}', ""),
        ("package.json", "[]", ""),
        ("go.mod", "", ""),
        ("README.md", b"\0\0binary", "binary"),
        ("README.md", b"\xff\xfe bad", "\ufffd\ufffd bad"),
        ("README.md", "x" * 300_000, "too large to read here"),
        ("README.md", "\n\n===\n", ""),
        ("README.md", "# `rm -rf`\x1b[31m\u202e of " + "x" * 500, "'rm -rf' [31m of " + "x" * 100 + "..."),
    ],
)
def test_a_broken_manifest_is_no_reason_to_fail(name: str, content: str | bytes, remark: str) -> None:
    """What cannot be read is named with a short remark, on one line and without anything that could pose as more."""
    assert part(body({name: content}), "Key files") == (f"- `{name}`: {remark}" if remark else f"- `{name}`")


def test_files_are_known_by_name_or_by_their_first_bytes() -> None:
    """Scripts without an extension are recognised, binary files are told from text, and nothing is guessed beyond."""
    text = body(
        {
            "tool": "#!/usr/bin/env -S python3 -u\n",
            "setup": "#! /bin/sh\n",
            "odd": "#!/opt/weird9\n",
            "blob": b"\0\1",
            "prose": "hello",
            "empty": "",
        }
    )
    found = dict(line.removeprefix("- ").split(": ") for line in part(text, "Languages").splitlines())
    assert {name: said.partition(" file")[0] for name, said in found.items()} == {
        "Python": "1",
        "Shell": "2",
        "binary": "1",
        "other text": "2",
    }


def test_ignored_files_do_not_count() -> None:
    """`.gitignore` files are obeyed, nested ones too, and `.git` is never looked at."""
    digest = build_digest(
        InMemoryFilesystem(
            {
                ".gitignore": "build/\n*.log\n",
                ".git/config": "x",
                "build/out.bin": b"\0" * 2_000_000,
                "a.log": "x",
                "sub/.gitignore": "secret*\n!secret_not\n",
                "sub/secret": "x",
                "sub/secret_not": "x",
            }
        )
    )
    assert digest.files == 3
    assert "build" not in digest.body
    assert ".git/" not in digest.body
    assert "Large files" not in digest.body


def test_huge_files_are_listed_and_not_read(tmp_path: Path) -> None:
    """A sparse file of a terabyte costs nothing and stands among the large files."""
    with (tmp_path / "disk.img").open("wb") as file:
        file.truncate(10**12)
    (tmp_path / "small.py").write_text("x")
    text = build_digest(tmp_path).body
    assert part(text, "Large files") == "- `disk.img` (1.0 TB)"


def test_symlinks_are_counted_and_not_followed(tmp_path: Path) -> None:
    """A link out of the workspace, or round in a circle, is not gone through."""
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "out").symlink_to("/etc")
    digest = build_digest(tmp_path)
    assert digest.files == 1
    assert digest.body.startswith("**Size:** 1 file in 0 directories, 1 B; 2 symlinks, not followed.")


def test_executable_scripts_are_entry_points(tmp_path: Path) -> None:
    """A script that may be run counts near the top, a plain or a binary file does not."""
    for name, content, mode in (
        ("run", "#!/bin/bash\n", 0o755),
        ("notes", "#!/bin/bash\n", 0o644),
        ("program", "\0ELF", 0o755),
        ("logo.png", "#!/bin/bash\n", 0o755),
    ):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(mode)
    assert part(build_digest(tmp_path).body, "Entry points") == "- `run`: executable, Shell"


def test_a_directory_is_only_read(tmp_path: Path) -> None:
    """Making a digest leaves nothing behind in the workspace."""
    (tmp_path / "a.py").write_text("x")
    build_digest(tmp_path)
    assert os.listdir(tmp_path) == ["a.py"]


def test_memory_and_disk_give_the_same_words(tmp_path: Path) -> None:
    """The digest depends on the files alone, not on where they are or when they were written."""
    for path, content in PROJECT.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    in_memory = build_digest(InMemoryFilesystem(PROJECT))
    for source in (tmp_path, str(tmp_path)):
        on_disk = build_digest(source)
        assert (on_disk.summary, on_disk.body) == (in_memory.summary, in_memory.body)
    with HostFilesystem(tmp_path) as fs:
        assert build_digest(fs.readonly()).body == in_memory.body


def test_an_empty_workspace_has_a_digest() -> None:
    """Nothing is said where there is nothing."""
    digest = build_digest(InMemoryFilesystem())
    assert digest.body == "**Size:** 0 files in 0 directories, 0 B."
    assert digest.summary == "0 files in 0 directories, 0 B."


def test_what_vanishes_meanwhile_is_passed_over() -> None:
    """A directory or file that is gone when its turn comes leaves the rest of the digest intact."""

    class Vanishing:
        def __init__(self, fs: Filesystem) -> None:
            self._fs = fs

        def __getattr__(self, name: str) -> Any:
            return getattr(self._fs, name)

        def list(self, path: str = ".") -> Any:
            if path == "gone":
                raise FileNotFoundError(path)
            return self._fs.list(path)

        def read_bytes(self, path: str, **options: Any) -> bytes:
            raise FileNotFoundError(path)

    fs = InMemoryFilesystem({"gone/a.py": "x", "b.py": "x", "mystery": "x", "README.md": "# x"})
    text = build_digest(Vanishing(fs)).body  # pyright: ignore[reportArgumentType]
    assert text.startswith("**Size:** 3 files in 1 directory, 5 B; 1 directory could not be read.")
    assert "- binary: 1 file" in text
    assert "- `README.md`\n" in text + "\n"


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(lambda name: "/" not in name)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, bytes]:
    fs = InMemoryFilesystem(clock=FakeClock())
    kept: dict[str, bytes] = {}
    known = st.sampled_from(
        ["README.md", "pyproject.toml", "package.json", "Makefile", "src/main.py", ".gitignore", "`x`"]
    )
    for path, content in draw(st.lists(st.tuples(paths | known, st.binary(max_size=40)), max_size=25)):
        try:
            fs.write(path, content)
        except (PathRefusedError, OSError):
            continue
        kept[path] = content
    return kept


@given(trees(), st.integers(200, 1000), st.randoms())
def test_any_tree_gives_one_short_digest(files: dict[str, bytes], limit: int, random: Any) -> None:
    """Whatever names and bytes there are, the digest is made, stays below its limit and does not depend on order."""
    shuffled = list(files.items())
    random.shuffle(shuffled)
    config = DigestConfig(max_chars=limit)
    made = [
        build_digest(InMemoryFilesystem(dict(items), clock=FakeClock()), config=config)
        for items in (files.items(), shuffled)
    ]
    assert made[0] == made[1]
    assert len(made[0].body) <= limit
    assert len(made[0].summary) < 1000
    assert made[0].body.isprintable() or set("".join(c for c in made[0].body if not c.isprintable())) == {"\n"}


def test_long_lists_say_how_much_is_missing() -> None:
    """Each list ends after its limit with a count of what is left; a body that is too long ends at a line."""
    files = {f"dir{number:03}/main.py": "x" for number in range(100)}
    text = body(files, max_entries=5)
    assert part(text, "Entry points").endswith("\n- (95 more)")
    assert part(text, "Layout").endswith("\n- (90 more)")
    short = body(files, max_chars=300)
    assert len(short) <= 300
    assert short.endswith("\n(cut here; more does not fit)")


def test_a_workspace_without_end_is_looked_at_in_part() -> None:
    """Beyond `max_files` the walk stops, upper levels first, and the digest says that there is more."""
    files = {"top.py": "x", **{f"deep/{number}/x.py": "x" for number in range(50)}}
    digest = build_digest(InMemoryFilesystem(files), config=DigestConfig(max_files=10))
    assert digest.files == 10
    assert "There are more: the limit was reached." in digest.body
    assert "10 files or more" in digest.summary
    assert build_digest(InMemoryFilesystem(files), config=DigestConfig(max_files=51)).body.startswith(
        "**Size:** 51 files in 51 directories, 51 B.\n"
    )


@pytest.mark.parametrize("limits", [{"max_chars": 199}, {"max_files": 0}, {"max_depth": True}])
def test_limits_that_make_no_sense_are_refused(limits: Any) -> None:
    """A config names the limit that is wrong."""
    with pytest.raises(PromptValidationError, match=next(iter(limits))):
        DigestConfig(**limits)


def test_a_model_may_improve_it() -> None:
    """`improve` gets the body and gives a better one, cut at the limit; the facts about it stay."""
    fs = InMemoryFilesystem(PROJECT)
    plain = build_digest(fs)
    better = build_digest(fs, improve=lambda text: f"Tea, mostly.\n\n{text}" + "x" * 9000)
    assert better.improved
    assert better.body.startswith("Tea, mostly.\n\n**Size:**")
    assert len(better.body) == 6000
    assert (better.summary, better.fingerprint) == (plain.summary, plain.fingerprint)


def test_a_model_that_fails_leaves_the_plain_digest(caplog: pytest.LogCaptureFixture) -> None:
    """An exception, or no words at all, is no reason to be without a digest."""
    fs = InMemoryFilesystem(PROJECT)

    def broken(text: str) -> str:
        raise RuntimeError("no model today")

    assert build_digest(fs, improve=broken) == build_digest(fs)
    assert "could not be improved" in caplog.text
    assert build_digest(fs, improve=lambda text: "  ") == build_digest(fs)


def test_it_is_made_again_only_when_files_changed() -> None:
    """A refresh keeps the session's digest as it is until a file is added, changed or removed."""
    session, fs = Session(), InMemoryFilesystem(PROJECT)
    first = refresh_digest(session, fs)
    before = session.snapshot()
    assert refresh_digest(session, fs) is first
    assert session.changes(before) == ()
    for change in (
        lambda: fs.write("new.py", "x"),
        lambda: fs.write("new.py", "y"),
        lambda: fs.delete("new.py"),
    ):
        change()
        latest = refresh_digest(session, fs)
        assert latest is session[WorkspaceDigest].latest()
        assert latest is not first
        first = latest
    fs.write(".gitignore", "ignored.txt")
    known = refresh_digest(session, fs)
    fs.write("ignored.txt", "x")
    assert refresh_digest(session, fs) is known
    assert session[WorkspaceDigest].count() == 1


def test_an_improved_digest_is_kept_until_files_change() -> None:
    """A model is asked once for each state of the files, and not at all when it is not asked for."""
    session, fs, asked = Session(), InMemoryFilesystem(PROJECT), list[str]()

    def improve(text: str) -> str:
        asked.append(text)
        return "Better."

    plain = refresh_digest(session, fs)
    assert refresh_digest(session, fs, improve=improve).body == "Better."
    assert refresh_digest(session, fs, improve=improve).body == refresh_digest(session, fs).body == "Better."
    assert asked == [plain.body]
    fs.write("new.py", "x")
    assert not refresh_digest(session, fs).improved


def test_digests_have_names() -> None:
    """A session keeps one digest of each name."""
    session = Session()
    refresh_digest(session, InMemoryFilesystem({"a.py": "x"}), name="one")
    refresh_digest(session, InMemoryFilesystem({"b.go": "x"}), name="two")
    refresh_digest(session, InMemoryFilesystem({"c.rs": "x"}), name="one")
    assert [(digest.name, "Rust" in digest.body) for digest in session[WorkspaceDigest].all()] == [
        ("one", True),
        ("two", False),
    ]


def test_a_digest_survives_saving_and_loading() -> None:
    """It goes through JSON with its session and is still known to be true."""
    session, fs = Session(), InMemoryFilesystem(PROJECT)
    digest = refresh_digest(session, fs)
    loaded = Session.from_json(session.to_json(), types=[WorkspaceDigest])
    assert refresh_digest(loaded, fs) == digest


@pytest.mark.parametrize("source", ["/no/such/directory", Path("/no/such/directory")])
def test_a_missing_directory_is_an_error(source: Any) -> None:
    """There is no digest of what is not there."""
    with pytest.raises(FileNotFoundError):
        build_digest(source)


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`wink digest DIR` prints summary and body, as short as asked for."""
    (tmp_path / "main.py").write_text("x")
    assert main(["digest", str(tmp_path)]) == 0
    digest = build_digest(tmp_path)
    assert capsys.readouterr().out == f"{digest.summary}\n\n{digest.body}\n"
    for number in range(50):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "main.py").write_text("x")
    assert main(["digest", str(tmp_path), "--max-chars", "300"]) == 0
    assert "(cut here; more does not fit)" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "code"), [(["/no/such"], 2), ([__file__], 2), ([".", "--max-chars", "3"], 2)])
def test_the_command_says_what_is_wrong(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing directory, a file and a useless limit give one line and an exit code."""
    assert main(["digest", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("wink digest: ")
    assert captured.err.count("\n") == 1
    assert not captured.out


@settings(max_examples=20)
@given(st.integers(1, 60))
def test_every_file_is_counted_once(number: int) -> None:
    """The totals of languages and of the layout's upper level are those of the files."""
    files = {f"d{index % 3}/e{index % 2}/f{index}.py": "x" * index for index in range(number)}
    digest = build_digest(InMemoryFilesystem(files))
    assert part(digest.body, "Languages").startswith(f"- Python: {number} file")
    top = [line for line in part(digest.body, "Layout").splitlines() if line.startswith("- ")]
    assert sum(int(line.partition("(")[2].partition(" file")[0]) for line in top) == number
