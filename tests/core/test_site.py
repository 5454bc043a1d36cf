"""The documentation as a website. `make site` builds it and runs these on what it built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.conftest import needs

ROOT = Path(__file__).parents[2]
LOADED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


class _Page(HTMLParser):
    """What a page loads, where its links lead, and which places of it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag in LOADED and LOADED[tag] in given and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given[LOADED[tag]])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("sphinx", present=find_spec("sphinx") is not None, install="pip install -e '.[docs]'")
    if built := os.environ.get("WINK_TEST_SITE"):
        return ROOT / built
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-c", "docs/site", "-d"]
    done = subprocess.run(
        [*command, str(tmp_path_factory.mktemp("doctrees")), ".", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    return {file.resolve(): _Page(file.read_text()) for file in site.rglob("*.html")}


def test_every_page_of_the_guides_and_every_package_is_there(site: Path) -> None:
    """Each Markdown file of docs/ is a page, public packages have a reference page, and there is a search."""
    guides = {file.relative_to(ROOT).with_suffix(".html") for file in (ROOT / "docs").rglob("*.md")}
    assert {guide for guide in guides if not (site / guide).exists()} == set()
    reference = (site / "docs/reference/weakincentives.prompt.html").read_text()
    assert 'id="weakincentives.prompt.ToolContext"' in reference
    assert {
        name for name in ("index.html", "search.html", "searchindex.js", "genindex.html") if not (site / name).exists()
    } == set()


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, _Page]) -> None:
    """Pages, style sheets and scripts of the theme name only files of the site."""
    elsewhere = [
        (page.name, load) for page, content in pages.items() for load in content.loads if urlsplit(load).netloc
    ]
    assert elsewhere == []
    styles = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)")
    assert [(file.name, found) for file in site.rglob("*.css") for found in styles.findall(file.read_text())] == []


def _broken(pages: dict[Path, _Page]) -> Iterator[tuple[str, str]]:
    for page, content in pages.items():
        for link in [*content.links, *content.loads]:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (page.parent / unquote(address.path)).resolve() if address.path else page
            missing = target in pages and unquote(address.fragment) not in pages[target].anchors
            if not target.is_file() or missing:
                yield page.name, link


def test_links_inside_the_site_lead_somewhere(pages: dict[Path, _Page]) -> None:
    """Every link to a page, a file or a heading of the site has a target."""
    assert list(_broken(pages)) == []
