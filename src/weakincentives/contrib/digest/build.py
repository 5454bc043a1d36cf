"""Making a digest, and keeping a session's digest up to date."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from operator import attrgetter

from ...filesystem import Filesystem, HostFilesystem
from ...session import SessionProtocol, upsert_by
from .digest import DEFAULT_NAME, DigestConfig, WorkspaceDigest
from .scan import (
    BINARY,
    PROGRAMMING,
    SNIFFED,
    Findings,
    TreeEntry,
    WorkspaceScan,
    clip,
    find,
    language_by_content,
    language_by_name,
    scan,
)

# From what was found to the words of the digest. The same files give the same words, in whatever order they came.


_MAX_PATH = 160
_CUT = "(cut here; more does not fit)"


class Totals:
    """Files and bytes by some name."""

    __slots__ = ("files", "sizes")

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.sizes: Counter[str] = Counter()

    def add(self, name: str, size: int) -> None:
        """Count one file."""
        self.files[name] += 1
        self.sizes[name] += size

    def largest(self) -> list[str]:
        """The names, those with most bytes first."""
        return sorted(self.sizes, key=lambda name: (-self.sizes[name], -self.files[name], name))

    def said(self, name: str) -> str:
        """One of them in words."""
        return f"{_files(self.files[name])}, {readable(self.sizes[name])}"


def languages_of(fs: Filesystem, files: Iterable[TreeEntry]) -> Totals:
    """The languages; files whose names say nothing are looked into, a few bytes each."""
    totals = Totals()
    for entry in files:
        totals.add(language_by_name(entry.name) or _sniffed(fs, entry), entry.size)
    return totals


def _sniffed(fs: Filesystem, entry: TreeEntry) -> str:
    try:
        return language_by_content(fs.read_bytes(entry.path, limit=SNIFFED))
    except OSError:
        return BINARY


def layout_of(files: Iterable[TreeEntry], depth: int) -> Totals:
    """What each directory of the upper levels holds, all below it included."""
    totals = Totals()
    for entry in files:
        parts = entry.path.split("/")[:-1][:depth]
        for count in range(1, len(parts) + 1):
            totals.add("/".join(parts[:count]) + "/", entry.size)
    return totals


def summary_of(scan: WorkspaceScan, languages: Totals, findings: Findings) -> str:
    """The digest in a sentence or two."""
    size = sum(entry.size for entry in scan.files)
    more = "" if scan.complete else " or more"
    directories = _plural(scan.directories, "directory", "directories")
    said = f"{_files(len(scan.files))}{more} in {directories}, {readable(size)}"
    if main := _main_languages(languages):
        said += f"; mostly {' and '.join(main)}"
    starts = [f"`{clip(name, _MAX_PATH)}`" for name, _ in findings.entry_points[:3]]
    return f"{said}." + (f" Entry points: {', '.join(starts)}." if starts else "")


def body_of(scan: WorkspaceScan, languages: Totals, findings: Findings, config: DigestConfig) -> str:
    """The whole digest, cut at a line when it is longer than it may be."""
    most = config.max_entries
    layout = layout_of(scan.files, config.max_depth)
    large = sorted((entry for entry in scan.files if entry.size >= config.large_file), key=lambda e: (-e.size, e.path))
    directories = _chosen(layout, 2 * most)
    parts = [
        [f"**Size:** {_size_line(scan)}"],
        _listed("Languages", [f"- {name}: {languages.said(name)}" for name in languages.largest()], most),
        _listed("Entry points", [_remark(*item) for item in findings.entry_points], most),
        _listed("Key files", [_remark(*item) for item in findings.key_files], most),
        _listed("Layout", [_indented(path, layout) for path in directories], 2 * most, of=len(layout.files)),
        _listed("Large files", [f"- {_code(entry.path)} ({readable(entry.size)})" for entry in large], most),
    ]
    return _fitted("\n\n".join("\n".join(part) for part in parts if part), config.max_chars)


def _size_line(scan: WorkspaceScan) -> str:
    size = sum(entry.size for entry in scan.files)
    said = f"{_files(len(scan.files))} in {_plural(scan.directories, 'directory', 'directories')}, {readable(size)}"
    if scan.symlinks:
        said += f"; {_plural(scan.symlinks, 'symlink', 'symlinks')}, not followed"
    if scan.unreadable:
        said += f"; {_plural(scan.unreadable, 'directory', 'directories')} could not be read"
    return f"{said}." if scan.complete else f"{said}. There are more: the limit was reached."


def _listed(title: str, lines: Sequence[str], most: int, of: int | None = None) -> list[str]:
    """A list below its title; `of` is how many there are, where not all of them are given."""
    if not lines:
        return []
    hidden = (len(lines) if of is None else of) - len(lines[:most])
    return [f"**{title}**", "", *lines[:most], *([f"- ({hidden:,} more)"] if hidden else [])]


def _remark(name: str, remark: str) -> str:
    return f"- {_code(name)}: {remark}" if remark else f"- {_code(name)}"


def _chosen(layout: Totals, most: int) -> list[str]:
    """The directories to show, in order of their paths: where there are too many, the upper and the larger ones."""
    ranked = sorted(layout.files, key=lambda path: (path.count("/"), -layout.files[path], path))
    return sorted(ranked[:most])


def _indented(path: str, layout: Totals) -> str:
    above, name = path[:-1].count("/"), path[:-1].rpartition("/")[2]
    return f"{'  ' * above}- {_code(name + '/')} ({layout.said(path)})"


def _main_languages(languages: Totals) -> list[str]:
    """The one or two programming languages that most is written in."""
    written = [name for name in languages.largest() if name in PROGRAMMING]
    if len(written) < 2:
        return written
    first, second = written[:2]
    return [first, second] if languages.sizes[second] * 3 >= languages.sizes[first] else [first]


def _code(text: str) -> str:
    return f"`{clip(text, _MAX_PATH)}`"


def _fitted(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    kept = text[: limit - len(_CUT) - 1].rpartition("\n")[0].rstrip()
    return f"{kept}\n{_CUT}"


def readable(size: int) -> str:
    """A number of bytes for people.

    >>> readable(512), readable(15_300), readable(2_500_000_000)
    ('512 B', '15 KB', '2.5 GB')
    """
    value, units = float(size), ["B", "KB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if value >= 9.95 or units[0] == "B" else f"{value:.1f} {units[0]}"


def _files(number: int) -> str:
    return _plural(number, "file", "files")


def _plural(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


logger: logging.Logger = logging.getLogger(__name__)

DigestSource = Filesystem | str | os.PathLike[str]
"""Where the files are: a filesystem, or a directory of this machine."""
Improve = Callable[[str], str]
"""Makes a better digest of a digest, mostly by asking a model; what it raises is logged and the digest kept."""

_DEFAULT = DigestConfig()
_by_name = upsert_by(attrgetter("name"))


def build_digest(
    source: DigestSource,
    *,
    config: DigestConfig | None = None,
    improve: Improve | None = None,
    name: str = DEFAULT_NAME,
) -> WorkspaceDigest:
    """The digest of a workspace as it is now. Without `improve` it is made from the files alone, always the same.

    Files that `.gitignore` leaves out do not count, symlinks are not followed, and of no file more than a manifest's
    beginning is read. A directory is opened read-only. Raises `FileNotFoundError` or `NotADirectoryError` when the
    source is none.

    >>> from weakincentives.filesystem import InMemoryFilesystem
    >>> files = InMemoryFilesystem({"src/main.py": "print('hi')", "README.md": "# A greeter"})
    >>> build_digest(files).summary
    '2 files in 1 directory, 22 B; mostly Python. Entry points: `src/main.py`.'
    """
    config = config or _DEFAULT
    with _opened(source) as fs:
        digest = _made(fs, scan(fs, config), config, name)
    return digest if improve is None else _improved(digest, improve, config)


def refresh_digest(
    session: SessionProtocol,
    source: DigestSource,
    *,
    config: DigestConfig | None = None,
    improve: Improve | None = None,
    name: str = DEFAULT_NAME,
) -> WorkspaceDigest:
    """The session's digest, made again when files have changed since. Raises as `build_digest` does.

    Called inside a tool call, the session forgets it again when that call fails.
    """
    config = config or _DEFAULT
    install_digest(session)
    known = session_digest(session, name)
    with _opened(source) as fs:
        found = scan(fs, config)
        digest = known
        if digest is None or digest.fingerprint != found.fingerprint:
            digest = _made(fs, found, config, name)
    if improve is not None and not digest.improved:
        digest = _improved(digest, improve, config)
    if digest is not known:
        session.dispatch(digest)
    return digest


def current_digest(
    source: DigestSource, known: Iterable[WorkspaceDigest | None], config: DigestConfig, name: str
) -> WorkspaceDigest:
    """What is true now: the first known digest that still is, else a new one. Changes nothing."""
    with _opened(source) as fs:
        found = scan(fs, config)
        for digest in known:
            if digest is not None and digest.fingerprint == found.fingerprint:
                return digest
        return _made(fs, found, config, name)


def session_digest(session: SessionProtocol, name: str = DEFAULT_NAME) -> WorkspaceDigest | None:
    """The digest of that name in a session, or None."""
    return next((digest for digest in reversed(session[WorkspaceDigest].all()) if digest.name == name), None)


def install_digest(session: SessionProtocol) -> None:
    """Let a session keep one digest of each name. May be repeated."""
    session[WorkspaceDigest].register(WorkspaceDigest, _by_name)


def _opened(source: DigestSource) -> AbstractContextManager[Filesystem]:
    if isinstance(source, str | os.PathLike):
        return HostFilesystem(source, read_only=True)
    return nullcontext(source)


def _made(fs: Filesystem, found: WorkspaceScan, config: DigestConfig, name: str) -> WorkspaceDigest:
    languages = languages_of(fs, found.files)
    findings = find(fs, found.files)
    return WorkspaceDigest(
        summary=summary_of(found, languages, findings),
        body=body_of(found, languages, findings, config),
        fingerprint=found.fingerprint,
        files=len(found.files),
        size=sum(entry.size for entry in found.files),
        name=name,
    )


def _improved(digest: WorkspaceDigest, improve: Improve, config: DigestConfig) -> WorkspaceDigest:
    try:
        text = improve(digest.body).strip()
    except Exception:  # a model was asked, or whatever else the caller thought of
        logger.warning("The digest could not be improved; the plain one is kept", exc_info=True)
        return digest
    if not text:
        return digest
    return replace(digest, body=text[: config.max_chars], improved=True)
