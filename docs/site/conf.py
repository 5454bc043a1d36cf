"""How Sphinx builds the site: `make site`. Its sources are the Markdown files of this repository, as they are."""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src"))

import weakincentives  # noqa: E402

PACKAGES = [
    f"weakincentives.{name}" for name in ("prompt", "runtime", "adapters", "session", "resources", "filesystem")
]
PACKAGES += [f"weakincentives.{name}" for name in ("serde", "errors", "dbc", "testing", "contrib.tools")]
PACKAGES += ["weakincentives"]

project = "WINK"
version = release = weakincentives.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/README"
include_patterns = ["[A-Z]*.md", "docs/**"]
exclude_patterns = ["docs/site/**", "**/__pycache__"]

myst_heading_anchors = 4  # links to headings, as GitHub makes them
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_use_ivar = True
python_maximum_signature_line_length = 100
suppress_warnings = ["ref.python"]  # a field named like another one is not a broken link
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"WINK {version}"
html_copy_source = False
html_show_copyright = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_extra_path = ["index.html"]  # leads to the front page, docs/README.html


def _reference_page(name: str, documented: dict[int, str]) -> str:
    """The page of one package. A name that an earlier page documents is only mentioned: it has one home."""
    module = import_module(name)
    here, elsewhere = [], []
    for public in module.__all__:
        value = getattr(module, public)
        setattr(module, public, value)  # autodoc does not see names that are imported on first use
        home = documented.setdefault(id(value), name)
        (here if home == name else elsewhere).append((public, home))
    lines = [name, "=" * len(name), "", f".. automodule:: {name}"]
    if here:
        lines += ["   :members: " + ", ".join(public for public, _ in here)]
    if elsewhere:
        lines += ["", "Also importable from here:", ""]
        lines += [f"- ``{public}``, see :py:obj:`{home}.{public}`" for public, home in elsewhere]
    return "\n".join(lines) + "\n"


def _write_reference() -> None:
    """One page per public package, from its docstrings. They are not kept in git."""
    folder = ROOT / "docs/reference"
    folder.mkdir(exist_ok=True)
    documented: dict[int, str] = {}
    for name in PACKAGES:
        (folder / f"{name}.rst").write_text(_reference_page(name, documented))


def _add_navigation(_app: Any, page: str, source: list[str]) -> None:
    """The tables of docs/README.md are the navigation as well: a table per group, with its links."""
    if page != root_doc:
        return
    groups = re.findall(r"^\| (\w.*?) \| \|\n\|---\|---\|\n((?:\|.*\n)+)", source[0], re.MULTILINE)
    tables = [(caption.capitalize(), re.findall(r"\]\(([\w-]+)\.md\)", rows)) for caption, rows in groups]
    tables.append(("Reference", [f"reference/{name}" for name in sorted(PACKAGES)]))
    tables.append(
        (
            "Project",
            [
                "/README",
                "/ARCHITECTURE",
                "decisions/README",
                "/CONTRIBUTING",
                "/SECURITY",
                "/CODE_OF_CONDUCT",
                "/CHANGELOG",
            ],
        )
    )
    for caption, pages in tables:
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"


def _list_decisions(_app: Any, page: str, source: list[str]) -> None:
    if page == "docs/decisions/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n[0-9]*\n```\n"


def _as_restructured_text(
    _app: Any, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Docstrings write `code` as Markdown does; a tree that is drawn in one is shown as it is."""
    for number, line in enumerate(lines):
        if "|--" in line:
            lines[number - 1 : number - 1] = ["::", ""]
            return
    escaped = [line if line.lstrip().startswith((">>>", "...")) else line.replace("|", r"\|") for line in lines]
    parts = re.split(r"(?<!`)`([^`]+)`(?!`)", "\n".join(escaped))
    parts[1::2] = [r"\ ``" + re.sub(r"\n\s*", " ", part).replace(r"\|", "|") + r"``\ " for part in parts[1::2]]
    lines[:] = "".join(parts).split("\n")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    _write_reference()
    app.connect("source-read", _add_navigation)
    app.connect("source-read", _list_decisions)
    app.connect("autodoc-process-docstring", _as_restructured_text, priority=100)
