"""What stands around the code: workflows, hooks, decision records, links."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import weakincentives

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.md")]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _make_targets() -> set[str]:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    return set(phony[1].split())


def test_the_workflows_call_targets_that_exist() -> None:
    """CI runs what a maintainer runs: every `make` in a workflow, and every target of a matrix, is in the Makefile."""
    called: set[str] = set()
    for file in (ROOT / ".github/workflows").glob("*.yml"):
        text = file.read_text()
        for words in re.findall(r"run: make ([a-z ]+)$", text, re.MULTILINE):
            called |= set(words.split())
        for listed in re.findall(r"target: \[(.*)\]", text):
            called |= set(re.findall(r"[a-z]+", listed))
    assert {"lint", "types", "docs", "quick", "test", "torture"} <= called <= _make_targets()


def test_every_job_has_a_time_limit() -> None:
    """A job that hangs does not run for the six hours that GitHub allows."""
    for file in (ROOT / ".github/workflows").glob("*.yml"):
        text = file.read_text()
        assert text.count("runs-on:") == text.count("timeout-minutes:") > 0, file.name


def test_hooks_download_nothing() -> None:
    """Every hook before a commit is local and runs a tool of the project's own environment."""
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"repo: (.*)", text) == ["local"]
    assert set(re.findall(r"language: (.*)", text)) == {"system"}
    assert all(entry.startswith(".venv/bin/") for entry in re.findall(r"entry: (.*)", text))


def test_decision_records_are_numbered_listed_and_short() -> None:
    """Numbers have no gaps, the list links to each record, and a record is a page at most."""
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))
    listed = LINK.findall((ROOT / "docs/decisions/README.md").read_text())
    assert [name for name in listed if name[0].isdigit()] == [record.name for record in RECORDS]
    assert [record.name for record in RECORDS if len(record.read_text().splitlines()) > 40] == []


def test_links_between_pages_lead_somewhere() -> None:
    """A relative link names a file or folder that exists."""
    broken = [
        (page.relative_to(ROOT).as_posix(), link)
        for page in PAGES
        for link in LINK.findall(page.read_text())
        if ":" not in link and not link.startswith("#") and not (page.parent / link.partition("#")[0]).exists()
    ]
    assert broken == []


def test_the_version_is_the_same_in_both_places() -> None:
    """A release sets it in pyproject.toml and in the package."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == weakincentives.__version__
