"""What a file is written in, by its name, or by its first bytes where the name does not say."""

from __future__ import annotations

import re

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
    "python": "Python", "node": "JavaScript", "deno": "TypeScript", "sh": "Shell", "bash": "Shell", "zsh": "Shell",
    "dash": "Shell", "ksh": "Shell", "fish": "Shell", "ruby": "Ruby", "perl": "Perl", "php": "PHP", "lua": "Lua",
    "rscript": "R", "make": "Make",
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


__all__ = ["BINARY", "PROGRAMMING", "SNIFFED", "TEXT", "language_by_content", "language_by_name"]
