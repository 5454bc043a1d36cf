"""What is in a workspace: its files, without those that `.gitignore` leaves out, and what they say of the project."""

from __future__ import annotations

import json
import re
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from ...filesystem import Filesystem
from ...filesystem.paths import ROOT
from ...filesystem.search.gitignore import Ignore
from .digest import DigestConfig


class TreeEntry(NamedTuple):
    """A file that counts."""

    path: str
    size: int
    modified: float
    mode: int

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def depth(self) -> int:
        """How many directories it is in."""
        return self.path.count("/")


@dataclass(slots=True, frozen=True)
class WorkspaceScan:
    """What a walk found; the files are sorted by path.

    Attributes:
        complete: whether every directory was looked at.
        unreadable: how many could not be read.
    """

    files: tuple[TreeEntry, ...]
    directories: int
    symlinks: int
    unreadable: int
    complete: bool
    fingerprint: str


def scan(fs: Filesystem, config: DigestConfig) -> WorkspaceScan:
    """Walk a filesystem, the upper levels first, until `max_files` were seen. No file's content is read."""
    ignore = Ignore(fs.stream)
    files: list[TreeEntry] = []
    counts = {"directory": 0, "symlink": 0, "unreadable": 0}
    waiting = deque([ROOT])
    while waiting and len(files) < config.max_files:
        try:
            children = fs.list(waiting.popleft())
        except OSError:  # gone since it was seen, or not ours to read
            counts["unreadable"] += 1
            continue
        for path, kind, size, modified, mode in (
            (child.path, child.kind, child.size, child.modified, child.mode)
            for child in children
            if not ignore.ignores(child.path, child.kind)
        ):
            if kind == "file":
                files.append(TreeEntry(path, size, modified, mode))
            elif kind == "directory":
                counts["directory"] += 1
                waiting.append(path)
            else:
                counts["symlink"] += kind == "symlink"
    complete = not waiting and len(files) <= config.max_files
    files = sorted(files[: config.max_files])
    return WorkspaceScan(
        tuple(files), counts["directory"], counts["symlink"], counts["unreadable"], complete,
        _fingerprint(files, counts, config),
    )  # fmt: skip


def _fingerprint(files: list[TreeEntry], counts: dict[str, int], config: DigestConfig) -> str:
    state = blake2b(f"{config}{counts}".encode(), digest_size=16)
    for entry in files:
        state.update(f"{entry.path}\0{entry.size}\0{entry.modified!r}\0{entry.mode}\n".encode())
    return state.hexdigest()


# What a file is written in, by its name, or by its first bytes where the name does not say.


BINARY = "binary"
TEXT = "other text"

_CODE = {
    "Python": "py pyi pyx", "JavaScript": "js mjs cjs jsx", "TypeScript": "ts tsx mts cts", "Go": "go", "Rust": "rs",
    "C": "c h", "C++": "cc cpp cxx hh hpp hxx", "C#": "cs", "Java": "java", "Kotlin": "kt kts", "Scala": "scala sc",
    "Swift": "swift", "Objective-C": "m mm", "Ruby": "rb rake gemspec", "PHP": "php", "Perl": "pl pm", "R": "r",
    "Lua": "lua", "Julia": "jl", "Haskell": "hs lhs", "OCaml": "ml mli", "Elixir": "ex exs", "Erlang": "erl hrl",
    "Clojure": "clj cljs cljc edn", "F#": "fs fsx", "Dart": "dart", "Zig": "zig", "Nim": "nim", "Solidity": "sol",
    "Groovy": "groovy gradle", "Shell": "sh bash zsh fish ksh", "PowerShell": "ps1 psm1", "Batch": "bat cmd",
    "SQL": "sql", "Vue": "vue", "Svelte": "svelte", "Terraform": "tf tfvars", "Protocol Buffers": "proto",
    "GraphQL": "graphql gql", "Assembly": "asm s", "Fortran": "f90 f95 f03 for", "Nix": "nix", "CMake": "cmake",
    "Starlark": "bzl star",
}  # fmt: skip
_MARKUP = {
    "Markdown": "md mdx markdown", "reStructuredText": "rst", "HTML": "html htm xhtml", "CSS": "css scss sass less",
    "JSON": "json jsonl ndjson json5 geojson", "YAML": "yaml yml", "TOML": "toml", "XML": "xml xsd xsl svg plist",
    "INI": "ini cfg conf properties editorconfig env", "CSV": "csv tsv", "LaTeX": "tex bib sty", "Text": "txt text log",
    "Jupyter notebook": "ipynb", "lock file": "lock",
}  # fmt: skip
_BINARY = (
    "png jpg jpeg gif webp bmp ico tif tiff psd pdf zip gz bz2 xz zst 7z rar tar tgz jar war whl egg so dll dylib exe "
    "o a obj lib class pyc pyo pyd bin dat db sqlite sqlite3 woff woff2 ttf otf eot mp3 mp4 m4a wav ogg flac avi mov "
    "mkv webm npy npz pkl pickle parquet arrow feather h5 hdf5 onnx pt pth safetensors gguf doc docx xls xlsx ppt pptx "
    "odt ods wasm"
)

_BY_EXTENSION = {
    **{extension: name for table in (_CODE, _MARKUP) for name, said in table.items() for extension in said.split()},
    **dict.fromkeys(_BINARY.split(), BINARY),
}
_BY_NAME = {
    "makefile": "Make", "gnumakefile": "Make", "dockerfile": "Dockerfile", "containerfile": "Dockerfile",
    "cmakelists.txt": "CMake", "rakefile": "Ruby", "gemfile": "Ruby", "jenkinsfile": "Groovy", "justfile": "Just",
    "build": "Starlark", "build.bazel": "Starlark", "workspace": "Starlark", "license": "Text", "copying": "Text",
    "readme": "Text", "changelog": "Text", "go.mod": "Go", "go.sum": "lock file", "package-lock.json": "lock file",
    ".gitignore": "INI", ".gitattributes": "INI", ".editorconfig": "INI", ".dockerignore": "INI", "py.typed": "Text",
}  # fmt: skip
_BY_INTERPRETER = {
    "python": "Python", "node": "JavaScript", "deno": "TypeScript", "ruby": "Ruby", "perl": "Perl", "php": "PHP",
    "lua": "Lua", "rscript": "R", "make": "Make",
}  # fmt: skip

PROGRAMMING = frozenset(_CODE) | frozenset({"Make"})
"""Languages that say what a project is made of; the others hold its data and its prose."""

SNIFFED = 512
"""How many bytes of a file with an unknown name are looked at."""

_shebang = re.compile(rb"#!\s*(?:\S*/env\s+(?:-\S+\s+)*)?(?:\S*/)?([A-Za-z]+)").match


def language_by_name(name: str) -> str | None:
    """The language that a file's name gives away, or None.

    >>> language_by_name("main.rs"), language_by_name("Makefile"), language_by_name("mystery")
    ('Rust', 'Make', None)
    """
    name = name.lower()
    known = _BY_NAME.get(name)
    return known if known is not None else _BY_EXTENSION.get(name.rpartition(".")[2] if "." in name else "")


def language_by_content(head: bytes) -> str:
    r"""The language that the beginning of a file gives away; text or binary when it gives away no more.

    >>> language_by_content(b"#!/usr/bin/env python3"), language_by_content(b"\x7fELF\x00")
    ('Python', 'binary')
    """
    if b"\0" in head:
        return BINARY
    found = _shebang(head)
    return TEXT if found is None else _BY_INTERPRETER.get(found[1].decode().lower(), "Shell")


# What a project says of itself: the files that describe it, and how it is started.

MAX_READ = 256 * 1024
"""Larger manifests are named, not read."""
_MAX_MANIFESTS = 40
_MAX_SAID = 120
_DEEPEST_KEY_FILE = 1
_DEEPEST_MANIFEST = 3
_DEEPEST_MAIN = 4

_ASIDE = frozenset({"test", "tests", "testing", "example", "examples", "vendor", "third_party", "node_modules", "docs"})

_target = re.compile(r"^([A-Za-z0-9][A-Za-z0-9_.-]*)\s*:(?![=:])", re.MULTILINE)
_module = re.compile(r"^module\s+(\S+)", re.MULTILINE)

Remarks = list[tuple[str, str]]
"""Paths or names, each with what there is to say; nothing when it is empty."""


class Findings(NamedTuple):
    """The files that say what the project is, and what starts it: nothing else is guessed from a name."""

    key_files: Remarks
    entry_points: Remarks


class _ManifestInfo(NamedTuple):
    """What one manifest says."""

    about: str = ""
    starts: tuple[tuple[str, str], ...] = ()


def find(fs: Filesystem, files: tuple[TreeEntry, ...]) -> Findings:
    """Look for what describes the project and what starts it, the upper levels first.

    What cannot be read or makes no sense is named without a remark: a broken manifest is not a reason to fail.
    """
    key_files: Remarks = []
    entry_points: Remarks = []
    read = 0
    for entry in sorted(files, key=lambda entry: entry.depth):
        name = entry.name.lower()
        reader = _READERS.get(name) or (_readme if name.startswith("readme") else None)
        if reader is not None and entry.depth <= _DEEPEST_MANIFEST and read < _MAX_MANIFESTS:
            read += 1
            said = _read(fs, entry, reader)
            entry_points += said.starts
            if entry.depth <= _DEEPEST_KEY_FILE:
                key_files.append((entry.path, said.about))
        if (remark := _starts_by_itself(fs, entry, name)) is not None:
            entry_points.append((entry.path, remark))
    return Findings(key_files, entry_points)


def _starts_by_itself(fs: Filesystem, entry: TreeEntry, name: str) -> str | None:
    """What to say of a file that is an entry point by its name or mode; None when it is none."""
    if entry.depth > _DEEPEST_MAIN or not _ASIDE.isdisjoint(entry.path.lower().split("/")[:-1]):
        return None
    if name.partition(".")[0] in {"main", "__main__"} and language_by_name(name) in PROGRAMMING:
        return ""
    if not entry.mode & 0o111 or entry.depth > _DEEPEST_KEY_FILE or language_by_name(name) == BINARY:
        return None
    try:
        head = fs.read_bytes(entry.path, limit=SNIFFED)
    except OSError:
        return None
    return f"executable, {language_by_content(head)}" if head.startswith(b"#!") else None


def _read(fs: Filesystem, entry: TreeEntry, reader: Callable[[str, str], _ManifestInfo]) -> _ManifestInfo:
    if entry.size > MAX_READ:
        return _ManifestInfo("too large to read here")
    try:
        data = fs.read_bytes(entry.path, limit=MAX_READ)
    except OSError:
        return _ManifestInfo()
    if b"\0" in data:
        return _ManifestInfo("binary")
    try:
        return reader(data.decode("utf-8", "replace"), entry.path)
    except (ValueError, RecursionError):  # not TOML or JSON, or nested without end
        return _ManifestInfo("not readable")


def _readme(text: str, _: str) -> _ManifestInfo:
    lines = (line.strip().strip("#=-*<>! ").strip() for line in text.splitlines())
    return _ManifestInfo(clip(next((line for line in lines if line), "")))


def _makefile(text: str, _: str) -> _ManifestInfo:
    targets = list(dict.fromkeys(_target.findall(text)))
    return _ManifestInfo(clip("targets: " + ", ".join(targets)) if targets else "")


def _go_mod(text: str, _: str) -> _ManifestInfo:
    found = _module.search(text)
    return _ManifestInfo("" if found is None else clip(f"module {found[1]}"))


def _pyproject(text: str, path: str) -> _ManifestInfo:
    project = _table(tomllib.loads(text), "project")
    scripts = [(name, run) for key in ("scripts", "gui-scripts") for name, run in _texts(_table(project, key))]
    return _ManifestInfo(_about(project), tuple((clip(name), clip(f"runs {run} ({path})")) for name, run in scripts))


def _cargo(text: str, _: str) -> _ManifestInfo:
    return _ManifestInfo(_about(_table(tomllib.loads(text), "package")))


def _package_json(text: str, path: str) -> _ManifestInfo:
    package = _mapping(json.loads(text))
    commands = package.get("bin")
    if isinstance(commands, str):
        commands = {str(package.get("name") or "bin"): commands}
    starts = [(name, f"runs {run} ({path})") for name, run in _texts(_mapping(commands))]
    starts += [
        (f"npm run {name}", f"runs {run} ({path})")
        for name, run in _texts(_table(package, "scripts"))
        if name in {"start", "dev", "serve"}
    ]
    if isinstance(main := package.get("main"), str):
        starts.append((main, f"main of {path}"))
    return _ManifestInfo(_about(package), tuple((clip(name), clip(remark)) for name, remark in starts))


_READERS: dict[str, Callable[[str, str], _ManifestInfo]] = {
    "pyproject.toml": _pyproject,
    "package.json": _package_json,
    "cargo.toml": _cargo,
    "go.mod": _go_mod,
    "makefile": _makefile,
    "gnumakefile": _makefile,
}


def _about(table: Mapping[str, Any]) -> str:
    name, description = table.get("name"), table.get("description")
    said = [text for text in (name, description) if isinstance(text, str) and text.strip()]
    return clip(": ".join(said))


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _table(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return _mapping(table.get(key))


def _texts(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return ((str(name), value) for name, value in table.items() if isinstance(value, str))


def clip(text: str, limit: int = _MAX_SAID) -> str:
    """One line of at most `limit` characters, without control characters and backticks.

    What files say goes into a prompt: it must not pose as more than a remark.
    """
    text = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * limit]).split())
    text = text.replace("`", "'")
    return text if len(text) <= limit else text[: limit - 3] + "..."
