"""Say for every dependency whether it can be installed from wheels, without a compiler.

    python scripts/check_wheels.py [--python 3.15] [--group core]

For the core and each extra it follows the requirements in pyproject.toml, with their markers, at the versions in
constraints.txt (the newest that is allowed, where nothing is pinned), for each Python and system below. It asks the
index that pip is configured with. Exits with 1 when something has no wheel, and with 2 when the index cannot be asked.
"""

from __future__ import annotations

import argparse
import io
import re
import ssl
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from html.parser import HTMLParser
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import unquote, urldefrag, urljoin
from urllib.request import Request, urlopen

from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
GLIBC = 34
"""Of the oldest Linux that is asked about: 2.34, of 2021."""
NOT_OURS = {"all", "dev", "docs"}
"""Names the other extras; tools of the developers, of which nothing is needed to use or to test the package."""


class System(NamedTuple):
    """An operating system and a kind of processor."""

    name: str
    platform: str
    machine: str

    def platforms(self) -> list[str]:
        """The platform tags of the wheels that run there."""
        if self.platform == "darwin":
            return list(mac_platforms((15, 0), self.machine))
        old = [f"manylinux{name}_{self.machine}" for name in ("2014", "2010", "1")]
        return (
            [f"manylinux_2_{minor}_{self.machine}" for minor in range(GLIBC, 4, -1)] + old + [f"linux_{self.machine}"]
        )


SYSTEMS = (
    System("Linux x86-64", "linux", "x86_64"),
    System("Linux ARM64", "linux", "aarch64"),
    System("macOS ARM64", "darwin", "arm64"),
)


class Target(NamedTuple):
    """One interpreter on one system."""

    python: str
    system: System

    def __str__(self) -> str:
        return f"CPython {self.python} on {self.system.name}"

    def environment(self, extra: str) -> dict[str, str]:
        """What the markers of requirements are compared with."""
        return {
            "extra": extra,
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": self.system.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Darwin" if self.system.platform == "darwin" else "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": self.system.platform,
        }


@cache
def tags(target: Target) -> frozenset[Tag]:
    """The tags of the wheels that the target can install."""
    major, minor = map(int, target.python.split("."))
    platforms = target.system.platforms()
    interpreter = f"cp{major}{minor}"
    return frozenset(
        [
            *cpython_tags((major, minor), platforms=platforms),
            *compatible_tags((major, minor), interpreter, platforms),
        ]
    )


class Link(NamedTuple):
    """A wheel in the index."""

    url: str
    version: Version
    tags: frozenset[Tag]
    pythons: SpecifierSet

    def runs_on(self, target: Target) -> bool:
        """Whether pip would install it there."""
        return not self.tags.isdisjoint(tags(target)) and self.pythons.contains(target.python)


class Index(HTMLParser):
    """The simple repository API of an index, as HTML, which every index offers."""

    def __init__(self, address: str, certificates: str | None) -> None:
        super().__init__()
        self._address = address.rstrip("/") + "/"
        self._context = ssl.create_default_context(cafile=certificates)
        self._links: dict[str, list[Link]] = {}
        self._answered = False
        self._found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link of the page."""
        if tag == "a":
            self._found.append(dict(attrs))

    def links(self, name: str) -> list[Link]:
        """The wheels of a project."""
        if name not in self._links:
            page = urljoin(self._address, f"{name}/")
            self.reset()
            self._found = []
            try:
                self.feed(self._read(page).decode())
                self._answered = True
            except HTTPError as error:
                if error.code != HTTPStatus.NOT_FOUND or not self._answered:  # a wrong address knows no project at all
                    raise
            self._links[name] = list(_wheels(page, self._found))
        return self._links[name]

    def requirements(self, link: Link) -> list[Requirement]:
        """What a wheel needs."""
        try:
            text = self._read(f"{link.url}.metadata")
        except HTTPError:  # an index need not offer it
            with zipfile.ZipFile(io.BytesIO(self._read(link.url))) as wheel:
                path = next(item for item in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", item))
                text = wheel.read(path)
        return [Requirement(line) for line in parse_email(text)[0].get("requires_dist", [])]

    def _read(self, url: str) -> bytes:
        request = Request(url, headers={"Accept": "text/html, */*;q=0.1"})  # noqa: S310 - the address pip uses
        with urlopen(request, timeout=120, context=self._context) as answer:  # noqa: S310
            return answer.read()


def _wheels(page: str, found: Iterable[Mapping[str, str | None]]) -> Iterator[Link]:
    for attributes in found:
        url = urldefrag(urljoin(page, attributes.get("href") or "")).url
        try:
            _, version, _, wheel_tags = parse_wheel_filename(unquote(url.rsplit("/", 1)[-1]))
        except InvalidWheelFilename:
            continue
        yield Link(url, version, wheel_tags, SpecifierSet(attributes.get("data-requires-python") or ""))


class Missing(NamedTuple):
    """A package without a wheel for a target, and for what it is needed."""

    package: str
    target: Target
    groups: tuple[str, ...]


class Checker:
    """Follows requirements; asks the index about each project once."""

    def __init__(self, index: Index, pins: Mapping[str, Version], own_name: str) -> None:
        self._index = index
        self._pins = pins
        self._own_name = own_name
        self._needs: dict[str, list[Requirement]] = {}
        self.asked: set[str] = set()

    def missing(self, requirements: Iterable[Requirement], target: Target) -> Iterator[str]:
        """The packages that the requirements lead to and that have no wheel for the target."""
        waiting = [(requirement, "") for requirement in requirements]
        seen: set[tuple[str, str]] = set()
        while waiting:
            requirement, extra = waiting.pop()
            name = canonicalize_name(requirement.name)
            marker = requirement.marker
            if name == self._own_name or (marker is not None and not marker.evaluate(target.environment(extra))):
                continue
            for wanted in sorted({"", *requirement.extras}):
                if (name, wanted) in seen:
                    continue
                seen.add((name, wanted))
                link = self._newest(name, requirement.specifier, target)
                if link is None:
                    yield f"{name}=={self._pins[name]}" if name in self._pins else f"{name}{requirement.specifier}"
                    break
                self.asked.add(f"{name}=={link.version}")
                waiting += [(need, wanted) for need in self._needed(name, link)]

    def _newest(self, name: str, allowed: SpecifierSet, target: Target) -> Link | None:
        links = [link for link in self._index.links(name) if link.runs_on(target)]
        if name in self._pins:
            links = [link for link in links if link.version == self._pins[name]]
        return max(
            (link for link in links if allowed.contains(link.version)), key=lambda link: link.version, default=None
        )

    def _needed(self, name: str, link: Link) -> list[Requirement]:
        key = f"{name}=={link.version}"
        if key not in self._needs:
            self._needs[key] = self._index.requirements(link)
        return self._needs[key]


def pip_index() -> Index:
    """The index that pip is configured with."""
    pip = [sys.executable, "-m", "pip"]
    usage = subprocess.run([*pip, "download", "--help"], capture_output=True, text=True, check=True).stdout
    # The only public place where pip says it: the default of the option is what was configured.
    address = re.search(r"--index-url <url>.*?\(default\s+(\S+?)\)", usage, re.DOTALL)
    if address is None:
        raise OSError("pip does not say which index it uses")
    settings = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
    certificates = re.search(r"^[\w:]+\.cert='(.+)'$", settings, re.MULTILINE)
    return Index(address[1], certificates[1] if certificates else None)


def read_project(root: Path) -> tuple[str, dict[str, list[Requirement]], dict[str, Version]]:
    """The project's name, the requirements of its core and extras, and the pins."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    groups = {"core": project["dependencies"], **project.get("optional-dependencies", {})}
    lines = (root / "constraints.txt").read_text().split()
    pins: dict[str, Version] = {}
    for name, _, version in (line.partition("==") for line in lines):
        pins[canonicalize_name(name)] = Version(version)
    return (
        canonicalize_name(project["name"]),
        {name: [Requirement(text) for text in texts] for name, texts in groups.items() if name not in NOT_OURS},
        pins,
    )


def check(root: Path, index: Index, pythons: Iterable[str], only: str | None) -> tuple[list[Missing], int]:
    """What has no wheel, and how many packages were looked at."""
    name, groups, pins = read_project(root)
    if only not in {None, *groups}:
        raise ValueError(f"there is no group {only}; choose from: {', '.join(groups)}")
    checker = Checker(index, pins, name)
    found: dict[tuple[str, Target], list[str]] = {}
    for target in (Target(python, system) for python in pythons for system in SYSTEMS):
        for group, requirements in groups.items():
            if only in {None, group}:
                for package in checker.missing(requirements, target):
                    found.setdefault((package, target), []).append(group)
    return [Missing(*key, tuple(names)) for key, names in found.items()], len(checker.asked)


def main() -> int:
    """Print what has no wheel."""
    parser = argparse.ArgumentParser(description="Say which dependencies have no wheels.")
    parser.add_argument("--python", choices=PYTHONS, action="append", help="only for this version; may be repeated")
    parser.add_argument("--group", help="only the core, or one extra")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="where pyproject.toml is")
    arguments = parser.parse_args()
    try:
        missing, count = check(arguments.root, pip_index(), arguments.python or PYTHONS, arguments.group)
    except ValueError as error:
        parser.error(str(error))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"The index cannot be asked: {error}", file=sys.stderr)
        return 2
    for package, target, groups in sorted(missing, key=lambda item: (item.package, str(item.target))):
        print(f"{package}: no wheel for {target} (needed by {', '.join(groups)})")
    print(f"{count} packages looked at, {len({item.package for item in missing})} without a wheel somewhere")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
